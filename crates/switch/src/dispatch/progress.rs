//! How a pending flow comes closer to what it waits for: packets of its client, and deadlines.

use switchback_wire::packet::{TcpView, flags, without_timestamps};
use switchback_wire::{SB_FLAG_ABORT, SB_FLAG_REQUEST, sb_flow, sb_flow_entry, sb_mode, sb_op, sb_reason};

use super::answer::Reply;
use super::flows::Full;
use super::held::{HeldPacket, before};
use super::pending::{Pending, Phase};
use super::{Change, Dispatcher, Message, Moment, Next, Verdict, mark};
use crate::observe::Chosen;
use crate::plan::NodeId;

impl Dispatcher {
    /// A packet of a flow that waits for something. `entry` is the latest that is known of it.
    pub(super) fn on_pending(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        entry: &sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) {
        let reset = view.flags & flags::RST != 0;
        if let Phase::Answered(answer) = &mut pending.phase {
            let packets = answer.on_packet(flow, packet, &view, at.now);
            pending.due = answer.due();
            self.say(flow, &packets);
            if reset {
                self.forget(flow, pending.entry.origin);
                pending.phase = Phase::Done;
            }
            return;
        }
        if reset && pending.has_node() {
            // Its kernel judges it.
            self.forward(flow, &pending.entry, &view, packet, 0);
            return;
        }
        if reset {
            // Only the exact number counts (RFC 5961 section 3.2).
            if view.seq == pending.expected() {
                self.observe_abandoned(at, flow, pending);
                self.forget(flow, pending.entry.origin);
                pending.phase = Phase::Done;
            }
            return;
        }
        let Some(held) = HeldPacket::new(packet) else { return };
        pending.catch_up(entry);
        // Whether or not there is room for the rest: it may be all that the client can send until it is acknowledged.
        self.forward_old_data(flow, &pending.entry, &held);
        if !self.has_room(flow, pending, &held) {
            return;
        }
        pending.hold(&held);
        if pending.phase == Phase::Assembling {
            self.advance(at, flow, pending);
        }
        if mark::is_passing(&pending.entry) {
            self.ask_for_progress(flow, &pending.entry, &view);
        } else {
            self.help(at, flow, pending);
        }
    }

    /// Helps a client that does not get on. Whatever is said to it acknowledges all that comes before the mark, so the
    /// node that the flow has, if it has one, must say first that it has got that, and how far it has come itself.
    pub(super) fn help(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        let gap = pending.phase == Phase::Assembling && pending.has_gap();
        if !gap && !pending.is_stalled(at.now) {
            return;
        }
        if pending.has_node() {
            self.ask_owner(sb_op::SB_OP_CONFIRM, flow, pending, 0);
        } else {
            self.speak(at, flow, pending, pending.entry.next);
        }
    }

    /// Acknowledges what is held of a request (docs/decisions/0007), or reports a gap. All up to `arrived` has arrived
    /// where it belongs.
    pub(super) fn speak(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending, arrived: u32) {
        let mark = pending.entry.next;
        let complete = !before(arrived, mark);
        let arrived = if complete { mark } else { arrived };
        let stalled = complete && pending.is_stalled(at.now);
        let acknowledgment = if stalled { pending.acknowledge(flow, at.now) } else { None };
        if acknowledgment.is_some() {
            self.stats.acknowledged += 1;
            self.output.changes.push((*flow, Change::Ahead { origin: pending.entry.origin }));
        }
        if let Some(packet) = pending.report_gap(flow, arrived, at.now).or(acknowledgment) {
            self.output.to_client(flow, &packet);
        }
    }

    /// Whether the flow may hold the packet. Where it has too much itself, what lies beyond a gap gives way to what is
    /// missing; where the whole switch has, the clients that have been slow for longest have to send again.
    pub(super) fn has_room(&mut self, flow: &sb_flow, pending: &mut Pending, packet: &HeldPacket) -> bool {
        loop {
            let room = self.pending.room(&self.plan.limits, flow, pending, packet);
            let Err(full) = room else { return true };
            if full == Full::Flow && pending.make_room(&packet.view) {
                continue;
            }
            let slowest = if full == Full::Switch { self.pending.take_slowest() } else { None };
            let Some((other, mut slowest)) = slowest else {
                self.stats.dropped(full);
                return false;
            };
            self.stats.evicted += 1;
            if slowest.acknowledged.is_some() {
                self.reset(&other, slowest.entry.origin, slowest.last_ack);
            } else {
                self.give_up_waiting(&other, &mut slowest);
            }
        }
    }

