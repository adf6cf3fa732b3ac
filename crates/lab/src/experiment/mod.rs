//! Measurements on a lab: what `switchback lab run` does.
//!
//! An experiment makes a lab, puts load on it, and returns every single measurement; how they are summed up and
//! shown is separate, so that it can be tested without a lab. Numbers of one run compare with each other, not
//! with those of another machine or day: all hosts share this machine's CPUs.

pub mod accept_queue;
mod bpf_time;
mod by_lot;
mod cpu;
mod machine;
pub mod mini_cluster;
mod open_loop;
mod plot;
pub mod proxies;
mod report;
pub mod session_cost;
pub mod split_acks;
pub mod split_scaling;
mod statistics;
mod systems;
mod wrk;

pub use bpf_time::BpfTime;
pub use by_lot::dispatch_by_lot;
pub use cpu::CpuTimes;
pub use machine::Machine;
pub use open_loop::{Connections, Failures, OpenLoop, STALL};
pub use statistics::Spread;
pub use systems::System;
pub use wrk::{Errors, LoadResult};

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::lab::Lab;

/// What to run, where there is nothing else to be said.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long each load lasts.
    pub seconds: u32,
    /// How often each load is repeated.
    pub repetitions: u32,
    /// The `switchback` binary.
    pub program: PathBuf,
}

/// Everything that an experiment measured.
#[derive(Clone, Debug)]
pub struct Results<Sample> {
    /// How long each load lasted, or its connections went on beginning.
    pub seconds: u32,
    /// How often each was repeated.
    pub repetitions: u32,
    /// With what.
    pub machine: Machine,
    /// In the order in which they were taken.
    pub samples: Vec<Sample>,
}

/// Makes a lab with two switches and so many nodes, measures on it, and takes it down. After ^C the error is
/// [`Error::TornDown`].
fn in_lab<T>(nodes: usize, measure: impl FnOnce(&Lab) -> Result<T>) -> Result<T> {
    let lab = Lab::builder().switches(2).nodes(nodes).up()?;
    let measured = match measure(&lab) {
        // Whatever failed because the lab was taken down under it is no news. Waits until that is done.
        Err(_) if lab.client(0).run(["true"]).is_err_and(|error| matches!(error, Error::TornDown)) => {
            return Err(Error::TornDown);
        }
        result => result?,
    };
    lab.down()?;
    Ok(measured)
}
