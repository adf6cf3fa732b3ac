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

use super::bridge::Bridge;
use super::counters::Counters;
use super::exchange::{Failure, ServerRequest};
use super::forwarding::{Forwarder, SingleNodes, forwarder};
use super::handshakes::Handshakes;
use super::head::Told;
use super::insurer::Insurer;
use super::kernel::KernelTls;
use super::load::Loads;
use super::log::Answer;
use super::multiplexed::Multiplexed;
use super::peers::Peer;
use super::server::{ServerAddress, Servers};
use super::shared::Shared;
use crate::{Certificates, ClientCertificates, Judge, Outcome, Tickets};

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
    /// Name of this node.
    pub node: String,
    /// The VIPs.
    pub listen: Vec<SocketAddr>,
    /// Certificates, by the names that clients ask for.
    pub certificates: Arc<Certificates>,
    /// What is demanded of clients' certificates; None if they are not asked for any.
    pub client_certificates: Option<Arc<ClientCertificates>>,
    /// Seals sessions.
    pub tickets: Arc<Tickets>,
    /// ALPN protocols, the preferred first.
    pub protocols: Vec<Vec<u8>>,
    /// Versions of TLS.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// The server of this node.
    pub server: ServerAddress,
    /// How the server learns the client's address.
    pub client_address: ClientAddress,
    /// Routes, which name pools by their index.
    pub routes: Routes,
    /// The secret by which requests are shared out to pools.
    pub secret: sb_key,
    /// Nodes of each pool, by its index.
    pub pools: Vec<PoolNodes>,
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

/// The nodes of a pool.
#[derive(Clone, Debug)]
pub struct PoolNodes {
    /// The pool's name.
    pub name: String,
    /// Name of its policy.
    pub policy: &'static str,
    /// Whether this node is one of them.
    pub here: bool,
    /// The other nodes.
    pub others: Vec<Peer>,
    /// How another node goes on with a response of this one.
    pub resume: Resume,
    /// What the servers speak.
    pub protocol: ServerProtocol,
    /// Most nodes that are ejected at the same time; None if the pool knows no outliers.
    pub most_ejected: Option<usize>,
    /// Judges this node's server, if the pool knows outliers.
    pub judge: Option<Arc<Judge>>,
}

/// All services of a node at one time, by name and by VIP.
#[derive(Default)]
pub(super) struct Services {
    by_name: HashMap<Arc<str>, Arc<Service>>,
    by_vip: HashMap<SocketAddr, Arc<Service>>,
}

