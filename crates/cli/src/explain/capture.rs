//! Connections from a capture: whole packets of clients to a VIP, either as on the clients' side, or inside ADOPT and
//! FORWARD handoff packets, as they reach a node. The same packet may occur several times in a capture.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use pcap_parser::data::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PacketData, get_packetdata};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use switchback_switch::explain::{Connection, Explainer, HeldPacket};
use switchback_wire::message::{Reading, ToNode};
use switchback_wire::packet::flags;
use switchback_wire::{SB_GENEVE_PORT, address_bytes, handoff, read_from, sb_flow, sb_shim};

use super::explained::{Begins, Explained};
use super::request::vips;
use crate::failure::Failure;

/// Buffer for any packet, in bytes.
const BUFFER: usize = 1 << 20;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The connections of a capture so far.
struct Capture<'a> {
    explainer: &'a mut Explainer,
    connections: Vec<Explained>,
    latest: HashMap<sb_flow, usize>,
    /// Packets of any kind.
    packets: u64,
    /// Packets to a VIP that were captured only in part.
    cut: u64,
    /// Packets to a VIP that the switch drops: with IP options, or in fragments.
    dropped: u64,
}

/// The form of a captured IP packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packet {
    /// A client's packet.
    Plain,
    /// The content of a handoff packet; whether its data begins a request.
    Handoff(bool),
}

/// Explains all connections to a VIP; also returns a failure if the capture lacks some of their packets.
pub fn explain(explainer: &mut Explainer, file: &Path) -> Result<(Vec<Explained>, Option<Failure>), Failure> {
    let opened = File::open(file).map_err(|error| Failure::cannot_read(file, error))?;
    let mut capture = Capture {
        explainer,
        connections: Vec::new(),
        latest: HashMap::new(),
        packets: 0,
        cut: 0,
        dropped: 0,
    };
    let ended = capture.read(opened);
    if capture.connections.is_empty() && capture.cut == 0 {
        ended.map_err(|why| Failure::cannot_read(file, why))?;
        return Err(Failure::system(capture.nothing(file)));
    }
    for explained in &mut capture.connections {
        explained.missing = explained.connection.finish(capture.explainer);
    }
    let mut problems = Vec::new();
    if capture.cut > 0 {
        problems.push(format!(
            "not captured whole: {} of the packets to a VIP; capture again with tcpdump -s 0",
            capture.cut
        ));
    }
    if capture.dropped > 0 {
        let dropped = capture.dropped;
        eprintln!("left out: {dropped} of the packets to a VIP; the switch drops fragments and IP options");
    }
    problems.extend(ended.err());
    let failure = (!problems.is_empty())
        .then(|| Failure::system(format!("{}: {}", file.display(), problems.join("; "))));
    Ok((capture.connections, failure))
}

