//! What the dispatcher wants done: changes of the flow map first, then packets.

use std::net::IpAddr;

use switchback_wire::handoff::{Peers, Way};
use switchback_wire::packet::TcpView;
use switchback_wire::{handoff, sb_flow, sb_flow_entry, sb_key, sb_option};

use crate::observe::Observation;

/// A change of the flow map. Between a record and the change that follows from it the program may have removed the
/// entry, because the node reported the connection's end or the client began another one. So nothing is changed but an entry
/// of the same connection, which has the same origin.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A new value of the entry.
    Replace(sb_flow_entry),
    /// An entry for a flow that has none.
    Create(sb_flow_entry),
    /// No entry any more.
    Remove {
        /// The origin of the connection that is over.
        origin: u32,
    },
    /// No entry any more, unless a node has had the flow: its client would have lost its connection.
    Abandon {
        /// The origin of the connection.
        origin: u32,
    },
    /// The client has been told that data has arrived which its node does not have yet.
    Ahead {
        /// The origin of the connection.
        origin: u32,
    },
}

/// The effects of a batch of records.
#[derive(Debug, Default)]
pub struct Output {
    /// Changes of the flow map, in order, before the packets: what the client sends in answer to them meets the new entries.
    pub changes: Vec<(sb_flow, Change)>,
    /// Likewise, behind the packets. While the mark is where it was, the program forwards nothing that follows them.
    pub moves: Vec<(sb_flow, Change)>,
    /// What has been seen of requests, if anybody wants to know.
    pub observed: Vec<Observation>,
    packets: Vec<u8>,
    ends: Vec<(usize, IpAddr)>,
}

impl Output {
    /// The IP packets to send, with their destinations.
    pub fn packets(&self) -> impl Iterator<Item = (&[u8], IpAddr)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        std::iter::zip(starts, &self.ends).map(|(start, (end, dest))| (&self.packets[start..*end], *dest))
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.moves.is_empty() && self.ends.is_empty() && self.observed.is_empty()
    }

    /// Empties all, keeping the memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.moves.clear();
        self.observed.clear();
        self.packets.clear();
        self.ends.clear();
    }

    /// A change of the flow map before the packets, unless the flow has one behind them already.
    pub fn change(&mut self, flow: &sb_flow, change: Change) {
        let moves = self.moves.iter().any(|(moved, _)| moved == flow);
        if moves { &mut self.moves } else { &mut self.changes }.push((*flow, change));
    }

    /// A change of the flow map behind the packets.
    pub fn change_behind(&mut self, flow: &sb_flow, change: Change) {
        self.moves.push((*flow, change));
    }

    /// Whether the last change of the flow ends its connection with this origin.
    pub fn removes(&self, flow: &sb_flow, origin: u32) -> bool {
        let mut changes = self.changes.iter().chain(&self.moves);
        let last = changes.rfind(|(changed, _)| changed == flow);
        matches!(last, Some((_, Change::Remove { origin: removed })) if *removed == origin)
    }

    /// A handoff packet to a node, and perhaps to a second candidate.
    pub fn handoff(
        &mut self,
        key: &sb_key,
        (peers, second): (Peers, Option<&Peers>),
        flow: &sb_flow,
        option: sb_option,
        (view, packet): (&TcpView, &[u8]),
    ) {
        let start = self.packets.len();
        handoff::encode(&mut self.packets, key, &Way::to_node(peers), flow, option, view, packet);
        if let Some(second) = second {
            handoff::add_second(&mut self.packets, start, key, second, (flow, view));
        }
        self.ends.push((self.packets.len(), peers.node));
    }

    /// A packet to the flow's client.
    pub fn to_client(&mut self, flow: &sb_flow, packet: &[u8]) {
        self.packets.extend_from_slice(packet);
        self.ends.push((self.packets.len(), flow.client().ip()));
    }
}
