//! The TLS endpoint of this node.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::SupportedProtocolVersion;
use switchback_acme::Keeper;
use switchback_config::{self as config, Node, Pool, ServerProtocol, Service, Tls, TlsVersion};
use switchback_hello::Tickets as TicketNames;
use switchback_policy::Busy;
use switchback_routes::Routes;
use switchback_runtime::{Doing, Error, Result};
use switchback_status::CopyStatus;
use switchback_status::node::{CertificateStatus, OrderStatus, TlsStatus};
use switchback_tls::endpoint::{
    Endpoint, MirrorServer, NodeConfig, PORT, Peer, Peers, PoolNodes, RequestLimits, ServerAddress,
    ServiceConfig, SetError,
};
use switchback_tls::{Certificates, ClientCertificates, InForce, Issued, TicketKeys, Tickets};
use switchback_wire::keys;
use switchback_wire::report::pool_id;

use crate::drains::Drains;
use crate::health::Checks;
use crate::insurance::{Insurance, Listeners};
use crate::moving::Mover;
use crate::plan::{OwnNode, Plan};
use crate::programs::Programs;
use crate::sender::Sender;

static TLS13_ONLY: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];

/// The TLS endpoint; not running while no service of this node uses TLS.
#[derive(Default)]
pub(crate) struct TlsEndpoint {
    running: Option<Running>,
    ticket_keys: Arc<TicketKeys>,
    /// Certificates of the CA.
    issued: Arc<Issued>,
    cpu: Arc<AtomicU32>,
}

struct Running {
    keeper: Keeper,
    endpoint: Endpoint,
    mover: Mover,
    insurance: Insurance,
}

impl TlsEndpoint {
    /// Applies a plan, and reads certificates again; after an error the endpoint is unchanged.
    pub(crate) fn set(&mut self, plan: &Plan, programs: &Programs<'_>) -> Result<()> {
        let (keys, issued) = (&self.ticket_keys, &self.issued);
        let certificates = plan.issued();
        let domains: HashSet<String> = certificates.iter().filter_map(|all| all.first().cloned()).collect();
        issued.want(domains.clone());
        Keeper::read(&switchback_runtime::state_directory(), &certificates, issued);
        let services =
            plan.tls_services().map(|(service, tls)| service_config(plan, service, tls, (keys, issued)));
        let services = services.collect::<Result<Vec<_>>>()?;
        let mirrored = plan.mirrored();
        if services.is_empty() && mirrored.is_empty() && plan.resume_after() == 0 && !plan.orders() {
            self.running = None;
            return Ok(());
        }
        let Running { keeper, endpoint, mover, insurance } = match &mut self.running {
            Some(running) => running,
            none => none.insert(begin(plan, programs, (keys, issued), &self.cpu)?),
        };
        endpoint.set_log(plan.cluster.access_log.as_ref()).map_err(describe)?;
        endpoint.set(services).map_err(describe)?;
        endpoint.set_mirrored(mirrored);
        if !endpoint.set_keys(&secrets(plan)) {
            return Err(no_key());
        }
        mover.set_key(plan.sign);
        insurance.set(plan, endpoint);
        issued.want_only(domains, plan.orders());
        let teller = endpoint.set_issuing(plan.issuing_nodes());
        match plan.cluster.acme.as_ref().filter(|_| !certificates.is_empty()) {
            Some(acme) => {
                let teller = plan.orders().then_some(teller);
                keeper.set(
                    acme,
                    (&switchback_runtime::state_directory(), certificates),
                    issued,
                    teller,
                    endpoint,
                );
            }
            None => keeper.stop(),
        }
        Ok(())
    }

    /// The insurance of responses.
    pub(crate) fn insurance(&self) -> Option<&Insurance> {
        self.running.as_ref().map(|running| &running.insurance)
    }

    /// Sets the share of the machine's CPU time in use, in thousandths.
    pub(crate) fn set_cpu(&self, share: u16) {
        self.cpu.store(share.into(), Ordering::Relaxed);
    }

    /// Says which nodes of the plan drain, and whose servers are down.
    pub(crate) fn set_standing(&self, plan: &Plan, checks: &Checks, drains: &Drains) {
        let Some(Running { endpoint, .. }) = &self.running else { return };
        let numbers: HashMap<&str, &OwnNode> =
            plan.nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let drains = |node: &str| numbers.get(node).is_none_or(|node| drains.has(node.number));
        let cluster = &plan.cluster;
        let is_ill = |service: &str, pool: &str, node: &str| {
            let service = cluster.services.iter().find(|one| one.name == service);
            let pool = cluster.pools.iter().position(|one| one.name == pool);
            let (Some(service), Some(pool), Some(node)) = (service, pool, numbers.get(node)) else {
                return false;
            };
            checks.are_down(node.index, pool, &service.listen)
        };
        endpoint.set_standing(drains, is_ill);
    }

