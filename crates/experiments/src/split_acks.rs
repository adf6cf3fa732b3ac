//! The cost of acknowledgments, and the gain of sending them past the connection server, and fewer of them: the same
//! downloads without a shim on the client, with one, and with one that leaves acknowledgments out.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use switchback_lab::{Doing, Lab, Process, Result, ServerOptions};
use switchback_plot::{COLORS, Curve, Lines, Plot};

use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, micros, ratio, repeated, row, shown, thousands, with_extremes};
use super::statistics::Spread;
use super::systems;
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

const DOCUMENT: &str = "1m";
const CONNECTIONS: u32 = 8;
const WARM_UP_SECONDS: u32 = 1;
const READY: Duration = Duration::from_secs(30);
/// Greatest numbers of successive acknowledgments left out.
const THIN: [u32; 4] = [2, 4, 8, 16];
/// The paper's gain in requests/s by fewer acknowledgments.
const PAPER_GAIN: f64 = 1.48;

/// The client's shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shim {
    /// No shim: acknowledgments go through the connection server.
    Without,
    /// A shim that sends all acknowledgments to the data server.
    Plain,
    /// A shim that leaves out up to this many successive acknowledgments.
    Thin(u32),
}

impl Shim {
    fn all() -> Vec<Shim> {
        [Shim::Without, Shim::Plain].into_iter().chain(THIN.map(Shim::Thin)).collect()
    }

    /// The number left out, for the plot; 0 and less for none.
    fn left_out(self) -> u32 {
        match self {
            Shim::Without | Shim::Plain => 0,
            Shim::Thin(count) => count,
        }
    }
}

impl fmt::Display for Shim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shim::Without => f.pad("no shim"),
            Shim::Plain => f.pad("shim"),
            Shim::Thin(count) => f.pad(&format!("shim, thin_acks = {count}")),
        }
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The client's shim.
    pub shim: Shim,
    /// The client's measurement.
    pub load: LoadResult,
    /// CPU time of the connection server.
    pub switch: CpuTimes,
    /// CPU time of the data server.
    pub node: CpuTimes,
    /// Packets that the connection server received.
    pub switch_packets: u64,
    /// Packets that the data server received.
    pub node_packets: u64,
}

