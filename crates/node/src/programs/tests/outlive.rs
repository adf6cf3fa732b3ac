//! Connections that outlive their server: which of its packets are kept from the client, and what happens to the flow.
//!
//! A packet in a test run has no TCP socket, which distinguishes a server's FIN from the answer to the client's. So
//! tests of FIN use packets that the server's kernel sends ([`super::wire`]).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sb_op::*;
use sb_ownership::*;
use sb_reason::*;
use switchback_http::framing::Framing;
use switchback_http::framing::generated::{SB_FRAMING_HEAD, SB_FRAMING_LOST};
use switchback_wire::packet::{TcpView, bare, flags, segment, timestamps};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;
use super::wire::Wire;

const LEN: u32 = REQUEST.len() as u32;
/// Sequence numbers of the client's and the server's first byte.
const FIRST: u32 = 1000;
const ANSWER: u32 = 5000;
/// Flags that end the server's side.
const END: u8 = flags::FIN | flags::RST;
/// Time in which data would have been sent, if at all.
const A_MOMENT: Duration = Duration::from_millis(20);

/// A flow whose client has sent its first request.
fn asked(port: u16) -> KnownFlow {
    KnownFlow { flow: flow(port.is_multiple_of(2), port, PORT), seq: FIRST + LEN, ack: ANSWER, socket: None }
}

/// The node's entry after a repeatable request has arrived.
fn waiting(known: &KnownFlow) -> sb_owned {
    sb_owned {
        origin: FIRST,
        responses: 0,
        asked: FIRST,
        asked_us: now_us(),
        again: 1,
        keeps: 1,
        ..known.owned()
    }
}

/// Sets the state after the only response.
fn become_idle(owned: &mut sb_owned) {
    owned.responses = 1;
}

fn in_response(owned: &mut sb_owned) {
    owned.framing = Framing::new(SB_FRAMING_HEAD, 0).with_allowed(u64::MAX);
}

fn lose_track(owned: &mut sb_owned) {
    owned.framing = Framing::new(SB_FRAMING_LOST, 0);
}

/// The switch's option for the flow's first request.
fn option(known: &KnownFlow, op: sb_op, more: u32) -> sb_option {
    let option = known.option(op).with(|flow: &mut sb_flow_state| {
        flow.origin = FIRST.to_be();
        flow.next = (FIRST + LEN).to_be();
    });
    sb_option { flags: option.flags | more as u8, ..option }
}

/// Acknowledgment: description, difference from a waiting flow, acknowledged part of the request, data, verdict, and
/// whether the client must still keep the request.
type Acknowledgment = (&'static str, fn(&mut sb_owned), u32, &'static [u8], Verdict, bool);

const ACKNOWLEDGMENTS: [Acknowledgment; 11] = [
    ("at once", |_| {}, LEN, b"", Verdict::Redirect, true),
    ("after 400 ms", |owned| owned.asked_us -= 400_000, LEN, b"", Verdict::Redirect, true),
    ("after 500 ms", |owned| owned.asked_us -= 500_000, LEN, b"", Verdict::Next, false),
    ("of what came before the request", |_| {}, 0, b"", Verdict::Next, true),
    ("in a response", in_response, LEN, b"", Verdict::Next, false),
    ("behind the response", become_idle, LEN, b"", Verdict::Next, false),
    ("of a request that must not be repeated", |owned| owned.again = 0, LEN, b"", Verdict::Next, false),
    ("of two requests", |owned| owned.requests = 2, LEN, b"", Verdict::Next, false),
    ("behind a response that cannot be followed", lose_track, LEN, b"", Verdict::Next, false),
    ("with the response", |_| {}, LEN, RESPONSE, Verdict::Next, false),
    ("with data that was sent before the request came", |_| {}, 0, RESPONSE, Verdict::Next, true),
];

#[test]
fn acknowledgments_wait_for_the_response() {
    alone(|| {
        let bench = Bench::new();
        for (port, (name, differs, len, data, verdict, again)) in (50_000..).zip(ACKNOWLEDGMENTS) {
            let known = asked(port);
            let mut owned = waiting(&known);
            differs(&mut owned);
            bench.put(&known.flow, &owned);
            let before = bench.counter(NodeCounter::Withheld);
            let frame = response(&known.flow, (ANSWER, FIRST + len), flags::ACK, false, data);
            assert_eq!(bench.egress(&frame), (verdict, frame), "{name}");
            let after = bench.flow(&known.flow).expect("it stays");
            assert_eq!((after.state, after.again), (SB_OWN_OPEN as u8, u8::from(again)), "{name}");
            let withheld = bench.counter(NodeCounter::Withheld) - before;
            assert_eq!(withheld, u64::from(verdict != Verdict::Next), "{name}");
        }
    });
}

