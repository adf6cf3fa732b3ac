//! The head of a request: its line and its header fields (RFC 9112 sections 3, 5 and 6).
//!
//! The text is read once from left to right, and each mistake is found at the byte that makes it one. This is
//! what makes the result independent of how the text is split, and it is why a check that could be left to
//! the end, such as that for a second `Host`, is made at the field's own line.

use crate::fields::{self, Fields, Framing};
use crate::table::{self, TOKEN};
use crate::{Form, Limits, Reject, Target, host, path, target};

/// How far [`parse_head`] got.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// The bytes are the beginning of a head; more are needed.
    Partial,
    /// The bytes begin with this head.
    Complete(Head<'a>),
}

/// The head of a request. Texts lie in the bytes that it was read from.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// A token; upper and lower case differ.
    pub method: &'a str,
    /// What the request asks for.
    pub target: Target<'a>,
    /// The client's version.
    pub version: Version,
    /// The host from `Host` or from the authority in the target, which are the same if both are there; without port and as
    /// sent in upper or lower case. IPv6 addresses are in brackets. HTTP/1.0 can leave both out, and HTTP/2's preface has none.
    pub host: Option<&'a str>,
    /// Where the request line begins: at 0, or behind an empty line, of which there may be one (RFC 9112 section 2.2).
    pub start: usize,
    /// How many bytes the head has, with the empty lines before and at its end. The body begins here.
    pub len: usize,
    /// How the end of the body is found.
    pub body: Body,
    /// Whether the client lets the connection stay open for another request.
    pub keep_alive: bool,
    /// Whether the client may wait for a response of status 100 before it sends the body. It need not.
    pub expect_continue: bool,
    /// Whether what the client sends after this request may be no HTTP/1: it asks for another protocol (RFC
    /// 9110 section 7.8), which a response of status 101 grants, or it speaks HTTP/2 from the start.
    pub tunnel: bool,
    fields: Fields<'a>,
}

/// Version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1; a higher minor version is read as this one (RFC 9110 section 2.5).
    Http11,
    /// HTTP/2 with prior knowledge (RFC 9113 section 3.4). Its preface of 24 bytes reads like a head with the
    /// method `PRI` and the target `*`. It has no fields.
    Http2,
}

/// How the end of a request's body is found (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is none; the next request follows the head.
    None,
    /// It has so many bytes, perhaps 0; below 2^63.
    Length(u64),
    /// [`framing::requests`](crate::framing::requests) finds it.
    Chunked,
}

impl<'a> Head<'a> {
    /// The path as it was sent, see [`Target::path`]. Routes go by its [readings](crate::path::readings).
    pub fn path(&self) -> &'a str {
        self.target.path
    }

    /// Whether the request can be made again without harm, and without anything of the client that would be missing then: its
    /// method is idempotent (RFC 9110 section 9.2.2), and only the head was sent. PUT has a body.
    pub fn is_repeatable(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "DELETE")
            && !self.tunnel
            && self.body == Body::None
    }

    /// All header fields.
    pub fn headers(&self) -> Fields<'a> {
        self.fields.clone()
    }

    /// The value of the first header field called `name`, in upper or lower case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Reads the head of a request at the start of `bytes`.
///
/// What comes after the head is not looked at. Once a beginning has been refused, any continuation of it
/// would be refused for the same reason.
pub fn parse_head<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Progress<'a>, Reject> {
    let within_limit = &bytes[..bytes.len().min(limits.head_len)];
    match parse(within_limit, limits)? {
        Some(head) => Ok(Progress::Complete(head)),
        None if bytes.len() >= limits.head_len => Err(Reject::HeadTooLong),
        None => Ok(Progress::Partial),
    }
}

/// As [`parse_head`]; `None` if `bytes` end before the head does.
fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Head<'a>>, Reject> {
    match bytes {
        b"\r" => Ok(None),
        [b'\r', b'\n', text @ ..] => Ok(parse_lines(text, limits)?.map(|head| Head {
            start: bytes.len() - text.len(),
            len: head.len + bytes.len() - text.len(),
            ..head
        })),
        _ if bytes.starts_with(b"PRI * ") => preface(bytes),
        _ => parse_lines(bytes, limits),
    }
}

