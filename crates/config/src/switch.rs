//! Machines that take what clients send. A machine may be a switch and a node at once; the two have the same
//! name then, and [`Pool::delegate`](crate::Pool::delegate) says what such a switch leaves to its own node.

use crate::Service;

/// The most switches that a cluster can have.
pub const MAX_SWITCHES: usize = 64;

/// The services of a switch that serves all. No name has parentheses.
const ALL: &str = "(all)";

/// Place of a switch among those of its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its number in the file, from 0 on: different for all switches, below [`MAX_SWITCHES`].
    pub number: u8,
    /// No other switch serves one of its services.
    pub is_alone: bool,
}

impl Default for Rank {
    /// The rank of a switch whose file names none.
    fn default() -> Self {
        Rank { number: 0, is_alone: true }
    }
}

/// A machine that receives clients' packets to the VIPs of its services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// As for [`Node::name`](crate::Node::name). A switch with the name of a node is the same machine.
    pub name: String,
    /// Indices into [`Cluster::services`](crate::Cluster::services), rising; in a file at least one. All of them if the
    /// file does not say.
    pub services: Vec<usize>,
}

impl Switch {
    /// Each key of `[[switch]]` except `name` in words; `services` are those of the cluster.
    pub(crate) fn in_words(&self, services: &[Service]) -> [(&'static str, String); 1] {
        // In the order of their names: the order of services in the file has no meaning.
        let mut names: Vec<&str> =
            self.services.iter().map(|&service| services[service].name.as_str()).collect();
        names.sort_unstable();
        let all = self.services.len() == services.len();
        [("services", if all { ALL.to_owned() } else { names.join(", ") })]
    }
}
