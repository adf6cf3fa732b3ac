//! The L7 decisions of the switch, without I/O: records from the XDP program and the time go in, changes of the flow
//! map and packets come out.
//!
//! Nearly all requests need nothing remembered: a whole head in one packet, for a pool that the flow's node belongs
//! to, is forwarded and forgotten. A flow is *pending* only while its request is incomplete, or its node has to say
//! something first: that it released the flow, or that it adopted it. [`state`] has what a pending flow can wait for. Its
//! packets are held, unacknowledged, and sent again until the node answers; those of a client that is about to retransmit are
//! acknowledged, and may be lost with this process (docs/decisions/0007).

pub(crate) mod answer;
mod answered;
mod choice;
mod connection;
mod flows;
pub(crate) mod held;
pub(crate) mod mark;
mod observed;
mod output;
pub(crate) mod pending;
mod recent;
mod replies;
pub(crate) mod request;
pub(crate) mod seeking;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod world;

use std::time::Duration;

use switchback_config::Delegate;
use switchback_http::{Head, Progress, Reject, Version, parse_head};
use switchback_wire::clock::NodeClock;
use switchback_wire::handoff::Peers;
use switchback_wire::message::{Reading, ToAgent, ToNode};
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::{sb_flow, sb_flow_entry, sb_mode, sb_record, sb_record_kind};

use crate::group::Side;
use crate::observe::{Chosen, Heard};
use crate::plan::{Choice, NodeId, Plan, PlanNode};
use crate::sizes::Sizes;
use answer::Reply;
use answered::AnsweredFlows;
use connection::Connection;
use flows::PendingFlows;
use held::{HeldPacket, before};
use observed::Arrival;
pub use output::{Change, Output};
use pending::Pending;
use recent::Recent;
use request::Request;
use state::{Assembling, Releasing, Seeking, Then};
pub use stats::{NodeStats, Stats};

/// How long a flow's entry is remembered beside the map: longer than a record can wait in a ring.
const RECENT: Duration = Duration::from_millis(100);

/// The time of an event, and the flow map as it is then.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    /// Since a fixed start.
    pub now: Duration,
    /// Reads the flow map, for the rare case in which a record does not say what is in it.
    pub map: &'a dyn Fn(&sb_flow) -> Option<sb_flow_entry>,
}

/// What to do with the data at a mark.
pub(crate) enum Verdict {
    To(Request),
    Answer { reply: Reply, head: bool },
    Incomplete(Missing),
}

/// Whether the server may agree to go on with another version of HTTP. Nobody would read the requests in it.
fn asks_for_http(head: &Head<'_>) -> bool {
    let names = |value: &[u8]| {
        let value = value.to_ascii_lowercase();
        value.windows(2).any(|text| text == b"h2") || value.windows(4).any(|text| text == b"http")
    };
    head.tunnel && head.headers().any(|(name, value)| name.eq_ignore_ascii_case("upgrade") && names(value))
}

/// What of an incomplete request has to come before it is read again. Where a client sends byte by byte, it is not read
/// from its beginning for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// So many bytes.
    len: usize,
    /// Or an end of a line, behind so many bytes.
    line: Option<usize>,
}

impl Missing {
    pub(crate) fn has_come(&self, data: &[u8]) -> bool {
        let line = self.line.and_then(|start| data.get(start..));
        data.len() >= self.len || line.is_some_and(|rest| rest.contains(&b'\n'))
    }
}

/// What has been read at a mark, and where it goes if that has been decided.
pub(crate) struct Judged {
    verdict: Verdict,
    next: Option<Next>,
}

/// Where the request of a flow with a node goes.
pub(crate) enum Next {
    Stays,
    /// It is adopted anew, by this node if the policy has been asked.
    Leaves(Option<NodeId>),
    /// Its session's node cannot serve, and it may not go to another one.
    Nowhere,
}

/// Whether the flow has no node as far as is known.
pub(crate) fn is_held(entry: &sb_flow_entry) -> bool {
    [sb_mode::SB_MODE_HELD as u8, sb_mode::SB_MODE_SOUGHT as u8].contains(&entry.mode)
}

/// The connection of a record, compared with the flow's.
enum RecordOf {
    /// The flow's connection.
    Current,
    /// A connection that is over.
    Over,
    /// A connection that had a node, and whose entry was lost; a late copy of its first request has made a new one. If the
    /// connection is not over, its node knows the true one.
    Lost,
}

