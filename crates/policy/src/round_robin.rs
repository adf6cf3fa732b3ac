//! Smooth weighted round-robin, as nginx does it (`ngx_http_upstream_get_peer`).
//!
//! The plain way to honour weights 5, 1, 1 is to send five requests in a row to the first node, which is a
//! burst at every cycle. The smooth way spreads them: a a b a c a a. Each node has a credit. At every request
//! each node that can be chosen earns its weight, the richest is chosen and pays what all of them have earned
//! together. Credits therefore sum to zero, return to where they were after one cycle, and in that cycle each
//! node was chosen exactly as often as its weight says.
//!
//! A node that cannot be chosen earns and pays nothing: it comes back with the credit it left with, not with
//! a claim to all the requests it missed.
//!
//! A choice adds to the credits what depends on the weights alone: its inverse undoes it, whatever was chosen since. The
//! weights have to be those of the choice. With others, such as those without the nodes of another zone, one zone would
//! be paid back what the other has paid, at each report of an idle pool, without an end. So the weights of each choice
//! made ahead are kept until it can no longer be given back.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{Ask, Candidate, MOST_AHEAD, Policy};

/// Smooth weighted round-robin. Deterministic; among equals the first in the pool's order goes first.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    /// Credit of each node. Their sum is zero between two requests.
    credits: Vec<i64>,
    /// Weight of each node; 0 if it cannot be chosen.
    weights: Vec<i64>,
    /// Sum of `weights`.
    total: i64,
    /// A copy of `weights` that choices made ahead share; None if they have changed since the last one.
    shared: Option<Arc<[i64]>>,
    /// Weights of the last choices made ahead, the oldest first; at most [`MOST_AHEAD`]. Those that were used are not
    /// removed: they are used in order, and so before any that is given back.
    ahead: VecDeque<Arc<[i64]>>,
}

impl RoundRobin {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        RoundRobin {
            credits: vec![0; nodes],
            weights: vec![0; nodes],
            total: 0,
            shared: None,
            ahead: VecDeque::new(),
        }
    }
}

impl Policy for RoundRobin {
    fn changed(&mut self, index: usize, candidate: &Candidate) {
        let weight = if candidate.is_usable() { i64::from(candidate.weight) } else { 0 };
        if weight != self.weights[index] {
            self.total += weight - self.weights[index];
            self.weights[index] = weight;
            self.shared = None;
        }
    }

    fn pick(
        &mut self,
        candidates: &[Candidate],
        _ask: &Ask,
        _random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        debug_assert_eq!(candidates.len(), self.credits.len(), "one candidate for each node of the pool");
        let mut richest: Option<(usize, i64)> = None;
        for (node, (weight, credit)) in self.weights.iter().zip(&mut self.credits).enumerate() {
            *credit += weight;
            if *weight > 0 && richest.is_none_or(|(_, most)| *credit > most) {
                richest = Some((node, *credit));
            }
        }
        let (node, _) = richest?;
        self.credits[node] -= self.total;
        Some(node)
    }

    fn pick_ahead(
        &mut self,
        candidates: &[Candidate],
        ask: &Ask,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        let node = self.pick(candidates, ask, random)?;
        let weights = self.shared.get_or_insert_with(|| self.weights.as_slice().into());
        if self.ahead.len() == MOST_AHEAD {
            self.ahead.pop_front();
        }
        self.ahead.push_back(Arc::clone(weights));
        Some(node)
    }

