//! Conditions of one route, compared with one request.

use std::borrow::Cow;
use std::net::IpAddr;

use switchback_config::{Conditions, FieldMatch, PathMatch, Protocol, Route, ValueMatch};
use switchback_http::{Head, path};

/// A request as routes see it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: &'a Head<'a>,
    /// Address of the client.
    pub client: IpAddr,
}

/// Conditions of a route, in the order in which they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The host that the request names.
    Host,
    /// Its path.
    Path,
    /// Its method.
    Method,
    /// The client's address.
    Client,
    /// The header field with this index.
    Header(usize),
    /// The parameter with this index.
    Query(usize),
    /// The exception with this index.
    Except(usize),
    /// The protocol above TLS.
    Protocol,
}

/// The first of the route's conditions that does not hold, with this reading of the path.
pub fn failed(route: &Route, request: &Request<'_>, path: &str) -> Option<Condition> {
    let Conditions { path: wanted, .. } = &route.conditions;
    match () {
        () if !route.conditions.take_host(request.head.host) => Some(Condition::Host),
        () if !wanted.as_ref().is_none_or(|wanted| wanted.matches(path)) => Some(Condition::Path),
        () => failed_besides(&route.conditions, request).or_else(|| excepted(route, request, path)),
    }
}

/// The first of the route's conditions that does not hold for a request over this protocol.
pub fn failed_over(route: &Route, request: &Request<'_>, path: &str, spoken: Protocol) -> Option<Condition> {
    if speaks(route, spoken) { failed(route, request, path) } else { Some(Condition::Protocol) }
}

/// Why a condition of the route does not hold for the request, in words.
pub fn why_not(route: &Route, request: &Request<'_>, condition: Condition) -> String {
    let Conditions { hosts, path, methods, headers, query, clients } = &route.conditions;
    match condition {
        Condition::Host => match request.head.host {
            Some(host) => format!("host is {host}, not {}", joined(hosts)),
            None => format!("it names no host, and {} is asked for", joined(hosts)),
        },
        Condition::Path => {
            let normal = path::normal(request.head.path());
            let wanted = path.as_ref().expect("it does not hold");
            match wanted {
                PathMatch::Prefix(prefix) => format!("path is {normal}, which does not begin with {prefix}"),
                PathMatch::Exact(whole) => format!("path is {normal}, not {whole}"),
                PathMatch::Regex(pattern) => format!("path is {normal}, which does not match {pattern}"),
            }
        }
        Condition::Method => format!("method is {}, not {}", request.head.method, methods.join(" or ")),
        Condition::Client => {
            let clients = clients.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("client is {}, not in {clients}", request.client)
        }
        Condition::Header(index) => {
            let value = request.head.header(&headers[index].name);
            field_is("header field", &headers[index], value.map(|value| value.escape_ascii().to_string()))
        }
        Condition::Query(index) => {
            let value = parameter(request.head, &query[index].name);
            field_is("query parameter", &query[index], value.map(Cow::into_owned))
        }
        Condition::Except(index) => format!("not takes it: {}", route.except[index]),
        Condition::Protocol => {
            let names: Vec<_> = route.alpn.iter().map(|protocol| protocol.name()).collect();
            format!("protocol is not {}", names.join(" or "))
        }
    }
}

fn joined(things: &[impl ToString]) -> String {
    things.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn field_is(kind: &str, wanted: &FieldMatch, value: Option<String>) -> String {
    let name = &wanted.name;
    match (value, &wanted.value) {
        (None, _) => format!("it has no {kind} {name}"),
        (Some(value), ValueMatch::Is(wanted)) => format!("{name} is {value}, not {wanted}"),
        (Some(value), ValueMatch::Regex(pattern)) => {
            format!("{name} is {value}, which does not match {pattern}")
        }
        (Some(_), ValueMatch::Absent | ValueMatch::Any) => format!("it has {kind} {name}"),
    }
}

pub(crate) fn speaks(route: &Route, spoken: Protocol) -> bool {
    route.alpn.is_empty() || route.alpn.contains(&spoken)
}

/// Whether the conditions hold that are about neither host nor path, and none of the exceptions.
pub(crate) fn takes_besides(route: &Route, request: &Request<'_>, path: &str) -> bool {
    failed_besides(&route.conditions, request).is_none() && excepted(route, request, path).is_none()
}

fn excepted(route: &Route, request: &Request<'_>, path: &str) -> Option<Condition> {
    let hold = |conditions: &Conditions| {
        conditions.take_host(request.head.host)
            && conditions.path.as_ref().is_none_or(|wanted| wanted.matches(path))
            && failed_besides(conditions, request).is_none()
    };
    route.except.iter().position(hold).map(Condition::Except)
}

fn failed_besides(conditions: &Conditions, request: &Request<'_>) -> Option<Condition> {
    let Conditions { methods, headers, query, .. } = conditions;
    let head = request.head;
    if !methods.is_empty() && !methods.iter().any(|method| method == head.method) {
        return Some(Condition::Method);
    }
    if !conditions.take_client(request.client) {
        return Some(Condition::Client);
    }
    let header = |wanted: &FieldMatch| !wanted.value.matches(head.header(&wanted.name));
    let parameter = |wanted: &FieldMatch| {
        !wanted.value.matches(parameter(head, &wanted.name).as_deref().map(str::as_bytes))
    };
    let header = headers.iter().position(header).map(Condition::Header);
    header.or_else(|| query.iter().position(parameter).map(Condition::Query))
}

/// The first parameter of the query with this name, as forms write them.
fn parameter<'a>(head: &Head<'a>, name: &str) -> Option<Cow<'a, str>> {
    let (_, query) = head.target.raw.split_once('?')?;
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    parameters.find(|(other, _)| other == name).map(|(_, value)| value)
}
