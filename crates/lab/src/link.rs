//! The cables: rate, loss, cuts, MTU and counters.
//!
//! All of it is done on the bridge's side, in the lab's `net` namespace, so that programs on the host cannot bypass it:
//! XDP runs before any filter of the host, and packets sent by XDP (`XDP_TX`) skip the host's queues. The exception is
//! the rate of packets from clients, nodes and the router: there the queue is on the host, as on a real NIC, and its
//! length affects TCP.
//!
//! Loss and counters are rules in the hooks of the bridge. The netdev family's ingress hook is not suitable: it does
//! not see packets from the queue of a switch, which enter after it.

use std::sync::atomic::{AtomicU32, Ordering};

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::host::Host;
use crate::netns::NetNs;
use crate::setup;
use crate::topology::{Link, Role};

/// Size of a token bucket, as time at its rate, large enough for timer ticks not to reduce the rate.
const BURST_MS: u64 = 4;
const BURST_MIN_BYTES: u64 = 32 * 1024;
const BITS_PER_BYTE_MS: u64 = 8000;
const QUEUE_LATENCY: &str = "50ms";
/// Priority of chains that lose packets, among those of the same hook.
const LOSS_PRIORITY: i32 = 0;
const PORT_DISABLED: &str = "0";
const PORT_FORWARDING: &str = "3";

/// Counters of an interface since its creation (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Received packets.
    pub rx: DirectionCounters,
    /// Sent packets.
    pub tx: DirectionCounters,
}

/// One direction of [`InterfaceCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DirectionCounters {
    /// Packets. Merged ones (GRO) count as one on ports.
    pub packets: u64,
    /// Bytes. A veth with NAPI, as here, counts without the 14 bytes of link-layer header; a macvlan with
    /// them.
    pub bytes: u64,
    /// Packets that had an error.
    pub errors: u64,
    /// Good packets that were dropped.
    pub dropped: u64,
}

/// Packets and bytes that matched a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets. Several that the bridge has merged (GRO) count as one.
    pub packets: u64,
    /// Bytes from the network-layer header on.
    pub bytes: u64,
}

/// A direction on a cable.
#[derive(Clone, Copy)]
enum Way {
    FromHost,
    ToHost,
}

impl Way {
    fn counter(self) -> &'static str {
        match self {
            Way::FromHost => "from_host",
            Way::ToHost => "to_host",
        }
    }

    /// An nft chain of the bridge that applies the rules to packets in this direction through the port.
    fn chain(self, port: &str, priority: i32, rules: &[&str]) -> String {
        let (hook, interface) = match self {
            Way::FromHost => ("prerouting", "iifname"),
            Way::ToHost => ("postrouting", "oifname"),
        };
        let rules: String = rules.iter().map(|rule| format!("{interface} \"{port}\" {rule}\n")).collect();
        format!("chain {hook}-{port} {{\ntype filter hook {hook} priority {priority};\n{rules}}}\n")
    }
}

/// Counters of packets that match a rule on a host's cables; see [`Host::count`].
#[derive(Clone, Debug)]
pub struct TrafficCounter {
    net: NetNs,
    table: String,
}

impl TrafficCounter {
    /// Packets from the host, lost ones included.
    pub fn from_host(&self) -> Result<Traffic> {
        self.read(Way::FromHost)
    }

    /// Packets to the host, lost ones not included.
    pub fn to_host(&self) -> Result<Traffic> {
        self.read(Way::ToHost)
    }

    fn read(&self, way: Way) -> Result<Traffic> {
        let name = way.counter();
        let json = self.net.tool(&["nft", "-j", "list", "counter", "bridge", &self.table, name], "")?;
        let json: Value = parse(&json)?;
        let counter =
            json["nftables"].as_array().and_then(|items| items.iter().find_map(|item| item.get("counter")));
        let field = |key: &str| counter?[key].as_u64();
        match (field("packets"), field("bytes")) {
            (Some(packets), Some(bytes)) => Ok(Traffic { packets, bytes }),
            _ => Err(Error::NotFound(format!("counter {name} of table {}", self.table))),
        }
    }
}