/// Reset: description, difference from a waiting flow, sequence number relative to the sent data, data, and whether the
/// packet is kept back.
type Reset = (&'static str, fn(&mut sb_owned), u32, &'static [u8], bool);

const RESETS: [Reset; 10] = [
    ("while a request waits", |_| {}, 0, b"", true),
    ("while the last request waits", |owned| owned.keeps = 0, 0, b"", true),
    ("while nothing waits", become_idle, 0, b"", true),
    ("while a request waits that must not be repeated", |owned| owned.again = 0, 0, b"", false),
    ("while two requests wait", |owned| owned.requests = 2, 0, b"", false),
    ("in a response", in_response, 0, b"", false),
    (
        "behind the last response",
        |owned| {
            become_idle(owned);
            owned.keeps = 0;
        },
        0,
        b"",
        false,
    ),
    ("behind data that has not been sent", become_idle, 1, b"", false),
    ("with data", become_idle, 0, b"x", false),
    ("behind a response that cannot be followed", lose_track, 0, b"", false),
];

/// The listener was closed while an adoption was on its way, and the kernel answers for it.
#[test]
fn the_reset_of_an_adoption_that_failed_is_not_for_the_client() {
    alone(|| {
        let bench = Bench::new();
        let known = asked(50_000);
        let state = SB_OWN_ADOPTING as u8;
        bench.put(&known.flow, &sb_owned { state, ..waiting(&known) });
        let frame = |tcp_flags| response(&known.flow, (ANSWER, FIRST + LEN), tcp_flags, false, b"");
        let muted = bench.counter(NodeCounter::Muted);
        assert_eq!(bench.egress(&frame(flags::RST)).0, Verdict::Drop);
        assert_eq!(bench.counter(NodeCounter::Muted), muted + 1);
        assert_eq!(bench.egress(&frame(flags::ACK)).0, Verdict::Next);
        assert_eq!(bench.flow(&known.flow).map(|owned| owned.state), Some(state), "it stays");
    });
}

#[test]
fn a_reset_is_kept_back_where_another_node_can_go_on() {
    alone(|| {
        let bench = Bench::new();
        for (port, (name, differs, behind, data, kept)) in (50_000..).zip(RESETS) {
            let known = asked(port);
            let mut owned = waiting(&known);
            differs(&mut owned);
            bench.put(&known.flow, &owned);
            let (outlived, load) = (bench.counter(NodeCounter::Outlived), bench.load());
            let seq = ANSWER + behind;
            let numbers = (seq, FIRST + LEN);
            let frame = response(&known.flow, numbers, flags::RST | flags::ACK, false, data);
            let verdict = if kept { Verdict::Drop } else { Verdict::Next };
            assert_eq!(bench.egress(&frame), (verdict, frame), "{name}");
            assert_eq!(bench.counter(NodeCounter::Outlived) - outlived, u64::from(kept), "{name}");
            let after = bench.flow(&known.flow).expect("it stays");
            let mute = (after.state, after.reason) == (SB_OWN_RELEASED as u8, SB_REASON_NO_SOCKET as u8);
            assert_eq!(mute, kept, "{name}: {after:?}");
            if !kept {
                continue;
            }
            let waits = owned.requests - owned.responses;
            assert_eq!((after.answered, u16::from(after.again)), (seq, waits), "{name}");
            let ended = bench.load();
            let moved = (ended.ended - load.ended, ended.abandoned - load.abandoned);
            assert_eq!(moved, (1, u64::from(waits)), "{name}");
            let muted = bench.counter(NodeCounter::Muted);
            let more = response(&known.flow, numbers, flags::ACK, false, b"more");
            assert_eq!(bench.egress(&more).0, Verdict::Drop, "{name}");
            assert_eq!(bench.counter(NodeCounter::Muted), muted + 1, "{name}");
        }
    });
}

/// A response, and whether the connection continues after it.
const RESPONSES: [(&str, u8); 6] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 1),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", 1),
    ("HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 1),
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", 0),
    ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0),
    ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", 0),
];

