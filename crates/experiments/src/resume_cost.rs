//! The cost of responses that can be resumed when their node dies, while none does: the same requests with
//! `resume = "range"` and without, in turn, on one cluster.
//!
//! Client, switch and nodes share this machine's CPUs, so the ratio of requests/s includes all work: programs and agents of
//! the nodes, and what they tell one another. Responses of 64 KiB are shorter than `resume_after` (256 KiB by default), so
//! they only cost the look at them. Each of 1 MiB is reported to its node's agent; of one that is over by then no other node is
//! told.

use serde_json::Value;
use switchback_lab::{Lab, Result, ServerOptions, pseudo_random};

use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, micros, repeated, row, shown, with_extremes};
use super::statistics::Spread;
use super::systems::{self, Service};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

/// A response is told to two others.
const NODES: usize = 3;
const CONNECTIONS: u32 = 12;
const WARM_UP_SECONDS: u32 = 1;
/// Ports of the services without and with resumption.
const PORTS: [u16; 2] = [8001, 8002];

/// Size of the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 64 KiB.
    Medium,
    /// 1 MiB.
    Large,
}

impl Size {
    /// All values, in the order of the table.
    pub const ALL: [Size; 2] = [Size::Medium, Size::Large];

    fn name(self) -> &'static str {
        match self {
            Size::Medium => "64 KiB, keep-alive",
            Size::Large => "1 MiB, keep-alive",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Size::Medium => "64k",
            Size::Large => "1m",
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
    /// Whether they could be resumed.
    pub resume: bool,
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
    const SECONDS: u32 = 1;
    const REPETITIONS: u32 = 40;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        lab.add_document(Size::Medium.path(), &pseudo_random(64 << 10))?;
        let extra = "tcp_nopush on; keepalive_requests 1000000000;".to_owned();
        let listen = PORTS.map(|port| ([0, 0, 0, 0], port).into()).to_vec();
        let server = ServerOptions { listen, extra, ..ServerOptions::default() };
        let servers = lab.nodes().map(|node| node.nginx(&server)).collect::<Result<Vec<_>>>()?;
        let with = Service { pool: "resume = \"range\"\n".to_owned(), ..Service::new(PORTS[1], NODES) };
        let config = lab.write_config_text(&systems::config(&[Service::new(PORTS[0], NODES), with]))?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        for (port, size) in PORTS.into_iter().flat_map(|port| Size::ALL.map(|size| (port, size))) {
            load(lab, port, size, WARM_UP_SECONDS)?;
        }
        let nodes = lab.nodes().zip(daemons.agents().iter().zip(&servers));
        let nodes = nodes.map(|(node, (agent, server))| CpuMeter::of_all(node, [agent, server.process()]));
        let agents = lab.nodes().zip(daemons.agents()).map(|(node, agent)| CpuMeter::new(node, agent));
        let meters = Meters {
            switch: CpuMeter::new(lab.switch(0), daemons.switch())?,
            nodes: nodes.collect::<Result<_>>()?,
            agents: agents.collect::<Result<_>>()?,
        };
        progress.expect(Size::ALL.len() * 2 * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for size in Size::ALL {
                for &resume in in_turn(&[false, true], repetition) {
                    let before = (meters.read()?, reported(lab, options)?);
                    let load = load(lab, PORTS[usize::from(resume)], size, options.seconds)?;
                    let after = (meters.read()?, reported(lab, options)?);
                    let [switch, nodes, agents] = [0, 1, 2].map(|index| after.0[index] - before.0[index]);
                    let reported = after.1 - before.1;
                    let sample = Sample { repetition, size, resume, load, switch, nodes, agents, reported };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

fn load(lab: &Lab, port: u16, size: Size, seconds: u32) -> Result<LoadResult> {
    let url = format!("http://{}:{port}/{}", lab.vip4(), size.path());
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
    let Sample { repetition, size, resume, load, .. } = sample;
    format!(
        "round {repetition}  {:<18} {:<7} {:>7.0} requests/s  {} CPU µs each  {} errors",
        size.name(),
        if *resume { "with" } else { "without" },
        load.requests_per_s,
        shown(sample.both_us(), |us| format!("{us:.0}")),
        load.errors.total()
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 11] = [
    ("Responses", false),
    ("Requests/s without (min–max)", true),
    ("with `resume`", true),
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
        let Sample { repetition, size, resume, load, switch, nodes, agents, reported } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", size.name()), resume.to_string()];
        cells.extend([load.requests.to_string(), format!("{:.2}", load.requests_per_s)]);
        cells.push(load.errors.total().to_string());
        let times = [switch.process, switch.receive, nodes.process, nodes.receive, agents.process];
        cells.extend(times.map(|time| time.as_micros().to_string()));
        cells.push(reported.to_string());
        cells
    }

    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for size in Size::ALL {
            text += &row(&self.cells(size));
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
    fn of(&self, size: Size, resume: bool) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.size == size && sample.resume == resume)
    }

    /// The ratio of each round, with to without, measured one after the other.
    fn ratios(&self, size: Size, value: fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of_ratios(self.of(size, true).map(value), self.of(size, false).map(value))
    }

    fn cells(&self, size: Size) -> [String; COLUMNS.len()] {
        let spread =
            |resume, value: fn(&Sample) -> Option<f64>| Spread::of(self.of(size, resume).filter_map(value));
        let rate: fn(&Sample) -> Option<f64> = |sample| Some(sample.load.requests_per_s);
        let whole = |value: f64| format!("{value:.0}");
        let thousandths = |value: f64| format!("{value:.3}");
        let tenths = |spread: Option<Spread>| shown(spread, |spread| format!("{:.1}", spread.median));
        let reported = self.of(size, true).map(|sample| sample.reported).sum::<u64>();
        let requests = self.of(size, true).map(|sample| sample.load.requests).sum::<u64>();
        [
            size.name().to_owned(),
            with_extremes(spread(false, rate), whole),
            with_extremes(spread(true, rate), whole),
            with_extremes(self.ratios(size, rate), thousandths),
            tenths(spread(false, Sample::switch_us)),
            tenths(spread(true, Sample::switch_us)),
            tenths(spread(false, Sample::nodes_us)),
            tenths(spread(true, Sample::nodes_us)),
            tenths(spread(true, Sample::agents_us)),
            with_extremes(self.ratios(size, Sample::both_us), thousandths),
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
        let sample = |repetition, resume, rate, nodes| Sample {
            repetition,
            size: Size::Large,
            resume,
            load: fixtures::load(100, rate),
            switch: CpuTimes { process: us(200), receive: us(800) },
            nodes: CpuTimes { process: us(nodes), receive: us(1_000) },
            agents: CpuTimes { process: us(500), receive: us(1_000) },
            reported: if resume { 99 } else { 0 },
        };
        // The second round is slower as a whole.
        let samples = vec![
            sample(1, false, 100.0, 8_000),
            sample(1, true, 90.0, 9_000),
            sample(2, true, 49.0, 9_000),
            sample(2, false, 50.0, 8_000),
        ];
        let results = fixtures::results(2, samples);
        let table = results.table();
        let expected = "| 1 MiB, keep-alive | 75 (50–100) | 70 (49–90) | 0.940 (0.900–0.980) | 10.0 | 10.0 | 90.0 | 100.0 \
                        | 5.0 | 1.100 (1.100–1.100) | 0.99 |";
        assert!(table.lines().any(|line| line == expected), "{table}");
        assert_eq!(results.csv().lines().count(), 5);
        let line = "2,\"1 MiB, keep-alive\",true,100,49.00,0,200,800,9000,1000,500,99";
        assert!(results.csv().contains(line), "{}", results.csv());
    }
}
