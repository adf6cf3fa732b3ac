//! The TLS endpoint of a node.
//!
//! [`Session`] is a connection without its socket. rustls does the handshake (TLS 1.2 and 1.3); after it,
//! records are read and written here, so that a connection can go on at another node: [`Session::give_up`]
//! makes a [`Moved`] of it, which holds keys, record numbers and unused data, and [`Session::take_over`]
//! makes a session of that again. [`Session::lend`] gives away only the keys that write, for one response
//! that another node makes.
//!
//! Keys and data are overwritten when they are not needed any more, and no `Debug` shows them.

mod admission;
mod certificates;
mod check;
mod client_certificate;
mod client_certificates;
pub mod endpoint;
mod error;
mod issued;
mod judge;
mod keys;
mod moved;
mod record_layer;
mod records;
mod sealer;
mod session;
mod ticket_keys;
mod tickets;
mod validity;

use std::fmt;

pub use certificates::{CertificateError, Certificates, InForce};
pub use check::{check, revocation_warnings};
pub use client_certificate::ClientCertificate;
pub use client_certificates::ClientCertificates;
pub use error::Error;
pub use issued::{Description, Issue, IssueError, Issued, Proof};
pub use judge::{Judge, Outcome};
pub use keys::Cipher;
pub use moved::{Lent, Moved};
pub use record_layer::Version;
pub use sealer::Sealer;
pub use session::{Facts, Session};
pub use ticket_keys::TicketKeys;
pub use tickets::Tickets;
pub use validity::{Stage, Validity};

/// The bytes of another node are no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedError;

impl fmt::Display for MovedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what another node has sent is no connection")
    }
}

impl std::error::Error for MovedError {}
