//! Encoding and verification of handoff packets in user space. The programs do the same in `bpf/packet.h`.

use std::net::{IpAddr, Ipv6Addr};

use siphasher::sip::SipHasher24;

use crate::NodeAddress;
use crate::generated::*;
use crate::packet::{TcpView, fold, sum};
use crate::{address_bytes, bytes_of, read_from};

/// Bytes before the inner packet with IPv6 outer addresses.
pub const OVERHEAD_V6: usize = 40 + size_of::<sb_shim>();
/// Bytes before the inner packet with IPv4 outer addresses.
pub const OVERHEAD_V4: usize = 20 + size_of::<sb_shim>();

/// The two ends and the epoch of a handoff packet, to which a tag binds it besides its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The node.
    pub node: NodeAddress,
    /// The switch's address; unspecified between a node and a client.
    pub switch: IpAddr,
    /// The node's epoch; 0 if unknown.
    pub epoch: u64,
}

impl Peers {
    /// The peers of a packet between a node and a client.
    pub fn of_client(node: IpAddr) -> Self {
        Peers { node: node.into(), switch: Ipv6Addr::UNSPECIFIED.into(), epoch: 0 }
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The outer source address.
    pub source: IpAddr,
    /// The outer destination address.
    pub dest: IpAddr,
    /// The ends of the packet.
    pub peers: Peers,
}

impl Way {
    /// From the switch to the node.
    pub fn to_node(peers: Peers) -> Self {
        Way { source: peers.switch, dest: peers.node.machine, peers }
    }

    /// From the node to the switch.
    pub fn to_switch(peers: Peers) -> Self {
        Way { source: peers.node.machine, dest: peers.switch, peers }
    }
}

/// The SipHash-2-4 tag of an option, which binds it to node, switch, epoch, flow, and position in the flow.
pub fn tag(key: &sb_key, peers: &Peers, flow: &sb_flow, view: &TcpView, option: &sb_option) -> [u8; 8] {
    let mut input = sb_tag_input {
        node: address_bytes(peers.node.machine),
        switch_address: address_bytes(peers.switch),
        epoch: (peers.epoch ^ u64::from(peers.node.number) << 48).to_be(),
        flow: *flow,
        seq: view.seq.to_be(),
        ack: view.ack.to_be(),
        option: [0; SB_TAGGED_LEN as usize],
    };
    input.option.copy_from_slice(&bytes_of(option)[4..4 + SB_TAGGED_LEN as usize]);
    SipHasher24::new_with_keys(key.k0, key.k1).hash(bytes_of(&input)).to_le_bytes()
}

/// An otherwise empty option of the operation.
pub fn blank(op: sb_op) -> sb_option {
    sb_option {
        opt_class: (SB_OPTION_CLASS as u16).to_be(),
        type_: SB_OPTION_TYPE as u8,
        length: (size_of::<sb_option>() / 4 - 1) as u8,
        version: SB_VERSION_USUAL,
        op: op as u8,
        ..sb_option::default()
    }
}

/// Whether the option is ours, in a version that this program knows.
pub fn is_known(option: &sb_option) -> bool {
    let ours = blank(sb_op::SB_OP_HELLO);
    (option.opt_class, option.type_, option.length) == (ours.opt_class, ours.type_, ours.length)
        && option.version <= SB_VERSION
}

/// Appends the whole handoff packet to `out`: outer IP header, UDP, Geneve, option with its tag, inner packet.
pub fn encode(
    out: &mut Vec<u8>,
    key: &sb_key,
    way: &Way,
    flow: &sb_flow,
    mut option: sb_option,
    view: &TcpView,
    inner: &[u8],
) {
    option.tag = tag(key, &way.peers, flow, view, &option);
    let udp_len = (size_of::<sb_shim>() + view.end) as u16;
    let start = out.len();
    match (way.source, way.dest) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&(20 + udp_len).to_be_bytes());
            out.extend_from_slice(&[0, 0, 0x40, 0, SB_TTL as u8, 17, 0, 0]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&dest.octets());
            let check = fold(sum(&out[start..]));
            out[start + 10..start + 12].copy_from_slice(&check.to_be_bytes());
        }
        (source, dest) => {
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&udp_len.to_be_bytes());
            out.extend_from_slice(&[17, SB_TTL as u8]);
            out.extend_from_slice(&address_bytes(source));
            out.extend_from_slice(&address_bytes(dest));
        }
    }
    let shim = sb_shim {
        source: source_port(flow).to_be(),
        dest: (SB_GENEVE_PORT as u16).to_be(),
        len: udp_len.to_be(),
        check: 0,
        geneve: sb_geneve {
            ver_opt_len: (size_of::<sb_option>() / 4) as u8,
            flags: SB_GENEVE_CRITICAL as u8,
            protocol: if view.tcp == 20 { 0x0800u16 } else { 0x86dd }.to_be(),
            vni: (u32::from(way.peers.node.number) << 16 | low_byte(way.peers.epoch) << 8).to_be(),
        },
        option,
    };
    out.extend_from_slice(bytes_of(&shim));
    out.extend_from_slice(&inner[..view.end]);
}

/// The low byte of an epoch, which tells neighbouring epochs apart.
fn low_byte(epoch: u64) -> u32 {
    (epoch & 0xff) as u32
}

/// Adds a second candidate to the ADOPT packet that begins at `start` in `out`, encoded with the same key by the same
/// switch. Both nodes have number 0.
pub fn add_second(
    out: &mut Vec<u8>,
    start: usize,
    key: &sb_key,
    second: &Peers,
    (flow, view): (&sb_flow, &TcpView),
) {
    let v4 = out[start] >> 4 == 4;
    let outer = start + if v4 { 20 } else { 40 };
    let Some(mut shim) = read_from::<sb_shim>(&out[outer..]) else { return };
    let len = size_of::<sb_second>();
    shim.geneve.vni |= (low_byte(second.epoch) << 16).to_be();
    let second = sb_second {
        opt_class: shim.option.opt_class,
        type_: SB_SECOND_TYPE as u8,
        length: (len / 4 - 1) as u8,
        node: address_bytes(second.node.machine),
        tag: tag(key, second, flow, view, &shim.option),
    };
    let udp_len = u16::from_be(shim.len) + len as u16;
    shim.len = udp_len.to_be();
    shim.geneve.ver_opt_len += (len / 4) as u8;
    let end = outer + size_of::<sb_shim>();
    out[outer..end].copy_from_slice(bytes_of(&shim));
    out.splice(end..end, bytes_of(&second).iter().copied());
    if v4 {
        out[start + 2..start + 4].copy_from_slice(&(20 + udp_len).to_be_bytes());
        out[start + 10..start + 12].fill(0);
        let check = fold(sum(&out[start..start + 20]));
        out[start + 10..start + 12].copy_from_slice(&check.to_be_bytes());
    } else {
        out[start + 4..start + 6].copy_from_slice(&udp_len.to_be_bytes());
    }
}

/// The hash of a flow, as `sb_flow_hash()` in `bpf/packet.h` computes it. The high bits are the best.
pub fn flow_hash(flow: &sb_flow) -> u32 {
    bytes_of(flow).chunks_exact(4).fold(0u32, |hash, word| {
        let word = u32::from_ne_bytes(word.try_into().expect("chunks of four"));
        (hash ^ word).wrapping_mul(0x9e37_79b1)
    })
}

/// The outer UDP source port of a flow, as `sb_source_port()` in `bpf/packet.h` computes it.
pub fn source_port(flow: &sb_flow) -> u16 {
    0xc000 | (flow_hash(flow) >> 18) as u16
}
