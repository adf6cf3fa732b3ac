//! Backend forwarding, as "SSL with backend forwarding" has it: a busy node lends another the keys that write
//! to its client. That node makes and encrypts the response; the records come back through the first, which
//! has only to pass them on. The client notices nothing, and its connection stays.
//!
//! 1. The first node sends the request's head and what writes records ([`Opening::Relay`]), and is told
//!    whether they are taken.
//! 2. It sends the body, decrypted, as the client sends it: [`DATA`], [`ENDED`]; the other node sends
//!    records: [`DATA`]. What the first one cannot read in them, the status of the response, it is told
//!    before ([`STATUS`]), for its log.
//! 3. A client may ask for new keys meanwhile. Only who writes can answer ([`UPDATE_KEYS`]).
//! 4. Behind the last record the other node gives back what writes them, as it is now ([`OVER`]).
//!
//! Nobody but the other node can say how far it has come. So if it is lost behind the first record, the
//! connection is, too. Before that the first node goes on itself: what the other one may have sealed with the
//! same numbers, nobody has seen.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, Stream as _};
use log::debug;
use serde::{Deserialize, Serialize};
use switchback_config::Protocol;
use switchback_http::{Progress, parse_head};
use switchback_routes::rewritten;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use zeroize::Zeroize;

use super::client::{Client, StreamError, UNSENT_MAX};
use super::exchange::{Failure, RequestBody, ServerRequest, Steps, exchange};
use super::head::{Requester, ResponseHead};
use super::idle::Stream;
use super::log::Answer;
use super::messages::{ANSWER, MESSAGE_MAX, Opening, RelayedRequest, Reply, hear, say};
use super::peers::Peer;
use super::services::{Service, Way};
use super::shared::Shared;
use super::stream::TlsStream;
use crate::{ClientCertificate, Lent, Sealer};

/// Kind of a message: body of the request, or records of the response.
const DATA: u8 = 0;
/// Kind of a message: the client ends.
const ENDED: u8 = 1;
/// Kind of a message: the client asks for a key update.
const UPDATE_KEYS: u8 = 2;
/// Kind of a message: the response is complete; an [`Over`] follows.
const OVER: u8 = 3;
/// Kind of a message: status of the response that follows; two bytes.
const STATUS: u8 = 4;

/// The end of a relayed request.
#[derive(Serialize, Deserialize)]
struct Over {
    lent: Lent,
    /// Key updates that the client asked for and got.
    updates: u32,
    outcome: Outcome,
    /// Bytes of the response, and of its head.
    bytes: (u64, u32),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Outcome {
    Answered {
        /// Another request may follow.
        another: bool,
    },
    /// [`Failure::Server`]
    Failed { begun: bool, status: u16 },
}

/// Messages with their length in front, as those of [`say`] and [`hear`].
struct Channel(Framed<Box<dyn Stream>, LengthDelimitedCodec>);

impl Channel {
    fn new(stream: Box<dyn Stream>) -> Self {
        let codec = LengthDelimitedCodec::builder().max_frame_length(MESSAGE_MAX).new_codec();
        Channel(Framed::new(stream, codec))
    }

    /// Waits until there is room for a message.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Sink::<Bytes>::poll_ready(Pin::new(&mut self.0), cx)
    }

    /// Sends a message; there has to be room.
    fn say(&mut self, kind: u8, data: &[u8]) -> io::Result<()> {
        Sink::<Bytes>::start_send(Pin::new(&mut self.0), [&[kind], data].concat().into())
    }

    /// Waits until all has been sent.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Sink::<Bytes>::poll_flush(Pin::new(&mut self.0), cx)
    }

    /// Waits for a message.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<BytesMut>> {
        let next = ready!(Pin::new(&mut self.0).poll_next(cx));
        Poll::Ready(next.unwrap_or(Err(io::ErrorKind::UnexpectedEof.into())))
    }

    /// The connection, if no data is left unread.
    fn into_stream(self) -> Option<Box<dyn Stream>> {
        let parts = self.0.into_parts();
        parts.read_buf.is_empty().then_some(parts.io)
    }
}

