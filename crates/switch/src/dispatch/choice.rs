//! The choice of the node for a request: the node of its session, or else the one that the policy chooses; and the wait
//! for room when no node has any.

use std::time::Duration;

use switchback_policy::Ask;
use switchback_wire::SB_VERSION_GROWN;

use super::pending::Pending;
use super::{Dispatcher, Moment};
use crate::plan::NodeId;
use switchback_flow::destination::{Next, Placement, Session};
use switchback_flow::entry::Entry;
use switchback_flow::request::{InProgress, Request};
use switchback_flow::state::State;

/// Length of the longest packet that is sent with a second candidate, in bytes: it fits any link.
const SECOND_MAX: usize = 1000;

impl Dispatcher {
    /// The destination of the request of a flow with a node; `choice` is the policy's earlier answer.
    pub(crate) fn next_node(
        &mut self,
        at: Moment<'_>,
        request: &Request,
        entry: &Entry,
        choice: Option<NodeId>,
    ) -> Next {
        if entry.is_resumed() {
            return Next::Leaves(None);
        }
        let next = match &request.session {
            Some(session) => self.next_of_session(at, request.group, session, entry.node),
            None => self.next_by_policy(at, request, entry.node, choice),
        };
        // A node knows one pool for each adopted flow, and a new head comes with an adoption.
        match next {
            Next::Stays
                if request.rewrites || !self.plan.matches_session(request.group, &entry.mark.session) =>
            {
                Next::Leaves(Some(entry.node).filter(|_| request.session.is_none()))
            }
            next => next,
        }
    }

    fn next_by_policy(
        &mut self,
        at: Moment<'_>,
        request: &Request,
        node: NodeId,
        choice: Option<NodeId>,
    ) -> Next {
        match self.plan.keeps(request.group, request.side, node, at.now) {
            Some(true) => Next::Stays,
            Some(false) => Next::Leaves(choice),
            None => {
                let ask = Ask { key: request.key, now: at.now };
                let adopting = self.pending.adopting(request.group);
                let group = (request.group, request.side);
                let pick = || self.plan.pick(group, &ask, (&[], false), adopting, &mut self.random);
                // If every accept queue is full, a flow that stays needs no place in one.
                match choice.or_else(pick) {
                    Some(other) if other != node => Next::Leaves(Some(other)),
                    _ => Next::Stays,
                }
            }
        }
    }

    /// The destination within a session. The node is not chosen before the release: it is the same afterwards, unless
    /// the session has moved to another node.
    fn next_of_session(&mut self, at: Moment<'_>, group: usize, session: &Session, node: NodeId) -> Next {
        let may_stay = self.plan.keeps(group, None, node, at.now) != Some(false);
        if may_stay && session.node == Some(node) {
            return Next::Stays;
        }
        let adopting = self.pending.adopting(group);
        match self.plan.place(group, session, (&[], false), adopting, at.now) {
            Placement::Nowhere => Next::Nowhere,
            Placement::Any(Some(other)) if other == node => Next::Stays,
            Placement::Any(None) if may_stay => Next::Stays,
            _ => Next::Leaves(None),
        }
    }

    /// The destination of the request of a flow without a node. A request that has not `has_waited_longest` does not
    /// overtake others that wait for the same room.
    pub(crate) fn place(
        &mut self,
        at: Moment<'_>,
        request: &mut InProgress,
        has_waited_longest: bool,
    ) -> Placement {
        let Request { group, side, key, session, .. } = request.request;
        let is_next = |node| has_waited_longest || !self.pending.is_crowded((group, node));
        let adopting = self.pending.adopting(group);
        let tried = [&request.tried[..], &self.too_old_for(request)].concat();
        let tried = (&tried[..], request.has_waited);
        // A reload may have removed the pool's sessions meanwhile.
        let Some(session) = session.filter(|_| self.plan.sessions(group).is_some()) else {
            if !is_next(None) {
                return Placement::Any(None);
            }
            let ask = Ask { key, now: at.now };
            let pick = || self.plan.pick((group, side), &ask, tried, adopting, &mut self.random);
            let choice = request.choice.take().filter(|node| !tried.0.contains(node));
            return Placement::Any(choice.or_else(pick));
        };
        match self.plan.place(group, &session, tried, adopting, at.now) {
            Placement::Session(node) if self.is_awaited(request, node) => {
                if is_next(Some(node)) {
                    Placement::Session(node)
                } else {
                    Placement::Full(node)
                }
            }
            Placement::Session(_) | Placement::Any(Some(_)) if !is_next(None) => Placement::Any(None),
            place => place,
        }
    }

