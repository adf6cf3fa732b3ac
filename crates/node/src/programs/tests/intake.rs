//! Which data a socket gets: data that the switch has read, in order, and data that need not be read.

use NodeCounter::*;
use sb_op::*;
use switchback_http::framing::generated::{
    SB_FRAMING_BODY, SB_FRAMING_CHUNK, SB_FRAMING_NONE, SB_FRAMING_SKIP,
};
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::clients;
use super::frames::*;
use super::invariants::Handoff;

/// The client's first sequence number.
const FIRST: u32 = 1000;
const LEN: u32 = REQUEST.len() as u32;
/// Another request of the same length.
const COPY: &[u8] = b"PUT / HTTP/1.1\r\nHost: b\r\n\r\n";
/// The head of a request with a body.
const POST: &[u8] = b"POST / HTTP/1.1\r\nContent-Length: 3000\r\n\r\n";
const HEAD: u32 = POST.len() as u32;
const BODY: u32 = 3000;

/// The switch's reading of a packet. Positions are relative to the client's first byte.
#[derive(Clone, Copy, Default)]
struct SwitchRead {
    flags: u32,
    head: u32,
    requests: u16,
    next: u32,
    framing: u16,
    left: u32,
}

/// Position of the mark, framing state there, and number of requests before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    next: u32,
    framing: u16,
    left: u32,
    requests: u16,
}

impl Mark {
    fn of(option: &sb_option) -> Mark {
        let said = option.flow_state();
        Mark {
            next: u32::from_be(said.next).wrapping_sub(FIRST),
            framing: u16::from_be(said.framing),
            left: u32::from_be(said.left),
            requests: u16::from_be(said.requests),
        }
    }
}

/// A mark at the start of a request.
fn at(next: u32, requests: u16) -> Mark {
    Mark { next, framing: SB_FRAMING_NONE, left: 0, requests }
}

/// A whole request that the switch has read, with number `requests`, up to `next`.
fn request(next: u32, requests: u16) -> SwitchRead {
    SwitchRead { flags: SB_HANDOVER_REQUEST, head: LEN, requests, next, ..SwitchRead::default() }
}

/// Data that the switch has not read.
fn unread(next: u32, requests: u16) -> SwitchRead {
    SwitchRead { requests, next, ..SwitchRead::default() }
}

/// A flow with a socket.
struct Flow<'a> {
    bench: &'a Bench,
    known: KnownFlow,
}

impl<'a> Flow<'a> {
    /// A flow adopted with the beginning of its first request.
    fn new(bench: &'a Bench, data: &[u8], said: SwitchRead) -> Self {
        let port = 50_000 + bench.counter(Adopted) as u16;
        let known = KnownFlow { flow: flow(false, port, PORT), seq: FIRST, ack: 5000, socket: None };
        let mut flow = Flow { bench, known };
        let packet = flow.packet(SB_OP_ADOPT, 0, data, SwitchRead { flags: 0, requests: 1, ..said });
        flow.known.socket = Some(bench.adopt(&packet, &flow.known.flow));
        flow.reads(data);
        flow
    }

    /// A flow adopted with its whole first request.
    fn asked(bench: &'a Bench) -> Self {
        Flow::new(bench, REQUEST, request(LEN, 1))
    }

    fn from(&self, at: u32) -> KnownFlow {
        KnownFlow { seq: FIRST.wrapping_add(at), socket: None, ..self.known }
    }

    fn packet(&self, op: sb_op, at: u32, data: &[u8], said: SwitchRead) -> Vec<u8> {
        let option = sb_option {
            flags: said.flags as u8,
            ..self.from(0).option(op).with(|handover: &mut sb_handover| {
                handover.flow.requests = said.requests.to_be();
                handover.flow.next = FIRST.wrapping_add(said.next).to_be();
                handover.flow.framing = said.framing.to_be();
                handover.flow.left = said.left.to_be();
                handover.boundary = (said.head as u16).to_be();
            })
        };
        self.from(at).hand_over(option, data)
    }

