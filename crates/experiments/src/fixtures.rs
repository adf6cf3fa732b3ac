//! Fixtures of the reports' tests.

use std::time::Duration;

use super::Results;
use super::machine::Machine;
use super::wrk::{Errors, LoadResult};

/// Loads of two seconds on a machine with a known kernel.
pub(super) fn results<Sample>(repetitions: u32, samples: Vec<Sample>) -> Results<Sample> {
    let machine = Machine { facts: vec![("Kernel".to_owned(), "Linux 6.18".to_owned())] };
    Results { seconds: 2, repetitions, machine, samples }
}

/// Responses of some 6 KB, half of them within 4 ms.
pub(super) fn load(requests: u64, requests_per_s: f64) -> LoadResult {
    LoadResult {
        requests,
        requests_per_s,
        bytes_per_s: 6_250.0 * requests_per_s,
        p50: Duration::from_millis(4),
        p99: Duration::from_millis(9),
        errors: Errors::default(),
    }
}
