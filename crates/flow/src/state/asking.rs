//! Only the flow's node knows what comes at the mark.

use switchback_wire::message::ToNode;
use switchback_wire::sb_flow_entry;

use super::patience::Patience;
use super::{Assembling, Event, State};
use crate::connection::Connection;
use crate::held::before;
use crate::mark;
use crate::world::{Silence, Unanswered, World};

/// Waits for OWNED.
#[derive(Debug)]
pub struct Asking {
    pub(super) patience: Patience,
}

impl Asking {
    /// Asks the flow's node for its mark.
    pub fn ask(connection: &mut Connection, world: &mut dyn World) -> State {
        world.ask_owner(ToNode::Probe, connection, None);
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
                        world.ask_owner(ToNode::Probe, connection, None);
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
            Event::Unread(mark)
                if before(mark.next, connection.entry.next) && mark::is_of_same(&connection.entry, mark) =>
            {
                connection.go_back(mark);
                world.read_again(connection)
            }
            _ => State::Asking(self),
        }
    }

    /// The node says what comes at the mark.
    fn on_mark(mut self, entry: &sb_flow_entry, connection: &mut Connection, world: &mut dyn World) -> State {
        let knows_all = (entry.requests, entry.next) == (connection.entry.requests, connection.entry.next);
        if before(connection.entry.next, entry.next) {
            let turn = connection.entry.turn;
            connection.catch_up(&sb_flow_entry { turn, ..*entry });
        } else if !connection.is_upgrading() {
            // From before that; or it has been given data that the switch has not read.
            return State::Asking(self);
        } else if !knows_all || entry.mode == connection.entry.mode {
            self.patience = Patience::after_a_while(world.now(), connection.born);
            return State::Asking(self);
        } else {
            connection.entry.mode = entry.mode;
        }
        world.set_entry(&connection.entry);
        Assembling::new(world.now()).advance(connection, world)
    }
}
