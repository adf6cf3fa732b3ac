//! What clusters do as a whole.

use switchback_policy::{MOST_AHEAD, PolicyKind};
use switchback_sim::experiments::{Models, Needs, Point, Split, plan, split, tls};
use switchback_sim::scenario::{
    Arrivals, Balance, Change, Clients, Costs, HandOver, Interval, Nodes, Policy, Pool, Responses, Sessions,
    Switch, Tls, What,
};
use switchback_sim::{Amount, Outcome, Scenario, estimate, simulate};

/// Choices made ahead, where bounds are to hold with them, too.
const AHEAD: u32 = 32;

/// Four nodes of which a half of the processors is in use.
fn scenario() -> Scenario {
    Scenario {
        replications: 2,
        warm_up_s: 2.0,
        seconds: 10.0,
        arrivals: Arrivals { per_second: 2000.0, ..Arrivals::default() },
        responses: Responses { service_us: Amount::Exponential(900.0), ..Responses::default() },
        ..Scenario::default()
    }
}

fn run(scenario: &Scenario) -> Vec<Outcome> {
    simulate(scenario, || {}).unwrap()
}

#[test]
fn a_run_repeats_from_its_seed_bit_by_bit() {
    let everything = Scenario {
        arrivals: Arrivals { per_second: 2000.0, interval: Interval::Pareto(1.5), ..Arrivals::default() },
        clients: Clients {
            skew: 0.9,
            requests: 3.0,
            think_ms: Amount::Exponential(5.0),
            ..Clients::default()
        },
        tls: Some(Tls {
            sessions: Sessions::Forwarding,
            hand_over: HandOver::Relay,
            busy_connections: 3,
            ..Tls::default()
        }),
        changes: vec![Change { at_s: 5.0, node: 1, what: What::Fails }],
        ..scenario()
    };
    for (kind, ahead) in PolicyKind::ALL.into_iter().flat_map(|kind| [(kind, 0), (kind, AHEAD)]) {
        let pool = Pool { policy: Policy(kind), ahead, ..Pool::default() };
        let scenario = Scenario { pool, ..everything.clone() };
        let outcomes = run(&scenario);
        assert_eq!(outcomes, run(&scenario), "{kind}, {ahead} ahead");
        assert_ne!(outcomes[0], outcomes[1], "{kind}, {ahead} ahead: another seed");
    }
}

#[test]
fn what_comes_is_answered_refused_or_still_there() {
    let kinds = [PolicyKind::RoundRobin, PolicyKind::Fill, PolicyKind::AcceptQueue];
    let rows = [0, AHEAD].into_iter().flat_map(|ahead| kinds.map(|kind| (ahead, kind)));
    for ((ahead, kind), accept_queue) in rows.flat_map(|row| [(row, 4), (row, 64)]) {
        let node = Nodes { workers: Some(1), accept_queue, ..Nodes::default() };
        let arrivals = Arrivals { per_second: 6000.0, ..Arrivals::default() };
        let switch = Switch { held: 10, ..Switch::default() };
        let pool = Pool { policy: Policy(kind), ahead, ..Pool::default() };
        let outcome = run(&Scenario { nodes: vec![node], arrivals, switch, pool, ..scenario() })[0].clone();
        assert!(outcome.refused > 0 && outcome.node_cpu > 0.99, "{kind}, {ahead} ahead: {outcome:?}");
        let rest = outcome.offered.abs_diff(outcome.answered + outcome.refused);
        // At the end of the warm-up, and at the end.
        assert!(rest <= u64::from(2 * (4 * (accept_queue + 1) + 20)), "{rest} of {outcome:?}");
        assert!(outcome.is_saturated());
    }
}

