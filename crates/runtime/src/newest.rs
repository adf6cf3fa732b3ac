//! The newest document of a store, as the thread that follows the store tells of it.

use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use switchback_config::{Document, Error};

/// The newest document, and who is told when there is another one.
#[derive(Default)]
pub struct Newest {
    state: Mutex<State>,
    /// Notified when a document, or an error, has come.
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    known: Known,
    followers: Vec<Box<dyn Fn() + Send + Sync>>,
}

/// What the thread has found.
#[derive(Debug, Default)]
pub struct Known {
    /// The newest document, or why there is none; None before the store has answered.
    pub document: Option<Result<Document, String>>,
    /// Why the store does not answer; None again when it does.
    pub failed: Option<String>,
}

impl Newest {
    /// Takes what the store has, which `newest` makes while nobody [waits](Newest::wait), and tells the followers if that is something new.
    /// Returns whether the store did not answer before.
    pub fn found(&self, newest: impl FnOnce() -> Result<Document, String>) -> bool {
        let mut state = self.state();
        let had_failed = state.known.failed.take().is_some();
        let newest = Some(newest());
        if state.known.document != newest {
            state.known.document = newest;
            state.followers.iter().for_each(|changed| changed());
        }
        self.arrived.notify_all();
        had_failed
    }

    /// Notes that the store does not answer. Returns whether it has answered before.
    pub fn fail(&self, what: String) -> bool {
        let had_failed = self.state().known.failed.replace(what).is_some();
        self.arrived.notify_all();
        !had_failed
    }

    /// The document, after at most the time that `patience` says for what is known meanwhile. `place` is the store's name and `silent`
    /// says that it has not answered, for errors.
    pub fn wait(
        &self,
        patience: impl Fn(&Known) -> Duration,
        place: &impl fmt::Display,
        silent: &str,
    ) -> Result<Document, Error> {
        let begun = Instant::now();
        let mut state = self.state();
        let patience = loop {
            let patience = patience(&state.known);
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break patience;
            }
            let waited = self.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        };
        let what = match (&state.known.document, &state.known.failed) {
            (Some(Ok(document)), _) => return Ok(document.clone()),
            (Some(Err(what)), _) | (None, Some(what)) => what.clone(),
            (None, None) => format!("{silent} within {} s", patience.as_secs()),
        };
        Err(Error::Read { file: place.to_string().into(), source: io::Error::other(what), remedy: None })
    }

    /// Whether it is this document.
    pub fn is(&self, document: &Document) -> bool {
        is(&self.state().known, document)
    }

    /// Has `changed` called when there is another document, as [`Source::follow`](switchback_config::Source::follow) has it.
    pub fn follow(&self, since: &Document, changed: Box<dyn Fn() + Send + Sync>) {
        let mut state = self.state();
        if state.known.document.is_some() && !is(&state.known, since) {
            changed();
        }
        state.followers.push(changed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn is(known: &Known, document: &Document) -> bool {
    matches!(&known.document, Some(Ok(newest)) if newest == document)
}

impl fmt::Debug for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newest").field("known", &self.state().known).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    fn document(text: &str) -> Document {
        Document::new(text, Path::new("cluster.toml"))
    }

    #[test]
    fn what_is_known_decides_how_long_to_wait() {
        let newest = Arc::new(Newest::default());
        let patience = |known: &Known| match (&known.document, &known.failed) {
            (None, None) => Duration::from_secs(60),
            _ => Duration::ZERO,
        };
        let wait = |newest: &Newest| newest.wait(patience, &"store", "it has not answered");
        let finder = Arc::clone(&newest);
        let found = thread::spawn(move || finder.found(|| Ok(document("1"))));
        assert_eq!(wait(&newest).unwrap(), document("1"));
        assert!(!found.join().unwrap());
        assert!(newest.fail("no way".to_owned()) && !newest.fail("still none".to_owned()));
        assert_eq!(wait(&newest).unwrap(), document("1"), "it stays");
        assert!(newest.found(|| Err("it is gone".to_owned())));
        assert!(wait(&newest).unwrap_err().to_string().ends_with("store: it is gone"));
        let silent = Newest::default();
        let error = silent.wait(|_| Duration::ZERO, &"store", "it has not answered").unwrap_err();
        assert!(error.to_string().ends_with("store: it has not answered within 0 s"), "{error}");
        silent.fail("no way".to_owned());
        assert!(wait(&silent).unwrap_err().to_string().ends_with("store: no way"));
    }

    #[test]
    fn followers_are_told_of_what_is_new() {
        let (newest, told) = (Newest::default(), Arc::new(AtomicU32::new(0)));
        let follow = |since: &str| {
            let told = Arc::clone(&told);
            let changed = move || {
                told.fetch_add(1, Ordering::Relaxed);
            };
            newest.follow(&document(since), Box::new(changed));
            newest.is(&document(since))
        };
        assert!(!follow("1"), "nothing is known yet");
        newest.found(|| Ok(document("1")));
        newest.found(|| Ok(document("1")));
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert!(follow("1"));
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert!(!follow("0"));
        assert_eq!(told.load(Ordering::Relaxed), 2, "at once");
        newest.found(|| Err("it is gone".to_owned()));
        assert_eq!(told.load(Ordering::Relaxed), 5, "all three");
    }
}
