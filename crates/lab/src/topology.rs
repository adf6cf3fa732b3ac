//! Hosts, connections and addresses of a lab, without access to the system.
//!
//! The last part of an address identifies the host: the router is 1, switches count from 10, nodes from 20, the VIP is
//! 100, clients count from 120. IPv6 addresses end in the same digits (`2001:db8::20` is a node).

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::{Error, Result};

const SWITCH_BASE: usize = 10;
const NODE_BASE: usize = 20;
const VIP_NUMBER: usize = 100;
const CLIENT_BASE: usize = 120;
const CLIENT_LIMIT: usize = 100;
const ROUTER_NUMBER: usize = 1;
/// The name of the router.
pub(crate) const ROUTER: &str = "router";
const DEFAULT_MTU: u32 = 1500;

/// The connections between the hosts of a lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// All hosts on one bridge: 192.0.2.0/24 and 2001:db8::/64.
    #[default]
    Flat,
    /// Clients (198.51.100.0/24, 2001:db8:1::/64), switches (192.0.2.0/24, 2001:db8::/64) and nodes (203.0.113.0/24,
    /// 2001:db8:2::/64) each on a bridge of their own, with a router between, which routes the VIPs to the first
    /// switch.
    Routed,
    /// As `Routed`, and each switch has a second interface, `eth1`, on the nodes' bridge.
    TwoArmed,
}

/// How the router of a lab comes to its routes to the VIPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// They lead to the first switch, until [`Lab::move_vips`](crate::Lab::move_vips) changes them.
    #[default]
    Static,
    /// BIRD on each switch announces the VIPs over BGP with BFD, and the router spreads the flows over all switches
    /// that do, by addresses and ports (ECMP). Nothing is announced before
    /// [`Host::announce_when_ready`](crate::Host::announce_when_ready).
    Bird,
}

/// The role of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends requests.
    Client,
    /// Holds the VIPs.
    Switch,
    /// Runs a server.
    Node,
    /// Forwards packets between the subnets.
    Router,
}

/// Options of a lab: [`Lab::builder`](crate::Lab::builder) starts, [`up`](Self::up) makes the lab.
#[derive(Clone, Debug)]
pub struct Builder {
    topology: Topology,
    pub(crate) routing: Routing,
    clients: usize,
    switches: usize,
    nodes: usize,
    pub(crate) mtu: u32,
    generic_xdp: Vec<Role>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            topology: Topology::Flat,
            routing: Routing::Static,
            clients: 1,
            switches: 1,
            nodes: 1,
            mtu: DEFAULT_MTU,
            generic_xdp: Vec::new(),
        }
    }
}

impl Builder {
    /// The topology; `Flat` by default.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// How the router comes to its routes to the VIPs; `Static` by default. `Bird` needs a topology with a router.
    pub fn routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Number of clients, at most 100; 1 by default.
    pub fn clients(mut self, count: usize) -> Self {
        self.clients = count;
        self
    }

    /// Number of switches, at most 10; 1 by default.
    pub fn switches(mut self, count: usize) -> Self {
        self.switches = count;
        self
    }

    /// Number of nodes, at most 80; 1 by default.
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes = count;
        self
    }

    /// MTU of all interfaces in bytes; 1500 by default. [`Host::set_mtu`](crate::Host::set_mtu) changes one host's.
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = bytes;
        self
    }

    /// Makes the interfaces of all hosts of this role macvlans, which have no native XDP, so that programs
    /// run in generic mode. Below each is a veth, `eth0low`, without GRO: generic XDP would otherwise see
    /// merged packets. Such a host has no NAPI thread.
    pub fn generic_xdp(mut self, role: Role) -> Self {
        self.generic_xdp.push(role);
        self
    }

    /// The hosts and their links.
    pub(crate) fn plan(&self) -> Result<Plan> {
        check("clients", self.clients, CLIENT_LIMIT)?;
        check("switches", self.switches, NODE_BASE - SWITCH_BASE)?;
        check("nodes", self.nodes, VIP_NUMBER - NODE_BASE)?;
        if self.routing == Routing::Bird && self.topology == Topology::Flat {
            return Err(Error::Invalid("a flat lab has no router, on which BIRD could run".to_owned()));
        }
        let mut hosts = Vec::new();
        if self.topology != Topology::Flat {
            let links = [&CLIENTS, &SWITCHES, &NODES].into_iter().enumerate();
            let links =
                links.map(|(index, subnet)| self.link(ROUTER, Role::Router, ROUTER_NUMBER, index, subnet));
            hosts.push(HostPlan { name: ROUTER.to_owned(), role: Role::Router, links: links.collect() });
        }
        let groups = [
            (Role::Client, "client", self.clients, CLIENT_BASE),
            (Role::Switch, "switch", self.switches, SWITCH_BASE),
            (Role::Node, "node", self.nodes, NODE_BASE),
        ];
        for (role, word, count, base) in groups {
            for index in 0..count {
                let name = format!("{word}{index}");
                let subnets = self.subnets(role).iter().enumerate();
                let links =
                    subnets.map(|(arm, subnet)| self.link(&name, role, base + index, arm, subnet)).collect();
                hosts.push(HostPlan { name, role, links });
            }
        }
        let bridges =
            if self.topology == Topology::Flat { vec![&FLAT] } else { vec![&CLIENTS, &SWITCHES, &NODES] };
        Ok(Plan {
            hosts,
            bridges: bridges.into_iter().map(|subnet| subnet.bridge).collect(),
            vip4: SWITCHES.ipv4(VIP_NUMBER),
            vip6: SWITCHES.ipv6(VIP_NUMBER),
        })
    }

    fn subnets(&self, role: Role) -> &'static [&'static Subnet] {
        match (self.topology, role) {
            (Topology::Flat, _) => &[&FLAT],
            (_, Role::Client) => &[&CLIENTS],
            (_, Role::Node) => &[&NODES],
            (Topology::TwoArmed, Role::Switch) => &[&SWITCHES, &NODES],
            _ => &[&SWITCHES],
        }
    }

    fn link(&self, host: &str, role: Role, number: usize, arm: usize, subnet: &Subnet) -> Link {
        let generic = self.generic_xdp.contains(&role);
        let routed = self.topology != Topology::Flat && role != Role::Router && arm == 0;
        Link {
            interface: format!("eth{arm}"),
            device: if generic { format!("eth{arm}low") } else { format!("eth{arm}") },
            port: if arm == 0 { host.to_owned() } else { format!("{host}-eth{arm}") },
            bridge: subnet.bridge,
            ipv4: subnet.ipv4(number),
            ipv6: subnet.ipv6(number),
            gateway: routed.then(|| (subnet.ipv4(ROUTER_NUMBER), subnet.ipv6(ROUTER_NUMBER))),
        }
    }
}

