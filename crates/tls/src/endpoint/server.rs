//! Connections to the server of this node, which are kept for the next request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::bridge::Bridge;
use super::idle::{Idle, Stream};
use super::load::Loads;
use super::messages::{Opening, say};
use super::peers::{Peer, Peers};

/// Time that a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);

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
    peers: Arc<Peers>,
    service: String,
    nodes: Vec<Peer>,
    /// Id of the pool, and what knows its outliers; they are the last choice.
    pool: Option<(u32, Arc<Loads>)>,
    /// Index of the next node in rotation.
    turn: AtomicUsize,
}

impl PeersOf {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % self.nodes.len().max(1);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let (before, after) = self.nodes.split_at(start);
        let mut nodes: Vec<&Peer> = after.iter().chain(before).collect();
        if let Some((pool, loads)) = &self.pool {
            nodes.sort_by_cached_key(|node| loads.fails(*pool, node.address));
        }
        for peer in nodes {
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
    /// The server of the service at these nodes.
    pub(super) fn at_peers(peers: &Arc<Peers>, service: &str, nodes: Vec<Peer>) -> Self {
        ServerAddress::at(peers, service, nodes, None)
    }

    /// The server of the service at these nodes of a pool, at its outliers only if the others cannot be reached.
    pub(super) fn at_pool(
        peers: &Arc<Peers>,
        service: &str,
        nodes: Vec<Peer>,
        pool: (u32, Arc<Loads>),
    ) -> Self {
        ServerAddress::at(peers, service, nodes, Some(pool))
    }

    fn at(peers: &Arc<Peers>, service: &str, nodes: Vec<Peer>, pool: Option<(u32, Arc<Loads>)>) -> Self {
        let (peers, service) = (Arc::clone(peers), service.to_owned());
        ServerAddress::Peers(Arc::new(PeersOf { peers, service, nodes, pool, turn: AtomicUsize::new(0) }))
    }

    /// A new connection, which begins with `greeting`.
    pub(super) async fn connect(&self, greeting: &[u8]) -> io::Result<Box<dyn Stream>> {
        let connecting = async {
            let mut stream = match self {
                ServerAddress::Tcp(address) => {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream) as Box<dyn Stream>
                }
                ServerAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
                ServerAddress::Peers(others) => others.connect().await?,
            };
            stream.write_all(greeting).await?;
            Ok(stream)
        };
        tokio::time::timeout(CONNECT, connecting).await?
    }
}

/// The server in HTTP/1.1, and connections to it that are idle.
pub(super) struct Servers {
    way: Way,
    idle: Mutex<Idle>,
}

/// How a server is asked in HTTP/1.1.
enum Way {
    /// It speaks that itself.
    Straight(ServerAddress),
    /// It speaks HTTP/2.
    Bridge(Bridge),
}

impl Servers {
    /// A server that speaks HTTP/1.1.
    pub(super) fn new(address: ServerAddress) -> Self {
        Servers { way: Way::Straight(address), idle: Mutex::default() }
    }

    /// Servers that speak HTTP/2.
    pub(super) fn bridged(bridge: Bridge) -> Self {
        Servers { way: Way::Bridge(bridge), idle: Mutex::default() }
    }

    /// A connection, and whether it has been used before: then the server may be closing it just now.
    pub(super) async fn take(&self) -> io::Result<(Box<dyn Stream>, bool)> {
        let idle = self.idle().take();
        match idle {
            Some(stream) => Ok((stream, true)),
            None => Ok((self.connect(&[]).await?, false)),
        }
    }

    /// A new connection, which the server sees begin with `greeting`.
    pub(super) async fn connect(&self, greeting: &[u8]) -> io::Result<Box<dyn Stream>> {
        match &self.way {
            Way::Straight(address) => address.connect(greeting).await,
            Way::Bridge(bridge) => {
                let (stream, node) = bridge.connect(greeting).await?;
                let stream = Box::new(stream);
                Ok(match node {
                    Some(node) => Box::new(OfNode { stream, node }),
                    None => stream,
                })
            }
        }
    }

    /// Keeps a connection on which the server is ready for the next request.
    pub(super) fn put_back(&self, stream: Box<dyn Stream>) {
        self.idle().put_back(stream);
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
