//! Clients with a shim: introduction by the node, direct packets to it, and tunneled packets from it.

use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use sb_op::*;
use switchback_wire::handoff::{Peers, Way};
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::fuzz::{SECONDS, mutate};
use super::wire::Wire;

/// Mark of a clone that becomes the introduction.
const INTRODUCE: u32 = 0x5b00_0005;
const ETHERNET: usize = 14;
/// Overhead of the tunnel.
const OVERHEAD: [usize; 2] = [handoff::OVERHEAD_V4, handoff::OVERHEAD_V6];

/// A flow from this port whose first request is answered.
pub fn open(bench: &Bench, v6: bool, port: u16) -> KnownFlow {
    bench.be(NODE[usize::from(v6)]);
    let mut known = KnownFlow { flow: flow(v6, port, PORT), seq: 1000, ack: 5000, socket: None };
    bench.be(NODE[0]);
    known.adopt(bench);
    known.answer();
    bench.put(&known.flow, &known.owned());
    bench.be(NODE[usize::from(v6)]);
    known
}

pub fn key_of(known: &KnownFlow) -> sb_key {
    keys::client_key(&MASTER[0], known.flow.client)
}

/// A direct packet from the client to the node.
pub fn direct(known: &KnownFlow, key: &sb_key, more: u32, tcp_flags: u8, data: &[u8]) -> Vec<u8> {
    let option = sb_option { flags: more as u8, ..handoff::blank(SB_OP_DIRECT) };
    direct_with(known, key, option, tcp_flags, data)
}

fn direct_with(known: &KnownFlow, key: &sb_key, option: sb_option, tcp_flags: u8, data: &[u8]) -> Vec<u8> {
    let v6 = known.flow.client().is_ipv6();
    let inner = segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), tcp_flags, None, data);
    let (client, node) = (known.flow.client().ip(), address(NODE[usize::from(v6)]));
    let mut out = Vec::new();
    client::tunneled(&mut out, key, (client, node, node), &known.flow, option, &inner);
    out
}

fn introduced(known: &KnownFlow, next: u32) -> Vec<u8> {
    let v6 = known.flow.client().is_ipv6();
    let node = address(NODE[usize::from(v6)]);
    let numbers = (Seq(known.ack), Seq(known.seq));
    client::introduction(&key_of(known), node, &known.flow, numbers, Seq(next), (SB_WINDOW as u16, 0))
}

/// The handoff packet with the flow's next request.
fn request(known: &KnownFlow, session: sb_session) -> Vec<u8> {
    let option = known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| flow.session = session);
    let v6 = known.flow.client().is_ipv6();
    let inner = segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), flags::ACK, None, REQUEST);
    let view = TcpView::parse(&inner).expect("a TCP packet");
    let way = Way::to_node(peers(SWITCHES[usize::from(v6)], NODE[usize::from(v6)]));
    let option = sb_option { flags: SB_HANDOVER_REQUEST as u8, ..option };
    let mut out = Vec::new();
    handoff::encode(&mut out, &SIGN, &way, &known.flow, option, &view, &inner);
    out
}

#[test]
fn an_introduction_is_a_packet_of_the_vip() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        for (v6, port) in [(false, 40_000), (true, 40_001)] {
            let known = open(&bench, v6, port);
            let next = known.seq + 77;
            bench.put(&known.flow, &sb_owned { next, ..known.owned() });
            let (verdict, frame) = bench.ingress(&to_us(&request(&known, Default::default())), INTRODUCE);
            assert_eq!(verdict, Verdict::Redirect);
            assert_eq!(frame[ETHERNET..], introduced(&known, next));
            assert!(is_tcp_sealed(&frame[ETHERNET..]));
        }
    });
}

#[test]
fn the_window_is_scaled_as_the_handshake_said() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        let known = open(&bench, false, 40_000);
        let option = known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
            (flow.options, flow.wscale) = (SB_SYN_WSCALE as u8, 0x97);
        });
        let (_, frame) = bench.ingress(&to_us(&known.hand_over(option, REQUEST)), INTRODUCE);
        let expected = (SB_WINDOW >> 7) as u16;
        let (node, numbers) = (address(NODE[0]), (Seq(known.ack), Seq(known.seq)));
        let next = known.seq;
        let introduction =
            client::introduction(&key_of(&known), node, &known.flow, numbers, Seq(next), (expected, 9));
        assert_eq!(frame[ETHERNET..], introduction);
    });
}

