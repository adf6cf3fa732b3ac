//! The view of a switch for people: its status, with rates instead of sums.
//!
//! Rates are between the last two moments; quantiles are over the last [`WINDOW`], so that a few requests are
//! enough.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use switchback_runtime::events::Event;
use switchback_status::switch::{InterfaceStatus, NodeView, PoolView, SwitchStatus, SwitchView, pools};
use switchback_status::totals::{BOUNDS_US, Histogram, ResponseTotals, Timings};
use switchback_wire::SwitchCounter;

/// Period of quantiles.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Events of a view.
const EVENTS: usize = 20;
/// Shortest time between two moments of a rate.
const SHORTEST: Duration = Duration::from_millis(50);

/// Statuses of a switch at several moments.
#[derive(Default)]
pub struct History {
    /// Oldest first.
    moments: VecDeque<(Instant, SwitchStatus)>,
}

/// A switch at one moment. Unknown values, as rates are at first, are None.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Version of this program.
    pub version: String,
    /// The first eight digits of the configuration's SHA-256.
    pub config: String,
    /// Interfaces with the XDP program.
    pub interfaces: Vec<InterfaceStatus>,
    /// Time since its start, in seconds.
    pub uptime_s: u64,
    /// Entries of the flow map.
    pub flows: u64,
    /// Connections that wait for something.
    pub pending: u64,
    /// Requests that wait for a node with room.
    pub waiting: u64,
    /// Requests given to nodes, per second.
    pub requests_per_s: Option<f64>,
    /// Requests answered by the switch itself, per second.
    pub answered_per_s: Option<f64>,
    /// Responses of all nodes.
    pub responses: Option<Rate>,
    /// Responses with a status of 500 and above, of nodes and switch, and responses that the server aborted,
    /// per second.
    pub failures_per_s: Option<f64>,
    /// Services, in the configuration's order.
    pub services: Vec<ServiceRow>,
    /// Pools, by name.
    pub pools: Vec<PoolRow>,
    /// Nodes, in the configuration's order.
    pub nodes: Vec<NodeRow>,
    /// The cluster's switches, in the configuration's order; none if it names none.
    pub switches: Vec<SwitchView>,
    /// What machines do not agree on, with the remedies.
    pub warnings: Vec<String>,
    /// Latencies of each service and pool; None without access log and admin address.
    pub latencies: Option<Vec<Latency>>,
    /// Errors, those that occur now first.
    pub errors: Vec<ErrorRow>,
    /// The last events, the newest first.
    pub events: Vec<Event>,
}

/// Responses per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Responses per second.
    pub per_s: f64,
    /// Their bytes per second.
    pub bytes_per_s: f64,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceRow {
    /// Its name.
    pub name: String,
    /// Its VIPs.
    pub listen: Vec<String>,
    /// For each route what it takes, and where that goes.
    pub routes: Vec<String>,
    /// The clients that it lets in, and its limits.
    pub limits: Vec<String>,
    /// Requests given to nodes since the start.
    pub requests: u64,
    /// Requests per second.
    pub requests_per_s: Option<f64>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolRow {
    /// Its name.
    pub name: String,
    /// Number of nodes that may get its requests.
    pub serving: usize,
    /// Number of its nodes.
    pub nodes: usize,
    /// The nodes that may not, each with the reason.
    pub others: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Whether it is this machine.
    pub here: bool,
    /// [`NodeView::state`].
    pub state: String,
    /// Requests that it was given since the start.
    pub requests: u64,
    /// Requests per second.
    pub requests_per_s: Option<f64>,
    /// Its share of all requests, 0 to 1.
    pub share: Option<f64>,
    /// Its responses, which go straight to the clients.
    pub responses: Option<Rate>,
    /// Its responses with a status of 500 and above, and those that its server aborted, per second.
    pub failures_per_s: Option<f64>,
    /// Adoptions that it refused, per second.
    pub refused_per_s: Option<f64>,
    /// Requests whose responses are not complete.
    pub in_flight: Option<u32>,
    /// Open connections.
    pub flows: Option<u32>,
    /// Length and limit of its fullest accept queue.
    pub queue: Option<(u32, u32)>,
    /// Share of its CPU time in use, 0 to 1.
    pub cpu: Option<f64>,
    /// Mean time to first byte, as it reports.
    pub first_byte_us: Option<u64>,
}

/// Latencies in the last [`WINDOW`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Name of the service.
    pub service: String,
    /// Name of the pool.
    pub pool: String,
    /// Time in the switch.
    pub queued: Quantiles,
    /// From there to the first byte of the response.
    pub first_byte: Quantiles,
    /// From there to the last byte of the response.
    pub duration: Quantiles,
}

