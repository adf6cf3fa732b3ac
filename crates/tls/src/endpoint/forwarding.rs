//! Requests of HTTP/2 forwarded to a server in HTTP/1.1, over connections that are kept; and the servers of single other nodes.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::frames::{StreamBody, Taken};
use super::idle::Stream;
use super::local::{Destination, Group};
use super::multiplexed::Multiplexed;
use super::peers::{Peer, Peers};
use super::server::{ServerAddress, Wanted};

/// Bytes of a stream's response that are read ahead from the server; also the longest head of a response.
const READ_BUFFER: usize = 16 << 10;
/// Connections to a server that are kept idle.
const IDLE_MAX: usize = 256;

/// Requests to servers, over connections that are kept.
pub(super) type Forwarder = Client<Connector, Taken<StreamBody>>;

/// A forwarder to this destination.
pub(super) fn forwarder(destination: Destination) -> Forwarder {
    let connector = Connector(Arc::new(destination));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_MAX)
        .http1_max_buf_size(READ_BUFFER)
        .build(connector)
}

/// Ways to the servers of single nodes of other machines.
pub(super) struct SingleNodes {
    peers: Arc<Peers>,
    wanted: Wanted,
    /// Id of their pool.
    pool: u32,
    /// The nodes of this machine, if another one cannot be reached.
    own: Arc<Group>,
    /// By the name of the node.
    forwarders: Mutex<HashMap<String, Forwarder>>,
    multiplexed: Mutex<HashMap<String, Arc<Multiplexed>>>,
}

impl SingleNodes {
    pub(super) fn new(peers: &Arc<Peers>, wanted: &Wanted, pool: u32, own: &Arc<Group>) -> Self {
        let (peers, wanted, own) = (Arc::clone(peers), wanted.clone(), Arc::clone(own));
        SingleNodes { peers, wanted, pool, own, forwarders: Mutex::default(), multiplexed: Mutex::default() }
    }

    /// The forwarder to this node for all clients.
    pub(super) fn forwarder(&self, peer: &Peer) -> Forwarder {
        let mut forwarders = self.forwarders.lock().unwrap_or_else(PoisonError::into_inner);
        let forwarder = || self.greeting(peer, Vec::new());
        forwarders.entry(peer.name.clone()).or_insert_with(forwarder).clone()
    }

    /// A forwarder to this node, over connections that begin with `greeting`.
    pub(super) fn greeting(&self, peer: &Peer, greeting: Vec<u8>) -> Forwarder {
        let instead = Some((peer.name.as_str().into(), Arc::clone(&self.own)));
        forwarder(Destination { address: self.address(peer), instead, greeting })
    }

    /// The connections in HTTP/2 to the server of this node.
    pub(super) fn multiplexed(&self, peer: &Peer) -> Arc<Multiplexed> {
        let mut all = self.multiplexed.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Multiplexed::new(self.address(peer), peer.name.as_str().into()));
        Arc::clone(all.entry(peer.name.clone()).or_insert_with(new))
    }

    fn address(&self, peer: &Peer) -> ServerAddress {
        ServerAddress::at_peers(&self.peers, &self.wanted, vec![peer.clone()], Some(self.pool))
    }
}

/// Makes connections to a destination.
#[derive(Clone)]
pub(super) struct Connector(Arc<Destination>);

/// Name of the node that a connection goes to, if it is another one than was meant, or of another machine; an extension of responses.
#[derive(Clone)]
pub(super) struct OtherNode(pub(super) Arc<str>);

/// A connection to a server.
pub(super) struct ToServer {
    stream: TokioIo<Box<dyn Stream>>,
    is_meant: bool,
}

impl tower_service::Service<Uri> for Connector {
    type Response = ToServer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<ToServer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let destination = Arc::clone(&self.0);
        Box::pin(async move {
            let (stream, is_meant) = destination.connect().await?;
            Ok(ToServer { stream: TokioIo::new(stream), is_meant })
        })
    }
}

impl Connection for ToServer {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if !self.is_meant {
            // Only this request goes there.
            connected.poison();
        }
        match self.stream.inner().node() {
            Some(node) => connected.extra(OtherNode(Arc::clone(node))),
            None => connected,
        }
    }
}

impl hyper::rt::Read for ToServer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for ToServer {
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
