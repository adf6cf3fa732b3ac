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
    /// VIPs in the configuration.
    pub services: Vec<SocketAddr>,
    /// Number of flows whose packets go to a node directly.
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
    /// Number of introductions.
    pub introductions: u64,
    /// Packets sent to the node directly.
    pub packets: u64,
    /// Number of times that flows fell back to the switch because the node did not answer.
    pub fallbacks: u64,
    /// Whether nothing is sent to the node at present.
    pub avoided: bool,
}
