//! Heads of responses.

use std::time::SystemTime;

/// Most header fields of a response.
const FIELDS_MAX: usize = 100;

/// The head of a response, with the fields that say which bytes follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    /// Length of the head, in bytes.
    pub(crate) len: usize,
    pub(crate) status: u16,
    /// `Content-Length`.
    pub(crate) length: Option<u64>,
    /// There is a transfer coding.
    pub(crate) is_coded_for_transfer: bool,
    /// The transfer coding is `chunked`, and no other one.
    pub(crate) is_chunked: bool,
    /// There is a content coding other than `identity`.
    pub(crate) is_coded: bool,
    /// `Content-Encoding`, as it was sent.
    pub(crate) coding: Option<Vec<u8>>,
    /// `Content-Range`, if that is one range of bytes.
    pub(crate) range: Option<ContentRange>,
    /// `ETag`, as it was sent.
    pub(crate) etag: Option<Vec<u8>>,
    /// `Last-Modified`, as it was sent.
    pub(crate) last_modified: Option<Vec<u8>>,
    /// `Date`.
    pub(crate) date: Option<Vec<u8>>,
}

/// A range of bytes (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// Offset of the first byte.
    pub(crate) first: u64,
    /// Offset of the last byte.
    pub(crate) last: u64,
    /// Length of the whole, if it is known.
    pub(crate) complete: Option<u64>,
}

impl ContentRange {
    fn read(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.trim();
        let (unit, range) = text.split_once(' ')?;
        let (positions, complete) = range.trim().split_once('/')?;
        let (first, last) = positions.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        let complete = if complete == "*" { None } else { Some(number(complete)?) };
        let is_range = first <= last && complete.is_none_or(|complete| last < complete);
        (unit.eq_ignore_ascii_case("bytes") && is_range).then_some(ContentRange { first, last, complete })
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// A decimal number below 2^63, without a sign.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 19 && text.bytes().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number < 1 << 63)
}

impl ResponseHead {
    /// Reads a head; None if `bytes` end before it does, and an error if it is not one, or if it says twice what may be
    /// said only once.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, ()> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let len = match response.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(()),
        };
        let mut head = ResponseHead { len, status: response.code.ok_or(())?, ..ResponseHead::default() };
        for field in response.headers.iter() {
            let value = field.value.trim_ascii();
            let once = |slot: &mut Option<Vec<u8>>| slot.replace(value.to_vec()).map_or(Ok(()), |_| Err(()));
            match field.name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let length = std::str::from_utf8(value).ok().and_then(number).ok_or(())?;
                    head.length.replace(length).map_or(Ok(()), |_| Err(()))?;
                }
                "content-range" => {
                    let range = ContentRange::read(value).ok_or(())?;
                    head.range.replace(range).map_or(Ok(()), |_| Err(()))?;
                }
                "transfer-encoding" => {
                    head.is_chunked = !head.is_coded_for_transfer && value.eq_ignore_ascii_case(b"chunked");
                    head.is_coded_for_transfer = true;
                }
                "content-encoding" => {
                    head.is_coded |= !value.eq_ignore_ascii_case(b"identity");
                    head.coding.get_or_insert_default().extend_from_slice(value);
                }
                "etag" => once(&mut head.etag)?,
                "last-modified" => once(&mut head.last_modified)?,
                "date" => once(&mut head.date)?,
                _ => {}
            }
        }
        Ok(Some(head))
    }

    /// `Last-Modified`, if no two versions of the content can have the same one (RFC 9110 section 8.8.2.2): the response
    /// was made in a later second.
    pub(crate) fn strong_last_modified(&self) -> Option<&[u8]> {
        let time = |value: &Option<Vec<u8>>| -> Option<SystemTime> {
            httpdate::parse_http_date(std::str::from_utf8(value.as_deref()?).ok()?).ok()
        };
        (time(&self.last_modified)? < time(&self.date)?).then_some(self.last_modified.as_deref()?)
    }

    /// `ETag`, if it is strong (RFC 9110 section 8.8.3).
    pub(crate) fn strong_etag(&self) -> Option<&[u8]> {
        let etag = self.etag.as_deref()?;
        matches!(etag, [b'"', inner @ .., b'"'] if !inner.contains(&b'"')).then_some(etag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let read = |value: &str| ContentRange::read(value.as_bytes());
        let range = |first, last, complete| Some(ContentRange { first, last, complete });
        assert_eq!(read("bytes 0-0/1"), range(0, 0, Some(1)));
        assert_eq!(read("Bytes 5-9/*"), range(5, 9, None));
        for refused in [
            "bytes */9",
            "bytes 9-5/10",
            "bytes 0-9/9",
            "bytes -1-5/9",
            "items 0-1/2",
            "bytes 0-1",
            "bytes=0-1/2",
        ] {
            assert_eq!(read(refused), None, "{refused}");
        }
    }

    #[test]
    fn what_may_be_said_once_is_not_said_twice() {
        let read = |fields: &str| ResponseHead::read(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes());
        assert!(read("Content-Length: 5\r\n").is_ok_and(|head| head.unwrap().length == Some(5)));
        for field in ["Content-Length: 5", "ETag: \"a\"", "Last-Modified: x", "Content-Range: bytes 0-1/2"] {
            assert_eq!(read(&format!("{field}\r\n{field}\r\n")), Err(()), "{field}");
        }
        assert_eq!(read("Content-Length: 5, 5\r\n"), Err(()));
        assert_eq!(read("Content-Length: 5\r\nContent-Le"), Err(()), "no line of a field");
    }

    #[test]
    fn strong_validators() {
        let head = |etag: &str, modified: &str, date: &str| ResponseHead {
            etag: Some(etag.into()),
            last_modified: Some(modified.into()),
            date: Some(date.into()),
            ..ResponseHead::default()
        };
        let (early, late) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
        assert!(head("\"a\"", early, late).strong_etag().is_some());
        for weak in ["W/\"a\"", "a", "\"a\"b\"", "\""] {
            assert_eq!(head(weak, early, late).strong_etag(), None, "{weak}");
        }
        assert!(head("", early, late).strong_last_modified().is_some());
        assert_eq!(head("", early, early).strong_last_modified(), None);
        assert_eq!(head("", late, early).strong_last_modified(), None);
        assert_eq!(head("", "yesterday", late).strong_last_modified(), None);
    }
}
