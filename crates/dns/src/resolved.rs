//! A source around another one, whose documents have the addresses of their names.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use switchback_config::{Addresses, Dns, Document, Error, Source};
use switchback_runtime::{privileges, without_sigpipe};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::ask::{Answer, ask};
use crate::kept::Kept;
use crate::names::Names;

/// Time that a daemon waits at its start for the first answers.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time that a daemon at work waits for the first answers for a new document, while it does nothing else.
const PATIENCE_AT_WORK: Duration = Duration::from_millis(250);

/// A source whose names are resolved again and again.
#[derive(Debug)]
pub struct Resolved {
    inner: Arc<dyn Source>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when an answer has come, or a question has failed.
    arrived: Condvar,
    /// Tells the thread of names that are wanted.
    wanted: Notify,
    kept: Kept,
}

#[derive(Default)]
struct State {
    names: Names,
    servers: Vec<SocketAddr>,
    hold: Duration,
    /// The addresses that an earlier process had last.
    kept: Addresses,
    /// Whether the thread runs, which begins with the first name.
    runs: bool,
    /// The document in force.
    accepted: Option<Named>,
    /// The last one that a daemon was given, or why it was given none.
    tried: Option<Result<Named, String>>,
    /// What has been tried in vain. It is not tried again each time that an address changes.
    refused: Option<Result<Document, String>>,
    followers: Vec<Arc<dyn Fn() + Send + Sync>>,
}

/// A document and the names in it, without addresses.
#[derive(Clone)]
struct Named {
    document: Document,
    names: BTreeSet<String>,
    /// Who is asked for them; None if the document does not hold.
    dns: Option<Dns>,
}

impl Named {
    /// The names in a document; none if it does not hold.
    fn of(document: &Document) -> Named {
        let document = document.with_addresses(Addresses::new());
        match document.check_text() {
            Ok(checked) => {
                let names = checked.cluster.names().into_iter().map(str::to_owned).collect();
                Named { document, names, dns: Some(checked.cluster.dns) }
            }
            Err(_) => Named { document, names: BTreeSet::new(), dns: None },
        }
    }

    fn with_addresses(&self, names: &Names) -> Document {
        self.document.with_addresses(names.addresses(&self.names))
    }
}

impl Resolved {
    /// Resolves the names in the documents of `inner`, for a daemon of this role, which keeps a copy of the addresses in
    /// `directory`.
    pub fn new(inner: Arc<dyn Source>, role: &str, directory: &Path) -> Resolved {
        let shared = Shared {
            state: Mutex::default(),
            arrived: Condvar::new(),
            wanted: Notify::new(),
            kept: Kept::new(directory, role),
        };
        Resolved { inner, shared: Arc::new(shared) }
    }

    /// What a daemon gets for what the source has.
    fn attempt(&self, newest: Result<Document, Error>) -> Result<Document, Error> {
        if let Err(error) = &newest {
            self.shared.state().tried = Some(Err(error.to_string()));
        }
        self.take(&newest?)
    }

    /// The document with what is known of its names, after some time for those of which nothing is. A name that is new to a
    /// daemon at work needs an address: what serves is not replaced by nothing.
    fn take(&self, document: &Document) -> Result<Document, Error> {
        let named = Named::of(document);
        let mut state = self.shared.state();
        let before = state.accepted.as_ref().map(|accepted| accepted.names.clone());
        let patience = if before.is_some() { PATIENCE_AT_WORK } else { PATIENCE };
        state.tried = Some(Ok(named.clone()));
        self.shared.want(&mut state, named.dns.as_ref());
        let is_unknown = |state: &mut State| named.names.iter().any(|name| !state.names.is_settled(name));
        let waited = self.shared.arrived.wait_timeout_while(state, patience, is_unknown);
        let (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(before) = before {
            for name in named.names.difference(&before) {
                if let Some(why) = state.names.lacks(name) {
                    return Err(unresolved(document, name, why));
                }
            }
        }
        Ok(named.with_addresses(&state.names))
    }
}

fn unresolved(document: &Document, name: &str, why: &str) -> Error {
    Error::Read {
        file: document.name.clone(),
        source: io::Error::other(format!("no address of {name} is known, {why}")),
        remedy: None,
    }
}

impl Source for Resolved {
    fn newest(&self) -> Result<Document, Error> {
        let newest = self.inner.newest();
        self.shared.state().refused = None;
        self.attempt(newest)
    }

    fn followed(&self) -> Option<Result<Document, Error>> {
        if let Some(newest) = self.inner.followed() {
            let key = newest.as_ref().map(Document::clone).map_err(Error::to_string);
            let state = self.shared.state();
            let is_in_force =
                state.accepted.as_ref().map(|accepted| &accepted.document) == newest.as_ref().ok();
            if !is_in_force && state.refused.as_ref() != Some(&key) {
                drop(state);
                return Some(self.attempt(newest));
            }
        }
        let state = self.shared.state();
        Some(Ok(state.accepted.as_ref()?.with_addresses(&state.names)))
    }

    fn last_good(&self) -> Option<Document> {
        let document = self.inner.last_good()?;
        self.take(&document).ok()
    }

    fn accept(&self, document: &Document) {
        let text = document.with_addresses(Addresses::new());
        self.inner.accept(&text);
        let mut state = self.shared.state();
        let tried = state.tried.as_ref().and_then(|tried| tried.as_ref().ok());
        let tried = tried.filter(|tried| tried.document == text).cloned();
        let named = tried.unwrap_or_else(|| Named::of(&text));
        let dns = named.dns.clone();
        state.accepted = Some(named);
        self.shared.want(&mut state, dns.as_ref());
    }

