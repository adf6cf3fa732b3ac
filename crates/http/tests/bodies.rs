//! Chunked bodies, each with its result.

use switchback_http::{ChunkedDecoder, Limits, Reject};

const LIMITS: Limits = Limits { head_len: 16_384, fields: 3, trailer_len: 64 };

fn feed(text: &str) -> Result<Option<usize>, Reject> {
    ChunkedDecoder::new(&LIMITS).feed(text.as_bytes())
}

#[test]
fn bodies_end_where_they_end() {
    let bodies = [
        "0\r\n\r\n",
        "0000000000000000\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "000a\r\n0\r\n\r\n0\r\n\r\n\r\n1\r\n\n\r\n0\r\n\r\n",
        "A\r\n0123456789\r\n0\r\nDigest: sha-256=x\r\nEmpty:\r\nX-Long-Name-Of-A-Field: \tb\r\n\r\n",
    ];
    for body in bodies {
        let text = format!("{body}GET / HTTP/1.1\r\n");
        assert_eq!(feed(&text), Ok(Some(body.len())), "{body:?}");
        for split in 0..body.len() {
            let mut decoder = ChunkedDecoder::new(&LIMITS);
            assert_eq!(decoder.feed(&text.as_bytes()[..split]), Ok(None), "{:?}", &text[..split]);
            assert_eq!(decoder.feed(&text.as_bytes()[split..]), Ok(Some(body.len() - split)), "{body:?}");
            assert_eq!(decoder.feed(b"0"), Ok(Some(0)));
        }
    }
}

#[test]
fn data_is_skipped_without_being_looked_at() {
    let mut decoder = ChunkedDecoder::new(&LIMITS);
    assert_eq!(decoder.feed(b"7fffffffffffffff\r\n"), Ok(None));
    for _ in 0..1000 {
        assert_eq!(decoder.feed(&[b'\n'; 4096]), Ok(None));
    }
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
        (Reject::ChunkExtension, "5;"),
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
        (Reject::InvalidFieldName, "0\r\nContent_Length:"),
        (Reject::SpaceBeforeColon, "0\r\na "),
        (Reject::InvalidFieldValue, "0\r\na: \0"),
        (Reject::BareLf, "0\r\na: b\n"),
        (Reject::BareCr, "0\r\na: b\rc"),
        (Reject::ForbiddenTrailer, "0\r\nHOST:"),
        (Reject::ForbiddenTrailer, "0\r\nContent-length:"),
        (Reject::ForbiddenTrailer, "0\r\na: b\r\ntransfer-encoding:"),
        (Reject::TooManyFields, "0\r\na:\r\nb:\r\nc:\r\nd"),
        (
            Reject::TrailerTooLong,
            "0\r\na: 6789012345678901234567890123456789012345678901234567890123\r\n\r\n",
        ),
    ];
    for (reason, text) in rows {
        assert_eq!(feed(text), Err(reason), "{text:?}");
        assert_eq!(feed(&text[..text.len() - 1]), Ok(None), "{text:?} is refused before its last byte");
    }
}