impl Host {
    /// Limits each of the host's cables to this many bits per second, each way; `None` lifts the limit.
    pub fn set_rate(&self, bits_per_second: Option<u64>) -> Result<()> {
        for link in self.links() {
            let Link { device, port, .. } = link;
            shape(self.net(), port, bits_per_second)?;
            if self.role() == Role::Switch {
                self.shape_from_switch(port, bits_per_second)?;
            } else {
                shape(self.namespace(), device, bits_per_second)?;
            }
        }
        Ok(())
    }

    /// Passes the switch's packets through a queue of the bridge's side (an ifb device) before they are forwarded.
    fn shape_from_switch(&self, port: &str, bits_per_second: Option<u64>) -> Result<()> {
        let (net, queue) = (self.net(), format!("{port}-in"));
        let exists = net.tool(&["ip", "link", "show", "dev", &queue], "").is_ok();
        match bits_per_second {
            None if exists => net
                .ip(&format!("link del {queue}\n"))
                .and_then(|()| net.tool(&["tc", "qdisc", "del", "dev", port, "ingress"], "").map(drop)),
            None => Ok(()),
            Some(_) => {
                if !exists {
                    net.ip(&format!("link add {queue} type ifb\nlink set dev {queue} up\n"))?;
                    let redirect = format!(
                        "qdisc add dev {port} ingress\n\
                         filter add dev {port} parent ffff: protocol all u32 match u32 0 0 \
                         action mirred egress redirect dev {queue}\n"
                    );
                    net.tool(&["tc", "-batch", "-"], &redirect)?;
                }
                shape(net, &queue, bits_per_second)
            }
        }
    }

    /// Drops at random this many of 1000 IP packets on the host's cables, each way. ARP and neighbour discovery are
    /// spared: their retries take seconds and would distort the measurement. From the first loss on, bridges and router
    /// no longer merge packets, so that single packets are lost and not trains of them.
    pub fn set_loss(&self, from_host_per_mille: u32, to_host_per_mille: u32) -> Result<()> {
        let table = format!("loss-{}", self.name());
        // Made and deleted first, because deleting one that does not exist is an error.
        let mut script = format!("table bridge {table} {{}}\ndelete table bridge {table}\n");
        if from_host_per_mille > 0 || to_host_per_mille > 0 {
            self.stop_merging()?;
            let chain = |way: Way, port: &str, per_mille: u32| {
                let spared = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept";
                // nft refuses a comparison that is always true.
                let chance = if per_mille < 1000 {
                    format!("numgen random mod 1000 < {per_mille}")
                } else {
                    String::new()
                };
                let lost = format!("meta protocol {{ ip, ip6 }} {chance} drop");
                way.chain(port, LOSS_PRIORITY, &[spared, &lost])
            };
            let chains = self.links().iter().map(|Link { port, .. }| {
                chain(Way::FromHost, port, from_host_per_mille) + &chain(Way::ToHost, port, to_host_per_mille)
            });
            script += &format!("table bridge {table} {{\n{}}}\n", chains.collect::<String>());
        }
        self.net().tool(&["nft", "-f", "-"], &script).map(drop)
    }

    /// Merging stays enabled, since the ports would lose their NAPI threads, but no packet is small enough to be
    /// merged.
    pub(crate) fn stop_merging(&self) -> Result<()> {
        let names = self.net().tool(&["ip", "-j", "link", "show", "type", "veth"], "")?;
        let names: Vec<Value> = parse(&names)?;
        let names = names.iter().filter_map(|link| link["ifname"].as_str());
        self.net()
            .ip(&names.map(|name| format!("link set dev {name} gro_max_size 1\n")).collect::<String>())?;
        let Some(router) = self.router_namespace()? else { return Ok(()) };
        router
            .ip(&(0..3).map(|index| format!("link set dev eth{index} gro_max_size 1\n")).collect::<String>())
    }

