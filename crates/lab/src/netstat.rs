//! Counters of a host's TCP, as `nstat` shows them.

use std::fs;

use crate::error::{Doing, Error, Result};
use crate::host::Host;

const FILES: [&str; 2] = ["/proc/thread-self/net/netstat", "/proc/thread-self/net/snmp"];

impl Host {
    /// A counter of the kernel's TCP since the host's creation, by its name in `/proc/net/netstat` or `/proc/net/snmp`:
    /// `ListenOverflows` for example counts connections that met a full accept queue.
    pub fn tcp_counter(&self, name: &str) -> Result<u64> {
        for path in FILES {
            let text = self.enter(|| fs::read_to_string(path))?.doing(|| format!("read {path}"))?;
            if let Some(value) = find(&text, name) {
                return Ok(value);
            }
        }
        Err(Error::NotFound(format!("the kernel has no TCP counter {name}")))
    }
}

/// Finds a counter. Lines come in pairs, `TcpExt: Name Name` and `TcpExt: 1 2`.
fn find(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Tcp")).collect();
    lines.chunks_exact(2).find_map(|pair| {
        let at = pair[0].split(' ').position(|title| title == name)?;
        pair[1].split(' ').nth(at)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_title() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 4 17 19\n\
            IpExt: ListenDrops\nIpExt: 3\n";
        assert_eq!(find(text, "ListenOverflows"), Some(17));
        assert_eq!(find(text, "ListenDrops"), Some(19));
        assert_eq!(find(text, "TcpExt"), None);
        assert_eq!(find(text, "Other"), None);
    }
}
