//! Summaries of all candidates of a pool, without a look at each of them.
//!
//! Between two choices little changes: a request more here, one less there. So what a choice needs of all
//! candidates, the sum of their weights or the least of their loads, is kept in a binary tree, with a leaf
//! for each candidate and the summary of both halves at each fork. A change and a search take the logarithm
//! of their number, and a choice among a thousand hardly longer than one among ten.

/// Summary of consecutive candidates. The default is that of no candidates.
pub trait Summary: Copy + Default + PartialEq {
    /// The summary of both, which are neighbours.
    fn of(left: Self, right: Self) -> Self;
}

/// The summary of all candidates, and of each half of them, and so on.
#[derive(Clone, Debug)]
pub struct Tree<S> {
    /// The root is at 1, the halves of `i` at `2 * i` and `2 * i + 1`.
    nodes: Vec<S>,
    /// Index of the first leaf: a power of two, and not less than the number of candidates.
    leaves: usize,
}

impl<S: Summary> Tree<S> {
    /// A tree of `count` candidates with default summaries.
    pub fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Tree { nodes: vec![S::default(); 2 * leaves], leaves }
    }

    /// Replaces the summary of one candidate.
    pub fn set(&mut self, index: usize, leaf: S) {
        let mut at = self.leaves + index;
        self.nodes[at] = leaf;
        while at > 1 {
            at /= 2;
            let both = S::of(self.nodes[2 * at], self.nodes[2 * at + 1]);
            if both == self.nodes[at] {
                return;
            }
            self.nodes[at] = both;
        }
    }

    /// The summary of one candidate.
    pub fn leaf(&self, index: usize) -> S {
        self.nodes[self.leaves + index]
    }

    /// The summary of all candidates.
    pub fn all(&self) -> S {
        self.nodes[1]
    }

    /// Goes down to a candidate; at each fork `is_left` gets the summary of the left half, and returns
    /// whether to go there.
    pub fn find(&self, mut is_left: impl FnMut(S) -> bool) -> usize {
        let mut at = 1;
        while at < self.leaves {
            at *= 2;
            if !is_left(self.nodes[at]) {
                at += 1;
            }
        }
        at - self.leaves
    }
}
