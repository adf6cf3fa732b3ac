//! Making a response once more, and sending what the client lacks of it.

use std::io;
use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fingerprint::{Fingerprint, Key, Running};
use crate::repeatable::{Difference, Repeatable};
use crate::rest::{Failure, STALLED};
use crate::source::Source;

/// Bytes that are kept until they have proven to be those of the first response: more than a client's window.
const UNPROVEN_MAX: u64 = 64 << 20;

/// A response that is made once more.
#[derive(Clone, Copy, Debug)]
pub struct Repetition<'a> {
    /// The response.
    pub repeatable: &'a Repeatable,
    /// Head of its request.
    pub request: &'a [u8],
    /// Bytes of its body that the client has.
    pub offset: u64,
    /// The secret of its fingerprints.
    pub key: Key,
    /// The fingerprint of the most that the client can have.
    pub last: Fingerprint,
}

/// What hears how far the repetition is.
pub trait Progress {
    /// Nothing has been sent yet: the fingerprint of what the client has.
    fn begins(&mut self, has: &Running) -> Result<(), Failure>;

    /// The client's socket has been given so many bytes.
    fn sent(&mut self, client: &TcpStream, bytes: u64);

    /// The body has so many bytes, of which the last ones have not been sent yet.
    fn ends(&mut self, bytes: u64) -> Result<(), Failure>;
}

