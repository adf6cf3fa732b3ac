//! HTTP/2 over TLS: streams of a client, each a request to a server in HTTP/1.1 or HTTP/2.
//!
//! A stream is a task. Its body goes to the server and the response comes back frame by frame, each as far as its receiver has
//! room. A reset by one side, with its code, is one for the other.
//!
//! A connection does not move. When the node begins to drain, the client is told to take another one (GOAWAY): the streams that
//! it has go on, new ones come to another node.

mod answers;
mod greeted;
mod prepare;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Ping, PingPong, Reason, RecvStream};
use http::header::{CONNECTION, DATE, HeaderName, RETRY_AFTER, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body, Frame};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use switchback_access_log::Ended;
use switchback_config::{Mirror, Protocol, Resume, ServerProtocol};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::budgets::{Stream, Streams};
use super::call::{Answered, CallError, call, reason};
use super::client::StreamError;
use super::flow::Addresses;
use super::forwarding::{OtherNode, forwarder};
use super::frames::{BodyError, Broken, SEND_BUFFER, Sending, Source, StreamBody, Taken};
use super::head::Requester;
use super::local::{Destination, LocalNode, Member};
use super::log::{Answer, Connection as Lines, Entry};
use super::multiplexed::Multiplexed;
use super::pools::Here;
use super::services::Service;
use super::shared::Shared;
use super::stream::TlsStream;
use crate::{ClientCertificate, Outcome};

use answers::{error, grpc_error, is_grpc, redirection};
use greeted::Greeted;
use prepare::{Instead, Prepared, Target, copy_of, for_http1, for_http2, prepare};

/// Interval at which a client gets a PING, and the time in which it has to answer.
const KEEP_ALIVE: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(20)];
/// Part of a connection's window that one stream may take, where servers read bodies as they come: one that is not read leaves
/// room for others.
const STREAMS_IN_WINDOW: u32 = 4;
/// What short frames of a client may take beside their content until a task has taken that, in windows: a stream of gRPC may
/// consist of nothing else.
const FRAMES: usize = 8;
/// Bytes of each header field beside name and value, as SETTINGS_MAX_HEADER_LIST_SIZE counts (RFC 9113 section 6.5.2).
const FIELD: usize = 32;
/// Fields that are about one connection (RFC 9113 section 8.2.2).
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
];

/// Serves streams until the connection ends.
pub(super) async fn serve(
    client: TlsStream,
    service: Arc<Service>,
    node: Arc<LocalNode>,
    shared: Arc<Shared>,
) -> Result<(), StreamError> {
    let conversation = Arc::new(Conversation::new(&client, service, node, shared));
    let served = conversation.serve(client).await;
    if conversation.requests.load(Ordering::Relaxed) == 0 {
        conversation.lines.without_request(&conversation.service, None);
    }
    served
}

/// A client's connection: what its streams have in common.
struct Conversation {
    /// As it was configured at the beginning.
    service: Arc<Service>,
    /// Where the client is connected.
    node: Arc<LocalNode>,
    shared: Arc<Shared>,
    flow: Addresses,
    /// The client's certificate, if it has shown one.
    certificate: Option<Arc<ClientCertificate>>,
    /// For the access log.
    lines: Lines,
    /// Ways to servers if connections to them name the client.
    greeted: Greeted,
    /// Requests so far.
    requests: AtomicUsize,
}

impl Conversation {
    fn new(client: &TlsStream, service: Arc<Service>, node: Arc<LocalNode>, shared: Arc<Shared>) -> Self {
        let flow = (client.client, client.vip);
        let lines = Lines::new(client, &node, &shared.log);
        let certificate = client.session.facts().client.clone();
        let (greeted, requests) = (Greeted::default(), AtomicUsize::new(0));
        Conversation { service, node, shared, flow, certificate, lines, greeted, requests }
    }