    /// Opens the access log again after it was renamed.
    pub(crate) fn reopen_log(&self) {
        self.running.iter().for_each(|running| running.endpoint.reopen_log());
    }

    /// Lines of the access log: written, and dropped.
    pub(crate) fn log_counts(&self) -> (u64, u64) {
        self.running.as_ref().map_or((0, 0), |running| {
            let counts = running.endpoint.log_counts();
            (counts.lines.get(), counts.lost.get())
        })
    }

    /// Counts of copies of requests.
    pub(crate) fn copies(&self) -> CopyStatus {
        let counts = self.running.as_ref().map(|running| running.endpoint.copies());
        counts.map_or_else(CopyStatus::default, |counts| CopyStatus {
            sent: counts.sent.get(),
            dropped: counts.dropped.get(),
            answered: counts.answered.get(),
            failed: counts.failed.get(),
        })
    }

    /// Name of the service and certificate, of all certificates that clients get.
    pub(crate) fn certificates(&self) -> Vec<(Arc<str>, InForce)> {
        self.running.as_ref().map_or_else(Vec::new, |running| running.endpoint.certificates())
    }

    /// As [`certificates`](Self::certificates), for the status: of several with one name the one that ends first.
    pub(crate) fn certificate_status(&self) -> Vec<CertificateStatus> {
        let mut all: Vec<CertificateStatus> = self
            .certificates()
            .into_iter()
            .map(|(service, InForce { name, validity })| CertificateStatus {
                service: service.to_string(),
                name,
                not_before: unix(validity.begin),
                not_after: unix(validity.end),
            })
            .collect();
        let key = |one: &CertificateStatus| (one.service.clone(), one.name.clone());
        all.sort_by_key(|one| (key(one), one.not_after));
        all.dedup_by_key(|one| key(one));
        all
    }

    /// How the orders of this node at the CA stand.
    pub(crate) fn orders(&self) -> Vec<OrderStatus> {
        let standings = self.running.iter().flat_map(|running| running.keeper.standings());
        let status = standings.map(|(certificate, standing)| OrderStatus {
            certificate,
            issued: standing.issued,
            failed: standing.failed,
            error: standing.error,
            next: standing.next.map(unix),
        });
        status.collect()
    }

    /// Counters of the TLS services.
    pub(crate) fn status(&self) -> Vec<TlsStatus> {
        let counters = self.running.iter().flat_map(|running| running.endpoint.counters());
        let mut all: Vec<TlsStatus> = counters
            .map(|(service, counters)| TlsStatus {
                service: service.to_string(),
                connections: counters.connections.get(),
                handshakes: counters.handshakes.get(),
                resumed: counters.resumed.get(),
                failed: counters.failed.get(),
                requests: counters.requests.get(),
                responses: counters.responses.get(),
                refused: counters.refused.get(),
                connections_refused: counters.connections_refused.get(),
                handshakes_refused: counters.handshakes_refused.get(),
                streams_refused: counters.streams_refused.get(),
                given: counters.given.get(),
                taken: counters.taken.get(),
                forwarded: counters.forwarded.get(),
                requests_given: counters.requests_given.get(),
                requests_taken: counters.requests_taken.get(),
                kernel: counters.kernel.get(),
                spliced: counters.spliced.get(),
            })
            .collect();
        all.sort_by(|a, b| a.service.cmp(&b.service));
        all
    }
}

/// Seconds since 1970.
fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Starts the endpoint. From now on the process has keys, which must not get into a core file or be read by another
/// process of the same user (prctl(2), PR_SET_DUMPABLE).
fn begin(
    plan: &Plan,
    programs: &Programs<'_>,
    (keys, issued): (&Arc<TicketKeys>, &Arc<Issued>),
    cpu: &Arc<AtomicU32>,
) -> Result<Running> {
    nix::sys::prctl::set_dumpable(false).doing(|| "keep keys out of core files")?;
    let peers = Peers::new(&secrets(plan)).ok_or_else(no_key)?;
    let mover = Mover::new(programs.owned()?, Sender::open()?, plan.signer());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let address = SocketAddr::new(plan.address, PORT);
    let handoff = Arc::new(mover.clone());
    let listeners = Listeners::open()?;
    let insurance = Insurance::new(plan, programs, &listeners)?;
    let insurer = Arc::new(insurance.clone());
    let shared = (Arc::clone(keys), Arc::clone(issued));
    let endpoint = Endpoint::new(threads, address, peers, shared, handoff, insurer, Arc::clone(cpu))
        .map_err(describe)?;
    insurance.accept(&endpoint, listeners);
    Ok(Running { keeper: Keeper::default(), endpoint, mover, insurance })
}

