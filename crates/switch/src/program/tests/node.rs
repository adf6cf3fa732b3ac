//! Handoff packets from nodes.

use SwitchCounter::*;
use sb_op::*;
use sb_record_kind::*;
use switchback_wire::generation::Generation;
use switchback_wire::handoff::{OVERHEAD_V4, OVERHEAD_V6, Peers};
use switchback_wire::keys::handoff_key;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::{Row, run_all};
use crate::plan::NodeId;

const SAYS: [sb_op; 6] = [SB_OP_ADOPTED, SB_OP_REFUSED, SB_OP_RELEASED, SB_OP_BUSY, SB_OP_OWNED, SB_OP_ADOPT];

fn entry() -> sb_flow_entry {
    sb_flow_entry {
        node: V4.0,
        origin: 1000,
        next: 2000,
        mss: 1460,
        options: 7,
        wscale: 0x77,
        mode: sb_mode::SB_MODE_REQUESTS as u8,
        ..Default::default()
    }
}

/// A frame from a node, with the offset of its Geneve header.
struct NodeFrame {
    frame: Vec<u8>,
    option: sb_option,
    shim: usize,
}

fn shim_of(bench: &Bench, node: NodeId) -> usize {
    let overhead = if bench.node_address(node).machine.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 };
    14 + overhead - size_of::<sb_shim>()
}

fn node_frame(
    bench: &Bench,
    node: NodeId,
    key: &sb_key,
    op: sb_op,
    flow: &sb_flow,
    inner: &[u8],
) -> NodeFrame {
    let reason = sb_reason::SB_REASON_DRAINING as u8;
    let said = sb_option { reason, ..typed(&entry()).flow_state().option(op) }
        .with(|outcome: &mut sb_outcome| outcome.queue = (3, 511).into());
    let frame = bench.node_frame(node, key, flow, said, inner);
    let shim = shim_of(bench, node);
    let sent: sb_shim = read_from(&frame[shim..]).expect("a whole shim");
    NodeFrame { frame, option: sent.option, shim }
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        for node in [V4, V6, NUMBERED[0], NUMBERED[1]] {
            rows.extend(message_rows(bench, flow, node));
            rows.extend(closed_rows(bench, flow, node));
            rows.extend(tag_rows(bench, flow, node));
            rows.extend(number_rows(bench, flow, node));
            rows.extend(version_rows(bench, flow, node));
            rows.extend(foreign_rows(bench, flow, node));
            rows.extend(garbage_rows(bench, flow, node));
        }
    }
    rows
}

fn inner(flow: &sb_flow) -> Vec<u8> {
    Tcp::data(flow, 1500, 77, b"GET / HTTP/1.1\r\n").stamped(1, 2).packet()
}

fn message_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let long = Tcp::data(flow, 1500, 77, &[b'x'; 1400]).packet();
    let bare = Tcp::new(flow, 1500, 77, flags::ACK).packet();
    let mut rows = Vec::new();
    for op in SAYS {
        for inner in [&inner(flow), &long, &bare] {
            // The second key is accepted while keys rotate.
            for key in CLUSTER_KEYS {
                let NodeFrame { mut frame, option, .. } =
                    node_frame(bench, node, &handoff_key(&[key; 32]), op, flow, inner);
                frame.extend_from_slice(&[0xee; 3]);
                let what = format!("{op:?} from node {node}, {} bytes, key {key}", inner.len());
                let mut row = Row::new(&what, flow, frame, Verdict::Drop, [HandoffReceived])
                    .with(&entry())
                    .records(SB_RECORD_HANDOFF);
                (row.inner, row.from_node) = (Some(inner.clone()), Some((node, option)));
                rows.push(row);
            }
        }
    }
    rows
}

