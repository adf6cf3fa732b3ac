//! The nodes' reports to the switches.

use std::time::Duration;

use crate::limits::time;

/// Allowed values of [`Reports::interval`].
pub(crate) const INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(1);
/// Allowed values of [`Reports::suspect_after`].
pub(crate) const SUSPECT_AFTER: std::ops::RangeInclusive<u32> = 1..=100;

/// Allowed values of [`Reports::dead_after`].
pub(crate) const DEAD_AFTER: std::ops::RangeInclusive<u32> = 1..=1000;

/// Reports that all nodes of a large cluster together send to a switch in a second by default.
const PER_SECOND: u64 = 8000;

/// `[reports]`, or the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    /// Interval of a node's reports; 10 ms to 1 s.
    pub interval: Duration,
    /// Intervals without a report after which a node is suspect; 1 to 100.
    pub suspect_after: u32,
    /// Intervals without a report after which a node is dead, if another one reports; 1 to 1000, at least
    /// `suspect_after`.
    pub dead_after: u32,
}

impl Default for Reports {
    fn default() -> Self {
        Reports { interval: Duration::from_millis(50), suspect_after: 3, dead_after: 20 }
    }
}

impl Reports {
    /// Of a cluster with so many nodes: the more there are, the longer is the interval.
    pub(crate) fn with_nodes(nodes: usize) -> Self {
        let default = Reports::default();
        let interval = Duration::from_millis((nodes as u64 * 1000).div_ceil(PER_SECOND)).min(*INTERVAL.end());
        if interval <= default.interval {
            return default;
        }
        let dead = default.interval * default.dead_after;
        let dead_after = dead.as_millis().div_ceil(interval.as_millis()) as u32;
        Reports { interval, dead_after, ..default }
    }

    /// Each key of `[reports]` with its value in the form of the file.
    pub(crate) fn in_words(&self) -> [(&'static str, String); 3] {
        [
            ("interval", time(self.interval)),
            ("suspect_after", self.suspect_after.to_string()),
            ("dead_after", self.dead_after.to_string()),
        ]
    }
}
