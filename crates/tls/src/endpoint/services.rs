//! The services with TLS, as they are configured.
//!
//! [`Services`] is one configuration. It never changes: a reload builds another one and swaps it in, and connections keep
//! the [`Service`] that they began with.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use switchback_config::{
    Action, Admitted, ClientAddress, HandOver, Mirror, Protocol, Redirect, Resume, Route, ServerProtocol,
    Split, TlsLimits,
};
use switchback_http::{Head, Limits, Reject};
use switchback_policy::Busy;
use switchback_routes::{Request, Routes};
use switchback_wire::report::pool_id;
use switchback_wire::{address_bytes, sb_key};

use super::counters::Counters;
use super::handshakes::Handshakes;
use super::head::Told;
use super::insurer::Insurer;
use super::kernel::KernelTls;
use super::local::{LocalNode, LocalServer, Member};
use super::pools::{Elsewhere, Here, Mirroring, PoolNodes, PoolWay};
use super::server::{ServerAddress, Wanted};
use super::shared::Shared;
use crate::{Certificates, ClientCertificates, Tickets};

/// Sizes of requests, and the time they may take.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Sizes of heads and bodies.
    pub http: Limits,
    /// Time for a handshake, and for a head.
    pub head_timeout: Duration,
    /// Numbers of connections, handshakes and streams.
    pub tls: TlsLimits,
}

/// The configuration of a service.
pub struct ServiceConfig {
    /// Its name.
    pub name: String,
    /// The nodes of this machine that are in its pools; at least one.
    pub nodes: Vec<NodeConfig>,
    /// Whether each of them has a server of its own; otherwise there is one, and the machine has a server for the service.
    pub servers_of_nodes: bool,
    /// The VIPs.
    pub listen: Vec<SocketAddr>,
    /// Certificates, by the names that clients ask for.
    pub certificates: Arc<Certificates>,
    /// What is demanded of clients' certificates; None if they are not asked for any.
    pub client_certificates: Option<Arc<ClientCertificates>>,
    /// ALPN protocols, the preferred first.
    pub protocols: Vec<Vec<u8>>,
    /// Versions of TLS.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// How the server learns the client's address.
    pub client_address: ClientAddress,
    /// Routes, which name pools by their index.
    pub routes: Routes,
    /// The secret by which requests are shared out to pools.
    pub secret: sb_key,
    /// Nodes of each of its pools, with the index by which routes name it.
    pub pools: Vec<(usize, PoolNodes)>,
    /// The same of the pools that get copies.
    pub mirrors: Vec<(usize, PoolNodes)>,
    /// When this node hands connections over to others; None: never.
    pub busy: Option<Busy>,
    /// How it hands them over.
    pub hand_over: HandOver,
    /// Whether the kernel may encrypt responses (kTLS). Not with [`HandOver::Relay`]: records that another node has
    /// encrypted cannot pass a socket that encrypts.
    pub ktls: bool,
    /// Limits of clients.
    pub limits: RequestLimits,
    /// How often clients may ask.
    pub rates: switchback_rates::RequestLimits,
    /// The clients that are let in.
    pub admitted: Admitted,
    /// Bytes of a response behind which another node can go on with it, where the pool says so.
    pub resume_after: u64,
}

impl ServiceConfig {
    /// The pools, without those of copies.
    pub(super) fn pools(&self) -> impl Iterator<Item = &PoolNodes> {
        self.pools.iter().map(|(_, pool)| pool)
    }
}

/// A node of this machine.
pub struct NodeConfig {
    /// Its name.
    pub name: String,
    /// Number by which switches know it on this machine.
    pub number: u16,
    /// Its server for the service.
    pub server: ServerAddress,
    /// Seals sessions of its clients.
    pub tickets: Arc<Tickets>,
}

/// All services of a node at one time, by name and by VIP.
#[derive(Default)]
pub(super) struct Services {
    by_name: HashMap<Arc<str>, Arc<Service>>,
    by_vip: HashMap<SocketAddr, Arc<Service>>,
}

