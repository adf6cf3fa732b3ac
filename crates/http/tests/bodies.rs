//! Request bodies with their results.

use switchback_http::framing::generated::{
    SB_FRAMING_EXTENSION_MAX, SB_FRAMING_STATES, SB_FRAMING_TRAILER_MAX,
};
use switchback_http::framing::{self, Followed, Framing};
use switchback_http::{Body, Limits, Reject};

fn chunked() -> Framing {
    Body::Chunked.framing(&Limits::default())
}

fn follow(framing: &mut Framing, bytes: impl AsRef<[u8]>) -> Followed {
    framing::requests().follow(framing, bytes.as_ref(), false)
}

#[test]
fn bodies_end_where_they_end() {
    let bodies = [
        "0\r\n\r\n",
        "0000000000000000\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "5;a\r\nhello\r\n0;b=c;d=\"e\\\";f\t~\"\r\n\r\n",
        "000a\r\n0\r\n\r\n0\r\n\r\n\r\n1\r\n\n\r\n0\r\n\r\n",
        "A\r\n0123456789\r\n0\r\nDigest: sha-256=x\r\nEmpty:\r\nX-Long-Name-Of-A-Field: \tb\r\n\r\n",
        "0\r\nHos: a\r\nHostt: a\r\nContent: 1\r\nContent_Lengths: 1\r\ntransfer: chunked\r\n\r\n",
    ];
    for body in bodies {
        let text = format!("{body}GET / HTTP/1.1\r\n");
        assert_eq!(follow(&mut chunked(), &text), Followed::Ends(body.len()), "{body:?}");
        for split in 0..body.len() {
            let mut framing = chunked();
            assert_eq!(follow(&mut framing, &text[..split]), Followed::More, "{:?}", &text[..split]);
            assert_eq!(follow(&mut framing, &text[split..]), Followed::Ends(body.len() - split), "{body:?}");
            assert_eq!(follow(&mut framing, "0"), Followed::Ends(0));
        }
    }
}

#[test]
fn bodies_of_known_length() {
    for body in [Body::None, Body::Length(0)] {
        assert_eq!(follow(&mut body.framing(&Limits::default()), "GET"), Followed::Ends(0));
    }
    let mut framing = Body::Length(5).framing(&Limits::default());
    assert_eq!(follow(&mut framing, "1234"), Followed::More);
    assert_eq!(follow(&mut framing, "5GET"), Followed::Ends(1));
    assert_eq!(follow(&mut framing, "GET"), Followed::Ends(0));
}

#[test]
fn data_is_skipped_without_being_looked_at() {
    let mut framing = chunked();
    assert_eq!(follow(&mut framing, "7fffffffffffffff\r\n"), Followed::More);
    for _ in 0..1000 {
        assert_eq!(follow(&mut framing, [b'\n'; 4096]), Followed::More);
    }
    assert_eq!(framing.left(), i64::MAX as u64 - 4_096_000);
}

#[test]
fn the_data_of_all_chunks_is_within_the_limit() {
    let limits = Limits { body_len: 12, ..Limits::default() };
    let fits = "a\r\n0123456789\r\n2\r\n01\r\n0\r\n\r\n";
    assert_eq!(follow(&mut Body::Chunked.framing(&limits), fits), Followed::Ends(fits.len()));
    for text in ["d\r\n", "a\r\n0123456789\r\n3\r\n", "c\r\n0123456789ab\r\n001\r\n"] {
        let rejected = Followed::Rejected(Reject::BodyTooLong, text.len() - 1);
        assert_eq!(follow(&mut Body::Chunked.framing(&limits), text), rejected, "{text:?}");
    }
}

#[test]
fn the_extensions_of_all_chunks_are_within_a_limit() {
    let max = usize::from(SB_FRAMING_EXTENSION_MAX);
    let chunks = |len: usize| format!("1;{}\r\na\r\n0;{}\r\n\r\n", "x".repeat(max / 2 - 1), "x".repeat(len));
    let fits = chunks(max / 2 - 1);
    assert_eq!(follow(&mut chunked(), &fits), Followed::Ends(fits.len()));
    let too_long = chunks(max / 2);
    let last = too_long.len() - "\r\n\r\n".len() - 1;
    assert_eq!(follow(&mut chunked(), &too_long), Followed::Rejected(Reject::ExtensionTooLong, last));
}

