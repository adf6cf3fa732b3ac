//! Malformed packets, and packets beyond a limit.

use SwitchCounter::*;
use sb_record_kind::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::handshake::ISN;
use super::{Row, run_all};

/// The kernel refuses longer test frames.
const LONGEST_FRAME: usize = 3000;

fn held() -> sb_flow_entry {
    sb_flow_entry { origin: ISN, next: ISN, mode: sb_mode::SB_MODE_HELD as u8, ..Default::default() }
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        rows.extend(length_rows(flow));
        rows.extend(if flow.client().is_ipv4() { ipv4_rows(flow) } else { ipv6_rows(flow) });
        rows.extend(long_rows(bench, flow));
    }
    rows
}

/// Truncated frames, and inconsistent lengths.
fn length_rows(flow: &sb_flow) -> Vec<Row> {
    let syn = Offer::USUAL.syn(flow, ISN).frame();
    let ip = if flow.client().is_ipv4() { 20 } else { 40 };
    let malformed = |what: &str, frame: Vec<u8>| Row::new(what, flow, frame, Verdict::Drop, [DropMalformed]);
    let mut rows = Vec::new();
    for len in 14..syn.len() {
        let what = format!("{len} bytes of a SYN");
        let frame = syn[..len].to_vec();
        // The VIP is unknown until the IP header is whole.
        rows.push(if len < 14 + ip {
            Row::new(&what, flow, frame, Verdict::Pass, [])
        } else {
            malformed(&what, frame)
        });
    }
    let doff = 14 + ip + 12;
    for words in (0..5).chain(11..16) {
        let mut frame = syn.clone();
        frame[doff] = words << 4;
        rows.push(malformed(&format!("a TCP header of {words} words"), frame));
    }
    rows
}

/// The changed frame with a right IPv4 header checksum, so that a router would forward it.
fn resealed(mut frame: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut frame[14..]);
    seal_ipv4(&mut frame[14..]);
    frame
}

fn ipv4_rows(flow: &sb_flow) -> Vec<Row> {
    let syn = Offer::USUAL.syn(flow, ISN).frame();
    let row = |what: &str, moves: SwitchCounter, change: fn(&mut [u8])| {
        Row::new(what, flow, resealed(syn.clone(), change), Verdict::Drop, [moves])
    };
    let mut rows = vec![
        row("a total length of zero", DropMalformed, |ip| ip[2..4].fill(0)),
        row("a total length of the header", DropMalformed, |ip| ip[2..4].copy_from_slice(&[0, 20])),
        row("a total length up to the options", DropMalformed, |ip| ip[2..4].copy_from_slice(&[0, 40])),
        row("a total length one too long", DropMalformed, |ip| ip[3] += 1),
        row("the longest total length", DropMalformed, |ip| ip[2..4].fill(0xff)),
        row("IP options", DropFragment, |ip| ip[0] = 0x46),
        row("the longest IP options", DropFragment, |ip| ip[0] = 0x4f),
        row("a header too short", DropFragment, |ip| ip[0] = 0x44),
        row("the first fragment", DropFragment, |ip| ip[6] = 0x20),
        row("a fragment in the middle", DropFragment, |ip| (ip[6], ip[7]) = (0x20, 1)),
        row("the last fragment", DropFragment, |ip| (ip[6], ip[7]) = (0, 0xb9)),
        row("a fragment of UDP", DropFragment, |ip| (ip[6], ip[9]) = (0x20, 17)),
    ];
    for version in [0, 5, 6, 15] {
        let mut frame = syn.clone();
        frame[14] = version << 4 | 5;
        rows.push(Row::new(&format!("version {version}"), flow, frame, Verdict::Pass, []));
    }
    // Ignored: the other two flags of RFC 791.
    let mut allowed = Tcp::new(flow, ISN, 0, flags::RST).frame();
    allowed = resealed(allowed, |ip| ip[6] = 0x80);
    rows.push(Row::new("the reserved flag, without DF", flow, allowed, Verdict::Drop, [DropFlags]));
    rows
}