impl Services {
    /// Services with these configurations. Those that have been there before keep their counters, and what is known of nodes.
    pub(super) fn new(
        configs: Vec<ServiceConfig>,
        before: &Services,
        shared: &Shared,
        kernel: KernelTls,
    ) -> Result<Self, rustls::Error> {
        let mut services = Services::default();
        for config in configs {
            let vips = config.listen.clone();
            let known = before.named(&config.name).map(|service| &**service);
            let service = Arc::new(Service::new(config, known, shared, kernel)?);
            services.by_vip.extend(vips.into_iter().map(|vip| (vip, Arc::clone(&service))));
            services.by_name.insert(Arc::clone(&service.name), service);
        }
        Ok(services)
    }

    /// The service of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Service>> {
        self.by_name.get(name)
    }

    /// The service at this VIP.
    pub(super) fn at(&self, vip: &SocketAddr) -> Option<&Arc<Service>> {
        self.by_vip.get(vip)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.by_name.values()
    }

    /// Has connections leave those nodes of this machine that are not among the services that come next.
    pub(super) fn leave_for(&self, next: &Services) {
        for service in self.iter() {
            let after = next.named(&service.name);
            let stays = |node: &LocalNode| after.is_some_and(|service| service.node(&node.name).is_some());
            let nodes = service.nodes.iter().map(|own| &own.server.node);
            nodes.filter(|node| !stays(node)).for_each(|node| node.set_leaving(true));
        }
    }
}

/// A node of this machine, as a service has it.
struct OwnNode {
    server: Arc<LocalServer>,
    handshakes: Handshakes,
}

/// A service, as its connections use it.
pub(crate) struct Service {
    pub(super) name: Arc<str>,
    /// The nodes of this machine; at least one.
    nodes: Vec<OwnNode>,
    /// Index of the next of them for a connection of which no node is known.
    turn: AtomicUsize,
    /// What other machines are asked for.
    pub(super) wanted: Wanted,
    pub(super) certificates: Arc<Certificates>,
    pub(super) routes: Routes,
    secret: sb_key,
    /// Requests that were shared out one by one.
    shared_out: AtomicU64,
    /// By the index of the pool.
    pools: HashMap<usize, PoolWay>,
    mirrors: HashMap<usize, Mirroring>,
    /// Name and policy of each pool, by its index.
    pub(super) pool_names: HashMap<usize, (String, &'static str)>,
    pub(super) busy: Option<Busy>,
    pub(super) hand_over: HandOver,
    /// What the kernel encrypts for its connections. It would not tell the tags of records before they go out.
    pub(super) kernel: KernelTls,
    /// Present if responses are insured, those of so many bytes.
    pub(super) insurer: Option<(Arc<dyn Insurer>, u64)>,
    pub(super) told: Told,
    pub(super) limits: RequestLimits,
    pub(super) rates: switchback_rates::RequestLimits,
    pub(super) admitted: Admitted,
    pub(super) counters: Arc<Counters>,
}

/// Where a request goes.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// To the server of this node, by this route.
    Here(&'a Here, &'a Route),
    /// To other nodes, by this route: this one is not in the pool.
    Elsewhere(&'a Elsewhere, &'a Route),
    /// Nowhere: the client is redirected.
    Redirect(&'a Redirect),
    /// Nowhere: the client gets this status.
    Respond(u16),
    /// No route takes it.
    Nowhere,
    /// Nowhere: the request is one that two parsers could read differently.
    Refused(Reject),
}

impl<'a> Way<'a> {
    /// The route of a request that a server gets.
    pub(super) fn route(self) -> Option<&'a Route> {
        match self {
            Way::Here(_, route) | Way::Elsewhere(_, route) => Some(route),
            Way::Redirect(_) | Way::Respond(_) | Way::Nowhere | Way::Refused(_) => None,
        }
    }
}

