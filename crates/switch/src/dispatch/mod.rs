//! The L7 decisions of the switch, without I/O: records from the XDP program and the time go in, changes of the flow
//! map and packets come out.
//!
//! Nearly all requests need nothing remembered: a whole head in one packet, for a pool that the flow's node belongs
//! to, is forwarded and forgotten. A flow is *pending* only while its request is incomplete, or its node has to say
//! something first: that it released the flow, or that it adopted it. The packets of a pending request are held,
//! unacknowledged, and sent again until the node answers. The client keeps them too, so losing all this loses nothing.

mod answer;
mod held;
mod output;
mod pending;
mod recent;
mod stats;
#[cfg(test)]
mod tests;

use std::time::Duration;

use switchback_http::{Body, Head, Limits, Progress, parse_head};
use switchback_wire::packet::{TcpView, bare, flags, timestamps};
use switchback_wire::{
    SB_FLAG_REQUEST, address_from, sb_flow, sb_flow_entry, sb_mode, sb_op, sb_option, sb_reason, sb_record,
    sb_record_kind,
};

use crate::plan::{NodeId, Plan};
use held::{HeldPacket, before};
pub use output::Output;
use pending::{Pending, PendingFlows, Phase};
use recent::Recent;
pub use stats::{NodeStats, Stats};

/// Flags of a SYN's options in `sb_option.flags`.
const SYN_OPTIONS: u8 = 0x0f;

/// How long a flow's entry is remembered beside the map: longer than a record can wait in a ring.
const RECENT: Duration = Duration::from_millis(100);
/// After this time without an owner, an unknown flow is reset.
const UNOWNED: Duration = Duration::from_millis(500);

/// Where the next request begins, and whether this one's head says it can be found at all.
struct Extent {
    end: u32,
    tunnel: bool,
}

impl Extent {
    fn of(head: &Head<'_>, start: u32) -> Self {
        let head_end = start.wrapping_add(head.len as u32);
        match head.body {
            _ if head.upgrade => Extent { end: head_end, tunnel: true },
            Body::None => Extent { end: head_end, tunnel: false },
            // A mark half the sequence space away could not be told from one in the past.
            Body::Length(len) if len < 1 << 30 => {
                Extent { end: head_end.wrapping_add(len as u32), tunnel: false }
            }
            Body::Length(_) | Body::Chunked => Extent { end: head_end, tunnel: true },
        }
    }
}

/// What to do with a request whose head is complete.
enum Verdict {
    To { pool: usize, extent: Extent, service: usize },
    Answer(u16),
    Incomplete,
}

/// A flow's entry from what its node says of it.
fn entry_from(option: &sb_option, node: NodeId, next: u32, mode: sb_mode) -> sb_flow_entry {
    sb_flow_entry {
        node,
        origin: u32::from_be(option.origin),
        next,
        mss: u16::from_be(option.mss),
        options: option.flags & SYN_OPTIONS,
        wscale: option.wscale,
        mode: mode as u8,
        ..Default::default()
    }
}

/// The L7 state of a switch.
pub struct Dispatcher {
    plan: Plan,
    limits: Limits,
    pending: PendingFlows,
    recent: Recent<sb_flow_entry>,
    probed: Recent<Duration>,
    random: Box<dyn FnMut() -> u64 + Send>,
    /// What is to be done; the driver does it and clears it.
    pub output: Output,
    /// Counts since the start.
    pub stats: Stats,
}

impl Dispatcher {
    /// `random` gives 64 independent uniform bits at each call.
    pub fn new(plan: Plan, random: Box<dyn FnMut() -> u64 + Send>) -> Self {
        Dispatcher {
            plan,
            limits: Limits::default(),
            pending: PendingFlows::default(),
            recent: Recent::new(RECENT),
            probed: Recent::new(UNOWNED * 2),
            random,
            output: Output::default(),
            stats: Stats::default(),
        }
    }

    /// What decisions are made by.
    pub fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Flows with a request that waits for something.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// When [`Self::on_time`] wants to be called.
    pub fn deadline(&self) -> Option<Duration> {
        self.pending.deadline()
    }

