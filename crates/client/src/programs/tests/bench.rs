//! The programs with their own maps, and packets between this client, a service, and its nodes.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::Path;

use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{MapCore, MapFlags, ProgramInput, ProgramMut};
use nix::sched::{CloneFlags, unshare};
use switchback_config::{Client, ClientKey, ClusterKey};
use switchback_wire::packet::{TcpView, flags, fold, segment, sum};
use switchback_wire::{
    ClientCounter, SB_DIRECT_ASK, SB_WINDOW, Seq, address_bytes, bytes_of, client, keys, read_from,
    sb_direct_flow, sb_direct_node, sb_flow, sb_key, sb_op, sb_option,
};

use crate::programs::{Programs, open};
use crate::skeleton::types::__sk_buff;

pub const ETHERNET: usize = 14;
/// Client addresses, IPv4 and IPv6; the constants below have the same order.
pub const CLIENT: [&str; 2] = ["198.51.100.7", "2001:db8:1::7"];
/// The client's address behind a NAT.
pub const OUTSIDE: &str = "203.0.113.9";
pub const VIP: [&str; 2] = ["192.0.2.100", "2001:db8::100"];
pub const NODE: [&str; 2] = ["192.0.2.21", "2001:db8::21"];
pub const OTHER: [&str; 2] = ["192.0.2.22", "2001:db8::22"];
const CLUSTER: [[u8; 32]; 2] = [[7; 32], [8; 32]];

pub fn address(text: &str) -> IpAddr {
    text.parse().expect("an address of these tests")
}

/// Key of one of our addresses; `which` selects the cluster key.
pub fn key(of: [u8; 16], which: usize) -> sb_key {
    keys::client_key(&keys::client_master_key(&CLUSTER[which]), of)
}

