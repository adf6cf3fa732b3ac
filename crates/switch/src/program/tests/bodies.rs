//! Request bodies: how the mark moves over them, and which of their packets go to the L7 thread.

use SwitchCounter::*;
use sb_record_kind::*;
use switchback_http::framing::generated::{
    SB_FRAMING_BODY, SB_FRAMING_CHUNK, SB_FRAMING_LOST, SB_FRAMING_SKIP, SB_FRAMING_TRAILER_MAX, sb_framing,
};
use switchback_http::framing::{self, Followed, Framing};
use switchback_wire::*;

use super::bench::*;
use super::forward::{ACK, PLAIN, after_head};
use super::frames::*;
use super::{Row, run_all};

/// Sequence number of the bodies' first byte; the numbers wrap around in the body.
const START: u32 = 0xffff_fff8;

/// A flow entry with the mark in this framing state.
fn entry(framing: Framing) -> sb_flow_entry {
    sb_flow_entry { next: START, framing, ..super::forward::entry(V4) }
}

/// Entry before the first chunk of a body with at most `allowed` more bytes of data.
pub fn chunked(allowed: u64) -> sb_flow_entry {
    entry(Framing::new(SB_FRAMING_CHUNK, 0).with_allowed(allowed))
}

/// Entry before a body of known length.
fn of_length(left: u64) -> sb_flow_entry {
    entry(Framing::new(SB_FRAMING_BODY | SB_FRAMING_SKIP, left).with_allowed(u64::MAX))
}

/// Moves the mark into data that need not be parsed, by 2^29 bytes at most.
pub fn settle(entry: &mut sb_flow_entry) {
    let step = entry.framing.skip(1 << 29);
    entry.next = entry.next.wrapping_add(step as u32);
}

/// Moves the mark over `data` if all of it belongs to the body.
pub fn follow(entry: &mut sb_flow_entry, data: &[u8]) -> bool {
    let mut framing = entry.framing;
    let followed = framing::requests().follow(&mut framing, data, false);
    let whole = followed == Followed::More || followed == Followed::Ends(data.len());
    if whole {
        entry.framing = framing;
        entry.next = entry.next.wrapping_add(data.len() as u32);
        settle(entry);
    }
    whole
}

/// The entry after these packets.
fn through(text: &str) -> sb_flow_entry {
    let mut entry = chunked(u64::MAX);
    assert!(follow(&mut entry, text.as_bytes()), "{text:?}");
    entry
}

/// The packet that follows `read`.
fn packet(flow: &sb_flow, read: &str, data: &str) -> Tcp {
    Tcp::data(flow, START.wrapping_add(read.len() as u32), ACK, data.as_bytes())
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        rows.extend(followed_rows(bench, flow));
        rows.extend(asked_rows(flow));
        rows.extend(long_rows(bench, flow));
    }
    rows
}

/// The end of a body, with a trailer section of `len` bytes up to the last line feed.
fn with_trailers(len: u16) -> String {
    format!("0\r\nx: {}\r\n\r\n", "x".repeat(usize::from(len) - "x: \r\n\r".len()))
}

