//! Copies of requests for pools whose answers are thrown away.
//!
//! Who has read a request sends its copy to the agent of a node of the mirror pool, which asks its own server and drops the
//! answer. So answers leave no machine. A copy that finds no room on the way is dropped: nothing waits for copies, and nothing is
//! lost with one.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use log::debug;
use serde::{Deserialize, Serialize};
use switchback_config::ServerProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::bridge::Bridge;
use super::counters::Counter;
use super::idle::Stream;
use super::messages::{Opening, hear, say};
use super::multiplexed::Multiplexed;
use super::peers::Peers;
use super::server::{ServerAddress, Servers};

/// Bytes of copies that wait for one node.
const WAITING: usize = 512 << 10;
/// What a copy takes beside its bytes.
const COPY: usize = 256;
/// Time after which a connection without copies is closed; less than the other side waits for one.
const IDLE: Duration = Duration::from_secs(30);
/// Copies that a node has its servers answer at a time.
const ASKING: usize = 64;
/// Time for a server's answer, with its end.
const ANSWER: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read at once.
const READ: usize = 64 << 10;
/// Most header fields of a copy to a server that speaks HTTP/2.
const FIELDS: usize = 256;

/// A server that gets copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MirrorServer {
    /// Name of the service.
    pub service: String,
    /// Id of the pool.
    pub pool: u32,
    /// Name of the node.
    pub node: String,
}

/// A copy of a request on its way.
#[derive(Serialize, Deserialize)]
pub struct Copy {
    /// Whose server gets it.
    pub server: MirrorServer,
    /// What its connection begins with.
    pub greeting: Vec<u8>,
    /// The request.
    pub request: Vec<u8>,
}

/// Without the request.
impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copy").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Counts of copies.
#[derive(Debug, Default)]
pub struct CopyCounts {
    /// Sent to the node of their server.
    pub sent: Counter,
    /// Dropped for want of room, or with the connection to the node.
    pub dropped: Counter,
    /// Given to a server of this node that has answered.
    pub answered: Counter,
    /// Given to a server of this node that has not answered in time.
    pub failed: Counter,
}

/// Sends copies to nodes.
pub struct Mirrors {
    peers: Arc<Peers>,
    /// Where its tasks run; the first copy starts a thread of its own for them.
    runtime: OnceLock<Tasks>,
    queues: Mutex<HashMap<SocketAddr, Queue>>,
    counts: Arc<CopyCounts>,
}

enum Tasks {
    Own(Runtime),
    Shared(Handle),
}

/// Copies that wait for one node.
struct Queue {
    copies: UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
}

/// A copy, and its room among those that wait.
struct Waiting(Copy, OwnedSemaphorePermit);

impl Mirrors {
    /// Authenticates with the first of the cluster's keys.
    pub fn new(cluster_keys: &[[u8; 32]]) -> Option<Self> {
        Some(Mirrors::with(Arc::new(Peers::new(cluster_keys)?), OnceLock::new(), Arc::default()))
    }

    /// Sends from tasks of this runtime.
    pub(super) fn on(runtime: Handle, peers: Arc<Peers>, counts: Arc<CopyCounts>) -> Self {
        Mirrors::with(peers, OnceLock::from(Tasks::Shared(runtime)), counts)
    }

    fn with(peers: Arc<Peers>, runtime: OnceLock<Tasks>, counts: Arc<CopyCounts>) -> Self {
        Mirrors { peers, runtime, queues: Mutex::default(), counts }
    }

    /// Replaces the keys; open connections go on. False, and nothing changes, if these make no key.
    pub fn set_keys(&self, cluster_keys: &[[u8; 32]]) -> bool {
        self.peers.set_keys(cluster_keys)
    }

    /// Counts of copies.
    pub fn counts(&self) -> &CopyCounts {
        &self.counts
    }

    /// Sends a copy to the agent at this address, or drops it if there is no room.
    pub fn send(&self, agent: SocketAddr, copy: Copy) {
        if let Err(why) = self.queue(agent, copy) {
            debug!("a copy for {agent} is dropped: {why}");
            self.counts.dropped.add(1);
        }
    }