#[test]
fn a_node_that_dies_breaks_what_it_was_sending_and_nothing_else() {
    let death = |what, ahead| Scenario {
        pool: Pool { ahead, ..Pool::default() },
        changes: vec![Change { at_s: 6.0, node: 0, what }],
        // Responses take a while.
        responses: Responses { bytes: Amount::Constant(1e6), service_us: Amount::Constant(900.0) },
        arrivals: Arrivals { per_second: 600.0, ..Arrivals::default() },
        nodes: vec![Nodes { link_mbit: 2000.0, ..Nodes::default() }],
        replications: 4,
        ..scenario()
    };
    for ahead in [0, AHEAD] {
        let outcomes = run(&death(What::Fails, ahead));
        assert!(outcomes.iter().any(|outcome| outcome.broken > 0));
        for outcome in outcomes {
            assert!(outcome.broken < 100 && outcome.refused == 0, "{outcome:?}");
            assert!(outcome.offered.abs_diff(outcome.answered + outcome.broken) < 100, "{outcome:?}");
            // Some waited until it was known.
            assert!(outcome.latency_p99 > 0.3, "{outcome:?}");
        }
        for outcome in run(&death(What::Drains, ahead)) {
            assert_eq!((outcome.broken, outcome.refused), (0, 0));
            assert!(outcome.latency_p99 < 0.3, "{outcome:?}");
        }
    }
}

#[test]
fn connections_stay_and_requests_do_not() {
    // Two clients, each of them on one connection for long: only requests can be spread over four nodes.
    let keep_alive = |balance, ahead| Scenario {
        clients: Clients { requests: 5000.0, think_ms: Amount::Constant(0.1), ..Clients::default() },
        arrivals: Arrivals { per_second: 0.5, ..Arrivals::default() },
        pool: Pool { balance, ahead, ..Pool::default() },
        ..scenario()
    };
    for ahead in [0, AHEAD] {
        let spread = |balance| run(&keep_alive(balance, ahead))[0].spread;
        assert!(spread(Balance::Request) < 0.05 && spread(Balance::Connection) > 0.2);
    }
}

/// Sixteen nodes at 80 %, each of which serves one request at a time.
fn at_80_percent(policy: PolicyKind, ahead: u32) -> Scenario {
    Scenario {
        arrivals: Arrivals { per_second: 12_800.0, ..Arrivals::default() },
        responses: Responses { bytes: Amount::Constant(0.0), service_us: Amount::Exponential(1000.0) },
        costs: Costs::NONE,
        switch: Switch { cores: 64, ..Switch::default() },
        pool: Pool { policy: Policy(policy), ahead, ..Pool::default() },
        nodes: vec![Nodes { count: 16, workers: Some(1), ..Nodes::default() }],
        ..scenario()
    }
}

#[test]
fn choices_ahead_change_nothing_for_policies_that_ask_for_no_load() {
    let mean = |policy, ahead| estimate(&run(&at_80_percent(policy, ahead)), |run| run.latency_mean).mean;
    for policy in [PolicyKind::RoundRobin, PolicyKind::Hash] {
        let mut outcomes = run(&at_80_percent(policy, AHEAD));
        let before = run(&at_80_percent(policy, 0));
        // Those of the first have more events: reports.
        outcomes.iter_mut().zip(&before).for_each(|(with, before)| with.events = before.events);
        assert_eq!(outcomes, before, "{policy}");
    }
    // The same distribution from other random numbers.
    let (before, with) = (mean(PolicyKind::Random, 0), mean(PolicyKind::Random, AHEAD));
    assert!((with / before - 1.0).abs() < 0.05, "{before} {with}");
}

/// The load that a choice is made by is older by the time in the queue. The slack is that of the mean latency with 32
/// choices ahead, some 2.5 ms of requests.
#[test]
fn choices_ahead_cost_policies_that_ask_for_load_a_part_of_their_advantage() {
    let mean = |policy, ahead| estimate(&run(&at_80_percent(policy, ahead)), |run| run.latency_mean).mean;
    let by_lot = mean(PolicyKind::Random, 0);
    let rows = [
        (PolicyKind::LeastConnections, 1.8),
        (PolicyKind::AcceptQueue, 1.8),
        (PolicyKind::TwoChoices, 1.3),
        (PolicyKind::Latency, 1.2),
    ];
    for (policy, slack) in rows {
        let [none, some, most] = [0, AHEAD, MOST_AHEAD as u32].map(|ahead| mean(policy, ahead));
        assert!(none < some && some < slack * none, "{policy}: {none} {some}");
        // Latency is behind at this load anyway: docs/simulator.md.
        let is_better = most < by_lot || policy == PolicyKind::Latency;
        assert!(some < most && is_better, "{policy}: {some} {most}, at random {by_lot}");
    }
    // It fills its queues all the same.
    let [none, some] = [0, AHEAD].map(|ahead| mean(PolicyKind::Fill, ahead));
    assert!((some / none - 1.0).abs() < 0.02, "{none} {some}");
}

