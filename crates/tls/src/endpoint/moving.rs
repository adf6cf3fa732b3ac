//! Moves a client's connection to another node, in the middle.
//!
//! 1. Everything that was sent to the client has been acknowledged.
//! 2. The agent keeps the client's packets from the socket ([`Handoff::freeze`]); data that has arrived
//!    before is read.
//! 3. The other node gets the state of TLS, with data that has been read and not used, and waits for the
//!    connection.
//! 4. The switch is told ([`Frozen::give`]) and hands the TCP connection over, as it does with any.
//! 5. The other node confirms that it has it. Here the socket is closed without a packet.
//!
//! Until the switch is told, the connection can go on here. Behind that it is the other node's, or nobody's.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use log::debug;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::kernel::unacknowledged;
use super::peers::{Offer, Opening, Reply, hear, say};
use super::server::Stream;
use super::stream::{StreamError, TlsStream};
use crate::{Moved, Session};

/// Time that a client may take to acknowledge what it was sent.
const QUIET: Duration = Duration::from_millis(250);
/// Period at which that is checked.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// Time for which the other node waits for the connection.
const ARRIVAL: Duration = super::ANSWER;
/// First and longest interval at which the message to the switch is repeated; the interval doubles. The
/// switch ignores it while it is busy with the connection's first packets, which is soon over.
const AGAIN: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];

/// Client and VIP of a connection.
pub type Addresses = (SocketAddr, SocketAddr);

/// How the agent moves TCP connections.
pub trait Handoff: Send + Sync {
    /// Drops all packets from the client to the socket and back, from now on.
    fn freeze(&self, flow: Addresses) -> io::Result<Box<dyn Frozen>>;
}

/// A connection whose packets are dropped. When this is dropped it goes on, unless it has been given away.
pub trait Frozen: Send {
    /// Reads the connection's sequence numbers; false if data has arrived that has not been read.
    fn take(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool>;
    /// Tells the switch that this node has the connection from now on. May be repeated.
    fn give(&mut self, node: &str) -> io::Result<()>;
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Address of its agent.
    pub address: SocketAddr,
}

/// Connections that other nodes have promised, and the state kept for each of them.
pub(super) struct Expected<T = Promised>(Mutex<HashMap<Addresses, Arrival<T>>>);

/// State of a promised connection: its session, and the arrival of the request that it moves for.
pub(super) type Promised = (Session, Instant);

struct Arrival<T> {
    kept: T,
    arrived: oneshot::Sender<()>,
}

impl<T> Default for Expected<T> {
    fn default() -> Self {
        Expected(Mutex::default())
    }
}

impl<T> Expected<T> {
    fn add(&self, flow: Addresses, kept: T) -> Awaited<'_, T> {
        let (sender, arrived) = oneshot::channel();
        self.lock().insert(flow, Arrival { kept, arrived: sender });
        Awaited { expected: self, flow, arrived }
    }

    /// The state of a connection that has just been accepted, if it was promised.
    pub(super) fn take(&self, flow: Addresses) -> Option<T> {
        let arrival = self.lock().remove(&flow)?;
        // Whoever has waited may have given up just now.
        arrival.arrived.send(()).ok().map(|()| arrival.kept)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Addresses, Arrival<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One arrival. When dropped it is not expected any more; a later one of the same flow still is.
struct Awaited<'a, T> {
    expected: &'a Expected<T>,
    flow: Addresses,
    arrived: oneshot::Receiver<()>,
}

impl<T> Awaited<'_, T> {
    /// Whether the connection arrives in time.
    async fn arrives(&mut self) -> bool {
        timeout(ARRIVAL, &mut self.arrived).await.is_ok_and(|arrived| arrived.is_ok())
    }
}

impl<T> Drop for Awaited<'_, T> {
    fn drop(&mut self) {
        self.arrived.close();
        let mut expected = self.expected.lock();
        if expected.get(&self.flow).is_some_and(|arrival| arrival.arrived.is_closed()) {
            expected.remove(&self.flow);
        }
    }
}

/// Connections that have been given to other nodes, which have not said that they have them.
#[derive(Default)]
pub(super) struct Leaving(Mutex<HashMap<Addresses, oneshot::Sender<Over>>>);

