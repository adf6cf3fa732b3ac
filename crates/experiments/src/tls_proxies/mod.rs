//! Switchback, whose nodes end TLS, beside two proxies that end it themselves: HAProxy and nginx.
//!
//! All have the same servers, certificate (ECDSA, P-256) and clients: keys by X25519, AES-128-GCM, tickets. All run on
//! one lab from beginning to end and take turns. A proxy does the work of TLS on the balancer's host, Switchback on the
//! nodes; so the CPU time of both is counted. Behind XDP alone the nodes' nginx ends TLS. The clients of HTTP/2 are h2load's, with the same keys and ciphers.

mod report;
mod sample;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sample::{LARGE_PATH, SMALL_PATH, SYSTEMS, Unit};
pub use sample::{Results, Sample, WORKLOADS, Workload};
use switchback_lab::{Builder, Doing, Host, Lab, ONE_MIB, Result, SMALL, ServerOptions, pseudo_random};

use super::comparison::{Basis, Good, Measure, Repetitions};
use super::cpu::{CpuMeter, CpuTimes};
use super::systems::{self, Running, System};
use super::tls_load::{self, BOTH, Certificate, Client, Document, KeyKind, NAME, Requests, closed};
use super::{Experiment, Options, Progress, h2load, in_turn};

/// What runs are compared by.
pub(super) const BASIS: Basis = Basis {
    experiment: TlsProxies::NAME,
    workload: "workload",
    system: "system",
    systems: ["Switchback", "HAProxy"],
    repetitions: Repetitions::Together,
    measures: &[
        Measure {
            column: "units_per_s",
            ratio: "handshakes, requests or MB/s ÷ HAProxy's",
            good: Good::High,
        },
        Measure { column: "balancer_us_per_unit", ratio: "balancer's CPU ÷ HAProxy's", good: Good::Low },
        Measure { column: "hosts_us_per_unit", ratio: "all hosts' CPU ÷ HAProxy's", good: Good::Low },
    ],
};

const NODES: usize = 2;
const WARM_UP: Duration = Duration::from_secs(1);
/// The options of [`proxies`](super::proxies).
const NODE_OPTIONS: &str = "tcp_nopush on;";
/// Bytes of a key that encrypts tickets, in nginx.
const TICKET_KEY: usize = 80;
/// Number of concurrent streams of a connection with HTTP/2, which all systems allow.
const STREAMS: u32 = 100;

/// Switchback beside HAProxy and nginx, over TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsProxies {
    /// The CSV file of an earlier run, with whose ratios to HAProxy those of this one are compared.
    pub compare: Option<PathBuf>,
}

