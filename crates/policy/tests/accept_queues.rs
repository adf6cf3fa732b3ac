//! The experiment of Verma, Lokhande & Khare in virtual time: two servers, bursts of connections, and the
//! question how many of them fail because they met a full accept queue.
//!
//! A closed loop: each of `CLIENTS` opens a connection, waits for its answer, thinks, and opens the next. All
//! begin at the same moment, and whoever waited behind the same queue comes back together, which makes
//! bursts. The servers have room for all of them (two queues and two connections being served), one server
//! has not.

use std::collections::VecDeque;
use std::time::Duration;

use switchback_policy::{Ask, Availability, Balancer, Load, Member, PolicyKind, Queue};

const LIMIT: u32 = 16;
const CLIENTS: u64 = 30;
const CONNECTIONS: u32 = 8_000;
/// A connection is served in so many ticks, one at a time on each server.
const EQUAL: [u64; 2] = [4, 4];
const UNEQUAL: [u64; 2] = [4, 12];
const TICK: Duration = Duration::from_millis(1);

#[derive(Clone, Default)]
struct Server {
    /// When each connection in the queue came.
    queue: VecDeque<u64>,
    /// The one being served: when it came and when it ends.
    serving: Option<(u64, u64)>,
    /// The length of the queue in its last report, and connections given since.
    reported: (u32, u32),
}

#[derive(Debug, Default)]
struct Outcome {
    /// Connections that met a full queue. Their clients try again a second later, as TCP does.
    failed: u32,
    /// Ticks from the first attempt to open a connection to its answer, for all that were answered.
    waited: u64,
}

/// Runs until `CONNECTIONS` are answered. Nodes report their queues every `report` ticks; in between, what
/// was given is added to what was reported.
fn run(kind: PolicyKind, service: [u64; 2], report: u64, seed: u64) -> Outcome {
    let members = ["s1", "s2"].map(|name| Member { name: name.to_owned(), weight: 1, near: true });
    let mut balancer = Balancer::new(kind, members.to_vec(), Duration::ZERO);
    let mut servers = vec![Server::default(); 2];
    let mut outcome = Outcome::default();
    // Connections to open: (when, since when the client has wanted it).
    let mut wanted: Vec<(u64, u64)> = (0..CLIENTS).map(|_| (0, 0)).collect();
    let mut state = seed;
    let mut random = move || {
        // An LCG modulo 2^64 (Knuth), of which only the high bits are used.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    };
    let mut answered = 0;
    let mut tick = 0;
    while answered < CONNECTIONS {
        for (server, service) in servers.iter_mut().zip(service) {
            if let Some((since, _)) = server.serving.take_if(|(_, end)| *end <= tick) {
                answered += 1;
                outcome.waited += tick - since;
                let next = tick + 1 + (random() >> 62);
                wanted.push((next, next));
            }
            if server.serving.is_none() {
                server.serving = server.queue.pop_front().map(|since| (since, tick + service));
            }
            if tick % report == 0 {
                server.reported = (server.queue.len() as u32, 0);
            }
        }
        for (when, since) in std::mem::take(&mut wanted) {
            if when > tick {
                wanted.push((when, since));
                continue;
            }
            let load = |index: usize| Load {
                availability: Availability::Up,
                up_since: Duration::ZERO,
                queue: Queue { len: servers[index].reported.0 + servers[index].reported.1, limit: LIMIT },
                in_flight: servers[index].queue.len() as u32 + u32::from(servers[index].serving.is_some()),
                flows: 0,
                latency: None,
            };
            let ask = Ask { key: None, now: TICK * tick as u32 };
            match balancer.pick(&ask, load, &[], &mut random) {
                // It waits in the switch, which asks again.
                None => wanted.push((tick + 1, since)),
                Some(index) if servers[index].queue.len() as u32 >= LIMIT => {
                    outcome.failed += 1;
                    wanted.push((tick + 1000, since));
                }
                Some(index) => {
                    servers[index].queue.push_back(since);
                    servers[index].reported.1 += 1;
                }
            }
        }
        tick += 1;
    }
    outcome
}

#[test]
fn random_overflows_a_queue_and_those_that_look_at_it_do_not() {
    for seed in 0..10 {
        let random = run(PolicyKind::Random, EQUAL, 1, seed);
        assert!(random.failed > 0, "seed {seed}: {random:?}");
        for kind in [PolicyKind::Fill, PolicyKind::AcceptQueue] {
            let outcome = run(kind, EQUAL, 1, seed);
            assert_eq!(outcome.failed, 0, "seed {seed}: {kind}");
            assert!(outcome.waited < random.waited, "seed {seed}: {kind} {outcome:?}, random {random:?}");
        }
    }
}

/// Equal servers are kind to round-robin: turns alone keep their queues equal. One that is slower is not.
#[test]
fn turns_are_enough_for_equal_servers_only() {
    for seed in 0..3 {
        let failed = |kind, service| run(kind, service, 1, seed).failed;
        assert_eq!(failed(PolicyKind::RoundRobin, EQUAL), 0, "seed {seed}");
        assert!(failed(PolicyKind::RoundRobin, UNEQUAL) > 0, "seed {seed}");
        assert_eq!(failed(PolicyKind::Fill, UNEQUAL), 0, "seed {seed}");
        assert_eq!(failed(PolicyKind::AcceptQueue, UNEQUAL), 0, "seed {seed}");
    }
}

/// As nodes report in truth, every 50 ms: what was given since is added, so a queue is never thought shorter
/// than it is.
#[test]
fn late_reports_fail_no_connection() {
    for seed in 0..3 {
        for kind in [PolicyKind::Fill, PolicyKind::AcceptQueue] {
            assert_eq!(run(kind, UNEQUAL, 50, seed).failed, 0, "seed {seed}: {kind}");
        }
    }
}
