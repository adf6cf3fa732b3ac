//! A client that opens connections at given times, whether or not earlier ones have ended.
//!
//! A client with a fixed number of connections, such as wrk, waits for slow answers before it asks again, and so hides
//! that a server is overloaded. httperf, used by the paper on accept queues, does not; but it polls without sleeping,
//! which takes one of the CPUs that servers and switch need here. This client sleeps between events, and measures the
//! same time: from the first packet to the end of the connection.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use switchback_lab::{Doing, Host, Result};

/// Time after which a connection must have lost a packet: Linux retransmits after 200 ms at the earliest.
pub const STALL: Duration = Duration::from_millis(200);
const EVENTS_AT_ONCE: usize = 64;
const GOOD: &[u8] = b"HTTP/1.1 200 ";

/// Connections with one request each, which the server ends.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoop {
    /// Number of connections.
    pub connections: u32,
    /// Connections begun per second.
    pub rate: f64,
    /// The seed of the start times, a Poisson process; None: equal intervals.
    pub poisson: Option<u64>,
    /// The requested path.
    pub path: &'static str,
    /// Time after which a connection has failed.
    pub timeout: Duration,
}

/// The outcome of the connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Connections {
    /// Times from the first packet to the end of the connection, in ms, of all with status 200; in order of time.
    pub times_ms: Vec<f64>,
    /// Times from the planned to the real start of each connection, in ms; in order of time. The client is late if it waits
    /// for a CPU.
    pub delays_ms: Vec<f64>,
    /// The failed connections.
    pub failures: Failures,
}

/// Failed connections, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Timed out.
    pub timeout: u64,
    /// Refused.
    pub refused: u64,
    /// Reset.
    pub reset: u64,
    /// Another status than 200, or an error at the client.
    pub other: u64,
}

impl Failures {
    /// The sum of all causes.
    pub fn total(&self) -> u64 {
        self.timeout + self.refused + self.reset + self.other
    }
}

impl Connections {
    /// The mean of the times; None if there are none.
    pub fn average_ms(&self) -> Option<f64> {
        let sum: f64 = self.times_ms.iter().sum();
        (!self.times_ms.is_empty()).then(|| sum / self.times_ms.len() as f64)
    }

    /// The quantile of the times for this share of connections; None if there are none.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        quantile(&self.times_ms, part)
    }

    /// The quantile of the delays for this share of connections; None if there are none.
    pub fn delay_ms(&self, part: f64) -> Option<f64> {
        quantile(&self.delays_ms, part)
    }

    /// Number of connections that took longer than [`STALL`].
    pub fn stalls(&self) -> u64 {
        let stall_ms = STALL.as_secs_f64() * 1e3;
        (self.times_ms.len() - self.times_ms.partition_point(|ms| *ms <= stall_ms)) as u64
    }
}

/// The quantile by rank.
pub(super) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

impl OpenLoop {
    /// Loads the servers, which get connections in turn, until every connection has ended or has failed.
    pub fn run(&self, client: &Host, servers: &[SocketAddr]) -> Result<Connections> {
        client.enter(|| Load::new(self, servers)?.run())?.doing(|| format!("load {servers:?}"))
    }

    /// The start times of the connections.
    fn begins(&self) -> VecDeque<Duration> {
        let mut state = self.poisson.unwrap_or_default();
        let mut at = 0.0;
        let next = || {
            let time = Duration::from_secs_f64(at);
            let distance = if self.poisson.is_some() { -(1.0 - uniform(&mut state)).ln() } else { 1.0 };
            at += distance / self.rate;
            time
        };
        std::iter::repeat_with(next).take(self.connections as usize).collect()
    }
}

