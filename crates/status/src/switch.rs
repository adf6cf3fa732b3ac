//! The status of a switch: the source of `switchback status` and `top`, of the metrics and of the page.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use switchback_runtime::events::Event;
use switchback_wire::Reason;
use switchback_wire::report::Condition;

use crate::CopyStatus;
use crate::totals::Totals;

/// The status of a switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchStatus {
    /// Interfaces with the XDP program.
    pub interfaces: Vec<InterfaceStatus>,
    /// Version of its program.
    pub version: String,
    /// The first eight digits of its configuration's SHA-256.
    pub config: String,
    /// Version of its configuration, if the source counts them.
    pub config_version: Option<u64>,
    /// Time since its start, in seconds.
    pub uptime_s: u64,
    /// Whether it has just started, beside others, and gets lists of flows from nodes.
    pub learning: bool,
    /// Whether it is about to end, and serves only until other switches get its packets.
    pub leaving: bool,
    /// Entries of the flow map.
    pub flows: u64,
    /// Services, in the configuration's order.
    pub services: Vec<ServiceStatus>,
    /// Nodes, in the configuration's order.
    pub nodes: Vec<NodeView>,
    /// The cluster's switches, in the configuration's order; none if it names none.
    pub switches: Vec<SwitchView>,
    /// The L7 thread.
    pub dispatch: DispatchStatus,
    /// Copies of requests for other pools.
    pub copies: CopyStatus,
    /// Counters of the XDP program: [`SwitchCounter`](switchback_wire::SwitchCounter) by name.
    pub counters: BTreeMap<Cow<'static, str>, u64>,
    /// Sums over responses; None without access log and admin address.
    pub responses: Option<Totals>,
    /// The last events of its process, the oldest first.
    pub events: Vec<Event>,
}

/// An interface with the XDP program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// `native` or `generic`.
    pub mode: String,
    /// Whether XDP cannot send on it, and the kernel does, which is slower.
    pub kernel_sends: bool,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceStatus {
    /// For each route what it takes, and where that goes.
    pub routes: Vec<String>,
    /// The clients that it lets in, and its limits.
    pub limits: Vec<String>,
    /// Its name in the configuration.
    pub name: String,
    /// Its VIPs.
    pub listen: Vec<SocketAddr>,
    /// Requests for it that were given to a node.
    pub requests: u64,
}

/// A node, as the switch sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeView {
    /// Its name in the configuration.
    pub name: String,
    /// Destination of handoff packets.
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
    /// Whether it gets no new flows.
    pub draining: bool,
    /// Whether its reports have stopped.
    pub silent: bool,
    /// Whether they have stopped for so long that its flows go to other nodes.
    pub dead: bool,
    /// Newest version of handoff packets that it knows; None before its first report.
    pub newest_version: Option<u8>,
    /// Version of its program, if it says so.
    pub version: Option<String>,
    /// The first eight digits of its configuration's SHA-256, if it says so.
    pub config: Option<String>,
    /// Its last report of its load.
    pub load: Option<LoadStatus>,
    /// Its servers, one for each pool at each VIP.
    pub listeners: Vec<ListenerView>,
}

/// A switch of the cluster: of this one its state, of others what they have told the nodes last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchView {
    /// Its name in the configuration.
    pub name: String,
    /// Whether it is this one.
    pub here: bool,
    /// `serving`, `learning`, `withdrawn`, `leaving`, [`SILENT`], or [`UNKNOWN`] if no node has told of it yet.
    pub state: Cow<'static, str>,
    /// Time since its last word, in seconds, if it is silent.
    pub silent_s: Option<u64>,
    /// Version of its program.
    pub version: Option<String>,
    /// The first eight digits of its configuration's SHA-256.
    pub config: Option<String>,
    /// Flows of other switches that it has found since its start.
    pub taken_over: Option<u64>,
    /// Number of nodes that hear it.
    pub heard_by: u32,
    /// Number of addresses that say that they are this switch.
    pub addresses: u32,
}

/// The state of a switch that no node has heard for three seconds.
pub const SILENT: &str = "silent";
/// The state of a node that has not reported.
const NOT_REPORTED: &str = Condition::Unreported.name();
/// The state of an outlier.
const EJECTED: &str = Condition::Down(Reason::Failing).name();
/// The state of a switch that no node has told of.
pub const UNKNOWN: &str = "unknown";

