//! The client's side of a flow that waits for something: what it has sent beyond the mark, and what it was told.

use std::time::Duration;

use switchback_wire::packet::{TcpView, acknowledgment, bring_up_to_date, flags, segment, timestamps};
use switchback_wire::{SB_WINDOW, Seq, sb_flow};

use crate::NodeId;
use crate::answer::{Answer, Reply};
use crate::entry::{Entry, Mode};
use crate::held::{Held, HeldPacket};
use crate::mark::Mark;

/// After this time a client is about to retransmit, and to send nothing else: Linux has no retransmission time-out below
/// 200 ms. The time until its data is acknowledged becomes the time-out of its next loss.
pub const STALLED: Duration = Duration::from_millis(150);

/// The latest packet that the client has sent of the first byte that waits, or of earlier ones.
#[derive(Clone, Copy, Debug)]
struct Repetition {
    seq: Seq,
    at: Duration,
}

/// After this time without an answer a node is asked once more to keep something.
const KEEP_AGAIN: Duration = Duration::from_millis(50);

/// The data from a mark on that a node keeps, so that another switch can have it.
#[derive(Clone, Copy, Debug)]
struct Kept {
    node: NodeId,
    mark: Seq,
    /// Where it ends.
    end: Seq,
    /// Up to here the node was asked to keep data, and when.
    asked: Seq,
    at: Duration,
}

/// How far a node has come with what it sends. A client ignores packets of the switch that seem older.
#[derive(Clone, Copy, Debug)]
struct NodePosition {
    /// The next sequence number.
    seq: Seq,
    /// The next TSval, in milliseconds.
    clock: Option<u32>,
    /// When the node said so.
    at: Duration,
}

/// The client's side of a flow.
#[derive(Debug)]
pub struct Connection {
    /// The flow's entry in the map, once the output is written.
    pub entry: Entry,
    /// Packets from the mark on, without those of the request in progress.
    pub held: Held,
    /// Sequence number of the client's FIN.
    pub fin: Option<Seq>,
    /// The client's latest acknowledgment number.
    pub last_ack: Seq,
    /// Up to here the switch has acknowledged data, which the client does not send again.
    pub acknowledged: Option<Seq>,
    kept: Option<Kept>,
    /// Sequence number of a request that the flow's node was given before, and may have carried out.
    pub given: Option<Seq>,
    /// Since when the request at the mark has been waiting.
    pub born: Duration,
    /// When the request at the mark came: with its first packet, or when the one before it was done.
    pub came: Duration,
    repeated: Repetition,
    /// TSval and TSecr of packets to the client.
    last_timestamps: Option<(u32, u32)>,
    position: Option<NodePosition>,
}

impl Connection {
    /// A flow with nothing held.
    pub fn new(entry: Entry, now: Duration) -> Self {
        Connection {
            entry,
            held: Held::default(),
            fin: None,
            last_ack: Seq(0),
            acknowledged: None,
            kept: None,
            given: None,
            born: now,
            came: now,
            repeated: Repetition { seq: entry.mark.next, at: now },
            last_timestamps: None,
            position: None,
        }
    }

    /// A node has the flow.
    pub fn has_node(&self) -> bool {
        self.entry.has_node()
    }

    /// Another process may have given the first request to a node.
    pub fn is_sought(&self) -> bool {
        self.entry.mode == Mode::Sought
    }

    /// The node was given the request at the mark before.
    pub fn was_given(&self) -> bool {
        self.given == Some(self.entry.mark.next)
    }

    /// Holds what is new in a packet. `request` has the packets of the request in progress, and the mark behind it, if no
    /// node has it: parts of its body may be missing.
    pub fn hold(&mut self, packet: &HeldPacket, request: Option<(&mut Held, Seq)>) {
        let nothing_waits = self.held.is_empty() && request.is_none();
        if nothing_waits || self.last_ack.before(packet.view.ack) {
            self.last_ack = packet.view.ack;
        }
        self.last_timestamps = timestamps(&packet.bytes, &packet.view).map(|(value, echo)| (echo, value));
        if packet.view.flags & flags::FIN != 0 {
            self.fin = Some(packet.end());
        }
        match request {
            Some((packets, after)) if self.entry.mark.next.before(after) => {
                packets.insert_part(packet, self.entry.mark.next, after);
                self.held.insert(packet, after);
            }
            _ => self.held.insert(packet, self.entry.mark.next),
        }
    }

    /// Holds a packet that another switch has had a node keep. The client does not send it again.
    pub fn restore(&mut self, packet: &HeldPacket, request: Option<(&mut Held, Seq)>) {
        let times = self.last_timestamps;
        self.hold(packet, request);
        self.last_timestamps = times.or(self.last_timestamps);
        let end = packet.end();
        if self.entry.mark.next.before(end) {
            self.acknowledged = Some(self.acknowledged.map_or(end, |known| known.later(end)));
        }
    }

