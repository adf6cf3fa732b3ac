//! The heirs of this node's responses.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldhash::fast::FixedState;
use switchback_resume::{Flow, Message, Record};
use switchback_tls::endpoint::{Peer, Peers, Stream, say};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Insurance, lock};

/// Heirs of a response.
const HEIRS: usize = 2;
/// Messages that wait for a node. One that does not keep up is told of less.
const WAITING: usize = 4096;
/// Time between two attempts to reach a node.
const RETRY: Duration = Duration::from_millis(500);

/// The records of this node, to be told again to an heir that comes back.
#[derive(Debug)]
pub(super) struct Own {
    budget: usize,
    cost: usize,
    records: HashMap<Flow, Record>,
}

impl Own {
    pub(super) fn new(budget: usize) -> Self {
        Own { budget, cost: 0, records: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Keeps a record; false if there is no room.
    pub(super) fn keep(&mut self, record: &Record) -> bool {
        if let Some(before) = self.records.remove(&record.flow) {
            self.cost -= before.cost();
        }
        let has_room = self.cost + record.cost() <= self.budget;
        if has_room {
            self.cost += record.cost();
            self.records.insert(record.flow, record.clone());
        }
        has_room
    }

    /// Forgets a record; the names of its heirs.
    pub(super) fn over(&mut self, flow: &Flow, origin: u32) -> Option<Vec<String>> {
        self.records.get(flow).filter(|record| record.origin == origin)?;
        let record = self.records.remove(flow)?;
        self.cost -= record.cost();
        Some(record.heirs)
    }

    fn of_heir(&self, heir: &str) -> Vec<Record> {
        self.records.values().filter(|record| record.heirs.iter().any(|name| name == heir)).cloned().collect()
    }
}

/// Connections to the nodes that can be heirs.
#[derive(Default)]
pub(super) struct Heirs(HashMap<String, Line>);

struct Line {
    address: SocketAddr,
    queue: Sender<Message>,
    is_open: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// The other end of a line, for its task.
pub(super) struct Far {
    name: String,
    queue: Receiver<Message>,
    is_open: Arc<AtomicBool>,
}

impl Heirs {
    /// Opens lines to new nodes, and closes those to nodes that are not among `peers` any more.
    pub(super) fn keep(
        &mut self,
        peers: HashMap<SocketAddr, String>,
        begin: impl Fn(SocketAddr, Far) -> JoinHandle<()>,
    ) {
        let is_kept = |name: &String, line: &mut Line| peers.get(&line.address) != Some(name);
        self.0.extract_if(|name, line| is_kept(name, line)).for_each(|(_, line)| line.task.abort());
        for (address, name) in peers {
            if self.0.contains_key(&name) {
                continue;
            }
            let (queue, far) = channel(WAITING);
            let is_open = Arc::<AtomicBool>::default();
            let task = begin(address, Far { name: name.clone(), queue: far, is_open: Arc::clone(&is_open) });
            self.0.insert(name, Line { address, queue, is_open, task });
        }
    }

    /// The record with its heirs: two of these nodes that can be reached, by a hash of the flow. None if there is none.
    pub(super) fn choose(&self, record: Record, peers: &[Peer]) -> Option<Record> {
        let is_open =
            |peer: &&Peer| self.0.get(&peer.name).is_some_and(|line| line.is_open.load(Ordering::Relaxed));
        let mut open: Vec<&Peer> = peers.iter().filter(is_open).collect();
        open.sort_by_key(|peer| FixedState::default().hash_one((record.flow, &peer.name)));
        let heirs: Vec<String> = open.iter().take(HEIRS).map(|peer| peer.name.clone()).collect();
        (!heirs.is_empty()).then_some(Record { heirs, ..record })
    }

    /// Tells these nodes.
    pub(super) fn say(&self, heirs: &[String], message: &Message) {
        for line in heirs.iter().filter_map(|name| self.0.get(name)) {
            // A node that does not keep up, or cannot be reached now, is told all there is when it can be reached again.
            if line.queue.try_send(message.clone()).is_err() {
                line.is_open.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// Tells a node what is to be told, without end.
pub(super) async fn tell(node: SocketAddr, peers: Arc<Peers>, mut far: Far, insurance: Insurance) {
    loop {
        if let Ok(channel) = peers.insure_at(node).await {
            far.is_open.store(true, Ordering::Relaxed);
            // What ends it is seen at the next attempt.
            let _ = tell_over(channel, &mut far, &insurance).await;
            far.is_open.store(false, Ordering::Relaxed);
        }
        sleep(RETRY).await;
    }
}

async fn tell_over(
    mut channel: Box<dyn Stream>,
    far: &mut Far,
    insurance: &Insurance,
) -> std::io::Result<()> {
    // All there is to tell is among the records.
    while far.queue.try_recv().is_ok() {}
    let records = lock(&insurance.0.own).of_heir(&far.name);
    for record in records {
        say(&mut channel, &Message::Insure(record)).await?;
    }
    while let Some(message) = far.queue.recv().await {
        say(&mut channel, &message).await?;
        if !far.is_open.load(Ordering::Relaxed) {
            // A message has been left out.
            break;
        }
    }
    Ok(())
}
