//! Attacks on the entries of other clients: SYNs with the addresses and ports of a connection, and connections that
//! begin and go no further.

use SwitchCounter::*;
use sb_mode::*;
use sb_record_kind::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::{Bench, V4, Verdict, typed};
use super::frames::*;
use super::handshake::{ISN, REQUEST, held, last};
use super::{Row, run_all};

/// Start of the victim's connection, and its mark.
const ORIGIN: u32 = 0x7000_0000;
const MARK: u32 = ORIGIN + 1000;
const SERVER: u32 = 0x0100_0000;

fn entry(mode: sb_mode) -> sb_flow_entry {
    sb_flow_entry {
        node: V4.0,
        origin: ORIGIN,
        next: MARK,
        mode: mode as u8,
        mss: 1460,
        ..Default::default()
    }
}

fn contested(entry: sb_flow_entry) -> sb_flow_entry {
    sb_flow_entry { contested: 1, ..entry }
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        for mode in [SB_MODE_REQUESTS, SB_MODE_TUNNEL, SB_MODE_HELD, SB_MODE_ANSWERED] {
            for stamp in [None, Some(9)] {
                let offer = Offer { stamp, ..Offer::USUAL };
                rows.extend(successor_rows(bench, flow, &offer, &entry(mode)));
            }
        }
        rows.extend(victim_rows(bench, flow));
    }
    rows
}

/// A new connection with the same addresses and ports replaces one that the client has given up, once the client has
/// answered the SYN-ACK.
fn successor_rows(bench: &Bench, flow: &sb_flow, offer: &Offer, old: &sb_flow_entry) -> Vec<Row> {
    let cookie = bench.cookie(&offer.syn(flow, ISN));
    let packet = |tcp_flags, data| last(flow, offer, cookie, flags::ACK | tcp_flags, data);
    let reset = Tcp { window: 0, ..Tcp::answer(flow, packet(flags::FIN, b"").ack, 0, flags::RST) };
    let row = |what: &str, tcp: Tcp, verdict, moves: SwitchCounter| {
        let what = format!("{what} of a successor in mode {}", old.mode);
        Row::new(&what, flow, tcp.frame(), verdict, [Succeeded, moves]).with(&contested(*old))
    };
    vec![
        row("the ACK", packet(0, b""), Verdict::Drop, HandshakeAck).leaves(None),
        row("the end", packet(flags::FIN, b""), Verdict::Tx, ResetSent)
            .leaves(None)
            .sends(from_us(&reset.packet())),
        row("the first data", packet(flags::PSH, REQUEST), Verdict::Drop, Request)
            .leaves(Some(held(flow, offer, ISN)))
            .records(SB_RECORD_REQUEST),
    ]
}

/// The victim's packets go to its node, whatever SYN has come; so do packets that only resemble those of a successor.
fn victim_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let offer = Offer { stamp: None, ..Offer::USUAL };
    let cookie = bench.cookie(&offer.syn(flow, ISN));
    let ack = last(flow, &offer, cookie, flags::ACK, b"");
    let changed = |change: fn(&mut Tcp)| {
        let mut tcp = ack.clone();
        change(&mut tcp);
        tcp
    };
    let packets = [
        ("data before the mark", Tcp::data(flow, MARK - 100, SERVER, &[b'x'; 100])),
        ("an ACK", Tcp::new(flow, MARK, SERVER, flags::ACK)),
        ("a challenge ACK", Tcp::new(flow, MARK, SERVER, flags::ACK)),
        ("RST of the newer connection", changed(|tcp| tcp.flags |= flags::RST)),
        ("a wrong cookie", changed(|tcp| tcp.ack ^= 1)),
        ("a wrong number", changed(|tcp| tcp.seq += 1)),
    ];
    let mut rows = Vec::new();
    for (what, tcp) in packets {
        let entry = contested(sb_flow_entry { mode: SB_MODE_TUNNEL as u8, ..entry(SB_MODE_TUNNEL) });
        rows.push(
            Row::new(&format!("{what} on a contested flow"), flow, tcp.frame(), Verdict::Tx, [Forwarded])
                .with(&entry)
                .sends(bench.forwarded(&entry, flow, &tcp.packet(), 0)),
        );
    }
    let entry = entry(SB_MODE_TUNNEL);
    rows.push(
        Row::new("no SYN has come", flow, ack.frame(), Verdict::Tx, [Forwarded])
            .with(&entry)
            .sends(bench.forwarded(&entry, flow, &ack.packet(), 0)),
    );
    rows
}

#[test]
fn a_successor_takes_the_place_of_a_flow_that_its_client_has_given_up() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}

