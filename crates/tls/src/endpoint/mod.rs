//! The TLS endpoint: takes clients' connections, and takes their requests to the server of this node.
//!
//! It is a runtime of its own beside the agent, with a listener for each VIP of a service with TLS. What the configuration
//! says can be replaced while it runs; connections that there are go on as they began.

mod budgets;
mod exchange;
mod head;
mod http1;
mod http2;
mod kernel;
mod load;
mod log;
mod memory;
mod moving;
mod peers;
mod relay;
mod server;
mod sharing;
mod strangers;
mod stream;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ::log::debug;
use rustls::server::ResolvesServerCert;
use rustls::{ServerConfig, SupportedProtocolVersion};
use switchback_config::{AccessLog, Action, ClientAddress, HandOver, Protocol, TlsLimits};
use switchback_http::{Head, Limits};
use switchback_policy::Busy;
use switchback_routes::Routes;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::{Certificates, TicketKeys, Tickets};

use budgets::{Always, Budgets, Kind};
use load::Loads;
use moving::{Expected, Leaving};
use peers::{Opening, hear, say};
use server::PeersOf;
use sharing::Sharing;

pub use kernel::KernelTls;
pub use log::Counts;
pub use moving::{Addresses, Frozen, Handoff, Peer};
pub use peers::{PORT, Peers};
pub use server::ServerAddress;
pub use stream::StreamError;

/// How often a silent client of HTTP/2 is asked whether it is still there.
const H2_KEEP_ALIVE: Duration = Duration::from_secs(30);
/// So long a node may take to answer another, when it has nothing to wait for.
const ANSWER: Duration = Duration::from_secs(3);
/// So long a connection between nodes may have nothing to do; longer than [`peers`] keep one.
const PEER_IDLE: Duration = Duration::from_secs(60);
/// The accept queue of each VIP.
const BACKLOG: u32 = 1024;

/// Adds up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn less(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// What it is now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a service has done since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections that there are.
    pub connections: Counter,
    /// Handshakes that needed a certificate.
    pub handshakes: Counter,
    /// Handshakes that went on with an earlier session.
    pub resumed: Counter,
    /// Handshakes that failed, or were not done in time.
    pub failed: Counter,
    /// Requests.
    pub requests: Counter,
    /// Responses of the server.
    pub responses: Counter,
    /// Requests that were answered here, with an error.
    pub refused: Counter,
    /// Connections that were closed at once, because there were too many.
    pub connections_refused: Counter,
    /// Connections that were closed at once, because there were too many handshakes.
    pub handshakes_refused: Counter,
    /// Streams of HTTP/2 that were refused, because there were too many.
    pub streams_refused: Counter,
    /// Connections that were given to other nodes, in the middle.
    pub given: Counter,
    /// Connections that other nodes have given.
    pub taken: Counter,
    /// Requests that were forwarded to other nodes.
    pub forwarded: Counter,
    /// Requests given to another node, which makes and encrypts the response.
    pub requests_given: Counter,
    /// Requests of other nodes' clients that were given to this one.
    pub requests_taken: Counter,
    /// Connections whose records the kernel has begun to encrypt.
    pub kernel: Counter,
}

/// How long requests may be, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Of heads and bodies.
    pub http: Limits,
    /// For a handshake, and for a head.
    pub head_timeout: Duration,
    /// Of connections, handshakes and streams.
    pub tls: TlsLimits,
}

/// What the configuration says of a service.
pub struct ServiceConfig {
    /// Its name.
    pub name: String,
    /// That of this node.
    pub node: String,
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// For each client the one of the name that it wants.
    pub certificates: Arc<Certificates>,
    /// Seals sessions.
    pub tickets: Arc<Tickets>,
    /// Spoken above TLS, the preferred first.
    pub protocols: Vec<Vec<u8>>,
    /// Which versions of TLS are spoken.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// Where requests go.
    pub server: ServerAddress,
    /// How it learns who the client is.
    pub client_address: ClientAddress,
    /// Which requests go where.
    pub routes: Routes,
    /// Who has each pool, by its index.
    pub pools: Vec<PoolNodes>,
    /// When this node is to hand connections over to others; None: never.
    pub busy: Option<Busy>,
    /// And how.
    pub hand_over: HandOver,
    /// The kernel may encrypt what is sent, if it can. Not with [`HandOver::Relay`]: what another node has encrypted
    /// passes no kernel that encrypts.
    pub ktls: bool,
    /// What clients may ask for.
    pub limits: RequestLimits,
}

