//! The nodes of a pool at one of its VIPs, with the state of each.
//!
//! A server listens at each VIP and port separately, so the accept queue, and whether there is a listener at all, are
//! properties of the listener. A pool reached through two VIPs is therefore two groups, which share only the nodes.
//!
//! A node's state has three sources: its reports, by default every 50 ms; the answers to adoptions, which contain the
//! length of the accept queue; and the switch's own count of adoptions since then, because bursts are shorter than the
//! interval between two reports.
//!
//! In a pool with sessions, the policy decides only about requests without one.

use std::collections::{HashMap, VecDeque};
use std::num::Wrapping;
use std::time::Duration;

use switchback_config::{Balance, Cluster, Delegate, HashKey, PolicyKind};
use switchback_http::Head;
use switchback_policy::{Ask, Availability, Balancer, Load, Member, Queue};
use switchback_wire::Reason;
use switchback_wire::report::{Condition, Report, pool_id};
use switchback_wire::{sb_flow, sb_key, sb_session};

use crate::key::{hash_of, key_of};
use crate::sessions::{RequestSession, Sessions};
use switchback_flow::NodeId;
use switchback_flow::destination::{Placement, Session, Side};

/// How long a full accept queue is believed. Servers accept within microseconds, so after this time one adoption is
/// tried, and its answer has the current length.
const FULL_FOR: Duration = Duration::from_millis(5);

/// How long a time to first byte is valid without a newer one.
const LATENCY_FOR: Duration = Duration::from_secs(10);

/// How long the policy goes by what it knows of a node without news of it. What changes with time alone, as the patience
/// with a silent node does, is known that late. A look at all of a thousand nodes takes as long as ten choices.
const NOTED_FOR: Duration = Duration::from_millis(1);

/// How far behind the last report one can be that others have overtaken. One that is further behind is of an agent that has been
/// started again.
const LATE_MAX: u16 = 64;

/// State of a node in the group.
#[derive(Clone, Debug)]
struct GroupMember {
    node: NodeId,
    /// Load without `standing` and `queue`, which depend on the moment.
    load: Load,
    /// Accept queue at `queue_at`, without the adoptions in transit.
    queue: Queue,
    queue_at: Duration,
    /// When `load.latency` was last measured.
    latency_at: Duration,
    /// Why the node takes no requests; None if it takes them.
    reason: Option<Reason>,
    /// Whether it is an outlier that the pool does without, while the reason is [`Reason::Failing`].
    ejected: bool,
    /// How often it has been ejected.
    ejections: u64,
    /// Sequence number of the last report.
    number: Option<u16>,
    /// Choices of the node made ahead and not used yet.
    ahead: u32,
    /// Accept queue as the program has last noted it.
    noted: u32,
}

impl GroupMember {
    fn new(node: NodeId) -> Self {
        GroupMember {
            node,
            load: Load::IDLE,
            queue: Queue::default(),
            queue_at: Duration::ZERO,
            latency_at: Duration::ZERO,
            reason: None,
            ejected: false,
            ejections: 0,
            number: None,
            ahead: 0,
            noted: 0,
        }
    }

    fn set_queue(&mut self, (len, limit): (u16, u16), now: Duration) {
        // An answer about an adoption that never reached a listener has limit 0.
        if limit != 0 {
            // The kernel admits one more than the limit: sk_acceptq_is_full(), include/net/sock.h.
            self.queue = Queue { len: len.into(), limit: u32::from(limit) + 1 };
            self.queue_at = now;
        }
    }

    /// Why the node gets no requests, or only those that no other node can take.
    fn why_out(&self) -> Option<Reason> {
        self.reason.filter(|reason| *reason != Reason::Failing || self.ejected)
    }

    /// Estimate of the accept queue, up to the share that the pool may fill, with `adopting` adoptions in transit.
    fn queue_now(&self, share: u8, adopting: u32, now: Duration) -> Queue {
        let Queue { len, limit } = self.queue;
        let limit = if share == 0 || limit == 0 { limit } else { (limit * u32::from(share) / 100).max(1) };
        let mut len = len + adopting;
        if limit != 0 && len >= limit && adopting == 0 && now >= self.queue_at + FULL_FOR {
            len = limit - 1;
        }
        Queue { len, limit }
    }
}

