//! Frames and their parts, as the node sees them.

use switchback_wire::packet::{fold, segment, sum};
use switchback_wire::{address_bytes, sb_flow};

use super::bench::*;

pub const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const CLIENTS: [&str; 2] = ["198.51.100.1", "2001:db8:1::1"];

/// A client's connection, by IPv6 or IPv4.
pub fn flow(v6: bool, client_port: u16, vip_port: u16) -> sb_flow {
    let version = usize::from(v6);
    sb_flow {
        client: address_bytes(address(CLIENTS[version])),
        vip: address_bytes(address(VIPS[version])),
        client_port: client_port.to_be(),
        vip_port: vip_port.to_be(),
    }
}

pub fn ethernet(dest: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&dest[..], &source, &kind, packet].concat()
}

/// A frame with what the flow's server sends.
pub fn response(flow: &sb_flow, numbers: (u32, u32), tcp_flags: u8, stamped: bool, data: &[u8]) -> Vec<u8> {
    let timestamps = stamped.then_some((1000, 2000));
    ethernet(ROUTER, OURS, &segment(flow, false, numbers, tcp_flags, timestamps, data))
}

/// Whether the header checksum of an IPv4 packet is right.
pub fn is_sealed(packet: &[u8]) -> bool {
    fold(sum(&packet[..20])) == 0
}