/// Dropped when nothing is left here of a connection that has been given away.
type Over = oneshot::Sender<()>;

impl Leaving {
    fn begin(&self, flow: Addresses) -> Departure<'_> {
        let (sender, back) = oneshot::channel();
        self.lock().insert(flow, sender);
        Departure { leaving: self, flow, back, over: None }
    }

    /// The connection is offered to this node again, so the other one has had it: the switch is not told any
    /// more that it leaves, and its old socket goes, before it may come.
    async fn is_back(&self, flow: Addresses) {
        let leaving = self.lock().remove(&flow);
        if let Some(leaving) = leaving {
            let (over, is_over) = oneshot::channel();
            // The other node's word may have come meanwhile.
            let _ = leaving.send(over);
            let _ = is_over.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Addresses, oneshot::Sender<Over>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on its way. Dropped when nothing of it is left here.
struct Departure<'a> {
    leaving: &'a Leaving,
    flow: Addresses,
    back: oneshot::Receiver<Over>,
    over: Option<Over>,
}

impl Departure<'_> {
    /// Waits until the connection is offered to this node again.
    async fn is_back(&mut self) {
        match (&mut self.back).await {
            Ok(over) => self.over = Some(over),
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.back.close();
        let mut leaving = self.leaving.lock();
        if leaving.get(&self.flow).is_some_and(oneshot::Sender::is_closed) {
            leaving.remove(&self.flow);
        }
    }
}

/// The outcome of giving a connection away.
#[expect(clippy::large_enum_variant)] // it is taken apart at once, and nearly always has the connection
pub(super) enum Given {
    /// It is still here: no node has taken it.
    Not(TlsStream),
    /// Another node has it.
    Away,
    /// It is lost, or at that node, which has not confirmed it.
    Lost(Peer),
}

/// Moves the connection to one of these nodes. All data for the client has been written. Its request came at
/// `asked`.
pub(super) async fn give_away(
    client: TlsStream,
    service: &str,
    to: &[Peer],
    shared: &Shared,
    asked: Instant,
) -> Result<Given, StreamError> {
    let (peers, handoff) = (&shared.peers, &*shared.handoff);
    let flow = (client.client, client.vip);
    for peer in to {
        let Ok(mut channel) = peers.take(peer.address).await else { continue };
        if !is_quiet(&client).await? {
            return Ok(Given::Not(client));
        }
        let Ok(mut frozen) = handoff.freeze(flow) else { return Ok(Given::Not(client)) };
        let mut client = client;
        // What was on its way to the socket when the packets were cut off is read first.
        loop {
            match frozen.take(client.socket.as_fd()) {
                Ok(true) => break,
                Ok(false) => client.read_what_is_there()?,
                Err(_) => return Ok(Given::Not(client)),
            }
        }
        client.session.advance()?;
        if !client.session.outgoing().is_empty() {
            drop(frozen);
            client.flush_all().await?;
            return Ok(Given::Not(client));
        }
        let (left, moved) = client.give_up()?;
        let offer = Offer {
            service: service.to_owned(),
            client: flow.0,
            vip: flow.1,
            state: moved.to_bytes(),
            waited: asked.elapsed(),
        };
        if !matches!(ask(&mut channel, offer).await, Ok(Reply::Expected)) {
            debug!("service {service}: {} does not take the connection of {}", peer.name, flow.0);
            drop(frozen);
            return Ok(Given::Not(left.take_back(moved)?));
        }
        drop(moved);
        let mut departure = shared.leaving.begin(flow);
        let outcome = wait_until_taken(&mut channel, &mut *frozen, &mut departure, &peer.name).await;
        if outcome == Outcome::Taken {
            peers.put_back(peer.address, channel);
        }
        let given = match outcome {
            Outcome::Taken | Outcome::Back => {
                debug!("service {service}: the connection of {} goes on at {}", flow.0, peer.name);
                Given::Away
            }
            Outcome::Lost => {
                debug!("service {service}: the connection of {} is lost on its way to {}", flow.0, peer.name);
                Given::Lost(peer.clone())
            }
        };
        drop((left, frozen));
        drop(departure);
        shared.loads.given_to(peer.address);
        return Ok(given);
    }
    Ok(Given::Not(client))
}

async fn is_quiet(client: &TlsStream) -> Result<bool, StreamError> {
    let deadline = Instant::now() + QUIET;
    while !(client.is_through()? && unacknowledged(client.socket.as_fd())? == 0) {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(LOOK).await;
    }
    Ok(true)
}

async fn ask(channel: &mut Box<dyn Stream>, offer: Offer) -> io::Result<Reply> {
    say(channel, &Opening::Move(offer)).await?;
    timeout(ARRIVAL, hear(channel)).await?
}

/// The state of a connection that has been given away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The other node has it.
    Taken,
    /// The other node has had it, and offers it to this one.
    Back,
    /// The other node has not got it, or has not confirmed it.
    Lost,
}

