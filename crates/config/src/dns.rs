//! Names that stand for nodes, and who is asked for their addresses.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::limits::time;

/// Allowed values of [`Dns::hold`].
pub(crate) const HOLD: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// What begins a text for [`NodesFrom`].
pub(crate) const SCHEME: &str = "dns:";

/// `[dns]`, or the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dns {
    /// Name servers; none: those of the machine (`/etc/resolv.conf`).
    pub servers: Vec<SocketAddr>,
    /// How long an address stays a node that answers have no longer; at most an hour.
    pub hold: Duration,
}

impl Dns {
    /// Each key of `[dns]` in words.
    pub(crate) fn in_words(&self) -> [(&'static str, String); 2] {
        let servers: Vec<String> = self.servers.iter().map(SocketAddr::to_string).collect();
        // No address has parentheses.
        let servers = if servers.is_empty() { "(the machine's)".to_owned() } else { servers.join(", ") };
        [("servers", servers), ("hold", time(self.hold))]
    }
}

/// A name whose addresses are nodes of a pool. Displays as in the file: `dns:app.example.com:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodesFrom {
    /// The name, in lower case and absolute, without the dot at its end.
    pub host: String,
    /// Where servers listen at these addresses; None: on the port of the VIP.
    pub port: Option<u16>,
}

impl fmt::Display for NodesFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}
