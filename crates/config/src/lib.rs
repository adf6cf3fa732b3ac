//! `cluster.toml`, read and checked: a text becomes a [`Cluster`] in which every name resolves, or a list of
//! everything that is wrong with it.
//!
//! The file is the same on every machine of a cluster, and a mistake in it stops all of them. So reading it
//! has three steps, each in a file of its own: `raw` is the shape of the file as serde sees it, every value
//! with its place in the text; `validate` turns names into indices and collects all mistakes instead of
//! stopping at the first (what a single value may look like is in `syntax`); `key` handles the cluster key,
//! which is kept in a file of its own because `cluster.toml` is shown around and the key must not be.
//!
//! [`parse`] is all of it without touching the disk, [`load`] reads the files.

mod access_log;
mod admin;
mod client;
mod diff;
mod error;
mod health;
mod key;
mod limits;
mod network;
mod persistence;
mod pool;
mod raw;
mod redirect;
mod reference;
mod reports;
mod shape;
mod switch;
mod syntax;
mod tls;
mod validate;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

pub use access_log::{AccessLog, LogFormat, LogTarget};
pub use admin::Admin;
pub use client::{Client, ClientKey, MAX_CLIENT_ADDRESSES, THIN_ACKS, client_key_file_text};
pub use error::{Diagnostic, Error};
pub use health::{Check, Health};
pub use key::{ClusterKey, generate_key, key_file_text, write_key, write_private};
pub use limits::{Caps, Limits, TlsLimits};
pub use network::Network;
pub use persistence::{InsertedCookie, Persistence, PersistenceMode, SameSite};
pub use pool::{Balance, Delegate, HashKey, Pool};
pub use redirect::{Redirect, Scheme};
pub use reference::{reference, schema};
pub use reports::Reports;
pub use switch::Switch;
pub use switchback_policy::PolicyKind;
pub use tls::{Certificate, ClientAddress, HandOver, Model, Protocol, Server, TicketScope, Tls, TlsVersion};

/// The most nodes that a cluster can have.
pub const MAX_NODES: usize = 1024;
/// The most switches that a cluster can have.
pub const MAX_SWITCHES: usize = 64;
/// The most networks of clients that a cluster can have.
pub const MAX_NETWORKS: usize = 256;
/// The most listen addresses that all services can have together.
pub const MAX_LISTEN: usize = 256;
/// The weights that a node can have.
pub const WEIGHTS: std::ops::RangeInclusive<u32> = 0..=1000;

/// A valid `cluster.toml`. Every index in it is in range and every name in it is unique among its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// One key, or two while the key rotates. The first one signs, every one is accepted.
    pub keys: Vec<ClusterKey>,
    /// The nodes' reports to the switches.
    pub reports: Reports,
    /// Limits of clients.
    pub limits: Limits,
    /// The switch's access log; None without one.
    pub access_log: Option<AccessLog>,
    /// The daemons' admin address; None without one.
    pub admin: Option<Admin>,
    /// The nodes, at least one; addresses are unique.
    pub nodes: Vec<Node>,
    /// The pools, in the file's order.
    pub pools: Vec<Pool>,
    /// The services, at least one; no listen address occurs twice.
    pub services: Vec<Service>,
    /// At most [`MAX_SWITCHES`], in the file's order. If it is empty, the file does not say which machines
    /// are switches; otherwise each service is served by at least one of these.
    pub switches: Vec<Switch>,
    /// Clients that may run the shim: nodes introduce themselves to these. At most [`MAX_NETWORKS`], none twice.
    pub clients: Vec<Network>,
}

/// A machine that serves requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// 1 to 63 of `a` to `z`, `0` to `9` and `-`, as all names in the file.
    pub name: String,
    /// Destination of handoff packets.
    pub address: IpAddr,
    /// Its share of requests relative to other nodes, in [`WEIGHTS`]. With 0 it gets no new ones.
    pub weight: u32,
    /// Its location, such as a rack or a data centre; a name as [`Node::name`]. A switch prefers the nodes of its own
    /// zone.
    pub zone: Option<String>,
    /// Whether the node drains: it gets no new requests, whatever its weight, and finishes its open ones.
    pub drain: bool,
    /// Whether nothing on the machine answers at its own addresses on the ports of the services, but what a
    /// switch hands over.
    pub hidden: bool,
    /// Whether its network drops what has the address of a VIP, so that responses to [`Cluster::clients`] go in a
    /// tunnel.
    pub tunnel: bool,
}

/// A service, to which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// As for [`Node::name`].
    pub name: String,
    /// The VIPs; at least one.
    pub listen: Vec<SocketAddr>,
    /// How clients speak TLS to it; None if they do not. Switches cannot read the requests of a service with TLS, so no
    /// pool of its routes needs them to: each has [`Balance::Connection`], and neither a `delegate` nor sessions or a
    /// hash by anything but the client.
    pub tls: Option<Tls>,
    /// The first route that matches a request takes it; at least one. A request that none matches is
    /// answered 404.
    pub routes: Vec<Route>,
}

impl Service {
    /// The scheme of its URLs.
    pub fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::Https } else { Scheme::Http }
    }
}

