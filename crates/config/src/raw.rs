//! The shape of `cluster.toml` as serde sees it. Every value that can be wrong in itself keeps its place in
//! the text, and is taken in a type wide enough that a wrong value reaches `validate` and is reported
//! together with the others.

mod value;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::acme::LETS_ENCRYPT;
use crate::limits::{size, time};
use crate::node::DEFAULT_WEIGHT;
use crate::persistence::Mode;
use crate::validate::DOMAINS_MAX;
use crate::{
    Adoption, Balance, Challenge, ClientAddress, ClientAuth, HandOver, HashKey, LogFormat, MAX_LISTEN,
    MAX_NETWORKS, MAX_NODES, MAX_SWITCHES, Model, Over, PolicyKind, Protocol, Resume, SHARES, SameSite,
    Scheme, ServerProtocol, TicketScope, TlsVersion, WEIGHTS, access_log, dns, health, limits, outliers,
    persistence, pool, rate, redirect, reports, shape, syntax, tls,
};

pub(crate) use value::{Above, Delegate, OneOrMany, Spanned, Texts};

/// What requests can have in common.
const HASH_KEYS: &str = "`\"client\"`, `\"path\"`, `\"header NAME\"`, `\"cookie NAME\"`";
/// A host in a URL.
const ONE_HOST: &str = "a name or an address, an IPv6 address in brackets; without port";

/// Of a route.
const HOSTS: &str = "a name, an address, or `*.example.com` for every name that ends so and is longer";
const PATHS: &str = "`/` and then visible ASCII without `\"#<>?\\`, in normal form";
const METHODS: &str = "names such as `\"GET\"`";
const NETWORKS: &str = "networks such as `\"198.51.100.0/24\"`, addresses, and names of `[[networks]]`";
const REGEX: &str = "the syntax of the Rust crate `regex`; at most 64 KiB when it is compiled";

const URL_PATH: &str = "begins with `/`; letters, digits and `-._~!$&'()*+,;=:@%/`";

const SERVER_PATH: &str = "begins with `/`; letters, digits and `-._~!$&'()*+,;=:@%/`, in normal form";
/// Names of fields that routes may change.
const FIELD_NAMES: &str =
    "tokens (RFC 9110 section 5.6.2), no field about the connection, the message's length, or that nodes set";

/// The same file on every machine of the cluster.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "cluster.toml")]
pub(crate) struct File {
    pub cluster: ClusterTable,
    #[serde(default)]
    #[schemars(with = "Option<Reports>")]
    pub reports: Reports,
    #[serde(default)]
    #[schemars(with = "Option<Limits>")]
    pub limits: Limits,
    pub access_log: Option<AccessLog>,
    pub admin: Option<Admin>,
    pub acme: Option<Acme>,
    #[serde(default)]
    #[schemars(with = "Option<Dns>")]
    pub dns: Dns,
    #[serde(default)]
    #[schemars(with = "Vec<Node>", length(max = MAX_NODES))]
    pub node: Vec<Node>,
    #[serde(default)]
    pub pool: Vec<Pool>,
    #[serde(default)]
    pub service: Vec<Service>,
    #[serde(default)]
    #[schemars(length(max = MAX_SWITCHES))]
    pub switch: Vec<Switch>,
    #[serde(default)]
    #[schemars(length(max = MAX_NETWORKS))]
    pub client: Vec<Client>,
    #[serde(default)]
    pub networks: Vec<NetworkList>,
}

/// What holds for the cluster as a whole.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterTable {
    /// Path of the key file; a relative one begins at the directory of `cluster.toml`.
    pub key_file: Spanned<String>,
}

/// How nodes tell the switches how they are doing.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reports {
    /// How often a node reports. If absent and there are more than 400 nodes, an eighth of a millisecond for each, at most a second: a
    /// switch gets some 8,000 reports a second. The default of `dead_after` is a second then, or `suspect_after` if that is longer.
    #[schemars(transform = shape::time(reports::INTERVAL))]
    #[schemars(extend("default" = time(crate::Reports::default().interval)))]
    pub interval: Option<Spanned<String>>,
    /// After so many intervals without a report a node is suspect: it gets requests only if no better node is there.
    #[schemars(transform = shape::number(reports::SUSPECT_AFTER))]
    #[schemars(extend("default" = crate::Reports::default().suspect_after))]
    pub suspect_after: Option<Spanned<i64>>,
    /// After so many intervals without a report, at least `suspect_after`, a node is taken for dead, as long as another one
    /// reports: its connections leave it at their next request, and requests that it has not acknowledged are given to other
    /// nodes. If absent it grows with `suspect_after`.
    #[schemars(transform = shape::number(reports::DEAD_AFTER))]
    #[schemars(extend("default" = crate::Reports::default().dead_after))]
    pub dead_after: Option<Spanned<i64>>,
}

