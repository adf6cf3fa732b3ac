//! Nodes are asked whether they have the flow.

use std::time::Duration;

use switchback_wire::Seq;

use super::patience::Patience;
use super::{Assembling, Event, State};
use crate::NodeId;
use crate::connection::Connection;
use crate::entry::Mode;
use crate::world::{Count, World};

/// How long nodes have to answer: longer than round trips in a network, and shorter than a client takes to retransmit.
const ANSWER_WAIT: Duration = Duration::from_millis(40);

/// Who has the flow?
#[derive(Clone, Debug)]
pub struct Question {
    /// Sequence number of the PROBEs.
    pub seq: Seq,
    /// That of the connection's first byte; 0 if it is not known.
    pub origin: Seq,
    /// Nodes that may have the flow.
    pub nodes: Vec<NodeId>,
}

impl Question {
    /// An answer with these numbers is one to it.
    pub fn is_answered_by(&self, seq: Seq, origin: Seq) -> bool {
        (self.seq, self.origin) == (seq, origin)
    }
}

/// Waits for OWNED from one node, or UNOWNED from all.
#[derive(Debug)]
pub struct Seeking {
    question: Question,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A first request, which begins if no node has its flow.
    First(Patience),
    /// Data of a flow that the switch does not know; it comes again if no node answers in time.
    Unknown {
        /// When that time is over.
        due: Duration,
    },
}

impl Seeking {
    /// Data of an unknown flow waits for the answer to this question.
    pub fn unknown(question: Question, now: Duration) -> State {
        State::Seeking(Seeking { question, kind: Kind::Unknown { due: now + ANSWER_WAIT } })
    }

    /// Asks about a first request that another process may have given to a node.
    pub fn ask(connection: &mut Connection, world: &mut dyn World) -> State {
        let Some((view, bytes)) = connection.question(world.flow(), None) else { return State::Over };
        let nodes = world.nodes();
        let mut question = Question { seq: view.seq, origin: connection.entry.origin, nodes };
        if !world.seek(&mut question, (&view, &bytes)) {
            return world.abandon(connection);
        }
        let kind = Kind::First(Patience::new(world.now()));
        Seeking { question, kind }.begin_unowned(connection, world)
    }

    pub(super) fn due(&self) -> Duration {
        match self.kind {
            Kind::First(patience) => patience.due,
            Kind::Unknown { due } => due,
        }
    }

    pub(super) fn on(self, event: Event<'_>, connection: &mut Connection, world: &mut dyn World) -> State {
        match event {
            Event::Deadline => self.on_deadline(connection, world),
            Event::Unowned { node, origin, seq, served, .. } if self.question.is_answered_by(seq, origin) => {
                if served && matches!(self.kind, Kind::First(_)) {
                    // The node has answered what is held; that does not begin once more.
                    world.forget(connection.entry.origin);
                    return State::Over;
                }
                self.rule_out(node, connection, world)
            }
            // An older connection, which its client has given up.
            Event::Owned { node, state, .. }
                if matches!(self.kind, Kind::First(_)) && connection.entry.origin != state.origin =>
            {
                self.rule_out(node, connection, world)
            }
            Event::Owned { node, state, view } => world.recover_with_data(state, node, view, connection),
            _ => State::Seeking(self),
        }
    }

    /// Nodes have not answered in time. A first request's are asked as often as about anything else that waits for them.
    /// After that those of which nothing is heard are taken for dead; the others may have it.
    fn on_deadline(mut self, connection: &mut Connection, world: &mut dyn World) -> State {
        let now = world.now();
        let Kind::First(patience) = &mut self.kind else { return State::Over };
        if !patience.try_again(now, false) {
            self.question.nodes.retain(|node| !world.is_silent(*node, now));
            if !self.question.nodes.is_empty() && !patience.try_on(now) {
                return world.give_up(connection);
            }
        }
        if let Some((view, bytes)) =
            connection.question(world.flow(), None).filter(|_| !self.question.nodes.is_empty())
        {
            world.count(Count::Resent);
            world.seek(&mut self.question, (&view, &bytes));
        }
        self.begin_unowned(connection, world)
    }

    /// The node does not have the flow.
    fn rule_out(mut self, node: NodeId, connection: &mut Connection, world: &mut dyn World) -> State {
        self.question.nodes.retain(|asked| *asked != node);
        self.begin_unowned(connection, world)
    }

    /// Begins a first request that no node has.
    fn begin_unowned(self, connection: &mut Connection, world: &mut dyn World) -> State {
        if !self.question.nodes.is_empty() {
            return State::Seeking(self);
        }
        match self.kind {
            Kind::First(_) => {
                connection.entry.mode = Mode::Held;
                Assembling::new(world.now()).advance(connection, world)
            }
            Kind::Unknown { .. } => State::Over,
        }
    }
}
