//! How a pending flow comes closer to what it waits for: packets of its client, and deadlines.

use switchback_wire::message::{Queue, Reading, Reason, Recovery, ToNode};
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::{sb_flow, sb_flow_entry, sb_mode};

use super::answer::Reply;
use super::flows::Full;
use super::held::{HeldPacket, before};
use super::pending::{Pending, Phase};
use super::{Change, Dispatcher, Moment, Next, Verdict, mark};
use crate::observe::Chosen;
use crate::plan::NodeId;

/// A question to a node, after some time.
enum Unanswered {
    /// It is asked once more.
    Again,
    /// Another node can take the flow over.
    TakenOver,
    /// There is no other.
    ForEver,
}

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
        if reset && pending.has_node() {
            // Its kernel judges it.
            self.forward(flow, &pending.entry, &view, packet, Reading::None);
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
        pending.note_repetition(&held.view, at.now);
        // Whether or not there is room for the rest: it may be all that the client can send until it is acknowledged.
        self.forward_old_data(flow, pending, &held);
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
            self.ask_owner(ToNode::Confirm(Reading::None), flow, pending);
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
            self.output.change(flow, Change::Ahead { origin: pending.entry.origin });
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

    /// Forgets what is held of a flow, which its client sends again if it is still there.
    pub(super) fn give_up_waiting(&mut self, flow: &sb_flow, pending: &mut Pending) {
        self.set_entry(flow, &pending.entry);
        self.abandon(flow, pending);
        pending.phase = Phase::Done;
    }

    /// Goes as far as the held data allows.
    pub(super) fn advance(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        loop {
            if pending.held.is_empty() {
                match pending.fin {
                    // The client has changed its mind.
                    Some(end) if !pending.has_node() && end == pending.entry.next => {
                        self.say_goodbye(flow, pending.entry.origin, pending.last_ack, end.wrapping_add(1));
                    }
                    _ => self.abandon(flow, pending),
                }
                pending.phase = Phase::Done;
                return;
            }
            if pending.is_tunnel() {
                self.move_mark(flow, &pending.entry);
                let packets = pending.held.take_all();
                self.forward_all(flow, &pending.entry, &packets);
                continue;
            }
            let data = pending.held.stream(pending.entry.next);
            if mark::in_body(&pending.entry) {
                if data.is_empty() || mark::is_passing(&pending.entry) {
                    if self.wait_for_client(at, flow, pending) {
                        return;
                    }
                } else if !self.forward_body(at, flow, pending) {
                    return;
                }
                continue;
            }
            if pending.is_upgrading() && !data.is_empty() {
                pending.wait(at.now, Phase::Asking);
                self.ask_owner(ToNode::Probe, flow, pending);
                return;
            }
            let known = pending.missing.filter(|missing| !missing.has_come(&data) && !pending.is_all(&data));
            let verdict = match known {
                Some(missing) => Verdict::Incomplete(missing),
                None => self.judge(at.now, flow, &data, &pending.entry),
            };
            match verdict {
                Verdict::Incomplete(_) if pending.is_all(&data) && !pending.has_beginning() => {
                    self.pass_empty_line(flow, pending, data.len());
                }
                Verdict::Incomplete(_) if pending.is_all(&data) => {
                    self.refuse(at, flow, pending, Reply::Status(400), false);
                    return;
                }
                Verdict::Incomplete(missing) => {
                    pending.missing = (!data.is_empty()).then_some(missing);
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
                    if !self.given(at, flow, pending) {
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
            let current = self.mapped(at, flow).filter(|current| current.origin == pending.entry.origin);
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

    /// A packet with more of a body, which goes to the flow's node with what need not be read behind it; false if that was the
    /// end of it all.
    fn forward_body(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) -> bool {
        let data = pending.held.first().map_or(&[][..], HeldPacket::data);
        if let Err(reject) = mark::follow(&mut pending.entry, data) {
            let reply = Reply::Refused(reject);
            self.stats.refused_request(&reply);
            pending.abort = true;
            self.refuse(at, flow, pending, reply, false);
            return false;
        }
        let packets = pending.held.take_until(pending.entry.next);
        self.move_mark(flow, &pending.entry);
        if let Some((read, rest)) = packets.split_first() {
            let reading = Reading::More { skip: 0 };
            self.forward(flow, &pending.entry, &read.view, &read.bytes, reading);
            self.forward_all(flow, &pending.entry, rest);
        }
        true
    }

    /// All that comes behind the last request is an empty line, or part of one. It is that request's (RFC 9112 section 2.2).
    /// What is held beyond it lies behind the client's FIN, so nobody gets it.
    fn pass_empty_line(&mut self, flow: &sb_flow, pending: &mut Pending, len: usize) {
        pending.entry.next = pending.entry.next.wrapping_add(len as u32);
        let line = pending.held.take_until(pending.entry.next);
        pending.held.take_all();
        if pending.has_node() {
            self.move_mark(flow, &pending.entry);
            for packet in &line {
                let reading = Reading::More { skip: 0 };
                self.forward(flow, &pending.entry, &packet.view, &packet.bytes, reading);
            }
        }
    }

    /// The request goes to the node that the flow has.
    fn forward_request(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.enter_request();
        self.give(&pending.request, pending.entry.node);
        self.observe_pending(at, flow, pending, Chosen::Connection);
        match pending.deliver_until() {
            None => self.move_mark(flow, &pending.entry),
            // Until the node has it, the program leaves all that the client sends from there on to us.
            Some(_) => self.write_entry(flow, sb_flow_entry { asked: 1, ..pending.start() }),
        }
        let recovery = pending.recovery();
        for packet in pending.sent.iter() {
            let reading = pending.reading(packet, recovery);
            self.forward(flow, &pending.entry, &packet.view, &packet.bytes, reading);
        }
    }

    /// The request in progress has been given to the node, but perhaps has not arrived, and the client thinks it has.
    fn deliver(&mut self, flow: &sb_flow, pending: &Pending) {
        let entry = pending.request.after;
        let packets = pending.undelivered();
        let last = packets.len().saturating_sub(1);
        for (index, packet) in packets.iter().enumerate() {
            let reading = pending.reading(packet, Recovery::default());
            let message = if index == last { ToNode::Confirm(reading) } else { ToNode::Forward(reading) };
            self.send(message, entry.node, flow, &entry, &packet.view, &packet.bytes);
        }
    }

    /// Asks the node whether all that it was sent has arrived.
    pub(super) fn ask_whether_delivered(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.wait(at.now, Phase::Delivering);
        let question = bare(flow, true, pending.asked_at(), pending.last_ack, flags::ACK);
        let Some(view) = TcpView::parse(&question) else { return };
        let entry = pending.request.after;
        self.send(ToNode::Confirm(Reading::None), entry.node, flow, &entry, &view, &question);
    }

    /// The request in progress is on its way to the node, where it may get lost. If the client is to see that, it is done; if
    /// not, false, and the flow waits until it has arrived.
    pub(super) fn given(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) -> bool {
        if pending.deliver_until().is_some() {
            self.ask_whether_delivered(at, flow, pending);
            return false;
        }
        pending.finish_request(at.now);
        true
    }

    /// The node has the request in progress.
    pub(super) fn delivered(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.finish_request(at.now);
        self.advance(at, flow, pending);
    }

    /// Asks the flow's node to give it up.
    pub(super) fn release(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        pending.wait(at.now, Phase::Releasing);
        self.ask_for_release(flow, pending);
    }

    fn ask_for_release(&mut self, flow: &sb_flow, pending: &Pending) {
        self.ask_owner(ToNode::Release { abort: pending.abort }, flow, pending);
    }

    /// Sends the flow's node a question that needs no data.
    pub(super) fn ask_owner(&mut self, question: ToNode, flow: &sb_flow, pending: &Pending) {
        let Some((view, bytes)) = pending.question(flow) else { return };
        self.send(question, pending.entry.node, flow, &pending.entry, &view, &bytes);
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
        self.plan.refused(pending.request.group, first, None, (0, 0), at.now);
        if let Some(group) = self.plan.group_mut(pending.request.group) {
            group.adoption_sent(second);
        }
        self.stats.passed_on += 1;
        pending.tried.push(first);
        pending.second = None;
        pending.passed_on = true;
        pending.enter_request_at(second);
        self.set_entry(flow, &pending.entry);
    }

    /// Sends the request in progress to the node that is to adopt the flow. The mark is that of the first time, whatever has
    /// been forwarded since: a node tells copies by it.
    pub(super) fn send_adopt(&mut self, flow: &sb_flow, pending: &Pending) {
        let entry = pending.request.after;
        let queue_share = self.plan.share(pending.request.group);
        let mut packets = pending.sent.iter();
        let Some(first) = packets.next() else { return };
        let (head, recovery) = (pending.request.read, pending.recovery());
        let adopt = ToNode::Adopt { head, recovery, queue_share };
        self.send_to((entry.node, pending.second), adopt, flow, &entry, &first.view, &first.bytes);
        for packet in packets {
            let reading = pending.reading(packet, recovery);
            self.forward(flow, &entry, &packet.view, &packet.bytes, reading);
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
        pending.phase = Phase::Done;
        let Some(answer) = pending.make_answer(reply, at.now) else {
            self.forget(flow, pending.entry.origin);
            return;
        };
        self.stats.answered(reply.status());
        self.observe_answer(asked, reply.status(), &answer);
        self.send_answer(flow, &pending.entry, answer);
    }

    /// What a flow waits for has not come in time.
    pub(super) fn on_deadline(&mut self, at: Moment<'_>, flow: &sb_flow, pending: &mut Pending) {
        match pending.phase {
            Phase::Assembling => {
                if !pending.is_too_slow(at.now, self.plan.limits.head_timeout) {
                    if pending.doubts_mark() {
                        self.ask_owner(ToNode::Probe, flow, pending);
                    }
                    self.help(at, flow, pending);
                    pending.look_again(at.now, self.plan.limits.head_timeout);
                } else if mark::in_body(&pending.entry) || !pending.has_beginning() {
                    self.give_up_waiting(flow, pending);
                } else {
                    self.refuse(at, flow, pending, Reply::Status(408), false);
                }
            }
            Phase::Seeking(_) => self.seek_again(at, flow, pending),
            Phase::Releasing => {
                if pending.acknowledged.is_none() {
                    self.help(at, flow, pending);
                }
                match self.unanswered(at, pending) {
                    Unanswered::Again => self.ask_for_release(flow, pending),
                    // It may have done what must not be done twice.
                    Unanswered::TakenOver if !pending.was_given || pending.request.repeatable => {
                        pending.go_on_from_client();
                        self.released(at, flow, pending);
                    }
                    _ => self.give_up(flow, pending),
                }
            }
            Phase::Adopting => match self.unanswered(at, pending) {
                Unanswered::Again => self.send_adopt(flow, pending),
                Unanswered::TakenOver => self.try_another(at, flow, pending, None, (0, 0)),
                Unanswered::ForEver => self.give_up(flow, pending),
            },
            Phase::Delivering => match self.unanswered(at, pending) {
                Unanswered::Again => self.deliver(flow, pending),
                // Another node would do again what this one may have done already.
                _ => self.give_up(flow, pending),
            },
            Phase::Asking => match self.unanswered(at, pending) {
                Unanswered::Again => self.ask_owner(ToNode::Probe, flow, pending),
                _ => self.give_up(flow, pending),
            },
            Phase::Crowded => {
                if pending.acknowledged.is_none() {
                    self.help(at, flow, pending);
                }
                self.adopt(at, flow, pending);
            }
            Phase::Done => {}
        }
    }

    /// What becomes of a question that its node has not answered. A node that is heard of lives: it may have done what it was
    /// asked for, and spoken on the flow, so nobody else may.
    fn unanswered(&mut self, at: Moment<'_>, pending: &mut Pending) -> Unanswered {
        let node = pending.entry.node;
        let is_silent = |time| self.plan.is_silent(node, time);
        let early = pending.try_again(at.now, self.plan.is_dead(node, at.now));
        if !early && is_silent(at.now) && pending.can_be_taken_over(is_silent) {
            return Unanswered::TakenOver;
        }
        if !early && !pending.try_on(at.now) {
            return Unanswered::ForEver;
        }
        self.stats.resent += 1;
        Unanswered::Again
    }

    /// Nobody can go on with the flow.
    pub(super) fn give_up(&mut self, flow: &sb_flow, pending: &mut Pending) {
        self.reset(flow, pending.entry.origin, pending.last_ack);
        pending.phase = Phase::Done;
    }

    /// The node that was chosen cannot, for this reason and with this accept queue: the request goes to another one.
    pub(super) fn try_another(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        pending: &mut Pending,
        reason: Option<Reason>,
        queue: Queue,
    ) {
        let node = pending.entry.node;
        self.plan.refused(pending.request.group, node, reason, queue, at.now);
        if self.is_over(at, flow, pending) {
            self.end_pending(flow, pending);
            return;
        }
        if pending.is_move {
            self.give_up(flow, pending);
            return;
        }
        pending.leave_request();
        if reason == Some(Reason::QueueFull) && self.is_awaited(pending, node) {
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