fn nonsense() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Has one of these nodes answer; true if another request may follow. None if none does; the request can then
/// be answered here. `answer` gets the facts about the response.
pub(super) async fn give(
    client: &mut TlsStream,
    service: &Service,
    asked: &ServerRequest,
    head: &[u8],
    to: &[Peer],
    shared: &Shared,
    answer: &mut Answer,
) -> Result<Option<bool>, Failure> {
    for peer in to {
        let Ok(channel) = shared.peers.take(peer.address).await else { continue };
        let Some((channel, lent)) = lend(client, service, head, channel).await? else { continue };
        service.counters.requests_given.add(1);
        let given = shared.loads.give(peer.address);
        answer.begin(&peer.name.as_str().into());
        let mut passing = Passing {
            client,
            answer,
            channel: Channel::new(channel),
            request: asked.body,
            client_ended: false,
            told: false,
            updates: 0,
            begun: false,
            over: None,
        };
        let result = passing.run().await;
        drop(given);
        let Passing { channel, request, told, updates, begun, over, .. } = passing;
        if let Some(Over { lent, updates: done, outcome, bytes }) = over {
            (answer.bytes, answer.head_bytes) = bytes;
            take_back(client, &lent, done < updates)?;
            // What was said too late for the other node may still be on its way.
            let is_quiet = request.is_whole() && !told && done == updates;
            if let Some(channel) = channel.into_stream().filter(|_| is_quiet) {
                shared.peers.put_back(peer.address, channel);
            }
            result?;
            return match outcome {
                Outcome::Answered { another } => {
                    debug!(
                        "service {}: a request of {} was answered by {}",
                        service.name, client.client, peer.name
                    );
                    Ok(Some(another))
                }
                // Its server may be the only one that does not answer.
                Outcome::Failed { begun: false, .. } if asked.may_repeat => Ok(None),
                Outcome::Failed { begun, status } => Err(Failure::Server { begun, status }),
            };
        }
        if !begun {
            take_back(client, &lent, updates > 0)?;
        }
        return match result {
            Err(Failure::Server { begun: false, .. }) if asked.may_repeat => Ok(None),
            result => result.map(|()| None),
        };
    }
    Ok(None)
}

/// Lends the keys that write to a node, with a request. None, and the keys are back, if it does not take them.
async fn lend(
    client: &mut TlsStream,
    service: &Service,
    head: &[u8],
    mut channel: Box<dyn Stream>,
) -> Result<Option<(Box<dyn Stream>, Lent)>, Failure> {
    let opening = Opening::Relay(RelayedRequest {
        service: service.name.to_string(),
        client: client.client,
        vip: client.vip,
        head: head.to_vec(),
        certificate: client.session.facts().client.as_ref().map(|certificate| certificate.der().to_vec()),
        lent: client.session.lend().map_err(StreamError::Tls)?,
    });
    let reply = timeout(ANSWER, ask(&mut channel, &opening)).await;
    let Opening::Relay(RelayedRequest { lent, .. }) = opening else { unreachable!("it was made above") };
    if !matches!(reply, Ok(Ok(Reply::Expected))) {
        take_back(client, &lent, false)?;
        return Ok(None);
    }
    Ok(Some((channel, lent)))
}

async fn ask(channel: &mut Box<dyn Stream>, opening: &Opening) -> io::Result<Reply> {
    say(channel, opening).await?;
    hear(channel).await
}

fn take_back(client: &mut TlsStream, lent: &Lent, owes_update: bool) -> Result<(), Failure> {
    let taken =
        client.session.take_back(lent, owes_update).map_err(|_| StreamError::Tls(crate::Error::Internal));
    Ok(taken?)
}

