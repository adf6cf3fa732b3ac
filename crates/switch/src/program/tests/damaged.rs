//! Checksums: the program parses only packets that the node's kernel accepts. Also urgent data, which becomes ordinary
//! data under a correct checksum.

use SwitchCounter::*;
use sb_mode::*;
use sb_record_kind::*;
use switchback_wire::packet::{flags, fold, sum};
use switchback_wire::*;

use super::bench::*;
use super::bodies;
use super::forward::{ACK, MARK, PLAIN, after_head, entry};
use super::frames::*;
use super::handshake::ISN;
use super::{Row, run_all};

fn held() -> sb_flow_entry {
    sb_flow_entry { mode: SB_MODE_HELD as u8, ..entry(V4) }
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        rows.extend(damaged_rows(bench, flow));
        rows.extend(length_rows(flow));
        rows.extend(urgent_rows(bench, flow));
    }
    rows
}

/// The checksum that a sender leaves its interface to complete (CHECKSUM_PARTIAL): the sum of the pseudo-header.
fn partly_summed(mut frame: Vec<u8>, tcp: usize) -> Vec<u8> {
    let addresses = if tcp == 34 { 26..34 } else { 22..54 };
    let pseudo = sum(&frame[addresses]) + 6 + (frame.len() - tcp) as u64;
    frame[tcp + 16..tcp + 18].copy_from_slice(&(!fold(pseudo)).to_be_bytes());
    frame
}

/// Frames with one bit changed: in the data, the TCP header, its checksum, the IPv4 header's checksum. Also one whose
/// checksum is not complete.
fn damage(frame: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let tcp = if frame[14] >> 4 == 4 { 34 } else { 54 };
    let mut places = vec![
        ("last byte", frame.len() - 1),
        ("window", tcp + 14),
        ("checksum", tcp + 16),
        ("urgent pointer", tcp + 18),
    ];
    if tcp == 34 {
        places.extend([("IP checksum", 24), ("hops", 22), ("identification", 18)]);
    }
    let changed = places.into_iter().map(|(what, at)| {
        let mut frame = frame.to_vec();
        frame[at] ^= 0x10;
        (what, frame)
    });
    changed.chain([("partial checksum", partly_summed(frame.to_vec(), tcp))]).collect()
}

fn damaged_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let cookie = bench.cookie(&Offer::USUAL.syn(flow, ISN));
    let first = Tcp::data(flow, ISN + 1, cookie.0.wrapping_add(1), PLAIN.as_bytes()).stamped(1, cookie.1);
    let bare = |more| Tcp::new(flow, MARK, ACK, flags::ACK | more);
    let data = |seq: u32, text: &str| Tcp::data(flow, seq, ACK, text.as_bytes());
    let in_body = sb_flow_entry { next: MARK, ..bodies::chunked(u64::MAX) };
    let answered = sb_flow_entry { mode: SB_MODE_ANSWERED as u8, ..entry(V4) };
    let read = [
        ("first data", first, None),
        ("data of a flow that nobody knows", data(1, PLAIN), None),
        ("held data", data(MARK, PLAIN), Some(held())),
        ("held FIN", bare(flags::FIN), Some(held())),
        ("held RST", bare(flags::RST), Some(held())),
        ("an ACK of an answer", bare(0), Some(answered)),
        ("data behind an answer", data(MARK, PLAIN), Some(answered)),
        ("a plain head", data(MARK, PLAIN), Some(entry(V4))),
        ("a head behind a gap", data(MARK + 1, PLAIN), Some(entry(V4))),
        (
            "a head on a flow that the L7 thread has",
            data(MARK, PLAIN),
            Some(sb_flow_entry { locked: 1, ..entry(V4) }),
        ),
        ("the size of a chunk", data(MARK, "5\r\nhello\r\n"), Some(in_body)),
    ];
    let mut rows = Vec::new();
    for (what, tcp, before) in read {
        for (place, frame) in damage(&tcp.frame()) {
            let what = format!("damaged {place}: {what}");
            let row = Row::new(&what, flow, frame, Verdict::Drop, [DropChecksum]);
            rows.push(match &before {
                Some(entry) => row.with(entry),
                None => row,
            });
        }
    }
    // Packets that are not parsed are forwarded unchanged; the receiver verifies them.
    let tunnel = sb_flow_entry { mode: SB_MODE_TUNNEL as u8, ..entry(V4) };
    for (what, tcp, entry) in [
        ("data below the mark", data(0, PLAIN), entry(V4)),
        ("an ACK", bare(0), entry(V4)),
        ("FIN", bare(flags::FIN), entry(V4)),
        ("data in a tunnel", data(MARK, PLAIN), tunnel),
    ] {
        for (place, frame) in damage(&tcp.frame()) {
            let sent = bench.forwarded(&entry, flow, &frame[14..], 0);
            let what = format!("damaged {place}: {what}");
            rows.push(Row::new(&what, flow, frame, Verdict::Tx, [Forwarded]).with(&entry).sends(sent));
        }
    }
    rows
}

