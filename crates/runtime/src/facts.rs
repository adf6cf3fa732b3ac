//! Facts about a machine, gathered at once for the checks. The checks themselves ([`crate::checks`]) do no
//! I/O, so that a test can describe any machine.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

use libbpf_rs::btf::{Btf, types::Func};

use switchback_wire::SB_GENEVE_PORT;

use crate::control;
use crate::error::Result;
use crate::interface;
use crate::listeners;
use crate::netlink::Socket;
use crate::pins;

/// Facts about a machine, seen from one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The interface in question; empty if none is known.
    pub interface: String,
    /// Names of all interfaces.
    pub interfaces: Vec<String>,
    /// Facts about the interface, if it exists.
    pub link: Option<LinkFacts>,
    /// Whether the kernel describes its types (`/sys/kernel/btf/vmlinux`).
    pub btf: bool,
    /// Whether the kernel has `bpf_sk_assign_tcp_reqsk`.
    pub adopts: bool,
    /// Whether programs can change the protocol of new sockets (`update_socket_protocol`).
    pub changes_protocols: bool,
    /// The effective capabilities of this process, a bit for each.
    pub capabilities: u64,
    /// Whether the BPF file system is mounted at [`BPFFS`](crate::pins::BPFFS).
    pub bpffs: bool,
    /// `net.ipv4.tcp_syncookies`; None where it cannot be read.
    pub tcp_syncookies: Option<u32>,
    /// `net.ipv4.tcp_rfc1337`.
    pub tcp_rfc1337: Option<u32>,
    /// `net.ipv4.ip_unprivileged_port_start`: below it, listening needs a capability.
    pub unprivileged_port_start: Option<u32>,
    /// The larger of `net.ipv4.conf.all.rp_filter` and the interface's own, which is what the kernel uses.
    pub rp_filter: Option<u32>,
    /// Ports of listeners that speak MPTCP, or why they cannot be listed.
    pub mptcp_ports: std::result::Result<Vec<u16>, String>,
    /// Whether another program has the UDP port of handoff packets.
    pub port_is_taken: bool,
}

/// Facts about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// MTU, in bytes.
    pub mtu: u32,
    /// Driver, as `ethtool -i` names it; None for an interface without, such as `lo`.
    pub driver: Option<String>,
    /// Whether the interface sends what XDP redirects to it; None if unknown.
    pub sends_redirected: Option<bool>,
    /// Whether packets are merged before a generic XDP program sees them (GRO); None if unknown.
    pub gro: Option<bool>,
    /// The interface below that merges them, if it is not this one.
    pub below: Option<String>,
}

impl Facts {
    /// Gathers the facts of the calling thread's network namespace. Unknown ones are None, and findings of
    /// the checks.
    pub fn gather(name: &str) -> Facts {
        let btf = Btf::from_vmlinux().ok();
        let has = |function| btf.as_ref().is_some_and(|btf| btf.type_by_name::<Func<'_>>(function).is_some());
        Facts {
            interface: name.to_owned(),
            interfaces: interface::names().unwrap_or_default(),
            link: link(name).ok(),
            adopts: has("bpf_sk_assign_tcp_reqsk"),
            changes_protocols: has("update_socket_protocol"),
            btf: btf.is_some(),
            capabilities: capabilities().unwrap_or_default(),
            bpffs: pins::is_bpffs(Path::new(pins::BPFFS)),
            tcp_syncookies: sysctl("net/ipv4/tcp_syncookies"),
            tcp_rfc1337: sysctl("net/ipv4/tcp_rfc1337"),
            unprivileged_port_start: sysctl("net/ipv4/ip_unprivileged_port_start"),
            rp_filter: sysctl("net/ipv4/conf/all/rp_filter")
                .max(sysctl(&format!("net/ipv4/conf/{name}/rp_filter"))),
            mptcp_ports: mptcp_ports().map_err(|error| error.to_string()),
            port_is_taken: port_is_taken(),
        }
    }

    /// Why this kernel adopts no connections (`bpf_sk_assign_tcp_reqsk()`); None if it does.
    pub fn adopts_not(&self) -> Option<&'static str> {
        match self.tcp_syncookies {
            _ if !self.adopts => Some("no bpf_sk_assign_tcp_reqsk, Linux 6.9 or later has it"),
            None | Some(0) => Some("net.ipv4.tcp_syncookies is 0"),
            Some(_) => None,
        }
    }
}

fn link(name: &str) -> Result<LinkFacts> {
    let index = interface::index(name)?;
    Ok(LinkFacts {
        mtu: interface::mtu(name)?,
        driver: interface::driver(name).ok(),
        sends_redirected: interface::xdp(index).ok().map(|xdp| xdp.sends_redirected),
        gro: interface::gro(name).ok(),
        below: interface::merging(name).ok().filter(|below| below != name),
    })
}

/// A number under `/proc/sys`, of the calling thread's network namespace.
fn sysctl(path: &str) -> Option<u32> {
    fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?.trim().parse().ok()
}

/// Whether another program than a daemon of Switchback has the port.
fn port_is_taken() -> bool {
    let taken = |any: IpAddr| {
        let bound = UdpSocket::bind((any, SB_GENEVE_PORT as u16));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    let is_ours = || control::find_sockets().is_ok_and(|daemons| !daemons.is_empty());
    (taken(Ipv4Addr::UNSPECIFIED.into()) || taken(Ipv6Addr::UNSPECIFIED.into())) && !is_ours()
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
