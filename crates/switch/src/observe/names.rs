//! Names of services, pools and nodes in the current configuration.

use std::collections::HashMap;
use std::net::SocketAddr;

use switchback_config::{Action, Cluster, TlsMode};
use switchback_hello::ClientHello;
use switchback_http::Head;
use switchback_wire::{NodeAddress, sb_key};

use super::Finished;
use crate::key::{secret_of, share_of};
use crate::plan::NodeId;
use switchback_routes::{Request, Routes};

/// Names for the access log and the metrics.
#[derive(Debug)]
pub struct Names {
    services: Vec<Service>,
    by_vip: foldhash::HashMap<SocketAddr, usize>,
    /// Name and policy of each pool.
    pools: Vec<(String, &'static str)>,
    /// The nodes of each pool.
    members: Vec<Vec<NodeId>>,
    /// The secret by which switches share requests out.
    secret: sb_key,
    nodes: foldhash::HashMap<NodeId, String>,
    limits: switchback_http::Limits,
}

#[derive(Debug)]
struct Service {
    name: String,
    tls: TlsMode,
    routes: Routes,
}

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteTaken {
    /// Number of the route, from 1 in the order of the file.
    pub(super) route: usize,
    /// None for a redirect.
    pub(super) pool: Option<usize>,
}

impl Names {
    /// `ids` maps node addresses to ids.
    pub fn new(
        cluster: &Cluster,
        ids: &HashMap<NodeAddress, NodeId>,
        limits: switchback_http::Limits,
    ) -> Self {
        let service = |service: &switchback_config::Service| Service {
            name: service.name.clone(),
            tls: service.tls.clone(),
            routes: Routes::new(service.routes.clone()),
        };
        let id = |node: &switchback_config::Node| ids.get(&node.handoff_address()).copied();
        let members = |pool: &switchback_config::Pool| {
            pool.nodes.iter().filter_map(|&node| id(&cluster.nodes[node])).collect()
        };
        let vips = cluster.services.iter().enumerate();
        let named = cluster.nodes.iter().filter_map(|node| Some((id(node)?, node.name.clone())));
        Names {
            services: cluster.services.iter().map(service).collect(),
            by_vip: vips
                .flat_map(|(index, service)| service.listen.iter().map(move |vip| (*vip, index)))
                .collect(),
            pools: cluster.pools.iter().map(|pool| (pool.name.clone(), pool.policy.name())).collect(),
            members: cluster.pools.iter().map(members).collect(),
            secret: secret_of(cluster),
            nodes: named.collect(),
            limits,
        }
    }

    /// Limits of the head parser.
    pub(super) fn limits(&self) -> &switchback_http::Limits {
        &self.limits
    }

    /// Index of the service at a VIP.
    pub(super) fn service_at(&self, vip: SocketAddr) -> Option<usize> {
        self.by_vip.get(&vip).copied()
    }

    /// Name of a service.
    pub(super) fn service(&self, service: usize) -> &str {
        &self.services[service].name
    }

    /// The route of a request to the service.
    pub(super) fn route_of(
        &self,
        service: usize,
        head: &Head<'_>,
        finished: &Finished,
    ) -> Option<RouteTaken> {
        let routes = &self.services[service].routes;
        let route = routes.place(&Request { head, client: finished.flow.client().ip() }).ok()??;
        Some(RouteTaken { route: route + 1, pool: self.pool_of(routes.action(route), Some(head), finished) })
    }

    /// Whether clients of the service speak TLS, and who ends it.
    pub(super) fn tls(&self, service: usize) -> &TlsMode {
        &self.services[service].tls
    }

    /// The route of a ClientHello to the service.
    pub(super) fn route_of_hello(
        &self,
        service: usize,
        hello: &ClientHello,
        finished: &Finished,
    ) -> Option<RouteTaken> {
        let routes = &self.services[service].routes;
        let client = finished.flow.client().ip();
        let route = routes.find_hello(hello.server_name.as_deref(), &hello.protocols, client)?;
        Some(RouteTaken { route: route + 1, pool: self.pool_of(routes.action(route), None, finished) })
    }

    /// The pool of a request. Of a split it is the only one with the request's node, or else the one that a switch chooses.
    fn pool_of(&self, action: &Action, head: Option<&Head<'_>>, finished: &Finished) -> Option<usize> {
        let split = match action {
            Action::Pool(pool) => return Some(*pool),
            Action::Split(split) => split,
            Action::Redirect(_) | Action::Respond(_) => return None,
        };
        let has_node = |pool: &usize| finished.node.is_some_and(|node| self.members[*pool].contains(&node));
        let mut with_node = action.pools().filter(has_node);
        match (with_node.next(), with_node.next()) {
            (Some(only), None) => Some(only),
            _ => {
                let begins = finished.asked.as_ref()?.begins;
                Some(share_of(split, &self.secret, &finished.flow, head, begins))
            }
        }
    }

    /// Name and policy of a pool.
    pub(super) fn pool(&self, pool: usize) -> (&str, &'static str) {
        let (name, policy) = &self.pools[pool];
        (name, policy)
    }

    /// Name of a node; empty if it has left the configuration.
    pub(super) fn node(&self, node: NodeId) -> &str {
        self.nodes.get(&node).map_or("", String::as_str)
    }
}
