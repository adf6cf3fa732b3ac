//! Signing of handoff packets of this machine's nodes.

use std::net::IpAddr;
use std::time::Duration;

use switchback_runtime::monotonic_ns;
use switchback_wire::clock::NodeClock;
use switchback_wire::handoff::{self, Peers, Way};
use switchback_wire::packet::TcpView;
use switchback_wire::{NodeAddress, sb_flow, sb_key, sb_option};

/// Key, address and clock of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signer {
    pub(crate) key: sb_key,
    pub(crate) node: NodeAddress,
    pub(crate) clock: NodeClock,
}

impl Signer {
    /// The same for the node of this machine with another number.
    pub(crate) fn of(self, number: u16) -> Signer {
        Signer { node: NodeAddress { number, ..self.node }, ..self }
    }

    /// Addresses and epoch of a packet to a switch, sent now.
    pub(crate) fn peers(&self, switch: IpAddr) -> Peers {
        Peers { node: self.node, switch, epoch: self.clock.epoch(Duration::from_nanos(monotonic_ns())) }
    }

    /// The packet to a switch around a TCP packet; None if `inner` is not one.
    pub(crate) fn packet(
        &self,
        switch: IpAddr,
        flow: &sb_flow,
        option: sb_option,
        inner: &[u8],
    ) -> Option<Vec<u8>> {
        let (view, way) = (TcpView::parse(inner)?, Way::to_switch(self.peers(switch)));
        let mut out = Vec::with_capacity(handoff::OVERHEAD_V6 + inner.len());
        handoff::encode(&mut out, &self.key, &way, flow, option, &view, inner);
        Some(out)
    }

    /// Whether the switch has the node's IP version.
    pub(crate) fn can_reach(&self, switch: IpAddr) -> bool {
        switch.is_ipv4() == self.node.machine.is_ipv4() && !switch.is_unspecified()
    }
}