fn closed_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let frame = node_frame(bench, node, &Bench::sign(), SB_OP_CLOSED, flow, &inner(flow)).frame;
    let row = |what: &str, moves: &[SwitchCounter]| {
        Row::new(what, flow, frame.clone(), Verdict::Drop, moves.to_vec())
    };
    let later = sb_flow_entry { origin: 1001, ..entry() };
    let [first, second] = [1, 2].map(|counter| Generation::first(0).number() * counter);
    let adopted = |generation| sb_flow_entry { generation, ..entry() };
    let of_first = typed(&adopted(first)).flow_state().option(SB_OP_CLOSED);
    let of_first = bench.node_frame(node, &Bench::sign(), flow, of_first, &inner(flow));
    let about_first = |what: &str, moves: &[SwitchCounter]| {
        Row::new(what, flow, of_first.clone(), Verdict::Drop, moves.to_vec())
    };
    vec![
        about_first("CLOSED of this adoption", &[Closed]).with(&adopted(first)).leaves(None),
        about_first("CLOSED of an adoption before this one", &[]).with(&adopted(second)),
        row("CLOSED removes the entry", &[Closed]).with(&entry()).leaves(None),
        row("CLOSED of an earlier connection", &[]).with(&later),
        row("CLOSED of a flow that is gone", &[]),
    ]
}

/// One flipped bit in the tag or anywhere under it.
fn tag_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let key = Bench::sign();
    let NodeFrame { frame, shim, .. } = node_frame(bench, node, &key, SB_OP_ADOPTED, flow, &inner(flow));
    let row = |what: &str, flow: &sb_flow, frame| Row::new(what, flow, frame, Verdict::Drop, [DropTag]);
    let option = shim + 16;
    let inside = shim + size_of::<sb_shim>();
    let tcp = inside + if flow.client().is_ipv4() { 20 } else { 40 };
    let addresses = if flow.client().is_ipv4() { inside + 12 } else { inside + 8 };
    let (node_address, switch_address) =
        if bench.node_address(node).machine.is_ipv4() { (14 + 12, 14 + 16) } else { (14 + 8, 14 + 24) };
    let places = [
        ("version", option + 4),
        ("operation", option + 5),
        ("flags", option + 6),
        ("reason", option + 7),
        ("first byte of the payload", option + 8),
        ("reserved", option + 40),
        ("last byte of the payload", option + 47),
        ("first byte of the tag", option + 48),
        ("last byte of the tag", option + 55),
        ("switch", switch_address),
        ("client's address", addresses),
        ("VIP", tcp - 1),
        ("client's port", tcp),
        ("VIP's port", tcp + 2),
        ("seq", tcp + 4),
        ("ack", tcp + 8),
    ];
    let mut rows: Vec<Row> = places
        .iter()
        .map(|(what, at)| {
            let mut frame = frame.clone();
            frame[*at] ^= 1;
            row(&format!("tag: the {what} is another one"), flow, frame)
        })
        .collect();
    let mut nobody = frame.clone();
    nobody[node_address] ^= 1;
    rows.push(Row::new("from no node", flow, nobody, Verdict::Drop, [DropEpoch]));
    rows.extend(epoch_rows(bench, flow, node));
    let stranger = node_frame(bench, node, &handoff_key(&[9; 32]), SB_OP_ADOPTED, flow, &inner(flow)).frame;
    rows.push(row("tag: an unknown key", flow, stranger));
    let none = node_frame(bench, node, &sb_key::default(), SB_OP_ADOPTED, flow, &inner(flow)).frame;
    rows.push(row("tag: a key of zeros", flow, none));
    rows
}

/// Packets that say another number of the node than their tag.
fn number_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let NodeFrame { frame, option, shim } =
        node_frame(bench, node, &Bench::sign(), SB_OP_ADOPTED, flow, &inner(flow));
    let saying = |number: u16| {
        let mut frame = frame.clone();
        frame[shim + 12..shim + 14].copy_from_slice(&number.to_be_bytes());
        frame
    };
    let own = bench.node_address(node);
    let of_sibling = |id: &NodeId| {
        let node = bench.node_address(*id);
        (node.machine == own.machine && node != own).then_some(node.number)
    };
    let sibling = [V4, V6].iter().chain(&NUMBERED).find_map(of_sibling).expect("another node of the machine");
    let strange = own.number.max(sibling) ^ 1;
    let mut rows = vec![
        Row::new("the number of another node", flow, saying(sibling), Verdict::Drop, [DropTag]),
        Row::new("the number of no node", flow, saying(strange), Verdict::Drop, [DropEpoch]),
    ];
    if own.number == 0 {
        // The end of a second candidate's epoch.
        let mut row = Row::new("no number", flow, saying(0xff), Verdict::Drop, [HandoffReceived])
            .records(SB_RECORD_HANDOFF);
        (row.inner, row.from_node) = (Some(inner(flow)), Some((node, option)));
        rows.push(row);
    }
    rows
}

