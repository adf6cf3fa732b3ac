//! How a node of a pool is chosen for a request.
//!
//! A policy is a state machine without surroundings: it reads no clock, draws no random number and opens no
//! socket. Whoever drives it passes these in, so the simulator under its virtual clock and the switch under
//! the real one run the same code, and a run can be repeated from its seed.
//!
//! Each policy is one file with one type that implements [`Policy`]. [`PolicyKind`] is its name in
//! `cluster.toml`, [`build`] makes it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

mod round_robin;

pub use round_robin::RoundRobin;

/// What a policy is told about one node of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Share of the requests relative to the other candidates. A candidate of weight 0 is never chosen.
    pub weight: u32,
    /// Whether the node can take a request now: healthy, not draining, not tried for this request already.
    pub available: bool,
}

/// A way to choose a node of a pool.
///
/// One value serves one pool and keeps what it has to remember between requests.
pub trait Policy: Send {
    /// Chooses the node for one request and returns its index in `candidates`, or `None` if none can be
    /// chosen.
    ///
    /// `candidates` has one entry for each node of the pool, in the pool's order, at every call. `now` is the
    /// time since an arbitrary but fixed start and never runs backwards. `random` gives 64 independent
    /// uniform bits at each call.
    ///
    /// Time and randomness are arguments even though not every policy uses them: a policy that could reach
    /// for a clock or a generator of its own could not be simulated, and the drivers should not have to know
    /// which one needs what.
    fn pick(
        &mut self,
        candidates: &[Candidate],
        now: Duration,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize>;
}

/// The policies that a pool can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// In turn, by weight: [`RoundRobin`].
    RoundRobin,
}

impl PolicyKind {
    /// Every policy, in the order in which messages list them.
    pub const ALL: [PolicyKind; 1] = [PolicyKind::RoundRobin];

    /// The name in `cluster.toml`.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::RoundRobin => "round-robin",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no policy. Its message lists those that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy, allowed: ")?;
        for (i, kind) in PolicyKind::ALL.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{kind}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownPolicy)
    }
}

/// Makes the policy `kind` for a pool of `nodes` nodes, with nothing remembered yet.
pub fn build(kind: PolicyKind, nodes: usize) -> Box<dyn Policy> {
    match kind {
        PolicyKind::RoundRobin => Box::new(RoundRobin::new(nodes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_reads_back_as_its_policy() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "Round-Robin".parse::<PolicyKind>().unwrap_err();
        assert_eq!(error.to_string(), "unknown policy, allowed: round-robin");
    }

    #[test]
    fn a_built_policy_chooses_among_the_nodes_it_was_built_for() {
        for kind in PolicyKind::ALL {
            let candidates = [Candidate { weight: 1, available: true }; 3];
            let picked = build(kind, 3).pick(&candidates, Duration::ZERO, &mut || 7);
            assert!(picked.is_some_and(|node| node < 3), "{kind} picked {picked:?}");
        }
    }
}
