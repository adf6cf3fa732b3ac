//! An adversary's attacks, each beside clients with long-lived connections, who must not lose a byte by it.

#[path = "tcp/client.rs"]
#[allow(dead_code)] // the tests of TCP use the rest
mod client;
mod common;
#[path = "adversary/crowds.rs"]
mod crowds;
#[path = "adversary/floods.rs"]
mod floods;
#[path = "adversary/handoffs.rs"]
mod handoffs;
#[path = "adversary/handshake.rs"]
mod handshake;
#[path = "adversary/outlets.rs"]
mod outlets;
#[path = "adversary/repeats.rs"]
mod repeats;
#[path = "adversary/requests.rs"]
mod requests;
#[path = "adversary/restarts.rs"]
mod restarts;
#[path = "tcp/segments.rs"]
#[allow(dead_code)]
mod segments;
#[path = "adversary/victims.rs"]
mod victims;
