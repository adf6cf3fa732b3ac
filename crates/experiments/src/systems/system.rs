//! The systems, with their hosts and ports.

use std::fmt;
use std::time::Duration;

use switchback_lab::{Host, Lab};

/// A path that all systems redirect to `/small` without a node.
pub(in super::super) const MOVED: &str = "/moved";

/// Timeout for a system to be ready.
pub(super) const READY: Duration = Duration::from_secs(30);

/// A path from the client to a server. The order is that of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Directly to one node.
    Direct,
    /// Through HAProxy as an HTTP proxy.
    Haproxy,
    /// Through HAProxy of another release than the installed one.
    OtherHaproxy(Release),
    /// Through nginx as an HTTP proxy.
    Nginx,
    /// Through nginx of another release than the installed one.
    OtherNginx(Release),
    /// Through Envoy as an HTTP proxy.
    Envoy,
    /// Through Switchback: requests by the switch, responses past it.
    Switchback,
    /// Through an XDP program that only sends packets on, responses past it: what the kernel alone takes.
    Forwarder,
}

impl System {
    /// The port of a service with this number of nodes. The proxies share a host, so theirs differ; the others' is the
    /// port of the nodes' servers.
    pub(in super::super) fn port(self, nodes: usize) -> u16 {
        let base = match self {
            System::Direct | System::Switchback | System::Forwarder => 8000,
            System::Haproxy => 8100,
            System::Nginx => 8200,
            System::Envoy => 8300,
            System::OtherHaproxy(_) => 8400,
            System::OtherNginx(_) => 8500,
        };
        base + nodes as u16
    }

    /// The host between client and nodes, if any.
    pub(in super::super) fn host(self, lab: &Lab) -> Option<&Host> {
        match self {
            System::Direct => None,
            System::Switchback => Some(lab.switch(0)),
            System::Forwarder => Some(lab.switch(2)),
            _ => Some(lab.switch(1)),
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Direct => "direct",
            System::Haproxy => "HAProxy",
            System::OtherHaproxy(release) => return f.pad(&format!("HAProxy {release}")),
            System::Nginx => "nginx",
            System::OtherNginx(release) => return f.pad(&format!("nginx {release}")),
            System::Envoy => "Envoy",
            System::Switchback => "Switchback",
            System::Forwarder => "XDP alone",
        })
    }
}

/// The first two numbers of a program's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u16,
    minor: u16,
}

impl Release {
    /// The release of a version such as `3.0.11-1+deb13u4 2026/10/15`; None of other text.
    pub(super) fn of(version: &str) -> Option<Release> {
        let mut numbers = version.split('.');
        let mut next = || numbers.next()?.parse().ok();
        Some(Release { major: next()?, minor: next()? })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_told_by_its_name_and_has_its_port() {
        let release = |version| Release::of(version).expect("a version");
        let haproxy = System::OtherHaproxy(release("3.0.11-1+deb13u4 2026/10/15"));
        let nginx = System::OtherNginx(release("1.26.3"));
        assert_eq!([haproxy, nginx].map(|system| system.to_string()), ["HAProxy 3.0", "nginx 1.26"]);
        assert_eq!(format!("{nginx:<12}|"), "nginx 1.26  |");
        for version in ["", "3", "exec: not found", "three.0"] {
            assert_eq!(Release::of(version), None, "{version}");
        }
        let proxies = [System::Haproxy, haproxy, System::Nginx, nginx, System::Envoy, System::Switchback];
        assert!(proxies.is_sorted(), "the order of the tables");
        let mut ports = proxies.map(|system| system.port(40));
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[1] - pair[0] >= 100), "{ports:?}");
    }
}
