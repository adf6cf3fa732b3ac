//! Flows with an entry: packets forwarded to the node at once, and packets for the L7 thread.

use SwitchCounter::*;
use sb_mode::*;
use sb_record_kind::*;
use switchback_http::framing::Framing;
use switchback_http::framing::generated::SB_FRAMING_CHUNK;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::{Row, run_all};
use crate::dispatch::Change;
use crate::plan::NodeId;

pub const ORIGIN: u32 = 0xffff_ff00;
/// Sequence number of the next request, after a wraparound.
pub const MARK: u32 = 0x40;
pub const ACK: u32 = 0x5566_7788;
pub const PLAIN: &str = "GET /a?b HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n";

/// Entry of a flow with a node, between two requests.
pub fn entry(node: NodeId) -> sb_flow_entry {
    sb_flow_entry {
        node: node.0,
        origin: ORIGIN,
        next: MARK,
        begins: MARK,
        mss: 1400,
        options: (SB_SYN_WSCALE | SB_SYN_SACK | SB_SYN_TSTAMP) as u8,
        wscale: 0x97,
        mode: SB_MODE_REQUESTS as u8,
        requests: 3,
        heads: 0b100,
        ..Default::default()
    }
}

/// Entry with the mark before a chunk.
fn in_body(node: NodeId) -> sb_flow_entry {
    let framing = Framing::new(SB_FRAMING_CHUNK, 0).with_allowed(u64::MAX);
    sb_flow_entry { framing, ..entry(node) }
}

fn mode(mode: sb_mode) -> sb_flow_entry {
    sb_flow_entry { mode: mode as u8, ..entry(V4) }
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        for node in [V4, V6, ENDS_IN_ZEROS, NUMBERED[0], NUMBERED[1]] {
            rows.extend(forwarded_rows(bench, flow, &entry(node), Verdict::Tx));
        }
        rows.extend(forwarded_rows(bench, flow, &entry(ON_ANOTHER_INTERFACE), Verdict::Redirect));
        for node in HERE {
            rows.extend(forwarded_rows(bench, flow, &entry(node), Verdict::Pass));
        }
        rows.extend(forwarded_rows(bench, flow, &in_body(V4), Verdict::Tx));
        let ahead = sb_flow_entry { ahead: 1, ..entry(V4) };
        rows.extend(forwarded_rows(bench, flow, &ahead, Verdict::Tx));
        rows.extend(tunnel_rows(bench, flow));
        rows.extend(held_rows(flow, SB_MODE_HELD));
        rows.extend(held_rows(flow, SB_MODE_SOUGHT));
        rows.extend(answered_rows(flow));
        rows.extend(nowhere_rows(flow));
        rows.extend(dead_rows(bench, flow));
        rows.extend(unacceptable_rows(flow));
    }
    rows
}

/// Packets that no kernel accepts (RFC 9293 section 3.10.7.4, fifth), so that their data must not be parsed.
fn unacceptable_rows(flow: &sb_flow) -> Vec<Row> {
    let entries =
        [SB_MODE_HELD, SB_MODE_SOUGHT, SB_MODE_REQUESTS, SB_MODE_TUNNEL, SB_MODE_ANSWERED].map(mode);
    let mut rows = Vec::new();
    for entry in entries.into_iter().chain([in_body(V4)]) {
        for tcp_flags in [0, flags::PSH, flags::FIN, flags::PSH | flags::FIN] {
            for data in [PLAIN, "5\r\n", ""] {
                let tcp = Tcp { flags: tcp_flags, ..Tcp::data(flow, MARK, ACK, data.as_bytes()) };
                let what = format!("flags {tcp_flags:#x} in mode {}, {} bytes", entry.mode, data.len());
                rows.push(Row::new(&what, flow, tcp.frame(), Verdict::Drop, [DropFlags]).with(&entry));
            }
        }
    }
    rows
}

