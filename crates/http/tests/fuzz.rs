//! Fuzzing of head parser and framing automata against httparse: it must accept what these accept and read the same,
//! because a difference would allow request smuggling.

#[path = "../../wire/tests/fuzzing/mod.rs"]
mod fuzzing;

mod following;

use bolero::{TypeGenerator, check};
use following::{begin, follow_pieces};
use fuzzing::Input;
use httparse::{Header, Status};
use serde::Deserialize;
use switchback_http::framing::{self, Followed, Framing, Table};
use switchback_http::{Body, Head, Limits, Progress, Reject, Version, parse_head};

const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b"\0",
    b"\r\n\r\n",
    b"\r\n\t",
    b" HTTP/1.0\r\n",
    b" HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"OPTIONS * ",
    b"http://a",
    b"[::1]:80",
    b"Host: a\r\n",
    b"Content-Length: 3\r\n",
    b"content-length:0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"content_length: 1\r\n",
    b"Connection: upgrade, close\r\nUpgrade: x\r\n",
    b"Expect: 100-continue\r\n",
    b"0\r\n\r\n",
    b"3\r\nabc\r\n",
    b"fffffffffffffff",
    b";x=y",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 \r\n\r\n",
    b"HTTP/1.1 204\r\n",
    b"Cookie: ",
    b"Set-Cookie: ",
    b"; id=",
    b"id",
    b"\xff",
];

/// The requests of tests/corpus.toml.
fn requests() -> Vec<Vec<u8>> {
    #[derive(Deserialize)]
    struct Corpus {
        case: Vec<Case>,
    }
    #[derive(Deserialize)]
    struct Case {
        bytes: String,
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/corpus.toml");
    let corpus: Corpus = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let bytes = |case: Case| case.bytes.chars().map(|c| u8::try_from(c).expect("up to U+00FF")).collect();
    corpus.case.into_iter().map(bytes).collect()
}

/// The data after the heads of these requests, and bodies of each kind.
fn bodies() -> Vec<Vec<u8>> {
    let own = [&b"5\r\nhello\r\n0\r\nDigest: x\r\n\r\n"[..], b"00A\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n"];
    let behind = |request: Vec<u8>| {
        let end = request.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        Some(request[end..].to_vec()).filter(|body| !body.is_empty())
    };
    own.into_iter().map(<[u8]>::to_vec).chain(requests().into_iter().filter_map(behind)).collect()
}

fn responses() -> Vec<Vec<u8>> {
    let texts = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 404 Not Found\r\nServer: x\r\ncontent-length: \t05 \r\nDate: y\r\n\r\nhello",
        "HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n5;a=b\r\nhello\r\n0 \r\nDigest: x\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 204\r\nset-cookie: id=1; Path=/\r\nServer: x\r\nSet-Cookie:a=b; id=1\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nany",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Lengths of the pieces in which a message arrives; the rest is one more piece.
type Cuts = Vec<u8>;

fn cut<'a>(mut bytes: &'a [u8], lens: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &len in lens {
        let (piece, rest) = bytes.split_at(usize::from(len).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}

#[derive(Clone, Debug, TypeGenerator)]
struct HeadCase {
    text: Input,
    cuts: Cuts,
    head_len: Option<u16>,
    fields: Option<u8>,
}

#[test]
fn heads() {
    let examples = requests();
    check!().with_test_time(fuzzing::time()).with_type::<HeadCase>().for_each(|case| {
        let default = Limits::default();
        let limits = Limits {
            head_len: case.head_len.map_or(default.head_len, usize::from),
            fields: case.fields.map_or(default.fields, usize::from),
            ..default
        };
        check_head(&case.text.bytes(&examples, PIECES), &case.cuts, &limits);
    });
}

/// Checks that the end of the head does not depend on the pieces, and that httparse reads the same.
fn check_head(bytes: &[u8], cuts: &[u8], limits: &Limits) {
    let whole = parse_head(bytes, limits);
    let len = |progress: &Result<Progress<'_>, Reject>| match progress {
        Ok(Progress::Complete(head)) => Ok(Some(head.len)),
        Ok(Progress::Partial) => Ok(None),
        Err(reject) => Err(*reject),
    };
    let check_beginning = |end: usize| match (len(&parse_head(&bytes[..end], limits)), len(&whole)) {
        (Ok(None), Ok(Some(len))) => assert!(end < len, "more is needed after the end"),
        (Ok(None), _) => {}
        (earlier, later) => assert_eq!(earlier, later, "with {end} bytes"),
    };
    if bytes.len() < 300 {
        (0..bytes.len()).for_each(check_beginning);
    }
    let mut end = 0;
    for piece in cut(bytes, cuts) {
        end += piece.len();
        check_beginning(end);
    }
    if let Ok(Progress::Complete(head)) = whole {
        assert!(head.len <= limits.head_len && head.headers().count() <= limits.fields);
        if head.version != Version::Http2 {
            check_meaning(bytes, &head);
        }
    }
}

fn check_meaning(bytes: &[u8], head: &Head<'_>) {
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut other = httparse::Request::new(&mut headers);
    // httparse has no version above 1.1.
    let line_end = head.start + bytes[head.start..].iter().position(|&c| c == b'\r').unwrap();
    let mut known = bytes.to_vec();
    if head.version == Version::Http11 {
        known[line_end - 1] = b'1';
    }
    assert_eq!(other.parse(&known), Ok(Status::Complete(head.len)));
    let minor = if head.version == Version::Http11 { 1 } else { 0 };
    assert_eq!((other.method, other.path), (Some(head.method), Some(head.target.raw)));
    assert_eq!(other.version, Some(minor));
    let fields: Vec<_> = other.headers.iter().map(|header| (header.name, header.value)).collect();
    assert_eq!(head.headers().collect::<Vec<_>>(), fields);

    let values = |name| named(other.headers, name);
    let body = match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], []) => Body::None,
        ([len], []) => Body::Length(std::str::from_utf8(len).unwrap().parse().unwrap()),
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Body::Chunked,
        both => panic!("{both:?} is accepted"),
    };
    assert_eq!(head.body, body);
    match (&values("host")[..], head.host) {
        ([], None) => assert_eq!(head.version, Version::Http10),
        ([], Some(host)) => {
            assert_eq!(head.version, Version::Http10);
            assert!(head.target.raw.split_once("://").unwrap().1.starts_with(host));
        }
        ([value], Some(host)) => assert!(value.starts_with(host.as_bytes())),
        both => panic!("{both:?} is accepted"),
    }
}