/// What clients may ask of the switch. `head` <= `held_per_flow` <= `held_per_source` <= `held`, because none of them could
/// be used up otherwise.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    /// Longest request head, which is the request line and the header fields; beyond it the answer is 431.
    #[schemars(transform = shape::size(limits::HEAD))]
    #[schemars(extend("default" = size(crate::Limits::default().head as u64)))]
    pub head: Option<Spanned<String>>,
    /// Most header fields of a request; beyond it the answer is 431.
    #[schemars(transform = shape::number(limits::FIELDS))]
    #[schemars(extend("default" = crate::Limits::default().fields))]
    pub fields: Option<Spanned<i64>>,
    /// Longest request body; beyond it the answer is 413.
    #[schemars(transform = shape::size(limits::BODY), transform = shape::absent("any length"))]
    pub body: Option<Spanned<String>>,
    /// How long a head may take to arrive; beyond it the answer is 408.
    #[schemars(transform = shape::time(limits::HEAD_TIMEOUT))]
    #[schemars(extend("default" = time(crate::Limits::default().head_timeout)))]
    pub head_timeout: Option<Spanned<String>>,
    /// How long a request may wait for a node that can take it; beyond it the answer is 503.
    #[schemars(transform = shape::time(limits::WAIT_TIMEOUT))]
    #[schemars(extend("default" = time(crate::Limits::default().wait_timeout)))]
    pub wait_timeout: Option<Spanned<String>>,
    /// Most requests that wait in the switch for a node with room; one more is answered 503 at once. With 0 none waits.
    #[schemars(transform = shape::number(limits::WAITING))]
    #[schemars(extend("default" = crate::Limits::default().waiting))]
    pub waiting: Option<Spanned<i64>>,
    /// Client data that waits in the switch unacknowledged, for one connection; what is more the client sends again later.
    #[schemars(transform = shape::size(limits::HELD))]
    #[schemars(extend("default" = size(crate::Limits::default().held_per_flow as u64)))]
    pub held_per_flow: Option<Spanned<String>>,
    /// The same for one source, an IPv4 address or an IPv6 /64, in each L7 thread.
    #[schemars(transform = shape::size(limits::HELD))]
    #[schemars(extend("default" = size(crate::Limits::default().held_per_source as u64)))]
    pub held_per_source: Option<Spanned<String>>,
    /// The same for the whole switch.
    #[schemars(transform = shape::size(limits::HELD))]
    #[schemars(extend("default" = size(crate::Limits::default().held as u64)))]
    pub held: Option<Spanned<String>>,
    /// Connections that a switch knows at a time, each for 299 bytes of kernel memory, which is taken at its start. Of more,
    /// those give way of which nothing has been heard for longest; nodes are asked about them when they go on. A change needs
    /// a restart of the switch.
    #[schemars(transform = shape::number(limits::FLOWS))]
    #[schemars(extend("default" = crate::Limits::default().flows))]
    pub flows: Option<Spanned<i64>>,
    /// Connections that a node knows at a time, each for 1080 bytes of kernel memory, which is taken at its start. Of more, those
    /// give way of which nothing has been heard for longest: their next request goes on as before if it stays on the node,
    /// and is reset if it does not. A change needs a restart of the node.
    #[schemars(transform = shape::number(limits::FLOWS))]
    #[schemars(extend("default" = crate::Limits::default().node_flows))]
    pub node_flows: Option<Spanned<i64>>,
    /// Length from which a response can be resumed, in pools with `resume`: it is made ready for that when so much has been
    /// sent.
    #[schemars(transform = shape::size(limits::RESUME_AFTER))]
    #[schemars(extend("default" = size(crate::Limits::default().resume_after)))]
    pub resume_after: Option<Spanned<String>>,
    /// Connections over TLS that a node has at a time from one source: an IPv4 address, or an IPv6 /64; one more is closed.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.connections.source))]
    pub tls_connections_per_source: Option<Spanned<i64>>,
    /// Connections over TLS that a node has at a time, for one service.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.connections.service))]
    pub tls_connections_per_service: Option<Spanned<i64>>,
    /// Connections over TLS that a node has at a time, in all.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.connections.all))]
    pub tls_connections: Option<Spanned<i64>>,
    /// Handshakes of TLS under way at a node from one source; one more connection is closed.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.handshakes.source))]
    pub tls_handshakes_per_source: Option<Spanned<i64>>,
    /// Handshakes of TLS under way at a node, for one service.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.handshakes.service))]
    pub tls_handshakes_per_service: Option<Spanned<i64>>,
    /// Handshakes of TLS under way at a node, in all.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.handshakes.all))]
    pub tls_handshakes: Option<Spanned<i64>>,
    /// Streams that a connection of HTTP/2 over TLS may open at a time (`SETTINGS_MAX_CONCURRENT_STREAMS`).
    #[schemars(transform = shape::number(limits::STREAMS))]
    #[schemars(extend("default" = crate::Limits::default().tls.streams_per_connection))]
    pub tls_streams_per_connection: Option<Spanned<i64>>,
    /// Streams of HTTP/2 that a node is answering for one source; one more is refused (`REFUSED_STREAM`), and clients ask again. A connection may always have four.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.streams.source))]
    pub tls_streams_per_source: Option<Spanned<i64>>,
    /// Streams of HTTP/2 that a node is answering, for one service.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.streams.service))]
    pub tls_streams_per_service: Option<Spanned<i64>>,
    /// Streams of HTTP/2 that a node is answering, in all.
    #[schemars(transform = shape::number(limits::CAP))]
    #[schemars(extend("default" = crate::Limits::default().tls.streams.all))]
    pub tls_streams: Option<Spanned<i64>>,
}

/// One line for each request, written by the switch; of requests over TLS by the node that has the connection. Without the table
/// there is no log.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessLog {
    /// Where the lines go: a file, which is appended to, or standard output.
    #[schemars(transform = shape::allowed("absolute path of a file, or `\"-\"` for standard output"))]
    pub path: Spanned<String>,
    /// How lines look: an object with all that is known, or the combined format of Apache and nginx.
    #[schemars(transform = shape::one_of(LogFormat::ALL.map(LogFormat::name)))]
    #[schemars(extend("default" = LogFormat::default().name()))]
    pub format: Option<Spanned<String>>,
    /// If there are more, the others are left out and counted.
    #[schemars(transform = shape::number(access_log::LINES_PER_SECOND))]
    #[schemars(extend("default" = access_log::DEFAULT_LINES_PER_SECOND))]
    pub lines_per_second: Option<Spanned<i64>>,
}

/// Where each daemon tells how it is doing: metrics, health, and on a switch a page. Without the table nothing listens.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    /// Where it listens. The file is the same on every machine, so it is an address that every machine has.
    #[schemars(transform = shape::allowed(
        "an address with a port: loopback, or `0.0.0.0` or `[::]` for all addresses of a machine; no VIP, and with all \
         addresses the port of no service"
    ))]
    #[schemars(extend("default" = crate::Admin::default().listen.to_string()))]
    pub listen: Option<Spanned<String>>,
    /// By which names it may be asked for beside addresses and `localhost`, such as that of a proxy in front of it. A request
    /// for another host is refused (421): the scripts of a web page whose name resolves to this address would read the answer.
    #[serde(default)]
    #[schemars(with = "Vec<String>", transform = shape::allowed("host names, without port"))]
    #[schemars(transform = shape::absent("none"))]
    pub hosts: Vec<Spanned<String>>,
}

