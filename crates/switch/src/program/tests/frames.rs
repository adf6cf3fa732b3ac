//! Frames of clients and nodes, and frames that the program is expected to send.

use std::net::{IpAddr, SocketAddr};

use switchback_wire::packet::{flags, fold, sum};
use switchback_wire::*;

/// Hardware address of the clients' router.
pub const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Hardware address of the switch.
pub const OURS: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const URG: u8 = 0x20;
pub const ECE: u8 = 0x40;
pub const CWR: u8 = 0x80;

/// Hop limit and IPv4 identification of clients' packets; both differ from the program's own.
const CLIENTS_TTL: u8 = 57;
const CLIENTS_ID: u16 = 0x1234;

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn flow(client: &str, vip: &str) -> sb_flow {
    let (client, vip): (SocketAddr, SocketAddr) = (client.parse().unwrap(), vip.parse().unwrap());
    sb_flow {
        client: address_bytes(client.ip()),
        vip: address_bytes(vip.ip()),
        client_port: client.port().to_be(),
        vip_port: vip.port().to_be(),
    }
}

/// One IPv4 and one IPv6 flow.
pub fn flows() -> [sb_flow; 2] {
    [flow("198.51.100.1:40000", "192.0.2.100:80"), flow("[2001:db8:1::1]:40000", "[2001:db8::100]:80")]
}

pub fn ethernet(dest: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&dest[..], &source, &kind, packet].concat()
}

/// A frame to the switch.
pub fn to_us(packet: &[u8]) -> Vec<u8> {
    ethernet(OURS, ROUTER, packet)
}

/// A frame from the switch back to the router.
pub fn from_us(packet: &[u8]) -> Vec<u8> {
    ethernet(ROUTER, OURS, packet)
}

/// The fields of an IP header that the tests vary.
#[derive(Clone, Copy)]
pub struct Ip {
    pub source: IpAddr,
    pub dest: IpAddr,
    pub ttl: u8,
    pub id: u16,
    /// Type of service, or traffic class.
    pub class: u8,
    /// IPv6 only.
    pub label: u32,
}

impl Ip {
    pub fn new(source: IpAddr, dest: IpAddr) -> Self {
        Ip { source, dest, ttl: CLIENTS_TTL, id: CLIENTS_ID, class: 0, label: 0 }
    }

    /// The header of the program's answers.
    pub fn answer(source: IpAddr, dest: IpAddr) -> Self {
        Ip { source, dest, ttl: SB_TTL as u8, id: 0, class: 0, label: 0 }
    }

    /// A packet with this payload. `checksum` is the offset of the payload's checksum, which is set; `protocol`
    /// determines whether it covers the pseudo-header.
    pub fn carry(&self, protocol: u8, payload: &[u8], checksum: Option<usize>) -> Vec<u8> {
        let mut out = match (self.source, self.dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                let (len, id) = ((20 + payload.len() as u16).to_be_bytes(), self.id.to_be_bytes());
                let fixed =
                    [0x45, self.class, len[0], len[1], id[0], id[1], 0x40, 0, self.ttl, protocol, 0, 0];
                let mut header = [&fixed[..], &source.octets(), &dest.octets()].concat();
                seal_ipv4(&mut header);
                header
            }
            _ => {
                let word = 6u32 << 28 | u32::from(self.class) << 20 | self.label;
                let len = (payload.len() as u16).to_be_bytes();
                let addresses = [address_bytes(self.source), address_bytes(self.dest)].concat();
                [&word.to_be_bytes()[..], &len, &[protocol, self.ttl], &addresses].concat()
            }
        };
        let start = out.len();
        out.extend_from_slice(payload);
        if let Some(at) = checksum {
            out[start + at..start + at + 2].fill(0);
            let check = transport_checksum(&out).to_be_bytes();
            out[start + at..start + at + 2].copy_from_slice(&check);
        }
        out
    }
}

/// Sets the IPv4 header checksum.
pub fn seal_ipv4(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let check = fold(sum(&packet[..20]));
    packet[10..12].copy_from_slice(&check.to_be_bytes());
}

/// Value to add to the payload's checksum; zero once it is set.
pub fn transport_checksum(packet: &[u8]) -> u16 {
    let (start, addresses, protocol) =
        if packet[0] >> 4 == 4 { (20, 12..20, packet[9]) } else { (40, 8..40, packet[6]) };
    let payload = &packet[start..];
    let pseudo = sum(&packet[addresses]) + u64::from(protocol) + payload.len() as u64;
    // ICMP for IPv4 has no pseudo-header (RFC 792).
    fold(sum(payload) + if protocol == 1 { 0 } else { pseudo })
}

/// A TCP packet of a flow.
#[derive(Clone)]
pub struct Tcp {
    pub ip: Ip,
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// A multiple of four bytes.
    pub options: Vec<u8>,
    pub data: Vec<u8>,
}

impl Tcp {
    /// A packet from the client.
    pub fn new(flow: &sb_flow, seq: u32, ack: u32, flags: u8) -> Self {
        let (client, vip) = (flow.client(), flow.vip());
        Tcp {
            ip: Ip::new(client.ip(), vip.ip()),
            ports: (client.port(), vip.port()),
            seq,
            ack,
            flags,
            window: 29200,
            urgent: 0,
            options: Vec::new(),
            data: Vec::new(),
        }
    }

    /// A packet from the VIP, as the program sends it.
    pub fn answer(flow: &sb_flow, seq: u32, ack: u32, flags: u8) -> Self {
        let mut tcp = Tcp::new(flow, seq, ack, flags);
        tcp.ip = Ip::answer(tcp.ip.dest, tcp.ip.source);
        tcp.ports = (tcp.ports.1, tcp.ports.0);
        tcp
    }

