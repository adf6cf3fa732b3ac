//! Clocks of nodes, which give handoff packets their time. The programs do the same in `bpf/packet.h`.

use std::time::Duration;

use crate::generated::{SB_CLOCK_SHIFT, SB_EPOCH_SHIFT};

/// A node's clock, as its lead over the clock of the machine that reads it. All arithmetic wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeClock(u64);

/// Most steps by which two readings of one clock may differ because of the delay between them: a quarter of a second.
const JITTER: u64 = 250_000_000 >> SB_CLOCK_SHIFT;

impl NodeClock {
    /// The clock with this lead, in the form that maps hold.
    pub fn from_ahead(ahead: u64) -> Self {
        NodeClock(ahead)
    }

    /// The lead, in the form that maps hold.
    pub fn ahead(self) -> u64 {
        self.0
    }

    /// The clock that reads `told` when the local clock reads `now`.
    pub fn told(told: u64, now: Duration) -> Self {
        NodeClock(told.wrapping_sub(steps(now)))
    }

    /// The reading of the clock at local time `now`.
    pub fn time(self, now: Duration) -> u64 {
        self.0.wrapping_add(steps(now))
    }

    /// The epoch of the clock at local time `now`.
    pub fn epoch(self, now: Duration) -> u64 {
        self.time(now) >> SB_EPOCH_SHIFT
    }

    /// The same clock relative to a local clock that read `then` when the present one started.
    pub fn beside(self, then: Duration) -> Self {
        NodeClock(self.0.wrapping_sub(steps(then)))
    }

    /// The inverse of [`Self::beside`].
    pub fn since(self, then: Duration) -> Self {
        NodeClock(self.0.wrapping_add(steps(then)))
    }

    /// Whether the two can be readings of one clock.
    pub fn agrees_with(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).min(other.0.wrapping_sub(self.0)) <= JITTER
    }
}

fn steps(time: Duration) -> u64 {
    (time.as_nanos() >> SB_CLOCK_SHIFT) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_told_goes_on() {
        let (then, later) = (Duration::from_secs(1000), Duration::from_secs(5000));
        for told in [0, 7, u64::MAX - 3, 1 << 63] {
            let clock = NodeClock::told(told, then);
            assert_eq!(clock.time(then), told);
            assert_eq!(clock.time(later).wrapping_sub(told), steps(later) - steps(then));
        }
    }

    #[test]
    fn an_epoch_has_some_four_seconds() {
        let clock = NodeClock::from_ahead(0);
        let step = Duration::from_nanos(1 << (SB_CLOCK_SHIFT + SB_EPOCH_SHIFT));
        assert!(step > Duration::from_secs(4) && step < Duration::from_secs(5));
        assert_eq!([clock.epoch(step * 3), clock.epoch(step * 4 - Duration::from_millis(2))], [3, 3]);
        assert_eq!(clock.epoch(step * 4), 4);
    }

    #[test]
    fn the_other_clock_may_have_begun_at_another_time() {
        let (start, now) = (Duration::from_secs(77_777), Duration::from_millis(1234));
        let clock = NodeClock::told(1 << 40, now);
        let of_machine = clock.beside(start);
        assert!(of_machine.time(start + now).abs_diff(1 << 40) <= 1);
        assert_eq!(of_machine.since(start), clock);
    }

    #[test]
    fn readings_agree_as_long_as_they_are_of_one_clock() {
        let clock = NodeClock::from_ahead(u64::MAX);
        assert!(clock.agrees_with(NodeClock::from_ahead(JITTER - 1)));
        assert!(NodeClock::from_ahead(JITTER - 1).agrees_with(clock));
        assert!(!clock.agrees_with(NodeClock::from_ahead(JITTER)));
    }
}
