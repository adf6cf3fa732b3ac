//! Number of machines for a load.

use super::report::{Progress, Step, digits};
use crate::scenario::Scenario;
use crate::{Outcome, ScenarioError, estimate, simulate};

/// Requirements: a scenario whose numbers of nodes and switches are to be found, and its limits.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The scenario, without the numbers of nodes (of the first kind) and switches.
    pub scenario: Scenario,
    /// Limit of the 0.99 quantile of latency, in milliseconds.
    pub p99_ms: f64,
    /// Limit of the use of processors and links, between 0 and 1: the rest is reserved for bursts and for the load of a
    /// dead node.
    pub most: f64,
    /// Greatest number of nodes.
    pub nodes_max: u32,
}

/// A cluster that meets the requirements.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of switches.
    pub switches: u32,
    /// Average outcome of this cluster.
    pub outcome: Outcome,
    /// Use of each kind of resource, the most used first.
    pub used: [(&'static str, f64); 4],
}

/// Finds the smallest cluster that meets the requirements; None if even the largest does not.
pub fn plan(needs: &Needs, progress: Progress<'_>) -> Result<Option<Plan>, ScenarioError> {
    // More nodes never hurt, so the smallest sufficient number is found by bisection.
    let (mut too_few, mut enough) = (0, None);
    let mut next = 1;
    loop {
        let found = with(needs, next, progress)?;
        match found {
            Some(plan) => enough = Some(plan),
            None => too_few = next,
        }
        let most = enough.as_ref().map(|plan| plan.nodes);
        next = match most {
            None if next >= needs.nodes_max => return Ok(None),
            None => (next * 2).min(needs.nodes_max),
            Some(most) if most - too_few <= 1 => return Ok(enough),
            Some(most) => too_few.midpoint(most),
        };
    }
}

/// The cluster with this number of nodes, and as many switches as necessary; None if it does not meet the
/// requirements.
fn with(needs: &Needs, nodes: u32, progress: Progress<'_>) -> Result<Option<Plan>, ScenarioError> {
    let mut scenario = needs.scenario.clone();
    if let Some(kind) = scenario.nodes.first_mut() {
        kind.count = nodes;
    }
    loop {
        let switches = scenario.switch.count;
        let what = format!("{nodes} nodes, {switches} switches");
        progress(&what, Step::Begins(scenario.replications));
        let outcomes = simulate(&scenario, || progress(&what, Step::Done))?;
        let mean = |number: fn(&Outcome) -> f64| estimate(&outcomes, number).mean;
        let switch = mean(|run| run.switch_cpu).max(mean(|run| run.switch_link));
        if switch > needs.most {
            // A saturated switch does not show how much work there is.
            let wanted = (f64::from(switches) * switch / needs.most).ceil() as u32;
            scenario.switch.count = wanted.max(switches + 1);
            continue;
        }
        let mut used = [
            ("processors of nodes", mean(|run| run.node_cpu_max)),
            ("links of nodes", mean(|run| run.node_link)),
            ("processors of switches", mean(|run| run.switch_cpu)),
            ("links of switches", mean(|run| run.switch_link)),
        ];
        used.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let holds = mean(|run| run.latency_p99) * 1e3 <= needs.p99_ms
            && used[0].1 <= needs.most
            && !outcomes.iter().any(Outcome::is_saturated);
        let outcome = outcomes.first().cloned().unwrap_or_default();
        return Ok(holds.then_some(Plan { nodes, switches, outcome, used }));
    }
}

impl Plan {
    /// The plan as text.
    pub fn markdown(&self) -> String {
        let Plan { nodes, switches, outcome, used } = self;
        let lines = used.map(|(what, share)| format!("| {what} | {:.0} % |\n", share * 100.0)).concat();
        let headroom = 1.0 / used[0].1.max(f64::MIN_POSITIVE);
        format!(
            "{nodes} node{}, {switches} switch{}: {} requests/s, {} Mbit/s of responses, half of them within {} ms, 99 of 100 within \
             {} ms.\n\n| in use | |\n| --- | ---: |\n{lines}\nWhat saturates first: {}, at {} times this load.\n",
            if *nodes == 1 { "" } else { "s" },
            if *switches == 1 { "" } else { "es" },
            digits(outcome.per_second),
            digits(outcome.bits_per_second / 1e6),
            digits(outcome.latency_p50 * 1e3),
            digits(outcome.latency_p99 * 1e3),
            used[0].0,
            digits(headroom),
        )
    }
}
