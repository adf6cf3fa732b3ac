//! The cost of replayed handshakes: the same loads on a node to which the kernel gives connections, and on one that replays
//! handshakes and translates, in turn.
//!
//! Client, switch and nodes share this machine's CPUs, so the ratio of requests/s includes all work. With one connection at a
//! time the ratio is that of the times that requests take, of which a connection made ahead could save no more than the
//! handshake.

use switchback_lab::{Lab, Result, ServerOptions};

use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, micros, repeated, row, shown, with_extremes};
use super::statistics::Spread;
use super::systems::{self, Service};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

const WARM_UP_SECONDS: u32 = 1;
/// Port of the first service; the other one follows.
const PORT: u16 = 8001;

/// How the node adopts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The kernel makes the socket.
    Kernel,
    /// A replayed handshake does.
    Replay,
}

impl Way {
    /// All values.
    pub const ALL: [Way; 2] = [Way::Kernel, Way::Replay];

    fn name(self) -> &'static str {
        match self {
            Way::Kernel => "kernel",
            Way::Replay => "replay",
        }
    }

    fn port(self) -> u16 {
        PORT + self as u16
    }
}

/// The clients' requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Small responses on kept connections.
    Small,
    /// Small responses, each on a new connection.
    New,
    /// The same, one after the other.
    Alone,
    /// Responses of 1 MiB.
    Large,
}

impl Work {
    /// All values, in the order of the table.
    pub const ALL: [Work; 4] = [Work::Small, Work::New, Work::Alone, Work::Large];

    fn name(self) -> &'static str {
        match self {
            Work::Small => "100 B, keep-alive",
            Work::New => "100 B, new connections",
            Work::Alone => "100 B, one new connection at a time",
            Work::Large => "1 MiB, keep-alive",
        }
    }

    fn path(self) -> &'static str {
        if self == Work::Large { "1m" } else { "small" }
    }

    fn connections(self) -> u32 {
        if self == Work::Alone { 1 } else { 32 }
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The clients' requests.
    pub work: Work,
    /// How the node adopts.
    pub way: Way,
    /// The client's measurement.
    pub load: LoadResult,
    /// CPU time of the node with its server.
    pub node: CpuTimes,
}

