//! What nodes say.

use switchback_wire::packet::{TcpView, bare, flags, timestamps};
use switchback_wire::report::{Report, queue_of};
use switchback_wire::{
    SB_FLAG_BODY, SB_SYN_ALL, address_from, sb_flow, sb_flow_entry, sb_mode, sb_op, sb_option, sb_reason,
    sb_record,
};

use super::held::{Held, HeldPacket, before};
use super::pending::{Pending, Phase, Request};
use super::{Change, Dispatcher, Moment, UNOWNED, mark};
use crate::observe::Chosen;
use crate::plan::NodeId;

/// A flow's entry from what its node says of it. Inside a body, where the next request begins is not known any more.
fn entry_from(option: &sb_option, node: NodeId, next: u32, mode: sb_mode) -> sb_flow_entry {
    let in_body = u32::from(option.flags) & SB_FLAG_BODY != 0;
    sb_flow_entry {
        node,
        origin: u32::from_be(option.origin),
        next,
        mss: u16::from_be(option.mss),
        options: option.flags & SB_SYN_ALL as u8,
        wscale: option.wscale,
        mode: if in_body { sb_mode::SB_MODE_TUNNEL } else { mode } as u8,
        requests: u16::from_be(option.requests),
        heads: u32::from_be(option.detail),
        session: option.session,
        begins: next,
        ..Default::default()
    }
}

impl Dispatcher {
    /// A handoff packet from a node.
    pub(super) fn on_handoff(&mut self, at: Moment<'_>, record: &sb_record, packet: &[u8], view: TcpView) {
        let option = &record.option;
        let Some(node) = self.plan.node_at(address_from(record.node)) else { return };
        let Some(op) = sb_op::from_number(option.op) else { return };
        let flow = &record.flow;
        if op == sb_op::SB_OP_REPORT {
            self.stats.reports += 1;
            for group in self.plan.report(node, &Report::read(flow, option, &view), at.now) {
                self.admit(at, group, node);
            }
            return;
        }
        if op == sb_op::SB_OP_SIZED {
            self.sizes.learn(u16::from_be(option.session.path), u32::from_be(option.detail));
            return;
        }
        if op == sb_op::SB_OP_OWNED {
            self.on_owned(at, record, node, packet, view);
            return;
        }
        if op == sb_op::SB_OP_MOVE {
            self.on_move(at, record, node, packet);
            return;
        }
        let origin = u32::from_be(option.origin);
        if op == sb_op::SB_OP_CLOSED {
            // The program deals with those that come by the network.
            self.forget(flow, origin);
            return;
        }
        let taken = self.pending.take(flow);
        let Some(mut pending) = taken.filter(|pending| pending.entry.origin == origin) else {
            let Some(entry) = (at.map)(flow) else { return };
            if op == sb_op::SB_OP_REFUSED && option.reason == sb_reason::SB_REASON_NO_SOCKET as u8 {
                self.on_no_socket(at, record, node, entry, packet, view);
            } else if op == sb_op::SB_OP_CONFIRMED {
                self.on_progress(record, node, entry, view);
            }
            return;
        };
        let answers = [sb_op::SB_OP_ADOPTED, sb_op::SB_OP_REFUSED].contains(&op);
        if pending.second == Some(node)
            && pending.phase == Phase::Adopting
            && answers
            && view.seq == pending.asked_at()
        {
            self.passed_on(at, flow, &mut pending, node);
        }
        // A late answer to an earlier question says nothing about this one.
        if pending.entry.node == node && view.seq == pending.asked_at() {
            let clock = timestamps(packet, &view).map(|(_, echo)| echo);
            match op {
                sb_op::SB_OP_RELEASED => pending.go_on_from(view.ack, clock),
                sb_op::SB_OP_CONFIRMED => pending.hear(view.ack, clock, at.now),
                _ => {}
            }
            self.on_answer_of_node(at, flow, &mut pending, op, option, view.ack);
        }
        self.keep(*flow, pending);
    }

