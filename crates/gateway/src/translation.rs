//! Resources in, `cluster.toml` and statuses out; no I/O.
//!
//! A Gateway has addresses of its own. Each of its ports is a `[[service]]`, in which the listeners of the port follow one another, the
//! most specific hostname first, each with its routes in the order that the Gateway API demands of matches. Behind the
//! routes of a listener with a hostname, other requests for its hosts are answered 404: they are not for the next one.

mod addresses;
mod attachment;
mod backends;
mod certificates;
mod conditions;
mod document;
mod grants;
mod hostnames;
mod listeners;
pub(crate) mod names;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use gateway_api::apis::standard::gatewayclasses::{
    GatewayClass, GatewayClassStatus, GatewayClassStatusSupportedFeatures,
};
use gateway_api::apis::standard::gateways::{Gateway, GatewayStatus, GatewayStatusAddresses};
use gateway_api::apis::standard::httproutes::HttpRouteStatus;
use ipnet::IpNet;
use jiff::Timestamp;
use kube::ResourceExt;
use switchback_config::{Document, MAX_LISTEN, all_or_fitting};

use crate::objects::{Objects, Place};
pub use addresses::Assigned;
use attachment::Attached;
use backends::Backends;
pub use backends::machine_name;
use conditions::{Conditions, Said};
use document::{Route, Service, Tables, Tls};
use hostnames::{HostSet, specificity};
use listeners::Listener;
use names::Names;

/// Name of the file with the cluster's key.
pub const KEY_FILE: &str = "cluster.key";

/// Extended features of the Gateway API that are supported, by name.
const FEATURES: [&str; 20] = [
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayHTTPListenerIsolation",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteSchemeRedirect",
];

/// What the administrator of the controller says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name by which GatewayClasses name this controller.
    pub controller: String,
    /// Addresses of Gateways.
    pub addresses: Vec<IpNet>,
    /// Tables of `cluster.toml` that no resource has, such as `[limits]`.
    pub tables: String,
}

impl Settings {
    /// Whether the tables go with what is made from resources.
    pub fn check(&self) -> Result<(), switchback_config::Error> {
        let text = text(&self.tables, &Tables::default());
        Document::new(text, Path::new("--settings")).check_text().map(drop)
    }
}

/// What becomes of the resources.
#[derive(Debug)]
pub struct Translation {
    /// The document; None if none holds.
    pub document: Option<String>,
    /// Files that it names but for the key, by their names.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Why Gateways are not in the document.
    pub refused: Vec<String>,
    /// Addresses of the Gateways.
    pub assigned: Assigned,
    /// Statuses of the classes of this controller.
    pub classes: Vec<(Place, GatewayClassStatus)>,
    /// Statuses of their Gateways.
    pub gateways: Vec<(Place, GatewayStatus)>,
    /// Statuses of all routes that have one of these Gateways as parent, or had one.
    pub routes: Vec<(Place, HttpRouteStatus)>,
}

/// A Gateway of this controller.
#[derive(Debug)]
pub(crate) struct Ours<'a> {
    gateway: &'a Gateway,
    addresses: Result<Vec<IpAddr>, Said>,
    listeners: Vec<Listener<'a>>,
    /// Routes of each listener.
    attached: Vec<Vec<Attached>>,
}

