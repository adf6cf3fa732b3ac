//! Changes between two clusters in words, for the log of a reload.

use crate::{
    AccessLog, Acme, Action, Admin, ClientMatch, Cluster, Network, RequestRate, Route, Service, Split, Tls,
    TlsMode,
};

impl Cluster {
    /// What is different in `new`, a line for each change, in the order keys, reports, limits, access log, admin, acme,
    /// dns, nodes, pools, services, switches, clients. Empty if nothing is. Things are told apart by their names, so their
    /// order in the file is no change, except that of routes.
    pub fn diff(&self, new: &Cluster) -> Vec<String> {
        let mut lines = Vec::new();
        if self.keys != new.keys {
            lines.push("cluster key changed".to_owned());
        }
        all_changed("reports", self.reports.in_words(), new.reports.in_words(), &mut lines);
        all_changed("limits", self.limits.in_words(), new.limits.in_words(), &mut lines);
        let log = |cluster: &Cluster| AccessLog::in_words(cluster.access_log.as_ref());
        all_changed("access_log", log(self), log(new), &mut lines);
        let admin = |cluster: &Cluster| Admin::in_words(cluster.admin.as_ref());
        all_changed("admin", admin(self), admin(new), &mut lines);
        let acme = |cluster: &Cluster| Acme::in_words(cluster.acme.as_ref(), &cluster.nodes);
        all_changed("acme", acme(self), acme(new), &mut lines);
        all_changed("dns", self.dns.in_words(), new.dns.in_words(), &mut lines);
        named(
            "node",
            &self.nodes,
            &new.nodes,
            |node| &node.name,
            &mut lines,
            |name, old, new, lines| {
                all_changed(name, old.in_words(), new.in_words(), lines);
            },
        );
        named(
            "pool",
            &self.pools,
            &new.pools,
            |pool| &pool.name,
            &mut lines,
            |name, old_pool, new_pool, lines| {
                all_changed(name, old_pool.in_words(&self.nodes), new_pool.in_words(&new.nodes), lines);
            },
        );
        named(
            "service",
            &self.services,
            &new.services,
            |service| &service.name,
            &mut lines,
            |name, old_service, new_service, lines| {
                let listen = |service: &Service| {
                    service.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                };
                changed(name, "listen", listen(old_service), listen(new_service), lines);
                let passthrough = |service: &Service| match service.tls {
                    TlsMode::Off => "(none)".to_owned(),
                    TlsMode::Terminate(_) => false.to_string(),
                    TlsMode::Passthrough => true.to_string(),
                };
                let clients = |service: &Service| service.admitted.in_words();
                all_changed(name, clients(old_service), clients(new_service), lines);
                let limits = |service: &Service| service.limits.in_words();
                all_changed(name, limits(old_service), limits(new_service), lines);
                changed(name, "tls.passthrough", passthrough(old_service), passthrough(new_service), lines);
                let tls = |service: &Service| Tls::in_words(service.tls.terminated());
                all_changed(name, tls(old_service), tls(new_service), lines);
                routes(name, &self.routes_in_words(old_service), &new.routes_in_words(new_service), lines);
                lists(name, old_service, new_service, lines);
            },
        );
        named(
            "switch",
            &self.switches,
            &new.switches,
            |switch| &switch.name,
            &mut lines,
            |name, old_switch, new_switch, lines| {
                let (old, new) = (old_switch.in_words(&self.services), new_switch.in_words(&new.services));
                all_changed(name, old, new, lines);
            },
        );
        networks(&self.clients, &new.clients, &mut lines);
        lines
    }

    /// The routes of a service: for each what it takes, and where that goes.
    pub fn routes_in_words(&self, service: &Service) -> Vec<String> {
        service.routes.iter().map(|route| self.describe_route(route)).collect()
    }