    fn forward(&self, at: u32, data: &[u8], said: SwitchRead) -> Vec<u8> {
        self.packet(SB_OP_FORWARD, at, data, said)
    }

    fn answer(&self, packet: &[u8]) -> sb_option {
        let (verdict, out) = self.bench.ingress(&to_us(packet), 0);
        assert_eq!(verdict, Verdict::Redirect, "it is answered");
        Handoff::parse(&out).expect("an answer").option
    }

    fn mark(&self) -> Mark {
        Mark::of(&self.answer(&self.packet(SB_OP_PROBE, 0, b"", SwitchRead::default())))
    }

    fn comes(&self, counter: NodeCounter, packet: &[u8]) {
        let before = self.bench.counter(counter);
        self.bench.send(packet);
        wait_until("the packet comes", || self.bench.counter(counter) > before);
        assert_eq!(self.bench.counter(counter), before + 1);
    }

    fn takes(&self, at: u32, data: &[u8], said: SwitchRead) {
        self.comes(Forwarded, &self.forward(at, data, said));
    }

    /// Checks that the server gets nothing of the packet, and that the switch is told where to read on.
    fn refuses(&mut self, at: u32, data: &[u8], said: SwitchRead, mark: Mark) {
        let packet = self.forward(at, data, said);
        let option = self.answer(&packet);
        assert_eq!((option.op, Mark::of(&option)), (SB_OP_UNREAD as u8, mark));
        self.comes(Unread, &packet);
        assert_eq!(self.mark(), mark, "it stays");
        self.reads(b"");
    }

    fn drops(&self, counter: NodeCounter, packet: &[u8]) {
        let before = self.bench.counter(counter);
        assert_eq!(self.bench.ingress(&to_us(packet), 0).0, Verdict::Drop);
        assert_eq!(self.bench.counter(counter), before + 1);
    }

    /// Checks that the server reads exactly this.
    fn reads(&mut self, expected: &[u8]) {
        self.known.reads(expected);
    }
}

/// Part of a body.
fn body(part: std::ops::Range<u32>) -> Vec<u8> {
    part.map(|at| b'a' + (at % 23) as u8).collect()
}

#[test]
fn a_copy_that_was_not_read_is_refused() {
    alone(|| {
        let bench = Bench::new();
        let mut flow = Flow::asked(&bench);
        // The packet that was read has been lost.
        flow.refuses(LEN, COPY, unread(2 * LEN, 2), at(LEN, 1));
        flow.takes(LEN, REQUEST, request(2 * LEN, 2));
        flow.reads(REQUEST);
        assert_eq!(flow.mark(), at(2 * LEN, 2));
        flow.takes(LEN, COPY, unread(2 * LEN, 2));
        flow.reads(b"");
    });
}

#[test]
fn a_copy_does_not_replace_data_about_to_arrive() {
    alone(|| {
        let bench = Bench::new();
        let mut flow = Flow::asked(&bench);
        let first = flow.forward(LEN, REQUEST, request(2 * LEN, 2));
        // In a test run it does not arrive.
        assert_eq!(bench.ingress(&to_us(&first), 0).0, Verdict::Pass);
        let copy = flow.forward(LEN, COPY, unread(2 * LEN, 2));
        flow.comes(DropRepeated, &copy);
        flow.reads(b"");
        bench.send(&first);
        flow.reads(REQUEST);
    });
}

#[test]
fn a_request_behind_a_lost_one_is_refused() {
    alone(|| {
        let bench = Bench::new();
        let mut flow = Flow::asked(&bench);
        flow.refuses(2 * LEN, COPY, request(3 * LEN, 3), at(LEN, 1));
        flow.refuses(LEN + 1, &COPY[1..], request(2 * LEN, 2), at(LEN, 1));
        flow.takes(LEN, REQUEST, request(2 * LEN, 2));
        flow.takes(2 * LEN, COPY, request(3 * LEN, 3));
        flow.reads(&[REQUEST, COPY].concat());
        assert_eq!(flow.mark(), at(3 * LEN, 3));
    });
}