impl Service {
    /// A service that goes on from what the one of this name before knows.
    fn new(
        config: ServiceConfig,
        before: Option<&Service>,
        shared: &Shared,
        kernel: KernelTls,
    ) -> Result<Self, rustls::Error> {
        let fields = config.limits.http.fields;
        let own = |node: NodeConfig| {
            let handshakes = Handshakes::new(
                Arc::clone(&config.certificates),
                config.protocols.clone(),
                config.versions,
                node.tickets,
                config.client_certificates.clone(),
            )?;
            let known = before.and_then(|before| before.node(&node.name));
            let known = known.filter(|known| known.server.node.number == node.number);
            let server = match known.filter(|known| known.server.address.is_same(&node.server)) {
                Some(same) => Arc::clone(&same.server),
                None => {
                    let new = || Arc::new(LocalNode::new(&node.name, node.number));
                    let local = known.map_or_else(new, |known| Arc::clone(&known.server.node));
                    Arc::new(LocalServer::new(local, node.server, fields))
                }
            };
            Ok(OwnNode { server, handshakes })
        };
        let nodes: Vec<OwnNode> = config.nodes.into_iter().map(own).collect::<Result<_, rustls::Error>>()?;
        let wanted = Wanted { service: config.name.clone(), of_node: config.servers_of_nodes };
        let resumes =
            config.pools.iter().any(|(_, pool)| !pool.here.is_empty() && pool.resume != Resume::Off);
        let names = config.pools.iter().map(|(index, pool)| (*index, (pool.name.clone(), pool.policy)));
        let names = names.collect();
        let mirror =
            |(index, pool): (usize, PoolNodes)| (index, Mirroring::new(pool, &wanted, shared, fields));
        let mirrors = config.mirrors.into_iter().map(mirror).collect();
        let way = |(index, pool): (usize, PoolNodes)| {
            let member = |(name, judge): &(String, _)| {
                let own = nodes.iter().find(|own| *own.server.node.name == **name)?;
                let known = before.and_then(|before| before.member(pool_id(&pool.name), name));
                let is_ill = known.map_or_else(Arc::default, |known| Arc::clone(&known.is_ill));
                Some(Member { server: Arc::clone(&own.server), judge: Option::clone(judge), is_ill })
            };
            let members = pool.here.iter().filter_map(member).collect();
            (index, PoolWay::new(pool, members, &wanted, shared, fields))
        };
        Ok(Service {
            pool_names: names,
            pools: config.pools.into_iter().map(way).collect(),
            mirrors,
            told: Told { address: config.client_address, certificates: config.client_certificates.is_some() },
            nodes,
            turn: AtomicUsize::new(0),
            wanted,
            certificates: config.certificates,
            busy: config.busy,
            hand_over: config.hand_over,
            kernel: if config.ktls && !resumes { kernel } else { KernelTls::None },
            insurer: resumes.then(|| (Arc::clone(&shared.insurer), config.resume_after)),
            name: config.name.into(),
            routes: config.routes,
            secret: config.secret,
            shared_out: AtomicU64::new(0),
            limits: config.limits,
            rates: config.rates,
            admitted: config.admitted,
            counters: before.map_or_else(Arc::default, |before| Arc::clone(&before.counters)),
        })
    }

    fn node(&self, name: &str) -> Option<&OwnNode> {
        self.nodes.iter().find(|own| *own.server.node.name == *name)
    }

    /// The node of this machine under whose number a connection has come, which `number` finds out if there are several.
    pub(super) fn node_of(&self, number: impl FnOnce() -> Option<u16>) -> &Arc<LocalNode> {
        let found = match &self.nodes[..] {
            [only] => Some(only),
            nodes => number().and_then(|number| nodes.iter().find(|own| own.server.node.number == number)),
        };
        let next = || &self.nodes[self.turn.fetch_add(1, Ordering::Relaxed) % self.nodes.len()];
        &found.unwrap_or_else(next).server.node
    }

    /// How clients of this node shake hands.
    pub(super) fn handshakes(&self, node: &LocalNode) -> &Handshakes {
        &self.node(&node.name).unwrap_or(&self.nodes[0]).handshakes
    }

    /// The servers of this machine, that of the node with this name first.
    pub(super) fn servers(&self, node: &str) -> Vec<&ServerAddress> {
        let mut nodes: Vec<&OwnNode> = self.nodes.iter().collect();
        nodes.sort_by_key(|own| *own.server.node.name != *node);
        nodes.into_iter().map(|own| &own.server.address).collect()
    }

    /// Sets which nodes drain, and in which pools their servers are ill, by the names of the pool and the node.
    pub(super) fn set_standing(&self, drains: impl Fn(&str) -> bool, is_ill: impl Fn(&str, &str) -> bool) {
        for own in &self.nodes {
            own.server.node.set_leaving(drains(&own.server.node.name));
        }
        for (index, pool) in &self.pools {
            let (PoolWay::Here(here), name) = (pool, &self.pool_names[index].0) else { continue };
            for member in here.group.members() {
                member.is_ill.store(is_ill(name, member.name()), Ordering::Relaxed);
            }
        }
    }

