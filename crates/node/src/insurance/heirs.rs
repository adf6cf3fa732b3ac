//! The heirs of this node's responses.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use switchback_resume::{Answer, Fingerprint, Flow, Message, Record, Reply};
use switchback_tls::endpoint::{Batch, Peer, Peers, Stream, hear};
use tokio::io::{BufReader, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, timeout_at};

use super::{Insurance, lock};

/// Heirs of a response, and of one over TLS.
pub(super) const HEIRS: usize = 2;
pub(super) const HEIRS_OVER_TLS: usize = 4;
/// Messages that wait for a node. One that does not keep up is told of less.
const WAITING: usize = 4096;
/// Flows taken from one node that are remembered.
const TAKEN: usize = 1 << 16;
/// Interval at which a node is asked whether it lives, and the time without an answer after which no response over TLS waits
/// for it any more. Of the heirs of one, not too many may be dead at the same time.
const LIVES: Duration = Duration::from_millis(100);
const SILENT: Duration = Duration::from_millis(500);
/// Time without an answer after which a connection is made anew, and the time that this may take: after a while without a way
/// to the node, TCP would send again only seconds after there is one.
const LOST: Duration = Duration::from_secs(2);
/// Time between two attempts to reach a node.
const RETRY: Duration = Duration::from_millis(200);

/// The responses of this node, to be told again to an heir that comes back.
#[derive(Debug)]
pub(super) struct Own {
    budget: usize,
    cost: usize,
    by_flow: HashMap<Flow, Told>,
}

#[derive(Debug)]
struct Told {
    record: Record,
    /// An heir has answered that it knows the response, as it does if that has fingerprints.
    is_known: bool,
}

impl Told {
    /// An heir that does not know of a response yet hears no fingerprints of it.
    fn is_insured(&self) -> bool {
        let Told { record, is_known } = self;
        !record.heirs.is_empty() && (record.proof.is_none() || *is_known)
    }
}

impl Own {
    pub(super) fn new(budget: usize) -> Self {
        Own { budget, cost: 0, by_flow: HashMap::new() }
    }

    /// Number of responses with which an heir could go on.
    pub(super) fn insured(&self) -> usize {
        self.by_flow.values().filter(|told| told.is_insured()).count()
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.by_flow.values().map(|told| &told.record)
    }

    fn told(&mut self, flow: &Flow, origin: u32) -> Option<&mut Told> {
        self.by_flow.get_mut(flow).filter(|told| told.record.origin == origin)
    }

    /// Notes that an heir knows of a response; false if that is over.
    pub(super) fn note_known(&mut self, flow: &Flow, origin: u32) -> bool {
        self.told(flow, origin).map(|told| told.is_known = true).is_some()
    }

    /// The heirs of a response.
    pub(super) fn heirs(&self, flow: &Flow) -> &[String] {
        self.by_flow.get(flow).map_or(&[], |told| &told.record.heirs)
    }

    /// Keeps a record; false if there is no room.
    pub(super) fn keep(&mut self, record: Record) -> bool {
        let before = self.by_flow.remove(&record.flow);
        self.cost -= before.as_ref().map_or(0, |before| before.record.cost());
        let has_room = self.cost + record.cost() <= self.budget;
        if has_room {
            let is_known = before.is_some_and(|told| told.is_known && told.record.origin == record.origin);
            self.cost += record.cost();
            self.by_flow.insert(record.flow, Told { record, is_known });
        }
        has_room
    }

    /// The responses that have fingerprints.
    pub(super) fn repeated(&self) -> Vec<(Flow, u32)> {
        let repeated = self.records().filter(|record| record.proof.is_some());
        repeated.map(|record| (record.flow, record.origin)).collect()
    }

    /// Notes how much of a response has been sent: its heirs, if that is news.
    pub(super) fn note(&mut self, flow: &Flow, origin: u32, last: Fingerprint) -> Option<Vec<String>> {
        let record = &mut self.told(flow, origin)?.record;
        let proof = record.proof.as_mut().filter(|proof| proof.last != last)?;
        proof.last = last;
        Some(record.heirs.clone())
    }

    pub(super) fn all(&self) -> Vec<Record> {
        self.records().cloned().collect()
    }

    /// The response of this record has these heirs now, unless it is over.
    pub(super) fn set_heirs(&mut self, record: Record) {
        if self.told(&record.flow, record.origin).is_some() {
            self.keep(record);
        }
    }

    /// Forgets a record; the names of its heirs.
    pub(super) fn over(&mut self, flow: &Flow, origin: u32) -> Option<Vec<String>> {
        self.told(flow, origin)?;
        let Told { record, .. } = self.by_flow.remove(flow)?;
        self.cost -= record.cost();
        Some(record.heirs)
    }

