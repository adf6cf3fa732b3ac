//! Which node a request goes to: that of its session, if it has one, and else the one that the policy chooses; and how it
//! waits while none can take it.

use switchback_policy::Ask;
use switchback_wire::{sb_flow, sb_flow_entry};

use super::answer::Reply;
use super::pending::{Pending, Phase, Request};
use super::{Dispatcher, Moment, Next};
use crate::group::Placement;
use crate::plan::NodeId;
use crate::sessions::Session;

/// The longest packet that is sent with a second candidate, in bytes: whatever the link, that fits.
const SECOND_MAX: usize = 1000;

impl Dispatcher {
    /// Where the request of a flow goes that has a node; `choice` is what the policy has said before.
    pub(crate) fn next_node(
        &mut self,
        at: Moment<'_>,
        request: &Request,
        entry: &sb_flow_entry,
        choice: Option<NodeId>,
    ) -> Next {
        let next = match &request.session {
            Some(session) => self.next_of_session(at, request.group, session, entry.node),
            None => self.next_by_policy(at, request, entry.node, choice),
        };
        // A node knows one pool for each flow that it adopts.
        match next {
            Next::Stays if !self.plan.matches_session(request.group, &entry.session) => {
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
                // Where every accept queue is full, the flow needs no place in one as long as it stays.
                match choice.or_else(pick) {
                    Some(other) if other != node => Next::Leaves(Some(other)),
                    _ => Next::Stays,
                }
            }
        }
    }

    /// No choice is made for the time after the release: where a session goes is the same then, unless its node has
    /// come to be another.
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

    /// Where the request in progress goes, which has no node. It overtakes none that waits for the same room.
    pub(crate) fn place(&mut self, at: Moment<'_>, pending: &mut Pending) -> Placement {
        let group = pending.request.group;
        let is_next = |node| pending.phase == Phase::Crowded || !self.pending.is_crowded((group, node));
        let adopting = self.pending.adopting(group);
        let tried = (&pending.tried[..], pending.has_waited);
        // A reload may have ended the pool's sessions meanwhile.
        let session = pending.request.session.filter(|_| self.plan.sessions(group).is_some());
        let Some(session) = &session else {
            if !is_next(None) {
                return Placement::Any(None);
            }
            let ask = Ask { key: pending.request.key, now: at.now };
            let group = (group, pending.request.side);
            let pick = || self.plan.pick(group, &ask, tried, adopting, &mut self.random);
            return Placement::Any(pending.choice.take().or_else(pick));
        };
        match self.plan.place(group, session, tried, adopting, at.now) {
            Placement::Session(node) if self.is_awaited(pending, node) => {
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

    /// Chooses a node and gives it the flow. A request for which there is none waits behind those that wait already.
    pub(super) fn adopt(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        match self.place(at, pending) {
            Placement::Session(node) | Placement::Any(Some(node)) => {
                pending.second = self.second(at, pending, node);
                if let Some(group) = self.plan.group_mut(pending.request.group) {
                    group.adoption_sent(node);
                }
                pending.enter_request_at(node);
                self.set_entry(flow, &pending.entry);
                pending.wait(at.now, Phase::Adopting);
                self.send_adopt(flow, pending);
            }
            Placement::Full(node) => self.wait_for_room(at, flow, pending, Some(node)),
            Placement::Any(None) => self.wait_for_room(at, flow, pending, None),
            Placement::Nowhere => {
                self.stats.sessions_refused += 1;
                self.answer(at, flow, pending, &Reply::Status(503));
            }
        }
    }

    /// The request waits until this node has room, or any.
    pub(super) fn wait_for_room(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        node: Option<NodeId>,
    ) {
        if pending.is_too_old(at.now, self.plan.limits.wait_timeout) {
            let status = if pending.failed { 502 } else { 503 };
            self.answer(at, flow, pending, &Reply::Status(status));
            return;
        }
        if !pending.has_waited && self.pending.all_crowded() >= self.plan.limits.waiting {
            self.stats.turned_away += 1;
            self.answer(at, flow, pending, &Reply::Status(503));
            return;
        }
        if !pending.has_waited {
            self.stats.waited += 1;
        }
        pending.has_waited = true;
        pending.waits_for = node;
        pending.tried.clear();
        pending.wait_longer(at.now);
        pending.phase = Phase::Crowded;
    }

    /// There may be room at this node of the group: for those that wait, the oldest first. Those whose session it has
    /// come before the others, which can go elsewhere.
    pub(super) fn admit(&mut self, at: Moment<'_>, group: usize, node: NodeId) {
        for room in [(group, Some(node)), (group, None)] {
            while let Some((flow, mut pending)) = self.pending.take_crowded(room) {
                self.adopt(at, &flow, &mut pending);
                let waits = pending.phase == Phase::Crowded;
                self.keep(flow, pending);
                if waits {
                    break;
                }
            }
        }
    }

    /// Whether the request in progress waits for this node while it has no room, because the node has its session.
    pub(super) fn is_awaited(&self, pending: &Pending, node: NodeId) -> bool {
        let Request { group, session, .. } = pending.request;
        session.is_some_and(|session| session.node == Some(node))
            && self.plan.sessions(group).is_some_and(|sessions| sessions.waits_for_room())
    }

    /// The node to which `first` may pass the request on: only the first time, so that a node that has passed it on knows
    /// what is a copy, and only where it is one packet with room for one more option. A session is not passed on.
    pub(super) fn second(&self, at: Moment<'_>, pending: &Pending, first: NodeId) -> Option<NodeId> {
        let fits = pending.sent.only().is_some_and(|packet| packet.bytes.len() <= SECOND_MAX);
        let is_tied = pending.has_waited || pending.request.session.is_some();
        if !fits || is_tied || !pending.tried.is_empty() {
            return None;
        }
        let family = |id| self.plan.node(id).map(|node| node.address.is_ipv4());
        let group = pending.request.group;
        let second = self.plan.second(group, first, self.pending.adopting(group), at.now)?;
        (family(first) == family(second)).then_some(second)
    }

    /// Sees to it that a node finds the names that it is to give back each in one packet. `data` is what the request
    /// begins.
    pub(super) fn keep_name_whole(&self, pending: &mut Pending, data: &[u8]) {
        if pending.sent.only().is_some() {
            return;
        }
        let Request { group, after, .. } = &pending.request;
        let Some(name) =
            self.plan.sessions(*group).and_then(|sessions| sessions.restored_name(&after.session))
        else {
            return;
        };
        let head = &data[..data.len().min(self.plan.limits.head)];
        for at in head.windows(name.len()).enumerate().filter(|(_, text)| *text == name).map(|(at, _)| at) {
            let start = pending.entry.next.wrapping_add(at as u32);
            pending.sent.unite(start, start.wrapping_add(name.len() as u32));
        }
    }
}
