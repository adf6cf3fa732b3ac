//! A scenario, from a TOML file or from an experiment.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use switchback_policy::{MOST_AHEAD, PolicyKind};

use crate::random::Amount;

/// A cluster, its clients and the length of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Seed of the first replication; each further one has the next seed.
    pub seed: u64,
    /// Number of replications.
    pub replications: u32,
    /// Length of the warm-up, in seconds.
    pub warm_up_s: f64,
    /// Length of the measurement after it, in seconds.
    pub seconds: f64,
    /// Arrivals of connections.
    pub arrivals: Arrivals,
    /// The clients.
    pub clients: Clients,
    /// The responses.
    pub responses: Responses,
    /// Costs of packets, requests and handshakes.
    pub costs: Costs,
    /// The switches.
    pub switch: Switch,
    /// The choice of nodes.
    pub pool: Pool,
    /// The nodes, of one kind or several.
    pub nodes: Vec<Nodes>,
    /// HTTPS.
    pub tls: Option<Tls>,
    /// Failures and changes of nodes.
    pub changes: Vec<Change>,
}

/// Arrivals of connections; by default independent of the cluster (an open loop).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Arrivals {
    /// Mean rate, per second.
    pub per_second: f64,
    /// Distribution of the times between arrivals.
    pub interval: Interval,
    /// Instead of both: a number of concurrent connections, each of which is followed by another one (a closed loop).
    pub at_a_time: Option<u32>,
    /// Instead of both: an access log, with the recorded times of connections and lengths of responses.
    pub access_log: Option<String>,
}

/// Shape of the distribution of the times between connections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Interval {
    /// Poisson arrivals.
    Exponential,
    /// Constant times.
    Constant,
    /// Pareto, with this alpha above 1.
    Pareto(f64),
}

/// Clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Clients {
    /// Number of clients.
    pub count: u32,
    /// The exponent of Zipf's law, by which some clients connect more often than others; 0: all equally often.
    pub skew: f64,
    /// Mean number of requests on a connection.
    pub requests: f64,
    /// Time between two requests of a connection, in milliseconds.
    pub think_ms: Amount,
    /// Round-trip time from client to cluster, in microseconds.
    pub round_trip_us: f64,
}

/// Responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Responses {
    /// Their lengths, in bytes.
    pub bytes: Amount,
    /// Time of the application for each, in microseconds of a processor of speed 1, in addition to [`Costs`].
    pub service_us: Amount,
}

/// Costs in processor time, in microseconds; `docs/simulator.md` gives their sources.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// At the switch, for the handshake of a new connection.
    pub switch_connection_us: f64,
    /// At the switch, for each request.
    pub switch_request_us: f64,
    /// At the switch, for an acknowledgment that it passes on.
    pub switch_packet_us: f64,
    /// At the node, for each connection that it adopts.
    pub node_connection_us: f64,
    /// At the node, for each request.
    pub node_request_us: f64,
    /// At the node, for each KiB of a response.
    pub node_kib_us: f64,
    /// At the node, for a handshake of TLS with its certificate.
    pub tls_full_us: f64,
    /// At the node, for a handshake of TLS that resumes a session.
    pub tls_resumed_us: f64,
    /// At the node, for each KiB that is encrypted.
    pub tls_kib_us: f64,
    /// At the node, for handing over a connection, and at the other one for taking it.
    pub move_us: f64,
    /// At the node, for handing over a request, and at the other one for taking it.
    pub relay_us: f64,
    /// At the node, for passing on a KiB that another one has encrypted.
    pub relay_kib_us: f64,
}

/// Switches, with an even distribution of connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Switch {
    /// Number of switches.
    pub count: u32,
    /// Processors of each.
    pub cores: u32,
    /// Rate of its link, in Mbit/s.
    pub link_mbit: f64,
    /// Requests that wait until a node has room.
    pub held: u32,
}

/// The choice of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// As `policy` of `[[pool]]`.
    pub policy: Policy,
    /// Whether each request is dispatched, or each connection.
    pub balance: Balance,
    /// Time in which the weight of a returning node grows, in seconds.
    pub slow_start_s: f64,
    /// Time for which a node is silent before it counts as dead, in milliseconds.
    pub silence_ms: f64,
    /// Choices made ahead for the first requests of connections, at most 128; 0: each choice is made at its request.
    pub ahead: u32,
    /// Period of the nodes' reports, at which choices made ahead are replaced, in milliseconds.
    pub report_ms: f64,
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Policy(pub PolicyKind);

