//! One flow's request while it waits for something.

use std::time::Duration;

use switchback_wire::message::{Reading, Recovery};
use switchback_wire::packet::{TcpView, acknowledgment, bring_up_to_date, flags, segment, timestamps};
use switchback_wire::{SB_SYN_SACK, SB_WINDOW, sb_flow, sb_flow_entry, sb_mode};

use super::answer::{Answer, Reply};
use super::held::{Held, HeldPacket, before};
use super::seeking::Question;
use super::{Missing, is_held, mark};
use crate::group::Side;
use crate::plan::NodeId;
use crate::sessions::Session;

/// What a pending flow costs besides the bytes of the packets that it holds: up to twice its size in a table that has
/// just grown, its places in two orders of time, its source's sum, and room for four packets. Measured by VmRSS with
/// 10,000 to 50,000 flows of one small packet each: 1,230 to 1,900 bytes.
const OWN_COST: usize = 4 * size_of::<Pending>();
/// When the node is first asked whether the mark is right, and after how long at least once more: the intervals double.
const FIRST_DOUBT: Duration = Duration::from_millis(50);
const NEXT_DOUBT: Duration = Duration::from_secs(1);
/// First wait for a node's word; doubles at each attempt.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// Attempts before it counts that a node does not answer: 10 + 20 + 40 + 80 + 160 + 320 ms.
const ATTEMPTS: u32 = 6;
/// Likewise, if nothing has been heard of it for long: 10 + 20 + 40 + 80 + 160 ms.
const ATTEMPTS_IF_DEAD: u32 = 5;
/// A request that has come back so often may be what makes servers go away: if there is no response the next time, its
/// client is to know.
pub const TRIES: u8 = 3;
/// After this time a client is about to send its data again, and nothing else: Linux has no retransmission time-out below
/// 200 ms. What it takes for the round trip decides how long it waits the next time that something is lost.
const STALLED: Duration = Duration::from_millis(150);
/// So long a node that lives is asked for what it does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest wait between two questions whether a response is complete.
const BUSY_MAX: Duration = Duration::from_millis(100);

/// What a flow waits for.
#[derive(Clone, Debug)]
pub enum Phase {
    /// The rest of a head, or what is missing before the data that is held.
    Assembling,
    /// A node to say that it has the flow, or all that they do not.
    Seeking(Question),
    /// RELEASED from the old node.
    Releasing,
    /// ADOPTED from the new node.
    Adopting,
    /// CONFIRMED: the node has what has been acknowledged to the client.
    Delivering,
    /// OWNED: what comes at the mark only the node knows.
    Asking,
    /// Room at the node that has its session, or else at any.
    Crowded,
    /// Nothing: no longer pending.
    Done,
}

/// A packet of the client, by where its data begins and when it came.
#[derive(Clone, Copy, Debug)]
struct Repeated {
    seq: u32,
    at: Duration,
}

impl PartialEq for Phase {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// How far a node has come with what it sends: a client takes no word of the switch that seems older.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// Its next sequence number.
    seq: u32,
    /// Its next TSval, in milliseconds, and when it said so.
    clock: Option<u32>,
    at: Duration,
}

/// The request that the held data begins with.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// So many bytes from its beginning on have been read, unless it begins a tunnel.
    pub read: u16,
    /// The nodes that it may go to: a pool at the flow's VIP.
    pub group: usize,
    /// Who is to have it, where this machine is one of the nodes.
    pub side: Option<Side>,
    /// What the pool's policy goes by, if that is something of the request.
    pub key: Option<u64>,
    /// Whose it is.
    pub service: usize,
    /// The client wants the connection to end with it.
    pub last: bool,
    /// It does no harm to make it twice.
    pub repeatable: bool,
    /// The flow's entry when the node that it has now gets the request.
    pub after: sb_flow_entry,
    /// The session that it belongs to, if it names one.
    pub session: Option<Session>,
    /// The node that has the client's TLS session, if it can serve.
    pub wanted: Option<NodeId>,
    /// Its cookies that only look as if they named one.
    pub cookies_ignored: u16,
}

impl Request {
    /// One of which nothing is known but where it goes.
    pub fn new(group: usize, service: usize, after: sb_flow_entry) -> Self {
        Request {
            read: 0,
            group,
            side: None,
            key: None,
            service,
            last: false,
            repeatable: false,
            after,
            session: None,
            wanted: None,
            cookies_ignored: 0,
        }
    }

