//! Next hops: routes to the nodes, and how XDP can send there.

use std::net::IpAddr;
use std::time::Duration;

use switchback_runtime::{Doing, Result};
use switchback_wire::{NodeAddress, SB_GENEVE_PORT, address_bytes, address_from, sb_node};

use super::{Driver, IMPATIENT_TICK, TICK};
use crate::nexthop::{self, Macs, Route};
use crate::plan::NodeId;

/// Number of machines whose routes are looked up before packets have their turn again.
const RESOLVED_AT_ONCE: usize = 64;

impl Driver<'_> {
    fn tick_length(&self) -> Duration {
        let here = self.here_at();
        let unresolved = self.cluster.nodes.iter().filter(|node| Some(node.address) != here).any(|node| {
            let route = self.routes.get(&node.address);
            route.is_none_or(|route| route.macs.is_none())
        });
        if unresolved && self.now() < TICK * 2 { IMPATIENT_TICK } else { TICK }
    }

    /// Looks how XDP can send on each interface, and tells the program.
    fn look_at_interfaces(&mut self) -> Result<()> {
        for attached in &self.program.attached {
            // An interface that is gone sends nothing.
            let ways = attached.ways().unwrap_or_default();
            if self.ways.insert(attached.ifindex, ways) != Some(ways) {
                self.program.set_interface(attached.ifindex, attached.mac, ways)?;
            }
        }
        Ok(())
    }

    /// Looks up the routes to all nodes and updates program and dispatcher.
    pub(super) fn resolve(&mut self) -> Result<()> {
        self.begin_resolving()?;
        while !self.unresolved.is_empty() {
            self.resolve_some()?;
        }
        Ok(())
    }

    pub(super) fn begin_resolving(&mut self) -> Result<()> {
        self.look_at_interfaces()?;
        let here = self.here_at();
        let mut local = Vec::new();
        self.unresolved.clear();
        for (address, id) in self.ids.all() {
            if Some(address.machine) == here {
                local.push((*id, *address));
            } else {
                self.unresolved.entry(address.machine).or_default().push((*id, *address));
            }
        }
        local.into_iter().try_for_each(|(id, address)| self.set_here(id, address))
    }

    /// Looks up the routes to some of the machines that are left.
    pub(super) fn resolve_some(&mut self) -> Result<()> {
        let mut macs = Macs::new();
        for _ in 0..RESOLVED_AT_ONCE {
            let Some((machine, nodes)) = self.unresolved.pop_first() else { break };
            let route = nexthop::route(&mut self.netlink, &mut macs, machine);
            let route = route.doing(|| format!("ask for the route to {machine}"))?;
            // Keeps the kernel's neighbour entry fresh, because packets forwarded by XDP do not use it.
            if let Some(socket) = self.nudge_sockets.get(&machine.is_ipv6()) {
                let _ = socket.send_to(&[], (machine, SB_GENEVE_PORT as u16));
            }
            match route {
                Some(route) => self.routes.insert(machine, route),
                None => self.routes.remove(&machine),
            };
            for (id, address) in nodes {
                self.set_route((id, address), route)?;
            }
        }
        if self.unresolved.is_empty() {
            self.tick = self.tick_length();
        }
        Ok(())
    }

    /// Writes the entry of a node with this route.
    fn set_route(&mut self, (id, address): (NodeId, NodeAddress), route: Option<Route>) -> Result<()> {
        let mut node = sb_node { address: address.to_wire(), ..Default::default() };
        if let Some(route) = route {
            node.source = address_bytes(route.source);
            if let (Some((theirs, ours)), Some(ways)) = (route.macs, self.ways.get(&route.ifindex)) {
                (node.ifindex, node.ways) = (route.ifindex, ways.0);
                (node.next_hop, node.our_mac) = (theirs, ours);
            }
        }
        node.dead = self.written_nodes.get(&id).map_or(0, |known| known.dead);
        node.clock = self.clock_of(id);
        if self.written_nodes.get(&id) != Some(&node) {
            self.program.set_node(id, &node)?;
            self.written_nodes.insert(id, node);
        }
        self.worker.dispatcher.plan().set_source(id, route.map(|route| route.source));
        Ok(())
    }

    /// Address of the nodes of this machine.
    pub(super) fn here_at(&self) -> Option<IpAddr> {
        let is_here = |name: &str| self.here.as_deref() == Some(name);
        self.cluster.nodes.iter().find(|node| is_here(&node.name)).map(|node| node.address)
    }

    /// The entry of a local node, which needs no route.
    fn set_here(&mut self, id: NodeId, address: NodeAddress) -> Result<()> {
        let source = address_bytes(address.machine);
        let ifindex = self.program.attached.first().map_or(0, |attached| attached.ifindex);
        let dead = self.written_nodes.get(&id).map_or(0, |known| known.dead);
        let clock = self.clock_of(id);
        let address = address.to_wire();
        let node = sb_node { address, source, ifindex, here: 1, dead, clock, ..Default::default() };
        self.program.set_node(id, &node)?;
        self.written_nodes.insert(id, node);
        self.worker.dispatcher.plan().set_source(id, Some(address_from(source)));
        Ok(())
    }
}
