//! Observations of requests by the dispatcher.

use std::time::Duration;

use switchback_wire::facts::Fact;
use switchback_wire::records::Numbered;
use switchback_wire::{sb_fact, sb_flow};

use super::{Dispatcher, Moment};
use switchback_flow::answer::Answer;
use switchback_flow::connection::Connection;
use switchback_flow::destination::Chosen;
use switchback_flow::entry::Entry;
use switchback_flow::held::Held;
use switchback_flow::request::InProgress;

use crate::observe::{FactsOrder, Observation, RequestForwarded, RequestSeen};
use crate::plan::NodeId;

/// Arrival of a request, and the time for which it was held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    /// Time since the arrival.
    pub(super) queued: Duration,
}

impl Arrival {
    fn of(connection: &Connection, now: Duration) -> Self {
        Arrival { at: connection.came, queued: now.saturating_sub(connection.came) }
    }
}

impl Dispatcher {
    /// Switches observations in the output on or off, and with them the facts asked of nodes.
    pub fn set_observes(&mut self, observes: bool) {
        self.observes = observes;
    }

    pub(super) fn observe(&mut self, observation: impl FnOnce() -> Observation) {
        if self.observes {
            self.output.observed.push(observation());
        }
    }

    /// Records a request given to a node, the last one of `after`, the flow's new entry.
    pub(super) fn observe_given(
        &mut self,
        flow: &sb_flow,
        after: &Entry,
        arrival: Arrival,
        chosen: Chosen,
        tries: u32,
        head: impl FnOnce() -> Box<[u8]>,
    ) {
        let (node, origin) = (after.node, after.origin);
        let (begins, number) = (after.mark.begins, after.mark.requests.0);
        let Arrival { at, queued } = arrival;
        self.observe(|| {
            let asked = RequestSeen { flow: *flow, origin, begins, head: head(), at, queued };
            Observation::Forwarded(RequestForwarded { asked, node, number, chosen, tries })
        });
    }

    /// Records a request that waited before a node was given it.
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
            first(request.packets.stream(after.mark.begins), limit)
        });
    }

    /// The request at the mark, as far as it has arrived.
    fn asked(&self, at: Moment<'_>, flow: &sb_flow, connection: &Connection, packets: &Held) -> RequestSeen {
        let begins = connection.entry.mark.next;
        let Arrival { at, queued } = Arrival::of(connection, at.now);
        let head = first(packets.stream(begins), self.plan.limits.head);
        RequestSeen { flow: *flow, origin: connection.entry.origin, begins, head, at, queued }
    }

    /// The request that the switch is about to answer, taken before the answer drops its packets.
    pub(super) fn request_to_answer(
        &self,
        at: Moment<'_>,
        flow: &sb_flow,
        connection: &Connection,
    ) -> Option<RequestSeen> {
        self.observes.then(|| self.asked(at, flow, connection, &connection.held))
    }

    pub(super) fn observe_answer(&mut self, asked: Option<RequestSeen>, status: u16, answer: &Answer) {
        let bytes = answer.sizes();
        self.output.observed.extend(asked.map(|asked| Observation::Answered { asked, status, bytes }));
    }

    /// Records that the client has gone, possibly with a whole request that waited for a node.
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

    /// Handles a node's facts about responses.
    pub fn on_facts(&mut self, node: NodeId, numbered: Numbered, facts: &[sb_fact]) {
        if let FactsOrder::Next { lost } = self.heard.take(node, numbered) {
            let facts = facts.iter().map(Fact::from_wire);
            self.output.observed.extend(facts.map(|fact| Observation::Fact { node, fact }));
            self.output.observed.extend((lost > 0).then_some(Observation::Lost(lost)));
        }
    }
}

fn first(mut stream: Vec<u8>, limit: usize) -> Box<[u8]> {
    stream.truncate(limit);
    stream.into()
}
