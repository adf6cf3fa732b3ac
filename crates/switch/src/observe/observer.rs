//! The thread that collects observations and facts, and writes access log and sums.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use libbpf_rs::{MapHandle, RingBufferBuilder};
use switchback_access_log::{Log, Pace};
use switchback_config::AccessLog;
use switchback_runtime::{Doing, Error, Result};
use switchback_status::totals::Totals;
use switchback_wire::{Seq, read_from, sb_express_request};

use super::join::Join;
use super::line::LogEntry;
use super::totals::Sums;
use crate::plan::NodeId;
use switchback_flow::destination::Chosen;

use super::{Finished, Names, Observation, RequestForwarded, RequestSeen};

/// Interval at which the thread reads messages and rings.
const TURN: Duration = Duration::from_millis(20);
/// Interval at which expired entries are given up.
const SWEEP: Duration = Duration::from_secs(1);
/// Budget for messages that the thread has not received, in bytes: some 100,000 requests.
const WAITING: usize = 32 << 20;

/// A message to the observer thread.
#[derive(Debug)]
pub enum ObserverMessage {
    /// Events in the L7 thread.
    Observations(Vec<Observation>),
    /// New names after a reload.
    Names(Arc<Names>),
    /// New access log settings after a reload.
    Log(Option<AccessLog>),
    /// The log file was renamed.
    Reopen,
}

/// Start of the switch by several clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// By the clock of the L7 thread.
    pub started: Instant,
    /// By CLOCK_MONOTONIC, which the XDP program reads, in nanoseconds.
    pub monotonic_ns: u64,
    /// By the wall clock.
    pub wall: Timestamp,
}

/// Handle of the observer thread.
#[derive(Debug)]
pub struct Observer {
    reporter: Option<Reporter>,
    totals: Arc<Mutex<Totals>>,
    thread: Option<JoinHandle<()>>,
}

/// Sends messages to the observer thread, which ends when there is none of these any more.
#[derive(Clone, Debug)]
pub struct Reporter {
    started: Instant,
    sender: Sender<ObserverMessage>,
    backlog: Arc<Backlog>,
    pace: Arc<Pace>,
}

/// Messages in transit to the thread.
#[derive(Debug, Default)]
struct Backlog {
    /// Bytes of the messages sent and not received yet.
    waiting: AtomicUsize,
    /// Observations dropped because `waiting` was over the budget.
    dropped: AtomicU64,
}

impl Backlog {
    /// Whether the budget has room for the message. Messages other than observations always pass.
    fn admit(&self, message: &ObserverMessage) -> bool {
        if let ObserverMessage::Observations(observations) = message
            && self.waiting.load(Ordering::Relaxed) >= WAITING
        {
            self.dropped.fetch_add(observations.len() as u64, Ordering::Relaxed);
            return false;
        }
        self.waiting.fetch_add(size(message), Ordering::Relaxed);
        true
    }

    fn received(&self, message: &ObserverMessage) {
        self.waiting.fetch_sub(size(message), Ordering::Relaxed);
    }
}

/// Memory of a message, in bytes.
fn size(message: &ObserverMessage) -> usize {
    let ObserverMessage::Observations(observations) = message else { return 0 };
    observations.iter().map(|one| size_of::<Observation>() + one.head().len()).sum()
}

impl Observer {
    /// Opens the log and starts the thread. `rings` are the observer rings of the XDP program.
    pub fn start(
        clock: Clock,
        names: Arc<Names>,
        log: Option<AccessLog>,
        rings: Vec<MapHandle>,
    ) -> Result<Observer> {
        let log =
            log.map(Log::open).transpose().map_err(|error| Error::cannot("begin the access log", error))?;
        let (sender, receiver) = channel();
        let totals = Arc::new(Mutex::new(Totals::default()));
        let (backlog, pace) = (Arc::new(Backlog::default()), Arc::new(Pace::default()));
        let worker = Worker {
            clock,
            names,
            log,
            join: Join::default(),
            sums: Sums::default(),
            finished: Vec::new(),
            shared: Arc::clone(&totals),
            backlog: Arc::clone(&backlog),
            pace: Arc::clone(&pace),
            dropped: 0,
        };
        let thread = std::thread::Builder::new().name("observer".to_owned());
        let thread = thread
            .spawn(move || worker.run(&receiver, &rings))
            .doing(|| "start a thread for the access log")?;
        let reporter = Reporter { started: clock.started, sender, backlog, pace };
        Ok(Observer { reporter: Some(reporter), totals, thread: Some(thread) })
    }

