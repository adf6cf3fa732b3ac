//! The cost of responses that can be resumed when their node dies, while none does: the same requests with
//! `resume = "range"`, with `resume = "repeat"` and without, and over HTTPS with `"range"` and without, in turn, on one
//! cluster.
//!
//! Client, switch and nodes share this machine's CPUs, so the ratio of requests/s includes all work: programs and agents of
//! the nodes, and what they tell one another. Each pool has nodes of its own, because programs do not know pools. Responses of
//! 64 KiB are shorter than `resume_after` (256 KiB by default), so they only cost the look at them. Each of 1 MiB is reported
//! to its node's agent; of one that is over by then no other node is told. Over HTTPS two other nodes know each record of a
//! response that is older than 100 ms before it leaves, which is most of 16 MiB.

use serde_json::Value;
use switchback_lab::{Lab, Result, ServerOptions, pseudo_random};

use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, micros, repeated, row, shown, with_extremes};
use super::statistics::Spread;
use super::systems::{self, Service};
use super::tls_load::{self, Certificate, KeyKind};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

/// Nodes of each pool: a response is told to two others.
const NODES: usize = 3;
const CONNECTIONS: u32 = 12;
const WARM_UP_SECONDS: u32 = 1;
/// Port of the first service; the others follow. Behind the services over HTTPS servers listen at the port before them.
const PORT: u16 = 8001;
const SERVER: u16 = PORT - 1;

/// How responses are resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not at all.
    Off,
    /// By a range.
    Range,
    /// By the same request once more.
    Repeat,
    /// Over HTTPS, not at all.
    OffOverTls,
    /// Over HTTPS, by a range.
    RangeOverTls,
}

impl Mode {
    /// All values.
    pub const ALL: [Mode; 5] = [Mode::Off, Mode::Range, Mode::Repeat, Mode::OffOverTls, Mode::RangeOverTls];
    /// Those that are compared, each with [`without`](Self::without).
    const COMPARED: [Mode; 3] = [Mode::Range, Mode::Repeat, Mode::RangeOverTls];

    fn without(self) -> Mode {
        if self.is_over_tls() { Mode::OffOverTls } else { Mode::Off }
    }

    fn is_over_tls(self) -> bool {
        matches!(self, Mode::OffOverTls | Mode::RangeOverTls)
    }

    fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Range => "range",
            Mode::Repeat => "repeat",
            Mode::OffOverTls => "off, HTTPS",
            Mode::RangeOverTls => "range, HTTPS",
        }
    }

    fn resume(self) -> &'static str {
        match self {
            Mode::Off | Mode::OffOverTls => "off",
            Mode::Range | Mode::RangeOverTls => "range",
            Mode::Repeat => "repeat",
        }
    }

    fn port(self) -> u16 {
        PORT + self as u16
    }

    fn service(self) -> Service {
        let (nodes, pool) = (self as usize * NODES, format!("resume = \"{}\"\n", self.resume()));
        let table = || tls_load::service_table(format!("127.0.0.1:{SERVER}"), "");
        let tls = self.is_over_tls().then(table).unwrap_or_default();
        Service { nodes: nodes..nodes + NODES, pool, tls, ..Service::new(self.port(), NODES) }
    }
}

/// Size of the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 64 KiB.
    Medium,
    /// 1 MiB.
    Large,
    /// 16 MiB.
    Long,
}

impl Size {
    /// All values, in the order of the table.
    pub const ALL: [Size; 3] = [Size::Medium, Size::Large, Size::Long];

    fn name(self) -> &'static str {
        match self {
            Size::Medium => "64 KiB, keep-alive",
            Size::Large => "1 MiB, keep-alive",
            Size::Long => "16 MiB, keep-alive",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Size::Medium => "64k",
            Size::Large => "1m",
            Size::Long => "16m",
        }
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Size of the responses.
    pub size: Size,
    /// How they could be resumed.
    pub mode: Mode,
    /// The client's measurement.
    pub load: LoadResult,
    /// CPU time of the switch.
    pub switch: CpuTimes,
    /// CPU time of all nodes with their servers.
    pub nodes: CpuTimes,
    /// The agents' part of it, without receiving.
    pub agents: CpuTimes,
    /// Responses that the programs have reported.
    pub reported: u64,
}

impl Sample {
    fn switch_us(&self) -> Option<f64> {
        self.load.per_request(micros(self.switch.total()))
    }

    fn nodes_us(&self) -> Option<f64> {
        self.load.per_request(micros(self.nodes.total()))
    }

    fn agents_us(&self) -> Option<f64> {
        self.load.per_request(micros(self.agents.process))
    }

