//! What holds when choices are made ahead of their requests, in a queue from which requests take them in order, and are
//! given back when no request has come.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use switchback_policy::{Ask, Balancer, Load, MOST_AHEAD, Member, PolicyKind, Queue};

const UP: Load = Load::IDLE;

/// A repeatable source of randomness: splitmix64 (Steele et al., OOPSLA 2014).
fn seeded(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

/// A pool, its load, and choices that are not taken. Every connection that was given stays, until it ends.
struct Pool {
    balancer: Balancer,
    random: Box<dyn FnMut() -> u64>,
    now: Duration,
    /// Without the choices that are not taken.
    loads: Vec<Load>,
    /// Choices that are not taken, the oldest first.
    ahead: VecDeque<usize>,
    /// Number of them for each node.
    waiting: Vec<u32>,
    /// Chosen nodes of all connections, in their order.
    used: Vec<usize>,
}

impl Pool {
    fn new(kind: PolicyKind, weights: &[u32], loads: Vec<Load>, seed: u64) -> Self {
        let member = |(index, &weight)| Member { name: format!("n{index}"), weight, near: true };
        let members = weights.iter().enumerate().map(member).collect();
        Pool::of(kind, members, loads, seed)
    }

    fn of(kind: PolicyKind, members: Vec<Member>, loads: Vec<Load>, seed: u64) -> Self {
        Pool {
            balancer: Balancer::new(kind, members, Duration::from_secs(10)),
            random: Box::new(seeded(seed)),
            now: Duration::from_secs(100),
            waiting: vec![0; loads.len()],
            loads,
            ahead: VecDeque::new(),
            used: Vec::new(),
        }
    }

    /// Load of a node, with the choices that are not taken.
    fn load(&self, node: usize) -> Load {
        self.loads[node].with_ahead(self.waiting[node])
    }

    fn flows(&self) -> Vec<u32> {
        (0..self.loads.len()).map(|node| self.load(node).flows).collect()
    }

    fn note(&mut self) {
        for node in 0..self.loads.len() {
            self.balancer.note(node, self.load(node));
        }
    }

    fn give(&mut self, node: usize) {
        let load = &mut self.loads[node];
        load.queue.len += 1;
        load.in_flight += 1;
        load.flows += 1;
        self.used.push(node);
    }

    /// Ends a connection of the node, if it has one.
    fn end(&mut self, node: usize) -> bool {
        let load = &mut self.loads[node];
        let has = load.flows > 0;
        if has {
            load.queue.len = load.queue.len.saturating_sub(1);
            load.in_flight -= 1;
            load.flows -= 1;
        }
        has
    }

    /// Chooses for a request that takes no choice made ahead.
    fn pick(&mut self) -> Option<usize> {
        self.note();
        let node = self.balancer.pick_noted(&Ask { key: None, now: self.now }, &[], &mut self.random)?;
        self.give(node);
        Some(node)
    }

    /// Makes choices ahead until there are `most`, or no node can be chosen.
    fn fill(&mut self, most: usize) {
        while self.ahead.len() < most {
            self.note();
            let Some(node) = self.balancer.pick_ahead(self.now, &mut self.random) else { return };
            self.ahead.push_back(node);
            self.waiting[node] += 1;
        }
    }

    /// Gives a request the oldest choice.
    fn take(&mut self) -> Option<usize> {
        let node = self.ahead.pop_front()?;
        self.waiting[node] -= 1;
        self.give(node);
        Some(node)
    }

    fn give_back(&mut self) {
        while let Some(node) = self.ahead.pop_back() {
            self.balancer.give_back(node);
            self.waiting[node] -= 1;
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Pick => {
                self.pick();
            }
            Step::Fill(most) => self.fill(most),
            Step::Take => {
                self.take();
            }
            Step::GiveBack => self.give_back(),
            Step::End(index) => {
                self.end(index.index(self.loads.len()));
            }
        }
    }

    fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.loads.len()];
        self.used.iter().for_each(|&node| counts[node] += 1);
        counts
    }

    /// So many requests, of which a quarter takes no choice made ahead; the choices are given back at random moments, at
    /// one request of 16. After each request `then` may end connections.
    fn serve(&mut self, requests: u32, most: usize, mut then: impl FnMut(&mut Pool, usize)) {
        for _ in 0..requests {
            if (self.random)() >> 60 == 0 {
                self.give_back();
            }
            if 2 * self.ahead.len() < most {
                self.fill(most);
            }
            let is_picked = (self.random)() >> 62 == 0;
            let node = if is_picked || most == 0 { self.pick() } else { self.take() };
            if let Some(node) = node {
                then(self, node);
            }
        }
        self.give_back();
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pick,
    Fill(usize),
    Take,
    GiveBack,
    End(prop::sample::Index),
}

