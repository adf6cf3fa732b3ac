//! The experiment of Verma, Lokhande & Khare, "Eliminating TCP Connection Failure in a Web Server Cluster": what
//! becomes of connections when a dispatcher does not know how full the servers' accept queues are, and when it
//! does.
//!
//! As in the paper there are one client, one dispatcher and two servers, and the number of connections is what
//! varies. The paper says neither how fast they came nor how fast its servers were; here all connections of a
//! load begin within the same time, so that more connections mean a higher rate, and the servers take times for
//! an answer that give connection times like the paper's. Arrivals are a Poisson process; at the highest rate both
//! servers together are busy for 0.6 of the time on a quiet machine. Their queues are then long enough together,
//! but not each at every moment when its share is drawn by lot.
//!
//! What the paper compares with, a dispatcher that draws by lot and knows nothing, is the kernel's own here: an
//! nftables rule on a second switch. Switchback without a look at the queues (`queue_limit = "off"`) is not it: the
//! node notices that its kernel has dropped a connection and says so, and the switch gives it to the other node.
//!
//! All ways of dispatching run on one lab and take turns, changed by a reload of the configuration. In one
//! repetition all get connections at the same times.

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
/// With [`WORKERS`] on two nodes this is enough for 1,882 connections a second.
const SERVICE: Duration = Duration::from_millis(17);
/// Clients give up after so long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// One client stands for many here, and its address may hold as many waiting requests as the switch has room for.
const LIMITS: &str = "[limits]\nheld_per_source = \"64MiB\"\n";
/// A load before the first one that counts.
const WARM_UP: u32 = 500;

/// How connections are given to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// By lot, without Switchback: the dispatcher that the paper compares with.
    Nftables,
    /// By lot, and no node looks at its queue.
    BlindRandom,
    /// By lot; a node with a full queue sends the connection back.
    Random,
    /// One node until its queue is full, then the next: the paper's.
    Fill,
    /// The node with the emptier queue.
    AcceptQueue,
}

impl Dispatch {
    /// All, in the order of the tables.
    pub const ALL: [Dispatch; 5] =
        [Dispatch::Nftables, Dispatch::BlindRandom, Dispatch::Random, Dispatch::Fill, Dispatch::AcceptQueue];

    /// None if it is not Switchback.
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
    /// Which repetition, from 1.
    pub repetition: u32,
    /// How many connections were asked for.
    pub connections: u32,
    /// How they were given to the nodes.
    pub dispatch: Dispatch,
    /// As the client saw it.
    pub load: Connections,
    /// Connections that the nodes' kernels dropped at a full queue (`ListenOverflows`).
    pub listen_overflows: u64,
}

/// Everything that was measured.
pub type Results = super::Results<Sample>;

/// Several ways of dispatching, each with several numbers of connections.
#[derive(Clone, Debug)]
pub struct AcceptQueue {
    /// Numbers of connections.
    pub connections: Vec<u32>,
}

impl AcceptQueue {
    /// Unless told otherwise: the paper's numbers of connections.
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

/// Everybody reads the configuration again.
fn reload(lab: &Lab, options: &Options) -> Result<()> {
    let reload = [options.program.as_os_str(), "reload".as_ref()];
    lab.nodes().chain([lab.switch(0)]).try_for_each(|host| host.run(reload)?.success().map(drop))
}

fn load(lab: &Lab, dispatch: Dispatch, connections: u32, seconds: u32, seed: u32) -> Result<Connections> {
    let rate = f64::from(connections) / f64::from(seconds);
    let address = if dispatch == Dispatch::Nftables { lab.switch(1).ipv4() } else { lab.vip4() };
    let load = OpenLoop { connections, rate, poisson: Some(seed.into()), timeout: TIMEOUT };
    load.run(lab.client(0), (address, 80).into())
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
