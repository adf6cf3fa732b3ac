//! The pools of a service: at this machine, with others or not, or at others only.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use switchback_config::{Resume, ServerProtocol};
use switchback_policy::Busy;
use switchback_wire::report::pool_id;

use super::bridge::Bridge;
use super::forwarding::{Forwarder, SingleNodes, forwarder};
use super::load::Loads;
use super::local::{Destination, Group, LocalNode, Member};
use super::multiplexed::Multiplexed;
use super::peers::Peer;
use super::server::{ServerAddress, Servers, Wanted};
use super::shared::Shared;
use crate::Judge;

/// The nodes of a pool.
#[derive(Clone, Debug)]
pub struct PoolNodes {
    /// The pool's name.
    pub name: String,
    /// Name of its policy.
    pub policy: &'static str,
    /// The nodes of this machine: name, and the judge of its server if the pool knows outliers.
    pub here: Vec<(String, Option<Arc<Judge>>)>,
    /// The nodes of other machines.
    pub others: Vec<Peer>,
    /// How another node goes on with a response of this one.
    pub resume: Resume,
    /// What the servers speak.
    pub protocol: ServerProtocol,
    /// Most nodes that are ejected at the same time; None if the pool knows no outliers.
    pub most_ejected: Option<usize>,
    /// Status of the answer to requests if there is no node.
    pub empty_status: u16,
}

/// Where the requests for a pool go.
pub(super) enum PoolWay {
    /// To a server of this machine.
    Here(Box<Here>),
    /// To other machines; none of this one's nodes is in the pool.
    Elsewhere(Box<Elsewhere>),
    /// Nowhere, since the pool has no node: the client gets this status.
    Empty(u16),
}

impl PoolWay {
    /// The pool whose nodes of this machine are `members`. Requests have up to `fields` header fields.
    pub(super) fn new(
        nodes: PoolNodes,
        members: Vec<Member>,
        wanted: &Wanted,
        shared: &Shared,
        fields: usize,
    ) -> Self {
        if members.is_empty() && nodes.others.is_empty() {
            return PoolWay::Empty(nodes.empty_status);
        }
        let elsewhere = Elsewhere::new(&nodes, wanted, shared, fields);
        match members.is_empty() {
            true => PoolWay::Elsewhere(Box::new(elsewhere)),
            false => PoolWay::Here(Box::new(Here::new(nodes, members, elsewhere, wanted, shared))),
        }
    }
}

/// A pool that nodes of this machine are in.
pub(crate) struct Here {
    /// The nodes of other machines.
    pub(super) others: Vec<Peer>,
    /// How one of them goes on with a response of this one.
    pub(super) resume: Resume,
    /// What the servers speak.
    pub(super) protocol: ServerProtocol,
    /// Id of the pool.
    pub(super) pool: u32,
    /// None if the pool knows no outliers.
    most_ejected: Option<usize>,
    /// The nodes of this machine.
    pub(super) group: Arc<Group>,
    /// To the server of each of these, by the node's name, if that speaks HTTP/1.1.
    forwarders: HashMap<Arc<str>, Forwarder>,
    pub(super) single: SingleNodes,
}

impl Here {
    fn new(
        nodes: PoolNodes,
        members: Vec<Member>,
        elsewhere: Elsewhere,
        wanted: &Wanted,
        shared: &Shared,
    ) -> Self {
        let PoolNodes { others, resume, protocol, most_ejected, .. } = nodes;
        let Elsewhere { pool, address, servers, .. } = elsewhere;
        let elsewhere = (!others.is_empty()).then_some((address, servers));
        let group = Arc::new(Group::new(members, protocol, most_ejected, elsewhere));
        let forwarder = |member: &Member| {
            let to = forwarder(Destination::member(&group, member, Vec::new()));
            (Arc::clone(member.name()), to)
        };
        Here {
            others,
            resume,
            protocol,
            pool,
            most_ejected,
            forwarders: group.members().iter().map(forwarder).collect(),
            single: SingleNodes::new(&shared.peers, wanted, pool, &group),
            group,
        }
    }

    /// The nodes of other machines that get a request, the best first; none if one of this machine answers it.
    pub(super) fn better(&self, loads: &Loads, busy: Option<Busy>) -> Vec<Peer> {
        let mut better = loads.lighter(busy, &self.others);
        better.retain(|peer| !self.fails(loads, peer));
        if !better.is_empty() || self.group.is_ready() {
            return better;
        }
        match self.group.is_ejected() {
            true => loads.serving((self.pool, self.most_ejected.unwrap_or_default()), &self.others),
            false => self.others_in_order(loads),
        }
    }

    /// The nodes of other machines, outliers last, to one of which a connection moves whose node leaves.
    pub(super) fn others_in_order(&self, loads: &Loads) -> Vec<Peer> {
        let mut others = self.others.clone();
        others.sort_by_cached_key(|peer| self.fails(loads, peer));
        others
    }

