//! What queueing theory knows exactly, simulated. Some twenty numbers are compared, so each interval has a confidence of 99.9 %:
//! with 95 % one of them would be outside by chance. Seeds are fixed, so what passes once always passes.

use switchback_policy::PolicyKind;
use switchback_sim::scenario::{Arrivals, Clients, Costs, Nodes, Policy, Pool, Responses, Switch};
use switchback_sim::{Amount, Estimate, Outcome, Scenario, simulate};

/// A mean of 1 ms.
const SERVICE: f64 = 1000.0;

/// One node with so many servers, which are in use to this share, and room for so many that wait.
fn queue(servers: u32, share: f64, room: u32, service_us: Amount) -> Scenario {
    let per_second = share * f64::from(servers) * 1e6 / SERVICE;
    let node =
        Nodes { count: 1, cores: servers, workers: Some(servers), accept_queue: room, ..Nodes::default() };
    Scenario {
        seed: 1,
        replications: 16,
        warm_up_s: 5_000.0 / per_second,
        seconds: 100_000.0 / per_second,
        arrivals: Arrivals { per_second, ..Arrivals::default() },
        clients: Clients::default(),
        responses: Responses { bytes: Amount::Constant(0.0), service_us },
        // The application's alone.
        costs: Costs::NONE,
        switch: Switch { held: 0, ..Switch::default() },
        nodes: vec![node],
        ..Scenario::default()
    }
}

fn run(scenario: &Scenario) -> Vec<Outcome> {
    simulate(scenario, || {}).unwrap()
}

fn estimate(outcomes: &[Outcome], number: impl Fn(&Outcome) -> f64) -> Estimate {
    Estimate::with(&outcomes.iter().map(number).collect::<Vec<_>>(), 0.999)
}

fn assert_holds(what: &str, found: Estimate, expected: f64) {
    assert!(
        found.holds(expected),
        "{what}: {expected} by theory, {} +- {} simulated",
        found.mean,
        found.half
    );
    // An interval that holds anything says nothing.
    assert!(found.half < 0.05 * expected, "{what}: {} +- {}", found.mean, found.half);
}

#[test]
fn m_m_1() {
    for share in [0.3, 0.6, 0.8] {
        let outcomes = run(&queue(1, share, u32::MAX, Amount::Exponential(SERVICE)));
        let time = SERVICE / 1e6 / (1.0 - share);
        assert_holds("time", estimate(&outcomes, |run| run.latency_mean), time);
        assert_holds("median", estimate(&outcomes, |run| run.latency_p50), time * 2f64.ln());
        assert_holds("in the system", estimate(&outcomes, |run| run.in_system), share / (1.0 - share));
        assert_holds("use", estimate(&outcomes, |run| run.node_cpu), share);
    }
}

/// Nodes drawn at random are independent queues, whether they are drawn ahead or not.
#[test]
fn m_m_1_by_lot() {
    let share = 0.6;
    for ahead in [0, 32] {
        let mut scenario = queue(1, share, u32::MAX, Amount::Exponential(SERVICE));
        scenario.nodes[0].count = 4;
        scenario.arrivals.per_second *= 4.0;
        scenario.pool = Pool { policy: Policy(PolicyKind::Random), ahead, ..Pool::default() };
        let time = SERVICE / 1e6 / (1.0 - share);
        assert_holds("time", estimate(&run(&scenario), |run| run.latency_mean), time);
    }
}

/// Erlang's C.
fn waits(servers: u32, share: f64) -> f64 {
    let load = share * f64::from(servers);
    let term = |n: u32| (1..=n).map(|k| load / f64::from(k)).product::<f64>();
    let last = term(servers) / (1.0 - share);
    last / ((0..servers).map(term).sum::<f64>() + last)
}

