//! The cost of observation: the same loads with access log and metrics, and without, in turn.
//!
//! Client, switch and node share this machine's CPUs, so the ratio of requests/s includes all work of the switch, its
//! observer and the node's agent for the log. The log goes to a file, and the metrics are scraped once a second. Each
//! load has a switch of its own, because an admin address is effective only from the start.

use std::path::{Path, PathBuf};
use std::process::Command;

use switchback_lab::{Lab, Process, Result, ServerOptions};

use super::comparison::{Basis, Good, Measure, Repetitions};
use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, micros, repeated, row, shown, with_extremes};
use super::statistics::Spread;
use super::systems::{self, Service};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

/// What runs are compared by.
pub(super) const BASIS: Basis = Basis {
    experiment: LogCost::NAME,
    workload: "load",
    system: "observed",
    systems: ["true", "false"],
    repetitions: Repetitions::RoundByRound,
    measures: &[
        Measure { column: "requests_per_s", ratio: "requests/s with log ÷ without", good: Good::High },
        Measure {
            column: "switch_us_per_request",
            ratio: "switch's CPU with log ÷ without",
            good: Good::Low,
        },
    ],
};

const NODES: usize = 1;
const CONNECTIONS: u32 = 32;
const WARM_UP_SECONDS: u32 = 1;
/// Longest interval between scrapes, in seconds.
const SCRAPE: &str = "1";

/// The clients' requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Small responses on kept connections.
    Small,
    /// Small responses, each on a new connection.
    New,
    /// Responses of 1 MiB.
    Large,
}

impl Work {
    /// All values, in the order of the table.
    pub const ALL: [Work; 3] = [Work::Small, Work::New, Work::Large];

    pub(super) fn name(self) -> &'static str {
        match self {
            Work::Small => "100 B, keep-alive",
            Work::New => "100 B, new connections",
            Work::Large => "1 MiB, keep-alive",
        }
    }

    fn path(self) -> &'static str {
        if self == Work::Large { "/1m" } else { "/small" }
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The clients' requests.
    pub work: Work,
    /// Whether there were an access log and metrics.
    pub observed: bool,
    /// The client's measurement.
    pub load: LoadResult,
    /// CPU time of the switch.
    pub switch: CpuTimes,
}

