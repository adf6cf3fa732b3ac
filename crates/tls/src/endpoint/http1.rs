//! HTTP/1.1 over TLS: requests of a client, one after the other, to the servers of this machine.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::debug;
use switchback_access_log::Ended;
use switchback_config::{HandOver, Mirror, Protocol, Redirect, Resume, Scheme};
use switchback_http::{Head, Progress, Version, parse_head};
use switchback_routes::{copy, location, rewritten, whole_body};
use tokio::time::timeout_at;

use super::client::{Client, StreamError};
use super::exchange::{Failure, Kept, ServerRequest, exchange};
use super::head::{Requester, error_response, error_response_with, proof_response, redirection};
use super::insured::Asked;
use super::local::{LocalNode, Upstream};
use super::log::{Answer, Connection, Entry};
use super::moving::{Given, give_away};
use super::peers::Peer;
use super::pools::{Elsewhere, Here};
use super::relay;
use super::resumption::go_on_elsewhere;
use super::services::{Service, Way};
use super::shared::Shared;
use super::stream::TlsStream;

/// How long a client may be silent between requests.
const IDLE: Duration = Duration::from_secs(75);

/// Serves requests until the connection ends, or goes on at another node.
///
/// A request for which the connection has been moved here is answered here, however busy this node has become: it would go
/// round among busy nodes, and each move costs them.
pub(super) async fn serve(
    mut client: TlsStream,
    service: Arc<Service>,
    node: Arc<LocalNode>,
    shared: &Shared,
    start: Start,
) -> Result<(), StreamError> {
    let lines = Connection::new(&client, &node, &shared.log);
    let mut conversation = Conversation { service, node, shared, lines, kept: None };
    let service = Arc::clone(&conversation.service);
    let (mut patience, mut is_first, mut moved_for) = match start {
        Start::New => (service.limits.head_timeout, true, None),
        Start::Request(asked) => (service.limits.head_timeout, true, Some(asked)),
        Start::Response => (IDLE, false, None),
    };
    loop {
        client.settle().await?;
        let waited = wait_for_head(&mut client, &conversation.service, patience).await;
        conversation.service = shared.current(&conversation.service);
        match waited {
            Ok(Waited::Head) => {}
            waited => return conversation.end_without_head(client, waited, is_first).await,
        }
        match conversation.serve_request(client, moved_for.take()).await? {
            Next::Request(stays) => client = stays,
            Next::Nothing => return Ok(()),
        }
        patience = IDLE;
        is_first = false;
    }
}

/// How a connection comes to be served here.
pub(super) enum Start {
    /// It is new.
    New,
    /// It has been moved here, for a request that came to another node at this time.
    Request(Instant),
    /// A response that another node had begun has ended here.
    Response,
}

/// What follows a request on a connection.
#[expect(clippy::large_enum_variant)] // it is taken apart at once, and nearly always has the connection
enum Next {
    /// Another request.
    Request(TlsStream),
    /// Nothing here: the connection has ended, or has moved to another node.
    Nothing,
}

/// A request that has been read, and is still in the session's buffer.
struct Received<'a> {
    head: &'a Head<'a>,
    /// The head and what has come behind it.
    bytes: &'a [u8],
    /// The head as its route has changed it.
    text: &'a [u8],
    /// Its connection has been moved here for it.
    moved_here: bool,
}

/// A client's connection, without the stream: what its requests have in common.
struct Conversation<'a> {
    /// As it is configured at the latest request.
    service: Arc<Service>,
    /// Where the client is connected.
    node: Arc<LocalNode>,
    shared: &'a Shared,
    /// For the access log.
    lines: Connection,
    kept: Kept,
}

