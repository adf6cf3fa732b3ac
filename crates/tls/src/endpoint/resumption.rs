//! Going on with a response in its middle: with another node's, when that has died (docs/decisions/0052), or with one whose
//! server has gone, from the server of another node.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use ::log::{debug, info};
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use switchback_access_log::Ended;
use switchback_config::Protocol;
use switchback_resume::{Difference, Failure, Fingerprint, Owner, Place, Resumable, Running, Source};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::budgets::{Always, Kind, Permit};
use super::client::{Client, StreamError};
use super::counters::Counted;
use super::exchange::STALLED;
use super::flow::{Addresses, addresses};
use super::http1::{self, Start};
use super::idle::Stream;
use super::insured::Response;
use super::insurer::InsuredResponse;
use super::local::LocalNode;
use super::log::{Answer, Connection};
use super::server::{ServerAddress, connect_to_one};
use super::services::Service;
use super::shared::Shared;
use super::stream::TlsStream;
use crate::{Moved, Session};

/// Bytes of a body that are taken at once.
const AT_ONCE: u64 = 64 << 10;

/// A socket that is closed sends a RST; or it sends what is left, and a FIN.
const RESET: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };
const CLOSE: libc::linger = libc::linger { l_onoff: 0, l_linger: 0 };

/// Goes on with responses of other nodes.
#[derive(Clone)]
pub struct Resumer(pub(super) Arc<Shared>);

/// A connection whose response has gone on here to its end.
pub struct Resumed {
    client: TlsStream,
    service: Arc<Service>,
    node: Arc<LocalNode>,
    shared: Arc<Shared>,
    keeps: bool,
    permit: Permit,
}

impl Resumer {
    /// Sends what the client lacks of another node's response. `owner` has the records that may have gone out: the same go out
    /// again, or nothing.
    pub async fn go_on(
        &self,
        socket: TcpStream,
        insured: InsuredResponse,
        owner: Owner,
    ) -> Result<Resumed, Failure> {
        let shared = &self.0;
        let service = shared.service(&insured.service).ok_or(Failure::Unproven)?;
        let response = Response::of(&insured).map_err(|_| Failure::Unproven)?;
        let flow = addresses(&socket).map_err(Failure::Client)?;
        // A client that gets no more must not take what it has for all.
        setsockopt(&socket, sockopt::Linger, &RESET).map_err(|errno| Failure::Client(errno.into()))?;
        let limits = &service.limits.tls;
        let permit = shared.budgets.take(Kind::Connection, &service.name, flow.0.ip(), limits, Always::Yes);
        let permit = permit.ok_or(Failure::Unproven)?;
        let moved = Moved::from_bytes(&insured.state.moved).and_then(Session::take_over);
        let mut client = TlsStream::with(socket, flow, moved.map_err(|_| Failure::Unproven)?, &service);
        let records = owner.records().clone();
        let start = client.insured().ok_or(Failure::Unproven)?.start();
        let place = records.place(start).ok_or(Failure::Unproven)?;
        debug!(
            "service {}: the response to {} goes on at record {}; {} may have gone out",
            service.name,
            flow.0,
            place.number,
            records.end() - place.number
        );
        let node = shared.node_of(&service, flow);
        let others = ServerAddress::at_peers(&shared.peers, &service.wanted, insured.peers, None);
        let servers = [service.servers(&node.name), vec![&others]].concat();
        let (mut source, running) = Body::open(&service, flow, &servers, &response, &place).await?;
        let lines = Connection::new(&client, &node, &shared.log);
        let mut entry = lines.request(&service, Protocol::Http11, &response.asked.text);
        entry.answer.begin(&node.name);
        entry.answer.has_status(response.resumable.status());
        entry.answer.sent(response.head.len(), true);
        entry.answer.sent(usize::try_from(place.sent).unwrap_or(usize::MAX), false);
        let keeps = response.keeps;
        client.takes(response, &place, running, owner);
        let mut has = start.wrapping_sub(place.seq) as usize;
        for number in place.number..records.end() {
            let Some(sealed) = records.get(number) else { break };
            let data = source.exactly(sealed.len.into()).await?;
            client.send_again((&data, std::mem::take(&mut has)), sealed)?;
            entry.answer.sent(data.len(), false);
            wait_for_room(&mut client).await?;
        }
        source.send_to(&mut client, &mut entry.answer).await?;
        entry.ends(Ended::Complete);
        drop(entry);
        setsockopt(&client.socket.as_fd(), sockopt::Linger, &CLOSE)
            .map_err(|errno| Failure::Client(errno.into()))?;
        Ok(Resumed { client, service, node, shared: Arc::clone(shared), keeps, permit })
    }
}