    /// What its node can do if the server goes away. `again`: the client can be left to send the request once more.
    pub fn recovery(&self, again: bool) -> Recovery {
        let is_last = self.last || self.after.mode != sb_mode::SB_MODE_REQUESTS as u8;
        Recovery { last: is_last, again: self.repeatable && again }
    }
}

/// One flow's request in progress.
#[derive(Debug)]
pub struct Pending {
    /// What the flow map has, or will have when the output is done.
    pub entry: sb_flow_entry,
    /// What it waits for.
    pub phase: Phase,
    /// When it has waited long enough.
    pub due: Duration,
    /// Packets from the mark on that are not part of the request in progress.
    pub held: Held,
    /// Packets of the request in progress.
    pub sent: Held,
    /// The request in progress.
    pub request: Request,
    /// The node that the policy has chosen already.
    pub choice: Option<NodeId>,
    /// The node to which the one that is asked may pass it on.
    pub second: Option<NodeId>,
    /// Nodes that could not take it.
    pub tried: Vec<NodeId>,
    /// The request in progress has been given to the node that the flow has, which may have done it.
    pub was_given: bool,
    /// It has waited for a node with room.
    pub has_waited: bool,
    /// The node that was asked for it has passed it on to this one.
    pub passed_on: bool,
    /// No request: a node has given the flow to another one, and no third can have it.
    pub is_move: bool,
    /// The node for whose room it waits; None if any will do.
    pub waits_for: Option<NodeId>,
    /// Set when the switch answers itself as soon as no node speaks on the flow.
    pub reply: Option<Reply>,
    /// The node is to give the flow up although its request is not complete.
    pub abort: bool,
    /// The last node that could not take it has a kernel that would not, rather than no room.
    pub failed: bool,
    /// Sequence number of the client's FIN, if it has come.
    pub fin: Option<u32>,
    /// What the client has acknowledged last.
    pub last_ack: u32,
    /// What the client has sent last of the first byte that waits, or of earlier ones.
    repeated: Repeated,
    /// The flow's node has said that a response is not complete.
    unfinished: bool,
    /// The timestamps that a packet to it must have: TSval, TSecr.
    last_timestamps: Option<(u32, u32)>,
    /// What the switch has acknowledged: up to here the client does not send again.
    pub acknowledged: Option<u32>,
    /// What the flow's node has said of itself last.
    heard: Option<Heard>,
    /// What has to come before the data at the mark is read again.
    pub missing: Option<Missing>,
    /// The entry before the request in progress.
    start: sb_flow_entry,
    /// Since when the request in progress has been waiting.
    born: Duration,
    /// When it came: with its first packet, or when the one before it was done.
    came: Duration,
    /// The mark at which something is missing, and since when.
    missing_since: Option<(u32, Duration)>,
    attempts: u32,
    /// Since when the node has been asked, or has not answered.
    asking: Duration,
}

impl Pending {
    /// A flow with nothing held.
    pub fn new(entry: sb_flow_entry, now: Duration) -> Self {
        Pending {
            entry,
            phase: Phase::Assembling,
            due: now,
            held: Held::default(),
            sent: Held::default(),
            request: Request::new(0, 0, entry),
            choice: None,
            second: None,
            tried: Vec::new(),
            was_given: false,
            has_waited: false,
            passed_on: false,
            is_move: false,
            waits_for: None,
            reply: None,
            abort: false,
            failed: false,
            fin: None,
            last_ack: 0,
            repeated: Repeated { seq: entry.next, at: now },
            unfinished: false,
            last_timestamps: None,
            acknowledged: None,
            heard: None,
            missing: None,
            start: entry,
            born: now,
            came: now,
            missing_since: None,
            attempts: 0,
            asking: now,
        }
    }

    /// Memory that it takes, in bytes.
    pub fn cost(&self) -> usize {
        OWN_COST + self.held.bytes() + self.sent.bytes()
    }

    /// A node has the flow.
    pub fn has_node(&self) -> bool {
        !is_held(&self.entry)
    }

    /// Another process may have given its first request to a node.
    pub fn is_sought(&self) -> bool {
        self.entry.mode == sb_mode::SB_MODE_SOUGHT as u8
    }

    /// What the node of the request in progress can do if the server goes away.
    pub fn recovery(&self) -> Recovery {
        let alone = self.sent.only().is_some() && self.acknowledged.is_none();
        self.request.recovery(alone && self.request.after.tries < TRIES)
    }

