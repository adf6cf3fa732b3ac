//! Clients with an address each, which ask at a steady rate whether they are answered or not.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use rustls::ClientConnection;
use switchback_lab::{Doing, Host, Result};

use crate::open_loop::quantile;
use crate::tls_load::{self, NAME};

const EVENTS_AT_ONCE: usize = 64;
const READ: usize = 16 << 10;
/// Most fields of a response's head.
const FIELDS: usize = 32;

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    /// A network of 24 bits; its first hosts are the clients.
    pub(super) network: Ipv4Addr,
    pub(super) count: u32,
    /// Requests of each in a second. They take turns, so that requests of all come at equal distances.
    pub(super) rate: f64,
    /// Time in which the clients begin, one after the other.
    pub(super) begin_within: Duration,
    /// Whether a client has one connection as long as the service lets it, rather than one for each request.
    pub(super) keeps: bool,
    /// A TLS client for each; none: they speak plain HTTP.
    pub(super) tls: &'a [tls_load::Client],
    /// How long each waits for an answer.
    pub(super) patience: Duration,
}

/// What has become of a client's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Due.
    pub asked: u64,
    /// Answered 200.
    pub passed: u64,
    /// Answered 429.
    pub refused: u64,
    /// Not answered, or otherwise.
    pub failed: u64,
}

/// What has become of all requests.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// By client.
    pub(super) requests: Vec<Requests>,
    /// When each client has sent its first and its last request.
    sent: Vec<Option<(Instant, Instant)>>,
    /// Milliseconds from the time at which a request was due to the end of its answer 200, in order; without those that
    /// began a kept connection.
    times_ms: Vec<f64>,
}

impl Outcome {
    pub(super) fn sum(&self, of: impl Fn(&Requests) -> u64) -> u64 {
        self.requests.iter().map(of).sum()
    }

    /// Each client's requests, and the time between its first and its last one.
    pub(super) fn clients(&self) -> impl Iterator<Item = (&Requests, Duration)> {
        let time =
            |sent: &Option<(Instant, Instant)>| sent.map_or(Duration::ZERO, |(first, last)| last - first);
        self.requests.iter().zip(self.sent.iter().map(time))
    }

    /// The quantile of the times for this share of the requests; None if none has passed.
    pub(super) fn quantile_ms(&self, part: f64) -> Option<f64> {
        quantile(&self.times_ms, part)
    }
}

impl Sources<'_> {
    /// Asks for `/small` from this host until `duration` is over and each request has been answered or given up.
    pub(super) fn run(&self, host: &Host, server: SocketAddrV4, duration: Duration) -> Result<Outcome> {
        host.enter(|| Load::new(*self, server)?.run(duration))?.doing(|| format!("load {server}"))
    }
}

/// A connection of a client.
struct Open {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    source: usize,
    /// When the request was due that is not answered yet.
    due: Option<Instant>,
    /// Number of requests on the connection.
    number: u32,
    is_sent: bool,
    received: Vec<u8>,
}

/// What has come of a step.
enum Step {
    Waits,
    /// The status, and whether the connection stays.
    Answered(u16, bool),
    Ended,
}

struct Load<'a> {
    sources: Sources<'a>,
    server: SocketAddrV4,
    epoll: Epoll,
    /// By number; None for ended ones.
    open: Vec<Option<Open>>,
    /// The kept connection of each client.
    kept: Vec<Option<usize>>,
    /// When to give up which request of which connection, in order of time.
    deadlines: VecDeque<(Instant, usize, u32)>,
    outcome: Outcome,
}

