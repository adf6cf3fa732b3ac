//! Fuzzing: handoff packets with right and wrong tags, packets that no switch has sent, packets of servers, all changed
//! at random, for flows with random entries. The programs must keep the invariants in [`super::invariants`].
//!
//! `SWITCHBACK_FUZZ_SECONDS` sets the duration, `SWITCHBACK_FUZZ_SEED` repeats a run.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use NodeCounter::*;
use sb_op::*;
use switchback_http::framing::generated::{SB_FRAMING_BODY, SB_FRAMING_SKIP, SB_FRAMING_STATES, sb_framing};
use switchback_wire::handoff::Way;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::*;
use super::resume::{KEY, frame_of, told};

pub const SECONDS: u64 = 5;
/// Number of packets after which new sockets are made, because sockets do not last.
const ROUND: u64 = 2000;
/// Number of counters that may stay unmoved by chance, and additional time for the others.
const UNREACHED: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);
/// A port without a listener.
const CLOSED_PORT: u16 = 81;

const WITH_COOKIE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: SBrewxyzSID=1; a=SB\r\n\r\n";
const SETS_COOKIE: &[u8] = b"HTTP/1.1 200 OK\r\nSet-Cookie: LONGNAMESID=1\r\nContent-Length: 2\r\n\r\nok";
const FAILS: &[u8] = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";

/// A packet and the entry of its flow. Prints itself when a check fails.
pub struct Case {
    seed: u64,
    number: u64,
    pub frame: Vec<u8>,
    /// Mark of a clone made by the ingress program.
    mark: u32,
    leaves: bool,
    /// The node's address; `draining` is whether the node drains.
    pub node: &'static str,
    draining: bool,
    pub flow: sb_flow,
    pub before: Option<sb_owned>,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Case { seed, number, frame, mark, leaves, node, draining, flow, before } = self;
            eprintln!("SWITCHBACK_FUZZ_SEED={seed}, number {number}: {frame:02x?}");
            eprintln!("mark {mark:x}, leaves: {leaves}, at {node}, draining: {draining}");
            eprintln!("{} to {}: {before:?}", flow.client(), flow.vip());
        }
    }
}

/// Flows with sockets in several states, and flows without.
fn known_flows(bench: &Bench, random: &mut Random) -> Vec<KnownFlow> {
    let mut known = Vec::new();
    for v6 in [false, true] {
        for (port, kind) in
            (40_000..).zip(["unread", "answered", "closed", "none", "refused", "rewritten", "inserted"])
        {
            let vip_port = if kind == "refused" { CLOSED_PORT } else { PORT };
            let flow = flow(v6, port, vip_port);
            let (seq, ack) = (random.next() as u32, random.next() as u32);
            let mut live = KnownFlow { flow, seq, ack, socket: None };
            match kind {
                "none" | "refused" => {}
                "rewritten" => live.adopt_in_session(bench, REWRITTEN),
                "inserted" => live.adopt_in_session(bench, INSERTED),
                _ => live.adopt(bench),
            }
            match kind {
                "answered" | "inserted" => live.answer(),
                "closed" => live.socket = None,
                "none" => bench.await_fingerprints(&flow, 1000, KEY),
                _ => {}
            }
            known.push(live);
        }
    }
    known
}

/// A number that is often near `to`.
fn near(random: &mut Random, to: u32) -> u32 {
    let any = random.next() as u32;
    let (request, response) = (REQUEST.len() as u32, RESPONSE.len() as u32);
    let by = [1, u32::MAX, request, response, 0u32.wrapping_sub(request), 1 << 31, any];
    to.wrapping_add(if random.one_in(4) { random.pick(&by) } else { 0 })
}

fn random_session(random: &mut Random) -> sb_session {
    let pool = random.pick(&[[0; 3], REWRITTEN, REWRITTEN, REWRITTEN, INSERTED, *b"???"]);
    sb_session::new(pool, random.pick(&[None, Some(OWN), Some(*b"xyz"), Some(*b"xyz")]))
}

