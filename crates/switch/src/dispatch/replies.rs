//! What nodes say.

use switchback_wire::message::{FromNode, Owned, Reason, ToNode};
use switchback_wire::packet::TcpView;
use switchback_wire::{address_from, sb_flow, sb_flow_entry, sb_framing, sb_mode, sb_record};

use super::held::{Held, HeldPacket, before};
use super::pending::{Pending, Phase, Request};
use super::{Dispatcher, Moment, is_held, mark};
use crate::observe::Chosen;
use crate::plan::NodeId;

/// The entry of a flow that a node has; None if the node cannot say what comes at the mark. How much of a body's limit is
/// left is not known any more.
pub(super) fn entry_of_node(
    owned: &Owned,
    (node, origin): (NodeId, u32),
    body_max: u64,
) -> Option<sb_flow_entry> {
    let (mode, framing) = owned.at_mark?;
    Some(sb_flow_entry {
        node,
        origin,
        next: owned.next,
        framing: sb_framing { allowed: body_max, ..framing },
        mss: owned.mss,
        options: owned.options,
        wscale: owned.wscale,
        mode: mode as u8,
        requests: owned.requests,
        heads: owned.heads,
        session: owned.session,
        begins: owned.next,
        ..Default::default()
    })
}

impl Dispatcher {
    /// A handoff packet from a node.
    pub(super) fn on_handoff(&mut self, at: Moment<'_>, record: &sb_record, packet: &[u8], view: TcpView) {
        let (flow, origin) = (&record.flow, u32::from_be(record.option.origin));
        let Some(node) = self.plan.node_at(address_from(record.node)) else { return };
        let Some(message) = FromNode::read(flow, &record.option, &view, packet) else { return };
        match message {
            FromNode::Report(report) => {
                self.stats.reports += 1;
                for group in self.plan.report(node, &report, at.now) {
                    self.admit(at, group, node);
                }
            }
            FromNode::Synced { nonce, clock } => self.on_synced(at.now, node, nonce, clock),
            FromNode::Sized { path, bytes } => self.sizes.learn(path, bytes),
            FromNode::Owned(owned) => self.on_owned(at, flow, (node, origin), &owned, packet, view),
            FromNode::Unread(owned) => self.on_unread(at, flow, (node, origin), &owned),
            FromNode::Unowned { served, next } => {
                self.on_unowned(at, flow, (node, origin), (served, next), &view);
            }
            FromNode::Move { target, owned } => {
                self.on_move(at, flow, (node, origin), (target, &owned), packet);
            }
            // The program deals with those that come by the network.
            FromNode::Closed => self.forget(flow, origin),
            _ => self.on_reply(at, flow, (node, origin), message, packet, view),
        }
    }

    /// The answer to a question about a flow.
    fn on_reply(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (node, origin): (NodeId, u32),
        reply: FromNode,
        packet: &[u8],
        view: TcpView,
    ) {
        let taken = self.pending.take(flow);
        let Some(mut pending) = taken.filter(|pending| pending.entry.origin == origin) else {
            self.on_late_reply(at, flow, (node, origin), reply, packet, view);
            return;
        };
        let answers = matches!(reply, FromNode::Adopted { .. } | FromNode::Refused { .. });
        if pending.second == Some(node)
            && pending.phase == Phase::Adopting
            && answers
            && view.seq == pending.asked_at()
        {
            self.passed_on(at, flow, &mut pending, node);
        }
        // Of a request in several packets the first one is refused.
        let refused = matches!(reply, FromNode::Refused { .. }) && pending.phase == Phase::Delivering;
        let begins = refused && pending.is_beginning(view.seq);
        // A late answer to an earlier question says nothing about this one.
        if pending.entry.node == node && (view.seq == pending.asked_at() || begins) {
            match reply {
                FromNode::Released { sent, clock, .. } => pending.go_on_from(sent, clock),
                FromNode::Confirmed { sent, clock, .. } => pending.hear(sent, clock, at.now),
                _ => {}
            }
            self.on_answer_of_node(at, flow, &mut pending, reply);
        }
        self.keep(*flow, pending);
    }

    /// An answer about a flow for which nothing is pending.
    fn on_late_reply(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (node, origin): (NodeId, u32),
        reply: FromNode,
        packet: &[u8],
        view: TcpView,
    ) {
        let known = self.mapped(at, flow).filter(|_| self.answered.entry(flow).is_none());
        let Some(entry) = known.map(|recorded| self.entry_of(flow, recorded)) else { return };
        if (entry.node, entry.origin) != (node, origin) {
            return;
        }
        match reply {
            FromNode::Refused { reason: Some(Reason::NoSocket), requests, .. } => {
                self.on_no_socket(at, flow, entry, requests, packet, view);
            }
            FromNode::Confirmed { arrived, .. } => self.on_progress(flow, entry, arrived, view),
            _ => {}
        }
    }