    fn describe_route(&self, route: &Route) -> String {
        let h2c = if route.h2c { ", h2c" } else { "" };
        let action = match &route.action {
            Action::Pool(pool) => self.pools[*pool].name.clone(),
            Action::Split(split) => {
                let Split { shares, by } = &**split;
                let share = |(pool, weight): &(usize, u32)| format!("{} {weight}", self.pools[*pool].name);
                let shares: Vec<String> = shares.iter().map(share).collect();
                let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
                format!("{}{by}", shares.join(", "))
            }
            Action::Redirect(redirect) => format!("redirect {redirect}"),
            Action::Respond(status) => format!("respond {status}"),
        };
        let [client, all] = route.limit.in_words(RequestRate::to_string);
        let limit = match route.limit.is_none() {
            true => String::new(),
            false => format!(", limit client {client}, all {all}"),
        };
        let rewrite = if route.rewrite.is_empty() { String::new() } else { format!(", {}", route.rewrite) };
        let mirror = route
            .mirror
            .map_or(String::new(), |mirror| format!(", mirror {mirror} to {}", self.pools[mirror.pool].name));
        format!("{}{h2c}{limit} -> {action}{rewrite}{mirror}", route.in_words())
    }
}

/// Compares two lists whose items are identified by name: new items, removed items, and `compare`'s result for the
/// others.
fn named<T>(
    kind: &str,
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> &String,
    lines: &mut Vec<String>,
    compare: impl Fn(&str, &T, &T, &mut Vec<String>),
) {
    for gone in old.iter().filter(|item| !new.iter().any(|other| name(other) == name(item))) {
        lines.push(format!("{kind} {} removed", name(gone)));
    }
    for item in new {
        match old.iter().find(|other| name(other) == name(item)) {
            Some(before) => compare(&format!("{kind} {}", name(item)), before, item, lines),
            None => lines.push(format!("{kind} {} added", name(item))),
        }
    }
}

fn changed(name: &str, field: &str, old: String, new: String, lines: &mut Vec<String>) {
    if old != new {
        lines.push(format!("{name}: {field} {old} -> {new}"));
    }
}

/// Compares two values of each key.
fn all_changed<const N: usize>(
    name: &str,
    old: [(&'static str, String); N],
    new: [(&'static str, String); N],
    lines: &mut Vec<String>,
) {
    for ((key, old), (_, new)) in old.into_iter().zip(new) {
        changed(name, key, old, new, lines);
    }
}

fn networks(old: &[Network], new: &[Network], lines: &mut Vec<String>) {
    let gone = old.iter().filter(|network| !new.contains(network));
    lines.extend(gone.map(|network| format!("clients of {network} removed")));
    let added = new.iter().filter(|network| !old.contains(network));
    lines.extend(added.map(|network| format!("clients of {network} added")));
}

/// Tells of lists of networks with the same name and other networks.
fn lists(name: &str, old: &Service, new: &Service, lines: &mut Vec<String>) {
    if old.admitted != new.admitted && old.admitted.in_words() == new.admitted.in_words() {
        lines.push(format!("{name}: clients: other networks in the lists"));
    }
    let before: Vec<&ClientMatch> = clients_of(old).collect();
    for clients in clients_of(new) {
        let is_other = |before: &&ClientMatch| before.texts == clients.texts && *before != clients;
        if before.iter().any(is_other) {
            lines.push(format!("{name}: clients in {clients}: other networks in the list"));
        }
    }
}

/// The clients in conditions of a service's routes.
fn clients_of(service: &Service) -> impl Iterator<Item = &ClientMatch> {
    let conditions =
        service.routes.iter().flat_map(|route| std::iter::once(&route.conditions).chain(&route.except));
    conditions.filter_map(|conditions| conditions.clients.as_ref())
}

fn routes(name: &str, old: &[String], new: &[String], lines: &mut Vec<String>) {
    let before = lines.len();
    for route in old.iter().filter(|route| !new.contains(route)) {
        lines.push(format!("{name}: route removed: {route}"));
    }
    for route in new.iter().filter(|route| !old.contains(route)) {
        lines.push(format!("{name}: route added: {route}"));
    }
    if lines.len() == before && old != new {
        lines.push(format!("{name}: routes in another order"));
    }
}