#[test]
fn a_body_comes_in_any_order_behind_its_head() {
    alone(|| {
        let bench = Bench::new();
        let mut flow = Flow::asked(&bench);
        let end = LEN + HEAD + BODY;
        let said = unread(end, 2);
        flow.refuses(LEN + HEAD, &body(0..1000), said, at(LEN, 1));
        flow.takes(LEN, POST, SwitchRead { head: HEAD, ..request(end, 2) });
        flow.reads(POST);
        flow.takes(LEN + HEAD + 2000, &body(2000..3000), said);
        flow.refuses(LEN + HEAD + 2000, &body(2000..3001), said, at(end, 2));
        flow.refuses(end, b"x", said, at(end, 2));
        flow.takes(LEN + HEAD, &body(0..1000), said);
        flow.reads(&body(0..1000));
        flow.takes(LEN + HEAD + 1000, &body(1000..2000), said);
        flow.reads(&body(1000..3000));
    });
}

#[test]
fn a_request_waits_for_the_body_before_it() {
    alone(|| {
        let bench = Bench::new();
        let end = HEAD + BODY;
        let mut flow = Flow::new(&bench, POST, SwitchRead { head: HEAD, ..request(end, 1) });
        flow.takes(HEAD + 1000, &body(1000..3000), unread(end, 1));
        flow.refuses(end, REQUEST, request(end + LEN, 2), at(end, 1));
        flow.takes(HEAD, &body(0..1000), unread(end, 1));
        flow.takes(end, REQUEST, request(end + LEN, 2));
        flow.reads(&[&body(0..3000), REQUEST].concat());
        assert_eq!(flow.mark(), at(end + LEN, 2));
    });
}

#[test]
fn the_rest_of_a_head_is_read() {
    alone(|| {
        let bench = Bench::new();
        let mut flow = Flow::asked(&bench);
        let (first, second) = (LEN + 8, LEN + 16);
        let read = SwitchRead { flags: SB_HANDOVER_READ, head: 0, ..request(2 * LEN, 2) };
        flow.takes(LEN, &REQUEST[..8], request(2 * LEN, 2));
        flow.reads(&REQUEST[..8]);
        flow.drops(DropRepeated, &flow.forward(first, &COPY[8..16], unread(2 * LEN, 2)));
        flow.drops(DropRepeated, &flow.forward(second, &COPY[16..], unread(2 * LEN, 2)));
        flow.refuses(second, &REQUEST[16..], read, at(2 * LEN, 2));
        flow.takes(first, &REQUEST[8..16], read);
        flow.takes(second, &REQUEST[16..], read);
        flow.reads(&REQUEST[8..]);
    });
}

/// A chunked body: part of each packet is before the mark.
#[test]
fn reading_goes_on_at_the_mark() {
    alone(|| {
        let bench = Bench::new();
        let chunk = SB_FRAMING_CHUNK;
        let said = |next, framing| SwitchRead { requests: 1, next, framing, ..SwitchRead::default() };
        let read = |head, next, framing| SwitchRead { flags: SB_HANDOVER_READ, head, ..said(next, framing) };
        let mark = |next, framing| Mark { framing, ..at(next, 1) };
        let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n";
        let here = head.len() as u32;
        let mut flow = Flow::new(&bench, head, SwitchRead { head: here, ..said(here + 4, chunk) });
        flow.refuses(here, b"body\r\n0\r\n\r\n", said(here + 11, chunk), mark(here + 4, chunk));
        flow.refuses(here, b"body\r\n0\r\n\r\n", read(3, here + 11, SB_FRAMING_NONE), mark(here + 4, chunk));
        flow.refuses(here, b"body\r\n0\r\n\r\n", read(5, here + 11, SB_FRAMING_NONE), mark(here + 4, chunk));
        flow.takes(here, b"body\r\n0\r\n\r\n", read(4, here + 11, SB_FRAMING_NONE));
        flow.reads(b"body\r\n0\r\n\r\n");
        assert_eq!(flow.mark(), at(here + 11, 1));
    });
}