/// Odd lengths, lengths that fill no word, and lengths around the blocks of the checksum loop; with right and wrong
/// sums.
fn length_rows(flow: &sb_flow) -> Vec<Row> {
    let header = if flow.client().is_ipv4() { 40 } else { 60 };
    let blocks = [512, 1024, 1536].map(|block| block - 20);
    let longest = SB_RECORD_LARGE as usize - header;
    let mut lengths: Vec<usize> = (1..10).chain([255, 256, 257, 1399, 1400]).collect();
    lengths.extend(blocks.iter().flat_map(|at| at - 2..at + 3));
    lengths.extend([longest - 1, longest]);
    let mut rows = Vec::new();
    for len in lengths {
        // Every byte contributes to the sum.
        let text: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256) as u8 | 0x80).collect();
        let tcp = Tcp::data(flow, MARK, ACK, &text);
        let what = format!("{len} bytes of data");
        rows.push(
            Row::new(&what, flow, tcp.frame(), Verdict::Drop, [Request])
                .with(&held())
                .records(SB_RECORD_REQUEST),
        );
        let mut frame = tcp.frame();
        *frame.last_mut().expect("it has data") ^= 1;
        let what = format!("{len} bytes of data, the last one damaged");
        rows.push(Row::new(&what, flow, frame, Verdict::Drop, [DropChecksum]).with(&held()));
    }
    rows
}

/// The packet with urgent data, and the same packet without the urgent flag.
fn urgent(tcp: &Tcp, pointer: u16) -> [Vec<u8>; 2] {
    let urgent = Tcp { flags: tcp.flags | URG, urgent: pointer, ..tcp.clone() };
    [urgent.packet(), tcp.packet()]
}

fn urgent_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let plain = Tcp::data(flow, MARK, ACK, PLAIN.as_bytes());
    let before = entry(V4);
    let read = after_head(&before, PLAIN);
    let mut rows = Vec::new();
    for pointer in [0, 1, PLAIN.len() as u16, 0x7fff, 0xffff] {
        let row = |what: &str, tcp: &Tcp, moves: &[SwitchCounter], after: &sb_flow_entry, flags| {
            let [packet, calm] = urgent(tcp, pointer);
            let sent = bench.forwarded(after, flow, &calm, flags);
            let what = format!("urgent, pointer {pointer}: {what}");
            let moves = [&[Urgent, Forwarded], moves].concat();
            Row::new(&what, flow, to_us(&packet), Verdict::Tx, moves)
                .with(&before)
                .leaves(Some(*after))
                .sends(sent)
        };
        let below = Tcp::data(flow, MARK - 3, ACK, b"odd");
        rows.push(row("data below the mark", &below, &[], &before, 0));
        rows.push(row("data below the mark, with timestamps", &below.stamped(1, 2), &[], &before, 0));
        rows.push(row("an ACK", &Tcp::new(flow, MARK, ACK, flags::ACK), &[], &before, 0));
        rows.push(row("FIN", &Tcp::new(flow, MARK, ACK, flags::ACK | flags::FIN), &[], &before, 0));
        rows.push(row("a plain head", &plain, &[Express], &read, SB_HANDOVER_REQUEST | SB_HANDOVER_AGAIN));

        let [packet, calm] = urgent(&plain, pointer);
        let what = format!("urgent, pointer {pointer}: held data");
        let mut row = Row::new(&what, flow, to_us(&packet), Verdict::Drop, [Urgent, Request])
            .with(&held())
            .records(SB_RECORD_REQUEST)
            .sends(to_us(&calm));
        row.inner = Some(calm);
        rows.push(row);

        // A damaged packet stays damaged.
        let damaged = |mut packet: Vec<u8>| {
            *packet.last_mut().expect("it has data") ^= 1;
            to_us(&packet)
        };
        let [packet, calm] = urgent(&plain, pointer).map(damaged);
        let what = format!("urgent, pointer {pointer}: damaged data");
        rows.push(
            Row::new(&what, flow, packet, Verdict::Drop, [Urgent, DropChecksum]).with(&before).sends(calm),
        );
    }
    // The pointer has no meaning without the flag.
    let pointed = Tcp { urgent: 3, ..Tcp::data(flow, MARK - 3, ACK, b"odd") }.packet();
    let sent = bench.forwarded(&before, flow, &pointed, 0);
    let what = "an urgent pointer without the flag";
    rows.push(Row::new(what, flow, to_us(&pointed), Verdict::Tx, [Forwarded]).with(&before).sends(sent));
    rows
}

#[test]
fn damaged_packets_are_not_read() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}

/// One's complement has two zeros (RFC 1624); none of the results may be the wrong one.
#[test]
fn former_urgent_data_has_a_right_checksum() {
    let bench = Bench::new();
    let mut random = Random(0x1624);
    for flow in &flows() {
        bench.put(flow, &entry(V4));
        for _ in 0..5_000 {
            let numbers = random.next();
            let tcp =
                Tcp { window: numbers as u16, ..Tcp::data(flow, MARK - 3, (numbers >> 32) as u32, b"odd") };
            let [packet, calm] = urgent(&tcp, (numbers >> 16) as u16);
            assert_eq!(bench.run(&to_us(&packet), 1).1, bench.forwarded(&entry(V4), flow, &calm, 0));
        }
    }
}
