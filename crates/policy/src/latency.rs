//! To the node that answers soonest and is not busier than most.
//!
//! After Prequal (Wydrowski et al., "Load is Not What You Should Balance", NSDI 2024). Latency says how a
//! node has been doing, whatever the reason: an old machine, a neighbour that takes its CPU, a cold cache.
//! But it says so late. To follow it alone would send everything to the fastest node until its latency has
//! risen, then everything to the next. Requests in flight are known at once: they count up with each choice.
//! Prequal therefore splits nodes by requests in flight into hot and cold ones, and only among the cold goes
//! by latency.
//!
//! - Three nodes are drawn by weight. To compare all would let one node win every time.
//! - A node is hot if its (requests in flight + 1) / weight is above the 0.8 quantile of the pool's. Prequal
//!   estimates the quantile from probes; we know all of the pool and count how many are below each of the
//!   three (there are not many different loads, so how many nodes have each is kept). The quantile is taken
//!   at rank 0.8 (n - 1), rounded down, so that even of two nodes the busier one is hot.
//! - Of cold ones the lowest latency wins; if all are hot, the fewest requests in flight.
//!
//! Prequal probes; we learn a node's latency only from requests that it gets. So a node whose latency is not
//! known goes before those whose latency is, until it is hot. And one choice of 128 goes to the first of the
//! three drawn, whatever is known of it: otherwise a node that was slow once would never show that it has
//! recovered.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::draw::{Lots, below};
use crate::least::PerWeight;
use crate::{Ask, Candidate, Policy};

/// Reciprocal of the share of choices that ignore latency.
const EXPLORED: u64 = 128;

/// Hot and cold, then lowest latency, of three nodes drawn by weight.
///
/// A choice changes nothing here, so giving it back undoes nothing: whether a choice ignores latency is drawn anew for
/// each one, not counted.
#[derive(Clone, Debug)]
pub struct Latency {
    lots: Lots,
    /// Load of each node; None if it cannot be chosen.
    loads: Vec<Option<PerWeight>>,
    /// Number of nodes with each load.
    counts: BTreeMap<PerWeight, usize>,
    /// Number of nodes that can be chosen.
    usable: usize,
}

impl Latency {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Latency { lots: Lots::new(nodes), loads: vec![None; nodes], counts: BTreeMap::new(), usable: 0 }
    }

    /// Number of nodes with a lower load.
    fn lower(&self, load: PerWeight) -> usize {
        self.counts.range(..load).map(|(_, count)| count).sum()
    }
}

fn load(node: &Candidate) -> PerWeight {
    PerWeight::with_one_more(node.in_flight, node.weight)
}

impl Policy for Latency {
    fn changed(&mut self, index: usize, candidate: &Candidate) {
        self.lots.changed(index, candidate);
        let load = candidate.is_usable().then(|| load(candidate));
        let before = std::mem::replace(&mut self.loads[index], load);
        if load == before {
            return;
        }
        if let Some(load) = load {
            *self.counts.entry(load).or_default() += 1;
            self.usable += 1;
        }
        if let Some(Entry::Occupied(mut count)) = before.map(|before| self.counts.entry(before)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
            self.usable -= 1;
        }
    }

