//! The same node for the same key, and as few other nodes as possible when the pool changes.
//!
//! Weighted rendezvous hashing (Thaler & Ravishankar, IEEE/ACM ToN 6(1), 1998; weights by the logarithmic
//! method of Schindelhauer & Schomaker, SPAA 2005): key and node are hashed together to an exponentially
//! distributed number, which is divided by the node's weight, and the node with the least has the key. Of
//! independent exponential variables with rates w1..wn the i-th is the least with probability wi / (w1 + .. +
//! wn), which is exactly what weights ask for.
//!
//! The alternative is a lookup table such as Maglev's (Eisenbud et al., NSDI 2016), which costs one memory
//! access, 128 KiB for each pool, and a rebuild at each change. We hash instead, because
//!
//! - a node that goes moves its own keys and no other, and gets back exactly those. Maglev moves a few more,
//!   and needs a second rule for nodes that are in the table but cannot take the request now;
//! - a weight can change at every request. While a node comes up under slow start its keys come back one by
//!   one and no other key moves;
//! - nothing is remembered: any two switches that have the same names and weights agree.
//!
//! Keys are hashed again here with a fixed function that is the same in every release. It spreads, it does
//! not hide: a key that clients choose (a header) has to come hashed with a secret, or they can aim at one
//! node.

use crate::draw::Lots;
use crate::{Ask, Candidate, Policy};

/// Weighted rendezvous hashing by name. A request without a key goes to a node drawn by weight. A key's
/// node is not chosen ahead, and a choice changes nothing here.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// Hash of each node's name.
    seeds: Vec<u64>,
    /// Weight of each node; 0 if it cannot be chosen.
    weights: Vec<f64>,
    lots: Lots,
}

