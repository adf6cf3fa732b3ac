//! The source of a daemon: a thread that follows the document.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use etcd_client::{EventType, WatchOptions};
use switchback_config::{Document, Source};
use switchback_runtime::{Copies, Known, Newest, privileges};
use tokio::sync::oneshot;

use crate::address::Address;
use crate::contents::Contents;
use crate::error::Error;
use crate::joined::{Composed, Registration};
use crate::lease::Joining;
use crate::member::Member;

/// Time that a daemon waits at its start for the first document.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that the end of a process waits until its node has left.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);
/// Pause after all members have failed: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A document in etcd that is followed.
#[derive(Debug)]
pub struct Followed {
    shared: Arc<Shared>,
    copies: Copies,
    /// Of a node that has joined.
    joined: Mutex<Option<Joined>>,
}

/// How a node leaves that has joined.
#[derive(Debug)]
struct Joined {
    leave: oneshot::Sender<()>,
    has_left: Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    newest: Newest,
    state: Mutex<State>,
}

/// What the thread has found beside the document.
#[derive(Debug, Default)]
struct State {
    /// Whether a member is followed.
    is_followed: bool,
    /// What the newest document lacks, see [`Composed::left_out`].
    left_out: Vec<String>,
    /// The key of the node that joins, until it has been seen.
    awaited: Option<String>,
}

impl Followed {
    /// Follows the document at `address`, for a daemon of this role, which keeps its copy in `directory`. `joins` is the name of
    /// the node that is to be in the document as long as the result lives, and what it says of itself.
    pub fn start(
        address: Address,
        role: &str,
        directory: &Path,
        joins: Option<(String, Registration)>,
    ) -> io::Result<Followed> {
        let awaited = joins.as_ref().map(|(name, _)| name.clone());
        let state = Mutex::new(State { awaited, ..State::default() });
        let shared = Arc::new(Shared { address, newest: Newest::default(), state });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let joined = joins.map(|(name, registration)| {
            let (leave, told_to_leave) = oneshot::channel();
            let (left, has_left) = channel();
            let kept = Joining { name, registration }.keep(shared.address.clone(), told_to_leave);
            runtime.spawn(async move {
                kept.await;
                // Whoever has told may have lost patience.
                let _ = left.send(());
            });
            Joined { leave, has_left }
        });
        let follower = Arc::clone(&shared);
        privileges::spawn("etcd", move || runtime.block_on(follower.follow()))?;
        // Hosts are not in its place: an etcd cluster whose members have moved is the same.
        let place = format!("{} in etcd", shared.address.document_key());
        let copies = Copies::start(directory, role, place)?;
        Ok(Followed { shared, copies, joined: Mutex::new(joined) })
    }
}

/// A node that has joined leaves.
impl Drop for Followed {
    fn drop(&mut self) {
        let joined = self.joined.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(Joined { leave, has_left }) = joined.take() else { return };
        if leave.send(()).is_ok() {
            // Without an answer, the lease ends by itself.
            let _ = has_left.recv_timeout(LEAVES_WITHIN);
        }
    }
}

impl Source for Followed {
    fn newest(&self) -> Result<Document, switchback_config::Error> {
        let patience = |known: &Known| {
            let is_missing = known.document.is_none() || self.shared.state().awaited.is_some();
            if is_missing && known.failed.is_none() { PATIENCE } else { Duration::ZERO }
        };
        let newest = self.shared.newest.wait(patience, &self.shared.address, "no member has answered");
        // Later documents are taken as they come.
        self.shared.state().awaited = None;
        newest
    }

    fn followed(&self) -> Option<Result<Document, switchback_config::Error>> {
        Some(self.newest())
    }

    fn last_good(&self) -> Option<Document> {
        let (text, version) = self.copies.last()?;
        Some(self.shared.address.document(text, version))
    }

    fn accept(&self, document: &Document) {
        self.copies.keep(document);
    }

    fn follow(&self, since: &Document, changed: Box<dyn Fn() + Send + Sync>) {
        self.shared.newest.follow(since, changed);
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
                self.give_up(&error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }

    /// Reads the document from a member, and follows it until that fails.
    async fn follow_member(&self, host: &str) -> Result<std::convert::Infallible, Error> {
        let member = Member::connect(&self.address, host).await?;
        let (key, end) = (self.address.document_key(), self.address.behind_followed());
        let mut client = member.client.clone();
        loop {
            let (mut contents, revision) = Contents::read(&member, &self.address).await?;
            self.found(host, &contents);
            let after = WatchOptions::new().with_range(end.clone()).with_start_revision(revision + 1);
            let mut changes = member.answer(client.watch(key.clone(), Some(after))).await?;
            loop {
                let message = changes.message().await.map_err(|error| member.failure(&error))?;
                let message = message.ok_or_else(|| member.error("it has ended the connection"))?;
                for event in message.events() {
                    let is_there = event.event_type() == EventType::Put;
                    event.kv().into_iter().for_each(|found| contents.set(&self.address, found, is_there));
                }
                if !message.events().is_empty() {
                    self.found(host, &contents);
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

    /// Takes what a member has, and tells the daemon if it is something new.
    fn found(&self, host: &str, contents: &Contents) {
        let composed = contents.document(&self.address).map_err(|error| error.to_string());
        let newest = || {
            let mut state = self.state();
            state.awaited.take_if(|name| contents.has_node(name));
            state.is_followed = true;
            composed.map(|Composed { document, left_out }| {
                let new = left_out.iter().filter(|what| !state.left_out.contains(what));
                new.for_each(|what| log::warn!("{what}"));
                state.left_out = left_out;
                document
            })
        };
        if self.newest.found(newest) {
            log::info!("etcd at {host} answers again");
        }
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
    fn give_up(&self, last: &Error) {
        if self.newest.fail(last.to_string()) {
            log::warn!("no member of etcd answers, the configuration stays; {last}");
        }
    }
}
