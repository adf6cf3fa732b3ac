//! The configuration as the dispatcher uses it: nodes are named by their index in the BPF map `nodes`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use switchback_config::{
    Action, Admitted, Cluster, Delegate, Limits, Model, Rank, Redirect, Resume, Scheme, Split,
};
use switchback_hello::{ClientHello, Tickets};
use switchback_http::{Head, Reject};
use switchback_policy::Ask;
use switchback_wire::Reason;
use switchback_wire::clock::NodeClock;
use switchback_wire::handoff::{Peers, source_port};
use switchback_wire::message::Order;
use switchback_wire::report::{Report, pool_id};
use switchback_wire::{NodeAddress, SB_QUEUE_WHOLE, Seq, keys, sb_flow, sb_key, sb_session};

use crate::group::{Group, MemberView, NodeState};
use crate::key::{mirror_point, share_of};
use crate::sessions::{RequestSession, Sessions};
use switchback_flow::destination::{Placement, Session, Side};
use switchback_flow::new_head::NewHead;
use switchback_rates::RequestLimits;
use switchback_routes::{Request, Routes, rewritten};

pub use crate::group::LocalMachine;
pub use switchback_flow::NodeId;

/// A node, its configuration and what its reports say.
#[derive(Clone, Debug)]
pub struct PlanNode {
    /// Name in the configuration.
    pub name: String,
    /// What handoff packets know it by.
    pub address: NodeAddress,
    /// Our source address towards the node; None without a route.
    pub source: Option<IpAddr>,
    /// The node's clock relative to ours; None until the node has sent it.
    pub clock: Option<NodeClock>,
    /// Challenge of the outstanding clock query.
    challenge: Option<u64>,
    /// `drain = true` in the configuration.
    pub drain: bool,
    /// The order of `switchback drain` or `undrain`, until the node reports that it has carried it out.
    pub order: Option<GivenOrder>,
    /// Since when its silence counts: from when it entered the configuration, or from when this switch, which was cut
    /// off, has heard any node again.
    pub since: Duration,
    /// The last report and its time of arrival.
    pub report: Option<(Duration, Report)>,
}

/// An order on its way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenOrder {
    order: Order,
    /// Number of HELLOs that have carried it.
    told: u8,
}

impl GivenOrder {
    /// HELLOs after which one has arrived before the node's next report.
    const TOLD: u8 = 3;

    /// Whether the node has done it, if it now drains or not.
    fn is_carried_out(&self, is_draining: bool) -> bool {
        self.told >= Self::TOLD && self.order.drain == is_draining
    }
}

impl PlanNode {
    /// Whether the configuration or a command drains the node.
    pub fn is_drained(&self) -> bool {
        self.drain || self.order.is_some_and(|given| given.order.drain)
    }

    /// When its silence began: with the last report, or later if the switch was cut off. A node without a report gets
    /// [`FIRST_REPORT`] to send one.
    fn last_heard(&self) -> Duration {
        self.report.map_or(self.since + FIRST_REPORT, |(at, _)| at.max(self.since))
    }
}

/// The part of a node's state that every choice reads, kept apart from [`PlanNode`] so that a choice among a hundred
/// nodes touches little memory.
#[derive(Clone, Copy, Debug)]
struct NodeSummary {
    drained: bool,
    silent_after: Duration,
    dead_after: Duration,
}

impl NodeSummary {
    /// For an id without a node.
    const NONE: NodeSummary =
        NodeSummary { drained: true, silent_after: Duration::ZERO, dead_after: Duration::ZERO };

    fn is_silent(self, now: Duration) -> bool {
        now > self.silent_after
    }

    fn is_dead(self, now: Duration) -> bool {
        now > self.dead_after
    }
}

/// State of nodes by id; `adopting` counts the adoptions each node has not answered.
fn state_of<'a>(
    summaries: &'a [NodeSummary],
    adopting: &'a [u32],
    now: Duration,
) -> impl Fn(NodeId) -> NodeState + use<'a> {
    move |id| {
        let summary = summaries.get(id.index()).copied().unwrap_or(NodeSummary::NONE);
        let adopting = adopting.get(id.index()).copied().unwrap_or(0);
        NodeState {
            drained: summary.drained,
            silent: summary.is_silent(now),
            dead: summary.is_dead(now),
            adopting,
        }
    }
}

