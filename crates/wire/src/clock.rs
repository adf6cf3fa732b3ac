//! Clocks of nodes, by which handoff packets have a time. The programs do the same in `bpf/packet.h`.

use std::time::Duration;

use crate::generated::{SB_CLOCK_SHIFT, SB_EPOCH_SHIFT};

/// The clock of a node, as what it is ahead of another one: that of the machine that asks. All arithmetic wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeClock(u64);

/// Steps of a clock that two readings of one may differ by because of what lies between them: a quarter of a second.
const JITTER: u64 = 250_000_000 >> SB_CLOCK_SHIFT;

impl NodeClock {
    /// As it stands in maps.
    pub fn from_ahead(ahead: u64) -> Self {
        NodeClock(ahead)
    }

    /// Likewise.
    pub fn ahead(self) -> u64 {
        self.0
    }

    /// The clock that says `told` when the other one says `now`.
    pub fn told(told: u64, now: Duration) -> Self {
        NodeClock(told.wrapping_sub(steps(now)))
    }

    /// What it says.
    pub fn time(self, now: Duration) -> u64 {
        self.0.wrapping_add(steps(now))
    }

    /// The epoch that it is in.
    pub fn epoch(self, now: Duration) -> u64 {
        self.time(now) >> SB_EPOCH_SHIFT
    }

    /// The same clock beside one that said `then` when the present one began.
    pub fn beside(self, then: Duration) -> Self {
        NodeClock(self.0.wrapping_sub(steps(then)))
    }

    /// The opposite.
    pub fn since(self, then: Duration) -> Self {
        NodeClock(self.0.wrapping_add(steps(then)))
    }

    /// Both are what two readings of one clock can be.
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
