//! Drawing candidates by weight.
//!
//! The weights change often (nodes go and come, slow start raises them), so a table that is prepared once,
//! such as Walker's aliases, would be prepared for few draws. Instead the weights are laid end to end on a
//! line, and a point on the line is looked up by bisection, in a tree of their sums.

use crate::Candidate;
use crate::tree::{Summary, Tree};

/// A number below `bound`, which must not be 0. Uniform up to `bound` in 2^64.
pub fn below(bound: u64, random: &mut dyn FnMut() -> u64) -> u64 {
    // The high half of a product of two 64-bit numbers is below either of them.
    ((u128::from(random()) * u128::from(bound)) >> 64) as u64
}

/// The usable weights of candidates, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum(u64);

impl Summary for Sum {
    fn of(left: Self, right: Self) -> Self {
        Sum(left.0 + right.0)
    }
}

/// Draws candidates.
#[derive(Clone, Debug)]
pub struct Lots {
    weights: Tree<Sum>,
}

impl Lots {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Lots { weights: Tree::new(nodes) }
    }

    /// Replaces the candidate at `index`.
    pub fn changed(&mut self, index: usize, candidate: &Candidate) {
        let weight = if candidate.is_usable() { candidate.weight.into() } else { 0 };
        self.weights.set(index, Sum(weight));
    }

    /// Draws up to `N` different usable candidates, one after the other, each with a probability that is
    /// proportional to its weight among those not drawn yet. Returns their indices, which are fewer than `N`
    /// if fewer are usable, in the order of the draws.
    pub fn draw<'a, const N: usize>(
        &self,
        random: &mut dyn FnMut() -> u64,
        drawn: &'a mut [usize; N],
    ) -> &'a [usize] {
        let Sum(mut total) = self.weights.all();
        // The pieces already drawn, as (begin, length). The line is as if they were cut out of it.
        let mut cut = [(0, 0); N];
        for turn in 0..N {
            if total == 0 {
                return &drawn[..turn];
            }
            let mut point = below(total, random);
            for &(begin, len) in &cut[..turn] {
                point += if point >= begin { len } else { 0 };
            }
            let mut begin = 0;
            let index = self.weights.find(|Sum(left)| {
                let is_left = point < begin + left;
                begin += if is_left { 0 } else { left };
                is_left
            });
            let Sum(len) = self.weights.leaf(index);
            drawn[turn] = index;
            cut[turn] = (begin, len);
            cut[..=turn].sort_unstable();
            total -= len;
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{IDLE, assert_shares, seeded, weighted};

    fn lots(candidates: &[Candidate]) -> Lots {
        let mut lots = Lots::new(candidates.len());
        candidates.iter().enumerate().for_each(|(index, candidate)| lots.changed(index, candidate));
        lots
    }

    #[test]
    fn below_reaches_both_ends() {
        assert_eq!(below(10, &mut || 0), 0);
        assert_eq!(below(10, &mut || u64::MAX), 9);
        assert_eq!(below(1, &mut || u64::MAX), 0);
    }

    #[test]
    fn the_second_draw_is_by_weight_among_the_others() {
        let (seed, candidates) = (1, weighted(&[1, 2, 4]));
        let mut random = seeded(seed);
        let mut seconds = [0; 3];
        let lots = lots(&candidates);
        while seconds[1] + seconds[2] < 30_000 {
            if let [0, second] = lots.draw(&mut random, &mut [0; 2]) {
                seconds[*second] += 1;
            }
        }
        assert_shares(&seconds[1..], &[2, 4], 0.05, seed);
    }

    proptest! {
        #[test]
        fn draws_differ_and_are_as_many_as_possible(
            pool in prop::collection::vec((any::<u32>(), any::<bool>()), 0..8),
            seed: u64,
        ) {
            let candidates: Vec<_> =
                pool.iter().map(|&(weight, available)| Candidate { weight, available, ..IDLE }).collect();
            let usable = candidates.iter().filter(|candidate| candidate.is_usable()).count();
            let mut drawn = [0; 3];
            let drawn = lots(&candidates).draw(&mut seeded(seed), &mut drawn);
            prop_assert_eq!(drawn.len(), usable.min(3));
            for (turn, &index) in drawn.iter().enumerate() {
                prop_assert!(candidates[index].is_usable());
                prop_assert!(!drawn[..turn].contains(&index));
            }
        }
    }
}
