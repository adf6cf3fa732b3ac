//! A flow while it waits for something.

use std::time::Duration;

use switchback_wire::message::Reading;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{sb_flow, sb_flow_entry};

use super::connection::Connection;
use super::flows::Full;
use super::held::{HeldPacket, before};
use super::state::{Assembling, Event, State};
use super::{Dispatcher, Moment, mark};

/// Cost of a pending flow besides the bytes of the packets that it holds: up to twice its size in a table that has just
/// grown, its places in two orders of time, its source's sum, and room for four packets. Measured by VmRSS with 10,000 to
/// 50,000 flows of one small packet each: 1,230 to 1,900 bytes.
const OWN_COST: usize = 4 * size_of::<Pending>();

/// A flow, and what it waits for.
#[derive(Debug)]
pub struct Pending {
    /// The client's side.
    pub connection: Connection,
    /// What it waits for.
    pub state: State,
}

impl Pending {
    /// A flow of which nothing has been read.
    pub fn new(connection: Connection, now: Duration) -> Self {
        Pending { connection, state: State::Assembling(Assembling::new(now)) }
    }

    /// Memory that it takes, in bytes.
    pub fn cost(&self) -> usize {
        OWN_COST + self.held_bytes()
    }

    /// Bytes of the packets that it holds.
    pub fn held_bytes(&self) -> usize {
        let request = self.state.request().map_or(0, |request| request.packets.bytes());
        self.connection.held.bytes() + request
    }

    /// Holds what is new in a packet.
    pub fn hold(&mut self, packet: &HeldPacket) {
        self.connection.hold(packet, self.state.request_mut());
    }

    /// Where what waits for a node begins.
    fn first_waiting(&self) -> u32 {
        self.state.request().map_or(self.connection.entry.next, |request| request.start.next)
    }

    /// The client's next sequence number, as far as is known here.
    fn expected(&self) -> u32 {
        let mark = self.connection.entry.next;
        let end = self.state.request().map_or(mark, |request| request.packets.stream_end(mark));
        self.connection.held.stream_end(end)
    }

    /// Makes room for a packet that brings what is missing, by forgetting the data that is farthest beyond the gap; false if
    /// the packet does not, or there is none.
    fn make_room(&mut self, packet: &TcpView) -> bool {
        let expected = self.expected();
        let brings = !before(expected, packet.seq) && before(expected, packet.end_seq());
        let request = self.state.request_mut();
        brings
            && (self.connection.held.forget_last(expected)
                || request.is_some_and(|request| request.packets.forget_last(expected)))
    }

    /// The stretch of data that the node gets from here, and not from the client's retransmissions.
    fn in_delivery(&self) -> Option<(u32, u32)> {
        match &self.state {
            State::Delivering(state) => state.stretch(&self.connection),
            _ => None,
        }
    }
}

impl Dispatcher {
    /// Has a pending flow handle an event, and keeps it if it still waits.
    pub(super) fn step(&mut self, at: Moment<'_>, flow: &sb_flow, pending: Pending, event: Event<'_>) {
        let Pending { mut connection, state } = pending;
        let state = state.on(event, &mut connection, &mut self.world(at, flow));
        self.keep(flow, connection, state);
    }

    /// Keeps a flow that waits for something.
    pub(super) fn keep(&mut self, flow: &sb_flow, connection: Connection, state: State) {
        if !matches!(state, State::Over) {
            self.pending.put(*flow, Pending { connection, state });
        }
    }

    /// A packet of a flow that waits for something. `entry` is the latest that is known of it.
    pub(super) fn on_pending(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        mut pending: Pending,
        entry: &sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) {
        if view.flags & flags::RST != 0 {
            self.on_reset(at, flow, pending, packet, view);
            return;
        }
        if let Some(held) = HeldPacket::new(packet) {
            pending.state.catch_up(&mut pending.connection, entry);
            let first_waiting = pending.first_waiting();
            pending.connection.note_repetition(&held.view, first_waiting, at.now);
            // Whether or not there is room for the rest: it may be all that the client can send until it is acknowledged.
            self.forward_old_data(flow, &pending.connection, pending.in_delivery(), &held);
            if self.has_room(flow, &mut pending, &held) {
                pending.hold(&held);
                self.on_data(at, flow, pending, &view);
                return;
            }
        }
        let Pending { connection, state } = pending;
        self.keep(flow, connection, state);
    }

    /// The client has sent something, which is held.
    fn on_data(&mut self, at: Moment<'_>, flow: &sb_flow, pending: Pending, view: &TcpView) {
        let Pending { mut connection, state } = pending;
        let mut world = self.world(at, flow);
        let state = state.on(Event::Data, &mut connection, &mut world);
        if mark::is_passing(&connection.entry) {
            self.ask_for_progress(flow, &connection.entry, view);
        } else {
            state.help(&mut connection, &mut world);
        }
        self.keep(flow, connection, state);
    }

    /// The client resets a flow that waits for something.
    fn on_reset(&mut self, at: Moment<'_>, flow: &sb_flow, pending: Pending, packet: &[u8], view: TcpView) {
        let is_exact = view.seq == pending.expected();
        let Pending { connection, mut state } = pending;
        if connection.has_node() {
            // The node's kernel judges it.
            self.forward(flow, &connection.entry, &view, packet, Reading::None);
        } else if is_exact {
            // Only the exact number counts (RFC 5961 section 3.2).
            self.observe_abandoned(at, flow, &connection, state.request());
            self.forget(flow, connection.entry.origin);
            state = State::Over;
        }
        self.keep(flow, connection, state);
    }

    /// Whether the flow may hold the packet. Where the flow has too much itself, what lies beyond a gap gives way to what is
    /// missing; where the whole switch has, the clients that have been slow for longest have to send again.
    pub(super) fn has_room(&mut self, flow: &sb_flow, pending: &mut Pending, packet: &HeldPacket) -> bool {
        loop {
            let room = self.pending.room(&self.plan.limits, flow, pending, packet);
            let Err(full) = room else { return true };
            if full == Full::Flow && pending.make_room(&packet.view) {
                continue;
            }
            let slowest = if full == Full::Switch { self.pending.take_slowest() } else { None };
            let Some((other, slowest)) = slowest else {
                self.stats.dropped(full);
                return false;
            };
            self.stats.evicted += 1;
            let connection = slowest.connection;
            if connection.acknowledged.is_some() {
                self.reset(&other, connection.entry.origin, connection.last_ack);
            } else {
                self.set_entry(&other, &connection.entry);
                self.abandon(&other, &connection);
            }
        }
    }

    /// Deals with all flows whose deadline has come.
    pub(super) fn on_deadlines(&mut self, at: Moment<'_>) {
        while let Some((flow, pending)) = self.pending.take_due(at.now) {
            if pending.state.waits_for_node() && self.is_over(at, &flow, &pending.connection) {
                self.end(&flow, &pending.connection);
            } else {
                self.step(at, &flow, pending, Event::Deadline);
            }
        }
    }
}
