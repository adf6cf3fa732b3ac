//! A pending flow.

use std::time::Duration;

use switchback_wire::message::Reading;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{Seq, sb_flow};

use super::flows::Full;
use super::{Dispatcher, Moment};
use switchback_flow::World;
use switchback_flow::connection::Connection;
use switchback_flow::entry::Entry;
use switchback_flow::held::HeldPacket;
use switchback_flow::state::{Assembling, Event, State};

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
        self.connection.hold(packet, self.state.request_mut());
    }

    /// Sequence number of the first byte that waits for a node.
    fn first_waiting(&self) -> Seq {
        self.state.request().map_or(self.connection.entry.mark.next, |request| request.start.mark.next)
    }

    /// The client's next sequence number, as far as known.
    fn expected(&self) -> Seq {
        let mark = self.connection.entry.mark.next;
        let end = self.state.request().map_or(mark, |request| request.packets.stream_end(mark));
        self.connection.held.stream_end(end)
    }

    /// Makes room for a packet that fills a gap by dropping the data farthest beyond the gap; false if the packet fills
    /// no gap, or there is no such data.
    fn make_room(&mut self, packet: &TcpView) -> bool {
        let expected = self.expected();
        let brings = !expected.before(packet.seq) && expected.before(packet.end_seq());
        let request = self.state.request_mut();
        brings
            && (self.connection.held.forget_last(expected)
                || request.is_some_and(|request| request.packets.forget_last(expected)))
    }

    /// The range of data that the switch, and not the client's retransmission, delivers to the node.
    fn in_delivery(&self) -> Option<(Seq, Seq)> {
        match &self.state {
            State::Delivering(state) => state.stretch(&self.connection),
            _ => None,
        }
    }
}

impl Dispatcher {
    /// Has a pending flow handle an event, and keeps the flow if it still waits.
    pub(super) fn step(&mut self, at: Moment<'_>, flow: &sb_flow, pending: Pending, event: Event<'_>) {
        let Pending { mut connection, state } = pending;
        let state = state.on(event, &mut connection, &mut self.world(at, flow));
        self.keep(flow, connection, state);
    }

    /// Keeps a waiting flow.
    pub(super) fn keep(&mut self, flow: &sb_flow, connection: Connection, state: State) {
        if !matches!(state, State::Over) {
            self.pending.put(*flow, Pending { connection, state });
        }
    }

    /// Handles a packet of a pending flow. `entry` is its latest known entry.
    pub(super) fn on_pending(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        mut pending: Pending,
        entry: &Entry,
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
            // Done even without room for the rest: it may be all that the client can send until it is acknowledged.
            self.forward_old_data(flow, &pending.connection, pending.in_delivery(), &held);
            if self.has_room(at, flow, &mut pending, &held) {
                pending.hold(&held);
                self.on_data(at, flow, pending, &view);
                return;
            }
        }
        let Pending { connection, state } = pending;
        self.keep(flow, connection, state);
    }

    /// Handles held data of the client.
    fn on_data(&mut self, at: Moment<'_>, flow: &sb_flow, pending: Pending, view: &TcpView) {
        let Pending { mut connection, state } = pending;
        let mut world = self.world(at, flow);
        let state = state.on(Event::Data, &mut connection, &mut world);
        if connection.entry.mark.is_passing() {
            self.ask_for_progress(flow, &connection.entry, view);
        } else {
            state.help(&mut connection, &mut world);
        }
        self.keep(flow, connection, state);
    }

    /// Handles a client's reset of a pending flow.
    fn on_reset(&mut self, at: Moment<'_>, flow: &sb_flow, pending: Pending, packet: &[u8], view: TcpView) {
        let is_exact = view.seq == pending.expected();
        let Pending { connection, mut state } = pending;
        if connection.has_node() {
            // The node's kernel validates the reset.
            self.forward(flow, &connection.entry, &view, packet, Reading::None);
        } else if is_exact {
            // Only the exact number counts (RFC 5961 section 3.2).
            self.observe_abandoned(at, flow, &connection, state.request());
            self.forget(flow, connection.entry.origin);
            state = State::Over;
        }
        self.keep(flow, connection, state);
    }

    /// Whether the flow may hold the packet. If the flow's own budget is full, data beyond a gap makes room for the
    /// missing data; if the switch's is, the flows that have waited longest for their clients are dropped.
    pub(super) fn has_room(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        packet: &HeldPacket,
    ) -> bool {
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
            let (connection, world) = (slowest.connection, &mut self.world(at, &other) as &mut dyn World);
            match connection.acknowledged {
                Some(_) => world.end(&connection),
                None => world.give_up_waiting(&connection),
            };
        }
    }

    /// Handles all flows whose deadline has passed.
    pub(super) fn on_deadlines(&mut self, at: Moment<'_>) {
        while let Some((flow, pending)) = self.pending.take_due(at.now) {
            let world: &mut dyn World = &mut self.world(at, &flow);
            if pending.state.waits_for_node() && world.is_over(&pending.connection) {
                world.end(&pending.connection);
            } else {
                self.step(at, &flow, pending, Event::Deadline);
            }
        }
    }
}
