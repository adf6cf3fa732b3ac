//! First requests that the program gives to nodes itself, by choices made ahead.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use SwitchCounter::*;
use sb_mode::*;
use sb_op::*;
use sb_record_kind::*;
use switchback_wire::generation::Generation;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::*;

use super::bench::*;
use super::forward::PLAIN;
use super::frames::*;
use super::handshake::{ISN, held, last};
use super::hex;
use crate::plan::NodeId;

/// The share of accept queues in the tests' choices.
const SHARE: u8 = 90;
const HEAD: &[u8] = b"HEAD / HTTP/1.0\r\nHost: a\r\n\r\n";

/// The first data of a new connection, whose handshake the program has seen.
fn first(bench: &Bench, flow: &sb_flow, data: &[u8]) -> Tcp {
    bench.forget(flow);
    let syn = Offer::USUAL.syn(flow, ISN);
    bench.forget_handshake(bench.cookie(&syn).0);
    let cookie = bench.cookie(&syn);
    bench.age_handshake(cookie.0, Duration::from_secs(3600));
    last(flow, &Offer::USUAL, cookie, flags::ACK, data)
}

/// The entry behind the request, at the node that has been given it.
fn entry(flow: &sb_flow, node: NodeId, data: &[u8]) -> sb_flow_entry {
    let held = held(flow, &Offer::USUAL, ISN);
    sb_flow_entry {
        node: node.0,
        mode: SB_MODE_ADOPTING as u8,
        next: held.origin.wrapping_add(data.len() as u32),
        requests: 1,
        heads: data.starts_with(b"HEAD").into(),
        generation: Generation::first(0).next_attempt().number(),
        ..held
    }
}

/// The ADOPT that user space would send.
fn adopt(bench: &Bench, flow: &sb_flow, entry: &sb_flow_entry, packet: &[u8], flags: u32) -> Vec<u8> {
    let view = TcpView::parse(packet).unwrap();
    let option = typed(entry).flow_state().option(SB_OP_ADOPT);
    let option = sb_option { flags: flags as u8, ..option };
    let option = option.with(|said: &mut sb_handover| {
        (said.boundary, said.queue_share) = ((view.len() as u16).to_be(), SHARE);
    });
    bench.handed(NodeId(entry.node), flow, option, &view, packet)
}

/// What a node says about the adoption of a flow.
fn said(
    bench: &Bench,
    node: NodeId,
    flow: &sb_flow,
    entry: &sb_flow_entry,
    op: sb_op,
    packet: &[u8],
) -> Vec<u8> {
    let option = typed(entry).flow_state().option(op);
    let option = option.with(|said: &mut sb_outcome| said.queue = (3, 511).into());
    bench.node_frame(node, &Bench::sign(), flow, option, packet)
}

fn place(bench: &Bench, flow: &sb_flow, node: NodeId) -> (sb_flow_entry, Tcp) {
    bench.choose_ahead(&[node], SHARE);
    let packet = first(bench, flow, PLAIN.as_bytes());
    assert_eq!(bench.send(&packet.frame()).moved, [(Placed, 1), (Forwarded, 1)]);
    (entry(flow, node, PLAIN.as_bytes()), packet)
}