/// Runs `work` on a thread in a new network namespace.
pub fn alone(work: impl FnOnce(&Bench) + Send) {
    let enter = || {
        unshare(CloneFlags::CLONE_NEWNET).expect("the right to make a network namespace");
        work(&Bench::new());
    };
    let ended = std::thread::scope(|scope| scope.spawn(enter).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes on unchanged.
    Next,
    Drop,
    Redirect,
}

pub struct Bench {
    programs: Programs<'static>,
}

impl Bench {
    fn new() -> Bench {
        // The programs live as long as the test.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let skeleton = open(storage).unwrap().load().unwrap();
        let bench = Bench { programs: Programs { skeleton, attached: Vec::new() } };
        bench.configure("");
        bench
    }

    /// Applies these lines of client.toml.
    pub fn configure(&self, lines: &str) {
        let of = |address: &str| {
            let keys = CLUSTER.map(|key| ClientKey::of(&ClusterKey::from_bytes(key), self::address(address)));
            (self::address(address), keys.to_vec())
        };
        let keys: BTreeMap<_, _> = [CLIENT[0], CLIENT[1], OUTSIDE].map(of).into();
        let services = format!("services = [\"{}:80\", \"[{}]:80\"]", VIP[0], VIP[1]);
        let text = format!("key_file = \"client.key\"\n{services}\n{lines}\n");
        let client = Client::parse(&text, Path::new("client.toml"), |_| Ok(keys)).unwrap();
        self.programs.configure(&client).unwrap();
    }

    pub fn ingress(&self, packet: &[u8]) -> (Verdict, Vec<u8>) {
        run(&self.programs.skeleton.progs.switchback_client_ingress, packet, 0)
    }

    pub fn egress(&self, packet: &[u8]) -> (Verdict, Vec<u8>) {
        run(&self.programs.skeleton.progs.switchback_client_egress, packet, 0)
    }

    /// Runs egress on a GSO packet of a type that the kernel does not know.
    pub fn egress_uncut(&self, packet: &[u8]) -> Verdict {
        run(&self.programs.skeleton.progs.switchback_client_egress, packet, 1).0
    }

    pub fn counter(&self, counter: ClientCounter) -> u64 {
        self.programs.counter(counter).unwrap()
    }

    pub fn flow(&self, flow: &sb_flow) -> Option<sb_direct_flow> {
        let map = &self.programs.skeleton.maps.flows;
        map.lookup(bytes_of(flow), MapFlags::ANY).unwrap().and_then(|value| read_from(&value))
    }

    pub fn put(&self, flow: &sb_flow, entry: &sb_direct_flow) {
        let map = &self.programs.skeleton.maps.flows;
        map.update(bytes_of(flow), bytes_of(entry), MapFlags::ANY).unwrap();
    }

    pub fn node(&self, node: &str) -> Option<sb_direct_node> {
        self.programs.nodes().unwrap().get(&address(node)).copied()
    }

    pub fn tunneled(&self) -> Vec<sb_flow> {
        self.programs.tunneled()
    }

    pub fn direct_flows(&self) -> usize {
        self.programs.direct_flows().unwrap()
    }
}

/// Runs a program once on a packet behind an Ethernet header; the result is the verdict and the packet afterwards.
fn run(program: &ProgramMut<'_>, packet: &[u8], gso_size: u32) -> (Verdict, Vec<u8>) {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &kind[..], packet].concat();
    let mut context = [0; size_of::<__sk_buff>()];
    let at = std::mem::offset_of!(__sk_buff, gso_size);
    context[at..at + 4].copy_from_slice(&gso_size.to_ne_bytes());
    let mut out = vec![0; 4096];
    let input = ProgramInput {
        context_in: Some(&mut context),
        data_in: Some(&frame),
        data_out: Some(&mut out),
        ..Default::default()
    };
    let output = program.test_run(input).expect("the program runs");
    let (len, number) = (output.data.map_or(0, |data| data.len()), output.return_value);
    let verdict = match number {
        u32::MAX => Verdict::Next,
        2 => Verdict::Drop,
        7 => Verdict::Redirect,
        _ => panic!("verdict {number} for {packet:02x?}"),
    };
    (verdict, out[ETHERNET..len].to_vec())
}

/// A connection of this client with its sequence numbers.
#[derive(Clone, Copy)]
pub struct ClientFlow {
    pub v6: usize,
    pub flow: sb_flow,
    /// The flow as the cluster sees it.
    pub outside: sb_flow,
    /// Sequence number of the request's first byte.
    pub seq: u32,
    pub ack: u32,
    /// Sequence number after the request.
    pub next: u32,
}

impl ClientFlow {
    pub fn new(v6: usize, port: u16) -> ClientFlow {
        let flow = sb_flow {
            client: address_bytes(address(CLIENT[v6])),
            vip: address_bytes(address(VIP[v6])),
            client_port: port.to_be(),
            vip_port: 80u16.to_be(),
        };
        ClientFlow { v6, flow, outside: flow, seq: 1000, ack: 5000, next: 1100 }
    }

    /// A connection whose node has introduced itself.
    pub fn introduced(bench: &Bench, v6: usize, port: u16) -> ClientFlow {
        let known = ClientFlow::new(v6, port);
        assert_eq!(bench.ingress(&known.introduction(NODE[v6])).0, Verdict::Drop);
        assert_eq!(bench.flow(&known.flow).expect("an entry").node, address_bytes(address(NODE[v6])));
        known
    }

    pub fn introduction(&self, node: &str) -> Vec<u8> {
        self.introduction_under(&key(self.outside.client, 0), node)
    }

    pub fn introduction_under(&self, key: &sb_key, node: &str) -> Vec<u8> {
        let (numbers, scales) = ((Seq(self.ack), Seq(self.seq)), (SB_WINDOW as u16, 7));
        let mut packet =
            client::introduction(key, address(node), &self.outside, numbers, Seq(self.next), scales);
        // As a NAT translates it.
        if self.v6 == 0 {
            packet[16..20].copy_from_slice(&self.flow.client[12..]);
            packet[22..24].copy_from_slice(&self.flow.client_port.to_ne_bytes());
        }
        packet
    }

    /// A packet of the client at offset `at` in the request, which acknowledges `acked` bytes of the response.
    pub fn out(&self, at: u32, acked: u32, tcp_flags: u8, data: &[u8]) -> Vec<u8> {
        let numbers = (Seq(self.seq) + at, Seq(self.ack) + acked);
        segment(&self.flow, true, numbers, tcp_flags, None, data)
    }

    /// A bare acknowledgment of `acked` bytes of the response.
    pub fn acknowledges(&self, acked: u32) -> Vec<u8> {
        self.out(self.next - self.seq, acked, flags::ACK, b"")
    }

    /// A packet with data of the response.
    pub fn response(&self, at: u32, tcp_flags: u8, data: &[u8]) -> Vec<u8> {
        segment(&self.flow, false, (Seq(self.ack.wrapping_add(at)), Seq(self.next)), tcp_flags, None, data)
    }

    /// The tunneled form of a packet to the node.
    pub fn direct(&self, inner: &[u8], more: u32) -> Vec<u8> {
        let (own, node) = (address(CLIENT[self.v6]), address(NODE[self.v6]));
        let option = client::option(sb_op::SB_OP_DIRECT, more & SB_DIRECT_ASK != 0, self.own());
        let mut out = Vec::new();
        let key = key(self.outside.client, 0);
        client::tunneled(&mut out, &key, (own, node, node), &self.outside, option, inner);
        out
    }

    /// A message from a node with this inner packet.
    pub fn message(&self, op: sb_op, node: &str, key: &sb_key, inner: &[u8]) -> Vec<u8> {
        self.message_with(client::option(op, false, self.own()), node, key, inner)
    }

    /// The client's address and port in its own network, by IPv4.
    fn own(&self) -> Option<SocketAddrV4> {
        match self.flow.client() {
            SocketAddr::V4(own) => Some(own),
            SocketAddr::V6(_) => None,
        }
    }

    /// A packet from a node with this option and inner packet.
    pub fn message_with(&self, option: sb_option, node: &str, key: &sb_key, inner: &[u8]) -> Vec<u8> {
        let (node, own) = (address(node), address(CLIENT[self.v6]));
        let mut out = Vec::new();
        client::tunneled(&mut out, key, (node, own, node), &self.outside, option, inner);
        out
    }

    /// HEARD or GONE, addressed to the port that the question came from.
    pub fn answer(&self, op: sb_op, node: &str) -> Vec<u8> {
        let question = segment(&self.outside, true, (Seq(self.next), Seq(self.ack)), flags::ACK, None, b"");
        let mut packet = self.message(op, node, &key(self.outside.client, 0), &question);
        let udp = if self.v6 == 0 { 20 } else { 40 };
        let ports: [u8; 4] = packet[udp..udp + 4].try_into().unwrap();
        packet[udp..udp + 2].copy_from_slice(&ports[2..]);
        packet[udp + 2..udp + 4].copy_from_slice(&ports[..2]);
        packet
    }
}

/// Whether the TCP checksum of a packet is right.
pub fn is_tcp_sealed(packet: &[u8]) -> bool {
    let Some(view) = TcpView::parse(packet) else { return false };
    let addresses = if view.tcp == 20 { 12..20 } else { 8..40 };
    fold(sum(&packet[addresses]) + 6 + (view.end - view.tcp) as u64 + sum(&packet[view.tcp..view.end])) == 0
}