/// The certification authority that issues certificates with `domains` (ACME, RFC 8555).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acme {
    /// Name of the node that orders certificates, for all nodes. It has to reach the CA.
    #[schemars(transform = shape::name)]
    pub node: Spanned<String>,
    /// Whether you agree to the CA's terms of service; it issues nothing otherwise.
    #[schemars(transform = shape::allowed("`true`"))]
    pub terms_agreed: Spanned<bool>,
    /// URL of the CA's directory. That of Let's Encrypt for tries is `https://acme-staging-v02.api.letsencrypt.org/directory`.
    #[schemars(transform = shape::allowed("an https URL"), extend("default" = LETS_ENCRYPT))]
    pub directory: Option<Spanned<String>>,
    /// Address that the CA may write to.
    #[schemars(transform = shape::allowed("an e-mail address"), transform = shape::absent("none"))]
    pub email: Option<Spanned<String>>,
    /// How the CA finds proof that a domain leads to the cluster: by a handshake at port 443, or by a request at port 80, which a
    /// service there has to redirect to https.
    #[schemars(transform = shape::one_of(Challenge::ALL.map(Challenge::name)))]
    #[schemars(extend("default" = Challenge::default().name()))]
    pub challenge: Option<Spanned<String>>,
    /// Kind of certificates, by the CA's name for it, such as `"shortlived"`.
    #[schemars(transform = shape::allowed("letters, digits, `-`, `_` and `.`"), transform = shape::absent("the CA decides"))]
    pub profile: Option<Spanned<String>>,
    /// Path of the certification authorities that the CA's own certificate leads to, in PEM; for a CA that nobody else trusts. A
    /// relative one begins at the directory of `cluster.toml`.
    #[schemars(transform = shape::absent("those that the node's machine trusts"))]
    pub ca: Option<Spanned<String>>,
    /// Id of the key by which the account is bound to one that you have with the CA (external account binding, RFC 8555 section
    /// 7.3.4), if the CA demands that.
    #[schemars(transform = shape::absent("none"))]
    pub external_account_id: Option<Spanned<String>>,
    /// Path of the file with that key in base64url, as the CA hands it out; on the node that orders. A relative one begins at the
    /// directory of `cluster.toml`.
    #[schemars(transform = shape::absent("none"))]
    pub external_account_key: Option<Spanned<String>>,
}

/// Who resolves the names in `nodes_from`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dns {
    /// Name servers.
    #[schemars(transform = shape::allowed("an address, with the port if that is not 53, or a list of them"))]
    #[schemars(transform = shape::absent("those in `/etc/resolv.conf`"))]
    pub servers: Option<Spanned<Texts>>,
    /// How long an address stays a node that answers have no longer. For names of which each answer has only some addresses.
    #[schemars(transform = shape::time(dns::HOLD))]
    #[schemars(extend("default" = time(crate::Dns::default().hold)))]
    pub hold: Option<Spanned<String>>,
}

/// What serves requests: a machine, or one of several servers on it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    /// What pools call it.
    #[schemars(transform = shape::name)]
    pub name: Spanned<String>,
    /// Where handoff packets go. Several nodes may have one address: they are on one machine, with one agent, and have
    /// different servers. `hidden`, `tunnel`, `adoption` and `plain_tcp` are then the same for all of them.
    #[schemars(transform = shape::allowed(
        "an IPv4 or IPv6 address: no VIP, not link-local, loopback, multicast or unspecified"
    ))]
    pub address: Spanned<String>,
    /// Names of pools that it is in, besides those that name it in `nodes`.
    #[serde(default)]
    #[schemars(transform = shape::allowed("each once"), transform = shape::absent("in none but those"))]
    pub pools: Vec<Spanned<String>>,
    /// Share of requests relative to other nodes of a pool; with 0 it gets no new ones.
    #[schemars(transform = shape::number(WEIGHTS), extend("default" = DEFAULT_WEIGHT))]
    pub weight: Option<Spanned<i64>>,
    /// Where it is, such as a rack or a data centre. A switch prefers nodes of its own zone, which `--zone` tells it.
    #[schemars(transform = shape::name, transform = shape::absent("in no zone"))]
    pub zone: Option<Spanned<String>>,
    /// Whether it gets no new requests, whatever its weight, and finishes those that it has.
    #[serde(default)]
    pub drain: bool,
    /// Whether it answers nobody but switches with the cluster key, by the interface that its agent is told, neither on open
    /// nor on closed ports nor to a ping. What it has begun itself goes on.
    #[serde(default)]
    pub hidden: bool,
    /// Whether its network drops packets whose source is no address of it, so that what servers send to clients of
    /// `[[client]]` goes in a tunnel; those need the shim.
    #[schemars(extend("default" = false))]
    pub tunnel: Option<Spanned<bool>>,
    /// Where its servers listen. Those of services without TLS listen for a VIP of the other IP version at the VIP itself; where the
    /// machine ends TLS, the first is for all VIPs, unless `[service.tls]` has a `server`.
    #[schemars(transform = shape::allowed(
        "an address of the machine, also a loopback address, or one that it reaches by another interface, such as a \
         container's, with a port; or a list of two, one of each IP version"
    ))]
    #[schemars(transform = shape::absent("at the VIP, on its port"))]
    pub server: Option<Spanned<Texts>>,
    /// How its servers get the connections that it adopts. `"kernel"`: the kernel makes the socket, which takes Linux 6.9 and a
    /// listener without MPTCP. `"replay"`: the node replays the handshake with the listener, and translates sequence numbers
    /// and timestamps in both directions. `"auto"`: by the kernel where that is possible, else by replay.
    #[schemars(transform = shape::one_of(Adoption::ALL.map(Adoption::name)))]
    #[schemars(extend("default" = Adoption::Auto.name()))]
    pub adoption: Option<Spanned<String>>,
    /// Whether new sockets for MPTCP become sockets for TCP on this machine, so that the kernel can make their connections.
    /// Containers with a network namespace of their own are left alone. Takes Linux 6.6 and a restart of the agent; servers
    /// that listen already keep their sockets.
    #[serde(default)]
    pub plain_tcp: bool,
}

