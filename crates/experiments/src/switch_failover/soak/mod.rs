//! Whether anything is lost or leaks: the load of this experiment with connections that end and begin anew, and its
//! faults, with nodes that drain and agents that are restarted.
//!
//! The first switch and the first node's agent are cut off, withdrawn and drained as the others are, and never ended, so
//! their memory tells of the whole run. The maps of ended connections and of claims are not counted: they keep the last
//! 65,536, and fill.

mod report;
mod usage;

use std::time::{Duration, Instant};

use switchback_lab::{Builder, Lab, Result};

use super::super::{Experiment, Options, Progress};
use super::faults::{Event, Fault, strike_at_random, strike_each};
use super::load::Kind;
use super::switches::Switches;
use super::{NODES, Sample, SwitchFailover, System};
use usage::{Daemon, read};

/// Bytes of a download and of an upload, which take some seconds: a node that drains has to wait for them.
const DOWNLOAD: usize = 2_000_000;
const UPLOAD: usize = 200_000;
/// The mean time after which clients make a new connection.
const LIFE: Duration = Duration::from_secs(20);
/// Switches and agents that are not ended.
const SPARED: usize = 1;

/// A run.
#[derive(Clone, Debug)]
pub struct Soaked {
    repetition: u32,
    seed: u64,
    /// What clients have seen, by kind of load.
    loads: Vec<Sample>,
    /// From the beginning of the load to the first reading of the daemons, and to the last one.
    times: [Duration; 2],
    daemons: Vec<Daemon>,
}

/// Faults of switches and nodes under load, for a long time.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// Connections with a short request every ten seconds.
    pub connections: u32,
    /// Connections of each other kind.
    pub others: u32,
    /// The seed of the faults in random order; further repetitions have the next ones.
    pub seed: u64,
}

impl Default for Soak {
    fn default() -> Self {
        Soak { connections: Self::CONNECTIONS, others: Self::OTHERS, seed: Self::SEED }
    }
}

impl Soak {
    /// Default of [`connections`](Self#structfield.connections).
    pub const CONNECTIONS: u32 = 2_000;
    /// Default of [`others`](Self#structfield.others).
    pub const OTHERS: u32 = 40;
    /// Default of [`seed`](Self#structfield.seed).
    pub const SEED: u64 = 1;

    fn counts(&self) -> [u32; Kind::ALL.len()] {
        Kind::ALL.map(|kind| if kind == Kind::KeepAlive { self.connections } else { self.others })
    }

    fn run_once(&self, lab: &Lab, options: &Options, repetition: u32) -> Result<Soaked> {
        let counts = self.counts();
        let plan = super::Plan { life: Some(LIFE), ..super::plan(lab, counts, DOWNLOAD, UPLOAD)? };
        let (program, seed) = (&options.program, self.seed + u64::from(repetition - 1));
        let random_for = Duration::from_secs(options.seconds.into());
        let (mut times, mut daemons) = ([Duration::ZERO; 2], Vec::new());
        let run = super::run_on_origins(lab, &plan, || {
            let mut switches = Switches::start(lab, program, SPARED)?;
            let begun = Instant::now();
            let ran = super::load(lab, &plan, |note| {
                strike_each(lab, &mut switches, &Fault::ALL, note)?;
                let before = read(&switches, program)?;
                times[0] = begun.elapsed();
                strike_at_random(lab, &mut switches, &Fault::ALL, seed, random_for, note)?;
                let after = read(&switches, program)?;
                times[1] = begun.elapsed();
                daemons = std::iter::zip(before, after).map(Daemon::from).collect();
                Ok(())
            })?;
            switches.stop()?;
            Ok(ran)
        })?;
        let loads = super::samples_of(repetition, System::Switchback, seed, &counts, &run);
        Ok(Soaked { repetition, seed, loads, times, daemons })
    }
}

impl Soaked {
    fn sum(&self, value: impl Fn(&Sample) -> u64) -> u64 {
        self.loads.iter().map(value).sum()
    }

    /// How often an event has happened.
    fn times_of(&self, event: Event) -> u32 {
        self.loads.first().map_or(0, |load| load.events[event.index()])
    }
}

impl Experiment for Soak {
    type Sample = Soaked;
    const NAME: &'static str = "soak";
    const SECONDS: u32 = 1800;
    const REPETITIONS: u32 = 1;
    const PROGRAMS: &'static [(&'static str, &'static str)] = &[("nginx", "-v"), ("bird", "--version")];
    const PLOTTED: bool = false;

    fn nodes(&self) -> usize {
        NODES
    }

    fn builder(&self) -> Builder {
        SwitchFailover::default().builder()
    }

    fn measure(&self, lab: &Lab, options: &Options, progress: &mut dyn Progress) -> Result<Vec<Soaked>> {
        progress.expect(options.repetitions as usize);
        let mut soaked = Vec::new();
        for repetition in 1..=options.repetitions {
            let one = self.run_once(lab, options, repetition)?;
            progress.loaded(&report::describe(&one));
            soaked.push(one);
        }
        Ok(soaked)
    }
}
