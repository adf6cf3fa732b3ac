//! The load of one client machine: connections of all kinds on one thread, each of which begins again after it has
//! broken, until the load is ended.
//!
//! What a client sees as a pause is the longest time in which it waits and no byte comes: for a short request the time to
//! its response, for each second of a transfer the longest gap, beyond the pace that the client has given it.

mod connection;
mod http2;
mod kind;
mod talk;
mod web_socket;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::super::open_loop::uniform;
use super::super::tls_load::{Client, NAME};
use connection::{Connection, READ};
pub use kind::Kind;
use kind::Numbers;
pub(super) use kind::kind_of;
pub(super) use talk::{PADDING, short_body};
pub(super) use web_socket::{accepted, append_frame, frame};

/// From one part of a paced transfer to the next.
const TICK: Duration = Duration::from_millis(200);
/// Parts of a transfer in a second.
const TICKS_IN_SLICE: u32 = 5;
/// The time after which a client that waits gives up.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
/// The time within which a client that has lost its connection makes another one.
const AGAIN: Duration = Duration::from_secs(1);
/// From one search for connections that wait too long to the next.
const SWEEP: Duration = Duration::from_millis(250);
const EVENTS_AT_ONCE: usize = 256;

/// The load of a client machine.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The addresses of the services, of which connections use each in turn.
    pub(super) vips: [IpAddr; 2],
    /// Number of connections of each kind, in the order of [`Kind::ALL`].
    pub(super) counts: [u32; Kind::ALL.len()],
    /// The document `/long`.
    pub(super) text: Arc<[u8]>,
    /// Bytes of an upload, the first of `text`.
    pub(super) upload: usize,
    /// What TLS clients trust.
    pub(super) tls: Client,
    /// This client machine among all of them.
    pub(super) client: usize,
    pub(super) clients: usize,
    /// When the time of [`Answer`] and [`Break`] begins.
    pub(super) start: Instant,
    /// The time in which the connections begin.
    pub(super) ramp: Duration,
    /// The mean time after which a client ends a connection by itself, as soon as that is idle, and makes another one.
    pub(super) life: Option<Duration>,
}

/// What the clients are told while they run.
#[derive(Debug, Default)]
pub(super) struct Signal {
    /// To ask for nothing more, and to go when what is under way has come: a short response whole, of a transfer one byte.
    pub(super) end: AtomicBool,
    /// To go at once.
    pub(super) abort: AtomicBool,
}

/// How a connection ended before its client wanted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Reset, or refused by an alert.
    Reset,
    /// Closed by the server.
    Closed,
    /// Nothing came for the time that a client waits.
    Timeout,
    /// Another status than 200; 0 if it is not known.
    Status(u16),
    /// Wrong bytes.
    Wrong,
}

/// An answered request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) number: u64,
    pub(super) at: Duration,
    /// The longest wait in it.
    pub(super) pause: Duration,
}

/// A second of a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) kind: Kind,
    pub(super) at: Duration,
    /// The longest wait in it; of one that has begun before, all.
    pub(super) pause: Duration,
}

/// A broken connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Break {
    pub(super) kind: Kind,
    pub(super) how: How,
    pub(super) at: Duration,
    /// How long the client had waited then.
    pub(super) waited: Duration,
    /// The client's port.
    pub(super) port: u16,
}

/// What the clients of a machine have seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) answers: Vec<Answer>,
    pub(super) slices: Vec<Slice>,
    pub(super) breaks: Vec<Break>,
    /// Connections of each kind that could not be made.
    pub(super) unconnected: [u64; Kind::ALL.len()],
}

impl Seen {
    pub(super) fn add(&mut self, other: Seen) {
        self.answers.extend(other.answers);
        self.slices.extend(other.slices);
        self.breaks.extend(other.breaks);
        for (sum, more) in self.unconnected.iter_mut().zip(other.unconnected) {
            *sum += more;
        }
    }
}

/// Loads the service from this thread's network until the signal. Says when it has a table of file descriptors of its
/// own. That is a copy, which holds open what is open then, so no other thread may have a pipe to a process before.
pub(super) fn run(plan: &Plan, signal: &Signal, ready: Sender<()>) -> io::Result<Seen> {
    // The limit of open files is one of each table, and a process may have fewer than there are connections.
    unshare(CloneFlags::CLONE_FILES)?;
    let load = Load::new(plan)?;
    // Nobody listens after an error.
    let _ = ready.send(());
    drop(ready);
    load.run(signal)
}

