//! Flows, and frames about them as the node gets them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use switchback_http::framing::Framing;
use switchback_wire::flow_state::{FlowState, Handshake};
use switchback_wire::handoff::{Peers, Way};
use switchback_wire::packet::{TcpView, flags, fold, segment, sum};
use switchback_wire::session::Code;
use switchback_wire::{
    NodeAddress, SB_OPTION_CLASS, SB_QUEUE_WHOLE, SB_SECOND_TYPE, Seq, address_bytes, bytes_of, handoff,
    sb_flow, sb_flow_state, sb_handover, sb_op, sb_option, sb_owned, sb_ownership, sb_second, sb_session,
    sb_shim,
};

use super::bench::*;

pub const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const SWITCHES: [&str; 2] = ["192.0.2.11", "2001:db8::11"];
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
/// Pools with sessions: with the rewritten cookie LONGNAMESID, and with an inserted one.
pub const REWRITTEN: Code = *b"rew";
pub const INSERTED: Code = *b"ins";
/// Code of this node in both pools.
pub const OWN: Code = *b"own";
/// Time in which data would have been read, if at all.
const A_MOMENT: Duration = Duration::from_millis(20);
const CLIENTS: [&str; 2] = ["198.51.100.1", "2001:db8:1::1"];

/// Addresses of a switch and a node, with the epoch of the tests.
pub fn peers(switch: &str, node: &str) -> Peers {
    Peers { node: address(node).into(), switch: address(switch), epoch: EPOCH }
}

/// A client's connection, over IPv6 or IPv4.
pub fn flow(v6: bool, client_port: u16, vip_port: u16) -> sb_flow {
    let version = usize::from(v6);
    sb_flow {
        client: address_bytes(address(CLIENTS[version])),
        vip: address_bytes(address(VIPS[version])),
        client_port: client_port.to_be(),
        vip_port: vip_port.to_be(),
    }
}

/// Servers behind an interface, of each IP version.
const AWAY: [&str; 2] = ["198.51.100.80:8080", "[2001:db8:1::80]:8080"];

pub fn away_server(flow: &sb_flow) -> SocketAddr {
    AWAY[usize::from(flow.vip().is_ipv6())].parse().expect("an address")
}

/// The flow as a server at another address knows it.
pub fn of_server(flow: &sb_flow, server: SocketAddr) -> sb_flow {
    sb_flow { vip: address_bytes(server.ip()), vip_port: server.port().to_be(), ..*flow }
}

pub fn ethernet(dest: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&dest[..], &source, &kind, packet].concat()
}

/// An incoming frame.
pub fn to_us(packet: &[u8]) -> Vec<u8> {
    ethernet(OURS, ROUTER, packet)
}

/// A frame for the loopback interface, which has no address: other frames are for other machines.
pub fn inside(packet: &[u8]) -> Vec<u8> {
    ethernet([0; 6], ROUTER, packet)
}

pub const VIP4: [u8; 4] = [192, 0, 2, 100];
pub const OTHER: [u8; 4] = [192, 0, 2, 1];

/// A broadcast ARP packet: request (1) or another operation.
pub fn arp(op: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, op];
    [&[0xff; 6][..], &ROUTER, &[8, 6], &fixed, &ROUTER, &sender, &[0; 6], &target].concat()
}

/// A frame with data of the flow's server.
pub fn response(
    flow: &sb_flow,
    (seq, ack): (u32, u32),
    tcp_flags: u8,
    stamped: bool,
    data: &[u8],
) -> Vec<u8> {
    let timestamps = stamped.then_some((1000, 2000));
    ethernet(ROUTER, OURS, &segment(flow, false, (Seq(seq), Seq(ack)), tcp_flags, timestamps, data))
}

/// Sets the lengths and the IPv4 checksum.
pub fn repair(packet: &mut [u8]) {
    let len = packet.len();
    if packet[0] >> 4 == 6 && len >= 40 {
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    } else if len >= 20 {
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[10..12].fill(0);
        let check = fold(sum(&packet[..20]));
        packet[10..12].copy_from_slice(&check.to_be_bytes());
    }
}

