//! Packets between nodes and the clients that know them, made in user space for tests and as a reference. The programs
//! make the same packets in `bpf/direct.h`.

use std::net::{IpAddr, SocketAddrV4};

use siphasher::sip::SipHasher24;

use crate::generated::*;
use crate::handoff::{Peers, Way, blank, encode};
use crate::packet::{TcpView, build, flags, seal};
use crate::{Seq, address_bytes, bytes_of};

/// The SipHash-2-4 tag of an introduction, which binds it to the node, the flow and its position in the flow.
pub fn introduction_tag(key: &sb_key, input: &sb_introduction_input) -> [u8; 8] {
    SipHasher24::new_with_keys(key.k0, key.k1).hash(bytes_of(input)).to_le_bytes()
}

/// An introduction: the packet by which a node makes itself known to the client of `flow`, a flow as the cluster sees
/// it. `numbers` are sequence and acknowledgment number; the client may send the node data up to `next`; the window is
/// scaled, as in the header, and comes with the client's own scale.
pub fn introduction(
    key: &sb_key,
    node: IpAddr,
    flow: &sb_flow,
    (seq, ack): (Seq, Seq),
    next: Seq,
    (window, wscale): (u16, u8),
) -> Vec<u8> {
    let input = sb_introduction_input {
        node: address_bytes(node),
        flow: *flow,
        seq: seq.to_be(),
        ack: ack.to_be(),
        next: next.to_be(),
        wscale,
        reserved: [0; 3],
    };
    let v4 = flow.client().is_ipv4();
    let space = size_of::<sb_introduction>();
    let address: [u8; 4] = flow.client[12..].try_into().expect("4 of 16 bytes");
    let option = sb_introduction {
        kind: SB_TCPOPT_EXPERIMENT as u8,
        length: space as u8,
        id: (SB_INTRODUCTION_ID as u16).to_be(),
        node: input.node,
        next: input.next,
        tag: introduction_tag(key, &input),
        client: if v4 { u32::from_ne_bytes(address) } else { 0 },
        client_port: if v4 { flow.client_port } else { 0 },
        wscale,
        reserved: 0,
    };
    let mut packet = build(flow, false, (seq, ack), flags::ACK, bytes_of(&option), &[]);
    let tcp = packet.len() - 20 - space;
    packet[tcp + 14..tcp + 16].copy_from_slice(&window.to_be_bytes());
    seal(&mut packet, tcp);
    packet
}

/// An option between node and client, without a tag. `own` is the client's address and port in its own network, of a
/// flow by IPv4; a TUNNELED has none.
pub fn option(op: sb_op, asks: bool, own: Option<SocketAddrV4>) -> sb_option {
    let said = own.map_or(sb_direct::default(), |own| sb_direct {
        client: u32::from_ne_bytes(own.ip().octets()),
        client_port: own.port().to_be(),
        reserved: [0; 2],
    });
    sb_option { flags: if asks { SB_DIRECT_ASK as u8 } else { 0 }, ..blank(op).saying(&said) }
}

/// Appends a packet of a client's tunnel, from its outer IP header on: the inner packet behind an option whose tag does
/// not cover sequence numbers. One of `source` and `dest` is the node.
pub fn tunneled(
    out: &mut Vec<u8>,
    key: &sb_key,
    (source, dest, node): (IpAddr, IpAddr, IpAddr),
    flow: &sb_flow,
    option: sb_option,
    inner: &[u8],
) {
    let view = TcpView::parse(inner).expect("the caller has made the packet");
    let way = Way { source, dest, peers: Peers::of_client(node) };
    encode(out, key, &way, flow, option, &TcpView { seq: Seq(0), ack: Seq(0), ..view }, inner);
}