/// Who has a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolNodes {
    /// The pool's name.
    pub name: String,
    /// That of its policy.
    pub policy: &'static str,
    /// This node does.
    pub here: bool,
    /// And these others.
    pub others: Vec<Peer>,
}

/// A service as its connections know it.
pub(crate) struct Service {
    name: Arc<str>,
    /// The name of this node.
    node: Arc<str>,
    tls: ServerConfig,
    routes: Routes,
    servers: server::Servers,
    forwarder: http2::Forwarder,
    single: http2::SingleNodes,
    /// By the index of the pool.
    pools: Vec<PoolWay>,
    /// Name and policy of each.
    pool_names: Vec<(String, &'static str)>,
    busy: Option<Busy>,
    hand_over: HandOver,
    /// What the kernel does for its connections.
    kernel: KernelTls,
    client_address: ClientAddress,
    limits: RequestLimits,
    counters: Arc<Counters>,
}

/// Where the requests for a pool go.
enum PoolWay {
    /// To the server of this node; these others have one, too.
    Here(Vec<Peer>),
    Elsewhere(Elsewhere),
}

/// A pool that other nodes have.
pub(crate) struct Elsewhere {
    nodes: Vec<Peer>,
    turn: AtomicUsize,
    servers: server::Servers,
    forwarder: http2::Forwarder,
}

impl Elsewhere {
    fn new(nodes: Vec<Peer>, service: &str, peers: &Arc<Peers>) -> Self {
        let address = ServerAddress::Peers(Arc::new(PeersOf {
            peers: Arc::clone(peers),
            service: service.to_owned(),
            nodes: nodes.clone(),
            turn: AtomicUsize::new(0),
        }));
        Elsewhere {
            nodes,
            turn: AtomicUsize::new(0),
            servers: server::Servers::new(address.clone()),
            forwarder: http2::forwarder(address, Vec::new()),
        }
    }

    /// The nodes, from the one on whose turn it is.
    fn in_turn(&self) -> Vec<Peer> {
        let mut nodes = self.nodes.clone();
        let len = nodes.len().max(1);
        nodes.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % len);
        nodes
    }
}

/// What all services have in common.
pub(crate) struct Shared {
    peers: Arc<Peers>,
    handoff: Arc<dyn Handoff>,
    budgets: Arc<Budgets>,
    ticket_keys: Arc<TicketKeys>,
    sharing: Sharing,
    expected: Expected,
    leaving: Leaving,
    loads: Loads,
    kernel: KernelTls,
    log: Arc<log::Book>,
    services: RwLock<HashMap<String, Arc<RwLock<Arc<Service>>>>>,
}

