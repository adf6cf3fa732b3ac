//! What the dispatcher decides by: the configuration with nodes named by their place in the BPF map.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use switchback_config::{Action, Cluster, Delegate, Limits, Model, Redirect};
use switchback_hello::{ClientHello, Tickets};
use switchback_http::{Head, Reject};
use switchback_policy::{Ask, Queue};
use switchback_wire::clock::NodeClock;
use switchback_wire::handoff::Peers;
use switchback_wire::message::Reason;
use switchback_wire::report::{Report, pool_id};
use switchback_wire::{SB_QUEUE_WHOLE, keys, sb_flow, sb_key, sb_session};

use crate::group::{Group, NodeState, Place, Side};
use crate::sessions::{Said, Session, Sessions};
use switchback_routes::Routes;

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
    /// Its clock beside ours; None until it has told it.
    pub clock: Option<NodeClock>,
    /// The number in the question what its clock says, which has no answer yet.
    challenge: Option<u64>,
    /// The configuration drains it.
    pub drain: bool,
    /// Somebody has said so by command.
    pub drain_by_command: bool,
    /// Since when it has been in the configuration.
    pub since: Duration,
    /// When its last report came, and what it said.
    pub report: Option<(Duration, Report)>,
}

impl PlanNode {
    /// It is to become idle.
    pub fn is_drained(&self) -> bool {
        self.drain || self.drain_by_command
    }

    /// When something was last heard of it. One that has not been asked for reports has some time.
    fn heard(&self) -> Duration {
        self.report.map_or(self.since + FIRST_REPORT, |(heard, _)| heard)
    }
}

/// What each choice asks about each node. It stands apart from the rest of what is known, so that a hundred nodes are
/// read quickly.
#[derive(Clone, Copy, Debug)]
struct Brief {
    drained: bool,
    silent_after: Duration,
    dead_after: Duration,
}

impl Brief {
    /// Of a node that there is not.
    const NONE: Brief = Brief { drained: true, silent_after: Duration::ZERO, dead_after: Duration::ZERO };

    fn is_silent(self, now: Duration) -> bool {
        now > self.silent_after
    }

    fn is_dead(self, now: Duration) -> bool {
        now > self.dead_after
    }
}

/// Tells of nodes by id; `adopting` has the adoptions that each has not answered.
fn state_of<'a>(
    briefs: &'a [Brief],
    adopting: &'a [u32],
    now: Duration,
) -> impl Fn(NodeId) -> NodeState + use<'a> {
    move |id| {
        let brief = briefs.get(id as usize).copied().unwrap_or(Brief::NONE);
        let adopting = adopting.get(id as usize).copied().unwrap_or(0);
        NodeState { drained: brief.drained, silent: brief.is_silent(now), dead: brief.is_dead(now), adopting }
    }
}

/// A service's routes.
#[derive(Debug)]
pub struct PlanService {
    /// As in the configuration.
    pub name: String,
    /// Its clients speak TLS.
    pub tls: bool,
    /// Those that have a session go to the node that has it too.
    by_tls_session: bool,
    routes: Routes,
}

/// What a route does with the requests that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// A node of this pool gets them.
    Pool(usize),
    /// The client is sent elsewhere.
    Redirect(&'a Redirect),
}

/// What this machine is besides a switch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whereabouts<'a> {
    /// Where it is: nodes of the same zone are preferred.
    pub zone: Option<&'a str>,
    /// The node that it is.
    pub node: Option<&'a str>,
}

/// How long a node may take to hear that reports are wanted, and to send the first.
const FIRST_REPORT: Duration = Duration::from_secs(2);