    /// For each thread that sends messages.
    pub fn reporter(&self) -> Option<&Reporter> {
        self.reporter.as_ref()
    }

    /// Sends a message without blocking.
    pub fn send(&self, message: ObserverMessage) {
        if let Some(reporter) = &self.reporter {
            reporter.send(message);
        }
    }

    /// Sums over all finished requests.
    pub fn totals(&self) -> Totals {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Reporter {
    /// Sends a message without blocking. Observations beyond the budget are dropped and counted.
    pub fn send(&self, message: ObserverMessage) {
        self.pace.hurry_if_late(self.started.elapsed());
        if !self.backlog.admit(&message) {
            return;
        }
        // Sending fails only if the thread has ended.
        let _ = self.sender.send(message);
    }
}

/// Waits until the thread has written everything.
impl Drop for Observer {
    fn drop(&mut self) {
        self.reporter = None;
        if let Some(thread) = self.thread.take() {
            // A panic has printed its message already.
            let _ = thread.join();
        }
    }
}

/// State of the observer thread.
struct Worker {
    clock: Clock,
    names: Arc<Names>,
    log: Option<Log>,
    join: Join,
    sums: Sums,
    finished: Vec<Finished>,
    shared: Arc<Mutex<Totals>>,
    backlog: Arc<Backlog>,
    pace: Arc<Pace>,
    /// `backlog.dropped` at the last look.
    dropped: u64,
}

impl Worker {
    fn run(mut self, receiver: &Receiver<ObserverMessage>, rings: &[MapHandle]) {
        let express = std::cell::RefCell::new(Vec::new());
        let mut builder = RingBufferBuilder::new();
        let (monotonic_ns, collect) = (self.clock.monotonic_ns, |given| express.borrow_mut().push(given));
        for ring in rings {
            let read = move |data: &[u8]| {
                express_request(data, monotonic_ns).map(collect);
                0
            };
            if let Err(error) = builder.add(ring, read) {
                log::error!("plain requests are missing in the access log: {error}");
            }
        }
        let reader = builder.build();
        let mut swept = Duration::ZERO;
        let mut over = false;
        self.pace.turn(self.clock.started.elapsed());
        self.pace.begin();
        while !over {
            // Waking up for every message would preempt the servers hundreds of times as often.
            std::thread::sleep(TURN);
            let now = self.clock.started.elapsed();
            self.pace.turn(now);
            let messages = received_before(receiver, || {
                if let Ok(reader) = &reader
                    && let Err(error) = reader.consume()
                {
                    log::error!("cannot read the rings of plain requests: {error}");
                }
            });
            for given in express.borrow_mut().drain(..) {
                self.join.forwarded(now, given, &mut self.finished);
            }
            over = messages.is_none();
            messages.into_iter().flatten().for_each(|message| self.handle(now, message));
            if now.saturating_sub(swept) >= SWEEP {
                swept = now;
                self.join.sweep(now, &mut self.finished);
            }
            if over {
                self.join.end_all(now, &mut self.finished);
            }
            self.finish(now);
            self.publish();
        }
    }

    fn handle(&mut self, now: Duration, message: ObserverMessage) {
        self.backlog.received(&message);
        match message {
            ObserverMessage::Observations(observations) => {
                for observation in observations {
                    if let Observation::Lost(lost) = observation {
                        self.sums.totals.facts_lost += u64::from(lost);
                    }
                    self.observe(now, observation);
                }
            }
            ObserverMessage::Names(names) => {
                self.names = names;
                self.sums.forget_indices();
            }
            ObserverMessage::Log(config) => {
                if self.log.as_ref().map(Log::config) == config.as_ref() {
                    return;
                }
                self.publish();
                match config.map(Log::open).transpose() {
                    Ok(log) => self.log = log,
                    Err(error) => log::error!("the access log stays what it was: {error}"),
                }
            }
            ObserverMessage::Reopen => self.log.iter_mut().for_each(Log::reopen),
        }
    }

    /// Logged at once, while the data is in the CPU's cache.
    fn observe(&mut self, now: Duration, observation: Observation) {
        self.join.take(now, observation, &mut self.finished);
        self.finish(now);
    }

    /// Logs and counts finished requests.
    fn finish(&mut self, now: Duration) {
        for finished in self.finished.drain(..) {
            let entry = LogEntry::new(&finished, &self.names);
            let (service, node) = (entry.service, finished.node);
            let pool = entry.taken.and_then(|taken| taken.pool);
            self.sums.add(&finished, (service, pool, node), || {
                [
                    service.map_or("", |service| self.names.service(service)),
                    pool.map_or("", |pool| self.names.pool(pool).0),
                    node.map_or("", |node| self.names.node(node)),
                ]
            });
            if let Some(log) = &mut self.log
                && !entry.is_logged_by_node(&self.names)
            {
                let at = finished.asked.as_ref().map_or(finished.at, |asked| asked.at);
                log.write(now, &entry.line(&self.names, self.clock.wall + at));
            }
        }
    }

    /// Flushes the log and updates the shared sums.
    fn publish(&mut self) {
        let dropped = self.backlog.dropped.load(Ordering::Relaxed);
        let lost = dropped - std::mem::replace(&mut self.dropped, dropped);
        self.sums.totals.requests_forgotten = self.join.given_up;
        if let Some(log) = &mut self.log {
            log.lose(lost);
            log.flush();
            let (lines, lost) = log.take_counts();
            self.sums.totals.log_lines += lines;
            self.sums.totals.log_lost += lost;
        }
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.sums.totals);
    }
}

/// The messages that are there before the rings are read, which then have all requests that these facts are about. Messages
/// that come meanwhile may be about requests that the rings have got since. None if there are no more senders, or messages.
fn received_before(
    receiver: &Receiver<ObserverMessage>,
    read_rings: impl FnOnce(),
) -> Option<Vec<ObserverMessage>> {
    let mut messages = Vec::new();
    let end = loop {
        match receiver.try_recv() {
            Ok(message) => messages.push(message),
            Err(end) => break end,
        }
    };
    read_rings();
    (end == TryRecvError::Empty || !messages.is_empty()).then_some(messages)
}

/// A request that the XDP program forwarded, from its record. It spent no time in the switch.
fn express_request(data: &[u8], started_ns: u64) -> Option<RequestForwarded> {
    let request: sb_express_request = read_from(data)?;
    let head = data[size_of::<sb_express_request>()..].get(..request.len.into())?;
    Some(RequestForwarded {
        asked: RequestSeen {
            flow: request.flow,
            origin: Seq(request.origin),
            begins: Seq(request.begins),
            head: head.into(),
            at: Duration::from_nanos(request.at_ns.saturating_sub(started_ns)),
            queued: Duration::ZERO,
        },
        node: NodeId(request.node),
        number: request.number,
        chosen: if request.first == 0 { Chosen::Connection } else { Chosen::Policy },
        tries: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_come_while_the_rings_are_read_wait() {
        let (sender, receiver) = channel();
        let send = || sender.send(ObserverMessage::Reopen).unwrap();
        let received = |read_rings: &dyn Fn()| received_before(&receiver, read_rings).map(|all| all.len());
        send();
        assert_eq!(received(&send), Some(1));
        assert_eq!(received(&|| ()), Some(1));
        assert_eq!(received(&|| ()), Some(0));
        send();
        drop(sender);
        assert_eq!(received_before(&receiver, || ()).map(|all| all.len()), Some(1));
        assert!(received_before(&receiver, || ()).is_none());
    }

    #[test]
    fn waiting_messages_have_a_budget_in_bytes() {
        let asked = RequestSeen {
            flow: Default::default(),
            origin: Seq(1),
            begins: Seq(1),
            head: vec![b'x'; 16 << 10].into(),
            at: Duration::ZERO,
            queued: Duration::ZERO,
        };
        let message = || ObserverMessage::Observations(vec![Observation::Abandoned(asked.clone()); 4]);
        let backlog = Backlog::default();
        let taken = (0..10_000).take_while(|_| backlog.admit(&message())).count();
        assert!((WAITING / (80 << 10)..=WAITING / (64 << 10)).contains(&taken), "{taken}");
        assert_eq!(backlog.dropped.load(Ordering::Relaxed), 4);
        assert!(backlog.admit(&ObserverMessage::Reopen));
        backlog.received(&message());
        assert!(backlog.admit(&message()) && !backlog.admit(&message()));
        (0..taken).for_each(|_| backlog.received(&message()));
        assert_eq!(backlog.waiting.load(Ordering::Relaxed), 0);
    }
}
