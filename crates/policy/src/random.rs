//! A node drawn at random, by weight.
//!
//! The policy needs nothing but the weights and has no state, so any number of switches can do it side by
//! side. What it costs: with n requests on n equal nodes the fullest has about ln n / ln ln n of them, where
//! [two choices](crate::TwoChoices) leave it ln ln n.

use crate::draw::Lots;
use crate::{Ask, Candidate, Policy};

/// Each node with a probability proportional to its weight. Choices are independent, so giving one back undoes nothing.
#[derive(Clone, Debug)]
pub struct Random {
    lots: Lots,
}

impl Random {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Random { lots: Lots::new(nodes) }
    }
}

impl Policy for Random {
    fn changed(&mut self, index: usize, candidate: &Candidate) {
        self.lots.changed(index, candidate);
    }

    fn pick(
        &mut self,
        _candidates: &[Candidate],
        _ask: &Ask,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        self.lots.draw(random, &mut [0; 1]).first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_shares, shares, weighted};

    #[test]
    fn shares_are_as_the_weights_say() {
        let weights = [1, 3, 0, 6];
        for seed in 0..5 {
            let counts = shares(&mut Random::new(4), &weighted(&weights), 50_000, seed);
            assert_shares(&counts, &weights, 0.1, seed);
        }
    }
}