impl Shared {
    fn service(&self, name: &str) -> Option<Arc<Service>> {
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner);
        let service = services.get(name)?;
        Some(Arc::clone(&service.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Service {
    fn new(config: ServiceConfig, counters: Arc<Counters>, shared: &Shared) -> Result<Self, rustls::Error> {
        let peers = &shared.peers;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(config.versions)?
            .with_no_client_auth()
            .with_cert_resolver(config.certificates as Arc<dyn ResolvesServerCert>);
        tls.alpn_protocols = config.protocols;
        tls.ticketer = config.tickets;
        // One ticket for each connection is enough, and a client that opens several at once may use it for all of them.
        tls.send_tls13_tickets = 1;
        // Sessions without a ticket would stay with this process.
        tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        tls.enable_secret_extraction = true;
        let way = |nodes: PoolNodes| match nodes.here {
            true => PoolWay::Here(nodes.others),
            false => PoolWay::Elsewhere(Elsewhere::new(nodes.others, &config.name, peers)),
        };
        let names = config.pools.iter().map(|pool| (pool.name.clone(), pool.policy));
        Ok(Service {
            pool_names: names.collect(),
            node: config.node.into(),
            pools: config.pools.into_iter().map(way).collect(),
            busy: config.busy,
            hand_over: config.hand_over,
            kernel: if config.ktls { shared.kernel } else { KernelTls::None },
            name: config.name.into(),
            tls,
            routes: config.routes,
            servers: server::Servers::new(config.server.clone()),
            forwarder: http2::forwarder(config.server, Vec::new()),
            single: http2::SingleNodes::default(),
            client_address: config.client_address,
            limits: config.limits,
            counters,
        })
    }

    /// Where a request goes.
    fn way(&self, head: &Head<'_>, spoken: Protocol) -> http1::Way<'_> {
        match self.routes.find_over(head, spoken).map(|route| route.map(|route| &route.action)) {
            Ok(Some(Action::Redirect(redirect))) => http1::Way::Redirect(redirect),
            Ok(Some(Action::Pool(pool))) => match self.pools.get(*pool) {
                Some(PoolWay::Here(others)) => http1::Way::Here(others),
                Some(PoolWay::Elsewhere(others)) => http1::Way::Elsewhere(others),
                None => http1::Way::Nowhere,
            },
            Ok(None) => http1::Way::Nowhere,
            Err(reject) => http1::Way::Refused(reject),
        }
    }
}

/// Says nothing of keys.
impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A service and its listeners.
struct Running {
    service: Arc<RwLock<Arc<Service>>>,
    counters: Arc<Counters>,
    listeners: HashMap<SocketAddr, JoinHandle<()>>,
}

/// All services with TLS of a node.
pub struct Endpoint {
    runtime: Runtime,
    services: HashMap<String, Running>,
    shared: Arc<Shared>,
    /// Nodes that tell how much they have to do.
    watched: HashMap<SocketAddr, JoinHandle<()>>,
}

impl Endpoint {
    /// No service listens yet, but other nodes can connect to `address`. `threads` is how many threads there are for
    /// connections; `cpu` is how much of the machine's CPU time is in use, in thousandths.
    pub fn new(
        threads: usize,
        address: SocketAddr,
        peers: Peers,
        ticket_keys: Arc<TicketKeys>,
        handoff: Arc<dyn Handoff>,
        cpu: Arc<AtomicU32>,
    ) -> Result<Self, SetError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name("tls")
            .enable_io()
            .enable_time()
            .build()
            .map_err(SetError::Threads)?;
        let shared = Arc::new(Shared {
            peers: Arc::new(peers),
            handoff,
            budgets: Arc::default(),
            ticket_keys,
            sharing: Sharing::default(),
            expected: Expected::default(),
            leaving: Leaving::default(),
            loads: Loads { cpu, ..Loads::default() },
            kernel: KernelTls::of_this_machine(),
            log: Arc::default(),
            services: RwLock::default(),
        });
        let listener = {
            let _entered = runtime.enter();
            listen(address).map_err(|error| SetError::Listen(address, error))?
        };
        runtime.spawn(accept_peers(listener, Arc::clone(&shared)));
        shared.ticket_keys.renew(Instant::now());
        runtime.spawn(sharing::share(Arc::clone(&shared)));
        runtime.spawn(memory::give_back(Arc::clone(&shared.budgets)));
        Ok(Endpoint { runtime, services: HashMap::new(), shared, watched: HashMap::new() })
    }

    /// From here on there are these services. What is to listen listens before anything is changed; the error names the
    /// address that cannot.
    pub fn set(&mut self, configs: Vec<ServiceConfig>) -> Result<(), SetError> {
        let mut bound = Vec::new();
        for config in &configs {
            let running = self.services.get(&config.name);
            for vip in &config.listen {
                if running.is_none_or(|running| !running.listeners.contains_key(vip)) {
                    let _entered = self.runtime.enter();
                    let listener = listen(*vip).map_err(|error| SetError::Listen(*vip, error))?;
                    bound.push((config.name.clone(), *vip, listener));
                }
            }
        }
        let handing_over = configs.iter().filter(|config| config.busy.is_some());
        let watched = handing_over.flat_map(|config| &config.pools).filter(|pool| pool.here);
        let watched: HashSet<_> = watched.flat_map(|pool| &pool.others).map(|peer| peer.address).collect();
        let others = configs.iter().flat_map(|config| &config.pools).flat_map(|pool| &pool.others);
        let others: HashSet<_> = others.map(|peer| peer.address).collect();
        let mut made = Vec::new();
        for config in configs {
            let before = self.services.get(&config.name);
            let counters = before.map_or_else(Arc::default, |running| Arc::clone(&running.counters));
            let (name, vips) = (config.name.clone(), config.listen.clone());
            let service = Service::new(config, Arc::clone(&counters), &self.shared);
            let service = service.map_err(SetError::Tls)?;
            made.push((name, vips, counters, Arc::new(service)));
        }
        let names: Vec<&String> = made.iter().map(|(name, ..)| name).collect();
        self.services.retain(|name, running| {
            let stays = names.contains(&name);
            if !stays {
                running.listeners.values().for_each(JoinHandle::abort);
            }
            stays
        });
        for (name, vips, counters, service) in made {
            let running = self.services.entry(name.clone()).or_insert_with(|| Running {
                service: Arc::new(RwLock::new(Arc::clone(&service))),
                counters,
                listeners: HashMap::new(),
            });
            *running.service.write().unwrap_or_else(PoisonError::into_inner) = service;
            running.listeners.retain(|vip, task| {
                let stays = vips.contains(vip);
                if !stays {
                    task.abort();
                }
                stays
            });
            let mut rest = Vec::new();
            for (owner, vip, listener) in bound {
                if owner == name {
                    let (service, shared) = (Arc::clone(&running.service), Arc::clone(&self.shared));
                    let task = self.runtime.spawn(accept(listener, service, shared));
                    running.listeners.insert(vip, task);
                } else {
                    rest.push((owner, vip, listener));
                }
            }
            bound = rest;
        }
        self.shared.sharing.set(others);
        self.watched.retain(|node, task| {
            let stays = watched.contains(node);
            if !stays {
                task.abort();
            }
            stays
        });
        for node in watched {
            let watch = || self.runtime.spawn(load::watch(node, Arc::clone(&self.shared)));
            self.watched.entry(node).or_insert_with(watch);
        }
        let named = self.services.iter().map(|(name, running)| (name.clone(), Arc::clone(&running.service)));
        *self.shared.services.write().unwrap_or_else(PoisonError::into_inner) = named.collect();
        Ok(())
    }

    /// From here on requests are logged there. After an error all is as before.
    pub fn set_log(&self, log: Option<&AccessLog>) -> Result<(), SetError> {
        self.shared.log.set(log).map_err(SetError::Log)
    }

    /// The file of the log has been moved away.
    pub fn reopen_log(&self) {
        self.shared.log.reopen();
    }

    /// What has become of the lines of the log.
    pub fn log_counts(&self) -> &Counts {
        self.shared.log.counts()
    }

    /// From here on these are the keys of the cluster; false if they make no key for nodes.
    pub fn set_keys(&self, cluster_keys: &[[u8; 32]]) -> bool {
        self.shared.peers.set_keys(cluster_keys)
    }

    /// Whether this node is to become idle: connections then go to other nodes at their next request.
    pub fn set_draining(&self, draining: bool) {
        self.shared.loads.draining.store(draining, Ordering::Relaxed);
    }

    /// What each service has done, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&str, &Counters)> {
        self.services.iter().map(|(name, running)| (name.as_str(), &*running.counters))
    }
}

/// Ends all connections.
impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.log.close();
    }
}