impl Services {
    /// Services with these configurations. Those that have been there before keep their counters.
    pub(super) fn new(
        configs: Vec<ServiceConfig>,
        before: &Services,
        shared: &Shared,
        kernel: KernelTls,
    ) -> Result<Self, rustls::Error> {
        let mut services = Services::default();
        for config in configs {
            let known = before.named(&config.name);
            let counters = known.map_or_else(Arc::default, |service| Arc::clone(&service.counters));
            let vips = config.listen.clone();
            let service = Arc::new(Service::new(config, counters, shared, kernel)?);
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
}

/// A service, as its connections use it.
pub(crate) struct Service {
    pub(super) name: Arc<str>,
    /// The name of this node.
    pub(super) node: Arc<str>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) handshakes: Handshakes,
    pub(super) routes: Routes,
    secret: sb_key,
    /// Requests that were shared out one by one.
    shared_out: AtomicU64,
    /// Address of the server of this node.
    pub(super) server: ServerAddress,
    /// The server, if it speaks HTTP/1.1.
    pub(super) servers: Servers,
    pub(super) forwarder: Forwarder,
    /// The server, if it speaks HTTP/2.
    pub(super) multiplexed: Arc<Multiplexed>,
    /// That for clients which speak HTTP/1.1.
    bridged: Servers,
    pub(super) single: SingleNodes,
    /// By the index of the pool.
    pub(super) pools: Vec<PoolWay>,
    /// Name and policy of each pool, by its index.
    pub(super) pool_names: Vec<(String, &'static str)>,
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

/// Where the requests for a pool go.
pub(super) enum PoolWay {
    /// To the server of this node.
    Here(Here),
    /// To other nodes; this one is not in the pool.
    Elsewhere(Box<Elsewhere>),
}

/// A pool that this node is in.
pub(crate) struct Here {
    /// The other nodes.
    pub(super) others: Vec<Peer>,
    /// How one of them goes on with a response of this one.
    pub(super) resume: Resume,
    /// What the server speaks.
    pub(super) protocol: ServerProtocol,
    /// Id of the pool.
    pool: u32,
    most_ejected: usize,
    judge: Option<Arc<Judge>>,
}

impl Here {
    fn new(nodes: PoolNodes) -> Self {
        let PoolNodes { name, others, resume, protocol, most_ejected, judge, .. } = nodes;
        Here {
            others,
            resume,
            protocol,
            pool: pool_id(&name),
            most_ejected: most_ejected.unwrap_or_default(),
            judge,
        }
    }

    /// The other nodes to which this one gives a request, the best first; none if it answers the request itself.
    pub(super) fn better(&self, loads: &Loads, busy: Option<Busy>) -> Vec<Peer> {
        let mut better = loads.lighter(busy, &self.others);
        if better.is_empty() && self.is_outlier() {
            return loads.serving((self.pool, self.most_ejected), &self.others);
        }
        if self.judge.is_some() {
            let fails = |peer: &Peer| loads.fails(self.pool, peer.address);
            match loads.is_draining() {
                true => better.sort_by_cached_key(fails),
                false => better.retain(|peer| !fails(peer)),
            }
        }
        better
    }

    /// Whether this node is an outlier of the pool.
    fn is_outlier(&self) -> bool {
        self.judge.as_ref().is_some_and(|judge| judge.is_ejected())
    }

    /// Notes how an exchange with the server of this node has ended.
    pub(super) fn note_exchange(
        &self,
        asked: &ServerRequest,
        answer: &Answer,
        result: &Result<bool, Failure>,
    ) {
        match (answer.status(), result) {
            (Some(status), _) => self.note(Outcome::Status(status)),
            // A server may wait for the rest of a body in vain.
            (None, Err(Failure::Server { .. })) if asked.body.is_whole() => self.note(Outcome::NoResponse),
            (None, _) => {}
        }
    }

    /// Notes how a request at the server of this node has ended.
    pub(super) fn note(&self, outcome: Outcome) {
        self.judge.iter().for_each(|judge| judge.note(outcome));
    }
}

/// A pool that other nodes have.
pub(crate) struct Elsewhere {
    /// Id of the pool.
    pool: u32,
    nodes: Vec<Peer>,
    loads: Arc<Loads>,
    turn: AtomicUsize,
    /// What their servers speak.
    pub(super) protocol: ServerProtocol,
    /// Address of one of their servers, each time of the next.
    pub(super) address: ServerAddress,
    /// Their servers for clients that speak HTTP/1.1.
    pub(super) servers: Servers,
    pub(super) forwarder: Forwarder,
    /// The server of each node, if it speaks HTTP/2.
    multiplexed: Vec<Arc<Multiplexed>>,
}

impl Elsewhere {
    fn new(pool: PoolNodes, service: &str, shared: &Shared, fields: usize) -> Self {
        let PoolNodes { name, others: nodes, protocol, .. } = pool;
        let (pool, peers, loads) = (pool_id(&name), &shared.peers, Arc::clone(&shared.loads));
        let address = ServerAddress::at_pool(peers, service, nodes.clone(), (pool, Arc::clone(&loads)));
        let single = |peer: &Peer| {
            let address = ServerAddress::at_peers(peers, service, vec![peer.clone()]);
            Arc::new(Multiplexed::new(address, Some(peer.name.as_str().into())))
        };
        let multiplexed: Vec<_> = nodes.iter().map(single).collect();
        let servers = match protocol {
            ServerProtocol::Http11 => Servers::new(address.clone()),
            ServerProtocol::H2c => Servers::bridged(Bridge::new(multiplexed.clone(), fields)),
        };
        Elsewhere {
            pool,
            nodes,
            loads,
            turn: AtomicUsize::new(0),
            protocol,
            servers,
            forwarder: forwarder(address.clone(), Vec::new()),
            address,
            multiplexed,
        }
    }

    /// The nodes, beginning with the next in rotation; outliers come last.
    pub(super) fn in_turn(&self) -> Vec<Peer> {
        self.rotated(&self.nodes)
    }

    /// Their servers in HTTP/2 in the same order.
    pub(super) fn multiplexed_in_turn(&self) -> Vec<Arc<Multiplexed>> {
        self.rotated(&self.multiplexed)
    }

    fn rotated<T: Clone>(&self, all: &[T]) -> Vec<T> {
        let mut all: Vec<_> = std::iter::zip(&self.nodes, all).collect();
        let len = all.len().max(1);
        all.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % len);
        all.sort_by_cached_key(|(node, _)| self.loads.fails(self.pool, node.address));
        all.into_iter().map(|(_, one)| one.clone()).collect()
    }
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
    fn new(
        config: ServiceConfig,
        counters: Arc<Counters>,
        shared: &Shared,
        kernel: KernelTls,
    ) -> Result<Self, rustls::Error> {
        let handshakes = Handshakes::new(
            Arc::clone(&config.certificates),
            config.protocols,
            config.versions,
            config.tickets,
            config.client_certificates,
        )?;
        let fields = config.limits.http.fields;
        let way = |nodes: PoolNodes| match nodes.here {
            true => PoolWay::Here(Here::new(nodes)),
            false => PoolWay::Elsewhere(Box::new(Elsewhere::new(nodes, &config.name, shared, fields))),
        };
        let names = config.pools.iter().map(|pool| (pool.name.clone(), pool.policy));
        let resumes = config.pools.iter().any(|pool| pool.here && pool.resume != Resume::Off);
        let name = Arc::from(config.name.as_str());
        let single = SingleNodes::new(&shared.peers, &name, config.server.clone());
        let multiplexed = Arc::new(Multiplexed::new(config.server.clone(), None));
        let bridge = Bridge::new(vec![Arc::clone(&multiplexed)], fields);
        Ok(Service {
            pool_names: names.collect(),
            node: config.node.into(),
            certificates: config.certificates,
            pools: config.pools.into_iter().map(way).collect(),
            busy: config.busy,
            hand_over: config.hand_over,
            kernel: if config.ktls && !resumes { kernel } else { KernelTls::None },
            insurer: resumes.then(|| (Arc::clone(&shared.insurer), config.resume_after)),
            name,
            routes: config.routes,
            secret: config.secret,
            shared_out: AtomicU64::new(0),
            servers: Servers::new(config.server.clone()),
            forwarder: forwarder(config.server.clone(), Vec::new()),
            server: config.server,
            multiplexed,
            bridged: Servers::bridged(bridge),
            single,
            told: Told { address: config.client_address, certificates: handshakes.has_client_certificates() },
            handshakes,
            limits: config.limits,
            rates: config.rates,
            admitted: config.admitted,
            counters,
        })
    }

    /// Where a request goes.
    pub(super) fn way(&self, head: &Head<'_>, client: IpAddr, spoken: Protocol) -> Way<'_> {
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
                self.pool_here(action).unwrap_or_else(|| self.share(split, client))
            }
        };
        match self.pools.get(pool) {
            Some(PoolWay::Here(here)) => Way::Here(here, route),
            Some(PoolWay::Elsewhere(others)) => Way::Elsewhere(others, route),
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

    /// Id of a pool that mirrors requests, and the node that gets the next copy; None if it is this one.
    pub(super) fn mirroring(&self, mirror: Mirror) -> Option<(u32, Option<Peer>)> {
        match self.pools.get(mirror.pool)? {
            PoolWay::Here(here) => Some((here.pool, None)),
            PoolWay::Elsewhere(others) => Some((others.pool, Some(others.in_turn().into_iter().next()?))),
        }
    }

    /// Ids of the pools of which this node is an outlier.
    pub(super) fn failing(&self) -> Vec<u32> {
        let failing = |pool: &PoolWay| match pool {
            PoolWay::Here(here) => here.is_outlier().then_some(here.pool),
            PoolWay::Elsewhere(_) => None,
        };
        self.pools.iter().filter_map(failing).collect()
    }

    /// The server of this node in a pool, for clients that speak HTTP/1.1.
    pub(super) fn servers_in(&self, here: &Here) -> &Servers {
        match here.protocol {
            ServerProtocol::Http11 => &self.servers,
            ServerProtocol::H2c => &self.bridged,
        }
    }

    /// Whether servers of a pool speak HTTP/2.
    pub(super) fn has_http2_servers(&self) -> bool {
        self.pools.iter().any(|pool| match pool {
            PoolWay::Here(here) => here.protocol == ServerProtocol::H2c,
            PoolWay::Elsewhere(others) => others.protocol == ServerProtocol::H2c,
        })
    }

    /// Whether a pool that this node is in has other nodes.
    pub(super) fn has_other_nodes(&self) -> bool {
        self.pools.iter().any(|pool| matches!(pool, PoolWay::Here(here) if !here.others.is_empty()))
    }

    /// The first pool of the action that this node is in.
    pub(super) fn pool_here(&self, action: &Action) -> Option<usize> {
        action.pools().find(|pool| matches!(self.pools.get(*pool), Some(PoolWay::Here(_))))
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
