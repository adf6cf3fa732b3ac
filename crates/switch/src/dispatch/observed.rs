//! What the dispatcher tells the observer of requests.

use std::time::Duration;

use switchback_wire::facts::{Fact, Numbered};
use switchback_wire::{sb_fact, sb_flow, sb_flow_entry};

use super::answer::Answer;
use super::connection::Connection;
use super::held::Held;
use super::request::InProgress;
use super::{Dispatcher, Moment};
use crate::observe::{Asked, Chosen, Given, Observation, Place};
use crate::plan::NodeId;

/// When a request came, and how long it has been held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    /// How long it has been here.
    pub(super) queued: Duration,
}

impl Arrival {
    fn of(connection: &Connection, now: Duration) -> Self {
        Arrival { at: connection.came, queued: now.saturating_sub(connection.came) }
    }
}

impl Dispatcher {
    /// From here on, or not any more, the output has observations, and nodes are asked for facts.
    pub fn set_observes(&mut self, observes: bool) {
        self.observes = observes;
    }

    pub(super) fn observe(&mut self, observation: impl FnOnce() -> Observation) {
        if self.observes {
            self.output.observed.push(observation());
        }
    }

    /// A node has been given the request that `after`, the flow's entry from now on, says is the last.
    pub(super) fn observe_given(
        &mut self,
        flow: &sb_flow,
        after: &sb_flow_entry,
        arrival: Arrival,
        chosen: Chosen,
        tries: u32,
        head: impl FnOnce() -> Box<[u8]>,
    ) {
        let &sb_flow_entry { node, origin, begins, requests: number, .. } = after;
        let Arrival { at, queued } = arrival;
        self.observe(|| {
            let asked = Asked { flow: *flow, origin, begins, head: head(), at, queued };
            Observation::Given(Given { asked, node, number, chosen, tries })
        });
    }

    /// A node has been given a request that had to wait.
    pub(super) fn observe_request(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        request: &InProgress,
        connection: &Connection,
        chosen: Chosen,
    ) {
        let after = request.after();
        let limit = self.plan.limits.head;
        let tries = request.tried.len() as u32;
        self.observe_given(flow, after, Arrival::of(connection, at.now), chosen, tries, || {
            first(request.packets.stream(after.begins), limit)
        });
    }

    /// The request that is at the mark, as far as it has come.
    fn asked(&self, at: Moment<'_>, flow: &sb_flow, connection: &Connection, packets: &Held) -> Asked {
        let begins = connection.entry.next;
        let Arrival { at, queued } = Arrival::of(connection, at.now);
        let head = first(packets.stream(begins), self.plan.limits.head);
        Asked { flow: *flow, origin: connection.entry.origin, begins, head, at, queued }
    }

    /// The switch is about to answer it. What it was is not held any more when the answer is made.
    pub(super) fn request_to_answer(
        &self,
        at: Moment<'_>,
        flow: &sb_flow,
        connection: &Connection,
    ) -> Option<Asked> {
        self.observes.then(|| self.asked(at, flow, connection, &connection.held))
    }

    pub(super) fn observe_answer(&mut self, asked: Option<Asked>, status: u16, answer: &Answer) {
        let bytes = answer.sizes();
        self.output.observed.extend(asked.map(|asked| Observation::Answered { asked, status, bytes }));
    }

    /// The client has gone; perhaps its request is whole and has waited for a node.
    pub(super) fn observe_abandoned(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        connection: &Connection,
        request: Option<&InProgress>,
    ) {
        if let Some(request) = request.filter(|_| self.observes) {
            let asked = self.asked(at, flow, connection, &request.packets);
            self.output.observed.push(Observation::Abandoned(asked));
        }
    }

    /// A node tells what became of responses.
    pub fn on_facts(&mut self, node: NodeId, numbered: Numbered, facts: &[sb_fact]) {
        if let Place::Next { lost } = self.heard.take(node, numbered) {
            let facts = facts.iter().map(Fact::from_wire);
            self.output.observed.extend(facts.map(|fact| Observation::Fact { node, fact }));
            self.output.observed.extend((lost > 0).then_some(Observation::Lost(lost)));
        }
    }

    /// Nodes that have told something hear how much of it has come: once for all packets that came together, because an
    /// answer costs as much as what it answers.
    pub fn acknowledge_facts(&mut self) {
        self.heard.unanswered().into_iter().for_each(|node| self.say_hello(node));
    }
}

fn first(mut stream: Vec<u8>, limit: usize) -> Box<[u8]> {
    stream.truncate(limit);
    stream.into()
}