/// Values of the fields with this name, in lower case.
fn named<'a>(headers: &[Header<'a>], name: &str) -> Vec<&'a [u8]> {
    headers.iter().filter(|h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value).collect()
}

#[derive(Clone, Debug, TypeGenerator)]
struct BodyCase {
    text: Input,
    cuts: Cuts,
    allowed: Option<u16>,
}

#[test]
fn chunked_bodies() {
    let examples = bodies();
    check!().with_test_time(fuzzing::time()).with_type::<BodyCase>().for_each(|case| {
        let bytes = case.text.bytes(&examples, PIECES);
        let body_len = case.allowed.map_or(u64::MAX, u64::from);
        let framing = Body::Chunked.framing(&Limits { body_len, ..Limits::default() });
        let (ours, found) = follow(framing::requests(), framing, &bytes, &case.cuts, false);
        if let Followed::Ends(len) = ours {
            assert_eq!(chunks_end(&bytes), Some(len));
        }
        assert!(found.is_empty(), "cookies in a body");
    });
}

#[derive(Clone, Debug, TypeGenerator)]
struct RequestCase {
    text: Input,
    cuts: Cuts,
}

/// Requests accepted by the strict parser end where it says, with cookies where httparse has them.
#[test]
fn whole_requests() {
    let mut examples = requests();
    examples.extend([
        b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a=b; id=1;id=\r\nCookie:id=2; idd=3\r\n\r\n".to_vec(),
        b"POST / HTTP/1.1\r\nHost: a\r\ncookie: a; id=\r\nContent-Length: 3\r\n\r\nid=".to_vec(),
    ]);
    check!().with_test_time(fuzzing::time()).with_type::<RequestCase>().for_each(|case| {
        let bytes = case.text.bytes(&examples, PIECES);
        let (ours, found) = follow(framing::requests(), begin(), &bytes, &case.cuts, false);
        let Ok(Progress::Complete(head)) = parse_head(&bytes, &Limits::default()) else { return };
        if head.version == Version::Http2 {
            return;
        }
        let body = &bytes[head.len..];
        let expected = match head.body {
            Body::None => Some(0),
            // The automaton may refuse very long bodies.
            Body::Length(len) if len >> 59 > 0 => return,
            Body::Length(len) => usize::try_from(len).ok().filter(|&len| len <= body.len()),
            Body::Chunked => {
                match framing::requests().follow(&mut head.body.framing(&Limits::default()), body, false) {
                    Followed::Ends(len) => Some(len),
                    Followed::Rejected(reason, at) => {
                        return assert_eq!(ours, Followed::Rejected(reason, head.len + at));
                    }
                    _ => None,
                }
            }
        };
        assert_eq!(ours, expected.map_or(Followed::More, |len| Followed::Ends(head.len + len)));
        let cookies = head.headers().filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
        let pairs = cookies.flat_map(|(_, value)| value.split(|&c| c == b';'));
        assert_eq!(found, wanted_pairs(&bytes, pairs));
    });
}

