//! No node has room for the request.

use std::time::Duration;

use switchback_wire::message::Reason;

use super::patience::a_while;
use super::{Adopting, Event, State};
use crate::dispatch::answer::Reply;
use crate::dispatch::connection::Connection;
use crate::dispatch::request::InProgress;
use crate::dispatch::world::World;
use crate::plan::NodeId;

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
        world: &mut World<'_>,
    ) -> State {
        let now = world.at.now;
        if now.saturating_sub(connection.born) > world.dispatcher.plan.limits.wait_timeout {
            let status = if request.refusal == Some(Reason::Failed) { 502 } else { 503 };
            return world.answer_request(Reply::Status(status), request, connection);
        }
        if !request.has_waited {
            if world.dispatcher.crowded() >= world.dispatcher.plan.limits.waiting {
                world.dispatcher.stats.turned_away += 1;
                return world.answer_request(Reply::Status(503), request, connection);
            }
            world.dispatcher.stats.waited += 1;
        }
        request.has_waited = true;
        request.tried.clear();
        State::Crowded(Crowded { request, due: now + a_while(now, connection.born), node })
    }

    /// What it waits for: the group, and the node if only one will do.
    pub fn room(&self) -> (usize, Option<NodeId>) {
        (self.request.request.group, self.node)
    }

    /// There may be room.
    pub fn try_again(self, connection: &mut Connection, world: &mut World<'_>) -> State {
        Adopting::choose(self.request, true, connection, world)
    }

    pub(super) fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut World<'_>) -> State {
        let Event::Deadline = event else { return State::Crowded(self) };
        let state = State::Crowded(self);
        if connection.acknowledged.is_none() {
            state.help(connection, world);
        }
        let State::Crowded(crowded) = state else { return state };
        crowded.try_again(connection, world)
    }
}