    /// Nodes that do not know the version in which the request's adoption is written.
    fn too_old_for(&self, request: &InProgress) -> Vec<NodeId> {
        if request.head.as_ref().is_none_or(|head| head.grown() == 0) {
            return Vec::new();
        }
        let newest = |id| self.plan.node(id)?.report.map(|(_, report)| report.newest);
        let is_too_old = |id: &NodeId| newest(*id).is_some_and(|newest| newest < SB_VERSION_GROWN);
        self.plan.ids().filter(is_too_old).collect()
    }

    /// The policy's choices for `count` first requests of the group that are still to come; none while requests wait for
    /// room, which are first.
    pub fn choose_ahead(
        &mut self,
        now: Duration,
        group: usize,
        count: usize,
        usable: impl Fn(NodeId) -> bool,
    ) -> Vec<NodeId> {
        if self.has_waiting(group) {
            return Vec::new();
        }
        let adopting = self.pending.adopting(group);
        self.plan.choose_ahead(group, count, usable, adopting, now, &mut self.random)
    }

    /// Whether requests of the group wait for room at any node.
    pub fn has_waiting(&self, group: usize) -> bool {
        self.pending.is_crowded((group, None))
    }

    /// Gives room at this node to waiting requests of the group, the oldest first. Requests with a session there come
    /// before the others, which can go to another node.
    pub(super) fn admit(&mut self, at: Moment<'_>, group: usize, node: NodeId) {
        self.admit_to(at, (group, Some(node)));
        self.admit_any(at, group);
    }

    /// Gives room to requests of the group that wait for any node, the oldest first.
    pub fn admit_any(&mut self, at: Moment<'_>, group: usize) {
        self.admit_to(at, (group, None));
    }

    fn admit_to(&mut self, at: Moment<'_>, room: (usize, Option<NodeId>)) {
        while let Some((flow, pending)) = self.pending.take_crowded(room) {
            let Pending { mut connection, state } = pending;
            let State::Crowded(crowded) = state else { return };
            let state = crowded.try_again(&mut connection, &mut self.world(at, &flow));
            let waits = matches!(state, State::Crowded(_));
            self.keep(&flow, connection, state);
            if waits {
                break;
            }
        }
    }

    /// Whether the request waits for this node, which has its session, until it has room.
    pub(super) fn is_awaited(&self, request: &InProgress, node: NodeId) -> bool {
        let Request { group, session, .. } = request.request;
        session.is_some_and(|session| session.node == Some(node))
            && self.plan.sessions(group).is_some_and(|sessions| sessions.waits_for_room())
    }

    /// The node to which `first` may pass on the request. There is one only at the first attempt, so that a node can
    /// recognise copies of what it has passed on, and only for a single packet with room for one more option, without a
    /// session.
    pub(super) fn second(&self, at: Moment<'_>, request: &InProgress, first: NodeId) -> Option<NodeId> {
        let fits = request.packets.only().is_some_and(|packet| packet.bytes.len() <= SECOND_MAX)
            && request.head.is_none();
        let is_tied = request.has_waited || request.request.session.is_some();
        if !fits || is_tied || !request.tried.is_empty() {
            return None;
        }
        let address = |id| self.plan.node(id).map(|node| node.address);
        let family = |id| address(id).map(|address| address.machine.is_ipv4());
        // The packet has no room for their numbers.
        let is_numbered = |id| address(id).is_some_and(|address| address.number != 0);
        let group = request.request.group;
        let second = self.plan.second(group, first, self.pending.adopting(group), at.now)?;
        let can_be = family(first) == family(second) && !is_numbered(first) && !is_numbered(second);
        can_be.then_some(second)
    }

    /// Joins packets so that each name that a node has to restore is in one packet. `data` is the start of the request.
    pub(super) fn keep_name_whole(&self, request: &mut InProgress, data: &[u8]) {
        if request.packets.only().is_some() {
            return;
        }
        let Request { group, after, .. } = &request.request;
        let Some(name) =
            self.plan.sessions(*group).and_then(|sessions| sessions.restored_name(&after.mark.session))
        else {
            return;
        };
        let head = &data[..data.len().min(self.plan.limits.head)];
        for at in head.windows(name.len()).enumerate().filter(|(_, text)| *text == name).map(|(at, _)| at) {
            let start = request.start.mark.next + at;
            request.packets.unite(start, start + name.len());
        }
    }
}
