//! The flow's node is to give it up.

use switchback_wire::Reason;
use switchback_wire::Seq;
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::{FromNode, ToNode};

use super::outcomes::Unanswered;
use super::patience::Patience;
use super::{Adopting, Asking, Assembling, Event, State};
use crate::answer::Reply;
use crate::connection::Connection;
use crate::entry::Mode;
use crate::held::Held;
use crate::request::InProgress;
use crate::world::{Count, Silence, World};

/// The switch's own answer to a request.
#[derive(Debug)]
pub struct Refusal {
    /// The response.
    pub reply: Reply,
    /// The request is HEAD.
    pub head: bool,
    /// The node is to give the flow up although its request is not complete.
    pub abort: bool,
}

impl Refusal {
    /// Refusal of data of which no node has any.
    pub fn of(reply: Reply) -> Self {
        Refusal { reply, head: false, abort: false }
    }
}

/// What the flow is released for.
#[derive(Debug)]
pub enum Then {
    /// Another node gets the request.
    Adopt(Box<InProgress>),
    /// The switch answers.
    Answer(Refusal),
    /// Its node drains.
    Nothing,
}

/// Waits for RELEASED.
#[derive(Debug)]
pub struct Releasing {
    /// What follows.
    pub then: Then,
    pub(super) patience: Patience,
    /// The adoption that is to follow.
    next: Generation,
    /// The node has said that a response is not complete.
    is_busy: bool,
}

impl Releasing {
    /// Asks the flow's node to give it up.
    pub fn ask(then: Then, connection: &mut Connection, world: &mut dyn World) -> State {
        let next = connection.entry.generation.successor(world.rank().number);
        let state = Releasing { then, patience: Patience::new(world.now()), next, is_busy: false };
        state.send(connection, world);
        State::Releasing(state)
    }

    fn send(&self, connection: &Connection, world: &mut dyn World) {
        let abort = matches!(self.then, Then::Answer(Refusal { abort: true, .. }));
        let release = ToNode::Release { abort, next: self.next };
        world.ask_owner(release, connection, self.packets());
    }

    fn packets(&self) -> Option<&Held> {
        match &self.then {
            Then::Adopt(request) => Some(&request.packets),
            Then::Answer(_) | Then::Nothing => None,
        }
    }

