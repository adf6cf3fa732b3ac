//! A node is to become the owner of the flow.

use std::time::Duration;

use switchback_wire::Reason;
use switchback_wire::generation::Generation;
use switchback_wire::message::{FromNode, ToNode};
use switchback_wire::report::Queue;

use super::outcomes::Unanswered;
use super::patience::Patience;
use super::{Assembling, Crowded, Delivering, Event, State};
use crate::NodeId;
use crate::answer::Reply;
use crate::connection::Connection;
use crate::destination::Chosen;
use crate::destination::Placement;
use crate::entry::Entry;
use crate::new_head::NewHead;
use crate::request::InProgress;
use crate::world::{Count, Silence, World};

/// Who has chosen the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The pool's policy, or the request's session.
    Switch,
    /// A node without room, which has passed the request on to this one.
    Node,
    /// The flow's last owner, which has sent the connection's keys to the new one.
    Owner,
}

/// Waits for ADOPTED.
#[derive(Debug)]
pub struct Adopting {
    pub(super) request: Box<InProgress>,
    pub(super) patience: Patience,
    /// The node to which the one that is asked may pass the request on.
    second: Option<NodeId>,
    by: By,
}

impl Adopting {
    /// Chooses a node, and gives it the flow; a request for which there is none waits. `has_waited_longest`: it overtakes
    /// none that waits for the same room.
    pub fn choose(
        mut request: Box<InProgress>,
        has_waited_longest: bool,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        match world.place(&mut request, has_waited_longest) {
            Placement::Session(node) | Placement::Any(Some(node)) => {
                let second = world.second(&request, node);
                world.adoption_sent(request.request.group, node);
                Adopting::ask((node, second), By::Switch, request, connection, world)
            }
            Placement::Full(node) => Crowded::wait(request, Some(node), connection, world),
            Placement::Any(None) => Crowded::wait(request, None, connection, world),
            Placement::Nowhere => {
                world.count(Count::SessionRefused);
                world.answer_request(Reply::Status(503), *request, connection)
            }
        }
    }

    /// Gives the flow to the node that its last owner has chosen.
    pub fn follow_owner(
        target: NodeId,
        request: Box<InProgress>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        Adopting::ask((target, None), By::Owner, request, connection, world)
    }

    /// Takes over the adoption that the program has begun with this entry.
    pub fn begun_by_program(
        entry: &Entry,
        mut request: Box<InProgress>,
        connection: &mut Connection,
        now: Duration,
    ) -> State {
        request.enter_at(entry.node, entry.generation, connection);
        State::Adopting(Adopting { request, patience: Patience::new(now), second: None, by: By::Switch })
    }

    fn ask(
        (node, second): (NodeId, Option<NodeId>),
        by: By,
        mut request: Box<InProgress>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        let last = match connection.entry.generation {
            Generation::NONE => Generation::first(world.rank().number),
            last => last,
        };
        request.enter_at(node, last.next_attempt(), connection);
        world.set_entry(&connection.entry);
        let state = Adopting { request, patience: Patience::new(world.now()), second, by };
        state.send(connection, world);
        State::Adopting(state)
    }

    /// Sends the request. The mark in it is that of the first time, whatever has been forwarded since: a node tells copies
    /// by it.
    fn send(&self, connection: &Connection, world: &mut dyn World) {
        let (request, entry) = (&self.request, self.request.after());
        let queue_share = world.queue_share(request.request.group);
        let packets = request.for_node();
        let Some((first, packets)) = packets.split_first() else { return };
        let (head, recovery) = (request.request.read, request.recovery(connection));
        let grown = request.head.as_ref().map_or(0, NewHead::grown);
        let adopt = ToNode::Adopt { head, grown, recovery, queue_share };
        world.send_to((entry.node, self.second), adopt, &entry.flow_state(), (&first.view, &first.bytes));
        for packet in packets {
            world.forward(entry, packet, request.reading(packet, recovery));
        }
    }

    /// The nodes from which the node was chosen.
    pub fn group(&self) -> usize {
        self.request.request.group
    }

    /// The node that was asked may have passed the request on to this one.
    pub fn may_be_passed_on_to(&self, node: NodeId) -> bool {
        self.second == Some(node)
    }

    /// The last owner has chosen the node: no other can go on with the flow.
    pub fn is_chosen_by_owner(&self) -> bool {
        self.by == By::Owner
    }

