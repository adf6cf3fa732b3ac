//! One node until its accept queue is full, then the next.
//!
//! After Verma, Lokhande & Khare, "Eliminating TCP Connection Failure in a Web Server Cluster", whose steps for
//! two servers are: give connections to server 1 until its queue is at its capacity; then to server 2, while
//! server 1 is busy with those it has; repeat. We read that as a place that moves on when the queue there is full
//! and does not come back before it has been around the pool. The other reading, always the first node of the
//! pool that has room, would keep the first queue at its brim for as long as there is load: each connection that
//! is accepted there makes room for one, which would then wait behind all the others.
//!
//! The paper's aim is that no connection fails, and it reaches it: a node that is known to have no room is never
//! chosen, and if none has room the request waits in the switch. It does not balance. As long as one node
//! accepts as fast as connections come, it gets all of them.

use crate::{Ask, Candidate, Policy};

/// Fills the accept queues one after the other, in the pool's order. A node whose limit is unknown counts as having
/// room: the node refuses if it has none, and a refusal moves the place on.
///
/// Weights other than 0 are ignored: the limit of its queue decides how much a node gets.
#[derive(Clone, Debug, Default)]
pub struct Fill {
    /// The node that was chosen last, or whose choice was given back last.
    place: usize,
}

impl Policy for Fill {
    fn pick(
        &mut self,
        candidates: &[Candidate],
        _ask: &Ask,
        _random: &mut dyn FnMut() -> u64,
    ) -> Option<usize> {
        let takes = |index: &usize| candidates[*index].is_usable() && !candidates[*index].queue.is_full();
        self.place = (self.place..candidates.len()).chain(0..self.place).find(takes)?;
        Some(self.place)
    }

    // Choices that are not used have not filled the queues that they left behind. Queues that were full before them stay
    // left: the place returns to where the first of them was made, not to where it was before.
    fn give_back(&mut self, index: usize) {
        self.place = index;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Queue;
    use crate::testing::IDLE;

    fn pool<const N: usize>(limits: [u32; N]) -> [Candidate; N] {
        limits.map(|limit| Candidate { queue: Queue { len: 0, limit }, ..IDLE })
    }

    fn pick(policy: &mut Fill, candidates: &[Candidate]) -> Option<usize> {
        policy.pick(candidates, &Ask::default(), &mut || unreachable!("fill draws no random number"))
    }

    /// Gives `count` requests, which stay in the queues, and returns the chosen nodes.
    fn give(policy: &mut Fill, candidates: &mut [Candidate], count: usize) -> Vec<usize> {
        let one = |_| {
            let node = pick(policy, candidates)?;
            candidates[node].queue.len += 1;
            Some(node)
        };
        (0..count).map_while(one).collect()
    }

    #[test]
    fn each_is_filled_to_its_limit_before_the_next() {
        let mut candidates = pool([3, 1, 2]);
        let mut policy = Fill::default();
        assert_eq!(give(&mut policy, &mut candidates, 100), [0, 0, 0, 1, 2, 2]);
        assert_eq!(pick(&mut policy, &candidates), None);
        candidates[1].queue.len = 0;
        assert_eq!(pick(&mut policy, &candidates), Some(1));
    }

    #[test]
    fn it_does_not_run_back_for_one_free_place() {
        let mut candidates = pool([4, 4]);
        let mut policy = Fill::default();
        assert_eq!(give(&mut policy, &mut candidates, 5), [0, 0, 0, 0, 1]);
        candidates[0].queue.len -= 1;
        assert_eq!(give(&mut policy, &mut candidates, 4), [1, 1, 1, 0]);
    }

    #[test]
    fn a_node_without_a_known_limit_keeps_its_place_until_it_cannot_take_a_request() {
        let mut candidates = pool([0, 4]);
        let mut policy = Fill::default();
        assert_eq!(give(&mut policy, &mut candidates, 5), [0; 5]);
        candidates[0].available = false;
        assert_eq!(pick(&mut policy, &candidates), Some(1));
        candidates[0].available = true;
        assert_eq!(pick(&mut policy, &candidates), Some(1));
    }

    #[test]
    fn none_to_choose_from() {
        assert_eq!(pick(&mut Fill::default(), &[]), None);
        let weightless = Candidate { weight: 0, ..IDLE };
        assert_eq!(pick(&mut Fill::default(), &[weightless]), None);
    }
}