impl Conversation<'_> {
    /// Ends the connection when no whole head has come, with a line in the log if a request had begun, or
    /// none has come yet.
    async fn end_without_head(
        &mut self,
        mut client: TlsStream,
        waited: Result<Waited, StreamError>,
        is_first: bool,
    ) -> Result<(), StreamError> {
        let bytes = client.session.data().to_vec();
        if is_first && bytes.is_empty() {
            self.lines.without_request(&self.service, None);
        }
        if !bytes.is_empty() {
            let mut entry = self.lines.request(&self.service, Protocol::Http11, &bytes);
            if let Ok(Waited::TooLong) = waited {
                answer(&mut client, &mut entry, 408, &error_response(408, false))?;
            }
        }
        waited?;
        client.end().await
    }

    /// Reads the request in the session's buffer, and takes it where its route says.
    async fn serve_request(
        &mut self,
        client: TlsStream,
        moved_for: Option<Instant>,
    ) -> Result<Next, StreamError> {
        let service = &*Arc::clone(&self.service);
        let bytes = client.session.data().to_vec();
        let parsed = parse_head(&bytes, &service.limits.http);
        let head_len = if let Ok(Progress::Complete(head)) = &parsed { head.len } else { bytes.len() };
        let mut entry = self.lines.request(&self.service, Protocol::Http11, &bytes[..head_len]);
        if let Some(asked) = moved_for {
            entry.was_given(asked);
        }
        let head = match parsed {
            Ok(Progress::Complete(head)) if head.version != Version::Http2 => head,
            Ok(Progress::Complete(_)) => return refuse(client, service, entry, 505, false).await,
            Err(reject) => {
                let is_head = bytes.starts_with(b"HEAD ");
                return refuse(client, service, entry, reject.status(), is_head).await;
            }
            Ok(Progress::Partial) => return Err(StreamError::Io(io::ErrorKind::TimedOut.into())),
        };
        service.counters.requests.add(1);
        let (moved_here, is_head) = (moved_for.is_some(), head.method == "HEAD");
        if let Some(proof) = self.shared.issued.answer(head.path()) {
            return prove(client, entry, &proof, is_head).await;
        }
        // A connection is moved for a request that has been let in.
        if !moved_here
            && let Err(denied) =
                self.shared.rates.admit(service, &head, client.client.ip(), Protocol::Http11).await
        {
            let fields = denied.retry_after().map(|seconds| format!("Retry-After: {seconds}\r\n"));
            let why = (denied.status(), fields.as_deref().unwrap_or_default());
            return refuse_with(client, service, entry, why, is_head).await;
        }
        let node = &*Arc::clone(&self.node);
        let way = service.way(node, &head, client.client.ip(), Protocol::Http11);
        let text = match way.route() {
            Some(route) => rewritten(&bytes, &head, &route.rewrite),
            None => Ok(Cow::Borrowed(&bytes[head.start..head.len])),
        };
        let (way, text) = match text {
            Ok(text) => (way, text),
            Err(reject) => (Way::Refused(reject), Cow::Borrowed(&[][..])),
        };
        let request = Received { head: &head, bytes: &bytes, text: &text, moved_here };
        if let Some(mirror) = way.route().and_then(|route| route.mirror) {
            self.mirror(&client, &request, mirror);
        }
        match way {
            Way::Here(here, _) => self.serve_here(client, entry, &request, here).await,
            Way::Elsewhere(pool, _) => self.serve_elsewhere(client, entry, &request, pool).await,
            Way::Redirect(redirect) => redirect_to(client, entry, redirect, &head).await,
            Way::Respond(status) => refuse(client, service, entry, status, request.is_head()).await,
            Way::Nowhere => refuse(client, service, entry, 404, request.is_head()).await,
            Way::Refused(reject) => refuse(client, service, entry, reject.status(), request.is_head()).await,
        }
    }

    /// Sends a copy of the request, if it has come whole, to the pool that mirrors it. The node that has moved the connection
    /// here for it has done so itself.
    fn mirror(&self, client: &TlsStream, request: &Received<'_>, mirror: Mirror) {
        let (service, limits) = (&self.service, &self.service.limits.http);
        if request.moved_here || !service.is_mirrored(mirror, client.client.ip()) {
            return;
        }
        let Some(body) = whole_body(request.bytes, request.head, limits) else { return };
        let copy = copy(&request.asked(client, service).text, body, &[]);
        let greeting = service.told.greeting((client.client, client.vip)).unwrap_or_default();
        self.shared.mirror(service, mirror, greeting, copy);
    }

    /// Serves a request for a pool that nodes of this machine are in: at another machine if the node of the connection is busy or
    /// leaves, or no node here is ready, and one there takes it; otherwise here.
    async fn serve_here(
        &mut self,
        mut client: TlsStream,
        mut entry: Entry,
        request: &Received<'_>,
        here: &Here,
    ) -> Result<Next, StreamError> {
        let (service, shared) = (&*Arc::clone(&self.service), self.shared);
        let leaves = self.node.is_leaving();
        let lighter = match (leaves, request.moved_here) {
            (true, _) => here.others_in_order(&shared.loads),
            (false, true) => Vec::new(),
            (false, false) => here.better(&shared.loads, service.busy),
        };
        // A node that leaves gives connections away, not requests. What may become a tunnel has no end that both
        // nodes see.
        let relays = service.hand_over == HandOver::Relay && !leaves && !request.head.tunnel;
        if !relays {
            (client, entry) = match self.give_away(client, entry, &lighter).await? {
                Some(stays) => stays,
                None => return Ok(Next::Nothing),
            };
        }
        let asked = request.asked(&client, service);
        client.consume(request.head.len)?;
        let told = &mut entry.answer;
        let head = &request.bytes[..request.head.len];
        let relayed = match relays {
            true => relay::give(&mut client, service, &asked, head, &lighter, shared, told).await,
            false => Ok(None),
        };
        let result = match relayed {
            Ok(None) => self.exchange_here(&mut client, &asked, here, told).await,
            Ok(Some(another)) => Ok(another),
            Err(failure) => Err(failure),
        };
        self.conclude(client, entry, result, request.is_head()).await
    }

    /// Takes a request to a server of this machine, and the response back. If the server goes in the middle of it, another
    /// node's may go on.
    async fn exchange_here(
        &mut self,
        client: &mut TlsStream,
        asked: &ServerRequest,
        here: &Here,
        answer: &mut Answer,
    ) -> Result<bool, Failure> {
        let (service, shared) = (&*self.service, self.shared);
        if let Some(insured) = client.insured().filter(|_| here.resume != Resume::Off) {
            insured.asks(Asked {
                how: here.resume,
                service: Arc::clone(&service.name),
                peers: here.others.clone(),
                past: Vec::new(),
                text: asked.text.clone(),
                keeps: asked.keep_alive,
            });
        }
        let upstreams = here.group.upstreams(&self.node);
        let result = exchange(client, service, &upstreams, asked, &mut self.kept, answer).await;
        let Err(Failure::Server { begun: true, status: 502 }) = result else { return result };
        go_on_elsewhere(client, service, shared, answer).await.map_or(result, Ok)
    }

    /// Serves a request for a pool that no node of this machine is in: moves the connection to a node of the pool, or
    /// forwards the request to one.
    async fn serve_elsewhere(
        &mut self,
        client: TlsStream,
        entry: Entry,
        request: &Received<'_>,
        pool: &Elsewhere,
    ) -> Result<Next, StreamError> {
        let service = &*Arc::clone(&self.service);
        let Some((mut client, mut entry)) = self.give_away(client, entry, &pool.in_turn()).await? else {
            return Ok(Next::Nothing);
        };
        debug!("service {}: a request of {} is forwarded", service.name, client.client);
        let asked = request.asked(&client, service);
        client.consume(request.head.len)?;
        let told = &mut entry.answer;
        let upstream = Upstream { servers: &pool.servers, node: &self.node.name, member: None };
        let result = exchange(&mut client, service, &[upstream], &asked, &mut self.kept, told).await;
        self.conclude(client, entry, result, request.is_head()).await
    }

    /// Moves the connection to one of these nodes. None if it has left; otherwise it stays, and so does the
    /// request.
    async fn give_away(
        &mut self,
        client: TlsStream,
        entry: Entry,
        to: &[Peer],
    ) -> Result<Option<(TlsStream, Entry)>, StreamError> {
        let given = give_away(client, &self.service.name, to, self.shared, entry.at).await?;
        match given {
            Given::Not(stays) => return Ok(Some((stays, entry))),
            Given::Away => entry.forget(),
            Given::Lost(peer) => entry.lose(&peer.name),
        }
        self.service.counters.given.add(1);
        Ok(None)
    }

    /// What follows a request that had this result.
    async fn conclude(
        &mut self,
        mut client: TlsStream,
        mut entry: Entry,
        result: Result<bool, Failure>,
        is_head: bool,
    ) -> Result<Next, StreamError> {
        match result {
            Ok(another) => {
                entry.ends(Ended::Complete);
                drop(entry);
                if another {
                    return Ok(Next::Request(client));
                }
                client.settle().await?;
                client.end().await?;
                Ok(Next::Nothing)
            }
            Err(Failure::Client(error)) => Err(error),
            Err(Failure::Server { begun: false, status }) => {
                refuse(client, &self.service, entry, status, is_head).await
            }
            // The client sees that something is missing, because nothing says that the connection ends.
            Err(Failure::Server { begun: true, .. }) => {
                entry.ends(Ended::ByServer);
                Err(StreamError::Io(io::ErrorKind::ConnectionReset.into()))
            }
        }
    }
}

