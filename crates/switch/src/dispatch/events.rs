//! Events of pending flows.

use switchback_flow::World;
use switchback_flow::connection::Connection;
use switchback_flow::entry::Entry;
use switchback_flow::held::HeldPacket;
use switchback_flow::state::{Event, State};
use switchback_wire::message::Reading;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::sb_flow;

use super::flows::Full;
use super::pending::Pending;
use super::{Dispatcher, Moment};

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
            pending.state.catch_up(entry, &mut pending.connection, &mut self.world(at, flow));
            let first_waiting = pending.first_waiting();
            pending.connection.note_repetition(&held.view, first_waiting, at.now);
            // Done even without room for the rest: it may be all that the client can send until it is acknowledged.
            self.forward_old_data(flow, &pending.connection, pending.in_delivery(), &held);
            if self.has_room(at, flow, &mut pending, &held) {
                pending.hold(&held);
                match pending.state {
                    State::Resuming(_) => self.step(at, flow, pending, Event::Heard(&held)),
                    _ => self.on_data(at, flow, pending, &view),
                }
                return;
            }
        }
        let Pending { connection, state } = pending;
        self.keep(flow, connection, state);
    }

    /// Handles held data of the client.
    pub(super) fn on_data(&mut self, at: Moment<'_>, flow: &sb_flow, pending: Pending, view: &TcpView) {
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
