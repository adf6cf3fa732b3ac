//! The TLS endpoint: takes clients' connections, and takes their requests to the servers of this machine's nodes.
//!
//! It is a runtime of its own beside the agent. Each VIP of a service with TLS has a listener for each thread
//! (`accepting`). What is configured is one immutable `Services` that a reload replaces; each request goes by the service that
//! is configured when it comes. Listeners are told apart by their VIP only, and look the service up for each connection,
//! so a reload leaves a VIP's listeners alone whatever else changes about it.

mod accepting;
mod bridge;
mod budgets;
mod call;
mod client;
mod counters;
mod exchange;
mod flow;
mod forwarding;
mod frames;
mod handshakes;
mod head;
mod http1;
mod http2;
mod idle;
mod insured;
mod insurer;
mod issuing;
mod kernel;
mod load;
mod local;
mod log;
mod memory;
mod messages;
mod mirror;
mod moving;
mod multiplexed;
mod peers;
mod pools;
mod rates;
mod relay;
mod resumption;
mod server;
mod services;
mod shared;
mod sharing;
mod strangers;
mod stream;
mod tasks;
mod trailers;
mod transit;
mod unacknowledged;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use arc_swap::ArcSwap;
use switchback_config::{AccessLog, ServerProtocol};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::{InForce, Issued, TicketKeys};

use accepting::{accept_clients, accept_peers, listen, listen_together};
use load::Loads;
use mirror::Mirrored;
use pools::addresses;
use services::{Service, Services};
use shared::Shared;
use sharing::Sharing;
use tasks::Tasks;

pub use client::StreamError;
pub use counters::{Counter, Counters};
pub use flow::Addresses;
pub use idle::Stream;
pub use insurer::{InsuredResponse, Insurer, Numbers, Policy, Snapshot};
pub use issuing::Teller;
pub use kernel::KernelTls;
pub use log::Counts;
pub use messages::{Batch, hear};
pub use mirror::{Copy, CopyCounts, MirrorServer, Mirrors};
pub use peers::{PORT, Peer, Peers};
pub use pools::PoolNodes;
pub use resumption::{Resumed, Resumer};
pub use server::ServerAddress;
pub use services::{NodeConfig, RequestLimits, ServiceConfig};
pub use transit::{Frozen, Handoff};

/// All services with TLS of a node.
pub struct Endpoint {
    runtime: Runtime,
    threads: usize,
    shared: Arc<Shared>,
    /// By VIP.
    listeners: Tasks,
    sharing: Arc<Sharing>,
    /// The other nodes that have certificates of the CA.
    issuing: Arc<Sharing>,
    /// What the kernel can encrypt.
    kernel: KernelTls,
    /// Connections to nodes that tell their load, by their address.
    watched: Tasks,
    /// Connections to nodes that tell of which pools they are outliers.
    judged: Tasks,
}

impl Endpoint {
    /// An endpoint without services, to which other nodes can connect at `address`. `insurer` hears of their responses. `threads` is the number of threads
    /// for connections; `cpu` is the share of the machine's CPU time in use, in thousandths.
    pub fn new(
        threads: usize,
        address: SocketAddr,
        peers: Peers,
        (ticket_keys, issued): (Arc<TicketKeys>, Arc<Issued>),
        handoff: Arc<dyn Handoff>,
        insurer: Arc<dyn Insurer>,
        cpu: Arc<AtomicU32>,
    ) -> Result<Self, SetError> {
        let threads = threads.max(1);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("tls")
            .enable_io()
            .enable_time()
            .build()
            .map_err(SetError::Threads)?;
        let (peers, copies) = (Arc::new(peers), Arc::<CopyCounts>::default());
        let shared = Arc::new(Shared {
            services: ArcSwap::default(),
            mirrors: Mirrors::on(runtime.handle().clone(), Arc::clone(&peers), Arc::clone(&copies)),
            mirrored: Mirrored::new(copies),
            peers,
            handoff,
            insurer,
            budgets: Arc::default(),
            rates: rates::Rates::default(),
            ticket_keys,
            issued,
            expected: transit::Expected::default(),
            leaving: transit::Leaving::default(),
            loads: Arc::new(Loads { cpu, ..Loads::default() }),
            log: Arc::default(),
        });
        let listener = {
            let _entered = runtime.enter();
            listen(address).map_err(|error| SetError::Listen(address, error))?
        };
        runtime.spawn(accept_peers(listener, Arc::clone(&shared)));
        shared.ticket_keys.renew(Instant::now());
        let sharing = Arc::<Sharing>::default();
        let (peers, keys) = (Arc::clone(&shared.peers), Arc::clone(&shared.ticket_keys));
        let renewing = Arc::clone(&keys);
        runtime.spawn(sharing::share(
            Arc::clone(&sharing),
            move || renewing.renew(Instant::now()),
            move |node| {
                let (peers, keys) = (Arc::clone(&peers), Arc::clone(&keys));
                async move { sharing::exchange_keys(node, &peers, &keys).await }
            },
        ));
        let issuing = Arc::<Sharing>::default();
        let (peers, issued) = (Arc::clone(&shared.peers), Arc::clone(&shared.issued));
        runtime.spawn(sharing::share(
            Arc::clone(&issuing),
            // The node that orders tells what is new itself.
            || false,
            move |node| {
                let (peers, issued) = (Arc::clone(&peers), Arc::clone(&issued));
                async move { issuing::exchange(node, &peers, &issued).await }
            },
        ));
        runtime.spawn(memory::give_back(Arc::clone(&shared.budgets)));
        Ok(Endpoint {
            runtime,
            threads,
            shared,
            listeners: Tasks::default(),
            sharing,
            issuing,
            kernel: KernelTls::of_this_machine(),
            watched: Tasks::default(),
            judged: Tasks::default(),
        })
    }

