//! Agents tell each other what all of them should have, such as the keys of their tickets ([`Opening::TicketKeys`]).

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::messages::{ANSWER, Opening, hear, say};
use super::peers::Peers;
use crate::TicketKeys;

/// Period at which one of the other agents is asked, and all that have not answered.
const INTERVAL: Duration = Duration::from_secs(60);

/// The agents that this one shares its keys with.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    nodes: Mutex<HashSet<SocketAddr>>,
    changed: Notify,
}

impl Sharing {
    /// Replaces the other agents.
    pub(super) fn set(&self, nodes: HashSet<SocketAddr>) {
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
        self.changed.notify_one();
    }

    pub(super) fn nodes(&self) -> HashSet<SocketAddr> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Exchanges what there is with the other agents, without end: with all when `has_news` says so, with those that are new or have
/// not answered, and with one after the other.
pub(super) async fn share<F: Future<Output = io::Result<()>> + Send + 'static>(
    sharing: Arc<Sharing>,
    mut has_news: impl FnMut() -> bool,
    exchange: impl Fn(SocketAddr) -> F,
) {
    let (mut known, mut due) = (HashSet::new(), HashSet::new());
    let mut turn = 0;
    loop {
        let nodes = sharing.nodes();
        if has_news() {
            due.clone_from(&nodes);
        }
        due.extend(nodes.difference(&known));
        due.retain(|node| nodes.contains(node));
        // What was told while another one could not be reached gets there in the end.
        turn += 1;
        let mut asked = due.clone();
        asked.extend(nodes.iter().nth(turn % nodes.len().max(1)));
        known = nodes;
        let mut exchanges = JoinSet::new();
        for node in asked {
            let exchanging = timeout(ANSWER, exchange(node));
            exchanges.spawn(async move {
                let told = exchanging.await;
                told.is_ok_and(|told| told.is_ok()).then_some(node)
            });
        }
        for node in exchanges.join_all().await.into_iter().flatten() {
            due.remove(&node);
        }
        // Either way it is time.
        let _ = timeout(INTERVAL, sharing.changed.notified()).await;
    }
}

/// The answer of a node to what it is told.
pub(super) async fn ask<T: DeserializeOwned>(
    node: SocketAddr,
    peers: &Peers,
    told: Opening,
) -> io::Result<T> {
    let mut channel = peers.take(node).await?;
    say(&mut channel, &told).await?;
    let answer = hear(&mut channel).await?;
    peers.put_back(node, channel);
    Ok(answer)
}

/// Exchanges the keys of tickets.
pub(super) async fn exchange_keys(node: SocketAddr, peers: &Peers, keys: &TicketKeys) -> io::Result<()> {
    keys.learn(ask(node, peers, Opening::TicketKeys(keys.tell(Instant::now()))).await?, Instant::now());
    Ok(())
}