/// A random record of changed names.
fn random_changed(random: &mut Random, next: u32) -> sb_changed {
    let any = random.next();
    sb_changed {
        at: std::array::from_fn(|_| near(random, next).wrapping_add(random.below(40) as u32)),
        undecided: near(random, next),
        count: random.pick(&[0, 0, 1, 2, 4, 5, 255, any as u8]),
        tries: random.pick(&[0, 0, 1, 4, 255]),
        ..Default::default()
    }
}

fn random_cookies(random: &mut Random, of: &KnownFlow) -> sb_cookies {
    let any = random.next();
    let request = sb_framing {
        left: random.pick(&[0, 0, 1, 100, u64::MAX, any]),
        allowed: random.pick(&[u64::MAX, 0, any]),
        state: random.pick(&[0, 0, 1, 5, 7, 8, any as u16, any as u16 & 0x7f | SB_FRAMING_SKIP]),
        flags: random.below(256) as u8,
        matched: random.pick(&[0, 1, 8, 11, 255, any as u8]),
        ..Default::default()
    };
    sb_cookies {
        session: random_session(random),
        heard: near(random, of.seq),
        request: request.into(),
        restored: random_changed(random, of.seq),
        rewritten: random_changed(random, of.ack),
        ..Default::default()
    }
}

/// A random entry in the valid range, mostly close to the flow's state.
fn random_entry(random: &mut Random, of: &KnownFlow) -> sb_owned {
    let any = random.next();
    let requests = random.next() as u16;
    let responses = requests.wrapping_sub(random.pick(&[0, 0, 1, 1, 2, 255, 256, 257, any as u16]));
    let state = random.below(SB_FRAMING_STATES.into()) as u16;
    let framing = sb_framing {
        left: random.pick(&[0, 0, 1, 2, 1400, u64::from(u32::MAX), 1 << 59, u64::MAX, any]),
        allowed: random.pick(&[u64::MAX, u64::MAX, 0, any]),
        state: random.pick(&[0, 0, 0, 1, 2, 3, 5, 7, state, state | SB_FRAMING_SKIP]),
        status: random.pick(&[0, 100, 200, 204, any as u16]),
        flags: random.below(8) as u8,
        matched: random.pick(&[0, 0, 1, 4, 8, 11, 255, any as u8]),
        ..Default::default()
    };
    sb_owned {
        switch_address: address_bytes(address(random.pick(&SWITCHES))),
        origin: near(random, of.seq),
        next: near(random, of.seq),
        answered: near(random, of.ack),
        tsval: random.next() as u32,
        followed: near(random, of.ack),
        requests,
        responses,
        framing: framing.into(),
        heads: std::array::from_fn(|_| random.next()),
        mss: random.next() as u16,
        options: random.next() as u8,
        wscale: random.next() as u8,
        state: random.below(3) as u8,
        mark_framing: random.pick(&[0, any as u16, (any as u16) & !SB_MARK_TUNNEL.to_be()]),
        mark_left: random.pick(&[0, 1000u32.to_be(), any as u32]),
        read: near(random, of.seq).wrapping_add(random.pick(&[0, 0, REQUEST.len() as u32])),
        passed: near(random, of.seq),
        read_us: random.pick(&[now_us(), now_us().wrapping_sub(1_900_000), any as u32]),
        reason: random.below(9) as u8,
        slot: random.pick(&[0, 0, 0, any as u8]),
        asked_us: random.pick(&[now_us(), now_us(), any as u32]),
        asked: near(random, of.seq),
        again: random.below(2) as u8,
        keeps: random.below(2) as u8,
        hooked: random.pick(&[0, 0, 1, 2, 3, any as u8]),
        cookies: random_cookies(random, of),
        ..Default::default()
    }
}