/// The L7 state of a switch.
pub struct Dispatcher {
    plan: Plan,
    pending: PendingFlows,
    answered: AnsweredFlows,
    recent: Recent<sb_flow_entry>,
    probed: Recent<seeking::Probed>,
    budget: seeking::Budget,
    sizes: Sizes,
    random: Box<dyn FnMut() -> u64 + Send>,
    /// There is an observer of requests.
    observes: bool,
    heard: Heard,
    /// Changes and packets for the driver, which clears them.
    pub output: Output,
    /// The time of the latest event.
    now: Duration,
    /// Counts since the start.
    pub stats: Stats,
}

impl Dispatcher {
    /// `random` gives 64 independent uniform bits at each call.
    pub fn new(plan: Plan, random: Box<dyn FnMut() -> u64 + Send>) -> Self {
        Dispatcher {
            plan,
            pending: PendingFlows::default(),
            answered: AnsweredFlows::default(),
            recent: Recent::new(RECENT),
            probed: Recent::new(seeking::REMEMBERED),
            budget: seeking::Budget::default(),
            sizes: Sizes::default(),
            random,
            observes: false,
            heard: Heard::default(),
            output: Output::default(),
            now: Duration::ZERO,
            stats: Stats::default(),
        }
    }

    /// Nodes, pools and routes.
    pub fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    /// Decides by another plan from here on. What the old one knew goes on; a request that waits for a pool which is there
    /// no more is answered 503 in its time.
    pub fn replace_plan(&mut self, plan: Plan) {
        let old = std::mem::replace(&mut self.plan, plan);
        let places = self.plan.inherit(old);
        self.pending.move_groups(|group| places.get(&group).copied());
    }

    /// Nodes, pools and routes, read only.
    pub fn seen(&self) -> &Plan {
        &self.plan
    }

    /// Requests that wait for a node with room.
    pub fn crowded(&self) -> usize {
        self.pending.all_crowded()
    }

    /// Flows with a request that waits for something.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Memory that pending flows take, in bytes.
    pub fn held(&self) -> usize {
        self.pending.cost()
    }

    /// When [`Self::on_time`] wants to be called.
    pub fn deadline(&self) -> Option<Duration> {
        [self.pending.deadline(), self.answered.deadline()].into_iter().flatten().min()
    }

    /// A record of the XDP program.
    pub fn on_record(&mut self, at: Moment<'_>, record: &sb_record, packet: &[u8]) {
        self.now = at.now;
        self.recent.turn(at.now);
        self.probed.turn(at.now);
        let Some(view) = TcpView::parse(packet) else { return };
        match record.kind {
            kind if kind == sb_record_kind::SB_RECORD_REQUEST as u32 => {
                self.on_client(at, &record.flow, record.entry, packet, view);
            }
            kind if kind == sb_record_kind::SB_RECORD_FORWARD as u32 => {
                let entry = self.entry_of(&record.flow, record.entry);
                self.forward(&record.flow, &entry, &view, packet, Reading::None);
            }
            kind if kind == sb_record_kind::SB_RECORD_UNKNOWN as u32 => {
                self.on_unknown(at, &record.flow, packet, view);
            }
            kind if kind == sb_record_kind::SB_RECORD_HANDOFF as u32 => {
                self.on_handoff(at, record, packet, view);
            }
            _ => {}
        }
    }

    /// Tells every node that reports are wanted here, and perhaps facts about responses, and asks what its clock says.
    pub fn ask_for_reports(&mut self) {
        for id in 0..self.plan.nodes.len() as NodeId {
            self.plan.forget_challenge(id);
            self.ask_for_clock(id);
            if self.plan.node(id).is_some_and(|node| node.clock.is_some()) {
                self.say_hello(id);
            }
        }
    }

    /// Asks the node for its clock. A recorded answer has another nonce.
    fn ask_for_clock(&mut self, id: NodeId) {
        let Some(nonce) = self.plan.challenge(id, &mut *self.random) else { return };
        self.tell_agent(id, 0, ToAgent::Sync { nonce });
    }

    /// The node has answered with its clock.
    fn on_synced(&mut self, now: Duration, node: NodeId, nonce: u64, clock: u64) {
        if self.plan.set_clock(node, nonce, NodeClock::told(clock, now)) {
            self.say_hello(node);
        }
    }

