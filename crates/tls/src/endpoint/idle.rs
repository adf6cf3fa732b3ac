//! Connections to a server or a node, which are kept for the next request.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Time after which an idle connection is closed: before servers do, most of which wait a minute or more.
const IDLE: Duration = Duration::from_secs(30);
/// Most idle connections.
const IDLE_MAX: usize = 256;

/// A connection to a server, or to another node.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Node of the server, if the connection goes through its agent.
    fn node(&self) -> Option<&Arc<str>> {
        None
    }

    /// The socket, if its data is the server's as it is.
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }
}

impl Stream for TcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl Stream for UnixStream {}
impl Stream for DuplexStream {}
impl Stream for tokio_rustls::client::TlsStream<TcpStream> {}
impl Stream for tokio_rustls::server::TlsStream<TcpStream> {}

/// Idle connections.
#[derive(Default)]
pub(super) struct Idle(VecDeque<(Instant, Box<dyn Stream>)>);

impl Idle {
    /// The latest one that the other side has not closed; its buffers are most likely in the cache.
    pub(super) fn take(&mut self) -> Option<Box<dyn Stream>> {
        let now = Instant::now();
        while self.0.front().is_some_and(|(since, _)| now.duration_since(*since) > IDLE) {
            self.0.pop_front();
        }
        std::iter::from_fn(|| self.0.pop_back()).map(|(_, stream)| stream).find_map(still_open)
    }

    pub(super) fn put_back(&mut self, stream: Box<dyn Stream>) {
        if self.0.len() >= IDLE_MAX {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now(), stream));
    }
}

/// The connection, if it is open: an idle one becomes readable only at its end.
fn still_open(mut stream: Box<dyn Stream>) -> Option<Box<dyn Stream>> {
    let mut byte = [0];
    let mut buffer = ReadBuf::new(&mut byte);
    let polled = Pin::new(&mut stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
    polled.is_pending().then_some(stream)
}