    /// A record of the XDP program. `now` is the time since a fixed start.
    /// `lookup` reads the flow map, for the rare record that does not say what is in it.
    pub fn on_record(
        &mut self,
        now: Duration,
        record: &sb_record,
        packet: &[u8],
        lookup: &dyn Fn(&sb_flow) -> Option<sb_flow_entry>,
    ) {
        self.recent.turn(now);
        self.probed.turn(now);
        let Some(view) = TcpView::parse(packet) else { return };
        match record.kind {
            kind if kind == sb_record_kind::SB_RECORD_REQUEST as u32 => {
                self.on_client(now, &record.flow, record.entry, packet, view);
            }
            kind if kind == sb_record_kind::SB_RECORD_FORWARD as u32 => {
                let entry = self.entry_of(&record.flow, record.entry);
                self.forward(&record.flow, &entry, &view, packet, 0);
            }
            kind if kind == sb_record_kind::SB_RECORD_UNKNOWN as u32 => {
                self.on_unknown(now, &record.flow, packet, view);
            }
            kind if kind == sb_record_kind::SB_RECORD_HANDOFF as u32 => {
                self.on_handoff(now, record, packet, view, lookup);
            }
            _ => {}
        }
    }

    /// Deals with all flows whose deadline has come.
    pub fn on_time(&mut self, now: Duration) {
        while let Some((flow, mut pending)) = self.pending.take_due(now) {
            self.on_deadline(now, &flow, &mut pending);
            self.keep(flow, pending);
        }
    }

    /// A record's entry may be older than what was decided since it was written, or newer, because the program has
    /// forwarded requests since. The later mark is the newer one; while a mark moves back, the flow is pending.
    fn entry_of(&self, flow: &sb_flow, recorded: sb_flow_entry) -> sb_flow_entry {
        match self.recent.get(flow) {
            Some(recent) if recent.origin == recorded.origin && !before(recent.next, recorded.next) => {
                *recent
            }
            _ => recorded,
        }
    }

    fn keep(&mut self, flow: sb_flow, pending: Pending) {
        if pending.phase != Phase::Done {
            self.pending.put(flow, pending);
        }
    }

    /// Writes the entry, and with it lets the program move the mark again.
    fn set_entry(&mut self, flow: &sb_flow, entry: &sb_flow_entry) {
        self.write_entry(flow, sb_flow_entry { asked: 0, ..*entry });
    }

    fn write_entry(&mut self, flow: &sb_flow, entry: sb_flow_entry) {
        self.output.updates.push((*flow, entry));
        self.recent.insert(*flow, entry);
    }

    fn forget(&mut self, flow: &sb_flow) {
        self.output.deletes.push(*flow);
        self.recent.remove(flow);
    }

    fn forward(&mut self, flow: &sb_flow, entry: &sb_flow_entry, view: &TcpView, packet: &[u8], extra: u8) {
        self.send(sb_op::SB_OP_FORWARD, entry.node, flow, entry, view, packet, extra);
    }

    #[allow(clippy::too_many_arguments)]
    fn send(
        &mut self,
        op: sb_op,
        node: NodeId,
        flow: &sb_flow,
        entry: &sb_flow_entry,
        view: &TcpView,
        packet: &[u8],
        extra: u8,
    ) {
        if let Some(to) = self.plan.node(node) {
            self.output.handoff(&self.plan.key, to, op, extra, flow, entry, view, packet);
        }
    }

