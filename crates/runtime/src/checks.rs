//! What a machine must have before anything is attached to it, and what it had better have. The daemons
//! refuse to start on the first kind; `switchback doctor` shows all.

use std::fmt;

use switchback_wire::SB_GENEVE_PORT;
use switchback_wire::handoff::{OVERHEAD_V4, OVERHEAD_V6};

use crate::error::{Error, Result};
use crate::facts::{Facts, LinkFacts};
use crate::interface::missing_remedy;
use crate::privileges::CapabilitySet;

/// A finding, or what is as it should be, in words.
pub type Check = std::result::Result<String, Finding>;

/// A defect of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The defect and its effect.
    pub what: String,
    /// The command or change that removes it.
    pub remedy: String,
    /// Whether Switchback cannot work at all.
    pub fatal: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

fn fatal(what: impl Into<String>, remedy: impl Into<String>) -> Check {
    Err(Finding { what: what.into(), remedy: remedy.into(), fatal: true })
}

fn warning(what: impl Into<String>, remedy: impl Into<String>) -> Check {
    Err(Finding { what: what.into(), remedy: remedy.into(), fatal: false })
}

/// The error for the first fatal finding, if there is one.
pub fn refuse_fatal(checks: &[Check]) -> Result<()> {
    match checks.iter().filter_map(|check| check.as_ref().err()).find(|finding| finding.fatal) {
        Some(finding) => Err(Error::new(finding.what.clone()).remedy(finding.remedy.clone())),
        None => Ok(()),
    }
}

/// Checks of a switch.
pub fn check_switch(facts: &Facts) -> Vec<Check> {
    let mut checks = capabilities(facts.capabilities, &CAPABILITIES);
    checks.extend([btf(facts.btf), bpffs(facts.bpffs), port(facts.port_is_taken), interface(facts)]);
    if let Some(link) = &facts.link {
        checks.extend([mtu(&facts.interface, link.mtu), xdp_mode(&facts.interface, link)]);
    }
    checks
}

/// Checks of a node. `ports` are those of the services, `own_ports` those at which the agent listens to end TLS. With
/// `replays` the node can replay handshakes where the kernel does not adopt.
pub fn check_node(facts: &Facts, ports: &[u16], own_ports: &[u16], replays: bool) -> Vec<Check> {
    let mut needed = CAPABILITIES.to_vec();
    let start = facts.unprivileged_port_start.unwrap_or(PROT_SOCK);
    if own_ports.iter().any(|port| u32::from(*port) < start) {
        needed.push((
            "CAP_NET_BIND_SERVICE",
            CapabilitySet::NET_BIND_SERVICE,
            "listen where services with TLS do",
        ));
    }
    let mut checks = capabilities(facts.capabilities, &needed);
    checks.extend([btf(facts.btf), kfunc(facts.adopts, replays), bpffs(facts.bpffs)]);
    checks.extend([port(facts.port_is_taken), interface(facts)]);
    if let Some(link) = &facts.link {
        checks.extend([mtu(&facts.interface, link.mtu), rp_filter(&facts.interface, facts.rp_filter)]);
    }
    checks.extend([
        syncookies(facts.tcp_syncookies, replays),
        rfc1337(facts.tcp_rfc1337),
        mptcp(&facts.mptcp_ports, ports, replays),
    ]);
    checks
}

/// Checks of a client with the shim.
pub fn check_client(facts: &Facts) -> Vec<Check> {
    let mut checks = capabilities(facts.capabilities, &CAPABILITIES[..3]);
    checks.extend([bpffs(facts.bpffs), interface(facts)]);
    checks
}

/// Default of `net.ipv4.ip_unprivileged_port_start` (net/sock.h).
const PROT_SOCK: u32 = 1024;

/// Name, capability, and what needs it. A client sends nothing by itself, so it does without the last one.
const CAPABILITIES: [(&str, CapabilitySet, &str); 4] = [
    ("CAP_BPF", CapabilitySet::BPF, "load BPF programs"),
    ("CAP_PERFMON", CapabilitySet::PERFMON, "load BPF programs that read kernel memory"),
    ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, "attach programs to interfaces"),
    ("CAP_NET_RAW", CapabilitySet::NET_RAW, "send handoff packets"),
];