    /// Asks the node for reports, and acknowledges facts that have come.
    fn say_hello(&mut self, id: NodeId) {
        let epoch = self.plan.node(id).and_then(|node| node.clock).map(|clock| clock.epoch(self.now));
        let Some(epoch) = epoch else { return self.ask_for_clock(id) };
        let hello = ToAgent::Hello { facts: self.observes, heard: self.heard.last(id) };
        self.tell_agent(id, epoch, hello);
    }

    /// Sends the node a packet of no flow.
    fn tell_agent(&mut self, id: NodeId, epoch: u64, message: ToAgent) {
        let flow = sb_flow::default();
        let inner = bare(&flow, true, 0, 0, flags::RST);
        let Some((view, peers)) = TcpView::parse(&inner).zip(self.plan.peers(id, epoch)) else { return };
        self.output.handoff(&self.plan.key, (peers, None), &flow, message.option(), (&view, &inner));
    }

    /// Takes an idle flow from its node, which is to become idle too. The flow has no node then until its next request.
    pub fn take_back(&mut self, at: Moment<'_>, flow: &sb_flow, entry: sb_flow_entry) {
        let entry = self.entry_of(flow, entry);
        let idle =
            entry.mode == sb_mode::SB_MODE_REQUESTS as u8 && entry.locked == 0 && !mark::in_body(&entry);
        if !idle || self.pending.get(flow).is_some() {
            return;
        }
        let mut connection = Connection::new(entry, at.now);
        let state = Releasing::ask(Then::Nothing, &mut connection, &mut self.world(at, flow));
        self.keep(flow, connection, state);
    }

    /// Deals with all flows whose deadline has come.
    pub fn on_time(&mut self, at: Moment<'_>) {
        self.now = at.now;
        self.on_deadlines(at);
        self.send_answers_again(at.now);
    }

    /// The flow's entry in the map, unless the output that has not been written yet removes it.
    fn mapped(&self, at: Moment<'_>, flow: &sb_flow) -> Option<sb_flow_entry> {
        (at.map)(flow).filter(|entry| !self.output.removes(flow, entry.origin))
    }

    /// Compares a record's connection with the flow's. Rings are read one after the other, so a record of an earlier
    /// connection with the same ports may come late.
    fn record_of(&self, at: Moment<'_>, flow: &sb_flow, recorded: &sb_flow_entry) -> RecordOf {
        let pending = self.pending.get(flow).map(|pending| pending.connection.entry);
        let pending = pending.or_else(|| self.answered.entry(flow));
        let Some(known) = pending.or_else(|| self.recent.get(flow).copied()) else {
            return RecordOf::Current;
        };
        if known.origin == recorded.origin && (!is_held(recorded) || is_held(&known)) {
            return RecordOf::Current;
        }
        match self.mapped(at, flow) {
            Some(current) if current.origin != recorded.origin => RecordOf::Over,
            Some(current) if known.origin == recorded.origin && pending.is_none() && is_held(&current) => {
                RecordOf::Lost
            }
            Some(_) => RecordOf::Current,
            None => RecordOf::Over,
        }
    }

    /// A record's entry may be older than what was decided since it was written, or newer, because the program has
    /// forwarded packets since.
    fn entry_of(&self, flow: &sb_flow, recorded: sb_flow_entry) -> sb_flow_entry {
        match self.recent.get(flow) {
            Some(recent) if recent.origin == recorded.origin && !mark::is_newer(&recorded, recent) => *recent,
            _ => recorded,
        }
    }

    /// Writes the entry, and lets the program move the mark again.
    fn set_entry(&mut self, flow: &sb_flow, entry: &sb_flow_entry) {
        self.write_entry(flow, sb_flow_entry { locked: 0, ..*entry });
    }

    /// Writes the entry behind the packets that bring the mark there, so that what follows them meets them at the node.
    fn move_mark(&mut self, flow: &sb_flow, entry: &sb_flow_entry) {
        let entry = sb_flow_entry { locked: 0, ..*entry };
        self.output.change_behind(flow, Change::Replace(entry));
        self.recent.insert(*flow, entry);
    }

    fn write_entry(&mut self, flow: &sb_flow, entry: sb_flow_entry) {
        self.output.change(flow, Change::Replace(entry));
        self.recent.insert(*flow, entry);
    }

    fn forget(&mut self, flow: &sb_flow, origin: u32) {
        self.output.change(flow, Change::Remove { origin });
        self.recent.remove(flow);
    }

    fn forward(
        &mut self,
        flow: &sb_flow,
        entry: &sb_flow_entry,
        view: &TcpView,
        packet: &[u8],
        reading: Reading,
    ) {
        self.send(ToNode::Forward(reading), entry.node, flow, entry, view, packet);
    }

