//! Lines of header and trailer sections (RFC 9112 section 5).

use crate::Reject;

/// The fields of a head in their order, as pairs of name and value. A name that occurs more than once comes
/// out as often; values are without the blanks around them.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    /// Whole lines that have been checked: each has a colon and ends in CRLF.
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
        let colon = self.lines.iter().position(|&c| c == b':')?;
        let end = colon + self.lines[colon..].iter().position(|&c| c == b'\n')?;
        let name = std::str::from_utf8(&self.lines[..colon]).ok()?;
        let value = trim(&self.lines[colon + 1..end - 1]);
        self.lines = &self.lines[end + 1..];
        Some((name, value))
    }
}

/// `value` without the spaces and tabs around it.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether `lines[at..]` begins with the end of a line; `None` if that takes more bytes to tell. `otherwise`
/// is what is wrong with any character but the two of a line end.
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

/// What is wrong with `c` where the name of a field has to begin or go on, or end in a colon.
pub(crate) fn not_a_name(c: u8, at_line_start: bool) -> Reject {
    match c {
        b' ' | b'\t' if at_line_start => Reject::ObsFold,
        b' ' | b'\t' => Reject::SpaceBeforeColon,
        b'\n' => Reject::BareLf,
        _ => Reject::InvalidFieldName,
    }
}

/// The character of a field's name as CGI and its descendants compare it.
pub(crate) fn cgi(c: u8) -> u8 {
    if c == b'_' { b'-' } else { c.to_ascii_lowercase() }
}

/// A field that decides where a request ends or where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Host,
    ContentLength,
    TransferEncoding,
}

/// Which of the framing fields `name` is, in any case. A name that differs from one of them only in
/// underscores is refused: CGI and what descends from it would give both to the application under one name.
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