impl TryFrom<String> for Policy {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse().map(Policy).map_err(|error: switchback_policy::UnknownPolicy| error.to_string())
    }
}

impl JsonSchema for Policy {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = PolicyKind::ALL.map(|kind| json_schema!({ "type": "string", "const": kind.name() }));
        json_schema!({ "oneOf": names })
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> String {
        policy.0.to_string()
    }
}

/// The unit of dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Each connection.
    Connection,
    /// Each request.
    Request,
}

/// Nodes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Nodes {
    /// Number of nodes.
    pub count: u32,
    /// Processors of each.
    pub cores: u32,
    /// Speed of each processor; costs are those of speed 1.
    pub speed: f64,
    /// Concurrent requests, which share the processors: processes of the server. None: no limit.
    pub workers: Option<u32>,
    /// Capacity of the accept queue.
    pub accept_queue: u32,
    /// Rate of its link, in Mbit/s.
    pub link_mbit: f64,
    /// Share of the requests, relative to the other nodes.
    pub weight: u32,
}

/// HTTPS, as in `[service.tls]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Model of the distribution of connections.
    pub sessions: Sessions,
    /// How a busy node hands over.
    pub hand_over: HandOver,
    /// Whether every node can resume every session.
    pub cluster_tickets: bool,
    /// Number of connections above which a node is busy.
    pub busy_connections: u32,
    /// Share of CPU time above which a node is busy, in percent.
    pub busy_cpu: u32,
    /// Period of the nodes' load reports, in milliseconds.
    pub told_ms: f64,
}

/// The models of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Sessions {
    /// By the policy.
    RoundRobin,
    /// To the node of the client's session.
    Session,
    /// To the node of the client's session, which hands over if it is busy.
    Forwarding,
}

/// The unit that a busy node hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HandOver {
    /// The connection.
    Direct,
    /// One request, whose response is relayed by the busy node.
    Relay,
}

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Time in seconds, the warm-up included.
    pub at_s: f64,
    /// Number of the node, from 0.
    pub node: u32,
    /// Kind of the change.
    pub what: What,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The node dies.
    Fails,
    /// The node drains.
    Drains,
    /// The node returns.
    Returns,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            seed: 1,
            replications: 5,
            warm_up_s: 5.0,
            seconds: 30.0,
            arrivals: Arrivals::default(),
            clients: Clients::default(),
            responses: Responses::default(),
            costs: Costs::default(),
            switch: Switch::default(),
            pool: Pool::default(),
            nodes: vec![Nodes::default()],
            tls: None,
            changes: Vec::new(),
        }
    }
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { per_second: 1000.0, interval: Interval::Exponential, at_a_time: None, access_log: None }
    }
}

impl Default for Clients {
    fn default() -> Self {
        Clients {
            count: 10_000,
            skew: 0.0,
            requests: 1.0,
            think_ms: Amount::Constant(0.0),
            round_trip_us: 0.0,
        }
    }
}

impl Default for Responses {
    fn default() -> Self {
        Responses { bytes: Amount::Web { body: 0.93 }, service_us: Amount::Constant(0.0) }
    }
}

impl Costs {
    /// Costs of zero.
    pub const NONE: Costs = Costs {
        switch_connection_us: 0.0,
        switch_request_us: 0.0,
        switch_packet_us: 0.0,
        node_connection_us: 0.0,
        node_request_us: 0.0,
        node_kib_us: 0.0,
        tls_full_us: 0.0,
        tls_resumed_us: 0.0,
        tls_kib_us: 0.0,
        move_us: 0.0,
        relay_us: 0.0,
        relay_kib_us: 0.0,
    };
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            switch_connection_us: 6.9,
            switch_request_us: 11.9,
            switch_packet_us: 1.5,
            node_connection_us: 18.6,
            node_request_us: 13.4,
            node_kib_us: 0.25,
            tls_full_us: 277.0,
            tls_resumed_us: 241.0,
            tls_kib_us: 1.06,
            move_us: 74.0,
            relay_us: 37.0,
            relay_kib_us: 0.5,
        }
    }
}