    /// The pool with this id, if a node of this machine is in it.
    pub(super) fn here(&self, pool: u32) -> Option<&Here> {
        self.pools.values().find_map(|way| match way {
            PoolWay::Here(here) if here.pool == pool => Some(&**here),
            PoolWay::Here(_) | PoolWay::Elsewhere(_) | PoolWay::Empty(_) => None,
        })
    }

    fn member(&self, pool: u32, node: &str) -> Option<&Member> {
        self.here(pool)?.group.members().iter().find(|member| **member.name() == *node)
    }

    /// Where a request goes whose connection is at this node.
    pub(super) fn way(&self, node: &LocalNode, head: &Head<'_>, client: IpAddr, spoken: Protocol) -> Way<'_> {
        let route = match self.routes.find_over(&Request { head, client }, spoken) {
            Ok(Some(route)) => route,
            Ok(None) => return Way::Nowhere,
            Err(reject) => return Way::Refused(reject),
        };
        let pool = match &route.action {
            Action::Redirect(redirect) => return Way::Redirect(redirect),
            Action::Respond(status) => return Way::Respond(*status),
            Action::Pool(pool) => *pool,
            action @ Action::Split(split) => {
                self.pool_with(action, &node.name).unwrap_or_else(|| self.share(split, client))
            }
        };
        match self.pools.get(&pool) {
            Some(PoolWay::Here(here)) => Way::Here(here, route),
            Some(PoolWay::Elsewhere(others)) => Way::Elsewhere(others, route),
            Some(PoolWay::Empty(status)) => Way::Respond(*status),
            None => Way::Nowhere,
        }
    }

    /// Whether a request is one of those of which the route's mirror gets a copy.
    pub(super) fn is_mirrored(&self, mirror: Mirror, client: IpAddr) -> bool {
        let number = self.shared_out.fetch_add(1, Ordering::Relaxed);
        mirror.takes(switchback_routes::mirror_point(
            &self.secret,
            &[&address_bytes(client), &number.to_be_bytes()],
        ))
    }

    /// The pool that gets copies of a route's requests.
    pub(super) fn mirroring(&self, mirror: Mirror) -> Option<&Mirroring> {
        self.mirrors.get(&mirror.pool)
    }

    /// Ids of the pools of which the nodes of this machine are outliers.
    pub(super) fn failing(&self) -> Vec<u32> {
        let failing = |pool: &PoolWay| match pool {
            PoolWay::Here(here) => here.is_outlier().then_some(here.pool),
            PoolWay::Elsewhere(_) | PoolWay::Empty(_) => None,
        };
        self.pools.values().filter_map(failing).collect()
    }

    /// Whether servers of a pool speak HTTP/2.
    pub(super) fn has_http2_servers(&self) -> bool {
        self.pools.values().any(|pool| match pool {
            PoolWay::Here(here) => here.protocol == ServerProtocol::H2c,
            PoolWay::Elsewhere(others) => others.protocol == ServerProtocol::H2c,
            PoolWay::Empty(_) => false,
        })
    }

    /// Whether a pool that nodes of this machine are in has other nodes than this one.
    pub(super) fn has_other_nodes(&self, node: &LocalNode) -> bool {
        self.pools.values().any(|pool| match pool {
            PoolWay::Here(here) => {
                let mut members = here.group.members().iter();
                !here.others.is_empty() || members.any(|member| **member.name() != *node.name)
            }
            PoolWay::Elsewhere(_) | PoolWay::Empty(_) => false,
        })
    }

    /// The first pool of the action that this node is in.
    pub(super) fn pool_with(&self, action: &Action, node: &str) -> Option<usize> {
        action.pools().find(|pool| match self.pools.get(pool) {
            Some(PoolWay::Here(here)) => here.group.members().iter().any(|member| **member.name() == *node),
            Some(PoolWay::Elsewhere(_) | PoolWay::Empty(_)) | None => false,
        })
    }

    /// The pool of a split for a client whose connection is at none of them.
    fn share(&self, split: &Split, client: IpAddr) -> usize {
        let client = address_bytes(client);
        let common = split.by.is_some().then_some(&client[..]);
        let number = self.shared_out.fetch_add(1, Ordering::Relaxed);
        switchback_routes::share(split, &self.secret, common, &[&client, &number.to_be_bytes()])
    }
}

/// Without keys.
impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}
