//! ICMP errors to a VIP, in which routers report that packets of a flow's node are too long.

use SwitchCounter::*;
use sb_mode::*;
use sb_record_kind::*;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::*;

use super::bench::*;
use super::bodies;
use super::forward::{ACK, entry};
use super::frames::*;
use super::{Row, run_all};
use crate::plan::NodeId;

/// Sequence number of the server's packet that is too long.
const SEQ: u32 = ACK + 1460;

/// A router's message about a packet: type, code, and the packet's start.
fn message(flow: &sb_flow, (kind, code): (u8, u8), about: &[u8]) -> Vec<u8> {
    let (protocol, router) = if about[0] >> 4 == 4 { (1, "203.0.113.9") } else { (58, "2001:db8:9::9") };
    let mtu = [0, 0, 5, 0];
    let message = [&[kind, code, 0, 0], &mtu, about].concat();
    Ip { class: 0xc0, ..Ip::new(address(router), flow.vip().ip()) }.carry(protocol, &message, Some(2))
}

/// Type and code of "packet too big".
fn too_long(flow: &sb_flow) -> (u8, u8) {
    if flow.client().is_ipv4() { (3, 4) } else { (2, 0) }
}

/// A packet from the node to the client.
fn response(flow: &sb_flow) -> Vec<u8> {
    let tcp = Tcp { data: vec![b'x'; 1400], ..Tcp::answer(flow, SEQ, 5, flags::ACK) };
    tcp.packet()
}

/// The handoff packet with a message to the node; its position in the flow is that of the node's packet.
pub fn handed(bench: &Bench, entry: &sb_flow_entry, flow: &sb_flow, packet: &[u8], seq: u32) -> Vec<u8> {
    let tcp = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let view = TcpView { tcp, data: tcp, end: packet.len(), seq: Seq(seq), ack: Seq(0), flags: 0 };
    bench.handed(NodeId(entry.node), flow, typed(entry).flow_state().option(sb_op::SB_OP_ICMP), &view, packet)
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        rows.extend(forwarded_rows(bench, flow));
        rows.extend(unknown_rows(flow));
        rows.extend(useless_rows(flow));
    }
    rows
}

fn forwarded_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let response = response(flow);
    let least = if flow.client().is_ipv4() { 28 } else { 48 };
    let mut rows = Vec::new();
    for len in [least, least + 1, 548, 1232] {
        let packet = message(flow, too_long(flow), &response[..len]);
        let row = |what: &str, entry: &sb_flow_entry, verdict, moves: &[SwitchCounter]| {
            let what = format!("too long, it says with {len} bytes: {what}");
            let moves = [&[IcmpForwarded], moves].concat();
            Row::new(&what, flow, to_us(&packet), verdict, moves).with(entry)
        };
        let nodes = [V4, V6, ENDS_IN_ZEROS]
            .map(|node| (node, Verdict::Tx))
            .into_iter()
            .chain([(ON_ANOTHER_INTERFACE, Verdict::Redirect), (HERE[0], Verdict::Pass)]);
        for (node, verdict) in nodes {
            let sent = handed(bench, &entry(node), flow, &packet, SEQ);
            rows.push(row(&format!("node {node}"), &entry(node), verdict, &[Forwarded]).sends(sent));
        }
        let tunnel = sb_flow_entry { mode: SB_MODE_TUNNEL as u8, ..entry(V4) };
        let locked = sb_flow_entry { locked: 1, ..entry(V4) };
        for (what, entry) in [("tunnel", tunnel), ("in a body", bodies::chunked(9)), ("locked", locked)] {
            let sent = handed(bench, &entry, flow, &packet, SEQ);
            rows.push(row(what, &entry, Verdict::Tx, &[Forwarded]).sends(sent));
        }
        let unresolved = entry(UNRESOLVED);
        rows.push(row("the next hop is not resolved", &unresolved, Verdict::Drop, &[DropIcmp]));
        rows.push(row("there is no such node", &entry(UNKNOWN), Verdict::Drop, &[DropNoNode]));
    }
    rows
}

/// Messages about flows that another switch may have; one that differs from them in any part has a node.
fn unknown_rows(known: &sb_flow) -> Vec<Row> {
    let [mut client, mut port, mut vip_port] = [*known; 3];
    client.client[15] ^= 1;
    port.client_port ^= 1;
    vip_port.vip_port ^= 1;
    let others = [("client", client), ("port of the client", port), ("port", vip_port)];
    let row = |(what, flow): (&str, sb_flow)| {
        let packet = message(&flow, too_long(&flow), &response(&flow));
        let what = format!("too long, of a flow with another {what}");
        Row::new(&what, &flow, to_us(&packet), Verdict::Drop, [DropIcmp]).records(SB_RECORD_ICMP)
    };
    others.map(row).into()
}

/// Messages of no use to a node.
fn useless_rows(flow: &sb_flow) -> Vec<Row> {
    let v4 = flow.client().is_ipv4();
    let response = response(flow);
    let header = if v4 { 20 } else { 40 };
    let (kind, code) = too_long(flow);
    let row = |what: &str, packet: Vec<u8>, before: Option<sb_flow_entry>| {
        let what = format!("useless ICMP: {what}");
        let row = Row::new(&what, flow, to_us(&packet), Verdict::Drop, [DropIcmp]);
        match &before {
            Some(entry) => row.with(entry),
            None => row,
        }
    };
    let about = |about: &[u8]| message(flow, (kind, code), about);
    let known = Some(entry(V4));
    let mode = |mode: sb_mode| Some(sb_flow_entry { mode: mode as u8, ..entry(V4) });
    let mut rows = vec![
        row("a flow without a node", about(&response), mode(SB_MODE_HELD)),
        row("a flow that the switch answers", about(&response), mode(SB_MODE_ANSWERED)),
    ];
    let others: &[(u8, u8)] = if v4 {
        &[(3, 0), (3, 1), (3, 3), (3, 5), (3, 13), (4, 0), (5, 0), (11, 0), (12, 0), (0, 0), (13, 0)]
    } else {
        &[(1, 0), (1, 4), (3, 0), (4, 0), (4, 1), (129, 0), (133, 0), (136, 0), (137, 0)]
    };
    for other in others {
        let what = format!("type {} code {}", other.0, other.1);
        rows.push(row(&what, message(flow, *other, &response[..header + 8]), known));
    }
    for len in 1..header + 8 {
        let cut = about(&response[..len]);
        rows.push(row(&format!("{len} bytes of a packet"), cut.clone(), known));
        let padded = [&cut, &response[len..header + 8]].concat();
        rows.push(row(&format!("{len} bytes of a packet, with padding"), padded, known));
    }
    let changed = |what: &str, at: usize, to: u8| {
        let mut inner = response.clone();
        inner[at] = to;
        row(&format!("about {what}"), about(&inner), known)
    };
    rows.extend(if v4 {
        [changed("UDP", 9, 17), changed("another version", 0, 0x65), changed("IP options", 0, 0x46)]
    } else {
        [changed("UDP", 6, 17), changed("another version", 0, 0x40), changed("a fragment", 6, 44)]
    });
    rows.extend([
        // About the client's packets, which the message does not concern.
        row("about the client's own packet", about(&Tcp::new(flow, 1, 2, flags::ACK).packet()), known),
    ]);
    rows
}

#[test]
fn path_mtu_messages_go_to_the_node_of_their_flow() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}
