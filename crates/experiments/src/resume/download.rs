//! One download, at a bounded pace, compared with the original byte by byte.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use switchback_lab::{Doing, Error, Host, Result};

/// A client without a byte for this long gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
/// How often a client that waits looks whether the run is over.
const POLL: Duration = Duration::from_millis(250);
/// Reads in a second, so that no client takes its bytes in large pieces.
const READS_PER_S: u64 = 50;
/// A client that has waited does not make up for more than this.
const CATCH_UP: Duration = Duration::from_millis(100);
/// The longest head of a response.
const HEAD_BYTES: usize = 4096;
/// The field in which a node's server says its name.
const NODE: &str = "x-node: ";

/// How a download has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All bytes came, each the right one.
    Whole,
    /// The connection ended before.
    Cut(String),
    /// No byte came for too long.
    Silent,
    /// This byte, counted from 0, is another one.
    Wrong(u64),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Whole => f.write_str("whole"),
            End::Cut(how) => f.write_str(how),
            End::Silent => f.write_str("silent"),
            End::Wrong(at) => write!(f, "wrong byte {at}"),
        }
    }
}

/// What a client has seen.
#[derive(Clone, Debug)]
pub(super) struct Fetched {
    /// The node with which the response began.
    pub(super) node: String,
    pub(super) end: End,
    pub(super) ended: Instant,
    /// Bytes of the body.
    pub(super) received: u64,
    /// The longest wait for a byte, by a client that was ready for it.
    pub(super) pause: Duration,
    /// Each time at which bytes came, and how many there were then.
    pub(super) points: Vec<(Instant, u64)>,
}

/// What all clients of a run do.
#[derive(Clone, Copy)]
pub(super) struct Download<'a> {
    pub(super) client: &'a Host,
    pub(super) server: SocketAddr,
    pub(super) path: &'a str,
    /// The original.
    pub(super) document: &'a [u8],
    pub(super) bytes_per_s: u64,
    /// The number of clients that have got a head.
    pub(super) begun: &'a AtomicU32,
    /// The run is over before its time.
    pub(super) over: &'a AtomicBool,
}

impl Download<'_> {
    /// Fetches the document on a connection of its own.
    pub(super) fn run(&self) -> Result<Fetched> {
        let mut stream = self.client.tcp_connect(self.server, CONNECT)?;
        let asking = || format!("ask {} for {}", self.server, self.path);
        stream.set_read_timeout(Some(POLL)).doing(asking)?;
        write!(stream, "GET {} HTTP/1.1\r\nHost: files.example\r\n\r\n", self.path).doing(asking)?;
        let (head, body) = self.head(&mut stream)?;
        self.begun.fetch_add(1, Ordering::Relaxed);
        let node = head.lines().find_map(|line| line.strip_prefix(NODE)).unwrap_or_default().to_owned();
        let status = head.lines().next().unwrap_or_default();
        let length = format!("content-length: {}", self.document.len());
        if !status.starts_with("http/1.1 200") || !head.lines().any(|line| line == length) {
            return Err(Error::Invalid(format!("{} answers {head:?}", self.server)));
        }
        Ok(self.body(&mut stream, node, &body))
    }

    /// The head of the response in lower case, and the bytes behind it that came with it.
    fn head(&self, stream: &mut TcpStream) -> Result<(String, Vec<u8>)> {
        let (mut got, mut buffer) = (Vec::new(), [0; HEAD_BYTES]);
        let since = Instant::now();
        loop {
            let wrong = |why: &str| Error::Invalid(format!("no response of {}: {why}", self.server));
            match stream.read(&mut buffer) {
                Ok(0) => return Err(wrong("the connection ends")),
                Ok(len) => got.extend_from_slice(&buffer[..len]),
                Err(error) if is_late(error.kind()) => {}
                Err(error) => return Err(wrong(&error.to_string())),
            }
            if let Some(end) = got.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&got[..end]).to_ascii_lowercase();
                return Ok((head, got.split_off(end + 4)));
            }
            if got.len() > HEAD_BYTES || since.elapsed() > PATIENCE || self.over.load(Ordering::Relaxed) {
                return Err(wrong("no end of the head"));
            }
        }
    }

    fn body(&self, stream: &mut TcpStream, node: String, first: &[u8]) -> Fetched {
        let now = Instant::now();
        let mut fetched = Fetched {
            node,
            end: End::Whole,
            ended: now,
            received: 0,
            pause: Duration::ZERO,
            points: Vec::new(),
        };
        let mut buffer = vec![0; (self.bytes_per_s / READS_PER_S).max(1) as usize];
        let mut end = fetched.take(self.document, first, now);
        // When the next bytes may be read.
        let mut next = now;
        while end.is_none() {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let since = Instant::now();
            let read = self.read(stream, &mut buffer);
            let now = Instant::now();
            fetched.pause = fetched.pause.max(now.saturating_duration_since(since));
            end = match read {
                Ok(len) => {
                    let time = Duration::from_secs_f64(len as f64 / self.bytes_per_s as f64);
                    next = next.max(now.checked_sub(CATCH_UP).unwrap_or(now)) + time;
                    fetched.take(self.document, &buffer[..len], now)
                }
                Err(end) => Some(end),
            };
        }
        fetched.end = end.unwrap_or(End::Whole);
        fetched.ended = Instant::now();
        fetched
    }

    /// Waits for bytes: at least one, or the end.
    fn read(&self, stream: &mut TcpStream, buffer: &mut [u8]) -> std::result::Result<usize, End> {
        let since = Instant::now();
        loop {
            match stream.read(buffer) {
                Ok(0) => return Err(End::Cut("closed".to_owned())),
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(End::Cut("reset".to_owned()));
                }
                Err(error) if !is_late(error.kind()) => return Err(End::Cut(error.to_string())),
                Err(_) if since.elapsed() > PATIENCE => return Err(End::Silent),
                Err(_) if self.over.load(Ordering::Relaxed) => return Err(End::Cut("run over".to_owned())),
                Err(_) => {}
            }
        }
    }
}

impl Fetched {
    /// Compares more bytes of the body; the end if nothing is to follow.
    fn take(&mut self, document: &[u8], bytes: &[u8], now: Instant) -> Option<End> {
        let at = self.received as usize;
        let wanted = &document[at..document.len().min(at + bytes.len())];
        if bytes != wanted {
            let differ = std::iter::zip(bytes, wanted).position(|(got, wanted)| got != wanted);
            return Some(End::Wrong((at + differ.unwrap_or(wanted.len())) as u64));
        }
        self.received += bytes.len() as u64;
        self.points.push((now, self.received));
        (self.received == document.len() as u64).then_some(End::Whole)
    }
}

/// Whether a read has only taken too long, or has been interrupted.
fn is_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_byte_is_found() {
        let now = Instant::now();
        let fetched = || Fetched {
            node: String::new(),
            end: End::Whole,
            ended: now,
            received: 2,
            pause: Duration::ZERO,
            points: Vec::new(),
        };
        let take = |bytes: &[u8]| fetched().take(b"abcdef", bytes, now);
        assert_eq!(take(b"cd"), None);
        assert_eq!(take(b"cdef"), Some(End::Whole));
        assert_eq!(take(b"cdxf"), Some(End::Wrong(4)));
        // More than the document has.
        assert_eq!(take(b"cdefg"), Some(End::Wrong(6)));
    }
}
