//! Helpers for the tests of several policies.

use crate::hash;
use crate::{Ask, Candidate, Policy, Queue};

/// An available node of weight 1 without load.
pub const IDLE: Candidate = Candidate {
    weight: 1,
    available: true,
    queue: Queue { len: 0, limit: 0 },
    in_flight: 0,
    flows: 0,
    latency: None,
};

/// Idle nodes with these weights.
pub fn weighted(weights: &[u32]) -> Vec<Candidate> {
    weights.iter().map(|&weight| Candidate { weight, ..IDLE }).collect()
}

/// A repeatable source of randomness: splitmix64 (Steele et al., OOPSLA 2014).
pub fn seeded(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash::mix(state)
    }
}

/// A choice of a policy that knows every candidate.
pub fn pick(
    policy: &mut dyn Policy,
    candidates: &[Candidate],
    ask: &Ask,
    random: &mut dyn FnMut() -> u64,
) -> Option<usize> {
    for (index, candidate) in candidates.iter().enumerate() {
        policy.changed(index, candidate);
    }
    policy.pick(candidates, ask, random)
}

/// Number of choices of each candidate in `rounds` requests that change nothing.
pub fn shares(policy: &mut dyn Policy, candidates: &[Candidate], rounds: u32, seed: u64) -> Vec<u32> {
    let mut random = seeded(seed);
    let mut counts = vec![0; candidates.len()];
    for _ in 0..rounds {
        counts[pick(policy, candidates, &Ask::default(), &mut random).expect("one is usable")] += 1;
    }
    counts
}

/// Asserts that the counts are proportional to the weights, each within `slack` (0.1 is 10 %).
pub fn assert_shares(counts: &[u32], weights: &[u32], slack: f64, seed: u64) {
    let rounds: u32 = counts.iter().sum();
    let total: u32 = weights.iter().sum();
    for (count, weight) in std::iter::zip(counts, weights) {
        let expected = f64::from(rounds) * f64::from(*weight) / f64::from(total);
        let off = (f64::from(*count) - expected).abs();
        assert!(off <= expected * slack, "seed {seed}: {counts:?} for weights {weights:?}");
    }
}