/// Nodes that serve the same requests, and how one of them is chosen.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// What routes call it. Reports name a pool by a hash of its name (32-bit FNV-1a), so no two names may share one.
    #[schemars(transform = shape::name)]
    pub name: Spanned<String>,
    /// Names of its nodes, besides those that name it in `pools`. A node may be in several pools. If every node has weight 0 or
    /// drains, requests are answered 503.
    #[schemars(transform = shape::allowed("at least one, each once"))]
    #[schemars(transform = shape::absent("the nodes that name it in `pools`, of which there may be none"))]
    pub nodes: Option<Spanned<Vec<Spanned<String>>>>,
    /// A name whose addresses are nodes of the pool, besides those in `nodes`. See [names](names.md).
    #[schemars(transform = shape::allowed(
        "`\"dns:app.example.com\"`, or with the port of the servers, if that is not the VIP's, `\"dns:app.example.com:8080\"`"
    ))]
    #[schemars(transform = shape::absent("none"))]
    pub nodes_from: Option<Spanned<String>>,
    /// How a node is chosen.
    #[schemars(transform = shape::one_of(PolicyKind::ALL.map(PolicyKind::name)))]
    pub policy: Spanned<String>,
    /// Whether a keep-alive connection stays with its node as long as that may have requests of the pool, or a node is
    /// chosen anew for each request.
    #[schemars(transform = shape::one_of(Balance::ALL.map(Balance::name)))]
    #[schemars(transform = shape::absent("`\"connection\"`; `\"request\"` with `hash` by path, header or cookie"))]
    pub balance: Option<Spanned<String>>,
    /// What requests have in common that go to the same node; only with policy `hash`.
    #[schemars(transform = shape::allowed(HASH_KEYS), extend("default" = HashKey::Client.to_string()))]
    pub hash: Option<Spanned<String>>,
    /// How long the share of a node that has come up takes to grow to what its weight says.
    #[schemars(transform = shape::time(pool::SLOW_START), extend("default" = time(Duration::ZERO)))]
    pub slow_start: Option<Spanned<String>>,
    /// Share of its accept queue up to which a node takes over connections; beyond it the node sends the request back to the
    /// switch. `"off"`: it does not look at the queue, which the policies `fill` and `accept-queue` do not allow.
    #[schemars(transform = shape::percent(pool::QUEUE_LIMIT, Some(pool::QUEUE_LIMIT_OFF)))]
    #[schemars(extend("default" = format!("{}%", pool::DEFAULT_QUEUE_LIMIT)))]
    pub queue_limit: Option<Spanned<String>>,
    /// Whether a node that cannot take a connection over passes it on to another node, which the switch has named, instead
    /// of sending it back. Saves a round trip when accept queues are full; for requests of one packet of at most 1,000 bytes.
    #[serde(default)]
    pub second_candidate: bool,
    /// What a switch that is itself a node of the pool gives to the other nodes; only if a `[[switch]]` has the name of one
    /// of the nodes.
    #[schemars(transform = shape::absent("the policy chooses among all nodes"))]
    pub delegate: Option<Spanned<Delegate>>,
    /// Whether another node goes on with a response whose node dies, on the same connection: `"range"`, if all nodes of the
    /// pool serve the same bytes under the same `ETag` or `Last-Modified`; `"repeat"`, if all of them answer the same request
    /// with the same bytes. See [resuming](resuming.md).
    #[schemars(transform = shape::one_of(Resume::ALL.map(Resume::name)))]
    #[schemars(extend("default" = Resume::Off.name()))]
    pub resume: Option<Spanned<String>>,
    /// What nodes speak to the servers of a service whose TLS they end: HTTP/1.1, or HTTP/2 without TLS and with prior knowledge,
    /// which gRPC needs. Not with `resume`. In a service without TLS servers get what clients speak; for HTTP/2 see `h2c` of
    /// its routes.
    #[schemars(transform = shape::one_of(ServerProtocol::ALL.map(ServerProtocol::name)))]
    #[schemars(extend("default" = ServerProtocol::default().name()))]
    pub protocol: Option<Spanned<String>>,
    pub health: Option<Health>,
    pub outliers: Option<Spanned<Outliers>>,
    pub persistence: Option<Persistence>,
    /// Status of the answer to requests while the pool has no node. They do not wait for one.
    #[schemars(transform = shape::one_of(pool::EMPTY_STATUSES))]
    #[schemars(extend("default" = pool::EMPTY_STATUSES[0]))]
    pub empty_status: Option<Spanned<i64>>,
}

impl Pool {
    /// Whether it has just one node, and no others can join it without a line in the file.
    pub(crate) fn has_one_node(&self) -> bool {
        self.nodes_from.is_none() && self.nodes.as_ref().is_some_and(|nodes| nodes.get_ref().len() == 1)
    }
}

/// How each node checks its server, besides looking whether there is one. Without the table it does not, unless only a connection can
/// tell whether there is one: to a server in a container, or behind TLS without `server` in `[service.tls]`. Without `path`, a
/// server that accepts a connection is healthy. Of a service with TLS it checks the server behind it, without TLS, in
/// the `protocol` of the pool.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Health {
    /// What a GET request asks for.
    #[schemars(transform = shape::allowed(
        "begins with `/`, may have a query; letters, digits and `-._~!$&'()*+,;=:@%/?`"
    ))]
    #[schemars(transform = shape::absent("no request"))]
    pub path: Option<Spanned<String>>,
    /// `Host` of the request; only with `path`.
    #[schemars(transform = shape::allowed(ONE_HOST), transform = shape::absent("the VIP"))]
    pub host: Option<Spanned<String>>,
    /// A service that the server has to call `SERVING` (`grpc.health.v1.Health/Check`); `""` stands for the server as a whole. Only
    /// with `protocol = "h2c"`, and without `path`.
    #[schemars(transform = shape::allowed("the name of a service of gRPC, at most 255 visible ASCII characters, or `\"\"`"))]
    #[schemars(transform = shape::absent("no call"))]
    pub grpc: Option<Spanned<String>>,
    /// Statuses of a healthy node, one or a list; only with `path`.
    #[schemars(transform = shape::allowed(format!(
        "a status from {} to {}, or a range such as `\"200-299\"`",
        health::STATUSES.start(),
        health::STATUSES.end()
    )))]
    #[schemars(extend("default" = health::shown(&health::DEFAULT_STATUS)))]
    pub status: Option<Spanned<Texts>>,
    /// From one check to the next. Less than the default of `timeout` needs a `timeout` beside it.
    #[schemars(transform = shape::time(health::INTERVAL))]
    #[schemars(extend("default" = time(crate::Health::default().interval)))]
    pub interval: Option<Spanned<String>>,
    /// How long a check may take, at most `interval`; after that it has failed.
    #[schemars(transform = shape::time(health::TIMEOUT))]
    #[schemars(extend("default" = time(crate::Health::default().timeout)))]
    pub timeout: Option<Spanned<String>>,
    /// So many good checks in a row make a node healthy.
    #[schemars(transform = shape::number(health::TIMES), extend("default" = crate::Health::default().rise))]
    pub rise: Option<Spanned<i64>>,
    /// So many failed checks in a row make it unhealthy.
    #[schemars(transform = shape::number(health::TIMES), extend("default" = crate::Health::default().fall))]
    pub fall: Option<Spanned<i64>>,
}

