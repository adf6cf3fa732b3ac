//! An L7 thread other than the first.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::Duration;

use switchback_runtime::Result;

use super::others::{Mail, Mailbox, Message, Note};
use super::{Loop, Work, Worker, read_record};

/// Longest wait for events.
const LONGEST: Duration = Duration::from_secs(1);

/// An L7 thread other than the first.
pub(super) struct Other<'a> {
    worker: Worker<'a>,
    thread: usize,
    first: Mailbox<Note>,
    /// Groups with waiting requests, as told to the first thread.
    waiting: Vec<usize>,
}

impl<'a> Other<'a> {
    /// The thread with this number, which leaves notes for the first one.
    pub fn new(worker: Worker<'a>, thread: usize, first: Mailbox<Note>) -> Self {
        Other { worker, thread, first, waiting: Vec::new() }
    }

    /// Runs until it is told to end.
    pub fn run(self, mail: &Mail<Message>) -> Result<()> {
        let rings = self.worker.rings();
        let this = RefCell::new(self);
        let events = Loop::new(&this, rings.iter(), &[(mail.bell(), 0)])?;
        loop {
            if events.turn()?.is_empty() {
                continue;
            }
            for message in mail.take() {
                if this.borrow_mut().handle(message).is_break() {
                    return Ok(());
                }
            }
        }
    }

    fn handle(&mut self, message: Message) -> ControlFlow<()> {
        let worker = &mut self.worker;
        match message {
            Message::Heard(heard) => worker.with(|dispatcher, at| {
                heard.iter().for_each(|heard| dispatcher.hear(at, heard));
            }),
            Message::Record(data) => self.on_record(&data),
            Message::Listed(node, flows) => worker.with(|dispatcher, at| {
                flows.iter().for_each(|listed| dispatcher.on_listed(at, node, listed));
            }),
            Message::TakeBack(flows) => worker.with(|dispatcher, at| {
                flows.into_iter().for_each(|(flow, entry)| dispatcher.take_back(at, &flow, entry));
            }),
            Message::Admit(group) => worker.with(|dispatcher, at| dispatcher.admit_any(at, group)),
            Message::Report(reporter) => worker.set_reporter(reporter),
            Message::Replace(parts, done) => {
                let plan = parts.plan(self.thread, worker.now());
                worker.dispatcher.replace_plan(plan);
                // The groups have other numbers now.
                self.waiting.clear();
                self.first.send(Note::Waits(self.thread, Vec::new()));
                let _ = done.send(());
            }
            Message::Count(answer) => {
                let _ = answer.send(worker.counts());
            }
            Message::End => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }
}

impl<'a> Work<'a> for Other<'a> {
    fn on_record(&mut self, data: &[u8]) {
        let Some((record, packet)) = read_record(data) else { return };
        self.worker.on_record(&record, packet);
        if self.worker.is_full() {
            self.worker.flush();
        }
    }

    fn on_time(&mut self) {
        self.worker.with(|dispatcher, at| dispatcher.on_time(at));
        self.worker.flush();
        let dispatcher = &mut self.worker.dispatcher;
        if dispatcher.wants_lists() {
            self.first.send(Note::WantsLists);
        }
        let waiting = dispatcher.waiting_groups();
        if waiting != self.waiting {
            self.first.send(Note::Waits(self.thread, waiting.clone()));
            self.waiting = waiting;
        }
    }

    fn timeout(&self) -> Duration {
        let deadline = self.worker.dispatcher.deadline();
        deadline.map_or(LONGEST, |deadline| deadline.saturating_sub(self.worker.now()).min(LONGEST))
    }

    fn worker(&self) -> &Worker<'a> {
        &self.worker
    }
}
