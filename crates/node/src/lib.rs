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
pub fn run(options: Options) -> Result<(), Error> {
    agent::run(&options, None)
}

/// Likewise on a machine that is a switch, too.
pub fn run_beside_switch(options: Options, switch: impl SwitchHere) -> Result<(), Error> {
    agent::run(&options, Some(&switch))
}

/// The switch of the same machine.
pub trait SwitchHere {
    /// Flows can be handed over. The ring is where the programs put what they say to that switch: each record is an
    /// `sb_record` with a packet, as in the switch's own rings.
    fn begin(&self, ring: MapHandle);
    /// The agent is about to end; returns when the switch hands over no more.
    fn end(&self);
}
