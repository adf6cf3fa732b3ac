//! The names of the policies.

use std::fmt;
use std::str::FromStr;

use crate::MOST_AHEAD;

/// The policies of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// In turn, by weight: [`RoundRobin`](crate::RoundRobin).
    RoundRobin,
    /// At random, by weight: [`Random`](crate::Random).
    Random,
    /// Where the fewest connections are: [`LeastConnections`](crate::LeastConnections).
    LeastConnections,
    /// Of two drawn at random, where fewer requests are in flight: [`TwoChoices`](crate::TwoChoices).
    TwoChoices,
    /// The same node for the same key: [`Rendezvous`](crate::Rendezvous).
    Hash,
    /// One node until its accept queue is full, then the next: [`Fill`](crate::Fill).
    Fill,
    /// Where the most of the accept queue is free: [`AcceptQueue`](crate::AcceptQueue).
    AcceptQueue,
    /// Where the first byte of a response comes soonest: [`Latency`](crate::Latency).
    Latency,
}

impl PolicyKind {
    /// Every policy, in the order in which messages list them.
    pub const ALL: [PolicyKind; 8] = [
        PolicyKind::RoundRobin,
        PolicyKind::Random,
        PolicyKind::LeastConnections,
        PolicyKind::TwoChoices,
        PolicyKind::Hash,
        PolicyKind::Fill,
        PolicyKind::AcceptQueue,
        PolicyKind::Latency,
    ];

    /// Whether it can choose before the request comes.
    pub fn chooses_ahead(self) -> bool {
        self.most_ahead() > 0
    }

    /// Most choices that a pool with this policy makes ahead. Policies that go by loads choose few, because loads change
    /// before the choices are used.
    pub fn most_ahead(self) -> usize {
        match self {
            PolicyKind::RoundRobin | PolicyKind::Random | PolicyKind::Fill => MOST_AHEAD,
            PolicyKind::Hash => 0,
            PolicyKind::LeastConnections
            | PolicyKind::TwoChoices
            | PolicyKind::AcceptQueue
            | PolicyKind::Latency => MOST_AHEAD / 8,
        }
    }

    /// The name in `cluster.toml`.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::RoundRobin => "round-robin",
            PolicyKind::Random => "random",
            PolicyKind::LeastConnections => "least-connections",
            PolicyKind::TwoChoices => "two-choices",
            PolicyKind::Hash => "hash",
            PolicyKind::Fill => "fill",
            PolicyKind::AcceptQueue => "accept-queue",
            PolicyKind::Latency => "latency",
        }
    }

    /// What it chooses, for messages.
    pub fn in_words(self) -> &'static str {
        match self {
            PolicyKind::RoundRobin => "in turn, by weight",
            PolicyKind::Random => "at random, by weight",
            PolicyKind::LeastConnections => "the node with the fewest connections for its weight",
            PolicyKind::TwoChoices => "of two at random, the node with fewer requests in flight",
            PolicyKind::Hash => "the node that belongs to a part of the request",
            PolicyKind::Fill => "one accept queue up to its limit, then the next",
            PolicyKind::AcceptQueue => "the node with the most room in its accept queue",
            PolicyKind::Latency => "of the nodes that are not busy, the one that answers fastest",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown name of a policy. The message lists those that exist.
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
        assert_eq!(
            error.to_string(),
            "unknown policy, allowed: round-robin, random, least-connections, two-choices, hash, fill, \
             accept-queue, latency"
        );
    }
}
