//! What a TLS client's hello tells of the route that will take its requests.

use std::net::IpAddr;

use switchback_config::{Conditions, Protocol, Route};

use crate::{Condition, Routes};

/// The protocol in which a CA asks for proof of a domain (RFC 8737 section 6.2).
pub const ACME_TLS: &[u8] = b"acme-tls/1";

impl Routes {
    /// The route with which a TLS client begins that wants this host, and offers these protocols: the first
    /// route to a pool which takes it whatever it will ask for, or else the first that may take it. If only routes without a
    /// pool may, it is the first to any pool: each node answers for such routes.
    pub fn find_hello(&self, host: Option<&str>, protocols: &[Vec<u8>], client: IpAddr) -> Option<usize> {
        let may_take = |route: &Route| failed_hello(route, host, protocols, client).is_none();
        let leads_to_pool = |route: &Route| route.action.pools().next().is_some();
        let is_candidate = |(_, route): &(usize, &Route)| leads_to_pool(route) && may_take(route);
        let mut candidates = self.routes.iter().enumerate().filter(is_candidate).peekable();
        let first = candidates.peek().map(|(index, _)| *index);
        let best = candidates.find(|(_, route)| takes_all(route, host, client)).map(|(index, _)| index);
        let is_answered = || self.routes.iter().any(may_take);
        let any_pool = || is_answered().then(|| self.routes.iter().position(leads_to_pool)).flatten();
        best.or(first).or_else(any_pool)
    }
}

/// The first condition that keeps the route from every request of a TLS client that wants this host and
/// offers these protocols.
pub fn failed_hello(
    route: &Route,
    host: Option<&str>,
    protocols: &[Vec<u8>],
    client: IpAddr,
) -> Option<Condition> {
    let offered = |protocol: &Protocol| match protocols {
        [] => *protocol == Protocol::Http11,
        // A CA that wants proof of a domain (RFC 8737) gets it from every node.
        [one] if one == ACME_TLS => true,
        some => some.iter().any(|one| one == protocol.name().as_bytes()),
    };
    let hold = |conditions: &Conditions| holds(conditions, host, client) == Some(true);
    match () {
        () if !route.conditions.take_host(host) => Some(Condition::Host),
        () if !route.conditions.take_client(client) => Some(Condition::Client),
        () if !route.alpn.is_empty() && !route.alpn.iter().any(offered) => Some(Condition::Protocol),
        () => route.except.iter().position(hold).map(Condition::Except),
    }
}

/// Whether the route takes all requests of a client that it may take.
pub fn takes_all(route: &Route, host: Option<&str>, client: IpAddr) -> bool {
    holds(&route.conditions, host, client) == Some(true)
        && route.except.iter().all(|conditions| holds(conditions, host, client) == Some(false))
}

/// Whether the conditions hold for all requests of the client, or for none; None if that depends on the request.
fn holds(conditions: &Conditions, host: Option<&str>, client: IpAddr) -> Option<bool> {
    let Conditions { hosts: _, path, methods, headers, query, clients: _ } = conditions;
    let all = path.is_none() && methods.is_empty() && headers.is_empty() && query.is_empty();
    match conditions.take_host(host) && conditions.take_client(client) {
        false => Some(false),
        true => all.then_some(true),
    }
}
