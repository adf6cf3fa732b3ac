//! The choice of a pool's node for a request.
//!
//! A policy is a pure state machine: it reads no clock, draws no random number and opens no socket. Its caller passes
//! these in, so the simulator under its virtual clock and the switch under the real one run the same code, and a run
//! can be repeated from its seed.
//!
//! Each policy is one file with one type that implements [`Policy`]. [`PolicyKind`] is its name in
//! `cluster.toml`, [`build`] makes it. What every pool does whatever its policy is (health, zones, slow
//! start) is in [`Balancer`], which is what the switch uses. `docs/policies.md` says when to use which.

use std::time::Duration;

mod accept_queue;
mod balancer;
mod draw;
mod fill;
mod hand_over;
mod hash;
mod kind;
mod latency;
mod least;
mod least_connections;
mod random;
mod round_robin;
mod tree;
mod two_choices;

pub use accept_queue::AcceptQueue;
pub use balancer::{Availability, Balancer, Load, Member, WEIGHT_SCALE};
pub use fill::Fill;
pub use hand_over::{Busy, Work, is_lighter};
pub use hash::Rendezvous;
pub use kind::{PolicyKind, UnknownPolicy};
pub use latency::Latency;
pub use least_connections::LeastConnections;
pub use random::Random;
pub use round_robin::RoundRobin;
pub use two_choices::TwoChoices;

/// One node of a pool as a policy sees it, at the moment of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Share of the requests relative to the other candidates, in any unit that all of them use: [`Balancer`]
    /// gives [`WEIGHT_SCALE`] for each unit of the configured weight. A candidate of weight 0 is never
    /// chosen.
    pub weight: u32,
    /// Whether the node can take a request now: healthy, not draining, not tried for this request already.
    pub available: bool,
    /// The accept queue of its listener.
    pub queue: Queue,
    /// Requests given to it whose responses are not complete.
    pub in_flight: u32,
    /// Open connections.
    pub flows: u32,
    /// Its recent time to the first byte of a response; `None` if there is no recent one.
    pub latency: Option<Duration>,
}

impl Candidate {
    /// Whether it may be chosen at all.
    pub fn is_usable(&self) -> bool {
        self.available && self.weight > 0
    }
}

/// The queue of connections that a server has not accepted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Connections in it. The caller adds to the node's last report the connections given to the node since: a report
    /// alone makes the queue look too short during a burst.
    pub len: u32,
    /// Connections up to which the node adopts; 0 while unknown.
    pub limit: u32,
}

impl Queue {
    /// Whether the queue takes no more. A queue without a known limit is not full.
    pub fn is_full(&self) -> bool {
        self.room() == Some(0)
    }

    /// Free places; None if the limit is unknown.
    pub fn room(&self) -> Option<u32> {
        (self.limit > 0).then(|| self.limit.saturating_sub(self.len))
    }
}

/// The inputs of one choice: the relevant part of the request, and the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Hash of the key of [`Rendezvous`], such as the client's address; `None` if the request has none.
    pub key: Option<u64>,
    /// Time since a fixed start; monotonic.
    pub now: Duration,
}

/// A way to choose a node of a pool.
///
/// One value serves one pool and keeps what it has to remember between requests.
pub trait Policy: Send {
    /// Replaces the candidate at `index`. A candidate that was never set cannot be chosen. This lets a policy
    /// keep sums of the whole pool, without a look at each node for each request; a policy that looks at each
    /// anyway ignores it.
    fn changed(&mut self, index: usize, candidate: &Candidate) {
        let _ = (index, candidate);
    }

    /// Chooses the node for one request and returns its index in `candidates`, or `None` if none can be
    /// chosen.
    ///
    /// `candidates` has one entry for each node of the pool, in the pool's order, at every call;
    /// [`changed`](Self::changed) has been called with each of them. `random` gives 64 independent uniform
    /// bits at each call.
    ///
    /// Time and randomness are arguments even though not every policy uses them: a policy that could reach
    /// for a clock or a generator of its own could not be simulated, and the drivers should not have to know
    /// which one needs what.
    fn pick(&mut self, candidates: &[Candidate], ask: &Ask, random: &mut dyn FnMut() -> u64)
    -> Option<usize>;
}

/// Makes the policy `kind` for a pool of `members`, in its initial state.
pub fn build(kind: PolicyKind, members: &[Member]) -> Box<dyn Policy> {
    let nodes = members.len();
    match kind {
        PolicyKind::RoundRobin => Box::new(RoundRobin::new(nodes)),
        PolicyKind::Random => Box::new(Random::new(nodes)),
        PolicyKind::LeastConnections => Box::new(LeastConnections::new(nodes)),
        PolicyKind::TwoChoices => Box::new(TwoChoices::new(nodes)),
        PolicyKind::Hash => Box::new(Rendezvous::new(members.iter().map(|member| member.name.as_str()))),
        PolicyKind::Fill => Box::new(Fill::default()),
        PolicyKind::AcceptQueue => Box::new(AcceptQueue::new(nodes)),
        PolicyKind::Latency => Box::new(Latency::new(nodes)),
    }
}

#[cfg(test)]
mod testing {
    //! Helpers for the tests of several policies.

    use super::*;

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_full_at_its_limit_and_never_without_one() {
        assert_eq!(Queue { len: 3, limit: 4 }.room(), Some(1));
        assert!(!Queue { len: 3, limit: 4 }.is_full());
        assert!(Queue { len: 4, limit: 4 }.is_full());
        assert!(Queue { len: 5, limit: 4 }.is_full());
        assert!(!Queue { len: 5, limit: 0 }.is_full());
        assert_eq!(Queue { len: 5, limit: 0 }.room(), None);
    }
}