/// Has the server make the response once more, and sends what the client lacks, once what it has, and may have, has proven
/// to be the same.
pub async fn repeat(
    client: &mut TcpStream,
    server: SocketAddr,
    repetition: Repetition<'_>,
    progress: &mut impl Progress,
) -> Result<(), Failure> {
    let Repetition { repeatable, request, offset, key, last } = repetition;
    if last.len < offset || last.len - offset > UNPROVEN_MAX {
        return Err(Failure::Unproven);
    }
    let mut again = Source::again(TcpStream::connect(server), repeatable, request).await?;
    let mut has = Running::new(key);
    while has.len() < offset {
        let piece = again.next(offset - has.len()).await?;
        has.add(&piece);
    }
    let mut proven = has;
    let mut unsent = Vec::new();
    while proven.len() < last.len {
        let piece = again.next(last.len - proven.len()).await?;
        proven.add(&piece);
        unsent.extend_from_slice(&piece);
    }
    if proven.fingerprint() != last {
        return Err(Failure::Difference(Difference::Content));
    }
    progress.begins(&has)?;
    if repeatable.body_len().is_none() && again.is_over() {
        progress.ends(last.len)?;
    }
    let mut sent = 0;
    loop {
        let written = timeout(STALLED, client.write_all(&unsent)).await;
        written.unwrap_or(Err(io::ErrorKind::TimedOut.into())).map_err(Failure::Client)?;
        sent += unsent.len() as u64;
        progress.sent(client, sent);
        if again.is_over() {
            return Ok(());
        }
        unsent = again.next(u64::MAX).await?;
        if repeatable.body_len().is_none() && again.is_over() {
            progress.ends(offset + sent + unsent.len() as u64)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    const REQUEST: &[u8] = b"GET /text HTTP/1.1\r\nHost: a\r\n\r\n";
    const KEY: Key = Key { k0: 1, k1: 2 };
    const LEN: usize = 1_000_000;

    /// A chunked body, as sent.
    fn chunked() -> Vec<u8> {
        let mut wire = Vec::new();
        for (number, chunk) in text().chunks(50_001).enumerate() {
            let extension = if number % 3 == 0 { ";a=b" } else { "" };
            wire.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
        wire
    }

    fn text() -> Vec<u8> {
        (0..LEN).map(|at| b'a' + (at * 7 / 3 % 26) as u8).collect()
    }

    fn head(body: &[u8]) -> String {
        match body.starts_with(b"c351") {
            true => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            false => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()),
        }
    }

    fn fingerprint(bytes: &[u8]) -> Fingerprint {
        let mut running = Running::new(KEY);
        running.add(bytes);
        running.fingerprint()
    }

    #[derive(Default)]
    struct Heard {
        begun: Option<Fingerprint>,
        sent: u64,
        end: Option<u64>,
    }

    impl Progress for Heard {
        fn begins(&mut self, has: &Running) -> Result<(), Failure> {
            self.begun = Some(has.fingerprint());
            Ok(())
        }

        fn sent(&mut self, _: &TcpStream, bytes: u64) {
            self.sent = bytes;
        }

        fn ends(&mut self, bytes: u64) -> Result<(), Failure> {
            self.end = Some(bytes);
            Ok(())
        }
    }

    /// What a client gets that has `offset` bytes of `first`, and may have `more`, from a server that makes `second`.
    fn get(first: &[u8], offset: usize, more: usize, second: &[u8]) -> (Vec<u8>, Result<(), Failure>, Heard) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = listener.local_addr().unwrap();
            let answer = [head(first).as_bytes(), second].concat();
            let serving = tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    stream.read_buf(&mut asked).await.unwrap();
                }
                for piece in answer.chunks(30_011) {
                    // The other side may have closed by then.
                    let _ = stream.write_all(piece).await;
                }
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut client, _) = listener.accept().await.unwrap();
            let reading = tokio::spawn(async move {
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).await.unwrap();
                all
            });
            let repeatable = Repeatable::read(REQUEST, head(first).as_bytes()).unwrap();
            let last = fingerprint(&first[..offset + more]);
            let offset = offset as u64;
            let repetition = Repetition { repeatable: &repeatable, request: REQUEST, offset, key: KEY, last };
            let mut heard = Heard::default();
            let done = repeat(&mut client, server, repetition, &mut heard).await;
            drop(client);
            serving.await.unwrap();
            (reading.await.unwrap(), done, heard)
        })
    }

    #[test]
    fn what_the_client_lacks_follows_to_the_last_byte() {
        for body in [text(), chunked()] {
            for (offset, more) in [
                (0, 0),
                (1, 100),
                (LEN / 2, LEN / 4),
                (body.len() - 1, 0),
                (body.len() - 9, 9),
                (body.len(), 0),
            ] {
                let (got, done, heard) = get(&body, offset, more, &body);
                assert!(done.is_ok(), "{offset} {more}: {done:?}");
                assert!(got == body[offset..], "{offset} {more}");
                assert_eq!(heard.begun, Some(fingerprint(&body[..offset])));
                assert_eq!(heard.sent, got.len() as u64);
                let is_chunked = body.len() != LEN;
                assert_eq!(heard.end, is_chunked.then_some(body.len() as u64), "{offset} {more}");
            }
        }
    }

    #[test]
    fn nothing_is_sent_of_another_response() {
        let body = text();
        for at in [0, LEN / 4, LEN / 2, LEN / 2 + 50] {
            let mut other = body.clone();
            other[at] ^= 1;
            let (got, done, heard) = get(&body, LEN / 2, 100, &other);
            assert!(matches!(done, Err(Failure::Difference(Difference::Content))), "{done:?}");
            assert!(got.is_empty() && heard.begun.is_none());
        }
        let shorter = [&chunked()[..50_013], b"0\r\n\r\n"].concat();
        let (got, done, _) = get(&chunked(), 60_000, 0, &shorter);
        assert!(matches!(done, Err(Failure::Difference(Difference::Content))), "{done:?}");
        assert!(got.is_empty());
        let (_, done, _) = get(&chunked(), 60_000, 0, &[&chunked()[..50_013], b"x"].concat());
        assert!(matches!(done, Err(Failure::Difference(Difference::NotHttp))), "{done:?}");
    }

    #[test]
    fn without_a_fingerprint_of_all_that_the_client_has_nothing_is_asked() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let body = text();
            let repeatable = Repeatable::read(REQUEST, head(&body).as_bytes()).unwrap();
            for (offset, last) in [(101, 100), (0, UNPROVEN_MAX + 1)] {
                let last = Fingerprint { len: last, value: 0 };
                let repetition =
                    Repetition { repeatable: &repeatable, request: REQUEST, offset, key: KEY, last };
                let nobody = "127.0.0.1:1".parse().unwrap();
                let done = repeat(&mut client, nobody, repetition, &mut Heard::default()).await;
                assert!(matches!(done, Err(Failure::Unproven)), "{done:?}");
            }
        });
    }

    #[test]
    fn a_server_that_ends_early_is_a_failure() {
        for body in [text(), chunked()] {
            let (got, done, _) = get(&body, LEN / 2, 100, &body[..LEN - 5]);
            assert!(matches!(done, Err(Failure::Server(_))), "{done:?}");
            assert!(got == body[LEN / 2..LEN - 5]);
        }
    }
}
