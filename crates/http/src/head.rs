//! The head of a request: request line and header fields (RFC 9112 sections 3, 5 and 6).
//!
//! The text is read once from left to right, and every error is found at the byte that causes it. So the result does
//! not depend on how the text is split. This is also why checks that could wait until the end, such as for a second
//! `Host`, are made at the field's own line.

use crate::fields::{self, Fields, Framing};
use crate::table::{self, TOKEN};
use crate::{Form, Limits, Reject, Target, host, path, target};

/// Result of [`parse_head`].
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    /// The bytes are the beginning of a head; more are needed.
    Partial,
    /// The bytes begin with this head.
    Complete(Head<'a>),
}

/// The head of a request, borrowed from the bytes that were parsed.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// A token, case-sensitive.
    pub method: &'a str,
    /// The request target.
    pub target: Target<'a>,
    /// Version of the request.
    pub version: Version,
    /// Host from `Host` or from the target's authority, which must agree; without port, in the client's case. IPv6
    /// addresses are in brackets. None is possible in HTTP/1.0 and in the HTTP/2 preface.
    pub host: Option<&'a str>,
    /// Offset of the request line: 0, or after the one empty line that is allowed (RFC 9112 section 2.2).
    pub start: usize,
    /// Length of the head with the empty lines before and at its end; the body begins here.
    pub len: usize,
    /// Framing of the body.
    pub body: Body,
    /// Whether the client keeps the connection open for another request.
    pub keep_alive: bool,
    /// Whether the client may wait for a response of status 100 before it sends the body.
    pub expect_continue: bool,
    /// Whether the data after this request may be another protocol than HTTP/1: the client asks for an upgrade (RFC
    /// 9110 section 7.8), which a 101 response grants, or it speaks HTTP/2 from the start.
    pub tunnel: bool,
    fields: Fields<'a>,
}

/// HTTP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1; higher minor versions are read as this one (RFC 9110 section 2.5).
    Http11,
    /// HTTP/2 with prior knowledge (RFC 9113 section 3.4). Its preface of 24 bytes looks like a head with the method
    /// `PRI` and the target `*`, and has no fields.
    Http2,
}

/// Framing of a request's body (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// No body; the next request follows the head.
    None,
    /// Length in bytes, below 2^63; may be 0.
    Length(u64),
    /// Chunked; [`framing::requests`](crate::framing::requests) finds the end.
    Chunked,
}

impl<'a> Head<'a> {
    /// The path as sent, see [`Target::path`]. Routes compare its [readings](crate::path::readings).
    pub fn path(&self) -> &'a str {
        self.target.path
    }

    /// Whether the request can be sent again without harm and without data of the client: its method is idempotent (RFC
    /// 9110 section 9.2.2), and it has only a head. PUT has a body.
    pub fn is_repeatable(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "DELETE")
            && !self.tunnel
            && self.body == Body::None
    }

    /// All header fields.
    pub fn headers(&self) -> Fields<'a> {
        self.fields.clone()
    }

    /// Value of the first header field with this name, in any case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Values of the first header fields with these names, in any case.
    pub fn first_of<const N: usize>(&self, names: [&str; N]) -> [Option<&'a [u8]>; N] {
        let mut values = [None; N];
        for (name, value) in self.headers() {
            if let Some(place) = names.iter().position(|wanted| wanted.eq_ignore_ascii_case(name)) {
                values[place].get_or_insert(value);
            }
        }
        values
    }
}

/// Parses the head of a request at the start of `bytes`; bytes after the head are ignored. If a prefix is refused,
/// every continuation of it is refused for the same reason.
pub fn parse_head<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Progress<'a>, Reject> {
    let within_limit = &bytes[..bytes.len().min(limits.head_len)];
    match parse(within_limit, limits)? {
        Some(head) => Ok(Progress::Complete(head)),
        None if bytes.len() >= limits.head_len => Err(Reject::HeadTooLong),
        None => Ok(Progress::Partial),
    }
}

/// Like [`parse_head`]; `None` if `bytes` end before the head does.
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

/// Parses a head without an empty line before it.
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
        seen.field(&bytes[at..name_end], &bytes[name_end + 1..value_end], &line, limits)?;
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

/// Parses the HTTP/2 preface, whose first bytes have been seen.
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
    /// The minor version is above 1.
    is_above: bool,
}

/// The request line, and the offset of the first field.
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

/// The version at `start`, and the offset of the next line.
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

/// Maximal number of digits in `Content-Length`, with leading zeros: those of 2^63 - 1. Some servers handle no more.
const CONTENT_LENGTH_DIGITS: usize = 19;

fn space_or(c: u8, otherwise: Reject) -> Reject {
    if matches!(c, b' ' | b'\t') { Reject::RequestLineSpace } else { otherwise }
}

/// Framing and connection fields so far.
#[derive(Default)]
struct Seen<'a> {
    host: Option<&'a str>,
    length: Option<u64>,
    chunked: bool,
    /// Connection options (RFC 9110 section 7.6.1).
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    upgrade_field: bool,
    expect_continue: bool,
}

impl<'a> Seen<'a> {
    /// Takes one field; blanks around its value are still there.
    #[inline]
    fn field(
        &mut self,
        name: &[u8],
        raw_value: &'a [u8],
        line: &RequestLine<'a>,
        limits: &Limits,
    ) -> Result<(), Reject> {
        let value = fields::trim(raw_value);
        match fields::framing(name)? {
            // gunicorn 20 takes blanks after the host as a part of it.
            Some(Framing::Host) if raw_value.ends_with(b" ") || raw_value.ends_with(b"\t") => {
                Err(Reject::InvalidHost)
            }
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
        // RFC 9112 section 3.2.2 gives the target precedence, but not all servers do so, and no client sends two hosts
        // by mistake.
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
        // Waitress accepts Transfer-Encoding in HTTP/1.1 only.
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
            // Expectation and upgrade are to be ignored in HTTP/1.0 (RFC 9110 sections 10.1.1 and 7.8).
            expect_continue: http11 && self.expect_continue,
            tunnel: http11 && self.upgrade_option && self.upgrade_field,
            fields,
        }
    }
}