/// Packets that belong to the body completely: they are forwarded and the mark moves.
fn followed_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let dozens = "1\r\nx\r\n".repeat(200);
    let long = format!("578\r\n{}", "x".repeat(1400));
    let trailers = format!("0\r\n{}", "x-a: b\r\n".repeat(150));
    let longest = with_trailers(SB_FRAMING_TRAILER_MAX);
    // Data read before, its repeated part, and the new data.
    let followed = [
        ("a chunk", "", "", "5\r\nhello\r\n"),
        ("a size alone", "", "", "5\r\n"),
        ("a size and some data", "", "", "1000\r\nhello"),
        ("one digit", "", "", "5"),
        ("a second digit", "5", "", "a"),
        ("the end of a line of its own", "5a", "", "\r\n"),
        ("half of the end of a line", "5a", "", "\r"),
        ("the other half", "5a\r", "", "\nxyz"),
        ("the longest size", "", "", "000000000000000A\r\n"),
        ("the end of a chunk, and a size", "5\r\nhello", "", "\r\n5\r\n"),
        ("data, and a size in mid-packet", "5\r\nh", "ello", "\r\n8\r\nxyz"),
        ("data that begins far below the mark", "578\r\n", &long[5..], "\r\n"),
        ("a packet that was followed up to its middle", "", "5\r\nhel", "lo\r\n5\r\n"),
        ("two hundred chunks", "", "", &dozens),
        ("the last chunk", "5\r\nhello\r\n", "", "0\r\n"),
        ("a trailer", "0\r\n", "", "x-checksum: 7\r\n"),
        ("half a trailer", "0\r\nx-che", "cksum", ": 7"),
        ("150 trailers", "", "", &trailers),
        ("the longest trailers", &longest[..3000], "", &longest[3000..]),
        ("the end", "0\r\n", "", "\r\n"),
        ("the end of the end", "0\r\n\r", "", "\n"),
        ("the end after trailers", "0\r\nx: y\r\n", "", "a: b\r\n\r\n"),
        ("a whole body", "", "", "5\r\nhello\r\n0\r\n\r\n"),
        ("a whole body with trailers", "", "", "5\r\nhello\r\n0\r\nx: y\r\n\r\n"),
        ("an empty body", "", "", "0\r\n\r\n"),
    ];
    let rows = followed.into_iter().flat_map(|(what, read, again, new)| {
        let (before, after) = (through(&[read, again].concat()), through(&[read, again, new].concat()));
        let tcp = packet(flow, read, &[again, new].concat());
        [tcp.clone(), tcp.stamped(1, 2)].map(|tcp| {
            let packet = tcp.packet();
            let sent = bench.forwarded_read(&before, &after, flow, &packet, 0);
            Row::new(&format!("body: {what}"), flow, to_us(&packet), Verdict::Tx, [Chunks, Forwarded])
                .with(&before)
                .leaves(Some(after))
                .sends(sent)
        })
    });
    rows.collect()
}

/// Packets that do not belong to the body completely, or may not: they go to the L7 thread.
fn asked_rows(flow: &sb_flow) -> Vec<Row> {
    let whole = "5\r\nhello\r\n0\r\n\r\n";
    let too_many = with_trailers(SB_FRAMING_TRAILER_MAX + 1);
    let (read, rest) = too_many.split_at(3000);
    let broken = [
        ("a request behind the end", "", [whole, PLAIN].concat()),
        ("a byte behind the end", "", [whole, "G"].concat()),
        ("the end, and a byte", "5\r\nhello\r\n0\r\n\r", "\nG".into()),
        ("no size", "", "x\r\n".into()),
        ("no size after a chunk", "5\r\nhello", "\r\n\r\n".into()),
        ("a size of 17 digits", "", "00000000000000001\r\n".into()),
        ("a size of 2^63", "", "8000000000000000\r\n".into()),
        ("a chunk extension with a blank", "", "5; a=b\r\nhello\r\n".into()),
        ("a line feed alone", "", "5\nhello\r\n".into()),
        ("a carriage return alone", "5\r", "hello".into()),
        ("a chunk that is too long", "5\r\nhello", "!\r\n".into()),
        ("a trailer that means the body", "0\r\n", "Content-Length: 5\r\n".into()),
        ("a trailer without a name", "0\r\n", ": 5\r\n".into()),
        ("a text that is no trailer", "0\r\n", "x y\r\n".into()),
        ("trailers that are too long", read, rest.into()),
    ];
    let rows = broken
        .into_iter()
        .map(|(what, read, data)| asked_row(what, flow, &through(read), &packet(flow, read, &data)));
    let mut rows: Vec<Row> = rows.collect();
    let exhausted = sb_flow_entry { framing: chunked(0).framing.with_allowed(4), ..chunked(0) };
    rows.push(asked_row("more data than allowed", flow, &exhausted, &packet(flow, "", "5\r\n")));
    let mut once = chunked(8);
    assert!(follow(&mut once, b"5\r\nhello\r\n"));
    let second = packet(flow, "5\r\nhello\r\n", "5\r\nhello\r\n");
    rows.push(asked_row("more data than allowed, in the second chunk", flow, &once, &second));
    let begun = through("5\r\nhello\r\n");
    rows.push(asked_row("a gap before it", flow, &begun, &packet(flow, "5\r\nhello\r\n5", "\r\nhello\r\n")));
    let locked = sb_flow_entry { locked: 1, ..begun };
    rows.push(asked_row(
        "the L7 thread is asked already",
        flow,
        &locked,
        &packet(flow, "5\r\nhello\r\n", "5\r\n"),
    ));
    // States that the automaton does not have lead nowhere.
    for state in [SB_FRAMING_LOST, 127, 255, 0x0300, 0x7fff] {
        let odd =
            sb_flow_entry { framing: sb_framing { state, left: 1, ..begun.framing.into() }.into(), ..begun };
        let what = format!("state {state:#x}");
        let row = asked_row(&what, flow, &odd, &packet(flow, "5\r\nhello\r\n", "5\r\nhello\r\n"));
        rows.push(row.leaves(Some(sb_flow_entry { locked: 1, ..odd })));
    }
    rows
}

