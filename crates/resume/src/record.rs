//! What a node tells its heirs of a response.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// The client.
    pub client: SocketAddr,
    /// The VIP.
    pub vip: SocketAddr,
}

/// A response under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The connection.
    pub flow: Flow,
    /// Sequence number of the client's first byte.
    pub origin: u32,
    /// Sequence number at which the client's next request begins.
    pub next: u32,
    /// The adoption by the node.
    pub generation: u32,
    /// Requests that the node has been given on the connection.
    pub requests: u16,
    /// MSS of the client.
    pub mss: u16,
    /// Options that the handshake has settled (`SB_SYN_*`), and the round trip.
    pub options: u8,
    /// Window scales.
    pub wscale: u8,
    /// Whether the connection stays open behind the response.
    pub keeps: bool,
    /// A sequence number of the response's body up to which the client has it.
    pub seq: u32,
    /// Bytes of the response before it.
    pub sent: u64,
    /// Head of the request.
    pub request: Vec<u8>,
    /// Head of the response.
    pub response: Vec<u8>,
    /// Name of the node.
    pub owner: String,
    /// Names of the nodes that can go on, the first one first.
    pub heirs: Vec<String>,
    /// Names of the nodes that have had the response before.
    pub past: Vec<String>,
}

impl Record {
    /// Memory of the record, in bytes.
    pub fn cost(&self) -> usize {
        size_of::<Record>()
            + self.request.len()
            + self.response.len()
            + 32 * (1 + self.heirs.len() + self.past.len())
    }
}

/// A message of a node to one of its heirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The response is under way; replaces an earlier one of the connection.
    Insure(Record),
    /// The response on the connection with this origin is over.
    Over(Flow, u32),
    /// The server of the response on the connection with this origin has gone: the heir is to go on.
    Bequeathed(Flow, u32),
    /// The response on the connection with this origin has gone on at the node that says so, by this adoption.
    Taken(Flow, u32, u32),
}