/// Whether the TCP checksum of a packet is right.
pub fn is_tcp_sealed(packet: &[u8]) -> bool {
    let Some(view) = TcpView::parse(packet) else { return false };
    let addresses = if view.tcp == 20 { 12..20 } else { 8..40 };
    fold(sum(&packet[addresses]) + 6 + (view.end - view.tcp) as u64 + sum(&packet[view.tcp..view.end])) == 0
}

/// A router's "packet too big" about a packet of the flow's server, with `len` bytes of that packet after its IP
/// header. The checksum of the message is wrong.
pub fn too_long(flow: &sb_flow, seq: u32, len: usize) -> Vec<u8> {
    let about = segment(flow, false, (Seq(seq), Seq(0)), flags::ACK, None, &[b'x'; 100]);
    let mut packet = segment(flow, true, (Seq(0), Seq(0)), 0, None, &[]);
    let header = packet.len() - 20;
    packet.truncate(header);
    let (place, protocol, kind) = if header == 20 { (9, 1, [3, 4]) } else { (6, 58, [2, 0]) };
    packet[place] = protocol;
    packet.extend_from_slice(&[kind[0], kind[1], 0, 0, 0, 0, 5, 0]);
    packet.extend_from_slice(&about[..header + len]);
    repair(&mut packet);
    packet
}

/// A second option without type, node and tag.
pub fn second_option() -> sb_second {
    sb_second {
        opt_class: (SB_OPTION_CLASS as u16).to_be(),
        length: (size_of::<sb_second>() / 4 - 1) as u8,
        ..Default::default()
    }
}

/// Adds a second option to a handoff packet without one.
pub fn add_second(packet: &mut Vec<u8>, second: &sb_second) {
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    // The second option has the same clock.
    packet[header + 8 + 5] = packet[header + 8 + 6];
    packet[header + 8] = ((size_of::<sb_option>() + size_of::<sb_second>()) / 4) as u8;
    let at = header + size_of::<sb_shim>();
    packet.splice(at..at, bytes_of(second).iter().copied());
    let udp = (packet.len() - header) as u16;
    packet[header + 4..header + 6].copy_from_slice(&udp.to_be_bytes());
    repair(packet);
}

/// Length of the head at the start of the data.
pub fn head_len(data: &[u8]) -> usize {
    data.windows(4).position(|end| end == b"\r\n\r\n").map_or(data.len(), |at| at + 4)
}

/// Framing state between two messages.
pub fn idle() -> Framing {
    Framing::default().with_allowed(u64::MAX)
}

/// A flow with its next sequence numbers, and the server's socket.
pub struct KnownFlow {
    pub flow: sb_flow,
    pub seq: u32,
    pub ack: u32,
    pub socket: Option<TcpStream>,
}