/// The nodes of a pool at a listener.
pub struct Group {
    /// Pool index in the configuration.
    pub pool: usize,
    /// Pool id in reports.
    id: u32,
    balance: Balance,
    /// Input of the policy `hash`.
    hash: Option<HashKey>,
    share: u8,
    second_candidate: bool,
    members: Vec<GroupMember>,
    /// Indices of the nodes in `members`.
    places: HashMap<NodeId, usize>,
    /// Weights by the index of `members`.
    weights: Vec<u32>,
    balancer: Balancer,
    /// When the balancer was last told the state of all members; None: it is to be told before the next choice.
    noted: Option<Duration>,
    /// Indices of members whose state has changed since.
    changed: Vec<usize>,
    sessions: Option<Sessions>,
    /// Most members that are ejected at the same time.
    most_ejected: usize,
    /// Index in `members` of the local node, and its delegation rule.
    delegate: Option<(usize, Delegate)>,
    /// The nodes of first requests can be chosen before these come.
    chooses_ahead: bool,
    /// Choices made ahead and not used yet, in order: indices in `members`.
    ahead: VecDeque<usize>,
    /// Number of adoptions so far.
    adoptions: Wrapping<u32>,
    /// Status of the answer to requests while there is no member.
    empty_status: u16,
}

/// A node of the group as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Whether it takes requests.
    pub condition: Condition,
    /// Its accept queue.
    pub queue: Queue,
    /// How often it has been ejected.
    pub ejections: u64,
}

/// Location and local node of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalMachine<'a> {
    /// Zone of this machine; the policies prefer nodes in it.
    pub zone: Option<&'a str>,
    /// Name of the node on this machine.
    pub node: Option<&'a str>,
}

/// State of a node that is the same in all of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// The node drains.
    pub drained: bool,
    /// The node's last report is too old.
    pub silent: bool,
    /// The node counts as dead.
    pub dead: bool,
    /// Unanswered adoptions for this group.
    pub adopting: u32,
}

impl Group {
    /// Group of a pool at one VIP, with no reports yet.
    pub fn new(
        cluster: &Cluster,
        pool: usize,
        LocalMachine { zone, node: here }: LocalMachine<'_>,
        id: impl Fn(usize) -> NodeId,
    ) -> Self {
        let settings = &cluster.pools[pool];
        let sessions = Sessions::new(cluster, pool, &id);
        let members = settings.nodes.iter().map(|&index| {
            let node = &cluster.nodes[index];
            let near = zone.is_some() && node.zone.as_deref() == zone;
            Member { name: node.name.clone(), weight: node.weight, near }
        });
        let is_here = |index: &usize| here == Some(cluster.nodes[*index].name.as_str());
        let own = settings.nodes.iter().position(is_here);
        let delegate = own.zip(settings.delegate);
        Group {
            pool,
            chooses_ahead: settings.chooses_ahead() && delegate.is_none(),
            delegate,
            id: pool_id(&settings.name),
            balance: settings.balance,
            hash: (settings.policy == PolicyKind::Hash).then(|| settings.hash.clone()),
            share: settings.queue_limit,
            second_candidate: settings.second_candidate,
            members: settings.nodes.iter().map(|&index| GroupMember::new(id(index))).collect(),
            places: settings.nodes.iter().map(|&index| id(index)).zip(0..).collect(),
            weights: settings.nodes.iter().map(|&index| cluster.nodes[index].weight).collect(),
            balancer: Balancer::new(settings.policy, members.collect(), settings.slow_start),
            sessions,
            most_ejected: settings.outliers.map_or(0, |outliers| outliers.most_ejected(settings.nodes.len())),
            noted: None,
            changed: Vec::new(),
            ahead: VecDeque::new(),
            adoptions: Wrapping(0),
            empty_status: settings.empty_status,
        }
    }

    /// Status of the answer to requests, if there is no member.
    pub fn answer_if_empty(&self) -> Option<u16> {
        self.members.is_empty().then_some(self.empty_status)
    }

    /// Takes over the state of the same group in the previous configuration.
    pub fn inherit(&mut self, old: Group) {
        for member in &mut self.members {
            if let Some(before) = old.places.get(&member.node) {
                member.clone_from(&old.members[*before]);
            }
        }
        for member in self.members.iter_mut().filter(|member| member.ejected).skip(self.most_ejected) {
            member.ejected = false;
        }
        self.balancer.inherit(old.balancer);
        self.noted = None;
    }