/// Choices that lie in the queue have all the room that there is, and requests that take none do not wait for them.
#[test]
fn choices_ahead_hold_up_no_request() {
    for policy in [PolicyKind::Fill, PolicyKind::AcceptQueue] {
        let scenario = |ahead| Scenario {
            clients: Clients { requests: 50.0, think_ms: Amount::Constant(5.0), ..Clients::default() },
            arrivals: Arrivals { per_second: 20.0, ..Arrivals::default() },
            nodes: vec![Nodes { workers: Some(1), accept_queue: 2, ..Nodes::default() }],
            pool: Pool { policy: Policy(policy), balance: Balance::Request, ahead, ..Pool::default() },
            ..scenario()
        };
        let [none, some] = [0, AHEAD].map(|ahead| run(&scenario(ahead))[0].latency_p99);
        assert!(some < 1.05 * none, "{policy}: {none} {some}");
    }
}

#[test]
fn sessions_are_found_where_they_are() {
    let reuse = |sessions, cluster_tickets| {
        let tls = Some(Tls { sessions, cluster_tickets, ..Tls::default() });
        let clients = Clients { count: 1000, ..Clients::default() };
        let scenario = Scenario {
            tls,
            clients,
            nodes: vec![Nodes { count: 8, ..Nodes::default() }],
            arrivals: Arrivals { per_second: 1000.0, ..Arrivals::default() },
            ..scenario()
        };
        run(&scenario)[0].reuse
    };
    // As in the lab: docs/https.md.
    assert!((reuse(Sessions::RoundRobin, false) - 0.125).abs() < 0.01);
    assert_eq!(reuse(Sessions::RoundRobin, true), 1.0);
    assert!(reuse(Sessions::Session, false) > 0.99 && reuse(Sessions::Forwarding, false) > 0.99);
}

#[test]
fn the_findings_of_backend_forwarding_come_out() {
    let models = Models { replications: 4, requests: 20_000, ..Models::default() };
    let report = tls(&models, &|_, _| {}).unwrap();
    let find = |name: &str, k: u32| -> &Point {
        report.points.iter().find(|point| point.series == name && point.x == k).unwrap()
    };
    let latency = |name: &str, k| find(name, k).estimate(|run| run.latency_mean).mean;
    for k in [45, 40, 35] {
        let [round_robin, session, relay] =
            ["round-robin", "session", "forwarding, relay"].map(|name| latency(name, k));
        assert!(round_robin > 3.0 * session, "{k}: {round_robin} {session}");
        // The paper: about 0.7.
        assert!((0.55..0.9).contains(&(relay / session)), "{k}: {relay} {session}");
    }
    // Round robin is saturated first; at k = 25 all are.
    assert!(find("round-robin", 35).is_saturated());
    for name in ["session", "forwarding, relay", "forwarding, direct"] {
        assert!(!find(name, 35).is_saturated() && find(name, 25).is_saturated(), "{name}");
    }
    let throughput = |name: &str, k| find(name, k).estimate(|run| run.per_second).mean;
    assert!(throughput("round-robin", 25) < 0.95 * throughput("session", 25));
    assert!(throughput("forwarding, relay", 27) >= throughput("session", 27));
    // A name with a comma is one cell.
    assert!(report.csv().contains("\n\"forwarding, relay\",45,"), "{}", report.csv());
}

#[test]
fn a_connection_server_has_a_knee() {
    let report = split(&Split { replications: 2, most: 32, ..Split::default() }, &|_, _| {}).unwrap();
    let per_second = |name: &str, x| {
        let point = report.points.iter().find(|point| point.series == name && point.x == x).unwrap();
        point.estimate(|run| run.per_second).mean
    };
    let all = "every acknowledgment";
    assert!(per_second(all, 2) > 1.95 * per_second(all, 1));
    assert!(per_second(all, 32) < 12.0 * per_second(all, 1), "it is saturated");
    assert!(per_second("acknowledgments direct", 32) > 2.0 * per_second(all, 32));
}

