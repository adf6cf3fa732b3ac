//! Making and checking handoff packets in user space. The programs do the same in `bpf/packet.h`.

use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use crate::generated::*;
use crate::packet::{TcpView, fold, sum};
use crate::{address_bytes, bytes_of, read_from};

/// Everything in front of the inner packet when both outer addresses are IPv6.
pub const OVERHEAD_V6: usize = 40 + size_of::<sb_shim>();
/// Likewise with IPv4.
pub const OVERHEAD_V4: usize = 20 + size_of::<sb_shim>();

/// The SipHash-2-4 tag of an option: binds it to the node, the flow, and the position in it.
pub fn tag(key: &sb_key, node: [u8; 16], flow: &sb_flow, view: &TcpView, option: &sb_option) -> [u8; 8] {
    let mut input = sb_tag_input {
        node,
        flow: *flow,
        seq: view.seq.to_be(),
        ack: view.ack.to_be(),
        option: [0; SB_TAGGED_LEN as usize],
    };
    input.option.copy_from_slice(&bytes_of(option)[4..4 + SB_TAGGED_LEN as usize]);
    SipHasher24::new_with_keys(key.k0, key.k1).hash(bytes_of(&input)).to_le_bytes()
}

/// An option of the operation with what is known of the flow; the tag is empty.
pub fn option(op: sb_op, entry: &sb_flow_entry) -> sb_option {
    let body = if u32::from(entry.framing.state) == SB_FRAMING_NONE { 0 } else { SB_FLAG_BODY as u8 };
    sb_option {
        opt_class: (SB_OPTION_CLASS as u16).to_be(),
        type_: SB_OPTION_TYPE as u8,
        length: (size_of::<sb_option>() / 4 - 1) as u8,
        op: op as u8,
        flags: entry.options | body,
        reason: 0,
        wscale: entry.wscale,
        origin: entry.origin.to_be(),
        mss: entry.mss.to_be(),
        requests: entry.requests.to_be(),
        next: entry.next.to_be(),
        detail: entry.heads.to_be(),
        session: entry.session,
        tag: [0; 8],
    }
}

/// Appends to `out` the whole handoff packet from its outer IP header on: outer header, UDP, Geneve, option with its
/// tag, inner packet. `node` is the node's address, whichever side sends.
pub fn encode(
    out: &mut Vec<u8>,
    key: &sb_key,
    (source, dest, node): (IpAddr, IpAddr, IpAddr),
    flow: &sb_flow,
    mut option: sb_option,
    view: &TcpView,
    inner: &[u8],
) {
    option.tag = tag(key, address_bytes(node), flow, view, &option);
    let udp_len = (size_of::<sb_shim>() + view.end) as u16;
    let start = out.len();
    match (source, dest) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            out.extend_from_slice(&[0x45, 0]);
            out.extend_from_slice(&(20 + udp_len).to_be_bytes());
            out.extend_from_slice(&[0, 0, 0x40, 0, SB_TTL as u8, 17, 0, 0]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&dest.octets());
            let check = fold(sum(&out[start..]));
            out[start + 10..start + 12].copy_from_slice(&check.to_be_bytes());
        }
        _ => {
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
            vni: 0,
        },
        option,
    };
    out.extend_from_slice(bytes_of(&shim));
    out.extend_from_slice(&inner[..view.end]);
}

/// Adds a second candidate to the ADOPT packet that begins at `start` in `out` and was encoded with the same key.
pub fn add_second(
    out: &mut Vec<u8>,
    start: usize,
    key: &sb_key,
    node: IpAddr,
    (flow, view): (&sb_flow, &TcpView),
) {
    let v4 = out[start] >> 4 == 4;
    let outer = start + if v4 { 20 } else { 40 };
    let Some(mut shim) = read_from::<sb_shim>(&out[outer..]) else { return };
    let len = size_of::<sb_second>();
    let second = sb_second {
        opt_class: shim.option.opt_class,
        type_: SB_SECOND_TYPE as u8,
        length: (len / 4 - 1) as u8,
        node: address_bytes(node),
        tag: tag(key, address_bytes(node), flow, view, &shim.option),
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

/// Outer UDP source port of a flow; `sb_source_port()` in `bpf/packet.h` is the same.
pub fn source_port(flow: &sb_flow) -> u16 {
    let hash = bytes_of(flow).chunks_exact(4).fold(0u32, |hash, word| {
        let word = u32::from_ne_bytes(word.try_into().expect("chunks of four"));
        (hash ^ word).wrapping_mul(0x9e37_79b1)
    });
    0xc000 | (hash >> 18) as u16
}
