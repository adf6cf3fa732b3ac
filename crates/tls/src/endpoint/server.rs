//! Connections to servers, which are kept for the next request.

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

/// A connection to the server of a node.
pub(super) struct OfNode {
    stream: Box<dyn Stream>,
    node: Arc<str>,
}

impl OfNode {
    pub(super) fn boxed(stream: Box<dyn Stream>, node: &Arc<str>) -> Box<dyn Stream> {
        Box::new(OfNode { stream, node: Arc::clone(node) })
    }
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
    /// A server of a service at one of these nodes, through their agents.
    Peers(Arc<PeersOf>),
}

/// What other machines are asked for: a server of this service.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) service: String,
    /// Whether each node has a server of its own; otherwise each machine has one.
    pub(super) of_node: bool,
}

/// A service at other nodes.
#[derive(Debug)]
pub struct PeersOf {
    peers: Arc<Peers>,
    wanted: Wanted,
    nodes: Vec<Peer>,
    /// Id of the pool, if it is known.
    pool: Option<u32>,
    /// What knows its outliers, which are the last choice.
    loads: Option<Arc<Loads>>,
    /// Index of the next node in rotation.
    turn: AtomicUsize,
}

impl PeersOf {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % self.nodes.len().max(1);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let (before, after) = self.nodes.split_at(start);
        let mut nodes: Vec<&Peer> = after.iter().chain(before).collect();
        if let (Some(pool), Some(loads)) = (self.pool, &self.loads) {
            nodes.sort_by_cached_key(|node| loads.fails(pool, node.address));
        }
        for peer in nodes {
            match self.peers.connect(peer.address).await {
                Ok(mut stream) => {
                    say(&mut stream, &self.opening(peer)).await?;
                    return Ok(OfNode::boxed(stream, &peer.name.as_str().into()));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn opening(&self, peer: &Peer) -> Opening {
        let Wanted { service, of_node } = self.wanted.clone();
        match of_node {
            true => Opening::ForwardToNode { service, pool: self.pool, node: peer.name.clone() },
            false => Opening::Forward { service },
        }
    }
}

impl ServerAddress {
    /// A server at these nodes, of a pool if that is known.
    pub(super) fn at_peers(peers: &Arc<Peers>, wanted: &Wanted, nodes: Vec<Peer>, pool: Option<u32>) -> Self {
        ServerAddress::at(peers, wanted, nodes, pool, None)
    }

    /// A server at these nodes of a pool, at its outliers only if the others cannot be reached.
    pub(super) fn at_pool(
        peers: &Arc<Peers>,
        wanted: &Wanted,
        nodes: Vec<Peer>,
        (pool, loads): (u32, Arc<Loads>),
    ) -> Self {
        ServerAddress::at(peers, wanted, nodes, Some(pool), Some(loads))
    }

    fn at(
        peers: &Arc<Peers>,
        wanted: &Wanted,
        nodes: Vec<Peer>,
        pool: Option<u32>,
        loads: Option<Arc<Loads>>,
    ) -> Self {
        let (peers, wanted, turn) = (Arc::clone(peers), wanted.clone(), AtomicUsize::new(0));
        ServerAddress::Peers(Arc::new(PeersOf { peers, wanted, nodes, pool, loads, turn }))
    }

    /// Whether it is the same address of a server on this machine, or behind it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (ServerAddress::Tcp(one), ServerAddress::Tcp(other)) => one == other,
            (ServerAddress::Unix(one), ServerAddress::Unix(other)) => one == other,
            _ => false,
        }
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

/// A new connection to the first of these servers that can be reached, which begins with `greeting`.
pub(super) async fn connect_to_one(
    servers: &[&ServerAddress],
    greeting: &[u8],
) -> io::Result<Box<dyn Stream>> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for server in servers {
        match server.connect(greeting).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
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
                Ok(OfNode::boxed(Box::new(stream), &node))
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
