//! Nodes that serve the same requests, and the distribution of requests over them.

use std::fmt;
use std::time::Duration;

use crate::health::Health;
use crate::limits::{size, time};
use crate::{HashKey, Node, NodesFrom, Outliers, Persistence, PolicyKind};

/// Allowed values of [`Pool::slow_start`].
pub(crate) const SLOW_START: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// Allowed values of [`Pool::queue_limit`], apart from `"off"`.
pub(crate) const QUEUE_LIMIT: std::ops::RangeInclusive<u8> = 1..=100;
/// Allowed values of [`Pool::empty_status`], the default first.
pub(crate) const EMPTY_STATUSES: [u16; 4] = [503, 500, 502, 504];
/// Default of [`Pool::queue_limit`].
pub(crate) const DEFAULT_QUEUE_LIMIT: u8 = 100;
/// The text for a [`Pool::queue_limit`] of 0.
pub(crate) const QUEUE_LIMIT_OFF: &str = "off";

/// Allowed values of [`Delegate::Share`].
pub(crate) const SHARE: std::ops::RangeInclusive<u8> = 1..=99;
/// Allowed values of [`Delegate::Above`], in bytes.
pub(crate) const ABOVE: std::ops::RangeInclusive<u64> = 1..=1 << 30;
/// The texts for [`Delegate::All`] and [`Delegate::None`].
pub(crate) const DELEGATE: [(&str, Delegate); 2] = [("all", Delegate::All), ("none", Delegate::None)];

/// Nodes that serve the same requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name, as for [`Node::name`].
    pub name: String,
    /// Indices into [`Cluster::nodes`](crate::Cluster::nodes); none twice. If there is none, or
    /// all of them have weight 0 or drain, requests are answered 503.
    pub nodes: Vec<usize>,
    /// A name whose addresses are among its nodes, besides those that it lists.
    pub nodes_from: Option<NodesFrom>,
    /// Policy that chooses a node for a request.
    pub policy: PolicyKind,
    /// The unit of dispatch.
    pub balance: Balance,
    /// The key of [`PolicyKind::Hash`]; the default with the other policies.
    pub hash: HashKey,
    /// How long the share of a node that has become healthy takes to grow to what its weight says; at most an
    /// hour. Zero: no time at all.
    pub slow_start: Duration,
    /// Up to which share of its accept queue a node adopts, in percent; at most 100. 0: the node adopts
    /// without looking at the queue, which the policies that are about the queue do not allow.
    pub queue_limit: u8,
    /// Whether a node that cannot adopt passes the request on to another one, which the switch has named,
    /// instead of giving it back to the switch.
    pub second_candidate: bool,
    /// What a switch that is itself one of the nodes gives to the others; at least one node has the name of a
    /// switch. Without, the policy chooses among all nodes, and the switch's own is one like the others.
    pub delegate: Option<Delegate>,
    /// How each node checks its server, besides looking whether there is one; without, it does not.
    pub health: Option<Health>,
    /// When a node is ejected because of what its server answers; without, none is.
    pub outliers: Option<Outliers>,
    /// Whether another node goes on with a response whose node dies.
    pub resume: Resume,
    /// What agents that end TLS speak to their servers; the default in pools of other services.
    pub protocol: ServerProtocol,
    /// How the requests of one session find the same node; without, each goes by the policy.
    pub persistence: Option<Persistence>,
    /// Status of the answer to requests while the pool has no node.
    pub empty_status: u16,
}

impl Pool {
    /// Whether the node of a request can be chosen before the request comes, because nothing in it matters for the choice.
    pub fn chooses_ahead(&self) -> bool {
        self.policy.chooses_ahead() && self.persistence.is_none() && !self.second_candidate
    }

    /// Each key of `[[pool]]` except `name` in words; `nodes` are those of the cluster.
    pub(crate) fn in_words(&self, nodes: &[Node]) -> [(&'static str, String); 15] {
        let names: Vec<&str> = self.nodes.iter().map(|&node| nodes[node].name.as_str()).collect();
        let queue_limit = match self.queue_limit {
            0 => QUEUE_LIMIT_OFF.to_owned(),
            percent => format!("{percent}%"),
        };
        [
            ("nodes", names.join(", ")),
            ("nodes_from", self.nodes_from.as_ref().map_or("(none)".to_owned(), NodesFrom::to_string)),
            ("policy", self.policy.to_string()),
            ("balance", self.balance.to_string()),
            ("hash", self.hash.to_string()),
            ("slow_start", time(self.slow_start)),
            ("queue_limit", queue_limit),
            ("second_candidate", self.second_candidate.to_string()),
            ("delegate", self.delegate.as_ref().map_or("(none)".to_owned(), Delegate::to_string)),
            ("health", self.health.as_ref().map_or("(none)".to_owned(), Health::to_string)),
            ("outliers", self.outliers.as_ref().map_or("(none)".to_owned(), Outliers::to_string)),
            ("resume", self.resume.to_string()),
            ("protocol", self.protocol.to_string()),
            ("persistence", self.persistence.as_ref().map_or("(none)".to_owned(), Persistence::to_string)),
            ("empty_status", self.empty_status.to_string()),
        ]
    }
}

/// The unit for which a policy chooses a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// A connection: its later requests stay with the node, as long as that may have requests of the pool.
    Connection,
    /// Each request anew.
    Request,
}

impl Balance {
    /// Both units, in the order in which messages list them.
    pub const ALL: [Balance; 2] = [Balance::Connection, Balance::Request];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Balance::Connection => "connection",
            Balance::Request => "request",
        }
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How another node goes on with a response whose node dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// None does.
    Off,
    /// It asks its own server for the rest (RFC 9110 section 14), under the validator of the first response.
    Range,
    /// It asks its own server for the same once more, and compares what the client has.
    Repeat,
}

impl Resume {
    /// Each of them, in the order in which messages list them.
    pub const ALL: [Resume; 3] = [Resume::Off, Resume::Range, Resume::Repeat];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Resume::Off => "off",
            Resume::Range => "range",
            Resume::Repeat => "repeat",
        }
    }
}

impl fmt::Display for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a server that gets requests from an agent speaks, by the names of RFC 7301 and RFC 7540 section 3.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerProtocol {
    /// HTTP/1.1.
    #[default]
    Http11,
    /// HTTP/2 over TCP, without TLS and with prior knowledge (RFC 9113 section 3.3).
    H2c,
}

impl ServerProtocol {
    /// Each of them, in the order in which messages list them.
    pub const ALL: [ServerProtocol; 2] = [ServerProtocol::Http11, ServerProtocol::H2c];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            ServerProtocol::Http11 => "http/1.1",
            ServerProtocol::H2c => "h2c",
        }
    }
}

impl fmt::Display for ServerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The requests that a switch, itself a node of the pool, gives to the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegate {
    /// Every request; the pool has other nodes.
    All,
    /// No request: the switch's own node answers all.
    None,
    /// This share of the requests, in percent; 1 to 99. The pool has other nodes.
    Share(u8),
    /// The requests whose responses are longer than this, in bytes; 1 B to 1 GiB.
    Above(u64),
}

/// As in the file: `all`, `25%`, `{ above = "32KiB" }`.
impl fmt::Display for Delegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [(all, _), (none, _)] = DELEGATE;
        match self {
            Delegate::All => f.write_str(all),
            Delegate::None => f.write_str(none),
            Delegate::Share(percent) => write!(f, "{percent}%"),
            Delegate::Above(bytes) => write!(f, "{{ above = {:?} }}", size(*bytes)),
        }
    }
}