    /// Data that may begin a request, or a FIN or RST of a flow without a node.
    fn on_client(
        &mut self,
        now: Duration,
        flow: &sb_flow,
        recorded: sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) {
        let entry = self.entry_of(flow, recorded);
        let pending = self.pending.take(flow).filter(|pending| pending.entry.origin == entry.origin);
        if let Some(mut pending) = pending {
            self.on_pending(now, flow, &mut pending, &entry, packet, view);
            self.keep(*flow, pending);
            return;
        }
        if view.is_empty() {
            // FIN or RST: the record says that there is no node; if there is one by now, it is the node's.
            if entry.mode != sb_mode::SB_MODE_HELD as u8 {
                self.forward(flow, &entry, &view, packet, 0);
            } else if view.flags & flags::RST != 0 {
                self.forget(flow);
            }
            return;
        }
        if self.forward_at_once(flow, &entry, packet, view) {
            return;
        }
        let Some(held) = HeldPacket::new(packet) else { return };
        self.forward_old_data(flow, &entry, &held);
        let mut pending = Pending::new(entry, now);
        if before(entry.next, view.seq.wrapping_add(view.len() as u32)) {
            pending.held.insert(&held, entry.next);
            self.advance(now, flow, &mut pending);
            self.keep(*flow, pending);
        }
    }

    /// The common case: one packet with one whole head, for the node that the flow has.
    fn forward_at_once(
        &mut self,
        flow: &sb_flow,
        entry: &sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) -> bool {
        if entry.mode != sb_mode::SB_MODE_REQUESTS as u8 || view.seq != entry.next {
            return false;
        }
        let end = view.seq.wrapping_add(view.len() as u32);
        match self.judge(flow, &packet[view.data..view.end], entry.next) {
            Verdict::To { pool, extent, service }
                if self.plan.has(pool, entry.node) && (extent.tunnel || !before(extent.end, end)) =>
            {
                let mut entry = *entry;
                entry.next = extent.end;
                if extent.tunnel {
                    entry.mode = sb_mode::SB_MODE_TUNNEL as u8;
                }
                self.stats.request(service, entry.node);
                self.set_entry(flow, &entry);
                self.forward(flow, &entry, &view, packet, SB_FLAG_REQUEST as u8);
                true
            }
            _ => false,
        }
    }

    /// Data before the mark belongs to a request that the node has: the client sends it again.
    fn forward_old_data(&mut self, flow: &sb_flow, entry: &sb_flow_entry, packet: &HeldPacket) {
        if entry.mode == sb_mode::SB_MODE_HELD as u8 || !before(packet.view.seq, entry.next) {
            return;
        }
        let mut held = held::Held::default();
        held.insert(packet, packet.view.seq);
        for old in held.take_until(entry.next) {
            self.forward(flow, entry, &old.view, &old.bytes, 0);
        }
    }

    fn judge(&self, flow: &sb_flow, data: &[u8], start: u32) -> Verdict {
        match parse_head(data, &self.limits) {
            Err(reject) => Verdict::Answer(reject.status()),
            Ok(Progress::Partial) => Verdict::Incomplete,
            Ok(Progress::Complete(head)) => {
                let Some(service) = self.plan.service(flow.vip()) else { return Verdict::Answer(404) };
                match self.plan.route(service, &head) {
                    Some(pool) => Verdict::To { pool, extent: Extent::of(&head, start), service },
                    None => Verdict::Answer(404),
                }
            }
        }
    }

    /// Goes as far as the held data allows.
    fn advance(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending) {
        loop {
            let data = pending.held.stream(pending.entry.next);
            if data.is_empty() && pending.held.is_empty() {
                pending.phase = Phase::Done;
                return;
            }
            match self.judge(flow, &data, pending.entry.next) {
                Verdict::Incomplete => {
                    if pending.wait_for_head(now) && pending.has_node() {
                        // The program must not take a later copy of the head while we hold a part of it.
                        self.write_entry(flow, sb_flow_entry { asked: 1, ..pending.entry });
                    }
                    return;
                }
                Verdict::Answer(status) => {
                    self.stats.answered(status);
                    self.refuse(now, flow, pending, status);
                    return;
                }
                Verdict::To { pool, extent, service } => {
                    pending.begin(pool, service, extent.end, extent.tunnel);
                    if pending.has_node() && self.plan.has(pool, pending.entry.node) {
                        self.forward_request(flow, pending);
                        if extent.tunnel {
                            pending.phase = Phase::Done;
                            return;
                        }
                    } else if pending.has_node() {
                        self.release(now, flow, pending);
                        return;
                    } else {
                        self.adopt(now, flow, pending);
                        return;
                    }
                }
            }
        }
    }

