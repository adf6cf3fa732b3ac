//! The tables of `cluster.toml` that the translation writes.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

/// A document, without what the settings say.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tables {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node: Vec<Node>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<Pool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service: Vec<Service>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switch: Vec<Switch>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Switch {
    pub name: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Node {
    pub name: String,
    pub address: IpAddr,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<SocketAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    #[serde(skip_serializing_if = "is_false")]
    pub drain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Pool {
    pub name: String,
    pub policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_status: Option<u16>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Service {
    pub name: String,
    pub listen: Vec<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    pub route: Vec<Route>,
}

impl Service {
    /// Whether it needs a file.
    pub fn names_file(&self, name: &str) -> bool {
        let certificates = self.tls.iter().flat_map(|tls| &tls.certificate);
        certificates.into_iter().any(|certificate| certificate.chain == name || certificate.key == name)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Tls {
    pub certificate: Vec<Certificate>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Certificate {
    pub chain: String,
    pub key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Route {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_exact: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_regex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub respond: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror_share: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<Share>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<Field>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<Field>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<Route>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<Rewrite>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_header: Option<RequestHeader>,
}

impl Route {
    /// Names of its pools.
    pub fn pools(&self) -> impl Iterator<Item = &String> {
        let shares = self.split.iter().map(|share| &share.pool);
        self.pool.iter().chain(&self.mirror).chain(shares)
    }

    /// The same, to be changed.
    pub fn pools_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let shares = self.split.iter_mut().map(|share| &mut share.pool);
        self.pool.iter_mut().chain(&mut self.mirror).chain(shares)
    }

    /// Whether it takes every request for its hosts.
    pub fn takes_all_of_its_hosts(&self) -> bool {
        let Route { path, path_exact, path_regex, method, header, query, .. } = self;
        [path, path_exact, path_regex, method].iter().all(|condition| condition.is_none())
            && header.is_empty()
            && query.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Share {
    pub pool: String,
    pub weight: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Field {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Redirect {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    pub status: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rewrite {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct RequestHeader {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<Written>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Written>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Written {
    pub name: String,
    pub value: String,
}

fn is_false(value: &bool) -> bool {
    !value
}
