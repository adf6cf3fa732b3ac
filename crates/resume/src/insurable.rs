//! What has to be the same about a response for another server to go on with it.

use std::fmt;

use switchback_http::{Body, Head, Limits, Progress, Version, parse_head};

use crate::response::{ContentRange, ResponseHead};

/// Header fields that are not the other server's: they are about a connection (RFC 9110 section 7.6.1), or about a body.
const OF_CONNECTIONS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Header fields about which part is asked for, and under which condition (RFC 9110 sections 13.1 and 14.2).
const CONDITIONS: [&str; 6] =
    ["if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range"];

/// A response with which another server can go on, as far as its head tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insurable {
    status: u16,
    /// Length of the response's head, in bytes.
    head_len: usize,
    validator: Validator,
    /// The bytes of the representation that the body consists of; None: there are none.
    bytes: Option<ContentRange>,
}

/// By what two representations are known to be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Validator {
    ETag(Vec<u8>),
    LastModified(Vec<u8>),
}

/// Why no other server can go on with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Uninsured {
    /// The request is not a GET of HTTP/1.1 without a body, or its head is not known whole.
    Request,
    /// The status is not 200 or 206, or the response's head is not known whole.
    Status,
    /// The length is unknown.
    Length,
    /// There is no strong validator.
    Validator,
    /// The content is coded, and two servers may code it differently.
    Coding,
}

impl Uninsured {
    /// Every reason.
    pub const ALL: [Uninsured; 5] =
        [Uninsured::Request, Uninsured::Status, Uninsured::Length, Uninsured::Validator, Uninsured::Coding];

    /// The name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Uninsured::Request => "request",
            Uninsured::Status => "status",
            Uninsured::Length => "length",
            Uninsured::Validator => "validator",
            Uninsured::Coding => "coding",
        }
    }
}

/// Why an answer does not go on with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// It is no response of HTTP/1.
    NotHttp,
    /// Its status is another one than 206: the content has changed, or is gone.
    Status(u16),
    /// Its range is another one.
    Range,
    /// Its validator is another one.
    Validator,
    /// Its content is coded.
    Coding,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::NotHttp => f.write_str("the server's answer is not HTTP/1"),
            Mismatch::Status(status) => write!(f, "the server answers {status} instead of 206"),
            Mismatch::Range => f.write_str("the server answers with another range"),
            Mismatch::Validator => f.write_str("the server's content has another ETag or Last-Modified"),
            Mismatch::Coding => f.write_str("the server codes the content"),
        }
    }
}

impl std::error::Error for Mismatch {}

impl Insurable {
    /// Reads the head of a request, and that of its final response.
    pub fn read(request: &[u8], response: &[u8]) -> Result<Self, Uninsured> {
        let head = answer_to_get(request, response)?;
        let length = head.length.filter(|_| !head.is_coded_for_transfer).ok_or(Uninsured::Length)?;
        if head.is_coded {
            return Err(Uninsured::Coding);
        }
        let bytes = match (head.status, head.range) {
            (_, _) if length == 0 => None,
            (200, None) => Some(ContentRange { first: 0, last: length - 1, complete: Some(length) }),
            (206, Some(range)) if range.len() == length => Some(range),
            // Several ranges, or a range of something else.
            _ => return Err(Uninsured::Length),
        };
        let by_etag = head.strong_etag().map(|etag| Validator::ETag(etag.to_vec()));
        let by_time = || head.strong_last_modified().map(|time| Validator::LastModified(time.to_vec()));
        let validator = by_etag.or_else(by_time).ok_or(Uninsured::Validator)?;
        Ok(Insurable { status: head.status, head_len: head.len, validator, bytes })
    }

    /// Length of the response's head, in bytes.
    pub fn head_len(&self) -> usize {
        self.head_len
    }

    /// Status of the response.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Length of the response's body, in bytes.
    pub fn body_len(&self) -> u64 {
        self.bytes.map_or(0, |bytes| bytes.len())
    }

    /// The request for the body's rest behind its first `offset` bytes, made of the request that [`Self::read`] has read;
    /// None if there is no rest.
    pub fn ask(&self, request: &[u8], offset: u64) -> Option<Vec<u8>> {
        let range = self.rest(offset)?;
        let head = whole_head(request)?;
        let mut text = asked_of_another(&head, &CONDITIONS);
        text.extend_from_slice(
            format!("Range: bytes={}-{}\r\nIf-Range: ", range.first, range.last).as_bytes(),
        );
        match &self.validator {
            Validator::ETag(value) | Validator::LastModified(value) => text.extend_from_slice(value),
        }
        text.extend_from_slice(b"\r\nConnection: close\r\n\r\n");
        Some(text)
    }

