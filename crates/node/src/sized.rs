//! SIZED packets, which report the lengths of responses to a switch that is also a node and keeps short responses for
//! itself. A lost packet does no harm, because the switch asks again.

use std::net::{IpAddr, Ipv4Addr};

use switchback_wire::message::FromNode;
use switchback_wire::packet::{bare, flags};
use switchback_wire::{Seq, address_bytes, sb_flow, sb_sized};

use crate::facts::asker_of;
use crate::signer::Signer;

/// The SIZED packet with its destination. The inner packet has no meaning.
pub(crate) fn packet(signer: &Signer, sized: &sb_sized) -> Option<(IpAddr, Vec<u8>)> {
    let (switch, node) = asker_of(sized.by);
    let signer = signer.of(node);
    if !signer.can_reach(switch) {
        return None;
    }
    let nobody = address_bytes(Ipv4Addr::UNSPECIFIED.into());
    let flow = sb_flow { client: nobody, vip: nobody, ..Default::default() };
    let inner = bare(&flow, true, Seq(0), Seq(0), flags::ACK);
    let option = FromNode::Sized { path: u16::from_be(sized.path), bytes: sized.bytes }.option();
    Some((switch, signer.packet(switch, &flow, option, &inner)?))
}
