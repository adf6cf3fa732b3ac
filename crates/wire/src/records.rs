//! Packets of records from a node's agent to a switch: FACTS, FLOWS and SWITCHES. FACTS and FLOWS are numbered, and a switch
//! acknowledges them in its HELLOs. The layout is in `bpf/handoff.h`, at `struct sb_records`.

use std::hash::Hasher;
use std::net::Ipv4Addr;

use siphasher::sip::SipHasher24;

use crate::handoff::{Peers, Way};
use crate::packet::{TcpView, flags, segment};
use crate::{
    Plain, Seq, address_bytes, bytes_of, handoff, read_from, sb_fact, sb_flow, sb_key, sb_listed,
    sb_numbered, sb_op, sb_records, sb_switch_heard,
};

/// Bytes of records that fit into one packet on any link, whatever the headers.
const RECORDS_LEN: usize = 1080;

/// A kind of records.
pub trait Record: Plain {
    /// The operation of their packets.
    const OP: sb_op;
    /// The text before them in the message under a packet's tag.
    const NAME: &'static [u8];
    /// The most records in a packet.
    const MAX: usize = RECORDS_LEN / size_of::<Self>();
}

impl Record for sb_fact {
    const OP: sb_op = sb_op::SB_OP_FACTS;
    const NAME: &'static [u8] = b"facts";
}

impl Record for sb_listed {
    const OP: sb_op = sb_op::SB_OP_FLOWS;
    const NAME: &'static [u8] = b"flows";
}

impl Record for sb_switch_heard {
    const OP: sb_op = sb_op::SB_OP_SWITCHES;
    const NAME: &'static [u8] = b"switches";
}

/// The numbering of one packet; zeroes in SWITCHES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    /// A number drawn at the beginning of the sequence: of facts by the agent, of flows by the switch.
    pub epoch: u32,
    /// The packet's number, from 1 on.
    pub number: u32,
    /// Facts lost for lack of room since the node's programs were loaded.
    pub lost: u32,
}

/// A whole packet from a node to a switch, with up to [`Record::MAX`] records. None if the two addresses differ in IP
/// version.
pub fn encode<R: Record>(
    key: &sb_key,
    peers: Peers,
    option_flags: u8,
    numbered: Numbered,
    records: &[R],
) -> Option<Vec<u8>> {
    if peers.node.machine.is_ipv4() != peers.switch.is_ipv4() {
        return None;
    }
    let header = sb_records {
        tag: [0; 8],
        epoch: numbered.epoch.to_be(),
        number: numbered.number.to_be(),
        lost: numbered.lost.to_be(),
        reserved: 0,
    };
    let mut data = bytes_of(&header).to_vec();
    records.iter().for_each(|record| data.extend_from_slice(bytes_of(record)));
    let tag = tag::<R>(key, &data);
    data[..tag.len()].copy_from_slice(&tag);
    let nobody = address_bytes(Ipv4Addr::UNSPECIFIED.into());
    let flow = sb_flow { client: nobody, vip: nobody, ..Default::default() };
    let inner = segment(&flow, true, (Seq(0), Seq(0)), flags::ACK, None, &data);
    let view = TcpView::parse(&inner)?;
    let mut option =
        handoff::blank(R::OP).saying(&sb_numbered { epoch: header.epoch, number: header.number });
    option.flags = option_flags;
    let mut out = Vec::with_capacity(handoff::OVERHEAD_V6 + inner.len());
    handoff::encode(&mut out, key, &Way::to_switch(peers), &flow, option, &view, &inner);
    Some(out)
}

/// The records in the data of an inner packet, if the tag was made with one of the keys.
pub fn read<R: Record>(data: &[u8], keys: &[sb_key; 2]) -> Option<(Numbered, Vec<R>)> {
    let header: sb_records = read_from(data)?;
    if !keys.iter().any(|key| tag::<R>(key, data) == header.tag) {
        return None;
    }
    let numbered = Numbered {
        epoch: u32::from_be(header.epoch),
        number: u32::from_be(header.number),
        lost: u32::from_be(header.lost),
    };
    let records = data[size_of::<sb_records>()..].chunks_exact(size_of::<R>());
    Some((numbered, records.filter_map(read_from).collect()))
}

/// The tag of a packet. Options are tagged under the same key; the text keeps the messages apart.
fn tag<R: Record>(key: &sb_key, data: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_keys(key.k0, key.k1);
    hasher.write(R::NAME);
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

    fn fact() -> sb_fact {
        sb_fact { client_port: 40_000u16.to_be(), bytes: (1u64 << 40).to_be(), ..Default::default() }
    }

    fn sent<R: Record>(node: &str, switch: &str, record: R) -> Option<Vec<u8>> {
        let peers = Peers {
            node: node.parse::<std::net::IpAddr>().unwrap().into(),
            switch: switch.parse().unwrap(),
            epoch: 5,
        };
        encode(&KEY, peers, 1, NUMBERED, &vec![record; R::MAX])
    }

    fn assert_fits<R: Record>(node: &str, switch: &str, overhead: usize, record: R) {
        let packet = sent(node, switch, record).unwrap();
        assert!(packet.len() <= 1280, "{} bytes do not fit into IPv6's smallest MTU", packet.len());
        let shim: sb_shim = read_from(&packet[overhead - size_of::<sb_shim>()..]).unwrap();
        assert_eq!((shim.option.op, shim.option.flags), (R::OP as u8, 1));
        let inner = &packet[overhead..];
        let view = TcpView::parse(inner).unwrap();
        let (numbered, records) = read::<R>(&inner[view.data..view.end], &[OTHER, KEY]).unwrap();
        assert_eq!((numbered, records.len()), (NUMBERED, R::MAX));
        assert!(records.iter().all(|read| bytes_of(read) == bytes_of(&record)));
    }

    #[test]
    fn a_packet_reads_back_and_fits() {
        for (node, switch, overhead) in [
            ("192.0.2.21", "192.0.2.10", handoff::OVERHEAD_V4),
            ("2001:db8::21", "2001:db8::10", handoff::OVERHEAD_V6),
        ] {
            assert_fits(node, switch, overhead, fact());
            assert_fits(node, switch, overhead, sb_listed::default());
            assert_fits(node, switch, overhead, sb_switch_heard::default());
        }
    }

    #[test]
    fn what_somebody_else_has_written_is_not_read() {
        let packet = sent("192.0.2.21", "192.0.2.10", fact()).unwrap();
        let start = packet.len() - size_of::<sb_records>() - sb_fact::MAX * size_of::<sb_fact>();
        let data = &packet[start..];
        assert!(read::<sb_fact>(data, &[KEY, KEY]).is_some());
        assert!(read::<sb_fact>(data, &[OTHER, OTHER]).is_none());
        assert!(read::<sb_listed>(data, &[KEY, KEY]).is_none(), "records of another kind");
        for at in 0..data.len() {
            let mut forged = data.to_vec();
            forged[at] ^= 1;
            assert!(read::<sb_fact>(&forged, &[KEY, KEY]).is_none(), "byte {at}");
        }
        assert!((0..size_of::<sb_records>()).all(|len| read::<sb_fact>(&data[..len], &[KEY, KEY]).is_none()));
    }

    #[test]
    fn a_switch_of_the_other_ip_version_gets_none() {
        assert_eq!(sent("192.0.2.21", "2001:db8::10", fact()), None);
    }
}