    fn fails(&self, loads: &Loads, peer: &Peer) -> bool {
        self.most_ejected.is_some() && loads.fails(self.pool, peer.address)
    }

    /// Whether all nodes of this machine are outliers of the pool.
    pub(super) fn is_outlier(&self) -> bool {
        let is_ejected = |member: &Member| member.judge.as_ref().is_some_and(|judge| judge.is_ejected());
        self.group.members().iter().all(is_ejected)
    }

    /// The node of this machine whose server gets a request, for a client that is connected to `node`.
    pub(super) fn member(&self, node: &LocalNode) -> &Member {
        self.group.in_order(&node.name)[0]
    }

    /// The forwarder to a server of this machine.
    pub(super) fn forwarder(&self, member: &Member) -> &Forwarder {
        &self.forwarders[member.name()]
    }
}

/// A pool that other machines have.
pub(crate) struct Elsewhere {
    /// Id of the pool.
    pub(super) pool: u32,
    nodes: Vec<Peer>,
    loads: Arc<Loads>,
    turn: AtomicUsize,
    /// What their servers speak.
    pub(super) protocol: ServerProtocol,
    /// Address of one of their servers, each time of the next.
    pub(super) address: ServerAddress,
    /// Their servers for clients that speak HTTP/1.1.
    pub(super) servers: Arc<Servers>,
    pub(super) forwarder: Forwarder,
    /// The server of each node, if it speaks HTTP/2.
    multiplexed: Vec<Arc<Multiplexed>>,
}

impl Elsewhere {
    fn new(pool: &PoolNodes, wanted: &Wanted, shared: &Shared, fields: usize) -> Self {
        let PoolNodes { name, others: nodes, protocol, .. } = pool;
        let (pool, peers, loads) = (pool_id(name), &shared.peers, Arc::clone(&shared.loads));
        let address = ServerAddress::at_pool(peers, wanted, nodes.clone(), (pool, Arc::clone(&loads)));
        let single = |peer: &Peer| {
            let address = ServerAddress::at_peers(peers, wanted, vec![peer.clone()], Some(pool));
            Arc::new(Multiplexed::new(address, peer.name.as_str().into()))
        };
        let multiplexed: Vec<_> = nodes.iter().map(single).collect();
        let servers = match protocol {
            ServerProtocol::Http11 => Servers::new(address.clone()),
            ServerProtocol::H2c => Servers::bridged(Bridge::new(multiplexed.clone(), fields)),
        };
        let destination = Destination { address: address.clone(), instead: None, greeting: Vec::new() };
        Elsewhere {
            pool,
            nodes: nodes.clone(),
            loads,
            turn: AtomicUsize::new(0),
            protocol: *protocol,
            servers: Arc::new(servers),
            forwarder: forwarder(destination),
            address,
            multiplexed,
        }
    }

    /// The nodes, beginning with the next in rotation; outliers come last.
    pub(super) fn in_turn(&self) -> Vec<Peer> {
        self.rotated(&self.nodes)
    }

    /// Their servers in HTTP/2 in the same order.
    pub(super) fn multiplexed_in_turn(&self) -> Vec<Arc<Multiplexed>> {
        self.rotated(&self.multiplexed)
    }

    fn rotated<T: Clone>(&self, all: &[T]) -> Vec<T> {
        let mut all: Vec<_> = std::iter::zip(&self.nodes, all).collect();
        let len = all.len().max(1);
        all.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % len);
        all.sort_by_cached_key(|(node, _)| self.loads.fails(self.pool, node.address));
        all.into_iter().map(|(_, one)| one.clone()).collect()
    }
}

/// A pool that gets copies of requests.
pub(super) struct Mirroring {
    /// Names of the nodes of this machine.
    here: Vec<String>,
    /// Index of the next of these.
    turn: AtomicUsize,
    /// Those of other machines get copies if there is none here.
    elsewhere: Elsewhere,
}

impl Mirroring {
    pub(super) fn new(pool: PoolNodes, wanted: &Wanted, shared: &Shared, fields: usize) -> Self {
        let elsewhere = Elsewhere::new(&pool, wanted, shared, fields);
        let here = pool.here.into_iter().map(|(name, _)| name).collect();
        Mirroring { here, turn: AtomicUsize::new(0), elsewhere }
    }

    /// Id of the pool, name of the node that gets the next copy, and its agent if that is another one.
    pub(super) fn next(&self) -> Option<(u32, String, Option<SocketAddr>)> {
        let pool = self.elsewhere.pool;
        if self.here.is_empty() {
            let Peer { name, address } = self.elsewhere.in_turn().into_iter().next()?;
            return Some((pool, name, Some(address)));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.here.len();
        Some((pool, self.here[turn].clone(), None))
    }
}

/// Addresses of the other machines of these pools.
pub(super) fn addresses<'a>(pools: impl Iterator<Item = &'a PoolNodes>) -> HashSet<SocketAddr> {
    pools.flat_map(|pool| &pool.others).map(|peer| peer.address).collect()
}