/// A client's packet, or a router's message about one of the server's.
fn inner_packet(random: &mut Random, known: &KnownFlow, icmp: bool) -> Vec<u8> {
    let flow = &known.flow;
    let numbers = (Seq(near(random, known.seq)), Seq(near(random, known.ack)));
    let stamped = random.one_in(3).then(|| (random.next() as u32, random.next() as u32));
    let any = random.next() as u8;
    let tcp_flags =
        random.pick(&[flags::ACK, flags::ACK | flags::PSH, flags::ACK | flags::FIN, flags::RST, any]);
    if !icmp {
        let len = random.pick(&[0, 0, 1, REQUEST.len(), 30, 1300]);
        let request = random.pick(&[REQUEST, WITH_COOKIE]);
        let skipped = random.pick(&[0, 0, 0, 1, 30, 42]);
        let data: Vec<u8> = request.iter().copied().cycle().skip(skipped).take(len).collect();
        return segment(flow, true, numbers, tcp_flags, stamped, &data);
    }
    let len = random.pick(&[8, 20, 120]);
    too_long(flow, numbers.1.0, len)
}

/// Changes bytes, truncates, extends.
pub fn mutate(random: &mut Random, bytes: &mut Vec<u8>, least: usize) {
    for _ in 0..1 + random.below(3) {
        let len = if random.one_in(2) { bytes.len().min(120) } else { bytes.len() };
        let at = random.below(len);
        let any = random.next() as u8;
        let bit = 1 << random.below(8);
        bytes[at] = random.pick(&[any, bytes[at] ^ bit, bytes[at] ^ bit, 0, 0xff]);
    }
    match random.below(6) {
        0 => bytes.truncate(least + random.below(bytes.len() - least + 1)),
        1 => {
            let most = random.pick(&[4, 60, 1000]);
            let more = random.below(most);
            bytes.extend((0..more).map(|_| random.next() as u8));
        }
        _ => {}
    }
}

fn handoff_frame(random: &mut Random, known: &KnownFlow, node: &'static str) -> Vec<u8> {
    let any = random.next();
    let ops = [
        SB_OP_ADOPT,
        SB_OP_ADOPT,
        SB_OP_FORWARD,
        SB_OP_RELEASE,
        SB_OP_RELEASE,
        SB_OP_PROBE,
        SB_OP_CONFIRM,
        SB_OP_KEEP,
        SB_OP_RESTORE,
        SB_OP_ICMP,
        SB_OP_HELLO,
        SB_OP_SYNC,
    ]
    .map(|op| op as u8);
    let op = if random.one_in(16) { any as u8 } else { random.pick(&ops) };
    let icmp = (op == SB_OP_ICMP as u8) != random.one_in(16);
    let mut inner = inner_packet(random, known, icmp);
    if random.one_in(4) {
        mutate(random, &mut inner, 1);
        if random.one_in(2) {
            repair(&mut inner);
        }
    }
    let on = [0, 0, SB_HANDOVER_REQUEST, SB_HANDOVER_READ, SB_RELEASE_ABORT, any as u32 & 0xff];
    let option = sb_option {
        op,
        flags: random.pick(&on) as u8 | random.pick(&on) as u8,
        reason: random.next() as u8,
        version: random.pick(&[0, SB_VERSION, SB_VERSION, SB_VERSION, SB_VERSION, SB_VERSION + 1]),
        ..known.option(SB_OP_ADOPT)
    };
    let option = option.with(|said: &mut sb_handover| {
        said.flow.options = random.pick(&[0, SB_SYN_TSTAMP as u8, any as u8]);
        said.flow.wscale = random.pick(&[0, 0x77, any as u8]);
        said.flow.mss = random.pick(&[1400, 1400, 536, 535, 0, u16::MAX]).to_be();
        said.flow.requests = (any as u16).to_be();
        said.flow.heads = random.next() as u32;
        said.flow.session = random_session(random);
        let near_origin = near(random, known.seq).to_be();
        said.flow.origin = random.pick(&[0, near_origin, near_origin, near_origin]);
        said.flow.next = near(random, known.seq).to_be();
        said.flow.framing = random.pick(&[0, 0, SB_FRAMING_BODY | SB_FRAMING_SKIP, any as u16]).to_be();
        said.flow.left = random.pick(&[0, 0, 1000, any as u32]).to_be();
        said.flow.generation = any as u32;
        said.boundary = random.pick(&[0, 0, 1, REQUEST.len() as u16, any as u16]).to_be();
        said.queue_share = random.next() as u8;
        said.reserved = any as u8;
    });
    let v6 = address(node).is_ipv6() != random.one_in(32);
    let way = Way::to_node(peers(SWITCHES[usize::from(v6)], NODE[usize::from(v6)]));
    let tcp = if known.flow.client().is_ipv6() { 40 } else { 20 };
    let view = TcpView { tcp, data: tcp, end: inner.len(), seq: Seq(0), ack: Seq(0), flags: 0 };
    let mut packet = Vec::new();
    handoff::encode(&mut packet, &SIGN, &way, &known.flow, option, &view, &inner);
    if random.one_in(8) {
        packet[1] |= if v6 { 0x30 } else { 3 };
    }
    if random.one_in(if op == SB_OP_ADOPT as u8 { 2 } else { 16 }) {
        let node = address_bytes(address(SECOND[usize::from(v6 != random.one_in(8))]));
        let (type_, tag) =
            (random.pick(&[SB_SECOND_TYPE, SB_SECOND_TYPE, SB_SECOND_USED]) as u8, any.to_ne_bytes());
        add_second(&mut packet, &sb_second { type_, node, tag, ..second_option() });
    }
    let mut frame = to_us(&packet);
    let signed_last = random.one_in(2);
    let key = random.pick(&[SIGN, SIGN, SIGN, SIGN, ACCEPT, sb_key { k0: 1, k1: 3 }]);
    if signed_last && random.one_in(2) {
        mutate(random, &mut frame, 14);
    }
    if let Some(handoff) = Handoff::read(&frame) {
        let tag = handoff.shim + size_of::<sb_shim>() - 8;
        frame[tag..tag + 8].copy_from_slice(&handoff.tag(&key, node));
    }
    if !signed_last && random.one_in(4) {
        mutate(random, &mut frame, 14);
    }
    frame
}

