//! To the node with the fewest connections in relation to its weight.
//!
//! For connections that live long and differ in length, such as WebSockets and uploads: what counts is how
//! many there are now, not how many were given. A node that comes back with none gets all new connections
//! until it has as many as the others; slow start is what softens that.

use crate::least::{Least, PerWeight};
use crate::{Ask, Candidate, Policy};

/// The least of (connections + 1) / weight, equals at random. A choice changes nothing here, so giving it back
/// undoes nothing: the caller counts connections.
#[derive(Clone, Debug)]
pub struct LeastConnections {
    loads: Least<PerWeight>,
}

impl LeastConnections {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        LeastConnections { loads: Least::new(nodes) }
    }
}

impl Policy for LeastConnections {
    fn changed(&mut self, index: usize, node: &Candidate) {
        let load = node.is_usable().then(|| PerWeight::with_one_more(node.flows, node.weight));
        self.loads.set(index, load);
    }

    fn pick(
        &mut self,
        _candidates: &[Candidate],
        _ask: &Ask,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        self.loads.pick(random)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{IDLE, assert_shares, pick, seeded, shares, weighted};

    #[test]
    fn an_idle_pool_is_shared() {
        let counts = shares(&mut LeastConnections::new(3), &weighted(&[1, 1, 1]), 30_000, 3);
        assert_shares(&counts, &[1, 1, 1], 0.05, 3);
    }

    proptest! {
        /// Connections that stay: after each whole cycle of the weights they are as the weights say.
        #[test]
        fn connections_that_stay_are_spread_by_weight(
            weights in prop::collection::vec(1u32..20, 1..8),
            seed: u64,
        ) {
            let mut candidates = weighted(&weights);
            let mut random = seeded(seed);
            let mut policy = LeastConnections::new(weights.len());
            for _ in 0..3 * weights.iter().sum::<u32>() {
                let node = pick(&mut policy, &candidates, &Ask::default(), &mut random).unwrap();
                candidates[node].flows += 1;
            }
            for (node, weight) in candidates.iter().zip(weights) {
                prop_assert_eq!(node.flows, 3 * weight);
            }
        }

        #[test]
        fn none_with_fewer_is_passed_over(
            pool in prop::collection::vec((any::<u32>(), 0u32..100, any::<bool>()), 1..8),
            seed: u64,
        ) {
            let candidates: Vec<_> = pool
                .iter()
                .map(|&(flows, weight, available)| Candidate { flows, weight, available, ..IDLE })
                .collect();
            let mut policy = LeastConnections::new(candidates.len());
            let Some(node) = pick(&mut policy, &candidates, &Ask::default(), &mut seeded(seed)) else {
                return Ok(());
            };
            let product = |a: &Candidate, b: &Candidate| (u64::from(a.flows) + 1) * u64::from(b.weight);
            for other in candidates.iter().filter(|other| other.is_usable()) {
                prop_assert!(product(&candidates[node], other) <= product(other, &candidates[node]));
            }
        }
    }
}