    /// Has the policy look at all nodes before its next choice.
    pub fn look_again(&mut self) {
        self.noted = None;
    }

    /// Has the balancer told the member's state before the next choice.
    fn mark(&mut self, index: usize) {
        if self.changed.len() < self.members.len() {
            self.changed.push(index);
        } else {
            self.noted = None;
        }
    }

    /// Tells the balancer the state of members that have changed, and now and then of all.
    fn note(&mut self, state: impl Fn(NodeId) -> NodeState, now: Duration) {
        let Group { members, balancer, share, noted, changed, .. } = self;
        let mut note = |index: usize| {
            balancer.note(index, load(&members[index], *share, (&[], false), &state, now));
        };
        if noted.is_some_and(|noted| now < noted + NOTED_FOR) {
            changed.drain(..).for_each(note);
        } else {
            (0..members.len()).for_each(&mut note);
            changed.clear();
            *noted = Some(now);
        }
    }

    /// Pool id in reports.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Share of the accept queue that the pool may fill, in percent; 0 ignores the queue.
    pub fn share(&self) -> u8 {
        self.share
    }

    /// Ids of the group's nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }

    /// Whether a flow on the node stays there for its next request; None if that is decided for each request. A flow
    /// leaves a silent node only when the node counts as dead and another one can serve, because the node itself
    /// answers RELEASE; and it leaves an ejected one if another one can serve. A flow on the unwanted side stays if no
    /// node of the wanted side can serve, which the choice finds out.
    pub fn keeps(
        &self,
        side: Option<Side>,
        node: NodeId,
        state: impl Fn(NodeId) -> NodeState,
    ) -> Option<bool> {
        let member = self.places.get(&node).copied();
        let own = state(node);
        let is_left = |member: &GroupMember| {
            (own.dead || member.ejected)
                && !is_usable((&self.members, &self.places), &self.weights, node, &state)
        };
        match member {
            Some(index) if can_serve(&self.members[index], own.drained) && !is_left(&self.members[index]) => {
                // A share is a share of connections.
                let is_shared = matches!(self.delegates(), Some(Delegate::Share(_)));
                let is_wanted = is_shared || side.is_none_or(|side| self.side_of(index) == Some(side));
                (self.balance == Balance::Connection && is_wanted).then_some(true)
            }
            _ => Some(false),
        }
    }

    /// Whether a flow on the node stays there for every request, so that the request need not be read.
    pub fn keeps_unread(&self, node: NodeId, state: impl Fn(NodeId) -> NodeState) -> bool {
        let side = match self.delegates() {
            None | Some(Delegate::Share(_)) => None,
            Some(Delegate::All) => Some(Side::Others),
            Some(Delegate::None) => Some(Side::Here),
            Some(Delegate::Above(_)) => return false,
        };
        self.keeps(side, node, state) == Some(true)
    }

    /// Delegation rule of the local node, if it is in the group.
    pub fn delegates(&self) -> Option<Delegate> {
        self.delegate.map(|(_, delegate)| delegate)
    }

    fn side_of(&self, index: usize) -> Option<Side> {
        self.delegate.map(|(own, _)| if own == index { Side::Here } else { Side::Others })
    }

    /// Hash key of the request, if the policy hashes.
    pub fn key(&self, secret: &sb_key, flow: &sb_flow, head: &Head<'_>) -> Option<u64> {
        self.hash.as_ref().map(|by| key_of(secret, by, flow, head))
    }

    /// Hash key of a connection whose requests cannot be read; the configuration allows only hashing by client here.
    pub fn client_key(&self, secret: &sb_key, flow: &sb_flow) -> Option<u64> {
        self.hash.as_ref().map(|_| hash_of(secret, &[&flow.client]))
    }