#[test]
fn a_server_may_say_that_the_connection_ends() {
    alone(|| {
        let bench = Bench::new();
        for (port, (text, keeps)) in (50_000..).zip(RESPONSES) {
            for split in 0..text.len() {
                let known = asked(port);
                bench.put(&known.flow, &waiting(&known));
                let (first, second) = text.split_at(split);
                for (at, part) in [(0, first), (split as u32, second)] {
                    let numbers = (ANSWER + at, FIRST + LEN);
                    bench.egress(&response(&known.flow, numbers, flags::ACK, false, part.as_bytes()));
                }
                let after = bench.flow(&known.flow).expect("it stays");
                assert_eq!((after.responses, after.keeps), (1, keeps), "{text:?} at {split}");
            }
        }
    });
}

/// The fields of a FORWARD are taken only from the first packet of a request.
#[test]
fn the_fields_of_a_forward_are_remembered() {
    alone(|| {
        let bench = Bench::new();
        for (port, more, expected) in [
            (50_000, 0, (0, 1)),
            (50_001, SB_HANDOVER_AGAIN, (1, 1)),
            (50_002, SB_HANDOVER_LAST, (0, 0)),
            (50_003, SB_HANDOVER_AGAIN | SB_HANDOVER_LAST, (1, 0)),
        ] {
            let mut known = asked(port);
            known.seq = FIRST;
            let packet = known.hand_over(option(&known, SB_OP_ADOPT, more), REQUEST);
            known.socket = Some(bench.adopt(&packet, &known.flow));
            let said = || bench.flow(&known.flow).map(|owned| (owned.again, owned.keeps));
            assert_eq!(said(), Some(expected), "ADOPT with {more:#x}");

            known.seq = FIRST + LEN;
            let request = |requests: u16, more| {
                let option = option(&known, SB_OP_FORWARD, SB_HANDOVER_REQUEST | more).with(
                    |flow: &mut sb_flow_state| {
                        flow.requests = requests.to_be();
                        flow.next = (known.seq + LEN).to_be();
                    },
                );
                assert_eq!(bench.ingress(&to_us(&known.hand_over(option, REQUEST)), 0).0, Verdict::Pass);
            };
            bench.put(&known.flow, &sb_owned { responses: 1, ..bench.flow(&known.flow).unwrap() });
            request(2, more);
            assert_eq!(said(), Some(expected), "FORWARD with {more:#x}");
            request(2, more ^ SB_HANDOVER_AGAIN ^ SB_HANDOVER_LAST);
            assert_eq!(said(), Some(expected), "a copy of it");
            known.seq += LEN;
            let request = option(&known, SB_OP_FORWARD, SB_HANDOVER_REQUEST | SB_HANDOVER_AGAIN).with(
                |flow: &mut sb_flow_state| {
                    flow.requests = 3u16.to_be();
                    flow.next = (known.seq + LEN).to_be();
                },
            );
            bench.ingress(&to_us(&known.hand_over(request, REQUEST)), 0);
            assert_eq!(said(), Some((0, 1)), "behind another request");
        }
    });
}

/// Packet for an orphaned flow: description, whether a request waits, operation, additional flags, offset, TCP flags,
/// data, and the answer.
type OfOrphan = (&'static str, bool, sb_op, u32, u32, u8, &'static [u8], Option<(sb_op, sb_reason)>);

const REFUSED: Option<(sb_op, sb_reason)> = Some((SB_OP_REFUSED, SB_REASON_NO_SOCKET));
const FIN: u8 = flags::FIN | flags::ACK;
const OF_ORPHANS: [OfOrphan; 15] = [
    ("the request once more", true, SB_OP_FORWARD, 0, 0, flags::ACK, REQUEST, REFUSED),
    ("the next request", false, SB_OP_FORWARD, SB_HANDOVER_REQUEST, LEN, flags::ACK, REQUEST, REFUSED),
    ("the next request once more", false, SB_OP_FORWARD, 0, LEN, flags::ACK, REQUEST, REFUSED),
    ("a request of another one", true, SB_OP_FORWARD, SB_HANDOVER_REQUEST, LEN, flags::ACK, REQUEST, REFUSED),
    ("the client's end", false, SB_OP_FORWARD, 0, LEN, FIN, b"", REFUSED),
    ("the client's end before a response", true, SB_OP_FORWARD, 0, LEN, FIN, b"", REFUSED),
    ("a request that has its response", false, SB_OP_FORWARD, 0, 0, flags::ACK, REQUEST, None),
    ("data behind the request", true, SB_OP_FORWARD, 0, LEN, flags::ACK, b"x", None),
    ("an acknowledgment", true, SB_OP_FORWARD, 0, LEN, flags::ACK, b"", None),
    ("a reset", false, SB_OP_FORWARD, 0, LEN, flags::RST, b"", None),
    ("a probe", false, SB_OP_PROBE, 0, LEN, flags::ACK, b"", Some((SB_OP_UNOWNED, SB_REASON_RELEASED))),
    ("how far it has come", true, SB_OP_CONFIRM, 0, LEN, flags::ACK, b"", None),
    ("a release", false, SB_OP_RELEASE, 0, LEN, flags::ACK, b"", Some((SB_OP_RELEASED, SB_REASON_NO_SOCKET))),
    (
        "a release for the request that waits",
        true,
        SB_OP_RELEASE,
        0,
        0,
        flags::ACK,
        b"",
        Some((SB_OP_RELEASED, SB_REASON_NO_SOCKET)),
    ),
    (
        "a release while a request waits",
        true,
        SB_OP_RELEASE,
        0,
        LEN,
        flags::ACK,
        b"",
        Some((SB_OP_RELEASED, SB_REASON_RESPONDING)),
    ),
];