    /// The flow's node has given it up for another one. Nobody but that one can go on with it: what is spoken on it is
    /// encrypted, and only it has been given the keys.
    fn on_move(&mut self, at: Moment<'_>, record: &sb_record, node: NodeId, packet: &[u8]) {
        let (flow, option) = (&record.flow, &record.option);
        let known = self.pending.get(flow).map(|pending| pending.entry).or_else(|| (at.map)(flow));
        // It says so until it hears that the other node has it.
        let is_current = |entry: &sb_flow_entry| {
            entry.node == node
                && entry.origin == u32::from_be(option.origin)
                && self.pending.get(flow).is_none()
        };
        let Some(entry) = known.filter(is_current) else { return };
        let target = self.plan.node_called(u32::from_be(option.detail));
        let group = target.and_then(|target| self.plan.group_of(flow.vip(), target));
        let service = self.plan.service(flow.vip());
        let Some(held) = HeldPacket::new(packet) else { return };
        let (Some(target), Some(group), Some(service)) = (target, group, service) else {
            self.reset(flow, entry.origin, held.view.ack);
            return;
        };
        let entry = sb_flow_entry { next: held.view.seq, ..entry };
        let mut after = entry;
        mark::enter_tunnel(&mut after, 0);
        let mut pending = Pending::new(entry, at.now);
        let request = Request { last: true, ..Request::new(group, service, after) };
        pending.begin(request, at.now);
        pending.last_ack = held.view.ack;
        pending.sent = Held::of(vec![held]);
        pending.is_move = true;
        pending.enter_request_at(target);
        self.set_entry(flow, &pending.entry);
        pending.wait(at.now, Phase::Adopting);
        self.send_adopt(flow, &pending);
        self.stats.moved += 1;
        self.keep(*flow, pending);
    }

