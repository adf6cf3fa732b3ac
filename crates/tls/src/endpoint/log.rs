//! The access log of the requests that come over TLS. The switch cannot read them, so the node that has the
//! connection has the lines, one for each request, whichever node answers it.
//!
//! The task that serves a request fills in an [`Entry`] and never waits: the entry goes to a thread of the
//! log when it is dropped, and is left out, and counted, if the thread is behind. The thread reads the head
//! once more, finds the route, and writes.

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use switchback_access_log::{Ended, Line, Log, Pace, Tls};
use switchback_config::{AccessLog, Action, Protocol};
use switchback_http::{Head, Progress, Version, parse_head};
use switchback_routes::Request;
use zeroize::Zeroizing;

use super::counters::Counter;
use super::flow::Addresses;
use super::local::LocalNode;
use super::services::Service;
use super::stream::TlsStream;
use super::unacknowledged::Unacknowledged;

/// Period at which the thread takes entries and writes lines.
const TURN: Duration = Duration::from_millis(20);
/// Most entries that wait for the thread.
const WAITING: usize = 1 << 15;

/// The log of an endpoint, if it has one.
#[derive(Default)]
pub(super) struct Book {
    writer: RwLock<Option<Writer>>,
    counts: Arc<Counts>,
    /// Whether the endpoint ends, which cuts connections off.
    is_closing: AtomicBool,
}

/// Counts of lines.
#[derive(Debug, Default)]
pub struct Counts {
    /// Lines written.
    pub lines: Counter,
    /// Lines left out because there were too many, or because they could not be written.
    pub lost: Counter,
}

/// Handle of the thread.
struct Writer {
    config: AccessLog,
    sender: Option<Sender<Box<Record>>>,
    common: Arc<Common>,
    started: Instant,
    thread: Option<JoinHandle<()>>,
}

/// State that the thread shares with the tasks that send entries.
#[derive(Default)]
struct Common {
    pace: Pace,
    /// Entries that the thread has not taken.
    waiting: AtomicUsize,
    /// Entries that were dropped, because too many waited.
    dropped: AtomicU64,
    /// Whether to open the file again, because it has been renamed.
    reopen: AtomicBool,
}

impl Book {
    /// Replaces the log. Entries sent before are in the old one.
    pub(super) fn set(&self, config: Option<&AccessLog>) -> io::Result<()> {
        let is_same = self.read(|writer| writer.map(|writer| &writer.config) == config);
        if !is_same {
            let writer = config.map(|config| Writer::start(config.clone(), &self.counts)).transpose()?;
            let mut place = self.writer.write().unwrap_or_else(PoisonError::into_inner);
            let old = std::mem::replace(&mut *place, writer);
            // It waits for the old thread.
            drop(place);
            drop(old);
        }
        Ok(())
    }

    /// Opens the file again, because it has been renamed.
    pub(super) fn reopen(&self) {
        self.read(|writer| {
            writer.iter().for_each(|writer| writer.common.reopen.store(true, Ordering::Relaxed))
        });
    }

    /// Marks the end of the endpoint: connections that are cut off from now on ended neither by client nor
    /// server.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn read<T>(&self, read: impl FnOnce(Option<&Writer>) -> T) -> T {
        read(self.writer.read().unwrap_or_else(PoisonError::into_inner).as_ref())
    }

    fn tell(&self, record: Box<Record>) {
        self.read(|writer| {
            let Some(Writer { sender: Some(sender), common, started, .. }) = writer else { return };
            common.pace.hurry_if_late(started.elapsed());
            if common.waiting.load(Ordering::Relaxed) >= WAITING {
                common.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            common.waiting.fetch_add(1, Ordering::Relaxed);
            // Without a thread nobody wants to know.
            let _ = sender.send(record);
        });
    }
}

impl Writer {
    fn start(config: AccessLog, counts: &Arc<Counts>) -> io::Result<Writer> {
        let log = Log::open(config.clone())?;
        let (sender, receiver) = channel();
        let (common, started) = (Arc::<Common>::default(), Instant::now());
        let desk = Desk { log, started, common: Arc::clone(&common), counts: Arc::clone(counts) };
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        let thread = Some(thread.spawn(move || desk.run(&receiver))?);
        Ok(Writer { config, sender: Some(sender), common, started, thread })
    }
}

/// Writes the lines that are left.
impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // It has said what was wrong.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Desk {
    log: Log,
    started: Instant,
    common: Arc<Common>,
    counts: Arc<Counts>,
}

impl Desk {
    fn run(mut self, receiver: &Receiver<Box<Record>>) {
        self.common.pace.turn(self.started.elapsed());
        self.common.pace.begin();
        let mut over = false;
        while !over {
            // Woken for every entry it would take the CPU from those who serve, hundreds of times as often.
            std::thread::sleep(TURN);
            let (now, wall) = (Instant::now(), Timestamp::now());
            let since = now.duration_since(self.started);
            self.common.pace.turn(since);
            over = loop {
                match receiver.try_recv() {
                    Ok(record) => {
                        self.common.waiting.fetch_sub(1, Ordering::Relaxed);
                        let time = wall - now.saturating_duration_since(record.at);
                        record.write(&mut self.log, since, time);
                    }
                    Err(why) => break why == TryRecvError::Disconnected,
                }
            };
            self.log.lose(self.common.dropped.swap(0, Ordering::Relaxed));
            self.log.flush();
            if self.common.reopen.swap(false, Ordering::Relaxed) {
                self.log.reopen();
            }
            let (lines, lost) = self.log.take_counts();
            self.counts.lines.add(lines);
            self.counts.lost.add(lost);
        }
    }
}