/// A head that begins with its request line.
fn parse_lines<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Head<'a>>, Reject> {
    let Some((line, fields_start)) = request_line(bytes)? else { return Ok(None) };
    let mut seen = Seen::default();
    let mut at = fields_start;
    let mut count = 0;
    loop {
        match bytes.get(at) {
            Some(b'\r' | b'\n') => break,
            None => return Ok(None),
            Some(_) => {}
        }
        if count == limits.fields {
            return Err(Reject::TooManyFields);
        }
        count += 1;
        let name_end = table::span(TOKEN, bytes, at);
        match bytes.get(name_end) {
            Some(b':') if name_end > at => {}
            Some(&c) => return Err(fields::not_a_name(c, name_end == at)),
            None => return Ok(None),
        }
        let value_end = table::span_value(bytes, name_end + 1);
        let next = fields::line_end(bytes, value_end, Reject::InvalidFieldValue)?;
        let Some(next) = next else { return Ok(None) };
        seen.field(&bytes[at..name_end], fields::trim(&bytes[name_end + 1..value_end]), &line, limits)?;
        at = next;
    }
    let Some(len) = fields::line_end(bytes, at, Reject::InvalidFieldName)? else { return Ok(None) };
    if seen.host.is_none() && line.version == Version::Http11 {
        return Err(Reject::MissingHost);
    }
    if seen.expect_continue && !seen.chunked && seen.length.is_none_or(|length| length == 0) {
        return Err(Reject::ExpectWithoutContent);
    }
    Ok(Some(seen.head(line, Fields::of_checked(&bytes[fields_start..at]), len)))
}

/// The preface of HTTP/2, of which the beginning has been seen.
fn preface(bytes: &[u8]) -> Result<Option<Head<'_>>, Reject> {
    const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    if !bytes.iter().zip(PREFACE.as_bytes()).all(|(c, expected)| c == expected) {
        return Err(Reject::Http2Preface);
    }
    if bytes.len() < PREFACE.len() {
        return Ok(None);
    }
    Ok(Some(Head {
        method: "PRI",
        target: Target { raw: "*", form: Form::Asterisk, path: "*" },
        version: Version::Http2,
        host: None,
        start: 0,
        len: PREFACE.len(),
        body: Body::None,
        keep_alive: false,
        expect_continue: false,
        tunnel: true,
        fields: Fields::of_checked(&[]),
    }))
}

struct RequestLine<'a> {
    method: &'a str,
    target: Target<'a>,
    version: Version,
    /// The minor version is above those that there are.
    is_above: bool,
}

/// The request line and where the first field begins.
fn request_line(bytes: &[u8]) -> Result<Option<(RequestLine<'_>, usize)>, Reject> {
    let method_end = table::span(TOKEN, bytes, 0);
    match bytes.get(method_end) {
        None => return Ok(None),
        Some(b' ') if method_end > 0 => {}
        Some(b' ' | b'\t') => return Err(Reject::RequestLineSpace),
        Some(b'\r' | b'\n') if method_end == 0 => return Err(Reject::LeadingEmptyLine),
        Some(_) => return Err(Reject::InvalidMethod),
    }
    if &bytes[..method_end] == b"CONNECT" {
        return Err(Reject::Connect);
    }
    let Some(parts) = target::parse(bytes, method_end + 1)? else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..parts.end()]).expect("a method and a target are ASCII");
    let method = &text[..method_end];
    if parts.is_asterisk(text) && method != "OPTIONS" {
        return Err(Reject::AsteriskTarget);
    }
    let target = parts.target(text);
    path::check(target.path)?;
    let Some((version, end)) = version(bytes, parts.end() + 1)? else { return Ok(None) };
    let is_above = bytes[end - 3] > b'1';
    Ok(Some((RequestLine { method, target, version, is_above }, end)))
}

/// The version at `start` and where the line after it begins.
fn version(bytes: &[u8], start: usize) -> Result<Option<(Version, usize)>, Reject> {
    const SHAPE: &[u8; 8] = b"HTTP/d.d";
    for (&c, &shape) in bytes[start..].iter().zip(SHAPE) {
        let fits = if shape == b'd' { c.is_ascii_digit() } else { c == shape };
        if !fits {
            return Err(space_or(c, Reject::InvalidVersion));
        }
    }
    let Some(text) = bytes[start..].first_chunk::<8>() else { return Ok(None) };
    let version = match (text[5], text[7]) {
        (b'1', b'0') => Version::Http10,
        (b'1', _) => Version::Http11,
        _ => return Err(Reject::UnsupportedVersion),
    };
    let end = start + SHAPE.len();
    let otherwise = bytes.get(end).map_or(Reject::InvalidVersion, |&c| space_or(c, Reject::InvalidVersion));
    Ok(fields::line_end(bytes, end, otherwise)?.map(|next| (version, next)))
}