    /// The request goes to the node that the flow has.
    fn forward_request(&mut self, flow: &sb_flow, pending: &mut Pending) {
        pending.enter_request();
        self.stats.request(pending.service, pending.entry.node);
        self.set_entry(flow, &pending.entry);
        let mut first = SB_FLAG_REQUEST as u8;
        for packet in std::mem::take(&mut pending.sent) {
            self.forward(flow, &pending.entry, &packet.view, &packet.bytes, first);
            first = 0;
        }
    }

    /// Asks the flow's node to give it up.
    fn release(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending) {
        pending.wait(now, Phase::Releasing);
        self.ask_owner(sb_op::SB_OP_RELEASE, flow, pending);
    }

    /// Sends the flow's node a question that needs no data: RELEASE or PROBE.
    fn ask_owner(&mut self, op: sb_op, flow: &sb_flow, pending: &Pending) {
        let Some((view, bytes)) = pending.question(flow) else { return };
        self.send(op, pending.entry.node, flow, &pending.entry, &view, &bytes, 0);
    }

    /// Chooses a node and gives it the flow.
    fn adopt(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending) {
        match self.plan.pick(pending.pool, &pending.tried, now, &mut self.random) {
            Some(node) => {
                pending.enter_request_at(node);
                self.set_entry(flow, &pending.entry);
                pending.wait(now, Phase::Adopting);
                self.send_adopt(flow, pending);
            }
            None if pending.is_too_old(now) => {
                self.stats.answered(503);
                self.answer(now, flow, pending, 503);
            }
            None => {
                pending.tried.clear();
                pending.wait(now, Phase::Crowded);
            }
        }
    }

    fn send_adopt(&mut self, flow: &sb_flow, pending: &Pending) {
        let entry = pending.entry;
        let mut op = sb_op::SB_OP_ADOPT;
        for packet in &pending.sent {
            self.send(op, entry.node, flow, &entry, &packet.view, &packet.bytes, 0);
            op = sb_op::SB_OP_FORWARD;
        }
    }

    /// The switch answers the request itself, once no node speaks on the flow any more.
    fn refuse(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending, status: u16) {
        pending.answer_with = Some(status);
        if pending.has_node() {
            self.release(now, flow, pending);
        } else {
            self.answer(now, flow, pending, status);
        }
    }

    fn answer(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending, status: u16) {
        let Some(answer) = pending.make_answer(status) else {
            pending.phase = Phase::Done;
            return;
        };
        pending.entry.mode = sb_mode::SB_MODE_HELD as u8;
        self.set_entry(flow, &pending.entry);
        self.output.to_client(flow, &answer.packet(flow));
        pending.phase = Phase::Answered(answer);
        pending.due = now + pending::LINGER;
    }

    /// A packet of a flow that waits for something.
    fn on_pending(
        &mut self,
        now: Duration,
        flow: &sb_flow,
        pending: &mut Pending,
        recorded: &sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) {
        if let Phase::Answered(answer) = &pending.phase {
            if view.flags & flags::FIN != 0 {
                let fin = view.seq.wrapping_add(view.len() as u32);
                self.output.to_client(flow, &answer.last_ack(flow, fin));
            } else if !view.is_empty() {
                self.output.to_client(flow, &answer.packet(flow));
            }
            return;
        }
        if view.flags & flags::RST != 0 && !pending.has_node() {
            self.forget(flow);
            pending.phase = Phase::Done;
            return;
        }
        let Some(held) = HeldPacket::new(packet) else { return };
        if pending.held.bytes() + packet.len() > pending::HELD_MAX
            || self.pending.held_bytes() + packet.len() > pending::HELD_TOTAL_MAX
        {
            self.stats.dropped_over_budget += 1;
            return;
        }
        if pending.phase == Phase::Assembling && before(pending.entry.next, recorded.next) {
            pending.correct_mark(recorded.next);
        }
        self.forward_old_data(flow, &pending.entry, &held);
        pending.held.insert(&held, pending.held_from());
        if pending.phase == Phase::Assembling {
            self.advance(now, flow, pending);
        }
    }

