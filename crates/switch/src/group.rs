//! The nodes of a pool at one of the VIPs through which requests reach it, with what is known of each.
//!
//! A server listens at each VIP and port by itself: its accept queue, and whether there is a server at all, are facts
//! of the listener. So a pool that is reached through two VIPs is two groups, which share the nodes and nothing else.
//!
//! What is known comes from three sides. Reports say everything, each 50 ms. An adoption and its refusal say how long
//! the accept queue is at that moment. And what the switch itself has sent since is counted on top, because bursts are
//! shorter than the time between two reports.
//!
//! Where the pool's sessions stay with their nodes, the policy decides about the requests that have none.

use std::time::Duration;

use switchback_config::{Balance, Cluster, Delegate, HashKey, PolicyKind};
use switchback_http::Head;
use switchback_policy::{Ask, Availability, Balancer, Load, Member, Queue};
use switchback_wire::message::Reason;
use switchback_wire::report::{Report, pool_id};
use switchback_wire::{sb_flow, sb_key, sb_session};

use crate::key::{hash_of, key_of};
use crate::plan::{NodeId, Whereabouts};
use crate::sessions::{Said, Session, Sessions};

/// A full accept queue is believed for so long. Servers accept within microseconds, so one adoption is then tried, and
/// its answer says how long the queue is now.
const FULL_FOR: Duration = Duration::from_millis(5);

/// A time to first byte says nothing after so long without another.
const LATENCY_FOR: Duration = Duration::from_secs(10);

/// What is known of a node here.
#[derive(Clone, Debug)]
struct Known {
    node: NodeId,
    /// Without its availability and queue, which depend on the moment.
    load: Load,
    /// As of `queue_at`, without the adoptions that are on their way.
    queue: Queue,
    queue_at: Duration,
    /// When `load.latency` was last measured.
    latency_at: Duration,
    /// Why it is to have no requests; `SB_REASON_NONE` if it may.
    reason: Option<Reason>,
    /// Of the last report.
    number: Option<u16>,
}

impl Known {
    fn new(node: NodeId) -> Self {
        Known {
            node,
            load: Load {
                availability: Availability::Up,
                up_since: Duration::ZERO,
                queue: Queue::default(),
                in_flight: 0,
                flows: 0,
                latency: None,
            },
            queue: Queue::default(),
            queue_at: Duration::ZERO,
            latency_at: Duration::ZERO,
            reason: None,
            number: None,
        }
    }

    fn set_queue(&mut self, (len, limit): (u16, u16), now: Duration) {
        // An answer about an adoption that never reached a listener says nothing.
        if limit != 0 {
            // The kernel holds one more than the limit: sk_acceptq_is_full(), include/net/sock.h.
            self.queue = Queue { len: len.into(), limit: u32::from(limit) + 1 };
            self.queue_at = now;
        }
    }

    /// The accept queue as far as it can be known now, up to the share that the pool may fill. `adopting` adoptions are
    /// on their way to it.
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

/// Nodes of a pool at a listener.
pub struct Group {
    /// Index in the configuration.
    pub pool: usize,
    /// What reports call the pool.
    id: u32,
    balance: Balance,
    /// With the policy that goes by it.
    hash: Option<HashKey>,
    share: u8,
    second_candidate: bool,
    known: Vec<Known>,
    /// In the same order.
    weights: Vec<u32>,
    balancer: Balancer,
    sessions: Option<Sessions>,
    /// The place in `known` of the node that this machine is, and what it leaves to the others.
    delegate: Option<(usize, Delegate)>,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To the node that has its session.
    Session(NodeId),
    /// Likewise, as soon as that has room.
    Full(NodeId),
    /// To this node; None while none can take it.
    Any(Option<NodeId>),
    /// Nowhere: the node that has its session cannot serve, and no other is wanted.
    Nowhere,
}

/// Who is to answer a request, where this machine is one of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This machine.
    Here,
    /// One of the other nodes.
    Others,
}

impl Side {
    /// `bytes` is how long the response is, if that is known. What is not known may be long.
    pub fn of(delegate: Delegate, bytes: Option<u32>, random: &mut dyn FnMut() -> u64) -> Option<Side> {
        let delegated = match delegate {
            Delegate::All => true,
            Delegate::None => false,
            Delegate::Share(percent) => random() % 100 < percent.into(),
            Delegate::Above(limit) => bytes.is_none_or(|bytes| u64::from(bytes) > limit),
        };
        Some(if delegated { Side::Others } else { Side::Here })
    }
}

