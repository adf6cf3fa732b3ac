//! Table III: the cost of each function at switch and nodes.
//!
//! The functions are not measured one by one with synthetic packets, but as differences between loads that differ in
//! one function, on real connections with real responses. Run times of BPF programs are the kernel's
//! (`BPF_ENABLE_STATS`), all others the scheduler's.

mod report;

use std::fmt;

use switchback_lab::{Error, Host, Lab, Result, ServerOptions};

use super::{Document, NODE_OPTIONS, WARM_UP_SECONDS};
use crate::bpf_time::{BpfMeter, BpfTime, BpfTimes};
use crate::cpu::{CpuMeter, CpuTimes};
use crate::report::micros;
use crate::sessions::{self, Persistence};
use crate::systems::{self, Service};
use crate::wrk::{Load, LoadResult};
use crate::{Experiment, Options, Progress, in_turn};

const CONNECTIONS: u32 = 16;
/// The node that replays handshakes.
const REPLAYING: usize = 2;

/// The path of a request through switch and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Kept connection that stays with its node: the automaton in the XDP program reads the request.
    Automaton,
    /// Kept connection that stays with its node: the L7 thread reads and dispatches the request.
    Thread,
    /// The L7 thread dispatches to one of two nodes in turn: about half of the connections move.
    Moved,
    /// A new connection for each request.
    New,
    /// As [`Thread`](Way::Thread); the session's cookie is rewritten in the response and restored in the request.
    Rewritten,
    /// As [`Thread`](Way::Thread); a cookie is inserted into the response.
    Inserted,
    /// As [`Automaton`](Way::Automaton), at a node that replays handshakes.
    Masqueraded,
    /// As [`New`](Way::New), at that node.
    Replayed,
}

impl Way {
    const ALL: [Way; 8] = [
        Way::Automaton,
        Way::Thread,
        Way::Moved,
        Way::New,
        Way::Rewritten,
        Way::Inserted,
        Way::Masqueraded,
        Way::Replayed,
    ];

    fn port(self) -> u16 {
        match self {
            Way::Automaton | Way::New => 8001,
            Way::Thread => 8002,
            Way::Moved => 8003,
            Way::Rewritten => 8004,
            Way::Inserted => 8005,
            Way::Masqueraded | Way::Replayed => 8006,
        }
    }

    fn service(self) -> Service {
        let (nodes, pool) = match self {
            Way::Automaton | Way::New => (1, String::new()),
            Way::Thread => (1, Persistence::None.pool()),
            Way::Moved => (2, Persistence::None.pool()),
            Way::Rewritten => (1, Persistence::Rewrite.pool()),
            Way::Inserted => (1, Persistence::Insert.pool()),
            Way::Masqueraded | Way::Replayed => {
                let nodes = REPLAYING..REPLAYING + 1;
                return Service { nodes, ..Service::new(self.port(), 1) };
            }
        };
        Service { pool, ..Service::new(self.port(), nodes) }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Way::Automaton => "kept, automaton",
            Way::Thread => "kept, L7 thread",
            Way::Moved => "kept, two nodes in turn",
            Way::New => "new connection",
            Way::Rewritten => "kept, cookie rewritten",
            Way::Inserted => "kept, cookie inserted",
            Way::Masqueraded => "kept, replayed",
            Way::Replayed => "new connection, replayed",
        })
    }
}

/// All paths of a request.
#[derive(Clone, Copy, Debug)]
pub struct DwsrTable3;

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The path of the requests.
    pub way: Way,
    /// The client's measurement.
    pub load: LoadResult,
    /// Run times of the programs of switch and nodes.
    pub bpf: BpfTimes,
    /// CPU time of the switch.
    pub switch: CpuTimes,
    /// CPU time of the nodes, with their servers.
    pub nodes: CpuTimes,
    /// Connections that a node released for another one.
    pub moves: u64,
}

impl Sample {
    fn each(&self, value: f64) -> f64 {
        value / self.load.requests.max(1) as f64
    }