    fn pick(
        &mut self,
        candidates: &[Candidate],
        _ask: &Ask,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        let mut drawn = [0; 3];
        let drawn = self.lots.draw(random, &mut drawn);
        if below(EXPLORED, random) == 0 {
            return drawn.first().copied();
        }
        drawn.iter().copied().min_by_key(|&index| {
            let node = &candidates[index];
            let hot = self.lower(load(node)) > (self.usable - 1) * 4 / 5;
            // `None` is below any latency, so an unknown one comes first.
            (hot, if hot { None } else { node.latency }, load(node))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::*;
    use crate::testing::{self, IDLE, assert_shares, seeded, shares, weighted};

    const MS: Duration = Duration::from_millis(1);

    /// A request every 2 ms for a minute of virtual time; each node answers after its time in ms, however
    /// busy it is. Nodes of `unknown` never report a latency. Returns how many requests each node got.
    fn run(times: &[u32], unknown: &[usize], seed: u64) -> Vec<u32> {
        let mut candidates = weighted(&vec![1; times.len()]);
        for (index, (node, &time)) in candidates.iter_mut().zip(times).enumerate() {
            node.latency = (!unknown.contains(&index)).then_some(MS * time);
        }
        let mut ends = vec![VecDeque::new(); times.len()];
        let mut counts = vec![0; times.len()];
        let mut policy = Latency::new(times.len());
        let mut random = seeded(seed);
        for turn in 0..30_000 {
            let now = 2 * MS * turn;
            for (node, ends) in candidates.iter_mut().zip(&mut ends) {
                while ends.pop_front_if(|end| *end <= now).is_some() {
                    node.in_flight -= 1;
                }
            }
            let node = testing::pick(&mut policy, &candidates, &Ask { key: None, now }, &mut random).unwrap();
            candidates[node].in_flight += 1;
            ends[node].push_back(now + MS * times[node]);
            counts[node] += 1;
        }
        counts
    }

    #[test]
    fn a_node_ten_times_slower_gets_little_but_something() {
        for (seed, nodes) in [(0, 2), (1, 3), (2, 10), (3, 40)] {
            let mut times = vec![10; nodes];
            times[1] = 100;
            let counts = run(&times, &[], seed);
            let mean = 30_000 / nodes as u32;
            assert!((1..mean / 4).contains(&counts[1]), "seed {seed}: {counts:?}");
        }
    }

    #[test]
    fn an_unknown_node_is_tried_and_not_stormed() {
        for (seed, nodes) in [(4, 3), (5, 10), (6, 40)] {
            let mut times = vec![10; nodes];
            times[1] = 30;
            let counts = run(&times, &[1], seed);
            let mean = 30_000 / nodes as u32;
            assert!((mean / 2..mean * 4).contains(&counts[1]), "seed {seed}: {counts:?}");
        }
    }

    #[test]
    fn equals_share_by_weight() {
        let weights = [1, 3, 6];
        let candidates = weights.map(|weight| Candidate { weight, in_flight: 5 * weight - 1, ..IDLE });
        let counts = shares(&mut Latency::new(3), &candidates, 50_000, 8);
        assert_shares(&counts, &weights, 0.1, 8);
    }

    /// Every draw and no exploration: `random` yields its maximum, except for the first number.
    fn pick(candidates: &[Candidate]) -> Option<usize> {
        let mut first = Some(0);
        let mut random = || first.take().unwrap_or(u64::MAX);
        testing::pick(&mut Latency::new(candidates.len()), candidates, &Ask::default(), &mut random)
    }

    #[test]
    fn the_fastest_until_it_is_hot() {
        let node = |ms, in_flight| Candidate { latency: Some(MS * ms), in_flight, ..IDLE };
        assert_eq!(pick(&[node(9, 4), node(5, 4), node(7, 4)]), Some(1));
        assert_eq!(pick(&[node(9, 4), node(5, 5), node(7, 4)]), Some(2));
        assert_eq!(pick(&[node(9, 5), node(5, 5), node(7, 4)]), Some(1));
        assert_eq!(pick(&[node(9, 3), node(5, 5)]), Some(0));
        assert_eq!(pick(&[node(9, 3), Candidate { in_flight: 3, ..IDLE }]), Some(1));
    }

    #[test]
    fn of_hot_ones_the_least_busy() {
        // Weights make it certain that the three hot ones are drawn, and divide what is in flight there.
        let hot = |ms, load: u32| Candidate {
            latency: Some(MS * ms),
            weight: 1 << 20,
            in_flight: (load << 20) - 1,
            ..IDLE
        };
        let mut candidates = vec![IDLE; 17];
        candidates.extend([hot(3, 4), hot(2, 6), hot(1, 5)]);
        let counts = shares(&mut Latency::new(20), &candidates, 1000, 9);
        assert!(counts[17] > 950, "{counts:?}");
    }
}
