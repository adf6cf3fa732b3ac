//! The experiment of Verma, Lokhande & Khare, "Eliminating TCP Connection Failure in a Web Server Cluster": connections
//! through a dispatcher that does not know the lengths of the servers' accept queues, and through one that does.
//!
//! As in the paper there are one client, one dispatcher and two servers, and the number of connections varies. The
//! paper gives neither the rate of arrivals nor the speed of its servers; here all connections of a load arrive within
//! the same time, so that more connections mean a higher rate, and the servers' response times give connection times
//! like the paper's. Arrivals are a Poisson process; at the highest rate both servers together are busy for 0.6 of the
//! time on a quiet machine. Their queues are then long enough together, but with a random choice not each at every
//! moment.
//!
//! The paper's random dispatcher without knowledge of queues is the kernel here: an nftables rule on a second switch.
//! Switchback without queue limits (`queue_limit = "off"`) differs from it: the node notices that its kernel has
//! dropped a connection and reports it, and the switch gives the connection to the other node.
//!
//! All dispatchers run on one lab and take turns, changed by a reload of the configuration. In one repetition all get
//! connections at the same times.

mod plot;
mod report;

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use switchback_lab::{Cluster, Host, Lab, Pool, Result, ServiceTime, SlowServerOptions};

use super::by_lot::dispatch_by_lot;
use super::open_loop::{Connections, OpenLoop};
use super::systems;
use super::{Experiment, Options, Progress, in_turn};

/// Processes of each server.
const WORKERS: u32 = 16;
const BACKLOG: u32 = 16;
/// Service time. With [`WORKERS`] on two nodes it allows 1,882 connections a second.
const SERVICE: Duration = Duration::from_millis(17);
/// Timeout of the clients.
const TIMEOUT: Duration = Duration::from_secs(5);
/// One client stands for many, so its address may hold as many waiting requests as the switch has room for.
const LIMITS: &str = "[limits]\nheld_per_source = \"64MiB\"\n";
/// Connections of a load before the first measured one.
const WARM_UP: u32 = 500;

/// The dispatcher of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// nftables at random, without Switchback: the paper's baseline.
    Nftables,
    /// Random, without queue limits at the nodes.
    BlindRandom,
    /// Random; a node with a full queue refuses the connection.
    Random,
    /// One node until its queue is full, then the next: the paper's proposal.
    Fill,
    /// The node with the shorter queue.
    AcceptQueue,
}

impl Dispatch {
    /// All dispatchers, in the order of the tables.
    pub const ALL: [Dispatch; 5] =
        [Dispatch::Nftables, Dispatch::BlindRandom, Dispatch::Random, Dispatch::Fill, Dispatch::AcceptQueue];

    /// Switchback's pool; None for another dispatcher.
    fn pool(self) -> Option<Pool> {
        let (policy, limit) = match self {
            Dispatch::Nftables => return None,
            Dispatch::BlindRandom => ("random", "off"),
            Dispatch::Random => ("random", "100%"),
            Dispatch::Fill => ("fill", "100%"),
            Dispatch::AcceptQueue => ("accept-queue", "100%"),
        };
        let extra = format!("queue_limit = \"{limit}\"\n");
        Some(Pool { name: "web".to_owned(), nodes: Vec::new(), policy: policy.to_owned(), extra })
    }
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Dispatch::Nftables => "random by nftables",
            Dispatch::BlindRandom => "random, queue_limit off",
            Dispatch::Random => "random",
            Dispatch::Fill => "fill",
            Dispatch::AcceptQueue => "accept-queue",
        })
    }
}

/// A row of the paper's table: average connection times in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct PaperRow {
    /// Number of connections.
    pub connections: u32,
    /// "Random distribution without considering servers' capacity".
    pub random_ms: f64,
    /// "Proposed approach".
    pub proposed_ms: f64,
}