/// Fields of the lines of one connection.
pub(super) struct Connection {
    book: Arc<Book>,
    node: Arc<LocalNode>,
    flow: Addresses,
    tls_version: Option<&'static str>,
    server_name: Option<Arc<str>>,
    unacknowledged: Arc<Unacknowledged>,
}

impl Connection {
    pub(super) fn new(client: &TlsStream, node: &Arc<LocalNode>, book: &Arc<Book>) -> Self {
        let server_name = client.session.facts().server_name.as_deref();
        Connection {
            book: Arc::clone(book),
            node: Arc::clone(node),
            flow: (client.client, client.vip),
            tls_version: client.session.version().map(crate::Version::name),
            server_name: server_name.map(Arc::from),
            unacknowledged: Arc::clone(client.socket.lines()),
        }
    }

    /// The entry of a request, or the part of one that came, which goes by this service; `text` is its head in the form of
    /// HTTP/1.1.
    pub(super) fn request(&self, service: &Arc<Service>, spoken: Protocol, text: &[u8]) -> Entry {
        let is_wanted = self.book.read(|writer| writer.is_some());
        let at = Instant::now();
        Entry {
            record: is_wanted.then(|| Box::new(self.record(service, spoken, text, at))),
            book: Arc::clone(&self.book),
            unacknowledged: Arc::clone(&self.unacknowledged),
            at,
            end: None,
            answer: Answer::default(),
        }
    }

    /// Logs the end of a connection without a request; `error` is that of a failed handshake.
    pub(super) fn without_request(&self, service: &Arc<Service>, error: Option<String>) {
        let mut entry = self.request(service, Protocol::Http11, &[]);
        if let Some(record) = &mut entry.record {
            record.error = error;
        }
    }

    fn record(&self, service: &Arc<Service>, spoken: Protocol, text: &[u8], at: Instant) -> Record {
        Record {
            service: Arc::clone(service),
            node: Arc::clone(&self.node),
            flow: self.flow,
            tls_version: self.tls_version,
            server_name: self.server_name.clone(),
            spoken,
            text: Zeroizing::new(text.to_vec()),
            at,
            ended: at,
            was_given: false,
            end: Ended::ByClient,
            error: None,
            answer: Answer::default(),
        }
    }
}

/// Facts about a response.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// When the server that answers got the request.
    begun: Option<Instant>,
    /// Node of that server.
    node: Option<Arc<str>>,
    /// Nodes that had the request before.
    tries: u32,
    status: Option<u16>,
    first_byte: Option<Instant>,
    pub(super) bytes: u64,
    /// Bytes of those that come before the body.
    pub(super) head_bytes: u32,
}

impl Answer {
    /// The request is given to the server of this node; after another one, if that has not answered.
    pub(super) fn begin(&mut self, node: &Arc<str>) {
        let tries = self.tries + u32::from(self.begun.is_some());
        *self =
            Answer { begun: Some(Instant::now()), node: Some(Arc::clone(node)), tries, ..Answer::default() };
    }

    /// Sets the node of the server.
    pub(super) fn set_node(&mut self, node: &Arc<str>) {
        self.node = Some(Arc::clone(node));
    }

    /// Status of the response, if one has come.
    pub(super) fn status(&self) -> Option<u16> {
        self.status
    }

    /// Sets the status of the response.
    pub(super) fn has_status(&mut self, status: u16) {
        self.first_byte.get_or_insert_with(Instant::now);
        self.status = Some(status);
    }

    /// Counts bytes sent on; those of the head come first.
    pub(super) fn sent(&mut self, len: usize, is_head: bool) {
        self.first_byte.get_or_insert_with(Instant::now);
        self.bytes += len as u64;
        if is_head {
            self.head_bytes += len as u32;
        }
    }
}

/// The entry of a request. When it is dropped, its line is written, or waits until the client has acknowledged the
/// response. By default the client was gone before the end.
pub(super) struct Entry {
    /// None if there is no log.
    record: Option<Box<Record>>,
    book: Arc<Book>,
    unacknowledged: Arc<Unacknowledged>,
    /// Arrival of the request.
    pub(super) at: Instant,
    end: Option<Ended>,
    pub(super) answer: Answer,
}

impl Entry {
    /// Sets the head, if it was not known at first.
    pub(super) fn has_head(&mut self, text: &[u8]) {
        if let Some(record) = &mut self.record {
            record.text = Zeroizing::new(text.to_vec());
        }
    }