/// Packets that go to the node by the flow map alone.
fn forwarded_rows(bench: &Bench, flow: &sb_flow, entry: &sb_flow_entry, verdict: Verdict) -> Vec<Row> {
    let body = |seq: u32, len: usize| Tcp::data(flow, seq, ACK, &vec![b'x'; len]);
    let bare = |more| Tcp::new(flow, MARK, ACK, flags::ACK | more);
    let below = MARK - 1;
    let packets = [
        ("data up to the mark", body(0, MARK as usize)),
        ("a byte below the mark", body(below, 1)),
        ("data before the wrap", body(ORIGIN, 16)),
        ("data up to the wrap", body(ORIGIN, 256)),
        ("data across the wrap", body(ORIGIN, 300)),
        ("the longest data", body(MARK.wrapping_sub(1400), 1400)),
        ("data with timestamps", body(0, 10).stamped(5, 6)),
        ("data with FIN", Tcp { flags: flags::ACK | flags::FIN, ..body(0, 64) }),
        ("an ACK", bare(0)),
        ("an ACK with timestamps", bare(0).stamped(1, 2)),
        ("an ACK of no ECN", bare(0).class(0b1011_1000)),
        ("an ACK from a congested path", bare(0).class(0b1011_1011)),
        ("FIN", bare(flags::FIN)),
        ("RST", bare(flags::RST)),
        ("RST without ACK", Tcp { flags: flags::RST, ..bare(0) }),
        // A kernel takes no data from it, so none is parsed.
        ("RST with data at the mark", Tcp { flags: flags::ACK | flags::RST, ..body(MARK, 10) }),
        ("an ACK beyond the mark", Tcp { seq: MARK + 999, ..bare(0) }),
    ];
    let more = if entry.ahead == 0 { 0 } else { SB_HANDOVER_AHEAD };
    let row = |what: &str, tcp: &Tcp| {
        let packet = tcp.packet();
        let sent = bench.forwarded(entry, flow, &packet, more);
        let what = format!("{what} to node {}", entry.node);
        Row::new(&what, flow, to_us(&packet), verdict, [Forwarded]).with(entry).sends(sent)
    };
    packets.iter().map(|(what, tcp)| row(what, tcp)).collect()
}

fn tunnel_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let entry = mode(SB_MODE_TUNNEL);
    let packets = [
        ("data at the mark", Tcp::data(flow, MARK, ACK, PLAIN.as_bytes())),
        ("data beyond it", Tcp::data(flow, MARK + 5000, ACK, b"x")),
        ("an ACK", Tcp::new(flow, MARK, ACK, flags::ACK)),
        ("FIN", Tcp::new(flow, MARK, ACK, flags::ACK | flags::FIN)),
        ("RST", Tcp::new(flow, MARK, ACK, flags::RST)),
    ];
    let rows = packets.into_iter().map(|(what, tcp)| {
        let packet = tcp.packet();
        let sent = bench.forwarded(&entry, flow, &packet, 0);
        let what = format!("tunnel: {what}");
        Row::new(&what, flow, to_us(&packet), Verdict::Tx, [Forwarded]).with(&entry).sends(sent)
    });
    rows.collect()
}

fn held_rows(flow: &sb_flow, held: sb_mode) -> Vec<Row> {
    let entry = mode(held);
    let bare = |more| Tcp::new(flow, MARK, ACK, flags::ACK | more);
    let given = [
        ("data", Tcp::data(flow, MARK, ACK, PLAIN.as_bytes())),
        ("data elsewhere", Tcp::data(flow, 1, ACK, b"x")),
        ("FIN", bare(flags::FIN)),
        ("RST", bare(flags::RST)),
    ];
    let mut rows: Vec<Row> = given
        .into_iter()
        .map(|(what, tcp)| {
            let what = format!("{held:?}: {what}");
            Row::new(&what, flow, tcp.frame(), Verdict::Drop, [Request])
                .with(&entry)
                .records(SB_RECORD_REQUEST)
        })
        .collect();
    let ack = bare(0).frame();
    rows.push(Row::new(&format!("{held:?}: an ACK"), flow, ack, Verdict::Drop, [DropHeld]).with(&entry));
    rows
}

