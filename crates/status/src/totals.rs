//! Sums over requests and their responses, kept by the observer of the switch.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Upper bounds of the classes of a [`Histogram`], in microseconds.
pub const BOUNDS_US: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// Sums since the start of the switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// By service, pool and node.
    pub responses: Vec<ResponseTotals>,
    /// By service and pool.
    pub timings: Vec<Timings>,
    /// Lines in the access log.
    pub log_lines: u64,
    /// Lines left out of the access log because there were too many.
    pub log_lost: u64,
    /// Responses that nodes could not report because there were too many.
    pub facts_lost: u64,
    /// Requests forgotten before their responses came, because there were too many.
    #[serde(default)]
    pub requests_forgotten: u64,
}

/// Responses of one node to one pool's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseTotals {
    /// Name of the service.
    pub service: String,
    /// Name of the pool; empty if no route took the request.
    pub pool: String,
    /// Name of the node; empty for responses of the switch itself.
    pub node: String,
    /// Responses by the first digit of the status; index 0 counts those without a status.
    pub statuses: [u64; 6],
    /// Bytes sent, heads included.
    pub bytes: u64,
    /// Responses that the client aborted.
    pub aborted_by_client: u64,
    /// Responses that the server or the switch aborted.
    pub aborted_by_server: u64,
}

/// Durations of the requests for one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Name of the service.
    pub service: String,
    /// Name of the pool.
    pub pool: String,
    /// From the request's first byte at the switch until a node had it.
    pub queued: Histogram,
    /// From then on to the response's first byte.
    pub first_byte: Histogram,
    /// From then on to the response's last byte.
    pub duration: Histogram,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// One for each of [`BOUNDS_US`], and one for what is above the last. Not cumulative.
    pub counts: Vec<u64>,
    /// Sum of the durations, in microseconds.
    pub sum_us: u64,
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts.resize(BOUNDS_US.len() + 1, 0);
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}
