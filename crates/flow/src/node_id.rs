use std::fmt;

/// Index of a node in the BPF map `nodes`. It belongs to the node's address across reloads and restarts, because flow
/// entries contain it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id at this index of a list by id.
    pub fn from_index(index: usize) -> Self {
        NodeId(index as u32)
    }

    /// Index in a list by id.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