    fn follow(&self, since: &Document, changed: Box<dyn Fn() + Send + Sync>) {
        let changed: Arc<dyn Fn() + Send + Sync> = changed.into();
        let told = Arc::clone(&changed);
        self.inner.follow(&since.with_addresses(Addresses::new()), Box::new(move || told()));
        let mut state = self.shared.state();
        let now = state.accepted.as_ref().map(|accepted| accepted.with_addresses(&state.names));
        if now.is_some_and(|now| now != *since) {
            changed();
        }
        state.followers.push(changed);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Wants the names of the document in force, and of the one that was tried last.
    fn want(self: &Arc<Self>, state: &mut State, dns: Option<&Dns>) {
        let tried = state.tried.as_ref().and_then(|tried| tried.as_ref().ok());
        let named = [state.accepted.as_ref(), tried];
        let names: BTreeSet<String> =
            named.into_iter().flatten().flat_map(|named| named.names.iter().cloned()).collect();
        if !names.is_empty() && !state.runs {
            state.kept = self.kept.read().unwrap_or_else(|error| {
                log::warn!("cannot read {}: {error}", self.kept.file().display());
                Addresses::new()
            });
            let shared = Arc::clone(self);
            match privileges::spawn("dns", move || shared.run()) {
                Ok(()) => state.runs = true,
                Err(error) => log::error!("cannot start a thread that resolves names: {error}"),
            }
        }
        if let Some(Dns { servers, hold }) = dns {
            state.servers.clone_from(servers);
            state.hold = *hold;
        }
        let State { names: known, kept, hold, .. } = state;
        known.want(&names, *hold, kept, Instant::now());
        self.wanted.notify_one();
    }

    fn run(&self) {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.resolve()),
            Err(error) => log::error!("cannot resolve names: {error}"),
        }
    }

    /// Asks for names when they are due.
    async fn resolve(&self) {
        let mut questions = JoinSet::new();
        loop {
            let (due, next, servers) = {
                let mut state = self.state();
                let due = state.names.due(Instant::now());
                (due, state.names.next(), state.servers.clone())
            };
            for name in due {
                questions.spawn(outcome(name, servers.clone()));
            }
            let time_comes = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wanted.notified() => {}
                () = time_comes => {}
                Some(asked) = questions.join_next() => match asked {
                    Ok((name, outcome)) => self.settle(&name, outcome),
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                },
            }
        }
    }

    /// Takes what a question has brought, and tells the daemon if that is something new.
    fn settle(&self, name: &str, outcome: Result<Answer, String>) {
        let mut state = self.state();
        let news = match outcome {
            Ok(answer) => {
                let news = state.names.answered(name, answer, Instant::now());
                if news.turn {
                    log::info!("{name} is resolved again");
                }
                news
            }
            Err(what) => {
                let news = state.names.failed(name, what.clone(), Instant::now());
                if news.turn {
                    let stay =
                        if state.names.lacks(name).is_some() { "" } else { ", its last addresses stay" };
                    log::warn!("cannot resolve {name}{stay}: {what}");
                }
                news
            }
        };
        self.arrived.notify_all();
        if !news.addresses {
            return;
        }
        let tried = state.tried.as_ref().map(|tried| tried.as_ref().map(|named| named.document.clone()));
        let tried = tried.map(|tried| tried.map_err(Clone::clone));
        let accepted = state.accepted.as_ref();
        state.refused = match accepted {
            // The document that waits for this name is tried again.
            Some(accepted) if !accepted.names.contains(name) => None,
            Some(accepted) => tried.filter(|tried| tried.as_ref() != Ok(&accepted.document)),
            None => None,
        };
        state.followers.iter().for_each(|changed| changed());
        let all = state.names.all();
        drop(state);
        if let Err(error) = self.kept.write(&all) {
            log::warn!(
                "cannot write {}: {error}; without it, this daemon starts without nodes while no name server answers",
                self.kept.file().display()
            );
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("kept", &self.kept).finish_non_exhaustive()
    }
}

/// A name, and what the servers say of it.
async fn outcome(name: String, servers: Vec<SocketAddr>) -> (String, Result<Answer, String>) {
    let outcome = ask(&servers, &name).await;
    (name, outcome)
}

/// The document with the addresses of its names as they are now, and a line for each name that has none. For a command
/// that ends.
pub fn resolve(document: &Document) -> io::Result<(Document, Vec<String>)> {
    let Named { document, names, dns } = Named::of(document);
    let Some(Dns { servers, .. }) = dns.filter(|_| !names.is_empty()) else {
        return Ok((document, Vec::new()));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let questions = async {
        let questions = names.into_iter().map(|name| outcome(name, servers.clone()));
        questions.collect::<JoinSet<_>>().join_all().await
    };
    let outcomes = without_sigpipe(|| runtime.block_on(questions));
    let (mut addresses, mut failed) = (Addresses::new(), Vec::new());
    for (name, outcome) in outcomes {
        match outcome {
            Ok(answer) => drop(addresses.insert(name, answer.addresses)),
            Err(what) => failed.push(format!("cannot resolve {name}: {what}")),
        }
    }
    failed.sort();
    Ok((document.with_addresses(addresses), failed))
}
