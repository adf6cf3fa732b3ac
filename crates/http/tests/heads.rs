//! Heads with their results. Every reason to refuse a head has a row.

use std::collections::HashSet;

use switchback_http::framing::{self, Followed};
use switchback_http::{Body, Form, Head, Limits, Progress, Reject, Version, parse_head};

fn parse(text: &[u8]) -> Result<Option<Head<'_>>, Reject> {
    Ok(match parse_head(text, &Limits::default())? {
        Progress::Complete(head) => Some(head),
        Progress::Partial => None,
    })
}

fn accepted(text: &str) -> Head<'_> {
    match parse(text.as_bytes()) {
        Ok(Some(head)) => head,
        other => panic!("{text:?}: {other:?}"),
    }
}

/// A request for `/` with `Host` and the given lines.
fn with_fields(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

#[test]
fn a_request_of_curl() {
    let text = "GET /img/a.png?size=2 HTTP/1.1\r\nHost: Static.example.com:8080\r\nUser-Agent: curl/8.5.0\r\n\
                Accept: */*\r\n\r\nGET";
    let head = accepted(text);
    assert_eq!(head.method, "GET");
    assert_eq!(head.target.raw, "/img/a.png?size=2");
    assert_eq!(head.target.form, Form::Origin);
    assert_eq!(head.path(), "/img/a.png");
    assert_eq!(head.version, Version::Http11);
    assert_eq!(head.host, Some("Static.example.com"));
    assert_eq!(head.len, text.len() - 3);
    assert_eq!(head.body, Body::None);
    assert!(head.keep_alive && !head.expect_continue && !head.tunnel);
    assert_eq!(head.header("user-AGENT"), Some(b"curl/8.5.0".as_slice()));
    assert_eq!(head.header("Cookie"), None);
    let names: Vec<_> = head.headers().map(|(name, _)| name).collect();
    assert_eq!(names, ["Host", "User-Agent", "Accept"]);
}

#[test]
fn targets() {
    let rows = [
        ("GET /", Form::Origin, "/"),
        ("GET /?", Form::Origin, "/"),
        ("GET //a/../b;c=%2F|{}^`?\\d?", Form::Origin, "//a/../b;c=%2F|{}^`"),
        ("GET http://h", Form::Absolute { authority: "h" }, "/"),
        ("GET HTTPS://H?a/b", Form::Absolute { authority: "H" }, "/"),
        ("GET http://h/a?b", Form::Absolute { authority: "h" }, "/a"),
        ("OPTIONS *", Form::Asterisk, "*"),
    ];
    for (line, form, path) in rows {
        let text = format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n");
        let head = accepted(&text);
        assert_eq!((head.target.form, head.path()), (form, path), "{line}");
        assert_eq!(format!("{} {}", head.method, head.target.raw), line);
    }
}

#[test]
fn the_host_is_that_of_the_authority() {
    let head = accepted("GET http://[2001:DB8::1]:80/ HTTP/1.1\r\nhost: \t [2001:db8::1]:80\r\n\r\n");
    assert_eq!(head.host, Some("[2001:db8::1]"));
    assert_eq!(accepted("GET / HTTP/1.0\r\n\r\n").host, None);
    // RFC 9112 section 3.2.2.
    assert_eq!(accepted("GET http://b:81/ HTTP/1.0\r\n\r\n").host, Some("b"));
    assert_eq!(accepted("GET http://b HTTP/1.0\r\nHost: B\r\n\r\n").host, Some("B"));
    let differs = parse(b"GET http://b/ HTTP/1.0\r\nHost: a\r\n\r\n").map(|_| ());
    assert_eq!(differs, Err(Reject::HostMismatch));
}

#[test]
fn one_empty_line_may_come_first() {
    let text = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = accepted(text);
    assert_eq!((head.start, head.len, head.method), (2, text.len(), "GET"));
    assert_eq!(accepted(&text[2..]).start, 0);
    for end in 0..text.len() {
        assert!(parse(&text.as_bytes()[..end]).unwrap().is_none(), "{end}");
    }
}

#[test]
fn a_higher_minor_version_is_read_as_the_highest_known() {
    let head = accepted("GET / HTTP/1.2\r\nHost: a\r\n\r\n");
    assert_eq!((head.version, head.keep_alive), (Version::Http11, true));
    assert!(matches!(parse(b"GET / HTTP/1.9\r\n\r\n"), Err(Reject::MissingHost)));
}

#[test]
fn as_many_fields_as_the_limit_says() {
    let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    assert_eq!(accepted(&fields(100)).headers().count(), 100);
    assert!(matches!(parse(fields(101).as_bytes()), Err(Reject::TooManyFields)));
}

#[test]
fn bodies() {
    let rows = [
        ("", Body::None),
        ("Content-Length: 0\r\n", Body::Length(0)),
        ("content-length:9223372036854775807\r\n", Body::Length(i64::MAX as u64)),
        ("Content-Length: 05\r\n", Body::Length(5)),
        ("Content-Length: 0000000000000000005\r\n", Body::Length(5)),
        ("Transfer-Encoding: chunked\r\n", Body::Chunked),
        ("Transfer-Encoding: Chunked\r\n", Body::Chunked),
        ("transfer-encoding: \tCHUNKED \r\n", Body::Chunked),
    ];
    for (lines, body) in rows {
        assert_eq!(accepted(&with_fields(lines)).body, body, "{lines:?}");
    }
}

#[test]
fn persistence() {
    let rows = [
        ("1.1", "", true),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: foo ,\tclose\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection: foo\r\nconnection: close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.1", "Connection: ,, ,close,\r\n", false),
        ("1.1", "Connection: close;q=1\r\n", true),
        ("1.1", "Connection: \"close\"\r\n", true),
        ("1.1", "Connection: clo se\r\n", true),
        ("1.1", "Connection:\r\n", true),
        ("1.0", "Connection: keep-alivex\r\n", false),
        ("1.0", "Connection: x-keep-alive\r\n", false),
        ("1.0", "Connection: upgrade,\tKEEP-ALIVE\r\n", true),
        ("1.0", "Connection: upgrade\r\nConnection: keep-alive\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for (version, lines, keep_alive) in rows {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        assert_eq!(accepted(&text).keep_alive, keep_alive, "{version} {lines:?}");
    }
}

#[test]
fn expectations_and_upgrades_are_those_of_http11_only() {
    for (version, yes) in [("1.1", true), ("1.0", false)] {
        let lines =
            "Content-Length: 1\r\nExpect: 100-Continue\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        let head = accepted(&text);
        assert_eq!((head.expect_continue, head.tunnel), (yes, yes), "{version}");
    }
    assert!(!accepted(&with_fields("Upgrade: h2c\r\n")).tunnel);
    assert!(!accepted(&with_fields("Connection: upgrade\r\n")).tunnel);
    assert!(!accepted(&with_fields("Expect: 200-ok\r\n")).expect_continue);
}

#[test]
fn the_preface_of_http2_is_a_head_of_its_own() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let text = format!("{preface}\0\0\0\x04");
    let head = accepted(&text);
    assert_eq!((head.method, head.target.raw, head.path()), ("PRI", "*", "*"));
    assert_eq!((head.target.form, head.version, head.host), (Form::Asterisk, Version::Http2, None));
    assert_eq!((head.len, head.body, head.tunnel), (24, Body::None, true));
    assert_eq!(head.headers().count(), 0);
    for end in 0..preface.len() {
        assert!(parse(&preface.as_bytes()[..end]).unwrap().is_none(), "{:?}", &preface[..end]);
    }
}

#[test]
fn field_values_may_have_tabs_and_bytes_beyond_ascii() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\nX-Name: caf\xc3\xa9\t\xff\r\nEmpty:\r\n\r\n";
    let head = parse(text).unwrap().unwrap();
    assert_eq!(head.header("x-name"), Some(b"caf\xc3\xa9\t\xff".as_slice()));
    assert_eq!(head.header("empty"), Some(b"".as_slice()));
}