/// Everything a dispatch decision depends on.
pub struct Plan {
    /// How much clients may ask for.
    pub limits: Limits,
    /// Signs handoff packets.
    pub key: sb_key,
    /// By id; an id whose node left the configuration is None.
    pub nodes: Vec<Option<PlanNode>>,
    /// Of the nodes.
    briefs: Vec<Brief>,
    /// In the configuration's order.
    pub services: Vec<PlanService>,
    /// Set when [`Self::keepers`] has come to say something else.
    pub standing_changed: bool,
    groups: Vec<Group>,
    /// By pool and VIP.
    group_at: HashMap<(usize, SocketAddr), usize>,
    vips: HashMap<SocketAddr, usize>,
    /// Which node has a TLS session, by its place in `node_ids`.
    tickets: Tickets,
    /// In the configuration's order.
    node_ids: Vec<NodeId>,
    ids: HashMap<IpAddr, NodeId>,
    /// After so long without a report a node is suspect.
    patience: Duration,
    /// And after so long it is taken for dead.
    longest_patience: Duration,
    /// The nodes that were dead when [`Self::new_dead`] was last asked.
    dead: Vec<bool>,
    /// See [`Self::new_clocks`].
    new_clocks: Vec<NodeId>,
}

impl Plan {
    /// `ids` gives each of the cluster's nodes its place, by address.
    pub fn new(
        cluster: &Cluster,
        key: sb_key,
        ids: HashMap<IpAddr, NodeId>,
        place: Whereabouts<'_>,
        now: Duration,
    ) -> Self {
        let len = ids.values().max().map_or(0, |max| *max as usize + 1);
        let mut nodes = vec![None; len];
        for node in &cluster.nodes {
            nodes[ids[&node.address] as usize] = Some(PlanNode {
                name: node.name.clone(),
                address: node.address,
                source: None,
                clock: None,
                challenge: None,
                drain: node.drain,
                drain_by_command: false,
                since: now,
                report: None,
            });
        }
        let mut groups = Vec::new();
        let mut group_at = HashMap::new();
        for service in &cluster.services {
            for (pool, vip) in service.routes.iter().flat_map(|route| match route.action {
                Action::Pool(pool) => service.listen.iter().map(|vip| (pool, *vip)).collect(),
                Action::Redirect(_) => Vec::new(),
            }) {
                group_at.entry((pool, vip)).or_insert_with(|| {
                    groups.push(Group::new(cluster, pool, place, |index| ids[&cluster.nodes[index].address]));
                    groups.len() - 1
                });
            }
        }
        let services = cluster.services.iter().map(|service| PlanService {
            name: service.name.clone(),
            tls: service.tls.is_some(),
            by_tls_session: service.tls.as_ref().is_some_and(|tls| tls.model != Model::RoundRobin),
            routes: Routes::new(service.routes.clone()),
        });
        let name_keys: Vec<sb_key> =
            cluster.keys.iter().map(|key| keys::ticket_name_key(key.as_bytes())).collect();
        let vips = cluster.services.iter().enumerate();
        let vips = vips.flat_map(|(index, service)| service.listen.iter().map(move |vip| (*vip, index)));
        let mut plan = Plan {
            limits: cluster.limits.clone(),
            key,
            briefs: vec![Brief::NONE; nodes.len()],
            nodes,
            services: services.collect(),
            standing_changed: true,
            groups,
            group_at,
            vips: vips.collect(),
            tickets: Tickets::new(&name_keys, cluster.nodes.iter().map(|node| node.name.as_str())),
            node_ids: cluster.nodes.iter().map(|node| ids[&node.address]).collect(),
            ids,
            patience: cluster.reports.interval * cluster.reports.suspect_after,
            longest_patience: cluster.reports.interval * cluster.reports.dead_after,
            dead: Vec::new(),
            new_clocks: Vec::new(),
        };
        (0..plan.nodes.len()).for_each(|index| plan.note(index));
        plan
    }

    /// What is known of a node has changed.
    fn note(&mut self, index: usize) {
        self.briefs.resize(self.nodes.len(), Brief::NONE);
        self.briefs[index] = self.nodes[index].as_ref().map_or(Brief::NONE, |node| Brief {
            drained: node.is_drained(),
            silent_after: node.heard() + self.patience,
            dead_after: node.heard() + self.longest_patience,
        });
    }