#[test]
fn a_state_that_no_message_has_is_lost() {
    let mut framing = Framing::new(SB_FRAMING_STATES, 0);
    assert_eq!(follow(&mut framing, "0"), Followed::Lost);
    assert!(framing.is_lost());
}

#[test]
fn trailers_are_within_the_limit() {
    let max = usize::from(SB_FRAMING_TRAILER_MAX);
    // The limit counts all bytes but the last line feed.
    let body = |value: usize| format!("1\r\nx\r\n0\r\na:{}\r\nb:\r\n\r\n", "x".repeat(value));
    let fits = body(max - "a:\r\nb:\r\n\r".len());
    assert_eq!(follow(&mut chunked(), &fits), Followed::Ends(fits.len()));
    let too_long = body(max - "a:\r\nb:\r\n".len());
    let rejected = Followed::Rejected(Reject::TrailerTooLong, too_long.len() - 2);
    assert_eq!(follow(&mut chunked(), &too_long), rejected);
}

#[test]
fn refused_bodies() {
    let rows = [
        (Reject::InvalidChunkSize, "\r"),
        (Reject::InvalidChunkSize, " "),
        (Reject::InvalidChunkSize, "5 "),
        (Reject::InvalidChunkSize, "+"),
        (Reject::InvalidChunkSize, "-"),
        (Reject::InvalidChunkSize, "0x"),
        (Reject::InvalidChunkSize, "g"),
        (Reject::InvalidChunkSize, ";"),
        (Reject::InvalidChunkSize, "00000000000000000"),
        (Reject::InvalidChunkSize, "8000000000000000"),
        (Reject::InvalidChunkSize, "ffffffffffffffff"),
        (Reject::InvalidChunkSize, "5 "),
        (Reject::ChunkExtension, "5;\r"),
        (Reject::ChunkExtension, "5;\n"),
        (Reject::ChunkExtension, "5; "),
        (Reject::ChunkExtension, "5;a "),
        (Reject::ChunkExtension, "5;a=\r"),
        (Reject::ChunkExtension, "5;a=b="),
        (Reject::ChunkExtension, "5;a=\"\r"),
        (Reject::ChunkExtension, "5;a=\"\\\n"),
        (Reject::ChunkExtension, "5;a=\"b\"c"),
        (Reject::BareLf, "5;a\n"),
        (Reject::BareLf, "5;a=b\n"),
        (Reject::BareLf, "5;a=\"b\"\n"),
        (Reject::BareCr, "5;a\rb"),
        (Reject::BareLf, "5\n"),
        (Reject::BareCr, "5\r5"),
        (Reject::InvalidChunkEnd, "2\r\nabc"),
        (Reject::InvalidChunkEnd, "2\r\nab\n"),
        (Reject::InvalidChunkEnd, "2\r\nab\r2"),
        (Reject::BareCr, "0\r\n\r0"),
        (Reject::BareLf, "0\r\n\n"),
        (Reject::ObsFold, "0\r\n "),
        (Reject::ObsFold, "0\r\na: b\r\n\t"),
        (Reject::InvalidFieldName, "0\r\n:"),
        (Reject::InvalidFieldName, "0\r\na\r"),
        (Reject::ForbiddenTrailer, "0\r\nContent_Length:"),
        (Reject::ForbiddenTrailer, "0\r\ntransfer_encoding:"),
        (Reject::SpaceBeforeColon, "0\r\na "),
        (Reject::InvalidFieldValue, "0\r\na: \0"),
        (Reject::BareLf, "0\r\na: b\n"),
        (Reject::BareCr, "0\r\na: b\rc"),
        (Reject::ForbiddenTrailer, "0\r\nHOST:"),
        (Reject::ForbiddenTrailer, "0\r\nContent-length:"),
        (Reject::ForbiddenTrailer, "0\r\na: b\r\ntransfer-encoding:"),
    ];
    for (reason, text) in rows {
        let mut framing = chunked();
        assert_eq!(follow(&mut framing, &text[..text.len() - 1]), Followed::More, "{text:?}");
        let rejected = Followed::Rejected(reason, 0);
        assert_eq!(follow(&mut framing, &text[text.len() - 1..]), rejected, "{text:?}");
        assert_eq!(follow(&mut framing, "0"), Followed::Lost, "{text:?}");
    }
}
