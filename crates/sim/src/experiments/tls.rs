//! Figures 2 and 3 of "SSL with backend forwarding": latency and throughput of 16 nodes under a growing rate of
//! arrivals.
//!
//! The paper gives the distribution of arrivals (Pareto, alpha 1.1) and of file sizes, and lowers k, the least time
//! between two requests, from 45 to 25. It gives neither k's unit, nor the cost of a handshake, nor the clients'
//! frequencies, but says that the session-aware models are saturated at k = 25. So the unit is chosen here such that
//! the nodes would be fully busy at k = 25 if every handshake resumed a session and load were even. The clients'
//! frequencies follow Zipf's law, whose exponent the paper does not give either.

use super::report::{Curves, Point, Progress, Report, curve, digits, milliseconds, table};
use crate::random::Amount;
use crate::scenario::{
    Arrivals, Clients, Costs, HandOver, Interval, Nodes, Responses, Scenario, Sessions, Tls,
};
use crate::{Estimate, ScenarioError};

/// Options of the series.
#[derive(Clone, Debug)]
pub struct Models {
    /// Seed of the first replication.
    pub seed: u64,
    /// Replications of each point.
    pub replications: u32,
    /// Requests of each replication, without the warm-up's.
    pub requests: u32,
    /// Costs. By default handshakes are those of TLS 1.2 with RSA of 2,048 bits, the closest to the paper's SSL: a full
    /// one takes 1.1 ms more than a resumed one. And communication between nodes is as cheap as the paper's, by a
    /// network of its own that bypasses the kernel (VIA).
    pub costs: Costs,
    /// Mean time of the application for a page, in microseconds.
    pub page_us: f64,
    /// Number of clients, and the exponent of Zipf's law of their frequencies.
    pub clients: (u32, f64),
}

impl Default for Models {
    fn default() -> Self {
        Models {
            seed: 1,
            replications: 10,
            requests: 100_000,
            costs: Costs { tls_full_us: 1500.0, tls_resumed_us: 400.0, relay_us: 50.0, ..Costs::default() },
            page_us: 1000.0,
            clients: (1000, 0.5),
        }
    }
}

const NODES: u32 = 16;
const ALPHA: f64 = 1.1;
const K: [u32; 9] = [45, 42, 40, 37, 35, 32, 30, 27, 25];
const SATURATED_AT: f64 = 25.0;

/// The models with their names in a cluster's file.
const MODELS: [(&str, Sessions, HandOver); 4] = [
    ("round-robin", Sessions::RoundRobin, HandOver::Relay),
    ("session", Sessions::Session, HandOver::Relay),
    ("forwarding, relay", Sessions::Forwarding, HandOver::Relay),
    ("forwarding, direct", Sessions::Forwarding, HandOver::Direct),
];

impl Models {
    fn scenario(&self, k: u32, sessions: Sessions, hand_over: HandOver) -> Scenario {
        let Models { seed, replications, requests, costs, page_us, clients: (count, skew) } = *self;
        let bytes = Amount::Web { body: 0.93 };
        let kib = bytes.mean().expect("it has one") / 1024.0;
        let of_request = costs.node_connection_us
            + costs.tls_resumed_us
            + costs.node_request_us
            + page_us
            + kib * (costs.node_kib_us + costs.tls_kib_us);
        let wanted = f64::from(NODES) * 1e6 / of_request * SATURATED_AT / f64::from(k);
        let seconds = f64::from(requests) / wanted;
        let per_second = wanted * seen(requests);
        Scenario {
            seed,
            replications,
            // Every client has connected, and nodes are loaded, before the measurement.
            warm_up_s: seconds,
            seconds,
            arrivals: Arrivals { per_second, interval: Interval::Pareto(ALPHA), ..Arrivals::default() },
            clients: Clients { count, skew, ..Clients::default() },
            responses: Responses { bytes, service_us: Amount::Exponential(page_us) },
            costs,
            nodes: vec![Nodes { count: NODES, ..Nodes::default() }],
            tls: Some(Tls {
                sessions,
                hand_over,
                busy_connections: 4,
                busy_cpu: 90,
                told_ms: 50.0,
                ..Tls::default()
            }),
            ..Scenario::default()
        }
    }
}

/// Part of the mean that is usually seen in this number of intervals. With an alpha of 1.1 a third of the mean of
/// 100,000 is in intervals so long that none of them is to be expected among these.
fn seen(intervals: u32) -> f64 {
    1.0 - f64::from(intervals).powf(-(ALPHA - 1.0) / ALPHA)
}

/// Runs the models at each k.
pub fn tls(models: &Models, progress: Progress<'_>) -> Result<Report, ScenarioError> {
    let mut points = Vec::new();
    for k in K {
        for (name, sessions, hand_over) in MODELS {
            points.push(Point::run(name, k, &models.scenario(k, sessions, hand_over), progress)?);
        }
    }
    let markdown = [
        format!(
            "Mean latency in ms, by k:\n\n{}",
            table("k", &points, |point| milliseconds(point, |run| run.latency_mean))
        ),
        format!(
            "Answered requests in 1/s:\n\n{}",
            table("k", &points, |point| digits(point.estimate(|run| run.per_second).mean))
        ),
        format!(
            "Sessions that were resumed:\n\n{}",
            table("k", &points, |point| { digits(point.estimate(|run| run.reuse).mean) })
        ),
        format!(
            "Spread of the nodes' CPU time (standard deviation over mean):\n\n{}",
            table("k", &points, |point| { digits(point.estimate(|run| run.spread).mean) })
        ),
        beside_the_paper(&points),
    ]
    .join("\n");
    let latency = |name: &str| {
        curve(&points, name, |point| {
            (!point.is_saturated()).then(|| point.estimate(|run| run.latency_mean).mean * 1e3)
        })
    };
    let throughput =
        |name: &str| curve(&points, name, |point| Some(point.estimate(|run| run.per_second).mean));
    let names = MODELS.map(|(name, ..)| name);
    let curves = vec![
        Curves {
            name: "latency",
            title: "Mean latency of 16 nodes with TLS".to_owned(),
            y_title: "mean latency, ms",
            is_logarithmic: true,
            curves: names.map(latency).to_vec(),
        },
        Curves {
            name: "throughput",
            title: "Throughput of 16 nodes with TLS".to_owned(),
            y_title: "answered requests, 1/s",
            is_logarithmic: false,
            curves: names.map(throughput).to_vec(),
        },
    ];
    Ok(Report { axis: "k, the smaller the more load", points, markdown, curves })
}

/// Reduction of latency by forwarding, relative to sessions alone, at each k where neither is saturated.
fn beside_the_paper(points: &[Point]) -> String {
    let find = |name: &str, k| points.iter().find(|point| point.series == name && point.x == k);
    let latency = |point: &Point| -> Option<Estimate> {
        (!point.is_saturated()).then(|| point.estimate(|run| run.latency_mean))
    };
    let mut lines = "| k | relay beside session | direct beside session | the paper's forwarding |\n| ---: | ---: | ---: | ---: |\n".to_owned();
    for k in K {
        let beside = |name: &str| -> String {
            let both = (find(name, k).and_then(latency), find("session", k).and_then(latency));
            match both {
                (Some(ours), Some(session)) => format!("{:+.0} %", (ours.mean / session.mean - 1.0) * 100.0),
                _ => "–".to_owned(),
            }
        };
        lines += &format!(
            "| {k} | {} | {} | about −30 % |\n",
            beside("forwarding, relay"),
            beside("forwarding, direct")
        );
    }
    format!("Latency with forwarding beside that with sessions alone:\n\n{lines}")
}
