//! CLOSED packets, which report ended flows so that the switches' flow maps contain live flows only. A lost report does
//! no harm: the flow entry ages out.

use std::net::IpAddr;

use switchback_wire::message::FromNode;
use switchback_wire::packet::{bare, flags};
use switchback_wire::{Seq, address_from, sb_closed};

use crate::signer::Signer;

/// The CLOSED packet with its destination, the switch that handed the flow over last. The inner packet only names the
/// flow.
pub(crate) fn packet(signer: &Signer, report: &sb_closed) -> Option<(IpAddr, Vec<u8>)> {
    let switch = address_from(report.owned.switch_address);
    if !signer.can_reach(switch) {
        return None;
    }
    let inner = bare(&report.flow, true, Seq(report.owned.next), Seq(0), flags::RST);
    let option = FromNode::Closed(report.owned.flow_state()).option();
    Some((switch, signer.packet(switch, &report.flow, option, &inner)?))
}