    /// The policy's choice among the nodes not in `tried`, and on the wanted side as long as a node there can take the
    /// request. A request that has `waited` skips nodes whose accept queue is known to be full.
    pub fn pick(
        &mut self,
        ask: &Ask,
        side: Option<Side>,
        (tried, waited): (&[NodeId], bool),
        state: impl Fn(NodeId) -> NodeState,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<NodeId> {
        let unwanted =
            self.unwanted(side, |member| load(member, self.share, (tried, waited), &state, ask.now));
        self.note(&state, ask.now);
        let Group { members, places, balancer, share, changed, .. } = self;
        // A request that has waited may see many nodes otherwise than others do.
        let others = if waited { 0..members.len() } else { 0..0 };
        for index in tried.iter().filter_map(|node| places.get(node).copied()).chain(others) {
            let seen = load(&members[index], *share, (tried, waited), &state, ask.now);
            balancer.note(index, seen);
            changed.push(index);
        }
        let choice = balancer.pick_noted(ask, &unwanted, random);
        choice.map(|index| members[index].node)
    }

    /// The members on the other side, which are asked only if the wanted side has no room, because a policy may choose a
    /// node without room.
    fn unwanted(&self, side: Option<Side>, load: impl Fn(&GroupMember) -> Load) -> Vec<usize> {
        let Some(side) = side else { return Vec::new() };
        let has_room = |index: usize| {
            let load = load(&self.members[index]);
            load.availability == Availability::Up && (self.share == 0 || !load.queue.is_full())
        };
        let is_wanted = |index: &usize| self.side_of(*index) == Some(side);
        let (wanted, unwanted): (Vec<_>, Vec<_>) = (0..self.members.len()).partition(is_wanted);
        if wanted.into_iter().any(has_room) { unwanted } else { Vec::new() }
    }

    /// Whether nodes can be chosen before the requests come.
    pub fn chooses_ahead(&self) -> bool {
        self.chooses_ahead
    }

    /// Most choices to be made ahead.
    pub fn most_ahead(&self) -> usize {
        self.balancer.kind().most_ahead()
    }

    /// The policy's choices for `count` first requests to come, each of them counted as load for those after it. They are
    /// fewer if no node can take one, or if the policy chooses a node that is not `usable`.
    pub fn choose_ahead(
        &mut self,
        count: usize,
        usable: impl Fn(NodeId) -> bool,
        state: impl Fn(NodeId) -> NodeState,
        now: Duration,
        random: &mut dyn FnMut() -> u64,
    ) -> Vec<NodeId> {
        self.note(&state, now);
        let Group { members, balancer, share, ahead, .. } = self;
        let load = |member: &GroupMember| load(member, *share, (&[], false), &state, now);
        let mut chosen = Vec::new();
        while chosen.len() < count
            && let Some(index) = balancer.pick_ahead(now, random)
        {
            let member = &mut members[index];
            if !usable(member.node) {
                balancer.give_back(index);
                break;
            }
            member.ahead += 1;
            balancer.note(index, load(member));
            ahead.push_back(index);
            chosen.push(member.node);
        }
        chosen
    }

    /// The first `count` choices made ahead have been used.
    pub fn choices_used(&mut self, count: u32) {
        for _ in 0..count {
            let Some(index) = self.ahead.pop_front() else { break };
            let member = &mut self.members[index];
            member.ahead -= 1;
            member.load.in_flight += 1;
            member.load.flows += 1;
            self.mark(index);
        }
        self.adoptions += count;
    }

    /// The rest of the choices made ahead will not be used.
    pub fn withdraw_choices(&mut self) {
        while let Some(index) = self.ahead.pop_back() {
            self.members[index].ahead -= 1;
            self.mark(index);
            self.balancer.give_back(index);
        }
    }

    /// Takes the accept queues as the program has noted them; see `listener_queues` in `bpf/choices.h`.
    pub fn note_queues(&mut self, noted: impl Fn(NodeId) -> u32, now: Duration) {
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            let word = noted(member.node);
            if std::mem::replace(&mut member.noted, word) != word {
                member.set_queue(((word >> 16) as u16, word as u16), now);
                self.mark(index);
            }
        }
    }

    /// Number of adoptions so far, modulo 2^32.
    pub fn adoptions(&self) -> Wrapping<u32> {
        self.adoptions
    }

    /// Session lookup of the pool, if its sessions stay with their nodes.
    pub fn sessions(&self) -> Option<&Sessions> {
        self.sessions.as_ref()
    }

    /// The session named by a request.
    pub fn read_session(
        &mut self,
        secret: &sb_key,
        flow: &sb_flow,
        head: &Head<'_>,
        state: impl Fn(NodeId) -> NodeState,
    ) -> RequestSession {
        let Group { members, places, weights, sessions, .. } = self;
        let Some(sessions) = sessions else { return RequestSession::default() };
        sessions.read(secret, flow, head, |node| is_usable((members, places), weights, node, &state))
    }

