//! The node agent, which makes a machine with an ordinary HTTP server a node of the cluster.
//!
//! The BPF programs in `bpf/` process the packets. The agent loads them, adds the VIPs to `lo`, reports ended flows and
//! the state of the servers to the switches, and undoes all of it on SIGTERM. The order is essential: while a VIP is an
//! address of this machine, the programs must be attached, because they keep the kernel from answering ARP for it and
//! so from drawing its traffic away from the switch. Programs and maps are therefore pinned (`programs`): a node
//! whose agent was killed goes on adopting flows, and the next agent takes over without losing a packet.

mod acknowledged;
mod addresses;
mod adoption;
mod agent;
mod clients;
mod closed;
mod drains;
mod endpoint;
mod facts;
mod flow_map;
mod guards;
mod health;
mod insurance;
mod judges;
mod listeners;
mod lists;
mod load;
mod machine;
mod moving;
mod orders;
mod plan;
mod programs;
mod records;
mod released;
mod reports;
mod sender;
mod sessions;
mod signer;
mod sized;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton;
mod stalled;
mod switches;
mod watch;
mod window;

pub use agent::{Options, ROLE, SwitchHere, run, run_beside_switch};
pub use libbpf_rs::MapHandle;
pub use plan::server_ports;
pub use switchback_runtime::Error;