    /// Notes a retransmission of what comes up to `first_waiting`.
    pub fn note_repetition(&mut self, view: &TcpView, first_waiting: Seq, now: Duration) {
        if !view.is_empty() && !first_waiting.before(view.seq) {
            self.repeated = Repetition { seq: view.seq, at: now };
        }
    }

    /// The client has sent `seq` again when the node was silent already, and nothing that only the switch has is needed.
    pub fn repeats(&self, seq: Seq, was_silent: impl Fn(Duration) -> bool) -> bool {
        self.acknowledged.is_none() && self.repeated.seq == seq && was_silent(self.repeated.at)
    }

    /// The client has sent again what waits, and may send nothing else before that is acknowledged.
    pub fn is_repeating(&self) -> bool {
        self.acknowledged.is_some() || self.repeated.at > self.born
    }

    /// Takes the mark of a later entry of the same node, and what is held before it; None if the mark does not move.
    pub fn catch_up(&mut self, entry: &Entry) -> Option<Vec<HeldPacket>> {
        let is_same = (entry.node, entry.generation) == (self.entry.node, self.entry.generation);
        if !is_same || !entry.mark.is_newer(&self.entry.mark) {
            return None;
        }
        self.entry = *entry;
        Some(self.held.take_until(entry.mark.next))
    }

    /// The entry with the mark that its node says.
    pub fn entry_at(&self, said: &Entry) -> Entry {
        let mark = Mark { turn: self.entry.mark.turn, ..said.mark };
        Entry { mark, generation: self.entry.generation, ..*said }
    }

    /// Takes the server's decision about the protocol that the last request asks for; true if its node says so.
    pub fn take_decision(&mut self, said: &Entry) -> bool {
        let known = &self.entry.mark;
        let knows_all = (said.mark.requests, said.mark.next) == (known.requests, known.next);
        let is_decision = self.entry.is_upgrading() && knows_all && said.mode != self.entry.mode;
        if is_decision {
            self.entry.mode = said.mode;
        }
        is_decision
    }

    /// Forgets what a node has answered at another switch's order: all before `next`.
    pub fn skip_answered(&mut self, next: Seq) {
        self.entry.mark = self.entry.mark.moved_to(next);
        self.held.take_until(next);
        self.given = None;
        self.acknowledged = self.acknowledged.filter(|end| end.after(next));
    }

    /// Takes the mark that the node has, which lies before the entry's.
    pub fn go_back(&mut self, said: &Entry) {
        self.entry = self.entry.set_back_to(said);
        self.given = None;
    }

    /// The request in progress is its node's.
    pub fn finish_request(&mut self, now: Duration) {
        self.came = now;
        self.given = None;
        self.acknowledged = self.acknowledged.filter(|end| end.after(self.entry.mark.next));
    }

    /// The client has closed behind this data at the mark.
    pub fn ends_behind(&self, data: &[u8]) -> bool {
        self.fin == Some(self.entry.mark.next + data.len())
    }

    /// A request begins at the mark. An empty line is none yet (RFC 9112 section 2.2), and what lies beyond a gap anybody
    /// may have sent.
    pub fn has_beginning(&self) -> bool {
        !b"\r\n".starts_with(&self.held.stream(self.entry.mark.next)[..])
    }

    /// The request has been waiting for so long that the client is about to retransmit.
    pub fn is_stalled(&self, since: Duration, now: Duration) -> bool {
        self.acknowledged.is_some() || now >= since + STALLED
    }

    /// The packets without a gap from the mark on that `node` is now to be asked to keep.
    pub fn to_be_kept(&mut self, node: NodeId, now: Duration) -> Vec<HeldPacket> {
        let mark = self.entry.mark.next;
        let end = self.held.stream_end(mark);
        let is_its = |kept: &Kept| (kept.node, kept.mark) == (node, mark);
        let known = self.kept.filter(is_its);
        let kept = self.kept.insert(known.unwrap_or(Kept { node, mark, end: mark, asked: mark, at: now }));
        let is_waiting = kept.end.before(kept.asked) && now < kept.at + KEEP_AGAIN;
        if is_waiting || !kept.end.before(end) {
            return Vec::new();
        }
        (kept.asked, kept.at) = (end, now);
        let is_new = |packet: &&HeldPacket| kept.end.before(packet.end()) && !end.before(packet.end());
        self.held.iter().filter(is_new).cloned().collect()
    }

    /// A node keeps this part of the data at the mark; true if that is all it was asked to keep.
    pub fn note_kept(&mut self, node: NodeId, mark: Seq, (start, end): (Seq, Seq)) -> bool {
        let is_its = |kept: &&mut Kept| (kept.node, kept.mark) == (node, mark);
        let Some(kept) = self.kept.as_mut().filter(is_its) else { return false };
        if !kept.end.before(start) {
            kept.end = kept.end.later(end.earlier(kept.asked));
        }
        kept.end == kept.asked
    }

    /// A node keeps all that is held without a gap from the mark on.
    pub fn is_kept(&self) -> bool {
        let mark = self.entry.mark.next;
        let end = self.held.stream_end(mark);
        self.kept.is_some_and(|kept| kept.mark == mark && !kept.end.before(end))
    }

