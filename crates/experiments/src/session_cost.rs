//! The cost of session persistence: the same requests and responses with and without, on one cluster in turn.
//!
//! One node serves five services, which differ in the persistence of sessions. Requests are some 500 bytes long, as
//! browsers', with several cookies; every response sets the application's cookie, the greatest work for a node. The
//! kernel measures the run time of each BPF program (`BPF_ENABLE_STATS`), so the measurement is of real packets on real
//! connections.

use std::net::SocketAddr;

use switchback_lab::{Lab, Result, ServerOptions};

use super::bpf_time::{BpfMeter, BpfTime, BpfTimes};
use super::cpu::{CpuMeter, CpuTimes};
use super::report::{Report, header, micros, repeated, row, shown, with_extremes};
use super::sessions::{self, Persistence};
use super::statistics::Spread;
use super::systems::{self, Service};
use super::wrk::{Load, LoadResult};
use super::{Experiment, Options, Progress, in_turn};

const NODES: usize = 1;
const CONNECTIONS: u32 = 16;
const WARM_UP_SECONDS: u32 = 1;

/// The persistence of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No persistence. Balancing is by request, so that requests take the same path through the switch as with
    /// sessions.
    Without,
    /// The server's cookie is rewritten in each response, and restored in each request.
    Rewrite,
    /// Requests have our cookie.
    Insert,
    /// Requests lack our cookie, so each response gets one.
    InsertAlways,
    /// By a header field.
    Hash,
}

impl Mode {
    /// All values, in the order of the tables.
    pub const ALL: [Mode; 5] = [Mode::Without, Mode::Rewrite, Mode::Insert, Mode::InsertAlways, Mode::Hash];

    fn name(self) -> &'static str {
        match self {
            Mode::Without => "without",
            Mode::Rewrite => "rewrite",
            Mode::Insert => "insert, cookie known",
            Mode::InsertAlways => "insert, every response",
            Mode::Hash => "hash",
        }
    }

    fn port(self) -> u16 {
        match self {
            Mode::Without => 8080,
            Mode::Rewrite => 8081,
            Mode::Insert | Mode::InsertAlways => 8082,
            Mode::Hash => 8083,
        }
    }

    fn service(self) -> Service {
        let persistence = match self {
            Mode::Without => Persistence::None,
            Mode::Rewrite => Persistence::Rewrite,
            Mode::Insert | Mode::InsertAlways => Persistence::Insert,
            Mode::Hash => Persistence::Hash,
        };
        Service { pool: persistence.pool(), ..Service::new(self.port(), NODES) }
    }
}

/// One load, measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The persistence of sessions.
    pub mode: Mode,
    /// The client's measurement.
    pub load: LoadResult,
    /// Run times of the programs of node and switch.
    pub bpf: BpfTimes,
    /// CPU time of the switch.
    pub switch: CpuTimes,
}

/// Selects one of the programs.
type Program = fn(&BpfTimes) -> BpfTime;

impl Sample {
    /// Run time of a program per request, in nanoseconds.
    fn ns_per_request(&self, program: Program) -> Option<f64> {
        self.load.per_request(program(&self.bpf).time.as_nanos() as f64)
    }

    fn switch_us_per_request(&self) -> Option<f64> {
        self.load.per_request(micros(self.switch.total()))
    }
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// The same requests with each mode and without.
#[derive(Clone, Copy, Debug)]
pub struct SessionCost;

impl Experiment for SessionCost {
    type Sample = Sample;
    const NAME: &'static str = "session-cost";
    const SECONDS: u32 = 4;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("wrk", "-v")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        let listen = [8080, 8081, 8082, 8083].map(|port| SocketAddr::from(([0, 0, 0, 0], port)));
        let extra = format!("tcp_nopush on; keepalive_requests 1000000000; {}", sessions::set_cookie());
        lab.node(0).nginx(&ServerOptions { listen: listen.to_vec(), extra, ..ServerOptions::default() })?;
        let services = [Mode::Without, Mode::Rewrite, Mode::Insert, Mode::Hash].map(Mode::service);
        let config = lab.write_config_text(&systems::config(&services))?;
        let daemons = systems::start_switchback(lab, &options.program, &config)?;
        let cpu = CpuMeter::new(lab.switch(0), daemons.switch())?;
        let bpf = BpfMeter::new(daemons.all())?;
        progress.expect(Mode::ALL.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for &mode in in_turn(&Mode::ALL, repetition) {
                let fields = sessions::fields(lab, mode.port(), mode == Mode::InsertAlways)?;
                if repetition == 1 && options.warms_up() {
                    load(lab, mode, &fields, WARM_UP_SECONDS)?;
                }
                let before = (bpf.read()?, cpu.read()?);
                let load = load(lab, mode, &fields, options.seconds)?;
                let after = (bpf.read()?, cpu.read()?);
                let (bpf, switch) = (after.0 - before.0, after.1 - before.1);
                let sample = Sample { repetition, mode, load, bpf, switch };
                progress.loaded(&describe(&sample));
                samples.push(sample);
            }
        }
        Ok(samples)
    }
}

