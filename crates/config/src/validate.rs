//! From the shape of the file to its meaning: resolves names to indices and collects every mistake on the
//! way.
//!
//! A value that is wrong is reported and left out, and the check goes on without it. So the result has holes
//! until the last line, which gives it out only if nothing was reported.

mod access_log;
mod acme;
mod admin;
mod clients;
mod conditions;
mod dns;
mod health;
mod limits;
mod machines;
mod mirror;
mod networks;
mod nodes;
mod outliers;
mod passthrough;
mod persistence;
mod pool;
mod rates;
mod redirect;
mod reports;
mod rewrite;
mod service;
mod switch;
mod tls;
mod warnings;

use std::collections::HashMap;
use std::path::Path;

pub(crate) use acme::DOMAINS_MAX;

use crate::error::Mistake;
use crate::mistakes::Mistakes;
use crate::{Cluster, MAX_NODES, Rank, raw};
use service::{Listening, Named};

/// Returns the cluster, which has no keys yet, and warnings. `mistakes` are those in the structure of the file, whose relative
/// paths begin at `directory`.
pub(crate) fn check(
    file: &raw::File,
    mut mistakes: Mistakes,
    directory: &Path,
) -> Result<(Cluster, Vec<Mistake>), Vec<Mistake>> {
    mistakes.path("key_file", &file.cluster.key_file, "cluster.key");
    let reports = mistakes.reports(&file.reports, file.node.len());
    let limits = mistakes.limits(&file.limits);
    let dns = mistakes.dns(&file.dns);
    let access_log = file.access_log.as_ref().and_then(|log| mistakes.access_log(log));

    let node_names = mistakes.names("node", file.node.iter().map(|node| &node.name));
    let pool_names = mistakes.names("pool", file.pool.iter().map(|pool| &pool.name));
    let service_names = mistakes.names("service", file.service.iter().map(|service| &service.name));
    let switch_names = mistakes.names("switch", file.switch.iter().map(|switch| &switch.name));

    if file.node.is_empty() && file.pool.iter().any(|pool| pool.nodes.is_some()) {
        mistakes.in_file("no node, at least one [[node]] is needed");
    }
    if let Some(node) = file.node.get(MAX_NODES) {
        mistakes.at(&node.name, format!("{} nodes, allowed are at most {MAX_NODES}", file.node.len()));
    }
    let nodes = mistakes.nodes(&file.node);

    mistakes.pool_ids(&file.pool);
    mistakes.pools_of_nodes(&file.node, &pool_names);
    let pools = file.pool.iter().map(|pool| mistakes.pool(pool, &file.node, &node_names, &switch_names));
    let pools: Vec<_> = pools.collect();

    let lists = mistakes.network_lists(&file.networks, directory);
    let named = Named { pools: &pool_names, lists: &lists };
    let mut listening = Listening { nodes: &nodes, taken: HashMap::new() };
    let services = file.service.iter();
    let services = services.map(|service| mistakes.service(service, &named, &mut listening));
    let services: Vec<_> = services.collect();
    if nodes.len() == file.node.len() {
        mistakes.servers_of_machines(&file.node, &nodes, &pools, &services);
        mistakes.resumed_on_machines(&file.pool, &nodes, &pools);
        mistakes.servers_behind_tls(&file.service, &nodes, &pools, &services);
    }
    let admin = mistakes.admin(file.admin.as_ref(), &services);
    for service in &file.service {
        mistakes.cookies(service, &pool_names, &pools);
    }
    mistakes.servers_beside_admin(&file.service, &services, admin.as_ref());
    mistakes.pools_over_tls(file, &pools);
    let acme = mistakes.acme(file.acme.as_ref(), &node_names);
    mistakes.issued_certificates(file);
    let clients = mistakes.clients(&file.client, &file.node);
    let switches = mistakes.switches(&file.switch, &file.service, &service_names);

    let pools = pools.into_iter().flatten().collect();
    let keys = Vec::new();
    let cluster = Cluster {
        keys,
        reports,
        limits,
        access_log,
        admin,
        acme,
        dns,
        nodes,
        pools,
        services,
        switches,
        rank: Rank::default(),
        clients,
        hash: 0,
        version: None,
    };
    if mistakes.count() == 0 {
        mistakes.issued_at_nodes(file, &cluster);
        mistakes.mirrors_are_reached(file, &cluster);
    }
    if mistakes.count() == 0 {
        mistakes.warnings(file, &cluster);
    }
    mistakes.into_warned(cluster)
}
