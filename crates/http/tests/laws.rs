//! Properties of any bytes.

mod following;

use following::{begin, follow_pieces};
use proptest::prelude::*;
use switchback_http::framing::{self, Followed, Framing, Table};
use switchback_http::{Body, Limits, Progress, Reject, parse_head};

/// Limits small enough for random texts to reach them.
const LIMITS: Limits = Limits { head_len: 160, fields: 6, body_len: 8 };

/// Length of the head; None if it is incomplete.
fn head_len(bytes: &[u8]) -> Result<Option<usize>, Reject> {
    Ok(match parse_head(bytes, &LIMITS)? {
        Progress::Complete(head) => Some(head.len),
        Progress::Partial => None,
    })
}

/// Pieces of heads in any order: most are refused, but not at the first byte.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"GET",
        b"OPTIONS",
        b"PRI",
        b" ",
        b"/",
        b"*",
        b"/a?b",
        b"http://h",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"HTTP/2.0",
        b"\r\n\r\nSM",
        b"\r\n",
        b"\r",
        b"\n",
        b"\t",
        b"\0",
        b":",
        b"#",
        b"Host: h\r\n",
        b"Host: h:1\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close, upgrade\r\n",
        b"X_y: z\xff\r\n",
        b"GET / HTTP/1.1\r\n",
        b"POST http://h/p HTTP/1.0\r\n",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..14).prop_map(|pieces| pieces.concat())
}

/// Heads of which most are accepted.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let lines =
        vec!["GET / HTTP/1.1", "OPTIONS * HTTP/1.1", "M- http://h/a?b HTTP/1.1", "PUT /x%20y HTTP/1.0"];
    let fields = vec![
        "A: b",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Expect: 100-continue",
        "e:",
    ];
    let line = prop::sample::select(lines);
    let fields = prop::collection::vec(prop::sample::select(fields), 0..4);
    (line, fields).prop_map(|(line, fields)| {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        format!("{line}\r\nHost: h\r\n{fields}\r\n").into_bytes()
    })
}

fn chunked_bodies() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"0\r\n",
        b"3\r\nabc\r\n",
        b"\r\n",
        b"a: b\r\n",
        b"1",
        b"\r",
        b"\n",
        b";",
        b"Host:",
        b"\0",
        b"ffffffff",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..10).prop_map(|pieces| pieces.concat())
}

/// Responses of which most begin well.
fn responses() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100\r\n\r\n",
        b"HTTP/1.0 304 \r\n",
        b"Content-Length: 12\r\n",
        b"content-length:0 \r\n",
        b"Transfer-encoding: Chunked\r\n",
        b"Contents: x\r\n",
        b"Set-Cookie: id=1; id=2\r\n",
        b"set-cookie:i",
        b"d=",
        b"\r\n",
        b"1",
        b"0\r\n\r\n",
        b"3;x=y\r\nabc\r\n",
        b"data",
        b"\n",
    ];
    let beginning = prop::sample::select(&pieces[..3]);
    let rest = prop::collection::vec(prop::sample::select(pieces), 0..10);
    (beginning, rest).prop_map(|(beginning, rest)| [beginning, &rest.concat()].concat())
}

/// Requests with cookies, of which most begin well.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n",
        b"Cookie: id=1; a=2\r\n",
        b"cookie:",
        b" i",
        b"id",
        b"d=",
        b"=",
        b";",
        b"\t",
        b"\r\n",
        b"Content-Length: 2\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n\r\n",
        b"2\r\nid\r\n",
        b"0\r\n",
        b"\0",
    ];
    let rest = prop::collection::vec(prop::sample::select(pieces), 0..12);
    rest.prop_map(|rest| [b"GET / HTTP/1.1\r\n", &rest.concat()[..]].concat())
}

