//! The part of `cluster.toml` that concerns this machine's nodes.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use switchback_config::{
    Checked, Cluster, Diagnostic, Document, Node, Pool, Resume, Server, Service, TlsMode,
};
use switchback_runtime::{Error, boot_number, events, interface};
use switchback_wire::clock::NodeClock;
use switchback_wire::{SB_VIP_HELD, SB_VIP_SWITCHED, keys, sb_key, sb_persistence, sb_pool_here};

use crate::Options;
use crate::adoption::Adopting;
use crate::clients::Clients;
use crate::judges::Judges;
use crate::sessions;
use crate::signer::Signer;

/// A configuration as one machine sees it.
pub(crate) struct Plan {
    pub(crate) cluster: Cluster,
    /// Index in the cluster of the node that the agent was told to be, or has found itself to be.
    pub(crate) index: usize,
    /// All nodes of this machine, in the cluster's order.
    pub(crate) nodes: Vec<OwnNode>,
    pub(crate) address: IpAddr,
    /// VIPs, sorted and without duplicates.
    pub(crate) vips: Vec<IpAddr>,
    /// Key that signs handoff packets.
    pub(crate) sign: sb_key,
    /// Second accepted key; zeroes for none.
    pub(crate) accept: sb_key,
    /// Clock of this machine.
    pub(crate) clock: NodeClock,
    /// Whether the configuration hides this machine from everybody but the switches.
    pub(crate) hidden: bool,
    /// Whether this machine is also a switch.
    pub(crate) beside_switch: bool,
    /// VIPs that this machine serves as a switch, sorted.
    switched: Vec<IpAddr>,
    /// Listeners that these nodes report on, without duplicates.
    pub(crate) listeners: Vec<PoolListener>,
    /// Cookie settings of the pools.
    pub(crate) sessions: HashMap<sb_pool_here, sb_persistence>,
    /// Clients to which the nodes introduce themselves.
    pub(crate) clients: Clients,
    /// How its listeners get connections.
    pub(crate) adopting: Adopting,
    /// Whether new sockets for MPTCP become sockets for TCP.
    pub(crate) plain_tcp: bool,
    /// Judges of the nodes' servers.
    pub(crate) judges: Judges,
    /// Addresses of this machine.
    own: Vec<IpAddr>,
}

/// A node of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnNode {
    /// Index in the cluster.
    pub(crate) index: usize,
    pub(crate) name: String,
    /// Number on this machine.
    pub(crate) number: u16,
    /// Whether the configuration drains it.
    pub(crate) drain: bool,
}

/// A listener of a node for a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolListener {
    /// Index of the node in the cluster.
    pub(crate) node: usize,
    /// Index of the pool.
    pub(crate) pool: usize,
    /// VIP and port of a service with a route to the pool.
    pub(crate) address: SocketAddr,
    /// Where it listens itself, for the VIP's connections.
    pub(crate) at: SocketAddr,
}

impl Plan {
    /// Reads a document and finds the node in it. Logs the warnings about the document, which are also returned.
    pub(crate) fn read(document: &Document, options: &Options) -> Result<(Plan, Vec<Diagnostic>), Error> {
        let own = interface::all_addresses()?;
        let Checked { cluster, warnings } = switchback_tls::check(document, &own)?;
        let index = match &options.name {
            Some(name) => named(&cluster, name)?,
            None => with_address(&cluster, &options.interface)?,
        };
        let plan = Plan { own, ..Plan::new(cluster, index)? };
        events::log_warnings(&warnings);
        Ok((plan, warnings))
    }

    fn new(cluster: Cluster, index: usize) -> Result<Plan, Error> {
        let Node { address, hidden, adoption, plain_tcp, .. } = cluster.nodes[index];
        let nodes = own_nodes(&cluster, address);
        let vips = vips_of(cluster.services.iter());
        let mut handoff_keys = cluster.keys.iter().map(|key| keys::handoff_key(key.as_bytes()));
        let (sign, accept) =
            (handoff_keys.next().unwrap_or_default(), handoff_keys.next().unwrap_or_default());
        let listeners = nodes.iter().flat_map(|node| listeners(&cluster, node.index)).collect();
        let sessions = nodes.iter().flat_map(|node| sessions::entries(&cluster, node.index)).collect();
        let served = cluster.switches.iter().find(|switch| switch.name == cluster.nodes[index].name);
        let served = served.into_iter().flat_map(|switch| &switch.services);
        let switched = vips_of(served.map(|&service| &cluster.services[service]));
        let beside_switch = false;
        let mut plan = Plan {
            address,
            vips,
            sign,
            accept,
            clock: NodeClock::from_ahead(boot_number()?),
            hidden,
            beside_switch,
            switched,
            listeners,
            sessions,
            clients: Clients::of(&cluster, index),
            adopting: Adopting::new(adoption),
            plain_tcp,
            judges: Judges::default(),
            own: Vec::new(),
            index,
            nodes,
            cluster,
        };
        plan.judges = Judges::of(&plan, &Judges::default());
        Ok(plan)
    }

