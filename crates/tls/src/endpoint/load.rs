//! The load of nodes, which they report to each other, so that a busy one can hand connections over.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use switchback_policy::{Busy, Work, is_lighter};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::counters::{Counted, Counter};
use super::idle::Stream;
use super::messages::{Opening, hear, say};
use super::peers::{Peer, Peers};

/// Period of reports.
const EVERY: Duration = Duration::from_millis(200);
/// Age after which a report is ignored.
const STALE: Duration = Duration::from_secs(1);

/// The load of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Load {
    connections: u64,
    /// CPU time in use, in thousandths of the machine's.
    cpu: u32,
}

impl Load {
    fn work(self) -> Work {
        Work { connections: self.connections, cpu: self.cpu }
    }
}

/// The loads of this node and the others.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Connections of all services, and requests that this node answers for others.
    pub(super) connections: Counter,
    pub(super) cpu: Arc<AtomicU32>,
    /// Whether this node drains.
    pub(super) draining: watch::Sender<bool>,
    pub(super) others: Mutex<HashMap<SocketAddr, (Instant, Load)>>,
}

impl Loads {
    fn own(&self) -> Load {
        Load { connections: self.connections.get(), cpu: self.cpu.load(Ordering::Relaxed) }
    }

    /// Counts a connection, or a request of another node, until it is dropped.
    pub(super) fn work(&self) -> Counted<'_> {
        Counted::new(&self.connections)
    }

    /// Whether this node drains.
    pub(super) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Waits until this node drains.
    pub(super) async fn drains(&self) {
        // The sender is here, so there is an end of waiting only when it drains.
        let _ = self.draining.subscribe().wait_for(|drains| *drains).await;
    }

    /// The nodes of these to which this one gives a connection, the best first. All of them while it drains.
    /// Otherwise those that are not busy and have less load; none if this node is not busy, or `busy` is
    /// None.
    pub(super) fn lighter(&self, busy: Option<Busy>, nodes: &[Peer]) -> Vec<Peer> {
        let own = self.own();
        if self.is_draining() {
            return nodes.to_vec();
        }
        let Some(busy) = busy.filter(|busy| busy.is(own.work())) else { return Vec::new() };
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |peer: &Peer| {
            let (heard, load) = others.get(&peer.address).copied()?;
            let is_lighter = is_lighter(busy, own.work(), load.work());
            (heard.elapsed() < STALE && is_lighter).then_some(load)
        };
        let mut found: Vec<_> =
            nodes.iter().filter_map(|peer| Some((load(peer)?.connections, peer))).collect();
        found.sort_by_key(|(connections, _)| *connections);
        found.into_iter().map(|(_, peer)| peer.clone()).collect()
    }

    /// Counts a request given to this node until the result is dropped; its reports count it only later.
    pub(super) fn give(&self, node: SocketAddr) -> Given<'_> {
        self.given_to(node);
        Given(self, node)
    }

    /// Counts a connection given to this node; its reports count it only later.
    pub(super) fn given_to(&self, node: SocketAddr) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, load)) = others.get_mut(&node) {
            load.connections += 1;
        }
    }

    fn taken_from(&self, node: SocketAddr) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, load)) = others.get_mut(&node) {
            load.connections = load.connections.saturating_sub(1);
        }
    }
}

/// A request that another node has.
pub(super) struct Given<'a>(&'a Loads, SocketAddr);

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.0.taken_from(self.1);
    }
}

/// Reads the reports of a node, without end.
pub(super) async fn watch(node: SocketAddr, peers: Arc<Peers>, loads: Arc<Loads>) {
    loop {
        // It may not have begun yet, or have ended.
        let _ = listen_to(node, &peers, &loads).await;
        sleep(STALE / 2).await;
    }
}

async fn listen_to(node: SocketAddr, peers: &Peers, loads: &Loads) -> io::Result<()> {
    let mut channel = peers.connect(node).await?;
    say(&mut channel, &Opening::Load).await?;
    loop {
        let load = timeout(STALE, hear(&mut channel)).await??;
        let mut others = loads.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.insert(node, (Instant::now(), load));
    }
}

/// Sends reports to a node.
pub(super) async fn tell(channel: &mut Box<dyn Stream>, loads: &Loads) -> io::Result<()> {
    loop {
        say(channel, &loads.own()).await?;
        sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_node_finds_the_idlest_that_is_not() {
        let peer =
            |port| Peer { name: format!("n{port}"), address: SocketAddr::from(([192, 0, 2, 1], port)) };
        let loads = Loads::default();
        let busy = Some(Busy { connections: 10, cpu: 800 });
        for (port, connections, cpu) in [(1, 9, 0), (2, 3, 0), (3, 0, 900), (4, 11, 0)] {
            let load = Load { connections, cpu };
            loads.others.lock().unwrap().insert(peer(port).address, (Instant::now(), load));
        }
        let nodes: Vec<Peer> = (1..=5).map(peer).collect();
        let lighter = || loads.lighter(busy, &nodes).into_iter().map(|peer| peer.name).collect::<Vec<_>>();
        assert_eq!(lighter(), [""; 0], "it is not busy");
        loads.connections.add(11);
        assert_eq!(lighter(), ["n2", "n1"]);
        (0..7).for_each(|_| loads.given_to(peer(2).address));
        assert_eq!(lighter(), ["n1", "n2"]);
        (0..7).for_each(|_| loads.taken_from(peer(2).address));
        assert_eq!(lighter(), ["n2", "n1"]);
        (0..11).for_each(|_| loads.connections.less());
        loads.cpu.store(801, Ordering::Relaxed);
        assert_eq!(lighter(), [""; 0], "all have more connections");
        loads.draining.send_replace(true);
        assert_eq!(lighter(), ["n1", "n2", "n3", "n4", "n5"]);
    }
}
