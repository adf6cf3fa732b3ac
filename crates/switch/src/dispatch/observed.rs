//! What the dispatcher tells of requests, if anybody wants to know.

use std::time::Duration;

use switchback_wire::facts::{Fact, Numbered};
use switchback_wire::{sb_fact, sb_flow, sb_flow_entry};

use super::answer::Answer;
use super::pending::Pending;
use super::{Dispatcher, Moment};
use crate::observe::{Chosen, FactsOrder, Observation, RequestForwarded, RequestSeen};
use crate::plan::NodeId;

/// When a request came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) at: Duration,
    /// How long it has been here.
    pub(super) queued: Duration,
}

impl Came {
    fn of(pending: &Pending, now: Duration) -> Self {
        Came { at: pending.came(), queued: now.saturating_sub(pending.came()) }
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
        came: Came,
        chosen: Chosen,
        tries: u32,
        head: impl FnOnce() -> Box<[u8]>,
    ) {
        let &sb_flow_entry { node, origin, begins, requests: number, .. } = after;
        let Came { at, queued } = came;
        self.observe(|| {
            let asked = RequestSeen { flow: *flow, origin, begins, head: head(), at, queued };
            Observation::Forwarded(RequestForwarded { asked, node, number, chosen, tries })
        });
    }

    /// Likewise, of the request in progress.
    pub(super) fn observe_pending(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &Pending,
        chosen: Chosen,
    ) {
        let after = pending.request.after;
        let limit = self.plan.limits.head;
        let tries = pending.tried.len() as u32;
        self.observe_given(flow, &after, Came::of(pending, at.now), chosen, tries, || {
            first(pending.sent.stream(after.begins), limit)
        });
    }

    /// The request that is at the mark, as far as it has come.
    fn asked(&self, at: Moment<'_>, flow: &sb_flow, pending: &Pending) -> RequestSeen {
        let begins = pending.entry.next;
        let held = if pending.sent.is_empty() { &pending.held } else { &pending.sent };
        let Came { at, queued } = Came::of(pending, at.now);
        let head = first(held.stream(begins), self.plan.limits.head);
        RequestSeen { flow: *flow, origin: pending.entry.origin, begins, head, at, queued }
    }

    /// The switch is about to answer it. What it was is not held any more when the answer is made.
    pub(super) fn request_to_answer(
        &self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &Pending,
    ) -> Option<RequestSeen> {
        self.observes.then(|| self.asked(at, flow, pending))
    }

    pub(super) fn observe_answer(&mut self, asked: Option<RequestSeen>, status: u16, answer: &Answer) {
        let bytes = answer.sizes();
        self.output.observed.extend(asked.map(|asked| Observation::Answered { asked, status, bytes }));
    }

    /// The client has gone; perhaps its request is whole and has waited for a node.
    pub(super) fn observe_abandoned(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &Pending) {
        if self.observes && !pending.sent.is_empty() {
            let asked = self.asked(at, flow, pending);
            self.output.observed.push(Observation::Abandoned(asked));
        }
    }

    /// A node tells what became of responses.
    pub fn on_facts(&mut self, node: NodeId, numbered: Numbered, facts: &[sb_fact]) {
        if let FactsOrder::Next { lost } = self.heard.take(node, numbered) {
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
