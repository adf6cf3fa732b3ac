//! What is said on a connection of each kind: bytes in, bytes out, no sockets and no clocks.
//!
//! Each response names the request that it answers, so that one that belongs to another request, or comes a second
//! time, is found.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use super::kind::{Kind, Numbers};
use super::{http2, web_socket};

/// What follows a request's number in the body of a short response.
pub(in super::super) const PADDING: &str =
    "--------------------------------------------------------------------------------";
/// Requests that a pipelining client sends at once.
const DEPTH: usize = 8;
/// Most fields of a response's head.
const FIELDS: usize = 32;

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// Another status than 200.
    Status(u16),
    /// Other bytes than those expected, or bytes where none are expected.
    Bytes,
    /// The server has ended the conversation in the words of its protocol.
    Closed,
}

/// A client's side of a conversation.
pub(super) trait Talk {
    /// Appends the next request, or several, to `out`.
    fn ask(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>);

    /// Takes what is complete from `incoming`, and appends what has to be said at once to `out`, and the numbers of the
    /// answered requests to `answered`.
    fn hear(&mut self, incoming: &mut Vec<u8>, out: &mut Vec<u8>, answered: &mut Vec<u64>)
    -> Result<(), Bad>;

    /// Whether all requests are answered.
    fn is_answered(&self) -> bool;

    /// Whether the server wants the next request on another connection.
    fn is_last(&self) -> bool {
        false
    }

    /// Appends at most this many bytes of the current request's body.
    fn go_on(&mut self, _most: usize, _out: &mut Vec<u8>) {}

    /// Whether a part of the current request's body is still to be sent.
    fn has_more(&self) -> bool {
        false
    }
}

/// The conversation for a kind of load, on a new connection to a server that calls itself `host`. Downloads have all of
/// `text`, uploads its first bytes.
pub(super) fn talk(kind: Kind, host: &str, text: &Arc<[u8]>, upload: usize) -> Box<dyn Talk> {
    let (host, text) = (host.to_owned(), Arc::clone(text));
    match kind {
        Kind::KeepAlive | Kind::TlsHttp1 => Box::new(Short { kind, host, depth: 1, asked: VecDeque::new() }),
        Kind::Pipelined => Box::new(Short { kind, host, depth: DEPTH, asked: VecDeque::new() }),
        Kind::Download => Box::new(Download { host, text, asked: None, received: None }),
        Kind::Upload => Box::new(Upload { host, text, len: upload, asked: None, sent: 0 }),
        Kind::WebSocket => Box::new(web_socket::WebSocket::new(host)),
        Kind::TlsHttp2 => Box::new(http2::Http2::new(host)),
    }
}

/// The body of the short response to a request.
pub(in super::super) fn short_body(number: u64) -> String {
    format!("{number}{PADDING}")
}

/// The head of a response.
pub(super) struct Head {
    /// Bytes of the head.
    pub(super) len: usize,
    /// Bytes of the body; without `Content-Length`, zero.
    pub(super) body: usize,
}

/// The head at the beginning of these bytes, if it is complete; an error if it has another status than this.
pub(super) fn head(bytes: &[u8], wanted: u16) -> Result<Option<Head>, Bad> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(len) = response.parse(bytes).map_err(|_| Bad::Bytes)? else {
        return Ok(None);
    };
    let status = response.code.unwrap_or_default();
    if status != wanted {
        return Err(Bad::Status(status));
    }
    let length = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let body = length.and_then(|field| std::str::from_utf8(field.value).ok()?.trim().parse().ok());
    Ok(Some(Head { len, body: body.unwrap_or_default() }))
}

/// Takes the whole short response to this request from the beginning of `incoming`; true if it was there.
fn take_short(incoming: &mut Vec<u8>, number: Option<u64>) -> Result<bool, Bad> {
    let Some(Head { len, body }) = head(incoming, 200)? else { return Ok(false) };
    let Some(content) = incoming.get(len..len + body) else { return Ok(false) };
    if number.is_none_or(|number| content != short_body(number).as_bytes()) {
        return Err(Bad::Bytes);
    }
    incoming.drain(..len + body);
    Ok(true)
}

