//! The sums for reports: requests, responses, flows and times to first byte.

use std::time::{Duration, Instant};

use sb_op::*;
use switchback_runtime::monotonic_ns;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;

const HEAD_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";

/// A flow adopted with its first request.
struct Adopted<'a> {
    bench: &'a Bench,
    known: KnownFlow,
    requests: u16,
}

impl<'a> Adopted<'a> {
    fn new(bench: &'a Bench, port: u16) -> Self {
        Self::with_heads(bench, port, 0)
    }

    fn with_heads(bench: &'a Bench, port: u16, heads: u32) -> Self {
        let mut known =
            KnownFlow { flow: flow(port.is_multiple_of(2), port, PORT), seq: 1000, ack: 5000, socket: None };
        let option = known.option(SB_OP_ADOPT).with(|flow: &mut sb_flow_state| flow.heads = heads.to_be());
        known.socket = Some(bench.adopt(&known.hand_over(option, REQUEST), &known.flow));
        known.seq += REQUEST.len() as u32;
        Adopted { bench, known, requests: 1 }
    }

    /// Announces `more` further requests by the switch.
    fn ask(mut self, more: u16) -> Self {
        for _ in 0..more {
            self.requests += 1;
            let option = sb_option {
                flags: SB_HANDOVER_REQUEST as u8,
                ..self.known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
                    flow.requests = self.requests.to_be();
                    flow.origin = 1000u32.to_be();
                })
            };
            let frame = to_us(&self.known.hand_over(option, REQUEST));
            assert_eq!(self.bench.ingress(&frame, 0).0, Verdict::Pass);
            self.known.seq += REQUEST.len() as u32;
        }
        self
    }

    /// Injects a packet from before the adoption, with the switch's state at that time.
    fn hear_late(self, requests: u16) -> Self {
        let option = self.known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
            flow.requests = requests.to_be();
            flow.origin = 1000u32.to_be();
            flow.next = 1000u32.to_be();
        });
        let late = KnownFlow { flow: self.known.flow, seq: 990, ack: self.known.ack, socket: None };
        self.bench.ingress(&to_us(&late.hand_over(option, b"late")), 0);
        self
    }

    /// Injects the first request again with all later ones in the same packet, one of them new; the switch splits it at
    /// the mark. In a test run nothing reaches the socket, so old data counts as about to arrive.
    fn hear_again(self) -> Self {
        let data = REQUEST.repeat(self.requests.into());
        let option = self.known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
            flow.requests = self.requests.to_be();
            flow.origin = 1000u32.to_be();
            flow.next = self.known.seq.to_be();
        });
        let again = KnownFlow { flow: self.known.flow, seq: 1000, ack: self.known.ack, socket: None };
        assert_eq!(self.bench.ingress(&to_us(&again.hand_over(option, &data)), 0).0, Verdict::Drop);
        self.ask(1)
    }

    /// Sends data of the server through egress.
    fn say(mut self, data: &[u8]) -> Self {
        let numbers = (self.known.ack, self.known.seq);
        self.bench.egress(&response(&self.known.flow, numbers, flags::ACK, false, data));
        self.known.ack += data.len() as u32;
        self
    }

    /// Closes the server's socket without reading the request, which resets the connection.
    fn close(mut self) -> Self {
        self.known.socket = None;
        let is_open = |owned: sb_owned| owned.state == sb_ownership::SB_OWN_OPEN as u8;
        wait_until("the end of the flow", || !self.bench.flow(&self.known.flow).is_some_and(is_open));
        self
    }

    fn release(self, more_flags: u32) -> Self {
        let option = sb_option {
            flags: more_flags as u8,
            ..self.known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| {
                flow.origin = 1000u32.to_be();
                flow.requests = self.requests.to_be();
            })
        };
        let frame = to_us(&self.known.hand_over(option, b""));
        assert_eq!(self.bench.ingress(&frame, 0).0, Verdict::Pass, "the RST for the socket");
        self
    }
}

