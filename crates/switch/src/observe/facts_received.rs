//! Order of the FACTS packets from each node: every packet counts once, in sequence.

use std::collections::{BTreeSet, HashMap};

use switchback_wire::records::Numbered;

use crate::plan::NodeId;

/// The last FACTS packet in sequence of each node; HELLO packets acknowledge it.
#[derive(Debug, Default)]
pub struct FactsReceived {
    last: HashMap<NodeId, Numbered>,
    unanswered: BTreeSet<NodeId>,
}

/// Position of a FACTS packet in its node's sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactsOrder {
    /// The next packet in sequence.
    Next {
        /// Facts that the node has dropped since the previous packet; 0 if there was none.
        lost: u32,
    },
    /// A duplicate, or a packet after a gap, which the node will fill.
    Other,
}

impl FactsReceived {
    /// Records a packet and returns its position.
    pub fn take(&mut self, node: NodeId, numbered: Numbered) -> FactsOrder {
        self.unanswered.insert(node);
        let last = self.last.get(&node).copied();
        let expected = match last {
            Some(last) if last.epoch == numbered.epoch => last.number.wrapping_add(1),
            _ => 1,
        };
        if numbered.number != expected {
            return FactsOrder::Other;
        }
        self.last.insert(node, numbered);
        FactsOrder::Next { lost: last.map_or(0, |last| numbered.lost.saturating_sub(last.lost)) }
    }

    /// Nodes that have sent packets since the last call.
    pub fn unanswered(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.unanswered)
    }

    /// Epoch and number of the node's last packet in sequence; zeroes before the first.
    pub fn last(&self, node: NodeId) -> (u32, u32) {
        self.last.get(&node).map_or((0, 0), |last| (last.epoch, last.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_counts_once_and_in_order() {
        let mut heard = FactsReceived::default();
        let mut take = |node, epoch, number, lost| heard.take(NodeId(node), Numbered { epoch, number, lost });
        assert_eq!(take(1, 7, 2, 0), FactsOrder::Other, "the first is missing");
        assert_eq!(take(1, 7, 1, 5), FactsOrder::Next { lost: 0 }, "lost before the switch was there");
        assert_eq!(take(1, 7, 1, 5), FactsOrder::Other);
        assert_eq!(take(1, 7, 3, 5), FactsOrder::Other);
        assert_eq!(take(1, 7, 2, 9), FactsOrder::Next { lost: 4 });
        assert_eq!(take(2, 7, 1, 0), FactsOrder::Next { lost: 0 }, "another node");
        assert_eq!(take(1, 8, 1, 0), FactsOrder::Next { lost: 0 }, "another agent of the node");
        assert_eq!(heard.unanswered(), BTreeSet::from([NodeId(1), NodeId(2)]));
        assert_eq!(heard.unanswered(), BTreeSet::new());
        assert_eq!([1, 2, 3].map(|node| heard.last(NodeId(node))), [(8, 1), (7, 1), (0, 0)]);
    }
}
