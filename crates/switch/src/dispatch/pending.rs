//! Flows whose request waits for something.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use switchback_wire::packet::{TcpView, bring_up_to_date, flags, segment, timestamps};
use switchback_wire::{sb_flow, sb_flow_entry, sb_mode};

use super::answer::Answer;
use super::held::{Held, HeldPacket, before};
use crate::plan::NodeId;

/// Held bytes of one flow: a head of the greatest length in small packets.
pub const HELD_MAX: usize = 64 << 10;
/// Held bytes of all flows.
pub const HELD_TOTAL_MAX: usize = 64 << 20;
/// How long an incomplete head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer of the switch is repeated on demand.
pub const LINGER: Duration = Duration::from_secs(5);
/// When the node is first asked whether the mark is right, and then how often.
const FIRST_DOUBT: Duration = Duration::from_millis(50);
const NEXT_DOUBT: Duration = Duration::from_secs(1);
/// First wait for a node's word; doubles at each attempt.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// Attempts before a silent node is taken for dead: 10 + 20 + 40 + 80 + 160 + 320 ms.
const ATTEMPTS: u32 = 6;
/// The longest wait between two questions whether a response is complete.
const BUSY_MAX: Duration = Duration::from_millis(100);
/// How long a request waits for a node that can take it.
const CROWDED_MAX: Duration = Duration::from_secs(3);

/// What a flow waits for.
#[derive(Clone, Debug)]
pub enum Phase {
    /// The rest of a head, or what is missing before it.
    Assembling,
    /// RELEASED from the old node.
    Releasing,
    /// ADOPTED from the new node.
    Adopting,
    /// Any node that can take it.
    Crowded,
    /// The client to see the switch's answer.
    Answered(Answer),
    /// Nothing: no longer pending.
    Done,
}

impl PartialEq for Phase {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
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
    pub sent: Vec<HeldPacket>,
    /// Where the request in progress goes.
    pub pool: usize,
    /// Whose it is.
    pub service: usize,
    /// Nodes that could not take it.
    pub tried: Vec<NodeId>,
    /// Set when the switch answers itself as soon as no node speaks on the flow.
    pub answer_with: Option<u16>,
    start: u32,
    end: u32,
    tunnel: bool,
    born: Duration,
    /// The mark at which a head is incomplete, and since when.
    head_since: Option<(u32, Duration)>,
    /// The node has said that the mark is right.
    confirmed: bool,
    attempts: u32,
    timer: u64,
}

impl Pending {
    /// A flow with nothing held.
    pub fn new(entry: sb_flow_entry, now: Duration) -> Self {
        Pending {
            entry,
            phase: Phase::Assembling,
            due: now + HEAD_TIMEOUT,
            held: Held::default(),
            sent: Vec::new(),
            pool: 0,
            service: 0,
            tried: Vec::new(),
            answer_with: None,
            start: entry.next,
            end: entry.next,
            tunnel: false,
            born: now,
            head_since: None,
            confirmed: false,
            attempts: 0,
            timer: 0,
        }
    }

    /// A node has the flow.
    pub fn has_node(&self) -> bool {
        self.entry.mode != sb_mode::SB_MODE_HELD as u8
    }

    /// The flow stays with its node whatever comes.
    pub fn is_tunnel(&self) -> bool {
        self.entry.mode == sb_mode::SB_MODE_TUNNEL as u8
    }

    /// The head at the mark is not complete. The time that it may take begins with its first packet; true when that
    /// was the first.
    pub fn wait_for_head(&mut self, now: Duration) -> bool {
        self.phase = Phase::Assembling;
        let first = self.head_since.is_none_or(|(mark, _)| mark != self.entry.next);
        if first {
            self.head_since = Some((self.entry.next, now));
            self.confirmed = !self.has_node();
            self.due = now + if self.confirmed { HEAD_TIMEOUT } else { FIRST_DOUBT };
        }
        first
    }

    /// Whether to ask the node where the next request begins. Without an answer a mark that has moved on behind our
    /// back, because the program forwarded requests meanwhile, would look like a head that does not arrive.
    pub fn doubts_mark(&mut self, now: Duration) -> bool {
        self.due = now + NEXT_DOUBT;
        !self.confirmed
    }

    /// The head has been incomplete for too long.
    pub fn is_too_slow(&self, now: Duration) -> bool {
        self.head_since.is_none_or(|(_, since)| now >= since + HEAD_TIMEOUT)
    }

    /// The node says, or the program has written, where the next request begins.
    pub fn correct_mark(&mut self, next: u32) {
        if before(self.entry.next, next) {
            self.entry.next = next;
            self.held.take_until(next);
        } else {
            self.confirmed = true;
            self.due = self.head_since.map_or(self.due, |(_, since)| since + HEAD_TIMEOUT);
        }
    }

    /// The held data begins with a request that ends before `end`.
    pub fn begin(&mut self, pool: usize, service: usize, end: u32, tunnel: bool) {
        self.pool = pool;
        self.service = service;
        self.start = self.entry.next;
        self.end = end;
        self.tunnel = tunnel;
        self.tried.clear();
        let taken_until = if tunnel { end.wrapping_add(1 << 30) } else { end };
        self.sent = self.held.take_until(taken_until);
    }

