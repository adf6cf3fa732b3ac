//! Paths as servers read them.
//!
//! Servers normalize a path before they use it: they decode octets, remove dot segments and merge slashes (RFC 3986
//! section 6.2.2; nginx and Apache merge slashes). A route that compared the text as sent could be bypassed with
//! another spelling. So routes compare the result of [`normal()`], and the server gets the request as sent.
//!
//! Servers disagree about some spellings, and no reading is the right one. [`readings()`] returns all of them, and the
//! caller decides whether the difference matters:
//!
//! - `%2F` is part of its segment, or separates segments; so does `%5C`, where `%2F` separates.
//! - `;` and the rest of its segment belong to the segment, or are parameters that are removed first (Tomcat, Jetty).
//!   Jetty 9 removes only the last one of `/a;x;y`.
//! - A dot segment after a doubled slash removes the empty segment, or the one before it: slashes are merged after dot
//!   segments are removed, or before.
//! - A dot segment at the end leaves a slash there, or none (Tomcat).

use std::borrow::Cow;

use crate::Reject;
use crate::table::{self, PATH};

/// Which encoded octets separate segments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separators {
    None,
    Slash,
    SlashAndBackslash,
}

/// Which parameters are removed from segments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameters {
    None,
    All,
    /// From the last semicolon of the last segment on.
    Last,
}

/// A way to read a path.
#[derive(Clone, Copy)]
struct How {
    separators: Separators,
    removed: Parameters,
    /// Slashes are merged after dot segments are removed.
    merges_last: bool,
    /// A dot segment at the end is removed with the slash before it.
    bare_end: bool,
}

const NORMALLY: How =
    How { separators: Separators::None, removed: Parameters::None, merges_last: false, bare_end: false };

/// The path in normal form: octets that need no encoding are decoded, other encodings are in upper case, dot segments
/// are removed and slashes merged. For an invalid path the result is meaningless.
pub fn normal(path: &str) -> Cow<'_, str> {
    if is_plain(path) {
        return Cow::Borrowed(path);
    }
    read(path, NORMALLY).map_or(Cow::Borrowed(path), Cow::Owned)
}

/// The path in normal form, if it is valid.
pub fn checked(path: &str) -> Result<Cow<'_, str>, Reject> {
    check(path).map(|()| normal(path))
}

/// The readings of a path in normal form, without duplicates; the first is [`normal()`], and usually the only one.
pub fn readings(path: &str) -> Vec<Cow<'_, str>> {
    let mut readings = vec![normal(path)];
    for how in ways(path) {
        if let Ok(reading) = read(path, how)
            && !readings.iter().any(|other| *other == reading)
        {
            readings.push(Cow::Owned(reading));
        }
    }
    readings
}

/// Checks that every `%` begins an octet, that none is NUL, and that no reading leads above the root.
pub(crate) fn check(path: &str) -> Result<(), Reject> {
    if is_plain(path) {
        return Ok(());
    }
    let mut octets = Octets { rest: path.as_bytes() };
    while !octets.rest.is_empty() {
        let start = octets.rest[0];
        match octets.next() {
            None => return Err(Reject::InvalidPercentEncoding),
            Some(0) if start == b'%' => return Err(Reject::NulInPath),
            Some(_) => {}
        }
    }
    read(path, NORMALLY)?;
    ways(path).try_for_each(|how| read(path, how).map(drop))
}

/// Whether all servers read the path as written: it has no encoded octets, parameters, dot segments or doubled slashes.
/// True for `*`.
pub fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    !bytes.iter().any(|byte| matches!(byte, b'%' | b';'))
        && !bytes.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