#[test]
fn forged_syns_cost_a_flow_nothing() {
    let bench = Bench::new();
    for flow in &flows() {
        for mode in [SB_MODE_REQUESTS, SB_MODE_TUNNEL, SB_MODE_HELD, SB_MODE_ANSWERED] {
            bench.put(flow, &entry(mode));
            let seen = [ORIGIN, MARK, MARK + 1, SERVER, 0, u32::MAX];
            for seq in seen.into_iter().chain((0..64).map(|bits| 0x9e37_79b9u32.wrapping_mul(bits))) {
                let outcome = bench.send(&Offer::USUAL.syn(flow, seq).frame());
                assert_eq!((outcome.verdict, outcome.moved), (Verdict::Tx, vec![(SynAnswered, 1)]));
                assert_eq!(bench.l7().mapped(flow), Some(contested(entry(mode))), "SYN with {seq:#x}");
            }
            bench.forget(flow);
        }
    }
}

/// A client whose idle connection has been released by its node is no stranger.
#[test]
fn an_established_flow_without_a_node_stays() {
    let bench = Bench::new();
    let [flow, _] = flows();
    let idle = entry(SB_MODE_HELD);
    bench.put_established(&flow, &idle);
    bench.l7().change_flows(&[(flow, crate::dispatch::Change::Abandon { origin: Seq(ORIGIN) })]).unwrap();
    assert_eq!((bench.l7().mapped(&flow), bench.waiting()), (Some(idle), 0));
}

#[test]
fn a_flow_without_a_node_is_abandoned_or_gets_one() {
    use crate::dispatch::Change;
    let bench = Bench::new();
    let [flow, _] = flows();
    let change = |change| bench.l7().change_flows(&[(flow, change)]).unwrap();
    bench.put(&flow, &entry(SB_MODE_HELD));
    change(Change::Abandon { origin: Seq(ORIGIN + 1) });
    assert_eq!(bench.waiting(), 1, "another connection is over");
    change(Change::Abandon { origin: Seq(ORIGIN) });
    assert_eq!(bench.entries(), 0);
    bench.put(&flow, &contested(entry(SB_MODE_HELD)));
    change(Change::Replace(typed(&entry(SB_MODE_REQUESTS))));
    assert_eq!((bench.l7().mapped(&flow), bench.waiting()), (Some(contested(entry(SB_MODE_REQUESTS))), 0));
    // Its node releases it, so it counts as established.
    change(Change::Replace(typed(&entry(SB_MODE_HELD))));
    assert_eq!((bench.l7().mapped(&flow), bench.waiting()), (Some(contested(entry(SB_MODE_HELD))), 0));
}

/// Without room in the L7 thread's ring, first bytes leave no entry and displace no flow with a node.
#[test]
fn first_bytes_push_out_no_established_flow() {
    const IDLE: u16 = 1000;
    const STRANGERS: u32 = 300_000;
    let bench = Bench::new();
    let [victim, _] = flows();
    let idle = |port: u16| sb_flow { client_port: port.to_be(), ..victim };
    for port in 0..IDLE {
        bench.put(&idle(port), &entry(SB_MODE_REQUESTS));
    }
    let offer = Offer { stamp: None, ..Offer::USUAL };
    for number in 0..STRANGERS {
        let mut flow = victim;
        flow.client[12..].copy_from_slice(&(0x0a00_0000 | number >> 8).to_be_bytes());
        flow.client_port = (number as u16 & 0xff | 0x8000).to_be();
        let cookie = bench.cookie(&offer.syn(&flow, ISN));
        bench.run(&last(&flow, &offer, cookie, flags::ACK, b"G").frame(), 1);
        if number % 1000 == 0 {
            bench.records();
        }
    }
    assert_eq!(bench.program.counter(DropRingFull), 0, "every stranger had an entry once");
    assert!(
        (0..IDLE).all(|port| bench.l7().mapped(&idle(port)).is_some()),
        "an idle flow has lost its entry"
    );
    assert!(bench.waiting() <= 65536);
}

#[test]
fn a_full_ring_leaves_no_entry() {
    let bench = Bench::new();
    let offer = Offer::USUAL;
    let [flow, _] = flows();
    let cookie = bench.cookie(&offer.syn(&flow, ISN));
    let frame = last(&flow, &offer, cookie, flags::ACK, &[b'x'; 1400]).frame();
    for _ in 0..3000 * bench.program.rings[0].len() {
        bench.forget(&flow);
        bench.run(&frame, 1);
        if bench.program.counter(DropRingFull) > 0 {
            assert_eq!(bench.entries(), 0);
            return;
        }
        assert_eq!(bench.entries(), 1);
    }
    panic!("the ring is never full");
}
