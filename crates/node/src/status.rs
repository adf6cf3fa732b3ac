//! Status of a running node agent, from which `switchback status`, `top` and the metrics are made. A missing key, as
//! from a process of another version, has the default of its type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Status of the node agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Node name in the configuration.
    pub name: String,
    /// Interface of the programs.
    pub interface: String,
    /// Process id.
    pub pid: u32,
    /// Address for handoff packets.
    pub address: Option<IpAddr>,
    /// VIP addresses.
    pub vips: Vec<IpAddr>,
    /// Switches that get reports.
    pub switches: Vec<IpAddr>,
    /// Number of flows, including those being adopted.
    pub flows: u64,
    /// Whether the node drains.
    pub draining: bool,
    /// Requests without a whole response.
    pub in_flight: u32,
    /// Share of the machine's CPU time in use, 0 to 1.
    pub cpu: f64,
    /// Mean time to first byte in the last period, in microseconds; None if no response began in it.
    pub first_byte_us: Option<u64>,
    /// Listeners, for each pool of the node.
    pub listeners: Vec<ListenerStatus>,
    /// Health checks.
    pub health: Vec<HealthStatus>,
    /// TLS services.
    pub tls: Vec<TlsStatus>,
    /// Lines written to the access log, which has the requests of TLS services.
    pub log_lines: u64,
    /// Lines dropped because there were too many.
    pub log_lost: u64,
    /// [`NodeCounter`](switchback_wire::NodeCounter) values by name.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
}

/// A listener at a VIP, for one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerStatus {
    /// Name of the pool.
    pub pool: String,
    /// The VIP.
    pub address: Option<SocketAddr>,
    /// State as reported to the switches.
    pub state: Cow<'static, str>,
    /// Length of the accept queue; None without a listener.
    pub queue_len: Option<u32>,
    /// Limit of the accept queue.
    pub queue_limit: Option<u32>,
}

impl ListenerStatus {
    /// Whether the pool may get requests here.
    pub fn is_ready(&self) -> bool {
        self.state == READY
    }
}

/// Counters of a TLS service since the start of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsStatus {
    /// Name of the service.
    pub service: String,
    /// Open connections.
    pub connections: u64,
    /// Full handshakes.
    pub handshakes: u64,
    /// Handshakes that resumed a session.
    pub resumed: u64,
    /// Handshakes that failed or timed out.
    pub failed: u64,
    /// Requests received.
    pub requests: u64,
    /// Responses of the server.
    pub responses: u64,
    /// Requests that the agent answered with an error.
    pub refused: u64,
    /// Connections closed at once because there were too many.
    pub connections_refused: u64,
    /// Connections closed at once because there were too many handshakes.
    pub handshakes_refused: u64,
    /// HTTP/2 streams refused because there were too many.
    pub streams_refused: u64,
    /// Connections moved to other nodes.
    pub given: u64,
    /// Connections moved here from other nodes.
    pub taken: u64,
    /// Requests forwarded to other nodes.
    pub forwarded: u64,
    /// Requests given to another node, which makes and encrypts the response.
    pub requests_given: u64,
    /// Requests of other nodes' clients that were given to this node.
    pub requests_taken: u64,
    /// Connections whose records the kernel has begun to encrypt.
    pub kernel: u64,
}

/// A health check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthStatus {
    /// Name of the pool.
    pub pool: String,
    /// Address of the server.
    pub address: Option<SocketAddr>,
    /// Kind of the check.
    pub check: String,
    /// Health of the server.
    pub state: String,
    /// Time since `state` last changed, in seconds.
    pub since_s: u64,
    /// Error of the last failed check.
    pub last_error: Option<String>,
}

/// State of a listener that may get requests.
pub(crate) const READY: &str = "ready";
