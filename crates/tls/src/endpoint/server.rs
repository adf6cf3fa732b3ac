//! Connections to the server of this node, which are kept for the next request.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::moving::Peer;
use super::peers::{Opening, Peers, say};

/// Time that a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Time after which an idle connection is closed: before servers do, most of which wait a minute or more.
const IDLE: Duration = Duration::from_secs(30);
/// Most idle connections.
const IDLE_MAX: usize = 256;

/// A connection to a server that speaks HTTP/1.1.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Node of the server, if the connection goes through its agent.
    fn node(&self) -> Option<&Arc<str>> {
        None
    }
}

impl Stream for TcpStream {}
impl Stream for UnixStream {}
impl Stream for tokio_rustls::client::TlsStream<TcpStream> {}
impl Stream for tokio_rustls::server::TlsStream<TcpStream> {}

/// A connection to the server of another node.
struct OfNode {
    stream: Box<dyn Stream>,
    node: Arc<str>,
}

impl Stream for OfNode {
    fn node(&self) -> Option<&Arc<str>> {
        Some(&self.node)
    }
}

impl AsyncRead for OfNode {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for OfNode {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Address of a server.
#[derive(Clone, Debug)]
pub enum ServerAddress {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Over a UNIX socket.
    Unix(PathBuf),
    /// The server of the service at one of these nodes, through their agents.
    Peers(Arc<PeersOf>),
}

/// A service at other nodes.
#[derive(Debug)]
pub struct PeersOf {
    pub(super) peers: Arc<Peers>,
    pub(super) service: String,
    pub(super) nodes: Vec<Peer>,
    /// Index of the next node in rotation.
    pub(super) turn: AtomicUsize,
}

impl PeersOf {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for index in 0..self.nodes.len() {
            let peer = &self.nodes[(start + index) % self.nodes.len()];
            match self.peers.connect(peer.address).await {
                Ok(mut stream) => {
                    say(&mut stream, &Opening::Forward { service: self.service.clone() }).await?;
                    return Ok(Box::new(OfNode { stream, node: peer.name.as_str().into() }));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl ServerAddress {
    /// A new connection.
    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let connecting = async {
            Ok(match self {
                ServerAddress::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream) as Box<dyn Stream>
                }
                ServerAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
                ServerAddress::Peers(others) => others.connect().await?,
            })
        };
        tokio::time::timeout(CONNECT, connecting).await?
    }
}

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

/// The server, and connections to it that are idle.
pub(super) struct Servers {
    address: ServerAddress,
    idle: Mutex<Idle>,
}

impl Servers {
    pub(super) fn new(address: ServerAddress) -> Self {
        Servers { address, idle: Mutex::default() }
    }

    /// Address of the server.
    pub(super) fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// A connection, and whether it has been used before: then the server may be closing it just now.
    pub(super) async fn take(&self) -> io::Result<(Box<dyn Stream>, bool)> {
        let idle = self.idle().take();
        match idle {
            Some(stream) => Ok((stream, true)),
            None => Ok((self.address.connect().await?, false)),
        }
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        self.address.connect().await
    }

    /// Keeps a connection on which the server is ready for the next request.
    pub(super) fn put_back(&self, stream: Box<dyn Stream>) {
        self.idle().put_back(stream);
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
