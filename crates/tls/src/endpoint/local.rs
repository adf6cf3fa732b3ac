//! The nodes of this machine: their servers, connections to these, and which of them gets a request.
//!
//! A machine has one agent, but can have many nodes. The policy of a pool has chosen one of them for a connection, so that node's
//! server gets the requests that are for a pool of it, while it is ready. Others are shared out evenly among the ready nodes of
//! their pool. A server that cannot be reached has got nothing, so the next one is asked instead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use switchback_config::ServerProtocol;
use tokio::sync::watch;

use super::bridge::Bridge;
use super::idle::Stream;
use super::multiplexed::Multiplexed;
use super::server::{OfNode, ServerAddress, Servers};
use crate::{Judge, Outcome};

/// A node of this machine.
#[derive(Debug)]
pub(crate) struct LocalNode {
    pub(super) name: Arc<str>,
    /// By which the switches know it on this machine.
    pub(super) number: u16,
    /// Whether it drains, or has left the configuration: its connections then go to other nodes at their next request.
    leaves: watch::Sender<bool>,
}

impl LocalNode {
    pub(super) fn new(name: &str, number: u16) -> Self {
        LocalNode { name: name.into(), number, leaves: watch::Sender::new(false) }
    }

    /// Sets whether it drains or has gone.
    pub(super) fn set_leaving(&self, leaves: bool) {
        self.leaves.send_if_modified(|before| std::mem::replace(before, leaves) != leaves);
    }

    pub(super) fn is_leaving(&self) -> bool {
        *self.leaves.borrow()
    }

    /// Waits until it leaves.
    pub(super) async fn leaves(&self) {
        // The sender is here, so there is an end of waiting only when it leaves.
        let _ = self.leaves.subscribe().wait_for(|leaves| *leaves).await;
    }
}

/// A node's server for a service, and connections to it.
pub(crate) struct LocalServer {
    pub(super) node: Arc<LocalNode>,
    pub(super) address: ServerAddress,
    /// If it speaks HTTP/1.1.
    straight: Arc<Servers>,
    /// If it speaks HTTP/2.
    pub(super) multiplexed: Arc<Multiplexed>,
    /// The same for clients that speak HTTP/1.1.
    bridged: Arc<Servers>,
}

impl LocalServer {
    /// The server at this address. Requests have up to `fields` header fields.
    pub(super) fn new(node: Arc<LocalNode>, address: ServerAddress, fields: usize) -> Self {
        let multiplexed = Arc::new(Multiplexed::new(address.clone(), Arc::clone(&node.name)));
        let bridge = Bridge::new(vec![Arc::clone(&multiplexed)], fields);
        LocalServer {
            node,
            straight: Arc::new(Servers::new(address.clone())),
            address,
            multiplexed,
            bridged: Arc::new(Servers::bridged(bridge)),
        }
    }

    /// The server, for clients that speak HTTP/1.1.
    fn servers(&self, protocol: ServerProtocol) -> &Arc<Servers> {
        match protocol {
            ServerProtocol::Http11 => &self.straight,
            ServerProtocol::H2c => &self.bridged,
        }
    }
}

/// A node of this machine in a pool.
#[derive(Clone)]
pub(crate) struct Member {
    pub(super) server: Arc<LocalServer>,
    /// Judges its server, if the pool knows outliers.
    pub(super) judge: Option<Arc<Judge>>,
    /// Whether the pool's health check says that its server is ill.
    pub(super) is_ill: Arc<AtomicBool>,
}

/// How well a member can take a request; the best comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fitness {
    Ready,
    /// An outlier of the pool.
    Ejected,
    /// It drains, or has gone.
    Leaving,
    Ill,
}

impl Member {
    pub(super) fn name(&self) -> &Arc<str> {
        &self.server.node.name
    }

    /// Notes how a request at its server has ended.
    pub(super) fn note(&self, outcome: Outcome) {
        self.judge.iter().for_each(|judge| judge.note(outcome));
    }

    fn fitness(&self) -> Fitness {
        if self.is_ill.load(Ordering::Relaxed) {
            Fitness::Ill
        } else if self.server.node.is_leaving() {
            Fitness::Leaving
        } else if self.judge.as_ref().is_some_and(|judge| judge.is_ejected()) {
            Fitness::Ejected
        } else {
            Fitness::Ready
        }
    }
}

/// The nodes of a pool on this machine; at least one. Where they do not answer, those of other machines do.
pub(crate) struct Group {
    members: Vec<Member>,
    /// Index of the next one in rotation: for requests that may go to any, and for those whose node comes first.
    turns: [AtomicUsize; 2],
    protocol: ServerProtocol,
    /// Most nodes of the pool that are ejected at the same time.
    most_ejected: usize,
    /// The servers of the other machines' nodes; None if there are none.
    elsewhere: Option<(ServerAddress, Arc<Servers>)>,
}

