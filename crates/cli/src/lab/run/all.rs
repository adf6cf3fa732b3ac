//! `lab run all`: every experiment, one after the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use switchback_experiments::{self as experiment, Experiment, Options, Report, Results};
use switchback_lab::Error;

use super::measure::{failure, measure, own_program};
use crate::failure::Failure;

const REPORT: &str = "all.md";

/// Run all experiments, one after the other
///
/// Each as its own command does it, with its own defaults, which takes two hours. One that fails does not keep the others
/// from running; the exit status tells. The output directory gets all.md, which links the reports of all.
#[derive(Args)]
pub struct All {
    /// Which ones; without, all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    only: Vec<String>,
    /// How long each load lasts; without, as long as by each experiment's default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: Option<u32>,
    /// How often each load is repeated; without, as often as by each experiment's default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Envoy's program; without, the one in the PATH, if there is one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "bench-out")]
    output: PathBuf,
}

impl All {
    pub fn run(self) -> Result<(), Failure> {
        let program = own_program()?;
        let wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|only| only == name);
        let entries = entries(self.envoy.clone()).into_iter().filter(|entry| wanted(entry.name));
        let mut done = Vec::new();
        for entry in entries {
            eprintln!("{}:", entry.name);
            let start = Instant::now();
            let outcome = match (entry.run)(&self, &program) {
                Err(Error::TornDown) => return Err(failure(Error::TornDown)),
                outcome => outcome.map_err(|error| error.to_string()),
            };
            if let Err(error) = &outcome {
                eprintln!("switchback: {}: {error}", entry.name);
            }
            done.push(Done { name: entry.name, took: start.elapsed(), outcome });
            // Written after each experiment, so that it survives a failure of the next one.
            write_report(&self.output, &done)?;
        }
        match done.iter().filter(|one| one.outcome.is_err()).count() {
            0 => Ok(()),
            failed => Err(Failure::system(format!("{failed} of {} experiments failed", done.len()))),
        }
    }
}

/// Runs an experiment with the options and the `switchback` binary, and returns the written files.
type RunIt = dyn FnOnce(&All, &Path) -> switchback_lab::Result<Vec<PathBuf>>;

/// An experiment, with its function.
struct Entry {
    name: &'static str,
    run: Box<RunIt>,
}

fn entry<E: Experiment + 'static>(experiment: E) -> Entry
where
    Results<E::Sample>: Report<Sample = E::Sample>,
{
    let run = move |all: &All, program: &Path| {
        let options = Options {
            seconds: all.seconds.unwrap_or(E::SECONDS),
            repetitions: all.repetitions.unwrap_or(E::REPETITIONS),
            program: program.to_owned(),
        };
        measure(&experiment, &options, &all.output)
    };
    Entry { name: E::NAME, run: Box::new(run) }
}

/// The experiments, in the order of the documentation.
fn entries(envoy: Option<PathBuf>) -> Vec<Entry> {
    let nodes = experiment::DwsrTable1::NODES.to_vec();
    let connections = experiment::AcceptQueue::CONNECTIONS.to_vec();
    vec![
        entry(experiment::Proxies::default()),
        entry(experiment::ConnectionLatency),
        entry(experiment::DwsrTable1 { nodes, envoy: envoy.clone() }),
        entry(experiment::DwsrTable2 { envoy }),
        entry(experiment::DwsrTable3),
        entry(experiment::SessionCost),
        entry(experiment::LogCost::default()),
        entry(experiment::FarClients),
        entry(experiment::Resume::default()),
        entry(experiment::ResumeCost),
        entry(experiment::AdoptionCost),
        entry(experiment::ReportCost),
        entry(experiment::GreedyClients::default()),
        entry(experiment::AcceptQueue { connections }),
        entry(experiment::TlsForwarding { k: experiment::TlsForwarding::K.to_vec() }),
        entry(experiment::TlsProxies::default()),
        entry(experiment::SplitScaling),
        entry(experiment::SplitAcks),
        entry(experiment::MiniCluster),
        entry(experiment::SwitchFailover::default()),
        entry(experiment::Soak::default()),
        entry(experiment::Calibrate),
    ]
}

fn names() -> Vec<&'static str> {
    entries(None).into_iter().map(|entry| entry.name).collect()
}

/// A finished experiment.
struct Done {
    name: &'static str,
    took: Duration,
    /// The written files, or the reason of the failure.
    outcome: Result<Vec<PathBuf>, String>,
}

fn write_report(directory: &Path, done: &[Done]) -> Result<(), Failure> {
    let path = directory.join(REPORT);
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, report(done)))
        .map_err(|error| Failure::system(format!("write {}: {error}", path.display())))
}

/// The reports, with links to them, and their plots.
fn report(done: &[Done]) -> String {
    let mut text = "# Experiments\n\n| Experiment | Minutes | Files |\n| --- | ---: | --- |\n".to_owned();
    let mut plots = String::new();
    for Done { name, took, outcome } in done {
        let minutes = took.as_secs_f64() / 60.0;
        let cell = match outcome {
            Err(error) => format!("failed: {}", error.replace('\n', " ").replace('|', "\\|")),
            Ok(paths) => {
                let names: Vec<_> = paths.iter().filter_map(|path| path.file_name()?.to_str()).collect();
                plots.extend(
                    names
                        .iter()
                        .filter(|file| file.ends_with(".svg"))
                        .map(|file| format!("\n## {name}\n\n![{name}]({file})\n")),
                );
                names.iter().map(|file| format!("[{file}]({file})")).collect::<Vec<_>>().join(", ")
            }
        };
        text += &format!("| {name} | {minutes:.1} | {cell} |\n");
    }
    text + &plots
}

#[cfg(test)]
mod tests {
    use clap::{Command, Subcommand};

    use super::super::Run;
    use super::*;

    #[test]
    fn all_are_all() {
        let command = Run::augment_subcommands(Command::new("run"));
        let mut commands: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        let mut names = names();
        names.push("all");
        commands.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, commands);
    }

    #[test]
    fn the_report_links_what_there_is_and_says_what_there_is_not() {
        let took = Duration::from_secs(90);
        let paths = ["out/dwsr-table1.md", "out/dwsr-table1.svg"].map(PathBuf::from).to_vec();
        let done = [
            Done { name: "dwsr-table1", took, outcome: Ok(paths) },
            Done { name: "proxies", took, outcome: Err("no haproxy\nor | so".to_owned()) },
        ];
        let text = report(&done);
        let row =
            "| dwsr-table1 | 1.5 | [dwsr-table1.md](dwsr-table1.md), [dwsr-table1.svg](dwsr-table1.svg) |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| proxies | 1.5 | failed: no haproxy or \\| so |\n"), "{text}");
        assert!(text.ends_with("\n## dwsr-table1\n\n![dwsr-table1](dwsr-table1.svg)\n"), "{text}");
    }
}
