//! Which FACTS packets of each node have come: each counts once, and in order.

use std::collections::{BTreeSet, HashMap};

use switchback_wire::facts::Numbered;

use crate::plan::NodeId;

/// The last packet of each node, which it is told in each HELLO.
#[derive(Debug, Default)]
pub struct FactsReceived {
    last: HashMap<NodeId, Numbered>,
    unanswered: BTreeSet<NodeId>,
}

/// What a packet is to what has come before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactsOrder {
    /// The next one. So many facts have been lost at the node since the one before.
    Next {
        /// None if nothing is known of earlier ones.
        lost: u32,
    },
    /// Another one; the node sends those that are missing.
    Other,
}

impl FactsReceived {
    /// A packet has come.
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

    /// The nodes of which packets have come since the last call.
    pub fn unanswered(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.unanswered)
    }

    /// Epoch and number of the node's last packet; zeroes before the first.
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
        let mut take = |node, epoch, number, lost| heard.take(node, Numbered { epoch, number, lost });
        assert_eq!(take(1, 7, 2, 0), FactsOrder::Other, "the first is missing");
        assert_eq!(take(1, 7, 1, 5), FactsOrder::Next { lost: 0 }, "lost before the switch was there");
        assert_eq!(take(1, 7, 1, 5), FactsOrder::Other);
        assert_eq!(take(1, 7, 3, 5), FactsOrder::Other);
        assert_eq!(take(1, 7, 2, 9), FactsOrder::Next { lost: 4 });
        assert_eq!(take(2, 7, 1, 0), FactsOrder::Next { lost: 0 }, "another node");
        assert_eq!(take(1, 8, 1, 0), FactsOrder::Next { lost: 0 }, "another agent of the node");
        assert_eq!(heard.unanswered(), BTreeSet::from([1, 2]));
        assert_eq!(heard.unanswered(), BTreeSet::new());
        assert_eq!((heard.last(1), heard.last(2), heard.last(3)), ((8, 1), (7, 1), (0, 0)));
    }
}