    /// A packet with data from the client.
    pub fn data(flow: &sb_flow, seq: u32, ack: u32, data: &[u8]) -> Self {
        let mut tcp = Tcp::new(flow, seq, ack, flags::ACK | flags::PSH);
        tcp.data = data.to_vec();
        tcp
    }

    /// Adds timestamps in the layout of common stacks.
    pub fn stamped(mut self, value: u32, echo: u32) -> Self {
        self.options = [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat();
        self
    }

    pub fn class(mut self, class: u8) -> Self {
        self.ip.class = class;
        self
    }

    /// The IP packet, with valid checksums.
    pub fn packet(&self) -> Vec<u8> {
        let words = 5 + self.options.len() as u8 / 4;
        let tcp = [
            &self.ports.0.to_be_bytes()[..],
            &self.ports.1.to_be_bytes(),
            &self.seq.to_be_bytes(),
            &self.ack.to_be_bytes(),
            &[words << 4, self.flags],
            &self.window.to_be_bytes(),
            &[0; 2],
            &self.urgent.to_be_bytes(),
            &self.options,
            &self.data,
        ];
        self.ip.carry(6, &tcp.concat(), Some(16))
    }

    /// The packet in a frame to the switch.
    pub fn frame(&self) -> Vec<u8> {
        to_us(&self.packet())
    }
}

/// Options of a SYN.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer {
    pub mss: Option<u16>,
    pub wscale: Option<u8>,
    pub sack: bool,
    /// TSval.
    pub stamp: Option<u32>,
    pub ecn: bool,
}

impl Offer {
    /// Options of most clients.
    pub const USUAL: Offer =
        Offer { mss: Some(1460), wscale: Some(7), sack: true, stamp: Some(0xa1b2_c3d4), ecn: false };

    pub fn syn(&self, flow: &sb_flow, isn: u32) -> Tcp {
        let ecn = if self.ecn { ECE | CWR } else { 0 };
        let mut tcp = Tcp::new(flow, isn, 0, flags::SYN | ecn);
        let options = &mut tcp.options;
        if let Some(mss) = self.mss {
            options.extend([2, 4, (mss >> 8) as u8, mss as u8]);
        }
        if self.sack {
            options.extend([4, 2]);
        }
        if let Some(stamp) = self.stamp {
            options.extend([8, 10]);
            options.extend(stamp.to_be_bytes());
            options.extend([0; 4]);
        }
        if let Some(wscale) = self.wscale {
            options.extend([1, 3, 3, wscale]);
        }
        while !options.len().is_multiple_of(4) {
            options.push(1);
        }
        tcp
    }

    /// The SYN-ACK to `syn` with our MSS and the given cookie and TSval.
    pub fn synack(&self, flow: &sb_flow, syn: &Tcp, our_mss: u16, cookie: u32, stamp: u32) -> Tcp {
        let ecn = if self.ecn { ECE } else { 0 };
        let mut tcp = Tcp::answer(flow, cookie, syn.seq.wrapping_add(1), flags::SYN | flags::ACK | ecn);
        tcp.ip.label = syn.ip.label;
        tcp.window = 64240;
        let sack: [u8; 2] = if self.sack { [4, 2] } else { [1, 1] };
        let options = &mut tcp.options;
        options.extend([2, 4, (our_mss >> 8) as u8, our_mss as u8]);
        if let Some(theirs) = self.stamp {
            options.extend(sack);
            options.extend([8, 10]);
            options.extend(stamp.to_be_bytes());
            options.extend(theirs.to_be_bytes());
            options.extend(if self.wscale.is_some() { [1, 3, 3, 7] } else { [1; 4] });
        } else {
            if self.sack {
                options.extend([4, 2, 1, 1]);
            }
            if self.wscale.is_some() {
                options.extend([1, 3, 3, 7]);
            }
        }
        tcp
    }

    /// The handshake's fields of a flow entry.
    pub fn settled(&self) -> sb_flow_entry {
        let (_, accepted) = self.accepted();
        let mut options = 0;
        for (bit, accepted) in [
            (SB_SYN_WSCALE, accepted.wscale.is_some()),
            (SB_SYN_SACK, accepted.sack),
            (SB_SYN_TSTAMP, accepted.stamp.is_some()),
            (SB_SYN_ECN, accepted.ecn),
        ] {
            options |= if accepted { bit as u8 } else { 0 };
        }
        sb_flow_entry {
            mss: accepted.mss.unwrap(),
            options,
            wscale: accepted.wscale.map_or(0, |theirs| theirs.min(14) << 4 | 7),
            ..Default::default()
        }
    }

    /// The options that are accepted: with timestamps all; without, one of eight combinations, whose number is
    /// returned.
    pub fn accepted(&self) -> (u32, Offer) {
        let offered = Offer { mss: Some(self.mss.unwrap_or(536).max(536)), ..*self };
        if self.stamp.is_some() {
            return (0, offered);
        }
        let combinations = [
            (7, 1460, true, Some(8)),
            (6, 1380, true, Some(8)),
            (5, 1220, true, Some(8)),
            (4, 1380, true, Some(7)),
            (3, 1380, true, None),
            (2, 1220, true, None),
            (1, 1220, false, None),
            (0, 536, false, None),
        ];
        let fits = |(_, mss, sack, wscale): &(u32, u16, bool, Option<u8>)| {
            Some(*mss) <= offered.mss && *sack <= self.sack && (wscale.is_none() || *wscale == self.wscale)
        };
        let (number, mss, sack, wscale) = combinations.into_iter().find(fits).unwrap();
        (number, Offer { mss: Some(mss), wscale, sack, stamp: None, ecn: false })
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True with probability 1/n.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