impl Sample {
    fn node_us(&self) -> Option<f64> {
        self.load.per_request(micros(self.node.total()))
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// The same loads with replayed handshakes and without.
#[derive(Clone, Copy, Debug)]
pub struct AdoptionCost;

impl Experiment for AdoptionCost {
    type Sample = Sample;
    const NAME: &'static str = "adoption-cost";
    // The machine's speed varies over time, so many short rounds are more precise than a few long ones.
    const SECONDS: u32 = 2;
    const REPETITIONS: u32 = 15;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        Way::ALL.len()
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let extra = "tcp_nopush on; keepalive_requests 1000000000;".to_owned();
        let listen = Way::ALL.map(|way| ([0, 0, 0, 0], way.port()).into()).to_vec();
        let server = ServerOptions { listen, extra, ..ServerOptions::default() };
        let servers = lab.nodes().map(|node| node.nginx(&server)).collect::<Result<Vec<_>>>()?;
        let services = Way::ALL.map(|way| {
            let node = way as usize;
            Service { nodes: node..node + 1, ..Service::new(way.port(), 1) }
        });
        let nodes = systems::node_tables(lab, |node| Way::ALL[node].name());
        let text = systems::config(&services).replace("{nodes}", &nodes);
        let config = lab.write_config_text(&text)?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        if options.warms_up() {
            for (way, work) in Way::ALL.into_iter().flat_map(|way| Work::ALL.map(|work| (way, work))) {
                load(lab, way, work, WARM_UP_SECONDS)?;
            }
        }
        let nodes = lab.nodes().zip(daemons.agents().iter().zip(&servers));
        let meters = nodes.map(|(node, (agent, server))| CpuMeter::of_all(node, [agent, server.process()]));
        let meters = meters.collect::<Result<Vec<_>>>()?;
        progress.expect(Work::ALL.len() * Way::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for work in Work::ALL {
                for &way in in_turn(&Way::ALL, repetition) {
                    let meter = &meters[way as usize];
                    let before = meter.read()?;
                    let load = load(lab, way, work, options.seconds)?;
                    let node = meter.read()? - before;
                    let sample = Sample { repetition, work, way, load, node };
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

fn load(lab: &Lab, way: Way, work: Work, seconds: u32) -> Result<LoadResult> {
    let url = format!("http://{}:{}/{}", lab.vip4(), way.port(), work.path());
    let close = matches!(work, Work::New | Work::Alone);
    let (connections, fields) = (work.connections(), &[]);
    Load { url: &url, connections, close, fields, seconds }.run(lab.client(0))
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, work, way, load, .. } = sample;
    format!(
        "round {repetition}  {:<36} {:<7} {:>7.0} requests/s  {} CPU µs each  {} errors",
        work.name(),
        way.name(),
        load.requests_per_s,
        shown(sample.node_us(), |us| format!("{us:.1}")),
        load.errors.total()
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 7] = [
    ("Responses", false),
    ("Requests/s by the kernel (min–max)", true),
    ("by replay", true),
    ("Ratio, round by round", true),
    ("Node: CPU µs/request by the kernel", true),
    ("by replay", true),
    ("Ratio, round by round", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str =
        "repetition,responses,adoption,requests,requests_per_s,errors,node_process_us,node_receive_us";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, work, way, load, node } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", work.name()), way.name().to_owned()];
        cells.extend([load.requests.to_string(), format!("{:.2}", load.requests_per_s)]);
        cells.push(load.errors.total().to_string());
        cells.extend([node.process, node.receive].map(|time| time.as_micros().to_string()));
        cells
    }

    fn table(&self) -> String {
        Work::ALL.into_iter().fold(header(&COLUMNS), |text, work| text + &row(&self.cells(work)))
    }

    fn how(&self) -> String {
        let what = "CPU of the node includes its server and the kernel's receive work.";
        format!("`switchback lab run adoption-cost`: {} {what}", repeated(self))
    }
}

impl Results {
    fn of(&self, work: Work, way: Way) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.work == work && sample.way == way)
    }

    /// The ratio of each round to that by the kernel, measured one after the other.
    fn ratios(&self, work: Work, value: fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of_ratios(self.of(work, Way::Replay).map(value), self.of(work, Way::Kernel).map(value))
    }

    fn cells(&self, work: Work) -> [String; COLUMNS.len()] {
        let spread =
            |way, value: fn(&Sample) -> Option<f64>| Spread::of(self.of(work, way).filter_map(value));
        let rate: fn(&Sample) -> Option<f64> = |sample| Some(sample.load.requests_per_s);
        let whole = |value: f64| format!("{value:.0}");
        let thousandths = |value: f64| format!("{value:.3}");
        let tenths = |spread: Option<Spread>| shown(spread, |spread| format!("{:.1}", spread.median));
        [
            work.name().to_owned(),
            with_extremes(spread(Way::Kernel, rate), whole),
            with_extremes(spread(Way::Replay, rate), whole),
            with_extremes(self.ratios(work, rate), thousandths),
            tenths(spread(Way::Kernel, Sample::node_us)),
            tenths(spread(Way::Replay, Sample::node_us)),
            with_extremes(self.ratios(work, Sample::node_us), thousandths),
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
        let sample = |repetition, way, rate, us| Sample {
            repetition,
            work: Work::New,
            way,
            load: fixtures::load(100, rate),
            node: CpuTimes { process: Duration::from_micros(us), receive: Duration::from_micros(1_000) },
        };
        // The second round is slower as a whole.
        let samples = vec![
            sample(1, Way::Kernel, 100.0, 1_000),
            sample(1, Way::Replay, 80.0, 1_400),
            sample(2, Way::Replay, 45.0, 1_600),
            sample(2, Way::Kernel, 50.0, 1_000),
        ];
        let results = fixtures::results(2, samples);
        let table = results.table();
        let expected = "| 100 B, new connections | 75 (50–100) | 62 (45–80) | 0.850 (0.800–0.900) | 20.0 | 25.0 \
                        | 1.250 (1.200–1.300) |";
        assert!(table.lines().any(|line| line == expected), "{table}");
        assert_eq!(results.csv().lines().count(), 5);
        let line = "2,\"100 B, new connections\",replay,100,45.00,0,1600,1000";
        assert!(results.csv().contains(line), "{}", results.csv());
    }
}