    /// The node that was asked has passed the request on, and its second candidate answers.
    pub fn pass_on(&mut self, second: NodeId, connection: &mut Connection, world: &mut dyn World) {
        let (first, group) = (connection.entry.node, self.request.request.group);
        world.refused(group, first, None, (0, 0));
        world.adoption_sent(group, second);
        world.count(Count::PassedOn);
        self.request.tried.push(first);
        self.second = None;
        self.by = By::Node;
        self.request.enter_at(second, connection.entry.generation, connection);
        world.set_entry(&connection.entry);
    }

    pub(super) fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        match event {
            Event::Deadline => self.on_deadline(connection, world),
            Event::Reply(FromNode::Adopted { queue }) => self.on_adopted(queue, connection, world),
            Event::Reply(FromNode::Refused { generation, .. })
                if generation.is_some() && generation != connection.entry.generation =>
            {
                // An answer to an earlier attempt.
                State::Adopting(self)
            }
            Event::Reply(FromNode::Refused { reason: Some(Reason::Outdated), .. }) => {
                self.on_outdated(connection, world)
            }
            Event::Reply(FromNode::Refused { reason, queue, .. }) => {
                world.count(Count::Refused(connection.entry.node));
                self.go_elsewhere(reason, queue, connection, world)
            }
            _ => State::Adopting(self),
        }
    }

    fn on_deadline(mut self, connection: &mut Connection, world: &mut dyn World) -> State {
        let first = self.request.packets.first();
        let answered = first.is_some_and(|packet| packet.view.ack.before(connection.last_ack));
        let start = self.request.start.mark.next;
        let can_go_on = |was_silent: Silence<'_>| !answered && connection.repeats(start, was_silent);
        match world.unanswered(connection.entry.node, &mut self.patience, can_go_on) {
            Unanswered::Again => {
                self.send(connection, world);
                State::Adopting(self)
            }
            Unanswered::TakenOver => self.on_outdated(connection, world),
            Unanswered::ForEver => world.give_up(connection),
        }
    }

    /// The node has heard of another adoption, or is dead: another switch may have given the flow to another node.
    fn on_outdated(self, connection: &mut Connection, world: &mut dyn World) -> State {
        if world.rank().is_alone || self.is_chosen_by_owner() {
            return self.go_elsewhere(None, (0, 0), connection, world);
        }
        world.seek_owner(Some(self.request), connection).unwrap_or(State::Over)
    }

    /// The node cannot adopt: another one may, unless the last owner has chosen this one.
    fn go_elsewhere(
        self,
        reason: Option<Reason>,
        queue: Queue,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        if self.is_chosen_by_owner() {
            return world.refused_for_ever(&self.request, (reason, queue), connection);
        }
        try_another(self.request, reason, queue, connection, world)
    }

    fn on_adopted(self, queue: Queue, connection: &mut Connection, world: &mut dyn World) -> State {
        let request = &self.request;
        let session = request.request.session;
        let chosen = match self.by {
            By::Node => Chosen::Second,
            _ if session.is_some_and(|session| session.node == Some(connection.entry.node)) => {
                Chosen::Session
            }
            _ => Chosen::Policy,
        };
        world.adopted(request, connection, queue, chosen);
        // The first packet has arrived with the adoption.
        let undelivered = request.undelivered(connection);
        let arrived = usize::from(request.head.is_none());
        if undelivered.len() > arrived {
            return Delivering::ask(self.request, connection, world);
        }
        connection.finish_request(world.now());
        Assembling::new(world.now()).advance(connection, world)
    }
}

/// The node that was chosen cannot, for this reason and with this accept queue: the request goes to another one.
pub(super) fn try_another(
    mut request: Box<InProgress>,
    reason: Option<Reason>,
    queue: Queue,
    connection: &mut Connection,
    world: &mut dyn World,
) -> State {
    let node = connection.entry.node;
    world.refused(request.request.group, node, reason, queue);
    if world.is_over(connection) {
        return world.end(connection);
    }
    if reason.is_some() {
        request.refusal = reason;
    }
    request.leave(connection);
    if reason == Some(Reason::QueueFull) && world.is_awaited(&request, node) {
        return Crowded::wait(request, Some(node), connection, world);
    }
    request.tried.push(node);
    Adopting::choose(request, false, connection, world)
}