/// A flow on which the switch itself answers.
fn answered_rows(flow: &sb_flow) -> Vec<Row> {
    let bare = |more| Tcp::new(flow, MARK, ACK, flags::ACK | more);
    let given = [
        ("an ACK", bare(0)),
        ("an ACK with timestamps", bare(0).stamped(1, 2)),
        ("FIN", bare(flags::FIN)),
        ("RST", bare(flags::RST)),
        ("data at the mark", Tcp::data(flow, MARK, ACK, PLAIN.as_bytes())),
        ("data below it", Tcp::data(flow, 0, ACK, b"x")),
        ("data beyond it", Tcp::data(flow, MARK + 5000, ACK, b"x")),
    ];
    let rows = [mode(SB_MODE_ANSWERED), sb_flow_entry { locked: 1, ..mode(SB_MODE_ANSWERED) }].map(|entry| {
        given.clone().map(|(what, tcp)| {
            let what = format!("answered: {what}");
            Row::new(&what, flow, tcp.frame(), Verdict::Drop, [Request])
                .with(&entry)
                .records(SB_RECORD_REQUEST)
        })
    });
    rows.into_iter().flatten().collect()
}

/// Nodes that the program cannot reach.
fn nowhere_rows(flow: &sb_flow) -> Vec<Row> {
    let ack = Tcp::new(flow, MARK, ACK, flags::ACK).frame();
    let mut rows = vec![
        Row::new("the next hop is not resolved", flow, ack.clone(), Verdict::Drop, [ForwardedSlowly])
            .with(&entry(UNRESOLVED))
            .records(SB_RECORD_FORWARD),
    ];
    for node in [UNKNOWN, NodeId(SB_NODES - 1), NodeId(SB_NODES), NodeId(u32::MAX)] {
        let what = format!("there is no node {node}");
        rows.push(Row::new(&what, flow, ack.clone(), Verdict::Drop, [DropNoNode]).with(&entry(node)));
    }
    rows
}

/// A dead node: retransmissions of its clients go to the L7 thread, everything else still goes to the node.
fn dead_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let data = |seq: u32| Tcp::data(flow, seq, ACK, &[b'x'; 16]);
    let read = [("data below the mark", data(0)), ("data of long ago", data(ORIGIN))];
    let mut rows = Vec::new();
    for (what, tcp) in read {
        let what = format!("a dead node: {what}");
        let row = Row::new(&what, flow, tcp.frame(), Verdict::Drop, [Request]);
        rows.push(row.with(&entry(DEAD)).records(SB_RECORD_REQUEST));
    }
    let tunnel = sb_flow_entry { mode: SB_MODE_TUNNEL as u8, ..entry(DEAD) };
    let ack = Tcp::new(flow, MARK, ACK, flags::ACK);
    let reset = Tcp { flags: flags::ACK | flags::RST, ..data(0) };
    for (what, entry, tcp) in
        [("an ACK", entry(DEAD), ack), ("a RST", entry(DEAD), reset), ("a tunnel's data", tunnel, data(0))]
    {
        let packet = tcp.packet();
        let sent = bench.forwarded(&entry, flow, &packet, 0);
        let what = format!("a dead node: {what}");
        let row = Row::new(&what, flow, to_us(&packet), Verdict::Tx, [Forwarded]);
        rows.push(row.with(&entry).sends(sent));
    }
    rows
}

