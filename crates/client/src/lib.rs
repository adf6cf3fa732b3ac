//! The client shim: makes a machine one whose programs speak to the nodes of a cluster directly, once the switch has
//! read what they ask for.
//!
//! The programs of the machine, and its kernel's TCP, know nothing of it. Two TC programs (`bpf/`) see the packets
//! between: the one takes the introductions of nodes, the other sends packets of such flows to the node in a tunnel.
//! Whenever something is not certain a packet goes to the switch, so nothing depends on the shim, with one exception:
//! servers whose responses have to come through a tunnel. Connections with those are closed when the shim ends in
//! order; when it is killed, the programs stay pinned and go on, and the next one takes them over.

mod agent;
mod programs;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton;
mod sockets;

use std::path::PathBuf;

pub use switchback_runtime::Error;

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "client";

/// What the shim is told on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// `client.toml`.
    pub config: PathBuf,
    /// Where packets to the services leave and responses arrive.
    pub interface: String,
}

/// Runs the shim until SIGTERM or SIGINT. It says `ready` on stderr once nodes can introduce themselves.
pub fn run(options: Options) -> Result<(), Error> {
    agent::run(&options)
}