impl Received<'_> {
    fn is_head(&self) -> bool {
        self.head.method == "HEAD"
    }

    /// The request, as the server gets it.
    fn asked(&self, client: &TlsStream, service: &Service) -> ServerRequest {
        let flow = (client.client, client.vip);
        let certificate = client.session.facts().client.as_deref();
        ServerRequest::new(self.text, self.head, service, Requester { flow, certificate })
    }
}

/// The outcome of waiting for a request.
enum Waited {
    /// A whole head, or bytes that cannot become one.
    Head,
    /// The client has ended, or has not begun a head in time.
    Nothing,
    /// The head has not been complete in time.
    TooLong,
}

async fn wait_for_head(
    client: &mut TlsStream,
    service: &Service,
    patience: Duration,
) -> Result<Waited, StreamError> {
    let mut deadline = Instant::now() + patience;
    let mut has_begun = false;
    loop {
        let data = client.session.data();
        if !has_begun && !data.is_empty() {
            (has_begun, deadline) = (true, Instant::now() + service.limits.head_timeout);
        }
        match parse_head(data, &service.limits.http) {
            Ok(Progress::Partial) => {}
            _ => return Ok(Waited::Head),
        }
        match timeout_at(deadline.into(), client.wait_for_data()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) if client.session.data().is_empty() => return Ok(Waited::Nothing),
            Ok(Ok(false)) => return Err(StreamError::Tls(crate::Error::Truncated)),
            Ok(Err(error)) => return Err(error),
            Err(_) if !has_begun => return Ok(Waited::Nothing),
            Err(_) => return Ok(Waited::TooLong),
        }
    }
}