    async fn serve(self: &Arc<Self>, client: TlsStream) -> Result<(), StreamError> {
        let Conversation { service, shared, .. } = &**self;
        let (limits, source) = (&service.limits, self.flow.0.ip());
        let streams = Streams::new(&shared.budgets, &service.name, source, limits.tls);
        let window = shared.budgets.receive_window(source);
        let mut builder = h2::server::Builder::new();
        builder.initial_window_size(window);
        if service.has_http2_servers() {
            builder
                .initial_window_size(window / STREAMS_IN_WINDOW)
                .data_frame_budget(window as usize * FRAMES);
        }
        let handshake = builder
            .max_send_buffer_size(SEND_BUFFER)
            .initial_connection_window_size(window)
            .max_header_list_size((limits.http.head_len + FIELD * limits.http.fields) as u32)
            .max_concurrent_streams(limits.tls.streams_per_connection)
            .handshake::<_, Bytes>(client);
        let begun = timeout(limits.head_timeout, handshake).await.map_err(io::Error::from)?;
        let mut connection = begun.map_err(io::Error::other)?;
        let mut silence = std::pin::pin!(silence(connection.ping_pong()));
        let mut leaves = std::pin::pin!(self.leaves());
        let mut may_leave = true;
        loop {
            tokio::select! {
                accepted = connection.accept() => match accepted {
                    None => return Ok(()),
                    Some(accepted) => {
                        let (request, respond) = accepted.map_err(io::Error::other)?;
                        self.requests.fetch_add(1, Ordering::Relaxed);
                        let service = shared.current(service);
                        let entry = self.lines.request(&service, Protocol::Http2, &[]);
                        let stream = streams.begin();
                        tokio::spawn(Arc::clone(self).answer(service, request, respond, stream, entry));
                    }
                },
                () = &mut leaves, if may_leave => {
                    may_leave = false;
                    connection.graceful_shutdown();
                }
                () = &mut silence => return Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        }
    }

    /// Waits until the client should take another connection, because its node leaves and others can take its requests.
    async fn leaves(&self) {
        self.node.leaves().await;
        if !self.shared.current(&self.service).has_other_nodes(&self.node) {
            std::future::pending().await
        }
    }

    /// Answers the request of a stream, which is refused without a permit.
    async fn answer(
        self: Arc<Self>,
        service: Arc<Service>,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        stream: Option<Stream>,
        entry: Entry,
    ) {
        let service = &*service;
        let Some(_stream) = stream else {
            service.counters.streams_refused.add(1);
            entry.forget();
            return respond.send_reset(Reason::REFUSED_STREAM);
        };
        service.counters.requests.add(1);
        let client = Requester { flow: self.flow, certificate: self.certificate.as_deref() };
        let (parts, body) = request.into_parts();
        let body = StreamBody::of_request(body, &parts.headers, service.told);
        let mut reply =
            Reply { respond, is_head: parts.method == Method::HEAD, is_grpc: is_grpc(&parts.headers), entry };
        let prepared = prepare(parts, (service, &self.node), &self.shared, client, &mut reply.entry).await;
        let forwarded = match prepared {
            Ok(Prepared { parts, target, mirror }) => {
                if let Some(mirror) = mirror.filter(|_| body.is_end_stream()) {
                    self.mirror(service, &parts, mirror);
                }
                match target.protocol() {
                    ServerProtocol::Http11 => match for_http1(parts) {
                        Ok(request) => {
                            self.forward(service, request.map(|()| Taken(body)), target, &mut reply).await
                        }
                        Err(instead) => Err(instead),
                    },
                    ServerProtocol::H2c => match for_http2(parts) {
                        Ok(request) => self.call(service, request, body, target, &mut reply).await,
                        Err(instead) => Err(instead),
                    },
                }
            }
            Err(instead) => Err(instead),
        };
        if let Err(instead) = forwarded {
            reply.make(instead, service);
        }
    }

    /// Sends a copy of a request without a body to the pool that mirrors it.
    fn mirror(&self, service: &Service, parts: &Parts, mirror: Mirror) {
        if service.is_mirrored(mirror, self.flow.0.ip()) {
            let greeting = service.told.greeting(self.flow).unwrap_or_default();
            self.shared.mirror(service, mirror, greeting, copy_of(parts));
        }
    }

    /// Forwards a request to a server that speaks HTTP/1.1, and its response to the client.
    async fn forward(
        &self,
        service: &Service,
        request: Request<Taken<StreamBody>>,
        target: Target<'_>,
        reply: &mut Reply,
    ) -> Result<(), Instead> {
        let forwarder = match (&target, service.told.greeting(self.flow)) {
            (Target::Own(here, member), Some(greeting)) => self.greeted.forwarder(here, member, &greeting),
            (Target::Own(here, member), None) => here.forwarder(member).clone(),
            (Target::Pool(others), Some(greeting)) => {
                forwarder(Destination { address: others.address.clone(), instead: None, greeting })
            }
            (Target::Pool(others), None) => others.forwarder.clone(),
            (Target::Peer(peer, here), Some(greeting)) => here.single.greeting(peer, greeting),
            (Target::Peer(peer, here), None) => here.single.forwarder(peer),
        };
        let given = self.give(&target);
        reply.entry.answer.begin(self.name_of(&target));
        let is_whole = request.body().is_end_stream();
        let response = tokio::select! {
            response = forwarder.request(request) => response,
            // The client has gone: dropped, the request is broken off.
            _ = reply.reset() => return Ok(()),
        };
        drop(given);
        match &response {
            // The server that was meant could not be reached.
            Ok(response) if response.extensions().get::<OtherNode>().is_some() => {
                target.note(Outcome::NoResponse);
            }
            Ok(response) => target.note(Outcome::Status(response.status().as_u16())),
            Err(_) if is_whole => target.note(Outcome::NoResponse),
            // A server may wait for the rest of a body in vain.
            Err(_) => {}
        }
        let response = response.map_err(|_| Instead::Error(StatusCode::BAD_GATEWAY))?;
        if let (Target::Own(here, _), Some((insurer, after))) = (&target, &service.insurer)
            && here.resume != Resume::Off
            && response.body().size_hint().lower() >= *after
        {
            // Streams share the numbers of records.
            insurer.is_uninsurable("http2");
        }
        if let Some(OtherNode(node)) = response.extensions().get() {
            reply.entry.answer.set_node(node);
        }
        let (head, body) = response.into_parts();
        service.counters.responses.add(1);
        // Dropped, the body breaks its connection off.
        let _ = reply.pass(head.status, head.headers, body).await;
        Ok(())
    }

    /// Sends a request to a server that speaks HTTP/2, and its response to the client.
    async fn call(
        &self,
        service: &Service,
        request: Request<()>,
        body: StreamBody,
        target: Target<'_>,
        reply: &mut Reply,
    ) -> Result<(), Instead> {
        let servers = self.servers(service, &target);
        let given = self.give(&target);
        let meant = self.name_of(&target);
        reply.entry.answer.begin(meant);
        let is_whole = body.is_end_stream();
        let (cancel, cancelled) = oneshot::channel();
        let mut called = std::pin::pin!(call(&servers, &request, body, cancelled));
        let answered = tokio::select! {
            answered = &mut called => answered,
            reason = reply.reset() => {
                // It ends at once then.
                let _ = cancel.send(reason);
                let _ = called.await;
                return Ok(());
            }
        };
        drop(given);
        match &answered {
            Ok(answered) if answered.body.node() == meant => {
                target.note(Outcome::Status(answered.head.status.as_u16()));
            }
            // The server that was meant could not be reached.
            Ok(_) => target.note(Outcome::NoResponse),
            Err(CallError::Unreachable | CallError::Lost) if is_whole => target.note(Outcome::NoResponse),
            Err(_) => {}
        }
        let reset = match answered {
            Ok(answered) => {
                if let Err(reason) = self.pass(service, answered, reply).await {
                    // The watch over the server's stream may have ended.
                    let _ = cancel.send(reason);
                }
                return Ok(());
            }
            Err(CallError::Unreachable | CallError::Lost) => return Err(StatusCode::BAD_GATEWAY.into()),
            // The client may ask again.
            Err(CallError::Unprocessed) => Reason::REFUSED_STREAM,
            Err(CallError::Reset(reason)) => reason,
        };
        reply.refuse(reset);
        Ok(())
    }

    /// Passes a response in HTTP/2 on; an error is the reason why the client has reset the stream.
    async fn pass(&self, service: &Service, answered: Answered, reply: &mut Reply) -> Result<(), Reason> {
        reply.entry.answer.set_node(answered.body.node());
        service.counters.responses.add(1);
        reply.pass(answered.head.status, answered.head.headers, answered.body).await
    }

    /// The servers that a request in HTTP/2 may go to, in their order: if the first one cannot be reached, others of the pool.
    fn servers(&self, service: &Service, target: &Target<'_>) -> Vec<Arc<Multiplexed>> {
        let greeting = service.told.greeting(self.flow);
        let greeted = |server: Arc<Multiplexed>| match &greeting {
            Some(greeting) => Arc::new(server.greeting(greeting)),
            None => server,
        };
        let local = |here: &Here, first: &str| -> Vec<Arc<Multiplexed>> {
            let way = |member: &Member| match &greeting {
                Some(greeting) => self.greeted.multiplexed(here, member, greeting),
                None => Arc::clone(&member.server.multiplexed),
            };
            here.group.in_order(first).into_iter().map(way).collect()
        };
        match target {
            Target::Own(here, member) => {
                let others = here.others.iter().map(|peer| greeted(here.single.multiplexed(peer)));
                local(here, member.name()).into_iter().chain(others).collect()
            }
            Target::Pool(others) => others.multiplexed_in_turn().into_iter().map(greeted).collect(),
            Target::Peer(peer, here) => std::iter::once(greeted(here.single.multiplexed(peer)))
                .chain(local(here, &self.node.name))
                .collect(),
        }
    }

    /// Name of the node that a request is meant for; for any of other machines, that of the client's connection.
    fn name_of<'a>(&'a self, target: &'a Target<'_>) -> &'a Arc<str> {
        match target {
            Target::Own(_, member) => member.name(),
            Target::Pool(_) | Target::Peer(..) => &self.node.name,
        }
    }

    /// Counts a request at the node that it is given to.
    fn give(&self, target: &Target<'_>) -> Option<super::load::Given<'_>> {
        match target {
            Target::Peer(peer, _) => Some(self.shared.loads.give(peer.address)),
            Target::Own(..) | Target::Pool(_) => None,
        }
    }
}