/// Says nothing of keys.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("services", &self.services.keys()).finish_non_exhaustive()
    }
}

/// Why services stay what they were.
#[derive(Debug)]
pub enum SetError {
    /// There are no threads to be had.
    Threads(io::Error),
    /// Nothing can listen there.
    Listen(SocketAddr, io::Error),
    /// The access log cannot begin.
    Log(io::Error),
    /// rustls does not want it so.
    Tls(rustls::Error),
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::Threads(error) => write!(f, "cannot begin threads for TLS: {error}"),
            SetError::Listen(address, error) => write!(f, "cannot listen at {address}: {error}"),
            SetError::Log(error) => write!(f, "begin the access log: {error}"),
            SetError::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SetError {}

/// A listener for this VIP only, so that each has an accept queue of its own.
fn listen(vip: SocketAddr) -> io::Result<TcpListener> {
    let socket = if vip.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(vip)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, service: Arc<RwLock<Arc<Service>>>, shared: Arc<Shared>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of descriptors or memory: others may give some back.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let service = Arc::clone(&service.read().unwrap_or_else(PoisonError::into_inner));
        tokio::spawn(serve(socket, service, Arc::clone(&shared)));
    }
}

async fn accept_peers(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // What becomes of it is the other node's to see.
            let _ = serve_peer(socket, &shared).await;
        });
    }
}

