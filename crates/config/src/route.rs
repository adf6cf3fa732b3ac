//! Routes of a service: conditions on requests, and actions.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::{ClientMatch, HashKey, Limit, Mirror, Pattern, Protocol, Redirect, RequestRate, Rewrite};

/// A route: it takes requests for which its conditions hold, but for its exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The conditions, all of which must hold.
    pub conditions: Conditions,
    /// The route does not take requests for which all conditions of one of these hold. None of these is without
    /// conditions.
    pub except: Vec<Conditions>,
    /// What the client and the node have agreed to speak above TLS is one of these; empty stands for any, as it is in
    /// every service without TLS. Each is one of [`Tls::protocols`](crate::Tls::protocols). A switch compares them with
    /// what the client offers in its ClientHello. A client that offers nothing speaks [`Protocol::Http11`].
    pub alpn: Vec<Protocol>,
    /// A client that the route takes may go on in HTTP/2 without TLS, of which the switch reads nothing.
    pub h2c: bool,
    /// Limits of its requests, beside those of the service.
    pub limit: Limit<RequestRate>,
    /// The action on the request.
    pub action: Action,
    /// What the server gets instead of what the client has sent; empty without a pool.
    pub rewrite: Rewrite,
    /// A pool that gets copies of its requests; None without a pool of its own.
    pub mirror: Option<Mirror>,
}

/// Conditions on requests. An empty list and None hold for every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// One of these is the host that the request names, without its port.
    pub hosts: Vec<HostMatch>,
    /// Compared with the request's path in normal form ([`switchback_http::path`]).
    pub path: Option<PathMatch>,
    /// The request's method is one of these.
    pub methods: Vec<String>,
    /// All of these hold for the header fields.
    pub headers: Vec<FieldMatch>,
    /// All of these hold for the parameters of the query.
    pub query: Vec<FieldMatch>,
    /// The client is one of these.
    pub clients: Option<ClientMatch>,
}

/// The action of a route on its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A node of this pool answers; an index into [`Cluster::pools`](crate::Cluster::pools).
    Pool(usize),
    /// A node of one of several pools answers.
    Split(Arc<Split>),
    /// The client is redirected.
    Redirect(Redirect),
    /// The client gets this status.
    Respond(u16),
}

/// Allowed weights of pools that share a route's requests.
pub const SHARES: RangeInclusive<u32> = 0..=1_000_000;

/// Pools that share a route's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The pools, each once, at least two: indices into [`Cluster::pools`](crate::Cluster::pools), with weights, not all of
    /// which are 0.
    pub shares: Vec<(usize, u32)>,
    /// Requests that have this in common go to the same pool; None chooses for each request.
    pub by: Option<HashKey>,
}

impl Split {
    /// The pool at a point of the weights' sum, which is as many 2^64ths of it.
    pub fn pool_at(&self, point: u64) -> usize {
        let sum: u64 = self.shares.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut left = (u128::from(point) * u128::from(sum)) >> 64;
        let is_it = |&&(_, weight): &&(usize, u32)| {
            let is_it = left < u128::from(weight);
            left = left.saturating_sub(u128::from(weight));
            is_it
        };
        self.shares.iter().find(is_it).expect("the point is within the sum").0
    }
}

impl Action {
    /// The pools whose nodes may answer.
    pub fn pools(&self) -> impl Iterator<Item = usize> + use<'_> {
        let (one, several) = match self {
            Action::Pool(pool) => (Some(*pool), &[][..]),
            Action::Split(split) => (None, &split.shares[..]),
            Action::Redirect(_) | Action::Respond(_) => (None, &[][..]),
        };
        one.into_iter().chain(several.iter().map(|(pool, _)| *pool))
    }
}

impl Route {
    /// The pools whose nodes get its requests, or copies of them.
    pub fn pools(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.action.pools().chain(self.mirror.iter().map(|mirror| mirror.pool))
    }

    /// Whether the route takes every request.
    pub fn is_catch_all(&self) -> bool {
        self.conditions.is_empty() && self.except.is_empty() && self.alpn.is_empty()
    }

    /// Whether the route takes every request that `other` would take, as far as their texts tell.
    pub fn takes_all_of(&self, other: &Route) -> bool {
        let Route { conditions, except, alpn, h2c, limit: _, action: _, rewrite: _, mirror: _ } = self;
        let excepts_less = except.iter().all(|one| other.except.iter().any(|other| other.takes_all_of(one)));
        conditions.takes_all_of(&other.conditions)
            && excepts_less
            && has_all(alpn, &other.alpn, PartialEq::eq)
            && (*h2c || !other.h2c)
    }

    /// Its conditions in words, such as `host a.example, paths that begin with /b`.
    pub fn in_words(&self) -> String {
        let mut words = self.conditions.words();
        if !self.alpn.is_empty() {
            let names: Vec<&str> = self.alpn.iter().map(|protocol| protocol.name()).collect();
            words.push(format!("protocol {}", names.join(" or ")));
        }
        words.extend(self.except.iter().map(|except| format!("not ({except})")));
        if words.is_empty() { "every request".to_owned() } else { words.join(", ") }
    }
}

