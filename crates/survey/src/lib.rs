//! Questions between the machines of a cluster: how each of them is, and what gets through between them.
//!
//! A [`Responder`] in each daemon answers on the UDP port of handoff packets. The programs leave it all packets there
//! that are no handoff packets, so questions take the way of handoff packets through every firewall between two machines.
//! An [`Asker`] asks, for `switchback test`.
//!
//! Questions carry a tag under a subkey of the cluster key. One with a wrong tag gets the answer that it is wrong, which
//! is shorter than the question, and [at most so often](responder::MOST_PER_SECOND): without it, a machine with another
//! key looks like one behind a firewall.

mod asker;
mod machine;
mod message;
pub mod responder;

pub use asker::{Asker, Silence, VipListener, unused};
pub use machine::{Flaw, Machine, Server};
pub use responder::Responder;