impl Default for Switch {
    fn default() -> Self {
        Switch { count: 1, cores: 1, link_mbit: 10_000.0, held: 10_000 }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Pool {
            policy: Policy(PolicyKind::RoundRobin),
            balance: Balance::Connection,
            slow_start_s: 0.0,
            silence_ms: 630.0,
            ahead: 0,
            report_ms: 50.0,
        }
    }
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            count: 4,
            cores: 1,
            speed: 1.0,
            workers: None,
            accept_queue: 512,
            link_mbit: 10_000.0,
            weight: 1,
        }
    }
}

impl Default for Tls {
    fn default() -> Self {
        Tls {
            sessions: Sessions::Session,
            hand_over: HandOver::Direct,
            cluster_tickets: false,
            busy_connections: 1000,
            busy_cpu: 80,
            told_ms: 200.0,
        }
    }
}

/// The reason why a scenario cannot be simulated.
#[derive(Debug)]
pub enum ScenarioError {
    /// The file cannot be read, or is invalid.
    File(switchback_config::Error),
    /// An access log cannot be read.
    Unread(String, std::io::Error),
    /// A scenario or an access log is invalid; the mistake and its place.
    Invalid(String),
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScenarioError::File(error) => error.fmt(f),
            ScenarioError::Unread(path, error) => write!(f, "read {path}: {error}"),
            ScenarioError::Invalid(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// The path of a key in the file, such as `nodes.0.count`, and what is wrong with its value.
pub type Mistake = (String, String);

impl Costs {
    /// All costs, by their keys in the file.
    fn by_key(&self) -> [(&'static str, f64); 12] {
        let Costs {
            switch_connection_us,
            switch_request_us,
            switch_packet_us,
            node_connection_us,
            node_request_us,
            node_kib_us,
            tls_full_us,
            tls_resumed_us,
            tls_kib_us,
            move_us,
            relay_us,
            relay_kib_us,
        } = *self;
        [
            ("costs.switch_connection_us", switch_connection_us),
            ("costs.switch_request_us", switch_request_us),
            ("costs.switch_packet_us", switch_packet_us),
            ("costs.node_connection_us", node_connection_us),
            ("costs.node_request_us", node_request_us),
            ("costs.node_kib_us", node_kib_us),
            ("costs.tls_full_us", tls_full_us),
            ("costs.tls_resumed_us", tls_resumed_us),
            ("costs.tls_kib_us", tls_kib_us),
            ("costs.move_us", move_us),
            ("costs.relay_us", relay_us),
            ("costs.relay_kib_us", relay_kib_us),
        ]
    }
}

impl Scenario {
    /// Reads a file. Missing costs, pools and the like have their [`Default`]; paths are relative to the file's
    /// directory.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        Scenario::read(&switchback_config::read_text(path).map_err(ScenarioError::File)?, path)
    }

    /// As [`load`](Scenario::load); `text` is the content of `file`.
    pub fn read(text: &str, file: &Path) -> Result<Self, ScenarioError> {
        let read = switchback_config::read(text, file, Scenario::mistakes);
        let mut scenario = read.map_err(ScenarioError::File)?;
        if let Some(log) = &mut scenario.arrivals.access_log {
            let joined = file.parent().unwrap_or(Path::new("")).join(&*log);
            *log = joined.display().to_string();
        }
        Ok(scenario)
    }

    /// The [`resemblance`](switchback_config::resemblance) of `text` to a scenario.
    pub fn resemblance(text: &str) -> usize {
        switchback_config::resemblance::<Scenario>(text)
    }

    /// One line that says what is simulated, and for how long: `4 nodes, 35 s, 5 replications`.
    pub fn summary(&self) -> String {
        let nodes: u32 = self.nodes.iter().map(|nodes| nodes.count).sum();
        let counted = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let seconds = self.warm_up_s + self.seconds;
        format!("{}, {seconds} s, {}", counted(nodes, "node"), counted(self.replications, "replication"))
    }

    /// The mistakes in the values.
    pub fn mistakes(&self) -> Vec<Mistake> {
        let numbers = self.not_positive().into_iter().chain(self.negative());
        numbers.chain(self.of_distributions()).chain(self.of_pool()).chain(self.of_nodes()).collect()
    }

    fn not_positive(&self) -> Vec<Mistake> {
        let positive = [
            ("seconds", self.seconds),
            ("arrivals.per_second", self.arrivals.per_second),
            ("clients.count", self.clients.count.into()),
            ("switch.count", self.switch.count.into()),
            ("switch.cores", self.switch.cores.into()),
            ("switch.link_mbit", self.switch.link_mbit),
            ("pool.report_ms", self.pool.report_ms),
            ("replications", self.replications.into()),
        ];
        let of_nodes = self.nodes.iter().enumerate().flat_map(|(index, nodes)| {
            let keys = [
                ("count", nodes.count.into()),
                ("cores", nodes.cores.into()),
                ("speed", nodes.speed),
                ("link_mbit", nodes.link_mbit),
            ];
            keys.map(|(key, value)| (format!("nodes.{index}.{key}"), value))
        });
        let of_tls = self.tls.iter().map(|tls| ("tls.told_ms", tls.told_ms));
        let others = positive.into_iter().chain(of_tls).map(|(key, value)| (key.to_owned(), value));
        let is_positive = |value: f64| value > 0.0 && value.is_finite();
        let wrong = others.chain(of_nodes).filter(|(_, value)| !is_positive(*value));
        wrong
            .map(|(key, value)| mistake(key, |key| format!("{key} is {value}, allowed is what is above 0")))
            .collect()
    }

    fn negative(&self) -> Vec<Mistake> {
        let not_negative = [
            ("warm_up_s", self.warm_up_s),
            ("clients.skew", self.clients.skew),
            ("clients.round_trip_us", self.clients.round_trip_us),
            ("pool.slow_start_s", self.pool.slow_start_s),
            ("pool.silence_ms", self.pool.silence_ms),
        ];
        let all = not_negative.into_iter().chain(self.costs.by_key());
        let wrong = all.filter(|(_, value)| !(*value >= 0.0 && value.is_finite()));
        wrong
            .map(|(key, value)| mistake(key, |key| format!("{key} is {value}, allowed is 0 or above")))
            .collect()
    }

    /// Mistakes in what is drawn at random.
    fn of_distributions(&self) -> Vec<Mistake> {
        let amounts = [
            ("clients.think_ms", &self.clients.think_ms),
            ("responses.bytes", &self.responses.bytes),
            ("responses.service_us", &self.responses.service_us),
        ];
        let amounts = amounts.into_iter().filter_map(|(path, amount)| {
            let what = amount.mistake()?;
            Some(mistake(path, |key| format!("{key}: {what}")))
        });
        let interval = match self.arrivals.interval {
            Interval::Pareto(alpha) if !(alpha > 1.0 && alpha.is_finite()) => {
                let what =
                    |key: &str| format!("{key}: pareto {alpha}, allowed is what is above 1: it has a mean");
                Some(mistake("arrivals.interval", what))
            }
            _ => None,
        };
        let requests = self.clients.requests;
        let too_few = (requests < 1.0).then(|| {
            mistake("clients.requests", |key| format!("{key} is {requests}, allowed is 1 or above"))
        });
        amounts.chain(interval).chain(too_few).collect()
    }

    fn of_pool(&self) -> Option<Mistake> {
        let ahead = self.pool.ahead;
        (ahead as usize > MOST_AHEAD)
            .then(|| mistake("pool.ahead", |key| format!("{key} is {ahead}, allowed are 0 to {MOST_AHEAD}")))
    }

    /// Mistakes in the nodes, or in changes of them.
    fn of_nodes(&self) -> Vec<Mistake> {
        let nodes: u32 = self.nodes.iter().map(|nodes| nodes.count).sum();
        let none = (nodes == 0)
            .then(|| ("nodes".to_owned(), "no nodes, at least one [[nodes]] is needed".to_owned()));
        let limited = self.nodes.iter().position(|nodes| nodes.workers.is_some() && self.tls.is_some());
        let limited = limited.map(|index| {
            mistake(format!("nodes.{index}.workers"), |key| {
                format!("{key} with [tls], leave the line out: agents end TLS, without an accept queue")
            })
        });
        let changes = self.changes.iter().enumerate().filter(|(_, change)| nodes > 0 && change.node >= nodes);
        let changes = changes.map(|(index, change)| {
            mistake(format!("changes.{index}.node"), |key| {
                format!("{key} is {}, allowed are 0 to {}", change.node, nodes - 1)
            })
        });
        none.into_iter().chain(limited).chain(changes).collect()
    }
}

/// A mistake at this path, whose last key stands in the message.
fn mistake(path: impl Into<String>, what: impl FnOnce(&str) -> String) -> Mistake {
    let path = path.into();
    let what = what(path.rsplit('.').next().unwrap_or(&path));
    (path, what)
}