    /// Whether a flow that was adopted with this session information can take requests of the pool: a node associates
    /// each flow with one pool.
    pub fn matches_session(&self, adopted: &sb_session) -> bool {
        self.sessions
            .as_ref()
            .map_or(adopted.pool == sb_session::default().pool, |sessions| sessions.matches_session(adopted))
    }

    /// Destination of a request with a session, among the nodes not in `tried`. All switches choose the same node, also
    /// while the session's own node cannot serve. A node with weight 0 keeps its sessions and gets no new ones.
    pub fn place(
        &mut self,
        session: &Session,
        (tried, waited): (&[NodeId], bool),
        state: impl Fn(NodeId) -> NodeState,
        now: Duration,
    ) -> Placement {
        let Group { members, places, weights, share, sessions, .. } = self;
        let Some(sessions) = sessions else { return Placement::Any(None) };
        let owner = session
            .node
            .filter(|node| !tried.contains(node) && is_usable((members, places), weights, *node, &state));
        match owner {
            Some(node) if sessions.waits_for_room() => {
                let has_room = places.get(&node).is_some_and(|&index| {
                    *share == 0 || !members[index].queue_now(*share, state(node).adopting, now).is_full()
                });
                if has_room { Placement::Session(node) } else { Placement::Full(node) }
            }
            None if sessions.is_strict() => Placement::Nowhere,
            _ => {
                let load = |index: usize| load(&members[index], *share, (tried, waited), &state, now);
                match sessions.choose(session.key, load) {
                    Some(node) if owner == Some(node) => Placement::Session(node),
                    other => Placement::Any(other),
                }
            }
        }
    }

    /// The node to which `first` may pass a request on: the usable node with the least load for its weight. The policy
    /// is not asked, because its choice was the first node.
    pub fn second(
        &self,
        first: NodeId,
        state: impl Fn(NodeId) -> NodeState,
        now: Duration,
    ) -> Option<NodeId> {
        if !self.second_candidate {
            return None;
        }
        let nodes = std::iter::zip(&self.members, &self.weights).filter(|(member, weight)| {
            let state = state(member.node);
            let has_room = !member.queue_now(self.share, state.adopting, now).is_full();
            **weight > 0
                && member.node != first
                && can_serve(member, state.drained)
                && !is_suspect(member, state)
                && has_room
        });
        let burden = |(member, weight): &(&GroupMember, &u32)| {
            u64::from(member.load.in_flight) * 1000 / u64::from(**weight)
        };
        nodes.min_by_key(burden).map(|(member, _)| member.node)
    }

    /// A member whose state is about to change.
    fn member(&mut self, node: NodeId) -> Option<&mut GroupMember> {
        let index = *self.places.get(&node)?;
        self.mark(index);
        Some(&mut self.members[index])
    }

    /// Counts a request on a flow that the node has.
    pub fn request_sent(&mut self, node: NodeId) {
        if let Some(member) = self.member(node) {
            member.load.in_flight += 1;
        }
    }

    /// Counts a request that is handed over with its flow.
    pub fn adoption_sent(&mut self, node: NodeId) {
        self.adoptions += 1;
        if let Some(member) = self.member(node) {
            member.load.in_flight += 1;
            member.load.flows += 1;
        }
    }

    /// Records the accept queue, length and limit, from a successful adoption.
    pub fn adopted(&mut self, node: NodeId, queue: (u16, u16), now: Duration) {
        if let Some(member) = self.member(node) {
            member.set_queue(queue, now);
        }
    }

    /// Records a failed adoption, without a reason if the node did not answer; true if the node no longer serves here.
    pub fn refused(
        &mut self,
        node: NodeId,
        reason: Option<Reason>,
        queue: (u16, u16),
        now: Duration,
    ) -> bool {
        let Some(member) = self.member(node) else { return false };
        member.load.in_flight = member.load.in_flight.saturating_sub(1);
        member.load.flows = member.load.flows.saturating_sub(1);
        member.set_queue(queue, now);
        let is_gone = matches!(reason, Some(Reason::NoListener | Reason::Draining));
        let changes = is_gone && member.reason != reason;
        if changes {
            (member.reason, member.ejected) = (reason, false);
        }
        changes
    }