    fn give_back(&mut self, index: usize) {
        let weights = self.ahead.pop_back();
        let weights = weights.as_deref().unwrap_or(&self.weights);
        for (weight, credit) in weights.iter().zip(&mut self.credits) {
            *credit -= weight;
        }
        self.credits[index] += weights.iter().sum::<i64>();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{self, IDLE, weighted};

    fn pick(policy: &mut RoundRobin, candidates: &[Candidate]) -> Option<usize> {
        testing::pick(policy, candidates, &Ask::default(), &mut || {
            unreachable!("round-robin draws no random number")
        })
    }

    #[test]
    fn equal_weights_take_turns() {
        let candidates = weighted(&[1, 1, 1]);
        let mut policy = RoundRobin::new(3);
        let picks: Vec<_> = (0..6).filter_map(|_| pick(&mut policy, &candidates)).collect();
        assert_eq!(picks, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn weights_interleave() {
        let candidates = weighted(&[5, 1, 1]);
        let mut policy = RoundRobin::new(3);
        let picks: Vec<_> = (0..7).filter_map(|_| pick(&mut policy, &candidates)).collect();
        assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn none_to_choose_from() {
        assert_eq!(pick(&mut RoundRobin::new(0), &[]), None);
        let gone = Candidate { available: false, ..IDLE };
        let weightless = Candidate { weight: 0, ..IDLE };
        assert_eq!(pick(&mut RoundRobin::new(2), &[gone, weightless]), None);
    }

    #[test]
    fn a_node_that_was_away_gets_no_burst_on_its_return() {
        let mut candidates = weighted(&[1, 1]);
        let mut policy = RoundRobin::new(2);
        candidates[1].available = false;
        for _ in 0..100 {
            assert_eq!(pick(&mut policy, &candidates), Some(0));
        }
        candidates[1].available = true;
        let picks: Vec<_> = (0..4).filter_map(|_| pick(&mut policy, &candidates)).collect();
        assert_eq!(picks, [0, 1, 0, 1]);
    }

    proptest! {
        #[test]
        fn a_cycle_is_exact_and_repeats(weights in prop::collection::vec(0u32..40, 1..12)) {
            let candidates = weighted(&weights);
            let mut policy = RoundRobin::new(weights.len());
            let cycle: u32 = weights.iter().sum();
            let mut first = None;
            for _ in 0..2 {
                let picks: Vec<_> = (0..cycle).filter_map(|_| pick(&mut policy, &candidates)).collect();
                for (node, &weight) in weights.iter().enumerate() {
                    prop_assert_eq!(picks.iter().filter(|&&p| p == node).count(), weight as usize);
                }
                prop_assert_eq!(first.get_or_insert_with(|| picks.clone()), &picks);
            }
        }

        #[test]
        fn no_node_runs_ahead_of_its_share(weights in prop::collection::vec(1u32..40, 1..12)) {
            let candidates = weighted(&weights);
            let mut policy = RoundRobin::new(weights.len());
            let cycle: u32 = weights.iter().sum();
            let mut taken = vec![0f64; weights.len()];
            for turn in 1..=cycle {
                taken[pick(&mut policy, &candidates).unwrap()] += 1.0;
                for (node, &weight) in weights.iter().enumerate() {
                    let share = f64::from(turn) * f64::from(weight) / f64::from(cycle);
                    // A wide bound, but one that sending a node's whole share in a row would break.
                    prop_assert!((taken[node] - share).abs() <= weights.len() as f64);
                }
            }
        }

        /// Credits are those of the used choices, each with the weights at its time, whatever was made ahead and given
        /// back in between.
        #[test]
        fn credits_are_those_of_what_was_used(
            first in prop::collection::vec(0u32..40, 5),
            steps in prop::collection::vec(
                (0..12usize, 1..=MOST_AHEAD, prop::collection::vec(0u32..40, 5)),
                1..200,
            ),
        ) {
            let mut candidates = weighted(&first);
            let mut policy = RoundRobin::new(5);
            let mut used = vec![0i64; 5];
            // The change of the credits by a choice of this node.
            let paid = |candidates: &[Candidate], node: usize| {
                let total: i64 = candidates.iter().map(|candidate| i64::from(candidate.weight)).sum();
                let one = |(index, candidate): (usize, &Candidate)| {
                    i64::from(candidate.weight) - if index == node { total } else { 0 }
                };
                candidates.iter().enumerate().map(one).collect::<Vec<_>>()
            };
            let mut ahead: VecDeque<(usize, Vec<i64>)> = VecDeque::new();
            for (what, count, weights) in steps {
                let mut use_it = |change: &[i64]| used.iter_mut().zip(change).for_each(|(sum, one)| *sum += one);
                match what {
                    0..4 => if let Some(node) = pick(&mut policy, &candidates) {
                        use_it(&paid(&candidates, node));
                    },
                    4..6 => while ahead.len() < count {
                        let mut no_lot = || unreachable!("round-robin draws no random number");
                        let choice = policy.pick_ahead(&candidates, &Ask::default(), &mut no_lot);
                        let Some(node) = choice else { break };
                        ahead.push_back((node, paid(&candidates, node)));
                    },
                    6..9 => for (_, change) in ahead.drain(..ahead.len().min(count)) {
                        use_it(&change);
                    },
                    9..11 => {
                        candidates = weighted(&weights);
                        candidates.iter().enumerate().for_each(|(index, node)| policy.changed(index, node));
                    }
                    _ => while let Some((node, _)) = ahead.pop_back() {
                        policy.give_back(node);
                    },
                }
                prop_assert_eq!(policy.credits.iter().sum::<i64>(), 0);
                if ahead.is_empty() {
                    prop_assert_eq!(&policy.credits, &used);
                }
            }
        }

        #[test]
        fn only_available_nodes_are_chosen(
            rounds in prop::collection::vec(prop::collection::vec((any::<u32>(), any::<bool>()), 6), 1..60),
        ) {
            let mut policy = RoundRobin::new(6);
            for round in rounds {
                let candidates: Vec<_> =
                    round.iter().map(|&(weight, available)| Candidate { weight, available, ..IDLE }).collect();
                match pick(&mut policy, &candidates) {
                    Some(node) => prop_assert!(candidates[node].available && candidates[node].weight > 0),
                    None => prop_assert!(candidates.iter().all(|c| !c.available || c.weight == 0)),
                }
                prop_assert_eq!(policy.credits.iter().sum::<i64>(), 0);
            }
        }
    }
}
