//! The systems, with their hosts and ports.

use std::fmt;
use std::time::Duration;

use switchback_lab::{Host, Lab};

/// A path that all systems redirect to `/small` without a node.
pub(in super::super) const MOVED: &str = "/moved";

/// Timeout for a system to be ready.
pub(super) const READY: Duration = Duration::from_secs(30);

/// A path from the client to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Directly to one node.
    Direct,
    /// Through HAProxy as an HTTP proxy.
    Haproxy,
    /// Through nginx as an HTTP proxy.
    Nginx,
    /// Through Envoy as an HTTP proxy.
    Envoy,
    /// Through Switchback: requests by the switch, responses past it.
    Switchback,
}

impl System {
    /// All systems, in the order of the tables.
    pub const ALL: [System; 5] =
        [System::Direct, System::Haproxy, System::Nginx, System::Envoy, System::Switchback];

    /// The port of a service with this number of nodes. The proxies share a host, so theirs differ; the others' is the
    /// port of the nodes' servers.
    pub(in super::super) fn port(self, nodes: usize) -> u16 {
        let base = match self {
            System::Direct | System::Switchback => 8000,
            System::Haproxy => 8100,
            System::Nginx => 8200,
            System::Envoy => 8300,
        };
        base + nodes as u16
    }

    /// The host between client and nodes, if any.
    pub(in super::super) fn host(self, lab: &Lab) -> Option<&Host> {
        match self {
            System::Direct => None,
            System::Haproxy | System::Nginx | System::Envoy => Some(lab.switch(1)),
            System::Switchback => Some(lab.switch(0)),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Direct => "direct",
            System::Haproxy => "HAProxy",
            System::Nginx => "nginx",
            System::Envoy => "Envoy",
            System::Switchback => "Switchback",
        })
    }
}
