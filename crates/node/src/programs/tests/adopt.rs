//! What becomes of an ADOPT: the rows of the table in bpf/adopt.h.

use std::io::Read;
use std::mem::offset_of;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use NodeCounter::*;
use nix::libc;
use sb_op::*;
use sb_ownership::*;
use sb_reason::*;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;
use super::resume::acknowledge;

/// `skb->mark` of a packet from the wire and of clones, as in bpf/again.h.
const WIRE: u32 = 0;
const CURED: u32 = 0x5b00_0001;
const CONFIRMED: u32 = 0x5b00_0002;
const BEHIND: u32 = 0x5b00_0003;
const AFTER: u32 = 0x5b00_0004;

const END: u32 = REQUEST.len() as u32;

/// What comes of it at once.
#[derive(Clone, Copy)]
enum Outcome {
    /// Nothing, or a clone is queued behind it.
    Dropped,
    /// The kernel gets the client's packet.
    Delivered,
    /// The kernel gets a RST that removes its socket.
    Reset,
    Adopted,
    Refused(sb_reason),
    PassedOn,
}

struct Row {
    what: &'static str,
    mark: u32,
    before: fn(&Bench, &mut KnownFlow),
    packet: fn(&KnownFlow) -> Vec<u8>,
    outcome: Outcome,
    /// Those that have gone up by one when its clones have come in, too.
    counters: &'static [NodeCounter],
}

/// The first request.
fn first(known: &KnownFlow) -> Vec<u8> {
    known.hand_over(known.option(SB_OP_ADOPT), REQUEST)
}

/// The request behind the one that [`served`] has been adopted with, which a client has sent before it had all of the
/// response.
fn second(known: &KnownFlow) -> Vec<u8> {
    let next = known.seq.wrapping_add(END).to_be();
    let origin = known.seq.wrapping_sub(END).to_be();
    known.hand_over(
        known.option(SB_OP_ADOPT).with(|flow: &mut sb_flow_state| {
            flow.next = next;
            flow.origin = origin;
        }),
        REQUEST,
    )
}

/// The request that it has been adopted with.
fn repeated(known: &KnownFlow) -> Vec<u8> {
    first(&KnownFlow { seq: known.seq - END, flow: known.flow, ack: known.ack, socket: None })
}

fn with_second(known: &KnownFlow) -> Vec<u8> {
    known.hand_over_with(known.option(SB_OP_ADOPT), REQUEST, SECOND[0])
}

fn nothing(_: &Bench, _: &mut KnownFlow) {}

/// The entry of the packet's connection, which has asked for what [`first`] asks.
fn entry(known: &KnownFlow, state: sb_ownership) -> sb_owned {
    sb_owned { state: state as u8, next: known.seq.wrapping_add(END), ..known.owned() }
}

fn adopting(bench: &Bench, known: &mut KnownFlow) {
    bench.put(&known.flow, &entry(known, SB_OWN_ADOPTING));
}

fn open(bench: &Bench, known: &mut KnownFlow) {
    bench.put(&known.flow, &entry(known, SB_OWN_OPEN));
}

/// Released with [`first`], at its end.
fn released(bench: &Bench, known: &mut KnownFlow) {
    bench.put(&known.flow, &entry(known, SB_OWN_RELEASED));
}

/// Another connection of the same addresses and ports.
fn other(bench: &Bench, known: &mut KnownFlow, state: sb_ownership) {
    let origin = known.seq + 100_000;
    bench.put(&known.flow, &sb_owned { origin, ..entry(known, state) });
}

fn passed_on(bench: &Bench, known: &mut KnownFlow) {
    let reason = SB_REASON_PASSED_ON as u8;
    bench.put(&known.flow, &sb_owned { reason, ..entry(known, SB_OWN_RELEASED) });
}

/// Adopted with its first request, to which `seq` and `ack` do not belong any more.
fn served(bench: &Bench, known: &mut KnownFlow) {
    known.adopt(bench);
    wait_until("the entry of an open flow", || {
        bench.flow(&known.flow).is_some_and(|owned| owned.state == SB_OWN_OPEN as u8)
    });
}