/// A non-blocking socket that connects.
pub(super) fn connecting(server: SocketAddr) -> std::io::Result<TcpStream> {
    let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(server)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// A random number from 0 to below 1 (splitmix64).
pub(super) fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((value ^ (value >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// A connection that has begun.
struct Active {
    stream: TcpStream,
    begun: Instant,
    asked: bool,
    /// The first received bytes.
    start: Vec<u8>,
}

/// How a connection ended.
enum End {
    Answered,
    Refused,
    Reset,
    Other,
}

struct Load {
    /// The servers, each with the request to it.
    servers: Vec<(SocketAddr, String)>,
    timeout: Duration,
    epoll: Epoll,
    /// Start times of connections, from the start of the load.
    begins: VecDeque<Duration>,
    /// By number; None for ended ones.
    connections: Vec<Option<Active>>,
    /// The oldest connection that may be open.
    oldest: usize,
    result: Connections,
}

impl Load {
    fn new(options: &OpenLoop, servers: &[SocketAddr]) -> std::io::Result<Load> {
        let path = options.path;
        let request = |server| format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
        Ok(Load {
            servers: servers.iter().map(|&server| (server, request(server))).collect(),
            timeout: options.timeout,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            begins: options.begins(),
            connections: Vec::new(),
            oldest: 0,
            result: Connections::default(),
        })
    }

    fn run(mut self) -> std::io::Result<Connections> {
        let start = Instant::now();
        let mut events = [EpollEvent::empty(); EVENTS_AT_ONCE];
        while let Some(next) = self.next(start) {
            let wait = next.saturating_duration_since(Instant::now());
            // Not epoll_wait, whose timeout is in milliseconds.
            let mut readable = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut readable, Some(wait.into()), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let count = self.epoll.wait(&mut events, EpollTimeout::ZERO)?;
            for event in &events[..count] {
                self.go_on(event.data() as usize)?;
            }
            self.give_up();
            let delay = |begin: &Duration| start.elapsed().checked_sub(*begin);
            while let Some(delay) = self.begins.front().and_then(delay) {
                self.begins.pop_front();
                self.result.delays_ms.push(delay.as_secs_f64() * 1e3);
                self.begin()?;
            }
        }
        self.result.times_ms.sort_by(f64::total_cmp);
        self.result.delays_ms.sort_by(f64::total_cmp);
        Ok(self.result)
    }

    /// The time of the next action that no event announces; None at the end of the load.
    fn next(&mut self, start: Instant) -> Option<Instant> {
        while self.connections.get(self.oldest).is_some_and(Option::is_none) {
            self.oldest += 1;
        }
        let oldest = self.connections.get(self.oldest).and_then(Option::as_ref);
        let deadline = oldest.map(|active| active.begun + self.timeout);
        let begin = self.begins.front().map(|begin| start + *begin);
        deadline.into_iter().chain(begin).min()
    }

    fn begin(&mut self) -> std::io::Result<()> {
        let begun = Instant::now();
        let number = self.connections.len();
        let stream = match connecting(self.servers[number % self.servers.len()].0) {
            Ok(stream) => stream,
            Err(error) => {
                self.connections.push(None);
                self.count(&end_of(error), Duration::ZERO);
                return Ok(());
            }
        };
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLOUT, number as u64))?;
        self.connections.push(Some(Active { stream, begun, asked: false, start: Vec::new() }));
        Ok(())
    }

    /// Handles an event of a connection.
    fn go_on(&mut self, number: usize) -> std::io::Result<()> {
        let (_, request) = &self.servers[number % self.servers.len()];
        let Some(active) = &mut self.connections[number] else { return Ok(()) };
        let end = if active.asked {
            active.read()
        } else {
            let interest = &mut EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
            self.epoll.modify(&active.stream, interest)?;
            active.ask(request)
        };
        if let Some(end) = end {
            let took = active.begun.elapsed();
            self.connections[number] = None;
            self.count(&end, took);
        }
        Ok(())
    }

    /// Fails connections that have timed out.
    fn give_up(&mut self) {
        for active in &mut self.connections[self.oldest..] {
            let too_old = |active: &mut Active| active.begun.elapsed() >= self.timeout;
            match active.take_if(too_old) {
                Some(_) => self.result.failures.timeout += 1,
                // Later connections have later deadlines.
                None if active.is_some() => break,
                None => {}
            }
        }
    }

    fn count(&mut self, end: &End, took: Duration) {
        let failures = &mut self.result.failures;
        match end {
            End::Answered => self.result.times_ms.push(took.as_secs_f64() * 1e3),
            End::Refused => failures.refused += 1,
            End::Reset => failures.reset += 1,
            End::Other => failures.other += 1,
        }
    }
}

impl Active {
    /// Sends the request once the connection is established or has failed.
    fn ask(&mut self, request: &str) -> Option<End> {
        self.asked = true;
        let failed = match self.stream.take_error() {
            Ok(None) => self.stream.write_all(request.as_bytes()).err(),
            Ok(error) => error,
            Err(error) => Some(error),
        };
        failed.map(end_of)
    }

    /// Reads, and returns the end of the connection if reached.
    fn read(&mut self) -> Option<End> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) if self.start.starts_with(GOOD) => return Some(End::Answered),
                Ok(0) => return Some(End::Other),
                Ok(len) => {
                    let wanted = GOOD.len().saturating_sub(self.start.len()).min(len);
                    self.start.extend_from_slice(&bytes[..wanted]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => return Some(end_of(error)),
            }
        }
    }
}

