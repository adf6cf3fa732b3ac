//! Copies of requests for a pool whose answers are thrown away.

use switchback_config::is_same_variable;
use switchback_http::framing::{self, Followed};
use switchback_http::{Head, Limits};

use crate::rewrite::name;

/// Tells a server that a request is a copy.
const MARK: &str = "X-Mirrored";
/// Fields about the connection that the request came on (RFC 9110 section 7.6.1), and `Expect`, as nobody waits for 100.
const LEFT_OUT: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "http2-settings",
    "te",
    "trailer",
    "expect",
    MARK,
];

/// The copy of a request whose head its server gets as `text`, with these fields besides. The connection ends with it.
pub fn copy(text: &[u8], body: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + body.len() + 64);
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    out.extend_from_slice(lines.next().unwrap_or_default());
    let named: Vec<&[u8]> = text.split(|byte| *byte == b'\n').skip(1).flat_map(options).collect();
    for line in lines {
        let Some(name) = name(line) else { break };
        let is_left_out = LEFT_OUT.iter().any(|other| is_same_variable(other, name))
            || named.iter().any(|other| other.eq_ignore_ascii_case(name.as_bytes()));
        if !is_left_out {
            out.extend_from_slice(line);
        }
    }
    for (name, value) in fields.iter().chain(&[("Connection", "close"), (MARK, "1")]) {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// The body of the request that `data` begins with; None if it has not come whole, or if the request asks for another protocol.
pub fn whole_body<'a>(data: &'a [u8], head: &Head<'_>, limits: &Limits) -> Option<&'a [u8]> {
    let mut framing = head.body.framing(limits);
    let behind = &data[head.len..];
    match () {
        () if head.tunnel => None,
        () if framing.is_between_messages() => Some(&[]),
        () => match framing::requests().follow(&mut framing, behind, false) {
            Followed::Ends(len) => Some(&behind[..len]),
            Followed::More | Followed::Rejected(..) | Followed::Lost => None,
        },
    }
}

/// The options of a field `Connection`; none of another line.
fn options(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let value = name(line)
        .filter(|name| name.eq_ignore_ascii_case("connection"))
        .map_or(&[][..], |name| &line[name.len() + 1..]);
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use switchback_http::{Progress, parse_head};

    use super::*;

    fn copied(text: &str) -> Option<String> {
        let limits = Limits::default();
        let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &limits) else { panic!("{text}") };
        let body = whole_body(text.as_bytes(), &head, &limits)?;
        let copy = copy(&text.as_bytes()[head.start..head.len], body, &[("X-Forwarded-For", "192.0.2.1")]);
        Some(String::from_utf8(copy).unwrap())
    }

    #[test]
    fn a_copy_has_the_head_without_what_is_about_the_connection() {
        let text = "GET /a?b HTTP/1.1\r\nHost: a.example\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
                    TE: trailers\r\nX_Mirrored: no\r\nCookie: a=b\r\nX-Forwarded-For: 198.51.100.7\r\n\r\nGET /next";
        assert_eq!(
            copied(text).unwrap(),
            "GET /a?b HTTP/1.1\r\nHost: a.example\r\nCookie: a=b\r\nX-Forwarded-For: 198.51.100.7\r\n\
             X-Forwarded-For: 192.0.2.1\r\nConnection: close\r\nX-Mirrored: 1\r\n\r\n"
        );
    }

    #[test]
    fn what_has_come_whole_is_copied_with_its_body() {
        let head = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let rows = [
            ("Content-Length: 3\r\n", "abcGET", Some("abc")),
            ("Content-Length: 3\r\nExpect: 100-continue\r\n", "ab", None),
            ("Content-Length: 0\r\n", "", Some("")),
            ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\nGET", Some("3\r\nabc\r\n0\r\n\r\n")),
            ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n", None),
            ("Connection: upgrade\r\nUpgrade: websocket\r\n", "", None),
        ];
        for (fields, data, body) in rows {
            let copy = copied(&(head(fields) + data));
            let end = |copy: String| copy.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
            assert_eq!(copy.and_then(end).as_deref(), body, "{fields}{data}");
        }
    }
}