    /// The flow's node has given it up for another one. Nobody but that one can go on with it: what is spoken on it is
    /// encrypted, and only it has been given the keys.
    fn on_move(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (node, origin): (NodeId, u32),
        (target, owned): (u32, &Owned),
        packet: &[u8],
    ) {
        let Some(held) = HeldPacket::new(packet) else { return };
        let (seq, ack) = (held.view.seq, held.view.ack);
        let entry = match self.pending.get(flow) {
            // Its word that it has the flow has been lost, or has been overtaken by this one.
            Some(pending) => {
                let is_later = seq != pending.entry.next || before(pending.last_ack, ack);
                let has_taken = pending.is_move && pending.phase == Phase::Adopting && is_later;
                has_taken.then_some(pending.entry)
            }
            None => match self.mapped(at, flow) {
                Some(recorded) => Some(self.entry_of(flow, recorded)),
                None if self.knows(flow) => None,
                None => {
                    // The switch that gave the flow to this node has gone meanwhile.
                    let entry = entry_of_node(owned, (node, origin), self.plan.http_limits().body_len);
                    self.recover(flow, origin, entry, &held.view)
                }
            },
        };
        // It says so until it hears that the other node has it. By then the flow may have come back, by a later adoption.
        let is_current = |entry: &sb_flow_entry| {
            entry.node == node
                && entry.origin == origin
                && entry.next == owned.next
                && self.answered.entry(flow).is_none()
        };
        let Some(entry) = entry.filter(is_current) else { return };
        self.pending.take(flow);
        let target = self.plan.node_by_name_hash(target);
        let group = target.and_then(|target| self.plan.group_of(flow.vip(), target));
        let service = self.plan.service(flow.vip());
        let (Some(target), Some(group), Some(service)) = (target, group, service) else {
            self.reset(flow, entry.origin, ack);
            return;
        };
        let entry = sb_flow_entry { next: seq, ..entry };
        let mut after = entry;
        mark::enter_tunnel(&mut after, 0);
        let mut pending = Pending::new(entry, at.now);
        let request = Request { last: true, ..Request::new(group, service, after) };
        pending.begin(request, at.now);
        pending.last_ack = ack;
        pending.sent = Held::of(vec![held]);
        pending.is_move = true;
        pending.enter_request_at(target);
        self.set_entry(flow, &pending.entry);
        pending.wait(at.now, Phase::Adopting);
        self.send_adopt(flow, &pending);
        self.stats.moved += 1;
        self.keep(*flow, pending);
    }

    fn on_answer_of_node(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending, reply: FromNode) {
        let node = pending.entry.node;
        match (reply, &pending.phase) {
            (FromNode::Adopted { queue }, Phase::Adopting) => {
                self.stats.adopted(&pending.request, node);
                let session = pending.request.session.is_some_and(|session| session.node == Some(node));
                let chosen = match pending.passed_on {
                    true => Chosen::Second,
                    false if session => Chosen::Session,
                    false => Chosen::Policy,
                };
                self.observe_pending(at, flow, pending, chosen);
                let index = pending.request.group;
                if let Some(group) = self.plan.group_mut(index) {
                    group.adopted(node, queue, at.now);
                    self.admit(at, index, node);
                }
                // The first packet has arrived with the adoption.
                if pending.undelivered().len() > 1 {
                    self.ask_whether_delivered(at, flow, pending);
                } else {
                    self.delivered(at, flow, pending);
                }
            }
            (FromNode::Confirmed { arrived, .. }, Phase::Delivering)
                // It may be the answer to an earlier question, which had the same sequence number.
                if pending.deliver_until().is_none_or(|end| !before(arrived, end)) =>
            {
                self.bring_up_map(at, flow, pending);
                self.delivered(at, flow, pending);
            }
            (FromNode::Confirmed { arrived, .. }, Phase::Assembling) if mark::is_passing(&pending.entry) => {
                if before(arrived, mark::due(&pending.entry)) {
                    return;
                }
                mark::settle(&mut pending.entry);
                let packets = pending.held.take_until(pending.entry.next);
                self.set_entry(flow, &pending.entry);
                self.forward_all(flow, &pending.entry, &packets);
                self.advance(at, flow, pending);
            }
            (FromNode::Confirmed { arrived, .. }, Phase::Assembling | Phase::Releasing) => {
                self.speak(at, flow, pending, arrived);
            }
            (FromNode::Refused { .. }, Phase::Delivering) if pending.was_resent() => {
                // The request may have come before; then it has its response, and its server has closed since.
                self.give_up(flow, pending);
            }
            (FromNode::Refused { reason, queue, .. }, Phase::Adopting | Phase::Delivering) => {
                self.stats.refused(node);
                pending.failed = reason == Some(Reason::Failed);
                self.try_another(at, flow, pending, reason, queue);
            }
            (FromNode::Released { reason, sent, .. }, Phase::Releasing) => {
                self.stats.released(node);
                if reason == Some(Reason::Responding) {
                    // Half a response is with the client already: another one cannot follow.
                    self.reset(flow, pending.entry.origin, sent);
                    pending.phase = Phase::Done;
                } else {
                    self.released(at, flow, pending);
                }
            }
            (FromNode::Busy(Some(Reason::Closing)), Phase::Releasing) => {
                // The server ends the connection, and its kernel tells the client so, as on any connection. What the
                // client has sent behind is for nobody; it is asked for again until the flow is over.
                self.give_up_waiting(flow, pending);
            }
            (FromNode::Busy(Some(Reason::Duplicate)), Phase::Releasing) if pending.acknowledged.is_some() => {
                // Nobody sends again what is held.
                self.give_up(flow, pending);
            }
            (FromNode::Busy(Some(Reason::Duplicate)), Phase::Releasing) => {
                // It is the flow map that is behind: the node has read on, but may not have been given this request.
                pending.take_back_request();
                pending.wait(at.now, Phase::Asking);
                self.ask_owner(ToNode::Probe, flow, pending);
            }
            (FromNode::Busy(_), Phase::Releasing) if pending.is_idle() => {
                // Not as idle as it seemed, or not any more.
                pending.phase = Phase::Assembling;
                self.advance(at, flow, pending);
            }
            (FromNode::Busy(_), Phase::Releasing) => {
                self.stats.busy += 1;
                pending.wait_longer(at.now);
            }
            _ => {}
        }
    }

