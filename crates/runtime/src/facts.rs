//! What the checks look at, gathered in one go. The checks themselves are in [`crate::checks`] and touch
//! nothing, so that a machine that nobody has at hand can be described in a test.

use std::fs;
use std::path::Path;

use libbpf_rs::btf::{Btf, types::Func};

use crate::interface;
use crate::listeners;
use crate::netlink::Socket;
use crate::pins;

/// A machine as far as Switchback is concerned, seen from one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The interface in question.
    pub interface: String,
    /// All interfaces there are.
    pub interfaces: Vec<String>,
    /// What is known of the interface, if it exists.
    pub link: Option<LinkFacts>,
    /// Whether the kernel describes its types (`/sys/kernel/btf/vmlinux`).
    pub btf: bool,
    /// Whether the kernel has `bpf_sk_assign_tcp_reqsk`.
    pub adopts: bool,
    /// The effective capabilities of this process, a bit for each.
    pub capabilities: u64,
    /// Whether the BPF file system is where it belongs.
    pub bpffs: bool,
    /// `net.ipv4.tcp_syncookies`; None where it cannot be read.
    pub tcp_syncookies: Option<u32>,
    /// `net.ipv4.tcp_rfc1337`.
    pub tcp_rfc1337: Option<u32>,
    /// `net.ipv4.ip_unprivileged_port_start`: below it, listening needs a capability.
    pub unprivileged_port_start: Option<u32>,
    /// The larger of `net.ipv4.conf.all.rp_filter` and the interface's own, as the kernel counts it.
    pub rp_filter: Option<u32>,
    /// Ports of listeners that speak MPTCP, or why they cannot be listed.
    pub mptcp_ports: Result<Vec<u16>, String>,
}

/// What is known of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// In bytes.
    pub mtu: u32,
    /// As `ethtool -i` names it; None for an interface that has none, such as `lo`.
    pub driver: Option<String>,
    /// Whether packets are merged before a generic XDP program sees them; None where that cannot be told.
    pub gro: Option<bool>,
    /// Where they are merged, if that is not the interface itself but the one below.
    pub below: Option<String>,
}

impl Facts {
    /// Gathers the facts of the calling thread's network namespace. What cannot be found out is left open,
    /// and the checks say so.
    pub fn gather(name: &str) -> Facts {
        let btf = Btf::from_vmlinux().ok();
        Facts {
            interface: name.to_owned(),
            interfaces: interface::names().unwrap_or_default(),
            link: interface::index(name).and_then(|_| interface::mtu(name)).ok().map(|mtu| LinkFacts {
                mtu,
                driver: interface::driver(name).ok(),
                gro: interface::gro(name).ok(),
                below: interface::merging(name).ok().filter(|below| below != name),
            }),
            adopts: btf
                .as_ref()
                .is_some_and(|btf| btf.type_by_name::<Func<'_>>("bpf_sk_assign_tcp_reqsk").is_some()),
            btf: btf.is_some(),
            capabilities: capabilities().unwrap_or_default(),
            bpffs: pins::is_bpffs(Path::new(pins::BPFFS)),
            tcp_syncookies: sysctl("net/ipv4/tcp_syncookies"),
            tcp_rfc1337: sysctl("net/ipv4/tcp_rfc1337"),
            unprivileged_port_start: sysctl("net/ipv4/ip_unprivileged_port_start"),
            rp_filter: sysctl("net/ipv4/conf/all/rp_filter")
                .max(sysctl(&format!("net/ipv4/conf/{name}/rp_filter"))),
            mptcp_ports: mptcp_ports().map_err(|error| error.to_string()),
        }
    }
}

/// A number under `/proc/sys`, of the calling thread's network namespace.
fn sysctl(path: &str) -> Option<u32> {
    fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?.trim().parse().ok()
}

fn capabilities() -> Option<u64> {
    Some(rustix::thread::capabilities(None).ok()?.effective.bits())
}

/// The ports of listeners that speak MPTCP. This needs no diagnosis module for MPTCP itself.
fn mptcp_ports() -> std::io::Result<Vec<u16>> {
    let listeners = listeners::list(&mut Socket::sock_diag()?)?;
    let mut ports: Vec<u16> =
        listeners.iter().filter(|listener| listener.mptcp).map(|listener| listener.address.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}