/// When a node is ejected because its server fails requests: answers with a status from 500 to 599, or where nodes end TLS, not
/// at all. It gets no requests then if another node can. Without the table none is ejected; a table without keys has the
/// defaults. The pool has at least two nodes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outliers {
    /// So many failures in a row eject a node. After an ejection the first failure does it.
    #[schemars(transform = shape::number(outliers::FAILURES))]
    #[schemars(extend("default" = crate::Outliers::default().terms.failures))]
    pub failures: Option<Spanned<i64>>,
    /// How long. Each ejection is twice as long as the one before, until the node has served for as long as it was ejected.
    #[schemars(transform = shape::time(outliers::TIME))]
    #[schemars(extend("default" = time(crate::Outliers::default().terms.time)))]
    pub time: Option<Spanned<String>>,
    /// How long at most; at least `time`.
    #[schemars(transform = shape::time(outliers::TIME))]
    #[schemars(extend("default" = time(crate::Outliers::default().terms.max_time)))]
    pub max_time: Option<Spanned<String>>,
    /// Share of the pool's nodes that may be ejected at the same time; at least one node, and never all of them.
    #[schemars(transform = shape::percent(outliers::SHARE, None))]
    #[schemars(extend("default" = format!("{}%", crate::Outliers::default().max_share)))]
    pub max_share: Option<Spanned<String>>,
}

/// How the requests of one session find the same node. Without the table each goes by the policy. A key of another mode is a
/// mistake.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Persistence {
    /// How a request finds the node of its session.
    #[schemars(transform = shape::one_of(Mode::ALL.map(Mode::name)))]
    pub mode: Spanned<String>,
    /// Mode `rewrite`, required: name of the cookie that the servers set, not beginning with `SB`, `__Host-` or `__Secure-`.
    /// Mode `insert`: name of the added cookie, required if the name of the pool is too long for the default.
    #[schemars(transform = shape::allowed(format!(
        "{} to {} characters of a token (RFC 9110 section 5.6.2); with `insert` {} to {}",
        persistence::REWRITTEN_NAME.start(),
        persistence::REWRITTEN_NAME.end(),
        persistence::INSERTED_NAME.start(),
        persistence::INSERTED_NAME.end()
    )))]
    #[schemars(transform = shape::absent(format!(
        "with `insert` `\"{}-\"` and the name of the pool",
        persistence::MARK
    )))]
    pub cookie: Option<Spanned<String>>,
    /// Mode `hash`, required: the key.
    #[schemars(transform = shape::allowed(HASH_KEYS), transform = shape::absent(""))]
    pub hash: Option<Spanned<String>>,
    /// What happens to a request whose node is down or draining: it goes to another node, or is answered 503.
    #[schemars(transform = shape::one_of(persistence::sticky_names()))]
    #[schemars(extend("default" = persistence::STICKY[0].0))]
    pub sticky: Option<Spanned<String>>,
    /// Mode `insert`: paths with which browsers send the cookie.
    #[schemars(transform = shape::allowed(format!(
        "begins with `/`; at most {} visible ASCII characters without `;`",
        persistence::MAX_PATH
    )))]
    #[schemars(extend("default" = persistence::DEFAULT_PATH))]
    pub path: Option<Spanned<String>>,
    /// Mode `insert`: for which host, and for all names below it, browsers send the cookie.
    #[schemars(transform = shape::allowed("a host name, no address, no dot before it"))]
    #[schemars(transform = shape::absent("the host that the client asked"))]
    pub domain: Option<Spanned<String>>,
    /// Mode `insert`: whether browsers send the cookie over TLS only.
    #[schemars(extend("default" = false))]
    pub secure: Option<Spanned<bool>>,
    /// Mode `insert`: whether it is kept from scripts.
    #[schemars(extend("default" = true))]
    pub http_only: Option<Spanned<bool>>,
    /// Mode `insert`: whether requests that other sites cause have the cookie; `"none"` only with `secure = true`.
    #[schemars(transform = shape::one_of(SameSite::ALL.map(SameSite::name)))]
    #[schemars(transform = shape::absent("the browser decides"))]
    pub same_site: Option<Spanned<String>>,
    /// Mode `insert`: how long browsers keep the cookie, in whole seconds.
    #[schemars(transform = shape::time(persistence::MAX_AGE))]
    #[schemars(transform = shape::absent("until the browser ends"))]
    pub max_age: Option<Spanned<String>>,
}

/// What clients connect to. The server on a node listens on the same port as the VIP, or where the node's `server` says; of a
/// service whose TLS the nodes end, where `[service.tls]` says.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Service {
    /// What switches, metrics and the access log call it.
    #[schemars(transform = shape::name)]
    pub name: Spanned<String>,
    /// The VIPs.
    #[schemars(transform = shape::allowed(format!(
        "addresses with a port, at least one; no address twice, none a node's; at most {MAX_LISTEN} in all services"
    )))]
    pub listen: Spanned<Vec<Spanned<String>>>,
    pub tls: Option<Tls>,
    pub clients: Option<Clients>,
    pub limit: Option<ServiceLimits>,
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub route: Vec<Spanned<Route>>,
}

/// Which clients may use the service. The longest network that has a client's address decides; of a network that stands in both
/// lists `deny`. A switch drops packets by which other clients would begin a connection or a first request, and answers
/// further requests 403.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clients {
    /// Clients that are let in. With this key all others are not.
    #[schemars(transform = shape::allowed(NETWORKS), transform = shape::absent("all"))]
    pub allow: Option<Spanned<Texts>>,
    /// Clients that are not let in.
    #[schemars(transform = shape::allowed(NETWORKS), transform = shape::absent("none"))]
    pub deny: Option<Spanned<Texts>>,
}

/// How often clients may connect to the service and ask it. Each switch counts for itself; of a service whose TLS the nodes
/// end, each node counts the requests that it decrypts.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceLimits {
    /// Length of the prefix whose addresses count as one client, for IPv4.
    #[schemars(transform = shape::number(rate::PREFIX_V4), extend("default" = rate::DEFAULT_PREFIXES.0))]
    pub ipv4_prefix: Option<Spanned<i64>>,
    /// The same for IPv6.
    #[schemars(transform = shape::number(rate::PREFIX_V6), extend("default" = rate::DEFAULT_PREFIXES.1))]
    pub ipv6_prefix: Option<Spanned<i64>>,
    /// What each client may do.
    pub client: Option<Limited>,
    /// What all clients together may do.
    pub all: Option<Limited>,
}

/// Limits of connections and requests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limited {
    /// New connections: of clients over it, a switch drops SYNs and first data, which clients send again.
    pub connections: Option<Rate>,
    /// Connections at a time, from their first data to their end: over it, a switch drops SYNs and first data, too.
    #[schemars(transform = shape::number(rate::CONCURRENT), transform = shape::absent("any number"))]
    pub concurrent: Option<Spanned<i64>>,
    /// Requests, whatever comes of them.
    pub requests: Option<Rate>,
}

