//! What a pending flow waits for. Each state owns what only it needs; handling an event consumes the state and returns the
//! next one. `docs/dispatch.md` has the transitions.

mod adopting;
mod asking;
mod assembling;
mod crowded;
mod delivering;
mod outcomes;
mod patience;
mod releasing;
mod resuming;
mod seeking;
mod throttled;
mod transitions;

use std::time::Duration;

use switchback_wire::Seq;
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::{FromNode, Reading, ToNode};
use switchback_wire::packet::TcpView;

use crate::NodeId;
use crate::connection::Connection;
use crate::entry::Entry;
use crate::held::HeldPacket;
use crate::request::InProgress;
use crate::world::World;
pub use adopting::Adopting;
pub use asking::Asking;
pub use assembling::Assembling;
pub use crowded::Crowded;
pub use delivering::Delivering;
pub use patience::Patience;
pub use releasing::{Refusal, Releasing, Then};
pub use resuming::Resuming;
pub use seeking::Seeking;
pub use throttled::Throttled;

/// What happens to a pending flow.
#[derive(Debug)]
pub enum Event<'a> {
    /// The client has sent something, which is held.
    Data,
    /// The state's deadline has come.
    Deadline,
    /// The flow's node answers the state's question.
    Reply(FromNode),
    /// The node has refused data: its mark is this one.
    Unread(&'a Entry),
    /// A node has the flow.
    Owned {
        /// That node.
        node: NodeId,
        /// Its state of the flow.
        state: &'a FlowState,
        /// The PROBE, which the node has returned.
        view: &'a TcpView,
    },
    /// A node does not have the flow.
    Unowned {
        /// That node.
        node: NodeId,
        /// Origin in the PROBE.
        origin: Seq,
        /// Sequence number of the PROBE.
        seq: Seq,
        /// The node has answered the request.
        served: bool,
        /// Where the next request begins, if the node has released the flow.
        next: Seq,
        /// The newest adoption that the node has heard of.
        newest: Generation,
        /// The node's state of the flow, if another node can go on with it.
        released: Option<&'a FlowState>,
        /// The node keeps data of the client.
        keeps: bool,
    },
    /// The client has sent a packet, of which the data is held.
    Heard(&'a HeldPacket),
    /// A node gives back a packet that it has kept.
    Restored {
        /// That node.
        node: NodeId,
        /// The state of the flow.
        state: &'a FlowState,
        /// The packet.
        packet: &'a HeldPacket,
    },
}

/// What a flow waits for.
#[derive(Debug)]
pub enum State {
    /// The rest of a head, or what is missing before the data that is held.
    Assembling(Assembling),
    /// A node to say that it has the flow, or all that they do not.
    Seeking(Seeking),
    /// RELEASED from the flow's node.
    Releasing(Releasing),
    /// ADOPTED from the new node.
    Adopting(Adopting),
    /// CONFIRMED: the node has what its client does not send again.
    Delivering(Delivering),
    /// OWNED: only the node knows what comes at the mark.
    Asking(Asking),
    /// Room at a node.
    Crowded(Crowded),
    /// Its turn, by a rate limit.
    Throttled(Throttled),
    /// The client to say what it has of a response, and then ADOPTED from the node that goes on with that.
    Resuming(Resuming),
    /// Nothing: the flow is not pending.
    Over,
}

impl State {
    /// Handles an event; the next state.
    pub fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        let (from, what) = (self.name(), event.name());
        let next = match self {
            state if state.is_outdated_by(&event, connection) => state.give_way(event, connection, world),
            State::Assembling(state) => state.on(event, connection, world),
            State::Seeking(state) => state.on(event, connection, world),
            State::Releasing(state) => state.on(event, connection, world),
            State::Adopting(state) => state.on(event, connection, world),
            State::Delivering(state) => state.on(event, connection, world),
            State::Asking(state) => state.on(event, connection, world),
            State::Crowded(state) => state.on(event, connection, world),
            State::Throttled(state) => state.on(event, connection, world),
            State::Resuming(state) => state.on(event, connection, world),
            State::Over => State::Over,
        };
        debug_assert!(transitions::is_listed(from, what, next.name()), "{from}, {what}: {}", next.name());
        next
    }

    /// Whether another switch has given the flow to a node since this one has.
    fn is_outdated_by(&self, event: &Event<'_>, connection: &Connection) -> bool {
        let Event::Owned { state, .. } = event else { return false };
        !matches!(self, State::Seeking(_) | State::Over)
            && state.origin == connection.entry.origin
            && state.generation.is_newer(connection.entry.generation)
    }

    /// Takes up the flow at the node that has it.
    fn give_way(mut self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        let Event::Owned { node, state, view } = event else { return self };
        if let Some(request) = self.request_mut() {
            request.withdraw(connection);
        }
        match connection.acknowledged {
            None => world.recover_with_data(state, node, view, connection),
            Some(_) => world.recover_with_acknowledged(state, node, view, connection),
        }
    }

    /// When it has waited long enough.
    pub fn due(&self) -> Duration {
        match self {
            State::Assembling(state) => state.due,
            State::Seeking(state) => state.due(),
            State::Releasing(state) => state.patience.due,
            State::Adopting(state) => state.patience.due,
            State::Delivering(state) => state.patience.due,
            State::Asking(state) => state.patience.due,
            State::Crowded(state) => state.due,
            State::Throttled(state) => state.due,
            State::Resuming(state) => state.due(),
            State::Over => Duration::ZERO,
        }
    }

    /// The request on its way to a node.
    pub fn request(&self) -> Option<&InProgress> {
        match self {
            State::Releasing(Releasing { then: Then::Adopt(request), .. })
            | State::Adopting(Adopting { request, .. })
            | State::Delivering(Delivering { request, .. })
            | State::Crowded(Crowded { request, .. })
            | State::Throttled(Throttled { request, .. }) => Some(request),
            _ => None,
        }
    }

    /// The request on its way to a node.
    pub fn request_mut(&mut self) -> Option<&mut InProgress> {
        match self {
            State::Releasing(Releasing { then: Then::Adopt(request), .. })
            | State::Adopting(Adopting { request, .. })
            | State::Delivering(Delivering { request, .. })
            | State::Crowded(Crowded { request, .. })
            | State::Throttled(Throttled { request, .. }) => Some(request),
            _ => None,
        }
    }

    /// A node has been asked something, and has not answered.
    pub fn waits_for_node(&self) -> bool {
        match self {
            State::Releasing(_) | State::Adopting(_) | State::Delivering(_) | State::Asking(_) => true,
            State::Resuming(state) => state.waits_for_node(),
            _ => false,
        }
    }

    /// Nothing is known of the flow before its nodes answer.
    pub fn is_unknown(&self) -> bool {
        matches!(self, State::Seeking(state) if state.is_unknown())
    }

    /// Sequence number of the packet that the node was last asked with.
    pub fn question_seq(&self, connection: &Connection) -> Seq {
        let mark = connection.entry.mark.next;
        match self {
            State::Adopting(state) => state.request.start.mark.next,
            State::Assembling(_) if connection.entry.mark.is_passing() => connection.entry.mark.due(),
            State::Delivering(state) => state.question_seq(connection),
            _ => mark,
        }
    }

    /// Since when what is held of a request has been waiting, if the client is to be helped when that has lasted long.
    fn stalls_since(&self, connection: &Connection) -> Option<Duration> {
        match self {
            State::Assembling(_) if connection.entry.mark.is_in_body() => None,
            State::Assembling(state) => Some(state.waits_since().unwrap_or(connection.born)),
            State::Releasing(_) | State::Crowded(_) => Some(connection.born),
            _ => None,
        }
    }

    /// Takes the mark of a later entry, where the state lets the program move marks.
    pub fn catch_up(&mut self, entry: &Entry, connection: &mut Connection, world: &mut dyn World) {
        match self {
            State::Assembling(state) => state.catch_up(entry, connection, world),
            State::Adopting(_) | State::Delivering(_) | State::Asking(_) => {
                world.catch_up(entry, connection);
            }
            _ => {}
        }
    }

    /// Helps a client that does not get on. Whatever the switch says to it acknowledges all before the mark, so the flow's
    /// node must say first that it has got that, and how far it has come itself.
    pub fn help(&self, connection: &mut Connection, world: &mut dyn World) {
        let gap = matches!(self, State::Assembling(_)) && connection.has_gap();
        if !gap && !self.is_stalled(connection, world) {
            return;
        }
        let packets = self.request().map(|request| &request.packets);
        if connection.has_node() {
            world.ask_owner(ToNode::Confirm(Reading::None), connection, packets);
        } else {
            self.speak(connection, world, connection.entry.mark.next);
        }
    }

    fn is_stalled(&self, connection: &Connection, world: &dyn World) -> bool {
        // What one of several switches has acknowledged does not come again to another one, which would not hear of the
        // request. So it does that only for the rest of a head, whose end is still to come.
        if !world.rank().is_alone && !matches!(self, State::Assembling(_)) {
            return false;
        }
        let since = self.stalls_since(connection);
        since.is_some_and(|since| connection.is_stalled(since, world.now()))
    }

    /// Acknowledges what is held of a request (docs/decisions/0007), or reports a gap. All up to `arrived` has arrived at
    /// the flow's node.
    fn speak(&self, connection: &mut Connection, world: &mut dyn World, arrived: Seq) {
        let is_stalled = self.is_stalled(connection, world);
        let packets = self.request().map(|request| &request.packets);
        world.speak(connection, packets, is_stalled, arrived);
    }
}
