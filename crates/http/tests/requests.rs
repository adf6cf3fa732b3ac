//! Ends of whole requests.

use switchback_http::framing::generated::SB_FRAMING_HEAD;
use switchback_http::framing::{self, Followed, Framing};
use switchback_http::{Limits, Progress, parse_head};

fn begin() -> Framing {
    Framing::new(SB_FRAMING_HEAD, 0).with_allowed(u64::MAX)
}

fn follow(framing: &mut Framing, text: &str) -> Followed {
    framing::requests().follow(framing, text.as_bytes(), false)
}

#[test]
fn requests_end_where_they_end() {
    let rows = [
        "GET / HTTP/1.1\r\n\r\n",
        "GET /\u{e9} any thing\r\nHost: a\r\nCookie: a=b\r\nX:\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 0\r\nCookies: a;b\r\nContent: 5\r\nCook: 1\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-LENGTH:\t5 \t\r\nCookie:\r\n\r\nhello",
        "POST / HTTP/1.1\r\nCookie: a=b; c\r\nContent-Length: 5\r\n\r\n\r\n\r\n\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nCookie: ;\r\n\r\n\
         5\r\nhello\r\n1\r\n\n\r\n0\r\nA: b\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encodings: x\r\nTransfer_Encoding: x\r\nContent-Length: 1\r\n\r\n\n",
    ];
    for text in rows {
        for split in 0..text.len() {
            let mut framing = begin();
            let (first, second) = (&text.as_bytes()[..split], &text.as_bytes()[split..]);
            let table = framing::requests();
            assert_eq!(table.follow(&mut framing, first, false), Followed::More, "{text:?}");
            let ends = Followed::Ends(second.len());
            assert_eq!(table.follow(&mut framing, second, false), ends, "{text:?} at {split}");
            assert_eq!(framing.with_allowed(0), Framing::default(), "{text:?} at {split}");
        }
        let next = format!("{text}{text}");
        assert_eq!(follow(&mut begin(), &next), Followed::Ends(text.len()), "{text:?}");
    }
}

#[test]
fn only_the_head_matters_to_a_request_that_the_switch_has_let_pass() {
    let heads = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.0\r\nCookie: a=\"\u{e9}\r\nConnection: close\r\n\r\n",
        "POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    ];
    for head in heads {
        let parsed = parse_head(head.as_bytes(), &Limits::default()).unwrap();
        let Progress::Complete(parsed) = parsed else { panic!("{head:?}") };
        let mut framing = begin();
        let followed = follow(&mut framing, head);
        let body = parsed.body.framing(&Limits::default());
        assert_eq!((framing.state(), framing.left()), (body.state(), body.left()), "{head:?}");
        let expected = if body.is_between_messages() { Followed::Ends(head.len()) } else { Followed::More };
        assert_eq!(followed, expected, "{head:?}");
    }
}

#[test]
fn a_request_of_two_lengths_is_lost() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
    ] {
        let mut framing = begin();
        assert_eq!(follow(&mut framing, &format!("POST / HTTP/1.1\r\n{fields}\r")), Followed::More);
        assert_eq!(follow(&mut framing, "\n"), Followed::Lost, "{fields:?}");
        assert!(framing.is_lost());
    }
}

#[test]
fn refused_requests() {
    let rows = [
        "\rG",
        "\n",
        "\0",
        "GET\n",
        "GET\0",
        "GET\r\r",
        "GET\r\n ",
        "GET\r\n:",
        "GET\r\n\rx",
        "GET\r\n\n",
        "GET\r\ncontent-length ",
        "GET\r\nContent-Length:\r",
        "GET\r\nContent-Length: x",
        "GET\r\nContent-Length: 1 1",
        "GET\r\nContent-Length: 1,",
        "GET\r\nContent-Length: 9999999999999999999",
        "GET\r\nContent-Length: 1\r\ncontent-length:",
        "GET\r\nTransfer-Encoding:\r\nTransfer-Encoding:",
        "GET\r\nTransfer-Encoding\t",
        "GET\r\nTransfer-Encoding: \n",
        "GET\r\nCookie ",
        "GET\r\nCookie: \n",
        "GET\r\nCookie: a\n",
        "GET\r\nCookie: a=\0",
        "GET\r\nCookie: a;\0",
        "GET\r\nCookie: a;\rb",
        "GET\r\nCookie: a\r\n\t",
        "GET\r\nCookie: a\r\nTransfer-Encoding: chunked\r\n\r\n0;\n",
        "GET\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length:",
    ];
    for text in rows {
        let mut framing = begin();
        let (but_last, last) = text.split_at(text.len() - 1);
        assert_eq!(follow(&mut framing, but_last), Followed::More, "{text:?}");
        assert!(matches!(follow(&mut framing, last), Followed::Rejected(_, 0)), "{text:?}");
        assert!(framing.is_lost(), "{text:?}");
    }
}
