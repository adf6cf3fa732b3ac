//! Switchback beside two proxies that do what it does: HAProxy and nginx.
//!
//! All systems run on one lab from beginning to end and take turns: one load of each, then the next load of
//! each, then all over again. So what changes on the machine meanwhile meets all of them, and the repetitions
//! show how much it was. The order is another one in each round, because a load may feel what came before it.

use std::time::Duration;

use super::cpu::CpuTimes;
use super::machine::Machine;
use super::systems::{self, Running, System};
use super::wrk::{Load, LoadResult};
use super::{Options, in_lab};
use crate::document::{ONE_MIB, SMALL};
use crate::error::Result;
use crate::lab::Lab;
use crate::server::ServerOptions;

/// Unless told otherwise.
pub const DEFAULT_SECONDS: u32 = 5;
/// Unless told otherwise.
pub const DEFAULT_REPETITIONS: u32 = 5;

const NODES: usize = 2;
/// Before the first load that a system gets of each workload.
const WARM_UP_SECONDS: u32 = 1;
/// Head and body of a small response in one packet, as Debian configures nginx. Without, there are two, and
/// clients acknowledge each response with a packet of its own.
const NODE_OPTIONS: &str = "tcp_nopush on;";
const PROGRAMS: [(&str, &str); 3] = [("haproxy", "-v"), ("nginx", "-v"), ("wrk", "-v")];

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// For tables.
    pub name: &'static str,
    /// What is asked for.
    pub path: &'static str,
    /// Length of the response's body in bytes.
    pub body_len: usize,
    /// How many connections the client has at a time.
    pub connections: u32,
    /// Whether every request has a connection of its own.
    pub close: bool,
}

/// All workloads, in the order of the tables.
pub const WORKLOADS: [Workload; 4] = [
    Workload { name: "100 B, keep-alive", path: "/small", body_len: SMALL, connections: 32, close: false },
    Workload { name: "100 B, new connection", path: "/small", body_len: SMALL, connections: 32, close: true },
    Workload { name: "1 MiB, keep-alive", path: "/1m", body_len: ONE_MIB, connections: 16, close: false },
    Workload { name: "1 MiB, new connection", path: "/1m", body_len: ONE_MIB, connections: 16, close: true },
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

/// A duration in microseconds.
pub(super) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
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

/// Makes a lab, runs all loads and takes the lab down. `progress` gets a line for each load. After ^C the error
/// is [`Error::TornDown`].
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Results> {
    let machine = Machine::look(&PROGRAMS)?;
    let samples = in_lab(NODES, |lab| measure(lab, options, progress))?;
    let Options { seconds, repetitions, .. } = *options;
    Ok(Results { seconds, repetitions, machine, samples })
}

fn measure(lab: &Lab, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Vec<Sample>> {
    let server = ServerOptions { extra: NODE_OPTIONS.to_owned(), ..ServerOptions::default() };
    lab.nodes().try_for_each(|node| node.nginx(&server).map(drop))?;
    let systems = systems::start(lab, &options.program)?;
    let total = WORKLOADS.len() * systems.len() * options.repetitions as usize;
    let mut samples = Vec::with_capacity(total);
    for repetition in 1..=options.repetitions {
        for workload in WORKLOADS {
            for index in 0..systems.len() {
                let running = &systems[(index + repetition as usize - 1) % systems.len()];
                if repetition == 1 {
                    load(lab, running, workload, WARM_UP_SECONDS)?;
                }
                let (load, cpu) = load(lab, running, workload, options.seconds)?;
                let sample = Sample { repetition, workload, system: running.system, load, cpu };
                progress(&describe(&sample, samples.len() + 1, total));
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

fn load(
    lab: &Lab,
    running: &Running,
    workload: Workload,
    seconds: u32,
) -> Result<(LoadResult, Option<CpuTimes>)> {
    let url = format!("http://{}{}", running.address, workload.path);
    let load =
        Load { url: &url, connections: workload.connections, close: workload.close, fields: &[], seconds };
    let before = running.cpu_times()?;
    let result = load.run(lab.client(0))?;
    let after = running.cpu_times()?;
    Ok((result, after.zip(before).map(|(after, before)| after - before)))
}

fn describe(sample: &Sample, number: usize, total: usize) -> String {
    let Sample { repetition, workload, system, load, .. } = sample;
    let mut line = format!(
        "[{number:>3}/{total}] round {repetition}  {:<22} {system:<10} {:>9.0} requests/s",
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
