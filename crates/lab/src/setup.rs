//! From a plan to namespaces, cables and addresses.
//!
//! Offloads decide what programs in the lab see. A sender on a veth leaves checksums to hardware that does not exist,
//! and sends packets of up to 64 KiB. So clients send whole, checksummed packets of at most the MTU; so do the bridge's
//! ports towards switches and nodes, because they merge received packets (GRO) and must split them again. Towards
//! clients, which run no program, merged packets are passed on unchanged.
//!
//! With GRO on, every end of every cable has a NAPI instance; with `threaded`, that is a kernel thread whose CPU time
//! is the receive work of this host alone.
//!
//! Packets that a switch's program returns with `XDP_TX` are delivered at once only if the port has a program too
//! (`veth_xdp_flush()` in the kernel's drivers/net/veth.c looks for one before it wakes the receiver). So the ports of
//! switches have one that passes everything.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::error::{Doing, Result};
use crate::netns::{NetNs, run_tool};
use crate::topology::{Builder, HostPlan, Link, Plan, Role, Routing};

/// Settings of all namespaces, made before their first interface, which copies them from `default`.
pub(crate) const SYSCTLS: &[(&str, &str)] = &[
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/dad_transmits", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// A route with several next hops chooses one by addresses and ports.
const ROUTER_SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv4/fib_multipath_hash_policy", "1"),
    ("ipv6/fib_multipath_hash_policy", "1"),
];

/// The bridges have no addresses.
const BRIDGE_SYSCTLS: &[(&str, &str)] = &[("ipv6/conf/default/disable_ipv6", "1")];

/// If br_netfilter is loaded, other layers' packet filters are kept from bridged packets.
const BRIDGE_FILTER: &str = "/proc/sys/net/bridge";
const BRIDGE_FILTER_SYSCTLS: &[(&str, &str)] = &[
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
    ("bridge/bridge-nf-call-arptables", "0"),
];

/// Queue length of a cable's end, the default of most interfaces.
const QUEUE_PACKETS: u32 = 1000;

/// Creates the namespaces; the first is that of the bridges.
pub(crate) fn namespaces(names: &[String]) -> Result<Vec<NetNs>> {
    let script = names.iter().fold(String::new(), |script, name| script + &format!("netns add {name}\n"));
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]);
    run_tool(command, &script)?;
    names.iter().map(|name| NetNs::open(name)).collect()
}

/// Connects the hosts of the plan: `hosts` are their namespaces, in the plan's order.
pub(crate) fn connect(options: &Builder, plan: &Plan, net: &NetNs, hosts: &[NetNs]) -> Result<()> {
    let pairs = || plan.hosts.iter().zip(hosts);
    net.sysctl(SYSCTLS)?;
    net.sysctl(BRIDGE_SYSCTLS)?;
    if net.enter(|| Path::new(BRIDGE_FILTER).exists())? {
        net.sysctl(BRIDGE_FILTER_SYSCTLS)?;
    }
    for (host, namespace) in pairs() {
        namespace.sysctl(SYSCTLS)?;
        if host.role == Role::Router {
            namespace.sysctl(ROUTER_SYSCTLS)?;
        }
    }
    bridges_and_cables(options, plan, net, hosts)?;
    thread::scope(|scope| {
        let mut threads = vec![scope.spawn(|| ports(plan, net))];
        threads.extend(
            pairs().map(|(host, namespace)| scope.spawn(move || host_side(options, plan, host, namespace))),
        );
        // All threads are joined before the first error is returned.
        let results: Vec<Result<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        results.into_iter().collect()
    })
}

fn bridges_and_cables(options: &Builder, plan: &Plan, net: &NetNs, hosts: &[NetNs]) -> Result<()> {
    let mtu = options.mtu;
    let mut script = String::new();
    for bridge in &plan.bridges {
        line(
            &mut script,
            format!("link add {bridge} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"),
        );
        line(&mut script, format!("link set dev {bridge} up"));
    }
    for (host, namespace) in plan.hosts.iter().zip(hosts) {
        for Link { device, port, bridge, .. } in &host.links {
            let peer = format!("peer name {device} mtu {mtu} netns {}", namespace.name());
            line(&mut script, format!("link add {port} mtu {mtu} type veth {peer}"));
            line(&mut script, format!("link set dev {port} master {bridge} up"));
        }
    }
    net.ip(&script)
}

