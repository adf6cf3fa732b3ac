//! CLOSED packets, which report ended flows so that the switches' flow maps contain live flows only. A lost report does
//! no harm: the flow entry ages out.

use std::net::IpAddr;

use switchback_wire::packet::{bare, flags};
use switchback_wire::{address_from, handoff, sb_closed, sb_flow_entry, sb_op};

use crate::signer::Signer;

/// The CLOSED packet with its destination, the switch that handed the flow over last. The inner packet only names the
/// flow.
pub(crate) fn packet(signer: &Signer, report: &sb_closed) -> Option<(IpAddr, Vec<u8>)> {
    let switch = address_from(report.owned.switch_address);
    if !signer.can_reach(switch) {
        return None;
    }
    let inner = bare(&report.flow, true, report.owned.next, 0, flags::RST);
    let entry = sb_flow_entry {
        origin: report.owned.origin,
        next: report.owned.next,
        mss: report.owned.mss,
        options: report.owned.options,
        wscale: report.owned.wscale,
        ..sb_flow_entry::default()
    };
    let option = handoff::option(sb_op::SB_OP_CLOSED, &entry);
    Some((switch, signer.packet(switch, &report.flow, option, &inner)?))
}
