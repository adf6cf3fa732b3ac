//! What is explained: a connection, and which part of it is known.

use switchback_switch::explain::Connection;

/// The first captured or given part of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// The first request, from an unspecified client.
    Given,
    /// The client's SYN.
    Syn,
    /// A request that a node was given.
    Handoff,
    /// The middle: earlier packets were not captured.
    Middle,
}

/// A connection that has been read to its end.
pub struct Explained {
    pub connection: Connection,
    pub begins: Begins,
    /// Offset of the first gap in the client's data.
    pub missing: Option<u64>,
}
