//! From the shape of the file to its meaning: resolves names to indices and collects every mistake on the
//! way.
//!
//! A value that is wrong is reported and left out, and the check goes on without it. So the result has holes
//! until the last line, which gives it out only if nothing was reported.

mod access_log;
mod admin;
mod clients;
mod health;
mod limits;
mod persistence;
mod pool;
mod redirect;
mod switch;
mod tls;

use std::collections::HashMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::Mistake;
use crate::raw::Spanned;
use crate::{
    Action, Cluster, MAX_LISTEN, MAX_NODES, Node, Reports, Route, Service, Tls, WEIGHTS, raw, reports, syntax,
};

/// The weight of a node that has none in the file.
pub(crate) const DEFAULT_WEIGHT: u32 = 1;

/// An optional text in the file.
type Text = Option<Spanned<String>>;
/// Names and the index of the first thing that has each.
type Names<'a> = HashMap<&'a str, usize>;

/// Returns the value of `key_file`, and the cluster, which has no keys yet.
pub(crate) fn check(file: &raw::File) -> Result<(&str, Cluster), Vec<Mistake>> {
    let mut mistakes = Mistakes::default();
    let key_file = &file.cluster.key_file;
    mistakes.path("key_file", key_file, "cluster.key");
    let reports = mistakes.reports(&file.reports);
    let limits = mistakes.limits(&file.limits);
    let access_log = file.access_log.as_ref().and_then(|log| mistakes.access_log(log));

    let node_names = mistakes.names("node", file.node.iter().map(|node| &node.name));
    let pool_names = mistakes.names("pool", file.pool.iter().map(|pool| &pool.name));
    let service_names = mistakes.names("service", file.service.iter().map(|service| &service.name));
    let switch_names = mistakes.names("switch", file.switch.iter().map(|switch| &switch.name));

    if file.node.is_empty() {
        mistakes.in_file("no node, at least one [[node]] is needed");
    }
    if let Some(node) = file.node.get(MAX_NODES) {
        mistakes.at(&node.name, format!("{} nodes, allowed are at most {MAX_NODES}", file.node.len()));
    }
    let nodes = mistakes.nodes(&file.node);

    mistakes.pool_ids(&file.pool);
    let pools = file.pool.iter().map(|pool| mistakes.pool(pool, &node_names, &switch_names));
    let pools: Vec<_> = pools.collect();

    if file.service.is_empty() {
        mistakes.in_file("no service, at least one [[service]] is needed");
    }
    let mut listening = Listening { nodes: &nodes, taken: HashMap::new() };
    let services = file.service.iter();
    let services = services.map(|service| mistakes.service(service, &pool_names, &mut listening));
    let services: Vec<_> = services.collect();
    let admin = mistakes.admin(file.admin.as_ref(), &services);
    for service in &file.service {
        mistakes.cookies(service, &pool_names, &pools);
    }
    mistakes.servers_beside_admin(&file.service, &services, admin.as_ref());
    mistakes.pools_over_tls(file, &pools);
    let clients = mistakes.clients(&file.client, &file.node);
    let switches = mistakes.switches(&file.switch, &file.service, &service_names);

    if !mistakes.0.is_empty() {
        return Err(mistakes.0);
    }
    let pools = pools.into_iter().flatten().collect();
    let keys = Vec::new();
    let cluster =
        Cluster { keys, reports, limits, access_log, admin, nodes, pools, services, switches, clients };
    Ok((key_file.get_ref(), cluster))
}

/// The listen addresses seen so far.
struct Listening<'a> {
    nodes: &'a [Node],
    taken: HashMap<SocketAddr, &'a str>,
}