impl Group {
    pub(super) fn new(
        members: Vec<Member>,
        protocol: ServerProtocol,
        most_ejected: Option<usize>,
        elsewhere: Option<(ServerAddress, Arc<Servers>)>,
    ) -> Self {
        let most_ejected = most_ejected.unwrap_or_default();
        Group { members, turns: Default::default(), protocol, most_ejected, elsewhere }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether one of them can take requests.
    pub(super) fn is_ready(&self) -> bool {
        self.best() == Some(Fitness::Ready)
    }

    /// Whether those that could take requests are outliers, and there are some.
    pub(super) fn is_ejected(&self) -> bool {
        self.best() == Some(Fitness::Ejected)
    }

    fn best(&self) -> Option<Fitness> {
        self.with_fitness().into_iter().map(|(fitness, _)| fitness).min()
    }

    fn with_fitness(&self) -> Vec<(Fitness, &Member)> {
        let mut all: Vec<_> = self.members.iter().map(|member| (member.fitness(), member)).collect();
        let ejected =
            all.iter_mut().map(|(fitness, _)| fitness).filter(|fitness| **fitness == Fitness::Ejected);
        let ejected: Vec<&mut Fitness> = ejected.collect();
        if ejected.len() > self.most_ejected {
            ejected.into_iter().for_each(|fitness| *fitness = Fitness::Ready);
        }
        all
    }

    /// All of them in the order in which they are asked: the fitter ones first, and of these the node with this name, then the
    /// others in rotation.
    pub(super) fn in_order(&self, node: &str) -> Vec<&Member> {
        self.ranked(node).into_iter().map(|(_, member)| member).collect()
    }

    fn ranked(&self, node: &str) -> Vec<(Fitness, &Member)> {
        let mut all = self.with_fitness();
        let is_its = |(fitness, member): &(Fitness, &Member)| (*fitness, **member.name() != *node);
        let has_first = all.iter().any(|one| is_its(one) == (Fitness::Ready, false));
        let turn = self.turns[usize::from(has_first)].fetch_add(1, Ordering::Relaxed);
        all.rotate_left(turn % self.members.len());
        all.sort_by_key(is_its);
        all
    }

    /// Where a request in HTTP/1.1 goes, and where it goes if no connection can be had there, for a client that is connected to
    /// this node. Ill servers are asked last.
    pub(super) fn upstreams<'a>(&'a self, node: &'a LocalNode) -> Vec<Upstream<'a>> {
        let all = self.ranked(&node.name);
        let (ill, well): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(fitness, _)| *fitness == Fitness::Ill);
        let here = |(_, member): (Fitness, &'a Member)| Upstream {
            servers: member.server.servers(self.protocol),
            node: member.name(),
            member: Some(member),
        };
        let elsewhere =
            self.elsewhere.iter().map(|(_, servers)| Upstream { servers, node: &node.name, member: None });
        well.into_iter().map(here).chain(elsewhere).chain(ill.into_iter().map(here)).collect()
    }

    /// A connection to another server than that of the node with this name, which cannot be reached; to any for a name of
    /// another machine's node.
    async fn connect_instead(&self, of: &str, greeting: &[u8]) -> io::Result<Box<dyn Stream>> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for member in self.in_order(of).into_iter().filter(|member| **member.name() != *of) {
            match member.server.address.connect(greeting).await {
                Ok(stream) => return Ok(OfNode::boxed(stream, member.name())),
                Err(error) => last = error,
            }
        }
        // The others have been asked if it was one of them.
        match self.elsewhere.as_ref().filter(|_| self.members.iter().any(|member| **member.name() == *of)) {
            Some((address, _)) => address.connect(greeting).await,
            None => Err(last),
        }
    }
}

/// Servers that can get a request in HTTP/1.1.
#[derive(Clone, Copy)]
pub(super) struct Upstream<'a> {
    pub(super) servers: &'a Arc<Servers>,
    /// Node of the server, unless a connection names another one.
    pub(super) node: &'a Arc<str>,
    /// Present if that is one of this machine.
    pub(super) member: Option<&'a Member>,
}

impl Upstream<'_> {
    /// Notes how a request there has ended, or that it could not even begin.
    pub(super) fn note(&self, outcome: Outcome) {
        self.member.iter().for_each(|member| member.note(outcome));
    }
}

/// Where connections for the requests of HTTP/2 go: to a server, and if that cannot be reached, to others of its pool.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) address: ServerAddress,
    /// Name of its node, and the nodes of this machine in its pool.
    pub(super) instead: Option<(Arc<str>, Arc<Group>)>,
    pub(super) greeting: Vec<u8>,
}

impl Destination {
    /// The server of one of these nodes.
    pub(super) fn member(group: &Arc<Group>, member: &Member, greeting: Vec<u8>) -> Self {
        let instead = Some((Arc::clone(member.name()), Arc::clone(group)));
        Destination { address: member.server.address.clone(), instead, greeting }
    }

    /// A connection, and whether it goes to the first server.
    pub(super) async fn connect(&self) -> io::Result<(Box<dyn Stream>, bool)> {
        match (self.address.connect(&self.greeting).await, &self.instead) {
            (Ok(stream), _) => Ok((stream, true)),
            (Err(_), Some((of, group))) => Ok((group.connect_instead(of, &self.greeting).await?, false)),
            (Err(error), None) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
