//! What serves requests: a machine, or one of several servers on it.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use switchback_wire::{NodeAddress, SB_NODES};

/// The most nodes that a cluster can have.
pub const MAX_NODES: usize = SB_NODES as usize;
/// The weights that a node can have.
pub const WEIGHTS: RangeInclusive<u32> = 0..=1000;
/// Default of [`Node::weight`].
pub(crate) const DEFAULT_WEIGHT: u32 = 1;

/// What serves requests: a machine, or one of several servers on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// 1 to 63 of `a` to `z`, `0` to `9` and `-`, as all names in the file.
    pub name: String,
    /// Destination of handoff packets. Nodes with the same address are on one machine.
    pub address: IpAddr,
    /// Its number there, see [`NodeAddress::number`].
    pub number: u16,
    /// Its share of requests relative to other nodes, in [`WEIGHTS`]. With 0 it gets no new ones.
    pub weight: u32,
    /// Its location, such as a rack or a data centre; a name as [`Node::name`]. A switch prefers the nodes of its own
    /// zone.
    pub zone: Option<String>,
    /// Whether the node drains: it gets no new requests, whatever its weight, and finishes its open ones.
    pub drain: bool,
    /// Whether nothing on the machine answers at its own addresses on the ports of the services, but what a
    /// switch hands over.
    pub hidden: bool,
    /// Whether its network drops what has the address of a VIP, so that responses to [`Cluster::clients`](crate::Cluster::clients) go in a
    /// tunnel.
    pub tunnel: bool,
    /// Where its servers listen, at most one of each IP version. Those of services without TLS listen at VIPs of the other one
    /// themselves; for services whose TLS ends at the machine see [`Tls::server_of`](crate::Tls::server_of).
    pub servers: Vec<SocketAddr>,
    /// How its servers get the connections that it adopts.
    pub adoption: Adoption,
    /// Whether new sockets for MPTCP become sockets for TCP.
    pub plain_tcp: bool,
}

/// How a node gives an adopted connection to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// By the kernel where kernel and listener allow that, else by replay.
    Auto,
    /// The kernel makes the socket (`bpf_sk_assign_tcp_reqsk()`, Linux 6.9).
    Kernel,
    /// The node replays the handshake with the listener, and translates sequence numbers and timestamps.
    Replay,
}

impl Adoption {
    /// Each of them, in the order in which messages list them.
    pub const ALL: [Adoption; 3] = [Adoption::Auto, Adoption::Kernel, Adoption::Replay];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Adoption::Auto => "auto",
            Adoption::Kernel => "kernel",
            Adoption::Replay => "replay",
        }
    }

    /// Whether handshakes may be replayed.
    pub fn may_replay(self) -> bool {
        self != Adoption::Kernel
    }
}

impl Node {
    /// Each key of `[[node]]` except `name` in words.
    pub(crate) fn in_words(&self) -> [(&'static str, String); 9] {
        [
            ("address", self.address.to_string()),
            ("weight", self.weight.to_string()),
            // No name has parentheses.
            ("zone", self.zone.clone().unwrap_or("(none)".to_owned())),
            ("drain", self.drain.to_string()),
            ("hidden", self.hidden.to_string()),
            ("tunnel", self.tunnel.to_string()),
            ("server", self.servers_in_words()),
            ("adoption", self.adoption.name().to_owned()),
            ("plain_tcp", self.plain_tcp.to_string()),
        ]
    }

    fn servers_in_words(&self) -> String {
        if self.servers.is_empty() {
            return "(the VIPs)".to_owned();
        }
        let servers: Vec<String> = self.servers.iter().map(SocketAddr::to_string).collect();
        servers.join(", ")
    }

    /// What handoff packets know it by.
    pub fn handoff_address(&self) -> NodeAddress {
        NodeAddress { machine: self.address, number: self.number }
    }

    /// Where its server listens for this VIP of a service without TLS.
    pub fn server_of(&self, vip: SocketAddr) -> SocketAddr {
        let of_its_version = |server: &&SocketAddr| server.is_ipv4() == vip.is_ipv4();
        self.servers.iter().find(of_its_version).copied().unwrap_or(vip)
    }
}