fn asked_row(what: &str, flow: &sb_flow, before: &sb_flow_entry, tcp: &Tcp) -> Row {
    Row::new(&format!("no body to its end: {what}"), flow, tcp.frame(), Verdict::Drop, [Request])
        .with(before)
        .leaves(Some(sb_flow_entry { locked: 1, ..*before }))
        .records(SB_RECORD_REQUEST)
}

/// Bodies longer than the mark's maximal distance: when the client comes close to the mark, or announces a longer body,
/// the L7 thread moves it on.
fn long_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let forwarded = |what: &str, before: &sb_flow_entry, after: &sb_flow_entry, tcp: Tcp| {
        let packet = tcp.packet();
        let sent = bench.forwarded(after, flow, &packet, 0);
        Row::new(&format!("long body: {what}"), flow, to_us(&packet), Verdict::Tx, [Forwarded])
            .with(before)
            .leaves(Some(*after))
            .sends(sent)
    };
    let settled = |before: &sb_flow_entry| {
        let mut after = *before;
        settle(&mut after);
        after
    };
    let mut rows = Vec::new();
    for (what, body) in [("of known length", of_length(5_000_000_000)), ("a chunk", through("140000000\r\n"))]
    {
        let before = settled(&body);
        // Distance from the mark, in bytes.
        let data = |distance: i32, len: usize| {
            let end = before.next.wrapping_sub(distance as u32);
            Tcp::data(flow, end.wrapping_sub(len as u32), ACK, &vec![b'x'; len])
        };
        let far = 1 << 28;
        let row = |tell: &str, tcp| forwarded(&format!("{what}, {tell}"), &before, &before, tcp);
        rows.push(row("the mark is far", data(far, 100)));
        rows.push(row("an ACK near the mark", data(1, 0)));
        for (tell, distance, len) in
            [("near", far - 1, 100), ("reached", 0, 1400), ("passed", -50, 100), ("behind a gap", -5000, 100)]
        {
            let what = format!("{what}, the mark is {tell}");
            rows.push(asked_row(&what, flow, &before, &data(distance, len)).leaves(Some(before)));
        }
    }
    let five = settled(&of_length(5));
    rows.push(forwarded("the end", &five, &five, packet(flow, "", "hello")));
    rows.push(forwarded("a part of the end", &five, &five, packet(flow, "hell", "o")));
    let more = packet(flow, "", "helloG");
    rows.push(asked_row("a request behind a known length", flow, &five, &more));
    rows
}

#[test]
fn bodies_are_followed_as_far_as_they_go() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}