/// Packets of later versions, and of this one with more in it than this program knows.
fn version_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let closed = typed(&entry()).flow_state().option(SB_OP_CLOSED);
    let frame = |key: &sb_key, option: sb_option| bench.node_frame(node, key, flow, option, &inner(flow));
    let later = |version: u8, key: &sb_key, moves: SwitchCounter| {
        let option = sb_option { version, ..closed };
        let what = format!("version {version}: {moves:?}");
        Row::new(&what, flow, frame(key, option), Verdict::Drop, [moves]).with(&entry())
    };
    let more = sb_option { flags: 0xff, ..closed }.with(|outcome: &mut sb_outcome| {
        outcome.queue = (u16::MAX, u16::MAX).into();
    });
    let stranger = handoff_key(&[9; 32]);
    vec![
        later(SB_VERSION + 1, &Bench::sign(), DropVersion),
        later(u8::MAX, &Bench::sign(), DropVersion),
        later(SB_VERSION + 1, &stranger, DropTag),
        Row::new(
            "unknown flags and reserved bytes",
            flow,
            frame(&Bench::sign(), more),
            Verdict::Drop,
            [Closed],
        )
        .with(&entry())
        .leaves(None),
    ]
}

/// Packets of other epochs. The tag covers the whole epoch, and the VNI contains its low bits.
fn epoch_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let row = |what: &str, epoch: u64, op: sb_op, moves: SwitchCounter| {
        let peers = Peers { epoch, ..Bench::peers(bench.node_address(node)) };
        let frame = bench.node_frame_at(
            peers,
            &Bench::sign(),
            flow,
            typed(&entry()).flow_state().option(op),
            &inner(flow),
        );
        let sent: sb_shim = read_from(&frame[shim_of(bench, node)..]).expect("a whole shim");
        let mut row = Row::new(what, flow, frame, Verdict::Drop, [moves]);
        if moves == HandoffReceived {
            row = row.records(SB_RECORD_HANDOFF);
            (row.inner, row.from_node) = (Some(inner(flow)), Some((node, sent.option)));
        }
        row
    };
    let later = [(-1, HandoffReceived), (0, HandoffReceived), (1, HandoffReceived), (-2, DropEpoch)];
    let much_later = [(2, DropEpoch), (-128, DropEpoch), (127, DropEpoch)];
    let of_same_end = [(-256, DropTag), (256, DropTag), (1 << 32, DropTag)];
    let mut rows: Vec<Row> = [&later[..], &much_later, &of_same_end]
        .concat()
        .into_iter()
        .map(|(by, moves)| {
            let epoch = NODE_EPOCH.wrapping_add_signed(by);
            row(&format!("{by} epochs later"), epoch, SB_OP_ADOPTED, moves)
        })
        .collect();
    rows.push(row("SYNCED has no epoch", 0, SB_OP_SYNCED, HandoffReceived));
    rows.push(row("all else has one", 0, SB_OP_ADOPTED, DropEpoch));
    rows
}

/// Geneve of other programs, and UDP without Geneve.
fn foreign_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let NodeFrame { frame, shim, .. } =
        node_frame(bench, node, &Bench::sign(), SB_OP_ADOPTED, flow, &inner(flow));
    let row = |what: &str, frame: Vec<u8>| Row::new(what, flow, frame, Verdict::Pass, []);
    let places = [
        ("port", shim + 2),
        ("version or length of options", shim + 8),
        ("option class", shim + 16),
        ("option type", shim + 18),
        ("option length", shim + 19),
    ];
    let mut rows: Vec<Row> = places
        .iter()
        .map(|(what, at)| {
            let mut frame = frame.clone();
            frame[*at] ^= 1;
            row(&format!("another {what}"), frame)
        })
        .collect();
    // Shorter than our headers, with right outer lengths.
    for len in [0, 8, 16, 47] {
        let ip = Ip::new(bench.node_address(node).machine, flow.vip().ip());
        let ip = if ip.source.is_ipv4() == ip.dest.is_ipv4() { ip } else { Ip { dest: ip.source, ..ip } };
        let packet = ip.carry(17, &frame[shim..shim + len], None);
        rows.push(row(&format!("{len} bytes of UDP"), to_us(&packet)));
    }
    rows
}

