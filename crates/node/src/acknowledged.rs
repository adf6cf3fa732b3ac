//! Whether clients acknowledge what this node sends.
//!
//! A network that drops packets by their source lets requests in and no response out: the responses leave, and all else
//! looks well. One client that acknowledges nothing is no sign of that, but many responses in a row of which nobody has
//! acknowledged a byte are.

use std::time::{Duration, Instant};

/// Responses of which nobody acknowledges anything, and the time since the first of them.
const ENOUGH: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(3);
/// After this time the node is tried again, because it gets few requests meanwhile.
const AGAIN: Duration = Duration::from_secs(10);

/// Watches two sums of the programs.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgments {
    /// Packets that acknowledged more of a response.
    acknowledged: u64,
    /// Responses that had begun when the last of them came.
    begun: u64,
    /// Time of the first response since.
    first: Option<Instant>,
    /// Since when nobody acknowledges.
    missed: Option<Instant>,
}

impl Acknowledgments {
    /// Looks at the sums: responses that have begun, and packets that acknowledge more of one.
    pub(crate) fn look(&mut self, now: Instant, begun: u64, acknowledged: u64) {
        let is_over = self.missed.is_some_and(|since| now >= since + AGAIN);
        if acknowledged != self.acknowledged || is_over {
            *self = Acknowledgments { acknowledged, begun, first: None, missed: None };
            return;
        }
        let more = begun.wrapping_sub(self.begun);
        if more == 0 {
            return;
        }
        let first = *self.first.get_or_insert(now);
        if more >= ENOUGH && now >= first + PATIENCE {
            self.missed.get_or_insert(now);
        }
    }

    /// Whether nobody acknowledges this node's responses.
    pub(crate) fn are_missing(&self) -> bool {
        self.missed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_responses_without_an_acknowledgment_are_a_sign() {
        let (mut acknowledgments, start) = (Acknowledgments::default(), Instant::now());
        let mut look = |ms: u64, begun, acknowledged| {
            acknowledgments.look(start + Duration::from_millis(ms), begun, acknowledged);
            acknowledgments.are_missing()
        };
        assert!(!look(0, 100, 100));
        assert!(!look(60_000, 100, 100), "nobody asks");
        assert!(!look(60_050, 150, 100), "they may come");
        assert!(!look(63_000, 150, 100));
        assert!(look(63_050, 150, 100));
        assert!(!look(63_100, 150, 101), "one is enough");
    }

    #[test]
    fn few_responses_are_no_sign() {
        let (mut acknowledgments, start) = (Acknowledgments::default(), Instant::now());
        for second in 0..60 {
            acknowledgments.look(start + Duration::from_secs(second), (second + 1).min(ENOUGH - 1), 0);
            assert!(!acknowledgments.are_missing());
        }
    }

    #[test]
    fn the_node_is_tried_again() {
        let (mut acknowledgments, start) = (Acknowledgments::default(), Instant::now());
        let missing: Vec<u64> = (0..60)
            .filter(|second| {
                acknowledgments.look(start + Duration::from_secs(*second), (second + 1) * 10, 0);
                acknowledgments.are_missing()
            })
            .collect();
        assert_eq!(missing[..10], [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(missing[10], 17, "after three more seconds");
    }
}
