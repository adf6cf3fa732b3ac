//! What the dispatcher decides by: the configuration with nodes named by their place in the BPF map.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use switchback_config::{Action, Cluster, Limits, Redirect, Route};
use switchback_http::Head;
use switchback_policy::{Candidate, Policy};
use switchback_wire::sb_key;

/// A node's index in the BPF map `nodes`. It stays with the node's address across reloads and restarts, because flow
/// entries refer to it.
pub type NodeId = u32;

/// A node as the switch sees it.
#[derive(Clone, Debug)]
pub struct PlanNode {
    /// As in the configuration.
    pub name: String,
    /// Where handoff packets go.
    pub address: IpAddr,
    /// Ours towards it; None while there is no route.
    pub source: Option<IpAddr>,
}

/// A pool and its policy's memory.
pub struct PlanPool {
    nodes: Vec<NodeId>,
    weights: Vec<u32>,
    policy: Box<dyn Policy>,
}

/// A service's routes.
#[derive(Debug)]
pub struct PlanService {
    /// As in the configuration.
    pub name: String,
    routes: Vec<Route>,
}

/// What a route does with the requests that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// A node of this pool gets them.
    Pool(usize),
    /// The client is sent elsewhere.
    Redirect(&'a Redirect),
}

/// Everything a dispatch decision depends on.
pub struct Plan {
    /// How much clients may ask for.
    pub limits: Limits,
    /// Signs handoff packets.
    pub key: sb_key,
    /// By id; an id whose node left the configuration is None.
    pub nodes: Vec<Option<PlanNode>>,
    /// In the configuration's order.
    pub services: Vec<PlanService>,
    pools: Vec<PlanPool>,
    vips: HashMap<SocketAddr, usize>,
    ids: HashMap<IpAddr, NodeId>,
}

impl Plan {
    /// `ids` gives each of the cluster's nodes its place, by address.
    pub fn new(cluster: &Cluster, key: sb_key, ids: HashMap<IpAddr, NodeId>) -> Self {
        let id = |index: &usize| ids[&cluster.nodes[*index].address];
        let len = ids.values().max().map_or(0, |max| *max as usize + 1);
        let mut nodes = vec![None; len];
        for node in &cluster.nodes {
            nodes[ids[&node.address] as usize] =
                Some(PlanNode { name: node.name.clone(), address: node.address, source: None });
        }
        let pools = cluster.pools.iter().map(|pool| PlanPool {
            nodes: pool.nodes.iter().map(id).collect(),
            weights: pool.nodes.iter().map(|&index| cluster.nodes[index].weight).collect(),
            policy: switchback_policy::build(pool.policy, pool.nodes.len()),
        });
        let services = cluster
            .services
            .iter()
            .map(|service| PlanService { name: service.name.clone(), routes: service.routes.clone() });
        let vips = cluster.services.iter().enumerate();
        let vips = vips.flat_map(|(index, service)| service.listen.iter().map(move |vip| (*vip, index)));
        Plan {
            limits: cluster.limits.clone(),
            key,
            nodes,
            services: services.collect(),
            pools: pools.collect(),
            vips: vips.collect(),
            ids,
        }
    }

    /// Keeps the nodes of the plan before this one that are in it no more: their flows go on, and can be released.
    pub fn retire(&mut self, before: &Plan) {
        for (index, node) in before.nodes.iter().enumerate() {
            if self.nodes.len() <= index {
                self.nodes.resize(index + 1, None);
            }
            if self.nodes[index].is_none() {
                self.nodes[index].clone_from(node);
            }
        }
    }

    /// The service at a VIP.
    pub fn service(&self, vip: SocketAddr) -> Option<usize> {
        self.vips.get(&vip).copied()
    }

    /// The node with this address.
    pub fn node_at(&self, address: IpAddr) -> Option<NodeId> {
        self.ids.get(&address).copied()
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> Option<&PlanNode> {
        self.nodes.get(id as usize)?.as_ref()
    }

    /// What becomes of the request: what the first route does that takes it.
    pub fn choose(&self, service: usize, head: &Head<'_>) -> Option<Choice<'_>> {
        let routes = &self.services.get(service)?.routes;
        routes.iter().find(|route| takes(route, head)).map(|route| match &route.action {
            Action::Pool(pool) => Choice::Pool(*pool),
            Action::Redirect(redirect) => Choice::Redirect(redirect),
        })
    }

    /// What the head parser is to allow.
    pub fn http_limits(&self) -> switchback_http::Limits {
        switchback_http::Limits {
            head_len: self.limits.head,
            fields: self.limits.fields,
            body_len: self.limits.body.unwrap_or(u64::MAX),
        }
    }

    /// Whether a node belongs to a pool.
    pub fn has(&self, pool: usize, node: NodeId) -> bool {
        self.pools.get(pool).is_some_and(|pool| pool.nodes.contains(&node))
    }

    /// The policy's choice among the pool's nodes that are not in `tried`.
    pub fn pick(
        &mut self,
        pool: usize,
        tried: &[NodeId],
        now: Duration,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<NodeId> {
        let PlanPool { nodes, weights, policy } = self.pools.get_mut(pool)?;
        let candidates: Vec<Candidate> = std::iter::zip(nodes.iter(), weights.iter())
            .map(|(node, &weight)| Candidate { weight, available: !tried.contains(node) })
            .collect();
        policy.pick(&candidates, now, random).map(|index| nodes[index])
    }
}

/// What a route can ask of a request, in the order in which it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The host that the request names.
    Host,
    /// The beginning of its path.
    Path,
    /// Its method.
    Method,
    /// One of its header fields.
    Header,
}

/// Whether all of the route's conditions hold.
pub fn takes(route: &Route, head: &Head<'_>) -> bool {
    failed(route, head).is_none()
}

/// The first of the route's conditions that does not hold.
pub fn failed(route: &Route, head: &Head<'_>) -> Option<Condition> {
    let host = route.host.as_ref().is_none_or(|wanted| head.host.is_some_and(|host| wanted.matches(host)));
    let path = route.path.as_ref().is_none_or(|prefix| head.path().starts_with(prefix));
    let method = route.methods.is_empty() || route.methods.iter().any(|method| method == head.method);
    if !host {
        return Some(Condition::Host);
    }
    if !path {
        return Some(Condition::Path);
    }
    if !method {
        return Some(Condition::Method);
    }
    let header = route.header.as_ref().is_none_or(|wanted| {
        head.header(&wanted.name)
            .is_some_and(|value| wanted.value.as_ref().is_none_or(|text| text.as_bytes() == value))
    });
    (!header).then_some(Condition::Header)
}