/// Quantiles of a duration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of samples.
    pub count: u64,
    /// Median, in microseconds; None without samples.
    pub p50_us: Option<f64>,
    /// 0.9 quantile, in microseconds.
    pub p90_us: Option<f64>,
    /// 0.99 quantile, in microseconds.
    pub p99_us: Option<f64>,
    /// Counts by class, as in [`Histogram`].
    pub counts: Vec<u64>,
}

/// A kind of error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorRow {
    /// Description.
    pub what: String,
    /// Count since the start.
    pub total: u64,
    /// Rate now, per second.
    pub per_s: Option<f64>,
}

impl History {
    /// Adds the status at a moment.
    pub fn push(&mut self, at: Instant, status: SwitchStatus) {
        if self.moments.back().is_some_and(|(_, last)| last.uptime_s > status.uptime_s) {
            // Another process, which counts from 0.
            self.moments.clear();
        }
        self.moments.push_back((at, status));
        while self.moments.len() > 2 && at.duration_since(self.moments[1].0) >= WINDOW {
            self.moments.pop_front();
        }
    }

    /// Forgets all statuses.
    pub fn clear(&mut self) {
        self.moments.clear();
    }

    /// The view at the last moment; None before the first.
    pub fn view(&self) -> Option<View> {
        let (at, now) = self.moments.back()?;
        let earlier = self.moments.iter().rev().skip(1);
        let before = earlier.clone().find(|(then, _)| at.duration_since(*then) >= SHORTEST);
        let oldest = earlier.last().map(|(_, status)| status);
        let change = Change { now, before: before.map(|(then, status)| (status, at.duration_since(*then))) };
        Some(View {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: now.config.clone(),
            interfaces: now.interfaces.clone(),
            uptime_s: now.uptime_s,
            flows: now.flows,
            pending: now.dispatch.pending,
            waiting: now.dispatch.waiting,
            requests_per_s: change.rate(|status| status.nodes.iter().map(|node| node.requests).sum()),
            answered_per_s: change.rate(|status| status.dispatch.counts.answered.values().sum()),
            responses: change.responses(|responses| !responses.node.is_empty()),
            failures_per_s: change.failures(),
            services: change.services(),
            pools: pools(&now.nodes).iter().map(pool_row).collect(),
            nodes: now.nodes.iter().map(|node| change.node(node)).collect(),
            switches: now.switches.clone(),
            warnings: now.warnings(),
            latencies: now.responses.as_ref().map(|totals| {
                let before = oldest.and_then(|status| status.responses.as_ref());
                let before = before.map_or(&[][..], |totals| &totals.timings);
                // Requests without a pool are answered by the switch itself.
                let timings = totals.timings.iter().filter(|timings| !timings.pool.is_empty());
                timings.map(|timings| latency(timings, before)).collect()
            }),
            errors: change.errors(),
            events: now.events.iter().rev().take(EVENTS).cloned().collect(),
        })
    }
}

/// The change of a switch between two moments.
struct Change<'a> {
    now: &'a SwitchStatus,
    before: Option<(&'a SwitchStatus, Duration)>,
}

