//! Latency of new connections at half of the greatest rate, beside the direct way to the nodes.
//!
//! At the greatest rate itself queues decide how long a connection takes, and a client that waits for answers hides them. So the
//! greatest rates are measured first, by wrk, which keeps a number of connections open; then connections begin at random times,
//! a Poisson process, whether or not earlier ones have ended. They begin at half of Switchback's greatest rate with every system, so
//! that the systems compare; and at half of each system's own one, which is as near to its limit.
//!
//! The direct way has the same servers: the client gives its connections to the nodes in turn. All systems run on one lab and
//! take turns, and get connections at the same times of a repetition.

mod report;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use switchback_lab::{Error, Lab, Result, ServerOptions};

use super::open_loop::{Connections, OpenLoop};
use super::report::{latency, shown};
use super::statistics::Spread;
use super::systems::{self, Proxy, Running, System};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

const NODES: usize = 2;
const PATH: &str = "/small";
/// Connections of wrk at a time.
const CONCURRENT: u32 = 32;
/// Duration of a system's first load, which is not measured.
const WARM_UP_SECONDS: u32 = 1;
/// Timeout of the clients.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The rate at which connections begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Half of Switchback's greatest rate.
    Common,
    /// Half of the system's own greatest rate.
    Own,
}

impl Rate {
    /// All values, in the order of the table.
    pub const ALL: [Rate; 2] = [Rate::Common, Rate::Own];
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rate::Common => "half of Switchback's",
            Rate::Own => "half of its own",
        })
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1; also the seed of the start times.
    pub repetition: u32,
    /// The measured system.
    pub system: System,
    /// The load and the client's measurement.
    pub measured: Measured,
}

/// A load with the client's measurement.
#[derive(Clone, Debug)]
pub enum Measured {
    /// By wrk, as many connections as there can be.
    Greatest(LoadResult),
    /// At a given rate.
    Latency {
        /// How the rate has been chosen.
        rate: Rate,
        /// The rate, in connections per second.
        per_s: f64,
        /// The connections.
        found: Connections,
    },
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// New connections to the nodes, through proxies and through Switchback.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLatency;

impl Experiment for ConnectionLatency {
    type Sample = Sample;
    const NAME: &'static str = "connection-latency";
    // The machine's speed varies over time, so many short rounds are more precise than a few long ones.
    const SECONDS: u32 = 2;
    const REPETITIONS: u32 = 11;
    const PROGRAMS: &'static [(&'static str, &'static str)] =
        &[("haproxy", "-v"), ("nginx", "-v"), ("wrk", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let server = ServerOptions { extra: "tcp_nopush on;".to_owned(), ..ServerOptions::default() };
        let systems = systems::start(lab, &options.program, &Proxy::all_installed(), &[NODES], &server)?;
        progress.expect(systems.len() * (1 + Rate::ALL.len()) * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for running in in_turn(&systems, repetition) {
                if repetition == 1 && options.warms_up() {
                    closed_load(lab, running, WARM_UP_SECONDS)?;
                }
                let measured = Measured::Greatest(closed_load(lab, running, options.seconds)?);
                let sample = Sample { repetition, system: running.system, measured };
                progress.loaded(&describe(&sample));
                samples.push(sample);
            }
        }
        for repetition in 1..=options.repetitions {
            for rate in Rate::ALL {
                for running in in_turn(&systems, repetition) {
                    let system = running.system;
                    let per_s = rate.per_s(&samples, system)?;
                    let found = open_load(lab, running, per_s, options.seconds, repetition)?;
                    let measured = Measured::Latency { rate, per_s, found };
                    let sample = Sample { repetition, system, measured };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

impl Rate {
    /// The rate for a system, from the measured greatest ones.
    fn per_s(self, samples: &[Sample], system: System) -> Result<f64> {
        let limit = match self {
            Rate::Common => System::Switchback,
            Rate::Own => system,
        };
        let greatest = greatest_per_s(samples, limit).filter(|greatest| greatest.median > 0.0);
        let greatest = greatest.ok_or_else(|| Error::Invalid(format!("{limit} has answered nothing")))?;
        Ok(greatest.median / 2.0)
    }
}

/// The greatest rate of a system, in connections per second.
fn greatest_per_s(samples: &[Sample], system: System) -> Option<Spread> {
    let of_system = samples.iter().filter(|sample| sample.system == system);
    Spread::of(of_system.filter_map(|sample| match &sample.measured {
        Measured::Greatest(load) => Some(load.requests_per_s),
        Measured::Latency { .. } => None,
    }))
}

/// As many new connections as the system serves; the direct way leads to the first node only.
fn closed_load(lab: &Lab, running: &Running, seconds: u32) -> Result<LoadResult> {
    let url = format!("http://{}{PATH}", running.address(NODES));
    Load { url: &url, connections: CONCURRENT, close: true, fields: &[], seconds }.run(lab.client(0))
}

/// New connections at this rate.
fn open_load(lab: &Lab, running: &Running, per_s: f64, seconds: u32, seed: u32) -> Result<Connections> {
    let servers: Vec<SocketAddr> = match running.system {
        System::Direct => lab.nodes().map(|node| (node.ipv4(), System::Direct.port(NODES)).into()).collect(),
        _ => vec![running.address(NODES)],
    };
    let connections = (per_s * f64::from(seconds)).ceil() as u32;
    let load =
        OpenLoop { connections, rate: per_s, poisson: Some(seed.into()), path: PATH, timeout: TIMEOUT };
    load.run(lab.client(0), &servers)
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, system, measured } = sample;
    let start = format!("round {repetition}  {system:<12}");
    match measured {
        Measured::Greatest(load) => format!(
            "{start} greatest rate         {:>7.0} connections/s  {} errors",
            load.requests_per_s,
            load.errors.total()
        ),
        Measured::Latency { rate, per_s, found } => {
            let [p50, p99] = [0.5, 0.99].map(|part| shown(found.quantile_ms(part), milliseconds));
            format!(
                "{start} {rate:<21} {per_s:>7.0} connections/s  p50 {p50}, p99 {p99}  {} failed",
                found.failures.total()
            )
        }
    }
}

/// Text of a time in milliseconds.
fn milliseconds(ms: f64) -> String {
    latency(ms * 1e3)
}
