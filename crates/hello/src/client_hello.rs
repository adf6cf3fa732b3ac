//! The parser.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use crate::Reject;
use crate::reader::Reader;

/// The type of records with handshake messages, and of the first of these (RFC 8446 sections 5.1 and 4).
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Of a record without its data, and of its data at most.
const RECORD_HEADER: usize = 5;
const RECORD_MAX: usize = 1 << 14;
/// Of a handshake message without its body.
const MESSAGE_HEADER: usize = 4;
/// Longest name in DNS.
const NAME_MAX: usize = 253;

/// Extensions by number (RFC 6066 section 3, RFC 7301, RFC 5077, RFC 8446 section 4.2).
mod extension {
    pub const SERVER_NAME: usize = 0;
    pub const PROTOCOLS: usize = 16;
    pub const SESSION_TICKET: usize = 35;
    pub const PRE_SHARED_KEY: usize = 41;
}

/// What of a ClientHello chooses a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The host that the client wants, in lower case and without the root's dot; None if it does not say.
    pub server_name: Option<String>,
    /// What it speaks above TLS, such as `h2` and `http/1.1`, in its order; empty if it does not say.
    pub protocols: Vec<Vec<u8>>,
    /// Sessions that it would resume: the ticket of TLS 1.2, the identities of TLS 1.3.
    pub tickets: Vec<Vec<u8>>,
    /// Bytes of the stream that it takes. What follows, such as early data, is the node's to read.
    pub len: usize,
}

/// How much of a ClientHello has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The beginning of one, or nothing. Before the stream has so many bytes it cannot be whole.
    Partial(usize),
    /// All of it.
    Complete(ClientHello),
}

/// Reads what a client has sent so far. A message of more than `limit` bytes is refused.
pub fn read(stream: &[u8], limit: usize) -> Result<Progress, Reject> {
    match message(stream, limit)? {
        Message::Partial(len) => Ok(Progress::Partial(len)),
        Message::Whole(body, len) => Ok(Progress::Complete(ClientHello { len, ..client_hello(&body)? })),
    }
}

/// The first handshake message of a stream.
enum Message<'a> {
    /// Its beginning, and how many bytes the stream has at least when it is whole.
    Partial(usize),
    /// Its body, and how many bytes of the stream its records take.
    Whole(Cow<'a, [u8]>, usize),
}

fn message(stream: &[u8], limit: usize) -> Result<Message<'_>, Reject> {
    let mut gathered: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    // Of the message with its header, as far as that is known.
    let mut whole = MESSAGE_HEADER;
    let mut rest = stream;
    loop {
        check_record(rest, stream.len() == rest.len())?;
        let Some((header, data)) = rest.split_at_checked(RECORD_HEADER) else {
            let before = stream.len() - rest.len();
            return Ok(Message::Partial(before + RECORD_HEADER + whole - gathered.len()));
        };
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if len == 0 {
            return Err(Reject::Illegal);
        }
        if len > RECORD_MAX {
            return Err(Reject::TooLong);
        }
        let here = &data[..len.min(data.len())];
        if gathered.is_empty() {
            gathered = Cow::Borrowed(here);
        } else {
            gathered.to_mut().extend_from_slice(here);
        }
        if gathered.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Reject::Unexpected);
        }
        if let Some(header) = gathered.get(..MESSAGE_HEADER) {
            whole = MESSAGE_HEADER
                + usize::from(header[1]) * (1 << 16)
                + usize::from(u16::from_be_bytes([header[2], header[3]]));
            if whole > limit {
                return Err(Reject::TooLong);
            }
            let so_far = gathered.len() - here.len();
            // Nothing may follow the message in its record, because keys change behind it (RFC 8446 section 5.1).
            if so_far + len > whole {
                return Err(Reject::Unexpected);
            }
            if gathered.len() == whole {
                let taken = stream.len() - data.len() + len;
                let body = match gathered {
                    Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[MESSAGE_HEADER..]),
                    Cow::Owned(bytes) => Cow::Owned(bytes[MESSAGE_HEADER..].to_vec()),
                };
                return Ok(Message::Whole(body, taken));
            }
        }
        if here.len() < len {
            let (missing, in_record) = (whole - gathered.len(), len - here.len());
            let headers = if missing > in_record { RECORD_HEADER } else { 0 };
            return Ok(Message::Partial(stream.len() + missing + headers));
        }
        rest = &data[len..];
    }
}

