//! Clusters of any size under a virtual clock, with the dispatch code of the switch.
//!
//! A [`Scenario`] describes cluster and load; [`simulate`] runs its replications and returns an [`Outcome`] of each.
//! The simulation has the dispatch code, queues, processors and links, but no packets, losses and caches.
//! `docs/simulator.md` describes its use, and its agreement with theory and with real clusters.

mod arrivals;
mod cluster;
mod events;
pub mod experiments;
mod measure;
mod random;
pub mod scenario;
mod station;

use std::sync::atomic::{AtomicU32, Ordering};
use std::{iter, thread};

pub use measure::{Estimate, Outcome};
pub use random::Amount;
pub use scenario::{Scenario, ScenarioError};

/// Runs all replications of a scenario, each with the next seed, on all processors. Calls `done` after each.
pub fn simulate(scenario: &Scenario, done: impl Fn() + Sync) -> Result<Vec<Outcome>, ScenarioError> {
    if let Some((path, what)) = scenario.mistakes().into_iter().next() {
        return Err(ScenarioError::Invalid(format!("{path}: {what}")));
    }
    let replication = |index: u32| {
        let outcome = cluster::Cluster::new(scenario, scenario.seed.wrapping_add(index.into()))?.run();
        done();
        Ok(outcome)
    };
    in_parallel(scenario.replications, replication).into_iter().collect()
}

/// The results of `work` for 0 to `count` - 1, in their order.
fn in_parallel<T: Send>(count: u32, work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let next = AtomicU32::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(count as usize);
    let mut results: Vec<(u32, T)> = thread::scope(|scope| {
        let run = || {
            let indices = iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
            indices.take_while(|index| *index < count).map(|index| (index, work(index))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no run panics")).collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The mean of one value over replications.
pub fn estimate(outcomes: &[Outcome], number: impl Fn(&Outcome) -> f64) -> Estimate {
    Estimate::of(&outcomes.iter().map(number).collect::<Vec<_>>())
}
