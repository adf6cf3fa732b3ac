//! Health checks of a pool's servers, made by the agents of its nodes.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::limits::time;

/// Allowed values of [`Health::interval`].
pub(crate) const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(600);
/// Allowed values of [`Health::timeout`].
pub(crate) const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
/// Allowed values of [`Health::rise`] and [`Health::fall`].
pub(crate) const TIMES: RangeInclusive<u32> = 1..=100;
/// The statuses that [`Check::Http`] can name: those of final responses, RFC 9110 section 15.
pub(crate) const STATUSES: RangeInclusive<u16> = 200..=599;
/// The default statuses of [`Check::Http`].
pub(crate) const DEFAULT_STATUS: RangeInclusive<u16> = 200..=399;

/// `[pool.health]`: the check of each node of the pool, and the number of results that change its state. It
/// asks the server at the VIP, or, of a service with TLS, [`Tls::server`](crate::Tls::server), without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Kind of the check.
    pub check: Check,
    /// Time from the start of one check to the start of the next; 50 ms to 10 minutes.
    pub interval: Duration,
    /// Timeout of an answer; 10 ms to 1 minute, at most [`Health::interval`].
    pub timeout: Duration,
    /// Good checks in a row that make a node healthy; 1 to 100.
    pub rise: u32,
    /// Failed checks in a row that make a node unhealthy; 1 to 100.
    pub fall: u32,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            check: Check::Tcp,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        }
    }
}

/// `GET /healthz, status 200-299 or 304, interval 2s, timeout 1s, rise 2, fall 3`.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Health { check, interval, timeout, rise, fall } = self;
        let (interval, timeout) = (time(*interval), time(*timeout));
        write!(f, "{check}, interval {interval}, timeout {timeout}, rise {rise}, fall {fall}")
    }
}

/// A health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Accept a TCP connection.
    Tcp,
    /// Answer a GET request.
    Http {
        /// Begins with `/` and may have a query; only characters that RFC 3986 allows there, so it can stand
        /// in a request line as it is.
        path: String,
        /// The `Host` of the request, a name or an address in lower case without port; without one, the VIP.
        host: Option<String>,
        /// The statuses of a healthy node, in 200 to 599; at least one range, none empty.
        status: Vec<RangeInclusive<u16>>,
    },
    /// Call a service `SERVING` (grpc.health.v1). The pool has [`ServerProtocol::H2c`](crate::ServerProtocol::H2c).
    Grpc {
        /// Its name, at most 255 visible ASCII characters; empty for the server as a whole.
        service: String,
    },
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, host, status) = match self {
            Check::Tcp => return f.write_str("TCP"),
            Check::Grpc { service } => return write!(f, "gRPC {service:?}"),
            Check::Http { path, host, status } => (path, host, status),
        };
        write!(f, "GET {path}")?;
        if let Some(host) = host {
            write!(f, ", host {host}")?;
        }
        let status: Vec<String> = status.iter().map(shown).collect();
        write!(f, ", status {}", status.join(" or "))
    }
}

/// `statuses` in the form of the file: `200-299`, `304`.
pub(crate) fn shown(statuses: &RangeInclusive<u16>) -> String {
    match (statuses.start(), statuses.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}
