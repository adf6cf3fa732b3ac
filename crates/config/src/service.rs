//! A service with its routes.

use std::fmt;
use std::net::SocketAddr;

use crate::{Protocol, Redirect, Scheme, Tls};

/// The most listen addresses that all services can have together.
pub const MAX_LISTEN: usize = 256;

/// A service, to which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// As for [`Node::name`](crate::Node::name).
    pub name: String,
    /// The VIPs; at least one.
    pub listen: Vec<SocketAddr>,
    /// How clients speak TLS to it; None if they do not. Switches cannot read the requests of a service with TLS, so no
    /// pool of its routes needs them to: each has [`Balance::Connection`](crate::Balance::Connection), and neither a `delegate` nor sessions or a
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
    /// A node of this pool answers; an index into [`Cluster::pools`](crate::Cluster::pools).
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

    /// Whether the route takes every request that `other` would take.
    pub fn takes_all_of(&self, other: &Route) -> bool {
        let Route { host, path, methods, alpn, header, h2c, action: _ } = self;
        let host = host
            .as_ref()
            .is_none_or(|host| other.host.as_ref().is_some_and(|other| host.takes_all_of(other)));
        let path =
            path.as_ref().is_none_or(|path| other.path.as_ref().is_some_and(|other| other.starts_with(path)));
        let header = header.as_ref().is_none_or(|header| {
            let other = other.header.as_ref().filter(|other| other.name == header.name);
            other.is_some_and(|other| header.value.is_none() || header.value == other.value)
        });
        let h2c = *h2c || !other.h2c;
        host && path && has_all(methods, &other.methods) && has_all(alpn, &other.alpn) && header && h2c
    }

    /// Its conditions in words, such as `host a.example, paths that begin with /b`.
    pub fn conditions(&self) -> String {
        let mut conditions = Vec::new();
        conditions.extend(self.host.as_ref().map(|host| format!("host {host}")));
        conditions.extend(self.path.as_ref().map(|path| format!("paths that begin with {path}")));
        if !self.methods.is_empty() {
            // Between blanks, which no method has; a bar can be part of one.
            conditions.push(format!("method {}", self.methods.join(" or ")));
        }
        if !self.alpn.is_empty() {
            let names: Vec<&str> = self.alpn.iter().map(|protocol| protocol.name()).collect();
            conditions.push(format!("protocol {}", names.join(" or ")));
        }
        // The last one, because what is written before could be in its value.
        conditions.extend(self.header.as_ref().map(|header| match &header.value {
            Some(value) => format!("header field {} with {value}", header.name),
            None => format!("header field {}", header.name),
        }));
        if conditions.is_empty() { "every request".to_owned() } else { conditions.join(", ") }
    }
}

/// Whether each of `others` is among `all`, where an empty list stands for everything.
fn has_all<T: PartialEq>(all: &[T], others: &[T]) -> bool {
    all.is_empty() || !others.is_empty() && others.iter().all(|other| all.contains(other))
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

/// A header field that a request must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// In lower case; the names of header fields are compared without regard to case.
    pub name: String,
    /// The value it must have, byte for byte; without one, any value will do.
    pub value: Option<String>,
}
