//! The choice of a pool's node for a request.
//!
//! A policy is a pure state machine: it reads no clock, draws no random number and opens no socket. Its caller passes
//! these in, so the simulator under its virtual clock and the switch under the real one run the same code, and a run
//! can be repeated from its seed.
//!
//! Each policy is one file with one type that implements [`Policy`]. [`PolicyKind`] is its name in
//! `cluster.toml`, [`build`] makes it. What every pool does whatever its policy is (health, zones, slow
//! start) is in [`Balancer`], which is what the switch uses. `docs/policies.md` says when to use which.

mod accept_queue;
mod balancer;
mod build;
mod draw;
mod fill;
mod hand_over;
mod hash;
mod kind;
mod latency;
mod least;
mod least_connections;
mod outlier;
mod policy;
mod random;
mod round_robin;
#[cfg(test)]
mod testing;
mod tree;
mod two_choices;

pub use accept_queue::AcceptQueue;
pub use balancer::{Availability, Balancer, Load, MOST_AHEAD, WEIGHT_SCALE};
pub use build::build;
pub use fill::Fill;
pub use hand_over::{Busy, Work, is_lighter};
pub use hash::Rendezvous;
pub use kind::{PolicyKind, UnknownPolicy};
pub use latency::Latency;
pub use least_connections::LeastConnections;
pub use outlier::{Conduct, Terms, most_ejected};
pub use policy::{Ask, Candidate, Member, Policy, Queue};
pub use random::Random;
pub use round_robin::RoundRobin;
pub use two_choices::TwoChoices;