/// Translates the resources as they are. `assigned` are the addresses of the translation before, `now` is the time of conditions
/// that change.
pub fn translate(objects: &Objects, settings: &Settings, assigned: &Assigned, now: Timestamp) -> Translation {
    let classes: Vec<&Arc<GatewayClass>> =
        objects.classes.iter().filter(|class| class.spec.controller_name == settings.controller).collect();
    let names: BTreeSet<String> = classes.iter().map(|class| class.name_any()).collect();
    let gateways = objects.gateways.iter().filter(|gateway| names.contains(&gateway.spec.gateway_class_name));
    let mut gateways: Vec<Arc<Gateway>> = gateways.cloned().collect();
    gateways.sort_by_cached_key(|gateway| (gateway.creation_timestamp(), Place::of(&**gateway)));

    let mut files = BTreeMap::new();
    let addresses = addresses::assign(&gateways, &settings.addresses, assigned);
    let ours = std::iter::zip(&gateways, addresses).map(|(gateway, addresses)| {
        let listeners = Listener::all(gateway, objects, &mut files);
        let attached = listeners.iter().map(|_| Vec::new()).collect();
        Ours { gateway, addresses, listeners, attached }
    });
    let mut ours: Vec<Ours<'_>> = ours.collect();
    let mut backends = Backends::new(objects, &settings.addresses);
    let routes = attachment::attach(objects, settings, now, &mut ours, &mut backends);

    let mut service_names = Names::default();
    let services = ours.iter().map(|ours| services(ours, &mut service_names, &mut backends));
    let services: Vec<Vec<Service>> = services.collect();
    let vips = services.iter().flatten().flat_map(|service| &service.listen).map(SocketAddr::ip);
    let switch = backends.switches();
    let used = services.iter().flatten().flat_map(|service| service.route.iter().flat_map(Route::pools));
    let (node, pool) = backends.tables(&vips.collect::<Vec<IpAddr>>(), &used.collect());
    let tables = Tables { node, pool, service: Vec::new(), switch };
    let (document, refused) = document(settings, tables, &services);
    let named = |name: &String| services.iter().flatten().any(|service| service.names_file(name));
    files.retain(|name, _| named(name));
    let assigned = ours.iter().filter_map(|ours| {
        let addresses = ours.addresses.as_ref().ok()?;
        Some((Place::of(ours.gateway), addresses.clone()))
    });
    let assigned = assigned.collect();
    let statuses = std::iter::zip(&ours, &refused)
        .map(|(ours, refused)| (Place::of(ours.gateway), gateway_status(ours, now, refused.as_deref())));
    let gateways = statuses.collect();
    let refused = refused.into_iter().flatten().collect();
    let classes = classes.iter().map(|class| (Place::of(&***class), class_status(class, now))).collect();
    Translation { document, files, refused, assigned, classes, gateways, routes }
}

/// The document with the services of all Gateways with which it holds, the oldest first, and for each Gateway the reason why it is
/// not in it: no Gateway keeps those before it from being served. None if not even a document without Gateways holds.
fn document(
    settings: &Settings,
    mut tables: Tables,
    services: &[Vec<Service>],
) -> (Option<String>, Vec<Option<String>>) {
    let mut listening = 0;
    let over_limit = services.iter().map(|services| {
        listening += services.iter().map(|service| service.listen.len()).sum::<usize>();
        let what = || format!("all Gateways together have at most {MAX_LISTEN} addresses with ports");
        (listening > MAX_LISTEN).then(what)
    });
    let mut refused: Vec<Option<String>> = over_limit.collect();
    let with = |gateways: &[usize]| {
        tables.service = gateways.iter().flat_map(|gateway| &services[*gateway]).cloned().collect();
        let text = text(&settings.tables, &tables);
        let checked = Document::new(text.as_str(), Path::new("cluster.toml")).check_text();
        checked.map(|_| text).map_err(|error| error.to_string())
    };
    let within: Vec<usize> = (0..services.len()).filter(|gateway| refused[*gateway].is_none()).collect();
    match all_or_fitting(&within, with) {
        Ok(fitting) => {
            fitting.left_out.into_iter().for_each(|(gateway, why)| refused[*gateway] = Some(why));
            (Some(fitting.value), refused)
        }
        Err(why) => (None, vec![Some(why); services.len()]),
    }
}

/// The document of these tables, behind those of the settings.
fn text(settings: &str, tables: &Tables) -> String {
    let tables = toml::to_string(tables).expect("names, texts and numbers");
    format!("{}\n\n[cluster]\nkey_file = \"{KEY_FILE}\"\n\n{tables}", settings.trim_end())
        .trim_start()
        .to_owned()
}