#[test]
fn a_plain_first_request_goes_to_the_next_choice() {
    let bench = Bench::new();
    let (again, last) = (SB_HANDOVER_AGAIN, SB_HANDOVER_AGAIN | SB_HANDOVER_LAST);
    for flow in flows() {
        for (data, flags) in [(PLAIN.as_bytes(), again), (HEAD, last)] {
            let nodes = [V6, V4, HERE[0], ON_ANOTHER_INTERFACE, V4, NUMBERED[1]];
            bench.choose_ahead(&nodes, SHARE);
            for node in nodes {
                let packet = first(&bench, &flow, data);
                let outcome = bench.send(&packet.frame());
                let entry = entry(&flow, node, data);
                let verdict = match node {
                    ON_ANOTHER_INTERFACE => Verdict::Redirect,
                    node if HERE.contains(&node) => Verdict::Pass,
                    _ => Verdict::Tx,
                };
                let what = format!("{flow:?} to {node}");
                assert_eq!(outcome.moved, [(Placed, 1), (Forwarded, 1)], "{what}");
                assert_eq!((outcome.verdict, outcome.records.len()), (verdict, 0), "{what}");
                let sent = adopt(&bench, &flow, &entry, &packet.packet(), flags);
                assert_eq!(hex(&outcome.frame), hex(&sent), "{what}");
                assert_eq!(bench.l7().mapped(&flow), Some(entry), "{what}");
            }
            let packet = first(&bench, &flow, data);
            assert_eq!(bench.send(&packet.frame()).moved, [(Request, 1)], "no choice is left");
        }
    }
}

#[test]
fn other_first_data_is_left_to_the_l7_thread() {
    let bench = Bench::new();
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let two = [PLAIN, PLAIN].concat();
    let image = PLAIN.replace("/a?b", "/img/a");
    for flow in flows() {
        for data in [post, two.as_bytes(), &PLAIN.as_bytes()[..20], image.as_bytes()] {
            bench.choose_ahead(&[V4], SHARE);
            let packet = first(&bench, &flow, data);
            assert_eq!(bench.send(&packet.frame()).moved, [(Request, 1)], "{}", data.escape_ascii());
            assert_eq!(bench.choices_left(), 1);
        }
        let packet = first(&bench, &flow, PLAIN.as_bytes());
        let last = Tcp { flags: flags::ACK | flags::FIN, ..packet };
        assert_eq!(bench.send(&last.frame()).moved, [(Request, 1)], "the client ends with it");
    }
}

#[test]
fn a_choice_that_is_too_old_or_of_no_use_is_not_taken() {
    let bench = Bench::new();
    for flow in flows() {
        let left_to_l7 = |what: &str| {
            let packet = first(&bench, &flow, PLAIN.as_bytes());
            assert_eq!(bench.send(&packet.frame()).moved, [(Request, 1)], "{what}");
            assert_eq!(bench.l7().mapped(&flow), Some(held(&flow, &Offer::USUAL, ISN)), "{what}");
        };
        for node in [UNRESOLVED, DEAD, UNKNOWN] {
            bench.choose_ahead(&[node], SHARE);
            left_to_l7(&format!("node {node}"));
        }
        bench.choose_ahead(&[V4], SHARE);
        bench.program.with_choices(|shared| shared.queues[0].until = 1);
        left_to_l7("too old");
        bench.choose_ahead(&[V4], SHARE);
        bench.program.with_choices(|shared| shared.places.fill(SB_NO_CHOICES as u16));
        left_to_l7("no queue");
        bench.configure(0);
    }
}

#[test]
fn only_the_first_data_after_a_handshake_of_this_process_is_placed() {
    let bench = Bench::new();
    for flow in flows() {
        let sent = |what: &str, packet: &Tcp, mode: sb_mode| {
            let outcome = bench.send(&packet.frame());
            assert_eq!(outcome.moved, [(Request, 1)], "{what}");
            assert_eq!(outcome.records[0].head.entry.mode, mode as u8, "{what}");
        };
        // The entry gives way to others, and a copy comes late.
        let (_, packet) = place(&bench, &flow, V4);
        bench.lose(&flow);
        bench.choose_ahead(&[V4], SHARE);
        sent("a copy", &packet, SB_MODE_HELD);
        // Likewise, when the L7 thread has the beginning.
        let packet = first(&bench, &flow, PLAIN.as_bytes());
        let beginning = Tcp { data: packet.data[..9].to_vec(), ..packet.clone() };
        sent("the beginning", &beginning, SB_MODE_HELD);
        bench.lose(&flow);
        sent("a copy of what has begun", &packet, SB_MODE_HELD);
        // A copy of the SYN changes nothing.
        bench.lose(&flow);
        bench.cookie(&Offer::USUAL.syn(&flow, ISN));
        sent("a copy behind a copy of the SYN", &packet, SB_MODE_HELD);
        let packet = first(&bench, &flow, PLAIN.as_bytes());
        bench.forget_handshake(packet.ack.wrapping_sub(1));
        sent("a forgotten handshake", &packet, SB_MODE_HELD);
        let packet = first(&bench, &flow, PLAIN.as_bytes());
        bench.restart();
        sent("the handshake of another process", &packet, SB_MODE_SOUGHT);
        assert_eq!(bench.choices_left(), 1);
    }
}