#[test]
fn a_plan_is_as_small_as_it_can_be() {
    let needs = |per_second| Needs {
        scenario: Scenario { arrivals: Arrivals { per_second, ..Arrivals::default() }, ..scenario() },
        p99_ms: 20.0,
        most: 0.7,
        nodes_max: 64,
    };
    let small = plan(&needs(1000.0), &|_, _| {}).unwrap().unwrap();
    let large = plan(&needs(10_000.0), &|_, _| {}).unwrap().unwrap();
    // Some 0.95 ms for each request, and 0.7 of each processor.
    assert_eq!(small.nodes, 2, "{small:?}");
    assert!((13..=15).contains(&large.nodes), "{large:?}");
    assert!(large.outcome.latency_p99 < 0.02 && large.used[0].1 <= 0.7);
    let too_much = Needs { nodes_max: 4, ..needs(10_000.0) };
    assert_eq!(plan(&too_much, &|_, _| {}).unwrap(), None);
}

#[test]
fn mistakes_name_their_place() {
    let directory = std::env::temp_dir().join(format!("switchback-sim-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("scenario.toml");
    let rows = [
        ("[arrivals]\nper_second = 0", vec!["2:14: per_second is 0, allowed is what is above 0"]),
        (
            "[arrivals]\nper_secnd = 0",
            vec![
                "2:1: unknown key \"per_secnd\", did you mean \"per_second\"?",
                "2:13: per_second is 0, allowed is what is above 0",
            ],
        ),
        (
            "seconds = \"5\"\n[pool]\npolicy = \"round-robbin\"\n[clients]\ncount = -1\nrequests = 0",
            vec![
                "1:11: seconds is a text, allowed is a number without quotes",
                "3:10: unknown policy \"round-robbin\", did you mean \"round-robin\"?",
                "5:9: count -1, allowed are 0 to 4294967295",
                "6:12: requests is 0, allowed is 1 or above",
            ],
        ),
        (
            "[responses]\nbytes = { pareto = { alpha = 0.0, minimum = 1.0 } }",
            vec!["2:9: bytes: 0, allowed is what is above 0"],
        ),
        ("nodes = []", vec!["1:9: no nodes, at least one [[nodes]] is needed"]),
        ("[[changes]]\nat_s = 1.0\nnode = 4\nwhat = \"fails\"", vec!["3:8: node is 4, allowed are 0 to 3"]),
        ("[pool]\nahead = 129", vec!["2:9: ahead is 129, allowed are 0 to 128"]),
        ("[[changes]]\nat_s = 1.0\nwhat = \"fails\"", vec!["1:1: key \"node\" is missing"]),
        (
            "[[nodes]]\nworkers = 1\n[[nodes]]\nspeed = 0\n[tls]",
            vec!["2:11: workers with [tls], leave the line out", "4:9: speed is 0"],
        ),
        (
            "[arrivals]\ninterval = { pareto = 1.0 }",
            vec!["2:12: interval: pareto 1, allowed is what is above 1"],
        ),
    ];
    for (text, expected) in rows {
        std::fs::write(&path, text).unwrap();
        let error = Scenario::load(&path).unwrap_err().to_string();
        assert_eq!(error.lines().count(), expected.len(), "{text}: {error}");
        for (line, expected) in error.lines().zip(expected) {
            assert!(line.starts_with(&format!("{}:{expected}", path.display())), "{text}: {error}");
        }
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn an_access_log_of_ours_is_a_load() {
    let directory = std::env::temp_dir().join(format!("switchback-sim-log-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    // Lines are in the order in which responses ended.
    let line = |second: u32, bytes: &str| {
        format!("{{\"time\":\"2026-11-22T10:00:{second:02}.5Z\",\"bytes\":{bytes}}}\n")
    };
    let log = [line(3, "1000"), line(1, "3000"), line(2, "null")].concat();
    std::fs::write(directory.join("access.log"), log).unwrap();
    let file = directory.join("scenario.toml");
    std::fs::write(
        &file,
        "replications = 1\nwarm_up_s = 0\nseconds = 10\n[arrivals]\naccess_log = \"access.log\"",
    )
    .unwrap();
    let outcome = run(&Scenario::load(&file).unwrap())[0].clone();
    assert_eq!((outcome.offered, outcome.answered), (3, 3));
    assert_eq!(outcome.bits_per_second, 4000.0 * 8.0 / 10.0);
    std::fs::write(directory.join("access.log"), "GET /").unwrap();
    let error = simulate(&Scenario::load(&file).unwrap(), || {}).unwrap_err().to_string();
    assert!(error.contains("access.log, line 1: "), "{error}");
    std::fs::remove_dir_all(directory).unwrap();
}