impl Capture<'_> {
    /// The reason why there is no connection to explain.
    fn nothing(&self, file: &Path) -> String {
        let (file, vips) = (file.display(), vips(self.explainer.cluster()));
        let hint = if self.dropped > 0 {
            "those that go there have IP options or are fragments, which the switch drops"
        } else {
            "capture at a client, or handoff packets at a node; on the switch, XDP takes packets first"
        };
        format!("{file}: none of its packets ({}) has a request to a VIP ({vips}): {hint}", self.packets)
    }

    fn read(&mut self, file: File) -> Result<(), String> {
        let mut reader = create_reader(BUFFER, file).map_err(|error| match error {
            PcapError::Eof => "it is empty".to_owned(),
            PcapError::ReadError => "it is no file, or the system refuses".to_owned(),
            _ => "it is neither pcap nor pcapng".to_owned(),
        })?;
        let mut links: Vec<Linktype> = Vec::new();
        loop {
            let offset = match reader.next() {
                Ok((offset, block)) => {
                    match block {
                        PcapBlockOwned::LegacyHeader(header) => links = vec![header.network],
                        PcapBlockOwned::Legacy(packet) => {
                            self.frame(links.first().copied(), packet.data, packet.origlen)?;
                        }
                        PcapBlockOwned::NG(Block::SectionHeader(_)) => links.clear(),
                        PcapBlockOwned::NG(Block::InterfaceDescription(link)) => links.push(link.linktype),
                        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                            let data = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
                            self.frame(links.get(packet.if_id as usize).copied(), data, packet.origlen)?;
                        }
                        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                            let data = packet.data.get(..packet.origlen as usize).unwrap_or(packet.data);
                            self.frame(links.first().copied(), data, packet.origlen)?;
                        }
                        PcapBlockOwned::NG(_) => {}
                    }
                    offset
                }
                Err(PcapError::Eof) => return Ok(()),
                Err(PcapError::Incomplete(_)) => {
                    reader.refill().map_err(|_| "the system refuses to read on".to_owned())?;
                    continue;
                }
                Err(PcapError::UnexpectedEof) => {
                    return Err(format!("it ends in the middle of packet {}", self.packets + 1));
                }
                Err(_) => return Err(format!("it is damaged behind packet {}", self.packets)),
            };
            reader.consume(offset);
        }
    }

    /// Reads a packet with its link header.
    fn frame(&mut self, link: Option<Linktype>, frame: &[u8], len: u32) -> Result<(), String> {
        self.packets += 1;
        let link = link.ok_or_else(|| format!("packet {} is of no interface", self.packets))?;
        let cut = frame.len() < len as usize;
        match get_packetdata(frame, link, frame.len()) {
            Some(PacketData::L2(frame)) => self.ip(ethernet(frame), Packet::Plain, cut),
            Some(PacketData::L3(ETHERTYPE_IPV4 | ETHERTYPE_IPV6, packet)) => {
                self.ip(Some(packet), Packet::Plain, cut);
            }
            Some(PacketData::Unsupported(_)) => {
                return Err(format!(
                    "packet {} has link type {}; Ethernet, Linux cooked and raw IP can be read",
                    self.packets, link.0
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads an IP packet, which may be cut off.
    fn ip(&mut self, packet: Option<&[u8]>, how: Packet, cut: bool) {
        let Some((packet, header)) = packet.and_then(|packet| Some((packet, Header::parse(packet)?))) else {
            return;
        };
        if header.protocol == UDP && how == Packet::Plain {
            self.handoff(packet, &header, cut);
            return;
        }
        let to_vip = |flow: &sb_flow| {
            self.explainer.cluster().services.iter().any(|service| service.listen.contains(&flow.vip()))
        };
        let Some(flow) = header.flow(packet).filter(to_vip) else { return };
        match HeldPacket::new(packet) {
            _ if header.protocol != TCP => {}
            _ if !header.plain => self.dropped += 1,
            Some(packet) => self.tcp(flow, &packet, how),
            None => self.cut += u64::from(cut),
        }
    }

    /// Reads a handoff packet to a node.
    fn handoff(&mut self, packet: &[u8], header: &Header, cut: bool) {
        let Some(shim) = packet.get(header.len..).and_then(read_from::<sb_shim>) else { return };
        if u16::from_be(shim.dest) != SB_GENEVE_PORT as u16 || !handoff::is_known(&shim.option) {
            return;
        }
        let begins = match ToNode::read(&shim.option) {
            Some(ToNode::Adopt { .. }) => true,
            Some(ToNode::Forward(reading)) => matches!(reading, Reading::Request { .. }),
            _ => return,
        };
        let inner = packet.get(header.len + size_of::<sb_shim>()..);
        self.ip(inner, Packet::Handoff(begins), cut);
    }

    fn tcp(&mut self, flow: sb_flow, packet: &HeldPacket, how: Packet) {
        let syn = packet.view.flags & flags::SYN != 0;
        let seq = packet.view.seq + u32::from(syn);
        let known = self.latest.get(&flow).copied();
        let again = known.is_some_and(|index| self.connections[index].connection.origin() == seq);
        let index = match (known, how) {
            (Some(index), _) if !syn || again => index,
            (None, Packet::Plain) if !syn && packet.view.is_empty() => return,
            (None, Packet::Handoff(false)) => return,
            _ => {
                let begins = match how {
                    Packet::Plain if syn => Begins::Syn,
                    Packet::Plain => Begins::Middle,
                    Packet::Handoff(_) => Begins::Handoff,
                };
                let connection = match begins {
                    Begins::Given | Begins::Syn => Connection::new(flow, seq),
                    Begins::Handoff | Begins::Middle => Connection::in_the_middle(flow, seq),
                };
                self.latest.insert(flow, self.connections.len());
                self.connections.push(Explained { connection, begins, missing: None });
                self.connections.len() - 1
            }
        };
        let connection = &mut self.connections[index].connection;
        if how == Packet::Handoff(true) {
            connection.begins_request(seq);
        }
        if !syn {
            connection.packet(self.explainer, packet);
        }
    }
}

/// The IP packet in an Ethernet frame, inside any VLAN tags (IEEE 802.1Q).
fn ethernet(frame: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    loop {
        let kind = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
        match kind {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return frame.get(at + 2..),
            0x8100 | 0x88a8 => at += 4,
            _ => return None,
        }
    }
}

/// The IP header.
struct Header {
    len: usize,
    protocol: u8,
    /// Whether it has no options and is no fragment. If not, `protocol` of an IPv6 packet is another one.
    plain: bool,
}

impl Header {
    fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let fragment = u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x3fff;
                let len = usize::from(packet[0] & 15) * 4;
                Some(Header { len, protocol: *packet.get(9)?, plain: len == 20 && fragment == 0 })
            }
            6 => Some(Header { len: 40, protocol: *packet.get(6)?, plain: true }),
            _ => None,
        }
    }

    /// The flow from client to VIP, if this is TCP.
    fn flow(&self, packet: &[u8]) -> Option<sb_flow> {
        let v6 = |at: usize| packet.get(at..)?.first_chunk().copied();
        let v4 = |at: usize| {
            let address: [u8; 4] = *packet.get(at..)?.first_chunk()?;
            Some(address_bytes(address.into()))
        };
        let (client, vip) = if packet[0] >> 4 == 4 { (v4(12)?, v4(16)?) } else { (v6(8)?, v6(24)?) };
        let port = |at: usize| Some(u16::from_ne_bytes(*packet.get(at..)?.first_chunk()?));
        Some(sb_flow { client, vip, client_port: port(self.len)?, vip_port: port(self.len + 2)? })
    }
}
