//! Ends of responses.

use proptest::prelude::*;
use switchback_http::framing::generated::{SB_FRAMING_HAS_CLOSE, SB_FRAMING_HEAD, sb_framing};
use switchback_http::framing::{self, Followed, Framing};

fn begin() -> Framing {
    Framing::new(SB_FRAMING_HEAD, 0).with_allowed(u64::MAX)
}

fn follow(text: &str, head: bool) -> Followed {
    framing::responses().follow(&mut begin(), text.as_bytes(), head)
}

#[test]
fn responses_end_where_they_end() {
    let rows = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 599\r\ncontent-LENGTH:\t005 \t\r\n\r\nhello",
        "HTTP/1.1 200 \r\nServer: \x7f\x01\u{e9}\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 204\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: \tchunKED \r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding:chunked\r\n\r\n0A;a=\"b\"\r\n0\r\n\r\n01234\r\n0 ;x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n: any\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 x\r\n\r\n",
        "HTTP/1.1 199 Interim\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 204 x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno field\r\nSet-Cookies\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Lengths: a\r\nTransfer_Encoding: a\r\nContent-Length: 1\r\n\r\n\n",
    ];
    for text in rows {
        assert_eq!(follow(text, false), Followed::Ends(text.len()), "{text:?}");
        let next = format!("{text}HTTP/1.1 200 OK\r\n");
        assert_eq!(follow(&next, false), Followed::Ends(text.len()), "{text:?}");
        assert_eq!(follow(&text[..text.len() - 1], false), Followed::More, "{text:?}");
    }
}

#[test]
fn responses_to_head_end_with_their_head() {
    for fields in ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let text = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n{fields}\r\n");
        assert_eq!(follow(&format!("{text}HTTP"), true), Followed::Ends(text.len()), "{fields:?}");
    }
    assert_eq!(follow("HTTP/1.1 101 Switching\r\n\r\n", true), Followed::Lost);
}

#[test]
fn responses_whose_end_cannot_be_told() {
    let rows = [
        "HTTP/1.1 101 Switching Protocols\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
    ];
    for text in rows {
        assert_eq!(follow(&text[..text.len() - 1], false), Followed::More, "{text:?}");
        assert_eq!(follow(text, false), Followed::Lost, "{text:?}");
    }
}

/// Whether the server has announced by the end of this text, in two parts, that it closes after the response.
fn closes(text: &str, split: usize) -> bool {
    let mut framing = begin();
    let (first, second) = text.as_bytes().split_at(split);
    for part in [first, second] {
        assert_eq!(framing::responses().follow(&mut framing, part, false), Followed::More, "{text:?}");
    }
    sb_framing::from(framing).flags & SB_FRAMING_HAS_CLOSE != 0
}

#[test]
fn servers_announce_that_they_close() {
    let rows = [
        (1, "Connection: close", true),
        (1, "CONNECTION:CLOSE", true),
        (1, "connection:\t close \t", true),
        (1, "Connection: close, x", true),
        (1, "Connection: x,CLOSE", true),
        (1, "Connection: x ,\tclose ", true),
        (1, "Connection: x, y ,cLoSe,z", true),
        (1, "Connection: , close", true),
        (1, "Connection: close,", true),
        (1, "Connection: keep-alive\r\nConnection: close", true),
        (1, "Connection: close\r\nConnection: keep-alive", true),
        (0, "Server: x", true),
        (0, "Connection: keep-alive", true),
        (1, "Server: x", false),
        (1, "Connection:", false),
        (1, "Connection: keep-alive", false),
        (1, "Connection: keep-alive, Upgrade", false),
        (1, "Connection: closed", false),
        (1, "Connection: clos", false),
        (1, "Connection: clos,e", false),
        (1, "Connection: cclose", false),
        (1, "Connection: x-close", false),
        (1, "Connection: x close", false),
        (1, "Connection: close x", false),
        (1, "Connection: close;x", false),
        (1, "Connections: close", false),
        (1, "Proxy-Connection: close", false),
        (1, "Connectio: close", false),
        (1, "X: Connection: close", false),
        (1, "Server: close", false),
    ];
    for (minor, fields, expected) in rows {
        let head = format!("HTTP/1.{minor} 200 OK\r\n{fields}\r\n");
        let last = "Content-Length: 1\r\n\r\n";
        for split in 0..=head.len() {
            assert_eq!(closes(&head, split), expected, "{head:?}, split at {split}");
        }
        // It applies to the response and no other.
        assert_eq!(closes(&format!("{head}{last}"), head.len()), expected, "{head:?}");
        let interim = head.replacen("200", "103", 1);
        assert!(!closes(&format!("{interim}\r\n"), head.len()), "{interim:?}");
        let mut framing = begin();
        let text = format!("{head}{last}x");
        assert_eq!(
            framing::responses().follow(&mut framing, text.as_bytes(), false),
            Followed::Ends(text.len())
        );
        assert_eq!(framing.with_allowed(0), Framing::default(), "{text:?}");
    }
}

