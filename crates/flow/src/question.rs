//! Questions to all nodes.

use switchback_wire::Seq;
use switchback_wire::generation::Generation;

use crate::NodeId;

/// Who has the flow?
#[derive(Clone, Debug)]
pub struct Question {
    /// Sequence number of the PROBEs.
    pub seq: Seq,
    /// That of the connection's first byte; 0 if it is not known.
    pub origin: Seq,
    /// Nodes that may have the flow.
    pub nodes: Vec<NodeId>,
    /// The adoption before which nodes are to accept no other one. None where this switch is alone, and where the client
    /// may be anybody.
    pub next: Generation,
    /// Whether some of the nodes were not asked, because their clocks are not known yet.
    pub is_unsent: bool,
}

impl Question {
    /// An answer with these numbers is one to it.
    pub fn is_answered_by(&self, seq: Seq, origin: Seq) -> bool {
        (self.seq, self.origin) == (seq, origin)
    }
}
