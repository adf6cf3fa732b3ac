//! Hand-over of work by a busy node: "SSL with backend forwarding".
//!
//! Sessions bind clients to nodes, so some nodes are busy while others have room. A busy node hands over a connection
//! or a request to one that is not. Reports of others are some 200 ms old; so the caller adds its hand-overs since
//! then.

/// The work of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Open connections.
    pub connections: u64,
    /// CPU time in use, in thousandths.
    pub cpu: u32,
}

/// Limits above which a node is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Open connections.
    pub connections: u64,
    /// CPU time in use, in thousandths.
    pub cpu: u32,
}

impl Busy {
    /// Whether a node with this work is busy.
    pub fn is(self, work: Work) -> bool {
        work.connections > self.connections || work.cpu > self.cpu
    }
}

/// Whether a node with the work `own` hands over to one with the work `other`: if it is busy, and the other
/// has fewer connections and is not busy.
pub fn is_lighter(busy: Busy, own: Work, other: Work) -> bool {
    busy.is(own) && other.connections < own.connections && !busy.is(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_node_gives_to_one_that_has_less_to_do() {
        let busy = Busy { connections: 10, cpu: 800 };
        let work = |connections, cpu| Work { connections, cpu };
        let rows = [
            (work(10, 800), work(0, 0), false),
            (work(11, 0), work(3, 0), true),
            (work(11, 0), work(0, 801), false),
            (work(12, 0), work(11, 0), false),
            (work(2, 801), work(1, 0), true),
            (work(2, 801), work(2, 0), false),
        ];
        for (own, other, expected) in rows {
            assert_eq!(is_lighter(busy, own, other), expected, "{own:?} {other:?}");
        }
    }
}