/// The ways of reading the path whose results may differ.
fn ways(path: &str) -> impl Iterator<Item = How> {
    use Separators::{None, Slash, SlashAndBackslash};
    let has = |octet: &[u8]| path.as_bytes().windows(3).any(|three| three.eq_ignore_ascii_case(octet));
    let separators: &[Separators] = match (is_plain(path), has(b"%2f"), has(b"%5c")) {
        (true, ..) => &[],
        (_, false, false) => &[None],
        (_, true, false) => &[None, Slash],
        (_, _, true) => &[None, Slash, SlashAndBackslash],
    };
    let removed: &[Parameters] = match path.bytes().filter(|&byte| byte == b';').count() {
        0 => &[Parameters::None],
        1 => &[Parameters::None, Parameters::All],
        _ => &[Parameters::None, Parameters::All, Parameters::Last],
    };
    separators.iter().flat_map(move |&separators| {
        removed.iter().flat_map(move |&removed| {
            [(false, false), (false, true), (true, false), (true, true)].map(|(merges_last, bare_end)| How {
                separators,
                removed,
                merges_last,
                bare_end,
            })
        })
    })
}

/// Decoded octets of a path; the iteration ends at an invalid encoding.
struct Octets<'a> {
    rest: &'a [u8],
}

impl Iterator for Octets<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (octet, rest) = match *self.rest {
            [b'%', high, low, ref rest @ ..] => ((digit(high)? << 4 | digit(low)?) as u8, rest),
            [b'%', ..] | [] => return None,
            [byte, ref rest @ ..] => (byte, rest),
        };
        self.rest = rest;
        Some(octet)
    }
}

/// Normalizes a path, which begins with a slash.
fn read(path: &str, how: How) -> Result<String, Reject> {
    let mut segments: Vec<String> = Vec::new();
    let mut segment = String::new();
    let mut in_parameters = false;
    let path = if how.removed == Parameters::Last { without_last_parameter(path) } else { path };
    let mut octets = Octets { rest: path.as_bytes().strip_prefix(b"/").unwrap_or(path.as_bytes()) };
    loop {
        let is_encoded = octets.rest.first() == Some(&b'%');
        let octet = octets.next();
        let separates = match octet {
            None => true,
            Some(b'/') => !is_encoded || how.separators != Separators::None,
            Some(b'\\') => how.separators == Separators::SlashAndBackslash,
            Some(_) => false,
        };
        if separates {
            enter(&mut segments, std::mem::take(&mut segment), octet.is_none(), how)?;
            in_parameters = false;
        }
        match octet {
            None => break,
            Some(b';') if how.removed == Parameters::All && !is_encoded => in_parameters = true,
            Some(octet) if !separates && !in_parameters => write(&mut segment, octet),
            Some(_) => {}
        }
    }
    let last = segments.pop().unwrap_or_default();
    segments.retain(|segment| !segment.is_empty());
    segments.push(last);
    Ok(format!("/{}", segments.join("/")))
}

fn without_last_parameter(path: &str) -> &str {
    let last_segment = path.rfind('/').unwrap_or(0);
    path[last_segment..].rfind(';').map_or(path, |semicolon| &path[..last_segment + semicolon])
}

/// RFC 3986 section 5.2.4, segment by segment. The last segment is empty if the path ends in a slash.
fn enter(segments: &mut Vec<String>, segment: String, is_last: bool, how: How) -> Result<(), Reject> {
    match &*segment {
        "." | ".." => {
            if segment == ".." {
                segments.pop().ok_or(Reject::PathAboveRoot)?;
            }
            if is_last && (!how.bare_end || segments.is_empty()) {
                segments.push(String::new());
            }
        }
        "" if !is_last && !how.merges_last => {}
        _ => segments.push(segment),
    }
    Ok(())
}