    /// Applies a report; true if the node's readiness changes. `back` says that the node was silent before.
    pub fn report(&mut self, node: NodeId, report: &Report, back: bool, now: Duration) -> bool {
        let Some(member) = self.member(node) else { return false };
        let is_older = |before: u16| before.wrapping_sub(report.number) < LATE_MAX;
        if !back && member.number.is_some_and(is_older) {
            return false;
        }
        let before = member.reason;
        if report.is_ready() && (member.why_out().is_some() || back) && member.number.is_some() {
            member.load.up_since = now;
        }
        member.number = Some(report.number);
        member.reason = report.reason;
        member.load.in_flight = report.in_flight;
        member.load.flows = report.flows;
        member.load.latency = match (member.load.latency, report.first_byte) {
            // The smoothing of RFC 6298 section 2.
            (Some(before), Some(latest)) => Some(before * 7 / 8 + latest / 8),
            (before, None) => before.filter(|_| now < member.latency_at + LATENCY_FOR),
            (None, latest) => latest,
        };
        if report.first_byte.is_some() {
            member.latency_at = now;
        }
        member.set_queue(report.queue, now);
        if before != report.reason {
            self.eject(node, report.reason == Some(Reason::Failing));
        }
        before != report.reason
    }

    /// Ejects an outlier if the pool can do without one more node, or ends that. One that is not ejected when it begins to
    /// fail stays in service until it has stopped failing.
    fn eject(&mut self, node: NodeId, fails: bool) {
        let ejected = self.members.iter().filter(|member| member.ejected && member.node != node).count();
        let may = fails && ejected < self.most_ejected;
        if let Some(member) = self.member(node) {
            member.ejections += u64::from(may && !member.ejected);
            member.ejected = may;
        }
    }

    /// The nodes as they are seen here.
    pub fn views(&self, now: Duration) -> impl Iterator<Item = (NodeId, MemberView)> {
        self.members.iter().map(move |member| {
            let condition = match (member.number, member.why_out()) {
                (_, Some(reason)) => Condition::Down(reason),
                (Some(_), None) => Condition::Up,
                (None, None) => Condition::Unreported,
            };
            let queue = member.queue_now(self.share, 0, now);
            (member.node, MemberView { condition, queue, ejections: member.ejections })
        })
    }
}

/// Load of a node as the policy sees it. A node in `tried`, or with a full accept queue when the request has waited,
/// counts as down.
fn load(
    member: &GroupMember,
    share: u8,
    (tried, waited): (&[NodeId], bool),
    state: impl Fn(NodeId) -> NodeState,
    now: Duration,
) -> Load {
    let state = state(member.node);
    let queue = member.queue_now(share, state.adopting + member.ahead, now);
    let cannot = tried.contains(&member.node) || waited && share != 0 && queue.is_full();
    let availability = match () {
        () if cannot || !can_serve(member, state.drained) => Availability::Down,
        () if is_suspect(member, state) => Availability::Suspect,
        () => Availability::Up,
    };
    let (in_flight, flows) = (member.load.in_flight + member.ahead, member.load.flows + member.ahead);
    Load { availability, queue, in_flight, flows, ..member.load }
}

/// Whether the policy would consider the node: it can serve, and is not suspect while another usable node is not.
fn is_usable(
    (members, places): (&[GroupMember], &HashMap<NodeId, usize>),
    weights: &[u32],
    node: NodeId,
    state: &impl Fn(NodeId) -> NodeState,
) -> bool {
    let Some(member) = places.get(&node).map(|&index| &members[index]) else { return false };
    let own = state(node);
    let speaks = |(member, weight): (&GroupMember, &u32)| {
        let state = state(member.node);
        *weight > 0 && !is_suspect(member, state) && can_serve(member, state.drained)
    };
    can_serve(member, own.drained)
        && (!is_suspect(member, own) || !std::iter::zip(members, weights).any(speaks))
}

fn can_serve(member: &GroupMember, drained: bool) -> bool {
    matches!(member.reason, None | Some(Reason::Unacknowledged | Reason::Failing)) && !drained
}

/// Whether the node gets requests only if no other node can: it is silent, nobody acknowledges its responses, or it is
/// ejected.
fn is_suspect(member: &GroupMember, state: NodeState) -> bool {
    state.silent || member.ejected || member.reason == Some(Reason::Unacknowledged)
}

#[cfg(test)]
mod tests;