/// Geneve with our option and an inner packet that is missing or truncated.
fn garbage_rows(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<Row> {
    let NodeFrame { frame, shim, .. } =
        node_frame(bench, node, &Bench::sign(), SB_OP_ADOPTED, flow, &inner(flow));
    let row = |what: &str, frame| Row::new(what, flow, frame, Verdict::Drop, [DropMalformed]);
    let inside = shim + size_of::<sb_shim>();
    let (protocol, tcp) = if flow.client().is_ipv4() { (9, 20) } else { (6, 40) };
    let change = |what: &str, at: usize, to: u8| {
        let mut frame = frame.clone();
        frame[at] = to;
        row(&format!("inside: {what}"), frame)
    };
    let mut rows = vec![
        change("neither IPv4 nor IPv6 by its EtherType", shim + 10, 0x11),
        change("another version", inside, 0x55),
        change("UDP", inside + protocol, 17),
        change("a TCP header of no length", inside + tcp + 12, 0),
        change("a TCP header longer than the packet", inside + tcp + 12, 0xf0),
    ];
    if flow.client().is_ipv4() {
        rows.push(change("IP options", inside, 0x46));
        rows.push(change("a fragment", inside + 6, 0x20));
    } else {
        rows.push(change("a fragment header", inside + 6, 44));
    }
    // The outer lengths shrink as well, so that only the inner ones are wrong.
    for cut in [1, 16, 28, 48, 49, 64] {
        let mut frame = frame[..frame.len() - cut].to_vec();
        let at = if shim == 34 { 16 } else { 18 };
        let len = u16::from_be_bytes([frame[at], frame[at + 1]]) - cut as u16;
        frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
        rows.push(row(&format!("inside: {cut} bytes are missing"), frame));
    }
    rows
}

#[test]
fn handoff_packets_from_nodes() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}

/// An all-zero second key means none; it must not verify a tag.
#[test]
fn without_a_second_key_only_the_first_counts() {
    let bench = Bench::new();
    let mut settings = sb_switch_settings { sign: Bench::sign(), ..Default::default() };
    for (accept, moved) in [(sb_key::default(), DropTag), (handoff_key(&[9; 32]), HandoffReceived)] {
        settings.accept = accept;
        bench.program.set_settings(&settings).unwrap();
        for flow in &flows() {
            let frame = node_frame(&bench, V4, &accept, SB_OP_ADOPTED, flow, &inner(flow)).frame;
            assert_eq!(bench.send(&frame).moved, [(moved, 1)]);
        }
    }
}

/// Where this machine is a node, packets from switches go to the node's program, which verifies the tag.
#[test]
fn switch_packets_go_to_the_local_node() {
    let bench = Bench::new();
    bench.be_node(true);
    for flow in &flows() {
        for op in
            [SB_OP_ADOPT, SB_OP_FORWARD, SB_OP_RELEASE, SB_OP_PROBE, SB_OP_ICMP, SB_OP_CONFIRM, SB_OP_HELLO]
        {
            let frame = node_frame(&bench, V4, &sb_key::default(), op, flow, &inner(flow)).frame;
            Row::new(&format!("{op:?}"), flow, frame, Verdict::Pass, []).run(&bench);
        }
        let answer = node_frame(&bench, V4, &Bench::sign(), SB_OP_ADOPTED, flow, &inner(flow)).frame;
        let outcome = bench.send(&answer);
        assert_eq!((outcome.verdict, outcome.records.len()), (Verdict::Drop, 1));
    }
}

#[test]
fn reports_and_facts_wait_for_a_thread_that_will_come() {
    let bench = Bench::new();
    let [flow, _] = flows();
    let (past, future) = (0, u64::MAX);
    for (op, until, wakes) in [
        (SB_OP_REPORT, past, true),
        (SB_OP_REPORT, future, false),
        (SB_OP_FACTS, past, true),
        (SB_OP_FACTS, future, false),
        (SB_OP_RELEASED, future, true),
    ] {
        bench.program.set_reports_wait(until);
        bench.l7().set_awake(false);
        let frame = node_frame(&bench, V4, &Bench::sign(), op, &flow, &inner(&flow)).frame;
        assert_eq!(bench.send(&frame).records.len(), 1, "{op:?}");
        assert_eq!(bench.l7().is_awake(), wakes, "{op:?} until {until}");
    }
}
