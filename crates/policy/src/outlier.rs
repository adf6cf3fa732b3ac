//! Outliers: servers that answer requests with failures while others of their pool do not.
//!
//! Failures in a row eject a server for a time. When that is over the first response decides: a failure ejects the server
//! for twice the time, so that one that stays broken costs ever fewer requests. A success forgets the failures before it, and
//! the time begins anew once the server has served for as long as it was ejected.
//!
//! A pool keeps some of its nodes whatever they answer ([`most_ejected`]). Such a server goes on getting requests, so
//! as many successes in a row as failures have ejected it end its ejection early.

use std::time::Duration;

/// When a server is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Failures in a row that eject it; at least 1.
    pub failures: u32,
    /// Time of its first ejection.
    pub time: Duration,
    /// Longest time of an ejection; at least `time`.
    pub max_time: Duration,
}

/// What a server has answered lately. Times count from a fixed start, on a clock that does not go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// Failures in a row.
    failures: u32,
    last: Option<Ejection>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ejection {
    time: Duration,
    until: Duration,
    /// Successes in a row during the ejection.
    successes: u32,
    /// Whether what came behind it, or ended it, was a success.
    is_mended: bool,
}

impl Ejection {
    /// Whether the server has served for a shorter time than it was ejected for.
    fn is_recent(&self, now: Duration) -> bool {
        now < self.until.saturating_add(self.time)
    }
}

impl Conduct {
    /// Whether the server is ejected.
    pub fn is_ejected(&self, now: Duration) -> bool {
        self.ejection(now).is_some()
    }

    /// How long the ejection lasts that is under way.
    pub fn ejection(&self, now: Duration) -> Option<Duration> {
        self.last.filter(|last| now < last.until).map(|last| last.time)
    }

