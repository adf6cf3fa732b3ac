//! What has to be the same about a response for another server to make it once more.

use switchback_http::framing::Framing;
use switchback_http::{Body, Limits};

use crate::insurable::{Uninsured, answer_to_get, asked_of_another, whole_head};
use crate::response::ResponseHead;

/// A response that another server can make once more, as far as its head tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeatable {
    status: u16,
    /// Length of the response's head, in bytes.
    head_len: usize,
    body: Body,
    etag: Option<Vec<u8>>,
    coding: Option<Vec<u8>>,
}

/// Why an answer is another response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It is no response of HTTP/1.
    NotHttp,
    /// Its status is another one.
    Status(u16),
    /// It has another length, or one where the first one has none.
    Length,
    /// Its entity tag is another one.
    Validator,
    /// Its content is coded otherwise.
    Coding,
    /// What the client has begins with other bytes.
    Content,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::NotHttp => f.write_str("the server's answer is not HTTP/1"),
            Difference::Status(status) => write!(f, "the server answers {status}"),
            Difference::Length => f.write_str("the server's answer has another length, or none"),
            Difference::Validator => f.write_str("the server's content has another ETag"),
            Difference::Coding => f.write_str("the server codes the content otherwise"),
            Difference::Content => f.write_str("the server's content begins with other bytes"),
        }
    }
}

impl std::error::Error for Difference {}

impl Repeatable {
    /// Reads the head of a request, and that of its final response.
    pub fn read(request: &[u8], response: &[u8]) -> Result<Self, Uninsured> {
        let head = answer_to_get(request, response)?;
        let body = body_of(&head).ok_or(Uninsured::Length)?;
        Ok(Repeatable { status: head.status, head_len: head.len, body, etag: head.etag, coding: head.coding })
    }

    /// Length of the response's head, in bytes.
    pub fn head_len(&self) -> usize {
        self.head_len
    }

    /// Status of the response.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Length of the response's body, in bytes; None if only its end says it.
    pub fn body_len(&self) -> Option<u64> {
        match self.body {
            Body::Length(len) => Some(len),
            _ => None,
        }
    }

    /// The framing at the beginning of the body.
    pub(crate) fn framing(&self) -> Framing {
        self.body.framing(&Limits::default())
    }

    /// The request once more, made of the one that [`Self::read`] has read.
    pub fn ask(&self, request: &[u8]) -> Option<Vec<u8>> {
        let head = whole_head(request)?;
        let mut text = asked_of_another(&head, &[]);
        text.extend_from_slice(b"\r\n");
        Some(text)
    }

    /// Reads the head of the answer to [`Self::ask`]: its length, or None if `answer` ends before it does.
    pub fn accept(&self, answer: &[u8]) -> Result<Option<usize>, Difference> {
        let Some(head) = ResponseHead::read(answer).map_err(|()| Difference::NotHttp)? else {
            return Ok(None);
        };
        if head.status != self.status {
            return Err(Difference::Status(head.status));
        }
        if body_of(&head) != Some(self.body) {
            return Err(Difference::Length);
        }
        if head.etag != self.etag {
            return Err(Difference::Validator);
        }
        if head.coding != self.coding {
            return Err(Difference::Coding);
        }
        Ok(Some(head.len))
    }
}

/// The body behind a head, if its end can be known.
fn body_of(head: &ResponseHead) -> Option<Body> {
    match (head.length, head.is_chunked) {
        (Some(length), false) if !head.is_coded_for_transfer => Some(Body::Length(length)),
        (None, true) => Some(Body::Chunked),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &str = "GET /text?n=1 HTTP/1.1\r\nHost: a\r\nConnection: X-Hop\r\nX-Hop: 1\r\nRange: bytes=5-\r\nCookie: b\r\n\r\n";

    fn response(status: u16, fields: &str) -> String {
        format!("HTTP/1.1 {status} Words\r\n{fields}\r\n\r\n")
    }

    fn read(status: u16, fields: &str) -> Result<Repeatable, Uninsured> {
        Repeatable::read(REQUEST.as_bytes(), response(status, fields).as_bytes())
    }

    #[test]
    fn responses_that_can_be_repeated() {
        assert_eq!(read(200, "Content-Length: 9").unwrap().body_len(), Some(9));
        assert_eq!(
            read(206, "Content-Length: 9\r\nContent-Range: bytes 5-13/14").unwrap().body_len(),
            Some(9)
        );
        let chunked = read(200, "Transfer-Encoding: Chunked\r\nContent-Encoding: gzip").unwrap();
        assert_eq!((chunked.body_len(), chunked.body), (None, Body::Chunked));
    }

    #[test]
    fn responses_that_cannot() {
        for (status, fields, why) in [
            (404, "Content-Length: 9", Uninsured::Status),
            (200, "Server: x", Uninsured::Length),
            (200, "Transfer-Encoding: gzip, chunked", Uninsured::Length),
            (200, "Transfer-Encoding: chunked\r\nContent-Length: 9", Uninsured::Length),
        ] {
            assert_eq!(read(status, fields), Err(why), "{fields}");
        }
        let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        let good = response(200, "Content-Length: 9");
        assert_eq!(Repeatable::read(post, good.as_bytes()), Err(Uninsured::Request));
    }

    #[test]
    fn the_same_is_asked_for() {
        let asked = read(200, "Content-Length: 9").unwrap().ask(REQUEST.as_bytes()).unwrap();
        assert_eq!(
            String::from_utf8(asked).unwrap(),
            "GET /text?n=1 HTTP/1.1\r\nHost: a\r\nRange: bytes=5-\r\nCookie: b\r\n\r\n"
        );
    }

    #[test]
    fn only_a_response_like_the_first_one_is_accepted() {
        let fields = "Content-Length: 100\r\nETag: \"a\"";
        let first = read(200, fields).unwrap();
        let accept = |status: u16, fields: &str| first.accept(response(status, fields).as_bytes());
        let dated = format!("Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n{fields}");
        assert_eq!(accept(200, &dated), Ok(Some(response(200, &dated).len())));
        for (status, fields, why) in [
            (206, fields, Difference::Status(206)),
            (200, "Content-Length: 101\r\nETag: \"a\"", Difference::Length),
            (200, "Transfer-Encoding: chunked\r\nETag: \"a\"", Difference::Length),
            (200, "Content-Length: 100\r\nETag: \"b\"", Difference::Validator),
            (200, "Content-Length: 100", Difference::Validator),
            (200, "Content-Length: 100\r\nETag: \"a\"\r\nContent-Encoding: br", Difference::Coding),
        ] {
            assert_eq!(accept(status, fields), Err(why), "{status} {fields}");
        }
        assert_eq!(first.accept(b"HTTP/1.1 200 OK\r\nETag:"), Ok(None));
        assert_eq!(first.accept(b"SSH-2.0-x\r\n\r\n"), Err(Difference::NotHttp));
    }
}
