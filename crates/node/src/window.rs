//! The part of a sequence of packets that is on its way to a switch, which acknowledges them in order.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Packets in flight to a switch; no more than the queue of any interface holds.
pub(crate) const PACKETS: usize = 128;
/// Time after which unacknowledged packets are sent again.
pub(crate) const RESEND: Duration = Duration::from_millis(200);

/// Packets sent and not acknowledged. Indices count from the first packet that is not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Window {
    sent: usize,
    /// When the first of them was sent, or the one before it acknowledged.
    since: Option<Instant>,
}

impl Window {
    /// Number of packets sent and not acknowledged.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    /// The first `count` packets are acknowledged; false, and nothing changes, if not so many were sent.
    pub(crate) fn acknowledged(&mut self, count: usize, now: Instant) -> bool {
        let is_new = (1..=self.sent).contains(&count);
        if is_new {
            self.sent -= count;
            self.since = Some(now);
        }
        is_new
    }

    /// Indices of packets to send now, of `waiting` that are not acknowledged: those not sent yet, and after [`RESEND`]
    /// the sent ones as well.
    pub(crate) fn due(&mut self, waiting: usize, now: Instant) -> Range<usize> {
        let is_late = self.since.is_some_and(|since| now.duration_since(since) >= RESEND);
        let from = if is_late { 0 } else { self.sent };
        self.sent = waiting.min(PACKETS).max(from);
        if from == 0 {
            self.since = Some(now);
        }
        from..self.sent
    }
}
