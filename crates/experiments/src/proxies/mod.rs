//! Switchback beside two proxies that do what it does: HAProxy and nginx.
//!
//! All systems run on one lab from beginning to end and take turns: one load of each, then the next load of
//! each, then all over again. So what changes on the machine meanwhile meets all of them, and the repetitions
//! show how much it was. The order is another one in each round, because a load may feel what came before it.

mod report;

use switchback_lab::{Lab, Result, ServerOptions};

use super::cpu::CpuTimes;
use super::report::micros;
use super::systems::{self, Programs, Running, System};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

const NODES: usize = 2;
/// Before the first load that a system gets of each workload.
const WARM_UP_SECONDS: u32 = 1;
/// Head and body of a small response in one packet, as Debian configures nginx. Without, there are two, and
/// clients acknowledge each response with a packet of its own.
const NODE_OPTIONS: &str = "tcp_nopush on;";

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// For tables.
    pub name: &'static str,
    /// What is asked for.
    pub path: &'static str,
    /// How many connections the client has at a time.
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
    // Whatever stands between client and nodes answers it.
    Workload { name: "301, new connection", path: systems::MOVED, connections: 32, close: true },
];

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Which repetition, from 1.
    pub repetition: u32,
    /// What kind of load.
    pub workload: Workload,
    /// On what.
    pub system: System,
    /// As the client saw it.
    pub load: LoadResult,
    /// What the host between client and nodes used meanwhile, if there is one.
    pub cpu: Option<CpuTimes>,
}

impl Sample {
    /// CPU time for each request, in microseconds: of the program, of receiving, together. None if there was
    /// no request.
    pub fn cpu_us_per_request(&self) -> Option<[f64; 3]> {
        let cpu = self.cpu.filter(|_| self.load.requests > 0)?;
        Some([cpu.process, cpu.receive, cpu.total()].map(|time| micros(time) / self.load.requests as f64))
    }
}

/// Everything that was measured.
pub type Results = super::Results<Sample>;

/// Switchback beside HAProxy, nginx and the direct way to a node.
#[derive(Clone, Copy, Debug)]
pub struct Proxies;

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

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let extra = format!("{NODE_OPTIONS} location = {} {{ return 301 /small; }}", systems::MOVED);
        let server = ServerOptions { extra, ..ServerOptions::default() };
        let programs = Programs { switchback: &options.program, envoy: None };
        let systems = systems::start(lab, &programs, &[NODES], &server)?;
        progress.expect(WORKLOADS.len() * systems.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for workload in WORKLOADS {
                for running in in_turn(&systems, repetition) {
                    if repetition == 1 {
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
        "round {repetition}  {:<22} {system:<10} {:>9.0} requests/s",
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