    fn both_us(&self) -> Option<f64> {
        Some(self.switch_us()? + self.nodes_us()?)
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// The same loads with resumption and without.
#[derive(Clone, Copy, Debug)]
pub struct ResumeCost;

/// Meters of a cluster.
struct Meters {
    switch: CpuMeter,
    nodes: Vec<CpuMeter>,
    agents: Vec<CpuMeter>,
}

impl Meters {
    fn read(&self) -> Result<[CpuTimes; 3]> {
        let sum = |meters: &[CpuMeter]| meters.iter().map(CpuMeter::read).sum::<Result<CpuTimes>>();
        Ok([self.switch.read()?, sum(&self.nodes)?, sum(&self.agents)?])
    }
}

impl Experiment for ResumeCost {
    type Sample = Sample;
    const NAME: &'static str = "resume-cost";
    // The machine's speed varies over time, so many short rounds are more precise than a few long ones.
    const SECONDS: u32 = 2;
    const REPETITIONS: u32 = 20;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES * Mode::ALL.len()
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        lab.add_document(Size::Medium.path(), &pseudo_random(64 << 10))?;
        lab.add_document(Size::Long.path(), &pseudo_random(16 << 20))?;
        let extra = "tcp_nopush on; keepalive_requests 1000000000;".to_owned();
        let plain = Mode::ALL.into_iter().filter(|mode| !mode.is_over_tls()).map(Mode::port);
        let listen = plain.chain([SERVER]).map(|port| ([0, 0, 0, 0], port).into()).collect();
        Certificate::create(lab, KeyKind::Ecdsa)?;
        let server = ServerOptions { listen, extra, ..ServerOptions::default() };
        let servers = lab.nodes().map(|node| node.nginx(&server)).collect::<Result<Vec<_>>>()?;
        let config = lab.write_config_text(&systems::config(&Mode::ALL.map(Mode::service)))?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        if options.warms_up() {
            for (mode, size) in Mode::ALL.into_iter().flat_map(|mode| Size::ALL.map(|size| (mode, size))) {
                load(lab, mode, size, WARM_UP_SECONDS)?;
            }
        }
        let nodes = lab.nodes().zip(daemons.agents().iter().zip(&servers));
        let nodes = nodes.map(|(node, (agent, server))| CpuMeter::of_all(node, [agent, server.process()]));
        let agents = lab.nodes().zip(daemons.agents()).map(|(node, agent)| CpuMeter::new(node, agent));
        let meters = Meters {
            switch: CpuMeter::new(lab.switch(0), daemons.switch())?,
            nodes: nodes.collect::<Result<_>>()?,
            agents: agents.collect::<Result<_>>()?,
        };
        progress.expect(Size::ALL.len() * Mode::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for size in Size::ALL {
                for &mode in in_turn(&Mode::ALL, repetition) {
                    let before = (meters.read()?, reported(lab, options)?);
                    let load = load(lab, mode, size, options.seconds)?;
                    let after = (meters.read()?, reported(lab, options)?);
                    let [switch, nodes, agents] = [0, 1, 2].map(|index| after.0[index] - before.0[index]);
                    let reported = after.1 - before.1;
                    let sample = Sample { repetition, size, mode, load, switch, nodes, agents, reported };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

fn load(lab: &Lab, mode: Mode, size: Size, seconds: u32) -> Result<LoadResult> {
    let scheme = if mode.is_over_tls() { "https" } else { "http" };
    let url = format!("{scheme}://{}:{}/{}", lab.vip4(), mode.port(), size.path());
    Load { url: &url, connections: CONNECTIONS, close: false, fields: &[], seconds }.run(lab.client(0))
}

/// Responses of all nodes so far that their programs have reported.
fn reported(lab: &Lab, options: &Options) -> Result<u64> {
    let of = |node| {
        let status: Value = systems::status(node, &options.program)?;
        Ok(status["counters"]["insurable"].as_u64().unwrap_or_default())
    };
    lab.nodes().map(of).sum()
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, size, mode, load, .. } = sample;
    format!(
        "round {repetition}  {:<18} {:<12} {:>7.0} requests/s  {} CPU µs each  {} errors",
        size.name(),
        mode.name(),
        load.requests_per_s,
        shown(sample.both_us(), |us| format!("{us:.0}")),
        load.errors.total()
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 12] = [
    ("Responses", false),
    ("`resume`", false),
    ("Requests/s without (min–max)", true),
    ("with", true),
    ("Ratio, round by round", true),
    ("Switch: CPU µs/request without", true),
    ("with", true),
    ("Nodes: CPU µs/request without", true),
    ("with", true),
    ("of it agents", true),
    ("CPU of both, ratio round by round", true),
    ("Reported", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,responses,resume,requests,requests_per_s,errors,switch_process_us,\
        switch_receive_us,nodes_process_us,nodes_receive_us,agents_us,reported";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, size, mode, load, switch, nodes, agents, reported } = sample;
        let quoted = |name| format!("\"{name}\"");
        let mut cells = vec![repetition.to_string(), quoted(size.name()), quoted(mode.name())];
        cells.extend([load.requests.to_string(), format!("{:.2}", load.requests_per_s)]);
        cells.push(load.errors.total().to_string());
        let times = [switch.process, switch.receive, nodes.process, nodes.receive, agents.process];
        cells.extend(times.map(|time| time.as_micros().to_string()));
        cells.push(reported.to_string());
        cells
    }

    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for (size, mode) in Size::ALL.into_iter().flat_map(|size| Mode::COMPARED.map(|mode| (size, mode))) {
            text += &row(&self.cells(size, mode));
        }
        text
    }

    fn how(&self) -> String {
        let what = "CPU of the nodes includes their servers and the kernel's receive work. Reported is the part of the responses \
                    that the programs report to their agents, some before they are over.";
        format!("`switchback lab run resume-cost`: {} {what}", repeated(self))
    }
}

impl Results {
    fn of(&self, size: Size, mode: Mode) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.size == size && sample.mode == mode)
    }

    /// The ratio of each round to that without resumption, measured one after the other.
    fn ratios(&self, size: Size, mode: Mode, value: fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of_ratios(self.of(size, mode).map(value), self.of(size, mode.without()).map(value))
    }

    fn cells(&self, size: Size, mode: Mode) -> [String; COLUMNS.len()] {
        let spread =
            |mode, value: fn(&Sample) -> Option<f64>| Spread::of(self.of(size, mode).filter_map(value));
        let rate: fn(&Sample) -> Option<f64> = |sample| Some(sample.load.requests_per_s);
        let whole = |value: f64| format!("{value:.0}");
        let thousandths = |value: f64| format!("{value:.3}");
        let tenths = |spread: Option<Spread>| shown(spread, |spread| format!("{:.1}", spread.median));
        let reported = self.of(size, mode).map(|sample| sample.reported).sum::<u64>();
        let requests = self.of(size, mode).map(|sample| sample.load.requests).sum::<u64>();
        [
            size.name().to_owned(),
            mode.name().to_owned(),
            with_extremes(spread(mode.without(), rate), whole),
            with_extremes(spread(mode, rate), whole),
            with_extremes(self.ratios(size, mode, rate), thousandths),
            tenths(spread(mode.without(), Sample::switch_us)),
            tenths(spread(mode, Sample::switch_us)),
            tenths(spread(mode.without(), Sample::nodes_us)),
            tenths(spread(mode, Sample::nodes_us)),
            tenths(spread(mode, Sample::agents_us)),
            with_extremes(self.ratios(size, mode, Sample::both_us), thousandths),
            shown((requests > 0).then(|| reported as f64 / requests as f64), |part| format!("{part:.2}")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures;

    #[test]
    fn the_table_has_the_ratio_of_each_round() {
        let us = Duration::from_micros;
        let sample = |repetition, mode, rate, nodes| Sample {
            repetition,
            size: Size::Large,
            mode,
            load: fixtures::load(100, rate),
            switch: CpuTimes { process: us(200), receive: us(800) },
            nodes: CpuTimes { process: us(nodes), receive: us(1_000) },
            agents: CpuTimes { process: us(500), receive: us(1_000) },
            reported: if mode == Mode::Off { 0 } else { 99 },
        };
        // The second round is slower as a whole.
        let samples = vec![
            sample(1, Mode::Off, 100.0, 8_000),
            sample(1, Mode::Repeat, 90.0, 9_000),
            sample(2, Mode::Repeat, 49.0, 9_000),
            sample(2, Mode::Off, 50.0, 8_000),
        ];
        let results = fixtures::results(2, samples);
        let table = results.table();
        let expected = "| 1 MiB, keep-alive | repeat | 75 (50–100) | 70 (49–90) | 0.940 (0.900–0.980) | 10.0 | 10.0 | 90.0 | 100.0 \
                        | 5.0 | 1.100 (1.100–1.100) | 0.99 |";
        assert!(table.lines().any(|line| line == expected), "{table}");
        assert_eq!(results.csv().lines().count(), 5);
        let line = "2,\"1 MiB, keep-alive\",\"repeat\",100,49.00,0,200,800,9000,1000,500,99";
        assert!(results.csv().contains(line), "{}", results.csv());
    }
}