/// The response to a stream's request.
struct Reply {
    respond: SendResponse<Bytes>,
    is_head: bool,
    is_grpc: bool,
    entry: Entry,
}

impl Reply {
    /// Waits until the client resets the stream, or is lost; before the response has begun.
    async fn reset(&mut self) -> Reason {
        let reset = std::future::poll_fn(|cx| self.respond.poll_reset(cx)).await;
        reset.unwrap_or(Reason::CANCEL)
    }

    /// Resets the stream, as the server has done.
    fn refuse(&mut self, reason: Reason) {
        self.entry.ends(Ended::ByServer);
        self.respond.send_reset(reason);
    }

    /// Passes a server's response on; an error is the reason why the client has reset the stream.
    async fn pass<B>(&mut self, status: StatusCode, mut headers: HeaderMap, body: B) -> Result<(), Reason>
    where
        B: Source,
        B::Error: Into<BodyError>,
    {
        HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(name)));
        headers.entry(DATE).or_insert_with(date);
        self.entry.answer.has_status(status.as_u16());
        let is_whole = body.is_end_stream();
        let mut response = Response::new(());
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        let Ok(stream) = self.respond.send_response(response, is_whole) else { return Err(Reason::CANCEL) };
        if is_whole {
            self.entry.ends(Ended::Complete);
            return Ok(());
        }
        let mut sending = Sending::new(stream);
        let mut body = Measured { inner: body, answer: &mut self.entry.answer };
        match std::future::poll_fn(|cx| sending.poll_send(&mut body, cx)).await {
            Ok(()) => self.entry.ends(Ended::Complete),
            Err(Broken::Receiver(reason)) => return Err(reason.unwrap_or(Reason::CANCEL)),
            Err(Broken::Body(error)) => {
                self.entry.ends(Ended::ByServer);
                match reason(&*error.into()) {
                    Some(reason) => sending.reset(reason),
                    None if self.is_grpc => sending.end(answers::lost()),
                    None => sending.reset(Reason::INTERNAL_ERROR),
                }
            }
        }
        Ok(())
    }

    /// An error of our own, with its body.
    fn error(&mut self, status: StatusCode, service: &Service) -> (Response<()>, Bytes) {
        service.counters.refused.add(1);
        self.entry.is_answered(status.as_u16());
        if self.is_grpc { (grpc_error(status), Bytes::new()) } else { error(status, self.is_head) }
    }

    /// Answers without a server.
    fn make(&mut self, instead: Instead, service: &Service) {
        let (mut response, body) = match instead {
            Instead::Redirect(status, location) => {
                self.entry.is_answered(status);
                (redirection(status, &location), Bytes::new())
            }
            Instead::Proof(proof) => {
                self.entry.is_answered(StatusCode::OK.as_u16());
                (Response::new(()), proof.into())
            }
            Instead::Error(status) => self.error(status, service),
            Instead::Denied(denied) => {
                let status = StatusCode::from_u16(denied.status()).unwrap_or(StatusCode::FORBIDDEN);
                let (mut response, body) = self.error(status, service);
                let fields = denied.retry_after().map(|seconds| (RETRY_AFTER, seconds.into()));
                response.headers_mut().extend(fields);
                (response, body)
            }
        };
        response.headers_mut().insert(DATE, date());
        if let Ok(mut stream) = self.respond.send_response(response, body.is_empty())
            && !body.is_empty()
        {
            self.entry.answer.sent(body.len(), false);
            // It is short enough to wait for room, and the client may have gone.
            let _ = stream.send_data(body, true);
        }
    }
}

/// A response's body, whose length goes to the request's line in the log.
struct Measured<'a, B> {
    inner: B,
    answer: &'a mut Answer,
}

impl<B: Source> Body for Measured<'_, B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.answer.sent(frame.data_ref().map_or(0, Bytes::len), false);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

impl<B: Source> Source for Measured<'_, B> {
    const AHEAD: usize = B::AHEAD;

    fn release(&mut self, len: usize) {
        self.inner.release(len);
    }
}

/// The time in the form of `Date` (RFC 9110 section 5.6.7).
fn date() -> HeaderValue {
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now());
    text.ok().and_then(|text| HeaderValue::from_str(&text).ok()).unwrap_or(HeaderValue::from_static(""))
}

/// Ends when the client does not answer a PING in time.
async fn silence(pings: Option<PingPong>) {
    let [interval, patience] = KEEP_ALIVE;
    let mut pings = pings.expect("nobody has taken it before");
    loop {
        sleep(interval).await;
        if !matches!(timeout(patience, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}
