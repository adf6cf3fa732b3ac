//! No node has room for the request.

use std::time::Duration;

use switchback_wire::Reason;

use super::patience::a_while;
use super::{Adopting, Event, State};
use crate::NodeId;
use crate::answer::Reply;
use crate::connection::Connection;
use crate::request::InProgress;
use crate::world::{Count, World};

/// Waits for room at a node.
#[derive(Debug)]
pub struct Crowded {
    pub(super) request: Box<InProgress>,
    /// When to try again.
    pub(super) due: Duration,
    /// The node that has the request's session; None if any node will do.
    node: Option<NodeId>,
}

impl Crowded {
    /// Waits until this node has room, or any.
    pub fn wait(
        mut request: Box<InProgress>,
        node: Option<NodeId>,
        connection: &mut Connection,
        world: &mut dyn World,
    ) -> State {
        let now = world.now();
        if now.saturating_sub(connection.born) > world.limits().wait_timeout {
            let status = if request.refusal == Some(Reason::Failed) { 502 } else { 503 };
            return world.answer_request(Reply::Status(status), *request, connection);
        }
        if !request.has_waited {
            if world.crowded() >= world.limits().waiting {
                world.count(Count::TurnedAway);
                return world.answer_request(Reply::Status(503), *request, connection);
            }
            world.count(Count::Waited);
        }
        request.has_waited = true;
        request.tried.clear();
        State::Crowded(Crowded { request, due: now + a_while(now, connection.born), node })
    }

    /// The group, and the node if only one will do.
    pub fn room(&self) -> (usize, Option<NodeId>) {
        (self.request.request.group, self.node)
    }

    /// There may be room.
    pub fn try_again(self, connection: &mut Connection, world: &mut dyn World) -> State {
        Adopting::choose(self.request, true, connection, world)
    }

    pub(super) fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        let Event::Deadline = event else { return State::Crowded(self) };
        let state = State::Crowded(self);
        if connection.acknowledged.is_none() {
            state.help(connection, world);
        }
        let State::Crowded(crowded) = state else { return state };
        crowded.try_again(connection, world)
    }
}
