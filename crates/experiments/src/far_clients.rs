//! Downloads by a client that is far away: the congestion control of the sender decides how fast they become.
//!
//! Behind Switchback the sender is a node whose kernel has not seen the handshake. Its congestion control has to begin as
//! on a direct connection, and so does a proxy's, which is the sender there.

use std::fs;
use std::time::Duration;

use switchback_lab::{Doing, Error, Impairment, Lab, Result, ServerOptions};

use super::report::{Report, header, repeated, row, shown, with_extremes};
use super::statistics::Spread;
use super::systems::{self, Proxy, Running, System};
use super::{Experiment, Options, Progress, in_turn};

const NODES: usize = 1;
/// Time that each packet takes from and to the client.
const ONE_WAY: Duration = Duration::from_millis(20);
/// More than a client gets within any time that may be chosen.
const DOCUMENT_BYTES: u64 = 1 << 40;
const DOCUMENT: &str = "endless";
/// The congestion controls that network namespaces may choose.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// Exit status of curl when its time is over.
const TIME_OVER: i32 = 28;

/// One download.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Congestion control of all hosts.
    pub control: String,
    /// What the client asks.
    pub system: System,
    /// Bytes that arrived, with the response's head.
    pub bytes: u64,
}

/// All measurements.
pub type Results = super::Results<Sample>;

/// Downloads by a client that is far away.
#[derive(Clone, Copy, Debug)]
pub struct FarClients;

impl Experiment for FarClients {
    type Sample = Sample;
    const NAME: &'static str = "far-clients";
    const SECONDS: u32 = 2;
    const REPETITIONS: u32 = 5;
    const PROGRAMS: &'static [(&'static str, &'static str)] =
        &[("haproxy", "-v"), ("nginx", "-v"), ("curl", "-V")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Sample>> {
        lab.add_zeros(DOCUMENT, DOCUMENT_BYTES)?;
        let server = ServerOptions::default();
        let systems = systems::start(lab, &options.program, &Proxy::all_installed(), &[NODES], &server)?;
        let allowed = fs::read_to_string(ALLOWED).doing(|| format!("read {ALLOWED}"))?;
        let controls: Vec<&str> = allowed.split_whitespace().collect();
        progress.expect(controls.len() * systems.len() * options.repetitions as usize);
        let mut samples = Vec::new();
        for repetition in 1..=options.repetitions {
            for control in &controls {
                for host in lab.nodes().chain(lab.switches()) {
                    host.sysctl(&[("ipv4/tcp_congestion_control", control)])?;
                }
                for running in in_turn(&systems, repetition) {
                    let bytes = download(lab, running, options.seconds)?;
                    let system = running.system;
                    progress.loaded(&format!(
                        "round {repetition}  {control:<6} {system:<10} {:>6.1} MiB",
                        mebibytes(bytes)
                    ));
                    samples.push(Sample { repetition, control: (*control).to_owned(), system, bytes });
                }
            }
        }
        Ok(samples)
    }
}

/// The bytes of a download in its first seconds, on a new connection.
fn download(lab: &Lab, running: &Running, seconds: u32) -> Result<u64> {
    let client = lab.client(0);
    let impairment = Impairment { reorder_permille: 1000, hold: ONE_WAY, ..Impairment::default() };
    let cable = client.impair(impairment)?;
    let url = format!("http://{}/{DOCUMENT}", running.address(NODES));
    let seconds = seconds.to_string();
    let words = ["curl", "-s", "-o", "/dev/null", "-w", "%{size_download}", "--max-time", &seconds, &url];
    let output = client.run(words)?;
    cable.heal()?;
    match output.stdout.trim().parse() {
        Ok(bytes) if output.status.code() == Some(TIME_OVER) => Ok(bytes),
        _ => Err(Error::Invalid(format!("curl {url}: {}, {} bytes", output.status, output.stdout))),
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The columns of the table, with true for numbers.
const COLUMNS: [(&str, bool); 6] = [
    ("Congestion control", false),
    ("MiB: direct (min–max)", true),
    ("HAProxy", true),
    ("nginx", true),
    ("Switchback", true),
    ("÷ direct", true),
];

impl Report for Results {
    type Sample = Sample;
    const CSV_TITLES: &'static str = "repetition,congestion_control,system,bytes";

    fn csv_cells(Sample { repetition, control, system, bytes }: &Sample) -> Vec<String> {
        vec![repetition.to_string(), control.clone(), system.to_string(), bytes.to_string()]
    }

    fn table(&self) -> String {
        let mut text = header(&COLUMNS);
        let mut controls: Vec<&str> = Vec::new();
        for Sample { control, .. } in &self.samples {
            if !controls.contains(&control.as_str()) {
                controls.push(control);
            }
        }
        for control in controls {
            let of = |wanted| {
                let samples = self.samples.iter();
                let samples =
                    samples.filter(move |sample| sample.control == control && sample.system == wanted);
                Spread::of(samples.map(|sample| mebibytes(sample.bytes)))
            };
            let (direct, switchback) = (of(System::Direct), of(System::Switchback));
            let ratio = direct.zip(switchback).map(|(direct, ours)| ours.median / direct.median);
            let cell = |spread| with_extremes(spread, |value| format!("{value:.0}"));
            text += &row(&[
                control.to_owned(),
                cell(direct),
                cell(of(System::Haproxy)),
                cell(of(System::Nginx)),
                cell(switchback),
                shown(ratio, |ratio| format!("{ratio:.2}")),
            ]);
        }
        text
    }

    fn how(&self) -> String {
        let ms = 2 * ONE_WAY.as_millis();
        format!("The first {} s of a download, {ms} ms away. {}", self.seconds, repeated(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn the_table_has_a_row_for_each_congestion_control() {
        let sample = |control: &str, system, mebibytes: u64| Sample {
            repetition: 1,
            control: control.to_owned(),
            system,
            bytes: mebibytes << 20,
        };
        let samples = vec![
            sample("bbr", System::Direct, 100),
            sample("bbr", System::Switchback, 90),
            sample("bbr", System::Switchback, 70),
            sample("cubic", System::Haproxy, 50),
        ];
        let results = fixtures::results(2, samples);
        let table = results.table();
        assert!(table.contains("| bbr | 100 (100–100) | – | – | 80 (70–90) | 0.80 |"), "{table}");
        assert!(table.contains("| cubic | – | 50 (50–50) | – | – | – |"), "{table}");
        assert!(results.csv().contains("1,cubic,HAProxy,52428800"), "{}", results.csv());
    }
}
