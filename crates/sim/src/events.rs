//! The queue of future events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds since the start of a run.
pub type Time = u64;

/// One second.
pub const SECOND: f64 = 1e9;

/// The time after `nanos`, rounded up, so that no work takes zero time.
pub(crate) fn after(now: Time, nanos: f64) -> Time {
    // The conversion saturates beyond 580 years, which stands for never.
    now.saturating_add(nanos.ceil() as Time)
}

/// Future events. Events of one time keep the order in which they were added, so every run is the same.
#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    number: u64,
    event: E,
}

impl<E> Events<E> {
    pub(crate) fn new() -> Self {
        Events { heap: BinaryHeap::new(), added: 0 }
    }

    pub(crate) fn add(&mut self, at: Time, event: E) {
        self.heap.push(Entry { at, number: self.added, event });
        self.added += 1;
    }

    /// Takes the next event.
    pub(crate) fn next(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

/// The earliest event is the greatest, as [`BinaryHeap`] requires.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_first_and_then_in_the_order_of_adding() {
        let mut events = Events::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            events.add(at, event);
        }
        let order = std::iter::from_fn(|| events.next()).collect::<Vec<_>>();
        assert_eq!(order, [(1, 'a'), (3, 'b'), (5, 'c'), (5, 'd')]);
    }
}
