//! What the facts about responses add up to.

use serde::{Deserialize, Serialize};

/// The upper bounds of a [`Histogram`]'s counts, in microseconds; each bound belongs to its count.
pub const BOUNDS_US: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// Everything since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// One for each service, pool and node that has answered.
    pub responses: Vec<ResponseTotals>,
    /// One for each service and pool.
    pub timings: Vec<Timings>,
    /// Lines of the access log.
    pub log_lines: u64,
    /// Lines that were not written, on overload.
    pub log_lost: u64,
    /// Responses that nothing is known of.
    pub facts_lost: u64,
}

/// The responses of one node to requests of one service, for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseTotals {
    /// Its name in the configuration.
    pub service: String,
    /// Likewise.
    pub pool: String,
    /// Likewise; empty: the switch itself has answered.
    pub node: String,
    /// Responses by the first digit of their status; the first number is of those without one.
    pub statuses: [u64; 6],
    /// Heads included.
    pub bytes: u64,
    /// Responses that ended before they were complete, because the client went.
    pub aborted_by_client: u64,
    /// Likewise, because the server did.
    pub aborted_by_server: u64,
}

/// How long things take for one service and pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timings {
    /// Its name in the configuration.
    pub service: String,
    /// Likewise.
    pub pool: String,
    /// From the request's first byte at the switch to its handoff.
    pub queued: Histogram,
    /// From the request's arrival at the node to the first byte of the response.
    pub first_byte: Histogram,
    /// From the request's arrival at the node to the end of the response.
    pub duration: Histogram,
}

/// How many took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// One for each of [`BOUNDS_US`], and one for what took longer than all of them; not cumulative.
    pub counts: Vec<u64>,
    /// Microseconds altogether.
    pub sum_us: u64,
}