impl Resumed {
    /// Serves what follows on the connection.
    pub async fn serve(self) {
        let Resumed { mut client, service, node, shared, keeps, permit: _permit } = self;
        let counters = Arc::clone(&service.counters);
        let _counted = (Counted::new(&counters.connections), shared.loads.work());
        // Errors are the client's to see.
        let _ = match keeps {
            true => http1::serve(client, service, node, &shared, Start::Response).await,
            false => match client.settle().await {
                Ok(()) => client.end().await,
                Err(error) => Err(error),
            },
        };
    }
}

/// Goes on with the response under way, whose server has gone, from the server of another node; true if another request may
/// follow. None if none can.
pub(super) async fn go_on_elsewhere(
    client: &mut TlsStream,
    service: &Service,
    shared: &Shared,
    answer: &mut Answer,
) -> Option<bool> {
    let flow = (client.client, client.vip);
    let (response, sent, running) = client.insured()?.response()?;
    let response = response.clone();
    let place = Place { number: 0, seq: 0, sent, before: running.map_or(0, |has| has.fingerprint().value) };
    let peers = response.asked.peers.clone();
    let servers = ServerAddress::at_peers(&shared.peers, &service.wanted, peers, None);
    let result = match Body::open(service, flow, &[&servers], &response, &place).await {
        Ok((mut body, _)) => body.send_to(client, answer).await,
        Err(failure) => Err(failure),
    };
    match &result {
        Ok(()) => {
            debug!("service {}: a response to {} has gone on from another server", service.name, flow.0)
        }
        Err(failure) => info!("service {}: a response to {} does not go on: {failure}", service.name, flow.0),
    }
    client.insured()?.has_gone_on(&result);
    result.is_ok().then_some(response.keeps)
}

/// The rest of a body; None behind its end.
struct Body(Option<Source<Box<dyn Stream>>>);

impl Body {
    /// What is behind a place, from the first of these servers that can be reached, and the fingerprint of what is before it.
    async fn open(
        service: &Service,
        flow: Addresses,
        servers: &[&ServerAddress],
        response: &Response,
        place: &Place,
    ) -> Result<(Self, Option<Running>), Failure> {
        let text = &response.asked.text;
        let greeting = service.told.greeting(flow).unwrap_or_default();
        let connect = connect_to_one(servers, &greeting);
        match &response.resumable {
            Resumable::Rest(insurable) => {
                let source = Source::rest(connect, insurable, text, place.sent).await?;
                Ok((Body(source), None))
            }
            Resumable::Again(repeatable, proof) => {
                let mut source = Source::again(connect, repeatable, text).await?;
                let mut has = Running::new(proof.key);
                while has.len() < place.sent {
                    has.add(&source.next((place.sent - has.len()).min(AT_ONCE)).await?);
                }
                if has.fingerprint() != (Fingerprint { len: place.sent, value: place.before }) {
                    return Err(Failure::Difference(Difference::Content));
                }
                Ok((Body(Some(source)), Some(has)))
            }
        }
    }

    async fn exactly(&mut self, len: usize) -> Result<Vec<u8>, Failure> {
        match &mut self.0 {
            Some(source) => source.exactly(len).await,
            None => Err(Failure::Difference(Difference::Content)),
        }
    }

    /// Sends all of it.
    async fn send_to(&mut self, client: &mut TlsStream, answer: &mut Answer) -> Result<(), Failure> {
        while let Some(source) = self.0.as_mut().filter(|source| !source.is_over()) {
            let data = source.next(AT_ONCE).await?;
            client.send(&data)?;
            answer.sent(data.len(), false);
            wait_for_room(client).await?;
        }
        let written = timeout(STALLED, client.flush_all()).await;
        Ok(written.map_err(|_| Failure::Stalled)??)
    }
}

/// Waits until there is room for more.
async fn wait_for_room(client: &mut TlsStream) -> Result<(), Failure> {
    let has_room = poll_fn(|cx| match client.write_out(cx) {
        Err(error) => std::task::Poll::Ready(Err(error)),
        Ok(_) if client.is_full() => std::task::Poll::Pending,
        Ok(_) => std::task::Poll::Ready(Ok(())),
    });
    Ok(timeout(STALLED, has_room).await.map_err(|_| Failure::Stalled)??)
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Io(error) => Failure::Client(error),
            StreamError::Tls(error) => Failure::Here(io::Error::other(error)),
        }
    }
}
