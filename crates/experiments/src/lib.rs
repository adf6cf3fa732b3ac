//! Measurements on labs: what `switchback lab run` does.
//!
//! An [`Experiment`] makes a lab, puts load on it, and returns every single measurement; a [`Report`] summarises and
//! shows them, so that it can be tested without a lab. Numbers of one run compare with each other, not with those of
//! another machine or day: all hosts share this machine's CPUs.

mod accept_queue;
mod adoption_cost;
mod bpf_time;
mod by_lot;
mod calibrate;
mod comparison;
mod connection_latency;
mod cpu;
mod dwsr;
mod far_clients;
#[cfg(test)]
mod fixtures;
mod greedy_clients;
mod h2load;
mod log_cost;
mod machine;
mod mini_cluster;
mod open_loop;
mod proxies;
mod report;
mod report_cost;
mod resume;
mod resume_cost;
mod session_cost;
mod sessions;
mod split_acks;
mod split_scaling;
mod statistics;
mod switch_failover;
mod systems;
mod tls_forwarding;
mod tls_load;
mod tls_proxies;
mod waiting;
mod wrk;

pub use accept_queue::AcceptQueue;
pub use adoption_cost::AdoptionCost;
pub use by_lot::dispatch_by_lot;
pub use calibrate::Calibrate;
pub use connection_latency::ConnectionLatency;
pub use dwsr::{DwsrTable1, DwsrTable2, DwsrTable3};
pub use far_clients::FarClients;
pub use greedy_clients::GreedyClients;
pub use log_cost::LogCost;
pub use machine::Machine;
pub use mini_cluster::MiniCluster;
pub use open_loop::{Connections, Failures, OpenLoop, STALL};
pub use proxies::Proxies;
pub use report::Report;
pub use report_cost::ReportCost;
pub use resume::Resume;
pub use resume_cost::ResumeCost;
pub use session_cost::SessionCost;
pub use split_acks::SplitAcks;
pub use split_scaling::SplitScaling;
pub use switch_failover::{Soak, SwitchFailover};
pub use tls_forwarding::TlsForwarding;
pub use tls_proxies::TlsProxies;

use std::path::PathBuf;

use switchback_lab::{Builder, Error, Lab, Result};

/// Options of all experiments.
#[derive(Clone, Debug)]
pub struct Options {
    /// Duration of each load, or the time in which its connections begin, in seconds.
    pub seconds: u32,
    /// Repetitions of each load.
    pub repetitions: u32,
    /// The `switchback` binary.
    pub program: PathBuf,
}

impl Options {
    /// Whether loads run that are not measured, before those that are. Where these take a second, which shows no more than that
    /// the experiment runs, they do not.
    fn warms_up(&self) -> bool {
        self.seconds > 1
    }
}

/// Shows the progress of an experiment.
pub trait Progress {
    /// The number of loads to come.
    fn expect(&mut self, loads: usize);

    /// A load has ended; `line` has its result.
    fn loaded(&mut self, line: &str);
}

/// Loads on a lab, and measurements of them.
pub trait Experiment {
    /// One load, measured.
    type Sample;
    /// Name of its command and of its files.
    const NAME: &'static str;
    /// Default of [`Options::seconds`].
    const SECONDS: u32;
    /// Default of [`Options::repetitions`].
    const REPETITIONS: u32;
    /// The programs that it needs, each with the argument that asks for its version.
    const PROGRAMS: &'static [(&'static str, &'static str)];
    /// Whether its report has a plot, which needs a font.
    const PLOTTED: bool = true;

    /// Number of nodes in its lab.
    fn nodes(&self) -> usize;

    /// The lab; if not defined, with one client and two switches.
    fn builder(&self) -> Builder {
        Lab::builder().switches(2).nodes(self.nodes())
    }

    /// Facts for the report, besides the versions of [`PROGRAMS`](Self::PROGRAMS): name and value.
    fn facts(&self) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    /// Fails if an option names what cannot be used; before there is a lab.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The results beside those of an earlier run that the options name, as Markdown; empty without one.
    fn comparison(&self, _results: &Results<Self::Sample>) -> Result<String> {
        Ok(String::new())
    }

    /// Puts the loads on the lab.
    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress)
    -> Result<Vec<Self::Sample>>;

    /// Makes a lab, measures on it, and takes it down. After ^C the error is [`Error::TornDown`].
    fn run(&self, options: &Options, progress: &mut dyn Progress) -> Result<Results<Self::Sample>> {
        self.check()?;
        let mut machine = Machine::look(Self::PROGRAMS)?;
        machine.facts.extend(self.facts()?);
        if Self::PLOTTED {
            // Checked before the measurement rather than after it.
            switchback_plot::register_font().map_err(plot_error)?;
        }
        let lab = self.builder().up()?;
        let samples = match self.measure(&lab, options, progress) {
            // After ^C has taken the lab down, other errors are not reported. Waits until the lab is removed.
            Err(_) if lab.client(0).run(["true"]).is_err_and(|error| matches!(error, Error::TornDown)) => {
                return Err(Error::TornDown);
            }
            result => result?,
        };
        lab.down()?;
        let Options { seconds, repetitions, .. } = *options;
        Ok(Results { seconds, repetitions, machine, samples })
    }
}

/// All measurements of an experiment.
#[derive(Clone, Debug)]
pub struct Results<Sample> {
    /// The duration of each load, as in [`Options`].
    pub seconds: u32,
    /// The repetitions of each load, as in [`Options`].
    pub repetitions: u32,
    /// The machine and the programs.
    pub machine: Machine,
    /// The measurements, in order of time.
    pub samples: Vec<Sample>,
}

/// The error of a plot that cannot be drawn.
fn plot_error(error: switchback_plot::PlotError) -> Error {
    Error::Invalid(error.to_string())
}

/// The items, rotated in each repetition (from 1), because a load may be affected by the one before it.
fn in_turn<T>(items: &[T], repetition: u32) -> impl Iterator<Item = &T> {
    items.iter().cycle().skip(repetition as usize - 1).take(items.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repetition_begins_with_another_one() {
        let order = |repetition| in_turn(&[1, 2, 3], repetition).copied().collect::<Vec<_>>();
        assert_eq!([1, 2, 3, 4].map(order), [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]);
    }
}