    /// Notes a response; true if it ejects the server.
    pub fn note(&mut self, terms: &Terms, is_failure: bool, now: Duration) -> bool {
        if let Some(last) = self.last.as_mut().filter(|last| now < last.until) {
            last.successes = if is_failure { 0 } else { last.successes.saturating_add(1) };
            if last.successes >= terms.failures {
                (last.until, last.is_mended) = (now, true);
            }
            return false;
        }
        if !is_failure {
            self.failures = 0;
            self.last.iter_mut().for_each(|last| last.is_mended = true);
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let recent = self.last.filter(|last| last.is_recent(now));
        let is_on_trial = recent.is_some_and(|last| !last.is_mended);
        if self.failures < terms.failures && !is_on_trial {
            return false;
        }
        let time = recent.map_or(terms.time, |last| last.time.saturating_mul(2)).min(terms.max_time);
        let until = now.saturating_add(time);
        *self = Conduct { failures: 0, last: Some(Ejection { time, until, successes: 0, is_mended: false }) };
        true
    }
}

/// Most nodes of a pool that are ejected at the same time, if `percent` of them may be: at least one, never all.
pub fn most_ejected(nodes: usize, percent: u8) -> usize {
    (nodes * usize::from(percent) / 100).max(1).min(nodes.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TERMS: Terms =
        Terms { failures: 3, time: Duration::from_secs(10), max_time: Duration::from_secs(35) };

    /// Notes responses, `F` for a failure, at this time; true if the last one ejects the server.
    fn note(conduct: &mut Conduct, responses: &str, seconds: u64) -> bool {
        let mut ejected = false;
        for response in responses.chars() {
            assert!(!ejected, "not the last one");
            ejected = conduct.note(&TERMS, response == 'F', Duration::from_secs(seconds));
        }
        ejected
    }

    fn is_ejected(conduct: &Conduct, seconds: u64) -> bool {
        conduct.is_ejected(Duration::from_secs(seconds))
    }

    #[test]
    fn failures_in_a_row_eject_a_server() {
        let mut conduct = Conduct::default();
        assert!(!note(&mut conduct, "FF.FF.", 100));
        assert!(note(&mut conduct, "FFF", 100));
        assert!(is_ejected(&conduct, 109) && !is_ejected(&conduct, 110));
    }

    #[test]
    fn the_first_response_decides_when_the_time_is_over() {
        let mut conduct = Conduct::default();
        note(&mut conduct, "FFF", 100);
        assert!(note(&mut conduct, "F", 110), "for 20 s");
        assert!(is_ejected(&conduct, 129) && !is_ejected(&conduct, 130));
        assert!(note(&mut conduct, "F", 130), "for 35 s, the longest time");
        assert!(is_ejected(&conduct, 164) && !is_ejected(&conduct, 165));
        assert!(!note(&mut conduct, ".FF", 165));
        assert!(note(&mut conduct, "F", 199), "it has served for 34 s");
        assert!(is_ejected(&conduct, 233) && !is_ejected(&conduct, 234));
    }

    #[test]
    fn a_server_that_has_served_as_long_as_it_was_ejected_begins_anew() {
        let mut conduct = Conduct::default();
        note(&mut conduct, "FFF", 100);
        assert!(!note(&mut conduct, "FF", 120), "nor is it on trial");
        assert!(note(&mut conduct, "F", 120));
        assert!(is_ejected(&conduct, 129) && !is_ejected(&conduct, 130));
    }

    #[test]
    fn successes_in_a_row_end_an_ejection() {
        let mut conduct = Conduct::default();
        note(&mut conduct, "FFF", 100);
        assert!(!note(&mut conduct, "..F..", 101));
        assert!(is_ejected(&conduct, 101));
        assert!(!note(&mut conduct, ".", 101));
        assert!(!is_ejected(&conduct, 101));
        assert!(!note(&mut conduct, "FF", 101), "it is not on trial");
        assert!(note(&mut conduct, "F", 101));
        assert!(is_ejected(&conduct, 120) && !is_ejected(&conduct, 121), "twice the time");
    }

    #[test]
    fn a_pool_keeps_some_of_its_nodes() {
        let rows = [(1, 100, 0), (2, 1, 1), (2, 100, 1), (3, 30, 1), (10, 30, 3), (10, 100, 9), (0, 50, 0)];
        for (nodes, percent, most) in rows {
            assert_eq!(most_ejected(nodes, percent), most, "{percent} % of {nodes}");
        }
    }

    /// The responses of a server, each with the time since the one before, in seconds.
    fn history() -> impl Strategy<Value = Vec<(bool, u64)>> {
        proptest::collection::vec((any::<bool>(), prop_oneof![4 => 0..2u64, 1 => 0..50u64]), 0..200)
    }

    proptest! {
        #[test]
        fn an_ejection_has_a_cause_and_an_end(history in history()) {
            let mut conduct = Conduct::default();
            let (mut now, mut until, mut time, mut in_a_row, mut succeeded) = (0, 0, 0, 0, true);
            for (is_failure, after) in history {
                now += after;
                let was_ejected = is_ejected(&conduct, now);
                prop_assert!(!was_ejected || now < until, "it has an end");
                let ejects = conduct.note(&TERMS, is_failure, Duration::from_secs(now));
                in_a_row = if is_failure { in_a_row + 1 } else { 0 };
                if ejects {
                    prop_assert!(is_failure && !was_ejected);
                    let is_recent = now < until + time;
                    prop_assert!(in_a_row >= 3 || !succeeded && is_recent, "it has a cause");
                    let longest = if is_recent && time > 0 { (2 * time).min(35) } else { 10 };
                    prop_assert!(is_ejected(&conduct, now + longest - 1));
                    prop_assert!(!is_ejected(&conduct, now + longest));
                    (until, time, in_a_row, succeeded) = (now + longest, longest, 0, false);
                } else if was_ejected && !is_ejected(&conduct, now) {
                    (until, succeeded) = (now, true);
                } else if !was_ejected {
                    succeeded |= !is_failure;
                    prop_assert!(in_a_row < 3, "three in a row eject it");
                } else {
                    in_a_row = 0;
                }
            }
        }
    }
}
