//! The thread in which all that is said of requests meets.

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
use switchback_wire::{read_from, sb_express_request};

use super::join::Join;
use super::line::Described;
use super::totals::Sums;
use super::{Asked, Chosen, Finished, Given, Names, Observation};

/// Period at which the thread takes messages and records of the XDP program, and writes the log.
const TURN: Duration = Duration::from_millis(20);
/// How often it gives up what has waited too long.
const SWEEP: Duration = Duration::from_secs(1);
/// Memory of messages that the thread has not taken, in bytes: some 100,000 requests.
const WAITING: usize = 32 << 20;

/// A message of the L7 thread to the observer.
#[derive(Debug)]
pub enum Message {
    /// Observations of requests and responses.
    Seen(Vec<Observation>),
    /// The names of another configuration.
    Names(Arc<Names>),
    /// Another access log, or none.
    Log(Option<AccessLog>),
    /// The file of the log has been renamed.
    Reopen,
}

/// The start of the switch, by three clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// By the clock of the L7 thread.
    pub started: Instant,
    /// By CLOCK_MONOTONIC, which the XDP program reads, in nanoseconds.
    pub monotonic_ns: u64,
    /// By the wall clock.
    pub wall: Timestamp,
}

/// Handle of the observer's thread.
#[derive(Debug)]
pub struct Observer {
    started: Instant,
    sender: Option<Sender<Message>>,
    totals: Arc<Mutex<Totals>>,
    backlog: Arc<Backlog>,
    pace: Arc<Pace>,
    thread: Option<JoinHandle<()>>,
}

/// How far the thread is behind.
#[derive(Debug, Default)]
struct Backlog {
    /// Bytes of messages that have not been taken.
    waiting: AtomicUsize,
    /// Observations that were dropped because of [`WAITING`].
    dropped: AtomicU64,
}

impl Backlog {
    /// Whether there is room for it. What is not an observation always has some.
    fn takes(&self, message: &Message) -> bool {
        if let Message::Seen(observations) = message
            && self.waiting.load(Ordering::Relaxed) >= WAITING
        {
            self.dropped.fetch_add(observations.len() as u64, Ordering::Relaxed);
            return false;
        }
        self.waiting.fetch_add(size(message), Ordering::Relaxed);
        true
    }

    fn taken(&self, message: &Message) {
        self.waiting.fetch_sub(size(message), Ordering::Relaxed);
    }
}

/// Memory that it takes, in bytes.
fn size(message: &Message) -> usize {
    let Message::Seen(observations) = message else { return 0 };
    observations.iter().map(|one| size_of::<Observation>() + one.head().len()).sum()
}

impl Observer {
    /// Opens the log and begins. `rings` are those of the XDP program.
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
        let desk = Desk {
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
            .spawn(move || desk.run(&receiver, &rings))
            .doing(|| "start a thread for the access log")?;
        let started = clock.started;
        Ok(Observer { started, sender: Some(sender), totals, backlog, pace, thread: Some(thread) })
    }

    /// Does not wait: observations that the thread has no room for are lost, and counted.
    pub fn send(&self, message: Message) {
        let Some(sender) = &self.sender else { return };
        self.pace.hurry_if_late(self.started.elapsed());
        if !self.backlog.takes(&message) {
            return;
        }
        // Without a thread nobody wants to know.
        let _ = sender.send(message);
    }

