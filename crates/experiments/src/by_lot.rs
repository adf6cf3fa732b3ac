//! A dispatcher that gives connections to nodes at random, without knowledge of them: the kernel with an nftables rule.

use std::net::{Ipv4Addr, SocketAddrV4};

use switchback_lab::{Host, Result};

const PORT: u16 = 80;
/// Settings by which the kernel forgets ended connections after a second; its table would be full otherwise.
const SETTINGS: &[(&str, &str)] =
    &[("ipv4/ip_forward", "1"), ("netfilter/nf_conntrack_tcp_timeout_time_wait", "1")];

/// Makes `host` a router that forwards each connection to its own address to one of `nodes`, and returns that address.
pub fn dispatch_by_lot(host: &Host, nodes: &[Ipv4Addr]) -> Result<SocketAddrV4> {
    let numbered: Vec<String> = (0..).zip(nodes).map(|(n, node): (u32, _)| format!("{n} : {node}")).collect();
    let rules = format!(
        "table ip by_lot {{
            chain to {{
                type nat hook prerouting priority dstnat
                ip daddr {} tcp dport {PORT} dnat to numgen random mod {} map {{ {} }}
            }}
            chain from {{
                type nat hook postrouting priority srcnat
                masquerade
            }}
        }}",
        host.ipv4(),
        nodes.len(),
        numbered.join(", "),
    );
    host.run(["nft", &rules])?.success()?;
    host.sysctl(SETTINGS)?;
    Ok(SocketAddrV4::new(host.ipv4(), PORT))
}
