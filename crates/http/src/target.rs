//! The target of a request (RFC 9112 section 3.2).

use crate::table::{self, PATH, QUERY};
use crate::{Reject, host};

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Text in the request line.
    pub raw: &'a str,
    /// Form of the target.
    pub form: Form<'a>,
    /// The path without the query, exactly as sent: not decoded and with `..` in place. `/` for a URI without a path,
    /// `*` for [`Form::Asterisk`].
    pub path: &'a str,
}

/// Form of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// A path with an optional query.
    Origin,
    /// A URI, as sent to a proxy.
    Absolute {
        /// The URI's host with its optional port.
        authority: &'a str,
    },
    /// `*`: the server as a whole.
    Asterisk,
}

/// Offsets of a target's parts, before the rest of the request line is read.
pub(crate) struct Parts {
    start: usize,
    /// Offset of the path; the authority, if there is one, is between `authority` and here.
    path: usize,
    path_end: usize,
    end: usize,
    authority: Option<usize>,
}

/// Parses the target at `start` up to the space after it; `None` if `bytes` end before.
pub(crate) fn parse(bytes: &[u8], start: usize) -> Result<Option<Parts>, Reject> {
    let mut path = start;
    let mut authority = None;
    match bytes.get(start) {
        None => return Ok(None),
        Some(b'/') => {}
        Some(b'*') => {
            return match bytes.get(start + 1) {
                None => Ok(None),
                Some(b' ') => {
                    let end = start + 1;
                    Ok(Some(Parts { start, path, path_end: end, end, authority }))
                }
                Some(_) => Err(Reject::InvalidTarget),
            };
        }
        Some(b' ' | b'\t') => return Err(Reject::RequestLineSpace),
        Some(_) => {
            let Some(after_scheme) = scheme(bytes, start)? else { return Ok(None) };
            let ends_authority = |&c: &u8| c == b'/' || !table::is(PATH, c);
            path = match bytes[after_scheme..].iter().position(ends_authority) {
                None => return Ok(None),
                Some(len) => after_scheme + len,
            };
            if !matches!(bytes[path], b'/' | b'?' | b' ') {
                return Err(at_bad_byte(bytes[path]));
            }
            host::without_port(&bytes[after_scheme..path])?;
            authority = Some(after_scheme);
        }
    }
    let path_end = table::span(PATH, bytes, path);
    let end = match bytes.get(path_end) {
        Some(b'?') => table::span(QUERY, bytes, path_end),
        _ => path_end,
    };
    match bytes.get(end) {
        None => Ok(None),
        Some(b' ') => Ok(Some(Parts { start, path, path_end, end, authority })),
        Some(&c) => Err(at_bad_byte(c)),
    }
}

/// The end of `http://` or `https://` at `start`, or `None` if `bytes` end within it.
fn scheme(bytes: &[u8], start: usize) -> Result<Option<usize>, Reject> {
    let here = &bytes[start..];
    for scheme in [b"http://".as_slice(), b"https://"] {
        let len = here.len().min(scheme.len());
        if here[..len].eq_ignore_ascii_case(&scheme[..len]) {
            return Ok((len == scheme.len()).then_some(start + len));
        }
    }
    Err(Reject::InvalidTarget)
}

fn at_bad_byte(c: u8) -> Reject {
    match c {
        b'#' => Reject::Fragment,
        b'\t' => Reject::RequestLineSpace,
        // The request line ends without a version, as in HTTP/0.9.
        b'\r' | b'\n' => Reject::InvalidVersion,
        _ => Reject::InvalidTarget,
    }
}

impl Parts {
    /// Offset of the space after the target.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    pub(crate) fn is_asterisk(&self, line: &str) -> bool {
        &line[self.start..self.end] == "*"
    }

    /// The target in `line` with these parts.
    pub(crate) fn target<'a>(&self, line: &'a str) -> Target<'a> {
        let form = match self.authority {
            Some(authority) => Form::Absolute { authority: &line[authority..self.path] },
            None if self.is_asterisk(line) => Form::Asterisk,
            None => Form::Origin,
        };
        let path = if self.path == self.path_end { "/" } else { &line[self.path..self.path_end] };
        Target { raw: &line[self.start..self.end], form, path }
    }
}