/// A token bucket.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    /// Most in a `period`.
    #[schemars(transform = shape::number(rate::EVENTS))]
    pub rate: Spanned<i64>,
    /// The time of `rate`.
    #[schemars(transform = shape::time(rate::PERIOD), extend("default" = time(rate::DEFAULT_PERIOD)))]
    pub period: Option<Spanned<String>>,
    /// Most at once.
    #[schemars(transform = shape::number(rate::EVENTS), transform = shape::absent("`rate`"))]
    pub burst: Option<Spanned<i64>>,
    /// What becomes of a request over the limit, not of a connection: it is answered 429 with `Retry-After`, or waits for its
    /// turn for at most `wait_timeout`.
    #[schemars(transform = shape::one_of(Over::ALL.map(Over::name)))]
    #[schemars(extend("default" = Over::default().name()))]
    pub over: Option<Spanned<String>>,
}

/// Limits of requests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteLimits {
    /// Requests of each client, as `[service.limit]` tells clients apart.
    pub client: Option<Rate>,
    /// Requests of all clients together.
    pub all: Option<Rate>,
}

/// Clients speak TLS to the service. The nodes end it: each decrypts requests for servers beside it, which speak the `protocol`
/// of its pool; or, with `passthrough`, the servers themselves do. Switches cannot read these requests, so a pool of such a service has no `delegate`, no `balance = "request"`, and `hash`
/// and `persistence` only by `"client"`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// Whether the servers end TLS themselves, with certificates of their own. A switch chooses the route by the server name and
    /// the protocols in the ClientHello: routes have no conditions but `host`, `client` and `alpn`, and no `redirect`; their pools have
    /// neither `resume` nor `outliers`, and no `path` in `[pool.health]`. No other key of this table goes with it.
    #[schemars(extend("default" = false))]
    pub passthrough: Option<Spanned<bool>>,
    /// Where the server listens that gets the requests of a machine, of which one node may be in the service's pools then. Without
    /// it each node's requests go to the `server` in its `[[node]]`, and a machine may have many.
    #[schemars(transform = shape::absent("at the first `server` of each node"))]
    #[schemars(transform = shape::allowed(
        "`\"127.0.0.1:8080\"`, `\"[::1]:8080\"` or another loopback address with a port; `\"unix:/run/app.sock\"`, an absolute \
         path"
    ))]
    pub server: Option<Spanned<String>>,
    /// Where connections go: to any node, by the pool's policy; to the node with which the client has a session that it would
    /// resume; or likewise, and a node that is busy hands requests over to one that is not.
    #[schemars(transform = shape::one_of(Model::ALL.map(Model::name)))]
    #[schemars(extend("default" = Model::default().name()))]
    pub sessions: Option<Spanned<String>>,
    /// How a busy node hands over: the whole connection goes on at the other node, or the other node makes and encrypts the
    /// response, which comes back through the busy one; only with `sessions = "forwarding"`.
    #[schemars(transform = shape::one_of(HandOver::ALL.map(HandOver::name)))]
    #[schemars(extend("default" = HandOver::default().name()))]
    pub hand_over: Option<Spanned<String>>,
    /// Who can resume a session: the node with which it began, or every node.
    #[schemars(transform = shape::one_of(TicketScope::ALL.map(TicketScope::name)))]
    #[schemars(extend("default" = TicketScope::default().name()))]
    pub tickets: Option<Spanned<String>>,
    /// What nodes speak above TLS, the preferred first. A client that does not say what it speaks gets HTTP/1.1.
    #[schemars(transform = shape::allowed(format!(
        "{}; at least one, each once",
        Protocol::ALL.map(|protocol| format!("`\"{protocol}\"`")).join(", ")
    )))]
    #[schemars(extend("default" = tls::DEFAULT_PROTOCOLS.map(Protocol::name)))]
    pub protocols: Option<Spanned<Vec<Spanned<String>>>>,
    /// Oldest version of TLS that nodes speak.
    #[schemars(transform = shape::one_of(TlsVersion::ALL.map(TlsVersion::name)))]
    #[schemars(extend("default" = TlsVersion::default().name()))]
    pub min_version: Option<Spanned<String>>,
    /// How the server learns who the client is: by `X-Forwarded-For` and its like, by `Forwarded` (RFC 7239), by a PROXY
    /// protocol header (version 2) before the first request of each connection, or not at all.
    #[schemars(transform = shape::one_of(ClientAddress::ALL.map(ClientAddress::name)))]
    #[schemars(extend("default" = ClientAddress::default().name()))]
    pub client_address: Option<Spanned<String>>,
    /// With more connections than this a node is busy; only with `sessions = "forwarding"`.
    #[schemars(transform = shape::number(tls::BUSY_CONNECTIONS))]
    #[schemars(extend("default" = tls::DEFAULT_BUSY_CONNECTIONS))]
    pub busy_connections: Option<Spanned<i64>>,
    /// Above this share of its CPU time a node is busy; only with `sessions = "forwarding"`.
    #[schemars(transform = shape::percent(tls::BUSY_CPU, None))]
    #[schemars(extend("default" = format!("{}%", tls::DEFAULT_BUSY_CPU)))]
    pub busy_cpu: Option<Spanned<String>>,
    /// Lets the kernel of a node encrypt long downloads, where it can (kTLS). Not with `hand_over = "relay"`: what another
    /// node has encrypted passes no kernel that encrypts. Nor with a pool that has `resume`: other nodes have to know what goes
    /// out.
    #[schemars(transform = shape::absent("`true`, but with `hand_over = \"relay\"`, or a pool with `resume`, `false`"))]
    pub ktls: Option<Spanned<bool>>,
    pub client_certificates: Option<ClientCertificates>,
    #[serde(default)]
    #[schemars(with = "Vec<Certificate>", length(min = 1))]
    pub certificate: Vec<Spanned<Certificate>>,
}

/// The certificates that clients show (mTLS). The server learns of a client's certificate by header fields, which it
/// can believe: what clients send under these names is removed. Relative paths begin at the directory of `cluster.toml`. Only
/// nodes read the files.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientCertificates {
    /// Whether a client has to have a certificate. A certificate that is not accepted ends the handshake in both modes.
    #[schemars(transform = shape::one_of(ClientAuth::ALL.map(ClientAuth::name)))]
    #[schemars(extend("default" = ClientAuth::default().name()))]
    pub mode: Option<Spanned<String>>,
    /// Path of the certification authorities that clients' certificates lead to, in PEM.
    pub ca: Spanned<String>,
    /// Path of certificate revocation lists, in PEM: one of each authority that has issued a certificate on the way from a
    /// client to `ca`. A certificate whose issuer has none is refused.
    #[schemars(transform = shape::absent("no certificate is revoked"))]
    pub crl: Option<Spanned<String>>,
}