impl Change<'_> {
    /// Growth of a sum per second.
    fn rate(&self, sum: impl Fn(&SwitchStatus) -> u64) -> Option<f64> {
        let (before, time) = self.before?;
        Some(sum(self.now).saturating_sub(sum(before)) as f64 / time.as_secs_f64())
    }

    /// Growth per second of a sum over responses.
    fn of_responses(
        &self,
        of: impl Fn(&ResponseTotals) -> bool,
        count: fn(&ResponseTotals) -> u64,
    ) -> Option<f64> {
        self.now.responses.as_ref()?;
        self.rate(|status| {
            let all = status.responses.iter().flat_map(|totals| &totals.responses);
            all.filter(|responses| of(responses)).map(count).sum()
        })
    }

    fn responses(&self, of: impl Fn(&ResponseTotals) -> bool) -> Option<Rate> {
        let per_s = self.of_responses(&of, |responses| responses.statuses.iter().sum())?;
        Some(Rate { per_s, bytes_per_s: self.of_responses(of, |responses| responses.bytes)? })
    }

    /// Failures of nodes, if known, and of the switch itself, per second.
    fn failures(&self) -> Option<f64> {
        let own = self.rate(|status| {
            let answered = status.dispatch.counts.answered.iter().filter(|(code, _)| **code >= 500);
            answered.map(|(_, count)| count).sum()
        })?;
        Some(own + self.of_responses(|responses| !responses.node.is_empty(), failed).unwrap_or(0.0))
    }

    fn services(&self) -> Vec<ServiceRow> {
        let row = |service: &switchback_status::switch::ServiceStatus| ServiceRow {
            name: service.name.clone(),
            listen: service.listen.iter().map(ToString::to_string).collect(),
            routes: service.routes.clone(),
            limits: service.limits.clone(),
            requests: service.requests,
            requests_per_s: self.rate(|status| {
                let same = status.services.iter().find(|other| other.name == service.name);
                same.map_or(0, |service| service.requests)
            }),
        };
        self.now.services.iter().map(row).collect()
    }

    fn node(&self, node: &NodeView) -> NodeRow {
        let of_node = |count: fn(&NodeView) -> u64| {
            self.rate(|status| status.nodes.iter().find(|other| other.name == node.name).map_or(0, count))
        };
        let requests_per_s = of_node(|node| node.requests);
        let all = self.rate(|status| status.nodes.iter().map(|node| node.requests).sum());
        let is_own = |responses: &ResponseTotals| responses.node == node.name;
        NodeRow {
            name: node.name.clone(),
            address: node.address.map_or(String::new(), |address| address.to_string()),
            here: node.here,
            state: node.state().to_owned(),
            requests: node.requests,
            requests_per_s,
            share: requests_per_s.zip(all).and_then(|(own, all)| (all > 0.0).then(|| own / all)),
            responses: self.responses(is_own),
            failures_per_s: self.of_responses(is_own, failed),
            refused_per_s: of_node(|node| node.refused),
            in_flight: node.load.map(|load| load.in_flight),
            flows: node.load.map(|load| load.flows),
            queue: node.fullest_queue(),
            cpu: node.load.map(|load| f64::from(load.cpu_permille) / 1000.0),
            first_byte_us: node.load.and_then(|load| load.first_byte_us),
        }
    }

    fn errors(&self) -> Vec<ErrorRow> {
        let now = errors_of(self.now);
        let before = self.before.map(|(status, time)| (errors_of(status), time));
        let row = |(what, total): (String, u64)| {
            let per_s = before.as_ref().map(|(errors, time)| {
                let earlier = errors.get(&what).copied().unwrap_or(0);
                total.saturating_sub(earlier) as f64 / time.as_secs_f64()
            });
            ErrorRow { what, total, per_s }
        };
        let mut rows: Vec<ErrorRow> = now.into_iter().map(row).collect();
        let weight = |row: &ErrorRow| (row.per_s.unwrap_or(0.0), row.total);
        rows.sort_by(|a, b| weight(b).partial_cmp(&weight(a)).unwrap_or(std::cmp::Ordering::Equal));
        rows
    }
}

