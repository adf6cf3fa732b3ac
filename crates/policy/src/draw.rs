//! Drawing candidates by weight.
//!
//! The weights change with every request (nodes go and come, slow start raises them), so a table that is
//! prepared once, such as Walker's aliases, would be prepared for one draw. Instead the weights are laid end to
//! end on a line, and a point on the line is looked up by bisection.

use crate::Candidate;

/// A number below `bound`, which must not be 0. Uniform up to `bound` in 2^64.
pub fn below(bound: u64, random: &mut dyn FnMut() -> u64) -> u64 {
    // The high half of a product of two 64-bit numbers is below either of them.
    ((u128::from(random()) * u128::from(bound)) >> 64) as u64
}

/// Draws candidates, and keeps the memory that this takes.
#[derive(Clone, Debug)]
pub struct Lots {
    /// For each candidate, where its piece of the line ends: the sum of the usable weights up to it.
    ends: Vec<u64>,
}

impl Lots {
    /// For a pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Lots { ends: Vec::with_capacity(nodes) }
    }

    /// Draws up to `N` different usable candidates, one after the other, each with a probability that is
    /// proportional to its weight among those not drawn yet. Returns their indices, which are fewer than `N` if
    /// fewer are usable, in the order of the draws.
    pub fn draw<'a, const N: usize>(
        &mut self,
        candidates: &[Candidate],
        random: &mut dyn FnMut() -> u64,
        drawn: &'a mut [usize; N],
    ) -> &'a [usize] {
        let mut total = 0;
        self.ends.clear();
        self.ends.extend(candidates.iter().map(|candidate| {
            total += if candidate.is_usable() { u64::from(candidate.weight) } else { 0 };
            total
        }));
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
            let index = self.ends.partition_point(|&end| end <= point);
            let len = u64::from(candidates[index].weight);
            drawn[turn] = index;
            cut[turn] = (self.ends[index] - len, len);
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
        let mut lots = Lots::new(3);
        while seconds[1] + seconds[2] < 30_000 {
            if let [0, second] = lots.draw(&candidates, &mut random, &mut [0; 2]) {
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
            let drawn = Lots::new(0).draw(&candidates, &mut seeded(seed), &mut drawn);
            prop_assert_eq!(drawn.len(), usable.min(3));
            for (turn, &index) in drawn.iter().enumerate() {
                prop_assert!(candidates[index].is_usable());
                prop_assert!(!drawn[..turn].contains(&index));
            }
        }
    }
}