fn random_arp(random: &mut Random) -> Vec<u8> {
    let hosts = [VIP4, OTHER, [192, 0, 2, 21], [0; 4]];
    arp(random.pick(&[1, 1, 2, 3]), random.pick(&hosts), random.pick(&hosts))
}

/// Random bytes after a prefix that some part of the programs parses.
fn noise(random: &mut Random) -> Vec<u8> {
    let most = random.pick(&[60, 150, 1400]);
    let len = 14 + random.below(most);
    let mut frame: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    let kind = random.pick(&[[0x08, 0x00], [0x86, 0xdd], [0x08, 0x06], [frame[12], frame[13]]]);
    frame[12..14].copy_from_slice(&kind);
    frame
}

/// A frame directly from a client.
fn plain_frame(random: &mut Random, known: &KnownFlow) -> Vec<u8> {
    let icmp = random.one_in(8);
    to_us(&inner_packet(random, known, icmp))
}

fn fingerprint_frame(random: &mut Random, known: &KnownFlow, node: &str) -> Vec<u8> {
    frame_of(&told(&known.flow, random.below(1 << 20) as u64), address(node))
}

fn response_frame(random: &mut Random, known: &KnownFlow) -> Vec<u8> {
    let most = random.pick(&[1, 40, 1300]);
    let len = random.below(most);
    let response_bytes = random.pick(&[RESPONSE, SETS_COOKIE, FAILS]);
    let skipped = if random.one_in(2) { 0 } else { random.below(response_bytes.len()) };
    let data: Vec<u8> = response_bytes.iter().copied().cycle().skip(skipped).take(len).collect();
    let any = random.next() as u8;
    let tcp_flags = random.pick(&[flags::ACK, flags::ACK | flags::FIN, flags::RST, any]);
    let numbers = (near(random, known.ack), near(random, known.seq));
    response(&known.flow, numbers, tcp_flags, random.one_in(2), &data)
}