/// The cluster keys; the first one signs.
fn secrets(plan: &Plan) -> Vec<[u8; 32]> {
    plan.cluster.keys.iter().map(|key| *key.as_bytes()).collect()
}

fn no_key() -> Error {
    Error::new("the cluster key makes no key for nodes")
}

fn describe(error: SetError) -> Error {
    let words = Error::new(error.to_string());
    match error {
        SetError::Listen(..) => words.remedy(
            "the agent itself listens there for services with TLS: the server belongs at the address that \
             [service.tls] or [[node]] names as server",
        ),
        SetError::Threads(_) | SetError::Log(_) | SetError::Tls(_) => words,
    }
}

impl Plan {
    /// Ports on which the agent itself is the server.
    pub(crate) fn own_ports(&self) -> Vec<u16> {
        self.tls_services().flat_map(|(service, _)| &service.listen).map(SocketAddr::port).collect()
    }

    /// The nodes of this machine in the pools of a service, each once.
    fn own_nodes_of(&self, service: &Service) -> Vec<&OwnNode> {
        let used: HashSet<usize> = self.cluster.nodes_of(service).collect();
        self.nodes.iter().filter(|node| used.contains(&node.index)).collect()
    }

    /// Whether a node of this machine orders certificates at the CA.
    fn orders(&self) -> bool {
        let orders = self.cluster.acme.as_ref().is_some_and(|acme| self.is_own(acme.node));
        orders && !self.cluster.issued_certificates().is_empty()
    }

