//! What a running node agent says of itself: the one source of `switchback status` and `top`, and of the metrics. A key
//! that is missing, as in what a process of another version says, has the default of its type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// The node's name in the configuration.
    pub name: String,
    /// Where its programs are attached.
    pub interface: String,
    /// The process.
    pub pid: u32,
    /// Where handoff packets come in.
    pub address: Option<IpAddr>,
    /// Addresses of the services.
    pub vips: Vec<IpAddr>,
    /// Switches that get reports.
    pub switches: Vec<IpAddr>,
    /// Flows that it has, or is adopting.
    pub flows: u64,
    /// Whether it adopts nothing.
    pub draining: bool,
    /// Requests that it has and has not answered whole.
    pub in_flight: u32,
    /// Share of the machine's CPU time in use, 0 to 1.
    pub cpu: f64,
    /// Mean time to first byte of the last period; None if no response began in it.
    pub first_byte_us: Option<u64>,
    /// The servers, for each pool that the node is in.
    pub listeners: Vec<ListenerStatus>,
    /// Those that are asked whether they are well.
    pub health: Vec<HealthStatus>,
    /// What services with TLS have done.
    pub tls: Vec<TlsStatus>,
    /// Lines in its access log, which has the requests of these.
    pub log_lines: u64,
    /// Lines that were left out because there were too many.
    pub log_lost: u64,
    /// What the programs have counted: [`NodeCounter`](switchback_wire::NodeCounter) by name.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
}

/// A server at a VIP, for one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerStatus {
    /// Name of the pool.
    pub pool: String,
    /// The VIP.
    pub address: Option<SocketAddr>,
    /// What the switches are told.
    pub state: Cow<'static, str>,
    /// Length of its accept queue, if somebody listens.
    pub queue_len: Option<u32>,
    /// How long that can be.
    pub queue_limit: Option<u32>,
}

impl ListenerStatus {
    /// Whether the pool may have requests here.
    pub fn is_ready(&self) -> bool {
        self.state == READY
    }
}

/// A service with TLS, since the agent began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsStatus {
    /// Its name.
    pub service: String,
    /// Connections that there are.
    pub connections: u64,
    /// Handshakes that needed a certificate.
    pub handshakes: u64,
    /// Handshakes that went on with an earlier session.
    pub resumed: u64,
    /// Handshakes that failed, or were not done in time.
    pub failed: u64,
    /// Requests.
    pub requests: u64,
    /// Responses of the server.
    pub responses: u64,
    /// Requests that were answered by the agent, with an error.
    pub refused: u64,
    /// Connections that were closed at once, because there were too many.
    pub connections_refused: u64,
    /// Connections that were closed at once, because there were too many handshakes.
    pub handshakes_refused: u64,
    /// Streams of HTTP/2 that were refused, because there were too many.
    pub streams_refused: u64,
    /// Connections that were given to other nodes, in the middle.
    pub given: u64,
    /// Connections that other nodes have given.
    pub taken: u64,
    /// Requests that were forwarded to other nodes.
    pub forwarded: u64,
    /// Requests given to another node, which makes and encrypts the response.
    pub requests_given: u64,
    /// Requests of other nodes' clients that were given to this one.
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
    /// The server.
    pub address: Option<SocketAddr>,
    /// What is asked.
    pub check: String,
    /// What is known of the server.
    pub state: String,
    /// For how long that has been so.
    pub since_s: u64,
    /// Why the last check that failed did so.
    pub last_error: Option<String>,
}

/// The state of a listener that may have requests.
pub(crate) const READY: &str = "ready";