    /// Takes over what the plan before this one knew. Nodes that are in it no more stay known: their flows go on, and
    /// can be released. Groups are the same if their pool's name and their VIP are; the result has the new place of each
    /// old group that there still is.
    pub fn inherit(&mut self, old: Plan) -> HashMap<usize, usize> {
        for (index, before) in old.nodes.iter().enumerate() {
            if self.nodes.len() <= index {
                self.nodes.resize(index + 1, None);
            }
            match (&mut self.nodes[index], before) {
                (Some(node), Some(before)) if node.address == before.address => {
                    node.since = before.since;
                    node.report = before.report;
                    node.drain_by_command = before.drain_by_command;
                    node.source = before.source;
                    (node.clock, node.challenge) = (before.clock, before.challenge);
                }
                (node @ None, before) => node.clone_from(before),
                _ => {}
            }
        }
        (0..self.nodes.len()).for_each(|index| self.note(index));
        (self.dead, self.new_clocks) = (old.dead, old.new_clocks);
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

    /// The service at a VIP.
    pub fn service(&self, vip: SocketAddr) -> Option<usize> {
        self.vips.get(&vip).copied()
    }

    /// The node with this address.
    pub fn node_at(&self, address: IpAddr) -> Option<NodeId> {
        self.ids.get(&address).copied()
    }

    /// The node whose name has this FNV-1a.
    pub fn node_called(&self, id: u32) -> Option<NodeId> {
        let is_it = |node: &Option<PlanNode>| node.as_ref().is_some_and(|node| pool_id(&node.name) == id);
        self.nodes.iter().position(is_it).map(|index| index as NodeId)
    }

    /// A group at a VIP that has the node.
    pub fn group_of(&self, vip: SocketAddr, node: NodeId) -> Option<usize> {
        let at_vip = self.group_at.iter().filter(|((_, at), _)| *at == vip);
        at_vip.map(|(_, group)| *group).filter(|group| self.groups[*group].nodes().any(|id| id == node)).min()
    }

    /// The nodes of all groups at a VIP.
    pub fn nodes_of(&self, vip: SocketAddr) -> Vec<NodeId> {
        let at_vip = self.group_at.iter().filter(|((_, at), _)| *at == vip);
        let nodes: BTreeSet<NodeId> = at_vip.flat_map(|(_, group)| self.groups[*group].nodes()).collect();
        nodes.into_iter().collect()
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> Option<&PlanNode> {
        self.nodes.get(id as usize)?.as_ref()
    }

    /// What becomes of the request: what the first route does that takes it, however its path is read.
    pub fn choose(&self, service: usize, head: &Head<'_>) -> Result<Option<Choice<'_>>, Reject> {
        let Some(service) = self.services.get(service) else { return Ok(None) };
        Ok(service.routes.find(head)?.map(|route| match &route.action {
            Action::Pool(pool) => Choice::Pool(*pool),
            Action::Redirect(redirect) => Choice::Redirect(redirect),
        }))
    }

    /// Whether the route that takes the request allows HTTP/2 without TLS.
    pub fn speaks_h2c(&self, service: usize, head: &Head<'_>) -> bool {
        matches!(self.services[service].routes.find(head), Ok(Some(route)) if route.h2c)
    }

    /// The pool of the first route that takes a client which says this, before it has made a request. Routes with
    /// conditions about requests do not; the node will go by them.
    pub fn choose_hello(&self, service: usize, hello: &ClientHello) -> Option<usize> {
        let routes = &self.services.get(service)?.routes;
        let found = routes.find_hello(hello.server_name.as_deref(), &hello.protocols);
        found.map(|(_, pool)| pool)
    }

    /// Whether clients speak TLS there.
    pub fn is_tls(&self, vip: SocketAddr) -> bool {
        self.service(vip).is_some_and(|service| self.services[service].tls)
    }

    /// The node of the group that has the client's session, if it is one that may get connections.
    pub fn node_of_tls_session(&self, group: usize, hello: &ClientHello, now: Duration) -> Option<NodeId> {
        let mut ids = self.named_by_tickets(group, hello)?.into_iter().flatten();
        ids.find(|id| self.keeps(group, None, *id, now) != Some(false) && !self.is_silent(*id, now))
    }

    /// The nodes that have the client's sessions, in its order, with None for those that have left; None if the service does
    /// not go by sessions.
    pub fn named_by_tickets(&self, group: usize, hello: &ClientHello) -> Option<Vec<Option<NodeId>>> {
        let service = self.service(self.vip_of(group)?)?;
        let tickets = self.services[service].by_tls_session.then_some(&hello.tickets)?;
        let named = tickets.iter().filter_map(|ticket| self.tickets.read(ticket));
        Some(named.map(|ticket| Some(self.node_ids[ticket.node?])).collect())
    }

    /// The VIP of a group.
    fn vip_of(&self, group: usize) -> Option<SocketAddr> {
        self.group_at.iter().find(|(_, at)| **at == group).map(|((_, vip), _)| *vip)
    }

    /// What the head parser is to allow.
    pub fn http_limits(&self) -> switchback_http::Limits {
        switchback_http::Limits {
            head_len: self.limits.head,
            fields: self.limits.fields,
            body_len: self.limits.body.unwrap_or(u64::MAX),
        }
    }

    /// The pool's nodes at a VIP that a route to the pool belongs to.
    pub fn group(&self, pool: usize, vip: SocketAddr) -> Option<usize> {
        self.group_at.get(&(pool, vip)).copied()
    }

    /// The index of a group's pool in the configuration.
    pub fn pool_of(&self, group: usize) -> usize {
        self.groups[group].pool
    }

    /// What the group's policy goes by, where it goes by something of the request.
    pub fn key(&self, group: usize, flow: &sb_flow, head: &Head<'_>) -> Option<u64> {
        self.groups[group].key(&self.key, flow, head)
    }

    /// Likewise, of a connection whose requests cannot be read.
    pub fn client_key(&self, group: usize, flow: &sb_flow) -> Option<u64> {
        self.groups[group].client_key(&self.key, flow)
    }

    /// How much of a node's accept queue the group may fill; see `SB_QUEUE_WHOLE`.
    pub fn share(&self, group: usize) -> u8 {
        self.groups.get(group).map_or(SB_QUEUE_WHOLE as u8, Group::share)
    }

    /// Whether a flow that the node has stays there for a request of the group; None if the policy is to decide.
    pub fn keeps(&self, group: usize, side: Option<Side>, node: NodeId, now: Duration) -> Option<bool> {
        let state = state_of(&self.briefs, &[], now);
        self.groups.get(group).map_or(Some(false), |group| group.keeps(side, node, state))
    }

    /// What this machine's own node leaves to the others of the group, if it is one of them.
    pub fn delegates(&self, group: usize) -> Option<Delegate> {
        self.groups.get(group)?.delegates()
    }

    /// The nodes on whose flows the program may forward a request for the pool without asking. It reads no cookies: where
    /// sessions depend on them, each request is to be read here. Where they depend on the client, a connection is with the
    /// right node, unless another pool has brought it there.
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
                    .all(|&group| self.groups[group].keeps_unread(*node, state_of(&self.briefs, &[], now)))
        };
        let nodes = groups.first().into_iter().flat_map(|&group| self.groups[group].nodes());
        nodes.filter(may_keep).collect()
    }

    /// The policy's choice among the group's nodes that are not in `tried`, on the wanted side if there is one. `adopting` has, by id, the adoptions for the
    /// group that each node has not answered.
    pub fn pick(
        &mut self,
        (group, side): (usize, Option<Side>),
        ask: &Ask,
        (tried, waited): (&[NodeId], bool),
        adopting: &[u32],
        random: &mut dyn FnMut() -> u64,
    ) -> Option<NodeId> {
        let state = state_of(&self.briefs, adopting, ask.now);
        self.groups.get_mut(group)?.pick(ask, side, (tried, waited), state, random)
    }

    /// What a request of the group says of its session.
    pub fn read_session(&mut self, group: usize, flow: &sb_flow, head: &Head<'_>, now: Duration) -> Said {
        let state = state_of(&self.briefs, &[], now);
        self.groups
            .get_mut(group)
            .map_or_else(Said::default, |group| group.read_session(&self.key, flow, head, state))
    }

    /// Where a request of the group that has a session goes; the arguments are those of [`Self::pick`].
    pub fn place(
        &mut self,
        group: usize,
        session: &Session,
        tried: (&[NodeId], bool),
        adopting: &[u32],
        now: Duration,
    ) -> Place {
        let state = state_of(&self.briefs, adopting, now);
        self.groups.get_mut(group).map_or(Place::Any(None), |group| group.place(session, tried, state, now))
    }

    /// Whether a flow whose node was told this of sessions can take requests of the group.
    pub fn is_told(&self, group: usize, told: &sb_session) -> bool {
        self.groups.get(group).is_none_or(|group| group.is_told(told))
    }

    /// How the group's sessions are found, if they stay with their nodes.
    pub fn sessions(&self, group: usize) -> Option<&Sessions> {
        self.groups.get(group)?.sessions()
    }

    /// The node of the group to which `first` may pass a request on that it has no room for.
    pub fn second(&self, group: usize, first: NodeId, adopting: &[u32], now: Duration) -> Option<NodeId> {
        let state = state_of(&self.briefs, adopting, now);
        self.groups.get(group)?.second(first, state, now)
    }

    /// What is known of the group's nodes, to be told what happens to them.
    pub fn group_mut(&mut self, group: usize) -> Option<&mut Group> {
        self.groups.get_mut(group)
    }

    /// A node could not adopt; no reason if it has not answered.
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

    /// What a node says of one of its listeners. The groups that it is about.
    pub fn report(&mut self, id: NodeId, report: &Report, now: Duration) -> Vec<usize> {
        let back = self.is_silent(id, now);
        let Some(Some(node)) = self.nodes.get_mut(id as usize) else { return Vec::new() };
        node.report = Some((now, *report));
        self.note(id as usize);
        let at_listener = self.group_at.iter().filter(|((_, vip), _)| *vip == report.listener);
        let at_listener = at_listener.map(|(_, group)| *group);
        let groups: Vec<usize> =
            at_listener.filter(|group| self.groups[*group].id() == report.pool).collect();
        for group in &groups {
            self.standing_changed |= self.groups[*group].report(id, report, back, now);
        }
        groups
    }

    /// Whom a packet to a node is from and for, and when; None if there is no route.
    pub fn peers(&self, id: NodeId, epoch: u64) -> Option<Peers> {
        let node = self.node(id)?;
        Some(Peers { node: node.address, switch: node.source?, epoch })
    }

    /// The number by which the node's clock is asked for, until it has answered or the next one is due.
    pub fn challenge(&mut self, id: NodeId, random: &mut dyn FnMut() -> u64) -> Option<u64> {
        let node = self.nodes.get_mut(id as usize)?.as_mut()?;
        Some(*node.challenge.get_or_insert_with(random))
    }

    /// An answer to it comes too late from here on.
    pub fn forget_challenge(&mut self, id: NodeId) {
        if let Some(Some(node)) = self.nodes.get_mut(id as usize) {
            node.challenge = None;
        }
    }

    /// Takes the clock if it is the answer to that number. True if it is another one than before.
    pub fn set_clock(&mut self, id: NodeId, number: u64, clock: NodeClock) -> bool {
        let Some(Some(node)) = self.nodes.get_mut(id as usize) else { return false };
        if node.challenge.take_if(|challenge| *challenge == number).is_none()
            || node.clock.is_some_and(|known| known.agrees_with(clock))
        {
            return false;
        }
        node.clock = Some(clock);
        self.new_clocks.push(id);
        true
    }

    /// The clock that a process before this one was told.
    pub fn restore_clock(&mut self, id: NodeId, clock: NodeClock) {
        if let Some(Some(node)) = self.nodes.get_mut(id as usize) {
            node.clock = Some(clock);
        }
    }

    /// The nodes whose clocks have changed since the last call.
    pub fn new_clocks(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.new_clocks)
    }

