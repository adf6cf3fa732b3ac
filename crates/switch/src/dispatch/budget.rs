//! Budgets of packets to nodes that strangers can make the switch send.

use std::time::Duration;

/// Time whose packets may be sent at once.
const BURST: Duration = Duration::from_millis(100);
/// Longest time whose packets are paid back at once.
const DEBT: Duration = Duration::from_secs(60);

/// Packets in a time.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Packets in a second.
    pub per_second: u32,
}

impl Rate {
    /// The part of each of so many threads.
    pub const fn shared(self, threads: usize) -> Rate {
        Rate { per_second: self.per_second / threads as u32 }
    }

    /// Packets in this time.
    pub const fn in_time(self, time: Duration) -> u32 {
        (time.as_micros() as u64 * self.per_second as u64 / 1_000_000) as u32
    }
}

/// Packets that may be sent now.
#[derive(Debug)]
pub struct Budget {
    rate: Rate,
    /// Less than 0 after more packets than are sent at once otherwise.
    left: i64,
    at: Duration,
}

impl Budget {
    /// A full budget.
    pub const fn new(rate: Rate) -> Self {
        Budget { rate, left: rate.in_time(BURST) as i64, at: Duration::ZERO }
    }

    /// Takes all `count` packets from the budget, or none. What has no data may not take the last half. More packets than a full
    /// budget take it and what comes next, so that a large cluster can be asked, too.
    pub fn take(&mut self, count: usize, has_data: bool, now: Duration) -> bool {
        let most = i64::from(self.rate.in_time(BURST));
        let more = i64::from(self.rate.in_time(now.saturating_sub(self.at).min(DEBT)));
        if more > 0 {
            self.left = (self.left + more).min(most);
            self.at = now;
        }
        let kept = if has_data { 0 } else { most / 2 };
        let (count, room) = (count as i64, self.left - kept);
        let enough = count <= room || self.left == most;
        self.left -= if enough { count } else { 0 };
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_than_the_budget_allows() {
        let rate = Rate { per_second: 100_000 };
        let mut budget = Budget::new(rate);
        let mut sent = 0;
        for ms in 0..10_000 {
            for _ in 0..100 {
                sent += if budget.take(1024, true, Duration::from_millis(ms)) { 1024 } else { 0 };
            }
        }
        assert!(!budget.take(1, false, Duration::from_secs(10)), "data goes before acknowledgments");
        let most = 10 * rate.per_second + rate.in_time(BURST);
        assert!((most - 2 * 1024..=most).contains(&sent), "{sent} of {most}");
    }

    #[test]
    fn more_than_a_budget_is_sent_from_time_to_time() {
        let rate = Rate { per_second: 10_000 };
        let mut budget = Budget::new(rate);
        let large = 5000;
        let times: Vec<u64> =
            (0..2000).filter(|ms| budget.take(large, false, Duration::from_millis(*ms))).collect();
        // 1,000 are there at first, and a full budget is missed by 5,000 after each.
        assert_eq!(times, [0, 500, 1000, 1500]);
    }
}