/// Appends the octet as it is if a path allows it and it is no separator, or else encoded.
fn write(segment: &mut String, octet: u8) {
    if table::is(PATH, octet) && !matches!(octet, b'/' | b'%') {
        segment.push(char::from(octet));
    } else {
        segment.push_str(&format!("%{octet:02X}"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn normal_forms() {
        let rows = [
            ("/", "/"),
            ("*", "*"),
            ("//", "/"),
            ("//b", "/b"),
            ("/a//b/", "/a/b/"),
            ("/x/../b", "/b"),
            ("/./b", "/b"),
            ("/b/.", "/b/"),
            ("/b/..", "/"),
            ("/a/b/../c/./d", "/a/c/d"),
            ("/a/%2e%2E/b", "/b"),
            ("/%62", "/b"),
            ("/%7Euser%40x%2b", "/~user@x+"),
            ("/.well-known/..x/...", "/.well-known/..x/..."),
            ("/b%2fc%5Cd", "/b%2Fc%5Cd"),
            ("/%252f%c3%a9%20%3f%23", "/%252f%C3%A9%20%3F%23"),
            ("/b;x=1/c", "/b;x=1/c"),
            ("/b%3bx", "/b;x"),
        ];
        for (path, expected) in rows {
            assert_eq!(check(path), Ok(()), "{path}");
            assert_eq!(normal(path), expected, "{path}");
        }
    }

    #[test]
    fn where_servers_disagree_every_reading_is_given() {
        let rows: [(&str, &[&str]); 15] = [
            ("/a/b.c-d", &["/a/b.c-d"]),
            ("/x/../b", &["/b"]),
            ("/b/.", &["/b", "/b/"]),
            ("/b/c/..", &["/b", "/b/"]),
            ("/b%2fc", &["/b%2Fc", "/b/c"]),
            ("/x/..%2fb", &["/x/..%2Fb", "/b"]),
            ("/a%5Cb", &["/a%5Cb", "/a/b"]),
            ("/b%2fx%5c..%5c..%5cc", &["/b%2Fx%5C..%5C..%5Cc", "/b/x%5C..%5C..%5Cc", "/c"]),
            ("/a//../b", &["/b", "/a/b"]),
            ("/x/..;/b", &["/x/..;/b", "/b"]),
            ("/;x/b", &["/;x/b", "/b"]),
            ("/x/..;%2fb", &["/x/..;%2Fb", "/", "/x/..;/b", "/b"]),
            ("/;;x=1", &["/;;x=1", "/", "/;"]),
            ("/a;x/b;y", &["/a;x/b;y", "/a/b", "/a;x/b"]),
            ("/a;x;y/b", &["/a;x;y/b", "/a/b"]),
        ];
        for (path, expected) in rows {
            let mut readings = readings(path);
            readings.sort_unstable();
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(readings, expected, "{path}");
        }
    }

    #[test]
    fn invalid_paths() {
        let rows = [
            ("/..", Reject::PathAboveRoot),
            ("/a/../..", Reject::PathAboveRoot),
            ("/%2e%2e/b", Reject::PathAboveRoot),
            ("/a/..%2f..%2fb", Reject::PathAboveRoot),
            ("/a/..;/..;/b", Reject::PathAboveRoot),
            ("//../b", Reject::PathAboveRoot),
            ("/a%00", Reject::NulInPath),
            ("/a%", Reject::InvalidPercentEncoding),
            ("/a%4", Reject::InvalidPercentEncoding),
            ("/a%zz/b", Reject::InvalidPercentEncoding),
            ("/%u002f", Reject::InvalidPercentEncoding),
            ("/%+2", Reject::InvalidPercentEncoding),
        ];
        for (path, reject) in rows {
            assert_eq!(check(path), Err(reject), "{path}");
        }
    }

    fn path() -> impl Strategy<Value = String> {
        "(/|//|/\\.|/\\.\\.|/\\.\\.;|a|b|;|%2f|%5C|%2e|%61|%25|%3B|~){0,12}"
            .prop_map(|path| format!("/{path}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_normal_form_is_its_own(path in path()) {
            if check(&path).is_ok() {
                let normal = normal(&path);
                prop_assert!(!normal.contains("//") && normal.starts_with('/'), "{}", normal);
                prop_assert_eq!(super::normal(&normal), &*normal);
                for reading in readings(&path) {
                    prop_assert_eq!(super::normal(&reading), &*reading);
                }
            }
        }

        #[test]
        fn a_plain_path_has_one_reading(path in "/[a-c/.~-]{0,12}") {
            if is_plain(&path) {
                prop_assert_eq!(check(&path), Ok(()));
                prop_assert_eq!(readings(&path), vec![&*path]);
                prop_assert_eq!(read(&path, NORMALLY), Ok(path));
            }
        }
    }
}