fn ipv6_rows(flow: &sb_flow) -> Vec<Row> {
    let syn = Offer::USUAL.syn(flow, ISN);
    let frame = syn.frame();
    let row = |what: &str, frame: Vec<u8>, verdict, moves: &[SwitchCounter]| {
        Row::new(what, flow, frame, verdict, moves.to_vec())
    };
    let mut rows = Vec::new();
    // With 65,496 and more, header and payload together exceed 16 bits.
    for len in [0u16, 19, 20, 39, 41, 1500, 65495, 65496, 65515, 65516, 65535] {
        let mut frame = frame.clone();
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        rows.push(row(&format!("a payload length of {len}"), frame, Verdict::Drop, &[DropMalformed]));
    }
    for version in [0, 4, 5, 15] {
        let mut frame = frame.clone();
        frame[14] = version << 4;
        rows.push(row(&format!("version {version}"), frame, Verdict::Pass, &[]));
    }
    let segment = &frame[54..];
    for (what, kind, verdict, moves) in [
        ("a fragment", 44, Verdict::Drop, &[DropFragment][..]),
        ("hop-by-hop options", 0, Verdict::Drop, &[DropFragment]),
        ("a routing header", 43, Verdict::Drop, &[DropFragment]),
        ("destination options", 60, Verdict::Drop, &[DropFragment]),
        ("no next header", 59, Verdict::Pass, &[]),
    ] {
        let extended = [&[6, 0, 1, 4, 0, 0, 0, 0][..], segment].concat();
        let packet = syn.ip.carry(kind, &extended, None);
        rows.push(row(what, to_us(&packet), verdict, moves));
        let elsewhere = Ip { dest: address("2001:db8::101"), ..syn.ip }.carry(kind, &extended, None);
        rows.push(row(&format!("{what}, to another address"), to_us(&elsewhere), Verdict::Pass, &[]));
    }
    rows
}

/// Packets around the two record lengths.
fn long_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let header = if flow.client().is_ipv4() { 40 } else { 60 };
    let (small, large) = (SB_RECORD_SMALL as usize, SB_RECORD_LARGE as usize);
    let of_length = |len: usize| Tcp::data(flow, ISN, 1, &vec![b'x'; len - header]);
    let mut rows = Vec::new();
    for len in [header + 1, small - 1, small, small + 1, large - 1, large] {
        let what = format!("a packet of {len} bytes");
        rows.push(
            Row::new(&what, flow, of_length(len).frame(), Verdict::Drop, [Request])
                .with(&held())
                .records(SB_RECORD_REQUEST),
        );
    }
    for len in [large + 1, LONGEST_FRAME] {
        let frame = of_length(len).frame();
        let moves = [Request, DropTooLong];
        let what = format!("a packet of {len} bytes is too long");
        rows.push(Row::new(&what, flow, frame, Verdict::Drop, moves).with(&held()));
        let inner = of_length(len).packet();
        let said = typed(&held()).flow_state().option(sb_op::SB_OP_REFUSED);
        let frame = bench.node_frame(V4, &Bench::sign(), flow, said, &inner);
        let what = format!("a node's packet of {len} bytes is too long");
        rows.push(Row::new(&what, flow, frame, Verdict::Drop, [HandoffReceived, DropTooLong]));
    }
    rows
}

/// Fills the ring with requests that nobody reads; after a read there is room again.
pub fn fill_the_ring(bench: &Bench, flow: &sb_flow) {
    // The kernel may move the thread between two runs to another CPU with its own ring.
    let times = 3000 * bench.program.rings[0].len() as u32;
    bench.put(flow, &held());
    let _ = (bench.records(), bench.moved());
    let frame = Tcp::data(flow, ISN, 1, &[b'x'; 1400]).frame();
    let (verdict, _) = bench.run(&frame, times);
    assert_eq!(verdict, Verdict::Drop);
    let records = bench.records().len() as u64;
    let lost = u64::from(times) - records;
    assert!(records > 1000 && lost > 1000, "{records} records");
    assert_eq!(bench.moved(), [(Request, u64::from(times)), (DropRingFull, lost)]);
    assert_eq!(bench.send(&frame).records.len(), 1);
    bench.forget(flow);
}

#[test]
fn malformed_packets_are_counted_by_reason() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}

#[test]
fn a_full_ring_is_counted() {
    let bench = Bench::new();
    for flow in &flows() {
        fill_the_ring(&bench, flow);
    }
}