    /// Marks a request whose connection was moved here for it; it came to the other node at `asked`.
    pub(super) fn was_given(&mut self, asked: Instant) {
        self.at = asked;
        self.answer.tries += 1;
        if let Some(record) = &mut self.record {
            record.was_given = true;
        }
    }

    /// Marks a response of this node itself.
    pub(super) fn is_answered(&mut self, status: u16) {
        self.answer.has_status(status);
        // What a server has not answered is its doing.
        let is_given = self.answer.begun.is_some() && status >= 500;
        self.ends(if is_given { Ended::ByServer } else { Ended::Complete });
    }

    /// Sets how the request ends; the first call counts.
    pub(super) fn ends(&mut self, end: Ended) {
        self.end.get_or_insert(end);
    }

    /// Marks a request whose connection was lost on its way to this node.
    pub(super) fn lose(mut self, node: &str) {
        self.answer.begin(&node.into());
        self.ends(Ended::Unknown);
    }

    /// Drops the entry without a line: another node logs it, or it was refused unread.
    pub(super) fn forget(mut self) {
        self.record = None;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        (record.at, record.ended) = (self.at, Instant::now());
        record.answer = std::mem::take(&mut self.answer);
        let sent = Sent { record, book: Arc::clone(&self.book) };
        match self.end {
            Some(Ended::Complete) => self.unacknowledged.add(sent),
            end => sent.tell(end.unwrap_or(Ended::ByClient)),
        }
    }
}

/// The line of a request whose response has been sent, as far as it was.
pub(super) struct Sent {
    record: Box<Record>,
    book: Arc<Book>,
}

impl Sent {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Record>() + self.record.text.len()
    }

    /// Has the line written, with this end.
    pub(super) fn tell(mut self, end: Ended) {
        let is_cut_off = end == Ended::ByClient && self.book.is_closing.load(Ordering::Relaxed);
        self.record.end = if is_cut_off { Ended::Unknown } else { end };
        self.book.tell(self.record);
    }
}

/// A message to the thread.
struct Record {
    service: Arc<Service>,
    /// Where the client is connected.
    node: Arc<LocalNode>,
    flow: Addresses,
    tls_version: Option<&'static str>,
    server_name: Option<Arc<str>>,
    spoken: Protocol,
    /// The head of the request; empty if there was none. Erased after use.
    text: Zeroizing<Vec<u8>>,
    at: Instant,
    ended: Instant,
    /// Whether its connection was moved here for it.
    was_given: bool,
    end: Ended,
    error: Option<String>,
    answer: Answer,
}

impl Record {
    /// Writes the line; `now` is since the start of the log, `time` the arrival of the request.
    fn write(&self, log: &mut Log, now: Duration, time: Timestamp) {
        let Record { service, answer, .. } = self;
        let head = self.head();
        let client = self.flow.0.ip();
        let place = |head| service.routes.place_over(&Request { head, client }, self.spoken).ok()?;
        let route = head.as_ref().and_then(place);
        let pool = route.and_then(|route| match service.routes.action(route) {
            Action::Pool(pool) => Some(*pool),
            action => service.pool_with(action, &self.node.name),
        });
        let pool = pool.and_then(|pool| service.pool_names.get(&pool));
        let node = answer.node.as_ref();
        let is_handed_over = self.was_given || node != Some(&self.node.name);
        let since = |later: Option<Instant>| Some(later?.saturating_duration_since(answer.begun?));
        log.write(
            now,
            &Line {
                time,
                client: self.flow.0,
                vip: self.flow.1,
                service: Some(&service.name),
                head: head.as_ref(),
                first_line: self.first_line(),
                tls: Some(Tls { version: self.tls_version, server_name: self.server_name.as_deref() }),
                route: route.map(|route| route + 1),
                pool: pool.map(|(name, policy)| (&**name, *policy)),
                node: node.map(|node| &**node),
                chosen_by: node.map(|_| if is_handed_over { "hand-over" } else { "connection" }),
                tries: answer.tries,
                queued: answer.begun.map(|begun| begun.saturating_duration_since(self.at)),
                first_byte: since(answer.first_byte),
                duration: since(Some(self.ended)),
                status: answer.status,
                bytes: answer.bytes,
                head_bytes: answer.head_bytes,
                end: self.end,
                error: self.error.as_deref(),
            },
        );
    }

    fn head(&self) -> Option<Head<'_>> {
        let Ok(Progress::Complete(mut head)) = parse_head(&self.text, &self.service.limits.http) else {
            return None;
        };
        if self.spoken == Protocol::Http2 {
            // It was written as HTTP/1.1 for the parser.
            head.version = Version::Http2;
        }
        Some(head)
    }

    fn first_line(&self) -> Option<Cow<'_, str>> {
        let text = self.text.strip_prefix(b"\r\n").unwrap_or(&self.text);
        let end = text.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(text.len());
        let line = String::from_utf8_lossy(&text[..end]);
        match line.strip_suffix(" HTTP/1.1").filter(|_| self.spoken == Protocol::Http2) {
            Some(line) => Some(format!("{line} HTTP/2.0").into()),
            None => Some(line).filter(|line| !line.is_empty()),
        }
    }
}