    fn of_heir(&self, heir: &str) -> Vec<Record> {
        self.records().filter(|record| record.heirs.iter().any(|name| name == heir)).cloned().collect()
    }
}

/// What other nodes are to be told of single flows when they can be reached.
#[derive(Debug, Default)]
pub(super) struct Taken(HashMap<String, Vec<Message>>);

impl Taken {
    /// Notes what a node is to be told of a flow.
    pub(super) fn note(&mut self, node: &str, message: Message) {
        let flows = self.0.entry(node.to_owned()).or_default();
        if flows.len() < TAKEN {
            flows.push(message);
        }
    }

    /// What the node is to be told.
    fn of(&mut self, node: &str) -> Vec<Message> {
        self.0.remove(node).unwrap_or_default()
    }
}

/// Connections to the nodes that can be heirs.
#[derive(Default)]
pub(super) struct Heirs {
    lines: HashMap<String, Line>,
    /// Those that could be reached when heirs were looked for last, and the nodes that were dead. Each with
    /// the number of its connection, and whether it has been heard lately.
    seen: (Vec<(String, u64, bool)>, HashSet<u32>),
}

struct Line {
    address: SocketAddr,
    queue: Sender<Message>,
    connection: Arc<Connection>,
    task: JoinHandle<()>,
}

/// The connection of a line.
#[derive(Default)]
struct Connection(Mutex<Option<Open>>);

#[derive(Clone, Copy)]
struct Open {
    number: u64,
    /// When the node was last heard.
    heard: Instant,
}

impl Connection {
    fn open(&self) -> Option<Open> {
        *lock(&self.0)
    }

    fn begin(&self) {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        *lock(&self.0) = Some(Open { number, heard: Instant::now() });
    }

    fn is_heard(&self) {
        lock(&self.0).iter_mut().for_each(|open| open.heard = Instant::now());
    }

    fn end(&self) {
        *lock(&self.0) = None;
    }
}

/// The other end of a line, for its task.
pub(super) struct Far {
    name: String,
    queue: Receiver<Message>,
    connection: Arc<Connection>,
}

impl Heirs {
    /// Opens lines to new nodes, and closes those to nodes that are not among `peers` any more.
    pub(super) fn keep(
        &mut self,
        peers: HashMap<SocketAddr, String>,
        begin: impl Fn(SocketAddr, Far) -> JoinHandle<()>,
    ) {
        let is_kept = |name: &String, line: &mut Line| peers.get(&line.address) != Some(name);
        self.lines.extract_if(|name, line| is_kept(name, line)).for_each(|(_, line)| line.task.abort());
        for (address, name) in peers {
            if self.lines.contains_key(&name) {
                continue;
            }
            let (queue, far) = channel(WAITING);
            let connection = Arc::<Connection>::default();
            let far = Far { name: name.clone(), queue: far, connection: Arc::clone(&connection) };
            self.lines.insert(name, Line { address, queue, connection, task: begin(address, far) });
        }
    }

    /// Whether other nodes can be reached than when this was asked last.
    pub(super) fn have_changed(&mut self, dead: &HashSet<u32>) -> bool {
        let open = self.lines.iter().filter_map(|(name, line)| {
            let open = line.connection.open()?;
            Some((name.clone(), open.number, open.heard.elapsed() < SILENT))
        });
        let mut open: Vec<_> = open.collect();
        open.sort();
        let now = (open, dead.clone());
        let has_changed = now != self.seen;
        self.seen = now;
        has_changed
    }

    /// The number of the connection to a node that has been heard lately.
    pub(super) fn connection(&self, name: &str) -> Option<u64> {
        let open = self.lines.get(name)?.connection.open()?;
        (open.heard.elapsed() < SILENT).then_some(open.number)
    }

    /// So many of these nodes that can be reached: those that are heirs already, and others by a hash of the flow.
    pub(super) fn choose<'a>(
        &self,
        flow: Flow,
        most: usize,
        mut heirs: Vec<String>,
        peers: impl Iterator<Item = &'a Peer>,
    ) -> Vec<String> {
        let is_open =
            |peer: &&Peer| self.lines.get(&peer.name).is_some_and(|line| line.connection.open().is_some());
        let mut open: Vec<&str> = peers.filter(is_open).map(|peer| peer.name.as_str()).collect();
        heirs.retain(|heir| open.contains(&heir.as_str()));
        open.retain(|name| !heirs.iter().any(|heir| heir == name));
        open.sort_by_key(|name| FixedState::default().hash_one((flow, name)));
        let missing = most.saturating_sub(heirs.len());
        heirs.extend(open.into_iter().take(missing).map(str::to_owned));
        heirs
    }

    /// Tells these nodes.
    pub(super) fn say(&self, heirs: &[String], message: &Message) {
        for line in heirs.iter().filter_map(|name| self.lines.get(name)) {
            // A node that does not keep up, or cannot be reached now, is told all there is when it can be reached again.
            if line.queue.try_send(message.clone()).is_err() {
                line.connection.end();
            }
        }
    }

    /// Tells a node by this connection to it; nothing, if there is another one.
    pub(super) fn say_by(&self, name: &str, connection: u64, message: Message) {
        let open = self.lines.get(name).and_then(|line| line.connection.open());
        if open.is_some_and(|open| open.number == connection) {
            self.say(&[name.to_owned()], &message);
        }
    }
}