/// Refused heads; the last byte of each row shows the error.
const REFUSED: &[(Reject, &str)] = &[
    (Reject::LeadingEmptyLine, "\r\n\r"),
    (Reject::LeadingEmptyLine, "\rG"),
    (Reject::AsteriskTarget, "\r\nPRI * "),
    (Reject::LeadingEmptyLine, "\n"),
    (Reject::InvalidMethod, "G\u{e9}T"),
    (Reject::InvalidMethod, "GET\r\n"),
    (Reject::InvalidMethod, "\x16\x03\x01"),
    (Reject::InvalidMethod, "GET\0"),
    (Reject::Connect, "CONNECT "),
    (Reject::Http2Preface, "PRI * h"),
    (Reject::Http2Preface, "PRI * HTTP/1"),
    (Reject::Http2Preface, "PRI * HTTP/2.0\n"),
    (Reject::Http2Preface, "PRI * HTTP/2.0\r\nH"),
    (Reject::Http2Preface, "PRI * HTTP/2.0\r\n\r\nSM\r\n\n"),
    (Reject::RequestLineSpace, " GET"),
    (Reject::RequestLineSpace, "GET\t/"),
    (Reject::RequestLineSpace, "GET  /"),
    (Reject::RequestLineSpace, "GET /\tHTTP/1.1"),
    (Reject::RequestLineSpace, "GET /  "),
    (Reject::RequestLineSpace, "GET / HTTP/1.1 "),
    (Reject::InvalidTarget, "GET a"),
    (Reject::InvalidTarget, "GET ftp:"),
    (Reject::InvalidTarget, "GET https:/x"),
    (Reject::InvalidTarget, "GET /\x7f"),
    (Reject::InvalidTarget, "GET /\0"),
    (Reject::InvalidTarget, "GET /caf\u{e9}"),
    (Reject::InvalidTarget, "GET /a\\b"),
    (Reject::InvalidTarget, "GET /\""),
    (Reject::InvalidTarget, "GET /?<"),
    (Reject::InvalidTarget, "GET http://a\\"),
    (Reject::InvalidTarget, "GET http://a>/"),
    (Reject::InvalidTarget, "OPTIONS *a"),
    (Reject::Fragment, "GET /#"),
    (Reject::Fragment, "GET /?a#"),
    (Reject::Fragment, "GET http://a#"),
    (Reject::AsteriskTarget, "GET * "),
    (Reject::InvalidVersion, "GET /\r\n"),
    (Reject::InvalidVersion, "GET /\n"),
    (Reject::InvalidVersion, "GET / http"),
    (Reject::InvalidVersion, "GET / HTTP/1,"),
    (Reject::InvalidVersion, "GET / HTTP/x"),
    (Reject::InvalidVersion, "GET / HTTP/1.12"),
    (Reject::InvalidVersion, "GET / HTTP/1.1\0"),
    (Reject::InvalidVersion, "GET /a b HTTP/1.1"),
    (Reject::UnsupportedVersion, "GET / HTTP/2.0"),
    (Reject::UnsupportedVersion, "GET / HTTP/1.2\r\nTransfer-Encoding: chunked\r\n"),
    (Reject::InvalidPercentEncoding, "GET /%zz/.. "),
    (Reject::NulInPath, "GET http://a/%00 "),
    (Reject::PathAboveRoot, "GET /a/../.. "),
    (Reject::UnsupportedVersion, "GET / HTTP/0.9"),
    (Reject::BareCr, "GET / HTTP/1.1\rH"),
    (Reject::BareCr, "GET / HTTP/1.1\r\nHost: a\rb"),
    (Reject::BareCr, "GET / HTTP/1.1\r\nHost: a\r\n\rb"),
    (Reject::BareLf, "GET / HTTP/1.1\n"),
    (Reject::BareLf, "GET / HTTP/1.1\r\nHost: a\n"),
    (Reject::BareLf, "GET / HTTP/1.1\r\nHost: a\r\n\n"),
    (Reject::BareLf, "GET / HTTP/1.1\r\nHost\n"),
    (Reject::ObsFold, "GET / HTTP/1.1\r\n "),
    (Reject::ObsFold, "GET / HTTP/1.1\r\nHost: a\r\n\t"),
    (Reject::InvalidFieldName, "GET / HTTP/1.1\r\n:"),
    (Reject::InvalidFieldName, "GET / HTTP/1.1\r\nHost\r\n"),
    (Reject::InvalidFieldName, "GET / HTTP/1.1\r\nH\0"),
    (Reject::InvalidFieldName, "GET / HTTP/1.1\r\nH\u{f6}st"),
    (Reject::InvalidFieldName, "GET / HTTP/1.1\r\nContent_Length: 1\r\n"),
    (Reject::InvalidFieldName, "GET / HTTP/1.1\r\ntransfer_Encoding: chunked\r\n"),
    (Reject::SpaceBeforeColon, "GET / HTTP/1.1\r\nHost "),
    (Reject::SpaceBeforeColon, "GET / HTTP/1.1\r\nHost\t"),
    (Reject::InvalidFieldValue, "GET / HTTP/1.1\r\nA: \0"),
    (Reject::InvalidFieldValue, "GET / HTTP/1.1\r\nA: 12345678901234\x7f"),
    (Reject::InvalidFieldValue, "GET / HTTP/1.1\r\nA: \x0b"),
    (Reject::MissingHost, "GET / HTTP/1.1\r\n\r\n"),
    (Reject::MissingHost, "GET http://a/ HTTP/1.1\r\n\r\n"),
    (Reject::DuplicateHost, "GET / HTTP/1.0\r\nHost: a\r\nhOST: a\r\n"),
    (Reject::InvalidHost, "GET / HTTP/1.1\r\nHost:\r\n"),
    (Reject::InvalidHost, "GET / HTTP/1.1\r\nHost: a b\r\n"),
    (Reject::InvalidHost, "GET / HTTP/1.1\r\nHost: a, b\r\n"),
    (Reject::InvalidHost, "GET / HTTP/1.1\r\nHost: a@b\r\n"),
    (Reject::InvalidHost, "GET http:///a"),
    (Reject::InvalidHost, "GET http://u@a/"),
    (Reject::InvalidHost, "GET http://a:b "),
    (Reject::HostMismatch, "GET http://a/ HTTP/1.1\r\nHost: b\r\n"),
    (Reject::HostMismatch, "GET http://a/ HTTP/1.1\r\nHost: a:80\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length:\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: +1\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: -1\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: 1, 1\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: 1 1\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: 0x1\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: 00000000000000000001\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n"),
    (Reject::InvalidContentLength, "GET / HTTP/1.1\r\nContent-Length: 18446744073709551617\r\n"),
    (Reject::DuplicateContentLength, "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n"),
    (Reject::LengthAndEncoding, "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
    (Reject::LengthAndEncoding, "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n"),
    (Reject::UnsupportedEncoding, "GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n"),
    (Reject::UnsupportedEncoding, "GET / HTTP/1.1\r\nTransfer-Encoding: identity\r\n"),
    (Reject::UnsupportedEncoding, "GET / HTTP/1.1\r\nTransfer-Encoding: chunked,\r\n"),
    (Reject::UnsupportedEncoding, "GET / HTTP/1.1\r\nTransfer-Encoding:\r\n"),
    (
        Reject::DuplicateEncoding,
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ),
    (Reject::ExpectWithoutContent, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n"),
    (
        Reject::ExpectWithoutContent,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nExpect: 100-Continue\r\n\r\n",
    ),
    (Reject::EncodingInHttp10, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"),
];

#[test]
fn refused_at_the_byte_that_shows_it() {
    for &(reason, text) in REFUSED {
        assert_eq!(parse(text.as_bytes()).map(|_| ()), Err(reason), "{text:?}");
        let continued = format!("{text}x: y\r\n\r\n");
        assert_eq!(parse(continued.as_bytes()).map(|_| ()), Err(reason), "{continued:?}");
    }
}

#[test]
fn no_reason_is_without_a_test() {
    let limits = [Reject::TooManyFields, Reject::HeadTooLong];
    let rows = REFUSED.iter().map(|&(reason, _)| reason).chain(limits);
    // The others belong to chunked bodies, which have a table of their own, and to routes.
    let others = [
        Reject::AmbiguousPath,
        Reject::InvalidChunkSize,
        Reject::ChunkExtension,
        Reject::ExtensionTooLong,
        Reject::InvalidChunkEnd,
        Reject::ForbiddenTrailer,
        Reject::TrailerTooLong,
        Reject::BodyTooLong,
    ];
    let tested: HashSet<_> = rows.chain(others).collect();
    for reason in Reject::ALL {
        assert!(tested.contains(reason), "{reason}");
    }
}

#[test]
fn limits_are_the_last_value_allowed() {
    let limits = Limits { head_len: 60, fields: 2, body_len: 12 };
    let head = |extra: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(extra));
    let fits = head(60 - head(0).len());
    assert!(matches!(parse_head(fits.as_bytes(), &limits), Ok(Progress::Complete(head)) if head.len == 60));
    let too_long = head(61 - head(0).len());
    assert!(matches!(parse_head(&too_long.as_bytes()[..59], &limits), Ok(Progress::Partial)));
    assert_eq!(parse_head(&too_long.as_bytes()[..60], &limits).map(|_| ()), Err(Reject::HeadTooLong));

    let two = "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n";
    assert!(matches!(parse_head(format!("{two}\r\n").as_bytes(), &limits), Ok(Progress::Complete(_))));
    assert_eq!(parse_head(format!("{two}C").as_bytes(), &limits).map(|_| ()), Err(Reject::TooManyFields));

    let length = |len: u64| format!("GET / HTTP/1.1\r\nContent-Length: {len}\r\nHost: a\r\n\r\n");
    assert!(matches!(parse_head(length(12).as_bytes(), &limits), Ok(Progress::Complete(_))));
    assert_eq!(parse_head(length(13).as_bytes(), &limits).map(|_| ()), Err(Reject::BodyTooLong));
}

#[test]
fn statuses() {
    let rows = [
        (Reject::BareLf, 400),
        (Reject::Connect, 501),
        (Reject::UnsupportedEncoding, 501),
        (Reject::UnsupportedVersion, 505),
        (Reject::Http2Preface, 400),
        (Reject::BodyTooLong, 413),
        (Reject::HeadTooLong, 431),
        (Reject::TooManyFields, 431),
    ];
    for (reason, status) in rows {
        assert_eq!(reason.status(), status, "{reason}");
    }
}

#[test]
fn a_request_with_a_chunked_body_is_followed_by_the_next_request() {
    let text =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\nGET /b";
    let head = accepted(text);
    let mut framing = head.body.framing(&Limits::default());
    let body = framing::requests().follow(&mut framing, &text.as_bytes()[head.len..], false);
    assert_eq!(body, Followed::Ends(text.len() - head.len - "GET /b".len()));
}