struct Slot {
    kind: Kind,
    connection: Option<Connection>,
    /// When its client ends the connection.
    until: Option<Instant>,
    /// What epoll waits for.
    interest: EpollFlags,
    /// The number of its only valid timer.
    timer: u64,
    /// Parts of a transfer in this second.
    ticks: u32,
}

struct Load<'a> {
    plan: &'a Plan,
    epoll: Epoll,
    slots: Vec<Slot>,
    timers: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    numbers: Numbers,
    random: u64,
    buffer: Vec<u8>,
    answered: Vec<(u64, Duration)>,
    is_ending: bool,
    seen: Seen,
}

impl<'a> Load<'a> {
    fn new(plan: &'a Plan) -> io::Result<Load<'a>> {
        let interest = EpollFlags::empty();
        let slot = |kind| Slot { kind, connection: None, until: None, interest, timer: 0, ticks: 0 };
        let kinds = Kind::ALL.into_iter().zip(plan.counts);
        let kinds = kinds.flat_map(|(kind, count)| std::iter::repeat_n(kind, count as usize));
        let mut load = Load {
            plan,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            slots: kinds.map(slot).collect(),
            timers: BinaryHeap::new(),
            numbers: Numbers::of_client(plan.client, plan.clients),
            random: plan.client as u64,
            buffer: vec![0; READ],
            answered: Vec::new(),
            is_ending: false,
            seen: Seen::default(),
        };
        let now = Instant::now();
        for index in 0..load.slots.len() {
            let at = now + load.part_of(plan.ramp);
            load.set_timer(index, at);
        }
        Ok(load)
    }

    fn run(mut self, signal: &Signal) -> io::Result<Seen> {
        let mut sweep = Instant::now();
        let mut deadline = None;
        while !signal.abort.load(Ordering::Relaxed) {
            let now = Instant::now();
            if !self.is_ending && signal.end.load(Ordering::Relaxed) {
                self.wind_down();
                deadline = Some(now + TIMEOUT + SWEEP + SWEEP);
            }
            while let Some(&Reverse((at, index, timer))) = self.timers.peek()
                && at <= now
            {
                self.timers.pop();
                if self.slots[index].timer == timer {
                    self.fire(index)?;
                }
            }
            if now >= sweep {
                self.sweep(now);
                sweep = now + SWEEP;
                let is_over = self.is_ending && self.slots.iter().all(|slot| slot.connection.is_none());
                if is_over || deadline.is_some_and(|deadline| now >= deadline) {
                    break;
                }
            }
            let next = self.timers.peek().map_or(sweep, |Reverse((at, ..))| sweep.min(*at));
            self.wait(next)?;
        }
        Ok(self.seen)
    }

    /// Waits for events until `until`, and handles them.
    fn wait(&mut self, until: Instant) -> io::Result<()> {
        let wait = until.saturating_duration_since(Instant::now());
        let mut readable = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut readable, Some(wait.into()), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO)?;
        for event in &events[..count] {
            let index = event.data() as usize;
            if event.events().intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP)
                && let Some(connection) = &mut self.slots[index].connection
            {
                connection.hurry();
            }
            self.go_on(index)?;
        }
        Ok(())
    }

    /// Closes what is idle. From now on every connection is closed as soon as it is well.
    fn wind_down(&mut self) {
        self.is_ending = true;
        for slot in &mut self.slots {
            slot.connection.take_if(|connection| connection.is_idle());
            if let Some(connection) = &mut slot.connection {
                connection.has_moved = false;
            }
        }
    }

    /// Gives up on those that have waited too long.
    fn sweep(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let waited = self.slots[index].connection.as_ref().map(|connection| connection.waited(now));
            if waited.is_some_and(|waited| waited >= TIMEOUT) {
                self.end(index, How::Timeout);
            }
        }
    }

    /// It is time for a connection, for a request, or for the next part of one.
    fn fire(&mut self, index: usize) -> io::Result<()> {
        let now = Instant::now();
        let slot = &mut self.slots[index];
        let kind = slot.kind;
        let is_over = slot.until.is_some_and(|until| now >= until);
        slot.connection.take_if(|connection| is_over && connection.is_idle());
        let Some(connection) = &mut slot.connection else {
            if !self.is_ending {
                self.begin(index, now)?;
            }
            return Ok(());
        };
        if connection.is_idle() && !self.is_ending {
            connection.ask(&mut self.numbers, now);
        }
        connection.tick(now);
        if kind.is_transfer() {
            slot.ticks += 1;
            if slot.ticks == TICKS_IN_SLICE {
                slot.ticks = 0;
                let (at, pause) = (self.plan.start.elapsed(), connection.take_pause(now));
                self.seen.slices.push(Slice { kind, at, pause });
            }
            self.set_timer(index, now + TICK);
        }
        self.go_on(index)
    }

    fn begin(&mut self, index: usize, now: Instant) -> io::Result<()> {
        let (plan, kind) = (self.plan, self.slots[index].kind);
        let tls = match kind {
            Kind::TlsHttp1 => Some(plan.tls.session(b"http/1.1")?),
            Kind::TlsHttp2 => Some(plan.tls.session(b"h2")?),
            _ => None,
        };
        let vip = plan.vips[index % plan.vips.len()];
        let server = SocketAddr::new(vip, if kind.is_tls() { 443 } else { 80 });
        let host = match vip {
            _ if kind.is_tls() => NAME.to_owned(),
            IpAddr::V4(vip) => vip.to_string(),
            IpAddr::V6(vip) => format!("[{vip}]"),
        };
        let talk = talk::talk(kind, &host, &plan.text, plan.upload);
        let Ok(mut connection) = Connection::begin(kind, server, tls.map(Box::new), talk, now) else {
            self.seen.unconnected[kind.index()] += 1;
            self.begin_later(index);
            return Ok(());
        };
        connection.ask(&mut self.numbers, now);
        connection.tick(now);
        let until = plan.life.map(|life| now + life / 2 + self.part_of(life));
        let slot = &mut self.slots[index];
        slot.until = until;
        slot.interest = connection.interest();
        self.epoll.add(connection.stream(), EpollEvent::new(slot.interest, index as u64))?;
        slot.connection = Some(connection);
        if kind.is_transfer() {
            self.set_timer(index, now + TICK);
        }
        Ok(())
    }

    /// Lets a connection make progress, and records what that brings.
    fn go_on(&mut self, index: usize) -> io::Result<()> {
        let slot = &mut self.slots[index];
        let Some(connection) = &mut slot.connection else { return Ok(()) };
        let was_idle = connection.is_idle();
        let result = connection.go_on(&mut self.buffer, &mut self.answered);
        let at = self.plan.start.elapsed();
        let answers = self.answered.drain(..).map(|(number, pause)| Answer { number, at, pause });
        self.seen.answers.extend(answers);
        if let Err(how) = result {
            self.end(index, how);
            return Ok(());
        }
        let is_idle = connection.is_idle();
        let is_well = is_idle || slot.kind.is_transfer() && connection.has_moved;
        let (is_over, interest) = (connection.is_over(), connection.interest());
        if self.is_ending && is_well {
            slot.connection = None;
            return Ok(());
        }
        if is_over {
            slot.connection = None;
        } else if slot.interest != interest {
            slot.interest = interest;
            self.epoll.modify(connection.stream(), &mut EpollEvent::new(interest, index as u64))?;
        }
        if is_idle && !was_idle && !slot.kind.is_transfer() {
            let pause = pause_between(slot.kind);
            let at = Instant::now() + pause / 2 + self.part_of(pause);
            self.set_timer(index, at);
        }
        Ok(())
    }

    /// Records the end of a connection that its client did not want.
    fn end(&mut self, index: usize, how: How) {
        let slot = &mut self.slots[index];
        let Some(connection) = slot.connection.take() else { return };
        if connection.is_connected() {
            let port = connection.stream().local_addr().map_or(0, |address| address.port());
            let waited = connection.waited(Instant::now());
            let at = self.plan.start.elapsed();
            self.seen.breaks.push(Break { kind: slot.kind, how, at, waited, port });
        } else {
            self.seen.unconnected[slot.kind.index()] += 1;
        }
        self.begin_later(index);
    }

    fn begin_later(&mut self, index: usize) {
        let at = Instant::now() + self.part_of(AGAIN);
        self.set_timer(index, at);
    }

    fn set_timer(&mut self, index: usize, at: Instant) {
        let slot = &mut self.slots[index];
        slot.timer += 1;
        self.timers.push(Reverse((at, index, slot.timer)));
    }

    /// A random part of a time.
    fn part_of(&mut self, time: Duration) -> Duration {
        time.mul_f64(uniform(&mut self.random))
    }
}

/// The mean time from an answer to the next request.
fn pause_between(kind: Kind) -> Duration {
    match kind {
        Kind::KeepAlive => Duration::from_secs(10),
        _ => Duration::from_millis(500),
    }
}