/// Tells the switch until the other node has the connection, or does not wait any more: then it is nobody's.
async fn wait_until_taken(
    channel: &mut Box<dyn Stream>,
    frozen: &mut dyn Frozen,
    departure: &mut Departure<'_>,
    node: &str,
) -> Outcome {
    let mut answer = std::pin::pin!(timeout(ARRIVAL, hear::<Reply>(channel)));
    let mut back = std::pin::pin!(departure.is_back());
    let [mut again, longest] = AGAIN;
    loop {
        // What cannot be sent now can be sent the next time.
        let _ = frozen.give(node);
        tokio::select! {
            biased;
            () = &mut back => return Outcome::Back,
            answer = &mut answer => return match answer {
                Ok(Ok(Reply::Taken)) => Outcome::Taken,
                _ => Outcome::Lost,
            },
            () = sleep(again) => again = longest.min(again * 2),
        }
    }
}

/// The other side: waits for a connection that is offered, and confirms its arrival.
pub(super) async fn expect(channel: &mut Box<dyn Stream>, offer: Offer, shared: &Shared) -> io::Result<()> {
    let flow = (offer.client, offer.vip);
    let session = Moved::from_bytes(&offer.state).and_then(Session::take_over);
    let Ok(session) = session else { return say(channel, &Reply::Refused).await };
    shared.leaving.is_back(flow).await;
    let now = Instant::now();
    let asked = now.checked_sub(offer.waited).unwrap_or(now);
    let mut awaited = shared.expected.add(flow, (session, asked));
    say(channel, &Reply::Expected).await?;
    let arrived = awaited.arrives().await;
    drop(awaited);
    say(channel, if arrived { &Reply::Taken } else { &Reply::Refused }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str = "192.0.2.1:1000";

    fn flow() -> Addresses {
        (FLOW.parse().unwrap(), "192.0.2.100:443".parse().unwrap())
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    #[test]
    fn whoever_awaited_an_earlier_arrival_leaves_the_next_one_alone() {
        run(async {
            let expected = Expected::default();
            let mut first = expected.add(flow(), "first");
            assert_eq!(expected.take(flow()), Some("first"));
            // The connection has gone on to another node, and is offered again, before the first task runs.
            let mut second = expected.add(flow(), "second");
            assert!(first.arrives().await);
            drop(first);
            assert_eq!(expected.take(flow()), Some("second"));
            assert!(second.arrives().await);
        });
    }

    #[test]
    fn nobody_finds_what_nobody_awaits() {
        run(async {
            let expected = Expected::default();
            drop(expected.add(flow(), ()));
            assert!(expected.lock().is_empty());
            let mut replaced = expected.add(flow(), ());
            let _replacement = expected.add(flow(), ());
            assert!(!replaced.arrives().await);
        });
    }

    #[test]
    fn a_connection_comes_back_when_nothing_is_left_of_it() {
        run(async {
            let leaving = Leaving::default();
            let mut departure = leaving.begin(flow());
            let mut back = std::pin::pin!(leaving.is_back(flow()));
            tokio::select! {
                biased;
                () = &mut back => panic!("the old socket is still there"),
                () = departure.is_back() => {}
            }
            drop(departure);
            back.await;
            assert!(leaving.lock().is_empty());
            // That of one which has left is nobody's business.
            leaving.is_back(flow()).await;
            drop(leaving.begin(flow()));
            assert!(leaving.lock().is_empty());
        });
    }
}
