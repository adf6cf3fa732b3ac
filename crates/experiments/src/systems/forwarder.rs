//! An XDP program that sends each packet to a node without a look at its connection: what is left when a switch does
//! nothing, so that the rest of Switchback's cost is its own.
//!
//! It runs on a switch whose address all nodes have, too, and answers for nobody else. Clients ask that address; nodes
//! answer from it.

use std::net::Ipv4Addr;

use libbpf_sys::{
    BPF_ADD, BPF_ALU, BPF_ALU64, BPF_AND, BPF_B, BPF_EXIT, BPF_H, BPF_JA, BPF_JEQ, BPF_JGT, BPF_JMP,
    BPF_JMP32, BPF_JNE, BPF_K, BPF_LDX, BPF_MEM, BPF_MOV, BPF_ST, BPF_W, BPF_X, XDP_PASS, XDP_TX, bpf_insn,
};
use serde::Deserialize;
use switchback_lab::{Builder, Error, Host, Lab, Result, instruction};

use super::{Running, System};
use crate::cpu::CpuMeter;

/// Number of nodes: a client's port, even or odd, says which.
const NODES: usize = 2;
/// Nodes answer ARP requests for addresses of the interface only, and ask with such an address.
const QUIET: [(&str, &str); 2] = [("ipv4/conf/all/arp_ignore", "1"), ("ipv4/conf/all/arp_announce", "2")];

type Mac = [u8; 6];

/// A lab with a switch for Switchback, one for proxies and one for this program.
pub(in super::super) fn builder(nodes: usize) -> Builder {
    Lab::builder().switches(3).nodes(nodes)
}

/// Attaches the program, and gives the first nodes the switch's address.
pub(in super::super) fn start(lab: &Lab) -> Result<Running> {
    let system = System::Forwarder;
    let host = lab.switch(2);
    let ip = host.ipv4();
    for node in lab.nodes().take(NODES) {
        node.sysctl(&QUIET)?;
        node.run(["ip", "address", "add", &format!("{ip}/32"), "dev", "lo"])?.success()?;
    }
    let nodes = [mac(lab.node(0))?, mac(lab.node(1))?];
    host.attach_xdp(&program(ip, mac(host)?, nodes))?;
    Ok(Running { system, ip, meter: Some(CpuMeter::of_all(host, [])?) })
}

/// The hardware address of a host's `eth0`.
fn mac(host: &Host) -> Result<Mac> {
    #[derive(Deserialize)]
    struct Link {
        address: String,
    }
    let said = host.run(["ip", "-json", "link", "show", "dev", "eth0"])?.success()?;
    let links: Vec<Link> = serde_json::from_str(&said).unwrap_or_default();
    let bytes = links.first().map(|link| {
        link.address
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16))
            .collect::<std::result::Result<Vec<_>, _>>()
    });
    let unexpected =
        || Error::Invalid(format!("the address of eth0 of {} is not as expected: {said:?}", host.name()));
    bytes.and_then(|bytes| bytes.ok()?.try_into().ok()).ok_or_else(unexpected)
}

/// Sends IPv4 packets to `ip` to one of the nodes; passes all others to the kernel.
fn program(ip: Ipv4Addr, own: Mac, nodes: [Mac; NODES]) -> Vec<bpf_insn> {
    const DESTINATION_IP: i16 = 30;
    /// The less significant byte of the source port, behind an IPv4 header without options.
    const PORT: i16 = 35;
    let mut program = vec![
        // R2: start of the frame, R3: its end.
        instruction(BPF_LDX | BPF_MEM | BPF_W, (2, 1), 0, 0),
        instruction(BPF_LDX | BPF_MEM | BPF_W, (3, 1), 4, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_X, (4, 2), 0, 0),
        instruction(BPF_ALU64 | BPF_ADD | BPF_K, (4, 0), 0, i32::from(PORT) + 1),
        instruction(BPF_JMP | BPF_JGT | BPF_X, (4, 3), 0, 0),
        instruction(BPF_LDX | BPF_MEM | BPF_H, (4, 2), 12, 0),
        instruction(BPF_JMP32 | BPF_JNE | BPF_K, (4, 0), 0, i32::from(0x0800_u16.to_be())),
        instruction(BPF_LDX | BPF_MEM | BPF_W, (4, 2), DESTINATION_IP, 0),
        instruction(BPF_JMP32 | BPF_JNE | BPF_K, (4, 0), 0, i32::from_ne_bytes(ip.octets())),
        instruction(BPF_LDX | BPF_MEM | BPF_B, (4, 2), PORT, 0),
        instruction(BPF_ALU | BPF_AND | BPF_K, (4, 0), 0, 1),
        instruction(BPF_JMP32 | BPF_JEQ | BPF_K, (4, 0), 3, 0),
    ];
    program.extend(store(0, nodes[1]));
    program.push(instruction(BPF_JMP | BPF_JA, (0, 0), 2, 0));
    program.extend(store(0, nodes[0]));
    program.extend(store(6, own));
    program.push(instruction(BPF_ALU64 | BPF_MOV | BPF_K, (0, 0), 0, XDP_TX as i32));
    program.push(instruction(BPF_JMP | BPF_EXIT, (0, 0), 0, 0));
    let end = program.len();
    // Those that are to leave the program jump to its end.
    for at in [4, 6, 8] {
        program[at].off = (end - at - 1) as i16;
    }
    program.push(instruction(BPF_ALU64 | BPF_MOV | BPF_K, (0, 0), 0, XDP_PASS as i32));
    program.push(instruction(BPF_JMP | BPF_EXIT, (0, 0), 0, 0));
    program
}

/// Writes an address at an offset of the frame.
fn store(offset: i16, [a, b, c, d, e, f]: Mac) -> [bpf_insn; 2] {
    [
        instruction(BPF_ST | BPF_MEM | BPF_W, (2, 0), offset, i32::from_ne_bytes([a, b, c, d])),
        instruction(BPF_ST | BPF_MEM | BPF_H, (2, 0), offset + 4, i32::from(i16::from_ne_bytes([e, f]))),
    ]
}