/// What holds for a node wherever it is a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// It is to become idle.
    pub drained: bool,
    /// Nothing has been heard of it for too long.
    pub silent: bool,
    /// Or for so long that it is taken for dead.
    pub dead: bool,
    /// Adoptions for the group that it has not answered.
    pub adopting: u32,
}

impl Group {
    /// At one of the VIPs.
    pub fn new(
        cluster: &Cluster,
        pool: usize,
        Whereabouts { zone, node: here }: Whereabouts<'_>,
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
        Group {
            pool,
            delegate: own.zip(settings.delegate),
            id: pool_id(&settings.name),
            balance: settings.balance,
            hash: (settings.policy == PolicyKind::Hash).then(|| settings.hash.clone()),
            share: settings.queue_limit,
            second_candidate: settings.second_candidate,
            known: settings.nodes.iter().map(|&index| Known::new(id(index))).collect(),
            weights: settings.nodes.iter().map(|&index| cluster.nodes[index].weight).collect(),
            balancer: Balancer::new(settings.policy, members.collect(), settings.slow_start),
            sessions,
        }
    }

    /// Takes over what the same group of the configuration before knew.
    pub fn inherit(&mut self, old: Group) {
        for known in &mut self.known {
            if let Some(before) = old.known.iter().find(|before| before.node == known.node) {
                known.clone_from(before);
            }
        }
        self.balancer.inherit(old.balancer);
    }

    /// What reports call the pool.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How many of the accept queue's places, in percent, the pool may fill; 0: the queue is not looked at.
    pub fn share(&self) -> u8 {
        self.share
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.known.iter().map(|known| known.node)
    }

    /// Whether a flow that the node has stays there at its next request; None if that is to be decided anew each time.
    /// A silent node answers for itself when it is asked to give a flow up, so flows leave it only when it seems dead, and
    /// another one is there. On the side that is not wanted a flow stays if nobody on the other one can serve, which a
    /// choice will tell.
    pub fn keeps(
        &self,
        side: Option<Side>,
        node: NodeId,
        state: impl Fn(NodeId) -> NodeState,
    ) -> Option<bool> {
        let known = self.known.iter().position(|known| known.node == node);
        let own = state(node);
        let is_left = own.dead && !is_usable(&self.known, &self.weights, node, &state);
        match known {
            Some(index) if can_serve(&self.known[index], own.drained) && !is_left => {
                // Of a share, connections count.
                let is_shared = matches!(self.delegates(), Some(Delegate::Share(_)));
                let is_wanted = is_shared || side.is_none_or(|side| self.side_of(index) == Some(side));
                (self.balance == Balance::Connection && is_wanted).then_some(true)
            }
            _ => Some(false),
        }
    }

    /// Whether it stays whatever the request is.
    pub fn keeps_unread(&self, node: NodeId, state: impl Fn(NodeId) -> NodeState) -> bool {
        let side = match self.delegates() {
            None | Some(Delegate::Share(_)) => None,
            Some(Delegate::All) => Some(Side::Others),
            Some(Delegate::None) => Some(Side::Here),
            Some(Delegate::Above(_)) => return false,
        };
        self.keeps(side, node, state) == Some(true)
    }

    /// What this machine's own node leaves to the others, if it is one of them.
    pub fn delegates(&self) -> Option<Delegate> {
        self.delegate.map(|(_, delegate)| delegate)
    }

    fn side_of(&self, index: usize) -> Option<Side> {
        self.delegate.map(|(own, _)| if own == index { Side::Here } else { Side::Others })
    }

    /// What the pool's policy goes by, where it goes by something of the request.
    pub fn key(&self, secret: &sb_key, flow: &sb_flow, head: &Head<'_>) -> Option<u64> {
        self.hash.as_ref().map(|by| key_of(secret, by, flow, head))
    }

    /// Likewise, of a connection whose requests cannot be read: the configuration allows only what goes by the client.
    pub fn client_key(&self, secret: &sb_key, flow: &sb_flow) -> Option<u64> {
        self.hash.as_ref().map(|_| hash_of(secret, &[&flow.client]))
    }