/// A route: conditions on requests, and an action. All conditions must hold; an absent one always holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Compared with the host that the request names, without its port.
    pub host: Option<HostMatch>,
    /// The request's path in normal form begins with this text, which is in normal form, too
    /// ([`switchback_http::path`]). The prefix `/` in the file is `None` here, because every path has it.
    pub path: Option<String>,
    /// The request's method is one of these; empty stands for any.
    pub methods: Vec<String>,
    /// What the client and the node have agreed to speak above TLS is one of these; empty stands for any, as it is in
    /// every service without TLS. Each is one of [`Tls::protocols`]. A switch compares them with what the client offers
    /// in its ClientHello. A client that offers nothing speaks [`Protocol::Http11`].
    pub alpn: Vec<Protocol>,
    /// A header field that the request must have.
    pub header: Option<HeaderMatch>,
    /// A client that the route takes may go on in HTTP/2 without TLS, of which the switch reads nothing.
    pub h2c: bool,
    /// The action on the request.
    pub action: Action,
}

/// The action of a route on its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A node of this pool answers; an index into [`Cluster::pools`].
    Pool(usize),
    /// The switch redirects the client.
    Redirect(Redirect),
}

impl Route {
    /// Whether the route takes every request.
    pub fn is_catch_all(&self) -> bool {
        let Route { host, path, methods, alpn, header, h2c: _, action: _ } = self;
        host.is_none() && path.is_none() && methods.is_empty() && alpn.is_empty() && header.is_none()
    }
}

/// The hosts of a route. The texts are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// This host only.
    Exact(String),
    /// Every host that ends in this text and is longer than it. It begins with a dot: `*.example.com` in the
    /// file is `.example.com` here, takes `a.example.com` and `a.b.example.com`, but not `example.com`.
    Suffix(String),
}

impl HostMatch {
    /// Whether `host` (without port) matches. Case is ignored, and so is the root's dot at the end of a name.
    pub fn matches(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).as_bytes();
        match self {
            HostMatch::Exact(name) => host.eq_ignore_ascii_case(name.as_bytes()),
            HostMatch::Suffix(suffix) => {
                host.len() > suffix.len()
                    && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
            }
        }
    }
}

impl fmt::Display for HostMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostMatch::Exact(name) => f.write_str(name),
            HostMatch::Suffix(suffix) => write!(f, "*{suffix}"),
        }
    }
}

/// A header field that a request must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// In lower case; the names of header fields are compared without regard to case.
    pub name: String,
    /// The value it must have, byte for byte; without one, any value will do.
    pub value: Option<String>,
}

impl Cluster {
    /// The pools whose sessions go by cookies, in the order of the file. Nodes and switches make the pools' codes for
    /// these, which are to be the same.
    pub fn cookie_pools(&self) -> impl Iterator<Item = &Pool> {
        let is_by_cookie = |persistence: &Persistence| persistence.mode.is_by_cookie();
        self.pools.iter().filter(move |pool| pool.persistence.as_ref().is_some_and(is_by_cookie))
    }

    /// The cluster as one switch has it: with the services that it serves, if the file says so of switches; all of them
    /// without a name where the file names no switch. The error says what names there are.
    pub fn served_by(mut self, name: Option<&str>) -> std::result::Result<Cluster, String> {
        let found = self.switches.iter().find(|switch| Some(switch.name.as_str()) == name);
        let Some(switch) = found else {
            if name.is_none() && self.switches.is_empty() {
                return Ok(self);
            }
            let names: Vec<&str> = self.switches.iter().map(|switch| switch.name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(match name {
                Some(name) => format!("the configuration has no switch {name}, it has {names}"),
                None => format!("the configuration names its switches, this one has to be one of {names}"),
            });
        };
        let mut index = 0;
        self.services.retain(|_| {
            index += 1;
            switch.services.contains(&(index - 1))
        });
        self.switches.clear();
        Ok(self)
    }

    /// One line that says what the cluster consists of: `3 nodes, 2 pools, 1 service, 4 routes`, and
    /// `, 2 switches` behind it if there are any.
    pub fn summary(&self) -> String {
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let switches = match self.switches.len() {
            0 => String::new(),
            1 => ", 1 switch".to_owned(),
            n => format!(", {n} switches"),
        };
        let routes = self.services.iter().map(|service| service.routes.len()).sum();
        [
            count(self.nodes.len(), "node"),
            count(self.pools.len(), "pool"),
            count(self.services.len(), "service"),
            count(routes, "route"),
        ]
        .join(", ")
            + &switches
    }

    /// The line that `switchback check` prints for a valid file: `ok: ` and the
    /// [`summary`](Cluster::summary).
    pub fn check_line(&self) -> String {
        format!("ok: {}", self.summary())
    }
}

/// Reads and checks the file at `path` and the key file that it names.
///
/// Mistakes in `cluster.toml` are reported before the key file is looked at.
pub fn load(path: &Path) -> Result<Cluster, Error> {
    let text = error::read_text(std::fs::read(path), path)?;
    parse(&text, path, key::read_keys)
}

/// Checks `text` as the content of `file`, without touching the disk.
///
/// `file` stands in the messages, and the directory it is in is where relative paths begin, such as that of the
/// `key_file`. `keys` is asked for the keys in the key file once everything else has been found valid; [`load`]
/// reads them from the disk here.
pub fn parse(
    text: &str,
    file: &Path,
    keys: impl FnOnce(&Path) -> Result<Vec<ClusterKey>, Error>,
) -> Result<Cluster, Error> {
    let raw = raw::read(text).map_err(|mistake| error::invalid(text, file, vec![mistake]))?;
    let (key_file, mut cluster) =
        validate::check(&raw).map_err(|mistakes| error::invalid(text, file, mistakes))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    for service in &mut cluster.services {
        service.tls.iter_mut().for_each(|tls| tls.join(directory));
    }
    cluster.keys = keys(&directory.join(key_file))?;
    Ok(cluster)
}
