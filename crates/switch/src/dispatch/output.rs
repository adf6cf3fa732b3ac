//! Output of the dispatcher: changes of the flow map first, then packets.

use std::net::{IpAddr, SocketAddr};

use switchback_tls::endpoint::Copy;
use switchback_wire::handoff::{Peers, Way};
use switchback_wire::packet::TcpView;
use switchback_wire::{Seq, handoff, sb_flow, sb_key, sb_option};

use switchback_flow::change::Change;

use super::Heard;
use crate::observe::Observation;

/// The effects of a batch of records.
#[derive(Debug, Default)]
pub struct Output {
    /// Changes of the flow map before the packets, in order: the clients' replies to the packets meet the new entries.
    pub changes: Vec<(sb_flow, Change)>,
    /// Changes of the flow map after the packets. Until the mark moves, the program forwards no later packet.
    pub moves: Vec<(sb_flow, Change)>,
    /// Observations of requests; empty without an observer.
    pub observed: Vec<Observation>,
    /// Copies of requests, and the agents that get them.
    pub copies: Vec<(SocketAddr, Copy)>,
    /// What other threads must know of the nodes.
    pub heard: Vec<Heard>,
    packets: Vec<u8>,
    ends: Vec<(usize, IpAddr)>,
}

impl Output {
    /// The IP packets to send, with their destinations.
    pub fn packets(&self) -> impl Iterator<Item = (&[u8], IpAddr)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        std::iter::zip(starts, &self.ends).map(|(start, (end, dest))| (&self.packets[start..*end], *dest))
    }

    /// Whether there is no output.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
            && self.moves.is_empty()
            && self.ends.is_empty()
            && self.observed.is_empty()
            && self.copies.is_empty()
            && self.heard.is_empty()
    }

    /// Empties the output, and keeps its memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.moves.clear();
        self.observed.clear();
        self.copies.clear();
        self.heard.clear();
        self.packets.clear();
        self.ends.clear();
    }

    /// Adds a change of the flow map before the packets, unless the flow already has one after them.
    pub fn change(&mut self, flow: &sb_flow, change: Change) {
        let moves = self.moves.iter().any(|(moved, _)| moved == flow);
        if moves { &mut self.moves } else { &mut self.changes }.push((*flow, change));
    }

    /// Adds a change of the flow map after the packets.
    pub fn change_behind(&mut self, flow: &sb_flow, change: Change) {
        self.moves.push((*flow, change));
    }

    /// Whether the flow's last change ends its connection with this origin.
    pub fn removes(&self, flow: &sb_flow, origin: Seq) -> bool {
        let mut changes = self.changes.iter().chain(&self.moves);
        let last = changes.rfind(|(changed, _)| changed == flow);
        let removed = match last {
            Some((_, Change::Remove { origin } | Change::Forget { origin })) => Some(*origin),
            _ => None,
        };
        removed == Some(origin)
    }

    /// Adds a handoff packet to a node, and possibly to a second candidate.
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
        self.ends.push((self.packets.len(), peers.node.machine));
    }

    /// Adds a packet to the flow's client.
    pub fn to_client(&mut self, flow: &sb_flow, packet: &[u8]) {
        self.packets.extend_from_slice(packet);
        self.ends.push((self.packets.len(), flow.client().ip()));
    }
}