    /// Forgets what is held of a flow that waits for its client, which sends it again.
    fn give_up_waiting(&mut self, flow: &sb_flow, pending: &mut Pending) {
        self.set_entry(flow, &pending.entry);
        pending.phase = Phase::Done;
    }

    /// Goes as far as the held data allows.
    pub(super) fn advance(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        loop {
            if pending.held.is_empty() {
                if !pending.has_node() && pending.fin == Some(pending.entry.next) {
                    // The client has changed its mind.
                    self.say_goodbye(
                        flow,
                        pending.entry.origin,
                        pending.last_ack,
                        pending.entry.next.wrapping_add(1),
                    );
                }
                pending.phase = Phase::Done;
                return;
            }
            if pending.is_tunnel() {
                self.pass_on(flow, pending);
                return;
            }
            let data = pending.held.stream(pending.entry.next);
            if mark::in_body(&pending.entry) {
                if data.is_empty() || mark::is_passing(&pending.entry) {
                    if self.wait_for_client(at, flow, pending) {
                        return;
                    }
                } else if !self.forward_body(at, flow, pending, &data) {
                    return;
                }
                continue;
            }
            // What was incomplete before is so until the next end of a line. Where a client sends byte by byte, the
            // head is not read from its beginning for each.
            let seen = pending.looked_at.min(data.len());
            let looks_same = seen > 0
                && !data[seen..].contains(&b'\n')
                && data.len() < self.plan.limits.head
                && !pending.is_all(&data);
            pending.looked_at = data.len();
            let verdict = if looks_same {
                Verdict::Incomplete
            } else {
                self.judge(at.now, flow, &data, &pending.entry)
            };
            match verdict {
                Verdict::Incomplete if pending.is_all(&data) => {
                    self.refuse(at, flow, pending, Reply::Status(400), false);
                    return;
                }
                Verdict::Incomplete => {
                    if self.wait_for_client(at, flow, pending) {
                        return;
                    }
                }
                Verdict::Answer { reply, head } => {
                    self.stats.refused_request(&reply);
                    self.refuse(at, flow, pending, reply, head);
                    return;
                }
                Verdict::To(request) => {
                    pending.begin(request, at.now);
                    pending.choice = request.wanted.or(pending.choice);
                    self.stats.cookies_ignored += u64::from(request.cookies_ignored);
                    self.keep_name_whole(pending, &data);
                    if !pending.has_node() {
                        self.adopt(at, flow, pending);
                        return;
                    }
                    let choice = pending.choice.take();
                    match self.next_node(at, &request, &pending.entry, choice) {
                        Next::Stays => {}
                        Next::Leaves(choice) => {
                            pending.choice = choice;
                            self.release(at, flow, pending);
                            return;
                        }
                        Next::Nowhere => {
                            self.stats.sessions_refused += 1;
                            let head = request.after.heads & 1 == 1;
                            self.refuse(at, flow, pending, Reply::Status(503), head);
                            return;
                        }
                    }
                    self.forward_request(at, flow, pending);
                    if !self.given(at, pending) {
                        return;
                    }
                    if pending.is_tunnel() {
                        pending.phase = Phase::Done;
                        return;
                    }
                }
            }
        }
    }

    /// Waits for what is missing at the mark; false if it is not, because the program has moved the mark meanwhile.
    fn wait_for_client(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) -> bool {
        if pending.has_node() {
            let before = pending.entry.next;
            let current = (at.map)(flow).filter(|current| current.origin == pending.entry.origin);
            if let Some(current) = current {
                pending.phase = Phase::Assembling;
                pending.catch_up(&self.entry_of(flow, current));
            }
            if pending.entry.next != before {
                return false;
            }
        }
        if pending.wait_for_data(at.now, self.plan.limits.head_timeout) && pending.has_node() {
            // The program must not go on with a later copy of what is missing while we hold what comes after it.
            self.write_entry(flow, sb_flow_entry { asked: 1, ..pending.entry });
        }
        true
    }

    /// More of a body, which goes to the flow's node; false if that was the end of it all.
    fn forward_body(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending, data: &[u8]) -> bool {
        if let Err(reject) = mark::follow(&mut pending.entry, data) {
            let reply = Reply::Refused(reject);
            self.stats.refused_request(&reply);
            pending.abort = true;
            self.refuse(at, flow, pending, reply, false);
            return false;
        }
        let packets = pending.held.take_until(pending.entry.next);
        self.set_entry(flow, &pending.entry);
        self.forward_all(flow, &pending.entry, &packets);
        true
    }