    pub(super) fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        match event {
            Event::Deadline => self.on_deadline(connection, world),
            Event::Reply(FromNode::Released { reason, state, sent, clock }) => {
                let is_elsewhere = state.generation != self.next && !world.rank().is_alone;
                let elsewhere = is_elsewhere.then_some(state);
                connection.entry.handshake.take_round_trip(state.handshake);
                self.on_released(reason, elsewhere, (sent, clock), connection, world)
            }
            Event::Reply(FromNode::Busy(reason)) => self.on_busy(reason, connection, world),
            Event::Reply(FromNode::Confirmed { arrived, .. }) => {
                let state = State::Releasing(self);
                state.speak(connection, world, arrived);
                state
            }
            Event::Unread(said)
                if said.mark.next.before(connection.entry.mark.next) && connection.entry.is_of_same(said) =>
            {
                connection.go_back(said);
                self.put_back(connection);
                world.read_again(connection)
            }
            _ => State::Releasing(self),
        }
    }

    fn put_back(self, connection: &mut Connection) {
        if let Then::Adopt(mut request) = self.then {
            request.put_back(connection);
        }
    }

    fn on_deadline(mut self, connection: &mut Connection, world: &mut dyn World) -> State {
        let state = State::Releasing(self);
        if connection.acknowledged.is_none() {
            state.help(connection, world);
        }
        let State::Releasing(releasing) = state else { return state };
        self = releasing;
        let can_go_on = |was_silent: Silence<'_>| {
            matches!(self.then, Then::Nothing)
                || !self.is_busy && connection.repeats(connection.entry.mark.next, was_silent)
        };
        match world.unanswered(connection.entry.node, &mut self.patience, can_go_on) {
            Unanswered::Again => {
                self.send(connection, world);
                State::Releasing(self)
            }
            // The node may have carried out what must not be done twice.
            Unanswered::TakenOver if !connection.was_given() || self.is_repeatable() => {
                let (ack, echo) = connection.last_heard();
                match world.rank().is_alone {
                    true => self.go_on((ack, echo), connection, world),
                    false => self.seek_owner(None, connection, world),
                }
            }
            _ => world.give_up(connection),
        }
    }

    fn is_repeatable(&self) -> bool {
        matches!(&self.then, Then::Adopt(request) if request.request.repeatable)
    }

    /// `elsewhere`: the state in which the node has released the flow to another switch.
    fn on_released(
        self,
        reason: Option<Reason>,
        elsewhere: Option<FlowState>,
        position: (Seq, Option<u32>),
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        world.count(Count::Released(connection.entry.node));
        if reason == Some(Reason::Responding) {
            // The client has half a response already: another one cannot follow.
            world.reset(connection.entry.origin, position.0);
            return State::Over;
        }
        match elsewhere {
            Some(state) => self.seek_owner(Some(&state), connection, world),
            None => self.go_on(position, connection, world),
        }
    }

    /// The node was not the owner, or is dead: the flow may have been released and adopted since.
    fn seek_owner(
        self,
        released: Option<&FlowState>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        let request = if let Then::Adopt(request) = self.then { Some(request) } else { None };
        match connection.held.is_empty() && request.is_none() {
            true => {
                // Not of this node any more: a node that drains is not asked for it again and again. When it has gone,
                // nobody else may know where the flow goes on.
                let released = released.and_then(|state| world.entry_of_node(state, connection.entry.node));
                if let Some(released) = released.filter(|said| said.origin == connection.entry.origin) {
                    world.catch_up_with_node(&released, connection);
                }
                connection.entry.mode = Mode::Sought;
                world.give_up_waiting(connection)
            }
            false => world.seek_owner(request, connection).unwrap_or(State::Over),
        }
    }

    /// No node has the flow any more: on to what it was released for, from where the last owner was.
    fn go_on(
        self,
        (ack, echo): (Seq, Option<u32>),
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        connection.bring_up_to_date(ack, echo);
        connection.entry.mode = Mode::Held;
        connection.entry.generation = self.next;
        match self.then {
            Then::Adopt(mut request) => {
                request.bring_up_to_date(ack, echo);
                Adopting::choose(request, false, connection, world)
            }
            Then::Answer(refusal) => world.answer(&refusal.reply, refusal.head, connection),
            Then::Nothing => {
                world.count(Count::TakenBack);
                world.set_entry(&connection.entry);
                Assembling::new(world.now()).advance(connection, world)
            }
        }
    }

    fn on_busy(
        mut self,
        reason: Option<Reason>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        match reason {
            // The server ends the connection, and its kernel tells the client so, as on any connection. What the client
            // has sent behind is dropped, and retransmitted until the flow is over.
            Some(Reason::Closing) => world.give_up_waiting(connection),
            // The client does not retransmit what is held.
            Some(Reason::Duplicate) if connection.acknowledged.is_some() && world.rank().is_alone => {
                world.give_up(connection)
            }
            // The flow map is behind: the node has read on, but may not have been given this request.
            Some(Reason::Duplicate) => {
                self.put_back(connection);
                connection.given = None;
                Asking::ask(connection, world)
            }
            // Not as idle as it seemed, or not any more.
            _ if matches!(self.then, Then::Nothing) => {
                Assembling::new(world.now()).advance(connection, world)
            }
            _ => {
                world.count(Count::Busy);
                self.patience = Patience::after_a_while(world.now(), connection.born);
                self.is_busy = true;
                State::Releasing(self)
            }
        }
    }
}
