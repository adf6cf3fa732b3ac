//! Certificates from a CA by ACME (RFC 8555).
//!
//! Each node that needs such certificates has a [`Keeper`], which keeps them in files. One of the nodes, which the configuration
//! names, orders them (`order`): one after the other, when a third of a certificate's time is left, or when there is none
//! (`schedule`). What it gets goes into [`Issued`](switchback_tls::Issued), from which the nodes tell each other, as they do
//! of the answers to the CA's challenges.
//!
//! Whatever fails, the certificates that are there stay in force, and the order is tried again after a time that doubles.

mod error;
mod external;
mod http;
mod keeper;
mod order;
mod orders;
mod schedule;
mod store;

pub use error::Error;
pub use keeper::Keeper;
pub use orders::Standing;