#[test]
fn a_tunnel_passes_all() {
    alone(|| {
        let bench = Bench::new();
        let upgrading = SwitchRead { framing: SB_MARK_UPGRADING, ..request(LEN, 1) };
        let mut flow = Flow::new(&bench, REQUEST, upgrading);
        let undecided = Mark { framing: SB_MARK_UPGRADING, ..at(LEN, 1) };
        flow.refuses(LEN, b"first", SwitchRead { flags: 0, ..upgrading }, undecided);
        let tunnel = SwitchRead { framing: SB_MARK_TUNNEL, ..request(LEN, 1) };
        let mut flow = Flow::new(&bench, REQUEST, tunnel);
        flow.takes(LEN + 5, b"second", SwitchRead { flags: 0, ..tunnel });
        flow.takes(LEN, b"first", SwitchRead { flags: 0, ..tunnel });
        flow.reads(b"firstsecond");
    });
}

#[test]
fn direct_data_replaces_no_request() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        let mut flow = Flow::asked(&bench);
        let direct = |flow: &Flow<'_>, at: u32, data: &[u8]| {
            clients::direct(&flow.from(at), &clients::key_of(&flow.known), 0, flags::ACK, data)
        };
        let dropped = |flow: &mut Flow<'_>, at: u32, data: &[u8]| {
            let packet = direct(flow, at, data);
            flow.drops(DropBeyond, &packet);
            flow.comes(DropBeyond, &packet);
            flow.reads(b"");
        };
        dropped(&mut flow, LEN, COPY);
        let end = LEN + HEAD + BODY;
        let said = SwitchRead { head: HEAD, ..request(end, 2) };
        let first = flow.forward(LEN, POST, said);
        // In a test run it does not arrive.
        assert_eq!(bench.ingress(&to_us(&first), 0).0, Verdict::Pass);
        let copy = [&COPY[..4], &POST[4..]].concat();
        dropped(&mut flow, LEN, &copy);
        dropped(&mut flow, LEN + 4, &POST[4..]);
        flow.takes(LEN, POST, said);
        flow.reads(POST);
        flow.comes(Direct, &direct(&flow, LEN, &copy));
        flow.comes(Direct, &direct(&flow, LEN + HEAD + 1000, &body(1000..2000)));
        flow.comes(Direct, &direct(&flow, LEN + HEAD, &body(0..1000)));
        flow.reads(&body(0..2000));
        dropped(&mut flow, LEN + HEAD + 2000, &body(2000..3001));
    });
}

#[test]
fn a_mark_in_a_body_goes_on_unread_as_far_as_the_body() {
    alone(|| {
        let bench = Bench::new();
        let skip = SB_FRAMING_BODY | SB_FRAMING_SKIP;
        let in_body = |next: u32| SwitchRead { framing: skip, left: BODY - next, ..unread(HEAD + next, 1) };
        let mark = |next: u32| Mark { next: HEAD + next, framing: skip, left: BODY - next, requests: 1 };
        let adopt = SwitchRead { head: HEAD, ..in_body(1000) };
        let mut flow = Flow::new(&bench, POST, adopt);
        assert_eq!(flow.mark(), mark(1000));
        // Data may be ahead of the mark.
        flow.takes(HEAD, &body(0..1500), in_body(1000));
        assert_eq!(flow.mark(), mark(1000));
        flow.takes(HEAD + 1500, &body(1500..1600), in_body(2000));
        assert_eq!(flow.mark(), mark(2000));
        flow.takes(HEAD + 1600, &body(1600..1700), in_body(1000));
        assert_eq!(flow.mark(), mark(2000), "not back");
        flow.takes(HEAD + 1700, &body(1700..1800), SwitchRead { requests: 2, ..in_body(2500) });
        assert_eq!(flow.mark(), mark(2000), "not over a request");
        flow.takes(HEAD + 1800, &body(1800..1900), unread(HEAD + BODY + 1, 1));
        assert_eq!(flow.mark(), mark(2000), "not beyond the body");
        flow.reads(&body(0..1900));
        flow.refuses(HEAD + 1900, &body(1900..3001), in_body(2000), mark(2000));
        flow.takes(HEAD + 1900, &body(1900..3000), unread(HEAD + BODY, 1));
        assert_eq!(flow.mark(), at(HEAD + BODY, 1));
        flow.reads(&body(1900..3000));
        flow.takes(HEAD + BODY, REQUEST, request(HEAD + BODY + LEN, 2));
        flow.reads(REQUEST);
    });
}