/// A certificate for the names in it; the first one is for all other names, too. It is in files, or the CA of `[acme]` issues
/// it. Relative paths begin at the directory of `cluster.toml`. Only nodes read the files.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificate {
    /// Domains of a certificate that the CA of `[acme]` issues, and nodes renew. It is known by the first of them.
    #[schemars(transform = shape::allowed(format!(
        "1 to {DOMAINS_MAX} host names, each once; no wildcards, no addresses"
    )))]
    #[schemars(transform = shape::absent("the certificate is in files"))]
    pub domains: Option<Spanned<Vec<Spanned<String>>>>,
    /// Path of the certificate and those that lead to its root, in PEM.
    #[schemars(transform = shape::absent("required without `domains`"))]
    pub chain: Option<Spanned<String>>,
    /// Path of its private key, in PEM. Can be the same file.
    #[schemars(transform = shape::absent("required without `domains`"))]
    pub key: Option<Spanned<String>>,
    /// Path of an OCSP response, in DER, for clients that want one.
    #[schemars(transform = shape::absent("none is sent"))]
    pub staple: Option<Spanned<String>>,
}

/// Which requests go where. The first route that matches takes the request; all its conditions must hold. A request that none
/// takes is answered 404. A route after one without conditions is a mistake, because it could never match.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// The host that the request names, without port, in any case; one or a list.
    #[schemars(transform = shape::allowed(HOSTS), transform = shape::absent("any"))]
    pub host: Option<Spanned<Texts>>,
    /// A prefix of the request's path, compared in normal form: `/img` takes `/images` too, and `/x/../%69mg`.
    #[schemars(transform = shape::allowed(PATHS), transform = shape::absent("any"))]
    pub path: Option<Spanned<String>>,
    /// The whole path, compared in normal form. Only one of `path`, `path_exact` and `path_regex`.
    #[schemars(transform = shape::allowed("as `path`"), transform = shape::absent("any"))]
    pub path_exact: Option<Spanned<String>>,
    /// A regular expression that the whole path matches, in normal form.
    #[schemars(transform = shape::allowed(REGEX), transform = shape::absent("any"))]
    pub path_regex: Option<Spanned<String>>,
    /// One method or a list; upper and lower case differ.
    #[schemars(transform = shape::allowed(METHODS), transform = shape::absent("any"))]
    pub method: Option<Spanned<Texts>>,
    /// What the client and the node have agreed to speak above TLS, one or a list; only in a service with TLS. A client that
    /// does not say what it speaks gets HTTP/1.1.
    #[schemars(transform = shape::allowed(format!(
        "{}; of these the service's `protocols`",
        Protocol::ALL.map(|protocol| format!("`\"{protocol}\"`")).join(", ")
    )))]
    #[schemars(transform = shape::absent("any"))]
    pub alpn: Option<Spanned<Texts>>,
    /// Networks of clients, by the address that the cluster sees; one or a list.
    #[schemars(transform = shape::allowed(NETWORKS), transform = shape::absent("any"))]
    pub client: Option<Spanned<Texts>>,
    /// Header fields, all of which the request must have; one table or a list.
    pub header: Option<Spanned<OneOrMany<Field>>>,
    /// Parameters of the query, all of which the request must have; one table or a list. They are compared as forms write
    /// them: `%41` is `A`, and `+` a blank.
    pub query: Option<Spanned<OneOrMany<Field>>>,
    /// What the route does not take; one table or a list, with the keys of a route's conditions. The route does not take
    /// requests for which everything in one of these tables holds.
    pub not: Option<Spanned<OneOrMany<Conditions>>>,
    /// Whether clients may speak HTTP/2 to the pool without TLS: with prior knowledge, which only a route without `host`,
    /// `path`, `header` and `query` takes, or after `Upgrade: h2c`. Such a connection stays with its node, and no request in
    /// it is read by the switch.
    #[schemars(transform = shape::absent("`false`"))]
    pub h2c: Option<Spanned<bool>>,
    /// Name of the pool one of whose nodes answers. Each route has one of `pool`, `split`, `redirect` and `respond`.
    #[schemars(transform = shape::absent(""))]
    pub pool: Option<Spanned<String>>,
    /// Pools that share the requests by weight.
    pub split: Option<Spanned<Vec<Share>>>,
    /// What requests to the same pool of `split` have in common. Requests that lack it are shared out one by one.
    #[schemars(transform = shape::allowed(HASH_KEYS), transform = shape::absent("a pool is chosen for each request"))]
    pub split_by: Option<Spanned<String>>,
    /// Name of a pool that gets copies of the requests, as its own servers would get them, with `X-Mirrored: 1`. Its answers are
    /// thrown away. Copied is what has come whole, with its body, when its own node is chosen; of HTTP/2 what has no body. Not
    /// with `passthrough`.
    #[schemars(transform = shape::absent("none"))]
    pub mirror: Option<Spanned<String>>,
    /// The part of the requests that is copied.
    #[schemars(transform = shape::allowed("`\"0.01%\"` to `\"100%\"`"), extend("default" = "100%"))]
    pub mirror_share: Option<Spanned<String>>,
    pub rewrite: Option<Spanned<Rewrite>>,
    pub request_header: Option<Spanned<RequestHeader>>,
    pub redirect: Option<Spanned<Redirect>>,
    /// Status of an answer that no server is asked for.
    #[schemars(transform = shape::one_of(syntax::RESPOND_STATUSES), transform = shape::absent(""))]
    pub respond: Option<Spanned<i64>>,
    pub limit: Option<RouteLimits>,
}

impl Route {
    /// The names of its pools.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Spanned<String>> {
        let shares = self.split.iter().flat_map(|split| split.get_ref());
        self.pool.iter().chain(shares.map(|share| &share.pool))
    }
}

/// A pool that gets a part of a route's requests; at least two.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    /// Name of the pool.
    pub pool: Spanned<String>,
    /// Its weight. The part is the weight divided by the sum of all.
    #[schemars(transform = shape::number(SHARES))]
    pub weight: Spanned<i64>,
}

