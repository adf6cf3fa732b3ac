//! Responses that go on at another node, because theirs is dead (docs/decisions/0050).
//!
//! The switch tells the nodes who is dead. Those that can go on with its responses say so (RESUME), one flow at a time.

use std::time::Duration;

use switchback_wire::flow_state::FlowState;
use switchback_wire::message::ToAgent;
use switchback_wire::packet::TcpView;
use switchback_wire::report::pool_id;
use switchback_wire::{SB_WINDOW, Seq, sb_flow};

use super::pending::Pending;
use super::{Dispatcher, Moment};
use crate::observe::Observation;
use crate::plan::NodeId;
use switchback_flow::connection::Connection;
use switchback_flow::entry::Entry;
use switchback_flow::state::{Resuming, State};

/// What a node says with RESUME.
pub(super) struct Offer<'a> {
    /// The hash of the name of the node that had the flow.
    pub(super) of: u32,
    /// That node lives, but not its server.
    pub(super) gone: bool,
    /// The flow at that node.
    pub(super) state: &'a FlowState,
    /// Up to here the client has the response.
    pub(super) has: Seq,
}

impl Dispatcher {
    /// Tells the nodes which others are dead, where a pool has its responses resumed.
    pub fn tell_deaths(&mut self, now: Duration) {
        if !self.plan.resumes {
            return;
        }
        let (dead, living): (Vec<NodeId>, Vec<NodeId>) =
            self.plan.ids().partition(|node| self.plan.is_dead(*node, now));
        for node in dead
            .iter()
            .filter_map(|dead| self.plan.node(*dead))
            .map(|node| pool_id(&node.name))
            .collect::<Vec<_>>()
        {
            for id in &living {
                let clock = self.plan.node(*id).and_then(|node| node.clock);
                if let Some(clock) = clock {
                    self.tell_agent(*id, clock.epoch(now), ToAgent::Dead { node });
                }
            }
        }
    }

    /// Handles a node's offer to go on with the response under way on a flow.
    pub(super) fn on_resume(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        heir: NodeId,
        offer: &Offer<'_>,
        view: &TcpView,
    ) {
        let Offer { of, gone, state, has } = *offer;
        let Some(owner) = self.plan.node_by_name_hash(of).filter(|owner| *owner != heir) else { return };
        if !gone && !self.plan.is_dead(owner, at.now) {
            return;
        }
        self.pending.note_offer(flow, heir, at.now);
        let known = match self.pending.get(flow) {
            Some(pending) => self.entry_of_pending(at, pending, state),
            None if self.answered.entry(flow).is_some() => None,
            None => match self.current(at, flow) {
                Some(entry) => Some(entry),
                None if self.knows(flow) => None,
                // The switch that the flow came by is gone, or it is not this one that its client's packets come to.
                None => {
                    let entry = Entry::of_node(owner, state, self.plan.limits.body);
                    self.recover(flow, state.origin, entry, view)
                }
            },
        };
        let Some(known) = known else { return };
        let Some(entry) = self.entry_for(at, known, owner, state) else { return };
        let mut connection = Connection::new(entry, at.now);
        if let Some(pending) = self.pending.take(flow) {
            let last = pending.connection.entry.generation;
            connection = pending.connection;
            // The heir that has died may have carried its adoption out.
            connection.entry = Entry { generation: last.later(entry.generation), ..entry };
            let mut state = pending.state;
            if let Some(request) = state.request_mut() {
                request.put_back(&mut connection);
            }
        }
        let state = Resuming::begin(heir, has, known, &mut connection, &mut self.world(at, flow));
        self.keep(flow, connection, state);
    }

    /// The flow's entry behind the response's request, if the offer is about the flow as it is known here. The flow may have had
    /// another node since, which is dead, too; and its client may have sent more requests, which it sends again. But what a node
    /// has adopted it for since lies behind the response, which is over.
    fn entry_for(&self, at: Moment<'_>, known: Entry, owner: NodeId, said: &FlowState) -> Option<Entry> {
        let has_lost_node =
            known.is_resuming() || known.node == owner || self.plan.is_dead(known.node, at.now);
        let then = Entry::of_node(known.node, said, self.plan.limits.body)?;
        let ahead = known.mark.next.offset_from(said.next);
        let is_at_mark = match then.is_tunnel() {
            // How much of it the node has read, only the node knows.
            true => known.is_tunnel() || known.is_resuming(),
            false => (0..=SB_WINDOW as i32).contains(&ahead),
        };
        let is_over = !then.is_tunnel() && ahead > 0 && known.generation.is_newer(said.generation);
        if !has_lost_node || known.is_held() || known.origin != said.origin || !is_at_mark || is_over {
            return None;
        }
        let before = if ahead == 0 { known } else { known.set_back_to(&then) };
        // Another switch may have given the flow to the node that is dead.
        Some(Entry { generation: known.generation.later(said.generation), ..before })
    }

    /// The entry of a pending flow, if its response may go on: the node that was asked for something is dead. Or a node has
    /// gone on meanwhile, by another switch, and is dead, too.
    fn entry_of_pending(&self, at: Moment<'_>, pending: &Pending, said: &FlowState) -> Option<Entry> {
        match &pending.state {
            State::Resuming(resuming) => {
                let is_without = resuming.is_without_heir(|heir| self.plan.is_dead(heir, at.now));
                let is_later = said.generation.is_newer(pending.connection.entry.generation);
                (is_without || is_later).then_some(*resuming.before())
            }
            State::Assembling(_) | State::Releasing(_) | State::Asking(_) | State::Delivering(_) => {
                Some(pending.connection.entry)
            }
            _ => None,
        }
    }

    /// The response under way on the flow goes on at another node.
    pub(super) fn note_resumed(&mut self, flow: &sb_flow, after: &Entry) {
        let (origin, node, number) = (after.origin, after.node, after.mark.requests.0);
        self.observe(|| Observation::Resumed { flow: *flow, origin, node, number });
    }
}
