//! The load of nodes, which they report to each other, so that a busy one can hand connections over.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use switchback_policy::{Busy, Work, is_lighter};
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
    pub(super) others: Mutex<HashMap<SocketAddr, (Instant, Load)>>,
    /// Ids of the pools whose requests a node fails.
    pub(super) failing: Mutex<HashMap<SocketAddr, (Instant, Vec<u32>)>>,
}

impl Loads {
    pub(super) fn own(&self) -> Load {
        Load { connections: self.connections.get(), cpu: self.cpu.load(Ordering::Relaxed) }
    }

    /// Counts a connection, or a request of another node, until it is dropped.
    pub(super) fn work(&self) -> Counted<'_> {
        Counted::new(&self.connections)
    }

    /// The nodes of these to which this one gives a connection, the best first: those that are not busy and have less load;
    /// none if this node is not busy, or `busy` is None.
    pub(super) fn lighter(&self, busy: Option<Busy>, nodes: &[Peer]) -> Vec<Peer> {
        let own = self.own();
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

    /// Of these nodes, those that are heard of and do not fail the requests of a pool; none if more nodes fail them, this one
    /// included, than may be ejected.
    pub(super) fn serving(&self, (pool, most_ejected): (u32, usize), nodes: &[Peer]) -> Vec<Peer> {
        let fails = |peer: &&Peer| self.fails(pool, peer.address);
        if nodes.iter().filter(fails).count() >= most_ejected {
            return Vec::new();
        }
        let serves = |peer: &&Peer| self.told(peer.address, |failing| !failing.contains(&pool)) == Some(true);
        nodes.iter().filter(serves).cloned().collect()
    }

    /// Whether a node has said lately that it fails the requests of a pool.
    pub(super) fn fails(&self, pool: u32, node: SocketAddr) -> bool {
        self.told(node, |failing| failing.contains(&pool)) == Some(true)
    }

    /// Something about the pools whose requests a node fails; None if it has not been heard lately.
    fn told<T>(&self, node: SocketAddr, of: impl FnOnce(&[u32]) -> T) -> Option<T> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.get(&node).filter(|(heard, _)| heard.elapsed() < STALE).map(|(_, pools)| of(pools))
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

/// Reads the reports of a node on its load, without end.
pub(super) async fn watch(node: SocketAddr, peers: Arc<Peers>, loads: Arc<Loads>) {
    loop {
        // It may not have begun yet, or have ended.
        let _ = listen_to(node, &peers, &Opening::Load, &loads.others).await;
        sleep(STALE / 2).await;
    }
}

/// Reads the reports of a node on the pools whose requests it fails, without end.
pub(super) async fn watch_failing(node: SocketAddr, peers: Arc<Peers>, loads: Arc<Loads>) {
    loop {
        let _ = listen_to(node, &peers, &Opening::Failing, &loads.failing).await;
        sleep(STALE / 2).await;
    }
}

async fn listen_to<T: DeserializeOwned>(
    node: SocketAddr,
    peers: &Peers,
    opening: &Opening,
    heard: &Mutex<HashMap<SocketAddr, (Instant, T)>>,
) -> io::Result<()> {
    let mut channel = peers.connect(node).await?;
    say(&mut channel, opening).await?;
    loop {
        let report = timeout(STALE, hear(&mut channel)).await??;
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.insert(node, (Instant::now(), report));
    }
}

/// Sends reports to a node.
pub(super) async fn tell<T: Serialize>(
    channel: &mut Box<dyn Stream>,
    report: impl Fn() -> T,
) -> io::Result<()> {
    loop {
        say(channel, &report()).await?;
        sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_fails_finds_those_that_do_not_while_few_fail() {
        let peer =
            |port| Peer { name: format!("n{port}"), address: SocketAddr::from(([192, 0, 2, 1], port)) };
        let loads = Loads::default();
        let tell = |port, pools: &[u32]| {
            let mut told = loads.failing.lock().unwrap();
            told.insert(peer(port).address, (Instant::now(), pools.to_vec()));
        };
        let nodes: Vec<Peer> = (1..=4).map(peer).collect();
        let serving = |most| loads.serving((7, most), &nodes).into_iter().map(|peer| peer.name);
        tell(1, &[7]);
        tell(2, &[]);
        tell(3, &[8]);
        assert!(serving(2).eq(["n2", "n3"]), "nothing is heard of the fourth");
        assert_eq!(serving(1).count(), 0, "two fail");
        assert!(loads.fails(7, peer(1).address) && !loads.fails(8, peer(1).address));
        tell(1, &[]);
        assert!(serving(1).eq(["n1", "n2", "n3"]));
    }

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
    }
}
