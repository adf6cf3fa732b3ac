//! FACTS packets: the outcome of responses, sent by a node's agent to the switch that forwarded the requests. The
//! layout is in `bpf/handoff.h`, at `struct sb_facts`.

use std::hash::Hasher;
use std::net::Ipv4Addr;
use std::time::Duration;

use siphasher::sip::SipHasher24;

use crate::handoff::{Peers, Way};
use crate::packet::{TcpView, flags, segment};
use crate::{
    Seq, address_bytes, bytes_of, handoff, read_from, sb_end, sb_fact, sb_facts, sb_flow, sb_key,
    sb_numbered, sb_op,
};

/// Facts that fit into one packet on any link, whatever the headers.
pub const FACTS_MAX: usize = 15;

/// The numbering of one agent's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// A number drawn by the agent when it started.
    pub epoch: u32,
    /// The packet's number, from 1 on.
    pub number: u32,
    /// Facts lost for lack of room since the node's programs were loaded.
    pub lost: u32,
}

/// A node's record of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The client's connection.
    pub flow: sb_flow,
    /// The sequence number of the connection's first byte.
    pub origin: Seq,
    /// The request's number among those that the node was given on the flow, as in `sb_flow_state.requests`.
    pub request: u16,
    /// The status code; None if the node has not seen a whole response head.
    pub status: Option<u16>,
    /// How the response ended.
    pub end: End,
    /// Bytes that the server sent, heads included.
    pub bytes: u64,
    /// Bytes before the body, interim responses included.
    pub head_bytes: u32,
    /// Time from the request's turn at the node to the first byte; None if there was none.
    pub first_byte: Option<Duration>,
    /// Time from the request's turn at the node to the last byte that it has seen.
    pub duration: Duration,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server sent all of it.
    Complete,
    /// The client closed or lost the connection.
    ByClient,
    /// The server closed the connection before the response was complete.
    ByServer,
    /// The end is unknown.
    Unknown,
}

impl Fact {
    /// The fact in its wire format.
    pub fn to_wire(&self) -> sb_fact {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let end = match self.end {
            End::Complete => sb_end::SB_END_COMPLETE,
            End::ByClient => sb_end::SB_END_CLIENT,
            End::ByServer => sb_end::SB_END_SERVER,
            End::Unknown => sb_end::SB_END_UNKNOWN,
        };
        let first_byte =
            self.first_byte.map_or(u32::MAX, |time| u32::try_from(micros(time)).unwrap_or(u32::MAX - 1));
        sb_fact {
            client: self.flow.client,
            vip: self.flow.vip,
            client_port: self.flow.client_port,
            vip_port: self.flow.vip_port,
            origin: self.origin.to_be(),
            request: self.request.to_be(),
            status: self.status.unwrap_or(0).to_be(),
            end: end as u8,
            reserved: [0; 3],
            head_bytes: self.head_bytes.to_be(),
            first_byte_us: first_byte.to_be(),
            duration_us: micros(self.duration).to_be(),
            bytes: self.bytes.to_be(),
        }
    }

    /// The fact in a wire record. An end that this version does not know becomes [`End::Unknown`].
    pub fn from_wire(fact: &sb_fact) -> Fact {
        let end = [
            (sb_end::SB_END_COMPLETE, End::Complete),
            (sb_end::SB_END_CLIENT, End::ByClient),
            (sb_end::SB_END_SERVER, End::ByServer),
        ];
        let end = end.into_iter().find(|(number, _)| *number as u8 == fact.end);
        let first_byte = u32::from_be(fact.first_byte_us);
        Fact {
            flow: sb_flow {
                client: fact.client,
                vip: fact.vip,
                client_port: fact.client_port,
                vip_port: fact.vip_port,
            },
            origin: Seq::from_be(fact.origin),
            request: u16::from_be(fact.request),
            status: Some(u16::from_be(fact.status)).filter(|status| *status != 0),
            end: end.map_or(End::Unknown, |(_, end)| end),
            bytes: u64::from_be(fact.bytes),
            head_bytes: u32::from_be(fact.head_bytes),
            first_byte: (first_byte != u32::MAX).then(|| Duration::from_micros(first_byte.into())),
            duration: Duration::from_micros(u64::from_be(fact.duration_us)),
        }
    }
}

/// A whole packet from a node to a switch, with up to [`FACTS_MAX`] facts. None if the two addresses differ in IP
/// version.
pub fn encode(key: &sb_key, peers: Peers, numbered: Numbered, facts: &[sb_fact]) -> Option<Vec<u8>> {
    if peers.node.is_ipv4() != peers.switch.is_ipv4() {
        return None;
    }
    let header = sb_facts {
        tag: [0; 8],
        epoch: numbered.epoch.to_be(),
        number: numbered.number.to_be(),
        lost: numbered.lost.to_be(),
        reserved: 0,
    };
    let mut data = bytes_of(&header).to_vec();
    facts.iter().for_each(|fact| data.extend_from_slice(bytes_of(fact)));
    let tag = tag(key, &data);
    data[..tag.len()].copy_from_slice(&tag);
    let nobody = address_bytes(Ipv4Addr::UNSPECIFIED.into());
    let flow = sb_flow { client: nobody, vip: nobody, ..Default::default() };
    let inner = segment(&flow, true, (Seq(0), Seq(0)), flags::ACK, None, &data);
    let view = TcpView::parse(&inner)?;
    let option = handoff::blank(sb_op::SB_OP_FACTS)
        .saying(&sb_numbered { epoch: header.epoch, number: header.number });
    let mut out = Vec::with_capacity(handoff::OVERHEAD_V6 + inner.len());
    handoff::encode(&mut out, key, &Way::to_switch(peers), &flow, option, &view, &inner);
    Some(out)
}

