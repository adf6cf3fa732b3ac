//! CLOSED packets, which report ended flows so that the switches' flow maps contain live flows only. A lost report does
//! no harm: the flow entry ages out.

use std::net::IpAddr;

use switchback_wire::message::FromNode;
use switchback_wire::packet::{bare, flags};
use switchback_wire::{Seq, address_from, sb_closed};

use crate::signer::Signer;

/// The CLOSED packets with their destinations: the switch that handed the flow over last, and those that listen, which
/// may have heard of the flow before or by a list. The inner packet only names the flow.
pub(crate) fn packets(
    signer: &Signer,
    report: &sb_closed,
    listening: &[IpAddr],
) -> impl Iterator<Item = (IpAddr, Vec<u8>)> {
    let last = address_from(report.owned.switch_address);
    let others = listening.iter().copied().filter(move |switch| *switch != last);
    let inner = bare(&report.flow, true, Seq(report.owned.next), Seq(0), flags::RST);
    let option = FromNode::Closed(report.owned.flow_state()).option();
    let switches = std::iter::once(last).chain(others).filter(|switch| signer.can_reach(*switch));
    switches.filter_map(move |switch| Some((switch, signer.packet(switch, &report.flow, option, &inner)?)))
}
