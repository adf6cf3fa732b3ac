//! A client's connection goes on at another node, in the middle.
//!
//! 1. Everything that has been said to the client has been acknowledged.
//! 2. The agent keeps the client's packets from the socket ([`Handoff::freeze`]); what has arrived before is read.
//! 3. The other node gets the state of TLS, with what has been read and not used, and waits for the connection.
//! 4. The switch is told ([`Frozen::give`]) and hands the TCP connection over, as it does with any.
//! 5. The other node says that it has it. Here the socket goes without a word.
//!
//! Until the switch is told, the connection can go on here. Behind that it is the other node's, or nobody's.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::debug;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::peers::{Offer, Opening, Reply, hear, say};
use super::server::Stream;
use super::stream::{StreamError, TlsStream};
use crate::{Moved, Session};

/// So long a client may take to acknowledge what it has been sent.
const QUIET: Duration = Duration::from_millis(250);
/// How often that is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// So long the other node waits for the connection.
const ARRIVAL: Duration = super::ANSWER;
/// When the switch is told for the second time, and how often at last; between them the time doubles. It does not listen as long as
/// it is busy with the connection's first packets, which is soon over.
const AGAIN: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];

/// Client and VIP of a connection.
pub type Addresses = (SocketAddr, SocketAddr);

/// How the agent moves TCP connections.
pub trait Handoff: Send + Sync {
    /// From here on no packet of the client reaches the socket, and none of the socket leaves.
    fn freeze(&self, flow: Addresses) -> io::Result<Box<dyn Frozen>>;
    /// Whether the client has acknowledged all that has been written.
    fn is_acknowledged(&self, socket: BorrowedFd<'_>) -> io::Result<bool>;
}

/// A connection that nothing happens to. Dropped, it goes on as it was, unless it has been given away.
pub trait Frozen: Send {
    /// Takes the connection's numbers; false if data has arrived that has not been read.
    fn take(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool>;
    /// Tells the switch that this node has it from here on. May be said again.
    fn give(&mut self, node: &str) -> io::Result<()>;
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where its agent listens.
    pub address: SocketAddr,
}

/// Connections that other nodes have promised.
#[derive(Default)]
pub(super) struct Expected(Mutex<HashMap<Addresses, Arrival>>);

/// One of them.
struct Arrival {
    session: Session,
    /// When the request came that it is for.
    asked: Instant,
    arrived: oneshot::Sender<()>,
}

impl Expected {
    fn add(&self, flow: Addresses, session: Session, asked: Instant) -> oneshot::Receiver<()> {
        let (arrived, receiver) = oneshot::channel();
        let arrival = Arrival { session, asked, arrived };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(flow, arrival);
        receiver
    }

    fn remove(&self, flow: Addresses) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&flow).is_some()
    }

    /// The session of a connection that has just been accepted, if it is one of them, and when its request came.
    pub(super) fn take(&self, flow: Addresses) -> Option<(Session, Instant)> {
        let arrival = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&flow)?;
        // Whoever has waited may have given up just now.
        arrival.arrived.send(()).ok().map(|()| (arrival.session, arrival.asked))
    }
}

/// Where a connection is.
#[expect(clippy::large_enum_variant)] // it is taken apart at once, and nearly always has the connection
pub(super) enum Given {
    /// Here: nobody has taken it.
    Not(TlsStream),
    /// At another node.
    Away,
    /// Nowhere, or at that node, which has not said so.
    Lost(Peer),
}

/// Moves the connection to one of these nodes. All that it still has to say to the client has been written. Its request came at
/// the moment `asked`.
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
        if !is_quiet(&client, handoff).await? {
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
        let given = match wait_until_taken(&mut channel, &mut *frozen, &peer.name).await {
            Some(Reply::Taken) => {
                debug!("service {service}: the connection of {} goes on at {}", flow.0, peer.name);
                peers.put_back(peer.address, channel);
                Given::Away
            }
            _ => {
                debug!("service {service}: the connection of {} is lost on its way to {}", flow.0, peer.name);
                Given::Lost(peer.clone())
            }
        };
        drop((left, frozen));
        shared.loads.given_to(peer.address);
        return Ok(given);
    }
    Ok(Given::Not(client))
}

async fn is_quiet(client: &TlsStream, handoff: &dyn Handoff) -> Result<bool, StreamError> {
    let deadline = Instant::now() + QUIET;
    while !(client.is_through()? && handoff.is_acknowledged(client.socket.as_fd())?) {
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

/// Tells the switch until the other node has the connection, or does not wait any more: then it is nobody's. None:
/// that node has not answered.
async fn wait_until_taken(
    channel: &mut Box<dyn Stream>,
    frozen: &mut dyn Frozen,
    node: &str,
) -> Option<Reply> {
    let mut answer = std::pin::pin!(timeout(ARRIVAL, hear::<Reply>(channel)));
    let [mut again, longest] = AGAIN;
    loop {
        // What cannot be sent now can be sent the next time.
        let _ = frozen.give(node);
        tokio::select! {
            answer = &mut answer => return answer.ok().and_then(Result::ok),
            () = sleep(again) => again = longest.min(again * 2),
        }
    }
}

/// The other side: waits for a connection that is offered, and says so.
pub(super) async fn expect(
    channel: &mut Box<dyn Stream>,
    offer: Offer,
    expected: &Expected,
) -> io::Result<()> {
    let flow = (offer.client, offer.vip);
    let session = Moved::from_bytes(&offer.state).and_then(Session::take_over);
    let Ok(session) = session else { return say(channel, &Reply::Refused).await };
    let now = Instant::now();
    let arrival = expected.add(flow, session, now.checked_sub(offer.waited).unwrap_or(now));
    say(channel, &Reply::Expected).await?;
    let arrived = timeout(ARRIVAL, arrival).await.is_ok_and(|arrived| arrived.is_ok());
    expected.remove(flow);
    say(channel, if arrived { &Reply::Taken } else { &Reply::Refused }).await
}
