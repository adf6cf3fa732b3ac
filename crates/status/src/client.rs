//! The status of a client shim.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The status of a client shim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStatus {
    /// Interface with its programs.
    pub interface: String,
    /// Process id.
    pub pid: u32,
    /// The VIPs of the configuration.
    pub services: Vec<SocketAddr>,
    /// Flows whose packets go to their node directly.
    pub flows: u64,
    /// Nodes that have introduced themselves.
    pub nodes: Vec<DirectNode>,
    /// Counters of the programs: [`ClientCounter`](switchback_wire::ClientCounter) by name.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
}

/// A node that flows go to directly.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectNode {
    /// Destination of packets to it.
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