/// Sends `len` bytes, of which few are looked at; where the L7 thread is asked, the mark moves on. Returns the entry at
/// their end.
fn send_long(bench: &Bench, flow: &sb_flow, mut at: u32, mut len: u64) -> sb_flow_entry {
    const STRIDE: u64 = 1 << 27;
    while len > 0 {
        let data = Tcp::data(flow, at, ACK, &vec![b'x'; len.min(1000) as usize]);
        match bench.run(&data.frame(), 1).0 {
            Verdict::Tx => {}
            verdict => {
                assert_eq!(verdict, Verdict::Drop, "{len} bytes are left");
                assert_eq!(bench.records().len(), 1);
                let mut entry = bench.l7().mapped(flow).unwrap();
                settle(&mut entry);
                bench.put(flow, &entry);
            }
        }
        let step = len.min(STRIDE);
        (at, len) = (at.wrapping_add(step as u32), len - step);
        let ahead = bench.l7().mapped(flow).unwrap().next.wrapping_sub(at);
        assert!(u64::from(ahead) <= 1 << 30, "the mark is {ahead} bytes ahead, {len} bytes are left");
    }
    bench.l7().mapped(flow).unwrap()
}

#[test]
fn wild_packets_do_not_shorten_a_body() {
    let bench = Bench::new();
    for flow in &flows() {
        let mut before = of_length(5_000_000_000);
        settle(&mut before);
        bench.put(flow, &before);
        for _ in 0..8 {
            let wild = Tcp::data(flow, before.next.wrapping_sub(1), ACK, b"x");
            assert_eq!(bench.run(&wild.frame(), 1).0, Verdict::Drop);
            assert_eq!(bench.records().len(), 1);
        }
        assert_eq!(bench.l7().mapped(flow), Some(before));
    }
}

#[test]
fn a_body_of_5_gb_is_followed_by_a_request() {
    const LEN: u64 = 5_000_000_000;
    let bench = Bench::new();
    for flow in &flows() {
        let mut before = of_length(LEN);
        settle(&mut before);
        bench.put(flow, &before);
        let at_end = send_long(&bench, flow, START, LEN);
        let next = START.wrapping_add(LEN as u32);
        assert_eq!(at_end, sb_flow_entry { next, ..entry(Framing::default().with_allowed(u64::MAX)) });
        request_follows(&bench, flow, &at_end);
    }
}

#[test]
fn a_chunk_of_5_gb_is_followed_by_another_and_a_request() {
    const LEN: u64 = 5 << 30;
    let bench = Bench::new();
    for flow in &flows() {
        bench.put(flow, &chunked(LEN + 5));
        let say = |at: u32, text: &str| {
            let frame = Tcp::data(flow, at, ACK, text.as_bytes()).frame();
            let outcome = bench.send(&frame);
            assert_eq!(outcome.moved, [(Chunks, 1), (Forwarded, 1)], "{text:?}");
            at.wrapping_add(text.len() as u32)
        };
        let at = say(START, "140000000\r\nbegins");
        let data = LEN - "begins".len() as u64;
        let inside = send_long(&bench, flow, at, data);
        assert!(!inside.framing.is_between_messages());
        let at = say(at.wrapping_add(data as u32), "\r\n5\r\nhello\r\n0\r\n");
        let at = say(at, "\r\n");
        let at_end = bench.l7().mapped(flow).unwrap();
        assert_eq!(at_end, sb_flow_entry { next: at, ..entry(Framing::default()) });
        request_follows(&bench, flow, &at_end);
    }
}

fn request_follows(bench: &Bench, flow: &sb_flow, before: &sb_flow_entry) {
    let packet = Tcp::data(flow, before.next, ACK, PLAIN.as_bytes()).packet();
    let after = after_head(before, PLAIN);
    Row::new("a request behind a body", flow, to_us(&packet), Verdict::Tx, [Express, Forwarded])
        .with(before)
        .leaves(Some(after))
        .sends(bench.forwarded(&after, flow, &packet, SB_HANDOVER_REQUEST | SB_HANDOVER_AGAIN))
        .run(bench);
}
