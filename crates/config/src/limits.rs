//! Limits of clients: sizes of requests, the time they may take, and the memory they may hold.
//!
//! No number of clients can then take more than the machine has. The defaults suit a machine with two cores.

use std::time::Duration;

use jiff::SignedDuration;

/// Largest sizes in a file, for memory and for a body: larger ones are mistakes.
const MAX_HELD: u64 = 1 << 40;
const MAX_BODY: u64 = 1 << 60;

/// Allowed values of [`Limits::head`], in bytes.
pub(crate) const HEAD: std::ops::RangeInclusive<u64> = 1 << 10..=64 << 10;
/// Allowed values of [`Limits::fields`].
pub(crate) const FIELDS: std::ops::RangeInclusive<usize> = 1..=1000;
/// Allowed values of [`Limits::body`], in bytes.
pub(crate) const BODY: std::ops::RangeInclusive<u64> = 0..=MAX_BODY;
/// Allowed values of [`Limits::head_timeout`].
pub(crate) const HEAD_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(600);
/// Allowed values of [`Limits::wait_timeout`].
pub(crate) const WAIT_TIMEOUT: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
/// Allowed values of [`Limits::waiting`].
pub(crate) const WAITING: std::ops::RangeInclusive<usize> = 0..=1_000_000;
/// Allowed values of [`Limits::flows`] and [`Limits::node_flows`].
pub(crate) const FLOWS: std::ops::RangeInclusive<u32> = 1024..=16 << 20;
/// Allowed values of [`Limits::held_per_flow`], [`Limits::held_per_source`] and [`Limits::held`], in bytes.
pub(crate) const HELD: std::ops::RangeInclusive<u64> = *HEAD.start()..=MAX_HELD;

/// Allowed values of [`Limits::resume_after`], in bytes.
pub(crate) const RESUME_AFTER: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

/// Allowed values of each of [`Caps`].
pub(crate) const CAP: std::ops::RangeInclusive<usize> = 1..=1_000_000;
/// Allowed values of [`TlsLimits::streams_per_connection`].
pub(crate) const STREAMS: std::ops::RangeInclusive<u32> = 1..=10_000;

/// Limits of a resource of a node that clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// For one source, which is an IPv4 address or an IPv6 /64.
    pub source: usize,
    /// For one service.
    pub service: usize,
    /// For the whole node.
    pub all: usize,
}

/// Limits of clients at a node that ends TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsLimits {
    /// Connections; one more is closed.
    pub connections: Caps,
    /// Handshakes under way; one more is closed.
    pub handshakes: Caps,
    /// Streams of HTTP/2 that are being answered; one more is refused (REFUSED_STREAM), so that clients ask
    /// again.
    pub streams: Caps,
    /// Streams that one connection may open (SETTINGS_MAX_CONCURRENT_STREAMS).
    pub streams_per_connection: u32,
}

/// `[limits]`, or the defaults. `head <= held_per_flow <= held_per_source <= held`, because none of
/// them could be used up otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest request head, request line and fields, in bytes; 1 KiB to 64 KiB. A longer one is answered
    /// 431.
    pub head: usize,
    /// The most header fields of a request; 1 to 1000. More are answered 431.
    pub fields: usize,
    /// The longest request body in bytes; without one, any. A longer one is answered 413.
    pub body: Option<u64>,
    /// How long a head may take to arrive; 100 ms to 10 minutes. A slower one is answered 408.
    pub head_timeout: Duration,
    /// How long a request may wait for a node that can take it; at most 10 minutes. One that has waited so
    /// long is answered 503.
    pub wait_timeout: Duration,
    /// The most requests that wait in the switch for a node with room; at most 1,000,000. One more is
    /// answered 503 at once.
    pub waiting: usize,
    /// The most client data that waits in the switch unacknowledged for one connection, in bytes.
    pub held_per_flow: usize,
    /// The most client data held for one source, which is an IPv4 address or an IPv6 /64, in each L7 thread of a switch, in
    /// bytes.
    pub held_per_source: usize,
    /// The most client data held by the whole switch, in bytes.
    pub held: usize,
    /// Connections that a switch knows at a time; 1,024 to 16,777,216.
    pub flows: u32,
    /// Connections that a node knows at a time; 1,024 to 16,777,216.
    pub node_flows: u32,
    /// Bytes of a response behind which another node can go on with it, in pools with `resume`; 64 KiB to 1 GiB.
    pub resume_after: u64,
    /// Limits of clients at a node that ends TLS.
    pub tls: TlsLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head: 16 << 10,
            fields: 100,
            body: None,
            head_timeout: Duration::from_secs(10),
            wait_timeout: Duration::from_secs(3),
            waiting: 1024,
            held_per_flow: 64 << 10,
            held_per_source: 1 << 20,
            held: 64 << 20,
            flows: 1 << 18,
            node_flows: 1 << 16,
            resume_after: 256 << 10,
            tls: TlsLimits {
                connections: Caps { source: 4096, service: 16_384, all: 32_768 },
                handshakes: Caps { source: 512, service: 4096, all: 8192 },
                streams: Caps { source: 1024, service: 8192, all: 12_288 },
                streams_per_connection: 128,
            },
        }
    }
}

impl Limits {
    /// Each key of `[limits]` with its value in the form of the file.
    pub(crate) fn in_words(&self) -> [(&'static str, String); 22] {
        [
            ("head", size(self.head as u64)),
            ("fields", self.fields.to_string()),
            ("body", self.body.map_or("any".to_owned(), size)),
            ("head_timeout", time(self.head_timeout)),
            ("wait_timeout", time(self.wait_timeout)),
            ("waiting", self.waiting.to_string()),
            ("held_per_flow", size(self.held_per_flow as u64)),
            ("held_per_source", size(self.held_per_source as u64)),
            ("held", size(self.held as u64)),
            ("flows", self.flows.to_string()),
            ("node_flows", self.node_flows.to_string()),
            ("resume_after", size(self.resume_after)),
            ("tls_connections_per_source", self.tls.connections.source.to_string()),
            ("tls_connections_per_service", self.tls.connections.service.to_string()),
            ("tls_connections", self.tls.connections.all.to_string()),
            ("tls_handshakes_per_source", self.tls.handshakes.source.to_string()),
            ("tls_handshakes_per_service", self.tls.handshakes.service.to_string()),
            ("tls_handshakes", self.tls.handshakes.all.to_string()),
            ("tls_streams_per_connection", self.tls.streams_per_connection.to_string()),
            ("tls_streams_per_source", self.tls.streams.source.to_string()),
            ("tls_streams_per_service", self.tls.streams.service.to_string()),
            ("tls_streams", self.tls.streams.all.to_string()),
        ]
    }
}

/// `bytes` in the largest unit that divides it: nothing is rounded, so different sizes look different.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let (shift, unit) = units
        .into_iter()
        .find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .unwrap_or((0, "B"));
    format!("{}{unit}", bytes >> shift)
}

/// `duration` as jiff writes it: `100ms`, `10s`, `1m 30s`.
pub(crate) fn time(duration: Duration) -> String {
    let signed = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    format!("{signed:#}")
}
