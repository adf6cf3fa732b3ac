//! To the node whose accept queue has the most room.
//!
//! After the same observation as [`Fill`](crate::Fill), that connections fail where a queue overflows, but
//! spread over the pool: all queues stay equally short instead of one being filled after the other.
//!
//! Room is measured as a share of the queue's limit and not as a number of places. Limits depend more on a server's
//! configuration than on its speed, and an idle pool has only empty queues: by places, a node with a limit of 4,096
//! would get every connection before one with a limit of 511 got its first. Among equal shares requests in flight
//! decide.

use crate::least::{Least, PerWeight};
use crate::{Ask, Candidate, Policy};

/// The assumed limit of a queue while it is unknown: `net.core.somaxconn` before Linux 5.4, the smallest common one.
const ASSUMED_LIMIT: u32 = 128;

/// The least of (queue's length / its limit) / weight; among equals the least of (requests in flight + 1) /
/// weight; among those at random. A node whose queue is full is never chosen.
///
/// While a node's limit is not known its queue is not either. It is taken to hold everything that is in
/// flight there, of 128 places, and never to be full: a node that has just come gets requests at once, but
/// not a burst until its first report.
///
/// A choice changes nothing here, so giving it back undoes nothing: the caller counts the queue.
#[derive(Clone, Debug)]
pub struct AcceptQueue {
    loads: Least<(f64, PerWeight)>,
}

impl AcceptQueue {
    /// A pool of `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        AcceptQueue { loads: Least::new(nodes) }
    }
}

impl Policy for AcceptQueue {
    fn changed(&mut self, index: usize, node: &Candidate) {
        let takes = node.is_usable() && !node.queue.is_full();
        let load = takes.then(|| (fullness(node), PerWeight::with_one_more(node.in_flight, node.weight)));
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

/// Fill level of its queue in relation to its weight. Never NaN for a usable node.
fn fullness(node: &Candidate) -> f64 {
    let (len, limit) = match node.queue.room() {
        Some(_) => (node.queue.len, node.queue.limit),
        None => (node.in_flight, ASSUMED_LIMIT),
    };
    f64::from(len) / (f64::from(limit) * f64::from(node.weight))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Queue;
    use crate::testing::{IDLE, assert_shares, pick, seeded, shares};

    fn queue(len: u32, limit: u32) -> Candidate {
        Candidate { queue: Queue { len, limit }, ..IDLE }
    }

    fn only(candidates: &[Candidate]) -> Option<usize> {
        let mut policy = AcceptQueue::new(candidates.len());
        pick(&mut policy, candidates, &Ask::default(), &mut || panic!("there is a least one"))
    }

    #[test]
    fn the_emptiest_in_relation_to_its_limit() {
        assert_eq!(only(&[queue(3, 16), queue(2, 16), queue(4, 16)]), Some(1));
        assert_eq!(only(&[queue(3, 16), queue(2, 8), queue(4, 16)]), Some(0));
        let heavy = Candidate { weight: 2, ..queue(5, 16) };
        assert_eq!(only(&[queue(3, 16), heavy]), Some(1));
    }

    #[test]
    fn full_ones_are_left_alone() {
        let (heavy, light) = (Candidate { weight: 9, ..queue(16, 16) }, queue(15, 16));
        assert_eq!(only(&[heavy, light]), Some(1));
        assert_eq!(only(&[heavy, queue(9, 8)]), None);
    }

    #[test]
    fn of_empty_queues_the_limit_does_not_matter_but_what_is_in_flight_does() {
        let counts = shares(&mut AcceptQueue::new(2), &[queue(0, 4096), queue(0, 511)], 20_000, 7);
        assert_shares(&counts, &[1, 1], 0.05, 7);
        let busy = Candidate { in_flight: 1, ..queue(0, 4096) };
        assert_eq!(only(&[busy, queue(0, 511)]), Some(1));
    }

    #[test]
    fn an_unknown_limit_is_tried_but_not_stormed() {
        let unknown = Candidate { in_flight: 0, ..queue(0, 0) };
        assert_eq!(only(&[queue(1, 16), unknown]), Some(1));
        let loaded = Candidate { in_flight: 9, ..unknown };
        assert_eq!(only(&[queue(1, 16), loaded]), Some(0));
        let overloaded = Candidate { in_flight: 1000, ..unknown };
        assert_eq!(only(&[queue(16, 16), overloaded]), Some(1));
    }

    proptest! {
        #[test]
        fn none_with_more_room_is_passed_over(
            pool in prop::collection::vec((0u32..20, 1u32..20, 0u32..5), 1..8),
            seed: u64,
        ) {
            let candidates: Vec<_> =
                pool.iter().map(|&(len, limit, weight)| Candidate { weight, ..queue(len, limit) }).collect();
            let takes = |node: &&Candidate| node.is_usable() && !node.queue.is_full();
            let mut policy = AcceptQueue::new(candidates.len());
            match pick(&mut policy, &candidates, &Ask::default(), &mut seeded(seed)) {
                None => prop_assert_eq!(candidates.iter().find(takes), None),
                Some(picked) => for other in candidates.iter().filter(takes) {
                    let picked = &candidates[picked];
                    let product =
                        |a: &Candidate, b: &Candidate| a.queue.len * b.queue.limit * b.weight;
                    prop_assert!(product(picked, other) <= product(other, picked));
                }
            }
        }
    }
}