    /// The domains of each certificate of the CA that this machine has: all if it orders, or those of its services.
    fn issued(&self) -> Vec<Vec<String>> {
        if self.orders() {
            return self.cluster.issued_certificates();
        }
        let mut all: Vec<Vec<String>> =
            self.tls_services().flat_map(|(_, tls)| tls.issued()).cloned().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Agents of the other machines that have certificates of the CA.
    fn issuing_nodes(&self) -> HashSet<SocketAddr> {
        let Some(acme) = self.cluster.acme.as_ref().filter(|_| !self.issued().is_empty()) else {
            return HashSet::new();
        };
        let has_issued =
            |service: &&Service| service.tls.terminated().is_some_and(|tls| tls.issued().next().is_some());
        let nodes = self
            .cluster
            .services
            .iter()
            .filter(has_issued)
            .flat_map(|service| self.cluster.nodes_of(service));
        let others = nodes.chain([acme.node]).filter(|node| !self.is_own(*node));
        others.map(|node| SocketAddr::new(self.cluster.nodes[node].address, PORT)).collect()
    }

    /// Servers of this machine that get copies of requests, and what they speak.
    fn mirrored(&self) -> Vec<(MirrorServer, ServerAddress, ServerProtocol)> {
        let services = self.cluster.services.iter();
        let mirrors = services.flat_map(|service| {
            let mirrors = service.routes.iter().filter_map(|route| route.mirror);
            mirrors.map(move |mirror| (service, &self.cluster.pools[mirror.pool]))
        });
        let servers = mirrors.flat_map(|(service, pool)| {
            let own = pool.nodes.iter().filter(|node| self.is_own(**node));
            own.map(move |node| (service, pool, &self.cluster.nodes[*node]))
        });
        let servers = servers.map(|(service, pool, node)| {
            let address = match service.tls.terminated() {
                Some(tls) => server_address(tls, node),
                None => ServerAddress::Tcp(node.server_of(service.listen[0])),
            };
            let pool_id = pool_id(&pool.name);
            let server =
                MirrorServer { service: service.name.clone(), pool: pool_id, node: node.name.clone() };
            (server, address, pool.protocol)
        });
        servers.collect()
    }

    /// Services whose TLS ends at agents, with a pool that contains a node of this machine.
    fn tls_services(&self) -> impl Iterator<Item = (&Service, &Tls)> {
        let is_ours = |service: &&Service| self.cluster.nodes_of(service).any(|node| self.is_own(node));
        self.cluster
            .services
            .iter()
            .filter(is_ours)
            .filter_map(|service| Some((service, service.tls.terminated()?)))
    }
}

/// The server of a node, for a service whose TLS ends here.
fn server_address(tls: &Tls, node: &Node) -> ServerAddress {
    match tls.server_of(node).expect("a checked file has a server for each of these nodes") {
        config::Server::Tcp(address) => ServerAddress::Tcp(address),
        config::Server::Unix(path) => ServerAddress::Unix(path),
    }
}

fn service_config(
    plan: &Plan,
    service: &Service,
    tls: &Tls,
    (ticket_keys, issued): (&Arc<TicketKeys>, &Arc<Issued>),
) -> Result<ServiceConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let wrong = |error| Error::new(format!("service {}: {error}", service.name));
    let certificates = Certificates::read(&tls.certificates, issued, &provider).map_err(wrong)?;
    let clients = tls.client_certificates.as_ref();
    let clients = clients.map(|files| ClientCertificates::read(files, &provider).map(Arc::new));
    let clients = clients.transpose().map_err(wrong)?;
    let demands = clients.as_deref().map(ClientCertificates::digest);
    let cluster = &plan.cluster;
    let name_keys: Vec<_> = secrets(plan).iter().map(keys::ticket_name_key).collect();
    let names = TicketNames::new(&name_keys, cluster.nodes.iter().map(|node| node.name.as_str()));
    let limits = &cluster.limits;
    let nodes_of = |index: usize| (index, pool_nodes(plan, &cluster.pools[index], service));
    let pools = service.pools().collect::<HashSet<usize>>().into_iter();
    let mirrors = service.routes.iter().filter_map(|route| route.mirror);
    let mirrors = mirrors.map(|mirror| mirror.pool).collect::<HashSet<usize>>().into_iter();
    let node = |own: &OwnNode| NodeConfig {
        name: own.name.clone(),
        number: own.number,
        server: server_address(tls, &cluster.nodes[own.index]),
        tickets: Tickets::new(
            Arc::clone(ticket_keys),
            names.clone(),
            &service.name,
            &own.name,
            tls.tickets,
            demands,
        ),
    };
    Ok(ServiceConfig {
        name: service.name.clone(),
        nodes: plan.own_nodes_of(service).into_iter().map(node).collect(),
        servers_of_nodes: tls.server.is_none(),
        listen: service.listen.clone(),
        certificates: Arc::new(certificates),
        client_certificates: clients,
        protocols: tls.protocols.iter().map(|protocol| protocol.name().as_bytes().to_vec()).collect(),
        versions: match tls.min_version {
            TlsVersion::Tls12 => rustls::ALL_VERSIONS,
            TlsVersion::Tls13 => &TLS13_ONLY,
        },
        client_address: tls.client_address,
        routes: Routes::new(service.routes.clone()),
        secret: plan.sign,
        pools: pools.map(nodes_of).collect(),
        mirrors: mirrors.map(nodes_of).collect(),
        busy: (tls.model == config::Model::Forwarding)
            .then_some(Busy { connections: tls.busy_connections.into(), cpu: u32::from(tls.busy_cpu) * 10 }),
        hand_over: tls.hand_over,
        ktls: tls.ktls,
        limits: RequestLimits {
            http: switchback_http::Limits {
                head_len: limits.head,
                fields: limits.fields,
                body_len: limits.body.unwrap_or(u64::MAX),
            },
            head_timeout: limits.head_timeout,
            tls: limits.tls,
        },
        rates: switchback_rates::RequestLimits::new(service, limits.wait_timeout, pool_id),
        admitted: service.admitted.clone(),
        resume_after: limits.resume_after,
    })
}

/// The nodes of a pool on other machines.
pub(crate) fn other_nodes(plan: &Plan, pool: &Pool) -> Vec<Peer> {
    let others = pool.nodes.iter().filter(|index| !plan.is_own(**index));
    let peer = |index: &usize| {
        let node = &plan.cluster.nodes[*index];
        Peer { name: node.name.clone(), address: SocketAddr::new(node.address, PORT) }
    };
    others.map(peer).collect()
}

/// The nodes of a pool, with the judges of this machine's servers for the service.
fn pool_nodes(plan: &Plan, pool: &Pool, service: &Service) -> PoolNodes {
    let own = pool.nodes.iter().filter(|index| plan.is_own(**index));
    let here = own.map(|index| {
        let name = &plan.cluster.nodes[*index].name;
        (name.clone(), plan.judges.named(name, &pool.name, &service.name).map(Arc::clone))
    });
    PoolNodes {
        name: pool.name.clone(),
        policy: pool.policy.name(),
        here: here.collect(),
        others: other_nodes(plan, pool),
        resume: pool.resume,
        protocol: pool.protocol,
        most_ejected: pool.outliers.map(|outliers| outliers.most_ejected(pool.nodes.len())),
        empty_status: pool.empty_status,
    }
}