/// Positions of the `=` in those cookies that are named [`WANTED`]; the cookies are parts of `bytes`.
fn wanted_pairs<'a>(bytes: &[u8], pairs: impl Iterator<Item = &'a [u8]>) -> Vec<usize> {
    let place = |pair: &[u8]| {
        let name = pair.len() - pair.iter().position(|c| !b" \t".contains(c))?;
        let trimmed = &pair[pair.len() - name..];
        let begins = trimmed.starts_with(WANTED) && trimmed.get(WANTED.len()) == Some(&b'=');
        begins.then(|| trimmed.as_ptr() as usize - bytes.as_ptr() as usize + WANTED.len())
    };
    pairs.filter_map(place).collect()
}

#[derive(Clone, Debug, TypeGenerator)]
struct ResponseCase {
    text: Input,
    cuts: Cuts,
    to_head: bool,
}

#[test]
fn responses_to_anything() {
    let examples = responses();
    check!().with_test_time(fuzzing::time()).with_type::<ResponseCase>().for_each(|case| {
        let bytes = case.text.bytes(&examples, PIECES);
        let (ours, found) = follow(framing::responses(), begin(), &bytes, &case.cuts, case.to_head);
        // Here any text is allowed as reason, value or extension, but not in httparse.
        if let (Followed::Ends(len), Some(other)) = (ours, response_end(&bytes, case.to_head)) {
            assert_eq!(len, other);
            assert_eq!(found, wanted_pairs(&bytes, set_cookies(&bytes).into_iter()));
        }
    });
}

/// Values of Set-Cookie in a response and the interim ones before it, according to httparse.
fn set_cookies(bytes: &[u8]) -> Vec<&[u8]> {
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(Status::Complete(len)) = head.parse(bytes) else { return Vec::new() };
    let mut values = named(head.headers, "set-cookie");
    if head.code.is_some_and(|code| code < 200) {
        values.extend(set_cookies(&bytes[len..]));
    }
    values
}

/// Name of the cookie to find.
const WANTED: &[u8] = b"id";

/// Follows a message, whole and in pieces, and checks that the results are the same.
fn follow(table: &Table, begin: Framing, bytes: &[u8], cuts: &[u8], to_head: bool) -> (Followed, Vec<usize>) {
    let in_pieces = |pieces: &[&[u8]]| follow_pieces(table, begin, pieces, to_head, WANTED);
    let whole = in_pieces(&[bytes]);
    assert_eq!(in_pieces(&cut(bytes, cuts)), whole);
    assert_eq!(in_pieces(&bytes.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    (whole.0, whole.2)
}

/// End of a chunked body according to httparse.
fn chunks_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let Ok(Status::Complete((len, size))) = httparse::parse_chunk_size(&bytes[at..]) else { return None };
        at += len;
        if size == 0 {
            let mut headers = [httparse::EMPTY_HEADER; 2048];
            let trailers = httparse::parse_headers(&bytes[at..], &mut headers);
            let Ok(Status::Complete((len, _))) = trailers else { return None };
            return Some(at + len);
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        if bytes.get(end..end.checked_add(2)?)? != b"\r\n" {
            return None;
        }
        at = end + 2;
    }
}

/// End of a response according to httparse and RFC 9112 section 6.3; None if it is invalid or ends with the connection.
fn response_end(bytes: &[u8], to_head: bool) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 256];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(Status::Complete(len)) = head.parse(bytes) else { return None };
    let encoding = !named(head.headers, "transfer-encoding").is_empty();
    let lengths = named(head.headers, "content-length");
    match head.code? {
        101 => None,
        100..=199 => Some(len + response_end(&bytes[len..], to_head)?),
        204 | 304 => Some(len),
        _ if to_head => Some(len),
        _ if encoding => Some(len + chunks_end(&bytes[len..])?),
        _ => Some(len + std::str::from_utf8(lengths.first()?).ok()?.parse::<usize>().ok()?),
    }
}