#[test]
fn an_orphan_goes_back_to_the_switch_with_what_needs_a_server() {
    alone(|| {
        let bench = Bench::new();
        for (port, (name, waits, op, more, behind, tcp_flags, data, expected)) in (50_000..).zip(OF_ORPHANS) {
            let mut known = asked(port);
            let mut owned = waiting(&known);
            if !waits {
                become_idle(&mut owned);
            }
            bench.put(&known.flow, &owned);
            let end = response(&known.flow, (ANSWER, FIRST + LEN), flags::RST, false, b"");
            assert_eq!(bench.egress(&end).0, Verdict::Drop);
            let orphan = bench.flow(&known.flow);

            known.seq = FIRST + behind;
            let numbers = (Seq(known.seq), Seq(ANSWER));
            let inner = packet::segment(&known.flow, true, numbers, tcp_flags, None, data);
            let view = TcpView::parse(&inner).expect("a TCP packet");
            let frame = to_us(&known.hand_over_packet(option(&known, op, more), &view, &inner));
            let (verdict, out) = bench.ingress(&frame, 0);
            let answer = Handoff::parse(&out).map(|answer| (answer.option.op, answer.option.reason));
            match expected {
                None => assert_eq!(verdict, Verdict::Drop, "{name}"),
                Some((op, reason)) => {
                    assert_eq!(
                        (verdict, answer),
                        (Verdict::Redirect, Some((op as u8, reason as u8))),
                        "{name}"
                    );
                    assert!(op == SB_OP_RELEASED || out.ends_with(&inner), "{name}: it comes back whole");
                }
            }
            if matches!(expected, Some((SB_OP_RELEASED, _))) {
                let ack = Handoff::parse(&out).map(|answer| answer.view.ack);
                assert_eq!(ack, Some(Seq(ANSWER)), "{name}: from where to go on");
            }
            assert_eq!(bench.flow(&known.flow), orphan, "{name}: it stays");

            // Another connection from the same port is unrelated.
            let stranger =
                option(&known, op, more).with(|flow: &mut sb_flow_state| flow.origin = 1u32.to_be());
            if more == 0 && op == SB_OP_FORWARD {
                let frame = to_us(&known.hand_over_packet(stranger, &view, &inner));
                assert_eq!(bench.ingress(&frame, 0).0, Verdict::Drop, "{name} of another connection");
            }
        }
    });
}

/// A flow with a server in [`Wire`], over IPv4.
struct Served<'a> {
    wire: &'a Wire,
    known: KnownFlow,
}

impl Wire {
    /// Adopts a flow; the server has read the request.
    fn adopt(&self, port: u16, more: u32) -> Served<'_> {
        let served = self.adopt_unread(port, more);
        served.server().read_exact(&mut [0; REQUEST.len()]).expect("the request");
        served
    }

    fn adopt_unread(&self, port: u16, more: u32) -> Served<'_> {
        let mut known = KnownFlow { flow: flow(false, port, PORT), seq: FIRST, ack: ANSWER, socket: None };
        let packet = known.hand_over(option(&known, SB_OP_ADOPT, more), REQUEST);
        known.socket = Some(self.bench.adopt(&packet, &known.flow));
        known.seq += LEN;
        Served { wire: self, known }
    }
}

