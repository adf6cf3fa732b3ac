//! Telling switches which flows have ended, so that their flow maps hold live flows only. Nothing depends on
//! a report that is lost: a flow entry without a flow ages out.

use std::net::IpAddr;

use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::{address_from, handoff, sb_closed, sb_flow_entry, sb_key, sb_op};

/// The whole CLOSED packet from `node`, the address in this node's tags, and where it goes: to the switch that
/// handed the flow over last. The inner packet only names the flow.
pub(crate) fn packet(key: &sb_key, node: IpAddr, report: &sb_closed) -> Option<(IpAddr, Vec<u8>)> {
    let switch = address_from(report.owned.switch_address);
    if switch.is_ipv4() != node.is_ipv4() || switch.is_unspecified() {
        return None;
    }
    let inner = bare(&report.flow, true, report.owned.next, 0, flags::RST);
    let view = TcpView::parse(&inner)?;
    let entry = sb_flow_entry {
        origin: report.owned.origin,
        next: report.owned.next,
        mss: report.owned.mss,
        options: report.owned.options,
        wscale: report.owned.wscale,
        ..sb_flow_entry::default()
    };
    let option = handoff::option(sb_op::SB_OP_CLOSED, &entry);
    let mut out = Vec::with_capacity(handoff::OVERHEAD_V6 + inner.len());
    handoff::encode(&mut out, key, (node, switch, node), &report.flow, option, &view, &inner);
    Some((switch, out))
}
