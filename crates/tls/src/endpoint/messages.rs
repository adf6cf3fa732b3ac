//! Messages between agents, with their length in front.
//!
//! A message says what follows on a connection, which is kept for another one behind the
//! first two:
//!
//! - [`Opening::Move`]: a client's connection goes on at the node that is asked. It answers whether it will
//!   take it, and again when it has it.
//! - [`Opening::Relay`]: one request of a client's connection is answered by the node that is asked
//!   ([`relay`](super::relay)).
//! - [`Opening::Forward`], [`Opening::ForwardToNode`]: what follows is for a server of the machine that is asked, in the protocol
//!   that it speaks.
//! - [`Opening::Load`]: the node that is asked says how much it has to do, again and again.
//! - [`Opening::TicketKeys`]: both tell each other the keys of their tickets ([`sharing`](super::sharing)).
//! - [`Opening::Issued`]: both tell each other of the CA's certificates ([`issuing`](super::issuing)).
//! - [`Opening::Failing`]: the node that is asked says of which pools it is an outlier, again and again.
//! - [`Opening::Mirror`]: copies of requests follow, each a message ([`mirror`](super::mirror)).
//! - [`Opening::Insurance`]: the node says with which of its responses the one that is asked could go on.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::{Zeroize, Zeroizing};

use crate::Lent;
use crate::issued::Told;
use crate::ticket_keys::SharedKey;

/// How long a node may take to answer another, when it has nothing to wait for.
pub(super) const ANSWER: Duration = Duration::from_secs(3);
/// Longest message, in bytes. A client that uploads may have sent as much as a socket's buffers hold before
/// its connection moves, and all of that is in the message.
pub(super) const MESSAGE_MAX: usize = 16 << 20;

/// The first message on a connection between nodes.
#[derive(Serialize, Deserialize)]
pub(super) enum Opening {
    /// A client's connection is to go on here.
    Move(Offer),
    /// A request of a client's connection is to be answered here.
    Relay(RelayedRequest),
    /// The bytes that follow are for the server of this service.
    Forward { service: String },
    /// The receiver reports its load from now on.
    Load,
    /// Keys of tickets, which the receiver answers with its own.
    TicketKeys(Vec<SharedKey>),
    /// What follows is for the [`Insurer`](super::Insurer) of the receiver.
    Insurance,
    /// Certificates and proofs, which the receiver answers with its own.
    Issued(Told),
    /// The receiver reports the ids of the pools whose requests it fails from now on.
    Failing,
    /// Copies of requests are for servers of the receiver's machine.
    Mirror,
    /// The bytes that follow are for the server that this node has for the service, or for another one of the pool.
    ForwardToNode { service: String, pool: Option<u32>, node: String },
}

/// The state of a client's connection.
#[derive(Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) service: String,
    pub(super) client: SocketAddr,
    pub(super) vip: SocketAddr,
    /// [`crate::Moved::to_bytes`]
    pub(super) state: Zeroizing<Vec<u8>>,
    /// Time since the request came to the node that offers the connection.
    pub(super) waited: Duration,
}

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The node waits for the connection.
    Expected,
    /// The node has the connection.
    Taken,
    /// The node does not take it, or has waited for too long.
    Refused,
}

/// A request that another node is to answer.
#[derive(Serialize, Deserialize)]
pub(super) struct RelayedRequest {
    pub(super) service: String,
    pub(super) client: SocketAddr,
    pub(super) vip: SocketAddr,
    /// The head as the client sent it.
    pub(super) head: Vec<u8>,
    /// The client's certificate, in DER.
    pub(super) certificate: Option<Vec<u8>>,
    pub(super) lent: Lent,
}

/// Sends a message.
pub(super) async fn say<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin + ?Sized),
    message: &T,
) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.add(message)?;
    batch.send(stream).await
}

/// Messages that are sent together.
#[derive(Default)]
pub struct Batch(Zeroizing<Vec<u8>>);

impl Batch {
    /// Bytes behind which a batch is full, those of a TLS record.
    pub const SIZE: usize = 16 << 10;

    /// Appends a message.
    pub fn add(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = Zeroizing::new(postcard::to_allocvec(message).map_err(io::Error::other)?);
        self.0.extend_from_slice(&(text.len() as u32).to_be_bytes());
        self.0.extend_from_slice(&text);
        Ok(())
    }

    /// Whether it is to be sent before more is appended.
    pub fn is_full(&self) -> bool {
        self.0.len() >= Batch::SIZE
    }

    /// Sends the messages, and is empty then.
    pub async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin + ?Sized)) -> io::Result<()> {
        if !self.0.is_empty() {
            stream.write_all(&self.0).await?;
            stream.flush().await?;
            self.0.zeroize();
        }
        Ok(())
    }
}

/// Waits for a message.
pub async fn hear<T: for<'de> Deserialize<'de>>(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
) -> io::Result<T> {
    let len = stream.read_u32().await? as usize;
    if len > MESSAGE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Zeroizing::new(vec![0; len]);
    stream.read_exact(&mut text).await?;
    match postcard::take_from_bytes(&text) {
        Ok((message, [])) => Ok(message),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
