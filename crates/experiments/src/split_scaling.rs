//! The number of data servers for one connection server: requests for 64 KiB, each on a connection of its own, to one
//! data server and more, each behind a link of its own.
//!
//! The links are slow enough for two cores to fill all of them. So the connection server's CPU time for each data
//! server is a cost and no limit; the number of data servers that it could serve follows from it.

use switchback_lab::{Lab, Result, ServerOptions};
use switchback_plot::{COLORS, Curve, Lines, Plot};

use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, micros, ratio, repeated, row, shown, thousands, with_extremes};
use super::statistics::Spread;
use super::systems::{self, Service};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

/// Numbers of data servers.
const NODES: [usize; 6] = [1, 2, 3, 4, 6, 8];
const MOST_NODES: usize = NODES[NODES.len() - 1];
/// Rate of each data server's link.
const LINK_BITS_PER_S: u64 = 100_000_000;
const DOCUMENT: &str = "64k";
const DOCUMENT_BYTES: usize = 64 << 10;
const CONNECTIONS_PER_NODE: u32 = 8;
const WARM_UP_SECONDS: u32 = 1;
const FIRST_PORT: usize = 8000;
/// The paper's figures: requests per second and data server, and the CPU share of the connection server with four.
const PAPER_RATE: f64 = 900.0;
const PAPER_NODES: [u32; 4] = [1, 2, 3, 4];
const PAPER_SHARE_OF_FOUR: f64 = 0.2;

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Number of data servers.
    pub nodes: usize,
    /// Duration of the load.
    pub seconds: u32,
    /// The client's measurement.
    pub load: LoadResult,
    /// CPU time of the connection server.
    pub cpu: CpuTimes,
    /// Bytes that the connection server sent to clients and data servers.
    pub sent_bytes: u64,
}

impl Sample {
    /// Share of one CPU.
    fn cpu_share(&self) -> f64 {
        self.cpu.total().as_secs_f64() / f64::from(self.seconds)
    }