struct Short {
    kind: Kind,
    host: String,
    depth: usize,
    asked: VecDeque<u64>,
}

impl Talk for Short {
    fn ask(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        for _ in 0..self.depth {
            let number = numbers.take(self.kind);
            append(out, format_args!("GET /short?n={number} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host));
            self.asked.push_back(number);
        }
    }

    fn hear(
        &mut self,
        incoming: &mut Vec<u8>,
        _out: &mut Vec<u8>,
        answered: &mut Vec<u64>,
    ) -> Result<(), Bad> {
        while !incoming.is_empty() && take_short(incoming, self.asked.front().copied())? {
            answered.extend(self.asked.pop_front());
        }
        Ok(())
    }

    fn is_answered(&self) -> bool {
        self.asked.is_empty()
    }
}

struct Download {
    host: String,
    text: Arc<[u8]>,
    asked: Option<u64>,
    /// Bytes of the body, once the head is there.
    received: Option<usize>,
}

impl Talk for Download {
    fn ask(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        let number = numbers.take(Kind::Download);
        append(out, format_args!("GET /long?n={number} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host));
        (self.asked, self.received) = (Some(number), None);
    }

    fn hear(
        &mut self,
        incoming: &mut Vec<u8>,
        _out: &mut Vec<u8>,
        answered: &mut Vec<u64>,
    ) -> Result<(), Bad> {
        if self.asked.is_none() && !incoming.is_empty() {
            return Err(Bad::Bytes);
        }
        if self.received.is_none() {
            let Some(Head { len, body }) = head(incoming, 200)? else { return Ok(()) };
            if body != self.text.len() {
                return Err(Bad::Bytes);
            }
            incoming.drain(..len);
        }
        let from = self.received.unwrap_or(0);
        let to = from + incoming.len();
        if self.text.get(from..to) != Some(&incoming[..]) {
            return Err(Bad::Bytes);
        }
        incoming.clear();
        self.received = Some(to);
        if to == self.text.len() {
            answered.extend(self.asked.take());
        }
        Ok(())
    }

    fn is_answered(&self) -> bool {
        self.asked.is_none()
    }
}

struct Upload {
    host: String,
    text: Arc<[u8]>,
    /// Bytes of the body, the first of `text`.
    len: usize,
    asked: Option<u64>,
    sent: usize,
}

impl Talk for Upload {
    fn ask(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        let (number, len) = (numbers.take(Kind::Upload), self.len);
        append(
            out,
            format_args!(
                "POST /upload?n={number} HTTP/1.1\r\nHost: {}\r\nContent-Length: {len}\r\n\r\n",
                self.host
            ),
        );
        (self.asked, self.sent) = (Some(number), 0);
    }

    /// A response before the end of the body is a wrong one.
    fn hear(
        &mut self,
        incoming: &mut Vec<u8>,
        _out: &mut Vec<u8>,
        answered: &mut Vec<u64>,
    ) -> Result<(), Bad> {
        if !incoming.is_empty() && take_short(incoming, self.asked)? {
            if self.has_more() {
                return Err(Bad::Bytes);
            }
            answered.extend(self.asked.take());
        }
        if self.asked.is_none() && !incoming.is_empty() { Err(Bad::Bytes) } else { Ok(()) }
    }

    fn is_answered(&self) -> bool {
        self.asked.is_none()
    }

    fn go_on(&mut self, most: usize, out: &mut Vec<u8>) {
        let to = self.len.min(self.sent + most);
        out.extend_from_slice(&self.text[self.sent..to]);
        self.sent = to;
    }

    fn has_more(&self) -> bool {
        self.asked.is_some() && self.sent < self.len
    }
}

pub(super) fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let mut line = String::new();
    line.write_fmt(text).expect("writing to a string does not fail");
    out.extend_from_slice(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"what downloads have";

    fn talk(kind: Kind) -> Box<dyn Talk> {
        super::talk(kind, "a", &Arc::from(TEXT), 6)
    }

    fn response(body: &str) -> Vec<u8> {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    /// The numbers that are answered by these parts of a server's answer.
    fn heard(talk: &mut dyn Talk, parts: &[&[u8]]) -> Result<Vec<u64>, Bad> {
        let (mut incoming, mut answered) = (Vec::new(), Vec::new());
        for part in parts {
            incoming.extend_from_slice(part);
            talk.hear(&mut incoming, &mut Vec::new(), &mut answered)?;
        }
        Ok(answered)
    }

    #[test]
    fn an_answer_belongs_to_its_request_and_comes_once() {
        let mut numbers = Numbers::of_client(0, 1);
        let mut talk = talk(Kind::KeepAlive);
        let mut out = Vec::new();
        talk.ask(&mut numbers, &mut out);
        assert_eq!(out, b"GET /short?n=7 HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = response(&short_body(7));
        let (one, other) = answer.split_at(20);
        assert_eq!(heard(&mut *talk, &[one, other]), Ok(vec![7]));
        assert!(talk.is_answered());
        assert_eq!(heard(&mut *talk, &[&answer]), Err(Bad::Bytes), "nothing was asked");
        talk.ask(&mut numbers, &mut out);
        assert_eq!(heard(&mut *talk, &[&answer]), Err(Bad::Bytes), "of the request before");
        let refused = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(heard(&mut *talk, &[refused]), Err(Bad::Status(503)));
    }

    #[test]
    fn pipelined_answers_come_in_order() {
        let mut talk = talk(Kind::Pipelined);
        talk.ask(&mut Numbers::of_client(0, 1), &mut Vec::new());
        let numbers: Vec<u64> = (1..=DEPTH as u64).map(|n| n * 7 + 6).collect();
        let all: Vec<u8> = numbers.iter().flat_map(|number| response(&short_body(*number))).collect();
        assert_eq!(heard(&mut *talk, &[&all[..100], &all[100..]]), Ok(numbers.clone()));
        talk.ask(&mut Numbers::of_client(0, 1), &mut Vec::new());
        assert_eq!(heard(&mut *talk, &[&response(&short_body(numbers[1]))]), Err(Bad::Bytes));
    }

    #[test]
    fn every_byte_of_a_download_is_compared() {
        let text = std::str::from_utf8(TEXT).expect("ASCII");
        let mut numbers = Numbers::of_client(0, 1);
        let mut talk = talk(Kind::Download);
        talk.ask(&mut numbers, &mut Vec::new());
        let whole = response(text);
        assert_eq!(heard(&mut *talk, &[&whole[..45], &whole[45..]]), Ok(vec![8]));
        for wrong in [text.replace("have", "hAve"), format!("{text}.")] {
            talk.ask(&mut numbers, &mut Vec::new());
            assert_eq!(heard(&mut *talk, &[&response(&wrong)]), Err(Bad::Bytes));
        }
    }

    #[test]
    fn an_upload_is_answered_after_its_last_byte() {
        let mut talk = talk(Kind::Upload);
        let mut out = Vec::new();
        talk.ask(&mut Numbers::of_client(0, 1), &mut out);
        talk.go_on(4, &mut out);
        assert!(talk.has_more());
        let answer = response(&short_body(9));
        talk.go_on(4, &mut out);
        assert!(out.ends_with(b"\r\n\r\nwhat d") && !talk.has_more());
        assert_eq!(heard(&mut *talk, &[&answer]), Ok(vec![9]));
        talk.ask(&mut Numbers::of_client(0, 1), &mut out);
        assert_eq!(heard(&mut *talk, &[&answer]), Err(Bad::Bytes), "too early");
    }
}