    fn on_deadline(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending) {
        match pending.phase {
            Phase::Assembling => {
                if pending.doubts_mark(now) {
                    self.ask_owner(sb_op::SB_OP_PROBE, flow, pending);
                } else if pending.is_too_slow(now) {
                    self.stats.answered(408);
                    self.refuse(now, flow, pending, 408);
                }
            }
            Phase::Releasing => {
                if pending.try_again(now) {
                    self.stats.resent += 1;
                    self.ask_owner(sb_op::SB_OP_RELEASE, flow, pending);
                } else {
                    // The node is silent for so long that it is taken for dead.
                    self.released(now, flow, pending);
                }
            }
            Phase::Adopting => {
                if pending.try_again(now) {
                    self.stats.resent += 1;
                    self.send_adopt(flow, pending);
                } else {
                    self.try_another(now, flow, pending);
                }
            }
            Phase::Crowded => self.adopt(now, flow, pending),
            Phase::Answered(_) => {
                self.forget(flow);
                pending.phase = Phase::Done;
            }
            Phase::Done => {}
        }
    }

    /// The node that was chosen cannot: the request goes to another one.
    fn try_another(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending) {
        pending.tried.push(pending.entry.node);
        pending.leave_request();
        self.adopt(now, flow, pending);
    }

    /// No node owns the flow any more: on to what it was released for.
    fn released(&mut self, now: Duration, flow: &sb_flow, pending: &mut Pending) {
        pending.entry.mode = sb_mode::SB_MODE_HELD as u8;
        match pending.answer_with {
            Some(status) => self.answer(now, flow, pending, status),
            None => self.adopt(now, flow, pending),
        }
    }

    /// What a node says.
    fn on_handoff(
        &mut self,
        now: Duration,
        record: &sb_record,
        packet: &[u8],
        view: TcpView,
        lookup: &dyn Fn(&sb_flow) -> Option<sb_flow_entry>,
    ) {
        let option = &record.option;
        let Some(node) = self.plan.node_at(address_from(record.node)) else { return };
        let Some(op) = sb_op::from_number(option.op) else { return };
        let flow = &record.flow;
        if op == sb_op::SB_OP_OWNED {
            self.on_owned(now, record, node, packet, view);
            return;
        }
        let origin = u32::from_be(option.origin);
        let taken = self.pending.take(flow);
        let Some(mut pending) = taken.filter(|pending| pending.entry.origin == origin) else {
            let no_socket =
                op == sb_op::SB_OP_REFUSED && option.reason == sb_reason::SB_REASON_NO_SOCKET as u8;
            if let Some(entry) = no_socket.then(|| lookup(flow)).flatten() {
                self.on_no_socket(now, record, entry, packet, view);
            }
            return;
        };
        // A late answer to an earlier question says nothing about this one.
        if pending.entry.node == node && view.seq == pending.asked_at() {
            if op == sb_op::SB_OP_RELEASED {
                pending.go_on_from(view.ack, timestamps(packet, &view).map(|(_, echo)| echo));
            }
            self.on_answer_of_node(now, flow, &mut pending, op, option.reason);
        }
        self.keep(*flow, pending);
    }

