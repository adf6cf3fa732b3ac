//! Assignment of nodes to indices in the BPF map `nodes`.
//!
//! Flow entries contain the index of their node and outlive reloads and restarts. A node therefore keeps its index also
//! after it has left the configuration, until its flows have ended or the index is needed.

use std::collections::{HashMap, HashSet};

use switchback_wire::NodeAddress;

use crate::plan::NodeId;

/// Node indices by address.
#[derive(Clone, Debug, Default)]
pub struct NodeIds {
    ids: HashMap<NodeAddress, NodeId>,
}

impl NodeIds {
    /// Assignment found in the map.
    pub fn restore(entries: impl IntoIterator<Item = (NodeId, NodeAddress)>) -> Self {
        NodeIds { ids: entries.into_iter().map(|(id, address)| (address, id)).collect() }
    }

    /// The assignment extended by `current`. New addresses get free indices below `capacity`, then those of nodes not
    /// in `current`; None if these do not suffice.
    pub fn with(&self, current: &[NodeAddress], capacity: usize) -> Option<NodeIds> {
        let mut ids = self.ids.clone();
        let mut taken = vec![false; capacity];
        for id in ids.values() {
            *taken.get_mut(id.index())? = true;
        }
        let wanted: HashSet<&NodeAddress> = current.iter().collect();
        let retired = self.ids.iter().filter(|(address, _)| !wanted.contains(address));
        let mut retired = retired.map(|(address, id)| (*address, *id));
        let mut free = taken.iter().enumerate().filter(|(_, taken)| !**taken);
        for address in current {
            if ids.contains_key(address) {
                continue;
            }
            let id = match free.next() {
                Some((index, _)) => NodeId::from_index(index),
                None => {
                    let (retired, id) = retired.next()?;
                    ids.remove(&retired);
                    id
                }
            };
            ids.insert(*address, id);
        }
        Some(NodeIds { ids })
    }

    /// The whole assignment.
    pub fn all(&self) -> &HashMap<NodeAddress, NodeId> {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use switchback_wire::SB_NODES;

    use super::*;

    fn address(last: u8) -> NodeAddress {
        IpAddr::from([192, 0, 2, last]).into()
    }

    #[test]
    fn a_node_keeps_its_index() {
        let first = NodeIds::default().with(&[address(1), address(2)], 4).unwrap();
        let second = first.with(&[address(3), address(2)], 4).unwrap();
        assert_eq!(first.all()[&address(2)], second.all()[&address(2)]);
        assert_eq!(first.all()[&address(1)], second.all()[&address(1)], "its flows may still run");
        let places: HashSet<_> = second.all().values().collect();
        assert_eq!(places.len(), 3);
    }

    #[test]
    fn nodes_of_one_machine_have_indices_of_their_own() {
        let nodes = [0, 0x1234, 0x1235].map(|number| NodeAddress { number, ..address(1) });
        let ids = NodeIds::default().with(&nodes, 4).unwrap();
        let places: HashSet<_> = nodes.iter().map(|node| ids.all()[node]).collect();
        assert_eq!(places.len(), 3);
    }

    /// In a time that is proportional to their number.
    #[test]
    fn a_full_map_gets_as_many_other_nodes() {
        let nodes = |generation: u16| -> Vec<NodeAddress> {
            let node = |index: u16| NodeAddress { number: 256 + 2 * index + generation, ..address(1) };
            (0..SB_NODES as u16).map(node).collect()
        };
        let first = NodeIds::default().with(&nodes(0), SB_NODES as usize).unwrap();
        let second = first.with(&nodes(1), SB_NODES as usize).unwrap();
        let places: HashSet<_> = nodes(1).iter().map(|node| second.all()[node]).collect();
        assert_eq!((places.len(), second.all().len()), (SB_NODES as usize, SB_NODES as usize));
    }

    #[test]
    fn retired_indices_are_reused_when_none_is_free() {
        let full = NodeIds::default().with(&[address(1), address(2)], 2).unwrap();
        let next = full.with(&[address(2), address(3)], 2).unwrap();
        assert_eq!(next.all()[&address(3)], full.all()[&address(1)]);
        assert!(full.with(&[address(3), address(4), address(5)], 2).is_none());
    }
}
