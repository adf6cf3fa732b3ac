//! One connection: handshake, requests one after the other, and the end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;
use rustls::ClientConnection;
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;

use super::certificate::{Client, NAME};
use crate::open_loop::connecting;

/// Size of the read buffer.
const READ: usize = 64 << 10;
/// Most fields of a response's head.
const FIELDS: usize = 32;

/// A requested document: `/name`, which has the first bytes of a text common to all documents.
#[derive(Clone, Debug)]
pub(in super::super) struct Document {
    pub(in super::super) path: String,
    pub(in super::super) len: usize,
}

/// An event of a conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Event {
    /// The handshake is complete; `took` counts from the planned start of the conversation.
    Shaken { took: Duration, resumed: bool },
    /// A response is complete and correct. The first request counts from the planned start of the conversation.
    Answered { took: Duration, first_byte: Duration, bytes: usize },
    /// The conversation has ended.
    Ended(End),
}

/// The end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum End {
    /// All requests were answered.
    Good,
    /// Timed out.
    Timeout,
    /// Refused, or reset.
    Broken,
    /// The server's TLS is not supported by the client, or the server sent an alert.
    Tls,
    /// Another status than 200, or another body.
    Wrong,
}

/// The requests of a conversation.
#[derive(Clone, Debug)]
pub(in super::super) enum Requests {
    /// These documents, one after the other; the last request asks the server to close the connection.
    Each(Vec<Document>),
    /// This document, repeatedly.
    ForEver(Document),
}

/// The result of a step.
pub(super) enum Step {
    /// The conversation waits for these events from now on.
    Waits(EpollFlags),
    /// The awaited events are unchanged.
    AsBefore,
    /// The conversation has ended.
    Over(End),
}

pub(super) struct Conversation {
    stream: TcpStream,
    tls: ClientConnection,
    requests: Requests,
    /// Number of requests sent.
    asked: usize,
    /// The time at which the current request was due.
    since: Instant,
    /// The received part of the current response.
    response: Response,
    first_byte: Option<Duration>,
    is_shaken: bool,
    interest: EpollFlags,
}

#[derive(Default)]
struct Response {
    head: Vec<u8>,
    /// Bytes of the body, once the head is complete.
    body: Option<usize>,
}

impl Conversation {
    pub(super) fn begin(
        server: SocketAddr,
        name: ServerName<'static>,
        client: &Client,
        requests: Requests,
        due: Instant,
    ) -> io::Result<Self> {
        let stream = connecting(server)?;
        stream.set_nodelay(true)?;
        let tls = ClientConnection::new(client.config.clone(), name).map_err(io::Error::other)?;
        Ok(Conversation {
            stream,
            tls,
            requests,
            asked: 0,
            since: due,
            response: Response::default(),
            first_byte: None,
            is_shaken: false,
            interest: EpollFlags::EPOLLOUT,
        })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Makes all possible progress.
    pub(super) fn step(&mut self, text: &[u8], mut hear: impl FnMut(Event)) -> Step {
        match self.try_step(text, &mut hear) {
            Err(end) => Step::Over(end),
            Ok(()) => {
                let writes = if self.tls.wants_write() { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
                let wanted = EpollFlags::EPOLLIN | writes;
                if std::mem::replace(&mut self.interest, wanted) == wanted {
                    Step::AsBefore
                } else {
                    Step::Waits(wanted)
                }
            }
        }
    }

    fn try_step(&mut self, text: &[u8], hear: &mut impl FnMut(Event)) -> Result<(), End> {
        loop {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut self.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::NotConnected => break,
                    Err(_) => return Err(End::Broken),
                }
            }
            let ended = match self.tls.read_tls(&mut self.stream) {
                Ok(len) => len == 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(()),
                Err(_) => return Err(End::Broken),
            };
            let state = self.tls.process_new_packets().map_err(|_| End::Tls)?;
            let came = state.plaintext_bytes_to_read() > 0;
            if !self.is_shaken && !self.tls.is_handshaking() {
                self.is_shaken = true;
                let resumed = self.tls.handshake_kind() == Some(HandshakeKind::Resumed);
                hear(Event::Shaken { took: self.since.elapsed(), resumed });
                self.ask(self.since)?;
            }
            if came {
                self.hear_response(text, hear)?;
            }
            if ended {
                return Err(if self.is_over() { End::Good } else { End::Broken });
            }
        }
    }

    /// Whether all requests have been answered.
    fn is_over(&self) -> bool {
        match &self.requests {
            Requests::Each(documents) => self.asked > documents.len(),
            Requests::ForEver(_) => false,
        }
    }

    /// Sends the next request, if any.
    fn ask(&mut self, since: Instant) -> Result<(), End> {
        let (document, is_last) = match &self.requests {
            Requests::Each(documents) => (documents.get(self.asked), self.asked + 1 == documents.len()),
            Requests::ForEver(document) => (Some(document), false),
        };
        self.asked += 1;
        // The server ends the connection.
        let Some(document) = document else { return Ok(()) };
        let close = if is_last { "Connection: close\r\n" } else { "" };
        let request = format!("GET {} HTTP/1.1\r\nHost: {NAME}\r\n{close}\r\n", document.path);
        self.since = since;
        self.tls.writer().write_all(request.as_bytes()).map_err(|_| End::Tls)
    }

    fn hear_response(&mut self, text: &[u8], hear: &mut impl FnMut(Event)) -> Result<(), End> {
        let mut bytes = [0; READ];
        loop {
            let len = match self.tls.reader().read(&mut bytes) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // No close_notify: the end that follows shows whether that matters.
                Err(_) => return Ok(()),
            };
            let took = self.since.elapsed();
            let first_byte = *self.first_byte.get_or_insert(took);
            let document = match &self.requests {
                Requests::Each(documents) => documents.get(self.asked.wrapping_sub(1)),
                Requests::ForEver(document) => Some(document),
            };
            let expected = text.get(..document.ok_or(End::Wrong)?.len).ok_or(End::Wrong)?;
            if self.response.add(&bytes[..len], expected)? {
                let bytes = expected.len();
                hear(Event::Answered { took, first_byte, bytes });
                (self.response, self.first_byte) = (Response::default(), None);
                self.ask(Instant::now())?;
            }
        }
    }
}

impl Response {
    /// Adds received bytes; true at the end of the response.
    fn add(&mut self, mut bytes: &[u8], expected: &[u8]) -> Result<bool, End> {
        if self.body.is_none() {
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            let mut fields = [httparse::EMPTY_HEADER; FIELDS];
            let mut head = httparse::Response::new(&mut fields);
            let httparse::Status::Complete(len) = head.parse(&self.head).map_err(|_| End::Wrong)? else {
                return Ok(false);
            };
            let length = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
            let length = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse().ok());
            if head.code != Some(200) || length != Some(expected.len()) {
                return Err(End::Wrong);
            }
            bytes = &bytes[len - before..];
        }
        let from = self.body.unwrap_or(0);
        let to = from + bytes.len();
        if expected.get(from..to) != Some(bytes) {
            return Err(End::Wrong);
        }
        self.body = Some(to);
        Ok(to == expected.len())
    }
}
