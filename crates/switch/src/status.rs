//! What a running switch says of itself: the one source of `switchback status` and `top`, of the metrics and of the
//! page. A key that is missing, as in what a process of another version says, has the default of its type.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use switchback_wire::{report, sb_reason};

use crate::dispatch::DispatchCounts;
use crate::observe::totals::Totals;

/// The whole of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchStatus {
    /// Where it is attached.
    pub interfaces: Vec<InterfaceStatus>,
    /// Since its start.
    pub uptime_s: u64,
    /// Entries of the flow map.
    pub flows: u64,
    /// In the configuration's order.
    pub services: Vec<ServiceStatus>,
    /// Likewise.
    pub nodes: Vec<NodeView>,
    /// What the L7 thread has counted.
    pub dispatch: DispatchStatus,
    /// What the XDP program has counted: [`SwitchCounter`](switchback_wire::SwitchCounter) by name.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
    /// What the nodes' responses add up to, if that is known.
    pub responses: Option<Totals>,
}

/// An interface with the XDP program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// `native` or `generic`.
    pub mode: String,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Its VIPs.
    pub listen: Vec<SocketAddr>,
    /// Requests for it that were given to a node.
    pub requests: u64,
}

/// What the switch knows of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeView {
    /// Its name in the configuration.
    pub name: String,
    /// Where handoff packets go.
    pub address: Option<IpAddr>,
    /// Whether it is this machine.
    pub here: bool,
    /// Whether its next hop is known.
    pub resolved: bool,
    /// Requests it was given.
    pub requests: u64,
    /// Flows it adopted.
    pub adopted: u64,
    /// Adoptions it refused.
    pub refused: u64,
    /// Flows it released.
    pub released: u64,
    /// Whether it is to become idle.
    pub draining: bool,
    /// Whether nothing has been heard of it for too long.
    pub silent: bool,
    /// What it has said of itself last.
    pub load: Option<LoadStatus>,
    /// How it is doing, for each pool at each VIP.
    pub listeners: Vec<ListenerView>,
}

/// What a node says of itself, whatever the listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadStatus {
    /// Flows that it has.
    pub flows: u32,
    /// Requests that it has and has not answered whole.
    pub in_flight: u32,
    /// Mean time to first byte of its last period; None if no response began in it.
    pub first_byte_us: Option<u64>,
    /// Share of the machine's CPU time in use, in thousandths.
    pub cpu_permille: u16,
}

/// A server on a node as the switch knows it, for one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerView {
    /// Name of the pool.
    pub pool: String,
    /// The VIP.
    pub listen: Option<SocketAddr>,
    /// `up`, or why it is to have no requests.
    pub state: String,
    /// Length of its accept queue.
    pub queue: u32,
    /// As much of it as the pool may fill; 0 if that is not known.
    pub queue_limit: u32,
}

/// What the L7 thread has now, and what it has counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DispatchStatus {
    /// Flows that wait for something.
    pub pending: u64,
    /// Requests that wait for a node with room.
    pub waiting: u64,
    /// Memory of all pending flows, in bytes.
    pub held_bytes: u64,
    /// Packets that the kernel did not take, since the start.
    pub send_failed: u64,
    /// Counters of the dispatcher.
    #[serde(flatten)]
    pub counts: DispatchCounts,
}

impl ListenerView {
    fn is_up(&self) -> bool {
        self.state == report::condition(sb_reason::SB_REASON_NONE as u8)
    }
}

impl NodeView {
    /// In a word; of several listeners the first that is not well counts.
    pub fn state(&self) -> &str {
        let ill = self.listeners.iter().find(|listener| !listener.is_up());
        match ill.or(self.listeners.first()) {
            _ if self.draining => "draining",
            _ if self.silent => "silent",
            Some(listener) => &listener.state,
            None => "unused",
        }
    }

    /// Whether it may have requests for some pool.
    pub fn is_up(&self) -> bool {
        self.listeners.iter().any(|listener| self.may_serve(listener))
    }

    /// Whether it may have requests for the pool of one of its listeners there.
    pub fn may_serve(&self, listener: &ListenerView) -> bool {
        !self.draining && !self.silent && listener.is_up()
    }

    /// The fullest of its accept queues: length and limit.
    pub fn fullest_queue(&self) -> Option<(u32, u32)> {
        let queues = self.listeners.iter().map(|listener| (listener.queue, listener.queue_limit));
        let shares = queues.filter(|(_, limit)| *limit != 0);
        // The products are the shares with a common denominator.
        let product = |len: u32, limit: u32| u64::from(len) * u64::from(limit);
        shares.max_by(|one, other| product(one.0, other.1).cmp(&product(other.0, one.1)))
    }
}