    /// Acknowledges the request in progress, or the beginning of a head, as far as it is here without a gap: from then on
    /// only the switch has it. The packet that says so.
    pub fn acknowledge(&mut self, flow: &sb_flow, request: Option<&Held>, now: Duration) -> Option<Vec<u8>> {
        let stretch = request.unwrap_or(&self.held);
        if stretch.first()?.view.seq != self.entry.mark.next {
            return None;
        }
        let end = stretch.stream_end(self.entry.mark.next);
        self.acknowledged = Some(end);
        Some(self.say(flow, end, &[], now))
    }

    /// The window allows no more than the node that gets the data can take: a receiver drops what lies beyond its window,
    /// and with it the acknowledgments in it. A node's window is a multiple of the scale's unit, and counts from the mark.
    fn say(&self, flow: &sb_flow, ack: Seq, blocks: &[(Seq, Seq)], now: Duration) -> Vec<u8> {
        let scale = self.entry.handshake.own_scale();
        let room = (self.entry.mark.next + (SB_WINDOW >> scale << scale)).offset_from(ack);
        let window = (room.max(0) as u32) >> scale;
        let (mut seq, mut times) = (self.last_ack, self.last_timestamps);
        if let Some(position) = self.position {
            seq = seq.later(position.seq);
            let since = now.saturating_sub(position.at).as_millis() as u32;
            let clock = position.clock.map(|clock| clock.wrapping_add(since));
            times = times.map(|(own, theirs)| (clock.unwrap_or(own), theirs));
        }
        acknowledgment(flow, (seq, ack), times, window as u16, blocks)
    }

    /// The flow's node says how far it has come: its next sequence number, and its next TSval.
    pub fn note_position(&mut self, seq: Seq, clock: Option<u32>, now: Duration) {
        self.position = Some(NodePosition { seq, clock, at: now });
    }

    /// What to acknowledge, and the stretches beyond a gap after it. None without a gap, or if the client does not
    /// understand selective acknowledgments.
    fn gap(&self, arrived: Seq) -> Option<(Seq, Vec<(Seq, Seq)>)> {
        let ack = self.acknowledged.unwrap_or(arrived);
        let stretches = self.held.beyond_gap(ack);
        let understood = self.entry.handshake.has_sack();
        (understood && !stretches.is_empty()).then_some((ack, stretches))
    }

    /// Data is held beyond what has not come.
    pub fn lacks_data(&self) -> bool {
        !self.held.beyond_gap(self.entry.mark.next).is_empty()
    }

    /// There is a gap behind the mark, to be reported.
    pub fn has_gap(&self) -> bool {
        self.gap(self.entry.mark.next).is_some()
    }

    /// A packet that reports what has come beyond a gap, so that the client fills the gap without a time-out. It
    /// acknowledges what has arrived at the node, up to `arrived`, or was acknowledged before.
    pub fn report_gap(&self, flow: &sb_flow, arrived: Seq, now: Duration) -> Option<Vec<u8>> {
        let (ack, stretches) = self.gap(arrived)?;
        Some(self.say(flow, ack, &stretches, now))
    }

    /// A packet without data at the mark, with the numbers of the first packet behind it: a question to a node that does
    /// not need the request.
    pub fn question(&self, flow: &sb_flow, request: Option<&Held>) -> Option<(TcpView, Vec<u8>)> {
        let packet = request.and_then(Held::first).or_else(|| self.held.first());
        let numbers = (self.entry.mark.next, self.last_ack);
        let times = packet.and_then(|packet| timestamps(&packet.bytes, &packet.view));
        let bytes = segment(flow, true, numbers, flags::ACK, times, &[]);
        Some((TcpView::parse(&bytes)?, bytes))
    }

    /// What the client has acknowledged and echoed: where a new owner goes on if the last one is silent for ever.
    pub fn last_heard(&self) -> (Seq, Option<u32>) {
        (self.last_ack, self.last_timestamps.map(|(own, _)| own))
    }

    /// The last owner has sent up to `ack`, and its clock stood at `echo`: what is held gets these numbers.
    pub fn bring_up_to_date(&mut self, ack: Seq, echo: Option<u32>) {
        for packet in self.held.iter_mut() {
            bring_up_to_date(&mut packet.bytes, &mut packet.view, ack, echo);
        }
    }

    /// Answers, and so acknowledges, all held data before a gap, and forgets the rest. `head`: the request was HEAD.
    pub fn make_answer(&mut self, reply: &Reply, head: bool, now: Duration) -> Option<Answer> {
        let rcv_nxt = self.held.stream_end(self.entry.mark.next);
        let packets = self.held.take_all();
        let HeldPacket { bytes, view } = packets.first()?;
        let head = head && !self.entry.mark.is_in_body();
        let closed = self.fin == Some(rcv_nxt);
        Some(Answer::new(reply, head, bytes, view, (rcv_nxt, closed), self.entry.handshake.mss, now))
    }
}
