//! Switchback beside two proxies of the same purpose, HAProxy and nginx.
//!
//! All systems run on one lab from beginning to end and take turns: one load of each, then the next load of each, and
//! so on for each repetition. So changes of the machine affect all systems, and the repetitions show their size. The
//! order changes in each round, because a load may be affected by the one before it.

mod report;

use std::path::PathBuf;

use switchback_lab::{Builder, Lab, Result, ServerOptions};

use super::comparison::{Basis, Good, Measure, Repetitions};
use super::cpu::CpuTimes;
use super::report::micros;
use super::systems::{self, Proxy, Running, System};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

/// What runs are compared by.
pub(super) const BASIS: Basis = Basis {
    experiment: Proxies::NAME,
    workload: "workload",
    system: "system",
    systems: ["Switchback", "HAProxy"],
    repetitions: Repetitions::Together,
    measures: &[
        Measure { column: "requests_per_s", ratio: "requests/s ÷ HAProxy's", good: Good::High },
        Measure { column: "cpu_us_per_request", ratio: "CPU ÷ HAProxy's", good: Good::Low },
    ],
};

const NODES: usize = 2;
/// Duration of the load before a system's first load of each workload.
const WARM_UP_SECONDS: u32 = 1;
/// Sends head and body of a small response in one packet, as Debian configures nginx. Otherwise there are two, and
/// clients acknowledge each response with a packet of its own.
const NODE_OPTIONS: &str = "tcp_nopush on;";

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name in tables.
    pub name: &'static str,
    /// The requested path.
    pub path: &'static str,
    /// Number of concurrent connections.
    pub connections: u32,
    /// Whether every request has a connection of its own.
    pub close: bool,
}

/// All workloads, in the order of the tables.
pub const WORKLOADS: [Workload; 5] = [
    Workload { name: "100 B, keep-alive", path: "/small", connections: 32, close: false },
    Workload { name: "100 B, new connection", path: "/small", connections: 32, close: true },
    Workload { name: "1 MiB, keep-alive", path: "/1m", connections: 16, close: false },
    Workload { name: "1 MiB, new connection", path: "/1m", connections: 16, close: true },
    // Answered by the host between client and nodes.
    Workload { name: "301, new connection", path: systems::MOVED, connections: 32, close: true },
];

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The kind of load.
    pub workload: Workload,
    /// The measured system.
    pub system: System,
    /// The client's measurement.
    pub load: LoadResult,
    /// CPU time of the host between client and nodes, if any.
    pub cpu: Option<CpuTimes>,
}

impl Sample {
    /// CPU time per request, in microseconds: program, receive work, sum. None without a request.
    pub fn cpu_us_per_request(&self) -> Option<[f64; 3]> {
        let cpu = self.cpu.filter(|_| self.load.requests > 0)?;
        Some([cpu.process, cpu.receive, cpu.total()].map(|time| micros(time) / self.load.requests as f64))
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// Switchback beside HAProxy, nginx, the direct way to a node, and XDP without a switch's duties.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// A directory whose `bin` has other releases of HAProxy and nginx, which are measured too.
    pub peers: Option<PathBuf>,
    /// The CSV file of an earlier run, with whose ratios to HAProxy those of this one are compared.
    pub compare: Option<PathBuf>,
}

impl Proxies {
    /// The proxies of [`peers`](Self::peers), with their versions.
    fn peers(&self) -> Result<Vec<(Proxy, String)>> {
        self.peers.as_deref().map_or(Ok(Vec::new()), |directory| systems::peers(directory).map(Vec::from))
    }
}

impl Experiment for Proxies {
    type Sample = Sample;
    const NAME: &'static str = "proxies";
    const SECONDS: u32 = 5;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] =
        &[("haproxy", "-v"), ("nginx", "-v"), ("wrk", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn builder(&self) -> Builder {
        systems::builder_with_forwarder(NODES)
    }

    fn facts(&self) -> Result<Vec<(String, String)>> {
        let fact = |(proxy, version): (Proxy, String)| (proxy.system.to_string(), version);
        Ok(self.peers()?.into_iter().map(fact).collect())
    }

    fn check(&self) -> Result<()> {
        BASIS.check(self.compare.as_deref())
    }

    fn comparison(&self, results: &Results) -> Result<String> {
        BASIS.compare(self.compare.as_deref(), &results.csv())
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let extra = format!("{NODE_OPTIONS} location = {} {{ return 301 /small; }}", systems::MOVED);
        let server = ServerOptions { extra, ..ServerOptions::default() };
        let mut proxies = Proxy::all_installed();
        proxies.extend(self.peers()?.into_iter().map(|(proxy, _)| proxy));
        let mut systems = systems::start(lab, &options.program, &proxies, &[NODES], &server)?;
        systems.push(systems::start_forwarder(lab)?);
        progress.expect(WORKLOADS.len() * systems.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for workload in WORKLOADS {
                for running in in_turn(&systems, repetition) {
                    if repetition == 1 && options.warms_up() {
                        load(lab, running, workload, WARM_UP_SECONDS)?;
                    }
                    let (load, cpu) = load(lab, running, workload, options.seconds)?;
                    let sample = Sample { repetition, workload, system: running.system, load, cpu };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

fn load(
    lab: &Lab,
    running: &Running,
    workload: Workload,
    seconds: u32,
) -> Result<(LoadResult, Option<CpuTimes>)> {
    let url = format!("http://{}{}", running.address(NODES), workload.path);
    let load =
        Load { url: &url, connections: workload.connections, close: workload.close, fields: &[], seconds };
    let before = running.cpu_times()?;
    let result = load.run(lab.client(0))?;
    let after = running.cpu_times()?;
    Ok((result, after.zip(before).map(|(after, before)| after - before)))
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, workload, system, load, .. } = sample;
    let mut line = format!(
        "round {repetition}  {:<22} {system:<12} {:>9.0} requests/s",
        workload.name, load.requests_per_s
    );
    if let Some([.., together]) = sample.cpu_us_per_request() {
        line += &format!("  {together:>8.1} us CPU each");
    }
    if load.errors.total() > 0 {
        line += &format!("  {} errors", load.errors.total());
    }
    line
}
