//! Sums over requests, for the metrics.

use std::time::Duration;

use foldhash::HashMap;
use serde::{Deserialize, Serialize};
use switchback_log::Ended;

use super::Finished;
use crate::plan::NodeId;

/// Upper bounds of the buckets of a [`Histogram`], in microseconds.
pub const BOUNDS_US: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// Sums since the start of the switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Responses by service, pool and node.
    pub responses: Vec<ResponseTotals>,
    /// Times by service and pool.
    pub timings: Vec<Timings>,
    /// Lines written to the access log.
    pub log_lines: u64,
    /// Lines dropped because there were too many.
    pub log_lost: u64,
    /// Facts that nodes dropped because there were too many.
    pub facts_lost: u64,
    /// Requests given up before their responses were known, because there were too many.
    #[serde(default)]
    pub requests_forgotten: u64,
}

/// Responses of a node to a pool's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseTotals {
    /// Name of the service.
    pub service: String,
    /// Name of the pool; empty if no route matched.
    pub pool: String,
    /// Name of the node; empty if the switch answered.
    pub node: String,
    /// Number of responses by the first digit of the status; index 0 counts those without a status.
    pub statuses: [u64; 6],
    /// Bytes sent, including heads.
    pub bytes: u64,
    /// Responses aborted by the client.
    pub aborted_by_client: u64,
    /// Responses aborted by the server or the switch.
    pub aborted_by_server: u64,
}

/// Times of a pool's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Name of the service.
    pub service: String,
    /// Name of the pool.
    pub pool: String,
    /// From the request's first byte at the switch until a node had the request.
    pub queued: Histogram,
    /// From the node's receipt of the request until the response's first byte.
    pub first_byte: Histogram,
    /// From the node's receipt of the request until the response's last byte.
    pub duration: Histogram,
}

/// A histogram of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Counts by bucket: one for each of [`BOUNDS_US`], and one above. Not cumulative.
    pub counts: Vec<u64>,
    /// Sum of the times, in microseconds.
    pub sum_us: u64,
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts.resize(BOUNDS_US.len() + 1, 0);
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }
}

/// Service, pool and node by index.
pub(super) type TotalsKey = (Option<usize>, Option<usize>, Option<NodeId>);

/// [`Totals`] with an index.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) totals: Totals,
    /// Indices into `totals.responses` and `totals.timings`, valid for the current configuration.
    places: HashMap<TotalsKey, (usize, usize)>,
}

impl Sums {
    /// Clears the index, because a new configuration numbers services, pools and nodes anew.
    pub(super) fn forget_places(&mut self) {
        self.places.clear();
    }

    /// Adds a request; `names` has the names of `key`, empty where it has None.
    pub(super) fn add(&mut self, finished: &Finished, key: TotalsKey, names: [&str; 3]) {
        let (responses, timings) = self.place(key, names);
        let responses = &mut self.totals.responses[responses];
        let class = finished.status.map_or(0, |status| usize::from(status / 100));
        responses.statuses[if class < 6 { class } else { 0 }] += 1;
        responses.bytes += finished.bytes;
        match finished.end {
            Ended::ByClient => responses.aborted_by_client += 1,
            Ended::ByServer | Ended::BySwitch => responses.aborted_by_server += 1,
            Ended::Complete | Ended::Unknown => {}
        }
        if key.2.is_none() {
            return;
        }
        let timings = &mut self.totals.timings[timings];
        if let Some(asked) = &finished.asked {
            timings.queued.add(asked.queued);
        }
        finished.first_byte.into_iter().for_each(|time| timings.first_byte.add(time));
        if finished.end == Ended::Complete {
            finished.duration.into_iter().for_each(|time| timings.duration.add(time));
        }
    }

    fn place(&mut self, key: TotalsKey, [service, pool, node]: [&str; 3]) -> (usize, usize) {
        if let Some(places) = self.places.get(&key) {
            return *places;
        }
        let Totals { responses, timings, .. } = &mut self.totals;
        let is_same =
            |item: &ResponseTotals| item.service == service && item.pool == pool && item.node == node;
        let place = responses.iter().position(is_same).unwrap_or_else(|| {
            let [service, pool, node] = [service, pool, node].map(str::to_owned);
            responses.push(ResponseTotals { service, pool, node, ..Default::default() });
            responses.len() - 1
        });
        let is_same = |item: &Timings| item.service == service && item.pool == pool;
        let time = timings.iter().position(is_same).unwrap_or_else(|| {
            let [service, pool] = [service, pool].map(str::to_owned);
            timings.push(Timings { service, pool, ..Default::default() });
            timings.len() - 1
        });
        self.places.insert(key, (place, time));
        (place, time)
    }
}
