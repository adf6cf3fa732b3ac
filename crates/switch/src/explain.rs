//! What the switch would do with requests, and why, for `switchback explain`.
//!
//! Nothing is decided here. A connection has a flow entry and held packets as in the L7 thread, and the code that
//! serves requests judges it: `Dispatcher::judge`, `mark`, the pool's policy, the automaton. This module adds the
//! reasons, which that code does not need, by calling it repeatedly: a refused head, for example, is wrong at the end
//! of its shortest refused prefix.

mod connection;
mod explainer;
mod explanation;
mod tls;

pub use connection::Connection;
pub use explainer::Explainer;
pub use explanation::{
    Explanation, Flow, Forwarded, Names, Outcome, Place, Refusal, SessionRead, Slow, Then,
};
pub use switchback_flow::held::HeldPacket;
pub use tls::{Decrypted, Greeting, Hello, HelloRoute, OverTls, Spoken};

#[cfg(test)]
mod tests;
