//! Which routes are attached to which listeners.

use std::path::Path;
use std::rc::Rc;

use gateway_api::apis::standard::httproutes::{
    HttpRoute, HttpRouteParentRefs, HttpRouteStatus, HttpRouteStatusParents, HttpRouteStatusParentsParentRef,
};
use jiff::Timestamp;
use kube::ResourceExt;
use switchback_config::{Document, Error};

use super::backends::Backends;
use super::conditions::{Conditions, Said};
use super::document::{Node, Pool, Route, Service, Tables};
use super::grants::GATEWAY;
use super::hostnames::{intersection, specificity};
use super::rules::{Matched, Precedence, Rules, rules};
use super::{Ours, Settings, text};
use crate::objects::{Objects, Place};

/// A route at a listener.
#[derive(Debug)]
pub(super) struct Attached {
    /// Its hosts at this listener; None stands for all.
    hosts: Vec<Option<String>>,
    /// Its rank among all routes: the older ones, then by name.
    rank: usize,
    matches: Rc<Vec<Matched>>,
}

/// The order of matches at a listener: by host, by what they compare, by the route's rank, by the place in the route.
pub(super) type Order = ((u8, std::cmp::Reverse<usize>), Precedence, usize, usize);

impl Attached {
    /// Its matches for each host, with their order.
    pub fn matches(&self) -> impl Iterator<Item = (Order, Vec<Route>)> + '_ {
        let places =
            self.hosts.iter().flat_map(|host| self.matches.iter().enumerate().map(move |at| (host, at)));
        places.map(|(host, (index, matched))| {
            let order = (specificity(host.as_deref()), matched.precedence.clone(), self.rank, index);
            let with_host = |route: &Route| Route { host: host.clone(), ..route.clone() };
            (order, matched.routes.iter().map(with_host).collect())
        })
    }
}

/// Attaches all routes to the listeners of these Gateways, and returns the statuses of the routes that this concerns.
pub(super) fn attach(
    objects: &Objects,
    settings: &Settings,
    now: Timestamp,
    gateways: &mut [Ours<'_>],
    backends: &mut Backends<'_>,
) -> Vec<(Place, HttpRouteStatus)> {
    let mut routes: Vec<&HttpRoute> = objects.routes.iter().map(|route| &**route).collect();
    routes.sort_by_cached_key(|route| (route.creation_timestamp(), Place::of(*route)));
    let mut statuses = Vec::new();
    for (rank, route) in routes.into_iter().enumerate() {
        let parents = parents(route, gateways);
        let before = route.status.as_ref().map_or(&[][..], |status| &status.parents);
        let is_ours = |parent: &&HttpRouteStatusParents| parent.controller_name == settings.controller;
        if parents.is_empty() && !before.iter().any(|parent| is_ours(&parent)) {
            continue;
        }
        let taken = rules(route, backends).and_then(|rules| are_valid(&rules).map(|()| rules));
        let (taken, matches) = match taken {
            Ok(Rules { matches, unresolved }) => (Ok(unresolved), Rc::new(matches)),
            Err(said) => (Err(said), Rc::new(Vec::new())),
        };
        let mut status: Vec<_> = before.iter().filter(|parent| !is_ours(parent)).cloned().collect();
        let of_parent = parents.into_iter().map(|(gateway, reference)| {
            let ours = &mut gateways[gateway];
            let attached = attach_to(ours, route, reference, objects, (rank, &matches), taken.is_ok());
            let accepted = match (&taken, attached) {
                (_, Err(said)) => said,
                (Err(said), Ok(())) => said.clone(),
                (Ok(_), Ok(())) => Said::yes("Accepted", "Accepted"),
            };
            let resolved = match &taken {
                Ok(Some(said)) => said.clone(),
                _ => Said::yes("ResolvedRefs", "ResolvedRefs"),
            };
            let conditions = Conditions { generation: route.metadata.generation, now };
            let parent_ref = reference_of(reference);
            let known = before.iter().filter(is_ours).find(|parent| parent.parent_ref == parent_ref);
            let known = known.map_or(&[][..], |parent| &parent.conditions);
            HttpRouteStatusParents {
                conditions: conditions.of(vec![accepted, resolved], known),
                controller_name: settings.controller.clone(),
                parent_ref,
            }
        });
        status.extend(of_parent);
        statuses.push((Place::of(route), HttpRouteStatus { parents: status }));
    }
    statuses
}

/// The Gateways among the parents of a route.
fn parents<'a>(route: &'a HttpRoute, gateways: &[Ours<'_>]) -> Vec<(usize, &'a HttpRouteParentRefs)> {
    let namespace = route.namespace().unwrap_or_default();
    let of = |parent: &'a HttpRouteParentRefs| {
        let place = Place::new(parent.namespace.as_deref().unwrap_or(&namespace), &parent.name);
        let is_gateway = GATEWAY.is(parent.group.as_deref(), parent.kind.as_deref());
        let found = gateways.iter().position(|ours| Place::of(ours.gateway) == place);
        found.filter(|_| is_gateway).map(|found| (found, parent))
    };
    route.spec.parent_refs.iter().flatten().filter_map(of).collect()
}

