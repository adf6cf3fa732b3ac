//! A connection with what is said on it: bytes between socket and conversation, in their pace, and the time that the
//! client waits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use rustls::ClientConnection;

use super::How;
use super::kind::{Kind, Numbers};
use super::talk::{Bad, Talk};

/// Bytes read at once.
pub(super) const READ: usize = 64 << 10;
/// Bytes of a download that its client reads in a [`TICK`](super::TICK), and bytes of an upload that its client sends.
const DOWNLOAD_BYTES: usize = 40_000;
const UPLOAD_BYTES: usize = 10_000;
/// Buffers of transfers, which the kernel doubles: small, because what is in them hides pauses.
const DOWNLOAD_BUFFER: usize = 64 << 10;
const UPLOAD_BUFFER: usize = 16 << 10;

pub(super) struct Connection {
    kind: Kind,
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    talk: Box<dyn Talk>,
    incoming: Vec<u8>,
    /// Bytes to be sent; over TLS, to be encrypted.
    out: Vec<u8>,
    /// Bytes of a download that may be read before the next tick.
    allowance: usize,
    /// Since when the client has waited; None while it expects nothing.
    waits: Option<Instant>,
    /// The longest wait since the request, or since it was taken.
    pause: Duration,
    /// Whether the TCP connection has been made.
    is_connected: bool,
    /// Whether bytes have passed since this was reset.
    pub(super) has_moved: bool,
}

impl Connection {
    pub(super) fn begin(
        kind: Kind,
        server: SocketAddr,
        tls: Option<Box<ClientConnection>>,
        talk: Box<dyn Talk>,
        now: Instant,
    ) -> io::Result<Connection> {
        let family = if server.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket =
            socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?;
        match kind {
            Kind::Download => setsockopt(&socket, sockopt::RcvBuf, &DOWNLOAD_BUFFER)?,
            Kind::Upload => setsockopt(&socket, sockopt::SndBuf, &UPLOAD_BUFFER)?,
            _ => {}
        }
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(server)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(Connection {
            kind,
            stream,
            tls,
            talk,
            incoming: Vec::new(),
            out: Vec::new(),
            allowance: if kind == Kind::Download { DOWNLOAD_BYTES } else { usize::MAX },
            waits: Some(now),
            pause: Duration::ZERO,
            is_connected: false,
            has_moved: false,
        })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.talk.is_answered()
    }

    /// Whether nothing is under way, and the next request needs another connection.
    pub(super) fn is_over(&self) -> bool {
        self.is_idle() && self.talk.is_last()
    }

