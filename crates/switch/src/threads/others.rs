//! The first thread's side of the other threads.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use switchback_config::Cluster;
use switchback_flow::entry::Entry;
use switchback_runtime::{Doing, Error, Result};
use switchback_tls::endpoint::Mirrors;
use switchback_wire::{NodeAddress, sb_flow, sb_key, sb_listed};

use super::other::Other;
use super::{Counts, Worker};
use crate::dispatch::{Common, Dispatcher, Heard};
use crate::observe::Reporter;
use crate::plan::{LocalMachine, NodeId, Plan};
use crate::program::Program;
use crate::random;
use crate::sender;

/// What a plan is made of.
#[derive(Clone, Debug)]
pub struct PlanParts {
    /// The configuration.
    pub cluster: Arc<Cluster>,
    /// Key that signs handoff packets.
    pub key: sb_key,
    /// Ids of the nodes.
    pub ids: HashMap<NodeAddress, NodeId>,
    /// This machine's zone.
    pub zone: Option<String>,
    /// Name of the local node.
    pub here: Option<String>,
}

impl PlanParts {
    /// The plan of a thread at this time.
    pub fn plan(&self, thread: usize, now: Duration) -> Plan {
        let place = LocalMachine { zone: self.zone.as_deref(), node: self.here.as_deref() };
        let mut plan = Plan::new(&self.cluster, self.key, self.ids.clone(), place, now);
        plan.skip(thread, now, &mut *random());
        plan
    }
}

/// A message to another thread.
#[derive(Debug)]
pub(super) enum Message {
    /// The first thread has heard this of the nodes.
    Heard(Arc<[Heard]>),
    /// A record that came on the ring of the local node's programs.
    Record(Box<[u8]>),
    /// Flows in a node's list.
    Listed(NodeId, Vec<sb_listed>),
    /// Idle flows of draining nodes.
    TakeBack(Vec<(sb_flow, Entry)>),
    /// The group may have room again.
    Admit(usize),
    /// Where requests are reported from now on.
    Report(Option<Reporter>),
    /// Another configuration; the answer says that it is in force.
    Replace(Box<PlanParts>, Sender<()>),
    /// The statistics are wanted.
    Count(Sender<Counts>),
    /// The process ends.
    End,
}

/// A message to the first thread.
#[derive(Debug)]
pub(super) enum Note {
    /// Flows found at nodes show that there are more.
    WantsLists,
    /// The groups with requests that wait for room at any node.
    Waits(usize, Vec<usize>),
    /// The thread has ended, which it does only when told.
    Ended(Option<Error>),
}

/// A queue of messages, and what wakes its reader.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    sender: Sender<T>,
    bell: Arc<EventFd>,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox { sender: self.sender.clone(), bell: Arc::clone(&self.bell) }
    }
}

/// The reader's end of a [`Mailbox`].
#[derive(Debug)]
pub(super) struct Mail<T> {
    receiver: Receiver<T>,
    bell: Arc<EventFd>,
}

impl<T> Mailbox<T> {
    fn new() -> Result<(Self, Mail<T>)> {
        let (sender, receiver) = channel();
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = Arc::new(EventFd::from_flags(flags).doing(|| "make an eventfd")?);
        Ok((Mailbox { sender, bell: Arc::clone(&bell) }, Mail { receiver, bell }))
    }

    /// Sends a message and wakes the reader. It is lost only if the reader has ended.
    pub fn send(&self, message: T) {
        let _ = self.sender.send(message);
        let _ = self.bell.write(1);
    }
}

impl<T> Mail<T> {
    /// Readable when there are messages.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The messages that have arrived.
    pub fn take(&self) -> Vec<T> {
        // Before the messages are read: one that comes later rings again.
        let _ = self.bell.read();
        self.receiver.try_iter().collect()
    }
}

/// The other threads.
pub struct Others {
    common: Common,
    threads: Vec<Mailbox<Message>>,
    notes: Mail<Note>,
    /// Groups in which requests of a thread wait, by thread.
    waiting: HashMap<usize, HashSet<usize>>,
}

/// The start of the other threads, for which capabilities are needed.
pub struct Start {
    common: Common,
    senders: Vec<sender::Sender>,
}

impl Start {
    /// Opens the sockets of so many threads, besides the first.
    pub fn prepare(threads: usize, mark: bool) -> Result<Start> {
        let sender = |_| sender::Sender::new(mark).doing(|| "open raw sockets");
        let senders = (1..threads).map(sender).collect::<Result<_>>()?;
        Ok(Start { common: Common::new(threads), senders })
    }

