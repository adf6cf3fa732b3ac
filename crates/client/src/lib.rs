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

pub use agent::{Options, ROLE, run};
pub use switchback_runtime::Error;