impl KnownFlow {
    /// Checks that the server reads exactly this.
    pub fn reads(&mut self, expected: &[u8]) {
        let server = self.socket.as_mut().expect("an adopted flow");
        let mut read = vec![0; expected.len()];
        server.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket can have one");
        server.read_exact(&mut read).expect("what has been taken");
        assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(expected));
        server.set_read_timeout(Some(A_MOMENT)).expect("a socket can have one");
        assert!(server.read(&mut [0]).is_err(), "more than that");
    }

    /// Adopts the flow with its first request, which stays unread.
    pub fn adopt(&mut self, bench: &Bench) {
        let option = self.option(sb_op::SB_OP_ADOPT);
        self.socket = Some(bench.adopt(&self.hand_over(option, REQUEST), &self.flow));
        self.seq = self.seq.wrapping_add(REQUEST.len() as u32);
    }

    /// Adopts the flow for a pool with sessions of [`Bench::new`]; the request has no cookie.
    pub fn adopt_in_session(&mut self, bench: &Bench, pool: Code) {
        let option = self
            .option(sb_op::SB_OP_ADOPT)
            .with(|flow: &mut sb_flow_state| flow.session = sb_session::new(pool, None));
        self.socket = Some(bench.adopt(&self.hand_over(option, REQUEST), &self.flow));
        self.seq = self.seq.wrapping_add(REQUEST.len() as u32);
    }

    /// Lets the server read the request and answer it.
    pub fn answer(&mut self) {
        let socket = self.socket.as_mut().expect("an adopted flow");
        socket.read_exact(&mut [0; REQUEST.len()]).expect("the request");
        socket.write_all(RESPONSE).expect("there is room for the response");
        self.ack = self.ack.wrapping_add(RESPONSE.len() as u32);
    }

    /// The switch's option for the first request, which it has read completely. A release comes at the mark.
    pub fn option(&self, op: sb_op) -> sb_option {
        let len = if op == sb_op::SB_OP_RELEASE { 0 } else { REQUEST.len() };
        let handshake = Handshake { mss: 1400, ..Default::default() };
        let next = self.seq.wrapping_add(len as u32);
        let state = FlowState { handshake, requests: 1, ..FlowState::at(Seq(self.seq), Seq(next)) };
        let queue_share = if op == sb_op::SB_OP_ADOPT { SB_QUEUE_WHOLE as u8 } else { 0 };
        state.option(op).with(|said: &mut sb_handover| {
            said.boundary = (len as u16).to_be();
            said.queue_share = queue_share;
        })
    }

    /// The handoff packet with the client's next data, over IPv4.
    pub fn hand_over(&self, option: sb_option, data: &[u8]) -> Vec<u8> {
        let inner = segment(&self.flow, true, (Seq(self.seq), Seq(self.ack)), flags::ACK, None, data);
        self.hand_over_packet(option, &TcpView::parse(&inner).expect("a TCP packet"), &inner)
    }

    pub fn hand_over_packet(&self, option: sb_option, view: &TcpView, inner: &[u8]) -> Vec<u8> {
        self.hand_over_at(peers(SWITCHES[0], NODE[0]), option, view, inner)
    }

    /// The handoff packet to the node of the machine with this number.
    pub fn hand_over_to(&self, number: u16, option: sb_option, data: &[u8]) -> Vec<u8> {
        let inner = segment(&self.flow, true, (Seq(self.seq), Seq(self.ack)), flags::ACK, None, data);
        let peers = peers(SWITCHES[0], NODE[0]);
        let peers = Peers { node: NodeAddress { number, ..peers.node }, ..peers };
        self.hand_over_at(peers, option, &TcpView::parse(&inner).expect("a TCP packet"), &inner)
    }

    /// A handoff packet without data, between other addresses or in another epoch.
    pub fn hand_over_with_peers(&self, peers: Peers, option: sb_option) -> Vec<u8> {
        let inner = segment(&self.flow, true, (Seq(self.seq), Seq(self.ack)), flags::ACK, None, b"");
        self.hand_over_at(peers, option, &TcpView::parse(&inner).expect("a TCP packet"), &inner)
    }

    fn hand_over_at(&self, peers: Peers, option: sb_option, view: &TcpView, inner: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        handoff::encode(&mut out, &SIGN, &Way::to_node(peers), &self.flow, option, view, inner);
        out
    }

    /// The handoff packet from the local switch.
    pub fn hand_over_here(&self, option: sb_option, data: &[u8]) -> Vec<u8> {
        let inner =
            segment(&self.flow, true, (Seq(self.seq), Seq(self.ack)), flags::ACK, Some((66, 77)), data);
        let view = TcpView::parse(&inner).expect("a TCP packet");
        self.hand_over_at(peers(NODE[0], NODE[0]), option, &view, &inner)
    }

    /// The handoff packet with a second candidate.
    pub fn hand_over_with(&self, option: sb_option, data: &[u8], second: &str) -> Vec<u8> {
        let mut packet = self.hand_over(option, data);
        let inner = segment(&self.flow, true, (Seq(self.seq), Seq(self.ack)), flags::ACK, None, data);
        let view = TcpView::parse(&inner).expect("a TCP packet");
        let tag = handoff::tag(&SIGN, &peers(SWITCHES[0], second), &self.flow, &view, &option);
        let node = address_bytes(address(second));
        add_second(&mut packet, &sb_second { type_: SB_SECOND_TYPE as u8, node, tag, ..second_option() });
        packet
    }

    /// The node's entry of the flow after the response to the last request.
    pub fn owned(&self) -> sb_owned {
        sb_owned {
            origin: self.seq,
            next: self.seq,
            read: self.seq,
            passed: self.seq,
            read_us: now_us(),
            answered: self.ack,
            followed: self.ack,
            requests: 1,
            responses: 1,
            state: sb_ownership::SB_OWN_OPEN as u8,
            ..Default::default()
        }
    }
}