    /// What all dispatchers have in common.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// Starts the threads, whose time begins at `started`.
    pub fn start<'scope, 'a: 'scope>(
        self,
        scope: &'scope Scope<'scope, 'a>,
        program: &'a Program,
        parts: &PlanParts,
        mirrors: &Arc<Mirrors>,
        started: Instant,
    ) -> Result<Others> {
        let (note, notes) = Mailbox::new()?;
        let mut threads = Vec::new();
        for (thread, sender) in (1..).zip(self.senders) {
            let plan = parts.plan(thread, started.elapsed());
            let dispatcher = Dispatcher::one_of(&self.common, thread, plan, random());
            let worker = Worker::new(dispatcher, program.l7(thread)?, (sender, Arc::clone(mirrors)), started);
            let (mailbox, mail) = Mailbox::new()?;
            let note = note.clone();
            let run = move || {
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    Other::new(worker, thread, note.clone()).run(&mail)
                }));
                note.send(Note::Ended(ended.ok().and_then(Result::err)));
            };
            let builder = std::thread::Builder::new().name(format!("l7-{thread}"));
            builder.spawn_scoped(scope, run).doing(|| "start an L7 thread")?;
            threads.push(mailbox);
        }
        Ok(Others { common: self.common, threads, notes, waiting: HashMap::new() })
    }
}

impl Others {
    /// Readable when [`Self::read`] has something to do.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.notes.bell()
    }

    fn tell(&self, message: impl Fn() -> Message) {
        self.threads.iter().for_each(|thread| thread.send(message()));
    }

    /// Tells the threads what has been heard of the nodes.
    pub fn hear(&self, heard: Vec<Heard>) {
        if !heard.is_empty() {
            let heard: Arc<[Heard]> = heard.into();
            self.tell(|| Message::Heard(Arc::clone(&heard)));
        }
    }

    /// Passes on a record if another thread has the flow; true if one has.
    pub fn take_record(&self, flow: &sb_flow, record: &[u8]) -> bool {
        let other = self.of(flow);
        other.inspect(|other| other.send(Message::Record(record.into()))).is_some()
    }

    /// Passes on those flows of a list that other threads have. The result is the rest.
    pub fn take_listed(&self, node: NodeId, flows: Vec<sb_listed>) -> Vec<sb_listed> {
        self.take(flows, |listed| &listed.flow, |flows| Message::Listed(node, flows))
    }

    /// Passes on those idle flows that other threads have. The result is the rest.
    pub fn take_back(&self, flows: Vec<(sb_flow, Entry)>) -> Vec<(sb_flow, Entry)> {
        self.take(flows, |(flow, _)| flow, Message::TakeBack)
    }

    /// Passes on what belongs to flows of other threads. The result is the rest.
    fn take<T>(
        &self,
        all: Vec<T>,
        flow: impl Fn(&T) -> &sb_flow,
        message: impl Fn(Vec<T>) -> Message,
    ) -> Vec<T> {
        if self.threads.is_empty() {
            return all;
        }
        let mut by_thread = Vec::from_iter(std::iter::repeat_with(Vec::new).take(self.common.threads));
        for one in all {
            by_thread[self.common.thread_of(flow(&one))].push(one);
        }
        let mut by_thread = by_thread.into_iter();
        let own = by_thread.next().unwrap_or_default();
        for (thread, more) in std::iter::zip(&self.threads, by_thread).filter(|(_, more)| !more.is_empty()) {
            thread.send(message(more));
        }
        own
    }

    fn of(&self, flow: &sb_flow) -> Option<&Mailbox<Message>> {
        if self.threads.is_empty() {
            return None;
        }
        self.threads.get(self.common.thread_of(flow).checked_sub(1)?)
    }

    /// Gives room to requests of the group that wait in other threads.
    pub fn admit(&self, group: usize) {
        if self.has_waiting(group) {
            self.tell(|| Message::Admit(group));
        }
    }

    /// Whether requests of the group wait in other threads.
    pub fn has_waiting(&self, group: usize) -> bool {
        self.waiting.values().any(|groups| groups.contains(&group))
    }

    /// Sets where requests are reported.
    pub fn report_to(&self, reporter: Option<&Reporter>) {
        self.tell(|| Message::Report(reporter.cloned()));
    }

    /// Puts another configuration into force in all threads.
    pub fn replace(&self, parts: &PlanParts) {
        self.ask(|done| Message::Replace(Box::new(parts.clone()), done));
    }

    /// The threads' statistics.
    pub fn counts(&self) -> Vec<Counts> {
        self.ask(Message::Count)
    }

    /// Asks all threads. One that has ended does not answer.
    fn ask<T>(&self, message: impl Fn(Sender<T>) -> Message) -> Vec<T> {
        let (sender, receiver) = channel();
        self.tell(|| message(sender.clone()));
        drop(sender);
        receiver.iter().collect()
    }

    /// Handles the notes of the threads; true if flows are to be listed.
    pub fn read(&mut self) -> Result<bool> {
        let mut wants_lists = false;
        for note in self.notes.take() {
            match note {
                Note::WantsLists => wants_lists = true,
                Note::Waits(thread, groups) => {
                    self.waiting.insert(thread, groups.into_iter().collect());
                }
                Note::Ended(why) => {
                    return Err(why.unwrap_or_else(|| Error::new("an L7 thread has ended")));
                }
            }
        }
        Ok(wants_lists)
    }
}

/// Ends the threads.
impl Drop for Others {
    fn drop(&mut self) {
        self.tell(|| Message::End);
    }
}