fn capabilities(effective: u64, needed: &[(&str, CapabilitySet, &str)]) -> Vec<Check> {
    let has = |capability| CapabilitySet::from_bits_retain(effective).contains(capability);
    let names: Vec<&str> = needed.iter().map(|(name, ..)| *name).collect();
    // What CAP_SYS_ADMIN includes (capabilities(7)).
    let included = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let check = |&(name, capability, purpose): &(&str, CapabilitySet, &str)| {
        if has(capability) || included.contains(capability) && has(CapabilitySet::SYS_ADMIN) {
            return Ok(format!("{name} is there"));
        }
        let what = format!("the capability {name} is missing, needed to {purpose}");
        fatal(what, format!("run as root, in a systemd unit with CapabilityBoundingSet={}", names.join(" ")))
    };
    needed.iter().map(check).collect()
}

fn btf(present: bool) -> Check {
    if present {
        return Ok("the kernel describes its types (BTF)".to_owned());
    }
    let what = "the kernel does not describe its types: /sys/kernel/btf/vmlinux is not there";
    fatal(what, "run a kernel that was built with CONFIG_DEBUG_INFO_BTF=y, as those of the distributions are")
}

const REPLAYED: &str = "handshakes are replayed, which costs the node more";

/// What the kernel lacks for adoptions: fatal, unless the node replays handshakes instead.
fn cannot_adopt(what: &str, remedy: &str, replays: bool) -> Check {
    if replays {
        return warning(format!("{what}: {REPLAYED}"), remedy);
    }
    fatal(what, remedy)
}

fn kfunc(present: bool, replays: bool) -> Check {
    if present {
        return Ok("the kernel can adopt connections (bpf_sk_assign_tcp_reqsk)".to_owned());
    }
    let what = "the kernel cannot adopt connections: it has no bpf_sk_assign_tcp_reqsk";
    cannot_adopt(what, "run Linux 6.9 or later, built with CONFIG_SYN_COOKIES=y", replays)
}

fn bpffs(mounted: bool) -> Check {
    if mounted {
        return Ok("the BPF file system is mounted".to_owned());
    }
    let what = "the BPF file system is not mounted at /sys/fs/bpf; switch and node mount it when they start";
    warning(what, "mount -t bpf bpf /sys/fs/bpf")
}

fn port(is_taken: bool) -> Check {
    if !is_taken {
        return Ok(format!("no other program has UDP port {SB_GENEVE_PORT}, that of handoff packets"));
    }
    fatal(
        format!("another program has UDP port {SB_GENEVE_PORT}, which handoff packets use"),
        format!("find it, and end it or move it to another port: ss -lunp sport = :{SB_GENEVE_PORT}"),
    )
}

fn interface(facts: &Facts) -> Check {
    let name = &facts.interface;
    match facts.link {
        Some(_) => Ok(format!("the interface {name} is there")),
        None if name.is_empty() => fatal(
            "no interface has an IPv4 default route, so none is checked",
            missing_remedy(&facts.interfaces),
        ),
        None => fatal(format!("there is no network interface {name}"), missing_remedy(&facts.interfaces)),
    }
}

/// MTU of Ethernet, in bytes.
const USUAL_MTU: u32 = 1500;
/// IP and TCP headers without options, inside a handoff packet.
const INNER_V4: usize = 40;
const INNER_V6: usize = 60;
/// Smallest MSS that the kernel accepts for an adopted IPv4 connection, in bytes.
const SMALLEST_MSS: u32 = 536;

fn mtu(name: &str, mtu: u32) -> Check {
    // Switch and node may speak IPv6 to each other whatever the client speaks.
    let longest = |inner: usize| mtu.saturating_sub((OVERHEAD_V6 + inner) as u32);
    let best = mtu.saturating_sub((OVERHEAD_V4 + INNER_V4) as u32);
    let what = format!("the MTU of {name} is {mtu} bytes");
    let remedy =
        format!("ip link set {name} mtu {USUAL_MTU}, here and on all that is between switch and node");
    if longest(INNER_V4) < SMALLEST_MSS {
        return fatal(format!("{what}: handoff packets of an MSS of {SMALLEST_MSS} do not fit"), remedy);
    }
    if mtu < USUAL_MTU {
        let (v4, v6) = (longest(INNER_V4), longest(INNER_V6));
        let effect =
            format!("clients are offered an MSS of {v4} (IPv6: {v6}) at most, or {best} over IPv4 only");
        return warning(format!("{what}: {effect}"), remedy);
    }
    Ok(what)
}

