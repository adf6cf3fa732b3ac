//! Every policy over load, in clusters of any size.

use switchback_policy::PolicyKind;

use super::report::{Curves, Point, Progress, Report, curve, milliseconds, table};
use crate::ScenarioError;
use crate::random::Amount;
use crate::scenario::{Arrivals, Clients, Costs, Nodes, Policy, Pool, Responses, Scenario, Switch};

/// Options of the series.
#[derive(Clone, Debug)]
pub struct Policies {
    /// Seed of the first replication.
    pub seed: u64,
    /// Replications of each point.
    pub replications: u32,
    /// Requests of each replication, without the warm-up's; more if there are many nodes.
    pub requests: u32,
    /// Number of nodes.
    pub nodes: u32,
    /// Speeds of the nodes.
    pub mix: Mix,
    /// Choices made ahead, as `ahead` of [`Pool`].
    pub ahead: u32,
}

/// Speeds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All nodes are alike.
    Alike,
    /// Half of them have half the speed, which is not in their weights.
    HalfSlow,
}

const LOADS: [u32; 6] = [50, 60, 70, 80, 90, 95];
/// Least requests per node: shorter runs end before the queues reach their lengths.
const LEAST_FOR_EACH: f64 = 2000.0;
/// Service time at a node of speed 1: half of the requests take less than 0.7 ms, one in a hundred more than 7 ms.
const SERVICE: Amount = Amount::Lognormal { mu: 6.4, sigma: 1.0 };

impl Policies {
    fn scenario(&self, policy: PolicyKind, load: u32) -> Scenario {
        let service = SERVICE.mean().expect("it has one");
        let node = Nodes { workers: Some(1), accept_queue: 128, ..Nodes::default() };
        let nodes = match self.mix {
            Mix::Alike => vec![Nodes { count: self.nodes, ..node }],
            Mix::HalfSlow => vec![
                Nodes { count: self.nodes.div_ceil(2), ..node.clone() },
                Nodes { count: self.nodes / 2, speed: 0.5, ..node },
            ],
        };
        let speed: f64 = nodes.iter().map(|nodes| f64::from(nodes.count) * nodes.speed).sum();
        let per_second = speed * 1e6 / service * f64::from(load) / 100.0;
        let requests = f64::from(self.requests).max(LEAST_FOR_EACH * f64::from(self.nodes));
        Scenario {
            seed: self.seed,
            replications: self.replications,
            warm_up_s: 0.5 * requests / per_second,
            seconds: requests / per_second,
            arrivals: Arrivals { per_second, ..Arrivals::default() },
            clients: Clients { count: 100_000, ..Clients::default() },
            responses: Responses { bytes: Amount::Constant(0.0), service_us: SERVICE },
            costs: Costs::NONE,
            switch: Switch { cores: 64, ..Switch::default() },
            pool: Pool { policy: Policy(policy), ahead: self.ahead, ..Pool::default() },
            nodes,
            ..Scenario::default()
        }
    }
}

/// Runs every policy at each load.
pub fn policies(policies: &Policies, progress: Progress<'_>) -> Result<Report, ScenarioError> {
    let mut points = Vec::new();
    for load in LOADS {
        for policy in PolicyKind::ALL {
            points.push(Point::run(policy.name(), load, &policies.scenario(policy, load), progress)?);
        }
    }
    let mix = match policies.mix {
        Mix::Alike => "nodes that are alike",
        Mix::HalfSlow => "nodes, of which half have half the speed",
    };
    let what = match policies.ahead {
        0 => mix.to_owned(),
        ahead => format!("{mix}, with {ahead} choices made ahead"),
    };
    let nodes = policies.nodes;
    let markdown = [
        format!(
            "Mean latency in ms of {nodes} {what}, by their load in percent:\n\n{}",
            table("load", &points, |point| { milliseconds(point, |run| run.latency_mean) })
        ),
        format!(
            "99th percentile in ms:\n\n{}",
            table("load", &points, |point| { milliseconds(point, |run| run.latency_p99) })
        ),
    ]
    .join("\n");
    let p99 = |policy: PolicyKind| {
        curve(&points, policy.name(), |point| {
            (!point.is_saturated()).then(|| point.estimate(|run| run.latency_p99).mean * 1e3)
        })
    };
    let curves = vec![Curves {
        name: "",
        title: format!("99th percentile of the latency: {nodes} {what}"),
        y_title: "99th percentile, ms",
        is_logarithmic: true,
        curves: PolicyKind::ALL.map(p99).to_vec(),
    }];
    Ok(Report { axis: "load in percent", points, markdown, curves })
}
