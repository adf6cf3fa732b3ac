//! Connections to a server that speaks HTTP/2 without TLS (h2c with prior knowledge), each for many requests.
//!
//! A request goes over the first connection that has room for it, so that there are few. A new connection gets none before the
//! server's SETTINGS have come: they say how many streams it takes at a time, and that it speaks HTTP/2 at all. What goes wrong
//! before concerns no request.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Connection as Http2, ResponseFuture, SendRequest};
use http::Request;
use log::debug;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::frames::SEND_BUFFER;
use super::idle::Stream;
use super::server::ServerAddress;

/// Most streams of a connection, even if the server takes more. Their windows fit in that of the connection, so a client that
/// does not read delays no other one.
const STREAMS_MAX: usize = 100;
/// Bytes of a stream's response that the server may send ahead of the client.
const WINDOW: u32 = 32 << 10;
/// What frames of the server may take beside their content: never too much, as it is what clients have asked for, and is
/// taken at once.
const FRAMES: usize = usize::MAX;
/// The longest head or trailer section of a response, as RFC 9113 section 6.5.2 counts.
const RESPONSE_HEAD_MAX: u32 = 64 << 10;
/// Time within which the SETTINGS of a new connection have to come.
const BEGIN: Duration = Duration::from_secs(5);
/// Time after which a connection without streams is closed.
const IDLE: Duration = Duration::from_secs(30);
/// Number of streams that a server takes before its SETTINGS have come: no number that it can say.
const UNKNOWN: usize = usize::MAX - 1;

/// A server, and the connections to it.
pub(super) struct Multiplexed {
    address: ServerAddress,
    /// What each connection begins with.
    greeting: Vec<u8>,
    /// Node of the server.
    node: Arc<str>,
    connections: Mutex<Vec<Connection>>,
    /// Held while a connection is made; whoever waits for it looks for room again.
    connecting: tokio::sync::Mutex<()>,
}

struct Connection {
    sender: SendRequest<Bytes>,
    /// Number of its leases.
    streams: Arc<AtomicUsize>,
    /// The time of the last lease's beginning.
    used: Instant,
}

/// Room for one stream on a connection, until it is dropped.
pub(super) struct Lease {
    sender: SendRequest<Bytes>,
    streams: Arc<AtomicUsize>,
    node: Arc<str>,
}

impl Lease {
    /// Node of the server.
    pub(super) fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Begins a stream; after an error nothing has been sent.
    pub(super) fn send(
        &mut self,
        request: Request<()>,
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.sender.send_request(request, is_whole)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Multiplexed {
    pub(super) fn new(address: ServerAddress, node: Arc<str>) -> Self {
        let (connections, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Multiplexed { address, greeting: Vec::new(), node, connections, connecting }
    }

    /// The same server, over connections that begin with `greeting`.
    pub(super) fn greeting(&self, greeting: &[u8]) -> Self {
        let new = Multiplexed::new(self.address.clone(), self.node.clone());
        Multiplexed { greeting: greeting.to_vec(), ..new }
    }

    /// Node of the server.
    pub(super) fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Room for a stream, over a new connection if no other one has any.
    pub(super) async fn lease(&self) -> io::Result<Lease> {
        if let Some(lease) = self.room() {
            return Ok(lease);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(lease) = self.room() {
            return Ok(lease);
        }
        let sender = timeout(BEGIN, self.connect()).await??;
        self.connections().push(Connection { sender, streams: Arc::default(), used: Instant::now() });
        self.room().ok_or_else(|| io::Error::other("the server takes no streams"))
    }

    /// Room for a stream on a connection that is there. Those that have ended, or have not been used for long, are dropped.
    fn room(&self) -> Option<Lease> {
        let now = Instant::now();
        let mut connections = self.connections();
        connections.retain_mut(|connection| connection.is_open() && !connection.is_idle(now));
        let connection = connections.iter_mut().find(|connection| connection.has_room())?;
        connection.used = now;
        connection.streams.fetch_add(1, Ordering::Relaxed);
        let (sender, streams) = (connection.sender.clone(), Arc::clone(&connection.streams));
        Some(Lease { sender, streams, node: self.node.clone() })
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection, on which the server has begun.
    async fn connect(&self) -> io::Result<SendRequest<Bytes>> {
        let stream = self.address.connect(&self.greeting).await?;
        let handshake = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * STREAMS_MAX as u32)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(RESPONSE_HEAD_MAX)
            .data_frame_budget(FRAMES)
            .initial_max_send_streams(UNKNOWN)
            .handshake(stream);
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        let (settings, have_come) = oneshot::channel();
        tokio::spawn(drive(connection, settings));
        match have_come.await {
            Ok(()) => Ok(sender),
            Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the server does not speak HTTP/2")),
        }
    }
}

impl Connection {
    /// Whether the server has neither closed it nor announced that it will (GOAWAY).
    fn is_open(&mut self) -> bool {
        matches!(self.sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.streams.load(Ordering::Relaxed) == 0 && now.duration_since(self.used) > IDLE
    }

    fn has_room(&self) -> bool {
        let most = self.sender.current_max_send_streams().min(STREAMS_MAX);
        self.streams.load(Ordering::Relaxed) < most
    }
}

/// Reads and writes a connection until it ends; `settings` hears of the server's SETTINGS.
async fn drive(mut connection: Http2<Box<dyn Stream>, Bytes>, settings: oneshot::Sender<()>) {
    let mut settings = Some(settings);
    let ended = std::future::poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        if connection.max_concurrent_send_streams() != UNKNOWN
            && let Some(settings) = settings.take()
        {
            // Whoever has waited may have gone.
            let _ = settings.send(());
        }
        polled
    });
    if let Err(error) = ended.await {
        debug!("a connection to a server ends: {error}");
    }
}