pub fn express_rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    let padding = "x".repeat(SB_EXPRESS_HEAD_MAX as usize);
    let of_length = |len: usize| {
        let (start, end) = ("GET / HTTP/1.1\r\nHost: a\r\nCookie: ", "\r\n\r\n");
        format!("{start}{}{end}", &padding[..len - start.len() - end.len()])
    };
    let longest = of_length(SB_EXPRESS_HEAD_MAX as usize);
    let too_long = of_length(SB_EXPRESS_HEAD_MAX as usize + 1);
    let plain = [
        (PLAIN, 0),
        ("HEAD / HTTP/1.1\r\nhost:a:8080\r\n\r\n", 0),
        ("GET /img HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", 0),
        (longest.as_str(), 0),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", SB_HANDOVER_LAST),
        ("HEAD / HTTP/1.1\r\nconnection:Close\r\nHost: a\r\n\r\n", SB_HANDOVER_LAST),
        ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", SB_HANDOVER_LAST),
        ("GET / HTTP/1.0\r\nHost: a\r\nConnection: close\r\n\r\n", SB_HANDOVER_LAST),
    ];
    let two = [PLAIN, PLAIN].concat();
    let judged = [
        ("a body", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"),
        ("another pool", "GET /img/x HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("POST", "POST / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("no host", "GET / HTTP/1.1\r\nAccept: */*\r\n\r\n"),
        ("HTTP/1.0 that keeps", "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"),
        ("HTTP/1.0 without host", "GET / HTTP/1.0\r\n\r\n"),
        (
            "close behind keep-alive",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
        ),
        (
            "keep-alive behind close",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
        ),
        ("two heads", &two),
        ("part of a head", &PLAIN[..PLAIN.len() - 1]),
        ("a head and a byte more", &two[..PLAIN.len() + 1]),
        ("one byte", "G"),
        ("a long head", &too_long),
        ("no text", "GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n"),
    ];
    for flow in &flows() {
        for node in [V4, V6] {
            for (head, more) in plain {
                rows.push(express_row(bench, flow, &entry(node), head, more));
            }
        }
        // The 65,536th request, with a HEAD 32 requests ago.
        let many = sb_flow_entry { requests: u16::MAX, heads: 1 << 31 | 1, ..entry(V4) };
        for (head, more) in plain {
            rows.push(express_row(bench, flow, &many, head, more));
        }
        for (what, head) in judged {
            rows.push(judged_row(what, flow, &entry(V4), Tcp::data(flow, MARK, ACK, head.as_bytes())));
        }
        let plain = |seq: u32| Tcp::data(flow, seq, ACK, PLAIN.as_bytes());
        let locked = sb_flow_entry { locked: 1, ..entry(V4) };
        rows.push(judged_row("the L7 thread is asked already", flow, &locked, plain(MARK)));
        for node in [None, Some(*b"xyz")] {
            let told = sb_flow_entry { session: sb_session::new(*b"abc", node), ..entry(V4) };
            rows.push(judged_row("the node has to do with cookies", flow, &told, plain(MARK)));
        }
        rows.push(judged_row("a gap before it", flow, &entry(V4), plain(MARK + 1)));
        rows.push(judged_row("it begins below the mark", flow, &entry(V4), plain(MARK - 1)));
        rows.push(judged_row("a node that is not in the pool", flow, &entry(UNRESOLVED), plain(MARK)));
        rows.push(judged_row("a node that is not known", flow, &entry(UNKNOWN), plain(MARK)));
        rows.push(judged_row("a node beyond the tables", flow, &entry(NodeId(5000)), plain(MARK)));
    }
    rows
}

/// The head is forwarded to the node at once, marked as a request with `more` flags, and the mark moves behind it.
fn express_row(bench: &Bench, flow: &sb_flow, before: &sb_flow_entry, head: &str, more: u32) -> Row {
    let packet = Tcp::data(flow, MARK, ACK, head.as_bytes()).packet();
    let after = after_head(before, head);
    let sent = bench.forwarded(&after, flow, &packet, SB_HANDOVER_REQUEST | SB_HANDOVER_AGAIN | more);
    let what = format!("a plain head of {} bytes to node {}", head.len(), before.node);
    Row::new(&what, flow, to_us(&packet), Verdict::Tx, [Express, Forwarded])
        .with(before)
        .leaves(Some(after))
        .sends(sent)
}

/// The entry with the mark behind the head and the request counted.
pub fn after_head(before: &sb_flow_entry, head: &str) -> sb_flow_entry {
    sb_flow_entry {
        begins: before.next,
        next: before.next.wrapping_add(head.len() as u32),
        requests: before.requests.wrapping_add(1),
        heads: before.heads << 1 | u32::from(head.starts_with("HEAD ")),
        ..*before
    }
}

/// The packet goes to the L7 thread, and only the L7 thread moves the mark from then on.
fn judged_row(what: &str, flow: &sb_flow, entry: &sb_flow_entry, tcp: Tcp) -> Row {
    let what = format!("no plain request: {what}");
    Row::new(&what, flow, tcp.frame(), Verdict::Drop, [Request])
        .with(entry)
        .leaves(Some(sb_flow_entry { locked: 1, ..*entry }))
        .records(SB_RECORD_REQUEST)
}

#[test]
fn flows_with_a_node_are_forwarded() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}