/// Follows a message. Returns the result, the last state, and the positions of cookies named `id`.
fn follow(table: &Table, framing: Framing, pieces: &[&[u8]]) -> (Followed, Framing, Vec<usize>) {
    follow_pieces(table, framing, pieces, false, b"id")
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..9, 0..30)
}

/// `bytes` in pieces of these lengths; the rest is one more piece.
fn cut<'a>(mut bytes: &'a [u8], lens: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &len in lens {
        let (piece, rest) = bytes.split_at(len.min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces
}

/// Checks that the head of `whole` does not depend on how much has arrived.
fn check_beginnings(whole: &[u8]) -> Result<(), TestCaseError> {
    let result = head_len(whole);
    for end in 0..whole.len() {
        match (head_len(&whole[..end]), result) {
            (Ok(None), Ok(Some(len))) => prop_assert!(end < len, "more needed after the end"),
            (Ok(None), _) => {}
            (earlier, _) => prop_assert_eq!(earlier, result, "with {} bytes", end),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn pieces_of_heads_arrive_in_any_way(bytes in pieces()) {
        check_beginnings(&bytes)?;
    }

    #[test]
    fn heads_arrive_in_any_way(mut bytes in heads(), rest in pieces()) {
        let alone = head_len(&bytes);
        if let Ok(Some(len)) = alone {
            prop_assert_eq!(len, bytes.len());
        }
        bytes.extend(rest);
        prop_assert_eq!(head_len(&bytes), alone, "what follows a head does not matter");
        check_beginnings(&bytes)?;
    }

    #[test]
    fn one_changed_byte_is_found_at_the_same_place_however_it_arrives(
        mut bytes in heads(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_beginnings(&bytes)?;
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_beginnings(&bytes)?;
        follow(framing::requests(), Body::Chunked.framing(&LIMITS), &[&bytes]);
        follow(framing::requests(), begin(), &[&bytes]);
        follow(framing::responses(), begin(), &[&bytes]);
    }

    #[test]
    fn no_accepted_head_has_a_control_character_or_a_bare_line_end(bytes in prop_oneof![pieces(), heads()]) {
        if let Ok(Some(len)) = head_len(&bytes) {
            let text = String::from_utf8_lossy(&bytes[..len]).replace("\r\n", "");
            prop_assert!(!text.contains(|c: char| c.is_ascii_control() && c != '\t'));
        }
    }

    #[test]
    fn the_fields_make_up_the_head_again(bytes in heads()) {
        if let Ok(Progress::Complete(head)) = parse_head(&bytes, &LIMITS) {
            let mut text = bytes[..=bytes.iter().position(|&c| c == b'\n').unwrap()].to_vec();
            for (name, value) in head.headers() {
                text.extend_from_slice(name.as_bytes());
                text.extend_from_slice(if value.is_empty() { b":" } else { b": " });
                text.extend_from_slice(value);
                text.extend_from_slice(b"\r\n");
            }
            text.extend_from_slice(b"\r\n");
            prop_assert_eq!(text, bytes);
        }
    }

    #[test]
    fn bodies_arrive_in_any_way(bytes in chunked_bodies(), cuts in cuts()) {
        let begin = Body::Chunked.framing(&LIMITS);
        let whole = follow(framing::requests(), begin, &[&bytes]);
        prop_assert_eq!(follow(framing::requests(), begin, &cut(&bytes, &cuts)), whole);
    }

    #[test]
    fn requests_arrive_in_any_way(bytes in requests(), cuts in cuts()) {
        let whole = follow(framing::requests(), begin(), &[&bytes]);
        prop_assert_eq!(follow(framing::requests(), begin(), &cut(&bytes, &cuts)), whole);
    }

    #[test]
    fn responses_arrive_in_any_way(bytes in responses(), cuts in cuts()) {
        let whole = follow(framing::responses(), begin(), &[&bytes]);
        prop_assert_eq!(follow(framing::responses(), begin(), &cut(&bytes, &cuts)), whole);
    }
}
