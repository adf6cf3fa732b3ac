//! What a TLS client says first (RFC 8446 section 4.1.2, RFC 5246 section 7.4.1.2), and what session tickets say in the
//! open; strict and without I/O.
//!
//! A switch reads the ClientHello to choose a pool and a node, as it reads the head of an HTTP request; the node that gets
//! the connection reads it again with a parser of its own. So this one accepts only what every parser reads the same way,
//! and refuses the rest with the alert that TLS has for it ([`Reject`]). It looks at no more than what chooses a node: the
//! server's name, the protocols, the tickets.
//!
//! [`read`] starts anew at each call, so a caller that gets a ClientHello in pieces calls it again with what it has so far.
//! The result does not depend on the pieces. The message may span records, and a record packets.
//!
//! [`Tickets`] makes a session ticket name its node: readable by whoever has the cluster key, changed by nobody else.

mod client_hello;
mod reader;
mod reject;
mod ticket;

pub use client_hello::{ClientHello, Progress, read};
pub use reject::Reject;
pub use ticket::{NamedTicket, Tickets};