    /// Reads the head of the answer to [`Self::ask`]: its length, behind which comes the rest, or None if `answer` ends
    /// before it does.
    pub fn accept(&self, answer: &[u8], offset: u64) -> Result<Option<usize>, Mismatch> {
        let Some(head) = ResponseHead::read(answer).map_err(|()| Mismatch::NotHttp)? else { return Ok(None) };
        if head.status != 206 {
            return Err(Mismatch::Status(head.status));
        }
        let rest = self.rest(offset).ok_or(Mismatch::Range)?;
        let range = head.range.ok_or(Mismatch::Range)?;
        let is_same_whole = match (range.complete, rest.complete) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let has_length = head.length == Some(rest.len()) && !head.is_coded_for_transfer;
        if (range.first, range.last) != (rest.first, rest.last) || !is_same_whole || !has_length {
            return Err(Mismatch::Range);
        }
        let is_same = match &self.validator {
            Validator::ETag(etag) => head.etag.as_ref() == Some(etag),
            Validator::LastModified(time) => head.last_modified.as_ref() == Some(time),
        };
        match head.is_coded {
            true => Err(Mismatch::Coding),
            false if !is_same => Err(Mismatch::Validator),
            false => Ok(Some(head.len)),
        }
    }

    fn rest(&self, offset: u64) -> Option<ContentRange> {
        let bytes = self.bytes.filter(|bytes| offset < bytes.len())?;
        Some(ContentRange { first: bytes.first + offset, ..bytes })
    }
}

/// The head of a response with content, if the request can be made once more.
pub(crate) fn answer_to_get(request: &[u8], response: &[u8]) -> Result<ResponseHead, Uninsured> {
    let asked = whole_head(request).ok_or(Uninsured::Request)?;
    let is_plain = asked.method == "GET" && asked.body == Body::None && !asked.tunnel;
    if !is_plain || asked.version != Version::Http11 {
        return Err(Uninsured::Request);
    }
    let head = ResponseHead::read(response).ok().flatten();
    head.filter(|head| matches!(head.status, 200 | 206)).ok_or(Uninsured::Status)
}

/// The request's line and fields for another server, without those of the client's connection and `left_out`.
pub(crate) fn asked_of_another(head: &Head<'_>, left_out: &[&str]) -> Vec<u8> {
    let named = |name: &str| {
        let options = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
        options
            .flat_map(|(_, value)| value.split(|byte| *byte == b','))
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    let mut text = format!("GET {} HTTP/1.1\r\n", head.target.raw).into_bytes();
    for (name, value) in head.headers() {
        let lower = name.to_ascii_lowercase();
        let is_left_out = OF_CONNECTIONS.contains(&lower.as_str()) || left_out.contains(&lower.as_str());
        if !is_left_out && !named(name) {
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value);
            text.extend_from_slice(b"\r\n");
        }
    }
    text
}