#[test]
fn no_direct_data_where_cookie_names_are_restored() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        let known = open(&bench, false, 40_000);
        for (pool, next) in [(REWRITTEN, known.seq), (INSERTED, known.seq + 9)] {
            let mut owned = sb_owned { next: known.seq + 9, ..known.owned() };
            owned.cookies.session = sb_session::new(pool, None);
            bench.put(&known.flow, &owned);
            let (_, frame) = bench.ingress(&to_us(&request(&known, owned.cookies.session)), INTRODUCE);
            assert_eq!(frame[ETHERNET..], introduced(&known, next));
        }
    });
}

#[test]
fn a_flow_that_has_gone_meanwhile_is_not_introduced() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        let known = open(&bench, false, 40_000);
        let packet = to_us(&request(&known, Default::default()));
        let state = sb_ownership::SB_OWN_RELEASED as u8;
        bench.put(&known.flow, &sb_owned { state, ..known.owned() });
        assert_eq!(bench.ingress(&packet, INTRODUCE).0, Verdict::Drop);
        bench.forget(&known.flow);
        assert_eq!(bench.ingress(&packet, INTRODUCE).0, Verdict::Drop);
    });
}

/// A node introduces itself at adoption and at each later request to clients in its networks.
#[test]
fn introductions_go_to_clients_in_the_networks() {
    alone(|| {
        let wire = Wire::new();
        let bench = &wire.bench;
        let introductions = |of: &KnownFlow, frames: Vec<Vec<u8>>| {
            let expected = introduced(of, of.seq + REQUEST.len() as u32);
            frames.iter().filter(|frame| frame[ETHERNET..] == expected).count()
        };
        for (known_network, port) in [(true, 40_000), (false, 40_001)] {
            bench.know_clients(known_network, false);
            let mut known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
            let first = KnownFlow { flow: known.flow, seq: known.seq, ack: known.ack, socket: None };
            known.adopt(bench);
            known.answer();
            let counted = u64::from(known_network);
            wait_until("the adoption's copies", || bench.counter(NodeCounter::Introduced) >= counted);
            assert_eq!(introductions(&first, wire.frames()), usize::from(known_network));

            let more = known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
                flow.origin = 1000u32.to_be();
                flow.requests = 2u16.to_be();
            });
            bench.send(&known.hand_over(sb_option { flags: 0, ..more }, b""));
            let flags = SB_HANDOVER_REQUEST as u8;
            bench.send(&known.hand_over(sb_option { flags, ..more }, REQUEST));
            let wanted = 2 * counted;
            wait_until("the request's copy", || bench.counter(NodeCounter::Introduced) >= wanted);
            assert_eq!(introductions(&known, wire.frames()), usize::from(known_network));
        }
        assert_eq!(bench.counter(NodeCounter::Introduced), 2);
    });
}

/// The tunnel would need the other IP version.
#[test]
fn a_client_of_the_other_ip_version_gets_no_introduction() {
    alone(|| {
        let wire = Wire::new();
        let bench = &wire.bench;
        bench.know_clients(true, true);
        let mut known = KnownFlow { flow: flow(true, 40_000, PORT), seq: 1000, ack: 5000, socket: None };
        known.adopt(bench);
        known.answer();
        bench.put(&known.flow, &known.owned());
        let frame = response(&known.flow, (known.ack, known.seq), flags::ACK, false, b"");
        assert_eq!(bench.egress(&frame), (Verdict::Next, frame.clone()));
        assert_eq!((bench.counter(NodeCounter::Adopted), bench.counter(NodeCounter::Introduced)), (1, 0));
    });
}

#[test]
fn direct_packets_are_decapsulated() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        for (v6, port) in [(false, 40_000), (true, 40_001)] {
            let known = open(&bench, v6, port);
            let end = known.seq + 5;
            bench.put(&known.flow, &sb_owned { next: end, ..known.owned() });
            for (tcp_flags, data) in [(flags::ACK, &b""[..]), (flags::ACK | flags::FIN, b"12345")] {
                let before = bench.counter(NodeCounter::Direct);
                let packet = direct(&known, &key_of(&known), 0, tcp_flags, data);
                let (verdict, frame) = bench.ingress(&to_us(&packet), 0);
                assert_eq!(
                    (verdict, &frame[ETHERNET..]),
                    (Verdict::Pass, &packet[OVERHEAD[usize::from(v6)]..])
                );
                assert_eq!(bench.counter(NodeCounter::Direct), before + 1);
            }
        }
        let known = open(&bench, false, 40_002);
        let second = keys::client_key(&MASTER[1], known.flow.client);
        let packet = direct(&known, &second, 0, flags::ACK, b"");
        assert_eq!(bench.ingress(&to_us(&packet), 0).0, Verdict::Pass, "while keys rotate");
    });
}

