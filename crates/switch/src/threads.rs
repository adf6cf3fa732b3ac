//! The L7 threads. Each has the flows of a hash, with a dispatcher, rings and sockets of its own; there is no lock between
//! them. The first has also all that belongs to no flow: it talks with the nodes' agents, writes the program's tables and
//! answers commands. What it hears of the nodes it tells the others.

mod other;
mod others;

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use switchback_runtime::{Doing, Error, Result};
use switchback_tls::endpoint::Mirrors;
use switchback_wire::{read_from, sb_record};

use crate::dispatch::{Dispatcher, Heard, Moment, Stats};
use crate::observe::{ObserverMessage, Reporter};
use crate::program::l7::L7Access;
use crate::sender::Sender;

pub use others::{Others, PlanParts, Start};

/// Records after which output is sent although more records wait.
const FLUSH_AT: usize = 64;
/// The number of the rings among the event sources.
const RINGS: u64 = u64::MAX;

/// Statistics of a thread.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Those of the dispatcher.
    pub stats: Stats,
    /// Packets that the kernel did not take.
    pub send_failed: u64,
}

/// A dispatcher with its flow maps and sockets.
pub struct Worker<'a> {
    /// The dispatcher.
    pub dispatcher: Dispatcher,
    sender: Sender,
    /// Where requests are reported; None without access log and metrics.
    reporter: Option<Reporter>,
    /// Where copies of requests go.
    mirrors: Arc<Mirrors>,
    access: L7Access<'a>,
    started: Instant,
    /// Records since the last flush.
    batch: usize,
}

impl<'a> Worker<'a> {
    /// A worker whose time begins at `started`.
    pub fn new(
        dispatcher: Dispatcher,
        access: L7Access<'a>,
        (sender, mirrors): (Sender, Arc<Mirrors>),
        started: Instant,
    ) -> Self {
        Worker { dispatcher, reporter: None, sender, mirrors, access, started, batch: 0 }
    }

    /// The rings of this thread.
    pub fn rings(&self) -> &'a [MapHandle] {
        self.access.rings
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Has the dispatcher work on something now.
    pub fn with<T>(&mut self, work: impl FnOnce(&mut Dispatcher, Moment<'_>) -> T) -> T {
        let at = Moment {
            now: self.started.elapsed(),
            map: &|flow| self.access.flow(flow),
            take: &|wishes| self.access.take_tokens(wishes),
        };
        work(&mut self.dispatcher, at)
    }

    /// Handles a record of a flow's packet.
    pub fn on_record(&mut self, record: &sb_record, packet: &[u8]) {
        self.with_record(|dispatcher, at| dispatcher.on_record(at, record, packet));
    }

    /// Has the dispatcher work on a record.
    pub fn with_record(&mut self, work: impl FnOnce(&mut Dispatcher, Moment<'_>)) {
        self.with(work);
        self.batch += 1;
    }

    /// Sets where requests are reported.
    pub fn set_reporter(&mut self, reporter: Option<Reporter>) {
        self.dispatcher.set_observes(reporter.is_some());
        self.reporter = reporter;
    }

    /// Its statistics.
    pub fn counts(&self) -> Counts {
        Counts { stats: self.dispatcher.stats.clone(), send_failed: self.sender.failed }
    }

    /// Whether the output should not wait for more records.
    pub fn is_full(&self) -> bool {
        self.batch >= FLUSH_AT
    }

    /// Carries out the dispatcher's output. The result is what other threads must know.
    pub fn flush(&mut self) -> Vec<Heard> {
        self.batch = 0;
        let output = &mut self.dispatcher.output;
        if output.is_empty() {
            return Vec::new();
        }
        if let Err(error) = self.access.change_flows(&output.changes) {
            log::error!("{error}");
        }
        self.sender.send(output.packets());
        if let Err(error) = self.access.change_flows(&output.moves) {
            log::error!("{error}");
        }
        if let Some(reporter) = self.reporter.as_ref().filter(|_| !output.observed.is_empty()) {
            reporter.send(ObserverMessage::Observations(std::mem::take(&mut output.observed)));
        }
        output.copies.drain(..).for_each(|(agent, copy)| self.mirrors.send(agent, copy));
        let heard = std::mem::take(&mut output.heard);
        output.clear();
        heard
    }
}

/// A record and its packet; None if it is too short.
pub fn read_record(data: &[u8]) -> Option<(sb_record, &[u8])> {
    let record = read_from::<sb_record>(data)?;
    let packet = &data[size_of::<sb_record>()..];
    let len = (record.len as usize).min(packet.len());
    Some((record, &packet[..len]))
}

/// What a thread does besides waiting.
pub trait Work<'a> {
    /// Handles a ring buffer record.
    fn on_record(&mut self, data: &[u8]);
    /// Does the work that is due.
    fn on_time(&mut self);
    /// Time until the next deadline.
    fn timeout(&self) -> Duration;
    /// The thread's worker.
    fn worker(&self) -> &Worker<'a>;
}

/// The loop of a thread: reads records, and waits for them, other events and deadlines.
pub struct Loop<'w, W> {
    work: &'w RefCell<W>,
    rings: RingBuffer<'w>,
    epoll: Epoll,
}

impl<'w, 'a: 'w, W: Work<'a>> Loop<'w, W> {
    /// A loop that reads these rings, and knows other event sources by these numbers.
    pub fn new(
        work: &'w RefCell<W>,
        rings: impl Iterator<Item = &'w MapHandle>,
        others: &[(BorrowedFd<'_>, u64)],
    ) -> Result<Self> {
        let mut builder = RingBufferBuilder::new();
        for ring in rings {
            let read = |data: &[u8]| {
                work.borrow_mut().on_record(data);
                0
            };
            builder.add(ring, read).doing(|| "read a ring")?;
        }
        let rings = builder.build().doing(|| "read the rings")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).doing(|| "make an epoll instance")?;
        // SAFETY: the descriptor belongs to `rings`, which lives as long as `epoll`.
        let ring_fd = unsafe { BorrowedFd::borrow_raw(rings.epoll_fd()) };
        for (fd, number) in others.iter().chain(&[(ring_fd.as_fd(), RINGS)]) {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, *number)).doing(|| "watch descriptors")?;
        }
        Ok(Loop { work, rings, epoll })
    }

    /// Handles all records in the rings, sleeps until the next event or deadline, and returns the other event sources.
    pub fn turn(&self) -> Result<Vec<u64>> {
        let set_awake = |awake| self.work.borrow().worker().access.set_awake(awake);
        // A record may arrive before we sleep and be read here; the program then still considers this thread awake.
        loop {
            set_awake(false);
            self.read()?;
            if !self.work.borrow().worker().access.is_awake() {
                break;
            }
        }
        // Rounded up: a shorter timeout would spin until the deadline.
        let ms = self.work.borrow().timeout().as_micros().div_ceil(1000);
        let mut events = [EpollEvent::empty(); 4];
        let timeout = EpollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX));
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::Error::EINTR) => 0,
            Err(error) => return Err(Error::cannot("wait for events", error)),
        };
        set_awake(true);
        self.read()?;
        Ok(events[..count].iter().map(EpollEvent::data).filter(|number| *number != RINGS).collect())
    }

    fn read(&self) -> Result<()> {
        self.rings.consume().doing(|| "read the rings")?;
        self.work.borrow_mut().on_time();
        Ok(())
    }
}
