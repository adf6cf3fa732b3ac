//! How this node's responses are made ready to go on at other nodes, and how it goes on with theirs.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use switchback_resume::{Failure, Owner, Proof, Sealed};
use zeroize::Zeroizing;

use super::flow::Addresses;
use super::idle::Stream;
use super::peers::Peer;

/// The insurance of a node.
pub trait Insurer: Send + Sync {
    /// Hears another node, until its connection ends.
    fn hear(&self, channel: Box<dyn Stream>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The numbers of a connection that has just been accepted.
    fn numbers(&self, flow: Addresses) -> Option<Numbers>;

    /// Has other nodes go on with a response if this one dies, whose records `owner` knows. None if there are no such nodes,
    /// and nobody can go on with it already.
    fn insure(&self, response: InsuredResponse, owner: Owner) -> Option<Arc<dyn Policy>>;

    /// Counts a long response that no other node can go on with.
    fn is_uninsurable(&self, why: &'static str);

    /// Counts a response that has gone on from another server, or has failed to.
    fn has_gone_on(&self, result: &Result<(), Failure>);
}

/// TCP sequence numbers of a socket's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Of the client.
    pub client: u32,
    /// Of the endpoint.
    pub server: u32,
}

/// A response that other nodes are told of.
#[derive(Debug)]
pub struct InsuredResponse {
    /// Addresses of the client and the VIP.
    pub flow: Addresses,
    /// Name of the service.
    pub service: String,
    /// The nodes that can go on.
    pub peers: Vec<Peer>,
    /// Names of the nodes that have had the response before.
    pub past: Vec<String>,
    /// Head of the request, as the server got it.
    pub request: Vec<u8>,
    /// Head of the response.
    pub response: Vec<u8>,
    /// Present if the response is to be made once more.
    pub proof: Option<Proof>,
    /// Whether the connection stays open behind the response.
    pub keeps: bool,
    /// The connection.
    pub state: Snapshot,
}

/// The state of a connection. It is as secret as the connection.
pub struct Snapshot {
    /// Sequence number of the client's next byte.
    pub next: u32,
    /// [`crate::Moved::to_bytes`]
    pub moved: Zeroizing<Vec<u8>>,
}

/// Without keys.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("next", &self.next).finish_non_exhaustive()
    }
}

/// An insured response. It is not insured any more when this is dropped.
pub trait Policy: Send + Sync {
    /// Tells of records that are to go out. The client has all before `has`.
    fn add(&self, sealed: &[Sealed], has: u64);

    /// Waits until more records than those before a number may go out; the number before which they may. An error if another
    /// node has gone on with the response.
    fn poll_released(&self, cx: &mut Context<'_>, beyond: u64) -> Poll<io::Result<u64>>;

    /// The client has said something, so the connection is another one. No record goes out before that is known.
    fn renew(&self, state: Snapshot);

    /// Ends the insurance.
    fn end(&self);

    /// Waits until nobody can go on with the response any more.
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()>;
}