impl Served<'_> {
    fn server(&self) -> &TcpStream {
        self.known.socket.as_ref().expect("an adopted flow")
    }

    /// Sends data of the server.
    fn say(mut self, data: &[u8]) -> Self {
        self.server().write_all(data).expect("there is room for it");
        self.known.ack += data.len() as u32;
        let end = self.known.ack;
        wait_until("the data is followed", || self.owned().is_some_and(|owned| owned.followed == end));
        self
    }

    /// Injects a packet without data from the client.
    fn hear(self, tcp_flags: u8) -> Self {
        let KnownFlow { flow, seq, ack, .. } = &self.known;
        let inner = bare(flow, true, Seq(*seq), Seq(*ack), tcp_flags);
        let view = TcpView::parse(&inner).expect("a TCP packet");
        let option = option(&self.known, SB_OP_FORWARD, 0);
        let forwarded = self.wire.bench.counter(NodeCounter::Forwarded);
        self.wire.bench.send(&self.known.hand_over_packet(option, &view, &inner));
        wait_until("it is forwarded", || self.wire.bench.counter(NodeCounter::Forwarded) > forwarded);
        self
    }

    fn acknowledge(self) -> Self {
        self.hear(flags::ACK)
    }

    fn close(mut self) -> Self {
        self.known.socket = None;
        self
    }

    fn owned(&self) -> Option<sb_owned> {
        self.wire.bench.flow(&self.known.flow)
    }

    fn is_orphan(&self) -> bool {
        self.owned().is_some_and(|owned| {
            (owned.state, owned.reason) == (SB_OWN_RELEASED as u8, SB_REASON_NO_SOCKET as u8)
        })
    }

    /// Waits until the end of the server's side has been sent.
    fn ends(&self, name: &str) {
        wait_until(name, || self.wire.left(&self.known.flow).iter().any(|left| left.flags & END != 0));
        assert!(!self.is_orphan(), "{name}");
    }

    /// Waits until the flow has no server, which the client must not notice.
    fn outlives(&self, name: &str) {
        wait_until(name, || self.is_orphan());
        std::thread::sleep(A_MOMENT);
        assert!(self.wire.left(&self.known.flow).iter().all(|left| left.flags & END == 0), "{name}");
    }
}