#[test]
fn m_m_c() {
    for (servers, share) in [(2, 0.7), (4, 0.8), (16, 0.9)] {
        let outcomes = run(&queue(servers, share, u32::MAX, Amount::Exponential(SERVICE)));
        let mean = SERVICE / 1e6;
        let wait = waits(servers, share) * mean / f64::from(servers) / (1.0 - share);
        assert_holds(
            &format!("time with {servers}"),
            estimate(&outcomes, |run| run.latency_mean),
            mean + wait,
        );
    }
}

#[test]
fn m_g_1() {
    // Pollaczek and Khinchine: the wait is that of M/M/1 times (1 + c^2) / 2.
    let share = 0.7;
    let lognormal = |sigma: f64| Amount::Lognormal { mu: SERVICE.ln() - sigma * sigma / 2.0, sigma };
    let rows = [
        (Amount::Constant(SERVICE), 0.0),
        (Amount::Uniform(0.0, 2.0 * SERVICE), 1.0 / 3.0),
        (lognormal(1.0), 1f64.exp() - 1.0),
    ];
    for (service, squared) in rows {
        let outcomes = run(&queue(1, share, u32::MAX, service.clone()));
        let mean = SERVICE / 1e6;
        let time = mean + mean * share / (1.0 - share) * (1.0 + squared) / 2.0;
        assert_holds(&format!("time with {service:?}"), estimate(&outcomes, |run| run.latency_mean), time);
    }
}

/// Processors that are shared: the time depends on the mean of the service only.
#[test]
fn m_g_1_with_shared_processors() {
    let share = 0.7;
    for service in
        [Amount::Constant(SERVICE), Amount::Exponential(SERVICE), Amount::Uniform(0.0, 2.0 * SERVICE)]
    {
        let mut scenario = queue(1, share, 0, service);
        scenario.nodes[0].workers = None;
        let time = SERVICE / 1e6 / (1.0 - share);
        assert_holds("time", estimate(&run(&scenario), |run| run.latency_mean), time);
    }
}

#[test]
fn m_m_1_k() {
    // Choices made ahead take no room from requests, whether the policy asks for it or not.
    let ahead = |kind| Pool { policy: Policy(kind), ahead: 32, ..Pool::default() };
    let pools = [Pool::default(), ahead(PolicyKind::RoundRobin), ahead(PolicyKind::AcceptQueue)];
    for (pool, (share, k)) in pools.iter().flat_map(|pool| [(pool, (0.8, 5u32)), (pool, (1.2, 10))]) {
        let queue = queue(1, share, k - 1, Amount::Exponential(SERVICE));
        let outcomes = run(&Scenario { pool: pool.clone(), ..queue });
        let power = |n: u32| share.powi(n as i32);
        let lost = (1.0 - share) * power(k) / (1.0 - power(k + 1));
        let refused = estimate(&outcomes, |run| run.refused as f64 / run.offered as f64);
        assert_holds(&format!("lost with room for {k}"), refused, lost);
        let k = f64::from(k);
        let there = share / (1.0 - share) - (k + 1.0) * power(k as u32 + 1) / (1.0 - power(k as u32 + 1));
        assert_holds("in the system", estimate(&outcomes, |run| run.in_system), there);
    }
}

/// A link is shared as processors are.
#[test]
fn a_link_is_shared() {
    let share = 0.6;
    let mut scenario = queue(1, 0.001, u32::MAX, Amount::Constant(0.0));
    let bytes = 100_000.0;
    scenario.responses.bytes = Amount::Exponential(bytes);
    scenario.nodes[0].link_mbit = 1000.0;
    // With the headers of segments.
    let each = bytes * (1514.0 / 1448.0) * 8.0 / 1e9;
    scenario.arrivals.per_second = share / each;
    (scenario.warm_up_s, scenario.seconds) = (5_000.0 * each / share, 100_000.0 * each / share);
    let outcomes = run(&scenario);
    assert_holds("time", estimate(&outcomes, |run| run.latency_mean), each / (1.0 - share));
    assert_holds("use", estimate(&outcomes, |run| run.node_link), share);
    assert_holds("bits", estimate(&outcomes, |run| run.bits_per_second), share * 1e9 * 1448.0 / 1514.0);
}