async fn serve_peer(socket: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut channel = shared.peers.accept(socket).await?;
    loop {
        match tokio::time::timeout(PEER_IDLE, hear(&mut channel)).await?? {
            Opening::Move(offer) => moving::expect(&mut channel, offer, shared).await?,
            Opening::Relay(request) => channel = relay::answer(channel, request, shared).await?,
            Opening::TicketKeys(told) => {
                shared.ticket_keys.learn(told, Instant::now());
                say(&mut channel, &shared.ticket_keys.tell(Instant::now())).await?;
            }
            Opening::Load => return load::tell(&mut channel, shared).await,
            Opening::Forward { service } => {
                let service = shared.service(&service).ok_or(io::ErrorKind::NotFound)?;
                let mut server = service.servers.connect().await?;
                return tokio::io::copy_bidirectional(&mut channel, &mut server).await.map(drop);
            }
        }
    }
}

/// Counts a connection for as long as there is one.
struct Counted<'a>(&'a Counter);

impl<'a> Counted<'a> {
    fn new(counter: &'a Counter) -> Self {
        counter.add(1);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.less();
    }
}

async fn serve(socket: TcpStream, service: Arc<Service>, shared: Arc<Shared>) {
    let counters = Arc::clone(&service.counters);
    let _counted = (Counted::new(&counters.connections), shared.loads.work());
    // How it ends is the client's to see, and is counted where that matters to others.
    let _ = serve_stream(socket, service, &shared).await;
}

async fn serve_stream(
    socket: TcpStream,
    service: Arc<Service>,
    shared: &Arc<Shared>,
) -> Result<(), StreamError> {
    socket.set_nodelay(true)?;
    let flow = stream::addresses(&socket)?;
    let promised = shared.expected.take(flow);
    let begin = |kind, may_always| {
        shared.budgets.take(kind, &service.name, flow.0.ip(), &service.limits.tls, may_always)
    };
    // One that another node has given up has nowhere else to go.
    let may_always = if promised.is_some() { Always::Yes } else { Always::Never };
    let Some(_connection) = begin(Kind::Connection, may_always) else {
        service.counters.connections_refused.add(1);
        return Ok(());
    };
    if let Some((session, asked)) = promised {
        service.counters.taken.add(1);
        let client = stream::TlsStream::with(socket, session, &service)?;
        debug!("service {}: the connection of {} goes on here", service.name, client.client);
        return http1::serve(client, &service, shared, Some(asked)).await;
    }
    let Some(handshake) = begin(Kind::Handshake, Always::Never) else {
        service.counters.handshakes_refused.add(1);
        return Ok(());
    };
    let mut client = stream::TlsStream::new(socket, &service)?;
    let shaken = tokio::time::timeout(service.limits.head_timeout, client.shake_hands()).await;
    if let Err(error) = shaken.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())) {
        service.counters.failed.add(1);
        log::Connection::new(&client, &service, &shared.log).without_request(Some(error.to_string()));
        return Err(error);
    }
    drop(handshake);
    let facts = client.session.facts();
    if facts.resumed { &service.counters.resumed } else { &service.counters.handshakes }.add(1);
    if facts.protocol.as_deref() == Some(b"h2") {
        http2::serve(client, service, Arc::clone(shared)).await
    } else {
        http1::serve(client, &service, shared, None).await
    }
}
