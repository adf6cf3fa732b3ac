//! A switch that is asked about requests and serves none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use switchback_config::{Cluster, Node};
use switchback_http::{Head, Limits, path};
use switchback_wire::{NodeAddress, SB_EXPRESS_HEAD_MAX};

use super::explanation::{Flow, Names, Place, SessionRead, Slow};
use crate::automaton::{Automaton, Walked};
use crate::dispatch::{Dispatcher, Moment, unlimited};
use crate::express::automata;
use crate::key::secret_of;
use crate::plan::{LocalMachine, NodeId, Plan};
use switchback_flow::destination::{Next, Placement};
use switchback_flow::entry::Entry;
use switchback_flow::request::{InProgress, Request};
use switchback_routes::{failed, why_not};

/// Start of a switch that knows no flow but the one explained.
pub(super) const AT_FIRST: Moment<'static> = Moment { now: Duration::ZERO, map: &|_| None, take: &unlimited };

/// A switch that has just read its configuration.
pub struct Explainer {
    pub(super) cluster: Cluster,
    pub(super) dispatcher: Dispatcher,
    pub(super) automata: Vec<Option<Automaton>>,
}

impl Explainer {
    /// Policies start without state. Without a cluster key no cookie can be read, and hashes differ from the cluster's.
    pub fn new(cluster: Cluster) -> Self {
        let addresses = cluster.nodes.iter().map(Node::handoff_address);
        let ids: HashMap<NodeAddress, NodeId> = addresses.zip((0..).map(NodeId)).collect();
        let key = secret_of(&cluster);
        let plan = Plan::new(&cluster, key, ids, LocalMachine::default(), Duration::ZERO);
        let automata = automata(&cluster);
        let dispatcher = Dispatcher::new(plan, Box::new(always_the_same()));
        Explainer { cluster, dispatcher, automata }
    }

    /// The cluster to which indices in explanations refer.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Index of the service at a VIP of the cluster.
    pub(super) fn service_at(&self, vip: SocketAddr) -> usize {
        let services = &self.cluster.services;
        services.iter().position(|service| service.listen.contains(&vip)).expect("a connection is to a VIP")
    }

    /// Limits for the head parser.
    pub(super) fn limits(&mut self) -> Limits {
        self.dispatcher.plan().http_limits()
    }

    /// The node for a request on a flow with this entry; None if no node of the pool may have it.
    pub(super) fn pick(&mut self, request: &Request, entry: &Entry) -> Option<(NodeId, Flow)> {
        let has_node = !entry.is_held();
        let mut waiting = InProgress::without_packets(*request, *entry);
        waiting.choice = request.wanted;
        if has_node {
            match self.dispatcher.next_node(AT_FIRST, request, entry, None) {
                Next::Stays => return Some((entry.node, Flow::Stays)),
                Next::Leaves(choice) => waiting.choice = choice,
                Next::Nowhere => return None,
            }
        }
        let node = match self.dispatcher.place(AT_FIRST, &mut waiting, false) {
            Placement::Session(node) | Placement::Full(node) | Placement::Any(Some(node)) => node,
            Placement::Any(None) | Placement::Nowhere => return None,
        };
        let flow = match has_node {
            true if node == entry.node => Flow::Anew,
            true => Flow::Moves(node_index(entry.node)),
            false => Flow::New,
        };
        Some((node, flow))
    }

    /// The request's session, if the pool has sessions that stay with their nodes.
    pub(super) fn session(&mut self, request: &Request) -> Option<SessionRead> {
        let plan = self.dispatcher.plan();
        let by_client = plan.sessions(request.group)?.is_by_client();
        Some(SessionRead {
            pool: plan.pool_of(request.group),
            names: match request.session {
                None => Names::Nothing,
                Some(session) => session.node.map_or(Names::Gone, |node| Names::Node(node_index(node))),
            },
            ignored: request.cookies_ignored,
            by_client,
            readable: !self.cluster.keys.is_empty(),
        })
    }

    /// Result of the automaton for a head at `offset`.
    pub(super) fn express(&self, service: usize, head: &[u8], offset: u64) -> Result<(), Slow> {
        let automaton = self.automata[service].as_ref().ok_or(Slow::NoAutomaton)?;
        if head.len() > SB_EXPRESS_HEAD_MAX as usize {
            return Err(Slow::TooLong);
        }
        match automaton.walk(head) {
            Walked::Pool { .. } => Ok(()),
            Walked::Route => Err(Slow::Route),
            Walked::Stopped(at) => Err(Slow::Unknown(Place::new(head, at, offset))),
        }
    }

    /// For each route up to the first match, why it does not match the request, or None.
    pub(super) fn routes(&self, service: usize, head: &Head<'_>, client: IpAddr) -> Vec<Option<String>> {
        let routes = &self.cluster.services[service].routes;
        let path = path::normal(head.path());
        let request = switchback_routes::Request { head, client };
        let taker = routes.iter().position(|route| failed(route, &request, &path).is_none());
        let tried = &routes[..taker.map_or(routes.len(), |index| index + 1)];
        tried
            .iter()
            .map(|route| failed(route, &request, &path).map(|condition| why_not(route, &request, condition)))
            .collect()
    }
}

/// Index in the cluster of a node, which [`Explainer::new`] makes its id.
pub(super) fn node_index(node: NodeId) -> usize {
    node.index()
}

/// How servers read the request's path, if not as written.
pub(super) fn read_as(head: &Head<'_>) -> Vec<String> {
    let readings = path::readings(head.path());
    let is_as_written = readings.len() == 1 && readings[0] == head.path();
    if is_as_written { Vec::new() } else { readings.into_iter().map(Into::into).collect() }
}

/// Random numbers that are the same in each run.
fn always_the_same() -> impl FnMut() -> u64 + Send {
    // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    let mut state = 0u64;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
