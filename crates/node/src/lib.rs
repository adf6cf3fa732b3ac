//! The node agent: makes a machine with an ordinary HTTP server a node of the cluster.
//!
//! The work on packets is done by the programs in `bpf/`. The agent loads them, holds the VIPs on `lo`, tells
//! switches which flows have ended and how the servers are doing, and undoes all of it on SIGTERM. What it must get right is the order:
//! while a VIP is an address of this machine the programs have to be attached, because they keep the kernel
//! from answering ARP for it and so from drawing the service away from the switch. Hence the programs and
//! their maps are pinned ([`programs`]): a killed agent leaves a node that goes on adopting, and the next
//! agent takes over without a packet lost.

mod addresses;
mod agent;
mod closed;
mod health;
mod listeners;
mod load;
mod machine;
mod plan;
mod programs;
mod reports;
mod sender;
mod sessions;
mod signals;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton;

use std::path::PathBuf;

pub use plan::service_ports;
pub use switchback_runtime::Error;

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "node";

/// What the agent is told on the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// `cluster.toml`.
    pub config: PathBuf,
    /// The node's name in it.
    pub name: String,
    /// Where handoff packets arrive and responses leave.
    pub interface: String,
}

/// Runs the agent until SIGTERM or SIGINT. It says `ready` on stderr once flows can be handed over.
///
/// To be called before the process has other threads: signals are taken by the calling thread.
pub fn run(options: Options) -> Result<(), Error> {
    agent::run(&options)
}
