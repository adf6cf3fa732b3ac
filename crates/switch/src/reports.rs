//! When reports of nodes wait.
//!
//! A thousand nodes report at any time. A wake-up of the L7 thread for each report would cost more than all of them: as long
//! as reports come, they wait until the thread looks by itself, a few times in an interval. So do FACTS packets.

use std::time::Duration;

/// Part of the interval between two reports of a node.
const PART: u32 = 10;

/// The time in which reports do not wake the L7 thread.
#[derive(Debug, Default)]
pub struct ReportWait {
    until: Duration,
    /// Whether a report has come since it began.
    reported: bool,
}

impl ReportWait {
    /// A report has come.
    pub fn note(&mut self) {
        self.reported = true;
    }

    /// Begins if the last one has ended and reports have come; `interval` is that of a node. The result is the end.
    pub fn begin(&mut self, now: Duration, interval: Duration) -> Option<Duration> {
        if now < self.until || !self.reported {
            return None;
        }
        *self = ReportWait { until: now + interval / PART, reported: false };
        Some(self.until)
    }

    /// When the L7 thread looks for reports; None if they wake it.
    pub fn ends(&self, now: Duration) -> Option<Duration> {
        Some(self.until).filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(50);

    #[test]
    fn reports_wait_while_they_come() {
        let at = Duration::from_millis;
        let mut wait = ReportWait::default();
        assert_eq!((wait.begin(at(1), INTERVAL), wait.ends(at(1))), (None, None), "none has come");
        wait.note();
        assert_eq!(wait.begin(at(1), INTERVAL), Some(at(6)));
        assert_eq!(wait.ends(at(5)), Some(at(6)));
        wait.note();
        assert_eq!(wait.begin(at(5), INTERVAL), None, "it has not ended");
        assert_eq!((wait.ends(at(6)), wait.begin(at(6), INTERVAL)), (None, Some(at(11))));
        assert_eq!((wait.begin(at(11), INTERVAL), wait.ends(at(11))), (None, None), "no more come");
    }
}
