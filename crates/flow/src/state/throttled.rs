//! The request is early for a rate limit.

use std::time::Duration;

use super::assembling::{Step, pass_on};
use super::{Assembling, Event, State};
use crate::connection::Connection;
use crate::request::InProgress;
use crate::world::World;

/// Waits for its turn.
#[derive(Debug)]
pub struct Throttled {
    pub(super) request: Box<InProgress>,
    /// Its turn.
    pub(super) due: Duration,
}

impl Throttled {
    /// Waits until this time.
    pub(super) fn wait(
        request: Box<InProgress>,
        due: Duration,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        if connection.has_node() {
            // What follows the request waits, too.
            world.lock_entry(&connection.entry);
        }
        State::Throttled(Throttled { request, due })
    }

    pub(super) fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        let Event::Deadline = event else { return State::Throttled(self) };
        connection.born = world.now();
        match pass_on(self.request, None, connection, world) {
            Step::Leave(state) => state,
            Step::Again | Step::Wait => Assembling::new(world.now()).advance_from(None, connection, world),
        }
    }
}
