//! The source of a daemon: a thread that follows the document.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use etcd_client::{EventType, KeyValue, WatchOptions};
use switchback_config::{Document, Source};
use switchback_runtime::privileges::{self, CapabilitySet};

use crate::address::Address;
use crate::error::Error;
use crate::kept::Kept;
use crate::member::{Member, in_words};
use crate::store;

/// Time that a daemon waits at its start for the first document.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after all members have failed: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A document in etcd that is followed.
#[derive(Debug)]
pub struct Followed {
    shared: Arc<Shared>,
    kept: Arc<Kept>,
    /// To the thread that writes copies, so that no daemon waits for a disk.
    accepted: Sender<Document>,
}

struct Shared {
    address: Address,
    state: Mutex<State>,
    /// Notified when a document, or an error, has come.
    arrived: Condvar,
}

/// What the thread has found.
#[derive(Default)]
struct State {
    /// The newest document, or why there is none; None before any member has answered.
    newest: Option<Result<Document, String>>,
    /// Whether a member is followed.
    is_followed: bool,
    /// The last error, once all members have failed one after the other; None again when one answers.
    all_failed: Option<String>,
    followers: Vec<Box<dyn Fn() + Send + Sync>>,
}

impl Followed {
    /// Follows the document at `address`, for a daemon of this role, which keeps its copy in `directory`.
    pub fn start(address: Address, role: &str, directory: &Path) -> io::Result<Followed> {
        let shared = Arc::new(Shared { address, state: Mutex::default(), arrived: Condvar::new() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let follow = {
            let shared = Arc::clone(&shared);
            move || {
                if let Err(error) = privileges::keep_only(CapabilitySet::empty()) {
                    log::warn!("{error}");
                }
                runtime.block_on(shared.follow());
            }
        };
        let kept = Arc::new(Kept::new(directory, role));
        let (accepted, documents) = channel();
        let keep = {
            let (shared, kept) = (Arc::clone(&shared), Arc::clone(&kept));
            move || keep(&kept, &shared.address, &documents)
        };
        // The threads end with the process.
        thread::Builder::new().name("etcd".to_owned()).spawn(follow)?;
        thread::Builder::new().name("etcd copies".to_owned()).spawn(keep)?;
        Ok(Followed { shared, kept, accepted })
    }
}

/// Writes copies of documents; of those that come while it writes, the last one.
fn keep(kept: &Kept, address: &Address, documents: &Receiver<Document>) {
    while let Ok(document) = documents.recv() {
        let document = documents.try_iter().last().unwrap_or(document);
        if let Err(error) = kept.write(address, &document) {
            log::warn!(
                "cannot write {}: {error}; without it, this daemon does not start while etcd is away",
                kept.file().display()
            );
        }
    }
}

impl Source for Followed {
    fn newest(&self) -> Result<Document, switchback_config::Error> {
        let nothing_yet = |state: &mut State| state.newest.is_none() && state.all_failed.is_none();
        let state = self.shared.state();
        let waited = self.shared.arrived.wait_timeout_while(state, PATIENCE, nothing_yet);
        let (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        let what = match (&state.newest, &state.all_failed) {
            (Some(Ok(document)), _) => return Ok(document.clone()),
            (Some(Err(what)), _) | (None, Some(what)) => what.clone(),
            (None, None) => format!("no member has answered within {} s", PATIENCE.as_secs()),
        };
        Err(switchback_config::Error::Read {
            file: self.shared.address.to_string().into(),
            source: io::Error::other(what),
            remedy: None,
        })
    }

    fn last_good(&self) -> Option<Document> {
        self.kept.read(&self.shared.address).unwrap_or_else(|error| {
            log::warn!("cannot read {}: {error}", self.kept.file().display());
            None
        })
    }

    fn accept(&self, document: &Document) {
        // The thread ends with the process only.
        let _ = self.accepted.send(document.clone());
    }

    fn follow(&self, since: &Document, changed: Box<dyn Fn() + Send + Sync>) {
        let mut state = self.shared.state();
        if state.newest.as_ref().is_some_and(|newest| newest.as_ref() != Ok(since)) {
            changed();
        }
        state.followers.push(changed);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Follows one member after the other, beginning with any.
    async fn follow(&self) {
        let hosts = &self.address.hosts;
        let mut turn = RandomState::new().hash_one(0) as usize % hosts.len();
        let (mut failed, mut pause) = (0, PAUSE.0);
        loop {
            let host = &hosts[turn % hosts.len()];
            turn += 1;
            let Err(error) = self.follow_member(host).await;
            if self.lose(&error) {
                (failed, pause) = (0, PAUSE.0);
            }
            failed += 1;
            if failed % hosts.len() == 0 {
                self.give_up(error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }

    /// Reads the document from a member, and follows it until that fails.
    async fn follow_member(&self, host: &str) -> Result<std::convert::Infallible, Error> {
        let member = Member::connect(&self.address, host).await?;
        let key = self.address.document_key();
        let mut client = member.client.clone();
        loop {
            let answer = member.answer(client.get(key.clone(), None)).await?;
            let revision = answer.header().map_or(0, |header| header.revision());
            self.found(host, answer.kvs().first());
            let after = WatchOptions::new().with_start_revision(revision + 1);
            let mut changes = member.answer(client.watch(key.clone(), Some(after))).await?;
            loop {
                let message = changes.message().await.map_err(|error| member.error(in_words(&error)))?;
                let message = message.ok_or_else(|| member.error("it has ended the connection"))?;
                for event in message.events() {
                    self.found(host, event.kv().filter(|_| event.event_type() == EventType::Put));
                }
                if message.compact_revision() != 0 {
                    // What it was to tell is no more.
                    break;
                }
                if message.canceled() {
                    return Err(member.error(message.cancel_reason()));
                }
            }
        }
    }

    /// Takes what a member has in the key, and tells the daemon if it is something new.
    fn found(&self, host: &str, value: Option<&KeyValue>) {
        let newest = match value {
            Some(found) => store::document(&self.address, found.value(), found.version()),
            None => Err(Error::Absent { key: self.address.document_key() }),
        };
        let newest = newest.map_err(|error| error.to_string());
        let mut state = self.state();
        state.is_followed = true;
        if state.all_failed.take().is_some() {
            log::info!("etcd at {host} answers again");
        }
        if state.newest.as_ref() != Some(&newest) {
            state.newest = Some(newest);
            state.followers.iter().for_each(|changed| changed());
        }
        self.arrived.notify_all();
    }

    /// Notes that a member has failed. Returns whether it was followed.
    fn lose(&self, error: &Error) -> bool {
        let was_followed = std::mem::take(&mut self.state().is_followed);
        if was_followed {
            log::info!("{error}; the next member is asked");
        }
        was_followed
    }

    /// Notes that all members have failed.
    fn give_up(&self, last: Error) {
        let mut state = self.state();
        if state.all_failed.is_none() {
            log::warn!("no member of etcd answers, the configuration stays; {last}");
        }
        state.all_failed = Some(last.to_string());
        self.arrived.notify_all();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}