    /// The policy's choice among the nodes that are not in `tried`, and on the wanted side as long as one there can take
    /// the request. A request that has `waited` asks no node again whose accept queue is known to be full.
    pub fn pick(
        &mut self,
        ask: &Ask,
        side: Option<Side>,
        (tried, waited): (&[NodeId], bool),
        state: impl Fn(NodeId) -> NodeState,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<NodeId> {
        let wanted = side.map(|side| {
            (0..self.known.len()).filter(|&index| self.side_of(index) != Some(side)).collect::<Vec<_>>()
        });
        let Group { known, balancer, share, .. } = self;
        let has_room = |index: usize| {
            let load = load(&known[index], *share, (tried, waited), &state, ask.now);
            load.availability == Availability::Up && (*share == 0 || !load.queue.is_full())
        };
        // The others are asked only if nobody who is wanted has room: a policy may choose one that has none.
        let excluded = wanted
            .filter(|excluded| (0..known.len()).any(|index| !excluded.contains(&index) && has_room(index)));
        let load = |index: usize| load(&known[index], *share, (tried, waited), &state, ask.now);
        let choice = balancer.pick(ask, load, &excluded.unwrap_or_default(), random);
        choice.map(|index| known[index].node)
    }

    /// How the pool's sessions are found, if they stay with their nodes.
    pub fn sessions(&self) -> Option<&Sessions> {
        self.sessions.as_ref()
    }

    /// What a request says of its session.
    pub fn read_session(
        &mut self,
        secret: &sb_key,
        flow: &sb_flow,
        head: &Head<'_>,
        state: impl Fn(NodeId) -> NodeState,
    ) -> Said {
        let Group { known, weights, sessions, .. } = self;
        let Some(sessions) = sessions else { return Said::default() };
        sessions.read(secret, flow, head, |node| is_usable(known, weights, node, &state))
    }

    /// Whether a flow whose node was told this of sessions can take requests of the pool: a node knows one pool for each
    /// flow.
    pub fn is_told(&self, told: &sb_session) -> bool {
        self.sessions
            .as_ref()
            .map_or(told.pool == sb_session::default().pool, |sessions| sessions.is_told(told))
    }

    /// Where a request of this session goes, other than to a node in `tried`. Any switch sends it to the same node, also
    /// while that of the session cannot serve. A node that has been given weight 0 keeps its sessions: it is to get no
    /// new ones.
    pub fn place(
        &mut self,
        session: &Session,
        (tried, waited): (&[NodeId], bool),
        state: impl Fn(NodeId) -> NodeState,
        now: Duration,
    ) -> Place {
        let Group { known, weights, share, sessions, .. } = self;
        let Some(sessions) = sessions else { return Place::Any(None) };
        let owner =
            session.node.filter(|node| !tried.contains(node) && is_usable(known, weights, *node, &state));
        match owner {
            Some(node) if sessions.waits_for_room() => {
                let has_room = known.iter().find(|known| known.node == node).is_some_and(|known| {
                    *share == 0 || !known.queue_now(*share, state(node).adopting, now).is_full()
                });
                if has_room { Place::Session(node) } else { Place::Full(node) }
            }
            None if sessions.is_strict() => Place::Nowhere,
            _ => {
                let load = |index: usize| load(&known[index], *share, (tried, waited), &state, now);
                match sessions.choose(session.key, load) {
                    Some(node) if owner == Some(node) => Place::Session(node),
                    other => Place::Any(other),
                }
            }
        }
    }

    /// The node to which `first` may pass a request on: of those that can serve the one with the least to do for its
    /// weight. The policy is not asked, because the first node is its choice already.
    pub fn second(
        &self,
        first: NodeId,
        state: impl Fn(NodeId) -> NodeState,
        now: Duration,
    ) -> Option<NodeId> {
        if !self.second_candidate {
            return None;
        }
        let nodes = std::iter::zip(&self.known, &self.weights).filter(|(known, weight)| {
            let state = state(known.node);
            let has_room = !known.queue_now(self.share, state.adopting, now).is_full();
            **weight > 0
                && known.node != first
                && can_serve(known, state.drained)
                && !state.silent
                && has_room
        });
        let burden =
            |(known, weight): &(&Known, &u32)| u64::from(known.load.in_flight) * 1000 / u64::from(**weight);
        nodes.min_by_key(burden).map(|(known, _)| known.node)
    }

    fn member(&mut self, node: NodeId) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| known.node == node)
    }

    /// A request goes to a node that has its flow.
    pub fn given(&mut self, node: NodeId) {
        if let Some(known) = self.member(node) {
            known.load.in_flight += 1;
        }
    }

    /// A request goes to a node with its flow.
    pub fn adopting(&mut self, node: NodeId) {
        if let Some(known) = self.member(node) {
            known.load.in_flight += 1;
            known.load.flows += 1;
        }
    }

    /// The node has adopted, and its accept queue was so long then: length and limit.
    pub fn adopted(&mut self, node: NodeId, queue: (u16, u16), now: Duration) {
        if let Some(known) = self.member(node) {
            known.set_queue(queue, now);
        }
    }

    /// The node has not adopted; true if it can serve nothing here any more. No reason if it has not answered.
    pub fn refused(
        &mut self,
        node: NodeId,
        reason: Option<Reason>,
        queue: (u16, u16),
        now: Duration,
    ) -> bool {
        let Some(known) = self.member(node) else { return false };
        known.load.in_flight = known.load.in_flight.saturating_sub(1);
        known.load.flows = known.load.flows.saturating_sub(1);
        known.set_queue(queue, now);
        let is_gone = matches!(reason, Some(Reason::NoListener | Reason::Draining));
        let changes = is_gone && known.reason != reason;
        if changes {
            known.reason = reason;
        }
        changes
    }

    /// What the node says of itself; true if that changes whether it can serve. `back` if nothing had been heard of it
    /// for too long.
    pub fn report(&mut self, node: NodeId, report: &Report, back: bool, now: Duration) -> bool {
        let Some(known) = self.member(node) else { return false };
        let is_older = |before: u16| report.number.wrapping_sub(before).cast_signed() <= 0;
        if !back && known.number.is_some_and(is_older) {
            return false;
        }
        let was_ready = known.reason.is_none();
        if report.is_ready() && (!was_ready || back) && known.number.is_some() {
            known.load.up_since = now;
        }
        known.number = Some(report.number);
        known.reason = report.reason;
        known.load.in_flight = report.in_flight;
        known.load.flows = report.flows;
        known.load.latency = match (known.load.latency, report.first_byte) {
            // RFC 6298 section 2 smooths round trips in the same way.
            (Some(before), Some(latest)) => Some(before * 7 / 8 + latest / 8),
            (before, None) => before.filter(|_| now < known.latency_at + LATENCY_FOR),
            (None, latest) => latest,
        };
        if report.first_byte.is_some() {
            known.latency_at = now;
        }
        known.set_queue(report.queue, now);
        was_ready != report.is_ready()
    }

    /// Why the node is to have no requests here, and its accept queue.
    pub fn condition(&self, node: NodeId, now: Duration) -> Option<(Option<Reason>, Queue)> {
        let known = self.known.iter().find(|known| known.node == node)?;
        Some((known.reason, known.queue_now(self.share, 0, now)))
    }
}