/// Attaches a route to the listeners of a Gateway that a reference names, or says why there are none. A route that is not valid
/// is not attached.
fn attach_to(
    ours: &mut Ours<'_>,
    route: &HttpRoute,
    reference: &HttpRouteParentRefs,
    objects: &Objects,
    (rank, matches): (usize, &Rc<Vec<Matched>>),
    is_valid: bool,
) -> Result<(), Said> {
    let refused = |reason, what: &str| Err(Said::no("Accepted", reason, what));
    let is_named = |index: &usize| {
        let spec = ours.listeners[*index].spec;
        reference.section_name.as_ref().is_none_or(|name| *name == spec.name)
            && reference.port.is_none_or(|port| port == spec.port)
    };
    let named: Vec<usize> = (0..ours.listeners.len()).filter(is_named).collect();
    if named.is_empty() {
        return refused("NoMatchingParent", "the Gateway has no such listener");
    }
    let namespace = route.namespace().unwrap_or_default();
    let is_allowed =
        |index: &usize| ours.listeners[*index].allows(&namespace, ours.gateway, &objects.namespaces);
    let allowed: Vec<usize> = named.into_iter().filter(is_allowed).collect();
    if allowed.is_empty() {
        return refused("NotAllowedByListeners", "no listener takes HTTPRoutes of this namespace");
    }
    let mut is_attached = false;
    for index in allowed {
        let listener = &mut ours.listeners[index];
        let own = route.spec.hostnames.as_deref().unwrap_or_default();
        let own = own.iter().map(|host| Some(host.as_str()));
        let own = own.chain(route.spec.hostnames.as_ref().is_none_or(Vec::is_empty).then_some(None));
        let mut hosts: Vec<Option<String>> =
            own.filter_map(|host| intersection(listener.spec.hostname.as_deref(), host)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        if hosts.is_empty() {
            continue;
        }
        is_attached = true;
        let is_first = ours.attached[index].last().is_none_or(|last| last.rank != rank);
        if is_valid && is_first {
            listener.attached += 1;
            ours.attached[index].push(Attached { hosts, rank, matches: Rc::clone(matches) });
        }
    }
    match is_attached {
        true => Ok(()),
        false => refused("NoMatchingListenerHostname", "no listener has a host of the route"),
    }
}

/// Whether `cluster.toml` can have the rules, which are looked at by themselves, so that a mistake stays with its route.
fn are_valid(rules: &Rules) -> Result<(), Said> {
    let routes = rules.matches.iter().flat_map(|matched| &matched.routes);
    // Each takes requests of its own, so that none is out of reach.
    let own_host =
        |(index, route): (usize, &Route)| Route { host: Some(format!("r{index}")), ..route.clone() };
    let route: Vec<Route> = routes.enumerate().map(own_host).collect();
    if route.is_empty() {
        return Ok(());
    }
    let mut names: Vec<&String> = route.iter().flat_map(Route::pools).collect();
    names.sort_unstable();
    names.dedup();
    let pool =
        |name: &&String| Pool { name: (*name).clone(), policy: "random", protocol: None, empty_status: None };
    let tables = Tables {
        node: vec![Node {
            name: "n".to_owned(),
            address: [192, 0, 2, 1].into(),
            server: Vec::new(),
            pools: Vec::new(),
            drain: false,
            zone: None,
        }],
        pool: names.iter().map(pool).collect(),
        service: vec![Service {
            name: "s".to_owned(),
            listen: vec![([192, 0, 2, 2], 80).into()],
            tls: None,
            route,
        }],
        switch: Vec::new(),
    };
    let text = text("", &tables);
    let what = match Document::new(text, Path::new("route")).check_text() {
        Ok(_) => return Ok(()),
        Err(Error::Invalid(mistakes)) => {
            mistakes.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>().join("; ")
        }
        Err(error) => error.to_string(),
    };
    Err(Said::no("Accepted", "UnsupportedValue", what))
}

/// A reference as a status has it.
fn reference_of(reference: &HttpRouteParentRefs) -> HttpRouteStatusParentsParentRef {
    let HttpRouteParentRefs { group, kind, name, namespace, port, section_name } = reference.clone();
    HttpRouteStatusParentsParentRef { group, kind, name, namespace, port, section_name }
}