const HALF: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok";
const CLOSING: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const OLD: &[u8] = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Description, and events of a flow.
type End = (&'static str, for<'a> fn(&'a Wire, u16) -> Served<'a>);

const KEPT_BACK: [End; 4] = [
    ("before a response", |wire, port| wire.adopt(port, SB_HANDOVER_AGAIN).close()),
    ("before the last response", |wire, port| wire.adopt(port, SB_HANDOVER_AGAIN | SB_HANDOVER_LAST).close()),
    ("before the request is read", |wire, port| wire.adopt_unread(port, SB_HANDOVER_AGAIN).close()),
    ("behind a response", |wire, port| wire.adopt(port, 0).say(RESPONSE).acknowledge().close()),
];

const TOLD: [End; 8] = [
    ("before a response that must not be made again", |wire, port| wire.adopt(port, 0).close()),
    ("likewise, and the request is not read", |wire, port| wire.adopt_unread(port, 0).close()),
    ("in a response", |wire, port| wire.adopt(port, SB_HANDOVER_AGAIN).say(HALF).acknowledge().close()),
    ("behind a response that says so", |wire, port| {
        wire.adopt(port, SB_HANDOVER_AGAIN).say(CLOSING).acknowledge().close()
    }),
    ("behind a response of HTTP/1.0", |wire, port| {
        wire.adopt(port, SB_HANDOVER_AGAIN).say(OLD).acknowledge().close()
    }),
    ("behind the last response", |wire, port| {
        wire.adopt(port, SB_HANDOVER_AGAIN | SB_HANDOVER_LAST).say(RESPONSE).acknowledge().close()
    }),
    ("in answer to the client's end", |wire, port| wire.adopt(port, 0).say(RESPONSE).hear(FIN).close()),
    ("in answer to the client's end before a response", |wire, port| {
        wire.adopt(port, SB_HANDOVER_AGAIN).hear(FIN).close()
    }),
];

#[test]
fn a_servers_end_is_sent_if_no_other_node_can_continue() {
    alone(|| {
        let wire = Wire::new();
        for (port, (name, happens)) in (50_000..).zip(KEPT_BACK) {
            happens(&wire, port).outlives(name);
        }
        for (port, (name, happens)) in (50_100..).zip(TOLD) {
            happens(&wire, port).ends(name);
        }
    });
}

/// Only the server that has sent a response can retransmit it.
#[test]
fn a_response_is_sent_until_it_is_acknowledged() {
    alone(|| {
        let wire = Wire::new();
        // A part is acknowledged, so that the kernel has measured the round trip.
        let (first, second) = RESPONSE.split_at(1);
        let served = wire.adopt(50_000, SB_HANDOVER_AGAIN).say(first).acknowledge().say(second).close();
        std::thread::sleep(A_MOMENT);
        let left = wire.left(&served.known.flow);
        assert!(left.iter().all(|left| left.flags & END == 0), "a FIN: {left:?}");
        assert!(!served.is_orphan(), "its response may have been lost");
        wait_until("the response is sent again", || {
            wire.left(&served.known.flow).iter().any(|left| !left.is_empty())
        });
        let served = wire.adopt(50_002, SB_HANDOVER_AGAIN).say(RESPONSE).close().acknowledge();
        served.outlives("the server is not needed any more");
    });
}

/// The server has closed, which the client cannot know yet.
#[test]
fn a_request_may_meet_a_server_that_has_closed() {
    alone(|| {
        let wire = Wire::new();
        for (port, more, outlives) in [(50_000, SB_HANDOVER_AGAIN, true), (50_002, 0, false)] {
            let served = wire.adopt(port, SB_HANDOVER_AGAIN).say(RESPONSE).close();
            let option = option(&served.known, SB_OP_FORWARD, SB_HANDOVER_REQUEST | more).with(
                |flow: &mut sb_flow_state| {
                    flow.requests = 2u16.to_be();
                    flow.next = (FIRST + 2 * LEN).to_be();
                },
            );
            let frame = served.known.hand_over(option, REQUEST);
            wire.bench.send(&frame);
            if !outlives {
                served.ends("before a response that must not be made again");
                continue;
            }
            served.outlives("before a response");
            let (verdict, out) = wire.bench.ingress(&to_us(&frame), 0);
            let answer = Handoff::parse(&out).map(|answer| (answer.option.op, answer.option.reason));
            let refused = (SB_OP_REFUSED as u8, SB_REASON_NO_SOCKET as u8);
            assert_eq!((verdict, answer), (Verdict::Redirect, Some(refused)));
            let owned = served.owned().expect("an orphan");
            assert_eq!(owned.answered, ANSWER + RESPONSE.len() as u32, "without the FIN");
        }
    });
}

/// The node's server is back, and the switch has no better node.
#[test]
fn an_orphan_can_come_back() {
    alone(|| {
        let wire = Wire::new();
        let mut served = wire.adopt(50_000, SB_HANDOVER_AGAIN).close();
        served.outlives("before a response");
        served.known.seq = FIRST;
        let packet = served.known.hand_over(option(&served.known, SB_OP_ADOPT, 0), REQUEST);
        served.known.socket = Some(wire.bench.adopt(&packet, &served.known.flow));
        served.known.seq += LEN;
        served.server().read_exact(&mut [0; REQUEST.len()]).expect("the request");
        let served = served.say(RESPONSE);
        assert!(wire.left(&served.known.flow).iter().any(|left| !left.is_empty()));
        assert_eq!(served.owned().map(|owned| (owned.state, owned.again)), Some((SB_OWN_OPEN as u8, 0)));
    });
}

/// While the client has been told more than its node knows, the TSecr keeps its old value.
#[test]
fn an_old_echo_is_kept_from_the_kernel() {
    alone(|| {
        let bench = Bench::new();
        for port in [50_000, 50_001] {
            let mut known = KnownFlow { seq: FIRST, ..asked(port) };
            known.adopt(&bench);
            for (more, echo) in
                [(0, 77), (SB_HANDOVER_AHEAD, 0), (SB_HANDOVER_REQUEST | SB_HANDOVER_AHEAD, 77)]
            {
                let inner = segment(
                    &known.flow,
                    true,
                    (Seq(known.seq), Seq(known.ack)),
                    flags::ACK,
                    Some((66, 77)),
                    b"",
                );
                let view = TcpView::parse(&inner).unwrap();
                let option = option(&known, SB_OP_FORWARD, more);
                let frame = to_us(&known.hand_over_packet(option, &view, &inner));
                let (verdict, out) = bench.ingress(&frame, 0);
                assert_eq!(verdict, Verdict::Pass);
                let view = TcpView::parse(&out[14..]).unwrap();
                assert_eq!(timestamps(&out[14..], &view), Some((66, echo)), "{more:#x}");
                assert!(is_tcp_sealed(&out[14..]));
            }
        }
    });
}