#[test]
fn plain_requests_go_to_the_node_at_once() {
    let bench = Bench::new();
    for bank in [0, 1, 0] {
        bench.configure(bank);
        run_all(&bench, express_rows(&bench));
    }
    let express = bench.program.counter(Express);
    let by_node: u64 = (0..5).map(|node| bench.program.express_by_node(NodeId(node))).sum();
    assert_eq!((by_node, bench.program.express_by_service(0)), (express, express));
    // Twice as many heads go to this node as to the other.
    assert_eq!(bench.program.express_by_node(V4), express / 3 * 2);
}

#[test]
fn requests_one_after_another_move_the_mark() {
    let bench = Bench::new();
    for flow in &flows() {
        // The sequence numbers wrap around.
        let mut after = sb_flow_entry { next: 0xffff_8000, ..entry(V4) };
        bench.put(flow, &after);
        for _ in 0..1000 {
            let packet = Tcp::data(flow, after.next, ACK, PLAIN.as_bytes()).packet();
            after = after_head(&after, PLAIN);
            let (verdict, frame) = bench.run(&to_us(&packet), 1);
            assert_eq!(verdict, Verdict::Tx);
            assert_eq!(
                frame,
                bench.forwarded(&after, flow, &packet, SB_HANDOVER_REQUEST | SB_HANDOVER_AGAIN)
            );
            // A retransmission is below the mark and no longer a request.
            let (_, frame) = bench.run(&to_us(&packet), 1);
            assert_eq!(frame, bench.forwarded(&after, flow, &packet, 0));
        }
        assert_eq!(bench.l7().mapped(flow), Some(after));
    }
}

/// A change applies only to the connection for which the L7 thread made it.
#[test]
fn changes_are_about_one_connection() {
    let bench = Bench::new();
    let flow = &flows()[0];
    let entry = |origin, next| sb_flow_entry { origin, next, ..Default::default() };
    let (old, moved, new) = (entry(1, 5), entry(1, 9), entry(7, 7));
    let remove = Change::Remove { origin: Seq(1) };
    for (before, change, after) in [
        (Some(old), Change::Replace(typed(&moved)), Some(moved)),
        (Some(new), Change::Replace(typed(&moved)), Some(new)),
        (None, Change::Replace(typed(&moved)), None),
        (Some(old), Change::Lock(typed(&moved)), Some(sb_flow_entry { locked: 1, ..moved })),
        (Some(old), Change::Ahead { origin: Seq(1) }, Some(sb_flow_entry { ahead: 1, ..old })),
        (Some(new), Change::Ahead { origin: Seq(1) }, Some(new)),
        (None, Change::Create(typed(&new)), Some(sb_flow_entry { contested: 1, ..new })),
        (Some(old), Change::Create(typed(&new)), Some(old)),
        (Some(old), remove, None),
        (Some(new), remove, Some(new)),
        (None, remove, None),
    ] {
        bench.forget(flow);
        if let Some(before) = before {
            bench.put(flow, &before);
        }
        bench.l7().change_flows(&[(*flow, change)]).unwrap();
        assert_eq!(bench.l7().mapped(flow), after, "{before:?}, {change:?}");
    }
    // More than one batch, in order.
    bench.forget(flow);
    let create = std::iter::once((*flow, Change::Create(typed(&entry(1, 0)))));
    let moves = (1..1000).map(|next| (*flow, Change::Replace(typed(&entry(1, next)))));
    bench.l7().change_flows(&create.chain(moves).collect::<Vec<_>>()).unwrap();
    assert_eq!(bench.l7().mapped(flow).map(|entry| entry.next), Some(999));
}