/// The load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadStatus {
    /// Flows that the node has.
    pub flows: u32,
    /// Requests whose responses are not complete.
    pub in_flight: u32,
    /// Mean time to first byte of its last period; None if no response began in it.
    pub first_byte_us: Option<u64>,
    /// Share of the machine's CPU time in use, in thousandths.
    pub cpu_permille: u16,
}

/// A server on a node, for one pool, as the switch sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerView {
    /// Name of the pool.
    pub pool: String,
    /// The VIP.
    pub listen: Option<SocketAddr>,
    /// `up`, or why it gets no requests ([`Condition::name`]).
    pub state: String,
    /// Length of its accept queue.
    pub queue: u32,
    /// How much of the queue the pool may fill; 0 if unknown.
    pub queue_limit: u32,
    /// How often the node has been ejected as an outlier of the pool, since the switch began.
    pub ejections: u64,
    /// Whether it gets nothing but copies of requests.
    pub mirrors: bool,
}

/// The L7 thread: what is pending, and its counters since the start.
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

/// Counters of the dispatcher since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DispatchCounts {
    /// Requests that the switch answered itself, by status.
    #[serde(deserialize_with = "by_status")]
    pub answered: BTreeMap<u16, u64>,
    /// ADOPT, RELEASE and CONFIRM packets sent again.
    pub resent: u64,
    /// Acknowledgments of the switch for requests whose clients did not get on.
    pub acknowledged: u64,
    /// Releases that had to wait for a response to end.
    pub busy: u64,
    /// Flows that the nodes were asked about.
    pub probed: u64,
    /// Flows that the nodes were not asked about, because of the limit on questions.
    pub unasked: u64,
    /// Unknown flows that a node owned.
    pub recovered: u64,
    /// Flows taken from the nodes' lists.
    pub listed: u64,
    /// Packets that a node refused, because it had not been given what was read before them.
    pub unread: u64,
    /// Unknown flows that no node owned.
    pub reset_unowned: u64,
    /// Requests refused because of what they are, by reason.
    pub refused_requests: BTreeMap<Cow<'static, str>, u64>,
    /// Packets dropped because their flow holds too much already.
    pub dropped_flow_full: u64,
    /// Packets dropped because their source address holds too much already.
    pub dropped_source_full: u64,
    /// Packets dropped because the switch holds too much already.
    pub dropped_switch_full: u64,
    /// Flows whose held packets were forgotten, so that others could be held.
    pub evicted: u64,
    /// Answers of the switch that were forgotten before their clients had seen them, because there were too many.
    pub answers_forgotten: u64,
    /// Requests that had to wait for a node with room.
    pub waited: u64,
    /// Requests answered 503 at once, because too many waited already.
    pub turned_away: u64,
    /// Requests that a node passed on to its second candidate.
    pub passed_on: u64,
    /// Connections that a node has given to another one, in the middle.
    pub moved: u64,
    /// Responses of dead nodes that other nodes go on with.
    pub resumed: u64,
    /// Responses of dead nodes that were to go on, and did not.
    pub not_resumed: u64,
    /// Reports of nodes.
    pub reports: u64,
    /// Idle flows taken from nodes that are draining.
    pub taken_back: u64,
    /// Requests that went to the node that has their session.
    pub sessions_kept: u64,
    /// Requests that went elsewhere, because the node that has their session could not serve.
    pub sessions_moved: u64,
    /// Requests answered 503, because the node that has their session could not serve.
    pub sessions_refused: u64,
    /// Cookies that look as if they named a session's node and do not.
    pub cookies_ignored: u64,
    /// Requests that were to be mirrored and are not, because no node of the mirror serves.
    pub copies_unplaced: u64,
}