/// Drivers with native XDP in Linux 6.9 (those that set `ndo_bpf`).
const NATIVE_XDP: [&str; 37] = [
    "aquantia",
    "atlantic",
    "bnxt_en",
    "bonding",
    "dpaa2-eth",
    "ena",
    "fec",
    "fsl_dpaa",
    "fsl_dpaa2_eth",
    "fsl_enetc",
    "fsl_enetc_vf",
    "gve",
    "hv_netvsc",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "lan966x-switch",
    "mana",
    "mlx4_en",
    "mlx5_core",
    "mtk_soc_eth",
    "mvneta",
    "mvpp2",
    "netsec",
    "nfp",
    "qede",
    "sfc",
    "stmmac",
    "tsnep",
    "tun",
    "veth",
    "virtio_net",
    "vmxnet3",
    "xen_netfront",
];

fn xdp_mode(name: &str, link: &LinkFacts) -> Check {
    let driver = link.driver.as_deref().unwrap_or("unknown");
    if driver == "veth" && link.sends_redirected == Some(false) {
        return warning(
            format!(
                "{name} is a veth whose other end takes no packets from XDP: the kernel sends all that goes through \
                 the switch, which is slower"
            ),
            "at its other end: ethtool -K <interface> gro on",
        );
    }
    if NATIVE_XDP.contains(&driver) {
        return Ok(format!("{name} can run XDP in its driver ({driver})"));
    }
    if let Some(Err(merges)) = link.gro.map(|gro| generic_gro(name, link.below.as_deref(), gro)) {
        return Err(merges);
    }
    warning(
        format!("{name} (driver {driver}) has no XDP of its own: it runs in generic mode, which is slower"),
        "use an interface whose driver has XDP where speed matters",
    )
}

/// In generic XDP mode a program sees packets after GRO: merged ones, which cannot be forwarded one by one.
/// `below` is the interface that merges, if it is another one.
fn generic_gro(name: &str, below: Option<&str>, gro: bool) -> Check {
    if !gro {
        return Ok(format!("{name} does not merge packets (GRO is off)"));
    }
    fatal(
        format!("{name} runs XDP in generic mode and merges packets (GRO) before XDP sees them"),
        format!("ethtool -K {} gro off", below.unwrap_or(name)),
    )
}

fn syncookies(value: Option<u32>, replays: bool) -> Check {
    match value {
        Some(0) => {
            let what = "net.ipv4.tcp_syncookies is 0, and the kernel would answer every adoption with RST";
            cannot_adopt(what, "sysctl -w net.ipv4.tcp_syncookies=1", replays)
        }
        Some(value) => Ok(format!("net.ipv4.tcp_syncookies is {value}")),
        None => {
            let what = "net.ipv4.tcp_syncookies is not there, so the kernel cannot adopt connections";
            cannot_adopt(what, "run a kernel that was built with CONFIG_SYN_COOKIES=y", replays)
        }
    }
}

fn rfc1337(value: Option<u32>) -> Check {
    match value {
        None | Some(0) => Ok("net.ipv4.tcp_rfc1337 is 0".to_owned()),
        Some(_) => fatal(
            "net.ipv4.tcp_rfc1337 is on: a client that uses its port again finds the old connection's \
             TIME_WAIT in its way, which cannot be removed",
            "sysctl -w net.ipv4.tcp_rfc1337=0",
        ),
    }
}

fn rp_filter(name: &str, value: Option<u32>) -> Check {
    match value {
        Some(1) => warning(
            format!(
                "rp_filter is strict on {name}: packets of clients that are not routed back through {name} \
                 are dropped"
            ),
            format!("sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{name}.rp_filter=2"),
        ),
        _ => Ok(format!("rp_filter lets packets of all clients in on {name}")),
    }
}

fn mptcp(listeners: &std::result::Result<Vec<u16>, String>, services: &[u16], replays: bool) -> Check {
    let cures = "before the server starts, set plain_tcp = true for the node, or net.mptcp.enabled=0; or start it with \
                 GODEBUG=multipathtcp=0 (Go)";
    match listeners {
        Ok(listeners) => {
            let ports: Vec<String> =
                services.iter().filter(|port| listeners.contains(port)).map(u16::to_string).collect();
            if ports.is_empty() {
                return Ok("no server listens with MPTCP".to_owned());
            }
            let what = format!("the server on port {} listens with MPTCP", ports.join(", "));
            let effect = match replays {
                true => REPLAYED,
                false => "the kernel refuses adoptions",
            };
            warning(format!("{what}: {effect}"), cures)
        }
        Err(error) => warning(format!("cannot tell whether a server listens with MPTCP: {error}"), cures),
    }
}