    /// Cuts the host's cables: nothing passes either way, and neither end is told. Addresses and routes stay.
    pub fn cut_link(&self) -> Result<()> {
        self.set_port_state(PORT_DISABLED)
    }

    /// Undoes [`cut_link`](Self::cut_link).
    pub fn mend_link(&self) -> Result<()> {
        self.set_port_state(PORT_FORWARDING)
    }

    fn set_port_state(&self, state: &str) -> Result<()> {
        self.links().iter().try_for_each(|link| {
            self.net().tool(&["bridge", "link", "set", "dev", &link.port, "state", state], "").map(drop)
        })
    }

    /// Sets the MTU of the host's interfaces and of the other ends of its cables.
    pub fn set_mtu(&self, bytes: u32) -> Result<()> {
        for Link { interface, device, port, .. } in self.links() {
            self.net().ip(&format!("link set dev {port} mtu {bytes}\n"))?;
            // The lower device first: a macvlan cannot have a larger MTU.
            self.namespace()
                .ip(&format!("link set dev {device} mtu {bytes}\nlink set dev {interface} mtu {bytes}\n"))?;
        }
        Ok(())
    }

    /// Counters of an interface of the host, such as `eth0`.
    pub fn interface_counters(&self, interface: &str) -> Result<InterfaceCounters> {
        self.link(interface)?;
        #[derive(Deserialize)]
        struct Shown {
            stats64: Stats,
        }
        #[derive(Deserialize)]
        struct Stats {
            rx: DirectionCounters,
            tx: DirectionCounters,
        }
        let json = self.namespace().tool(&["ip", "-j", "-s", "link", "show", "dev", interface], "")?;
        let shown: Vec<Shown> = parse(&json)?;
        let stats =
            &shown.first().ok_or_else(|| Error::NotFound(format!("counters of {interface}")))?.stats64;
        Ok(InterfaceCounters { rx: stats.rx, tx: stats.tx })
    }

    /// Counts, from now on, the packets on the host's cables that match an nft expression such as `tcp sport
    /// 80`.
    pub fn count(&self, rule: &str) -> Result<TrafficCounter> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let table = format!("count-{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        // Before the loss of packets from the host, after the loss of packets to it.
        let ways = [(Way::FromHost, LOSS_PRIORITY - 1), (Way::ToHost, LOSS_PRIORITY + 1)];
        let mut script = format!("table bridge {table} {{\n");
        for (way, priority) in ways {
            let counter = way.counter();
            script += &format!("counter {counter} {{\n}}\n");
            let counting = format!("{rule} counter name {counter}");
            script.extend(self.links().iter().map(|link| way.chain(&link.port, priority, &[&counting])));
        }
        script += "}\n";
        self.net().tool(&["nft", "-f", "-"], &script)?;
        Ok(TrafficCounter { net: self.net().clone(), table })
    }
}

fn shape(namespace: &NetNs, device: &str, bits_per_second: Option<u64>) -> Result<()> {
    let Some(rate) = bits_per_second else {
        return namespace.tool(&["tc", "-batch", "-"], &setup::plain_queue(device)).map(drop);
    };
    let burst = (rate * BURST_MS / BITS_PER_BYTE_MS).max(BURST_MIN_BYTES);
    let (rate, burst) = (format!("{rate}bit"), format!("{burst}b"));
    let words = ["tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate];
    namespace.tool(&[&words[..], &["burst", &burst, "latency", QUEUE_LATENCY]].concat(), "").map(drop)
}

/// The MTU of a device in bytes.
pub(crate) fn mtu_of(namespace: &NetNs, device: &str) -> Result<u64> {
    let json = namespace.tool(&["ip", "-j", "link", "show", "dev", device], "")?;
    let shown: Value = parse(&json)?;
    shown[0]["mtu"].as_u64().ok_or_else(|| Error::NotFound(format!("the MTU of {device}")))
}

/// What a tool has printed as JSON.
pub(crate) fn parse<T: for<'a> Deserialize<'a>>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| Error::Invalid(format!("unexpected output {json:?}: {error}")))
}