    /// Sends a node a packet of the flow. It is lost, as on any network, without a route to the node, or while the node's
    /// clock is not known; senders that wait for an answer send again.
    fn send(
        &mut self,
        message: ToNode,
        node: NodeId,
        flow: &sb_flow,
        entry: &sb_flow_entry,
        view: &TcpView,
        packet: &[u8],
    ) {
        self.send_to((node, None), message, flow, entry, view, packet);
    }

    /// Sends a packet that the first node may pass on to a second candidate.
    fn send_to(
        &mut self,
        (node, second): (NodeId, Option<NodeId>),
        message: ToNode,
        flow: &sb_flow,
        entry: &sb_flow_entry,
        view: &TcpView,
        packet: &[u8],
    ) {
        let epoch = |node: &PlanNode| node.clock.map(|clock| clock.epoch(self.now));
        let Some(present) = self.plan.node(node).and_then(epoch) else { return self.ask_for_clock(node) };
        let Some(peers) = self.plan.peers(node, present) else { return };
        let second = second
            .and_then(|id| self.plan.node(id))
            .and_then(|node| Some(Peers { node: node.address, epoch: epoch(node)?, ..peers }));
        let option = message.option(entry);
        self.output.handoff(&self.plan.key, (peers, second.as_ref()), flow, option, (view, packet));
    }

    /// Data that reaches beyond the mark, or any packet of a flow that no node has.
    fn on_client(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        recorded: sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) {
        match self.record_of(at, flow, &recorded) {
            RecordOf::Current => {}
            RecordOf::Over => return,
            RecordOf::Lost => {
                let answered = self.recent.get(flow).is_some_and(answered::is_answered);
                self.forget(flow, recorded.origin);
                if answered {
                    return;
                }
                self.on_unknown(at, flow, packet, view);
                return;
            }
        }
        if self.on_answered(at, flow, &recorded, packet, &view) {
            return;
        }
        let entry = self.entry_of(flow, recorded);
        let pending =
            self.pending.take(flow).filter(|pending| pending.connection.entry.origin == entry.origin);
        if let Some(pending) = pending {
            if pending.connection.has_node() && is_held(&recorded) {
                // A late copy of its first packet has made an entry once more.
                self.output.change(flow, Change::Abandon { origin: entry.origin });
            }
            self.on_pending(at, flow, pending, &entry, packet, view);
            return;
        }
        if view.is_empty() {
            self.on_end(flow, &entry, packet, &view);
            return;
        }
        if self.is_sent_again(at, &entry, &view) {
            let Some(held) = HeldPacket::new(packet) else { return };
            let mut connection = Connection::new(mark::back(&entry), at.now);
            connection.given = Some(connection.entry.next);
            self.begin(at, flow, connection, &held, None);
            return;
        }
        let judged = match self.judge_whole(at, flow, &entry, packet, view) {
            Some(Judged { verdict: Verdict::To(request), next: Some(Next::Stays) }) => {
                self.forward_at_once(at, flow, &request, packet, view);
                return;
            }
            judged => judged,
        };
        let Some(held) = HeldPacket::new(packet) else { return };
        let connection = Connection::new(entry, at.now);
        self.forward_old_data(flow, &connection, None, &held);
        if mark::is_passing(&entry) {
            self.ask_for_progress(flow, &entry, &view);
        }
        if before(entry.next, held.end()) {
            self.begin(at, flow, connection, &held, judged);
        } else {
            self.abandon(flow, &connection);
        }
    }

    /// A flow begins to wait, with its first packet; `judged` is what has been read of it.
    fn begin(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        connection: Connection,
        packet: &HeldPacket,
        judged: Option<Judged>,
    ) {
        let mut pending = Pending::new(connection, at.now);
        if !self.has_room(flow, &mut pending, packet) {
            self.abandon(flow, &pending.connection);
            return;
        }
        pending.hold(packet);
        let Pending { mut connection, .. } = pending;
        let mut world = self.world(at, flow);
        let state = if connection.is_sought() {
            Seeking::ask(&mut connection, &mut world)
        } else {
            let assembling = Assembling::new(at.now);
            let state = assembling.advance_from(judged, &mut connection, &mut world);
            state.help(&mut connection, &mut world);
            state
        };
        self.keep(flow, connection, state);
    }