/// The bridges' side of all cables.
fn ports(plan: &Plan, net: &NetNs) -> Result<()> {
    for host in &plan.hosts {
        let checksums = matches!(host.role, Role::Switch | Role::Node);
        for link in &host.links {
            let features: &[&str] = if checksums { &["gro", "on", "tx", "off"] } else { &["gro", "on"] };
            ethtool(net, &link.port, features)?;
            if host.role == Role::Switch {
                crate::xdp::set(net, &link.port, Some(&crate::xdp::pass()))?;
            }
        }
    }
    let links: Vec<&Link> = plan.hosts.iter().flat_map(|host| &host.links).collect();
    queues(net, links.iter().map(|link| link.port.as_str()))?;
    threaded(net, links.iter().map(|link| link.port.as_str()))
}

/// The hosts' side of its cables.
fn host_side(options: &Builder, plan: &Plan, host: &HostPlan, namespace: &NetNs) -> Result<()> {
    let mut script = "link set dev lo up\n".to_owned();
    for link in &host.links {
        let Link { interface, device, ipv4, ipv6, .. } = link;
        if link.is_generic() {
            // Without ARP, since it would answer for the addresses of the macvlan and attract their packets.
            line(&mut script, format!("link set dev {device} arp off addrgenmode none up"));
            line(&mut script, format!("link add {interface} link {device} type macvlan mode private"));
        }
        line(&mut script, format!("link set dev {interface} up"));
        line(&mut script, format!("addr add {ipv4}/24 dev {interface}"));
        line(&mut script, format!("addr add {ipv6}/64 dev {interface} nodad"));
        if let Some((gateway4, gateway6)) = link.gateway {
            line(&mut script, format!("route add default via {gateway4}"));
            line(&mut script, format!("route add default via {gateway6}"));
        }
    }
    namespace.ip(&script)?;
    queues(namespace, host.links.iter().map(|link| link.device.as_str()))?;
    for link in &host.links {
        let features: &[&str] = match host.role {
            Role::Client => &["tx", "off", "tso", "off", "gso", "off"],
            Role::Switch | Role::Node => &["tx", "off"],
            Role::Router => &[],
        };
        let gro = if link.is_generic() { "off" } else { "on" };
        ethtool(namespace, &link.device, &[features, &["gro", gro]].concat())?;
        if link.is_generic() {
            ethtool(namespace, &link.interface, features)?;
        }
    }
    let with_napi = host.links.iter().filter(|link| !link.is_generic());
    threaded(namespace, with_napi.map(|link| link.device.as_str()))?;
    let switch = plan.hosts.iter().find(|host| host.role == Role::Switch);
    match (host.role, options.routing, switch) {
        (Role::Router, Routing::Static, Some(switch)) => {
            namespace.ip(&vip_routes(plan.vip4, plan.vip6, &switch.links[0]))
        }
        _ => Ok(()),
    }
}

/// `ip` lines for the router: routes of the VIPs to this switch.
pub(crate) fn vip_routes(vip4: impl ToString, vip6: impl ToString, switch: &Link) -> String {
    let (vip4, vip6) = (vip4.to_string(), vip6.to_string());
    let Link { ipv4, ipv6, .. } = switch;
    format!("route replace {vip4}/32 via {ipv4}\nroute replace {vip6}/128 via {ipv6}\n")
}

/// The queue of a cable's end without a rate.
pub(crate) fn plain_queue(device: &str) -> String {
    format!("qdisc replace dev {device} root pfifo limit {QUEUE_PACKETS}\n")
}

fn queues<'a>(namespace: &NetNs, devices: impl Iterator<Item = &'a str>) -> Result<()> {
    namespace.tool(&["tc", "-batch", "-"], &devices.map(plain_queue).collect::<String>()).map(drop)
}

fn ethtool(namespace: &NetNs, device: &str, features: &[&str]) -> Result<()> {
    namespace.tool(&[&["ethtool", "-K", device], features].concat(), "").map(drop)
}

/// Gives each NAPI instance of the devices a kernel thread of its own. The devices must be up, since they have no
/// instances before.
fn threaded<'a>(namespace: &NetNs, devices: impl Iterator<Item = &'a str> + Send) -> Result<()> {
    namespace.enter_with_sysfs(|| {
        for device in devices {
            let path = format!("/sys/class/net/{device}/threaded");
            fs::write(&path, "1").doing(|| format!("write 1 to {path} in {}", namespace.name()))?;
        }
        Ok(())
    })?
}

fn line(script: &mut String, text: String) {
    writeln!(script, "{text}").expect("writing to a string does not fail");
}
