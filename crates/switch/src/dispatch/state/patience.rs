//! How long a node is asked the same.

use std::time::Duration;

/// First wait for a node's answer; it doubles with each attempt.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// Attempts before a node counts as one that does not answer.
const ATTEMPTS: u32 = 6;
/// Attempts if the node seems to be dead.
const ATTEMPTS_IF_DEAD: u32 = 5;
/// How long a node that lives is asked what it does not answer.
const LONGEST: Duration = Duration::from_secs(10);
/// The longest wait between two questions.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// A question to a node.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// When to ask again.
    pub due: Duration,
    attempts: u32,
    /// Since when the node has been asked, or has not answered.
    since: Duration,
}

impl Patience {
    /// The node has been asked now.
    pub fn new(now: Duration) -> Self {
        Patience { due: now + FIRST_WAIT, attempts: 1, since: now }
    }

    /// The node lives, but cannot do yet what it is asked for: it is asked again after a while, as often as it takes. The
    /// request has been waiting since `born`.
    pub fn after_a_while(now: Duration, born: Duration) -> Self {
        Patience { due: now + a_while(now, born), attempts: 1, since: now }
    }

    /// The node has been asked more than once.
    pub fn was_resent(&self) -> bool {
        self.attempts > 1
    }

    /// Whether to ask once more, and not to doubt the node yet.
    pub fn try_again(&mut self, now: Duration, dead: bool) -> bool {
        self.due = now + FIRST_WAIT * (1 << self.attempts.min(8));
        self.attempts += 1;
        self.attempts <= if dead { ATTEMPTS_IF_DEAD } else { ATTEMPTS }
    }

    /// Whether to ask once more a node that seems to live.
    pub fn try_on(&mut self, now: Duration) -> bool {
        self.due = now + LONGEST_WAIT;
        now.saturating_sub(self.since) < LONGEST
    }
}

/// How long to wait until something may have changed for a request that has been waiting since `born`.
pub fn a_while(now: Duration, born: Duration) -> Duration {
    (now.saturating_sub(born) / 4).clamp(Duration::from_millis(1), LONGEST_WAIT)
}
