//! Assignment of nodes to indices in the BPF map `nodes`.
//!
//! Flow entries contain the index of their node and outlive reloads and restarts. A node therefore keeps its index also
//! after it has left the configuration, until its flows have ended or the index is needed.

use std::collections::HashMap;

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
        for address in current {
            if ids.contains_key(address) {
                continue;
            }
            let free = match taken.iter().position(|taken| !taken) {
                Some(free) => NodeId::from_index(free),
                None => {
                    let retired = ids.keys().find(|address| !current.contains(address)).copied()?;
                    ids.remove(&retired)?
                }
            };
            taken[free.index()] = true;
            ids.insert(*address, free);
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
        let places: std::collections::HashSet<_> = second.all().values().collect();
        assert_eq!(places.len(), 3);
    }

    #[test]
    fn nodes_of_one_machine_have_indices_of_their_own() {
        let nodes = [0, 0x1234, 0x1235].map(|number| NodeAddress { number, ..address(1) });
        let ids = NodeIds::default().with(&nodes, 4).unwrap();
        let places: std::collections::HashSet<_> = nodes.iter().map(|node| ids.all()[node]).collect();
        assert_eq!(places.len(), 3);
    }

    #[test]
    fn retired_indices_are_reused_when_none_is_free() {
        let full = NodeIds::default().with(&[address(1), address(2)], 2).unwrap();
        let next = full.with(&[address(2), address(3)], 2).unwrap();
        assert_eq!(next.all()[&address(3)], full.all()[&address(1)]);
        assert!(full.with(&[address(3), address(4), address(5)], 2).is_none());
    }
}
