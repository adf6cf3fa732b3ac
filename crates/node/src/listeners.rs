//! Finds the machine's listener for a VIP, and the state of its accept queue.

use std::net::{IpAddr, SocketAddr};

use switchback_runtime::listeners::Listener;

/// Accept queue of a VIP and port, summed over listeners that share them (SO_REUSEPORT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Connections not accepted yet.
    pub(crate) len: u32,
    /// Sum of the backlogs; the kernel admits one more per listener.
    pub(crate) limit: u32,
    /// Whether the listeners use MPTCP and therefore cannot adopt a flow.
    pub(crate) mptcp: bool,
}

/// The queue of the listener that the kernel chooses for `vip` (inet_lookup_listener(), inet6_lookup_listener()): one
/// on the address itself, before one on any address of the IP version, before one on any address of both versions.
pub(crate) fn queue_at(listeners: &[Listener], vip: SocketAddr) -> Option<Queue> {
    let best = listeners.iter().filter_map(|listener| rank(listener, vip)).max()?;
    let chosen = listeners.iter().filter(|listener| rank(listener, vip) == Some(best));
    let none = Queue { len: 0, limit: 0, mptcp: false };
    Some(chosen.fold(none, |sum, listener| Queue {
        len: sum.len.saturating_add(listener.len),
        limit: sum.limit.saturating_add(listener.limit),
        mptcp: sum.mptcp || listener.mptcp,
    }))
}

/// How well a listener fits; None if it does not.
fn rank(listener: &Listener, vip: SocketAddr) -> Option<u8> {
    if listener.address.port() != vip.port() {
        return None;
    }
    // An IPv6 socket can be bound to an IPv4 address.
    let ip = listener.address.ip().to_canonical();
    if ip == vip.ip() {
        return Some(2);
    }
    match (ip, vip.ip()) {
        (IpAddr::V4(any), IpAddr::V4(_)) if any.is_unspecified() => Some(1),
        (IpAddr::V6(any), IpAddr::V6(_)) if any.is_unspecified() => Some(1),
        (IpAddr::V6(any), IpAddr::V4(_)) if any.is_unspecified() && !listener.only_v6 => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(address: &str, len: u32) -> Listener {
        let address = address.parse().unwrap();
        Listener { address, only_v6: false, len, limit: 10, mptcp: false }
    }

    #[test]
    fn the_listener_is_the_one_that_the_kernel_chooses() {
        let only_v6 = Listener { only_v6: true, ..listener("[::]:84", 9) };
        let listeners = [
            listener("[::]:80", 1),
            listener("0.0.0.0:80", 2),
            listener("192.0.2.100:80", 3),
            listener("[2001:db8::100]:80", 4),
            listener("[::]:81", 5),
            listener("[::ffff:192.0.2.100]:82", 6),
            listener("[::]:82", 7),
            listener("0.0.0.0:83", 8),
            only_v6,
        ];
        let rows = [
            ("192.0.2.100:80", Some(3)),
            ("192.0.2.101:80", Some(2)),
            ("[2001:db8::100]:80", Some(4)),
            ("[2001:db8::101]:80", Some(1)),
            ("192.0.2.100:81", Some(5)),
            ("192.0.2.100:82", Some(6)),
            ("192.0.2.101:82", Some(7)),
            ("[2001:db8::100]:83", None),
            ("192.0.2.100:84", None),
            ("[2001:db8::100]:84", Some(9)),
            ("192.0.2.100:85", None),
        ];
        for (vip, len) in rows {
            let found = queue_at(&listeners, vip.parse().unwrap());
            assert_eq!(found, len.map(|len| Queue { len, limit: 10, mptcp: false }), "{vip}");
        }
    }

    #[test]
    fn listeners_on_the_same_port_count_together() {
        let mut listeners =
            vec![listener("0.0.0.0:80", 1), listener("0.0.0.0:80", 2), listener("[::]:80", 4)];
        let vip = "192.0.2.100:80".parse().unwrap();
        assert_eq!(queue_at(&listeners, vip), Some(Queue { len: 3, limit: 20, mptcp: false }));
        listeners[1].mptcp = true;
        assert!(queue_at(&listeners, vip).is_some_and(|queue| queue.mptcp));
    }
}