    fn on_answer_of_node(
        &mut self,
        now: Duration,
        flow: &sb_flow,
        pending: &mut Pending,
        op: sb_op,
        reason: u8,
    ) {
        let node = pending.entry.node;
        match (op, &pending.phase) {
            (sb_op::SB_OP_ADOPTED, Phase::Adopting) => {
                self.stats.adopted(pending.service, node);
                pending.finish_request();
                if pending.is_tunnel() {
                    for packet in pending.held.take_until(pending.entry.next.wrapping_add(1 << 30)) {
                        self.forward(flow, &pending.entry, &packet.view, &packet.bytes, 0);
                    }
                    pending.phase = Phase::Done;
                } else {
                    self.advance(now, flow, pending);
                }
            }
            (sb_op::SB_OP_REFUSED, Phase::Adopting) => {
                self.stats.refused(node);
                self.try_another(now, flow, pending);
            }
            (sb_op::SB_OP_RELEASED, Phase::Releasing) => {
                self.stats.released(node);
                self.released(now, flow, pending);
            }
            (sb_op::SB_OP_BUSY, Phase::Releasing) if reason == sb_reason::SB_REASON_CLOSING as u8 => {
                // The server ends the connection: its kernel tells the client so, as on any connection.
                for packet in pending.take_all() {
                    self.forward(flow, &pending.entry, &packet.view, &packet.bytes, 0);
                }
                pending.phase = Phase::Done;
            }
            (sb_op::SB_OP_BUSY, Phase::Releasing) if reason == sb_reason::SB_REASON_DUPLICATE as u8 => {
                // The node has the request; it is the flow map that is behind.
                pending.enter_request();
                self.set_entry(flow, &pending.entry);
                pending.finish_request();
                self.advance(now, flow, pending);
            }
            (sb_op::SB_OP_BUSY, Phase::Releasing) => {
                self.stats.busy += 1;
                pending.wait_longer(now);
            }
            _ => {}
        }
    }

    /// A request was forwarded to a node that has no socket for its flow, because its server or the node itself was
    /// restarted. Any node can take it from here.
    fn on_no_socket(
        &mut self,
        now: Duration,
        record: &sb_record,
        recorded: sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) {
        let option = &record.option;
        // Only the flow's latest request counts: a late copy of an earlier one finds no socket where the flow was.
        let latest = self.entry_of(&record.flow, recorded);
        if latest.origin != u32::from_be(option.origin) || latest.next != u32::from_be(option.next) {
            return;
        }
        let entry = entry_from(option, 0, view.seq, sb_mode::SB_MODE_HELD);
        let Some(held) = HeldPacket::new(packet) else { return };
        let mut pending = Pending::new(entry, now);
        pending.held.insert(&held, entry.next);
        self.advance(now, &record.flow, &mut pending);
        self.keep(record.flow, pending);
    }

    /// A packet of a flow that we do not know, with no valid cookie: after a restart, or because another switch had
    /// the VIP. Its node knows it.
    fn on_unknown(&mut self, now: Duration, flow: &sb_flow, packet: &[u8], view: TcpView) {
        match self.probed.get(flow) {
            None => {
                self.probed.insert(*flow, now);
            }
            Some(first) if now.saturating_sub(*first) >= UNOWNED => {
                self.stats.reset_unowned += 1;
                self.output.to_client(flow, &bare(flow, false, view.ack, 0, flags::RST));
                return;
            }
            Some(_) => {}
        }
        self.stats.probed += 1;
        for id in 0..self.plan.nodes.len() as NodeId {
            self.send(sb_op::SB_OP_PROBE, id, flow, &sb_flow_entry::default(), &view, packet, 0);
        }
    }

    fn on_owned(&mut self, now: Duration, record: &sb_record, node: NodeId, packet: &[u8], view: TcpView) {
        let option = &record.option;
        let flow = &record.flow;
        let origin = u32::from_be(option.origin);
        if let Some(mut pending) = self.pending.take(flow) {
            if pending.phase == Phase::Assembling
                && pending.entry.node == node
                && pending.entry.origin == origin
            {
                pending.correct_mark(u32::from_be(option.next));
                self.advance(now, flow, &mut pending);
            }
            self.keep(*flow, pending);
            return;
        }
        if self.recent.get(flow).is_some() {
            return;
        }
        let entry = entry_from(option, node, u32::from_be(option.next), sb_mode::SB_MODE_REQUESTS);
        self.stats.recovered += 1;
        self.probed.remove(flow);
        self.set_entry(flow, &entry);
        if !view.is_empty() && before(entry.next, view.seq.wrapping_add(view.len() as u32)) {
            self.on_client(now, flow, entry, packet, view);
        } else {
            self.forward(flow, &entry, &view, packet, 0);
        }
    }
}