fn over(bench: &Bench, known: &mut KnownFlow) {
    served(bench, known);
    known.socket.take();
    assert_eq!(bench.flow(&known.flow), None, "the server has closed");
}

/// The socket has been made without data, which goes by the program that inserts a cookie.
fn waits_for_data(bench: &Bench, known: &mut KnownFlow) {
    served(bench, known);
    let owned = bench.flow(&known.flow).expect("an open flow");
    bench.put(&known.flow, &sb_owned { hooked: sb_hook::SB_HOOK_WANTED as u8, ..owned });
}

fn draining(bench: &Bench) {
    bench.set(NODE[0], true);
}

const ROWS: &[Row] = &[
    // Clones that come to see what has become of it.
    Row {
        what: "confirmed, still adopting",
        mark: CONFIRMED,
        before: adopting,
        packet: first,
        outcome: Outcome::Refused(SB_REASON_FAILED),
        counters: &[RefusedFailed],
    },
    Row {
        what: "confirmed, the socket waits for its data",
        mark: CONFIRMED,
        before: waits_for_data,
        packet: repeated,
        outcome: Outcome::Delivered,
        counters: &[Adopted],
    },
    Row {
        what: "confirmed, open",
        mark: CONFIRMED,
        before: open,
        packet: first,
        outcome: Outcome::Adopted,
        counters: &[Adopted],
    },
    Row {
        what: "confirmed, and over already",
        mark: CONFIRMED,
        before: nothing,
        packet: first,
        outcome: Outcome::Adopted,
        counters: &[Adopted],
    },
    Row {
        what: "behind one that has been refused",
        mark: BEHIND,
        before: nothing,
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[],
    },
    Row {
        what: "behind, another connection",
        mark: BEHIND,
        before: |bench, known| other(bench, known, SB_OWN_OPEN),
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[],
    },
    Row {
        what: "behind, still adopting",
        mark: BEHIND,
        before: adopting,
        packet: first,
        outcome: Outcome::Refused(SB_REASON_FAILED),
        counters: &[RefusedFailed],
    },
    Row {
        what: "behind, open",
        mark: BEHIND,
        before: open,
        packet: first,
        outcome: Outcome::Adopted,
        counters: &[],
    },
    // What the entry decides alone.
    Row {
        what: "of a connection that is over",
        mark: WIRE,
        before: over,
        packet: repeated,
        outcome: Outcome::Adopted,
        counters: &[Repeated],
    },
    Row {
        what: "another connection is being adopted",
        mark: WIRE,
        before: |bench, known| other(bench, known, SB_OWN_ADOPTING),
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    Row {
        what: "another connection was being adopted before",
        mark: AFTER,
        before: |bench, known| other(bench, known, SB_OWN_ADOPTING),
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    Row {
        what: "passed on, and again with a second candidate",
        mark: WIRE,
        before: passed_on,
        packet: with_second,
        outcome: Outcome::PassedOn,
        counters: &[PassedOn],
    },
    Row {
        what: "passed on, and for this node now",
        mark: WIRE,
        before: passed_on,
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    Row {
        what: "passed on, with another request",
        mark: WIRE,
        before: |bench, known| {
            let (reason, next) = (SB_REASON_PASSED_ON as u8, known.seq + 2 * END);
            bench.put(&known.flow, &sb_owned { reason, next, ..entry(known, SB_OWN_RELEASED) });
        },
        packet: with_second,
        outcome: Outcome::Dropped,
        counters: &[DropStale],
    },
    Row {
        what: "released behind it",
        mark: WIRE,
        before: released,
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[DropStale],
    },
    Row {
        what: "released before it",
        mark: WIRE,
        before: |bench, known| {
            bench.put(&known.flow, &sb_owned { next: known.seq, ..entry(known, SB_OWN_RELEASED) });
        },
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    Row {
        what: "frozen",
        mark: WIRE,
        before: |bench, known| {
            let reason = SB_REASON_FROZEN as u8;
            let entry = entry(known, SB_OWN_RELEASED);
            bench.put(&known.flow, &sb_owned { reason, next: known.seq, ..entry });
        },
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[DropStale],
    },
    Row {
        what: "a later request is being adopted",
        mark: WIRE,
        before: |bench, known| {
            let next = known.seq + 2 * END;
            bench.put(&known.flow, &sb_owned { next, ..entry(known, SB_OWN_ADOPTING) });
        },
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[DropStale],
    },
    Row {
        what: "a copy of what is being adopted",
        mark: WIRE,
        before: adopting,
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    Row {
        what: "an earlier request is being adopted",
        mark: WIRE,
        before: |bench, known| {
            bench.put(&known.flow, &sb_owned { next: known.seq, ..entry(known, SB_OWN_ADOPTING) });
        },
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    // A node that is draining.
    Row {
        what: "draining",
        mark: WIRE,
        before: |bench, _| draining(bench),
        packet: first,
        outcome: Outcome::Refused(SB_REASON_DRAINING),
        counters: &[RefusedDraining],
    },
    Row {
        what: "draining, and the flow has been released",
        mark: WIRE,
        before: |bench, known| {
            draining(bench);
            bench.put(&known.flow, &sb_owned { next: known.seq, ..entry(known, SB_OWN_RELEASED) });
        },
        packet: first,
        outcome: Outcome::Refused(SB_REASON_DRAINING),
        counters: &[RefusedDraining],
    },
    Row {
        what: "draining, and the flow is here",
        mark: WIRE,
        before: |bench, known| {
            served(bench, known);
            draining(bench);
        },
        packet: repeated,
        outcome: Outcome::Adopted,
        counters: &[],
    },
    Row {
        what: "draining since the old socket was removed",
        mark: CURED,
        before: |bench, known| {
            adopting(bench, known);
            draining(bench);
        },
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    // What the socket decides.
    Row {
        what: "no listener",
        mark: WIRE,
        before: |_, known| known.flow.vip_port = (PORT + 1).to_be(),
        packet: first,
        outcome: Outcome::Refused(SB_REASON_NO_LISTENER),
        counters: &[RefusedNoListener],
    },
    Row {
        what: "no listener any more, when the old socket was removed",
        mark: CURED,
        before: |bench, known| {
            known.flow.vip_port = (PORT + 1).to_be();
            adopting(bench, known);
        },
        packet: first,
        outcome: Outcome::Refused(SB_REASON_NO_LISTENER),
        counters: &[RefusedNoListener],
    },
    Row {
        what: "a listener",
        mark: WIRE,
        before: nothing,
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    Row {
        what: "a listener whose queue is full",
        mark: WIRE,
        before: |bench, _| bench.reserve(100_000, Duration::ZERO),
        packet: first,
        outcome: Outcome::Refused(SB_REASON_QUEUE_FULL),
        counters: &[RefusedQueueFull],
    },
    Row {
        what: "the old socket was removed",
        mark: CURED,
        before: adopting,
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[RefusedFailed],
    },
    Row {
        what: "a copy, and the socket waits for its data",
        mark: WIRE,
        before: waits_for_data,
        packet: repeated,
        outcome: Outcome::Delivered,
        counters: &[],
    },
    Row {
        what: "a copy, and the flow is here",
        mark: WIRE,
        before: served,
        packet: repeated,
        outcome: Outcome::Adopted,
        counters: &[],
    },
    Row {
        what: "a copy of an earlier request, whose data the socket has",
        mark: WIRE,
        before: |bench, known| {
            served(bench, known);
            let owned = bench.flow(&known.flow).expect("an open flow");
            bench.put(&known.flow, &sb_owned { next: known.seq + END, ..owned });
        },
        packet: repeated,
        outcome: Outcome::Adopted,
        counters: &[],
    },
    Row {
        what: "another request of a flow that is here",
        mark: WIRE,
        before: served,
        packet: second,
        outcome: Outcome::Reset,
        counters: &[Cured, DropStale],
    },
    Row {
        what: "the socket of another connection",
        mark: WIRE,
        before: |bench, known| {
            served(bench, known);
            known.seq += 1 << 20;
        },
        packet: first,
        outcome: Outcome::Reset,
        counters: &[Cured, DropStale],
    },
    Row {
        what: "a socket without an entry",
        mark: WIRE,
        before: |bench, known| {
            served(bench, known);
            bench.forget(&known.flow);
            known.seq += 1 << 20;
        },
        packet: first,
        outcome: Outcome::Reset,
        counters: &[Cured, DropStale],
    },
    Row {
        what: "the old socket does not go",
        mark: CURED,
        before: |bench, known| {
            served(bench, known);
            known.seq += 1 << 20;
            adopting(bench, known);
        },
        packet: first,
        outcome: Outcome::Dropped,
        counters: &[DropStale],
    },
];

fn check(row: &Row, verdict: Verdict, frame: &[u8], out: &[u8]) {
    let what = row.what;
    let answer = || {
        assert_eq!(verdict, Verdict::Redirect, "{what}");
        let option = Handoff::parse(out).expect("a handoff packet").option;
        (option.op, option.reason)
    };
    match row.outcome {
        Outcome::Dropped => assert_eq!(verdict, Verdict::Drop, "{what}"),
        Outcome::Delivered => {
            let inner = &frame[Handoff::read(frame).expect("a handoff packet").inner..];
            assert_eq!((verdict, &out[14..]), (Verdict::Pass, inner), "{what}");
        }
        Outcome::Reset => {
            assert_eq!((verdict, out.len()), (Verdict::Pass, 14 + 20 + 20), "{what}");
            assert_eq!(out[14 + 20 + 13], flags::RST, "{what}");
        }
        Outcome::Adopted => assert_eq!(answer(), (SB_OP_ADOPTED as u8, 0), "{what}"),
        Outcome::Refused(reason) => assert_eq!(answer(), (SB_OP_REFUSED as u8, reason as u8), "{what}"),
        Outcome::PassedOn => assert_eq!(answer().0, SB_OP_ADOPT as u8, "{what}"),
    }
}

#[test]
fn each_row_of_the_table() {
    alone(|| {
        let bench = Bench::new();
        // What the interface of the switch has filled a short frame with (IEEE 802.3 section 3.2.7) comes along.
        let padded = [&[][..], &[0xa5; 6]];
        let rows = ROWS.iter().flat_map(|row| padded.map(|padding| (row, padding)));
        for ((row, padding), port) in rows.zip(50_000..) {
            let mut known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
            (row.before)(&bench, &mut known);
            let before = NodeCounter::ALL.map(|counter| bench.counter(counter));
            // Answers of clones come in again by the loopback interface, as packets of another node.
            let moved = || {
                let now = NodeCounter::ALL.map(|counter| bench.counter(counter));
                let by = now.iter().zip(before).map(|(now, before)| now - before);
                let moved = NodeCounter::ALL.into_iter().zip(by);
                moved.filter(|(counter, by)| *by != 0 && *counter != DropTag).collect::<Vec<_>>()
            };
            let frame = [&to_us(&(row.packet)(&known)), padding].concat();
            let (verdict, out) = match row.outcome {
                Outcome::Delivered => bench.ingress_summed(&frame, row.mark),
                _ => bench.ingress(&frame, row.mark),
            };
            check(row, verdict, &frame, &out);
            let mut expected: Vec<_> = row.counters.iter().map(|counter| (*counter, 1)).collect();
            expected.sort_by_key(|(counter, _)| *counter as u32);
            wait_until(row.what, || moved().len() >= expected.len());
            assert_eq!(moved(), expected, "{}", row.what);
            bench.reserve(0, Duration::ZERO);
            bench.be(NODE[0]);
        }
    });
}

/// The kernel's estimate of the round trip, in microseconds; 0: it has none.
fn round_trip_us(socket: &TcpStream) -> u32 {
    tcp_info(socket, offset_of!(libc::tcp_info, tcpi_rtt))
}

/// The client echoes what the switch has sent, which is no time. The kernel's own estimate goes to the next node.
#[test]
fn the_kernel_hears_of_the_round_trip_from_the_switch() {
    alone(|| {
        let bench = Bench::new();
        for (port, code) in (50_100..).zip([0, 1, 9]) {
            let mut known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
            let options = SB_SYN_TSTAMP as u8 | code << SB_ROUND_TRIP_SHIFT;
            let option = known.option(SB_OP_ADOPT).with(|flow: &mut sb_flow_state| flow.options = options);
            let numbers = (Seq(known.seq), Seq(known.ack));
            let inner = segment(&known.flow, true, numbers, flags::ACK, Some((66, 77)), REQUEST);
            let view = TcpView::parse(&inner).expect("a TCP packet");
            let socket = bench.adopt(&known.hand_over_packet(option, &view, &inner), &known.flow);
            let us = round_trip_us(&socket);
            // The kernel's clock goes on while it takes the packet.
            let longest = Duration::from_millis(100).as_micros() as u32;
            let told = if code == 0 { 0..1 } else { 1000 << (code - 1)..(1000 << (code - 1)) + longest };
            assert!(told.contains(&us), "code {code}: {us} us");

            known.socket = Some(socket);
            known.seq = known.seq.wrapping_add(END);
            known.answer();
            let options = SB_SYN_TSTAMP as u8;
            bench.put(&known.flow, &sb_owned { origin: 1000, options, ..known.owned() });
            let release =
                known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| flow.origin = 1000u32.to_be());
            bench.ingress(&to_us(&known.hand_over(release, b"")), 0);
            let owned = bench.flow(&known.flow).expect("a released flow");
            assert_eq!((owned.state, owned.options & SB_SYN_ALL as u8), (SB_OWN_RELEASED as u8, options));
            let measured = owned.options >> SB_ROUND_TRIP_SHIFT;
            assert!(measured >= code && (code != 0 || measured == 0), "code {code}: {measured}");
        }
    });
}

/// The server does not listen at the VIP. What it sees are the addresses of the client and of the VIP.
#[test]
fn a_listener_elsewhere_gets_the_connection() {
    alone(|| {
        let bench = Bench::new();
        for (v6, ip) in [(false, "127.0.0.1"), (true, "::1")] {
            let server = TcpListener::bind((ip, 0)).unwrap();
            let elsewhere = server.local_addr().unwrap();
            for vip_port in [PORT, PORT + 1] {
                let known =
                    KnownFlow { flow: flow(v6, 40_000, vip_port), seq: 1000, ack: 5000, socket: None };
                bench.serve_at(&known.flow, elsewhere);
                let adopted = bench.counter(Adopted);
                bench.send(&first(&known));
                let (mut socket, client) = server.accept().unwrap();
                assert_eq!((client, socket.local_addr().unwrap()), (known.flow.client(), known.flow.vip()));
                let mut request = [0; REQUEST.len()];
                socket.read_exact(&mut request).unwrap();
                assert_eq!(request, *REQUEST);
                wait_until("the switch is told", || bench.counter(Adopted) > adopted);
                // A copy finds the connection, and nobody listens there any more.
                bench.serve_at(&known.flow, "127.0.0.1:1".parse().unwrap());
                let refused = bench.counter(RefusedNoListener);
                bench.send(&first(&known));
                acknowledge(&bench, &mut KnownFlow { seq: 1000 + END, ..known }, 0);
                assert_eq!(
                    (bench.counter(Adopted), bench.counter(RefusedNoListener)),
                    (adopted + 1, refused)
                );
                // Nor does the one at the VIP get another connection.
                bench.send(&first(&KnownFlow {
                    flow: flow(v6, 40_001, vip_port),
                    seq: 1000,
                    ack: 5000,
                    socket: None,
                }));
                wait_until("it is refused", || bench.counter(RefusedNoListener) > refused);
            }
        }
    });
}
