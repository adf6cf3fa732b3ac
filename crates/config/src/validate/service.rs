//! `[[service]]`: where it listens, and its routes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use super::conditions::Texts;
use super::networks::Lists;
use super::redirect;
use crate::mistakes::{Mistakes, Names};
use crate::raw::Spanned;
use crate::{
    Action, Conditions, HashKey, MAX_LISTEN, Node, Route, SHARES, Service, Split, TlsMode, raw, syntax,
};

/// What services call by name.
pub(super) struct Named<'a> {
    pub(super) pools: &'a Names<'a>,
    pub(super) lists: &'a Lists<'a>,
}

/// The listen addresses seen so far.
pub(super) struct Listening<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) taken: HashMap<SocketAddr, &'a str>,
}

impl Mistakes {
    pub(super) fn service<'a>(
        &mut self,
        service: &'a raw::Service,
        named: &Named<'_>,
        listening: &mut Listening<'a>,
    ) -> Service {
        let name = service.name.get_ref();
        let listen = self.listen(service, listening);
        let tls = service.tls.as_ref().map_or(TlsMode::Off, |tls| self.tls(tls, &service.name));
        let admitted =
            service.clients.as_ref().map(|clients| self.admitted(clients, named.lists)).unwrap_or_default();
        let limits = self.service_limits(service.limit.as_ref(), &tls);
        let mut valid = Service { name: name.clone(), listen, tls, admitted, limits, routes: Vec::new() };

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
            let mistakes_before = self.count();
            let route = self.route(text, &valid.tls, named);
            let is_right = self.count() == mistakes_before;
            if is_right
                && let (Action::Redirect(redirect), Some(place)) = (&route.action, &text.get_ref().redirect)
                && redirect::changes_nothing(&route, redirect, &valid)
            {
                let what = "this redirect sends a request back to where it came from, and clients ask again and again";
                self.warn(place, what);
            }
            reachable &= !(is_right && route.is_catch_all());
            valid.routes.push(route);
        }
        valid
    }

    /// The VIPs of a service, each of which is no node's address and no other service's.
    fn listen<'a>(&mut self, service: &'a raw::Service, listening: &mut Listening<'a>) -> Vec<SocketAddr> {
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
        listen
    }

    fn route(&mut self, place: &Spanned<raw::Route>, tls: &TlsMode, named: &Named<'_>) -> Route {
        let route = place.get_ref();
        if *tls == TlsMode::Passthrough {
            self.route_passed_through(route);
        }
        let conditions = self.conditions(&Texts::of_route(route), named.lists);
        let except = self.exceptions(route.not.as_ref(), named.lists);
        let alpn = route.alpn.as_ref().map_or(Vec::new(), |alpn| self.alpn(alpn, tls));
        let action = self.action(place, &conditions, tls, named.pools);
        let h2c = self.h2c(route, tls);
        let limit = self.route_limit(route.limit.as_ref());
        let rewrite = self.rewrite(route, &conditions, tls);
        let mirror = self.mirror(route, &action, named.pools);
        Route { conditions, except, alpn, h2c, limit, action, rewrite, mirror }
    }

    fn h2c(&mut self, route: &raw::Route, tls: &TlsMode) -> bool {
        let Some(h2c) = route.h2c.as_ref().filter(|h2c| *h2c.get_ref()) else { return false };
        if *tls != TlsMode::Off {
            self.at(h2c, "h2c is HTTP/2 without TLS, but the service has TLS");
        } else if route.redirect.is_some() || route.respond.is_some() {
            self.at(h2c, "h2c goes to a pool, but the route leads to none");
        }
        true
    }

    fn action(
        &mut self,
        place: &Spanned<raw::Route>,
        conditions: &Conditions,
        tls: &TlsMode,
        pool_names: &Names<'_>,
    ) -> Action {
        let raw::Route { pool, split, split_by, redirect, respond, .. } = place.get_ref();
        let start = |span: Range<usize>| span.start;
        let actions = [
            pool.as_ref().map(|pool| start(pool.span())),
            split.as_ref().map(|split| start(split.span())),
            redirect.as_ref().map(|redirect| start(redirect.span())),
            respond.as_ref().map(|respond| start(respond.span())),
        ];
        let mut actions = actions.into_iter().flatten();
        if actions.next().is_none() {
            self.at(place, "this route leads nowhere, allowed is one of pool, split, redirect and respond");
        }
        for second in actions {
            let what =
                "this route leads elsewhere already, allowed is one of pool, split, redirect and respond";
            self.at_offset(second, what);
        }
        if let (Some(by), None) = (split_by, split) {
            self.at(by, "split_by without split, leave the line out");
        }
        let by = split_by.as_ref().and_then(|by| {
            let key = self.take(by, syntax::hash_key(by.get_ref()))?;
            if *tls != TlsMode::Off && key != HashKey::Client {
                self.at(by, "a switch reads no requests over TLS, allowed is split_by = \"client\"");
            }
            Some(key)
        });
        let pool = pool.as_ref().and_then(|pool| self.resolve("pool", pool, pool_names));
        let respond = respond.as_ref();
        let respond = respond.and_then(|status| self.take(status, syntax::respond_status(*status.get_ref())));
        match (redirect, split, respond) {
            (Some(redirect), ..) => Action::Redirect(self.redirect(redirect, conditions)),
            (None, None, Some(status)) => Action::Respond(status),
            (None, Some(split), _) => {
                Action::Split(Arc::new(Split { shares: self.shares(split, pool_names), by }))
            }
            (None, None, None) => Action::Pool(pool.unwrap_or_default()),
        }
    }

    fn shares(&mut self, split: &Spanned<Vec<raw::Share>>, pool_names: &Names<'_>) -> Vec<(usize, u32)> {
        let mut shares: Vec<(usize, u32)> = Vec::new();
        let before = self.count();
        for raw::Share { pool: name, weight } in split.get_ref() {
            let pool = self.resolve("pool", name, pool_names);
            let weight = self.number("weight", weight, SHARES);
            if shares.iter().any(|(other, _)| Some(*other) == pool) {
                self.at(
                    name,
                    format!("pool {:?} is in this split already, allowed is each pool once", name.get_ref()),
                );
            }
            shares.extend(pool.zip(weight));
        }
        if self.count() == before && shares.len() < 2 {
            self.at(split, "a split has at least two pools; for one there is pool");
        } else if self.count() == before && shares.iter().all(|(_, weight)| *weight == 0) {
            self.at(split, "all weights are 0, at least one has to be greater");
        }
        shares
    }
}
