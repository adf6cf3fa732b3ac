//! The cases of tests/corpus.toml, with their bytes in different pieces.

use serde::Deserialize;
use switchback_http::framing::{self, Followed};
use switchback_http::{Limits, Progress, Reject, parse_head};

#[derive(Deserialize)]
struct Corpus {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    bytes: String,
    refused: Option<String>,
    #[serde(default)]
    accepted: bool,
}

fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/corpus.toml");
    toml::from_str::<Corpus>(&std::fs::read_to_string(path).unwrap()).unwrap().case
}

impl Case {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.chars().map(|c| u8::try_from(c).expect("a character up to U+00FF")).collect()
    }
}

/// Length of the request that arrives in these pieces; `None` if it continues after them.
fn request_len(pieces: &[&[u8]]) -> Result<Option<usize>, Reject> {
    let limits = Limits::default();
    let mut arrived = Vec::new();
    let mut body = None;
    for piece in pieces {
        let mut new = arrived.len();
        arrived.extend_from_slice(piece);
        if body.is_none() {
            let Progress::Complete(head) = parse_head(&arrived, &limits)? else { continue };
            body = Some(head.body.framing(&limits));
            new = head.len;
        }
        let Some(framing) = &mut body else { continue };
        match framing::requests().follow(framing, &arrived[new..], false) {
            Followed::More => {}
            Followed::Ends(len) => return Ok(Some(new + len)),
            Followed::Rejected(reason, _) => return Err(reason),
            Followed::Lost => unreachable!("only responses are lost"),
        }
    }
    Ok(None)
}

/// The result of `request_len`, which must be the same for the whole, byte by byte, and in any two pieces.
fn however_it_arrives(name: &str, bytes: &[u8]) -> Result<Option<usize>, Reject> {
    let whole = request_len(&[bytes]);
    assert_eq!(request_len(&bytes.chunks(1).collect::<Vec<_>>()), whole, "{name}, byte by byte");
    for at in 0..bytes.len() {
        let (before, after) = bytes.split_at(at);
        assert_eq!(request_len(&[before, after]), whole, "{name}, cut at {at}");
    }
    whole
}

#[test]
fn refused() {
    for case in cases() {
        let Some(reason) = &case.refused else { continue };
        assert!(!case.accepted, "{} is refused or accepted, not both", case.name);
        let result = however_it_arrives(&case.name, &case.bytes());
        assert_eq!(result.map_err(Reject::name), Err(reason.as_str()), "{}", case.name);
    }
}

#[test]
fn accepted() {
    for case in cases().iter().filter(|case| case.refused.is_none()) {
        assert!(case.accepted, "{} says neither refused nor accepted", case.name);
        let mut bytes = case.bytes();
        let len = bytes.len();
        for end in 0..len {
            assert_eq!(request_len(&[&bytes[..end]]), Ok(None), "{} up to {end}", case.name);
        }
        assert_eq!(however_it_arrives(&case.name, &bytes), Ok(Some(len)), "{}", case.name);
        bytes.extend(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(however_it_arrives(&case.name, &bytes), Ok(Some(len)), "{} and the next", case.name);
    }
}