    /// How long the client has waited for the next byte.
    pub(super) fn waited(&self, now: Instant) -> Duration {
        self.waits.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The longest wait, of the one that lasts all until now; the next one begins anew.
    pub(super) fn take_pause(&mut self, now: Instant) -> Duration {
        std::mem::take(&mut self.pause).max(self.waited(now))
    }

    /// The events to wait for.
    pub(super) fn interest(&self) -> EpollFlags {
        let reads = self.allowance > 0;
        let writes =
            !self.is_connected || self.tls.as_ref().map_or(!self.out.is_empty(), |tls| tls.wants_write());
        let flag = |wanted, flag| if wanted { flag } else { EpollFlags::empty() };
        flag(reads, EpollFlags::EPOLLIN) | flag(writes, EpollFlags::EPOLLOUT)
    }

    /// Begins the next request, or several.
    pub(super) fn ask(&mut self, numbers: &mut Numbers, now: Instant) {
        self.talk.ask(numbers, &mut self.out);
        self.pause = Duration::ZERO;
        // The first request also waits for the connection.
        self.waits.get_or_insert(now);
    }

    /// Lets as many bytes pass as belong to a tick.
    pub(super) fn tick(&mut self, now: Instant) {
        match self.kind {
            Kind::Download => {
                self.allowance = DOWNLOAD_BYTES;
                self.waits.get_or_insert(now);
            }
            Kind::Upload if self.out.is_empty() && self.talk.has_more() => {
                self.talk.go_on(UPLOAD_BYTES, &mut self.out);
                self.waits.get_or_insert(now);
            }
            _ => {}
        }
    }

    /// The socket has an error or an end, which is found by reading, whatever the pace.
    pub(super) fn hurry(&mut self) {
        self.allowance = self.allowance.max(READ);
    }

    /// Makes all possible progress; `answered` gets the numbers of the answered requests with the longest wait in each.
    pub(super) fn go_on(
        &mut self,
        buffer: &mut [u8],
        answered: &mut Vec<(u64, Duration)>,
    ) -> Result<(), How> {
        self.write()?;
        while self.allowance > 0 && !self.is_over() {
            let most = buffer.len().min(self.allowance);
            let Some(len) = self.read(&mut buffer[..most])? else { break };
            self.incoming.extend_from_slice(&buffer[..len]);
            if self.kind == Kind::Download {
                self.allowance -= len;
            }
            self.moved();
            let mut numbers = Vec::new();
            let heard = self.talk.hear(&mut self.incoming, &mut self.out, &mut numbers);
            answered.extend(numbers.into_iter().map(|number| (number, self.pause)));
            heard.map_err(How::from)?;
            self.write()?;
        }
        let is_satisfied = self.allowance == 0 || self.out.is_empty() && self.talk.has_more();
        if self.talk.is_answered() || is_satisfied {
            self.waits = None;
        }
        Ok(())
    }

    fn moved(&mut self) {
        let now = Instant::now();
        self.pause = self.pause.max(self.waited(now));
        self.waits = Some(now);
        self.has_moved = true;
    }

    fn write(&mut self) -> Result<(), How> {
        match &mut self.tls {
            None => {
                let mut sent = 0;
                while sent < self.out.len() {
                    match none_yet(self.stream.write(&self.out[sent..]))? {
                        None => break,
                        Some(len) => sent += len,
                    }
                }
                self.out.drain(..sent);
                if sent > 0 {
                    self.is_connected = true;
                    // What a short request's packet holds tells nothing of the other side.
                    if self.kind == Kind::Upload {
                        self.moved();
                    }
                }
            }
            Some(tls) => {
                if !self.out.is_empty() {
                    tls.writer().write_all(&self.out).map_err(|_| How::Reset)?;
                    self.out.clear();
                }
                while tls.wants_write() && none_yet(tls.write_tls(&mut self.stream))?.is_some() {
                    self.is_connected = true;
                }
            }
        }
        Ok(())
    }

    /// Reads; None if there is nothing yet.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, How> {
        let Some(tls) = &mut self.tls else {
            let len = none_yet(self.stream.read(buffer))?;
            return if len == Some(0) { Err(How::Closed) } else { Ok(len) };
        };
        loop {
            match tls.reader().read(buffer) {
                Ok(0) => return Err(How::Closed),
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(How::Closed),
            }
            match none_yet(tls.read_tls(&mut self.stream))? {
                None => return Ok(None),
                Some(0) => return Err(How::Closed),
                Some(_) => {}
            }
            tls.process_new_packets().map_err(|error| match error {
                rustls::Error::AlertReceived(_) => How::Reset,
                _ => How::Wrong,
            })?;
            while tls.wants_write() && none_yet(tls.write_tls(&mut self.stream))?.is_some() {}
        }
    }
}

impl From<Bad> for How {
    fn from(bad: Bad) -> How {
        match bad {
            Bad::Status(status) => How::Status(status),
            Bad::Bytes => How::Wrong,
            Bad::Closed => How::Closed,
        }
    }
}

/// None if the socket is not ready, or does not have its connection yet.
fn none_yet(result: io::Result<usize>) -> Result<Option<usize>, How> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted => Ok(None),
            ErrorKind::TimedOut => Err(How::Timeout),
            _ => Err(How::Reset),
        },
    }
}