/// At the first node: a request that another one answers.
struct Passing<'a> {
    client: &'a mut TlsStream,
    /// Until the response is over, its bytes are those of the records.
    answer: &'a mut Answer,
    channel: Channel,
    request: RequestBody,
    client_ended: bool,
    /// Whether the other node has been told that the client ended.
    told: bool,
    /// Key updates asked of the other node.
    updates: u32,
    /// Whether the client has got a part of the response.
    begun: bool,
    over: Option<Over>,
}

impl Steps for Passing<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Failure>> {
        let mut moved = self.client.fill(cx, &mut self.client_ended)?;
        moved |= self.poll_to_node(cx)?;
        moved |= self.poll_from_node(cx)?;
        if self.over.is_some() {
            ready!(self.client.poll_write_out(cx)).map_err(StreamError::Io)?;
            return Poll::Ready(Ok(true));
        }
        moved |= self.client.write_out(cx)?;
        if moved { Poll::Ready(Ok(false)) } else { Poll::Pending }
    }

    fn failed(&self, status: u16) -> Failure {
        Failure::Server { begun: self.begun, status }
    }
}

impl Passing<'_> {
    /// Forwards data and events of the client to the other node.
    fn poll_to_node(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        while let Poll::Ready(ready) = self.channel.poll_ready(cx) {
            ready.map_err(|_| self.failed(502))?;
            let said = if self.client.session.take_owed_update() {
                self.updates += 1;
                self.channel.say(UPDATE_KEYS, &[])
            } else {
                let data = self.client.data();
                let Ok(len) = self.request.next(data) else { return Err(self.failed(400)) };
                if len > 0 {
                    let said = self.channel.say(DATA, &data[..len]);
                    self.client.consume(len)?;
                    said
                } else if self.client_ended && !self.told {
                    self.told = true;
                    self.channel.say(ENDED, &[])
                } else {
                    break;
                }
            };
            said.map_err(|_| self.failed(502))?;
            moved = true;
        }
        if let Poll::Ready(Err(_)) = self.channel.poll_flush(cx) {
            return Err(self.failed(502));
        }
        Ok(moved)
    }

    fn poll_from_node(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        while self.over.is_none() && self.client.unsent() < UNSENT_MAX {
            let Poll::Ready(next) = self.channel.poll_next(cx) else { break };
            let mut next = next.map_err(|_| self.failed(502))?;
            match next.split_first() {
                Some((&DATA, records)) => {
                    self.client.session.outgoing().extend_from_slice(records);
                    self.answer.sent(records.len(), false);
                    self.begun = true;
                }
                Some((&STATUS, &[high, low])) => self.answer.has_status(u16::from_be_bytes([high, low])),
                Some((&OVER, over)) => {
                    let over = postcard::from_bytes(over).map_err(|_| self.failed(502));
                    next.zeroize();
                    self.over = Some(over?);
                }
                _ => return Err(self.failed(502)),
            }
            moved = true;
        }
        Ok(moved)
    }
}

