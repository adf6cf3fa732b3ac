//! A policy, and what it sees of a pool.

use std::time::Duration;

/// One node of a pool, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Unique in the pool; [`PolicyKind::Hash`](crate::PolicyKind::Hash) hashes it.
    pub name: String,
    /// Share of the requests relative to the other members. 0: none. Capped at 2^24 - 1.
    pub weight: u32,
    /// Whether it is in the switch's zone. In a pool without zones all members have the same value.
    pub near: bool,
}

/// One node of a pool as a policy sees it, at the moment of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Share of the requests relative to the other candidates, in any unit that all of them use: [`Balancer`](crate::Balancer)
    /// gives [`WEIGHT_SCALE`](crate::WEIGHT_SCALE) for each unit of the configured weight. A candidate of weight 0 is never
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
    /// Hash of the key of [`Rendezvous`](crate::Rendezvous), such as the client's address; `None` if the request has none.
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

    /// As [`pick`](Self::pick), for a choice that is made ahead of its request and may be given back. A policy overrides
    /// it if [`give_back`](Self::give_back) needs what the choice was made with.
    fn pick_ahead(
        &mut self,
        candidates: &[Candidate],
        ask: &Ask,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        self.pick(candidates, ask, random)
    }

    /// Undoes the last choice made ahead that has not been undone, which was that of the node at `index`: it was not used.
    /// Other choices, which are used, may have been made since. A policy whose choices change nothing in it ignores it.
    fn give_back(&mut self, index: usize) {
        let _ = index;
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