impl DispatchCounts {
    /// Adds those of another thread.
    pub fn add(&mut self, other: &DispatchCounts) {
        // A field that is missing here is an error of the compiler.
        macro_rules! add {
            ($($number:ident)*) => {
                let DispatchCounts { answered: _, refused_requests: _, $($number),* } = other;
                $(self.$number += $number;)*
            };
        }
        add! {
            resent acknowledged busy probed unasked recovered
            listed unread reset_unowned dropped_flow_full dropped_source_full dropped_switch_full
            evicted answers_forgotten waited turned_away passed_on moved
            resumed not_resumed reports taken_back sessions_kept sessions_moved
            sessions_refused cookies_ignored copies_unplaced
        }
        for (status, count) in &other.answered {
            *self.answered.entry(*status).or_default() += count;
        }
        for (reason, count) in &other.refused_requests {
            *self.refused_requests.entry(reason.clone()).or_default() += count;
        }
    }
}

/// Reads a map whose keys are statuses; the keys of a JSON object are strings.
fn by_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let counts = BTreeMap::<String, u64>::deserialize(deserializer)?.into_iter();
    counts.map(|(status, count)| Ok((status.parse().map_err(D::Error::custom)?, count))).collect()
}

/// A pool and its nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView<'a> {
    /// Name in the configuration.
    pub name: &'a str,
    /// In the configuration's order.
    pub nodes: Vec<&'a NodeView>,
}

impl<'a> PoolView<'a> {
    /// Nodes that have reported and may get the pool's requests, at one of its VIPs at least.
    pub fn serving(&self) -> impl Iterator<Item = &'a NodeView> {
        self.nodes.iter().copied().filter(|node| self.is_served_by(node))
    }

    /// The other nodes, each with the reason.
    pub fn others(&self) -> impl Iterator<Item = (&'a NodeView, &'a str)> {
        let others = self.nodes.iter().copied().filter(|node| !self.is_served_by(node));
        let state = |node: &'a NodeView| node.load.map_or(NOT_REPORTED, |_| node.state_for(self.name));
        others.map(move |node| (node, state(node)))
    }

    fn is_served_by(&self, node: &NodeView) -> bool {
        node.load.is_some() && node.serves(self.name)
    }
}

/// The pools of these nodes, by name.
pub fn pools(nodes: &[NodeView]) -> Vec<PoolView<'_>> {
    let mut pools: BTreeMap<&str, Vec<&NodeView>> = BTreeMap::new();
    for node in nodes {
        for listener in &node.listeners {
            let nodes = pools.entry(&listener.pool).or_default();
            if nodes.last().is_none_or(|last| last.name != node.name) {
                nodes.push(node);
            }
        }
    }
    pools.into_iter().map(|(name, nodes)| PoolView { name, nodes }).collect()
}

impl ListenerView {
    fn is_up(&self) -> bool {
        self.state == Condition::Up.name()
    }

    /// Whether the node is ejected as an outlier of the pool.
    pub fn is_ejected(&self) -> bool {
        self.state == EJECTED
    }
}

impl SwitchView {
    /// Whether it runs, as far as this switch knows.
    pub fn is_heard(&self) -> bool {
        self.here || !(self.state == SILENT || self.state == UNKNOWN)
    }
}

impl NodeView {
    /// State in a word or two: `up in part` if it may get requests for some of its pools only; if for none, why not for
    /// the first of them.
    pub fn state(&self) -> &str {
        self.state_among(self.listeners.iter())
    }

    /// The same for the pool alone, which may have several VIPs.
    pub fn state_for(&self, pool: &str) -> &str {
        self.state_among(self.listeners.iter().filter(|listener| listener.pool == pool))
    }

    fn state_among<'a>(&'a self, mut listeners: impl Iterator<Item = &'a ListenerView> + Clone) -> &'a str {
        let first = listeners.clone().next();
        let is_any_up = listeners.clone().any(ListenerView::is_up);
        match listeners.find(|listener| !listener.is_up()).or(first) {
            None => "unused",
            _ if self.draining => "draining",
            _ if self.dead => "dead",
            _ if self.silent => "silent",
            Some(listener) if !listener.is_up() && is_any_up => "up in part",
            Some(listener) => &listener.state,
        }
    }

    /// Whether it may get requests for some pool.
    pub fn is_up(&self) -> bool {
        self.listeners.iter().any(|listener| self.may_serve(listener))
    }

    /// Whether it may get requests for the pool at one of its VIPs.
    pub fn serves(&self, pool: &str) -> bool {
        self.listeners.iter().any(|listener| listener.pool == pool && self.may_serve(listener))
    }

    /// Whether it may get requests for the pool of this listener.
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