#[test]
fn connection_options_of_servers_are_read_leniently() {
    for value in ["\x01\x7f\u{e9}", "\"close", "a=b;c", ",,,", "close\x01"] {
        let text = format!("HTTP/1.1 200 OK\r\nConnection: {value}\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(follow(&text, false), Followed::Ends(text.len()), "{text:?}");
    }
    for text in [
        "Connection: \0",
        "Connection: clo\n",
        "Connection: close\n",
        "Connection: close\rx",
        "Connection: x\n",
    ] {
        refused_at_the_last_byte(&format!("HTTP/1.1 200 OK\r\n{text}"));
    }
}

#[test]
fn refused_responses() {
    let in_status_line = [
        "h",
        "HTTP/2",
        "HTTP/1.2",
        "HTTP/1.1\t",
        "HTTP/1.1  ",
        "HTTP/1.1 0",
        "HTTP/1.1 6",
        "HTTP/1.1 2x",
        "HTTP/1.1 2000",
        "HTTP/1.1 200\t",
        "HTTP/1.1 200\n",
        "HTTP/1.1 200 OK\n",
        "HTTP/1.1 200 OK\r ",
        "HTTP/1.1 200 \0",
        "\r",
        "\n",
    ];
    for text in in_status_line {
        refused_at_the_last_byte(text);
    }
    let in_fields = [
        " ",
        "\n",
        "\rx",
        "c\r",
        "c ",
        "content-length ",
        "Transfer-Encoding\t",
        "set-cookie ",
        "a\n",
        ":",
        "a: \0",
        "a: b\n",
        "a: b\rc",
        "a: b\r\n\t",
        "Content-Length:\r",
        "Content-Length: x",
        "Content-Length: 1,",
        "Content-Length: 1 1",
        "Content-Length: +",
        "Content-Length: 9999999999999999999",
        "Content-Length: 1\r\nContent-length:",
        "Transfer-Encoding:\r",
        "Transfer-Encoding: g",
        "Transfer-Encoding: x",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: chunkedx",
        "Transfer-Encoding: chunked c",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding:",
        "Set-Cookie: \n",
        "Set-Cookie: a\n",
        "Set-Cookie: a=\0",
        "Set-Cookie:\rx",
    ];
    for text in in_fields {
        refused_at_the_last_byte(&format!("HTTP/1.1 200 OK\r\n{text}"));
    }
    let in_chunks = [
        "\r",
        ";",
        "x",
        " ",
        "-",
        "5\n",
        "5x",
        "5 \r",
        "5;\n",
        "5;\r;",
        "5;\0",
        "00000000000000000",
        "8000000000000000",
        "1\r\nxy",
        "1\r\nx\r\r",
        "0\r\n\n",
        "0\r\n\0",
        "0\r\na\n",
        "0\r\n\rx",
        "0\r\na\rx",
    ];
    for text in in_chunks {
        refused_at_the_last_byte(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{text}"));
    }
}

fn refused_at_the_last_byte(text: &str) {
    let last = text.len() - 1;
    assert!(matches!(follow(text, false), Followed::Rejected(_, at) if at == last), "{text:?}");
}

/// A valid response, after interim ones.
#[derive(Clone, Debug)]
struct Response {
    bytes: Vec<u8>,
    to_head: bool,
}

/// The end of the response at the start of `bytes`, found line by line as a client would; `None` if it does not end
/// there or ends with the connection.
fn reference(bytes: &[u8], to_head: bool) -> Option<usize> {
    let head_len = find(bytes, b"\r\n\r\n")? + 4;
    let text: String = bytes[..head_len].iter().map(|&c| char::from(c)).collect();
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let status: u16 = lines.next()?.get(9..12)?.parse().ok()?;
    let fields: Vec<(String, &str)> = lines
        .map(|line| line.split_once(':').expect("a generated field has a colon"))
        .map(|(name, value)| (name.to_lowercase(), value.trim()))
        .collect();
    let value = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|&(_, value)| value);
    match (status, value("transfer-encoding"), value("content-length")) {
        (101, ..) => None,
        (100..=199, ..) => Some(head_len + reference(&bytes[head_len..], to_head)?),
        (204 | 304, ..) => Some(head_len),
        _ if to_head => Some(head_len),
        (_, Some(_), Some(_)) | (_, None, None) => None,
        (_, None, Some(len)) => Some(head_len + len.parse::<usize>().ok()?).filter(|&end| end <= bytes.len()),
        (_, Some(_), None) => {
            let mut at = head_len;
            loop {
                let line_len = find(bytes.get(at..)?, b"\r\n")?;
                let line = std::str::from_utf8(&bytes[at..at + line_len]).ok()?;
                let size = line.split([';', ' ', '\t']).next()?;
                at += line_len + 2;
                match usize::from_str_radix(size, 16).ok()? {
                    0 => break,
                    size => at += size + 2,
                }
            }
            // The empty line follows at once, or after the trailers.
            if bytes[at..].starts_with(b"\r\n") {
                return Some(at + 2);
            }
            Some(at + find(bytes.get(at..)?, b"\r\n\r\n")? + 4)
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn chunked(data: &[u8], size: usize, extension: &str, trailers: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (i, chunk) in data.chunks(size).enumerate() {
        let len = if i % 2 == 0 { format!("{:x}", chunk.len()) } else { format!("{:04X}", chunk.len()) };
        bytes.extend_from_slice(format!("{len}{extension}\r\n").as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    let trailers: String = trailers.iter().map(|line| format!("{line}\r\n")).collect();
    bytes.extend_from_slice(format!("0{extension}\r\n{trailers}\r\n").as_bytes());
    bytes
}

fn one_response() -> impl Strategy<Value = Response> {
    let interim = prop::sample::select(vec![
        "",
        "",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\nLink: </x>\r\n\r\nHTTP/1.1 100\r\n\r\n",
    ]);
    let status = prop::sample::select(vec![200, 204, 206, 304, 404, 500]);
    let reason = prop::sample::select(vec!["", " ", " OK", " HTTP/1.1 200 OK", " \u{e9}"]);
    let framing = prop::sample::select(vec!["length", "chunked", "both", "none"]);
    let spelling = prop::sample::select(vec!["Content-Length:", "CONTENT-LENGTH: \t", "content-length:  "]);
    let coding = prop::sample::select(vec!["Transfer-Encoding: chunked", "transfer-encoding:\tCHUNKED "]);
    let noise = prop::sample::select(vec![
        "",
        "Server: x\r\n",
        "Content-Type:\r\nETag: \"\x01\"\r\n",
        "c: \r\nt:d\r\n",
    ]);
    let data = prop::collection::vec(prop::sample::select(b"\r\n0a5;H\0\xff".to_vec()), 0..40);
    let size = 1usize..20;
    let extension = prop::sample::select(vec!["", ";a", " ; a=\"b\"", "\t;\u{7f}"]);
    let trailers = prop::sample::select(vec![&[][..], &["Digest: x"], &["Content-Length: 7", "a:"]]);
    let line = (any::<bool>(), interim, status, reason);
    let fields = (framing, spelling, coding, noise);
    (line, fields, (data, size, extension, trailers)).prop_map(|(line, fields, body)| {
        let (to_head, interim, status, reason) = line;
        let (framing, spelling, coding, noise) = fields;
        let (data, size, extension, trailers) = body;
        let mut head = format!("{interim}HTTP/1.1 {status}{reason}\r\n{noise}");
        if matches!(framing, "length" | "both") {
            head += &format!("{spelling}{}\r\n", data.len());
        }
        head += noise;
        if matches!(framing, "chunked" | "both") {
            head += &format!("{coding}\r\n");
        }
        let mut bytes = format!("{head}\r\n").into_bytes();
        if !to_head && status != 204 && status != 304 {
            bytes.extend(match framing {
                "chunked" | "both" => chunked(&data, size, extension, trailers),
                _ => data,
            });
        }
        Response { bytes, to_head }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn in_a_sequence_each_ends_where_a_client_sees_it_end(
        responses in prop::collection::vec(one_response(), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole: Vec<u8> = responses.iter().flat_map(|response| response.bytes.clone()).collect();
        let bytes = &whole[..whole.len() - cut.index(whole.len()) / 4];
        let mut at = 0;
        for response in responses {
            let mut framing = begin();
            let rest = &bytes[at..];
            let followed = framing::responses().follow(&mut framing, rest, response.to_head);
            match reference(rest, response.to_head) {
                Some(len) => prop_assert_eq!(followed, Followed::Ends(len)),
                None => {
                    let none = matches!(followed, Followed::More | Followed::Lost);
                    prop_assert!(none, "{:?} in {:?}", followed, String::from_utf8_lossy(rest));
                    return Ok(());
                }
            }
            prop_assert_eq!(framing.with_allowed(0), Framing::default());
            at += response.bytes.len();
        }
    }
}