/// Steps in which requests take all their choices from the queue.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..=MOST_AHEAD).prop_map(Step::Fill),
        30 => Just(Step::Take),
        1 => Just(Step::GiveBack),
    ];
    prop::collection::vec(step, 1..400)
}

/// Steps of all kinds, without the ends of connections.
fn steps_with_picks() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..=MOST_AHEAD).prop_map(Step::Fill),
        20 => Just(Step::Take),
        10 => Just(Step::Pick),
        1 => Just(Step::GiveBack),
    ];
    prop::collection::vec(step, 1..400)
}

fn steps_with_ends() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..=MOST_AHEAD).prop_map(Step::Fill),
        20 => Just(Step::Take),
        5 => Just(Step::Pick),
        1 => Just(Step::GiveBack),
        15 => any::<prop::sample::Index>().prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..400)
}

fn spread(counts: &[u32]) -> u32 {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

fn limited(limits: &[u32]) -> Vec<Load> {
    limits.iter().map(|&limit| Load { queue: Queue { len: 0, limit }, ..UP }).collect()
}

proptest! {
    /// Where all requests take their choices from the queue, they get the nodes that they would get without it.
    #[test]
    fn what_was_given_back_leaves_no_trace(
        weights in prop::collection::vec(1u32..20, 1..8),
        limits in prop::collection::vec(1u32..40, 8),
        kind in prop::sample::select(&[PolicyKind::RoundRobin, PolicyKind::Fill]),
        steps in steps(),
    ) {
        let loads = limited(&limits[..weights.len()]);
        let mut pool = Pool::new(kind, &weights, loads.clone(), 1);
        let mut plain = Pool::new(kind, &weights, loads, 1);
        for step in steps {
            if matches!(step, Step::Take) && pool.ahead.is_empty() {
                pool.fill(1);
            }
            pool.step(step);
            if pool.used.len() > plain.used.len() {
                plain.pick();
            }
            prop_assert_eq!(&pool.used, &plain.used, "{}", kind);
        }
    }

    /// The share of each node is off by at most 1 upwards without a queue, and by n - 1 downwards. Choices that are not
    /// taken add their number, and no more comes of any history.
    #[test]
    fn round_robin_is_off_by_the_queue_at_most(
        weights in prop::collection::vec(1u32..9, 1..6),
        most in 1..=MOST_AHEAD,
        steps in steps_with_picks(),
    ) {
        let mut pool = Pool::new(PolicyKind::RoundRobin, &weights, vec![UP; weights.len()], 1);
        let total: u32 = weights.iter().sum();
        for step in steps {
            pool.step(if let Step::Fill(_) = step { Step::Fill(most) } else { step });
            for (count, &weight) in pool.counts().into_iter().zip(&weights) {
                let share = f64::from(weight) / f64::from(total);
                let off = f64::from(count) - pool.used.len() as f64 * share;
                let below = (weights.len() - 1 + most) as f64;
                prop_assert!(off <= 1.0 + most as f64 * share + 1e-9 && off >= -below, "{off}");
            }
        }
        // What picks beside a queue that was given back have shifted is made up for, and then cycles are exact.
        pool.give_back();
        for _ in 0..(most + weights.len()) as u32 * total {
            pool.pick();
        }
        let before = pool.counts();
        for _ in 0..total {
            pool.pick();
        }
        for ((now, before), &weight) in pool.counts().into_iter().zip(before).zip(&weights) {
            prop_assert_eq!(now - before, weight);
        }
    }

    /// With equal weights, connections that stay are spread evenly at each moment.
    #[test]
    fn least_connections_stays_even(nodes in 1usize..8, steps in steps(), seed: u64) {
        let mut pool = Pool::new(PolicyKind::LeastConnections, &vec![1; nodes], vec![UP; nodes], seed);
        for step in steps {
            pool.step(step);
            prop_assert!(spread(&pool.counts()) <= 1, "{:?}", pool.counts());
            prop_assert!(spread(&pool.flows()) <= 1, "{:?}", pool.flows());
        }
    }

    /// When a request takes a choice, its node has at most as many connections more than the least loaded one as
    /// connections ended while the choice was in the queue. One connection that ends for each that comes makes that fewer
    /// than the queue is long.
    #[test]
    fn least_connections_is_off_by_what_ended_meanwhile(
        nodes in 1usize..8,
        steps in steps_with_ends(),
        seed: u64,
    ) {
        let mut pool = Pool::new(PolicyKind::LeastConnections, &vec![1; nodes], vec![UP; nodes], seed);
        // Connections that had ended when each choice was made.
        let mut ended_then: VecDeque<u32> = VecDeque::new();
        let mut ended = 0;
        for step in steps {
            if let (Step::Take, Some(&node)) = (step, pool.ahead.front()) {
                let ended = ended - ended_then.pop_front().expect("one for each choice");
                // With this choice counted.
                let flows = pool.flows();
                let more = flows[node] - flows.iter().min().unwrap();
                prop_assert!(more <= 1 + ended, "{more} more, {ended} ended");
            }
            let before: u32 = pool.loads.iter().map(|load| load.flows).sum();
            pool.step(step);
            if let Step::End(_) = step {
                ended += before - pool.loads.iter().map(|load| load.flows).sum::<u32>();
            }
            ended_then.resize(pool.ahead.len(), ended);
        }
    }

    /// Policies that look at accept queues never choose more than has room, whatever is chosen ahead.
    #[test]
    fn no_accept_queue_overflows(
        limits in prop::collection::vec(1u32..40, 1..8),
        kind in prop::sample::select(&[PolicyKind::Fill, PolicyKind::AcceptQueue]),
        steps in steps_with_ends(),
        seed: u64,
    ) {
        let mut pool = Pool::new(kind, &vec![1; limits.len()], limited(&limits), seed);
        for step in steps {
            pool.step(step);
            if let Step::Fill(most) = step {
                let has_room = (0..limits.len()).any(|node| !pool.load(node).queue.is_full());
                prop_assert!(pool.ahead.len() >= most || !has_room, "{} stops too early", kind);
            }
            for (node, &limit) in limits.iter().enumerate() {
                prop_assert!(pool.load(node).queue.len <= limit, "{}: {:?}", kind, pool.load(node));
            }
        }
    }

    /// Of equal queues none that nothing leaves is longer than another by more than one.
    #[test]
    fn accept_queues_grow_evenly(nodes in 1usize..8, steps in steps(), seed: u64) {
        let mut pool = Pool::new(PolicyKind::AcceptQueue, &vec![1; nodes], limited(&vec![60; nodes]), seed);
        for step in steps {
            pool.step(step);
            prop_assert!(spread(&pool.counts()) <= 1, "{:?}", pool.counts());
        }
    }

    /// The next queue is begun when one is full of connections and of choices; when the choices are given back, it is
    /// the turn of the queue that they were to fill.
    #[test]
    fn fill_returns_to_the_queue_that_was_not_filled(
        limits in prop::collection::vec(1u32..40, 1..8),
        used in 0u32..100,
        most in 1..=MOST_AHEAD,
    ) {
        let mut pool = Pool::new(PolicyKind::Fill, &vec![1; limits.len()], limited(&limits), 1);
        for _ in 0..used {
            pool.pick();
        }
        let turn = pool.used.last().copied().unwrap_or(0);
        let is_full = pool.load(turn).queue.is_full();
        pool.fill(most);
        pool.give_back();
        let next = pool.pick();
        let expected = (turn..limits.len()).find(|&node| node > turn || !is_full);
        prop_assert_eq!(next, expected);
    }
}

/// The slack of `counts` in relation to the shares of `weights`, such as 0.05.
fn assert_shares(counts: &[u32], weights: &[u32], slack: f64) {
    let (all, total) = (f64::from(counts.iter().sum::<u32>()), f64::from(weights.iter().sum::<u32>()));
    for (&count, &weight) in counts.iter().zip(weights) {
        let expected = all * f64::from(weight) / total;
        assert!(
            (f64::from(count) - expected).abs() <= slack * expected,
            "{counts:?} for weights {weights:?}"
        );
    }
}

#[test]
fn random_shares_are_those_of_the_weights() {
    let weights = [1, 3, 6];
    for most in [1, 8, 32, MOST_AHEAD] {
        let mut pool = Pool::new(PolicyKind::Random, &weights, vec![UP; 3], 7);
        pool.serve(50_000, most, |_, _| ());
        assert_shares(&pool.counts(), &weights, 0.05);
    }
}

/// The gap between the busiest of 100 nodes and their mean, after some 10,000 requests that stay in flight.
#[test]
fn two_choices_keeps_the_busiest_node_near_the_mean() {
    let gap = |kind, most, seed| {
        let mut pool = Pool::new(kind, &[1; 100], vec![UP; 100], seed);
        pool.serve(10_000, most, |_, _| ());
        let busiest = f64::from(*pool.counts().iter().max().unwrap());
        busiest - pool.used.len() as f64 / 100.0
    };
    for seed in 0..2 {
        for most in [0, 8, 32, MOST_AHEAD] {
            let (two, one) = (gap(PolicyKind::TwoChoices, most, seed), gap(PolicyKind::Random, most, seed));
            assert!(two <= 3.0 && one > 10.0, "{two}, at random {one}, with {most} ahead, seed {seed}");
        }
    }
}

/// Choices that come and go while only one zone has room pay nothing to the other zone.
#[test]
fn round_robin_keeps_its_turn_when_zones_change_beneath_the_queue() {
    let member = |index| Member { name: format!("n{index}"), weight: 1, near: index < 2 };
    let mut pool = Pool::of(PolicyKind::RoundRobin, (0..4).map(member).collect(), limited(&[8; 4]), 1);
    for _ in 0..1000 {
        // The near queues take 16 choices, and all nodes the others.
        pool.fill(32);
        assert!(pool.ahead.iter().take(16).all(|&node| node < 2));
        assert!(pool.ahead.iter().skip(16).any(|&node| node >= 2));
        pool.give_back();
    }
    (0..2).for_each(|near| pool.loads[near].queue.len = 8);
    let picks: Vec<_> = (0..8).filter_map(|_| pool.pick()).collect();
    assert_eq!(picks, [0, 1, 2, 3, 0, 1, 2, 3]);
}

/// One choice of 128 ignores latency: so often, and no more, is a slow and busy node chosen of three.
#[test]
fn latency_is_ignored_by_one_choice_of_128() {
    let load = |millis, in_flight| Load { in_flight, latency: Some(Duration::from_millis(millis)), ..UP };
    for most in [1, 8, 32, MOST_AHEAD] {
        let loads = vec![load(1, 0), load(1, 0), load(100, 1000)];
        let mut pool = Pool::new(PolicyKind::Latency, &[1; 3], loads, 7);
        pool.serve(100_000, most, |pool, node| {
            pool.end(node);
        });
        let share = f64::from(pool.counts()[2]) / pool.used.len() as f64;
        assert!((share * 3.0 * 128.0 - 1.0).abs() < 0.2, "{most}: {share}");
    }
}