    /// A node has been asked something, and has not answered.
    pub fn waits_for_node(&self) -> bool {
        matches!(self.phase, Phase::Releasing | Phase::Adopting | Phase::Delivering | Phase::Asking)
    }

    /// There is nothing that the node is to be asked for: neither a request nor an answer of the switch.
    pub fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.reply.is_none()
    }

    /// The flow stays with its node whatever comes.
    pub fn is_tunnel(&self) -> bool {
        self.entry.mode == sb_mode::SB_MODE_TUNNEL as u8
    }

    /// Whether it will be one, the server decides.
    pub fn is_upgrading(&self) -> bool {
        self.entry.mode == sb_mode::SB_MODE_UPGRADING as u8
    }

    /// A packet of the client: what is new in it is held.
    pub fn hold(&mut self, packet: &HeldPacket) {
        if self.held.is_empty() && self.sent.is_empty() || before(self.last_ack, packet.view.ack) {
            self.last_ack = packet.view.ack;
        }
        self.last_timestamps = timestamps(&packet.bytes, &packet.view).map(|(value, echo)| (echo, value));
        if packet.view.flags & flags::FIN != 0 {
            self.fin = Some(packet.end());
        }
        let after = self.request.after.next;
        if !self.sent.is_empty() && before(self.entry.next, after) {
            // The request in progress has no node yet; a part of it may still be missing.
            self.sent.insert_part(packet, self.entry.next, after);
            self.held.insert(packet, after);
        } else {
            self.held.insert(packet, self.entry.next);
        }
    }

    /// Notes what the client sends again.
    pub fn note_repetition(&mut self, view: &TcpView, now: Duration) {
        if !view.is_empty() && !before(self.first_waiting(), view.seq) {
            self.repeated = Repeated { seq: view.seq, at: now };
        }
    }

    /// Where what waits for a node begins.
    fn first_waiting(&self) -> u32 {
        if self.sent.is_empty() { self.entry.next } else { self.start.next }
    }

    /// Whether another node can go on where the one that was asked has fallen silent: nobody may have spoken on the flow
    /// that the client has not heard, nor be about to. The client has to say so itself, by sending again what waits, when
    /// the node was silent already.
    pub fn can_be_taken_over(&self, was_silent: impl Fn(Duration) -> bool) -> bool {
        if self.is_idle() {
            return true;
        }
        let answered = self.sent.first().is_some_and(|packet| before(packet.view.ack, self.last_ack));
        let begun = if self.phase == Phase::Adopting { answered } else { self.unfinished };
        let repeats = self.repeated.seq == self.first_waiting() && was_silent(self.repeated.at);
        self.acknowledged.is_none() && repeats && !begun
    }

    /// The client does not get on, because a part of its request has been held for too long. After a time-out TCP sends
    /// nothing but its first segment until that is acknowledged (RFC 5681 section 3.1: the window is one segment).
    pub fn is_stalled(&self, now: Duration) -> bool {
        let since = match self.phase {
            Phase::Assembling if mark::in_body(&self.entry) => return false,
            Phase::Assembling => self.missing_since.map_or(self.born, |(_, since)| since),
            Phase::Releasing | Phase::Crowded => self.born,
            _ => return false,
        };
        self.acknowledged.is_some() || now >= since + STALLED
    }

    /// Acknowledges the request in progress, or the beginning of a head, as far as it is here without a gap. From then
    /// on only the switch has it. The packet that says so.
    pub fn acknowledge(&mut self, flow: &sb_flow, now: Duration) -> Option<Vec<u8>> {
        let first = self.sent.first().or_else(|| self.held.first())?;
        if first.view.seq != self.entry.next {
            return None;
        }
        let stretch = if self.sent.is_empty() { &self.held } else { &self.sent };
        let end = stretch.stream_end(self.entry.next);
        self.acknowledged = Some(end);
        Some(self.say(flow, end, &[], now))
    }

    /// The client is not to send more than the node can take that gets it all: what lies beyond a receiver's window it
    /// drops, and with it the acknowledgments in it. A node's window is a multiple of the scale's unit, and counts from
    /// where the node is.
    fn say(&self, flow: &sb_flow, ack: u32, blocks: &[(u32, u32)], now: Duration) -> Vec<u8> {
        let scale = self.entry.wscale & 15;
        let room = self.entry.next.wrapping_add(SB_WINDOW >> scale << scale).wrapping_sub(ack) as i32;
        let window = (room.max(0) as u32) >> scale;
        let (mut seq, mut times) = (self.last_ack, self.last_timestamps);
        if let Some(heard) = self.heard {
            seq = if before(seq, heard.seq) { heard.seq } else { seq };
            let since = now.saturating_sub(heard.at).as_millis() as u32;
            let clock = heard.clock.map(|clock| clock.wrapping_add(since));
            times = times.map(|(own, theirs)| (clock.unwrap_or(own), theirs));
        }
        acknowledgment(flow, (seq, ack), times, window as u16, blocks)
    }

    /// The flow's node says how far it has come: its next sequence number, and its next TSval.
    pub fn hear(&mut self, seq: u32, clock: Option<u32>, now: Duration) {
        self.heard = Some(Heard { seq, clock, at: now });
    }

    /// What to acknowledge and the stretches beyond a gap after it, if there is one and the client could make something
    /// of a report.
    fn gap(&self, arrived: u32) -> Option<(u32, Vec<(u32, u32)>)> {
        let ack = self.acknowledged.unwrap_or(arrived);
        let stretches = self.held.beyond_gap(ack);
        let understood = u32::from(self.entry.options) & SB_SYN_SACK != 0;
        (understood && !stretches.is_empty()).then_some((ack, stretches))
    }

    /// Whether there is a gap behind the mark to be reported.
    pub fn has_gap(&self) -> bool {
        self.gap(self.entry.next).is_some()
    }

    /// Tells the client what has come beyond a gap, so that it fills the gap at once and not after a time-out. It
    /// acknowledges only what has arrived at the node, which is all up to `arrived`, or what has been acknowledged
    /// before. None if there is no gap, or the client could make nothing of it.
    pub fn report_gap(&self, flow: &sb_flow, arrived: u32, now: Duration) -> Option<Vec<u8>> {
        let (ack, stretches) = self.gap(arrived)?;
        Some(self.say(flow, ack, &stretches, now))
    }

    /// How much has been read of a packet of the request in progress.
    pub fn reading(&self, packet: &HeldPacket, recovery: Recovery) -> Reading {
        match packet.view.seq {
            seq if seq == self.start.next => Reading::Request { head: self.request.read, recovery },
            seq if before(seq, self.read_end()) => Reading::More { skip: 0 },
            _ => Reading::None,
        }
    }

    fn read_end(&self) -> u32 {
        self.start.next.wrapping_add(self.request.read.into())
    }

    /// The node has to say that it has the request in progress up to here. What the switch has acknowledged, its client does not
    /// send again; and where it sends only a part again of what was read, nobody can read that by itself.
    pub fn deliver_until(&self) -> Option<u32> {
        let read = self.read_end();
        let several = self.sent.first().is_some_and(|packet| before(packet.end(), read));
        match self.acknowledged {
            Some(acknowledged) if !before(acknowledged, read) => Some(acknowledged),
            acknowledged => (several || acknowledged.is_some()).then_some(read),
        }
    }

    /// What is being delivered.
    pub fn in_delivery(&self) -> Option<(u32, u32)> {
        let end = self.deliver_until().filter(|_| self.phase == Phase::Delivering)?;
        Some((self.start.next, end))
    }

    /// The entry before the request in progress.
    pub fn start(&self) -> sb_flow_entry {
        self.start
    }

    /// What of the request in progress may be nowhere but here.
    pub fn undelivered(&self) -> Vec<HeldPacket> {
        self.deliver_until().map_or(Vec::new(), |end| self.sent.until(end))
    }

    /// The client's next sequence number, as far as it is known here.
    pub fn expected(&self) -> u32 {
        self.held.stream_end(self.sent.stream_end(self.entry.next))
    }

    /// A request begins at the mark. An empty line is none yet (RFC 9112 section 2.2), and what lies beyond a gap anybody
    /// may have sent.
    pub fn has_beginning(&self) -> bool {
        !b"\r\n".starts_with(&self.held.stream(self.entry.next)[..])
    }

    /// Makes room for a packet that brings what is missing, if it does so, by forgetting the data that is farthest
    /// beyond the gap; false if there is nothing to forget.
    pub fn make_room(&mut self, packet: &TcpView) -> bool {
        let expected = self.expected();
        let end = packet.end_seq();
        let brings = !before(expected, packet.seq) && before(expected, end);
        brings && (self.held.forget_last(expected) || self.sent.forget_last(expected))
    }

    /// The client has closed, and nothing is missing before its FIN.
    pub fn is_all(&self, data: &[u8]) -> bool {
        self.fin == Some(self.entry.next.wrapping_add(data.len() as u32))
    }

    /// Something is missing at the mark. The time that it may take begins with the first packet; true when that was
    /// the first.
    pub fn wait_for_data(&mut self, now: Duration, timeout: Duration) -> bool {
        self.phase = Phase::Assembling;
        let first = self.missing_since.is_none_or(|(mark, _)| mark != self.entry.next);
        if first {
            self.missing_since = Some((self.entry.next, now));
            self.due = now + if self.doubts_mark() { FIRST_DOUBT } else { STALLED };
            self.due = self.due.min(now + timeout);
        }
        first
    }

    /// Since when something of the client's has been missing.
    pub fn waits_since(&self) -> Option<Duration> {
        let (_, since) = self.missing_since?;
        (self.phase == Phase::Assembling).then_some(since)
    }

    /// Whether to ask the node where the next request begins. Without an answer a mark that has moved on behind our
    /// back, because the program forwarded packets meanwhile, would look like data that does not arrive.
    pub fn doubts_mark(&self) -> bool {
        self.has_node()
    }

    /// Sets the time at which to look again for what is missing.
    pub fn look_again(&mut self, now: Duration, timeout: Duration) {
        let since = self.missing_since.map_or(now, |(_, since)| since);
        let doubt =
            now + if self.doubts_mark() { NEXT_DOUBT.max(now.saturating_sub(since)) } else { timeout };
        let stalled = if now < since + STALLED { since + STALLED } else { since + timeout };
        self.due = doubt.min(stalled).min(since + timeout);
    }

    /// The data at the mark has been missing for too long.
    pub fn is_too_slow(&self, now: Duration, timeout: Duration) -> bool {
        self.missing_since.is_none_or(|(_, since)| now >= since + timeout)
    }

    /// The mark has been moved by the program.
    pub fn catch_up(&mut self, entry: &sb_flow_entry) {
        let moves =
            matches!(self.phase, Phase::Assembling | Phase::Adopting | Phase::Delivering | Phase::Asking);
        if moves && entry.node == self.entry.node && mark::is_newer(entry, &self.entry) {
            self.entry = *entry;
            self.held.take_until(entry.next);
            self.missing = None;
        }
    }

    /// The held data begins with this request.
    pub fn begin(&mut self, request: Request, now: Duration) {
        self.request = request;
        self.born = now;
        self.start = self.entry;
        self.tried.clear();
        self.has_waited = false;
        self.passed_on = false;
        self.missing = None;
        let packets = if request.after.mode == sb_mode::SB_MODE_TUNNEL as u8 {
            self.held.take_all()
        } else {
            self.held.take_until(request.after.next)
        };
        self.sent = Held::of(packets);
    }

    /// The mark moves behind the request in progress.
    pub fn enter_request(&mut self) {
        self.entry = self.request.after;
    }

    /// Likewise, at a new node, for which it is the first.
    pub fn enter_request_at(&mut self, node: NodeId) {
        let heads = self.request.after.heads & 1;
        self.request.after = sb_flow_entry { node, requests: 1, heads, ..self.request.after };
        self.enter_request();
    }

    /// The request in progress is to be read once more.
    pub fn take_back_request(&mut self) {
        for packet in self.sent.take_all() {
            self.held.insert(&packet, self.entry.next);
        }
        self.was_given = false;
        self.missing = None;
    }

    /// The request in progress has no node again.
    pub fn leave_request(&mut self) {
        self.passed_on = false;
        self.entry = sb_flow_entry { mode: sb_mode::SB_MODE_HELD as u8, ..self.start };
    }

    /// The node has refused data, because its mark is this one; false if that changes nothing. What is being delivered stays here
    /// while what comes before it may still be on its way: where the node takes a part of it, nobody else could go on.
    pub fn go_back(&mut self, mark: &sb_flow_entry) -> bool {
        let is_other = match self.phase {
            Phase::Assembling | Phase::Releasing | Phase::Asking => before(mark.next, self.entry.next),
            Phase::Delivering => {
                self.was_resent() && ![self.start.next, self.request.after.next].contains(&mark.next)
            }
            _ => false,
        };
        if !is_other || !mark::is_of_same(&self.entry, mark) {
            return false;
        }
        self.entry = mark::at(&self.entry, mark);
        self.missing_since = None;
        self.take_back_request();
        self.reply = None;
        self.abort = false;
        self.phase = Phase::Assembling;
        true
    }

    /// The request in progress is the node's.
    pub fn finish_request(&mut self, now: Duration) {
        self.came = now;
        self.sent = Held::default();
        self.tried.clear();
        self.failed = false;
        self.was_given = false;
        self.acknowledged = None;
        self.phase = Phase::Assembling;
    }

    /// Whether the request in progress begins there.
    pub fn is_beginning(&self, seq: u32) -> bool {
        seq == self.start.next
    }

    /// Sequence number of the packet that the node was last asked with.
    pub fn asked_at(&self) -> u32 {
        match self.phase {
            Phase::Adopting => self.start.next,
            Phase::Assembling if mark::is_passing(&self.entry) => mark::due(&self.entry),
            Phase::Delivering => self.undelivered().last().map_or(self.entry.next, |packet| packet.view.seq),
            _ => self.entry.next,
        }
    }

    /// Waits for a node's word.
    pub fn wait(&mut self, now: Duration, phase: Phase) {
        self.phase = phase;
        self.unfinished = false;
        self.asking = now;
        self.attempts = 1;
        self.due = now + FIRST_WAIT;
    }

    /// Whether to ask the node once more; sets the next deadline. A node of which nothing is heard anyway is not asked
    /// for so long.
    pub fn try_again(&mut self, now: Duration, dead: bool) -> bool {
        self.due = now + FIRST_WAIT * (1 << self.attempts.min(8));
        self.attempts += 1;
        self.attempts <= if dead { ATTEMPTS_IF_DEAD } else { ATTEMPTS }
    }

    /// The node has not answered, and seems to live; false if it has been asked for too long.
    pub fn try_on(&mut self, now: Duration) -> bool {
        self.due = now + BUSY_MAX;
        now.saturating_sub(self.asking) < PATIENCE
    }

    /// What is waited for has been asked for more than once.
    pub fn was_resent(&self) -> bool {
        self.attempts > 1
    }

    /// The node lives but its response is not complete: asks again after a while, as often as it takes.
    pub fn wait_longer(&mut self, now: Duration) {
        let waited = now.saturating_sub(self.born);
        self.unfinished = true;
        self.asking = now;
        self.attempts = 1;
        self.due = now + (waited / 4).clamp(Duration::from_millis(1), BUSY_MAX);
    }

    /// Since when the request in progress has been waiting.
    pub fn born(&self) -> Duration {
        self.born
    }

    /// When the request in progress came.
    pub fn came(&self) -> Duration {
        self.came
    }

    /// The request has waited for a node for too long.
    pub fn is_too_old(&self, now: Duration, timeout: Duration) -> bool {
        now.saturating_sub(self.born) > timeout
    }

    /// A packet without data at the mark, with the numbers of the first packet behind it if there is one: what a node is
    /// asked with that does not need the request.
    pub fn question(&self, flow: &sb_flow) -> Option<(TcpView, Vec<u8>)> {
        let packet = self.sent.first().or_else(|| self.held.first());
        let numbers = (self.entry.next, self.last_ack);
        let times = packet.and_then(|packet| timestamps(&packet.bytes, &packet.view));
        let bytes = segment(flow, true, numbers, flags::ACK, times, &[]);
        Some((TcpView::parse(&bytes)?, bytes))
    }

    /// The last owner is silent for ever: the next one goes on from what the client has said last.
    pub fn go_on_from_client(&mut self) {
        self.go_on_from(self.last_ack, self.last_timestamps.map(|(own, _)| own));
    }

    /// The last owner has sent up to `ack` and its clock stood at `echo`: the next one goes on from there.
    pub fn go_on_from(&mut self, ack: u32, echo: Option<u32>) {
        for packet in self.sent.iter_mut().chain(self.held.iter_mut()) {
            bring_up_to_date(&mut packet.bytes, &mut packet.view, ack, echo);
        }
    }

    /// Answers, and with it acknowledges, all the data that is there without a gap. None of it is held any more.
    pub fn make_answer(&mut self, reply: &Reply, now: Duration) -> Option<Answer> {
        let start = self.entry.next;
        for packet in self.sent.take_all() {
            self.held.insert(&packet, start);
        }
        let rcv_nxt = self.held.stream_end(start);
        let packets = self.held.take_all();
        let HeldPacket { bytes, view } = packets.first()?;
        let head = self.request.after.heads & 1 == 1 && !mark::in_body(&self.entry);
        let closed = self.fin == Some(rcv_nxt);
        Some(Answer::new(reply, head, bytes, view, (rcv_nxt, closed), self.entry.mss, now))
    }
}