#[test]
fn the_nodes_position_includes_data_about_to_arrive() {
    alone(|| {
        let bench = Bench::new();
        let mut flow = Flow::asked(&bench);
        let question = to_us(&flow.packet(SB_OP_CONFIRM, LEN, b"", unread(LEN, 1)));
        let asks = || bench.ingress(&question, 0).0;
        assert_eq!((asks(), bench.counter(Confirmed)), (Verdict::Redirect, 1), "all has arrived");
        let first = flow.forward(LEN, REQUEST, request(2 * LEN, 2));
        // In a test run it does not arrive.
        assert_eq!(bench.ingress(&to_us(&first), 0).0, Verdict::Pass);
        assert_eq!(asks(), Verdict::Drop, "it comes again");
        wait_until("the answer", || bench.counter(Confirmed) == 2);
        flow.comes(Forwarded, &first);
        flow.reads(REQUEST);
        assert_eq!((asks(), bench.counter(Confirmed)), (Verdict::Redirect, 3));
    });
}

#[test]
fn acknowledged_data_is_taken_or_refused() {
    alone(|| {
        let bench = Bench::new();
        let mut flow = Flow::asked(&bench);
        let said = request(2 * LEN, 2);
        let lost = flow.answer(&flow.packet(SB_OP_CONFIRM, 2 * LEN, COPY, request(3 * LEN, 3)));
        assert_eq!((lost.op, Mark::of(&lost)), (SB_OP_UNREAD as u8, at(LEN, 1)));
        let confirm = flow.packet(SB_OP_CONFIRM, LEN, REQUEST, said);
        flow.comes(Forwarded, &confirm);
        flow.reads(REQUEST);
        assert_eq!(flow.answer(&confirm).op, SB_OP_CONFIRMED as u8);
        let elsewhere = sb_flow { client_port: 1, ..flow.known.flow };
        // Only where its beginning can be given to another node.
        let nowhere = Flow { bench: &bench, known: KnownFlow { flow: elsewhere, ..flow.from(0) } };
        let refused = nowhere.answer(&nowhere.packet(SB_OP_CONFIRM, LEN, REQUEST, said));
        let reason = sb_reason::SB_REASON_NO_SOCKET as u8;
        assert_eq!((refused.op, refused.reason), (SB_OP_REFUSED as u8, reason));
        for rest in [SwitchRead { flags: SB_HANDOVER_READ, ..said }, unread(2 * LEN, 2)] {
            nowhere.comes(DropNoSocket, &nowhere.packet(SB_OP_CONFIRM, LEN, REQUEST, rest));
        }
    });
}

/// The switch reads no further in a long body, while the sequence numbers wrap around once.
#[test]
fn data_read_long_ago_stays_behind_the_mark() {
    alone(|| {
        let bench = Bench::new();
        let said =
            SwitchRead { framing: SB_FRAMING_BODY | SB_FRAMING_SKIP, left: u32::MAX, ..unread(HEAD, 1) };
        let mut flow = Flow::new(&bench, POST, SwitchRead { head: HEAD, ..said });
        let owned = bench.flow(&flow.known.flow).expect("an adopted flow");
        let read = owned.read.wrapping_sub(i32::MAX as u32);
        bench.put(&flow.known.flow, &sb_owned { read, ..owned });
        flow.takes(HEAD, b"a", said);
        flow.takes(HEAD + 1, b"b", said);
        flow.reads(b"ab");
    });
}
