//! Parser for the ClientHello.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use crate::Reject;
use crate::reader::Reader;

/// Content type of handshake records, and handshake type of the ClientHello (RFC 8446 sections 5.1 and 4).
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// Length of a record header, and maximal length of a record's data.
const RECORD_HEADER: usize = 5;
const RECORD_MAX: usize = 1 << 14;
/// Length of a handshake message's header.
const MESSAGE_HEADER: usize = 4;
/// Length of the longest DNS name.
const NAME_MAX: usize = 253;

/// Extension numbers (RFC 6066 section 3, RFC 7301, RFC 5077, RFC 8446 section 4.2).
mod extension {
    pub const SERVER_NAME: usize = 0;
    pub const PROTOCOLS: usize = 16;
    pub const SESSION_TICKET: usize = 35;
    pub const PRE_SHARED_KEY: usize = 41;
}

/// The parts of a ClientHello that determine the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// Server name in lower case, without the trailing dot; None if there is none.
    pub server_name: Option<String>,
    /// Protocol names of ALPN, such as `h2` and `http/1.1`, in the client's order; empty without ALPN.
    pub protocols: Vec<Vec<u8>>,
    /// Sessions to resume: the ticket of TLS 1.2, the identities of TLS 1.3.
    pub tickets: Vec<Vec<u8>>,
    /// Length in the stream, with record headers. Data after it, such as early data, is for the node.
    pub len: usize,
}

/// Result of parsing the start of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The ClientHello is incomplete; this is the least length of the stream at which it may be complete.
    Partial(usize),
    /// The ClientHello is complete.
    Complete(ClientHello),
}

/// Parses the start of a client's stream. A message of more than `limit` bytes is refused.
pub fn read(stream: &[u8], limit: usize) -> Result<Progress, Reject> {
    match message(stream, limit)? {
        Message::Partial(len) => Ok(Progress::Partial(len)),
        Message::Whole(body, len) => Ok(Progress::Complete(ClientHello { len, ..client_hello(&body)? })),
    }
}

/// First handshake message of a stream.
enum Message<'a> {
    /// Incomplete; this is the least length of the stream at which it may be complete.
    Partial(usize),
    /// The message's body, and the length of its records in the stream.
    Whole(Cow<'a, [u8]>, usize),
}

fn message(stream: &[u8], limit: usize) -> Result<Message<'_>, Reject> {
    let mut gathered: Cow<'_, [u8]> = Cow::Borrowed(&[]);
    // Length of the message with its header, as far as it is known.
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
            // Nothing may follow the message in its record, because keys change after it (RFC 8446 section 5.1).
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

/// Checks the start of a record that must contain handshake data.
fn check_record(record: &[u8], is_first: bool) -> Result<(), Reject> {
    let wrong = if is_first { Reject::NotTls } else { Reject::Unexpected };
    if record.first().is_some_and(|kind| *kind != HANDSHAKE) {
        return Err(wrong);
    }
    // The major version is 3; the minor version is to be ignored (RFC 8446 section 5.1).
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
    // Before TLS 1.2 there were no extensions.
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
            // RFC 8446 section 4.2.11: pre_shared_key is the last extension.
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

/// The host name. IP addresses are not allowed (RFC 6066 section 3) but sent by some clients, and ignored.
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

/// The PSK identities, without their ages. The node checks that the number of binders matches.
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
