//! JSON for lines of the access log.
//!
//! A line is written for every request, tens of thousands in a second, with the CPU time of those who serve:
//! a general serializer took more of it than all else that the thread does.

use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::Offset;

use crate::escape::{is_printable, push_json_escape};

/// Appends an object that is not closed yet: `object!(out, "name": value, ...)`, with [`Value`]s.
macro_rules! object {
    ($out:expr, $first:literal: $value:expr $(, $name:literal: $more:expr)* $(,)?) => {
        $out.extend_from_slice(concat!("{\"", $first, "\":").as_bytes());
        $crate::json::Value::write(&$value, $out);
        $(
            $out.extend_from_slice(concat!(",\"", $name, "\":").as_bytes());
            $crate::json::Value::write(&$more, $out);
        )*
    };
}
pub(super) use object;

/// What a field can be.
pub(super) trait Value {
    /// Appends it.
    fn write(&self, out: &mut Vec<u8>);
}

impl Value for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
    }
}

impl Value for str {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        if is_plain(self.as_bytes()) {
            out.extend_from_slice(self.as_bytes());
        } else {
            out.extend_from_slice(escaped(self).as_bytes());
        }
        out.push(b'"');
    }
}

/// Whether all characters stand for themselves: printable ASCII without `"` and `\`. Eight at a time.
fn is_plain(text: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The top bit of some byte is set if one of the bytes is 0. A borrow may set others: the text is escaped in vain then.
    let has_zero = |word: u64| word.wrapping_sub(LOW) & !word;
    let marks = |chunk: &[u8; 8]| {
        let word = u64::from_ne_bytes(*chunk);
        let has = |byte: u8| has_zero(word ^ (LOW * u64::from(byte)));
        (word | word.wrapping_sub(LOW * u64::from(b' ')) | has(b'"') | has(b'\\') | has(0x7f)) & HIGH
    };
    match text.last_chunk() {
        // It covers what is behind the last whole chunk.
        Some(last) => text.as_chunks().0.iter().fold(marks(last), |all, chunk| all | marks(chunk)) == 0,
        None => text.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')),
    }
}

/// What is between the quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            c if is_printable(c) => escaped.push(c),
            c => push_json_escape(&mut escaped, c),
        }
    }
    escaped
}

impl Value for &str {
    fn write(&self, out: &mut Vec<u8>) {
        str::write(self, out);
    }
}

/// A word of the format itself, without characters to escape.
pub(super) struct Word(pub(super) &'static str);

impl Value for Word {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(self.0.as_bytes());
        out.push(b'"');
    }
}

impl Value for Cow<'_, str> {
    fn write(&self, out: &mut Vec<u8>) {
        str::write(self, out);
    }
}

/// Whole microseconds.
impl Value for Duration {
    fn write(&self, out: &mut Vec<u8>) {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX).write(out);
    }
}

/// RFC 3339, UTC, microseconds. Of years with four digits.
impl Value for Timestamp {
    fn write(&self, out: &mut Vec<u8>) {
        let at = Offset::UTC.to_datetime(*self);
        let mut text = *b"\"0000-00-00T00:00:00.000000Z\"";
        let mut put = |place: Range<usize>, mut number: u32| {
            for digit in text[place].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        };
        put(1..5, u32::from(at.year().unsigned_abs()));
        let parts = [at.month(), at.day(), at.hour(), at.minute(), at.second()];
        for (part, place) in std::iter::zip(parts, [6, 9, 12, 15, 18]) {
            put(place..place + 2, u32::from(part.unsigned_abs()));
        }
        put(21..27, at.subsec_nanosecond().unsigned_abs() / 1_000);
        out.extend_from_slice(&text);
    }
}

/// Address and port in one text.
impl Value for SocketAddr {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        match self.ip() {
            IpAddr::V4(address) => {
                for (place, octet) in address.octets().into_iter().enumerate() {
                    if place > 0 {
                        out.push(b'.');
                    }
                    u64::from(octet).write(out);
                }
            }
            IpAddr::V6(address) => write!(out, "[{address}]").expect("memory takes everything"),
        }
        out.push(b':');
        u64::from(self.port()).write(out);
        out.push(b'"');
    }
}

/// `null` if there is none.
impl<T: Value> Value for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.write(out),
            None => out.extend_from_slice(b"null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::tests::HOSTILE;

    #[test]
    fn every_character_that_needs_it_is_escaped() {
        for c in '\0'..='\u{ff}' {
            for before in 0..17 {
                let text = format!("{}{c}{}", "x".repeat(before), "y".repeat(before % 5));
                let mut written = Vec::new();
                text.as_str().write(&mut written);
                assert_eq!(written, format!("\"{}\"", escaped(&text)).into_bytes(), "{c:?}");
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let texts =
            ["", "plain", "caf\u{e9}", "say \"no\"", "back\\slash", "tab\tend\n", "\u{1}\u{7f}\u{2028}"];
        let texts = texts.into_iter().chain([HOSTILE]);
        let addresses = ["192.0.2.1:80", "0.10.255.0:65535", "[2001:db8::1]:443", "[::ffff:192.0.2.1]:1"];
        for (text, address) in texts.zip(addresses.into_iter().cycle()) {
            let mut line = Vec::new();
            let address: SocketAddr = address.parse().unwrap();
            object!(&mut line,
                "text": text,
                "lossy": Cow::Borrowed(text),
                "address": address,
                "time": Timestamp::from_microsecond(1_700_000_000_000_042).unwrap(),
                "most": u64::MAX,
                "took": Duration::from_nanos(1_999),
                "none": None::<u64>,
                "some": Some(0),
            );
            line.push(b'}');
            assert!(str::from_utf8(&line).unwrap().chars().all(is_printable));
            let read: serde_json::Value = serde_json::from_slice(&line).unwrap();
            let expected = serde_json::json!({
                "text": text,
                "lossy": text,
                "address": address.to_string(),
                "time": "2023-11-14T22:13:20.000042Z",
                "most": u64::MAX,
                "took": 1,
                "none": null,
                "some": 0,
            });
            assert_eq!(read, expected);
        }
    }
}
