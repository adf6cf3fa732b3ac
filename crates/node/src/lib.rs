//! The node agent, which makes a machine with an ordinary HTTP server a node of the cluster.
//!
//! The BPF programs in `bpf/` process the packets. The agent loads them, adds the VIPs to `lo`, reports ended flows and
//! the state of the servers to the switches, and undoes all of it on SIGTERM. The order is essential: while a VIP is an
//! address of this machine, the programs must be attached, because they keep the kernel from answering ARP for it and
//! so from drawing its traffic away from the switch. Programs and maps are therefore pinned (`programs`): a node
//! whose agent was killed goes on adopting flows, and the next agent takes over without losing a packet.

mod addresses;
mod agent;
mod clients;
mod closed;
mod endpoint;
mod facts;
mod guards;
mod health;
mod listeners;
mod load;
mod machine;
mod moving;
mod plan;
mod programs;
mod reports;
mod sender;
mod sessions;
mod signer;
mod sized;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton;

use std::path::PathBuf;

pub use libbpf_rs::MapHandle;
pub use plan::service_ports;
pub use switchback_runtime::Error;

/// The role in the names of pins and of the control socket.
pub const ROLE: &str = "node";

/// Options of `switchback node`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of `cluster.toml`.
    pub config: PathBuf,
    /// Name of the node in the configuration.
    pub name: String,
    /// Interface for handoff packets and responses.
    pub interface: String,
}

/// Runs the agent until SIGTERM or SIGINT. Prints `ready` to stderr once flows can be handed over.
pub fn run(options: Options) -> Result<(), Error> {
    agent::run(&options, None)
}

/// Runs the agent on a machine that is also a switch.
pub fn run_beside_switch(options: Options, switch: impl SwitchHere) -> Result<(), Error> {
    agent::run(&options, Some(&switch))
}

/// The switch on the same machine.
pub trait SwitchHere {
    /// Called when flows can be handed over. The ring contains the programs' messages to that switch: each record is an
    /// `sb_record` with a packet, as in the switch's own rings.
    fn begin(&self, ring: MapHandle);
    /// Called before the agent ends; returns when the switch hands over no more flows.
    fn end(&self);
}
