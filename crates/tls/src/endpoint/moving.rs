//! Moves a client's connection to another node, in the middle.
//!
//! 1. Everything that was sent to the client has been acknowledged.
//! 2. The agent keeps the client's packets from the socket ([`Handoff::freeze`](super::transit::Handoff::freeze)); data that has arrived
//!    before is read.
//! 3. The other node gets the state of TLS, with data that has been read and not used, and waits for the
//!    connection.
//! 4. The switch is told ([`Frozen::give`]) and hands the TCP connection over, as it does with any.
//! 5. The other node confirms that it has it. Here the socket is closed without a packet.
//!
//! Until the switch is told, the connection can go on here. Behind that it is the other node's, or nobody's.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use log::debug;
use tokio::time::{sleep, timeout};

use super::client::StreamError;
use super::idle::Stream;
use super::kernel::{LOOK, unacknowledged};
use super::messages::{ANSWER, Offer, Opening, Reply, hear, say};
use super::peers::Peer;
use super::shared::Shared;
use super::stream::TlsStream;
use super::transit::{ARRIVAL, Departure, Frozen};
use crate::{Moved, Session};

/// Time that a client may take to acknowledge what it was sent.
const QUIET: Duration = Duration::from_millis(250);
/// First and longest interval at which the message to the switch is repeated; the interval doubles. The
/// switch ignores it while it is busy with the connection's first packets, which is soon over.
const AGAIN: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];

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
    mut client: TlsStream,
    service: &str,
    to: &[Peer],
    shared: &Shared,
    asked: Instant,
) -> Result<Given, StreamError> {
    let (peers, handoff) = (&shared.peers, &*shared.handoff);
    let flow = (client.client, client.vip);
    for peer in to {
        let Ok(mut channel) = peers.take(peer.address).await else { continue };
        client.flush_all().await?;
        if !is_quiet(&client).await? {
            return Ok(Given::Not(client));
        }
        let Ok(mut frozen) = handoff.freeze(flow) else { return Ok(Given::Not(client)) };
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
    timeout(ANSWER, hear(channel)).await?
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