/// The paper's table 1.
pub const PAPER: [PaperRow; 5] = [
    PaperRow { connections: 8_000, random_ms: 24.1, proposed_ms: 17.2 },
    PaperRow { connections: 10_000, random_ms: 25.8, proposed_ms: 19.3 },
    PaperRow { connections: 12_000, random_ms: 28.9, proposed_ms: 21.8 },
    PaperRow { connections: 14_000, random_ms: 30.6, proposed_ms: 25.9 },
    PaperRow { connections: 16_000, random_ms: 32.3, proposed_ms: 28.1 },
];

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Number of connections of the load.
    pub connections: u32,
    /// The dispatcher.
    pub dispatch: Dispatch,
    /// The client's measurement.
    pub load: Connections,
    /// Connections that the nodes' kernels dropped at a full queue (`ListenOverflows`).
    pub listen_overflows: u64,
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// Several dispatchers, each with several numbers of connections.
#[derive(Clone, Debug)]
pub struct AcceptQueue {
    /// Numbers of connections.
    pub connections: Vec<u32>,
}

impl AcceptQueue {
    /// The default: the paper's numbers of connections.
    pub const CONNECTIONS: [u32; 5] = [8_000, 10_000, 12_000, 14_000, 16_000];
}

impl Experiment for AcceptQueue {
    type Sample = Sample;
    const NAME: &'static str = "accept-queue";
    const SECONDS: u32 = 10;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("apache2", "-v"), ("nft", "--version")];

    fn nodes(&self) -> usize {
        2
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let server = SlowServerOptions::new(WORKERS, BACKLOG, ServiceTime::Exponential(SERVICE));
        lab.nodes().try_for_each(|node| node.slow_server(&server).map(drop))?;
        let nodes: Vec<Ipv4Addr> = lab.nodes().map(Host::ipv4).collect();
        dispatch_by_lot(lab.switch(1), &nodes)?;
        let pool = Dispatch::AcceptQueue.pool().expect("it is Switchback");
        let config = write_config(lab, pool)?;
        systems::start_switchback(lab, &options.program, &config)?;
        progress.expect(self.connections.len() * Dispatch::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &connections in &self.connections {
                for &dispatch in in_turn(&Dispatch::ALL, repetition) {
                    if let Some(pool) = dispatch.pool() {
                        write_config(lab, pool)?;
                        reload(lab, options)?;
                    }
                    if samples.len() < Dispatch::ALL.len() {
                        load(lab, dispatch, WARM_UP, 1, 0)?;
                    }
                    let before = listen_overflows(lab)?;
                    let load = load(lab, dispatch, connections, options.seconds, repetition)?;
                    let listen_overflows = listen_overflows(lab)? - before;
                    let sample = Sample { repetition, connections, dispatch, load, listen_overflows };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

fn write_config(lab: &Lab, pool: Pool) -> Result<PathBuf> {
    lab.write_config(&Cluster { pools: vec![pool], extra: LIMITS.to_owned(), ..Cluster::default() })
}

/// Makes the switch and the agents reload the configuration.
fn reload(lab: &Lab, options: &Options) -> Result<()> {
    let reload = [options.program.as_os_str(), "reload".as_ref()];
    lab.nodes().chain([lab.switch(0)]).try_for_each(|host| host.run(reload)?.success().map(drop))
}

fn load(lab: &Lab, dispatch: Dispatch, connections: u32, seconds: u32, seed: u32) -> Result<Connections> {
    let rate = f64::from(connections) / f64::from(seconds);
    let address = if dispatch == Dispatch::Nftables { lab.switch(1).ipv4() } else { lab.vip4() };
    let load = OpenLoop { connections, rate, poisson: Some(seed.into()), path: "/", timeout: TIMEOUT };
    load.run(lab.client(0), &[(address, 80).into()])
}

fn listen_overflows(lab: &Lab) -> Result<u64> {
    lab.nodes().map(|node| node.tcp_counter("ListenOverflows")).sum()
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, connections, dispatch, load, listen_overflows } = sample;
    format!(
        "round {repetition}  {connections:>6} connections  {dispatch:<23} \
         {:>7.1} ms  {} failed, {} stalled, {listen_overflows} overflows",
        load.average_ms().unwrap_or_default(),
        load.failures.total(),
        load.stalls(),
    )
}
