//! The status of a node agent: the source of `switchback status` and of the metrics.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use switchback_runtime::events::Event;

use crate::CopyStatus;

/// The status of a node agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Name in the configuration, of one of its nodes if there are several.
    pub name: String,
    /// Version of its program.
    pub version: String,
    /// The first eight digits of its configuration's SHA-256.
    pub config: String,
    /// Version of its configuration, if the source counts them.
    pub config_version: Option<u64>,
    /// Interface with its programs.
    pub interface: String,
    /// Process id.
    pub pid: u32,
    /// Address at which handoff packets arrive.
    pub address: Option<IpAddr>,
    /// VIP addresses.
    pub vips: Vec<IpAddr>,
    /// Switches that get reports.
    pub switches: Vec<IpAddr>,
    /// Newest version of handoff packets that each of them knows.
    pub switch_versions: Vec<u32>,
    /// Flows that its nodes have, or are adopting.
    pub flows: u64,
    /// Whether all of its nodes drain.
    pub draining: bool,
    /// The nodes of its machine.
    pub nodes: Vec<MemberStatus>,
    /// Whether handshakes may be replayed for listeners to which the kernel gives no connections.
    pub replays: bool,
    /// Requests whose responses are not complete.
    pub in_flight: u32,
    /// Share of the machine's CPU time in use, 0 to 1.
    pub cpu: f64,
    /// Mean time to first byte in the last period, in microseconds; None if no response began in it.
    pub first_byte_us: Option<u64>,
    /// The servers, one for each pool at each VIP.
    pub listeners: Vec<ListenerStatus>,
    /// Health checks of the servers.
    pub health: Vec<HealthStatus>,
    /// Services with TLS.
    pub tls: Vec<TlsStatus>,
    /// Certificates that their clients get.
    pub certificates: Vec<CertificateStatus>,
    /// Certificates that it orders at the CA.
    pub orders: Vec<OrderStatus>,
    /// Responses that other nodes could go on with, and those of other nodes; None if no pool has that.
    pub resume: Option<ResumeStatus>,
    /// Lines in its access log, which has the requests of the services with TLS.
    pub log_lines: u64,
    /// Lines left out of the access log because there were too many.
    pub log_lost: u64,
    /// Copies of requests for pools that mirror them.
    pub copies: CopyStatus,
    /// Counters of the programs: [`NodeCounter`](switchback_wire::NodeCounter) by name.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
    /// The last events of its process, the oldest first.
    pub events: Vec<Event>,
}

/// A node among those of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberStatus {
    /// Name in the configuration.
    pub name: String,
    /// Whether it drains.
    pub draining: bool,
    /// Flows that it has.
    pub flows: u32,
    /// Requests whose responses are not complete.
    pub in_flight: u32,
    /// Mean time to first byte in the last period, in microseconds; None if no response began in it.
    pub first_byte_us: Option<u64>,
}

/// A listener at a VIP, for one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerStatus {
    /// Name of the node.
    pub node: String,
    /// Name of the pool.
    pub pool: String,
    /// The VIP.
    pub address: Option<SocketAddr>,
    /// [`READY`], or why the pool gets no requests here.
    pub state: Cow<'static, str>,
    /// Length of the accept queue; None without a listener.
    pub queue_len: Option<u32>,
    /// Capacity of the accept queue.
    pub queue_limit: Option<u32>,
    /// How it gets connections, and why not as usual; empty without a listener.
    pub adoption: Cow<'static, str>,
}

impl ListenerStatus {
    /// Whether the pool may get requests here.
    pub fn is_ready(&self) -> bool {
        self.state == READY
    }
}

/// Counters of a service with TLS since the agent began, and its connections.
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
    /// Responses of which the kernel has moved data.
    pub spliced: u64,
}

/// A certificate that clients of a service with TLS get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// Name of the service.
    pub service: String,
    /// The first name in the certificate.
    pub name: String,
    /// When it begins, in seconds since 1970.
    pub not_before: u64,
    /// When it ends, in seconds since 1970.
    pub not_after: u64,
}

/// How the orders of a certificate at the CA stand. Counts are since the agent began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderStatus {
    /// The first of the certificate's domains.
    pub certificate: String,
    /// Certificates that the CA has issued.
    pub issued: u64,
    /// Orders that have failed.
    pub failed: u64,
    /// Why the last order has failed; None if it has not.
    pub error: Option<String>,
    /// When it is ordered the next time, in seconds since 1970.
    pub next: Option<u64>,
}

/// Resumed responses of pools with `resume`. Counts are since the agent began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResumeStatus {
    /// Long responses of this node of which other nodes were told.
    pub insured: u64,
    /// Those of them that are under way.
    pub under_way: u64,
    /// Long responses with which no other node could go on, by reason.
    pub uninsured: BTreeMap<Cow<'static, str>, u64>,
    /// Responses of other nodes with which this one could go on.
    pub kept: u64,
    /// Memory of these, in bytes.
    pub kept_bytes: u64,
    /// Responses of other nodes that gave way to later ones.
    pub evicted: u64,
    /// Responses of dead nodes that went on here, to their end.
    pub resumed: u64,
    /// Responses of dead nodes that did not go on here, by reason: their connections were reset.
    pub failed: BTreeMap<Cow<'static, str>, u64>,
}

/// A health check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthStatus {
    /// Name of the node.
    pub node: String,
    /// Name of the pool.
    pub pool: String,
    /// Address of the server.
    pub address: Option<SocketAddr>,
    /// Kind of the check, and what it asks for.
    pub check: String,
    /// Its state, in a word.
    pub state: String,
    /// Time in this state, in seconds.
    pub since_s: u64,
    /// Error of the last check that failed.
    pub last_error: Option<String>,
}

/// The state of a listener that may get requests.
pub const READY: &str = "ready";
/// The state of a listener whose server is an outlier of the pool.
pub const FAILING: &str = "fails requests";
