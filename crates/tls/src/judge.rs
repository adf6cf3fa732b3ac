//! What a server of this node has answered lately, and whether the node is an outlier of its pool by that
//! (docs/decisions/0066).

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use switchback_policy::{Conduct, Terms};

/// Judges a server by its responses to the requests of a pool.
#[derive(Debug)]
pub struct Judge {
    terms: Terms,
    begun: Instant,
    record: Mutex<Record>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    conduct: Conduct,
    /// The failure that has ejected the server last.
    failure: Option<Outcome>,
    ejections: u64,
}

/// How a request at a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a response of this status.
    Status(u16),
    /// Without a response.
    NoResponse,
}

impl Outcome {
    fn is_failure(self) -> bool {
        !matches!(self, Outcome::Status(status) if !(500..600).contains(&status))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Status(status) => write!(f, "status {status}"),
            Outcome::NoResponse => f.write_str("no response"),
        }
    }
}

impl Judge {
    /// Goes on from what another one knows of the same server.
    pub fn new(terms: Terms, before: Option<&Judge>) -> Self {
        let (begun, record) =
            before.map_or_else(|| (Instant::now(), Record::default()), |old| (old.begun, *old.record()));
        Judge { terms, begun, record: Mutex::new(record) }
    }

    /// When it takes the server for an outlier.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Notes the end of a request.
    pub fn note(&self, outcome: Outcome) {
        let mut record = self.record();
        if record.conduct.note(&self.terms, outcome.is_failure(), self.now()) {
            (record.failure, record.ejections) = (Some(outcome), record.ejections + 1);
        }
    }

    /// Whether the server is an outlier now.
    pub fn is_ejected(&self) -> bool {
        self.record().conduct.is_ejected(self.now())
    }

    /// Why it is, in words.
    pub fn reason(&self) -> Option<String> {
        let record = self.record();
        let time = record.conduct.ejection(self.now())?;
        let last = record.failure.map_or(String::new(), |failure| format!(", the last with {failure}"));
        Some(format!("requests in a row have failed{last}; for {time:?}"))
    }

    /// Number of times that it has been taken for one.
    pub fn ejections(&self) -> u64 {
        self.record().ejections
    }

    /// The server has been down: what it has answered before says nothing of it any more.
    pub fn forget(&self) {
        let mut record = self.record();
        *record = Record { ejections: record.ejections, ..Record::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { failures: 2, time: Duration::from_secs(60), max_time: Duration::from_secs(60) };

    fn judge(outcomes: &[Outcome]) -> Judge {
        let judge = Judge::new(TERMS, None);
        outcomes.iter().for_each(|outcome| judge.note(*outcome));
        judge
    }

    #[test]
    fn statuses_from_500_to_599_and_missing_responses_are_failures() {
        use Outcome::{NoResponse, Status};
        let rows = [
            (Status(500), true),
            (Status(599), true),
            (NoResponse, true),
            (Status(499), false),
            (Status(600), false),
            (Status(101), false),
        ];
        for (outcome, fails) in rows {
            assert_eq!(judge(&[Status(502), outcome]).is_ejected(), fails, "{outcome}");
        }
    }

    #[test]
    fn a_reload_changes_the_terms_and_a_restart_of_the_server_the_record() {
        let old = judge(&[Outcome::Status(500), Outcome::NoResponse]);
        let new = Judge::new(Terms { failures: 1, ..TERMS }, Some(&old));
        assert!(new.is_ejected());
        assert_eq!(
            new.reason().as_deref(),
            Some("requests in a row have failed, the last with no response; for 60s")
        );
        new.forget();
        assert_eq!((new.is_ejected(), new.ejections(), new.reason()), (false, 1, None));
        new.note(Outcome::Status(503));
        assert_eq!((new.is_ejected(), new.ejections()), (true, 2));
    }
}