/// The mistakes found in a file so far.
#[derive(Default)]
pub(crate) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(crate) fn at<T>(&mut self, value: &Spanned<T>, what: impl Into<String>) {
        self.0.push(Mistake { at: value.span().start, what: what.into() });
    }

    /// The result, if the file has no mistakes.
    pub(crate) fn into_result<T>(self, made: T) -> Result<T, Vec<Mistake>> {
        if self.0.is_empty() { Ok(made) } else { Err(self.0) }
    }

    /// A path must not be empty.
    pub(crate) fn path(&mut self, key: &str, path: &Spanned<String>, example: &str) {
        if path.get_ref().is_empty() {
            self.at(path, format!("empty {key}, allowed is a path such as {example:?}"));
        }
    }

    /// Adds a mistake of the file as a whole.
    fn in_file(&mut self, what: &str) {
        self.0.push(Mistake { at: 0, what: what.to_owned() });
    }

    /// The meaning of `value`; reports a mistake in it.
    pub(crate) fn take<T, S>(&mut self, value: &Spanned<S>, meaning: Result<T, String>) -> Option<T> {
        meaning.map_err(|what| self.at(value, what)).ok()
    }

    /// The item of `all` that `text` names.
    fn one_of<T: Copy, const N: usize>(
        &mut self,
        key: &str,
        text: &Spanned<String>,
        all: [T; N],
        name: fn(T) -> &'static str,
    ) -> Option<T> {
        self.take(text, syntax::one_of(key, text.get_ref(), all, name))
    }

    pub(crate) fn number<T: TryFrom<i64> + PartialOrd + Display>(
        &mut self,
        key: &str,
        value: &Spanned<i64>,
        allowed: RangeInclusive<T>,
    ) -> Option<T> {
        self.take(value, syntax::number(key, *value.get_ref(), allowed))
    }

    /// As [`number`](Self::number), and `default` for what is absent or wrong.
    fn number_or<T: TryFrom<i64> + PartialOrd + Display>(
        &mut self,
        key: &str,
        value: &Option<Spanned<i64>>,
        allowed: RangeInclusive<T>,
        default: T,
    ) -> T {
        value.as_ref().and_then(|value| self.number(key, value, allowed)).unwrap_or(default)
    }

    /// A time, and `default` for what is absent or wrong.
    fn time(
        &mut self,
        key: &str,
        text: &Text,
        allowed: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        let time = text.as_ref().and_then(|text| self.take(text, syntax::time(key, text.get_ref(), allowed)));
        time.unwrap_or(default)
    }

    /// The meaning of each of `texts`, without those that are wrong. `none` is what is wrong with an empty
    /// list.
    fn each<T>(
        &mut self,
        texts: &Spanned<raw::Texts>,
        none: &str,
        meaning: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        match texts.get_ref() {
            raw::Texts::One(text) => self.take(texts, meaning(text)).into_iter().collect(),
            raw::Texts::List(list) => {
                if list.is_empty() {
                    self.at(texts, none);
                }
                list.iter().filter_map(|text| self.take(text, meaning(text.get_ref()))).collect()
            }
        }
    }

    fn reports(&mut self, file: &raw::Reports) -> Reports {
        let default = Reports::default();
        let interval = self.time("interval", &file.interval, reports::INTERVAL, default.interval);
        let suspect_after = self.number_or(
            "suspect_after",
            &file.suspect_after,
            reports::SUSPECT_AFTER,
            default.suspect_after,
        );
        let at_most = default.dead_after.max(suspect_after);
        let dead_after = self.number_or("dead_after", &file.dead_after, reports::DEAD_AFTER, at_most);
        if let Some(place) = file.dead_after.as_ref().filter(|_| dead_after < suspect_after) {
            let what = format!(
                "dead_after {dead_after} is less than suspect_after {suspect_after}, allowed is \
                 suspect_after <= dead_after"
            );
            self.at(place, what);
        }
        Reports { interval, suspect_after, dead_after }
    }

    fn names<'a>(&mut self, kind: &str, names: impl Iterator<Item = &'a Spanned<String>>) -> Names<'a> {
        let mut seen = Names::new();
        for (index, name) in names.enumerate() {
            self.take(name, syntax::name(kind, name.get_ref()));
            if seen.contains_key(name.get_ref().as_str()) {
                let what =
                    format!("{kind} name {:?} is taken already, allowed is each name once", name.get_ref());
                self.at(name, what);
            } else {
                seen.insert(name.get_ref(), index);
            }
        }
        seen
    }

    fn nodes(&mut self, nodes: &[raw::Node]) -> Vec<Node> {
        let mut taken: HashMap<IpAddr, &str> = HashMap::new();
        let mut valid = Vec::new();
        for node in nodes {
            let weight = self.number_or("weight", &node.weight, WEIGHTS, DEFAULT_WEIGHT);
            let zone = node
                .zone
                .as_ref()
                .filter(|zone| self.take(zone, syntax::name("zone", zone.get_ref())).is_some());
            let address = self.take(&node.address, syntax::node_address(node.address.get_ref()));
            if let Some(address) = address {
                if let Some(other) = taken.get(&address) {
                    let what =
                        format!("{address} is the address of node {other:?} already, allowed is each once");
                    self.at(&node.address, what);
                }
                taken.entry(address).or_insert(node.name.get_ref());
            }
            if let Some(address) = address {
                valid.push(Node {
                    name: node.name.get_ref().clone(),
                    address,
                    weight,
                    zone: zone.map(|zone| zone.get_ref().clone()),
                    drain: node.drain,
                    hidden: node.hidden,
                    tunnel: node.tunnel.as_ref().is_some_and(|tunnel| *tunnel.get_ref()),
                });
            }
        }
        valid
    }

    fn service<'a>(
        &mut self,
        service: &'a raw::Service,
        pool_names: &Names<'_>,
        listening: &mut Listening<'a>,
    ) -> Service {
        let name = service.name.get_ref();
        if service.listen.get_ref().is_empty() {
            self.at(
                &service.listen,
                format!("service {name:?} listens nowhere, at least one address is needed"),
            );
        }
        let mut listen = Vec::new();
        for text in service.listen.get_ref() {
            let Some(address) = self.take(text, syntax::listen_address(text.get_ref())) else { continue };
            if let Some(node) = listening.nodes.iter().find(|node| node.address == address.ip()) {
                self.at(
                    text,
                    format!(
                        "{} is the address of node {:?}, a VIP must be no node's address",
                        address.ip(),
                        node.name
                    ),
                );
            }
            if let Some(other) = listening.taken.get(&address) {
                let what =
                    format!("service {other:?} listens at {address} already, allowed is each address once");
                self.at(text, what);
            } else {
                if listening.taken.len() == MAX_LISTEN {
                    self.at(
                        text,
                        format!(
                            "too many listen addresses, allowed are at most {MAX_LISTEN} in all services"
                        ),
                    );
                }
                listening.taken.insert(address, name);
            }
            listen.push(address);
        }

        let tls = service.tls.as_ref().map(|tls| self.tls(tls, &service.name));
        let mut valid = Service { name: name.clone(), listen, tls, routes: Vec::new() };

        if service.route.is_empty() {
            let what = format!("service {name:?} has no route, at least one [[service.route]] is needed");
            self.at(&service.name, what);
        }
        let mut reachable = true;
        for text in &service.route {
            if !reachable {
                self.at(text, "this route can never match, a route without conditions stands before it");
            }
            // A route with a mistake in it is no catch-all even if nothing valid is left of its conditions.
            let mistakes_before = self.0.len();
            let route = self.route(text, valid.tls.as_ref(), pool_names);
            let is_right = self.0.len() == mistakes_before;
            if is_right
                && let (Action::Redirect(redirect), Some(place)) = (&route.action, &text.get_ref().redirect)
                && redirect::changes_nothing(&route, redirect, &valid)
            {
                let what = "this redirect sends a request back to where it came from, at least one of \
                            scheme, host, port, path has to differ";
                self.at(place, what);
            }
            reachable &= !(is_right && route.is_catch_all());
            valid.routes.push(route);
        }
        valid
    }

    fn route(&mut self, place: &Spanned<raw::Route>, tls: Option<&Tls>, pool_names: &Names<'_>) -> Route {
        let route = place.get_ref();
        let host = route.host.as_ref().and_then(|host| self.take(host, syntax::host(host.get_ref())));
        let path = route.path.as_ref().and_then(|path| self.take(path, syntax::path(path.get_ref())));
        let methods = route.method.as_ref().map_or(Vec::new(), |methods| {
            self.each(methods, "no method, leave the line out to allow any", syntax::method)
        });
        let alpn = route.alpn.as_ref().map_or(Vec::new(), |alpn| self.alpn(alpn, tls));
        let header = route.header.as_ref().and_then(|header| {
            let name = self.take(&header.name, syntax::header_name(header.name.get_ref()));
            let value = header.value.as_ref();
            let value = value.and_then(|value| self.take(value, syntax::header_value(value.get_ref())));
            name.map(|name| crate::HeaderMatch { name, value })
        });
        let action = self.action(place, pool_names);
        let h2c = self.h2c(route, tls);
        Route { host, path: path.filter(|path| path != "/"), methods, alpn, header, h2c, action }
    }

    fn h2c(&mut self, route: &raw::Route, tls: Option<&Tls>) -> bool {
        let Some(h2c) = route.h2c.as_ref().filter(|h2c| *h2c.get_ref()) else { return false };
        if tls.is_some() {
            self.at(h2c, "h2c is HTTP/2 without TLS, but the service has TLS");
        } else if route.redirect.is_some() {
            self.at(h2c, "h2c goes to a pool, but the route is a redirect");
        }
        true
    }

    fn action(&mut self, place: &Spanned<raw::Route>, pool_names: &Names<'_>) -> Action {
        let raw::Route { pool, redirect, .. } = place.get_ref();
        match (pool, redirect) {
            (None, None) => self.at(place, "this route leads nowhere, allowed is one of pool and redirect"),
            (Some(_), Some(redirect)) => {
                self.at(redirect, "this route has a pool already, allowed is one of pool and redirect");
            }
            _ => {}
        }
        let pool = pool.as_ref().and_then(|pool| self.resolve("pool", pool, pool_names));
        match redirect {
            Some(redirect) => Action::Redirect(self.redirect(redirect)),
            None => Action::Pool(pool.unwrap_or_default()),
        }
    }

    fn resolve(&mut self, kind: &str, name: &Spanned<String>, known: &Names<'_>) -> Option<usize> {
        let index = known.get(name.get_ref().as_str()).copied();
        self.take(name, index.ok_or_else(|| syntax::unknown(kind, name.get_ref(), known.keys().copied())))
    }
}