    fn queue(&self, agent: SocketAddr, copy: Copy) -> io::Result<()> {
        let runtime = self.runtime()?;
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(agent).or_insert_with(Queue::closed);
        let len = (copy.request.len() + copy.greeting.len() + COPY).min(WAITING) as u32;
        let place = Arc::clone(&queue.room).try_acquire_many_owned(len).map_err(io::Error::other)?;
        let Err(returned) = queue.copies.send(Waiting(copy, place)) else { return Ok(()) };
        let (copies, waiting) = unbounded_channel();
        queue.copies = copies;
        runtime.spawn(send_all(agent, Arc::clone(&self.peers), waiting, Arc::clone(&self.counts)));
        queue.copies.send(returned.0).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn runtime(&self) -> io::Result<&Handle> {
        if self.runtime.get().is_none() {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime =
                builder.worker_threads(1).thread_name("mirror").enable_io().enable_time().build()?;
            // Another thread may have been faster.
            let _ = self.runtime.set(Tasks::Own(runtime));
        }
        match self.runtime.get() {
            Some(Tasks::Own(runtime)) => Ok(runtime.handle()),
            Some(Tasks::Shared(handle)) => Ok(handle),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl fmt::Debug for Mirrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirrors").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue that nobody reads yet.
    fn closed() -> Self {
        Queue { copies: unbounded_channel().0, room: Arc::new(Semaphore::new(WAITING)) }
    }
}

/// Sends copies to an agent until none has come for some time. Those that wait are dropped with the connection.
async fn send_all(
    agent: SocketAddr,
    peers: Arc<Peers>,
    mut waiting: UnboundedReceiver<Waiting>,
    counts: Arc<CopyCounts>,
) {
    let sending = async {
        let mut channel = peers.connect(agent).await?;
        say(&mut channel, &Opening::Mirror).await?;
        loop {
            match timeout(IDLE, waiting.recv()).await {
                Ok(Some(Waiting(copy, _place))) => {
                    say(&mut channel, &copy).await.inspect_err(|_| counts.dropped.add(1))?;
                    counts.sent.add(1);
                }
                Ok(None) => return io::Result::Ok(()),
                // Later copies get another task.
                Err(_) => waiting.close(),
            }
        }
    };
    let sent = sending.await;
    waiting.close();
    while waiting.try_recv().is_ok() {
        counts.dropped.add(1);
    }
    if let Err(error) = sent {
        debug!("copies for {agent} are dropped: {error}");
    }
}

/// The servers of this machine's nodes that get copies.
pub(super) struct Mirrored {
    servers: ArcSwap<HashMap<MirrorServer, Arc<Servers>>>,
    places: Arc<Semaphore>,
    counts: Arc<CopyCounts>,
}

impl Mirrored {
    pub(super) fn new(counts: Arc<CopyCounts>) -> Self {
        Mirrored { servers: ArcSwap::default(), places: Arc::new(Semaphore::new(ASKING)), counts }
    }

    /// Replaces the servers.
    pub(super) fn set(
        &self,
        servers: impl IntoIterator<Item = (MirrorServer, ServerAddress, ServerProtocol)>,
    ) {
        let server = |(server, address, protocol): (MirrorServer, _, _)| {
            let servers = match protocol {
                ServerProtocol::Http11 => Servers::new(address),
                ServerProtocol::H2c => {
                    let multiplexed = Multiplexed::new(address, server.node.as_str().into());
                    Servers::bridged(Bridge::new(vec![Arc::new(multiplexed)], FIELDS))
                }
            };
            (server, Arc::new(servers))
        };
        self.servers.store(Arc::new(servers.into_iter().map(server).collect()));
    }

    /// Takes copies from another machine, each when there is room for it.
    pub(super) async fn take_from(&self, mut channel: Box<dyn Stream>, idle: Duration) -> io::Result<()> {
        loop {
            let copy = timeout(idle, hear(&mut channel)).await??;
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
            self.ask(copy, place);
        }
    }

    /// Takes a copy from this machine, or drops it if there is no room.
    pub(super) fn take(&self, copy: Copy) {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => self.ask(copy, place),
            Err(_) => self.counts.dropped.add(1),
        }
    }

    /// Has the server answer a copy, and drops the answer.
    fn ask(&self, copy: Copy, place: OwnedSemaphorePermit) {
        let Some(servers) = self.servers.load().get(&copy.server).cloned() else {
            // The configuration of the other machine is another one.
            return self.counts.failed.add(1);
        };
        let counts = Arc::clone(&self.counts);
        tokio::spawn(async move {
            let _place = place;
            let answered = timeout(ANSWER, answer(&servers, &copy)).await;
            match answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(()) => counts.answered.add(1),
                Err(error) => {
                    debug!("service {}: a copy is not answered: {error}", copy.server.service);
                    counts.failed.add(1);
                }
            }
        });
    }
}

/// Asks the server and reads its answer to the end.
async fn answer(servers: &Servers, copy: &Copy) -> io::Result<()> {
    let mut stream = servers.connect(&copy.greeting).await?;
    stream.write_all(&copy.request).await?;
    let mut buffer = vec![0; READ];
    let mut is_begun = false;
    while stream.read(&mut buffer).await? > 0 {
        is_begun = true;
    }
    if is_begun { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn copy(request: Vec<u8>) -> Copy {
        let server = MirrorServer { service: "shop".to_owned(), pool: 7, node: "n1".to_owned() };
        Copy { server, greeting: Vec::new(), request }
    }

    fn mirrors(peers: Peers) -> Mirrors {
        Mirrors::on(Handle::current(), Arc::new(peers), Arc::default())
    }

    async fn until(mut is_so: impl FnMut() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(30), waiting).await.expect("it comes to be so");
    }

    #[tokio::test]
    async fn copies_that_find_no_room_are_dropped_and_those_after_them_are_not() -> io::Result<()> {
        let peers = || Peers::new(&[[1; 32]]).expect("a key");
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (agent, mirrors) = (listener.local_addr()?, mirrors(peers()));
        // Nobody accepts the connection yet.
        let fit = WAITING / (1000 + COPY);
        for _ in 0..fit + 10 {
            mirrors.send(agent, copy(vec![b'x'; 1000]));
        }
        assert_eq!(mirrors.counts().dropped.get(), 10);
        let mut channel = peers().accept(listener.accept().await?.0).await?;
        assert!(matches!(hear(&mut channel).await?, Opening::Mirror));
        for _ in 0..fit {
            let heard: Copy = hear(&mut channel).await?;
            assert_eq!(heard.request.len(), 1000);
        }
        until(|| mirrors.counts().sent.get() == fit as u64).await;
        mirrors.send(agent, copy(b"last".to_vec()));
        assert_eq!(hear::<Copy>(&mut channel).await?.request, b"last");
        // With the connection go the copies on it; later ones take another.
        drop((channel, listener));
        until(|| {
            mirrors.send(agent, copy(Vec::new()));
            mirrors.counts().dropped.get() > 10
        })
        .await;
        Ok(())
    }

    /// The server that gets a copy answers in two parts; another server is not known here.
    #[tokio::test]
    async fn answers_are_read_to_their_end_and_dropped() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let counts = Arc::<CopyCounts>::default();
        let mirrored = Mirrored::new(Arc::clone(&counts));
        let address = ServerAddress::Tcp(listener.local_addr()?);
        mirrored.set([(copy(Vec::new()).server, address, ServerProtocol::Http11)]);
        mirrored.take(Copy { greeting: b"PROXY ".to_vec(), ..copy(b"GET".to_vec()) });
        let (mut server, _) = listener.accept().await?;
        let mut asked = [0; 9];
        server.read_exact(&mut asked).await?;
        assert_eq!(&asked, b"PROXY GET");
        server.write_all(b"HTTP/1.1 200 OK\r\n").await?;
        assert_eq!(counts.answered.get(), 0, "there is more");
        server.write_all(b"\r\n").await?;
        drop(server);
        until(|| counts.answered.get() == 1).await;
        mirrored
            .take(Copy { server: MirrorServer { pool: 8, ..copy(Vec::new()).server }, ..copy(Vec::new()) });
        mirrored.take(copy(b"GET".to_vec()));
        drop(listener.accept().await?);
        until(|| counts.failed.get() == 2).await;
        Ok(())
    }
}
