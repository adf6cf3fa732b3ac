//! The Gateway API of Kubernetes: `switchback gateway`, and the source of daemons that get their configuration from it.
//!
//! A controller watches the resources, [translates](translate) them into `cluster.toml`, and writes that into a Secret, with the
//! certificates and the cluster's key (`published`). Daemons follow the Secret ([`Followed`]). No daemon needs the controller: while
//! it is away, nothing changes.

mod client;
mod controller;
mod error;
mod objects;
mod published;
mod source;
mod translation;

pub use controller::{Options, run};
pub use error::Error;
pub use ipnet::IpNet;
pub use objects::{Objects, Place};
pub use source::{Address, Followed};
pub use translation::{Assigned, KEY_FILE, Settings, Translation, machine_name, translate};
