//! Only the flow's node knows what comes at the mark.

use switchback_wire::generation::Generation;
use switchback_wire::message::ToNode;

use super::outcomes::Unanswered;
use super::patience::Patience;
use super::{Assembling, Event, State};
use crate::connection::Connection;
use crate::entry::Entry;
use crate::world::{Silence, World};

const QUESTION: ToNode = ToNode::Probe { next: Generation::NONE };

/// Waits for OWNED.
#[derive(Debug)]
pub struct Asking {
    pub(super) patience: Patience,
}

impl Asking {
    /// Asks the flow's node for its mark.
    pub fn ask(connection: &mut Connection, world: &mut dyn World) -> State {
        world.ask_owner(QUESTION, connection, None);
        State::Asking(Asking { patience: Patience::new(world.now()) })
    }

    pub(super) fn on(
        mut self,
        event: Event<'_>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        match event {
            Event::Deadline => {
                let nothing_waits = |_: Silence<'_>| true;
                match world.unanswered(connection.entry.node, &mut self.patience, nothing_waits) {
                    Unanswered::Again => {
                        world.ask_owner(QUESTION, connection, None);
                        State::Asking(self)
                    }
                    _ => world.give_up(connection),
                }
            }
            Event::Owned { node, state, .. }
                if (node, state.origin) == (connection.entry.node, connection.entry.origin) =>
            {
                match world.entry_of_node(state, node) {
                    Some(entry) => self.on_mark(&entry, connection, world),
                    None => State::Asking(self),
                }
            }
            Event::Unread(said)
                if said.mark.next.before(connection.entry.mark.next) && connection.entry.is_of_same(said) =>
            {
                connection.go_back(said);
                world.read_again(connection)
            }
            _ => State::Asking(self),
        }
    }

    /// The node says what comes at the mark.
    fn on_mark(mut self, entry: &Entry, connection: &mut Connection, world: &mut dyn World) -> State {
        if connection.entry.mark.next.before(entry.mark.next) {
            world.catch_up_with_node(entry, connection);
        } else if !connection.entry.is_upgrading() {
            // From before that; or it has been given data that the switch has not read.
            return State::Asking(self);
        } else if !connection.take_decision(entry) {
            self.patience = Patience::after_a_while(world.now(), connection.born);
            return State::Asking(self);
        }
        world.set_entry(&connection.entry);
        Assembling::new(world.now()).advance(connection, world)
    }
}
