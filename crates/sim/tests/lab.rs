//! What the lab has measured on real kernels with real servers, as `docs/benchmarks.md` has it, simulated.

use switchback_policy::PolicyKind;
use switchback_sim::scenario::{Arrivals, Nodes, Policy, Pool, Responses};
use switchback_sim::{Amount, Outcome, Scenario, estimate, simulate};

fn assert_near(what: &str, simulated: f64, measured: f64, part: f64) {
    let off = simulated / measured - 1.0;
    println!("{what}: {measured} measured, {simulated:.4} simulated, {:+.1} %", off * 100.0);
    assert!(off.abs() <= part, "{what}: {measured} measured, {simulated} simulated");
}

fn run(scenario: &Scenario) -> Vec<Outcome> {
    simulate(scenario, || {}).unwrap()
}

/// `lab run split-scaling`: responses of 64 KiB, eight connections for each data server, links of 100 Mbit/s.
#[test]
fn split_scaling() {
    for (data_servers, measured, median_ms) in [(1, 178.6, 44.3), (4, 716.1, 43.2), (8, 1433.0, 44.2)] {
        let connections = 8 * data_servers;
        let scenario = Scenario {
            replications: 3,
            seconds: 20.0,
            arrivals: Arrivals { at_a_time: Some(connections), ..Arrivals::default() },
            responses: Responses { bytes: Amount::Constant(65_536.0), service_us: Amount::Constant(0.0) },
            nodes: vec![Nodes { count: data_servers, link_mbit: 100.0, ..Nodes::default() }],
            ..Scenario::default()
        };
        let outcomes = run(&scenario);
        let per_second = estimate(&outcomes, |run| run.per_second).mean;
        assert_near(&format!("requests/s of {data_servers} data servers"), per_second, measured, 0.1);
        let median = estimate(&outcomes, |run| run.latency_p50).mean * 1e3;
        assert_near(&format!("median latency with {data_servers}, ms"), median, median_ms, 0.25);
    }
}

/// `lab run accept-queue`: two servers with 16 processes and room for 17 connections in the accept queue; an answer takes 17 ms of
/// sleep on the average, exponentially distributed.
#[test]
fn accept_queue() {
    use PolicyKind::{AcceptQueue, Fill, Random};
    let rows = [
        (800.0, Random, 17.3, 12.2),
        (800.0, Fill, 19.6, 14.9),
        (800.0, AcceptQueue, 17.4, 12.2),
        (1200.0, Random, 17.8, 12.5),
        (1200.0, Fill, 22.9, 18.7),
        (1200.0, AcceptQueue, 17.5, 12.3),
        (1600.0, Random, 20.7, 16.1),
        (1600.0, Fill, 24.3, 20.3),
        (1600.0, AcceptQueue, 20.6, 15.8),
    ];
    for (per_second, policy, mean_ms, median_ms) in rows {
        let scenario = Scenario {
            replications: 5,
            seconds: 60.0,
            arrivals: Arrivals { per_second, ..Arrivals::default() },
            responses: Responses {
                bytes: Amount::Constant(100.0),
                service_us: Amount::Exponential(17_000.0),
            },
            // Who sleeps takes nothing from another one.
            nodes: vec![Nodes {
                count: 2,
                cores: 16,
                workers: Some(16),
                accept_queue: 17,
                ..Nodes::default()
            }],
            pool: Pool { policy: Policy(policy), ..Pool::default() },
            ..Scenario::default()
        };
        let outcomes = run(&scenario);
        let name = format!("{per_second} connections/s with {policy}");
        assert_near(
            &format!("{name}, answered"),
            estimate(&outcomes, |run| run.per_second).mean,
            per_second,
            0.1,
        );
        let ms = |number: fn(&Outcome) -> f64| estimate(&outcomes, number).mean * 1e3;
        assert_near(&format!("{name}, average time in ms"), ms(|run| run.latency_mean), mean_ms, 0.25);
        assert_near(&format!("{name}, median time in ms"), ms(|run| run.latency_p50), median_ms, 0.25);
        assert!(outcomes.iter().all(|run| run.refused == 0), "{name}");
    }
}
