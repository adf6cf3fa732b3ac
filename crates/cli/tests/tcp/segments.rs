//! Packets that a client sends, byte by byte, and what it reads in those that come.

use std::net::IpAddr;

use switchback_wire::packet::{fold, sum};
use switchback_wire::sb_flow;

/// What the client's SYN offers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syn {
    pub mss: Option<u16>,
    pub wscale: Option<u8>,
    pub sack: bool,
    pub timestamps: bool,
    pub ecn: bool,
}

impl Syn {
    /// What most stacks offer.
    pub const USUAL: Syn = Syn { mss: Some(1460), wscale: Some(7), sack: true, timestamps: true, ecn: false };
    /// The least that there is.
    pub const LITTLE: Syn = Syn { mss: Some(1400), wscale: None, sack: false, timestamps: false, ecn: false };
}

/// A packet to be sent.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub tos: u8,
    /// Whole words.
    pub options: Vec<u8>,
    pub data: Vec<u8>,
    /// IPv4 options, or an IPv6 extension header for hop-by-hop options.
    pub ip_options: bool,
}

impl Packet {
    /// The bytes behind the IP header.
    fn tcp(&self, flow: &sb_flow) -> Vec<u8> {
        let mut out = [flow.client().port().to_be_bytes(), flow.vip().port().to_be_bytes()].concat();
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend([(5 + self.options.len() as u8 / 4) << 4, self.flags]);
        out.extend(self.window.to_be_bytes());
        out.extend([0; 4]);
        out.extend(&self.options);
        out.extend(&self.data);
        let addresses = match (flow.client().ip(), flow.vip().ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
            _ => [flow.client, flow.vip].concat(),
        };
        let check = fold(sum(&addresses) + 6 + out.len() as u64 + sum(&out));
        out[16..18].copy_from_slice(&check.to_be_bytes());
        out
    }

    /// The whole packet, or its fragments: two, the first of which has `first` bytes.
    pub fn build(&self, flow: &sb_flow, first: Option<usize>) -> Vec<Vec<u8>> {
        let payload = self.tcp(flow);
        let Some(first) = first else { return vec![self.ip(flow, &payload, None)] };
        vec![
            self.ip(flow, &payload[..first], Some((0, true))),
            self.ip(flow, &payload[first..], Some((first, false))),
        ]
    }

    fn ip(&self, flow: &sb_flow, payload: &[u8], fragment: Option<(usize, bool)>) -> Vec<u8> {
        const TCP: u8 = 6;
        const FRAGMENT: u8 = 44;
        const HOP_BY_HOP: u8 = 0;
        let (offset, more) = fragment.unwrap_or((0, false));
        if let (IpAddr::V4(from), IpAddr::V4(to)) = (flow.client().ip(), flow.vip().ip()) {
            let words = if self.ip_options { 6 } else { 5 };
            let len = (words * 4 + payload.len()) as u16;
            let mut out = vec![0x40 | words as u8, self.tos];
            out.extend(len.to_be_bytes());
            out.extend([0x12, 0x34]);
            out.extend(((offset as u16 / 8) | if more { 0x2000 } else { 0 }).to_be_bytes());
            out.extend([64, TCP, 0, 0]);
            out.extend(from.octets());
            out.extend(to.octets());
            // "No operation", and the end of the list.
            out.extend(if self.ip_options { &[1, 1, 1, 0][..] } else { &[] });
            let check = fold(sum(&out));
            out[10..12].copy_from_slice(&check.to_be_bytes());
            out.extend(payload);
            return out;
        }
        let (header, extension) = match (self.ip_options, fragment) {
            (true, _) => (HOP_BY_HOP, vec![TCP, 0, 1, 4, 0, 0, 0, 0]),
            (_, Some(_)) => {
                let place = (offset as u16 | u16::from(more)).to_be_bytes();
                (FRAGMENT, [&[TCP, 0][..], &place, &[1, 2, 3, 4]].concat())
            }
            _ => (TCP, Vec::new()),
        };
        let mut out = vec![0x60 | self.tos >> 4, self.tos << 4, 0, 0];
        out.extend(((extension.len() + payload.len()) as u16).to_be_bytes());
        out.extend([header, 64]);
        out.extend(flow.client);
        out.extend(flow.vip);
        out.extend(extension);
        out.extend(payload);
        out
    }
}

/// A packet that has come.
#[derive(Clone, Debug)]
pub struct Segment {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub tos: u8,
    pub options: Vec<u8>,
    pub data: Vec<u8>,
}

impl Segment {
    pub fn has(&self, tcp_flags: u8) -> bool {
        self.flags & tcp_flags == tcp_flags
    }

    /// The content of an option.
    pub fn option(&self, kind: u8) -> Option<&[u8]> {
        let mut rest = &self.options[..];
        loop {
            match *rest {
                [] | [0, ..] => return None,
                [1, ref after @ ..] => rest = after,
                [found, len, ..] => {
                    let option = rest.get(2..usize::from(len))?;
                    if found == kind {
                        return Some(option);
                    }
                    rest = &rest[usize::from(len)..];
                }
                _ => return None,
            }
        }
    }

    /// What it says to have beyond its acknowledgment, or twice (RFC 2883).
    pub fn sack_blocks(&self) -> Vec<(u32, u32)> {
        let words = |block: &[u8]| {
            let word = |at: usize| u32::from_be_bytes(block[at..at + 4].try_into().expect("four bytes"));
            (word(0), word(4))
        };
        self.option(5).unwrap_or_default().chunks_exact(8).map(words).collect()
    }

    pub fn timestamps(&self) -> Option<(u32, u32)> {
        let option: [u8; 8] = self.option(8)?.try_into().ok()?;
        let (value, echo) = option.split_at(4);
        Some((u32::from_be_bytes(value.try_into().ok()?), u32::from_be_bytes(echo.try_into().ok()?)))
    }
}