fn check(what: &str, count: usize, limit: usize) -> Result<()> {
    if count <= limit {
        Ok(())
    } else {
        Err(Error::Invalid(format!("{count} {what}: at most {limit} have addresses")))
    }
}

/// The plan of a lab.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) bridges: Vec<&'static str>,
    pub(crate) vip4: Ipv4Addr,
    pub(crate) vip6: Ipv6Addr,
}

#[derive(Clone, Debug)]
pub(crate) struct HostPlan {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// At least one link; the first is that of `eth0`.
    pub(crate) links: Vec<Link>,
}

/// One interface of a host and its cable.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// The interface with the addresses.
    pub(crate) interface: String,
    /// The veth: the interface itself, or the device below a macvlan.
    pub(crate) device: String,
    /// The other end of the veth, in the lab's `net` namespace.
    pub(crate) port: String,
    pub(crate) bridge: &'static str,
    pub(crate) ipv4: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
    /// The gateway of the default routes.
    pub(crate) gateway: Option<(Ipv4Addr, Ipv6Addr)>,
}

impl Link {
    pub(crate) fn is_generic(&self) -> bool {
        self.interface != self.device
    }
}

/// A /24 and a /64 on one bridge.
#[derive(Debug)]
struct Subnet {
    bridge: &'static str,
    v4: [u8; 3],
    v6: u16,
}

const FLAT: Subnet = Subnet { bridge: "hosts", v4: [192, 0, 2], v6: 0 };
const CLIENTS: Subnet = Subnet { bridge: "clients", v4: [198, 51, 100], v6: 1 };
const SWITCHES: Subnet = Subnet { bridge: "switches", v4: [192, 0, 2], v6: 0 };
const NODES: Subnet = Subnet { bridge: "nodes", v4: [203, 0, 113], v6: 2 };

impl Subnet {
    fn ipv4(&self, number: usize) -> Ipv4Addr {
        let [a, b, c] = self.v4;
        Ipv4Addr::new(a, b, c, u8::try_from(number).expect("`check` keeps host numbers below 256"))
    }

    fn ipv6(&self, number: usize) -> Ipv6Addr {
        // The decimal digits of the number, read as hexadecimal, so that both families look alike.
        let digits = number / 100 * 0x100 + number / 10 % 10 * 0x10 + number % 10;
        let last = u16::try_from(digits).expect("three digits fit in 16 bits");
        Ipv6Addr::new(0x2001, 0xdb8, self.v6, 0, 0, 0, 0, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_look_alike_in_both_families() {
        let plan =
            Builder::default().clients(2).nodes(3).topology(Topology::TwoArmed).plan().expect("a small lab");
        let shown: Vec<String> = plan
            .hosts
            .iter()
            .flat_map(|host| host.links.iter().map(move |link| (host, link)))
            .map(|(host, link)| format!("{} {} {} {}", host.name, link.interface, link.ipv4, link.ipv6))
            .collect();
        let expected = [
            "router eth0 198.51.100.1 2001:db8:1::1",
            "router eth1 192.0.2.1 2001:db8::1",
            "router eth2 203.0.113.1 2001:db8:2::1",
            "client0 eth0 198.51.100.120 2001:db8:1::120",
            "client1 eth0 198.51.100.121 2001:db8:1::121",
            "switch0 eth0 192.0.2.10 2001:db8::10",
            "switch0 eth1 203.0.113.10 2001:db8:2::10",
            "node0 eth0 203.0.113.20 2001:db8:2::20",
            "node1 eth0 203.0.113.21 2001:db8:2::21",
            "node2 eth0 203.0.113.22 2001:db8:2::22",
        ];
        assert_eq!(shown, expected);
        assert_eq!(
            (plan.vip4.to_string(), plan.vip6.to_string()),
            ("192.0.2.100".into(), "2001:db8::100".into())
        );
    }

    #[test]
    fn a_lab_without_room_for_its_hosts_is_refused() {
        assert!(Builder::default().switches(10).nodes(80).clients(100).plan().is_ok());
        assert!(Builder::default().switches(11).plan().is_err());
        assert!(Builder::default().nodes(81).plan().is_err());
        assert!(Builder::default().clients(101).plan().is_err());
    }

    #[test]
    fn bird_needs_a_router() {
        let bird = Builder::default().routing(Routing::Bird);
        assert!(bird.plan().is_err());
        assert!(bird.topology(Topology::Routed).plan().is_ok());
    }
}