/// Tells a node what is to be told, without end.
pub(super) async fn tell(node: SocketAddr, peers: Arc<Peers>, mut far: Far, insurance: Insurance) {
    loop {
        if let Ok(Ok(channel)) = timeout(LOST, peers.insure_at(node)).await {
            let (mut from, mut to) = split(channel);
            let (name, connection) = (far.name.clone(), Arc::clone(&far.connection));
            // What ends it is seen at the next attempt.
            let _ = tokio::select! {
                ended = tell_over(&mut to, &mut far, &insurance) => ended,
                ended = hear_replies(&mut from, &name, &connection, &insurance) => ended,
            };
            far.connection.end();
        }
        sleep(RETRY).await;
    }
}

async fn tell_over(
    channel: &mut WriteHalf<Box<dyn Stream>>,
    far: &mut Far,
    insurance: &Insurance,
) -> io::Result<()> {
    // All there is to tell is among the records.
    while far.queue.try_recv().is_ok() {}
    far.connection.begin();
    let mut batch = Batch::default();
    for message in lock(&insurance.0.taken).of(&far.name) {
        batch.add(&message)?;
    }
    for record in lock(&insurance.0.own).of_heir(&far.name) {
        batch.add(&Message::Insure(record))?;
    }
    let mut next = Instant::now();
    loop {
        if next <= Instant::now() {
            next = Instant::now() + LIVES;
            batch.add(&Message::Lives)?;
        }
        batch.send(channel).await?;
        match timeout_at(next.into(), far.queue.recv()).await {
            Ok(Some(message)) => batch.add(&message)?,
            Ok(None) => break,
            Err(_) => {}
        }
        while !batch.is_full()
            && let Ok(message) = far.queue.try_recv()
        {
            batch.add(&message)?;
        }
        if far.connection.open().is_none() {
            // A message has been left out.
            break;
        }
    }
    Ok(())
}

async fn hear_replies(
    channel: &mut ReadHalf<Box<dyn Stream>>,
    name: &str,
    connection: &Connection,
    insurance: &Insurance,
) -> io::Result<()> {
    let mut channel = BufReader::with_capacity(Batch::SIZE, channel);
    loop {
        let reply = timeout(LOST, hear::<Reply>(&mut channel)).await??;
        connection.is_heard();
        if let Reply::Answer(flow, origin, answer) = reply {
            if *answer == Answer::Insured {
                insurance.heir_knows(name, flow, origin);
            }
            insurance.0.policies.hear(name, (flow, origin), *answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use switchback_resume::{Key, Proof};
    use switchback_wire::{read_from, sb_insurable};

    use super::super::record_of;
    use super::*;

    #[test]
    fn a_response_with_fingerprints_is_insured_when_an_heir_knows_it() {
        let mut report: sb_insurable = read_from(&[0; size_of::<sb_insurable>()]).unwrap();
        report.owned.origin = 1;
        let plain = Record { heirs: vec!["n2".to_owned()], ..record_of(&report) };
        let (flow, mut own) = (plain.flow, Own::new(1 << 20));
        let proof = Some(Proof { key: Key { k0: 1, k1: 2 }, last: Fingerprint { len: 0, value: 0 } });
        let repeated = Record { proof, ..plain.clone() };
        assert!(own.keep(plain) && own.insured() == 1);
        assert!(own.keep(repeated.clone()) && own.insured() == 0);
        assert!(!own.note_known(&flow, 7) && own.insured() == 0, "another connection");
        assert!(own.note_known(&flow, 1) && own.insured() == 1);
        own.set_heirs(repeated.clone());
        assert_eq!(own.insured(), 1);
        assert!(own.keep(Record { origin: 2, ..repeated.clone() }) && own.insured() == 0);
        assert!(own.note_known(&flow, 2) && own.over(&flow, 2).is_some());
        assert!(own.keep(repeated.clone()) && own.insured() == 0);
        // There is no room for more, and then there is.
        assert!(
            own.note_known(&flow, 1) && !own.keep(Record { request: vec![0; 2 << 20], ..repeated.clone() })
        );
        assert!(own.keep(repeated) && own.insured() == 0);
    }
}