    /// The client sends the last request's beginning once more, and its node seems to be dead: it has not got it, or not
    /// said so. A node that lives after all says whether it has it when it is asked to give the flow up.
    fn is_sent_again(&self, at: Moment<'_>, entry: &sb_flow_entry, view: &TcpView) -> bool {
        let modes = [sb_mode::SB_MODE_REQUESTS as u8, sb_mode::SB_MODE_UPGRADING as u8];
        modes.contains(&entry.mode)
            && view.seq == entry.begins
            && before(entry.begins, entry.next)
            && self.plan.is_dead(entry.node, at.now)
    }

    /// FIN, RST or an ACK of a flow that the record says has no node; if there is one by now, it is the node's. If not,
    /// there is no request either, because one would be pending.
    fn on_end(&mut self, flow: &sb_flow, entry: &sb_flow_entry, packet: &[u8], view: &TcpView) {
        if !is_held(entry) && !answered::is_answered(entry) {
            self.forward(flow, entry, view, packet, Reading::None);
        } else if view.flags & (flags::RST | flags::FIN) == flags::FIN && view.seq == entry.next {
            self.say_goodbye(flow, entry.origin, view.ack, view.seq.wrapping_add(1));
        } else if view.flags & flags::RST == 0 {
            self.reset(flow, entry.origin, view.ack);
        } else if view.seq == entry.next {
            self.forget(flow, entry.origin);
        }
    }

    /// Reads a packet that begins at the mark of a flow with a node. None unless a request may begin there.
    fn judge_whole(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        entry: &sb_flow_entry,
        packet: &[u8],
        view: TcpView,
    ) -> Option<Judged> {
        if entry.mode != sb_mode::SB_MODE_REQUESTS as u8 || view.seq != entry.next || mark::in_body(entry) {
            return None;
        }
        let verdict = self.judge(at.now, flow, &packet[view.data..view.end], entry);
        let next = match &verdict {
            Verdict::To(request) if request.takes_all_to(view.end_seq()) => {
                Some(self.next_node(at, request, entry, None))
            }
            _ => None,
        };
        Some(Judged { verdict, next })
    }

    /// The common case: one packet with one whole head, for the node that the flow has.
    fn forward_at_once(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        request: &Request,
        packet: &[u8],
        view: TcpView,
    ) {
        let after = request.after;
        self.stats.cookies_ignored += u64::from(request.cookies_ignored);
        self.give(request, after.node);
        let head = &packet[view.data..view.end];
        let arrival = Arrival { at: at.now, queued: Duration::ZERO };
        self.observe_given(flow, &after, arrival, Chosen::Connection, 0, || head.into());
        self.move_mark(flow, &after);
        let reading = Reading::Request { head: request.read, recovery: request.recovery(true) };
        self.forward(flow, &after, &view, packet, reading);
    }

    /// Data before the mark belongs to what the node has: the client sends it again. What is `in_delivery` the node gets
    /// from here.
    fn forward_old_data(
        &mut self,
        flow: &sb_flow,
        connection: &Connection,
        in_delivery: Option<(u32, u32)>,
        packet: &HeldPacket,
    ) {
        let entry = &connection.entry;
        if !connection.has_node() {
            return;
        }
        let (start, end) = in_delivery.unwrap_or((entry.next, entry.next));
        let parts = [packet.part(packet.view.seq, start), packet.part(end, entry.next)];
        for part in parts.iter().flatten() {
            self.forward(flow, entry, &part.view, &part.bytes, Reading::None);
        }
    }

    /// Asks the node whether it has come so far that the mark can go on.
    fn ask_for_progress(&mut self, flow: &sb_flow, entry: &sb_flow_entry, view: &TcpView) {
        let question = bare(flow, true, mark::due(entry), view.ack, flags::ACK);
        let Some(view) = TcpView::parse(&question) else { return };
        self.send(ToNode::Confirm(Reading::None), entry.node, flow, entry, &view, &question);
    }

