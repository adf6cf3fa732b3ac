//! Finding the least loaded candidate.

use std::cmp::Ordering;

use crate::Candidate;
use crate::draw::below;

/// A load in relation to the weight that carries it, compared exactly.
///
/// The load is counted with the request that is about to be given. In a pool of weights 1 and 1000 the small
/// node then gets its first request when the big one has a thousand, and not whenever it is idle. The price: a
/// pool where requests come one at a time leaves them all to its heaviest nodes.
#[derive(Clone, Copy, Debug)]
pub struct PerWeight {
    /// At most 2^32, so that its product with a weight fits.
    load: u64,
    /// Not 0.
    weight: u32,
}

impl PerWeight {
    /// `count` is what a usable candidate has already.
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

/// The candidate with the least `load`, one of them at random if there are several. Those without a load are
/// out of the question.
///
/// The first of several would do the work of an idle pool alone. In turn would need a memory, and switches that
/// start together would remember the same.
pub fn least<L: PartialOrd>(
    candidates: &[Candidate],
    load: impl Fn(&Candidate) -> Option<L>,
    random: &mut dyn FnMut() -> u64,
) -> Option<usize> {
    let mut best: Option<(usize, L)> = None;
    let mut equals = 0;
    for (index, candidate) in candidates.iter().enumerate() {
        let Some(load) = load(candidate) else { continue };
        match &best {
            Some((_, least)) if load > *least => {}
            Some((_, least)) if load == *least => equals += 1,
            _ => {
                best = Some((index, load));
                equals = 1;
            }
        }
    }
    let (first, least) = best?;
    if equals == 1 {
        return Some(first);
    }
    // A second walk costs less than a random number for each equal on the first.
    let equal = |(_, candidate): &(usize, &Candidate)| load(candidate).is_some_and(|load| load == least);
    let mut those = candidates.iter().enumerate().skip(first).filter(equal);
    those.nth(below(equals, random) as usize).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{IDLE, assert_shares, seeded};

    #[test]
    fn equals_share_evenly_and_others_get_nothing() {
        let candidates = [3, 1, 2, 1, 1].map(|flows| Candidate { flows, ..IDLE });
        let seed = 2;
        let mut random = seeded(seed);
        let mut counts = [0; 5];
        for _ in 0..30_000 {
            counts[least(&candidates, |c| Some(c.flows), &mut random).unwrap()] += 1;
        }
        assert_shares(&counts, &[0, 1, 0, 1, 1], 0.05, seed);
    }

    proptest! {
        #[test]
        fn loads_compare_as_fractions_do(a: u32, b: u32, v in 1u32.., w in 1u32..) {
            let exact = ((u128::from(a) + 1) * u128::from(w)).cmp(&((u128::from(b) + 1) * u128::from(v)));
            prop_assert_eq!(PerWeight::with_one_more(a, v).cmp(&PerWeight::with_one_more(b, w)), exact);
        }
    }
}