    /// The request goes to the node that the flow has.
    fn forward_request(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.enter_request();
        self.give(&pending.request, pending.entry.node);
        self.observe_pending(at, flow, pending, Chosen::Connection);
        self.set_entry(flow, &pending.entry);
        let mut first = SB_FLAG_REQUEST as u8 | pending.flags();
        for packet in pending.sent.iter() {
            self.forward(flow, &pending.entry, &packet.view, &packet.bytes, first);
            first = 0;
        }
    }

    /// The request in progress has been given to the node, but perhaps has not arrived, and the client thinks it has.
    fn deliver(&mut self, flow: &sb_flow, pending: &Pending) {
        let entry = pending.request.after;
        let packets = pending.undelivered();
        let last = packets.len().saturating_sub(1);
        for (index, packet) in packets.iter().enumerate() {
            let op = if index == last { sb_op::SB_OP_CONFIRM } else { sb_op::SB_OP_FORWARD };
            let bytes = without_timestamps(&packet.bytes, &packet.view);
            let message = Message { flags: SB_FLAG_REQUEST as u8, ..op.into() };
            self.send(message, entry.node, flow, &entry, &packet.view, &bytes);
        }
    }

    /// The request in progress is on its way to the node, where it may get lost. That is the client's to see, unless it
    /// has been told that the request has arrived; then false, and the flow waits until it has.
    pub(super) fn given(&mut self, at: Moment<'_>, pending: &mut Pending) -> bool {
        if !pending.undelivered().is_empty() {
            pending.wait(at.now, Phase::Delivering);
            return false;
        }
        pending.finish_request(at.now);
        true
    }

    /// The node has the request in progress.
    pub(super) fn delivered(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.finish_request(at.now);
        if pending.is_tunnel() {
            self.pass_on(flow, pending);
        } else {
            self.advance(at, flow, pending);
        }
    }

    /// Asks the flow's node to give it up.
    pub(super) fn release(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.wait(at.now, Phase::Releasing);
        self.ask_for_release(flow, pending);
    }

    fn ask_for_release(&mut self, flow: &sb_flow, pending: &Pending) {
        let extra = if pending.abort { SB_FLAG_ABORT as u8 } else { 0 };
        self.ask_owner(sb_op::SB_OP_RELEASE, flow, pending, extra);
    }

    /// Sends the flow's node a question that needs no data: RELEASE or PROBE.
    fn ask_owner(&mut self, op: sb_op, flow: &sb_flow, pending: &Pending, extra: u8) {
        let Some((view, bytes)) = pending.question(flow) else { return };
        let message = Message { flags: extra, ..op.into() };
        self.send(message, pending.entry.node, flow, &pending.entry, &view, &bytes);
    }

    /// The node that was asked has passed the request on, and its second candidate answers.
    pub(super) fn passed_on(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        second: NodeId,
    ) {
        let first = pending.entry.node;
        self.plan.refused(pending.request.group, first, 0, (0, 0), at.now);
        if let Some(group) = self.plan.group_mut(pending.request.group) {
            group.adopting(second);
        }
        self.stats.passed_on += 1;
        pending.tried.push(first);
        pending.second = None;
        pending.passed_on = true;
        pending.enter_request_at(second);
        self.set_entry(flow, &pending.entry);
    }

    /// The mark in it is that of the first time, whatever has been forwarded since: a node tells copies by it.
    pub(super) fn send_adopt(&mut self, flow: &sb_flow, pending: &Pending) {
        let entry = pending.request.after;
        let share = self.plan.share(pending.request.group);
        let second = pending.second.and_then(|second| Some(self.plan.node(second)?.address));
        let mut message = Message { op: sb_op::SB_OP_ADOPT, flags: pending.flags(), reason: share, second };
        for packet in pending.sent.iter() {
            self.send(message, entry.node, flow, &entry, &packet.view, &packet.bytes);
            message = sb_op::SB_OP_FORWARD.into();
        }
    }

    /// The switch answers the request itself, once no node speaks on the flow any more.
    fn refuse(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending, reply: Reply, head: bool) {
        pending.request.after.heads = u32::from(head);
        if pending.has_node() {
            pending.reply = Some(reply);
            self.release(at, flow, pending);
        } else {
            self.answer(at, flow, pending, &reply);
        }
    }

