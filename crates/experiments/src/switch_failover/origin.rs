//! The servers: nginx on each node, which answers short requests and downloads itself and passes uploads and WebSockets
//! on to a server of the experiment beside it, and its log, by which requests are counted.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use switchback_lab::{Doing, Host, Result, Server, ServerOptions};

use super::load::{PADDING, accepted, append_frame, frame, short_body};

/// Where the server beside nginx listens.
const BESIDE: ([u8; 4], u16) = ([127, 0, 0, 1], 9000);
/// The time within which it notices that it is to end.
const NOTICE: Duration = Duration::from_millis(200);
const READ: usize = 16 << 10;
const LONGEST_HEAD: usize = 16 << 10;

/// The servers of a node.
pub(super) struct Origin {
    server: Server,
    /// The server beside nginx, and the word that ends it.
    beside: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Origin {
    /// Starts the servers with an empty log. `/long` is a document of the lab's; uploads have the first bytes of `text`.
    pub(super) fn start(node: &Host, text: &Arc<[u8]>) -> Result<Origin> {
        let listener = node.tcp_listen(BESIDE.into())?;
        let over = Arc::new(AtomicBool::new(false));
        let options = ServerOptions { access_log: true, extra: nginx(), ..ServerOptions::default() };
        let server = node.nginx(&options)?;
        let (word, text) = (Arc::clone(&over), Arc::clone(text));
        let beside = Some(thread::spawn(move || accept(&listener, &word, &text)));
        Ok(Origin { server, beside, over })
    }

    /// Ends the servers, and adds the requests of the log, which is removed, to `sightings` as those of this node.
    pub(super) fn stop(mut self, node: usize, sightings: &mut Sightings) -> Result<()> {
        self.server.stop()?;
        self.over.store(true, Ordering::Relaxed);
        if let Some(beside) = self.beside.take() {
            beside.join().expect("it does not panic");
        }
        let path = self.server.access_log();
        let reading = || format!("read {}", path.display());
        let log = BufReader::new(File::open(&path).doing(reading)?);
        for line in log.lines() {
            sightings.add(node, &line.doing(reading)?);
        }
        fs::remove_file(&path).doing(|| format!("remove {}", path.display()))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Lines for nginx.
fn nginx() -> String {
    let pass = format!("proxy_http_version 1.1; proxy_pass http://{};", SocketAddr::from(BESIDE));
    format!(
        "location = /short {{ return 200 \"$arg_n{PADDING}\"; }}
        location = /upload {{ client_max_body_size 0; proxy_request_buffering off; {pass} }}
        location = /socket {{
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
            proxy_read_timeout 1h;
            {pass}
        }}"
    )
}

/// How often each node has logged the requests with a number.
#[derive(Debug, Default)]
pub(super) struct Sightings {
    /// For each number, how often, and a bit for each node.
    all: HashMap<u64, (u32, u64)>,
}

impl Sightings {
    fn add(&mut self, node: usize, line: &str) {
        let Some((_, rest)) = line.split_once("?n=") else { return };
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        let Ok(number) = digits.parse() else { return };
        let (count, nodes) = self.all.entry(number).or_default();
        *count += 1;
        *nodes |= 1 << node;
    }

    /// The numbers of requests that were logged more than once, with true for those on several nodes.
    pub(super) fn repeated(&self) -> impl Iterator<Item = (u64, bool)> {
        let repeated = self.all.iter().filter(|(_, (count, _))| *count > 1);
        repeated.map(|(number, (_, nodes))| (*number, nodes.count_ones() > 1))
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.all.contains_key(&number)
    }
}

/// A thread for each connection, until the end.
fn accept(listener: &TcpListener, over: &Arc<AtomicBool>, text: &Arc<[u8]>) {
    let wait = PollTimeout::try_from(NOTICE).expect("it is short");
    while !over.load(Ordering::Relaxed) {
        let mut readable = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if !poll(&mut readable, wait).is_ok_and(|ready| ready > 0) {
            continue;
        }
        let Ok((stream, _)) = listener.accept() else { continue };
        let (over, text) = (Arc::clone(over), Arc::clone(text));
        // A client that goes away is nothing to report: the clients of the experiment report what they miss.
        thread::spawn(move || serve(stream, &over, &text));
    }
}

fn serve(stream: TcpStream, over: &AtomicBool, text: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(NOTICE))?;
    stream.set_nodelay(true)?;
    let mut stream = Stream { stream, over };
    let mut received = Vec::new();
    let end = loop {
        if let Some(at) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if received.len() > LONGEST_HEAD || stream.read_more(&mut received)? == 0 {
            return Ok(());
        }
    };
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    received.drain(..end);
    let field = |name: &str| {
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    if field("upgrade").is_some() {
        stream.stream.write_all(accepted().as_bytes())?;
        return echo(&mut stream, received);
    }
    let len = field("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let number = head.split_once("?n=").map_or("", |(_, rest)| rest);
    let number = number.split(' ').next().unwrap_or_default().parse().unwrap_or_default();
    let good = compare(&mut stream, received, text.get(..len).unwrap_or_default())?;
    let body = if good { short_body(number) } else { "other bytes".to_owned() };
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    stream.stream.write_all(answer.as_bytes())
}

/// Reads a body; whether it is as expected.
fn compare(stream: &mut Stream<'_>, mut received: Vec<u8>, expected: &[u8]) -> io::Result<bool> {
    let (mut at, mut good) = (0, true);
    loop {
        good &= expected.get(at..at + received.len()) == Some(&received);
        at += received.len();
        if at >= expected.len() {
            return Ok(good);
        }
        received.clear();
        if stream.read_more(&mut received)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

fn echo(stream: &mut Stream<'_>, mut received: Vec<u8>) -> io::Result<()> {
    loop {
        while let Some((payload, len)) = frame(&received) {
            received.drain(..len);
            let mut answer = Vec::new();
            append_frame(&mut answer, &payload);
            stream.stream.write_all(&answer)?;
        }
        if stream.read_more(&mut received)? == 0 {
            return Ok(());
        }
    }
}

struct Stream<'a> {
    stream: TcpStream,
    over: &'a AtomicBool,
}

impl Stream<'_> {
    /// Appends what comes next; 0 at the end.
    fn read_more(&mut self, received: &mut Vec<u8>) -> io::Result<usize> {
        let mut bytes = [0; READ];
        loop {
            match self.stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.over.load(Ordering::Relaxed) {
                        return Ok(0);
                    }
                }
                Err(error) => return Err(error),
                Ok(len) => {
                    received.extend_from_slice(&bytes[..len]);
                    return Ok(len);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_their_numbers() {
        let mut sightings = Sightings::default();
        let line =
            |n: &str| format!("198.51.100.120 - - [time] \"GET /short?n={n} HTTP/1.1\" 200 81 \"-\" \"-\"");
        let lines = [(0, "7"), (1, "14"), (1, "14"), (0, "21"), (2, "21"), (1, "28")];
        lines.iter().for_each(|(node, number)| sightings.add(*node, &line(number)));
        sightings.add(0, "198.51.100.120 - - [time] \"\" 400 0 \"-\" \"-\"");
        let mut repeated: Vec<(u64, bool)> = sightings.repeated().collect();
        repeated.sort_unstable();
        assert_eq!(repeated, [(14, false), (21, true)]);
        assert!(sightings.has(28) && !sightings.has(2));
    }
}