/// The thread may yet send ADOPT for the first connection, which must not come behind that for the second.
#[test]
fn the_successor_of_a_connection_is_left_to_the_l7_thread() {
    let bench = Bench::new();
    for flow in flows() {
        for acknowledged in [false, true] {
            for mode in [SB_MODE_HELD, SB_MODE_REQUESTS] {
                let packet = first(&bench, &flow, PLAIN.as_bytes());
                let origin = packet.seq.wrapping_sub(1000);
                let before =
                    sb_flow_entry { origin, contested: 1, mode: mode as u8, ..entry(&flow, V4, b"") };
                bench.put(&flow, &before);
                bench.choose_ahead(&[V4], SHARE);
                let what = format!("mode {mode:?}, acknowledged {acknowledged}");
                let mut moves = vec![(Request, 1), (Succeeded, 1)];
                if acknowledged {
                    let ack = Tcp { data: Vec::new(), ..packet.clone() };
                    assert_eq!(bench.send(&ack.frame()).moved, [(HandshakeAck, 1), (Succeeded, 1)], "{what}");
                    moves.truncate(1);
                }
                assert_eq!(bench.send(&packet.frame()).moved, moves, "{what}");
                assert_eq!(bench.choices_left(), 1, "{what}");
            }
        }
    }
}

/// Nodes confirm adoptions.
pub fn confirm(bench: &Bench) {
    for flow in flows() {
        let (entry, packet) = place(bench, &flow, V4);
        let before = (bench.program.placed_by_node(V4), bench.program.express_by_service(0));
        // Nodes say no generation in ADOPTED.
        let told = sb_flow_entry { generation: 0, ..entry };
        let adopted = said(bench, V4, &flow, &told, SB_OP_ADOPTED, &packet.packet());
        let outcome = bench.send(&adopted);
        assert_eq!((outcome.verdict, &outcome.moved[..]), (Verdict::Drop, &[(Confirmed, 1)][..]));
        assert!(outcome.records.is_empty());
        let confirmed = sb_flow_entry { mode: SB_MODE_REQUESTS as u8, ..entry };
        assert_eq!(bench.l7().mapped(&flow), Some(confirmed));
        let after = (bench.program.placed_by_node(V4), bench.program.express_by_service(0));
        assert_eq!(after, (before.0 + 1, before.1 + 1));
        let listener = usize::from(flow.client().is_ipv6());
        let queue = bench.program.with_choices(|shared| shared.listeners[listener * SB_NODES as usize]);
        assert_eq!(queue, 3 << 16 | 511);
        assert_eq!(bench.send(&adopted).moved, [(HandoffReceived, 1)], "a copy");
    }
}

#[test]
fn adopted_is_noted_by_the_program() {
    confirm(&Bench::new());
}

