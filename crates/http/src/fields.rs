//! Lines of header and trailer sections (RFC 9112 section 5).

use memchr::memchr;

use crate::Reject;

/// The fields of a head in order, as pairs of name and value. A repeated name is returned repeatedly; values are
/// trimmed.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    /// Whole lines, checked to have a colon and to end in CRLF.
    lines: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of_checked(lines: &'a [u8]) -> Self {
        Fields { lines }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let end = memchr(b'\n', self.lines)?;
        let colon = memchr(b':', &self.lines[..end])?;
        let name = std::str::from_utf8(&self.lines[..colon]).ok()?;
        let value = trim(&self.lines[colon + 1..end - 1]);
        self.lines = &self.lines[end + 1..];
        Some((name, value))
    }
}

/// `value` without leading and trailing spaces and tabs.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether `bytes[at..]` begins with a line end; `None` if more bytes are needed. `otherwise` is the error for any
/// character that is not part of a line end.
#[inline]
pub(crate) fn line_end(bytes: &[u8], at: usize, otherwise: Reject) -> Result<Option<usize>, Reject> {
    match (bytes.get(at), bytes.get(at + 1)) {
        (Some(b'\r'), Some(b'\n')) => Ok(Some(at + 2)),
        (Some(b'\r'), Some(_)) => Err(Reject::BareCr),
        (Some(b'\n'), _) => Err(Reject::BareLf),
        (None, _) | (Some(b'\r'), None) => Ok(None),
        (Some(_), _) => Err(otherwise),
    }
}

/// The error for `c` in or after a field name.
pub(crate) fn not_a_name(c: u8, at_line_start: bool) -> Reject {
    match c {
        b' ' | b'\t' if at_line_start => Reject::ObsFold,
        b' ' | b'\t' => Reject::SpaceBeforeColon,
        b'\n' => Reject::BareLf,
        _ => Reject::InvalidFieldName,
    }
}

/// A field name's character as CGI and its descendants compare it.
pub(crate) fn cgi(c: u8) -> u8 {
    if c == b'_' { b'-' } else { c.to_ascii_lowercase() }
}

/// A field that determines where a request ends or where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Host,
    ContentLength,
    TransferEncoding,
}

/// The framing field with this name, in any case. A name that differs from one only in underscores is refused, because
/// CGI and its descendants would pass both to the application under one name.
#[inline]
pub(crate) fn framing(name: &[u8]) -> Result<Option<Framing>, Reject> {
    let (field, spelling): (_, &[u8]) = match name.len() {
        4 => (Framing::Host, b"host"),
        14 => (Framing::ContentLength, b"content-length"),
        17 => (Framing::TransferEncoding, b"transfer-encoding"),
        _ => return Ok(None),
    };
    if name.eq_ignore_ascii_case(spelling) {
        return Ok(Some(field));
    }
    if name.iter().map(|&c| cgi(c)).eq(spelling.iter().copied()) {
        return Err(Reject::InvalidFieldName);
    }
    Ok(None)
}
