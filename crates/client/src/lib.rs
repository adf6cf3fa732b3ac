//! The client shim, which lets the programs of a machine talk to the nodes of a cluster directly once the switch has
//! routed a request.
//!
//! Neither the programs nor the kernel's TCP know of it. Two TC programs (`bpf/`) see the packets in between: one
//! accepts the introductions of nodes, the other sends packets of introduced flows to the node through a tunnel. In any
//! doubt a packet goes to the switch, so nothing depends on the shim, with one exception: servers whose responses must
//! come through a tunnel. Their connections are closed when the shim ends in order; when it is killed, the programs
//! stay pinned and at work, and the next shim takes them over.

mod agent;
mod programs;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton;
mod sockets;

use std::path::PathBuf;

pub use switchback_runtime::Error;

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "client";

/// Options of `switchback client`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of `client.toml`.
    pub config: PathBuf,
    /// Interface towards switch and nodes.
    pub interface: String,
}

/// Runs the shim until SIGTERM or SIGINT. Prints `ready` to stderr once nodes can introduce themselves.
pub fn run(options: Options) -> Result<(), Error> {
    agent::run(&options)
}