#[test]
fn other_answers_go_to_the_l7_thread() {
    let bench = Bench::new();
    for flow in flows() {
        let (entry, packet) = place(&bench, &flow, V4);
        let packet = packet.packet();
        let successor = sb_flow_entry { origin: entry.origin + 1, ..entry };
        for (what, frame) in [
            ("REFUSED", said(&bench, V4, &flow, &entry, SB_OP_REFUSED, &packet)),
            ("ADOPTED by another node", said(&bench, V6, &flow, &entry, SB_OP_ADOPTED, &packet)),
            ("ADOPTED, another connection", said(&bench, V4, &flow, &successor, SB_OP_ADOPTED, &packet)),
        ] {
            let outcome = bench.send(&frame);
            assert_eq!(outcome.moved, [(HandoffReceived, 1)], "{what}");
            assert_eq!(outcome.records[0].head.kind, SB_RECORD_HANDOFF as u32, "{what}");
            assert_eq!(bench.l7().mapped(&flow), Some(entry), "{what}");
        }
        let outcome = bench.send(&said(&bench, V4, &flow, &entry, SB_OP_CLOSED, &packet));
        assert_eq!((outcome.moved, bench.l7().mapped(&flow)), (vec![(Closed, 1)], None));
    }
}

#[test]
fn data_before_the_confirmation_goes_to_the_l7_thread_and_the_rest_to_the_node() {
    let bench = Bench::new();
    for flow in flows() {
        let (entry, packet) = place(&bench, &flow, V4);
        let bare =
            |more| Tcp { data: Vec::new(), seq: entry.next, flags: flags::ACK | more, ..packet.clone() };
        for tcp in [bare(0), bare(flags::FIN), bare(flags::RST)] {
            let outcome = bench.send(&tcp.frame());
            let sent = bench.forwarded(&entry, &flow, &tcp.packet(), 0);
            assert_eq!((outcome.moved, hex(&outcome.frame)), (vec![(Forwarded, 1)], hex(&sent)));
        }
        let next = Tcp { seq: entry.next, ..packet.clone() };
        let locked = sb_flow_entry { locked: 1, ..entry };
        for tcp in [packet.clone(), next] {
            bench.put_established(&flow, &entry);
            let outcome = bench.send(&tcp.frame());
            assert_eq!(outcome.moved, [(Request, 1)]);
            assert_eq!(
                (outcome.records[0].head.entry, outcome.records[0].head.kind),
                (locked, SB_RECORD_REQUEST as u32)
            );
            assert_eq!(bench.l7().mapped(&flow), Some(locked));
            let adopted = said(&bench, V4, &flow, &entry, SB_OP_ADOPTED, &packet.packet());
            assert_eq!(bench.send(&adopted).moved, [(HandoffReceived, 1)], "the L7 thread has a packet");
        }
        let mut damaged = packet.frame();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(bench.send(&damaged).moved, [(DropChecksum, 1)]);
    }
}

/// How long copies of first requests are sent on two CPUs.
const TIME: Duration = Duration::from_secs(10);

/// Sends copies of first requests on two CPUs at the same time, until both have found that out. A request goes to a node
/// or to the L7 thread.
pub fn send_twice(bench: &Bench) {
    let [flow, _] = flows();
    let begun = Instant::now();
    let mut rounds = 0;
    while bench.program.counter(DropTwice) == 0 {
        assert!(begun.elapsed() < TIME, "no copies met in {rounds} rounds");
        rounds += 1;
        bench.choose_ahead(&[V4], SHARE);
        let frame = first(bench, &flow, PLAIN.as_bytes()).frame();
        let (before, program) = (bench.program.counter(Placed), bench.program_fd());
        let _ = bench.records();
        let meeting = Barrier::new(2);
        let run = || {
            meeting.wait();
            run_apart(program, &frame);
        };
        std::thread::scope(|scope| {
            scope.spawn(run);
            run();
        });
        let placed = bench.program.counter(Placed) - before;
        let begins = |record: &Record| record.head.entry.mode == SB_MODE_HELD as u8;
        let begun = bench.records().iter().filter(|record| begins(record)).count();
        assert!(placed + begun as u64 <= 1, "{placed} placed, {begun} begun");
    }
}