    /// What is to become of the request at the start of `data`, where the mark of `entry` is.
    pub(crate) fn judge(
        &mut self,
        now: Duration,
        flow: &sb_flow,
        data: &[u8],
        entry: &sb_flow_entry,
    ) -> Verdict {
        if let Some(service) =
            self.plan.service(flow.vip()).filter(|service| self.plan.services[*service].tls)
        {
            return self.judge_hello(now, flow, data, entry, service);
        }
        let limits = self.plan.http_limits();
        let refuse = |reject: Reject, head| Verdict::Answer { reply: Reply::Refused(reject), head };
        let head = match parse_head(data, &limits) {
            // The method stands first in what is refused, too, or behind an empty line.
            Err(reject) => {
                let line = data.strip_prefix(b"\r\n").unwrap_or(data);
                return refuse(reject, line.starts_with(b"HEAD "));
            }
            Ok(Progress::Partial) => {
                return Verdict::Incomplete(Missing { len: limits.head_len, line: Some(data.len()) });
            }
            Ok(Progress::Complete(head)) => head,
        };
        let is_head = head.method == "HEAD";
        let service = self.plan.service(flow.vip());
        let choice = match service.map_or(Ok(None), |service| self.plan.choose(service, &head)) {
            Err(reject) => return refuse(reject, is_head),
            Ok(choice) => choice,
        };
        match service.zip(choice) {
            None => Verdict::Answer { reply: Reply::Status(404), head: is_head },
            Some((service, _)) if head.version == Version::Http2 && !self.plan.speaks_h2c(service, &head) => {
                Verdict::Answer { reply: Reply::Status(505), head: false }
            }
            Some((_, Choice::Redirect(redirect))) => {
                Verdict::Answer { reply: Reply::redirect(redirect, &head, flow.vip()), head: is_head }
            }
            Some((service, Choice::Pool(pool))) => {
                let mut after = *entry;
                let Some(group) = self.plan.group(pool, flow.vip()) else {
                    return Verdict::Answer { reply: Reply::Status(404), head: is_head };
                };
                let key = self.plan.key(group, flow, &head);
                let said = self.plan.read_session(group, flow, &head, now);
                after.session = said.told;
                let side = self.side(group, pool, &head, &mut after);
                let repeatable = head.is_repeatable();
                let entered = mark::enter(&mut after, &head, data, &limits);
                if asks_for_http(&head) && !self.plan.speaks_h2c(service, &head) {
                    after.mode = sb_mode::SB_MODE_REQUESTS as u8;
                }
                match entered {
                    Ok(read) => Verdict::To(Request {
                        read: mark::saturated(read),
                        group,
                        side,
                        key,
                        service,
                        last: !head.keep_alive,
                        repeatable,
                        after,
                        session: said.session,
                        wanted: None,
                        cookies_ignored: said.ignored,
                    }),
                    Err(reject) => refuse(reject, is_head),
                }
            }
        }
    }

    /// Judges the beginning of a connection over TLS: the ClientHello is the request, and all that follows goes to its node.
    fn judge_hello(
        &mut self,
        now: Duration,
        flow: &sb_flow,
        data: &[u8],
        entry: &sb_flow_entry,
        service: usize,
    ) -> Verdict {
        let answer = |reply| Verdict::Answer { reply, head: false };
        let hello = match switchback_hello::read(data, self.plan.limits.head) {
            Ok(switchback_hello::Progress::Partial(len)) => {
                return Verdict::Incomplete(Missing { len, line: None });
            }
            Ok(switchback_hello::Progress::Complete(hello)) => hello,
            Err(switchback_hello::Reject::NotTls) if data[0].is_ascii_uppercase() => {
                return answer(Reply::PlainHttp);
            }
            Err(reject) => return answer(Reply::Alert(reject)),
        };
        let unrecognized = answer(Reply::Alert(switchback_hello::Reject::Unrecognized));
        let pool = self.plan.choose_hello(service, &hello);
        let Some(group) = pool.and_then(|pool| self.plan.group(pool, flow.vip())) else {
            return unrecognized;
        };
        let mut after = *entry;
        mark::enter_tunnel(&mut after, hello.len);
        Verdict::To(Request {
            key: self.plan.client_key(group, flow),
            last: true,
            wanted: self.plan.node_of_tls_session(group, &hello, now),
            ..Request::new(group, service, after)
        })
    }

    /// Where this machine is a node, too: who is to answer the request, as far as the pool says. If that depends on the
    /// length of the response, the node is asked for it.
    fn side(
        &mut self,
        group: usize,
        pool: usize,
        head: &Head<'_>,
        after: &mut sb_flow_entry,
    ) -> Option<Side> {
        let delegate = self.plan.delegates(group)?;
        let mut bytes = None;
        if let Delegate::Above(_) = delegate {
            let size = self.sizes.of(pool, head);
            after.session.path = size.ask.to_be();
            bytes = size.bytes;
        }
        Side::of(delegate, bytes, &mut self.random)
    }
}