    /// Runs a task beside those of the endpoint's connections.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(task)
    }

    /// Replaces the other nodes that have certificates of the CA, and returns what tells them at once.
    pub fn set_issuing(&self, nodes: HashSet<SocketAddr>) -> Teller {
        self.issuing.set(nodes);
        let (peers, issued) = (Arc::clone(&self.shared.peers), Arc::clone(&self.shared.issued));
        Teller { sharing: Arc::clone(&self.issuing), peers, issued }
    }

    /// Goes on with responses of other nodes.
    pub fn resumer(&self) -> Resumer {
        Resumer(Arc::clone(&self.shared))
    }

    /// Connections to other nodes.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.shared.peers
    }

    /// Replaces all services. New VIPs listen before anything is changed; the error names the one that cannot.
    pub fn set(&mut self, configs: Vec<ServiceConfig>) -> Result<(), SetError> {
        let vips: HashSet<_> = configs.iter().flat_map(|config| &config.listen).copied().collect();
        let pools = || configs.iter().flat_map(ServiceConfig::pools);
        let nodes = addresses(pools());
        let handing_over = configs.iter().filter(|config| config.busy.is_some());
        let watched = handing_over.flat_map(ServiceConfig::pools).filter(|pool| !pool.here.is_empty());
        let watched = addresses(watched);
        let judged = addresses(pools().filter(|pool| pool.most_ejected.is_some()));
        let bound = self.bind(&vips)?;
        let before = self.shared.services.load();
        let services = Services::new(configs, &before, &self.shared, self.kernel).map_err(SetError::Tls)?;
        before.leave_for(&services);
        self.shared.services.store(Arc::new(services));
        self.listeners.keep(&vips);
        for (vip, listeners) in bound {
            let task = accept_clients(listeners, vip, Arc::clone(&self.shared));
            self.listeners.add(vip, self.runtime.spawn(task));
        }
        self.sharing.set(nodes);
        let (peers, loads) = (&self.shared.peers, &self.shared.loads);
        let watch = |node| load::watch(node, Arc::clone(peers), Arc::clone(loads));
        self.watched.replace(watched, &self.runtime, watch);
        let watch = |node| load::watch_failing(node, Arc::clone(peers), Arc::clone(loads));
        self.judged.replace(judged, &self.runtime, watch);
        Ok(())
    }

    /// Listeners for those of these VIPs that have none.
    fn bind(&self, vips: &HashSet<SocketAddr>) -> Result<Vec<(SocketAddr, Vec<TcpListener>)>, SetError> {
        let _entered = self.runtime.enter();
        let bind = |vip: &SocketAddr| match listen_together(*vip, self.threads) {
            Ok(listeners) => Ok((*vip, listeners)),
            Err(error) => Err(SetError::Listen(*vip, error)),
        };
        vips.iter().filter(|vip| !self.listeners.has(vip)).map(bind).collect()
    }

    /// Replaces the servers that get copies of requests, with what they speak.
    pub fn set_mirrored(
        &self,
        servers: impl IntoIterator<Item = (MirrorServer, ServerAddress, ServerProtocol)>,
    ) {
        self.shared.mirrored.set(servers);
    }

    /// Counts of copies of requests.
    pub fn copies(&self) -> &CopyCounts {
        self.shared.mirrors.counts()
    }

    /// Replaces the access log; after an error the old one goes on.
    pub fn set_log(&self, log: Option<&AccessLog>) -> Result<(), SetError> {
        self.shared.log.set(log).map_err(SetError::Log)
    }

    /// Opens the file of the access log again, because it has been renamed.
    pub fn reopen_log(&self) {
        self.shared.log.reopen();
    }

    /// Counts of lines of the access log.
    pub fn log_counts(&self) -> &Counts {
        self.shared.log.counts()
    }

    /// Replaces the keys of the cluster; false if they make no key for nodes.
    pub fn set_keys(&self, cluster_keys: &[[u8; 32]]) -> bool {
        self.shared.peers.set_keys(cluster_keys)
    }

    /// Sets which nodes of this machine drain, by name: connections then go to other nodes at their next request; and whose servers
    /// are ill, by the names of service, pool and node.
    pub fn set_standing(&self, drains: impl Fn(&str) -> bool, is_ill: impl Fn(&str, &str, &str) -> bool) {
        for service in self.shared.services.load().iter() {
            service.set_standing(&drains, |pool, node| is_ill(&service.name, pool, node));
        }
    }

    /// Name of the service and certificate, of all certificates that clients get.
    pub fn certificates(&self) -> Vec<(Arc<str>, InForce)> {
        let services = self.shared.services.load();
        let of = |service: &Arc<Service>| {
            let name = Arc::clone(&service.name);
            service.certificates.in_force().into_iter().map(move |one| (Arc::clone(&name), one))
        };
        services.iter().flat_map(of).collect()
    }

    /// Name and counts of each service.
    pub fn counters(&self) -> Vec<(Arc<str>, Arc<Counters>)> {
        let services = self.shared.services.load();
        services.iter().map(|service| (Arc::clone(&service.name), Arc::clone(&service.counters))).collect()
    }
}

/// Ends all connections.
impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.log.close();
    }
}

/// Without keys.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

/// Why the endpoint could not be started or changed.
#[derive(Debug)]
pub enum SetError {
    /// The threads could not be started.
    Threads(io::Error),
    /// Nothing can listen at this address.
    Listen(SocketAddr, io::Error),
    /// The access log could not be opened.
    Log(io::Error),
    /// rustls refuses the configuration.
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