/// The head that the bytes begin with.
pub(crate) fn whole_head(bytes: &[u8]) -> Option<Head<'_>> {
    let limits = Limits { head_len: usize::MAX, fields: usize::MAX, body_len: u64::MAX };
    match parse_head(bytes, &limits) {
        Ok(Progress::Complete(head)) => Some(head),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "GET /big?x=1 HTTP/1.1\r\nHost: files\r\nConnection: X-Hop\r\nX-Hop: 1\r\nIf-None-Match: \"b\"\r\nCookie: a=b\r\n\r\n";

    fn response(status: u16, fields: &str) -> String {
        format!("HTTP/1.1 {status} Words\r\n{fields}\r\n\r\n")
    }

    fn read(request: &str, status: u16, fields: &str) -> Result<Insurable, Uninsured> {
        Insurable::read(request.as_bytes(), response(status, fields).as_bytes())
    }

    #[test]
    fn responses_that_can_go_on() {
        let whole = read(REQUEST, 200, "Content-Length: 1000\r\nETag: \"a\"").unwrap();
        assert_eq!((whole.body_len(), whole.bytes.unwrap().first), (1000, 0));
        let part =
            read(REQUEST, 206, "Content-Length: 10\r\nContent-Range: bytes 5-14/99\r\nETag: \"a\"").unwrap();
        assert_eq!((part.body_len(), part.bytes.unwrap().first), (10, 5));
        let dated = "Content-Length: 7\r\nDate: Sun, 06 Nov 1994 08:49:38 GMT\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        assert!(matches!(read(REQUEST, 200, dated).unwrap().validator, Validator::LastModified(_)));
    }

    #[test]
    fn responses_that_cannot() {
        let (good, tag) = ("Content-Length: 9\r\nETag: \"a\"", "ETag: \"a\"");
        let range = |range: &str| format!("{good}\r\nContent-Range: {range}");
        let with = |more: &str| format!("{good}\r\n{more}");
        for (request, status, fields, why) in [
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
                200,
                good.to_owned(),
                Uninsured::Request,
            ),
            ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", 200, good.to_owned(), Uninsured::Request),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
                200,
                good.to_owned(),
                Uninsured::Request,
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\n", 200, good.to_owned(), Uninsured::Request),
            (REQUEST, 404, good.to_owned(), Uninsured::Status),
            (REQUEST, 200, tag.to_owned(), Uninsured::Length),
            (REQUEST, 200, with("Transfer-Encoding: chunked"), Uninsured::Length),
            (REQUEST, 206, good.to_owned(), Uninsured::Length),
            (REQUEST, 206, range("bytes 5-14/99"), Uninsured::Length),
            (REQUEST, 200, range("bytes 5-13/99"), Uninsured::Length),
            (REQUEST, 200, with("Content-Encoding: gzip"), Uninsured::Coding),
            (REQUEST, 200, "Content-Length: 9\r\nETag: W/\"a\"".to_owned(), Uninsured::Validator),
            (REQUEST, 200, "Content-Length: 9".to_owned(), Uninsured::Validator),
        ] {
            assert_eq!(read(request, status, &fields), Err(why), "{request} {status} {fields}");
        }
        assert_eq!(Insurable::read(REQUEST.as_bytes(), b"HTTP/1.1 200 OK\r\nETag"), Err(Uninsured::Status));
    }

    #[test]
    fn the_rest_is_asked_for_under_the_validator() {
        let part = "Content-Length: 100\r\nContent-Range: bytes 50-149/500\r\nETag: \"a\"";
        let asked = read(REQUEST, 206, part).unwrap().ask(REQUEST.as_bytes(), 30).unwrap();
        assert_eq!(
            String::from_utf8(asked).unwrap(),
            "GET /big?x=1 HTTP/1.1\r\nHost: files\r\nCookie: a=b\r\nRange: bytes=80-149\r\nIf-Range: \"a\"\r\n\
             Connection: close\r\n\r\n"
        );
        assert_eq!(read(REQUEST, 206, part).unwrap().ask(REQUEST.as_bytes(), 100), None);
    }

    #[test]
    fn only_the_exact_rest_is_accepted() {
        let first = read(REQUEST, 200, "Content-Length: 100\r\nETag: \"a\"").unwrap();
        let accept = |status: u16, fields: &str| first.accept(response(status, fields).as_bytes(), 30);
        let exact = "Content-Length: 70\r\nContent-Range: bytes 30-99/100\r\nETag: \"a\"";
        assert_eq!(accept(206, exact), Ok(Some(response(206, exact).len())));
        let with = |from: &str, to: &str| exact.replace(from, to);
        for (status, fields, why) in [
            (200, "Content-Length: 100\r\nETag: \"b\"".to_owned(), Mismatch::Status(200)),
            (416, exact.to_owned(), Mismatch::Status(416)),
            (206, with("30-99/100", "30-99/101"), Mismatch::Range),
            (206, with("30-99", "29-99"), Mismatch::Range),
            (206, with("30-99/100", "30-98/100"), Mismatch::Range),
            (206, with("Length: 70", "Length: 69"), Mismatch::Range),
            (206, with("Content-Length: 70", "Transfer-Encoding: chunked"), Mismatch::Range),
            (206, with("Content-Range: bytes 30-99/100\r\n", ""), Mismatch::Range),
            (206, with("\"a\"", "\"b\""), Mismatch::Validator),
            (206, with("\"a\"", "W/\"a\""), Mismatch::Validator),
            (206, with("ETag: \"a\"", "X: y"), Mismatch::Validator),
            (206, format!("{exact}\r\nContent-Encoding: br"), Mismatch::Coding),
        ] {
            assert_eq!(accept(status, &fields), Err(why), "{status} {fields}");
        }
        assert_eq!(first.accept(b"HTTP/1.1 206 Partial Content\r\nETag:", 30), Ok(None));
        assert_eq!(first.accept(b"SSH-2.0-x\r\n\r\n", 30), Err(Mismatch::NotHttp));
    }

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let names: std::collections::HashSet<_> = Uninsured::ALL.iter().map(|why| why.name()).collect();
        assert_eq!(names.len(), Uninsured::ALL.len());
    }
}