/// The facts in the data of an inner packet, if the tag was made with one of the keys.
pub fn read(data: &[u8], keys: &[sb_key; 2]) -> Option<(Numbered, Vec<sb_fact>)> {
    let header: sb_facts = read_from(data)?;
    if !keys.iter().any(|key| tag(key, data) == header.tag) {
        return None;
    }
    let numbered = Numbered {
        epoch: u32::from_be(header.epoch),
        number: u32::from_be(header.number),
        lost: u32::from_be(header.lost),
    };
    let facts = data[size_of::<sb_facts>()..].chunks_exact(size_of::<sb_fact>());
    Some((numbered, facts.filter_map(read_from).collect()))
}

/// The tag of a FACTS packet. Options are tagged under the same key; the prefix keeps the two apart.
fn tag(key: &sb_key, data: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_keys(key.k0, key.k1);
    hasher.write(b"facts");
    hasher.write(&data[size_of::<[u8; 8]>()..]);
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sb_shim;

    const KEY: sb_key = sb_key { k0: 1, k1: 2 };
    const OTHER: sb_key = sb_key { k0: 3, k1: 4 };
    const NUMBERED: Numbered = Numbered { epoch: 77, number: 3, lost: 9 };

    fn fact() -> Fact {
        Fact {
            flow: sb_flow {
                client: address_bytes("2001:db8::5".parse().unwrap()),
                vip: address_bytes("2001:db8::100".parse().unwrap()),
                client_port: 40_000u16.to_be(),
                vip_port: 80u16.to_be(),
            },
            origin: Seq(u32::MAX),
            request: 65_535,
            status: Some(206),
            end: End::ByClient,
            bytes: 1 << 40,
            head_bytes: 300,
            first_byte: Some(Duration::from_micros(4_400)),
            duration: Duration::from_secs(86_400),
        }
    }

    fn sent(node: &str, switch: &str) -> Option<Vec<u8>> {
        let facts = [fact().to_wire(); FACTS_MAX];
        let peers = Peers { node: node.parse().unwrap(), switch: switch.parse().unwrap(), epoch: 5 };
        encode(&KEY, peers, NUMBERED, &facts)
    }

    #[test]
    fn a_packet_reads_back_and_fits() {
        for (node, switch, overhead) in [
            ("192.0.2.21", "192.0.2.10", handoff::OVERHEAD_V4),
            ("2001:db8::21", "2001:db8::10", handoff::OVERHEAD_V6),
        ] {
            let packet = sent(node, switch).unwrap();
            assert!(packet.len() <= 1280, "{} bytes do not fit into IPv6's smallest MTU", packet.len());
            let shim: sb_shim = read_from(&packet[overhead - size_of::<sb_shim>()..]).unwrap();
            assert_eq!(shim.option.op, sb_op::SB_OP_FACTS as u8);
            let inner = &packet[overhead..];
            let view = TcpView::parse(inner).unwrap();
            let (numbered, facts) = read(&inner[view.data..view.end], &[OTHER, KEY]).unwrap();
            assert_eq!((numbered, facts.len()), (NUMBERED, FACTS_MAX));
            assert!(facts.iter().all(|read| Fact::from_wire(read) == fact()));
        }
    }

    #[test]
    fn what_somebody_else_has_written_is_not_read() {
        let packet = sent("192.0.2.21", "192.0.2.10").unwrap();
        let start = packet.len() - size_of::<sb_facts>() - FACTS_MAX * size_of::<sb_fact>();
        let data = &packet[start..];
        assert!(read(data, &[KEY, KEY]).is_some());
        assert!(read(data, &[OTHER, OTHER]).is_none());
        for at in 0..data.len() {
            let mut forged = data.to_vec();
            forged[at] ^= 1;
            assert!(read(&forged, &[KEY, KEY]).is_none(), "byte {at}");
        }
        assert!((0..size_of::<sb_facts>()).all(|len| read(&data[..len], &[KEY, KEY]).is_none()));
    }

    #[test]
    fn what_is_not_known_stays_so() {
        let fact = Fact { status: None, first_byte: None, end: End::Unknown, ..fact() };
        assert_eq!(Fact::from_wire(&fact.to_wire()), fact);
        let later = sb_fact { end: 200, ..fact.to_wire() };
        assert_eq!(Fact::from_wire(&later).end, End::Unknown);
    }

    #[test]
    fn a_switch_of_the_other_ip_version_gets_none() {
        assert_eq!(sent("192.0.2.21", "2001:db8::10"), None);
    }
}