    /// The sums of all that has finished.
    pub fn totals(&self) -> Totals {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Writes what is left.
impl Drop for Observer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // It has said what was wrong.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Desk {
    clock: Clock,
    names: Arc<Names>,
    log: Option<Log>,
    join: Join,
    sums: Sums,
    finished: Vec<Finished>,
    shared: Arc<Mutex<Totals>>,
    backlog: Arc<Backlog>,
    pace: Arc<Pace>,
    /// As it was last seen.
    dropped: u64,
}

impl Desk {
    fn run(mut self, receiver: &Receiver<Message>, rings: &[MapHandle]) {
        let express = std::cell::RefCell::new(Vec::new());
        let mut builder = RingBufferBuilder::new();
        let (monotonic_ns, collect) = (self.clock.monotonic_ns, |given| express.borrow_mut().push(given));
        for ring in rings {
            let read = move |data: &[u8]| {
                express_request(data, monotonic_ns).map(collect);
                0
            };
            if let Err(error) = builder.add(ring, read) {
                eprintln!("switchback: plain requests are missing in the access log: {error}");
            }
        }
        let reader = builder.build();
        let mut swept = Duration::ZERO;
        let mut over = false;
        self.pace.turn(self.clock.started.elapsed());
        self.pace.begin();
        while !over {
            // Woken for every message it would take the CPU from those who serve, hundreds of times as often.
            std::thread::sleep(TURN);
            let now = self.clock.started.elapsed();
            self.pace.turn(now);
            // First, because facts about these requests may have been told already.
            if let Ok(reader) = &reader
                && let Err(error) = reader.consume()
            {
                eprintln!("switchback: cannot read the rings of plain requests: {error}");
            }
            for given in express.borrow_mut().drain(..) {
                self.see(now, Observation::Given(given));
            }
            over = loop {
                match receiver.try_recv() {
                    Ok(message) => self.handle(now, message),
                    Err(why) => break why == TryRecvError::Disconnected,
                }
            };
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

    fn handle(&mut self, now: Duration, message: Message) {
        self.backlog.taken(&message);
        match message {
            Message::Seen(observations) => {
                for observation in observations {
                    if let Observation::Lost(lost) = observation {
                        self.sums.totals.facts_lost += u64::from(lost);
                    }
                    self.see(now, observation);
                }
            }
            Message::Names(names) => {
                self.names = names;
                self.sums.forget_indices();
            }
            Message::Log(config) => {
                if self.log.as_ref().map(Log::config) == config.as_ref() {
                    return;
                }
                self.publish();
                match config.map(Log::open).transpose() {
                    Ok(log) => self.log = log,
                    Err(error) => eprintln!("switchback: the access log stays what it was: {error}"),
                }
            }
            Message::Reopen => self.log.iter_mut().for_each(Log::reopen),
        }
    }

    /// What comes of it is logged at once, while the CPU still has it at hand.
    fn see(&mut self, now: Duration, observation: Observation) {
        self.join.take(now, observation, &mut self.finished);
        self.finish(now);
    }

    /// Logs and counts what has finished.
    fn finish(&mut self, now: Duration) {
        for finished in self.finished.drain(..) {
            let described = Described::new(&finished, &self.names);
            let (service, node) = (described.service, finished.node);
            let pool = described.way.and_then(|way| way.pool);
            let names = [
                service.map_or("", |service| self.names.service(service)),
                pool.map_or("", |pool| self.names.pool(pool).0),
                node.map_or("", |node| self.names.node(node)),
            ];
            self.sums.add(&finished, (service, pool, node), names);
            if let Some(log) = &mut self.log
                && !described.is_told_by_node()
            {
                let at = finished.asked.as_ref().map_or(finished.at, |asked| asked.at);
                log.write(now, &described.line(&self.names, self.clock.wall + at));
            }
        }
    }

    /// Writes what has gathered, and shows the sums.
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

/// A request that the XDP program has forwarded, from its record. It was here for no time, and only its
/// connection has chosen the node.
fn express_request(data: &[u8], started_ns: u64) -> Option<Given> {
    let request: sb_express_request = read_from(data)?;
    let head = data[size_of::<sb_express_request>()..].get(..request.len.into())?;
    Some(Given {
        asked: Asked {
            flow: request.flow,
            origin: request.origin,
            begins: request.begins,
            head: head.into(),
            at: Duration::from_nanos(request.at_ns.saturating_sub(started_ns)),
            queued: Duration::ZERO,
        },
        node: request.node,
        number: request.number,
        chosen: Chosen::Connection,
        tries: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_has_a_budget_in_bytes() {
        let asked = Asked {
            flow: Default::default(),
            origin: 1,
            begins: 1,
            head: vec![b'x'; 16 << 10].into(),
            at: Duration::ZERO,
            queued: Duration::ZERO,
        };
        let message = || Message::Seen(vec![Observation::Abandoned(asked.clone()); 4]);
        let backlog = Backlog::default();
        let taken = (0..10_000).take_while(|_| backlog.takes(&message())).count();
        assert!((WAITING / (80 << 10)..=WAITING / (64 << 10)).contains(&taken), "{taken}");
        assert_eq!(backlog.dropped.load(Ordering::Relaxed), 4);
        assert!(backlog.takes(&Message::Reopen));
        backlog.taken(&message());
        assert!(backlog.takes(&message()) && !backlog.takes(&message()));
        (0..taken).for_each(|_| backlog.taken(&message()));
        assert_eq!(backlog.waiting.load(Ordering::Relaxed), 0);
    }
}