/// Whether a record with a handshake message begins like this.
fn check_record(record: &[u8], is_first: bool) -> Result<(), Reject> {
    let wrong = if is_first { Reject::NotTls } else { Reject::Unexpected };
    if record.first().is_some_and(|kind| *kind != HANDSHAKE) {
        return Err(wrong);
    }
    // 3.1 to 3.4, and what old clients write before they know: the minor number says nothing (RFC 8446 section 5.1).
    if record.get(1).is_some_and(|major| *major != 3) {
        return Err(wrong);
    }
    Ok(())
}

fn client_hello(body: &[u8]) -> Result<ClientHello, Reject> {
    let mut reader = Reader::new(body);
    let version = reader.number(2)?;
    if version >> 8 != 3 {
        return Err(Reject::Illegal);
    }
    let _random = reader.take(32)?;
    if reader.vector(1)?.len() > 32 {
        return Err(Reject::Illegal);
    }
    let suites = reader.filled(2)?;
    let _compressions = reader.filled(1)?;
    if suites.len() % 2 != 0 {
        return Err(Reject::Malformed);
    }
    let mut hello = ClientHello::default();
    // Before TLS 1.2 there were none.
    if reader.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Reader::new(reader.vector(2)?);
    reader.end()?;
    let mut seen = Vec::new();
    let mut keys = None;
    while !extensions.is_empty() {
        let number = extensions.number(2)?;
        let data = extensions.vector(2)?;
        if keys.is_some() {
            // RFC 8446 section 4.2.11: it comes last.
            return Err(Reject::Illegal);
        }
        match number {
            extension::SERVER_NAME => hello.server_name = server_name(data)?,
            extension::PROTOCOLS => hello.protocols = protocols(data)?,
            extension::SESSION_TICKET if !data.is_empty() => hello.tickets.push(data.to_vec()),
            extension::PRE_SHARED_KEY => keys = Some(identities(data)?),
            _ => {}
        }
        seen.push(number);
    }
    hello.tickets.extend(keys.into_iter().flatten());
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    if seen.len() == count { Ok(hello) } else { Err(Reject::Illegal) }
}

/// One name, of the only kind that there is. An address is none (RFC 6066 section 3), but some clients send theirs.
fn server_name(data: &[u8]) -> Result<Option<String>, Reject> {
    let mut reader = Reader::new(data);
    let mut list = Reader::new(reader.filled(2)?);
    reader.end()?;
    let kind = list.number(1)?;
    let name = list.filled(2)?;
    list.end()?;
    if kind != 0 {
        return Err(Reject::Illegal);
    }
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_label = |label: &[u8]| {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.iter().all(allowed)
    };
    if name.len() > NAME_MAX || !name.split(|byte| *byte == b'.').all(is_label) {
        return Err(Reject::Illegal);
    }
    let name = String::from_utf8(name.to_ascii_lowercase()).expect("letters, digits, hyphens and dots");
    Ok(Some(name).filter(|name| name.parse::<Ipv4Addr>().is_err()))
}

fn protocols(data: &[u8]) -> Result<Vec<Vec<u8>>, Reject> {
    let mut reader = Reader::new(data);
    let list = Reader::new(reader.filled(2)?);
    reader.end()?;
    Ok(list.each_filled(1)?.into_iter().map(<[u8]>::to_vec).collect())
}

/// The identities, without their ages. That there are as many binders is the node's to see.
fn identities(data: &[u8]) -> Result<Vec<Vec<u8>>, Reject> {
    let mut reader = Reader::new(data);
    let mut list = Reader::new(reader.filled(2)?);
    let _binders = reader.filled(2)?;
    reader.end()?;
    let mut all = Vec::new();
    while !list.is_empty() {
        all.push(list.filled(2)?.to_vec());
        let _age = list.take(4)?;
    }
    Ok(all)
}
