//! Parsing of the TLS ClientHello (RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2), and tickets that name their node;
//! strict and without I/O.
//!
//! The switch reads the ClientHello to choose a pool and a node, as it reads the head of an HTTP request; the node
//! reads the ClientHello again with a parser of its own. This parser therefore accepts only what all parsers read the
//! same way, and refuses the rest with the TLS alert for the error ([`Reject`]). It reads only what determines the
//! node: server name, protocols and tickets.
//!
//! [`read`] is stateless: a caller that gets a ClientHello in pieces calls it again with all data so far. The result
//! does not depend on the pieces. A message may span records, and a record may span packets.
//!
//! [`Tickets`] makes session tickets that name their node; reading and changing the name takes the cluster key.

mod client_hello;
mod reader;
mod reject;
mod ticket;

pub use client_hello::{ClientHello, Progress, read};
pub use reject::Reject;
pub use ticket::{NamedTicket, Tickets};