/// The services of a Gateway, one for each port.
fn services(ours: &Ours<'_>, names: &mut Names, backends: &mut Backends<'_>) -> Vec<Service> {
    let Ok(addresses) = &ours.addresses else { return Vec::new() };
    let valid = std::iter::zip(&ours.listeners, &ours.attached).filter(|(listener, _)| listener.is_valid());
    let mut ports: BTreeMap<u16, Vec<(&Listener<'_>, &Vec<Attached>)>> = BTreeMap::new();
    for (listener, attached) in valid {
        let Ok(port) = u16::try_from(listener.spec.port) else { continue };
        ports.entry(port).or_default().push((listener, attached));
    }
    let gateway = Place::of(ours.gateway);
    let service = |(port, mut listeners): (u16, Vec<(&Listener<'_>, &Vec<Attached>)>)| {
        listeners.sort_by_key(|(listener, _)| specificity(listener.spec.hostname.as_deref()));
        let mut certificates = Vec::new();
        // The first certificate is for all names that none has: that of the least specific listener.
        for certificate in listeners.iter().rev().flat_map(|(listener, _)| &listener.certificates) {
            if !certificates.contains(certificate) {
                certificates.push(certificate.clone());
            }
        }
        let tls = (!certificates.is_empty()).then_some(Tls { certificate: certificates });
        let mut route = routes(&listeners);
        if tls.is_some() {
            let has_nodes = route.iter().flat_map(Route::pools).any(|pool| backends.has_nodes(pool));
            let pools = route.iter_mut().flat_map(Route::pools_mut);
            pools.for_each(|pool| *pool = backends.over_tls(pool));
            if !has_nodes {
                route.insert(0, ends_tls(backends.machines()));
            }
        }
        Service {
            name: names.name(&[&gateway.namespace, &gateway.name, &port.to_string()]),
            listen: addresses.iter().map(|address| SocketAddr::new(*address, port)).collect(),
            tls,
            route,
        }
    };
    ports.into_iter().map(service).collect()
}

/// A route that takes no request. Where all requests are answered without a server, it gives clients of TLS a machine of this
/// pool, which ends TLS and answers.
fn ends_tls(pool: String) -> Route {
    let host = || Some("no-host.invalid".to_owned());
    let not = Some(Box::new(Route { host: host(), ..Route::default() }));
    Route { host: host(), not, pool: Some(pool), ..Route::default() }
}

/// The routes of the listeners of one port.
fn routes(listeners: &[(&Listener<'_>, &Vec<Attached>)]) -> Vec<Route> {
    let all = listeners.iter().flat_map(|(listener, attached)| {
        let mut matches: Vec<_> = attached.iter().flat_map(Attached::matches).collect();
        matches.sort_by(|one, other| one.0.cmp(&other.0));
        // With TLS, a node takes clients of all hosts that have a route.
        let rest = Route {
            host: listener.spec.hostname.as_deref().map(str::to_ascii_lowercase),
            respond: Some(404),
            ..Route::default()
        };
        matches.into_iter().flat_map(|(_, routes)| routes).chain([rest])
    });
    // Hosts of which earlier routes take all requests.
    let mut done = HostSet::default();
    let mut is_reached = |route: &Route| {
        let is_reached = !done.covers(route.host.as_deref());
        if route.takes_all_of_its_hosts() {
            done.insert(route.host.clone());
        }
        is_reached
    };
    all.filter(|route| is_reached(route)).collect()
}

fn class_status(class: &GatewayClass, now: Timestamp) -> GatewayClassStatus {
    let before = class.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let conditions = Conditions { generation: class.metadata.generation, now };
    let feature = |name: &str| GatewayClassStatusSupportedFeatures { name: name.to_owned() };
    GatewayClassStatus {
        conditions: Some(conditions.of(vec![Said::yes("Accepted", "Accepted")], before)),
        supported_features: Some(FEATURES.into_iter().map(feature).collect()),
    }
}

fn gateway_status(ours: &Ours<'_>, now: Timestamp, refused: Option<&str>) -> GatewayStatus {
    let Ours { gateway, addresses, listeners, .. } = ours;
    let before = gateway.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let conditions = Conditions { generation: gateway.metadata.generation, now };
    let are_accepted = listeners.iter().filter(|listener| listener.is_accepted()).count();
    let accepted = match (addresses, are_accepted) {
        (Err(said), _) if said.kind == "Accepted" => said.clone(),
        (_, 0) => Said::no("Accepted", "ListenersNotValid", "no listener is accepted"),
        (_, some) if some < listeners.len() => Said::yes("Accepted", "ListenersNotValid"),
        _ => Said::yes("Accepted", "Accepted"),
    };
    let programmed = match addresses {
        Err(said) if said.kind == "Programmed" => said.clone(),
        Err(_) => Said::no("Programmed", "Invalid", "it is not accepted"),
        Ok(_) if refused.is_some() => Said::no("Programmed", "Invalid", refused.unwrap_or_default()),
        Ok(_) if !listeners.iter().any(Listener::is_valid) => {
            Said::no("Programmed", "Invalid", "no listener can be served")
        }
        Ok(_) => Said::yes("Programmed", "Programmed"),
    };
    let is_programmed = programmed.holds;
    let address = |address: &IpAddr| GatewayStatusAddresses {
        r#type: Some(addresses::IP_ADDRESS.to_owned()),
        value: address.to_string(),
    };
    let listeners = listeners.iter().map(|listener| listener.status(is_programmed, conditions, gateway));
    GatewayStatus {
        addresses: Some(addresses.iter().flatten().map(address).collect()),
        attached_listener_sets: None,
        conditions: Some(conditions.of(vec![accepted, programmed], before)),
        listeners: Some(listeners.collect()),
    }
}