/// Description, events of a flow, and the changes of requests, responses, abandoned, flows, ended and first bytes.
type Row = (&'static str, for<'a> fn(&'a Bench, u16) -> Adopted<'a>, [u64; 6]);

const ROWS: [Row; 13] = [
    ("a request and its response", |bench, port| Adopted::new(bench, port).say(RESPONSE), [1, 1, 0, 1, 0, 1]),
    (
        "a packet of the time before the adoption, when the node had had many requests",
        |bench, port| Adopted::new(bench, port).hear_late(57).say(RESPONSE),
        [1, 1, 0, 1, 0, 1],
    ),
    (
        "pipelined requests, of which the last one waits alone",
        |bench, port| Adopted::new(bench, port).ask(2).say(&RESPONSE.repeat(3)),
        [3, 3, 0, 1, 0, 1],
    ),
    (
        "a request that comes in one packet with those that the client sends again",
        |bench, port| Adopted::new(bench, port).ask(1).hear_again().say(&RESPONSE.repeat(3)),
        [3, 3, 0, 1, 0, 1],
    ),
    (
        "a response to HEAD, and one to GET",
        |bench, port| Adopted::with_heads(bench, port, 1).say(HEAD_RESPONSE).ask(1).say(RESPONSE),
        [2, 2, 0, 1, 0, 2],
    ),
    ("half a response", |bench, port| Adopted::new(bench, port).say(HEAD_RESPONSE), [1, 0, 0, 1, 0, 1]),
    ("a close without a response", |bench, port| Adopted::new(bench, port).close(), [1, 0, 1, 1, 1, 0]),
    (
        "a close after the response",
        |bench, port| Adopted::new(bench, port).say(RESPONSE).close(),
        [1, 1, 0, 1, 1, 1],
    ),
    (
        "a release",
        |bench, port| {
            let mut flow = Adopted::new(bench, port).say(RESPONSE);
            // The server itself has yet to send the data that was followed.
            flow.known.ack = 5000;
            flow.known.answer();
            flow.release(0)
        },
        [1, 1, 0, 1, 1, 1],
    ),
    (
        "a release of a request that is not answered",
        |bench, port| Adopted::new(bench, port).release(SB_RELEASE_ABORT),
        [1, 0, 1, 1, 1, 0],
    ),
    (
        "a response that cannot be followed, and a request after it",
        |bench, port| Adopted::new(bench, port).ask(1).say(b"220 mail ready\r\n").ask(1).close(),
        [2, 0, 2, 1, 1, 0],
    ),
    (
        "an adoption that the kernel refuses",
        |bench, port| {
            let known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
            let failed = bench.counter(NodeCounter::RefusedFailed);
            bench.send(
                &known.hand_over(
                    known.option(SB_OP_ADOPT).with(|flow: &mut sb_flow_state| flow.mss = 0),
                    REQUEST,
                ),
            );
            wait_until("the refusal", || bench.counter(NodeCounter::RefusedFailed) > failed);
            Adopted { bench, known, requests: 1 }
        },
        [1, 0, 1, 0, 0, 0],
    ),
    (
        // The entry is made twice: before and after the old socket is removed.
        "a later connection from the same port",
        |bench, port| {
            let mut old = Adopted::new(bench, port);
            let adopted = bench.counter(NodeCounter::Adopted);
            old.known.seq += 1 << 20;
            bench.send(&old.known.hand_over(old.known.option(SB_OP_ADOPT), REQUEST));
            wait_until("the adoption", || bench.counter(NodeCounter::Adopted) > adopted);
            old
        },
        [3, 0, 2, 2, 1, 0],
    ),
];

fn sums(load: &sb_load) -> [u64; 6] {
    [load.requests, load.responses, load.abandoned, load.flows, load.ended, load.first_bytes]
}

#[test]
fn events_of_flows_are_summed_up() {
    alone(|| {
        let bench = Bench::new();
        for (port, (name, happens, expected)) in (50_000..).zip(ROWS) {
            let before = sums(&bench.load());
            let flow = happens(&bench, port);
            let after = sums(&bench.load());
            let moved: [u64; 6] = std::array::from_fn(|i| after[i] - before[i]);
            assert_eq!(moved, expected, "{name}");
            drop(flow);
        }
    });
}

#[test]
fn the_time_to_the_first_byte_is_measured() {
    const WAIT: Duration = Duration::from_millis(20);
    alone(|| {
        let bench = Bench::new();
        let start = Instant::now();
        let flow = Adopted::new(&bench, 50_000);
        std::thread::sleep(WAIT);
        let flow = flow.say(&RESPONSE[..1]);
        let first = start.elapsed();
        std::thread::sleep(WAIT);
        let _flow = flow.say(&RESPONSE[1..]);
        let load = bench.load();
        let waited = Duration::from_micros(load.waited_us);
        assert!(load.first_bytes == 1 && (WAIT..=first).contains(&waited), "{load:?}, {first:?}");
    });
}

#[test]
fn a_switch_that_says_hello_is_remembered() {
    alone(|| {
        let bench = Bench::new();
        let known = KnownFlow { flow: flow(true, 1, 1), seq: 0, ack: 0, socket: None };
        let own = sb_switch_self { number: 3, program: [1, 2, 3], state: 4, ..Default::default() };
        let hello = known.option(SB_OP_HELLO).saying(&sb_hello { own, ..Default::default() });
        let frame = to_us(&known.hand_over(hello, b""));
        let mut forged = frame.clone();
        forged[14 + 20 + size_of::<sb_shim>() - 1] ^= 1;
        assert_eq!((bench.ingress(&forged, 0).0, bench.switches()), (Verdict::Drop, vec![]));
        assert_eq!(
            (bench.ingress(&frame, 0).0, bench.switches()),
            (Verdict::Drop, vec![address(SWITCHES[0])])
        );
        assert_eq!(bench.counter(NodeCounter::Hello), 1);
        assert_eq!(bench.listening()[0].own, own);
    });
}

#[test]
fn the_end_of_a_flow_says_who_has_ended_it() {
    alone(|| {
        let bench = Bench::new();
        let ends = [(sb_end::SB_END_CLIENT, flags::RST), (sb_end::SB_END_SERVER, flags::ACK)];
        for (port, (end, from_client)) in (1..).zip(ends.into_iter().cycle().take(4)) {
            let mut known =
                KnownFlow { flow: flow(port % 4 < 2, port, PORT), seq: 1000, ack: 5000, socket: None };
            known.adopt(&bench);
            let before = monotonic_ns() / 1000;
            let inner = segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), from_client, None, b"");
            let view = TcpView::parse(&inner).expect("a TCP packet");
            bench.send(&known.hand_over_packet(known.option(SB_OP_FORWARD), &view, &inner));
            if from_client != flags::RST {
                wait_until("the packet has come", || {
                    bench.counter(NodeCounter::Forwarded) == u64::from(port)
                });
                // The request is unread, so the kernel sends a RST.
                drop(known.socket.take());
            }
            wait_until("the flow has ended", || bench.flow(&known.flow).is_none());
            let ended = bench.closed();
            let [closed] = ended[..] else { panic!("{} flows have ended", ended.len()) };
            assert_eq!((closed.flow, closed.end), (known.flow, end as u8));
            assert_eq!((closed.owned.requests, closed.owned.responses), (1, 0));
            assert!(closed.owned.turn_us <= before && before <= closed.at_us);
        }
    });
}
