//! The corpus: the cases of crates/cli/tests/corpus.toml, and what rules make of good requests.

/// A body that a server must not take for a request.
const INSIDE: &str = "GET /inside HTTP/1.1\r\nHost: inside\r\n\r\n";

/// Bytes that parsers are known to trip over.
const TRIPS: &[u8] = b"\0\t\n\x0b\r !\"%,./0:;=\\_\x7f\x80\xa0";

/// What ways through a path are made of.
const STEPS: &[&str] = &[
    "/", "/b", "//b", "/.", "/..", "/x", "/%62", "/%2e", "/%2E%2e", "%2f", "%2Fb", "%5c", "/;", ";x=1",
    "/..;", "/%3b", "/b.c", "/%25", "/%20", "/~%7e", "/@%40",
];

/// Fields that are put into a good request, one or two at a time.
const FIELDS: &[&str] = &[
    "Connection: close",
    "Connection: keep-alive",
    "Connection: keep-alive, close",
    "Connection: keep-alivex",
    "Connection: ,,close,",
    "Connection: Upgrade\r\nUpgrade: websocket",
    "Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "Connection: content-length",
    "Content-Length: 0",
    "Content-Length: 00",
    "Content-Length: +0",
    "Content-Length: 0, 0",
    "Content_Length: 39",
    "Content-Length : 39",
    "Content-Length: 0x0",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer_Encoding: chunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding: chunked, identity",
    "TE: trailers, chunked",
    "Trailer: X-Sum",
    "Expect: 100-continue",
    "Host: b",
    "X-Forwarded-Host: b",
    "Proxy-Connection: keep-alive",
    "Content-Encoding: chunked",
    "X-Long: ................................................................................",
    "X-Fold: a\r\n b",
    "X-Fold: a\r\n\tContent-Length: 39",
    "X-Bare: a\nContent-Length: 39",
    "X-Bare: a\rContent-Length: 39",
    "X-Nul: \0",
    "X-8: \u{e9}",
    "Empty:",
    ":empty",
    "No-Colon",
];

/// One byte for each character up to U+00FF.
pub fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(c).expect("a character up to U+00FF")).collect()
}

/// Good requests of every kind.
fn good() -> Vec<String> {
    let len = INSIDE.len();
    vec![
        "GET /b/c?d=e HTTP/1.1\r\nHost: a.example:80\r\nAccept: */*\r\n\r\n".to_owned(),
        format!("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{INSIDE}"),
        format!(
            "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{len:x};a=b;c=\"d\"\r\n{INSIDE}\r\n0\r\nX-Sum: 1\r\n\r\n"
        ),
        "GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n".to_owned(),
        format!(
            "\r\nPUT /b HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 0{len}\r\n\r\n{INSIDE}"
        ),
    ]
}

/// What the rules make, in an order that stays.
pub fn made() -> Vec<Vec<u8>> {
    let mut cases = Vec::new();
    for request in good().iter().map(|text| bytes_of(text)) {
        for at in 0..=request.len() {
            let (before, after) = request.split_at(at);
            cases.extend(TRIPS.iter().map(|&trip| [before, &[trip], after].concat()));
            if let [first, rest @ ..] = after {
                cases.push([before, rest].concat());
                cases.push([before, &[*first], after].concat());
                cases.push([before, &[first ^ 0x20], rest].concat());
            }
        }
    }
    for first in STEPS {
        for second in STEPS {
            for last in ["", "/b", "/..", "%2fb", "/.", "?/../b"] {
                let path = format!("{first}{second}{last}");
                cases.push(bytes_of(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")));
                cases.push(bytes_of(&format!("GET http://a{path} HTTP/1.1\r\nHost: a\r\n\r\n")));
            }
        }
    }
    for version in ["1.0", "1.1", "1.2"] {
        for first in FIELDS {
            for second in std::iter::once(&"Accept: */*").chain(FIELDS) {
                let fields = format!("Host: a\r\n{first}\r\n{second}");
                cases.push(bytes_of(&format!("POST /p HTTP/{version}\r\n{fields}\r\n\r\n")));
            }
        }
    }
    cases.sort();
    cases.dedup();
    cases
}
