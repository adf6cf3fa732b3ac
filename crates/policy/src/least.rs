//! The choice of the least loaded candidate.

use std::cmp::Ordering;

use crate::draw::below;
use crate::tree::{Summary, Tree};

/// A load in relation to a weight, compared exactly.
///
/// The load is counted with the request that is about to be given. In a pool of weights 1 and 1000 the small
/// node then gets its first request when the big one has a thousand, and not whenever it is idle. The price:
/// a pool where requests come one at a time leaves them all to its heaviest nodes.
#[derive(Clone, Copy, Debug)]
pub struct PerWeight {
    /// At most 2^32, so that its product with a weight fits.
    load: u64,
    /// Never 0.
    weight: u32,
}

impl PerWeight {
    /// The load of a candidate with `count` and one more.
    pub fn with_one_more(count: u32, weight: u32) -> Self {
        PerWeight { load: u64::from(count) + 1, weight }
    }
}

impl Ord for PerWeight {
    fn cmp(&self, other: &Self) -> Ordering {
        // a / v < b / w, multiplied by both weights
        (self.load * u64::from(other.weight)).cmp(&(other.load * u64::from(self.weight)))
    }
}

impl PartialOrd for PerWeight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PerWeight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PerWeight {}

/// The candidates by their loads.
#[derive(Clone, Debug)]
pub struct Least<L> {
    loads: Tree<Lowest<L>>,
}

/// The least load of some candidates, and the number of candidates with it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lowest<L>(Option<(L, u64)>);

impl<L> Default for Lowest<L> {
    fn default() -> Self {
        Lowest(None)
    }
}

impl<L: Copy + PartialOrd> Summary for Lowest<L> {
    fn of(left: Self, right: Self) -> Self {
        let (Some((a, count_a)), Some((b, count_b))) = (left.0, right.0) else {
            return if left.0.is_some() { left } else { right };
        };
        match () {
            () if a < b => left,
            () if b < a => right,
            () => Lowest(Some((a, count_a + count_b))),
        }
    }
}

impl<L: Copy + PartialOrd> Least<L> {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Least { loads: Tree::new(nodes) }
    }

    /// Replaces the load of the candidate at `index`; one without a load is never picked.
    pub fn set(&mut self, index: usize, load: Option<L>) {
        self.loads.set(index, Lowest(load.map(|load| (load, 1))));
    }

    /// The candidate with the least load, one of them at random if there are several.
    ///
    /// The first of several would do the work of an idle pool alone. In turn would need a memory, and
    /// switches that start together would remember the same.
    pub fn pick(&self, random: &mut dyn FnMut() -> u64) -> Option<usize> {
        let (least, equals) = self.loads.all().0?;
        let mut before = if equals == 1 { 0 } else { below(equals, random) };
        Some(self.loads.find(|left| match left.0 {
            Some((load, count)) if load == least => {
                let is_left = before < count;
                before -= if is_left { 0 } else { count };
                is_left
            }
            _ => false,
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{assert_shares, seeded};

    #[test]
    fn equals_share_evenly_and_others_get_nothing() {
        let mut loads = Least::new(5);
        [3, 1, 2, 1, 1].into_iter().enumerate().for_each(|(index, load)| loads.set(index, Some(load)));
        let seed = 2;
        let mut random = seeded(seed);
        let mut counts = [0; 5];
        for _ in 0..30_000 {
            counts[loads.pick(&mut random).unwrap()] += 1;
        }
        assert_shares(&counts, &[0, 1, 0, 1, 1], 0.05, seed);
    }

    proptest! {
        /// As a scan of all candidates: among those with the least load, in their order, the one that the number
        /// selects.
        #[test]
        fn it_is_what_a_look_at_each_would_find(
            changes in prop::collection::vec((0usize..9, prop::option::of(0u32..4), any::<u64>()), 1..60),
        ) {
            let mut all = [None; 9];
            let mut loads = Least::new(9);
            for (index, load, number) in changes {
                all[index] = load;
                loads.set(index, load);
                let least = all.iter().flatten().min();
                let those: Vec<_> = (0..9).filter(|&index| least.is_some() && all[index].as_ref() == least).collect();
                let expected = least.map(|_| those[below(those.len() as u64, &mut || number) as usize]);
                prop_assert_eq!(loads.pick(&mut || number), expected);
            }
        }

        #[test]
        fn loads_compare_as_fractions_do(a: u32, b: u32, v in 1u32.., w in 1u32..) {
            let exact = ((u128::from(a) + 1) * u128::from(w)).cmp(&((u128::from(b) + 1) * u128::from(v)));
            prop_assert_eq!(PerWeight::with_one_more(a, v).cmp(&PerWeight::with_one_more(b, w)), exact);
        }
    }
}