    /// The node has refused data, because it was not given what the switch read before that: from its mark on all is read again.
    fn on_unread(&mut self, at: Moment<'_>, flow: &sb_flow, (node, origin): (NodeId, u32), owned: &Owned) {
        let mark = entry_of_node(owned, (node, origin), self.plan.http_limits().body_len);
        let Some(mark) = mark else { return };
        if let Some(mut pending) = self.pending.take(flow) {
            if pending.go_back(&mark) {
                self.stats.unread += 1;
                self.set_entry(flow, &pending.entry);
                self.advance(at, flow, &mut pending);
            } else if pending.phase == Phase::Assembling && mark::is_of_same(&pending.entry, &mark) {
                self.catch_up_with_node(at, flow, &mut pending, &mark);
            }
            self.keep(*flow, pending);
            return;
        }
        let current = self.mapped(at, flow).filter(|_| self.answered.entry(flow).is_none());
        let Some(entry) = current.map(|recorded| self.entry_of(flow, recorded)) else { return };
        if !is_held(&entry) && mark::is_of_same(&entry, &mark) && mark.next != entry.next {
            self.stats.unread += 1;
            self.set_entry(flow, &mark::at(&entry, &mark));
        }
    }

    /// The node has so much of a long body that the mark can go on.
    fn on_progress(&mut self, flow: &sb_flow, mut entry: sb_flow_entry, arrived: u32, view: TcpView) {
        if mark::is_passing(&entry) && view.seq == mark::due(&entry) && !before(arrived, view.seq) {
            mark::settle(&mut entry);
            self.set_entry(flow, &entry);
        }
    }

    /// A request was forwarded to a node that has no socket for its flow, because its server or the node itself was
    /// restarted. Any node can take it from here.
    fn on_no_socket(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        latest: sb_flow_entry,
        requests: u16,
        packet: &[u8],
        view: TcpView,
    ) {
        // Only the flow's latest request counts: a late copy of an earlier one finds no socket where the flow was.
        if latest.requests != requests {
            return;
        }
        let entry = sb_flow_entry {
            next: view.seq,
            begins: view.seq,
            mode: sb_mode::SB_MODE_HELD as u8,
            requests: 0,
            framing: Default::default(),
            tries: latest.tries.saturating_add(1),
            ..latest
        };
        if view.is_empty() {
            // The client's end, if nothing is missing before it.
            if view.seq == latest.next {
                self.on_end(flow, &entry, packet, &view);
            }
            return;
        }
        let Some(held) = HeldPacket::new(packet) else { return };
        let mut pending = Pending::new(entry, at.now);
        pending.hold(&held);
        self.advance(at, flow, &mut pending);
        self.keep(*flow, pending);
    }

    /// The node says what comes at the mark, which it has been asked.
    pub(super) fn on_mark(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        entry: &sb_flow_entry,
    ) {
        let knows_all = (entry.requests, entry.next) == (pending.entry.requests, pending.entry.next);
        if before(pending.entry.next, entry.next) {
            pending.catch_up(&sb_flow_entry { turn: pending.entry.turn, ..*entry });
        } else if !pending.is_upgrading() {
            // From before that; or it has been given data that the switch has not read.
            return;
        } else if !knows_all || entry.mode == pending.entry.mode {
            pending.wait_longer(at.now);
            return;
        } else {
            pending.entry.mode = entry.mode;
        }
        pending.phase = Phase::Assembling;
        self.set_entry(flow, &pending.entry);
        self.advance(at, flow, pending);
    }
}
