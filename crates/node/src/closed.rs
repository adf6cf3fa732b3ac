//! Telling switches which flows have ended, so that their flow maps hold live flows only. Nothing depends on
//! a report that is lost: a flow entry without a flow ages out.

use std::io::IoSlice;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, SockaddrStorage, sendmmsg,
    socket,
};
use switchback_runtime::{Doing, Error, Result};
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::{address_from, handoff, sb_closed, sb_flow_entry, sb_key, sb_op};

/// Packets in one system call.
const BATCH: usize = 64;

/// Sends CLOSED packets.
pub(crate) struct Sender {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl Sender {
    pub(crate) fn open() -> Result<Sender> {
        let v4 = raw_socket(AddressFamily::Inet)
            .doing(|| "open a raw socket for handoff packets")
            .map_err(|error| error.remedy("CAP_NET_RAW is needed: run as root"))?;
        // A machine may have been booted without IPv6.
        Ok(Sender { v4, v6: raw_socket(AddressFamily::Inet6).ok() })
    }

    /// Sends a packet for each flow from `node`, the address in this node's tags, to the switch that handed
    /// the flow over last.
    pub(crate) fn send(&self, key: &sb_key, node: IpAddr, reports: &[sb_closed]) -> Result<()> {
        let packets: Vec<(IpAddr, Vec<u8>)> =
            reports.iter().filter_map(|report| packet(key, node, report)).collect();
        let Some(raw) = (if node.is_ipv4() { Some(&self.v4) } else { self.v6.as_ref() }) else {
            return Err(Error::new("this machine has no IPv6, but the node's address is one"));
        };
        for batch in packets.chunks(BATCH) {
            let slices: Vec<[IoSlice<'_>; 1]> =
                batch.iter().map(|(_, packet)| [IoSlice::new(packet)]).collect();
            let to: Vec<Option<SockaddrStorage>> =
                batch.iter().map(|(switch, _)| Some(std::net::SocketAddr::new(*switch, 0).into())).collect();
            let mut headers = MultiHeaders::preallocate(batch.len(), None);
            // A switch that cannot be reached does without.
            let _ = sendmmsg(raw.as_raw_fd(), &mut headers, &slices, &to, [], MsgFlags::MSG_DONTWAIT);
        }
        Ok(())
    }
}

/// The whole CLOSED packet and where it goes. The inner packet only names the flow.
fn packet(key: &sb_key, node: IpAddr, report: &sb_closed) -> Option<(IpAddr, Vec<u8>)> {
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

/// A socket to which whole IP packets are written: what IPPROTO_RAW means in raw(7).
fn raw_socket(family: AddressFamily) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(family, SockType::Raw, flags, SockProtocol::Raw)
}