/// A service's routes.
#[derive(Debug)]
pub struct PlanService {
    /// Name in the configuration.
    pub name: String,
    /// Whether clients speak TLS.
    pub tls: bool,
    /// Clients that resume a TLS session go to the node that issued it.
    by_tls_session: bool,
    /// Limits of its requests.
    pub limits: RequestLimits,
    /// The clients that it lets in.
    pub admitted: Admitted,
    routes: Routes,
}

/// A node in one of its groups: pool, VIP.
pub type Place = (usize, SocketAddr, MemberView);

/// Action of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// Forward to a node of the pool with this index.
    Pool(usize),
    /// Forward to a node of one of these pools.
    Split(&'a Arc<Split>),
    /// Answer with a redirect.
    Redirect(&'a Redirect),
    /// Answer with this status.
    Respond(u16),
}

/// Time for a node to learn that reports are wanted and to send the first one.
const FIRST_REPORT: Duration = Duration::from_secs(2);

/// All state that a dispatch decision depends on.
pub struct Plan {
    /// Limits on requests.
    pub limits: Limits,
    /// Place of this switch among those of the cluster.
    pub rank: Rank,
    /// Key that signs handoff packets.
    pub key: sb_key,
    /// Nodes by id; None for a node that has left the configuration.
    pub nodes: Vec<Option<PlanNode>>,
    /// Summaries of `nodes`, by the same index.
    summaries: Vec<NodeSummary>,
    /// Services in the configuration's order.
    pub services: Vec<PlanService>,
    /// Set when the result of [`Self::keepers`] may have changed.
    pub standing_changed: bool,
    groups: Vec<Group>,
    /// Groups by pool and VIP.
    group_at: HashMap<(usize, SocketAddr), usize>,
    vips: HashMap<SocketAddr, usize>,
    /// Maps TLS session tickets to indices in `node_ids`.
    tickets: Tickets,
    /// Ids of the nodes in the configuration's order.
    node_ids: Vec<NodeId>,
    ids: HashMap<NodeAddress, NodeId>,
    /// Time without a report after which a node is suspect.
    patience: Duration,
    /// Time without a report after which a node counts as dead.
    longest_patience: Duration,
    /// Whether a pool has responses of dead nodes resumed.
    pub resumes: bool,
    /// Nodes that were dead at the last call of [`Self::new_dead`].
    dead: Vec<bool>,
    /// Nodes for the next call of [`Self::changed`].
    changed: Vec<NodeId>,
}

impl Plan {
    /// `ids` maps nodes to ids.
    pub fn new(
        cluster: &Cluster,
        key: sb_key,
        ids: HashMap<NodeAddress, NodeId>,
        place: LocalMachine<'_>,
        now: Duration,
    ) -> Self {
        let len = ids.values().max().map_or(0, |max| max.index() + 1);
        let mut nodes = vec![None; len];
        for node in &cluster.nodes {
            nodes[ids[&node.handoff_address()].index()] = Some(PlanNode {
                name: node.name.clone(),
                address: node.handoff_address(),
                source: None,
                clock: None,
                challenge: None,
                drain: node.drain,
                order: None,
                since: now,
                report: None,
            });
        }
        let mut groups = Vec::new();
        let mut group_at = HashMap::new();
        for service in &cluster.services {
            for (pool, vip) in
                service.pools().flat_map(|pool| service.listen.iter().map(move |vip| (pool, *vip)))
            {
                group_at.entry((pool, vip)).or_insert_with(|| {
                    groups.push(Group::new(cluster, pool, place, |index| {
                        ids[&cluster.nodes[index].handoff_address()]
                    }));
                    groups.len() - 1
                });
            }
        }
        let services = cluster.services.iter().map(|service| PlanService {
            name: service.name.clone(),
            tls: service.scheme() == Scheme::Https,
            by_tls_session: service.tls.terminated().is_some_and(|tls| tls.model != Model::RoundRobin),
            limits: RequestLimits::new(service, cluster.limits.wait_timeout, pool_id),
            admitted: service.admitted.clone(),
            routes: Routes::new(service.routes.clone()),
        });
        let name_keys: Vec<sb_key> =
            cluster.keys.iter().map(|key| keys::ticket_name_key(key.as_bytes())).collect();
        let vips = cluster.services.iter().enumerate();
        let vips = vips.flat_map(|(index, service)| service.listen.iter().map(move |vip| (*vip, index)));
        let mut plan = Plan {
            limits: cluster.limits.clone(),
            rank: cluster.rank,
            key,
            summaries: vec![NodeSummary::NONE; nodes.len()],
            nodes,
            services: services.collect(),
            standing_changed: true,
            groups,
            group_at,
            vips: vips.collect(),
            tickets: Tickets::new(&name_keys, cluster.nodes.iter().map(|node| node.name.as_str())),
            node_ids: cluster.nodes.iter().map(|node| ids[&node.handoff_address()]).collect(),
            ids,
            patience: cluster.reports.interval * cluster.reports.suspect_after,
            longest_patience: cluster.reports.interval * cluster.reports.dead_after,
            dead: Vec::new(),
            resumes: cluster.pools.iter().any(|pool| pool.resume != Resume::Off),
            changed: Vec::new(),
        };
        plan.ids().for_each(|id| plan.update_summary(id));
        plan
    }

    /// Has each group choose for so many requests that nobody sends, so that not all threads begin with the same nodes.
    pub fn skip(&mut self, requests: usize, now: Duration, random: &mut dyn FnMut() -> u64) {
        let state = state_of(&self.summaries, &[], now);
        for group in &mut self.groups {
            for _ in 0..requests {
                group.pick(&Ask { key: Some(random()), now }, None, (&[], false), &state, random);
            }
        }
    }

    /// Updates the summary of a node.
    fn update_summary(&mut self, id: NodeId) {
        self.summaries.resize(self.nodes.len(), NodeSummary::NONE);
        let summary = self.node(id).map_or(NodeSummary::NONE, |node| NodeSummary {
            drained: node.is_drained(),
            silent_after: node.last_heard() + self.patience,
            dead_after: node.last_heard() + self.longest_patience,
        });
        let before = std::mem::replace(&mut self.summaries[id.index()], summary);
        if before.drained != summary.drained {
            self.groups.iter_mut().for_each(Group::look_again);
        }
    }

    /// Takes over the state of the previous plan. Nodes that have left the configuration stay known, because their
    /// flows go on and can be released. Groups match by pool name and VIP; the result maps old group indices to new
    /// ones.
    pub fn inherit(&mut self, old: Plan) -> HashMap<usize, usize> {
        for (index, before) in old.nodes.iter().enumerate() {
            if self.nodes.len() <= index {
                self.nodes.resize(index + 1, None);
            }
            match (&mut self.nodes[index], before) {
                (Some(node), Some(before)) if node.address == before.address => {
                    node.since = before.since;
                    node.report = before.report;
                    node.order = before.order;
                    node.source = before.source;
                    (node.clock, node.challenge) = (before.clock, before.challenge);
                }
                (node @ None, before) => node.clone_from(before),
                _ => {}
            }
        }
        self.ids().for_each(|id| self.update_summary(id));
        (self.dead, self.changed) = (old.dead, old.changed);
        let mut places = HashMap::new();
        let mut before: Vec<Option<Group>> = old.groups.into_iter().map(Some).collect();
        for ((_, vip), index) in old.group_at {
            let mut same = self.group_at.iter().filter(|((_, at), _)| *at == vip).map(|(_, group)| *group);
            let Some(group) = before[index].take() else { continue };
            if let Some(same) = same.find(|same| self.groups[*same].id() == group.id()) {
                self.groups[same].inherit(group);
                places.insert(index, same);
            }
        }
        places
    }

    /// Index of the service at a VIP.
    pub fn service(&self, vip: SocketAddr) -> Option<usize> {
        self.vips.get(&vip).copied()
    }

    /// The node with an address.
    pub fn node_at(&self, address: impl Into<NodeAddress>) -> Option<NodeId> {
        self.ids.get(&address.into()).copied()
    }

    /// The node whose name has this FNV-1a hash.
    pub fn node_by_name_hash(&self, hash: u32) -> Option<NodeId> {
        self.ids().find(|id| self.node(*id).is_some_and(|node| pool_id(&node.name) == hash))
    }

    /// The first group at a VIP that contains the node.
    pub fn group_of(&self, vip: SocketAddr, node: NodeId) -> Option<usize> {
        let at_vip = self.group_at.iter().filter(|((_, at), _)| *at == vip);
        at_vip.map(|(_, group)| *group).filter(|group| self.groups[*group].nodes().any(|id| id == node)).min()
    }

    /// Nodes of all groups at a VIP.
    pub fn nodes_of(&self, vip: SocketAddr) -> Vec<NodeId> {
        let at_vip = self.group_at.iter().filter(|((_, at), _)| *at == vip);
        let nodes: BTreeSet<NodeId> = at_vip.flat_map(|(_, group)| self.groups[*group].nodes()).collect();
        nodes.into_iter().collect()
    }

    /// The node that keeps data of a flow without a node: one that is not dead, on another machine if there is one.
    pub fn keeper(&self, flow: &sb_flow, now: Duration) -> Option<NodeId> {
        let mut nodes = self.nodes_of(flow.vip());
        nodes.retain(|node| !self.is_dead(*node, now));
        let is_here =
            |id: &NodeId| self.node(*id).is_some_and(|node| node.source == Some(node.address.machine));
        if !nodes.iter().all(is_here) {
            nodes.retain(|node| !is_here(node));
        }
        let place = usize::from(source_port(flow)).checked_rem(nodes.len())?;
        nodes.get(place).copied()
    }

    /// The node with an id.
    pub fn node(&self, id: NodeId) -> Option<&PlanNode> {
        self.nodes.get(id.index())?.as_ref()
    }

    /// The node with an id, to change it. Changes of what a [`NodeSummary`] depends on need [`Self::update_summary`].
    pub(crate) fn node_mut(&mut self, id: NodeId) -> Option<&mut PlanNode> {
        self.nodes.get_mut(id.index())?.as_mut()
    }

    /// All ids in `nodes`, also those without a node.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId::from_index)
    }

    /// Index of the first route that matches the request under every reading of its path.
    pub fn route(&self, service: usize, head: &Head<'_>, client: IpAddr) -> Result<Option<usize>, Reject> {
        self.services[service].routes.place(&Request { head, client })
    }

    /// Action of a route of a service.
    pub fn choice(&self, service: usize, route: usize) -> Choice<'_> {
        match self.services[service].routes.action(route) {
            Action::Pool(pool) => Choice::Pool(*pool),
            Action::Split(split) => Choice::Split(split),
            Action::Redirect(redirect) => Choice::Redirect(redirect),
            Action::Respond(status) => Choice::Respond(*status),
        }
    }

    /// The head for the server of a request that this route of the service takes, and that `data` begins with; None if the
    /// route does not change it.
    pub fn new_head(
        &self,
        (service, route): (usize, usize),
        head: &Head<'_>,
        data: &[u8],
    ) -> Result<Option<NewHead>, Reject> {
        let changes = self.services[service].routes.changes(route);
        if changes.is_empty() {
            return Ok(None);
        }
        let text = rewritten(data, head, changes)?.into_owned();
        NewHead::new(text, head.len).map(Some).ok_or(Reject::HeadTooLong)
    }

    /// Whether the request's route allows HTTP/2 without TLS.
    pub fn speaks_h2c(&self, service: usize, head: &Head<'_>, client: IpAddr) -> bool {
        matches!(self.services[service].routes.find(&Request { head, client }), Ok(Some(route)) if route.h2c)
    }

    /// The pool of a split for a request that begins at this number: the one of whose nodes the request has a session by
    /// cookie, or else by [weight](switchback_routes::share).
    pub fn pool_of_split(
        &mut self,
        split: &Split,
        flow: &sb_flow,
        head: &Head<'_>,
        begins: Seq,
        now: Duration,
    ) -> usize {
        let has_session = |&pool: &usize| {
            self.group(pool, flow.vip()).is_some_and(|group| {
                self.sessions(group).is_some_and(Sessions::is_by_cookie)
                    && self
                        .read_session(group, flow, head, now)
                        .session
                        .is_some_and(|found| found.node.is_some())
            })
        };
        let with_session = split.shares.iter().map(|(pool, _)| *pool).find(has_session);
        with_session.unwrap_or_else(|| share_of(split, &self.key, flow, Some(head), begins))
    }

    /// The pool for a ClientHello that begins at this number, by the first route that takes all of the client's requests,
    /// or else by the first that may take some. The node applies the conditions on requests.
    pub fn choose_hello(
        &self,
        service: usize,
        hello: &ClientHello,
        flow: &sb_flow,
        begins: Seq,
    ) -> Option<usize> {
        let routes = &self.services.get(service)?.routes;
        let route = routes.find_hello(hello.server_name.as_deref(), &hello.protocols, flow.client().ip())?;
        match routes.action(route) {
            Action::Pool(pool) => Some(*pool),
            Action::Split(split) => Some(share_of(split, &self.key, flow, None, begins)),
            Action::Redirect(_) | Action::Respond(_) => None,
        }
    }

    /// Whether clients of the VIP speak TLS.
    pub fn is_tls(&self, vip: SocketAddr) -> bool {
        self.service(vip).is_some_and(|service| self.services[service].tls)
    }

    /// The node of the group that issued the client's TLS session, if the node may get connections.
    pub fn node_of_tls_session(&self, group: usize, hello: &ClientHello, now: Duration) -> Option<NodeId> {
        let mut ids = self.named_by_tickets(group, hello)?.into_iter().flatten();
        ids.find(|id| self.keeps(group, None, *id, now) != Some(false) && !self.is_silent(*id, now))
    }

    /// The nodes that issued the client's tickets, in the client's order, None for nodes that have left the group; None
    /// if the service does not route by TLS session.
    pub fn named_by_tickets(&self, group: usize, hello: &ClientHello) -> Option<Vec<Option<NodeId>>> {
        let service = self.service(self.vip_of(group)?)?;
        let tickets = self.services[service].by_tls_session.then_some(&hello.tickets)?;
        let named = tickets.iter().filter_map(|ticket| self.tickets.read(ticket));
        Some(named.map(|ticket| Some(self.node_ids[ticket.node?])).collect())
    }

    /// VIP of a group.
    fn vip_of(&self, group: usize) -> Option<SocketAddr> {
        self.group_at.iter().find(|(_, at)| **at == group).map(|((_, vip), _)| *vip)
    }

    /// Limits for the head parser.
    pub fn http_limits(&self) -> switchback_http::Limits {
        switchback_http::Limits {
            head_len: self.limits.head,
            fields: self.limits.fields,
            body_len: self.limits.body.unwrap_or(u64::MAX),
        }
    }

    /// The group of a pool at a VIP.
    pub fn group(&self, pool: usize, vip: SocketAddr) -> Option<usize> {
        self.group_at.get(&(pool, vip)).copied()
    }

    /// The group that gets a copy of a request of this route that begins at this number; None if none does.
    pub fn mirroring(&self, (service, route): (usize, usize), flow: &sb_flow, begins: Seq) -> Option<usize> {
        let mirror = self.services[service].routes.mirror(route)?;
        let takes = mirror.takes(mirror_point(&self.key, flow, begins));
        takes.then(|| self.group(mirror.pool, flow.vip())).flatten()
    }

    /// Status of the answer to requests for a group without nodes.
    pub fn answer_if_empty(&self, group: usize) -> Option<u16> {
        self.groups[group].answer_if_empty()
    }

    /// Id of a group's pool in reports.
    pub fn id_of(&self, group: usize) -> u32 {
        self.groups[group].id()
    }

    /// Pool index of a group.
    pub fn pool_of(&self, group: usize) -> usize {
        self.groups[group].pool
    }

    /// Hash key of the request under the group's policy, if the policy hashes.
    pub fn key(&self, group: usize, flow: &sb_flow, head: &Head<'_>) -> Option<u64> {
        self.groups[group].key(&self.key, flow, head)
    }

    /// Hash key of a connection whose requests cannot be read.
    pub fn client_key(&self, group: usize, flow: &sb_flow) -> Option<u64> {
        self.groups[group].client_key(&self.key, flow)
    }

    /// Share of a node's accept queue that the group may fill; see `SB_QUEUE_WHOLE`.
    pub fn share(&self, group: usize) -> u8 {
        self.groups.get(group).map_or(SB_QUEUE_WHOLE as u8, Group::share)
    }

    /// Whether a flow stays on its node for a request of the group; None if the policy decides.
    pub fn keeps(&self, group: usize, side: Option<Side>, node: NodeId, now: Duration) -> Option<bool> {
        let state = state_of(&self.summaries, &[], now);
        self.groups.get(group).map_or(Some(false), |group| group.keeps(side, node, state))
    }

    /// The delegation rule of the local node, if it is in the group.
    pub fn delegates(&self, group: usize) -> Option<Delegate> {
        self.groups.get(group)?.delegates()
    }

    /// The nodes on whose flows the program may forward a request for the pool itself. The program reads no cookies, so
    /// pools with cookie sessions have none. Where the session depends on the client only, the connection is on the
    /// right node unless another pool has moved it.
    pub fn keepers(&self, pool: usize, now: Duration) -> Vec<NodeId> {
        let groups: Vec<usize> =
            (0..self.groups.len()).filter(|&group| self.groups[group].pool == pool).collect();
        let sessions = groups.first().and_then(|&group| self.groups[group].sessions());
        let others = self.groups.iter().filter(|group| group.pool != pool && sessions.is_some());
        let others: HashSet<NodeId> = others.flat_map(Group::nodes).collect();
        let may_keep = |node: &NodeId| {
            sessions.is_none_or(|sessions| sessions.is_by_client() && !others.contains(node))
                && groups
                    .iter()
                    .all(|&group| self.groups[group].keeps_unread(*node, state_of(&self.summaries, &[], now)))
        };
        let nodes = groups.first().into_iter().flat_map(|&group| self.groups[group].nodes());
        nodes.filter(may_keep).collect()
    }

    /// The policy's choice among the group's nodes that are not in `tried`, on the wanted side if there is one.
    /// `adopting` counts by node id the group's unanswered adoptions.
    pub fn pick(
        &mut self,
        (group, side): (usize, Option<Side>),
        ask: &Ask,
        (tried, waited): (&[NodeId], bool),
        adopting: &[u32],
        random: &mut dyn FnMut() -> u64,
    ) -> Option<NodeId> {
        let state = state_of(&self.summaries, adopting, ask.now);
        self.groups.get_mut(group)?.pick(ask, side, (tried, waited), state, random)
    }

    /// The policy's choices for `count` first requests to come, each of them counted as load for those after it.
    pub fn choose_ahead(
        &mut self,
        group: usize,
        count: usize,
        usable: impl Fn(NodeId) -> bool,
        adopting: &[u32],
        now: Duration,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<NodeId> {
        let state = state_of(&self.summaries, adopting, now);
        let group = self.groups.get_mut(group);
        group.map_or(Vec::new(), |group| group.choose_ahead(count, usable, state, now, random))
    }

    /// The groups whose nodes can be chosen before the requests come: index, pool, VIP.
    pub fn groups_ahead(&self) -> Vec<(usize, usize, SocketAddr)> {
        let groups = self.group_at.iter().map(|(&(pool, vip), &group)| (group, pool, vip));
        let mut groups: Vec<_> = groups
            .filter(|(group, _, vip)| self.groups[*group].chooses_ahead() && !self.is_tls(*vip))
            .collect();
        groups.sort_unstable();
        groups
    }

    /// The session named by a request of the group.
    pub fn read_session(
        &mut self,
        group: usize,
        flow: &sb_flow,
        head: &Head<'_>,
        now: Duration,
    ) -> RequestSession {
        let state = state_of(&self.summaries, &[], now);
        self.groups
            .get_mut(group)
            .map_or_else(RequestSession::default, |group| group.read_session(&self.key, flow, head, state))
    }

    /// Placement of a request with a session; the arguments are those of [`Self::pick`].
    pub fn place(
        &mut self,
        group: usize,
        session: &Session,
        tried: (&[NodeId], bool),
        adopting: &[u32],
        now: Duration,
    ) -> Placement {
        let state = state_of(&self.summaries, adopting, now);
        self.groups
            .get_mut(group)
            .map_or(Placement::Any(None), |group| group.place(session, tried, state, now))
    }

    /// Whether a flow that was adopted with this session information can take requests of the group.
    pub fn matches_session(&self, group: usize, adopted: &sb_session) -> bool {
        self.groups.get(group).is_none_or(|group| group.matches_session(adopted))
    }

    /// Session lookup of the group, if its sessions stay with their nodes.
    pub fn sessions(&self, group: usize) -> Option<&Sessions> {
        self.groups.get(group)?.sessions()
    }

    /// The node to which `first` may pass a request on if its accept queue is full.
    pub fn second(&self, group: usize, first: NodeId, adopting: &[u32], now: Duration) -> Option<NodeId> {
        let state = state_of(&self.summaries, adopting, now);
        self.groups.get(group)?.second(first, state, now)
    }

    /// A group.
    pub fn group_state(&self, group: usize) -> Option<&Group> {
        self.groups.get(group)
    }

    /// A group, to record what happens to its nodes.
    pub fn group_mut(&mut self, group: usize) -> Option<&mut Group> {
        self.groups.get_mut(group)
    }

    /// Records that a node refused an adoption, or without a reason that it did not answer.
    pub fn refused(
        &mut self,
        group: usize,
        node: NodeId,
        reason: Option<Reason>,
        queue: (u16, u16),
        now: Duration,
    ) {
        if let Some(group) = self.groups.get_mut(group) {
            self.standing_changed |= group.refused(node, reason, queue, now);
        }
    }

    /// Applies a node's report about one of its listeners; the result is the groups it concerns.
    pub fn report(&mut self, id: NodeId, report: &Report, now: Duration) -> Vec<usize> {
        let back = self.is_silent(id, now);
        if self.summaries.iter().all(|summary| summary.is_dead(now)) {
            self.excuse_silence(now);
        }
        let Some(node) = self.node_mut(id) else { return Vec::new() };
        node.report = Some((now, *report));
        let is_draining = report.reason == Some(Reason::Draining);
        if node.order.take_if(|given| given.is_carried_out(is_draining)).is_some() {
            self.standing_changed = true;
            self.changed.push(id);
        }
        self.update_summary(id);
        let at_listener = self.group_at.iter().filter(|((_, vip), _)| *vip == report.listener);
        let at_listener = at_listener.map(|(_, group)| *group);
        let groups: Vec<usize> =
            at_listener.filter(|group| self.groups[*group].id() == report.pool).collect();
        for group in &groups {
            self.standing_changed |= self.groups[*group].report(id, report, back, now);
        }
        groups
    }

    /// The switch was cut off: that it has heard no more of its nodes says nothing about them.
    fn excuse_silence(&mut self, now: Duration) {
        let heard = self.nodes.iter_mut().flatten().filter(|node| node.report.is_some());
        heard.for_each(|node| node.since = now);
        self.ids().for_each(|id| self.update_summary(id));
    }

    /// Addresses and epoch for a packet to the node; None without a route.
    pub fn peers(&self, id: NodeId, epoch: u64) -> Option<Peers> {
        let node = self.node(id)?;
        Some(Peers { node: node.address, switch: node.source?, epoch })
    }

    /// Whether the node's clock is known, without which it can be sent nothing about flows.
    pub fn has_clock(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.clock.is_some())
    }

    /// Challenge for the node's clock; the same one until it is answered or forgotten.
    pub fn challenge(&mut self, id: NodeId, random: &mut dyn FnMut() -> u64) -> Option<u64> {
        Some(*self.node_mut(id)?.challenge.get_or_insert_with(random))
    }

    /// Invalidates the outstanding clock challenge.
    pub fn forget_challenge(&mut self, id: NodeId) {
        if let Some(node) = self.node_mut(id) {
            node.challenge = None;
        }
    }

    /// Sets the clock if `number` is the outstanding challenge; true if the clock differs from the previous one.
    pub fn set_clock(&mut self, id: NodeId, number: u64, clock: NodeClock) -> bool {
        let Some(node) = self.node_mut(id) else { return false };
        if node.challenge.take_if(|challenge| *challenge == number).is_none()
            || node.clock.is_some_and(|known| known.agrees_with(clock))
        {
            return false;
        }
        node.clock = Some(clock);
        self.changed.push(id);
        true
    }

    /// Sets the clock that a previous process recorded.
    pub fn restore_clock(&mut self, id: NodeId, clock: NodeClock) {
        if let Some(node) = self.node_mut(id) {
            node.clock = Some(clock);
            self.changed.push(id);
        }
    }

    /// Sets our source address towards the node; None without a route.
    pub fn set_source(&mut self, id: NodeId, source: Option<IpAddr>) {
        if let Some(node) = self.node_mut(id).filter(|node| node.source != source) {
            node.source = source;
            self.changed.push(id);
        }
    }

    /// Nodes whose route, clock or order has changed since the last call.
    pub fn changed(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.changed)
    }

    /// Takes over a node's route, clock and order from another thread's plan.
    pub fn copy_node(&mut self, id: NodeId, other: &PlanNode) {
        let Some(node) = self.node_mut(id).filter(|node| node.address == other.address) else { return };
        (node.source, node.clock, node.order) = (other.source, other.clock, other.order);
        self.update_summary(id);
    }

    /// Orders a node to drain, or to end that, under a random number; None if there is no such node. Until the node reports
    /// that it drains, only this switch gives it no requests.
    pub fn order(&mut self, name: &str, order: Order) -> Option<NodeId> {
        let id = self.ids().find(|id| self.node(*id).is_some_and(|node| node.name == name))?;
        self.node_mut(id)?.order = Some(GivenOrder { order, told: 0 });
        self.update_summary(id);
        self.standing_changed = true;
        self.changed.push(id);
        Some(id)
    }

    /// The order that the next HELLO to the node carries.
    pub fn tell_order(&mut self, id: NodeId) -> Option<Order> {
        let given = self.node_mut(id)?.order.as_mut()?;
        given.told = given.told.saturating_add(1);
        Some(given.order)
    }

    /// Whether the node drains, by our decision or by its own report.
    pub fn is_draining(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| {
            node.is_drained()
                || node.report.is_some_and(|(_, report)| report.reason == Some(Reason::Draining))
        })
    }

    /// Whether any node drains.
    pub fn is_any_draining(&self) -> bool {
        self.ids().any(|id| self.is_draining(id))
    }

    /// Draining nodes that still had flows at their last report.
    pub fn draining_with_flows(&self) -> Vec<NodeId> {
        let has_flows = |id: &NodeId| {
            let report = self.node(*id).and_then(|node| node.report);
            report.is_none_or(|(_, report)| report.flows != 0)
        };
        self.ids().filter(|id| self.is_draining(*id)).filter(has_flows).collect()
    }

    /// By the node's id, how it is seen in its groups, in the configuration's order.
    pub fn places(&self, now: Duration) -> Vec<Vec<Place>> {
        let mut found = vec![Vec::new(); self.nodes.len()];
        let mut groups: Vec<_> = self.group_at.iter().collect();
        groups.sort();
        for (&(pool, vip), &group) in groups {
            for (node, view) in self.groups[group].views(now) {
                found[node.index()].push((pool, vip, view));
            }
        }
        found
    }

    /// Whether the node has been silent for so long that its flows may move without its release. If all nodes are
    /// silent, the switch is taken to be cut off, and none is dead.
    pub fn is_dead(&self, id: NodeId, now: Duration) -> bool {
        let dead = self.summaries.get(id.index()).is_none_or(|summary| summary.is_dead(now));
        dead && self.summaries.iter().any(|summary| !summary.is_silent(now))
    }

    /// Nodes that have died or come back since the last call, with their present state.
    pub fn new_dead(&mut self, now: Duration) -> Vec<(NodeId, bool)> {
        self.dead.resize(self.summaries.len(), false);
        let mut changes = Vec::new();
        for id in self.ids() {
            let dead = self.is_dead(id, now);
            if self.dead[id.index()] != dead {
                self.dead[id.index()] = dead;
                changes.push((id, dead));
            }
        }
        self.standing_changed |= !changes.is_empty();
        changes
    }

    /// Whether the node's last report is too old.
    pub fn is_silent(&self, id: NodeId, now: Duration) -> bool {
        self.summaries.get(id.index()).is_none_or(|summary| summary.is_silent(now))
    }
}