    pub(super) fn answer(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending, reply: &Reply) {
        let reply = if self.plan.is_tls(flow.vip()) { &reply.clone().over_tls() } else { reply };
        let asked = self.request_to_answer(at, flow, pending);
        let Some(answer) = pending.make_answer(reply, at.now) else {
            self.forget(flow, pending.entry.origin);
            pending.phase = Phase::Done;
            return;
        };
        self.stats.answered(reply.status());
        self.observe_answer(asked, reply.status(), &answer);
        pending.entry.mode = sb_mode::SB_MODE_ANSWERED as u8;
        self.set_entry(flow, &pending.entry);
        self.say(flow, &answer.unacknowledged(flow));
        pending.due = answer.due();
        pending.phase = Phase::Answered(answer);
    }

    fn say(&mut self, flow: &sb_flow, packets: &[Vec<u8>]) {
        for packet in packets {
            self.output.to_client(flow, packet);
        }
    }

    /// What a flow waits for has not come in time.
    pub(super) fn on_deadline(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        let dead = self.plan.is_dead(pending.entry.node, at.now);
        match &mut pending.phase {
            Phase::Assembling => {
                if !pending.is_too_slow(at.now, self.plan.limits.head_timeout) {
                    if pending.doubts_mark() {
                        self.ask_owner(sb_op::SB_OP_PROBE, flow, pending, 0);
                    }
                    self.help(at, flow, pending);
                    pending.look_again(at.now, self.plan.limits.head_timeout);
                } else if mark::in_body(&pending.entry) || !pending.has_beginning() {
                    self.give_up_waiting(flow, pending);
                } else {
                    self.refuse(at, flow, pending, Reply::Status(408), false);
                }
            }
            Phase::Releasing => {
                if pending.acknowledged.is_none() {
                    self.help(at, flow, pending);
                }
                if pending.try_again(at.now, dead) {
                    self.stats.resent += 1;
                    self.ask_for_release(flow, pending);
                } else if pending.was_given && !pending.request.repeatable {
                    // It may have done what must not be done twice.
                    self.reset(flow, pending.entry.origin, pending.last_ack);
                    pending.phase = Phase::Done;
                } else {
                    // The node is silent for so long that it is taken for dead.
                    self.released(at, flow, pending);
                }
            }
            Phase::Adopting => {
                if pending.try_again(at.now, dead) {
                    self.stats.resent += 1;
                    self.send_adopt(flow, pending);
                } else {
                    self.try_another(at, flow, pending, 0, (0, 0));
                }
            }
            Phase::Delivering => {
                if pending.try_again(at.now, dead) {
                    self.stats.resent += 1;
                    self.deliver(flow, pending);
                } else {
                    // Another node would do again what this one may have done already.
                    self.reset(flow, pending.entry.origin, pending.last_ack);
                    pending.phase = Phase::Done;
                }
            }
            Phase::Crowded => {
                if pending.acknowledged.is_none() {
                    self.help(at, flow, pending);
                }
                self.adopt(at, flow, pending);
            }
            Phase::Answered(answer) => match answer.on_time(flow, at.now) {
                Some(packets) => {
                    pending.due = answer.due();
                    self.say(flow, &packets);
                }
                None => {
                    self.forget(flow, pending.entry.origin);
                    pending.phase = Phase::Done;
                }
            },
            Phase::Done => {}
        }
    }

    /// The node that was chosen cannot, for this reason and with this accept queue: the request goes to another one.
    pub(super) fn try_another(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        reason: u8,
        queue: (u16, u16),
    ) {
        let node = pending.entry.node;
        self.plan.refused(pending.request.group, node, reason, queue, at.now);
        if pending.is_move {
            self.reset(flow, pending.entry.origin, pending.last_ack);
            pending.phase = Phase::Done;
            return;
        }
        pending.leave_request();
        if reason == sb_reason::SB_REASON_QUEUE_FULL as u8 && self.is_awaited(pending, node) {
            self.wait_for_room(at, flow, pending, Some(node));
            return;
        }
        pending.tried.push(node);
        self.adopt(at, flow, pending);
    }

    /// No node owns the flow any more: on to what it was released for.
    pub(super) fn released(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.entry.mode = sb_mode::SB_MODE_HELD as u8;
        match pending.reply.take() {
            Some(reply) => self.answer(at, flow, pending, &reply),
            None if pending.sent.is_empty() => {
                self.stats.taken_back += 1;
                self.set_entry(flow, &pending.entry);
                self.advance(at, flow, pending);
            }
            None => self.adopt(at, flow, pending),
        }
    }
}
