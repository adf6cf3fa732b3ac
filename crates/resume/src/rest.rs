//! Sending the rest of a response.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::insurable::{Insurable, Mismatch};
use crate::pipe::Pipe;
use crate::repeatable::Difference;

/// Time that the server may take to accept a connection and to begin its answer.
const BEGIN: Duration = Duration::from_secs(10);
/// Time for which server and client may both be silent.
pub(crate) const STALLED: Duration = Duration::from_secs(300);
/// Longest head of the server's answer, in bytes.
const HEAD_MAX: usize = 64 << 10;
/// Bytes that one call moves.
const AT_ONCE: usize = 1 << 20;

/// What the client lacks of a response.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    /// The response.
    pub insurable: &'a Insurable,
    /// Head of its request.
    pub request: &'a [u8],
    /// Bytes of its body that the client has.
    pub offset: u64,
}

/// Why the rest was not sent.
#[derive(Debug)]
pub enum Failure {
    /// The server could not be asked, or has ended the connection.
    Server(io::Error),
    /// The server's answer is not the rest.
    Mismatch(Mismatch),
    /// The server has made another response.
    Difference(Difference),
    /// What the client has is not known to be the same.
    Unproven,
    /// This node cannot follow what it would send.
    Here(io::Error),
    /// The client is gone.
    Client(io::Error),
    /// Neither server nor client has gone on for too long.
    Stalled,
}

impl Failure {
    /// Every name, as in metrics.
    pub const NAMES: [&str; 6] = ["server", "mismatch", "unproven", "here", "client", "stalled"];

    /// The name in metrics.
    pub fn name(&self) -> &'static str {
        let index = match self {
            Failure::Server(_) => 0,
            Failure::Mismatch(_) | Failure::Difference(_) => 1,
            Failure::Unproven => 2,
            Failure::Here(_) => 3,
            Failure::Client(_) => 4,
            Failure::Stalled => 5,
        };
        Failure::NAMES[index]
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Server(error) => write!(f, "the server: {error}"),
            Failure::Mismatch(mismatch) => mismatch.fmt(f),
            Failure::Difference(difference) => difference.fmt(f),
            Failure::Unproven => f.write_str("it is not known what the client may have"),
            Failure::Here(error) => write!(f, "the programs cannot be told: {error}"),
            Failure::Client(error) => write!(f, "the client: {error}"),
            Failure::Stalled => f.write_str("neither the server nor the client goes on"),
        }
    }
}

impl std::error::Error for Failure {}

/// Asks the server for the rest, and sends it to the client once the answer has proven to be that. `sent` is called with the
/// client's socket and the number of bytes that it has been given so far.
pub async fn send_rest(
    client: &mut TcpStream,
    server: SocketAddr,
    rest: Rest<'_>,
    mut sent: impl FnMut(&TcpStream, u64),
) -> Result<(), Failure> {
    let Some(request) = rest.insurable.ask(rest.request, rest.offset) else { return Ok(()) };
    let accept = |answer: &[u8]| rest.insurable.accept(answer, rest.offset).map_err(Failure::Mismatch);
    let (mut stream, begun) = ask(TcpStream::connect(server), &request, accept).await?;
    let len = rest.insurable.body_len() - rest.offset;
    let begun = &begun[..begun.len().min(usize::try_from(len).unwrap_or(usize::MAX))];
    let written =
        timeout(STALLED, client.write_all(begun)).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
    written.map_err(Failure::Client)?;
    let mut done = begun.len() as u64;
    sent(client, done);
    let mut pipe = Pipe::new().map_err(Failure::Server)?;
    pipe.widen(AT_ONCE as u32);
    while done < len {
        let at_once = usize::try_from(len - done).unwrap_or(AT_ONCE).min(AT_ONCE);
        let moved = timeout(STALLED, pass(&mut pipe, &mut stream, client, at_once)).await;
        done += moved.unwrap_or(Err(Failure::Stalled))? as u64;
        sent(client, done);
    }
    Ok(())
}

/// Asks a server. `accept` reads the head of the answer: its length, or None if it is not whole. The connection, and what has
/// come behind the head.
pub(crate) async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    connect: impl Future<Output = io::Result<S>>,
    request: &[u8],
    accept: impl Fn(&[u8]) -> Result<Option<usize>, Failure>,
) -> Result<(S, Vec<u8>), Failure> {
    let asking = async {
        let mut stream = connect.await.map_err(Failure::Server)?;
        stream.write_all(request).await.map_err(Failure::Server)?;
        let mut answer = Vec::new();
        loop {
            if stream.read_buf(&mut answer).await.map_err(Failure::Server)? == 0 {
                return Err(Failure::Server(io::ErrorKind::UnexpectedEof.into()));
            }
            match accept(&answer)? {
                Some(len) => return Ok((stream, answer.split_off(len))),
                None if answer.len() >= HEAD_MAX => return Err(Failure::Mismatch(Mismatch::NotHttp)),
                None => {}
            }
        }
    };
    timeout(BEGIN, asking).await.unwrap_or(Err(Failure::Stalled))
}