fn pool_row(pool: &PoolView<'_>) -> PoolRow {
    PoolRow {
        name: pool.name.to_owned(),
        serving: pool.serving().count(),
        nodes: pool.nodes.len(),
        others: pool.others().map(|(node, state)| format!("{} {state}", node.name)).collect(),
    }
}

/// Responses with a status of 500 and above, and those that the server aborted.
fn failed(responses: &ResponseTotals) -> u64 {
    responses.statuses[5] + responses.aborted_by_server
}

/// Counts of errors that have occurred, by description.
fn errors_of(status: &SwitchStatus) -> BTreeMap<String, u64> {
    let mut errors = BTreeMap::new();
    let mut add = |what: String, count: u64| {
        if count > 0 {
            *errors.entry(what).or_default() += count;
        }
    };
    let dispatch = &status.dispatch.counts;
    for (code, count) in dispatch.answered.iter().filter(|(code, _)| **code >= 400) {
        add(format!("answered {code} by the switch"), *count);
    }
    for (reason, count) in &dispatch.refused_requests {
        add(format!("request refused: {reason}"), *count);
    }
    for (what, count) in [
        ("dropped: a connection holds too much", dispatch.dropped_flow_full),
        ("dropped: a source holds too much", dispatch.dropped_source_full),
        ("dropped: the switch holds too much", dispatch.dropped_switch_full),
        ("gave way because the switch holds too much", dispatch.evicted),
        ("connection reset that no node owned", dispatch.reset_unowned),
        ("packet that the kernel did not take", status.dispatch.send_failed),
    ] {
        add(what.to_owned(), count);
    }
    for counter in SwitchCounter::ALL.into_iter().filter(|counter| counter.name().starts_with("drop_")) {
        add(counter.help().to_owned(), status.counters.get(counter.name()).copied().unwrap_or(0));
    }
    for responses in status.responses.iter().flat_map(|totals| &totals.responses) {
        // What the switch answers is counted above.
        if !responses.node.is_empty() {
            let node = &responses.node;
            add(format!("answered 5xx by {node}"), responses.statuses[5]);
            add(format!("cut off by the server of {node}"), responses.aborted_by_server);
            add("given up by its client".to_owned(), responses.aborted_by_client);
        }
    }
    errors
}

fn latency(now: &Timings, before: &[Timings]) -> Latency {
    let is_same = |other: &&Timings| (&other.service, &other.pool) == (&now.service, &now.pool);
    let before = before.iter().find(is_same);
    let since = |of: fn(&Timings) -> &Histogram| quantiles(of(now), before.map(of));
    Latency {
        service: now.service.clone(),
        pool: now.pool.clone(),
        queued: since(|timings| &timings.queued),
        first_byte: since(|timings| &timings.first_byte),
        duration: since(|timings| &timings.duration),
    }
}

fn quantiles(now: &Histogram, before: Option<&Histogram>) -> Quantiles {
    let earlier = |index: usize| before.and_then(|before| before.counts.get(index)).copied().unwrap_or(0);
    let counts = now.counts.iter().enumerate().map(|(index, count)| count.saturating_sub(earlier(index)));
    let counts: Vec<u64> = counts.collect();
    let count = counts.iter().sum();
    let [p50_us, p90_us, p99_us] = [0.5, 0.9, 0.99].map(|share| quantile(&counts, count, share));
    Quantiles { count, p50_us, p90_us, p99_us, counts }
}

/// A quantile as Prometheus' histogram_quantile() computes it: times are spread evenly between two bounds,
/// and those above the last bound count as that bound.
fn quantile(counts: &[u64], all: u64, share: f64) -> Option<f64> {
    if all == 0 {
        return None;
    }
    let rank = all as f64 * share;
    let mut below = 0;
    for (index, &count) in counts.iter().enumerate() {
        if (below + count) as f64 >= rank {
            let low = index.checked_sub(1).map_or(0, |index| BOUNDS_US[index.min(BOUNDS_US.len() - 1)]);
            let high = BOUNDS_US.get(index).copied().unwrap_or(low);
            let within = (rank - below as f64) / count as f64;
            return Some(low as f64 + (high - low) as f64 * within);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests;
