//! A pending flow.

use std::time::Duration;

use switchback_flow::connection::Connection;
use switchback_flow::held::HeldPacket;
use switchback_flow::request::InProgress;
use switchback_flow::state::{Assembling, State};
use switchback_wire::Seq;
use switchback_wire::packet::TcpView;

/// Cost of a pending flow besides the bytes of its packets: up to twice its size in a table that has just grown, two
/// entries in orders of time, its source's sum, and room for four packets. Measured by VmRSS with 10,000 to 50,000
/// flows of one small packet each: 1,230 to 1,900 bytes.
const OWN_COST: usize = 4 * size_of::<Pending>();

/// A pending flow, with its state.
#[derive(Debug)]
pub struct Pending {
    /// The client's side.
    pub connection: Connection,
    /// The state, which says what the flow waits for.
    pub state: State,
}

impl Pending {
    /// A flow without any data read.
    pub fn new(connection: Connection, now: Duration) -> Self {
        Pending { connection, state: State::Assembling(Assembling::new(now)) }
    }

    /// Memory of the flow, in bytes.
    pub fn cost(&self) -> usize {
        OWN_COST + self.held_bytes()
    }

    /// Bytes of the held packets.
    pub fn held_bytes(&self) -> usize {
        let request = self.state.request().map_or(0, |request| request.packets.bytes());
        self.connection.held.bytes() + request
    }

    /// Holds the new data of a packet.
    pub fn hold(&mut self, packet: &HeldPacket) {
        self.connection.hold(packet, self.state.request_mut().map(InProgress::held));
    }

    /// Holds the new data of a packet that a node has kept.
    pub fn restore(&mut self, packet: &HeldPacket) {
        self.connection.restore(packet, self.state.request_mut().map(InProgress::held));
    }

    /// Sequence number of the first byte that waits for a node.
    pub(super) fn first_waiting(&self) -> Seq {
        self.state.request().map_or(self.connection.entry.mark.next, |request| request.start.mark.next)
    }

    /// The client's next sequence number, as far as known.
    pub(super) fn expected(&self) -> Seq {
        let mark = self.connection.entry.mark.next;
        let end = self.state.request().map_or(mark, |request| request.packets.stream_end(mark));
        self.connection.held.stream_end(end)
    }

    /// Makes room for a packet that fills a gap by dropping the data farthest beyond the gap; false if the packet fills
    /// no gap, or there is no such data.
    pub(super) fn make_room(&mut self, packet: &TcpView) -> bool {
        let expected = self.expected();
        let brings = !expected.before(packet.seq) && expected.before(packet.end_seq());
        let request = self.state.request_mut();
        brings
            && (self.connection.held.forget_last(expected)
                || request.is_some_and(|request| request.packets.forget_last(expected)))
    }

    /// The range of data that the switch, and not the client's retransmission, delivers to the node.
    pub(super) fn in_delivery(&self) -> Option<(Seq, Seq)> {
        match &self.state {
            State::Delivering(state) => state.stretch(&self.connection),
            _ => None,
        }
    }
}