/// Passes at most `len` bytes; how many.
async fn pass(
    pipe: &mut Pipe,
    from: &mut TcpStream,
    to: &mut TcpStream,
    len: usize,
) -> Result<usize, Failure> {
    let taken = from.async_io(Interest::READABLE, || pipe.take(from.as_fd(), len)).await;
    let taken = taken.map_err(Failure::Server)?;
    if taken == 0 {
        return Err(Failure::Server(io::ErrorKind::UnexpectedEof.into()));
    }
    while pipe.holds() > 0 {
        to.async_io(Interest::WRITABLE, || pipe.give(to.as_fd())).await.map_err(Failure::Client)?;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener as Listener;

    use tokio::net::TcpListener;

    use super::*;

    const REQUEST: &[u8] = b"GET /big HTTP/1.1\r\nHost: files\r\n\r\n";
    const LEN: usize = 5_000_000;

    fn body() -> Vec<u8> {
        (0..LEN).map(|at| (at * 7 / 3) as u8).collect()
    }

    fn insurable() -> Insurable {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nETag: \"a\"\r\n\r\n");
        Insurable::read(REQUEST, head.as_bytes()).unwrap()
    }

    /// A server that answers once with this; what it was asked.
    async fn server(answer: Vec<u8>) -> (SocketAddr, tokio::task::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut asked).await.unwrap();
            }
            // The other side may have closed by then.
            let _ = stream.write_all(&answer).await;
            asked
        });
        (address, task)
    }

    /// What a client gets that has `offset` bytes, and what becomes of it.
    fn get(offset: u64, answer: Vec<u8>) -> (Vec<u8>, Result<(), Failure>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (server, asked) = server(answer).await;
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut client, _) = listener.accept().await.unwrap();
            let reading = tokio::spawn(async move {
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).await.unwrap();
                all
            });
            let insurable = insurable();
            let rest = Rest { insurable: &insurable, request: REQUEST, offset };
            let mut last = 0;
            let done = send_rest(&mut client, server, rest, |_, sent| last = sent).await;
            drop(client);
            let asked = String::from_utf8(asked.await.unwrap()).unwrap();
            assert!(asked.contains(&format!("Range: bytes={offset}-{}\r\n", LEN - 1)), "{asked}");
            let got = reading.await.unwrap();
            assert_eq!(got.len() as u64, last);
            (got, done)
        })
    }

    fn answer(offset: usize, body: &[u8]) -> Vec<u8> {
        let (last, len) = (LEN - 1, LEN - offset);
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {offset}-{last}/{LEN}\r\nContent-Length: {len}\r\n\
             ETag: \"a\"\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }

    #[test]
    fn the_rest_follows_to_the_last_byte() {
        for offset in [0, 1, LEN / 2, LEN - 1] {
            let (got, done) = get(offset as u64, answer(offset, &body()[offset..]));
            assert!(done.is_ok(), "{done:?}");
            assert!(got == body()[offset..], "from {offset} on");
        }
    }

    #[test]
    fn nothing_is_sent_of_what_is_not_the_rest() {
        let other = answer(500, &body()[500..]);
        let (got, done) = get(400, other);
        assert!(matches!(done, Err(Failure::Mismatch(Mismatch::Range))), "{done:?}");
        assert!(got.is_empty());
        let changed = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nETag: \"b\"\r\n\r\n").into_bytes();
        let (got, done) = get(400, changed);
        assert!(matches!(done, Err(Failure::Mismatch(Mismatch::Status(200)))), "{done:?}");
        assert!(got.is_empty());
    }

    #[test]
    fn a_server_that_ends_early_is_a_failure() {
        let offset = LEN / 2;
        let (got, done) = get(offset as u64, answer(offset, &body()[offset..LEN - 1]));
        assert!(matches!(done, Err(Failure::Server(_))), "{done:?}");
        assert_eq!(got.len(), LEN - offset - 1);
        // More than was announced is not the response's.
        let (got, done) = get(offset as u64, answer(offset, &[&body()[offset..], b"more"].concat()));
        assert!(done.is_ok(), "{done:?}");
        assert_eq!(got.len(), LEN - offset);
    }

    #[test]
    fn without_a_server_nothing_is_sent() {
        let closed = Listener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut client, _) = listener.accept().await.unwrap();
            let insurable = insurable();
            let rest = Rest { insurable: &insurable, request: REQUEST, offset: 5 };
            let done = send_rest(&mut client, closed, rest, |_, _| {}).await;
            assert!(matches!(done, Err(Failure::Server(_))), "{done:?}");
            // The client has all of it.
            let rest = Rest { offset: LEN as u64, ..rest };
            assert!(send_rest(&mut client, closed, rest, |_, _| {}).await.is_ok());
        });
    }
}