/// Shorter frames are not run.
fn lengthen(frame: &mut Vec<u8>) {
    let least = match frame[12..14] {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => 14,
    };
    frame.resize(frame.len().max(least), 0);
}

fn next_case(bench: &Bench, random: &mut Random, known: &[KnownFlow], seed: u64, number: u64) -> Case {
    let known = &known[random.below(known.len())];
    let node = random.pick(&NODE);
    let leaves = random.one_in(4);
    let mut frame = match random.below(16) {
        0 => noise(random),
        1 => random_arp(random),
        _ if leaves => response_frame(random, known),
        2 | 3 => plain_frame(random, known),
        4 => fingerprint_frame(random, known, node),
        _ => handoff_frame(random, known, node),
    };
    if random.one_in(8) && Handoff::read(&frame).is_none() {
        mutate(random, &mut frame, 14);
    }
    lengthen(&mut frame);
    let marks = [0, 0, 0, 0x5b00_0001, 0x5b00_0002, 0x5b00_0003, 0x5b00_0020, 0x5b00_002f, 0x5b00_0040];
    let mark = if leaves { 0 } else { random.pick(&marks) };
    // The flow that the frame names, if it differs from the one it was made for.
    let named = if leaves {
        leaving(&frame).map(|tcp| tcp.0)
    } else {
        Handoff::read(&frame).map(|handoff| handoff.flow)
    };
    let flow = named.unwrap_or(known.flow);
    let before = match random.below(8) {
        0 => None,
        1..3 => bench.flow(&flow),
        3 => Some(known.owned()),
        _ => Some(random_entry(random, known)),
    };
    let draining = random.one_in(8);
    Case { seed, number, frame, mark, leaves, node, draining, flow, before }
}

/// Counters that should have moved by chance, and have not.
fn unreached(bench: &Bench) -> Vec<NodeCounter> {
    // Clients with a shim are tested in clients.rs; here there are none.
    let of_clients = [Introduced, Direct, Heard, Gone, Tunneled, DropClient, DropBeyond];
    // Hidden nodes, nodes that are switches, late copies and full rings have tests of their own.
    let other = [NodeCounter::Hidden, ToldHere, DropRingFull, Repeated, Stalled, JudgmentLost];
    // Only packets of a socket are of a response that can be resumed.
    let of_sockets = [Insurable, InsurableLost, Bequeathed, Fingerprint];
    let of_replays = [Replayed, DropAway];
    let tested = [&of_clients[..], &other, &of_sockets, &of_replays].concat();
    let has_tests = |counter: &NodeCounter| tested.contains(counter);
    let all = NodeCounter::ALL.into_iter();
    all.filter(|counter| !has_tests(counter) && bench.counter(*counter) == 0).collect()
}

#[test]
fn whatever_comes_some_things_never_happen() {
    alone(|| {
        let bench = Bench::new();
        VIPS.iter().for_each(|vip| bench.judge(SocketAddr::new(address(vip), PORT)));
        let seed = seed();
        let random = &mut Random(seed);
        let time = Duration::from_secs(setting("SWITCHBACK_FUZZ_SECONDS").unwrap_or(SECONDS));
        let start = Instant::now();
        let mut verdicts = [0; 4];
        let mut number = 0;
        let mut known = Vec::new();
        while start.elapsed() < time
            || start.elapsed() < time + PATIENCE && unreached(&bench).len() > UNREACHED
        {
            if number % ROUND == 0 {
                bench.be(NODE[0]);
                known = known_flows(&bench, random);
            }
            let case = next_case(&bench, random, &known, seed, number);
            bench.set(case.node, case.draining);
            bench.forget(&case.flow);
            if let Some(entry) = &case.before {
                bench.put(&case.flow, entry);
            }
            let (verdict, out) =
                if case.leaves { bench.egress(&case.frame) } else { bench.ingress(&case.frame, case.mark) };
            let check = if case.leaves { check_egress } else { check_ingress };
            check(&bench, &case, verdict, &out);
            verdicts[verdict as usize] += 1;
            number += 1;
        }
        let took = start.elapsed();
        println!("{number} packets in {took:?}: {verdicts:?} went on, passed, were dropped, were answered");
        println!("{:?}", NodeCounter::ALL.map(|counter| (counter, bench.counter(counter))));
        assert!(bench.reserved() >= 0, "more places were given back than reserved");
        let still = unreached(&bench);
        assert!(still.len() <= UNREACHED, "part of the programs is never reached: {still:?}");
    });
}

