//! Telling switches how long responses were, where they want to know: a switch that is a node, too, keeps the short ones
//! for itself. Nothing depends on a message that is lost, because the switch asks again.

use std::net::{IpAddr, Ipv4Addr};

use switchback_wire::packet::{bare, flags};
use switchback_wire::{
    address_bytes, address_from, handoff, sb_flow, sb_op, sb_option, sb_session, sb_sized,
};

use crate::signer::Signer;

/// The whole SIZED packet and where it goes. The inner packet says nothing.
pub(crate) fn packet(signer: &Signer, sized: &sb_sized) -> Option<(IpAddr, Vec<u8>)> {
    let switch = address_from(sized.switch_address);
    if !signer.can_reach(switch) {
        return None;
    }
    let nobody = address_bytes(Ipv4Addr::UNSPECIFIED.into());
    let flow = sb_flow { client: nobody, vip: nobody, ..Default::default() };
    let inner = bare(&flow, true, 0, 0, flags::ACK);
    let option = sb_option {
        detail: sized.bytes.to_be(),
        session: sb_session { path: sized.path, ..Default::default() },
        ..handoff::blank(sb_op::SB_OP_SIZED)
    };
    Some((switch, signer.packet(switch, &flow, option, &inner)?))
}
