//! Clients with a connection each that ask for the same document again and again, and forgive nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use switchback_lab::Host;

use super::cluster::Cluster;
use super::http::Documents;
use super::{Error, Result};

/// A response that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// The load.
#[derive(Clone, Copy, Debug)]
pub struct Steady {
    /// How many clients.
    pub clients: usize,
    /// Between a response and the next request.
    pub pause: Duration,
    /// Whether every request has a connection of its own.
    pub close: bool,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Requests answered whole, with status 200 and the right body.
    pub requests: usize,
    /// Requests to which not a byte came in answer, in words.
    pub failed: Vec<String>,
    /// Requests whose responses had begun, but did not come to their end.
    pub cut_off: Vec<String>,
    /// Connections that ended while no request was under way.
    pub closed_idle: usize,
    /// The longest that a request has taken.
    pub slowest: Duration,
}

impl Served {
    pub fn add(&mut self, other: Served) {
        self.requests += other.requests;
        self.failed.extend(other.failed);
        self.cut_off.extend(other.cut_off);
        self.closed_idle += other.closed_idle;
        self.slowest = self.slowest.max(other.slowest);
    }

    /// No request has failed.
    pub fn assert_all_answered(&self) {
        self.assert_all_begun();
        assert!(
            self.cut_off.is_empty(),
            "{} were cut off, the first: {}",
            self.cut_off.len(),
            self.cut_off[0]
        );
    }

    /// No request has failed whose response had not begun.
    pub fn assert_all_begun(&self) {
        assert!(self.failed.is_empty(), "{} failed, the first: {}", self.failed.len(), self.failed[0]);
    }
}

/// Eight clients with connections that they keep, beside `work`.
pub fn beside<T>(cluster: &Cluster, work: impl FnOnce() -> Result<T>) -> Result<(T, Served)> {
    let steady = Steady { clients: 8, pause: Duration::from_millis(5), close: false };
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let body = Documents::of(&cluster.lab)?.small;
    steady.run_beside(cluster.client(), vip, (body.path, &body.body), work)
}

impl Steady {
    /// Asks for `path` while `work` runs. `body` is what must come.
    pub fn run_beside<T>(
        self,
        host: &Host,
        server: SocketAddr,
        (path, body): (&str, &[u8]),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Served)> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let client = || host.enter(|| self.one_client(server, path, body, &over));
            let clients: Vec<_> = (0..self.clients).map(|_| scope.spawn(client)).collect();
            let worked = work();
            over.store(true, Ordering::Relaxed);
            let mut served = Served::default();
            for client in clients {
                served.add(client.join().expect("a client does not panic")?);
            }
            Ok((worked?, served))
        })
    }

    fn one_client(self, server: SocketAddr, path: &str, body: &[u8], over: &AtomicBool) -> Served {
        let mut served = Served::default();
        let mut stream = None;
        let connection = if self.close { "Connection: close\r\n" } else { "" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{connection}\r\n");
        while !over.load(Ordering::Relaxed) {
            let start = Instant::now();
            let connected = match stream.take() {
                Some(stream) => Ok(stream),
                None => TcpStream::connect_timeout(&server, PATIENCE),
            };
            let mut received = Vec::new();
            let answered = connected.map_err(Error::from).and_then(|mut stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                stream.write_all(request.as_bytes())?;
                read_response(&mut stream, &mut received, body)?;
                Ok(stream)
            });
            served.slowest = served.slowest.max(start.elapsed());
            match answered {
                Ok(answered) => {
                    served.requests += 1;
                    stream = (!self.close).then_some(answered);
                }
                Err(error) => {
                    let what = format!("{error} after {} bytes and {:?}", received.len(), start.elapsed());
                    if received.is_empty() { served.failed.push(what) } else { served.cut_off.push(what) }
                }
            }
            thread::sleep(self.pause);
            if stream.as_mut().is_some_and(has_ended) {
                served.closed_idle += 1;
                stream = None;
            }
        }
        served
    }
}

/// Whether the server has closed the connection, on which nothing is under way.
fn has_ended(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut byte));
    let ended = !matches!(&peeked, Err(error) if error.kind() == ErrorKind::WouldBlock);
    ended || stream.set_nonblocking(false).is_err()
}

/// Reads one response with Content-Length.
fn read_response(stream: &mut TcpStream, received: &mut Vec<u8>, body: &[u8]) -> Result {
    let mut part = [0; 16 << 10];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Err("the connection ended".into()),
            Ok(len) => received.extend_from_slice(&part[..len]),
            Err(error) => return Err(error.into()),
        }
        let Some(end) = received.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&received[..end]);
        if !head.starts_with("HTTP/1.1 200 ") {
            return Err(format!("answered {}", head.lines().next().unwrap_or_default()).into());
        }
        let rest = &received[end + 4..];
        if rest.len() >= body.len() {
            return if rest == body { Ok(()) } else { Err("the body is another one".into()) };
        }
    }
}