impl Rendezvous {
    /// A pool whose nodes have these names, in this order. Only names are hashed: neither a node's place nor
    /// its address matters.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let seeds: Vec<_> = names.map(|name| mix(fnv1a(name.as_bytes()))).collect();
        let (weights, lots) = (vec![0.0; seeds.len()], Lots::new(seeds.len()));
        Rendezvous { seeds, weights, lots }
    }

    fn node_of(&self, key: u64) -> Option<usize> {
        let mut best = None;
        let mut least = f64::INFINITY;
        for (index, (&weight, seed)) in self.weights.iter().zip(&self.seeds).enumerate() {
            // 53 bits, as many as an f64 holds, and between the steps so that neither 0 nor 1 comes out.
            let uniform = ((mix(key ^ seed) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            // -ln(1 - x) is the exponential variable and never below x, so that the logarithm is needed only
            // for the few nodes that can still win: about ln n of n. One without a weight cannot: nothing is
            // less than 0, nor than an infinity times 0, which is no number.
            if uniform < least * weight {
                let score = -(-uniform).ln_1p() / weight;
                if score < least {
                    least = score;
                    best = Some(index);
                }
            }
        }
        best
    }
}

impl Policy for Rendezvous {
    fn changed(&mut self, index: usize, candidate: &Candidate) {
        self.lots.changed(index, candidate);
        self.weights[index] = if candidate.is_usable() { candidate.weight.into() } else { 0.0 };
    }

    fn pick(
        &mut self,
        candidates: &[Candidate],
        ask: &Ask,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        debug_assert_eq!(candidates.len(), self.seeds.len(), "one candidate for each node of the pool");
        match ask.key {
            Some(key) => self.node_of(key),
            None => self.lots.draw(random, &mut [0; 1]).first().copied(),
        }
    }
}

/// 64-bit FNV-1a, by Fowler, Noll and Vo.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Spreads each bit of the input over all bits of the output: the finalizer of splitmix64 (Steele et al.,
/// OOPSLA 2014), a bijection.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{IDLE, assert_shares, pick, seeded, shares, weighted};

    const NAMES: [&str; 10] = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10"];

    fn node(names: &[&str], candidates: &[Candidate], key: u64) -> usize {
        let mut no_lot = || unreachable!("a key leaves nothing to chance");
        let ask = Ask { key: Some(key), ..Ask::default() };
        pick(&mut Rendezvous::new(names.iter().copied()), candidates, &ask, &mut no_lot).unwrap()
    }

    fn counts(candidates: &[Candidate], keys: impl Iterator<Item = u64>) -> Vec<u32> {
        let mut counts = vec![0; candidates.len()];
        keys.for_each(|key| counts[node(&NAMES[..candidates.len()], candidates, key)] += 1);
        counts
    }

    #[test]
    fn keys_are_spread_evenly_and_by_weight() {
        let (seed, equal, unequal) = (5, weighted(&[1; 10]), weighted(&[1, 2, 5]));
        let mut random = seeded(seed);
        let keys: Vec<_> = (0..100_000).map(|_| random()).collect();
        assert_shares(&counts(&equal, keys.iter().copied()), &[1; 10], 0.05, seed);
        assert_shares(&counts(&unequal, keys.iter().copied()), &[1, 2, 5], 0.05, seed);
        // Keys that are no hashes: consecutive numbers.
        assert_shares(&counts(&equal, 0..100_000), &[1; 10], 0.05, 0);
    }

    #[test]
    fn without_a_key_by_lot() {
        let weights = [1, 3];
        let counts = shares(&mut Rendezvous::new(["a", "b"].into_iter()), &weighted(&weights), 50_000, 6);
        assert_shares(&counts, &weights, 0.05, 6);
    }

    /// Switches of different releases have to agree, so these are not to change.
    #[test]
    fn the_choice_is_the_same_for_ever() {
        let candidates = weighted(&[1; 10]);
        let nodes: Vec<_> = (0..8).map(|key| node(&NAMES, &candidates, key)).collect();
        assert_eq!(nodes, [4, 6, 6, 6, 2, 3, 1, 7]);
    }

    proptest! {
        #[test]
        fn only_keys_of_the_node_that_goes_move_and_they_come_back(
            weights in prop::collection::vec(1u32..1000, 10),
            gone in 0..10usize,
            keys in prop::collection::vec(any::<u64>(), 50),
        ) {
            let all = weighted(&weights);
            let mut rest = all.clone();
            rest[gone].available = false;
            for key in keys {
                let (before, meanwhile) = (node(&NAMES, &all, key), node(&NAMES, &rest, key));
                prop_assert_ne!(meanwhile, gone);
                prop_assert!(before == gone || before == meanwhile);
                prop_assert_eq!(node(&NAMES, &all, key), before);
            }
        }

        #[test]
        fn a_node_taken_out_of_the_pool_is_as_one_that_is_away(
            gone in 0..10usize,
            keys in prop::collection::vec(any::<u64>(), 50),
        ) {
            let mut candidates = weighted(&[1; 10]);
            candidates[gone].available = false;
            let mut names = NAMES.to_vec();
            names.remove(gone);
            for key in keys {
                let away = NAMES[node(&NAMES, &candidates, key)];
                prop_assert_eq!(names[node(&names, &weighted(&[1; 9]), key)], away);
            }
        }

        /// Slow start: as a weight grows, keys come to this node and none moves between others.
        #[test]
        fn a_growing_weight_only_attracts(
            low in 1u32..100,
            more in 1u32..100,
            keys in prop::collection::vec(any::<u64>(), 50),
        ) {
            let with = |weight| {
                let mut candidates = weighted(&[100; 10]);
                candidates[3] = Candidate { weight, ..IDLE };
                candidates
            };
            for key in keys {
                let (before, after) = (node(&NAMES, &with(low), key), node(&NAMES, &with(low + more), key));
                prop_assert!(after == 3 || after == before);
            }
        }

        /// The shortcut that saves logarithms changes no choice.
        #[test]
        fn it_is_the_least_of_all_scores(weights in prop::collection::vec(1u32.., 10), key: u64) {
            let hash = Rendezvous::new(NAMES.into_iter());
            let score = |index: usize| {
                let uniform = ((mix(key ^ hash.seeds[index]) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
                -(-uniform).ln_1p() / f64::from(weights[index])
            };
            let picked = node(&NAMES, &weighted(&weights), key);
            for other in 0..10 {
                prop_assert!(score(picked) <= score(other));
            }
        }
    }
}