#[test]
fn forbidden_direct_packets_are_dropped() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        let known = open(&bench, false, 40_000);
        let key = key_of(&known);
        let dropped = |packet: &[u8], counter: NodeCounter| {
            let before = bench.counter(counter);
            assert_eq!(bench.ingress(&to_us(packet), 0).0, Verdict::Drop, "{counter:?}");
            assert_eq!(bench.counter(counter), before + 1, "{counter:?}");
        };
        dropped(&direct(&known, &key, 0, flags::ACK, b"x"), NodeCounter::DropBeyond);
        dropped(&direct(&known, &key, 0, flags::SYN, b""), NodeCounter::DropMalformed);
        dropped(&direct(&known, &SIGN, 0, flags::ACK, b""), NodeCounter::DropTag);
        let later = sb_option { version: SB_VERSION + 1, ..handoff::blank(SB_OP_DIRECT) };
        dropped(&direct_with(&known, &key, later, flags::ACK, b""), NodeCounter::DropVersion);
        dropped(&direct_with(&known, &SIGN, later, flags::ACK, b""), NodeCounter::DropTag);
        let mut forged = direct(&known, &key, 0, flags::ACK, b"");
        forged[20 + 16 + 32] ^= 1;
        dropped(&forged, NodeCounter::DropTag);

        // Another client of the same networks, with a valid tag of its own.
        let of_other = |source: &str| {
            let (source, node) = (address(source), address(NODE[0]));
            let key = keys::client_key(&MASTER[0], address_bytes(source));
            let inner = segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), flags::RST, None, b"");
            let option = handoff::blank(SB_OP_DIRECT);
            let mut out = Vec::new();
            client::tunneled(&mut out, &key, (source, node, node), &known.flow, option, &inner);
            out
        };
        dropped(&of_other("198.51.100.2"), NodeCounter::DropClient);
        bench.know_clients(false, false);
        dropped(&direct(&known, &key, 0, flags::ACK, b""), NodeCounter::DropClient);
        assert_eq!(bench.counter(NodeCounter::Direct), 0);
    });
}

/// Damaged, forged and foreign packets do not reach the kernel and are not answered.
#[test]
fn nothing_gets_in_without_the_clients_key() {
    alone(|| {
        let bench = Bench::new();
        bench.know_clients(true, false);
        let known = [(false, 40_000), (true, 40_001)].map(|(v6, port)| open(&bench, v6, port));
        let seed = seed();
        let random = &mut Random(seed);
        let time = Duration::from_secs(setting("SWITCHBACK_FUZZ_SECONDS").unwrap_or(SECONDS));
        let (start, mut number) = (Instant::now(), 0);
        while start.elapsed() < time {
            let which = random.below(2);
            let of = &known[which];
            bench.be(NODE[which]);
            let other = keys::client_key(&MASTER[0], [random.next() as u8; 16]);
            let key = random.pick(&[SIGN, ACCEPT, other, sb_key::default()]);
            let ask = random.pick(&[0, SB_DIRECT_ASK, random.0 as u32 & 0xff]);
            let data = &REQUEST[..random.below(REQUEST.len())];
            let mut packet = direct(of, &key, ask, random.next() as u8, data);
            mutate(random, &mut packet, 60);
            packet.resize(packet.len().max(60), 0);
            let mark = random.pick(&[0, 0, INTRODUCE, INTRODUCE + 1]);
            let (verdict, _) = bench.ingress(&to_us(&packet), mark);
            let goes_nowhere = matches!(verdict, Verdict::Drop | Verdict::Next);
            assert!(goes_nowhere, "seed {seed}, packet {number}: {verdict:?} for {packet:02x?}");
            number += 1;
        }
        println!("{number} packets, seed {seed}");
        let of_clients = [NodeCounter::Direct, NodeCounter::Heard, NodeCounter::Gone];
        assert_eq!(of_clients.map(|counter| bench.counter(counter)), [0; 3], "seed {seed}");
        assert!(bench.counter(NodeCounter::DropTag) > 100);
    });
}