    fn on_answer_of_node(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        op: sb_op,
        option: &sb_option,
        ack: u32,
    ) {
        let node = pending.entry.node;
        let reason = option.reason;
        // Of CONFIRMED: how far the node has come.
        let arrived = u32::from_be(option.next);
        match (op, &pending.phase) {
            (sb_op::SB_OP_ADOPTED, Phase::Adopting) => {
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
                    group.adopted(node, queue_of(option), at.now);
                    self.admit(at, index, node);
                }
                // The first packet has arrived with the adoption.
                if pending.undelivered().len() > 1 {
                    pending.wait(at.now, Phase::Delivering);
                } else {
                    self.delivered(at, flow, pending);
                }
            }
            (sb_op::SB_OP_CONFIRMED, Phase::Delivering) => self.delivered(at, flow, pending),
            (sb_op::SB_OP_CONFIRMED, Phase::Assembling) if mark::is_passing(&pending.entry) => {
                if before(arrived, mark::due(&pending.entry)) {
                    return;
                }
                mark::settle(&mut pending.entry);
                let packets = pending.held.take_until(pending.entry.next);
                self.set_entry(flow, &pending.entry);
                self.forward_all(flow, &pending.entry, &packets);
                self.advance(at, flow, pending);
            }
            (sb_op::SB_OP_CONFIRMED, Phase::Assembling | Phase::Releasing) => {
                self.speak(at, flow, pending, arrived);
            }
            (sb_op::SB_OP_REFUSED, Phase::Delivering) if pending.was_resent() => {
                // The request may have come before; then it has its response, and its server has closed since.
                self.reset(flow, pending.entry.origin, pending.last_ack);
                pending.phase = Phase::Done;
            }
            (sb_op::SB_OP_REFUSED, Phase::Adopting | Phase::Delivering) => {
                self.stats.refused(node);
                pending.failed = reason == sb_reason::SB_REASON_FAILED as u8;
                let full = reason == sb_reason::SB_REASON_QUEUE_FULL as u8;
                let queue = if full { queue_of(option) } else { (0, 0) };
                self.try_another(at, flow, pending, reason, queue);
            }
            (sb_op::SB_OP_RELEASED, Phase::Releasing) => {
                self.stats.released(node);
                if reason == sb_reason::SB_REASON_RESPONDING as u8 {
                    // Half a response is with the client already: another one cannot follow.
                    self.reset(flow, pending.entry.origin, ack);
                    pending.phase = Phase::Done;
                } else {
                    self.released(at, flow, pending);
                }
            }
            (sb_op::SB_OP_BUSY, Phase::Releasing) if reason == sb_reason::SB_REASON_CLOSING as u8 => {
                // The server ends the connection: its kernel tells the client so, as on any connection.
                self.pass_on(flow, pending);
            }
            (sb_op::SB_OP_BUSY, Phase::Releasing) if reason == sb_reason::SB_REASON_DUPLICATE as u8 => {
                // The node has the request; it is the flow map that is behind. It has adopted nothing since.
                let session = pending.entry.session;
                pending.enter_request();
                pending.entry.session = session;
                self.set_entry(flow, &pending.entry);
                if self.given(at, pending) {
                    self.advance(at, flow, pending);
                }
            }
            (sb_op::SB_OP_BUSY, Phase::Releasing) if pending.is_idle() => {
                // Not as idle as it seemed, or not any more.
                pending.phase = Phase::Assembling;
                self.advance(at, flow, pending);
            }
            (sb_op::SB_OP_BUSY, Phase::Releasing) => {
                self.stats.busy += 1;
                pending.wait_longer(at.now);
            }
            _ => {}
        }
    }

    /// All that is held goes to the flow's node, whatever it is.
    pub(super) fn pass_on(&mut self, flow: &sb_flow, pending: &mut Pending) {
        let packets = pending.take_all();
        self.set_entry(flow, &pending.entry);
        self.forward_all(flow, &pending.entry, &packets);
        pending.phase = Phase::Done;
    }

    /// The node has so much of a long body that the mark can go on.
    fn on_progress(&mut self, record: &sb_record, node: NodeId, recorded: sb_flow_entry, view: TcpView) {
        let mut entry = self.entry_of(&record.flow, recorded);
        let fits = entry.origin == u32::from_be(record.option.origin) && entry.node == node;
        let arrived = u32::from_be(record.option.next);
        if fits && mark::is_passing(&entry) && view.seq == mark::due(&entry) && !before(arrived, view.seq) {
            mark::settle(&mut entry);
            self.set_entry(&record.flow, &entry);
        }
    }

    /// A request was forwarded to a node that has no socket for its flow, because its server or the node itself was
    /// restarted. Any node can take it from here.
    fn on_no_socket(
        &mut self,
        at: Moment<'_>,
        record: &sb_record,
        node: NodeId,
        recorded: sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) {
        let option = &record.option;
        // Only the flow's latest request counts: a late copy of an earlier one finds no socket where the flow was.
        let latest = self.entry_of(&record.flow, recorded);
        if latest.origin != u32::from_be(option.origin)
            || latest.node != node
            || latest.requests != u16::from_be(option.requests)
        {
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
                self.on_end(&record.flow, &entry, packet, &view);
            }
            return;
        }
        let Some(held) = HeldPacket::new(packet) else { return };
        let mut pending = Pending::new(entry, at.now);
        pending.hold(&held);
        self.advance(at, &record.flow, &mut pending);
        self.keep(record.flow, pending);
    }

    /// A packet of a flow that we do not know, with no valid cookie: after a restart, or because another switch had
    /// the VIP. Its node knows it.
    pub(super) fn on_unknown(&mut self, at: Moment<'_>, flow: &sb_flow, packet: &[u8], view: TcpView) {
        match self.probed.get(flow) {
            None => {
                self.probed.insert(*flow, at.now);
            }
            Some(first) if at.now.saturating_sub(*first) >= UNOWNED => {
                self.stats.reset_unowned += 1;
                self.output.to_client(flow, &bare(flow, false, view.ack, 0, flags::RST));
                return;
            }
            Some(_) => {}
        }
        self.stats.probed += 1;
        for id in 0..self.plan.nodes.len() as NodeId {
            self.send(sb_op::SB_OP_PROBE, id, flow, &sb_flow_entry::default(), &view, packet);
        }
    }

    fn on_owned(&mut self, at: Moment<'_>, record: &sb_record, node: NodeId, packet: &[u8], view: TcpView) {
        let flow = &record.flow;
        let next = u32::from_be(record.option.next);
        let entry = entry_from(&record.option, node, next, sb_mode::SB_MODE_REQUESTS);
        if let Some(mut pending) = self.pending.take(flow) {
            if pending.phase == Phase::Assembling
                && pending.entry.node == node
                && pending.entry.origin == entry.origin
            {
                pending.confirm_mark(&entry);
                if pending.is_tunnel() {
                    self.pass_on(flow, &mut pending);
                } else {
                    self.advance(at, flow, &mut pending);
                }
            }
            self.keep(*flow, pending);
            return;
        }
        if self.recent.get(flow).is_some() {
            return;
        }
        self.stats.recovered += 1;
        self.probed.remove(flow);
        self.output.changes.push((*flow, Change::Create(entry)));
        self.recent.insert(*flow, entry);
        let beyond = before(entry.next, view.end_seq());
        if !view.is_empty() && beyond && entry.mode == sb_mode::SB_MODE_REQUESTS as u8 {
            self.on_client(at, flow, entry, packet, view);
        } else {
            self.forward(flow, &entry, &view, packet, 0);
        }
    }
}