fn load(lab: &Lab, mode: Mode, fields: &[String], seconds: u32) -> Result<LoadResult> {
    let url = format!("http://{}:{}/small", lab.vip4(), mode.port());
    Load { url: &url, connections: CONNECTIONS, close: false, fields, seconds }.run(lab.client(0))
}

fn describe(sample: &Sample) -> String {
    let Sample { repetition, mode, load, .. } = sample;
    let ns = |program: Program| shown(sample.ns_per_request(program), |ns| format!("{ns:.0}"));
    format!(
        "round {repetition}  {:<23} {:>7.0} requests/s  in {} ns, out {} ns each  {} errors",
        mode.name(),
        load.requests_per_s,
        ns(|bpf| bpf.ingress),
        ns(|bpf| bpf.egress),
        load.errors.total()
    )
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 8] = [
    ("Sessions", false),
    ("Requests/s (min–max)", true),
    ("Node, in: ns/request (min–max)", true),
    ("more than without", true),
    ("Node, out: ns/request (min–max)", true),
    ("more than without", true),
    ("Node, written: ns/request", true),
    ("Switch: CPU µs/request (min–max)", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,mode,requests,requests_per_s,errors,\
        ingress_runs,ingress_ns,egress_runs,egress_ns,insert_runs,insert_ns,xdp_runs,xdp_ns,\
        switch_process_us,switch_receive_us";

    fn csv_cells(sample: &Sample) -> Vec<String> {
        let Sample { repetition, mode, load, bpf, switch } = sample;
        let mut cells = vec![repetition.to_string(), format!("\"{}\"", mode.name())];
        cells.extend([load.requests.to_string(), format!("{:.2}", load.requests_per_s)]);
        cells.push(load.errors.total().to_string());
        for program in [bpf.ingress, bpf.egress, bpf.insert, bpf.xdp] {
            cells.extend([program.runs.to_string(), program.time.as_nanos().to_string()]);
        }
        cells.extend([switch.process, switch.receive].map(|time| time.as_micros().to_string()));
        cells
    }

    /// A line for each mode.
    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        for mode in Mode::ALL {
            text += &row(&self.cells(mode));
        }
        text
    }

    fn how(&self) -> String {
        repeated(self)
    }
}

impl Results {
    fn spread(&self, mode: Mode, value: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.samples.iter().filter(|sample| sample.mode == mode).filter_map(value))
    }

    fn cells(&self, mode: Mode) -> [String; COLUMNS.len()] {
        let ns = |program: Program| self.spread(mode, |sample| sample.ns_per_request(program));
        let more = |program: Program| {
            let without = self.spread(Mode::Without, |sample| sample.ns_per_request(program));
            let more = ns(program).zip(without).map(|(with, without)| with.median - without.median);
            shown(more, |ns| format!("{ns:+.0}"))
        };
        let whole = |value: f64| format!("{value:.0}");
        [
            mode.name().to_owned(),
            with_extremes(self.spread(mode, |sample| Some(sample.load.requests_per_s)), whole),
            with_extremes(ns(|bpf| bpf.ingress), whole),
            more(|bpf| bpf.ingress),
            with_extremes(ns(|bpf| bpf.egress), whole),
            more(|bpf| bpf.egress),
            shown(ns(|bpf| bpf.insert), |spread| whole(spread.median)),
            with_extremes(self.spread(mode, Sample::switch_us_per_request), |us| format!("{us:.2}")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures;

    #[test]
    fn the_table_says_how_much_more() {
        let time = |ns| BpfTime { runs: 1, time: Duration::from_nanos(ns) };
        let sample = |mode, ingress, egress| Sample {
            repetition: 1,
            mode,
            load: fixtures::load(100, 50.0),
            bpf: BpfTimes {
                ingress: time(ingress),
                egress: time(egress),
                xdp: time(50),
                ..BpfTimes::default()
            },
            switch: CpuTimes { process: Duration::from_micros(200), receive: Duration::from_micros(100) },
        };
        let samples = vec![sample(Mode::Without, 100_000, 50_000), sample(Mode::Rewrite, 130_000, 45_000)];
        let results = fixtures::results(1, samples);
        let table = results.table();
        let expected =
            "| rewrite | 50 (50–50) | 1300 (1300–1300) | +300 | 450 (450–450) | -50 | 0 | 3.00 (3.00–3.00) |";
        assert!(table.lines().any(|line| line == expected), "{table}");
        assert!(results.markdown().contains("| Kernel | Linux 6.18 |"));
        assert_eq!(results.csv().lines().count(), 3);
        assert!(results.csv().contains("1,\"rewrite\",100,50.00,0,1,130000,1,45000,0,0,1,50,200,100"));
    }
}