/// What a choice is to know of a node. One that has been `tried`, or whose accept queue is known to be full while the
/// request has waited, counts as one that cannot serve.
fn load(
    known: &Known,
    share: u8,
    (tried, waited): (&[NodeId], bool),
    state: impl Fn(NodeId) -> NodeState,
    now: Duration,
) -> Load {
    let state = state(known.node);
    let queue = known.queue_now(share, state.adopting, now);
    let cannot = tried.contains(&known.node) || waited && share != 0 && queue.is_full();
    let availability = match () {
        () if cannot || !can_serve(known, state.drained) => Availability::Down,
        () if state.silent => Availability::Suspect,
        () => Availability::Up,
    };
    Load { availability, queue, ..known.load }
}

/// Whether a policy would be offered the node: it can serve, and is not silent while another one speaks.
fn is_usable(known: &[Known], weights: &[u32], node: NodeId, state: &impl Fn(NodeId) -> NodeState) -> bool {
    let own = state(node);
    let serves = known.iter().any(|known| known.node == node && can_serve(known, own.drained));
    let speaks = |(known, weight): (&Known, &u32)| {
        let state = state(known.node);
        *weight > 0 && !state.silent && can_serve(known, state.drained)
    };
    serves && (!own.silent || !std::iter::zip(known, weights).any(speaks))
}

fn can_serve(known: &Known, drained: bool) -> bool {
    known.reason.is_none() && !drained
}
