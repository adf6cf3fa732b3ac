//! What a running shim says of itself. A key that is missing, as in what a process of another version says, has the
//! default of its type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStatus {
    /// Where its programs are attached.
    pub interface: String,
    /// The process.
    pub pid: u32,
    /// The VIPs of the configuration.
    pub services: Vec<SocketAddr>,
    /// Flows whose packets go to their node directly.
    pub flows: u64,
    /// Nodes that have introduced themselves.
    pub nodes: Vec<DirectNode>,
    /// What the programs have counted: [`ClientCounter`](switchback_wire::ClientCounter) by name.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
}

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectNode {
    /// Where packets to it go.
    pub address: Option<IpAddr>,
    /// How often it has introduced itself.
    pub introductions: u64,
    /// Packets sent to it directly.
    pub packets: u64,
    /// How often packets went by the switch again because it did not answer.
    pub fallbacks: u64,
    /// Whether nothing is sent to it for now.
    pub avoided: bool,
}