/// Most digits of a `Content-Length`, with leading zeros: those of 2^63 - 1. Some servers have no room for more.
const CONTENT_LENGTH_DIGITS: usize = 19;

fn space_or(c: u8, otherwise: Reject) -> Reject {
    if matches!(c, b' ' | b'\t') { Reject::RequestLineSpace } else { otherwise }
}

/// What the header fields so far say about framing and the connection.
#[derive(Default)]
struct Seen<'a> {
    host: Option<&'a str>,
    length: Option<u64>,
    chunked: bool,
    /// Options of the connection (RFC 9110 section 7.6.1).
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    upgrade_field: bool,
    expect_continue: bool,
}

impl<'a> Seen<'a> {
    #[inline]
    fn field(
        &mut self,
        name: &[u8],
        value: &'a [u8],
        line: &RequestLine<'a>,
        limits: &Limits,
    ) -> Result<(), Reject> {
        match fields::framing(name)? {
            Some(Framing::Host) => self.host(value, line),
            Some(Framing::ContentLength) => self.content_length(value, limits),
            Some(Framing::TransferEncoding) => self.transfer_encoding(value, line),
            None => {
                match name.len() {
                    6 if name.eq_ignore_ascii_case(b"expect") => {
                        self.expect_continue |= value.eq_ignore_ascii_case(b"100-continue");
                    }
                    7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade_field = true,
                    10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
                    _ => {}
                }
                Ok(())
            }
        }
    }

    fn host(&mut self, value: &'a [u8], line: &RequestLine<'a>) -> Result<(), Reject> {
        if self.host.is_some() {
            return Err(Reject::DuplicateHost);
        }
        self.host = Some(host::without_port(value)?);
        // RFC 9112 section 3.2.2 lets the target win. Not all servers do so, and no client sends two hosts by mistake.
        match line.target.form {
            Form::Absolute { authority } if !authority.as_bytes().eq_ignore_ascii_case(value) => {
                Err(Reject::HostMismatch)
            }
            _ => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8], limits: &Limits) -> Result<(), Reject> {
        if self.length.is_some() {
            return Err(Reject::DuplicateContentLength);
        }
        if self.chunked {
            return Err(Reject::LengthAndEncoding);
        }
        if value.is_empty() || value.len() > CONTENT_LENGTH_DIGITS {
            return Err(Reject::InvalidContentLength);
        }
        let mut length: i64 = 0;
        for &c in value {
            if !c.is_ascii_digit() {
                return Err(Reject::InvalidContentLength);
            }
            let longer = length.checked_mul(10).and_then(|length| length.checked_add(i64::from(c - b'0')));
            length = longer.ok_or(Reject::InvalidContentLength)?;
        }
        let length = length.unsigned_abs();
        if length > limits.body_len {
            return Err(Reject::BodyTooLong);
        }
        self.length = Some(length);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8], line: &RequestLine<'_>) -> Result<(), Reject> {
        if line.version == Version::Http10 {
            return Err(Reject::EncodingInHttp10);
        }
        // Waitress reads it in HTTP/1.1 alone.
        if line.is_above {
            return Err(Reject::UnsupportedVersion);
        }
        if self.chunked {
            return Err(Reject::DuplicateEncoding);
        }
        if self.length.is_some() {
            return Err(Reject::LengthAndEncoding);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Reject::UnsupportedEncoding);
        }
        self.chunked = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&c| c == b',') {
            let option = fields::trim(option);
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn head(self, line: RequestLine<'a>, fields: Fields<'a>, len: usize) -> Head<'a> {
        let body = match self.length {
            _ if self.chunked => Body::Chunked,
            Some(length) => Body::Length(length),
            None => Body::None,
        };
        let http11 = line.version == Version::Http11;
        let authority = match line.target.form {
            Form::Absolute { authority } => host::without_port(authority.as_bytes()).ok(),
            _ => None,
        };
        Head {
            method: line.method,
            target: line.target,
            version: line.version,
            host: self.host.or(authority),
            start: 0,
            len,
            body,
            keep_alive: !self.close && (http11 || self.keep_alive),
            // A 1.0 client's expectation and upgrade are to be ignored (RFC 9110 sections 10.1.1 and 7.8).
            expect_continue: http11 && self.expect_continue,
            tunnel: http11 && self.upgrade_option && self.upgrade_field,
            fields,
        }
    }
}
