//! To whom a busy node hands over what it has been given: "SSL with backend forwarding".
//!
//! Sessions bind clients to nodes, so work arrives where it must and not where there is room. A node that is busy gives a
//! connection or a request to one that is not. What is known of others is some 200 ms old; so the caller adds to it what it
//! has given since.

/// What a node has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Connections that it has.
    pub connections: u64,
    /// Its CPU time in use, in thousandths.
    pub cpu: u32,
}

/// When a node is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// With more connections.
    pub connections: u64,
    /// With more of its CPU time in use, in thousandths.
    pub cpu: u32,
}

impl Busy {
    /// Whether one with so much to do is.
    pub fn is(self, work: Work) -> bool {
        work.connections > self.connections || work.cpu > self.cpu
    }
}

/// Whether a node that has `own` to do had better give something to one that has `other` to do: if it is busy, and the other
/// one has fewer connections and is not.
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