    /// The mark moves behind the request in progress.
    pub fn enter_request(&mut self) {
        self.entry.next = self.end;
        self.entry.mode = if self.tunnel { sb_mode::SB_MODE_TUNNEL } else { sb_mode::SB_MODE_REQUESTS } as u8;
    }

    /// Likewise, at a new node.
    pub fn enter_request_at(&mut self, node: NodeId) {
        self.entry.node = node;
        self.enter_request();
    }

    /// Data before this sequence number is the node's or in `sent`.
    pub fn held_from(&self) -> u32 {
        if self.sent.is_empty() { self.entry.next } else { self.end }
    }

    /// Sequence number of the packet that the node was last asked with.
    pub fn asked_at(&self) -> u32 {
        if self.phase == Phase::Adopting { self.start } else { self.entry.next }
    }

    /// The request in progress has no node again.
    pub fn leave_request(&mut self) {
        self.entry.next = self.start;
        self.entry.mode = sb_mode::SB_MODE_HELD as u8;
    }

    /// The request in progress is the node's.
    pub fn finish_request(&mut self) {
        self.sent.clear();
        self.tried.clear();
        self.phase = Phase::Assembling;
    }

    /// Waits for a node's word.
    pub fn wait(&mut self, now: Duration, phase: Phase) {
        self.phase = phase;
        self.attempts = 1;
        self.due = now + FIRST_WAIT;
    }

    /// Whether to ask the node once more; sets the next deadline.
    pub fn try_again(&mut self, now: Duration) -> bool {
        self.due = now + FIRST_WAIT * (1 << self.attempts.min(8));
        self.attempts += 1;
        self.attempts <= ATTEMPTS
    }

    /// The node lives but its response is not complete: asks again after a while, as often as it takes.
    pub fn wait_longer(&mut self, now: Duration) {
        let waited = now.saturating_sub(self.born);
        self.attempts = 1;
        self.due = now + (waited / 4).clamp(Duration::from_millis(1), BUSY_MAX);
    }

    /// The request has waited for a node for too long.
    pub fn is_too_old(&self, now: Duration) -> bool {
        now.saturating_sub(self.born) > CROWDED_MAX
    }

    /// A packet without data at the mark, with the numbers of the first packet behind it: what a node is asked with
    /// that does not need the request.
    pub fn question(&self, flow: &sb_flow) -> Option<(TcpView, Vec<u8>)> {
        let packet = self.sent.first().or_else(|| self.held.first())?;
        let numbers = (self.entry.next, packet.view.ack);
        let times = timestamps(&packet.bytes, &packet.view);
        let bytes = segment(flow, true, numbers, flags::ACK, times, &[]);
        Some((TcpView::parse(&bytes)?, bytes))
    }

    /// The last owner has sent up to `ack` and its clock stood at `echo`: the next one goes on from there.
    pub fn go_on_from(&mut self, ack: u32, echo: Option<u32>) {
        for packet in self.sent.iter_mut().chain(self.held.iter_mut()) {
            bring_up_to_date(&mut packet.bytes, &mut packet.view, ack, echo);
        }
    }

    /// All packets, in order.
    pub fn take_all(&mut self) -> Vec<HeldPacket> {
        let mut all = std::mem::take(&mut self.sent);
        all.extend(self.held.take_until(self.end.wrapping_add(1 << 30)));
        all
    }

    /// Answers, and with it acknowledges, all the data that is there without a gap.
    pub fn make_answer(&mut self, status: u16) -> Option<Answer> {
        let start = self.entry.next;
        for packet in std::mem::take(&mut self.sent) {
            self.held.insert(&packet, start);
        }
        let received = self.held.stream(start).len() as u32;
        let first = self.held.first()?;
        Some(Answer::new(status, &first.bytes, &first.view, start.wrapping_add(received)))
    }
}

/// All pending flows, with their deadlines in order.
#[derive(Debug, Default)]
pub struct PendingFlows {
    flows: HashMap<sb_flow, Pending>,
    timers: BTreeMap<(Duration, u64), sb_flow>,
    last_timer: u64,
    held: usize,
}

impl PendingFlows {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Memory of all held packets.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// The next deadline.
    pub fn deadline(&self) -> Option<Duration> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    /// Adds a flow.
    pub fn put(&mut self, flow: sb_flow, mut pending: Pending) {
        self.last_timer += 1;
        pending.timer = self.last_timer;
        self.held += pending.held.bytes();
        self.timers.insert((pending.due, pending.timer), flow);
        self.flows.insert(flow, pending);
    }

    /// Takes a flow out.
    pub fn take(&mut self, flow: &sb_flow) -> Option<Pending> {
        let pending = self.flows.remove(flow)?;
        self.timers.remove(&(pending.due, pending.timer));
        self.held -= pending.held.bytes();
        Some(pending)
    }

    /// Takes out a flow whose deadline has come.
    pub fn take_due(&mut self, now: Duration) -> Option<(sb_flow, Pending)> {
        let ((due, _), flow) = self.timers.first_key_value()?;
        if *due > now {
            return None;
        }
        let flow = *flow;
        Some((flow, self.take(&flow)?))
    }
}