    /// Name of the agent's node.
    pub(crate) fn name(&self) -> &str {
        &self.cluster.nodes[self.index].name
    }

    /// Signer of handoff packets of the agent's node.
    pub(crate) fn signer(&self) -> Signer {
        let node = self.cluster.nodes[self.index].handoff_address();
        Signer { key: self.sign, node, clock: self.clock }
    }

    /// Whether the node with this index in the cluster is on this machine.
    pub(crate) fn is_own(&self, index: usize) -> bool {
        self.nodes.iter().any(|node| node.index == index)
    }

    /// Number of the listener's node on this machine.
    pub(crate) fn number_of(&self, listener: &PoolListener) -> u16 {
        self.cluster.nodes[listener.node].number
    }

    /// Whether a node of the pool is on this machine.
    pub(crate) fn has_own(&self, pool: &Pool) -> bool {
        pool.nodes.iter().any(|node| self.is_own(*node))
    }

    /// Kind of a VIP on this machine: `SB_VIP_*`.
    pub(crate) fn kind_of(&self, vip: IpAddr) -> u32 {
        if self.beside_switch && self.switched.contains(&vip) { SB_VIP_SWITCHED } else { SB_VIP_HELD }
    }

    /// Bytes of a response behind which another node can go on with it; 0 if none of this node's pools has that.
    pub(crate) fn resume_after(&self) -> u64 {
        let resumes = self.resumes(|resume| resume != Resume::Off);
        if resumes { self.cluster.limits.resume_after } else { 0 }
    }

    /// Whether another node may make a response of this one once more.
    pub(crate) fn repeats(&self) -> bool {
        self.resumes(|resume| resume == Resume::Repeat)
    }

    fn resumes(&self, how: impl Fn(Resume) -> bool) -> bool {
        let mut pools = self.listeners.iter().map(|listener| &self.cluster.pools[listener.pool]);
        pools.any(|pool| how(pool.resume) && pool.nodes.len() > 1)
    }

    /// Whether each pool of these nodes that answers requests has a node on another machine, unless the configuration drains
    /// that.
    pub(crate) fn has_others(&self) -> bool {
        let is_other = |index: &usize| !self.is_own(*index) && !self.cluster.nodes[*index].drain;
        let answers = |listener: &&PoolListener| {
            self.service_at(listener.address).is_some_and(|service| service.is_answered_by(listener.pool))
        };
        let pools = self.listeners.iter().filter(answers).map(|listener| &self.cluster.pools[listener.pool]);
        pools.into_iter().all(|pool| pool.nodes.iter().any(is_other))
    }

    /// Whether the agent itself ends the connections at this VIP.
    pub(crate) fn ends_tls(&self, vip: SocketAddr) -> bool {
        self.service_at(vip).is_some_and(|service| service.tls.terminated().is_some())
    }

    /// Address of the server that has a listener's requests; None if it has no IP address.
    pub(crate) fn server_of(&self, listener: &PoolListener) -> Option<SocketAddr> {
        let service = self.service_at(listener.address)?;
        let Some(tls) = service.tls.terminated() else { return Some(listener.at) };
        match tls.server_of(&self.cluster.nodes[listener.node])? {
            Server::Tcp(address) => Some(address),
            Server::Unix(_) => None,
        }
    }

    /// Whether only a check can tell if the listener's server listens: the agent is before it, or it is on another machine.
    pub(crate) fn needs_check(&self, listener: &PoolListener) -> bool {
        let tls = self.service_at(listener.address).and_then(|service| service.tls.terminated());
        self.is_away(listener) || tls.is_some_and(|tls| tls.server.is_none())
    }

    /// Whether the server is not on this machine, but behind one of its interfaces.
    pub(crate) fn is_away(&self, listener: &PoolListener) -> bool {
        let ip = listener.at.ip();
        listener.at != listener.address && !ip.is_loopback() && !self.own.contains(&ip)
    }

    pub(crate) fn service_at(&self, vip: SocketAddr) -> Option<&Service> {
        self.cluster.services.iter().find(|service| service.listen.contains(&vip))
    }
}

