//! Which node a request goes to: that of its session, if it has one, and else the one that the policy chooses; and how it
//! waits while none can take it.

use switchback_policy::Ask;
use switchback_wire::sb_flow_entry;

use super::pending::Pending;
use super::request::{InProgress, Request};
use super::state::State;
use super::{Dispatcher, Moment, Next};
use crate::group::Place;
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
            Next::Stays if !self.plan.is_told(request.group, &entry.session) => {
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
            Place::Nowhere => Next::Nowhere,
            Place::Any(Some(other)) if other == node => Next::Stays,
            Place::Any(None) if may_stay => Next::Stays,
            _ => Next::Leaves(None),
        }
    }

    /// Where a request goes whose flow has no node. It overtakes none that waits for the same room, unless it
    /// `has_waited_longest` itself.
    pub(crate) fn place(
        &mut self,
        at: Moment<'_>,
        request: &mut InProgress,
        has_waited_longest: bool,
    ) -> Place {
        let Request { group, side, key, session, .. } = request.request;
        let is_next = |node| has_waited_longest || !self.pending.is_crowded((group, node));
        let adopting = self.pending.adopting(group);
        let tried = (&request.tried[..], request.has_waited);
        // A reload may have ended the pool's sessions meanwhile.
        let Some(session) = session.filter(|_| self.plan.sessions(group).is_some()) else {
            if !is_next(None) {
                return Place::Any(None);
            }
            let ask = Ask { key, now: at.now };
            let pick = || self.plan.pick((group, side), &ask, tried, adopting, &mut self.random);
            return Place::Any(request.choice.take().or_else(pick));
        };
        match self.plan.place(group, &session, tried, adopting, at.now) {
            Place::Session(node) if self.is_awaited(request, node) => {
                if is_next(Some(node)) {
                    Place::Session(node)
                } else {
                    Place::Full(node)
                }
            }
            Place::Session(_) | Place::Any(Some(_)) if !is_next(None) => Place::Any(None),
            place => place,
        }
    }

    /// There may be room at this node of the group: for those that wait, the oldest first. Those whose session it has
    /// come before the others, which can go elsewhere.
    pub(super) fn admit(&mut self, at: Moment<'_>, group: usize, node: NodeId) {
        for room in [(group, Some(node)), (group, None)] {
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
    }

    /// Whether the request waits for this node while it has no room, because the node has its session.
    pub(super) fn is_awaited(&self, request: &InProgress, node: NodeId) -> bool {
        let Request { group, session, .. } = request.request;
        session.is_some_and(|session| session.node == Some(node))
            && self.plan.sessions(group).is_some_and(|sessions| sessions.waits_for_room())
    }

    /// The node to which `first` may pass the request on: only the first time, so that a node that has passed it on knows
    /// what is a copy, and only where it is one packet with room for one more option. A session is not passed on.
    pub(super) fn second(&self, at: Moment<'_>, request: &InProgress, first: NodeId) -> Option<NodeId> {
        let fits = request.packets.only().is_some_and(|packet| packet.bytes.len() <= SECOND_MAX);
        let is_tied = request.has_waited || request.request.session.is_some();
        if !fits || is_tied || !request.tried.is_empty() {
            return None;
        }
        let family = |id| self.plan.node(id).map(|node| node.address.is_ipv4());
        let group = request.request.group;
        let second = self.plan.second(group, first, self.pending.adopting(group), at.now)?;
        (family(first) == family(second)).then_some(second)
    }

    /// Joins packets so that a node finds each name that it is to give back in one packet. `data` is what the request
    /// begins.
    pub(super) fn keep_name_whole(&self, request: &mut InProgress, data: &[u8]) {
        if request.packets.only().is_some() {
            return;
        }
        let Request { group, after, .. } = &request.request;
        let Some(name) = self.plan.sessions(*group).and_then(|sessions| sessions.restored(&after.session))
        else {
            return;
        };
        let head = &data[..data.len().min(self.plan.limits.head)];
        for at in head.windows(name.len()).enumerate().filter(|(_, text)| *text == name).map(|(at, _)| at) {
            let start = request.start.next.wrapping_add(at as u32);
            request.packets.unite(start, start.wrapping_add(name.len() as u32));
        }
    }
}