impl Experiment for TlsProxies {
    type Sample = Sample;
    const NAME: &'static str = "tls-proxies";
    const SECONDS: u32 = 4;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] =
        &[("haproxy", "-v"), ("nginx", "-v"), ("h2load", "--version")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn builder(&self) -> Builder {
        systems::builder_with_forwarder(NODES)
    }

    fn facts(&self) -> Result<Vec<(String, String)>> {
        // The version of the library that both proxies are linked with.
        let version = super::machine::version("openssl".as_ref(), "version")?;
        Ok(vec![("OpenSSL, of the proxies".to_owned(), version)])
    }

    fn check(&self) -> Result<()> {
        BASIS.check(self.compare.as_deref())
    }

    fn comparison(&self, results: &Results) -> Result<String> {
        BASIS.compare(self.compare.as_deref(), &results.csv())
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let text = pseudo_random(ONE_MIB);
        lab.add_document(SMALL_PATH.trim_start_matches('/'), &text[..SMALL])?;
        lab.add_document(LARGE_PATH.trim_start_matches('/'), &text)?;
        let certificate = Certificate::create(lab, KeyKind::Ecdsa)?;
        tls_load::prepare(lab.client(0))?;
        let cluster = Cluster::start(lab, options)?;
        progress.expect(WORKLOADS.len() * SYSTEMS.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        let seconds = Duration::from_secs(options.seconds.into());
        for repetition in 1..=options.repetitions {
            for workload in WORKLOADS {
                for running in in_turn(&cluster.systems, repetition) {
                    let clients =
                        (0..workload.clients).map(|_| certificate.client(workload.version, workload.returns));
                    let clients = clients.collect::<Result<Vec<_>>>()?;
                    // Returning clients have a session after it.
                    cluster.load(running, workload, &clients, &text, WARM_UP)?;
                    let before = cluster.cpu_times(running)?;
                    let done = cluster.load(running, workload, &clients, &text, seconds)?;
                    let after = cluster.cpu_times(running)?;
                    let (balancer, nodes) = (after.0 - before.0, after.1 - before.1);
                    let sample =
                        Sample { repetition, workload, system: running.system, done, balancer, nodes };
                    progress.loaded(&report::describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

struct Cluster<'a> {
    lab: &'a Lab,
    systems: Vec<Running>,
    /// For each node, its agent and its server.
    nodes: Vec<CpuMeter>,
}

impl<'a> Cluster<'a> {
    fn start(lab: &'a Lab, options: &Options) -> Result<Cluster<'a>> {
        let forwarder = systems::start_forwarder(lab)?;
        let tickets = lab.directory().join("tickets");
        fs::write(&tickets, pseudo_random(TICKET_KEY)).doing(|| format!("write {}", tickets.display()))?;
        let both = lab.directory().join(BOTH);
        let extra = format!(
            "{NODE_OPTIONS} listen {} ssl http2; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {both}; \
             ssl_certificate_key {both}; ssl_session_ticket_key {tickets};",
            forwarder.address(NODES),
            both = both.display(),
            tickets = tickets.display(),
        );
        let servers = lab.nodes().map(|node| {
            // Not at the VIP's address, where the agent listens.
            let port = System::Direct.port(NODES);
            let listen = vec![(node.ipv4(), port).into(), server()];
            let server = ServerOptions { listen, extra: extra.clone(), ..ServerOptions::default() };
            node.nginx(&server)
        });
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let config = lab.write_config_text(&config())?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        let nodes = lab.nodes().zip(daemons.agents().iter().zip(&servers));
        let nodes = nodes.map(|(node, (agent, server))| CpuMeter::of_all(node, [agent, server.process()]));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let proxy = |system| systems::start_tls_proxy(lab, system, NODES, &both);
        let switchback = Running::switchback(lab, &daemons)?;
        let systems = vec![proxy(System::Haproxy)?, proxy(System::Nginx)?, switchback, forwarder];
        Ok(Cluster { lab, systems, nodes })
    }

    fn load(
        &self,
        running: &Running,
        workload: Workload,
        clients: &[Client],
        text: &[u8],
        limit: Duration,
    ) -> Result<closed::Done> {
        let (client, address) = (self.lab.client(0), running.address(NODES));
        let document = |path: &str, len| Document { path: path.to_owned(), len };
        let requests = match workload.unit {
            Unit::Handshake => Requests::Each(vec![document(SMALL_PATH, SMALL)]),
            Unit::Request => return load_http2(client, address, workload.clients, limit),
            Unit::Megabyte => Requests::ForEver(document(LARGE_PATH, ONE_MIB)),
        };
        closed::run(client, address, text, clients, || requests.clone(), limit)
    }

    /// CPU times of the host between client and nodes, and of the nodes.
    fn cpu_times(&self, running: &Running) -> Result<(CpuTimes, CpuTimes)> {
        Ok((
            running.cpu_times()?.unwrap_or_default(),
            self.nodes.iter().map(CpuMeter::read).sum::<Result<CpuTimes>>()?,
        ))
    }
}

fn load_http2(
    client: &Host,
    server: SocketAddr,
    connections: u32,
    duration: Duration,
) -> Result<closed::Done> {
    let url = format!("https://{NAME}{SMALL_PATH}");
    let load = h2load::Load { server, url: &url, len: SMALL, connections, streams: STREAMS, duration };
    let responses = load.run(client)?;
    Ok(closed::Done {
        handshakes: connections.into(),
        responses,
        bytes: responses * SMALL as u64,
        conversations: connections.into(),
        lasted: duration,
        ..closed::Done::default()
    })
}

/// The address of the server behind an agent.
fn server() -> SocketAddr {
    ([127, 0, 0, 1], System::Direct.port(NODES)).into()
}

fn config() -> String {
    let table = tls_load::service_table(server(), "");
    format!(
        "[cluster]\nkey_file = \"{{key_file}}\"\n\n{{nodes}}\n\
         [[pool]]\nname = \"web\"\nnodes = [{{node_names}}]\npolicy = \"round-robin\"\n\n\
         [[service]]\nname = \"shop\"\nlisten = [\"{{vip4}}:{port}\"]\nroute = [{{ pool = \"web\" }}]\n\n{table}",
        port = System::Switchback.port(NODES),
    )
}