fn named(cluster: &Cluster, name: &str) -> Result<usize, Error> {
    cluster.nodes.iter().position(|node| node.name == name).ok_or_else(|| {
        let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
        Error::new(format!("the configuration has no node {name}"))
            .remedy(format!("it has {}", names.join(", ")))
            .with_exit_status(1)
    })
}

/// The first node with an address of the interface.
fn with_address(cluster: &Cluster, interface: &str) -> Result<usize, Error> {
    let own = interface::addresses(interface)?;
    cluster.nodes.iter().position(|node| own.contains(&node.address)).ok_or_else(|| {
        let own: Vec<String> = own.iter().map(IpAddr::to_string).collect();
        let what = format!("no node has an address of {interface}, which are {}", own.join(", "));
        // Names may have other addresses soon.
        Error::new(what).remedy("add a [[node]], or its address to a name in nodes_from")
    })
}

/// The nodes with this address.
fn own_nodes(cluster: &Cluster, address: IpAddr) -> Vec<OwnNode> {
    let own = cluster.nodes.iter().enumerate().filter(|(_, node)| node.address == address);
    let own = own.map(|(index, node)| OwnNode {
        index,
        name: node.name.clone(),
        number: node.number,
        drain: node.drain,
    });
    own.collect()
}

/// Addresses of the services' VIPs, sorted and without duplicates.
fn vips_of<'a>(services: impl Iterator<Item = &'a Service>) -> Vec<IpAddr> {
    let mut vips: Vec<IpAddr> = services.flat_map(|service| &service.listen).map(|vip| vip.ip()).collect();
    vips.sort_unstable();
    vips.dedup();
    vips
}

/// Listeners of a node for its pools.
fn listeners(cluster: &Cluster, node: usize) -> Vec<PoolListener> {
    let mut listeners = Vec::new();
    for service in &cluster.services {
        for pool in service.pools().filter(|pool| cluster.pools[*pool].nodes.contains(&node)) {
            // Where TLS ends at the agent, it listens itself.
            let at = |vip| match service.tls {
                TlsMode::Terminate(_) => vip,
                TlsMode::Off | TlsMode::Passthrough => cluster.nodes[node].server_of(vip),
            };
            let listener = |&vip| PoolListener { node, pool, address: vip, at: at(vip) };
            listeners.extend(service.listen.iter().map(listener));
        }
    }
    listeners.sort_unstable();
    listeners.dedup();
    listeners
}

/// Ports on which servers of nodes may listen: those of all services, and those that nodes have instead; sorted and without
/// duplicates.
pub fn server_ports(cluster: &Cluster) -> Vec<u16> {
    let listen = cluster.services.iter().flat_map(|service| &service.listen);
    let servers = cluster.nodes.iter().flat_map(|node| &node.servers);
    let mut ports: Vec<u16> = listen.chain(servers).map(SocketAddr::port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use switchback_config::ClusterKey;

    use super::*;

    const CLUSTER: &str = "
        [cluster]\nkey_file = \"cluster.key\"
        [[node]]\nname = \"n1\"\naddress = \"192.0.2.21\"
        [[node]]\nname = \"n2\"\naddress = \"192.0.2.22\"
        [[node]]\nname = \"n3\"\naddress = \"192.0.2.23\"
        [[pool]]\nname = \"web\"\nnodes = [\"n1\", \"n2\"]\npolicy = \"random\"
        [[pool]]\nname = \"new\"\nnodes = [\"n2\"]\npolicy = \"random\"
        [[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]
        [[service.route]]\npath = \"/new\"\npool = \"web\"\nmirror = \"new\"
        [[service.route]]\npool = \"web\"";

    fn plan(text: &str, node: &str) -> Plan {
        let keys = |_: &Path| Ok(vec![ClusterKey::from_bytes([7; 32])]);
        let cluster = switchback_config::parse(text, Path::new("cluster.toml"), keys).unwrap();
        let index = named(&cluster, node).unwrap();
        Plan::new(cluster, index).unwrap()
    }

    #[test]
    fn a_mirror_has_listeners_and_nobody_needs_it() {
        let mirrored = plan(CLUSTER, "n2");
        let pools: Vec<usize> = mirrored.listeners.iter().map(|listener| listener.pool).collect();
        assert_eq!(pools, [0, 1]);
        assert!(mirrored.has_others(), "n1 takes what clients wait for");
        let alone = CLUSTER.replace("mirror = \"new\"", "").replacen("pool = \"web\"", "pool = \"new\"", 1);
        assert!(!plan(&alone, "n2").has_others(), "nobody else answers /new");
        assert!(plan(CLUSTER, "n3").listeners.is_empty());
    }
}
