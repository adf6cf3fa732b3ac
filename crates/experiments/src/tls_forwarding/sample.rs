//! The models, and one load of a model, measured.

use std::fmt;
use std::time::Duration;

use crate::tls_load::open::Outcome;

/// Number of nodes.
pub(super) const NODES: usize = 6;
/// CPU quota of each node's processes, in thousandths of a CPU.
pub(super) const QUOTA: u32 = 150;
/// Number of connections above which a node is busy. Below saturation there are two or three at a time.
const BUSY_CONNECTIONS: u32 = 4;

/// The distribution of clients over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Round robin.
    RoundRobin,
    /// To the node with their session.
    Session,
    /// To the node with their session; a busy node hands connections over.
    Direct,
    /// To the node with their session; a busy node has others answer, as in the paper.
    Relay,
}

impl Model {
    /// All values, in the order of the tables.
    pub const ALL: [Model; 4] = [Model::RoundRobin, Model::Session, Model::Direct, Model::Relay];

    /// Lines of `[service.tls]`.
    pub(super) fn lines(self) -> String {
        let busy = format!("busy_connections = {BUSY_CONNECTIONS}\nbusy_cpu = \"100%\"");
        match self {
            Model::RoundRobin => "sessions = \"round-robin\"".to_owned(),
            Model::Session => "sessions = \"session\"".to_owned(),
            Model::Direct => format!("sessions = \"forwarding\"\nhand_over = \"direct\"\n{busy}"),
            Model::Relay => format!("sessions = \"forwarding\"\nhand_over = \"relay\"\n{busy}"),
        }
    }

    /// Port of the service.
    pub(super) fn port(self) -> u16 {
        4430 + self as u16
    }

    /// Name of the service.
    pub(super) fn service(self) -> String {
        format!("m{}", self.port())
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Model::RoundRobin => "round robin",
            Model::Session => "session",
            Model::Direct => "forwarding, direct",
            Model::Relay => "forwarding, relay",
        })
    }
}

/// A node's work during a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeShare {
    /// Handshakes, full and resumed.
    pub handshakes: u64,
    /// Responses of its server.
    pub responses: u64,
    /// CPU time of its processes.
    pub cpu: Duration,
    /// Connections handed over to other nodes.
    pub given: u64,
    /// Requests that other nodes answered.
    pub requests_given: u64,
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The distribution of clients.
    pub model: Model,
    /// The paper's parameter k.
    pub k: u32,
    /// Planned conversations per second.
    pub offered: f64,
    /// The rate relative to the capacity.
    pub load: f64,
    /// The clients' measurement.
    pub outcome: Outcome,
    /// The work of each node.
    pub nodes: Vec<NodeShare>,
}

/// All measurements.
pub type Results = crate::Results<Sample>;
