//! The paper's three models of a cluster that ends TLS: round robin, session-aware, session-aware with forwarding.
//!
//! Each node has a small part of a CPU, so that a load exceeds the nodes, and not the machine. All models are services
//! of one cluster and take turns, with the same clients and the same times of arrival within a round. Each load begins
//! with clients that have connected once, so that they have a session.

mod report;
mod sample;
mod workload;

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

pub use sample::{Model, NodeShare, Sample};
use sample::{NODES, QUOTA};
use serde::Deserialize;
use switchback_lab::{Error, Host, Lab, PageServerOptions, Result, pseudo_random};
use workload::{CLIENTS, Workload};

use super::cpu::CpuMeter;
use super::systems;
use super::tls_load::open::{self, Arrival, Outcome};
use super::tls_load::{Certificate, Client, Document, KeyKind, Requests, Version, closed};
use super::{Experiment, Options, Progress, in_turn, tls_load};

const SERVER: &str = "127.0.0.1:8080";
/// Workers of each node's page server. The paper's contents are dynamic, of unknown cost.
const WORKERS: u32 = 4;
/// Rounds of work for a page, about a millisecond.
const ROUNDS: u32 = 500;
/// Timeout of the clients.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Rate with the smallest k, relative to the capacity of the session-aware cluster under even load.
const MOST: f64 = 1.1;
/// Concurrent conversations, and duration, of the measurement of capacity.
const CAPACITY_CLIENTS: usize = 8 * NODES;
const CAPACITY: Duration = Duration::from_secs(2);
/// Interval between the first visits of clients.
const VISIT: Duration = Duration::from_millis(4);
/// Timeout for the cluster to reach an expected state.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// The paper's models under the paper's load.
#[derive(Clone, Debug)]
pub struct TlsForwarding {
    /// Values of the paper's parameter k; the smallest is the greatest load.
    pub k: Vec<u32>,
}

impl TlsForwarding {
    /// Some of the paper's values.
    pub const K: [u32; 5] = [45, 40, 35, 30, 25];
}

impl Experiment for TlsForwarding {
    type Sample = Sample;
    const NAME: &'static str = "tls-forwarding";
    const SECONDS: u32 = 4;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v")];

    fn nodes(&self) -> usize {
        NODES
    }