fn end_of(error: std::io::Error) -> End {
    match error.kind() {
        ErrorKind::ConnectionRefused => End::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => End::Reset,
        _ => End::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn load(connections: u32, timeout: Duration, server: SocketAddr) -> Connections {
        let options = OpenLoop { connections, rate: 1e4, poisson: Some(1), path: "/", timeout };
        Load::new(&options, &[server]).and_then(Load::run).expect("sockets can be made")
    }

    #[test]
    fn every_end_of_a_connection_is_counted_as_what_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let answers = [&b"HTTP/1.1 200 OK\r\n\r\nbody"[..], b"HTTP/1.1 503 No\r\n\r\n", b"HTTP", b""];
        let server = thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("somebody connects");
                // Without an answer the connection is reset, because the request has not been read.
                if answer.is_empty() {
                    stream.peek(&mut [0]).expect("a request");
                } else {
                    let _ = stream.read(&mut [0; 1024]).expect("a request");
                    stream.write_all(answer).expect("it listens");
                }
            }
            // One more connection, which is never answered and which the client ends.
            let (mut stream, _) = listener.accept().expect("somebody connects");
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let found = load(5, Duration::from_millis(200), address);
        server.join().expect("the server does not panic");
        assert_eq!((found.times_ms.len(), found.delays_ms.len()), (1, 5), "{found:?}");
        assert_eq!(found.failures, Failures { timeout: 1, refused: 0, reset: 1, other: 2 });
        let refused = load(3, PATIENCE, address).failures;
        assert_eq!(refused, Failures { refused: 3, ..Failures::default() });
    }

    #[test]
    fn servers_get_connections_in_turn() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().expect("it is bound"));
        let serve = |listener: TcpListener, count| {
            thread::spawn(move || {
                for stream in listener.incoming().take(count) {
                    let mut stream = stream.expect("somebody connects");
                    let mut request = [0; 1024];
                    let len = stream.read(&mut request).expect("a request");
                    let address = listener.local_addr().expect("it is bound");
                    let begins = format!("GET /small HTTP/1.1\r\nHost: {address}\r\n");
                    assert!(request[..len].starts_with(begins.as_bytes()));
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("it listens");
                }
            })
        };
        let [first, second] = listeners;
        let servers = [serve(first, 2), serve(second, 1)];
        let options =
            OpenLoop { connections: 3, rate: 1e3, poisson: None, path: "/small", timeout: PATIENCE };
        let found = Load::new(&options, &addresses).and_then(Load::run).expect("sockets can be made");
        for server in servers {
            server.join().expect("the requests are as they should be");
        }
        assert_eq!(found.times_ms.len(), 3, "{found:?}");
    }

    #[test]
    fn connections_begin_at_the_rate_that_is_asked_for() {
        let (connections, poisson) = (10_000, Some(7));
        let options = OpenLoop { connections, rate: 1_000.0, poisson, path: "/", timeout: PATIENCE };
        let begins = options.begins();
        assert_eq!((begins.len(), begins[0]), (10_000, Duration::ZERO));
        assert!((9.0..11.0).contains(&begins[9_999].as_secs_f64()), "{:?}", begins[9_999]);
        let distances = || begins.iter().zip(begins.iter().skip(1)).map(|(a, b)| *b - *a);
        let long = distances().filter(|distance| *distance > Duration::from_millis(1)).count();
        assert!((3_400..4_000).contains(&long), "1/e of 10,000 are longer than the mean, not {long}");
        let even = OpenLoop { poisson: None, ..options }.begins();
        assert!((even[5_000].as_secs_f64() - 5.0).abs() < 1e-6);
    }

    #[test]
    fn times_are_summed_up_by_rank() {
        let times_ms = (1..=300).map(f64::from).collect();
        let found = Connections { times_ms, delays_ms: vec![0.1, 0.2], ..Connections::default() };
        assert_eq!(found.quantile_ms(0.5), Some(150.0));
        assert_eq!(found.quantile_ms(0.99), Some(297.0));
        assert_eq!(found.quantile_ms(1.0), Some(300.0));
        assert_eq!((found.average_ms(), found.stalls()), (Some(150.5), 100));
        assert_eq!([0.5, 0.99].map(|part| found.delay_ms(part)), [Some(0.1), Some(0.2)]);
        let none = Connections::default();
        assert_eq!((none.average_ms(), none.quantile_ms(0.5), none.stalls()), (None, None, 0));
    }
}