/// A random entry of a flow whose numbers are translated, of a server here or behind an interface.
fn translated_entry(random: &mut Random, of: &KnownFlow) -> sb_owned {
    let masquerade = sb_masquerade {
        seq: random.next() as u32,
        tsval: random.next() as u32,
        stage: random.below(9) as u8,
        theirs: random.below(16) as u8,
        ours: random.below(16) as u8,
        ..Default::default()
    };
    let away = sb_away {
        server: endpoint(away_server(&of.flow)),
        ifindex: random.pick(&[0, LOOPBACK, LOOPBACK + 1]),
        rcv_nxt: near(random, of.seq),
        snd_nxt: near(random, of.ack),
        snd_una: near(random, of.ack),
        client_end: near(random, of.seq),
        ended: random.below(8) as u8,
        ..Default::default()
    };
    sb_owned { masquerade, away, ..random_entry(random, of) }
}

/// The flow of a frame's TCP packet, from or to the client, and its sequence number.
fn tcp_of(frame: &[u8], from_client: bool) -> Option<(sb_flow, TcpView)> {
    let view = TcpView::parse(frame.get(14..)?)?;
    Some((flow_of(&frame[14..], view.tcp, from_client)?, view))
}

/// What leaves a program has a right checksum if it came with one, and without padding.
fn check_sealed(before: &[u8], after: &[u8]) {
    let is_whole = TcpView::parse(before).is_some_and(|view| view.end == before.len());
    assert!(is_tcp_sealed(&after[14..]) || !is_whole || !is_tcp_sealed(before), "the checksum");
}

fn check_to_server(handoff: &Handoff, case: &Case, verdict: Verdict, out: &[u8]) {
    let inner = &case.frame[handoff.inner..];
    let is_tcp = leaving(out).is_some() && !handoff.icmp;
    let Some((flow, view)) = tcp_of(out, true).filter(|_| is_tcp) else { return };
    let server = if verdict == Verdict::Redirect { away_server(&handoff.flow) } else { handoff.flow.vip() };
    assert_eq!(flow, of_server(&handoff.flow, server), "{verdict:?}");
    check_sealed(inner, out);
    // A SYN, or a RST.
    let may_be_made = view.flags & (flags::SYN | flags::RST) != 0;
    let is_made = may_be_made && handoff.view.flags & (flags::SYN | flags::RST) == 0;
    assert!(!is_made || is_tcp_sealed(&out[14..]), "a packet that the node has made");
    assert!(may_be_made || view.seq == handoff.server_seq(), "the client's numbers stay");
}

fn check_to_client(case: &Case, verdict: Verdict, out: &[u8]) {
    let Some((flow, view)) = leaving(&case.frame).and_then(|_| tcp_of(&case.frame, false)) else { return };
    let Some(before) = case.before.filter(|_| verdict == Verdict::Next) else { return };
    let (after, seen) = tcp_of(out, false).expect("it is still a packet");
    assert_eq!(after, flow);
    check_sealed(&case.frame[14..], out);
    let by = if before.masquerade.stage == 0 { 0 } else { before.masquerade.seq };
    assert_eq!(seen.seq, Seq(view.seq.0.wrapping_add(by)), "the server's numbers");
    assert_eq!((seen.ack, seen.flags, seen.len()), (view.ack, view.flags, view.len()));
}

