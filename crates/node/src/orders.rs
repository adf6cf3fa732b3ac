//! Orders of switches to this node, each of which is carried out once: a switch repeats its order until it hears of the
//! result, and a recorded HELLO can arrive once more as long as its tag holds.

use std::collections::VecDeque;

/// Orders remembered; more than operators give while a tag holds, which is for 13 seconds.
const REMEMBERED: usize = 64;

/// The numbers of the last orders.
#[derive(Debug, Default)]
pub(crate) struct Orders(VecDeque<u32>);

impl Orders {
    /// Whether the order has not been seen yet; it has from now on.
    pub(crate) fn is_new(&mut self, number: u32) -> bool {
        if self.0.contains(&number) {
            return false;
        }
        self.0.truncate(REMEMBERED - 1);
        self.0.push_front(number);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_counts_once() {
        let mut orders = Orders::default();
        assert!((1..=64).all(|number| orders.is_new(number)));
        assert!((1..=64).all(|number| !orders.is_new(number)));
    }
}