    fn runs_each(&self, program: impl Fn(&BpfTimes) -> BpfTime) -> f64 {
        self.each(program(&self.bpf).runs as f64)
    }

    fn us_each(&self, program: impl Fn(&BpfTimes) -> BpfTime) -> f64 {
        self.each(micros(program(&self.bpf).time))
    }

    fn us_per_run(&self, program: impl Fn(&BpfTimes) -> BpfTime) -> f64 {
        let BpfTime { runs, time } = program(&self.bpf);
        micros(time) / runs.max(1) as f64
    }
}

/// All measurements.
pub type Results = crate::Results<Sample>;

impl Experiment for DwsrTable3 {
    type Sample = Sample;
    const NAME: &'static str = "dwsr-table3";
    const SECONDS: u32 = 4;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];

    fn nodes(&self) -> usize {
        REPLAYING + 1
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        lab.use_reno()?;
        let Document { name, kib } = Document::PAPER;
        lab.add_document(name, &vec![b'#'; kib << 10])?;
        let mut services = Way::ALL.map(Way::service).to_vec();
        services.sort_by_key(|service| service.port);
        services.dedup_by_key(|service| service.port);
        let listen = services.iter().map(|service| ([0, 0, 0, 0], service.port).into()).collect();
        let extra = format!("{NODE_OPTIONS} {}", sessions::set_cookie());
        let server = ServerOptions { listen, extra, ..ServerOptions::default() };
        let meter = |node: &Host| CpuMeter::new(node, node.nginx(&server)?.process());
        let nodes = lab.nodes().map(meter).collect::<Result<Vec<_>>>()?;
        let adoption = |node| if node == REPLAYING { "replay" } else { "kernel" };
        let text = systems::config(&services).replace("{nodes}", &systems::node_tables(lab, adoption));
        let config = lab.write_config_text(&text)?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        let switch = CpuMeter::new(lab.switch(0), daemons.switch())?;
        let bpf = BpfMeter::new(daemons.all())?;
        let read = || -> Result<_> {
            let nodes = nodes.iter().map(CpuMeter::read).sum::<Result<CpuTimes>>()?;
            Ok((bpf.read()?, switch.read()?, nodes, moves(lab, options)?))
        };
        progress.expect(Way::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &way in in_turn(&Way::ALL, repetition) {
                let fields = sessions::fields(lab, way.port(), way == Way::Inserted)?;
                if repetition == 1 && options.warms_up() {
                    load(lab, way, &fields, WARM_UP_SECONDS)?;
                }
                let before = read()?;
                let load = load(lab, way, &fields, options.seconds)?;
                let after = read()?;
                let (bpf, switch) = (after.0 - before.0, after.1 - before.1);
                let (nodes, moves) = (after.2 - before.2, after.3 - before.3);
                let sample = Sample { repetition, way, load, bpf, switch, nodes, moves };
                progress.loaded(&describe(&sample));
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

/// Connections that nodes have released so far, by the switch's count.
fn moves(lab: &Lab, options: &Options) -> Result<u64> {
    let status: serde_json::Value = systems::status(lab.switch(0), &options.program)?;
    let unexpected = || Error::Invalid(format!("unexpected output of `switchback status --json`: {status}"));
    let nodes = status["nodes"].as_array().ok_or_else(unexpected)?;
    nodes.iter().map(|node| node["released"].as_u64().ok_or_else(unexpected)).sum()
}

fn load(lab: &Lab, way: Way, fields: &[String], seconds: u32) -> Result<LoadResult> {
    let url = format!("http://{}:{}/{}", lab.vip4(), way.port(), Document::PAPER.name);
    let close = matches!(way, Way::New | Way::Replayed);
    Load { url: &url, connections: CONNECTIONS, close, fields, seconds }.run(lab.client(0))
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, way, load, .. } = sample;
    format!(
        "round {repetition}  {way:<24} {:>8.1} requests/s  switch {:>5.2} us CPU each, nodes {:>5.2} us  {} errors",
        load.requests_per_s,
        sample.each(micros(sample.switch.total())),
        sample.each(micros(sample.nodes.total())),
        load.errors.total()
    )
}