    /// Drains a node by command, or ends that; None if there is no such node.
    pub fn drain(&mut self, name: &str, on: bool) -> Option<NodeId> {
        let is_it = |node: &Option<PlanNode>| node.as_ref().is_some_and(|node| node.name == name);
        let index = self.nodes.iter().position(is_it)?;
        let node = self.nodes[index].as_mut()?;
        node.drain_by_command = on;
        self.note(index);
        self.standing_changed = true;
        Some(index as NodeId)
    }

    /// Whether a node is to become idle: because we drain it, or because it says so.
    pub fn is_draining(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| {
            node.is_drained()
                || node.report.is_some_and(|(_, report)| report.reason == Some(Reason::Draining))
        })
    }

    /// Whether any node is to become idle.
    pub fn is_any_draining(&self) -> bool {
        (0..self.nodes.len() as NodeId).any(|id| self.is_draining(id))
    }

    /// Nodes that are to become idle and are not, as far as they have said.
    pub fn draining_with_flows(&self) -> Vec<NodeId> {
        let has_flows = |id: &NodeId| {
            let report = self.node(*id).and_then(|node| node.report);
            report.is_none_or(|(_, report)| report.flows != 0)
        };
        let ids = 0..self.nodes.len() as NodeId;
        ids.filter(|id| self.is_draining(*id)).filter(has_flows).collect()
    }

    /// The node's groups in the configuration's order: pool, VIP, why it is to have no requests there, accept queue.
    pub fn conditions(&self, id: NodeId, now: Duration) -> Vec<(usize, SocketAddr, Option<Reason>, Queue)> {
        let mut found: Vec<_> = self
            .group_at
            .iter()
            .filter_map(|(&(pool, vip), &group)| {
                let (reason, queue) = self.groups[group].condition(id, now)?;
                Some((pool, vip, reason, queue))
            })
            .collect();
        found.sort_by_key(|(pool, vip, ..)| (*pool, *vip));
        found
    }

    /// Whether nothing has been heard of the node for so long that its flows may go elsewhere without its word. Where
    /// nothing is heard of any node, it is the switch that is cut off.
    pub fn is_dead(&self, id: NodeId, now: Duration) -> bool {
        let dead = self.briefs.get(id as usize).is_none_or(|brief| brief.is_dead(now));
        dead && self.briefs.iter().any(|brief| !brief.is_silent(now))
    }

    /// Nodes that have died or come back since the last time, with what they are now.
    pub fn new_dead(&mut self, now: Duration) -> Vec<(NodeId, bool)> {
        self.dead.resize(self.briefs.len(), false);
        let mut changes = Vec::new();
        for id in 0..self.dead.len() {
            let dead = self.is_dead(id as NodeId, now);
            if self.dead[id] != dead {
                self.dead[id] = dead;
                changes.push((id as NodeId, dead));
            }
        }
        self.standing_changed |= !changes.is_empty();
        changes
    }

    /// Whether nothing has been heard of the node for too long.
    pub fn is_silent(&self, id: NodeId, now: Duration) -> bool {
        self.briefs.get(id as usize).is_none_or(|brief| brief.is_silent(now))
    }
}