/// Checks an answer that leaves: its operation, its destination port, and its tag.
fn assert_answer(frame: &[u8], question: &[u8], known: &KnownFlow, op: sb_op) {
    let (packet, shim) = (&frame[ETHERNET..], read_from::<sb_shim>(&frame[ETHERNET + 20..]).expect("a shim"));
    assert_eq!((&packet[12..16], &packet[16..20]), (&question[16..20], &question[12..16]), "turned around");
    assert_eq!(shim.option.op, op as u8);
    assert_eq!(u16::from_be(shim.source), SB_GENEVE_PORT as u16);
    assert_eq!(u16::from_be(shim.dest), handoff::source_port(&known.flow));
    let inner = TcpView::parse(&packet[OVERHEAD[0]..]).expect("a TCP packet");
    let view = TcpView { seq: Seq(0), ack: Seq(0), ..inner };
    let peers = Peers::of_client(address(NODE[0]));
    assert_eq!(handoff::tag(&key_of(known), &peers, &known.flow, &view, &shim.option), shim.option.tag);
}

#[test]
fn questions_are_answered_with_heard_or_gone() {
    alone(|| {
        let wire = Wire::new();
        let bench = &wire.bench;
        bench.know_clients(true, false);
        let known = open(bench, false, 40_000);
        let packet = direct(&known, &key_of(&known), SB_DIRECT_ASK, flags::ACK, b"");
        bench.send(&packet);
        wait_until("the answer", || bench.counter(NodeCounter::Heard) == 1);
        let frames = wire.frames();
        let answer = frames.iter().find(|frame| {
            read_from::<sb_shim>(frame.get(ETHERNET + 20..).unwrap_or_default())
                .is_some_and(|shim| shim.option.op == SB_OP_HEARD as u8)
        });
        assert_answer(answer.expect("it has left"), &packet, &known, SB_OP_HEARD);
        assert_eq!(bench.counter(NodeCounter::Direct), 1);

        for state in [None, Some(sb_ownership::SB_OWN_RELEASED)] {
            let gone = bench.counter(NodeCounter::Gone);
            bench.forget(&known.flow);
            if let Some(state) = state {
                bench.put(&known.flow, &sb_owned { state: state as u8, ..known.owned() });
            }
            let (verdict, frame) = bench.ingress(&to_us(&packet), 0);
            assert_eq!(verdict, Verdict::Redirect);
            assert_answer(&frame, &packet, &known, SB_OP_GONE);
            assert_eq!(bench.counter(NodeCounter::Gone), gone + 1);
        }
        assert_eq!(bench.counter(NodeCounter::Direct), 1);
    });
}

#[test]
fn responses_are_tunneled_where_configured() {
    alone(|| {
        let bench = Bench::new();
        for (v6, port) in [(false, 40_000), (true, 40_001)] {
            bench.know_clients(true, false);
            let known = open(&bench, v6, port);
            let frame = response(&known.flow, (known.ack, known.seq), flags::ACK, false, b"");
            assert_eq!(bench.egress(&frame), (Verdict::Next, frame.clone()), "no tunnel");
            bench.know_clients(false, true);
            assert_eq!(bench.egress(&frame), (Verdict::Next, frame.clone()), "no such client");
            bench.know_clients(true, true);
            let before = bench.counter(NodeCounter::Tunneled);
            let (verdict, left) = bench.egress(&frame);
            let (client, node) = (known.flow.client().ip(), address(NODE[usize::from(v6)]));
            let option = handoff::blank(SB_OP_TUNNELED);
            let mut expected = Vec::new();
            let addresses = (node, client, node);
            client::tunneled(
                &mut expected,
                &key_of(&known),
                addresses,
                &known.flow,
                option,
                &frame[ETHERNET..],
            );
            assert_eq!((verdict, &left[ETHERNET..]), (Verdict::Next, &expected[..]));
            assert_eq!(left[..ETHERNET], frame[..ETHERNET]);
            assert_eq!(bench.counter(NodeCounter::Tunneled), before + 1);

            let elsewhere = sb_flow { vip: address_bytes(node), ..known.flow };
            let own = response(&elsewhere, (1, 1), flags::ACK, false, b"");
            assert_eq!(bench.egress(&own), (Verdict::Next, own.clone()), "not from a VIP");
        }
    });
}

#[test]
fn adoption_leaves_room_for_the_tunnel() {
    alone(|| {
        let bench = Bench::new();
        let mss = |port, tunnel| {
            bench.know_clients(true, tunnel);
            let mut known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
            known.adopt(&bench);
            let socket = known.socket.as_ref().expect("an adopted flow");
            getsockopt(socket, sockopt::TcpMaxSeg).expect("a TCP socket")
        };
        assert_eq!(mss(40_000, false) - mss(40_001, true), handoff::OVERHEAD_V4 as u32);
    });
}
