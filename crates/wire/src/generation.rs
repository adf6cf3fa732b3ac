//! Generations of adoptions (`docs/decisions/0038-generations.md`).

use crate::generated::{SB_GENERATION_ATTEMPT_BITS, SB_GENERATION_SWITCH_BITS};

const ATTEMPTS: u32 = 1 << SB_GENERATION_ATTEMPT_BITS;
const SWITCHES: u32 = 1 << SB_GENERATION_SWITCH_BITS;
const COUNTER_SHIFT: u32 = SB_GENERATION_ATTEMPT_BITS + SB_GENERATION_SWITCH_BITS;
/// Value of the counter behind the last one.
const COUNTERS: u32 = 1 << (u32::BITS - COUNTER_SHIFT);

/// Number of an adoption: a counter, the number of the switch that has chosen the adoption, and its attempt at another
/// node. The order wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation(u32);

impl Generation {
    /// No adoption.
    pub const NONE: Generation = Generation(0);

    /// The adoption by which the flow's first request begins, before its first attempt. `switch` is the number of the
    /// switch.
    pub const fn first(switch: u8) -> Self {
        Generation::new(1, switch)
    }

    const fn new(counter: u32, switch: u8) -> Self {
        let counter = if counter == 0 { 1 } else { counter };
        let switch = (switch as u32 % SWITCHES) << SB_GENERATION_ATTEMPT_BITS;
        Generation(counter << COUNTER_SHIFT | switch)
    }

    /// In network byte order.
    pub fn to_be(self) -> u32 {
        self.0.to_be()
    }

    /// From network byte order.
    pub fn from_be(number: u32) -> Self {
        Generation(u32::from_be(number))
    }

    /// From a map or a record.
    pub fn from_number(number: u32) -> Self {
        Generation(number)
    }

    /// For a map or a record.
    pub fn number(self) -> u32 {
        self.0
    }

    /// There is one.
    pub fn is_some(self) -> bool {
        self != Generation::NONE
    }

    /// Whether this adoption is the later one. Any is later than none.
    pub fn is_newer(self, than: Generation) -> bool {
        self.is_some() && (!than.is_some() || (self.0.wrapping_sub(than.0) as i32) > 0)
    }

    /// The later one.
    pub fn later(self, other: Generation) -> Generation {
        if other.is_newer(self) { other } else { self }
    }

    /// The adoption after this one, and after any first one, chosen by the switch with this number; before its first
    /// attempt.
    pub fn successor(self, switch: u8) -> Self {
        let counter = (self.0 >> COUNTER_SHIFT).max(1);
        Generation::new((counter + 1) % COUNTERS, switch)
    }

    /// The adoption after this one that its owner grants, by the same switch.
    pub fn following(self) -> Self {
        self.successor((self.0 / ATTEMPTS % SWITCHES) as u8)
    }

    /// The next attempt of the adoption, at another node; behind the last one, the first attempt of the adoption after it.
    pub fn next_attempt(self) -> Self {
        let is_last = self.0 % ATTEMPTS == ATTEMPTS - 1;
        Generation(if is_last { self.following().0 } else { self.0 } + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_adoption_is_newer_whichever_switch_has_chosen_it() {
        let mut last = Generation::first(63).next_attempt();
        assert!(last.is_newer(Generation::NONE) && !Generation::NONE.is_newer(last));
        for round in 0..2 * COUNTERS {
            let next = last.successor((round % 64) as u8);
            let attempt = next.next_attempt();
            assert!(next.is_some() && next.is_newer(last) && !last.is_newer(next), "{last:?} {next:?}");
            assert!(attempt.is_newer(next) && attempt.successor(0).is_newer(attempt));
            assert_eq!(last.later(next), next);
            last = attempt;
        }
    }

    #[test]
    fn two_switches_never_choose_the_same_one() {
        let last = Generation::first(0).next_attempt();
        let chosen = [0, 1].map(|switch| last.successor(switch));
        assert_ne!(chosen[0], chosen[1]);
        assert_eq!(last.following(), chosen[0]);
    }

    #[test]
    fn there_is_always_a_next_attempt() {
        let mut last = Generation::first(1);
        for count in 1..1000 {
            let attempt = last.next_attempt();
            assert!(attempt.is_newer(last));
            assert_eq!(Generation::first(2).is_newer(attempt), count < ATTEMPTS, "attempt {count}");
            last = attempt;
        }
    }
}