impl<'a> Load<'a> {
    fn new(sources: Sources<'a>, server: SocketAddrV4) -> io::Result<Load<'a>> {
        let count = sources.count as usize;
        Ok(Load {
            sources,
            server,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            open: Vec::new(),
            kept: vec![None; count],
            deadlines: VecDeque::new(),
            outcome: Outcome {
                requests: vec![Requests::default(); count],
                sent: vec![None; count],
                times_ms: Vec::new(),
            },
        })
    }

    fn run(mut self, duration: Duration) -> io::Result<Outcome> {
        let start = Instant::now();
        let distance = 1.0 / (self.sources.rate * f64::from(self.sources.count));
        let mut events = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let mut turn = 0;
        loop {
            let due = Duration::from_secs_f64(distance * f64::from(turn));
            let due = (due < duration).then(|| start + due);
            if due.is_none() && self.deadlines.is_empty() {
                break;
            }
            if let Some(due) = due.filter(|due| *due <= Instant::now()) {
                let source = turn % self.sources.count;
                let begin = self.sources.begin_within * source / self.sources.count;
                if due - start >= begin {
                    self.ask(source as usize, due)?;
                }
                turn += 1;
            }
            let deadline = self.deadlines.front().map(|(deadline, ..)| *deadline);
            let wait = due.into_iter().chain(deadline).min().unwrap_or(start);
            self.wait(wait.saturating_duration_since(Instant::now()), &mut events)?;
            self.give_up();
        }
        self.outcome.times_ms.sort_by(f64::total_cmp);
        Ok(self.outcome)
    }

    fn wait(&mut self, at_most: Duration, events: &mut [EpollEvent]) -> io::Result<()> {
        // Not epoll_wait, whose timeout is in milliseconds.
        let mut readable = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut readable, Some(at_most.into()), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let count = self.epoll.wait(events, EpollTimeout::ZERO)?;
        events[..count].iter().for_each(|event| self.go_on(event.data() as usize));
        Ok(())
    }

    fn ask(&mut self, source: usize, due: Instant) -> io::Result<()> {
        let requests = &mut self.outcome.requests[source];
        requests.asked += 1;
        let now = Instant::now();
        self.outcome.sent[source].get_or_insert((now, now)).1 = now;
        let kept = self.kept[source].and_then(|number| Some((number, self.open[number].as_mut()?)));
        let number = match kept {
            // It has one request at a time.
            Some((_, open)) if open.due.is_some() => {
                requests.failed += 1;
                return Ok(());
            }
            Some((number, open)) => {
                open.begin(due);
                number
            }
            None => {
                let stream = self.sources.connect(source, self.server)?;
                let number = self.open.len();
                let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                self.epoll.add(&stream, EpollEvent::new(flags, number as u64))?;
                let client = self.sources.tls.get(source);
                let tls = client.map(|client| client.session(b"http/1.1").map(Box::new)).transpose()?;
                let received = Vec::new();
                let mut open = Open { stream, tls, source, due: None, number: 0, is_sent: false, received };
                open.begin(due);
                self.open.push(Some(open));
                if self.sources.keeps {
                    self.kept[source] = Some(number);
                }
                number
            }
        };
        let open = self.open[number].as_ref().map_or(0, |open| open.number);
        self.deadlines.push_back((due + self.sources.patience, number, open));
        self.go_on(number);
        Ok(())
    }

    fn go_on(&mut self, number: usize) {
        let Some(open) = &mut self.open[number] else { return };
        let requests = &mut self.outcome.requests[open.source];
        match open.step() {
            Step::Waits => return,
            Step::Answered(status, stays) => {
                let due = open.due.take().expect("an answer is that to a request");
                match status {
                    200 => requests.passed += 1,
                    429 => requests.refused += 1,
                    _ => requests.failed += 1,
                }
                if status == 200 && (!self.sources.keeps || open.number > 1) {
                    self.outcome.times_ms.push(due.elapsed().as_secs_f64() * 1e3);
                }
                if stays && self.sources.keeps {
                    return;
                }
            }
            Step::Ended => requests.failed += u64::from(open.due.is_some()),
        }
        self.open[number] = None;
    }

    /// Ends connections whose answer is late.
    fn give_up(&mut self) {
        while let Some((deadline, number, request)) = self.deadlines.front().copied() {
            let is_waiting = |open: &&mut Open| open.number == request && open.due.is_some();
            let open = self.open[number].as_mut().filter(is_waiting);
            if open.is_some() && deadline > Instant::now() {
                return;
            }
            if let Some(open) = open {
                self.outcome.requests[open.source].failed += 1;
                self.open[number] = None;
            }
            self.deadlines.pop_front();
        }
    }
}

impl Sources<'_> {
    fn address(&self, source: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() + source as u32 + 1)
    }

    /// A non-blocking socket that connects from the client's address.
    fn connect(&self, source: usize, server: SocketAddrV4) -> io::Result<TcpStream> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
        bind(socket.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(self.address(source), 0)))?;
        match connect(socket.as_raw_fd(), &SockaddrIn::from(server)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Whether a socket is not ready yet.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

impl Open {
    fn begin(&mut self, due: Instant) {
        (self.due, self.is_sent) = (Some(due), false);
        self.number += 1;
    }

    /// Makes all possible progress.
    fn step(&mut self) -> Step {
        match self.try_step() {
            Ok(step) => step,
            Err(error) if is_early(&error) => Step::Waits,
            Err(_) => Step::Ended,
        }
    }

    fn try_step(&mut self) -> io::Result<Step> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.send()?;
        let ended = self.receive()?;
        // What rustls answers to a handshake's messages, and the request behind them.
        self.send()?;
        match self.response()? {
            Some((status, stays)) => Ok(Step::Answered(status, stays && !ended)),
            None if ended => Ok(Step::Ended),
            None => Ok(Step::Waits),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let request = || format!("GET /small HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
        let is_due = self.due.is_some() && !self.is_sent;
        let Some(tls) = &mut self.tls else {
            if is_due {
                self.stream.write_all(request().as_bytes())?;
                self.is_sent = true;
            }
            return Ok(());
        };
        if is_due && !tls.is_handshaking() {
            tls.writer().write_all(request().as_bytes())?;
            self.is_sent = true;
        }
        while tls.wants_write() {
            tls.write_tls(&mut self.stream)?;
        }
        Ok(())
    }

    /// Reads all that has come; true at the end of the stream.
    fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; READ];
        loop {
            let Some(tls) = &mut self.tls else {
                match self.stream.read(&mut bytes) {
                    Ok(0) => return Ok(true),
                    Ok(len) => self.received.extend_from_slice(&bytes[..len]),
                    Err(error) if is_early(&error) => return Ok(false),
                    Err(error) => return Err(error),
                }
                continue;
            };
            let ended = match tls.read_tls(&mut self.stream) {
                Ok(len) => len == 0,
                Err(error) if is_early(&error) => return Ok(false),
                Err(error) => return Err(error),
            };
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            tls.reader().read_exact(&mut plain)?;
            self.received.append(&mut plain);
            if ended {
                return Ok(true);
            }
        }
    }

    /// The answer's status, and whether the connection stays behind it; None if it is not complete.
    fn response(&mut self) -> io::Result<Option<(u16, bool)>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut head = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(len) = head.parse(&self.received).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let field = |name: &str| {
            let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            field.and_then(|field| std::str::from_utf8(field.value).ok())
        };
        let body: usize = field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if self.received.len() < len + body {
            return Ok(None);
        }
        let answer = (head.code.unwrap_or(0), field("connection") != Some("close"));
        self.received.clear();
        Ok(Some(answer))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::*;

    /// Answers each connection's requests with these statuses, and closes behind 429; other connections stay silent.
    fn serve(listener: TcpListener, conversations: Vec<Vec<u16>>) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            let mut silent = Vec::new();
            for statuses in conversations {
                let (stream, _) = listener.accept().expect("somebody connects");
                let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
                for status in &statuses {
                    while !lines.next().expect("a request").expect("text").is_empty() {}
                    let close = if *status == 429 { "Connection: close\r\n" } else { "" };
                    let answer = format!("HTTP/1.1 {status} X\r\n{close}Content-Length: 2\r\n\r\nOK");
                    (&stream).write_all(answer.as_bytes()).expect("the client waits");
                }
                silent.push(stream);
            }
        })
    }

    fn outcome(keeps: bool, rate: f64, conversations: Vec<Vec<u16>>) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let SocketAddr::V4(server) = listener.local_addr().expect("it is bound") else { panic!("IPv4") };
        let server_thread = serve(listener, conversations);
        let network = Ipv4Addr::new(127, 1, 2, 0);
        let patience = Duration::from_millis(300);
        let begin_within = Duration::ZERO;
        let sources = Sources { network, count: 1, rate, begin_within, keeps, tls: &[], patience };
        let outcome = Load::new(sources, server).and_then(|load| load.run(Duration::from_millis(400)));
        server_thread.join().expect("the server does not panic");
        outcome.expect("sockets can be made")
    }

    #[test]
    fn requests_are_counted_by_what_has_become_of_them() {
        let found = outcome(false, 10.0, vec![vec![200], vec![429], vec![503], vec![]]);
        assert_eq!(found.requests, [Requests { asked: 4, passed: 1, refused: 1, failed: 2 }]);
        assert_eq!(found.times_ms.len(), 1, "{found:?}");
    }

    #[test]
    fn a_kept_connection_is_kept_until_it_ends() {
        let found = outcome(true, 10.0, vec![vec![200, 200, 429], vec![200]]);
        assert_eq!(found.requests, [Requests { asked: 4, passed: 3, refused: 1, failed: 0 }]);
        assert_eq!(found.times_ms.len(), 1, "without the first of each connection: {found:?}");
    }
}