impl Conditions {
    /// Whether they hold for every request.
    pub fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }

    /// Whether they hold for every request for which those of `other` hold, as far as their texts tell.
    fn takes_all_of(&self, other: &Conditions) -> bool {
        let Conditions { hosts, path, methods, headers, query, clients } = self;
        let path = path
            .as_ref()
            .is_none_or(|path| other.path.as_ref().is_some_and(|other| path.takes_all_of(other)));
        let follow = |ours: &[FieldMatch], others: &[FieldMatch]| {
            ours.iter().all(|one| others.iter().any(|other| one.takes_all_of(other)))
        };
        path && has_all(hosts, &other.hosts, HostMatch::takes_all_of)
            && has_all(methods, &other.methods, PartialEq::eq)
            && follow(headers, &other.headers)
            && follow(query, &other.query)
            && clients
                .as_ref()
                .is_none_or(|ours| other.clients.as_ref().is_some_and(|other| ours.takes_all_of(other)))
    }

    /// Whether a client with this address is one of theirs.
    pub fn take_client(&self, address: IpAddr) -> bool {
        self.clients.as_ref().is_none_or(|clients| clients.matches(address))
    }

    /// Whether a host is one of theirs; None if the request names none.
    pub fn take_host(&self, host: Option<&str>) -> bool {
        self.hosts.is_empty() || host.is_some_and(|host| self.hosts.iter().any(|wanted| wanted.matches(host)))
    }

    fn words(&self) -> Vec<String> {
        let Conditions { hosts, path, methods, headers, query, clients } = self;
        // Between blanks, which no method has; a bar can be part of one.
        let one_of = |what: &str, texts: Vec<String>| {
            (!texts.is_empty()).then(|| format!("{what} {}", texts.join(" or ")))
        };
        let mut words = Vec::new();
        words.extend(one_of("host", hosts.iter().map(HostMatch::to_string).collect()));
        words.extend(path.as_ref().map(PathMatch::to_string));
        words.extend(one_of("method", methods.clone()));
        words.extend(clients.as_ref().map(|clients| format!("clients in {clients}")));
        words.extend(query.iter().map(|parameter| format!("query {parameter}")));
        words.extend(headers.iter().map(|field| format!("header field {field}")));
        words
    }
}

/// In words, such as `host a.example, method GET`.
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(", "))
    }
}

/// Whether one of `all` takes each of `others`, where an empty list stands for everything.
fn has_all<T>(all: &[T], others: &[T], takes: impl Fn(&T, &T) -> bool) -> bool {
    all.is_empty() || !others.is_empty() && others.iter().all(|other| all.iter().any(|one| takes(one, other)))
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

    /// Whether it matches every host that `other` matches.
    fn takes_all_of(&self, other: &HostMatch) -> bool {
        match (self, other) {
            (_, HostMatch::Exact(name)) => self.matches(name),
            (HostMatch::Suffix(suffix), HostMatch::Suffix(other)) => other.ends_with(suffix),
            (HostMatch::Exact(_), HostMatch::Suffix(_)) => false,
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

/// The paths of a route, in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Paths that begin with this text. `/` in the file is no condition, because every path begins so.
    Prefix(String),
    /// This path only.
    Exact(String),
    /// Paths that match.
    Regex(Pattern),
}

impl PathMatch {
    /// Whether a path in normal form matches.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            PathMatch::Prefix(prefix) => path.starts_with(prefix),
            PathMatch::Exact(whole) => path == whole,
            PathMatch::Regex(pattern) => pattern.matches(path.as_bytes()),
        }
    }

    /// All paths that match begin with this text.
    pub fn prefix(&self) -> &str {
        match self {
            PathMatch::Prefix(text) | PathMatch::Exact(text) => text,
            PathMatch::Regex(pattern) => pattern.prefix(),
        }
    }

    fn takes_all_of(&self, other: &PathMatch) -> bool {
        match (self, other) {
            (PathMatch::Prefix(prefix), _) => other.prefix().starts_with(prefix),
            (PathMatch::Regex(pattern), PathMatch::Exact(path)) => pattern.matches(path.as_bytes()),
            _ => self == other,
        }
    }
}

impl fmt::Display for PathMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathMatch::Prefix(prefix) => write!(f, "paths that begin with {prefix}"),
            PathMatch::Exact(path) => write!(f, "path {path}"),
            PathMatch::Regex(pattern) => write!(f, "paths that match {pattern}"),
        }
    }
}

/// A header field or a query parameter that the request must have, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMatch {
    /// Of a header field in lower case; those are compared without regard to case.
    pub name: String,
    /// Compared with the value of the first one.
    pub value: ValueMatch,
}

/// The values of a [`FieldMatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// Any.
    Any,
    /// This one, byte for byte.
    Is(String),
    /// Those that match.
    Regex(Pattern),
    /// There is none.
    Absent,
}

impl ValueMatch {
    /// Whether a value matches.
    pub fn matches(&self, value: Option<&[u8]>) -> bool {
        match (self, value) {
            (ValueMatch::Absent, value) => value.is_none(),
            (_, None) => false,
            (ValueMatch::Any, Some(_)) => true,
            (ValueMatch::Is(wanted), Some(value)) => value == wanted.as_bytes(),
            (ValueMatch::Regex(pattern), Some(value)) => pattern.matches(value),
        }
    }
}

impl FieldMatch {
    fn takes_all_of(&self, other: &FieldMatch) -> bool {
        let values = match (&self.value, &other.value) {
            (ValueMatch::Any, value) => *value != ValueMatch::Absent,
            (ValueMatch::Regex(pattern), ValueMatch::Is(value)) => pattern.matches(value.as_bytes()),
            (ours, other) => ours == other,
        };
        values && self.name == other.name
    }
}

impl fmt::Display for FieldMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.value {
            ValueMatch::Any => f.write_str(name),
            ValueMatch::Is(value) => write!(f, "{name} with {value}"),
            ValueMatch::Regex(pattern) => write!(f, "{name} that matches {pattern}"),
            ValueMatch::Absent => write!(f, "{name} absent"),
        }
    }
}