/// Answers with an error, and closes.
async fn refuse(
    client: TlsStream,
    service: &Service,
    entry: Entry,
    status: u16,
    is_head: bool,
) -> Result<Next, StreamError> {
    refuse_with(client, service, entry, (status, ""), is_head).await
}

/// Likewise, with more header fields.
async fn refuse_with(
    mut client: TlsStream,
    service: &Service,
    mut entry: Entry,
    (status, fields): (u16, &str),
    is_head: bool,
) -> Result<Next, StreamError> {
    service.counters.refused.add(1);
    answer(&mut client, &mut entry, status, &error_response_with(status, fields, is_head))?;
    drop(entry);
    client.end().await?;
    Ok(Next::Nothing)
}

/// Answers with a redirect, and closes.
async fn redirect_to(
    mut client: TlsStream,
    mut entry: Entry,
    redirect: &Redirect,
    head: &Head<'_>,
) -> Result<Next, StreamError> {
    let location = location(redirect, Scheme::Https, head, client.vip);
    answer(&mut client, &mut entry, redirect.status, &redirection(redirect.status, &location))?;
    drop(entry);
    client.end().await?;
    Ok(Next::Nothing)
}

/// Answers a CA that wants proof of a domain, and closes.
async fn prove(
    mut client: TlsStream,
    mut entry: Entry,
    proof: &str,
    is_head: bool,
) -> Result<Next, StreamError> {
    answer(&mut client, &mut entry, 200, &proof_response(proof, is_head))?;
    drop(entry);
    client.end().await?;
    Ok(Next::Nothing)
}

/// Sends a response of our own.
fn answer(
    client: &mut TlsStream,
    entry: &mut Entry,
    status: u16,
    response: &[u8],
) -> Result<(), StreamError> {
    let head_len = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(0, |end| end + 4);
    entry.is_answered(status);
    entry.answer.sent(head_len, true);
    entry.answer.sent(response.len() - head_len, false);
    Ok(client.session.send(response)?)
}