    fn facts(&self) -> Result<Vec<(String, String)>> {
        let quota = format!("{NODES}, each with {QUOTA}/1000 of a CPU");
        Ok(vec![("Nodes".to_owned(), quota)])
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let documents = workload::documents();
        let cluster = Cluster::start(lab, &options.program, &documents)?;
        let capacity = cluster.capacity(&documents)?;
        let seconds = f64::from(options.seconds);
        let most = f64::from(self.k.iter().copied().min().unwrap_or(1));
        let workload = Workload { documents: &documents, seed: 0, k: most, unit: 0.0 };
        let workload = workload.with_rate(MOST * capacity, seconds, options.repetitions);
        progress.expect(Model::ALL.len() * self.k.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &k in &self.k {
                let workload = Workload { seed: repetition.into(), k: k.into(), ..workload };
                let arrivals = workload.arrivals(seconds);
                for &model in in_turn(&Model::ALL, repetition) {
                    let (outcome, nodes) = cluster.load(model, &arrivals)?;
                    let offered = arrivals.len() as f64 / seconds;
                    let load = offered / capacity;
                    let sample = Sample { repetition, model, k, offered, load, outcome, nodes };
                    progress.loaded(&report::describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

/// A running cluster.
struct Cluster<'a> {
    lab: &'a Lab,
    program: &'a Path,
    certificate: Certificate,
    text: Vec<u8>,
    /// For each node, its agent, its server and its page server together.
    meters: Vec<CpuMeter>,
}

impl<'a> Cluster<'a> {
    fn start(lab: &'a Lab, program: &'a Path, documents: &[Document]) -> Result<Cluster<'a>> {
        let text = pseudo_random(documents.iter().map(|document| document.len).max().unwrap_or(0));
        for Document { path, len } in documents {
            lab.add_document(path.trim_start_matches('/'), &text[..*len])?;
        }
        let certificate = Certificate::create(lab, KeyKind::Rsa)?;
        tls_load::prepare(lab.client(0))?;
        lab.nodes().try_for_each(Host::group_cpu)?;
        let listen = vec![SERVER.parse().expect("it is an address")];
        let server = PageServerOptions { listen, workers: WORKERS, rounds: ROUNDS };
        let servers = lab.nodes().map(|node| node.page_server(&server)).collect::<Result<Vec<_>>>()?;
        let config = lab.write_config_text(&config())?;
        let daemons = systems::start_switchback(lab, program, &config)?;
        let meters = lab.nodes().zip(servers.iter().zip(daemons.agents())).map(|(node, (server, agent))| {
            let processes = [Some(agent), Some(server.process()), server.backend()];
            CpuMeter::of_all(node, processes.into_iter().flatten())
        });
        let meters = meters.collect::<Result<_>>()?;
        let cluster = Cluster { lab, program, certificate, text, meters };
        wait_until("nodes are known to the switch", || cluster.all_nodes_serve())?;
        lab.nodes().try_for_each(|node| node.limit_cpu(QUOTA))?;
        Ok(cluster)
    }

    fn clients(&self, count: usize) -> Result<Vec<Client>> {
        (0..count).map(|_| self.certificate.client(Version::Tls12, true)).collect()
    }

    fn address(&self, model: Model) -> SocketAddr {
        (self.lab.vip4(), model.port()).into()
    }

    /// Capacity in conversations per second, with returning clients of equal rates.
    fn capacity(&self, documents: &[Document]) -> Result<f64> {
        let clients = self.clients(CAPACITY_CLIENTS)?;
        let workload = Workload { documents, seed: 1, k: 1.0, unit: 1.0 };
        let mut state = workload.seed;
        let mut done = closed::Done::default();
        // In the first round clients have no sessions.
        for _ in 0..2 {
            let address = self.address(Model::Session);
            let requests = || Requests::Each(workload.conversation(&mut state));
            done = closed::run(self.lab.client(0), address, &self.text, &clients, requests, CAPACITY)?;
            self.wait_until_quiet(Model::Session)?;
        }
        if done.errors > 0 {
            return Err(Error::Invalid(format!(
                "{} of {} conversations failed",
                done.errors, done.conversations
            )));
        }
        Ok(done.conversations as f64 / done.lasted.as_secs_f64())
    }

    /// Runs a load of clients with a session each.
    fn load(&self, model: Model, arrivals: &[Arrival]) -> Result<(Outcome, Vec<NodeShare>)> {
        let clients = self.clients(CLIENTS)?;
        let run = |arrivals: &[Arrival]| {
            open::run(self.lab.client(0), self.address(model), &self.text, &clients, arrivals, TIMEOUT)
        };
        let small =
            arrivals.iter().flat_map(|arrival| &arrival.documents).min_by_key(|document| document.len);
        let visit = |client: usize| Arrival {
            at: VISIT * client as u32,
            client,
            documents: small.into_iter().cloned().collect(),
        };
        run(&(0..CLIENTS).map(visit).collect::<Vec<_>>())?;
        self.wait_until_quiet(model)?;
        let before = self.shares(model)?;
        let outcome = run(arrivals)?;
        self.wait_until_quiet(model)?;
        let after = self.shares(model)?;
        let difference = |(after, before): (NodeShare, &NodeShare)| NodeShare {
            handshakes: after.handshakes - before.handshakes,
            responses: after.responses - before.responses,
            cpu: after.cpu.saturating_sub(before.cpu),
            given: after.given - before.given,
            requests_given: after.requests_given - before.requests_given,
        };
        Ok((outcome, after.into_iter().zip(&before).map(difference).collect()))
    }

    /// The nodes' work so far.
    fn shares(&self, model: Model) -> Result<Vec<NodeShare>> {
        let share = |(node, meter): (&Host, &CpuMeter)| {
            let status = self.service(node, model)?;
            Ok(NodeShare {
                handshakes: status.handshakes + status.resumed,
                responses: status.responses,
                cpu: meter.read()?.process,
                given: status.given,
                requests_given: status.requests_given,
            })
        };
        self.lab.nodes().zip(&self.meters).map(share).collect()
    }

    fn service(&self, node: &Host, model: Model) -> Result<ServiceStatus> {
        let status: NodeStatus = systems::status(node, self.program)?;
        let of_model = |service: &ServiceStatus| service.service == model.service();
        let found = status.tls.into_iter().find(of_model);
        found.ok_or_else(|| Error::NotFound(format!("{} has no service {}", node.name(), model.service())))
    }

    /// Waits until the nodes have finished work for clients that timed out.
    fn wait_until_quiet(&self, model: Model) -> Result<()> {
        self.lab.nodes().try_for_each(|node| {
            wait_until("connections end", || Ok(self.service(node, model)?.connections == 0))
        })
    }

    fn all_nodes_serve(&self) -> Result<bool> {
        let status: SwitchStatus = systems::status(self.lab.switch(0), self.program)?;
        let mut listeners = status.nodes.iter().map(|node| &node.listeners);
        let serves = |listeners: &Vec<ListenerStatus>| {
            listeners.len() == Model::ALL.len() && listeners.iter().all(|listener| listener.state == "up")
        };
        Ok(status.nodes.len() == NODES && listeners.all(serves))
    }
}

/// Polls until the daemons' status, for which there are no events, satisfies `is_so`.
fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > PATIENCE {
            return Err(Error::Timeout { waiting_for: what.to_owned(), after: PATIENCE, log: String::new() });
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// The relevant part of `switchback status --json` on a switch.
#[derive(Deserialize)]
struct SwitchStatus {
    nodes: Vec<SwitchNode>,
}

#[derive(Deserialize)]
struct SwitchNode {
    listeners: Vec<ListenerStatus>,
}

#[derive(Deserialize)]
struct ListenerStatus {
    state: String,
}

/// The relevant part of `switchback status --json` on a node.
#[derive(Deserialize)]
struct NodeStatus {
    tls: Vec<ServiceStatus>,
}

#[derive(Deserialize)]
struct ServiceStatus {
    service: String,
    connections: u64,
    handshakes: u64,
    resumed: u64,
    responses: u64,
    given: u64,
    requests_given: u64,
}

fn config() -> String {
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n{nodes}\n".to_owned();
    for model in Model::ALL {
        let (name, port) = (model.service(), model.port());
        text += &format!(
            "[[pool]]\nname = \"{name}\"\nnodes = [{{node_names}}]\npolicy = \"round-robin\"\n\n\
             [[service]]\nname = \"{name}\"\nlisten = [\"{{vip4}}:{port}\"]\nroute = [{{ pool = \"{name}\" }}]\n\n"
        );
        text += &tls_load::service_table(SERVER, &model.lines());
    }
    text
}