/// What the server gets instead of the URL that the client has sent; the query stays. Not with `passthrough` or `h2c`. Routes
/// compare what the client has sent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rewrite {
    /// Value of `Host`.
    #[schemars(transform = shape::allowed(ONE_HOST), transform = shape::absent("the request's"))]
    pub host: Option<Spanned<String>>,
    /// Takes the place of the whole path.
    #[schemars(transform = shape::allowed(SERVER_PATH), transform = shape::absent("the request's"))]
    pub path: Option<Spanned<String>>,
    /// Takes the place of the route's `path` at the beginning of the request's, whose tail stays; without such a condition it
    /// stands before the path.
    #[schemars(transform = shape::allowed(SERVER_PATH), transform = shape::absent("the request's"))]
    pub prefix: Option<Spanned<String>>,
}

/// Header fields that the server gets instead of those that the client has sent. Not with `passthrough` or `h2c`. Names are
/// compared without regard to case, and `_` is the same as `-`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestHeader {
    /// Fields that take the place of all with the same name; one table or a list.
    pub set: Option<Spanned<OneOrMany<NewField>>>,
    /// Fields that stand behind all others; one table or a list.
    pub add: Option<Spanned<OneOrMany<NewField>>>,
    /// Names of fields that are left out, one or a list.
    #[schemars(transform = shape::allowed(FIELD_NAMES), transform = shape::absent("none"))]
    pub remove: Option<Spanned<Texts>>,
}

/// A header field that a route writes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewField {
    /// The name, as it is sent.
    #[schemars(transform = shape::allowed(FIELD_NAMES))]
    pub name: Spanned<String>,
    /// The value.
    #[schemars(transform = shape::allowed("visible ASCII and blanks, none of these around it"))]
    pub value: Spanned<String>,
}

/// Where the client is sent instead, by an answer of the switch with a `Location` that is put together from these parts and
/// from the request. At least one key is needed; the query is always kept.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Redirect {
    /// Scheme of the URL.
    #[schemars(transform = shape::one_of(Scheme::ALL.map(Scheme::name)))]
    #[schemars(transform = shape::absent("the request's"))]
    pub scheme: Option<Spanned<String>>,
    /// Host of the URL.
    #[schemars(transform = shape::allowed(ONE_HOST), transform = shape::absent("the request's"))]
    pub host: Option<Spanned<String>>,
    /// Port of the URL.
    #[schemars(transform = shape::number(redirect::PORTS))]
    #[schemars(transform = shape::absent("with `scheme` its default, 80 or 443; otherwise the VIP's"))]
    pub port: Option<Spanned<i64>>,
    /// Takes the place of the whole path.
    #[schemars(transform = shape::allowed(URL_PATH), transform = shape::absent("the request's"))]
    pub path: Option<Spanned<String>>,
    /// Takes the place of the route's `path` at the beginning of the request's, whose tail stays; without such a condition it
    /// stands before the path.
    #[schemars(transform = shape::allowed(URL_PATH), transform = shape::absent("the request's"))]
    pub prefix: Option<Spanned<String>>,
    /// Status of the answer. A client keeps its method with 307 and 308.
    #[schemars(transform = shape::one_of(syntax::REDIRECT_STATUSES))]
    #[schemars(extend("default" = redirect::DEFAULT_STATUS))]
    pub status: Option<Spanned<i64>>,
}

/// Conditions, all of which must hold; at least one is needed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Conditions {
    /// As in the route.
    #[schemars(transform = shape::allowed(HOSTS), transform = shape::absent("any"))]
    pub host: Option<Spanned<Texts>>,
    /// As in the route.
    #[schemars(transform = shape::allowed(PATHS), transform = shape::absent("any"))]
    pub path: Option<Spanned<String>>,
    /// As in the route.
    #[schemars(transform = shape::allowed("as `path`"), transform = shape::absent("any"))]
    pub path_exact: Option<Spanned<String>>,
    /// As in the route.
    #[schemars(transform = shape::allowed(REGEX), transform = shape::absent("any"))]
    pub path_regex: Option<Spanned<String>>,
    /// As in the route.
    #[schemars(transform = shape::allowed(METHODS), transform = shape::absent("any"))]
    pub method: Option<Spanned<Texts>>,
    /// As in the route.
    #[schemars(transform = shape::allowed(NETWORKS), transform = shape::absent("any"))]
    pub client: Option<Spanned<Texts>>,
    /// As in the route.
    pub header: Option<Spanned<OneOrMany<Field>>>,
    /// As in the route.
    pub query: Option<Spanned<OneOrMany<Field>>>,
}

/// A header field or a query parameter, of which the first one counts. Only one of `value`, `regex` and `absent`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Field {
    /// The name; of a header field in any case.
    #[schemars(transform = shape::allowed("of a header field: a token (RFC 9110 section 5.6.2)"))]
    pub name: Spanned<String>,
    /// The value, byte for byte.
    #[schemars(transform = shape::allowed("no control characters; in a header field no blanks around it"))]
    #[schemars(transform = shape::absent("any"))]
    pub value: Option<Spanned<String>>,
    /// A regular expression that the whole value matches.
    #[schemars(transform = shape::allowed(REGEX), transform = shape::absent("any"))]
    pub regex: Option<Spanned<String>>,
    /// Whether the request must not have it.
    #[schemars(transform = shape::absent("`false`"))]
    pub absent: Option<Spanned<bool>>,
}

/// A machine that takes what clients send. Without any, the file does not say which machines are switches; with at least one,
/// every service has to be served by one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Switch {
    /// What it is told by `--name`. May be the name of a node: that machine is both, switch and node.
    #[schemars(transform = shape::name)]
    pub name: Spanned<String>,
    /// Names of the services that it serves.
    #[schemars(transform = shape::allowed("at least one, each once"))]
    #[schemars(transform = shape::absent("all services"))]
    pub services: Option<Spanned<Vec<Spanned<String>>>>,
}

/// A network of clients that may run the shim: nodes introduce themselves to the clients in it, and take what these send
/// directly.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    /// As the cluster sees the clients.
    #[schemars(transform = shape::allowed(
        "an address with the length of a prefix; no bits behind the prefix, each network once"
    ))]
    pub network: Spanned<String>,
}

/// Networks with a name, for `client` of routes and `[service.clients]`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkList {
    /// Its name.
    #[schemars(transform = shape::name)]
    pub name: Spanned<String>,
    /// Networks.
    #[schemars(transform = shape::allowed("networks such as `\"198.51.100.0/24\"`, and addresses"))]
    #[schemars(transform = shape::absent("none"))]
    pub list: Option<Spanned<Texts>>,
    /// A file with more of them, one in each line; `#` or `;` begins a comment. It is on every machine, and read again by
    /// every reload. A relative path begins at the directory of `cluster.toml`.
    #[schemars(transform = shape::allowed("path of a file"), transform = shape::absent("none"))]
    pub file: Option<Spanned<String>>,
}