/// At the other node: answers a request, and returns the channel for further messages.
pub(super) async fn answer(
    mut channel: Box<dyn Stream>,
    request: RelayedRequest,
    shared: &Shared,
) -> io::Result<Box<dyn Stream>> {
    let service = shared.service(&request.service);
    let limits = service.as_ref().map(|service| service.limits.http);
    let head = limits.map(|limits| parse_head(&request.head, &limits));
    let certificate = request.certificate.as_deref().map(ClientCertificate::new).transpose();
    let (Some(service), Some(Ok(Progress::Complete(head))), Ok(sealer), Ok(certificate)) =
        (&service, head, request.lent.open(), certificate)
    else {
        say(&mut channel, &Reply::Refused).await?;
        return Ok(channel);
    };
    let node = service.node_of(|| None);
    let here = match service.way(node, &head, request.client.ip(), Protocol::Http11) {
        Way::Here(here, route) => {
            rewritten(&request.head, &head, &route.rewrite).ok().map(|text| (text, here))
        }
        _ => None,
    };
    let Some((text, here)) = here else {
        say(&mut channel, &Reply::Refused).await?;
        return Ok(channel);
    };
    say(&mut channel, &Reply::Expected).await?;
    service.counters.requests_taken.add(1);
    let _working = shared.loads.work();
    let from = Requester { flow: (request.client, request.vip), certificate: certificate.as_ref() };
    let asked = ServerRequest::new(&text, &head, service, from);
    let mut client = Distant {
        channel: Channel::new(channel),
        sealer,
        updates: 0,
        data: Vec::new(),
        ended: false,
        status: None,
        outgoing: Vec::new(),
    };
    let mut answer = Answer::default();
    // The node that asks can answer itself.
    let mut upstreams = here.group.upstreams(node);
    upstreams.retain(|upstream| upstream.member.is_some());
    let result = exchange(&mut client, service, &upstreams, &asked, &mut None, &mut answer).await;
    let outcome = match result {
        Ok(another) => Outcome::Answered { another },
        Err(Failure::Server { begun, status }) => Outcome::Failed { begun, status },
        Err(Failure::Client(error)) => return Err(error.into()),
    };
    debug!("service {}: a request of {} was answered for another node", service.name, request.client);
    std::future::poll_fn(|cx| client.poll_write_out(cx)).await?;
    let bytes = (answer.bytes, answer.head_bytes);
    let over = Over { lent: Lent::of(&client.sealer), updates: client.updates, outcome, bytes };
    let mut text = postcard::to_allocvec(&over).map_err(io::Error::other)?;
    let said = client.channel.say(OVER, &text);
    text.zeroize();
    said?;
    std::future::poll_fn(|cx| client.channel.poll_flush(cx)).await?;
    client.channel.into_stream().ok_or_else(nonsense)
}

/// A client of another node.
struct Distant {
    channel: Channel,
    sealer: Sealer,
    updates: u32,
    data: Vec<u8>,
    ended: bool,
    /// Status that the first node has not been told.
    status: Option<u16>,
    /// Records for the client.
    outgoing: Vec<u8>,
}

impl Client for Distant {
    fn data(&self) -> &[u8] {
        &self.data
    }

    fn consume(&mut self, len: usize) -> Result<(), StreamError> {
        self.data.drain(..len).for_each(drop);
        Ok(())
    }

    fn wants_more(&self) -> bool {
        self.data.len() < UNSENT_MAX
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, StreamError>> {
        if self.ended {
            return Poll::Ready(Ok(false));
        }
        let next = ready!(self.channel.poll_next(cx))?;
        match next.split_first() {
            Some((&DATA, data)) => self.data.extend_from_slice(data),
            Some((&UPDATE_KEYS, [])) => {
                self.sealer.update_keys(false, &mut self.outgoing)?;
                self.updates += 1;
            }
            Some((&ENDED, [])) => self.ended = true,
            _ => return Poll::Ready(Err(nonsense().into())),
        }
        Poll::Ready(Ok(!self.ended))
    }

    fn send(&mut self, data: &[u8]) -> Result<(), StreamError> {
        Ok(self.sealer.data(data, &mut self.outgoing)?)
    }

    fn begins(&mut self, head: &ResponseHead, _: &[u8]) {
        self.status = Some(head.status);
    }

    fn unsent(&mut self) -> usize {
        self.outgoing.len()
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(status) = self.status {
            ready!(self.channel.poll_ready(cx))?;
            self.channel.say(STATUS, &status.to_be_bytes())?;
            self.status = None;
        }
        if !self.outgoing.is_empty() {
            ready!(self.channel.poll_ready(cx))?;
            self.channel.say(DATA, &self.outgoing)?;
            self.outgoing.clear();
        }
        self.channel.poll_flush(cx)
    }
}