/// A packet of a server behind the interface, or one that looks like it.
fn check_guard(bench: &Bench, random: &mut Random, known: &KnownFlow) {
    let theirs = of_server(&known.flow, away_server(&known.flow));
    let all = flags::SYN | flags::ACK;
    let tcp_flags = random.pick(&[flags::ACK, flags::ACK, flags::ACK | flags::FIN, flags::RST, all]);
    let numbers = (Seq(near(random, known.ack)), Seq(near(random, known.seq)));
    let stamped = random.one_in(2).then_some((5, 6));
    let mut frame = inside(&segment(&theirs, false, numbers, tcp_flags, stamped, RESPONSE));
    if random.one_in(4) {
        mutate(random, &mut frame, 14);
        lengthen(&mut frame);
    }
    let (verdict, out) = bench.guard(&frame);
    if verdict != Verdict::Redirect {
        assert_eq!(out, frame, "what does not go to a client is left alone");
        return;
    }
    let said = if frame[12] == 8 { [frame[16], frame[17]] } else { [frame[18], frame[19]] };
    // A packet of more than 64 KiB says 0.
    let Some(((theirs, before), (flow, after))) = tcp_of(&frame, false).zip(tcp_of(&out, false)) else {
        assert_eq!(said, [0; 2], "only whole TCP packets leave from a VIP");
        return;
    };
    // A changed port may be that of another client.
    assert_eq!((flow.client(), flow.vip().ip()), (theirs.client(), known.flow.vip().ip()), "from the VIP");
    assert_eq!((after.seq, after.ack, after.flags), (before.seq, before.ack, before.flags));
    assert_eq!(after.end, out.len() - 14, "without padding");
    check_sealed(&frame[14..][..before.end], &out);
}

#[test]
fn whatever_comes_servers_and_clients_see_their_own_numbers() {
    alone(|| {
        let bench = Bench::new();
        let seed = seed();
        let random = &mut Random(seed);
        let time = Duration::from_secs(setting("SWITCHBACK_FUZZ_SECONDS").unwrap_or(SECONDS));
        let (start, mut number, mut known) = (Instant::now(), 0, Vec::new());
        let reached =
            || [RefusedFailed, DropAway, Released].iter().all(|counter| bench.counter(*counter) > 0);
        while start.elapsed() < time || !reached() && start.elapsed() < PATIENCE {
            if number % ROUND == 0 {
                bench.be(NODE[0]);
                for known in &known as &[KnownFlow] {
                    bench.forget(&known.flow);
                    bench.serve_at(&known.flow, known.flow.vip());
                }
                known = known_flows(&bench, random);
                for known in known.iter().filter(|known| known.flow.client().port() % 2 == 0) {
                    bench.serve_away(&known.flow, away_server(&known.flow), LOOPBACK);
                }
            }
            let one = &known[random.below(known.len())];
            let mut case = next_case(&bench, random, std::slice::from_ref(one), seed, number);
            case.before = case.before.map(|_| translated_entry(random, one));
            bench.adopt_as(case.node, case.draining, random.below(3) as u8);
            bench.forget(&case.flow);
            if let Some(entry) = &case.before {
                bench.put(&case.flow, entry);
            }
            if random.one_in(4) {
                check_guard(&bench, random, one);
            } else if case.leaves {
                let (verdict, out) = bench.egress(&case.frame);
                check_to_client(&case, verdict, &out);
            } else {
                let (verdict, out) = bench.ingress(&case.frame, case.mark);
                let node = case.node;
                let valid = Handoff::read(&case.frame)
                    .filter(|handoff| handoff.is_signed(&SIGN, node) || handoff.is_signed(&ACCEPT, node));
                let goes_on = matches!(verdict, Verdict::Pass | Verdict::Redirect);
                match valid {
                    Some(handoff) if goes_on && Handoff::parse(&out).is_none() => {
                        check_to_server(&handoff, &case, verdict, &out);
                    }
                    Some(_) => {}
                    None => assert!(!goes_on, "{verdict:?} without a valid tag"),
                }
            }
            number += 1;
        }
        println!("{number} packets in {:?}", start.elapsed());
        assert!(reached(), "part of the programs is never reached");
    });
}
