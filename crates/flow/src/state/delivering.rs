//! A request has been given to its node, but may not have arrived.

use switchback_wire::Seq;
use switchback_wire::message::{FromNode, Reading, Recovery, ToNode};
use switchback_wire::packet::{TcpView, bare, flags};

use super::adopting::try_another;
use super::outcomes::Unanswered;
use super::patience::Patience;
use super::{Assembling, Event, State};
use crate::connection::Connection;
use crate::request::InProgress;
use crate::world::{Count, Silence, World};

/// Waits for CONFIRMED: the node has what the client thinks has arrived.
#[derive(Debug)]
pub struct Delivering {
    pub(super) request: Box<InProgress>,
    pub(super) patience: Patience,
}

impl Delivering {
    /// Asks the node whether all that it was sent has arrived.
    pub fn ask(request: Box<InProgress>, connection: &mut Connection, world: &mut dyn World) -> State {
        let state = Delivering { request, patience: Patience::new(world.now()) };
        let entry = state.request.after();
        let seq = state.question_seq(connection);
        let question = bare(world.flow(), true, seq, connection.last_ack, flags::ACK);
        if let Some(view) = TcpView::parse(&question) {
            world.send(ToNode::Confirm(Reading::None), entry, (&view, &question));
        }
        State::Delivering(state)
    }

    pub(super) fn question_seq(&self, connection: &Connection) -> Seq {
        let last = self.request.undelivered(connection).pop();
        last.map_or(connection.entry.mark.next, |packet| packet.view.seq)
    }

    /// The request begins there.
    pub fn begins_at(&self, seq: Seq) -> bool {
        self.request.begins_at(seq)
    }

    /// The stretch that the node gets from here, and not from the client's retransmissions.
    pub fn stretch(&self, connection: &Connection) -> Option<(Seq, Seq)> {
        Some((self.request.start.mark.next, self.request.deliver_until(connection)?))
    }

    /// Sends the request again.
    fn send(&self, connection: &Connection, world: &mut dyn World) {
        let packets = self.request.undelivered(connection);
        let last = packets.len().saturating_sub(1);
        for (index, packet) in packets.iter().enumerate() {
            let reading = self.request.reading(packet, Recovery::default());
            let message = if index == last { ToNode::Confirm(reading) } else { ToNode::Forward(reading) };
            world.send(message, self.request.after(), (&packet.view, &packet.bytes));
        }
    }

    pub(super) fn on(
        mut self,
        event: Event<'_>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        match event {
            Event::Deadline => {
                let start = self.request.start.mark.next;
                // Before it is confirmed, the node may have begun with it.
                let can_go_on = |was_silent: Silence<'_>| connection.repeats(start, was_silent);
                match world.unanswered(connection.entry.node, &mut self.patience, can_go_on) {
                    Unanswered::Again => {
                        self.send(connection, world);
                        State::Delivering(self)
                    }
                    // Another node would do again what this one may have done already.
                    _ => world.give_up(connection),
                }
            }
            // It may be the answer to an earlier question, which had the same sequence number.
            Event::Reply(FromNode::Confirmed { arrived, .. })
                if self.request.deliver_until(connection).is_none_or(|end| !arrived.before(end)) =>
            {
                world.bring_up_map(connection);
                connection.finish_request(world.now());
                Assembling::new(world.now()).advance(connection, world)
            }
            // Another switch has had the node release the flow, once the request was answered.
            Event::Unowned { node, origin, newest, .. }
                if !world.rank().is_alone
                    && (node, origin) == (connection.entry.node, connection.entry.origin)
                    && newest.is_newer(connection.entry.generation) =>
            {
                world.seek_owner(Some(self.request), connection).unwrap_or(State::Over)
            }
            // Another switch may have had the node release the flow, once the request was answered.
            Event::Reply(FromNode::Refused { .. }) if !world.rank().is_alone => {
                world.seek_owner(Some(self.request), connection).unwrap_or(State::Over)
            }
            // The request may have come before; then it has its response, and its server has closed since.
            Event::Reply(FromNode::Refused { .. }) if self.patience.was_resent() => world.give_up(connection),
            Event::Reply(FromNode::Refused { reason, queue, .. }) => {
                world.count(Count::Refused(connection.entry.node));
                try_another(self.request, reason, queue, connection, world)
            }
            // What is being delivered stays here while what comes before it may still be on its way: where the node takes a
            // part of it, no other node could go on.
            Event::Unread(said)
                if self.patience.was_resent()
                    && ![self.request.start.mark.next, self.request.after().mark.next]
                        .contains(&said.mark.next)
                    && connection.entry.is_of_same(said) =>
            {
                connection.go_back(said);
                self.request.put_back(connection);
                world.read_again(connection)
            }
            _ => State::Delivering(self),
        }
    }
}
