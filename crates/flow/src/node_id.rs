//! Ids of nodes.

/// Index of a node in the BPF map `nodes`. It belongs to the node's address across reloads and restarts, because flow
/// entries contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id with an index.
    pub fn at(index: usize) -> NodeId {
        NodeId(index as u32)
    }

    /// Its index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
