//! Outliers of a pool: nodes whose servers fail requests, which are ejected for a time.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use switchback_policy::{Terms, most_ejected};

use crate::limits::time;

/// Allowed values of [`Terms::failures`].
pub(crate) const FAILURES: RangeInclusive<u32> = 1..=1000;
/// Allowed values of [`Terms::time`] and [`Terms::max_time`].
pub(crate) const TIME: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
/// Allowed values of [`Outliers::max_share`].
pub(crate) const SHARE: RangeInclusive<u8> = 1..=100;

/// `[pool.outliers]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outliers {
    /// When a node is ejected, and for how long.
    pub terms: Terms,
    /// Share of the pool's nodes that may be ejected at the same time, in percent; 1 to 100.
    pub max_share: u8,
}

impl Default for Outliers {
    fn default() -> Self {
        let terms =
            Terms { failures: 5, time: Duration::from_secs(30), max_time: Duration::from_secs(5 * 60) };
        Outliers { terms, max_share: 30 }
    }
}

impl Outliers {
    /// Most nodes that are ejected at the same time, in a pool of so many.
    pub fn most_ejected(&self, nodes: usize) -> usize {
        most_ejected(nodes, self.max_share)
    }
}

/// `5 failures, time 30s to 5m, share 30%`.
impl fmt::Display for Outliers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outliers { terms: Terms { failures, time: first, max_time }, max_share } = self;
        write!(f, "{failures} failures, time {} to {}, share {max_share}%", time(*first), time(*max_time))
    }
}
