//! The less loaded of two nodes drawn at random (Mitzenmacher, "The Power of Two Choices in Randomized Load
//! Balancing", IEEE TPDS 12(10), 2001).
//!
//! The least loaded of all is the best choice only if the loads are exact at every moment. They are not: reports are
//! some milliseconds old, other switches give requests too, and then all of them choose the node that looked idle last.
//! Two drawn at random are nearly as good as all of them, and avoid that.

use crate::draw::Lots;
use crate::least::PerWeight;
use crate::{Ask, Candidate, Policy};

/// Draws two different nodes by weight and takes the one with the lesser (requests in flight + 1) / weight;
/// if they are equal, the one drawn first, which makes the shares of equally loaded nodes those of their
/// weights. A choice changes nothing here, so giving it back undoes nothing.
#[derive(Clone, Debug)]
pub struct TwoChoices {
    lots: Lots,
}

impl TwoChoices {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        TwoChoices { lots: Lots::new(nodes) }
    }
}

impl Policy for TwoChoices {
    fn changed(&mut self, index: usize, candidate: &Candidate) {
        self.lots.changed(index, candidate);
    }

    fn pick(
        &mut self,
        candidates: &[Candidate],
        _ask: &Ask,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        let mut drawn = [0; 2];
        let drawn = self.lots.draw(random, &mut drawn);
        drawn.iter().copied().min_by_key(|&index| {
            PerWeight::with_one_more(candidates[index].in_flight, candidates[index].weight)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{IDLE, assert_shares, pick, seeded, shares, weighted};

    #[test]
    fn equally_loaded_nodes_share_by_weight() {
        let weights = [1, 3, 6];
        let candidates = weights.map(|weight| Candidate { weight, in_flight: 5 * weight - 1, ..IDLE });
        for seed in 0..5 {
            let counts = shares(&mut TwoChoices::new(3), &candidates, 50_000, seed);
            assert_shares(&counts, &weights, 0.1, seed);
        }
    }

    #[test]
    fn of_two_the_less_loaded_and_the_most_loaded_never() {
        let candidates = [4, 9, 2].map(|in_flight| Candidate { in_flight, ..IDLE });
        let counts = shares(&mut TwoChoices::new(2), &candidates[..2], 100, 4);
        assert_eq!(counts, [100, 0]);
        let counts = shares(&mut TwoChoices::new(3), &candidates, 30_000, 4);
        // The least loaded wins in the two of three pairs that it is in.
        assert_shares(&counts, &[1, 0, 2], 0.05, 4);
    }

    /// Mitzenmacher's result: a hundred balls for each of a hundred bins, none far above a hundred.
    #[test]
    fn the_fullest_node_is_hardly_above_the_mean() {
        for seed in 0..5 {
            let mut candidates = weighted(&[1; 100]);
            let mut random = seeded(seed);
            let mut policy = TwoChoices::new(100);
            for _ in 0..10_000 {
                let node = pick(&mut policy, &candidates, &Ask::default(), &mut random).unwrap();
                candidates[node].in_flight += 1;
            }
            let fullest = candidates.iter().map(|node| node.in_flight).max().unwrap();
            assert!(fullest <= 105, "seed {seed}: {fullest}");
        }
    }
}
