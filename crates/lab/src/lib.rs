//! Clusters in network namespaces: clients, switches and nodes on one machine, made in a second and removed without a
//! trace, for tests and for interactive use.
//!
//! A host of a lab is a network namespace with an interface `eth0`, whose cable ends at a bridge in a
//! namespace of its own; nothing appears in the machine's own network. Hosts share the machine's files and
//! mounts, so BPF maps pinned by one process are visible to the next. Everything needs root.
//!
//! ```no_run
//! use switchback_lab::{Lab, ServerOptions};
//!
//! # fn main() -> switchback_lab::Result<()> {
//! let lab = Lab::builder().nodes(3).up()?;
//! lab.node(0).nginx(&ServerOptions::default())?;
//! let url = format!("http://{}/node", lab.node(0).ipv4());
//! assert_eq!(lab.client(0).run(["curl", "-s", &url])?.success()?, "node0");
//! # Ok(())
//! # }
//! ```

mod bird;
mod cgroup;
mod cluster;
mod command;
mod document;
mod error;
mod guest;
mod host;
mod impair;
mod lab;
mod link;
mod napi;
mod netns;
mod netstat;
mod page_server;
mod process;
mod server;
mod session_server;
mod setup;
mod slow_server;
mod state;
mod teardown;
mod topology;
mod xdp;

pub use cluster::{Cluster, Pool, Route};
pub use command::{UpOptions, down, exec, up};
pub use document::{ONE_MIB, ONE_MIB_SHA256, SMALL, pseudo_random};
pub use error::{Doing, Error, Result};
pub use guest::{Guest, GuestNetwork};
pub use host::{Host, Output};
pub use impair::{Impaired, ImpairedTraffic, Impairment};
pub use lab::Lab;
pub use link::{DirectionCounters, InterfaceCounters, Traffic, TrafficCounter};
pub use napi::NapiThread;
pub use page_server::PageServerOptions;
pub use process::{Process, Signal, within};
pub use server::{Server, ServerKind, ServerOptions};
pub use session_server::{SessionServerKind, SessionServerOptions};
pub use slow_server::{ServiceTime, SlowServerOptions};
pub use state::{HostInfo, LabInfo, list};
pub use teardown::sweep;
pub use topology::{Builder, Role, Routing, Topology};
pub use xdp::instruction;