impl Sample {
    /// CPU time of the switch per request, in microseconds; None without a request.
    fn switch_us_per_request(&self) -> Option<f64> {
        self.load.per_request(micros(self.switch.total()))
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// The same loads with access log and metrics, and without.
#[derive(Clone, Debug, Default)]
pub struct LogCost {
    /// The CSV file of an earlier run, with whose ratios those of this one are compared.
    pub compare: Option<PathBuf>,
}

impl Experiment for LogCost {
    type Sample = Sample;
    const NAME: &'static str = "log-cost";
    // The machine's speed varies over time, so many short rounds are more precise than a few long ones.
    const SECONDS: u32 = 2;
    const REPETITIONS: u32 = 15;
    const PROGRAMS: &'static [(&'static str, &'static str)] =
        &[("nginx", "-v"), ("wrk", "-v"), ("curl", "-V")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn check(&self) -> Result<()> {
        BASIS.check(self.compare.as_deref())
    }

    fn comparison(&self, results: &Results) -> Result<String> {
        BASIS.compare(self.compare.as_deref(), &results.csv())
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let extra = "tcp_nopush on; keepalive_requests 1000000000;".to_owned();
        lab.node(0).nginx(&ServerOptions { extra, ..ServerOptions::default() })?;
        let plain = systems::config(&[Service::new(80, NODES)]);
        let log = lab.directory().join("access.log");
        let observed = format!("{plain}\n[access_log]\npath = \"{}\"\n\n[admin]\n", log.display());
        let config = lab.write_config_text(&plain)?;
        systems::start_switchback(lab, &options.program, &config)?.switch().stop()?;
        progress.expect(Work::ALL.len() * 2 * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for work in Work::ALL {
                for &with in in_turn(&[false, true], repetition) {
                    lab.write_config_text(if with { &observed } else { &plain })?;
                    let switch = systems::start_switch(lab, &options.program, &config)?;
                    let sample = measure(lab, &switch, repetition, work, with, options.seconds)?;
                    switch.stop()?;
                    // The log would fill the disk otherwise.
                    let _ = std::fs::remove_file(Path::new(&log));
                    progress.loaded(&describe(&sample));
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

fn measure(
    lab: &Lab,
    switch: &Process,
    repetition: u32,
    work: Work,
    observed: bool,
    seconds: u32,
) -> Result<Sample> {
    let url = format!("http://{}{}", lab.vip4(), work.path());
    let load = |seconds| {
        let close = work == Work::New;
        Load { url: &url, connections: CONNECTIONS, close, fields: &[], seconds }.run(lab.client(0))
    };
    if seconds > WARM_UP_SECONDS {
        load(WARM_UP_SECONDS)?;
    }
    let scraper = if observed { Some(lab.switch(0).spawn("scraper", scraper(seconds))?) } else { None };
    let cpu = CpuMeter::new(lab.switch(0), switch)?;
    let before = cpu.read()?;
    let load = load(seconds)?;
    let switch = cpu.read()? - before;
    if let Some(scraper) = scraper {
        scraper.stop()?;
    }
    Ok(Sample { repetition, work, observed, load, switch })
}

/// Reads the metrics repeatedly for this many seconds.
fn scraper(seconds: u32) -> Command {
    let mut command = Command::new("timeout");
    let url = "http://127.0.0.1:9180/metrics";
    let script = format!("while curl -sf -o /dev/null {url}; do sleep {SCRAPE}; done");
    command.args([&seconds.to_string(), "sh", "-c", &script]);
    command
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, work, observed, load, .. } = sample;
    format!(
        "round {repetition}  {:<22} {:<7} {:>7.0} requests/s  {} errors",
        work.name(),
        if *observed { "with" } else { "without" },
        load.requests_per_s,
        load.errors.total()
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 6] = [
    ("Load", false),
    ("Requests/s without (min–max)", true),
    ("with log and metrics", true),
    ("Ratio, round by round", true),
    ("Switch: CPU µs/request without", true),
    ("with", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,load,observed,requests,requests_per_s,errors,\
        switch_process_us,switch_receive_us,switch_us_per_request";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, work, observed, load, switch } = sample;
        let each = sample.switch_us_per_request();
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", work.name()), observed.to_string()];
        cells.extend([load.requests.to_string(), format!("{:.2}", load.requests_per_s)]);
        cells.push(load.errors.total().to_string());
        cells.extend([switch.process, switch.receive].map(|time| time.as_micros().to_string()));
        cells.push(each.map(|time| format!("{time:.3}")).unwrap_or_default());
        cells
    }

    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for work in Work::ALL {
            text += &row(&self.cells(work));
        }
        text
    }

    fn how(&self) -> String {
        repeated(self)
    }
}

impl Results {
    fn of(&self, work: Work, observed: bool) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.work == work && sample.observed == observed)
    }

    /// The ratio of each round, with to without, measured one after the other.
    fn ratios(&self, work: Work) -> Option<Spread> {
        let rates = |observed| self.of(work, observed).map(|sample| Some(sample.load.requests_per_s));
        Spread::of_ratios(rates(true), rates(false))
    }

    fn cells(&self, work: Work) -> [String; COLUMNS.len()] {
        let rate = |observed| Spread::of(self.of(work, observed).map(|sample| sample.load.requests_per_s));
        let cpu = |observed| Spread::of(self.of(work, observed).filter_map(Sample::switch_us_per_request));
        let whole = |value: f64| format!("{value:.0}");
        let tenths = |spread: Option<Spread>| shown(spread, |spread| format!("{:.1}", spread.median));
        [
            work.name().to_owned(),
            with_extremes(rate(false), whole),
            with_extremes(rate(true), whole),
            with_extremes(self.ratios(work), |ratio| format!("{ratio:.3}")),
            tenths(cpu(false)),
            tenths(cpu(true)),
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
        let sample = |repetition, observed, rate| Sample {
            repetition,
            work: Work::Small,
            observed,
            load: fixtures::load(100, rate),
            switch: CpuTimes { process: Duration::from_micros(200), receive: Duration::from_micros(100) },
        };
        // The second round is slower as a whole.
        let samples = vec![
            sample(1, false, 100.0),
            sample(1, true, 90.0),
            sample(2, true, 49.0),
            sample(2, false, 50.0),
        ];
        let results = fixtures::results(2, samples);
        let table = results.table();
        let expected = "| 100 B, keep-alive | 75 (50–100) | 70 (49–90) | 0.940 (0.900–0.980) | 3.0 | 3.0 |";
        assert!(table.lines().any(|line| line == expected), "{table}");
        assert_eq!(results.csv().lines().count(), 5);
        assert!(results.csv().contains("2,\"100 B, keep-alive\",true,100,49.00,0,200,100,3.000"));
    }
}
