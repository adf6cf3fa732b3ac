//! A table of buckets of bounded size.

use std::collections::HashMap;
use std::time::Duration;

use crate::{Bucket, Wish};

/// Result of an attempt to take tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The request may go on.
    Now,
    /// The request has its tokens, and may go on after this time.
    After(Duration),
    /// The request has no tokens. After this time it could have them.
    Over(Duration),
}

/// Value of `Retry-After` for a request that could have its tokens after this time: whole seconds, rounded up.
pub fn retry_after(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Buckets, by the time at which each will be full. Of more than `capacity` those are forgotten that have not been used for
/// longest, which makes them full.
#[derive(Debug)]
pub struct Table {
    /// Used since the last turn.
    young: HashMap<Bucket, u64>,
    /// Used before the last turn only.
    old: HashMap<Bucket, u64>,
    capacity: usize,
}

impl Table {
    /// A table that keeps at least half of `capacity` buckets, and at most all of it.
    pub fn new(capacity: usize) -> Self {
        Table { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    /// Takes all of these tokens, or none, at a time in nanoseconds.
    pub fn take(&mut self, now_ns: u64, wishes: &[Wish]) -> Taken {
        let wait = |wish: &Wish| self.full_at(&wish.bucket).saturating_sub(now_ns + wish.tolerance_ns);
        let longest = wishes.iter().map(wait).max().unwrap_or(0);
        if wishes.iter().any(|wish| wait(wish) > wish.patience_ns) {
            return Taken::Over(Duration::from_nanos(longest));
        }
        for Wish { bucket, interval_ns, .. } in wishes {
            let full_at = self.full_at(bucket).max(now_ns) + interval_ns;
            self.old.remove(bucket);
            self.young.insert(*bucket, full_at);
        }
        if self.young.len() > self.capacity / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        if longest == 0 { Taken::Now } else { Taken::After(Duration::from_nanos(longest)) }
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether there is no bucket.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn full_at(&self, bucket: &Bucket) -> u64 {
        self.young.get(bucket).or_else(|| self.old.get(bucket)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn wish(client: u32, burst: u64, per_second: u64, patience_ns: u64) -> Wish {
        let bucket = Bucket {
            client: Some(IpAddr::V4(Ipv4Addr::from_bits(client))),
            service: 1,
            of: crate::OF_REQUESTS,
        };
        let interval_ns = SECOND / per_second;
        Wish { bucket, interval_ns, tolerance_ns: (burst - 1) * interval_ns, patience_ns }
    }

    #[test]
    fn a_full_bucket_has_its_burst_and_gains_tokens_by_its_rate() {
        let mut table = Table::new(100);
        let one = [wish(1, 3, 10, 0)];
        assert_eq!([0; 3].map(|now| table.take(now, &one)), [Taken::Now; 3]);
        assert_eq!(table.take(0, &one), Taken::Over(Duration::from_millis(100)));
        assert_eq!(table.take(SECOND / 10, &one), Taken::Now);
        assert_eq!(table.take(SECOND / 10, &one), Taken::Over(Duration::from_millis(100)));
        assert_eq!(table.take(SECOND, &[wish(2, 1, 10, 0)]), Taken::Now);
    }

    #[test]
    fn those_that_wait_go_on_one_after_the_other() {
        let mut table = Table::new(100);
        let one = [wish(1, 1, 10, SECOND / 4)];
        let taken = [0; 4].map(|now| table.take(now, &one));
        let after = |ms| Taken::After(Duration::from_millis(ms));
        assert_eq!(taken, [Taken::Now, after(100), after(200), Taken::Over(Duration::from_millis(300))]);
    }

    #[test]
    fn a_request_takes_all_tokens_or_none() {
        let mut table = Table::new(100);
        let (roomy, tight) = (wish(1, 10, 1, 0), wish(2, 1, 1, 0));
        assert_eq!(table.take(0, &[roomy, tight]), Taken::Now);
        for _ in 0..20 {
            assert_eq!(table.take(0, &[roomy, tight]), Taken::Over(Duration::from_secs(1)));
        }
        let taken = [0; 9].map(|now| table.take(now, &[roomy]));
        assert_eq!(taken, [Taken::Now; 9]);
        assert!(matches!(table.take(0, &[roomy]), Taken::Over(_)));
    }

    #[test]
    fn any_number_of_clients_needs_no_more_memory_than_the_capacity() {
        let mut table = Table::new(1000);
        for client in 0..100_000 {
            table.take(0, &[wish(client, 1, 1, 0)]);
            assert!(table.len() <= 1000);
            // A bucket that is in use stays.
            let taken = (client % 100 == 0).then(|| table.take(0, &[wish(u32::MAX, 2000, 1, 0)]));
            assert!(taken.is_none_or(|taken| taken == Taken::Now));
        }
        assert_eq!(table.take(0, &[wish(u32::MAX, 1001, 1, 0)]), Taken::Now);
        assert!(matches!(table.take(0, &[wish(u32::MAX, 1001, 1, 0)]), Taken::Over(_)));
    }

    proptest! {
        /// In any time, a bucket gives at most its burst and what it has gained, and a client that keeps to the rate
        /// always gets a token.
        #[test]
        fn the_rate_holds_in_any_time(
            gaps in proptest::collection::vec(0..400_000_000u64, 1..200),
            burst in 1..20u64,
            per_second in 1..100u64,
        ) {
            let mut table = Table::new(100);
            let one = [wish(1, burst, per_second, 0)];
            let mut now = SECOND;
            let mut taken = Vec::new();
            for gap in gaps {
                now += gap;
                let before = taken.last().copied();
                let is_taken = table.take(now, &one) == Taken::Now;
                prop_assert!(is_taken || before.is_some_and(|before| now - before < one[0].interval_ns));
                if is_taken {
                    taken.push(now);
                }
            }
            for (first, start) in taken.iter().enumerate() {
                for (last, end) in taken.iter().enumerate().skip(first) {
                    let most = burst + (end - start) / one[0].interval_ns;
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }
    }
}