    fn per_node(&self, value: f64) -> f64 {
        value / self.nodes as f64
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// One connection server with one data server and more.
#[derive(Clone, Copy, Debug)]
pub struct SplitScaling;

impl Experiment for SplitScaling {
    type Sample = Sample;
    const NAME: &'static str = "split-scaling";
    const SECONDS: u32 = 3;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];

    fn nodes(&self) -> usize {
        MOST_NODES
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        lab.add_document(DOCUMENT, &vec![b'#'; DOCUMENT_BYTES])?;
        let listen = NODES.map(|nodes| ([0, 0, 0, 0], port(nodes)).into()).to_vec();
        for node in lab.nodes() {
            node.nginx(&ServerOptions { listen: listen.clone(), ..ServerOptions::default() })?;
            node.set_rate(Some(LINK_BITS_PER_S))?;
        }
        lab.switch(0).set_rate(Some(LINK_BITS_PER_S))?;
        let services = NODES.map(|nodes| Service::new(port(nodes), nodes));
        let config = lab.write_config_text(&systems::config(&services))?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        let meter = CpuMeter::new(lab.switch(0), daemons.switch())?;
        progress.expect(NODES.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &nodes in in_turn(&NODES, repetition) {
                if repetition == 1 && options.warms_up() {
                    load(lab, nodes, WARM_UP_SECONDS)?;
                }
                let sent = || lab.switch(0).interface_counters("eth0").map(|counters| counters.tx.bytes);
                let before = (meter.read()?, sent()?);
                let load = load(lab, nodes, options.seconds)?;
                let after = (meter.read()?, sent()?);
                let (cpu, sent_bytes) = (after.0 - before.0, after.1 - before.1);
                let sample = Sample { repetition, nodes, seconds: options.seconds, load, cpu, sent_bytes };
                progress.loaded(&format!(
                    "round {repetition}  {nodes} data servers {:>7.1} requests/s  connection server {:.1} % of a CPU  {} errors",
                    sample.load.requests_per_s,
                    sample.cpu_share() * 100.0,
                    sample.load.errors.total()
                ));
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

fn port(nodes: usize) -> u16 {
    (FIRST_PORT + nodes) as u16
}

fn load(lab: &Lab, nodes: usize, seconds: u32) -> Result<LoadResult> {
    let url = format!("http://{}:{}/{DOCUMENT}", lab.vip4(), port(nodes));
    let connections = CONNECTIONS_PER_NODE * nodes as u32;
    Load { url: &url, connections, close: true, fields: &[], seconds }.run(lab.client(0))
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 8] = [
    ("Data servers", true),
    ("Requests/s (min–max)", true),
    ("÷ those of one, each", true),
    ("Median time (min–max)", true),
    ("Connection server: % of a CPU (min–max)", true),
    ("each data server", true),
    ("data servers for one CPU", true),
    ("bytes sent for each request", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,data_servers,requests,requests_per_s,bytes_per_s,p50_us,p99_us,errors,\
        cs_process_us,cs_receive_us,cs_sent_bytes";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, nodes, load, cpu, sent_bytes, .. } = sample;
        let mut cells = vec![repetition.to_string(), nodes.to_string(), load.requests.to_string()];
        cells.extend([format!("{:.2}", load.requests_per_s), format!("{:.0}", load.bytes_per_s)]);
        cells.extend([load.p50, load.p99].map(|time| time.as_micros().to_string()));
        cells.push(load.errors.total().to_string());
        cells.extend([cpu.process, cpu.receive].map(|time| time.as_micros().to_string()));
        cells.push(sent_bytes.to_string());
        cells
    }

    /// A line for each number of data servers.
    fn table(&self) -> String {
        let one = self.spread(NODES[0], |sample| sample.load.requests_per_s);
        let mut text = header(&COLUMNS);
        for nodes in NODES {
            let each = self.spread(nodes, |sample| sample.per_node(sample.cpu_share()));
            let per_node = self.spread(nodes, |sample| sample.per_node(sample.load.requests_per_s));
            text += &row(&[
                nodes.to_string(),
                with_extremes(self.spread(nodes, |sample| sample.load.requests_per_s), thousands),
                shown(ratio(per_node, one), |ratio| format!("{ratio:.3}")),
                with_extremes(self.spread(nodes, |sample| micros(sample.load.p50) / 1e3), |ms| {
                    format!("{ms:.1} ms")
                }),
                with_extremes(self.spread(nodes, Sample::cpu_share), |share| format!("{:.1}", share * 100.0)),
                shown(each, |each| format!("{:.2} %", each.median * 100.0)),
                shown(each.filter(|each| each.median > 0.0), |each| format!("{:.0}", 1.0 / each.median)),
                shown(
                    self.spread(nodes, |sample| {
                        sample.sent_bytes as f64 / sample.load.requests.max(1) as f64
                    }),
                    |spread| thousands(spread.median),
                ),
            ]);
        }
        text
    }

    fn beside_the_paper(&self) -> String {
        let most = MOST_NODES;
        let rate = self.spread(most, |sample| sample.load.requests_per_s);
        let (Some(rate), Some(one)) = (rate, self.spread(1, |sample| sample.load.requests_per_s)) else {
            return String::new();
        };
        let cost = |sample: &Sample| micros(sample.cpu.total()) / sample.load.requests.max(1) as f64;
        let cost = self.spread(most, cost).map_or(0.0, |cost| cost.median);
        let paper_cost = PAPER_SHARE_OF_FOUR * 1e6 / (4.0 * PAPER_RATE);
        format!(
            "The paper has {PAPER_RATE} requests/s of 64 KB for each data server, linear from 1 to 4, and the connection \
             server at {:.0} % with 4, so about 15 for each connection server and {paper_cost:.0} µs of its CPU for each \
             request. Here {most} data servers have {:.2} times the requests of one, and a request costs the connection \
             server {cost:.0} µs. The requests/s are those of the links, which are slower here than the paper's. Of a request the connection \
             server has the handshake, the head, the acknowledgments and the end; much of its cost is waking up for a packet, \
             so a request costs less the more there are.",
            PAPER_SHARE_OF_FOUR * 100.0,
            rate.median / one.median,
        )
    }

    fn how(&self) -> String {
        format!(
            "{} Responses of 64 KiB, each on a connection of its own; each link but the client's has {} Mbit/s.",
            repeated(self),
            LINK_BITS_PER_S / 1_000_000
        )
    }

    /// A plot of requests/s over data servers, with the paper's.
    fn plot(&self) -> Option<Plot> {
        let one = self.spread(1, |sample| sample.load.requests_per_s).map_or(1.0, |one| one.median);
        let curve = |name: &str, color: usize, dashed, points| Curve {
            name: name.to_owned(),
            color: COLORS[color],
            dashed,
            points,
        };
        let measured = |value: &dyn Fn(&Sample) -> f64| {
            let point = |nodes| Some((nodes as u32, self.spread(nodes, value)?.median));
            NODES.into_iter().filter_map(point).collect()
        };
        Some(Plot::Lines(Lines {
            title: "Requests and CPU time of the connection server (CS) over data servers".to_owned(),
            x_title: "data servers",
            y_title: "times one data server's requests/s; CPUs",
            is_logarithmic: false,
            margin: 1,
            curves: vec![
                curve("requests/s", 3, false, measured(&|sample| sample.load.requests_per_s / one)),
                curve("CPUs of the CS", 0, false, measured(&Sample::cpu_share)),
                curve("paper: requests/s", 3, true, PAPER_NODES.map(|n| (n, f64::from(n))).to_vec()),
                curve("paper: CPUs of the CS", 0, true, vec![(4, PAPER_SHARE_OF_FOUR)]),
            ],
        }))
    }
}

impl Results {
    fn spread(&self, nodes: usize, value: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().filter(|sample| sample.nodes == nodes).map(value))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures;

    fn results() -> Results {
        let sample = |repetition, nodes: usize| Sample {
            repetition,
            nodes,
            seconds: 2,
            load: fixtures::load(400 * nodes as u64, 200.0 * nodes as f64),
            cpu: CpuTimes {
                process: Duration::from_millis(10 * nodes as u64),
                receive: Duration::from_millis(10 * nodes as u64),
            },
            sent_bytes: 400_000 * nodes as u64,
        };
        let samples = [1, 2].into_iter().flat_map(|round| NODES.map(|nodes| sample(round, nodes)));
        fixtures::results(2, samples.collect())
    }

    #[test]
    fn the_table_extrapolates() {
        let table = results().table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 2 + NODES.len(), "{table}");
        assert_eq!(
            lines[5],
            "| 4 | 800.0 (800.0–800.0) | 1.000 | 4.0 ms (4.0 ms–4.0 ms) | 4.0 (4.0–4.0) | 1.00 % | 100 | 1,000 |"
        );
    }

    #[test]
    fn the_paper_stands_beside_it() {
        let text = results().markdown();
        assert!(text.contains("8 data servers have 8.00 times the requests of one"), "{text}");
        assert!(text.contains("costs the connection server 50 µs"), "{text}");
        assert_eq!(results().csv().lines().count(), 1 + 2 * NODES.len());
    }

    #[test]
    fn the_plot_has_both() {
        let svg = results().plot().expect("it has one").svg().expect("nothing but text is written");
        for text in ["data servers", "requests/s", "paper: requests/s"] {
            assert!(svg.contains(&format!(">\n{text}\n<")), "no {text:?}");
        }
    }
}