impl Sample {
    fn per_request(&self, value: f64) -> f64 {
        value / self.load.requests.max(1) as f64
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// One data server, and a client with and without a shim.
#[derive(Clone, Copy, Debug)]
pub struct SplitAcks;

impl Experiment for SplitAcks {
    type Sample = Sample;
    const NAME: &'static str = "split-acks";
    const SECONDS: u32 = 3;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];

    fn nodes(&self) -> usize {
        1
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let (client, switch, node) = (lab.client(0), lab.switch(0), lab.node(0));
        let server = node.nginx(&ServerOptions::default())?;
        let config = lab.write_config_text(&config(lab))?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        let meters = (CpuMeter::new(switch, daemons.switch())?, CpuMeter::new(node, server.process())?);
        let key = client.directory().join("client.key");
        let address = client.ipv4().to_string();
        let mut keygen: Vec<String> = vec![options.program.display().to_string()];
        keygen.extend(["keygen", "--client", &address, "--config"].map(str::to_owned));
        keygen.extend([config.display().to_string(), key.display().to_string()]);
        client.run(keygen)?.success()?;
        let read = || -> Result<_> {
            let packets = |host: &switchback_lab::Host| {
                host.interface_counters("eth0").map(|counters| counters.rx.packets)
            };
            Ok((meters.0.read()?, meters.1.read()?, packets(switch)?, packets(node)?))
        };
        let shims = Shim::all();
        progress.expect(shims.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &shim in in_turn(&shims, repetition) {
                let running = start(lab, &options.program, shim)?;
                if options.warms_up() {
                    load(lab, WARM_UP_SECONDS)?;
                }
                let before = read()?;
                let load = load(lab, options.seconds)?;
                let after = read()?;
                if let Some(running) = running {
                    running.stop()?;
                }
                let sample = Sample {
                    repetition,
                    shim,
                    load,
                    switch: after.0 - before.0,
                    node: after.1 - before.1,
                    switch_packets: after.2 - before.2,
                    node_packets: after.3 - before.3,
                };
                progress.loaded(&format!(
                    "round {repetition}  {shim:<20} {:>7.1} requests/s  {:>7.1} packets each to the connection \
                     server, {:>7.1} to the data server  {} errors",
                    sample.load.requests_per_s,
                    sample.per_request(sample.switch_packets as f64),
                    sample.per_request(sample.node_packets as f64),
                    sample.load.errors.total()
                ));
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

fn config(lab: &Lab) -> String {
    format!(
        "[cluster]\nkey_file = \"{{key_file}}\"\n\n{{nodes}}\n[[pool]]\nname = \"web\"\nnodes = [{{node_names}}]\n\
         policy = \"round-robin\"\n\n[[client]]\nnetwork = \"{}/32\"\n\n[[service]]\nname = \"s\"\n\
         listen = [\"{{vip4}}:80\"]\nroute = [{{ pool = \"web\" }}]\n",
        lab.client(0).ipv4()
    )
}

fn start(lab: &Lab, program: &Path, shim: Shim) -> Result<Option<Process>> {
    let thin = match shim {
        Shim::Without => return Ok(None),
        Shim::Plain => String::new(),
        Shim::Thin(count) => format!("thin_acks = {count}\n"),
    };
    let host = lab.client(0);
    let file = host.directory().join("client.toml");
    let text = format!("key_file = \"client.key\"\nservices = [\"{}:80\"]\n{thin}", lab.vip4());
    fs::write(&file, text).doing(|| format!("write {}", file.display()))?;
    let mut command = Command::new(program);
    command.args(["client", "--interface", "eth0", "--config"]).arg(&file);
    let process = host.spawn("shim", command)?;
    process.wait_for_log("client ready", READY)?;
    Ok(Some(process))
}

fn load(lab: &Lab, seconds: u32) -> Result<LoadResult> {
    let url = format!("http://{}/{DOCUMENT}", lab.vip4());
    Load { url: &url, connections: CONNECTIONS, close: false, fields: &[], seconds }.run(lab.client(0))
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 7] = [
    ("Client", false),
    ("Requests/s (min–max)", true),
    ("÷ without a shim", true),
    ("Packets to the CS, each", true),
    ("to the DS, each", true),
    ("CPU of the CS, µs each", true),
    ("of the DS, µs each", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,shim,requests,requests_per_s,p50_us,p99_us,errors,\
        cs_process_us,cs_receive_us,ds_process_us,ds_receive_us,cs_packets,ds_packets";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, shim, load, switch, node, switch_packets, node_packets } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{shim}\""), load.requests.to_string()];
        cells.push(format!("{:.2}", load.requests_per_s));
        cells.extend([load.p50, load.p99].map(|time| time.as_micros().to_string()));
        cells.push(load.errors.total().to_string());
        let times = [switch.process, switch.receive, node.process, node.receive];
        cells.extend(times.map(|time| time.as_micros().to_string()));
        cells.extend([switch_packets, node_packets].map(u64::to_string));
        cells
    }

    /// A line for each kind of client.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        let without = self.rate(Shim::Without);
        for shim in Shim::all() {
            let each = |value: fn(&Sample) -> f64| {
                let spread = self.spread(shim, |sample| sample.per_request(value(sample)));
                shown(spread, |spread| thousands(spread.median))
            };
            text += &row(&[
                shim.to_string(),
                with_extremes(self.rate(shim), thousands),
                shown(ratio(self.rate(shim), without), |ratio| format!("{ratio:.2}")),
                each(|sample| sample.switch_packets as f64),
                each(|sample| sample.node_packets as f64),
                each(|sample| micros(sample.switch.total())),
                each(|sample| micros(sample.node.total())),
            ]);
        }
        text
    }

    fn beside_the_paper(&self) -> String {
        let best = THIN.into_iter().filter_map(|count| {
            ratio(self.rate(Shim::Thin(count)), self.rate(Shim::Plain)).map(|gain| (gain, count))
        });
        let Some((gain, count)) = best.max_by(|one, other| one.0.total_cmp(&other.0)) else {
            return String::new();
        };
        format!(
            "The paper has {PAPER_GAIN:.2} times the requests/s with one acknowledgment for a whole response instead of one for \
             each packet, between bare machines without a kernel, whose servers were the limit. Here it is {gain:.2} times the \
             shim's own at best, with thin_acks = {count}: these kernels merge packets (GSO, GRO) and acknowledge a score \
             of them at once, so that hardly any acknowledgment has another one behind it for whose sake it could be \
             left out.",
        )
    }

    fn how(&self) -> String {
        format!(
            "{} Responses of 1 MiB on {CONNECTIONS} connections that are kept, one data server, no limit but the machine's.",
            repeated(self)
        )
    }

    /// A plot of requests/s over the acknowledgments left out.
    fn plot(&self) -> Option<Plot> {
        let without = self.rate(Shim::Without).map_or(1.0, |rate| rate.median);
        let most = THIN[THIN.len() - 1];
        let flat = |value: f64| vec![(0, value), (most, value)];
        let shims = Shim::all();
        let thin = shims.iter().filter(|shim| **shim != Shim::Without);
        let points = |value: &dyn Fn(Shim) -> Option<Spread>, unit: f64| {
            let point = |shim: &Shim| Some((shim.left_out(), value(*shim)?.median / unit));
            thin.clone().filter_map(point).collect::<Vec<_>>()
        };
        let packets = |shim| self.spread(shim, |sample| sample.per_request(sample.node_packets as f64));
        let packets_without = packets(Shim::Without).map_or(1.0, |packets| packets.median);
        let curve = |name: &str, color: usize, dashed, points| Curve {
            name: name.to_owned(),
            color: COLORS[color],
            dashed,
            points,
        };
        Some(Plot::Lines(Lines {
            title: "Clients with a shim that leave acknowledgments out".to_owned(),
            x_title: "acknowledgments left out in a row, at most",
            y_title: "times that without a shim",
            is_logarithmic: false,
            margin: 1,
            curves: vec![
                curve("requests/s", 3, false, points(&|shim| self.rate(shim), without)),
                curve("packets to the DS", 0, false, points(&packets, packets_without)),
                curve("paper: requests/s", 3, true, flat(PAPER_GAIN)),
            ],
        }))
    }
}

impl Results {
    fn rate(&self, shim: Shim) -> Option<Spread> {
        self.spread(shim, |sample| sample.load.requests_per_s)
    }

    fn spread(&self, shim: Shim, value: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().filter(|sample| sample.shim == shim).map(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn results() -> Results {
        let sample = |shim: Shim| Sample {
            repetition: 1,
            shim,
            load: fixtures::load(100, if matches!(shim, Shim::Thin(_)) { 60.0 } else { 50.0 }),
            switch: CpuTimes { process: Duration::from_millis(1), receive: Duration::from_millis(9) },
            node: CpuTimes { process: Duration::from_millis(10), receive: Duration::from_millis(20) },
            switch_packets: if shim == Shim::Without { 10_000 } else { 200 },
            node_packets: 10_000,
        };
        fixtures::results(1, Shim::all().into_iter().map(sample).collect())
    }

    #[test]
    fn the_table_compares_with_a_client_without_a_shim() {
        let table = results().table();
        assert!(
            table.contains("| no shim | 50.0 (50.0–50.0) | 1.00 | 100.0 | 100.0 | 100.0 | 300.0 |"),
            "{table}"
        );
        assert!(
            table.contains("| shim | 50.0 (50.0–50.0) | 1.00 | 2.0 | 100.0 | 100.0 | 300.0 |"),
            "{table}"
        );
        assert!(table.contains("| shim, thin_acks = 4 | 60.0 (60.0–60.0) | 1.20 |"), "{table}");
        assert!(results().beside_the_paper().contains("1.20 times the shim's own at best"));
        assert_eq!(results().csv().lines().count(), 1 + Shim::all().len());
    }

    #[test]
    fn the_plot_has_the_papers_figure() {
        let svg = results().plot().expect("it has one").svg().expect("nothing but text is written");
        assert!(svg.contains("paper: requests/s") && svg.contains("packets to the DS"));
    }
}
