//! HTTP/2 over TLS: streams of a client, each a request of HTTP/1.1 to the server of this node.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CONNECTION, HOST, HeaderName, LOCATION, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use log::debug;
use switchback_access_log::Ended;
use switchback_config::{ClientAddress, Protocol, Resume, Scheme};
use switchback_http::{Progress, Reject, parse_head};
use switchback_routes::location;

use super::budgets::{Stream, Streams};
use super::client::StreamError;
use super::flow::Addresses;
use super::forwarding::{Forwarder, OtherNode, forwarder};
use super::head::{Requester, Told, proxy_header};
use super::log::{Connection as Lines, Entry};
use super::peers::Peer;
use super::rates::Denied;
use super::services::{Elsewhere, Service, Way};
use super::shared::Shared;
use super::stream::TlsStream;
use crate::ClientCertificate;

/// Bytes of a stream's response that wait for the client.
const SEND_BUFFER: usize = 16 << 10;
/// Time without frames of the client after which it gets a PING.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Fields that are about one connection (RFC 9113 section 8.2.2).
const HOP_BY_HOP: [&str; 3] = ["keep-alive", "proxy-connection", "proxy-authenticate"];

/// The server that answers a request.
enum Target<'a> {
    /// The server of this node.
    Own {
        /// How another node goes on with its responses over HTTP/1.1.
        resume: Resume,
    },
    /// A server of a pool that this node is not in.
    Pool(&'a Elsewhere),
    /// The server of a node with less load.
    Peer(Peer),
}

/// A response's body, whose length and end go to the request's line in the log.
struct Body {
    inner: Either<Incoming, Full<Bytes>>,
    entry: Entry,
    _stream: Stream,
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                self.entry.answer.sent(len, false);
            }
            Some(Err(_)) => self.entry.ends(Ended::ByServer),
            None => self.entry.ends(Ended::Complete),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Nobody asks for more behind the last byte.
impl Drop for Body {
    fn drop(&mut self) {
        if self.inner.is_end_stream() {
            self.entry.ends(Ended::Complete);
        }
    }
}

/// Fields of a request, in the place of those that the client may not send.
type Fields = Vec<(&'static str, String)>;

/// A response of our own instead of the server's.
enum Instead {
    Error(StatusCode),
    /// Status and location.
    Redirect(u16, String),
    Denied(Denied),
    /// What a CA gets as proof of a domain.
    Proof(String),
}

impl From<StatusCode> for Instead {
    fn from(status: StatusCode) -> Self {
        Instead::Error(status)
    }
}

impl From<Denied> for Instead {
    fn from(denied: Denied) -> Self {
        Instead::Denied(denied)
    }
}

/// Serves streams until the connection ends.
pub(super) async fn serve(
    client: TlsStream,
    service: Arc<Service>,
    shared: Arc<Shared>,
) -> Result<(), StreamError> {
    let limits = service.limits.tls;
    let flow = (client.client, client.vip);
    let streams = Streams::new(&shared.budgets, &service.name, flow.0.ip(), limits);
    let window = shared.budgets.receive_window(flow.0.ip());
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_send_buf_size(SEND_BUFFER)
        .initial_connection_window_size(window)
        .initial_stream_window_size(window)
        .max_concurrent_streams(limits.streams_per_connection);
    let lines = Lines::new(&client, &service, &shared.log);
    let certificate = client.session.facts().client.clone();
    // What a connection to the server begins with names one client, so no other one may use it.
    let greeting = (service.told.address == ClientAddress::Proxy).then(|| proxy_header(flow.0, flow.1));
    let own = match &greeting {
        Some(greeting) => forwarder(service.servers.address().clone(), greeting.clone()),
        None => service.forwarder.clone(),
    };
    let requests = AtomicUsize::new(0);
    let conversation =
        Arc::new(Conversation { service, shared, flow, certificate, lines, greeting, own, requests });
    let asked = Arc::clone(&conversation);
    let answer = service_fn(move |request| {
        let conversation = Arc::clone(&asked);
        let stream = streams.begin();
        conversation.requests.fetch_add(1, Ordering::Relaxed);
        let entry = conversation.lines.request(Protocol::Http2, &[]);
        async move { conversation.answer(request, stream, entry).await }
    });
    let served = builder.serve_connection(TokioIo::new(client), answer).await;
    if conversation.requests.load(Ordering::Relaxed) == 0 {
        conversation.lines.without_request(None);
    }
    served.map_err(|error| StreamError::Io(io::Error::other(error)))
}

/// A client's connection: what its streams have in common.
struct Conversation {
    service: Arc<Service>,
    shared: Arc<Shared>,
    flow: Addresses,
    /// The client's certificate, if it has shown one.
    certificate: Option<Arc<ClientCertificate>>,
    /// For the access log.
    lines: Lines,
    /// What connections to servers begin with, if that names the client.
    greeting: Option<Vec<u8>>,
    /// Forwarder to the server of this node.
    own: Forwarder,
    /// Requests so far.
    requests: AtomicUsize,
}

impl Conversation {
    /// Answers the request of a stream, which is refused without a permit.
    async fn answer(
        &self,
        request: Request<Incoming>,
        stream: Option<Stream>,
        mut entry: Entry,
    ) -> Result<Response<Body>, h2::Error> {
        let counters = &self.service.counters;
        let Some(stream) = stream else {
            counters.streams_refused.add(1);
            entry.forget();
            return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
        };
        counters.requests.add(1);
        let is_head = request.method() == Method::HEAD;
        let client = Requester { flow: self.flow, certificate: self.certificate.as_deref() };
        let response = match prepare(request, &self.service, &self.shared, client, &mut entry).await {
            Ok((request, target)) => self.forward(request, target, &mut entry).await,
            Err(instead) => Err(instead),
        };
        let response = match response {
            Ok(response) => {
                counters.responses.add(1);
                if let Some(OtherNode(node)) = response.extensions().get() {
                    entry.answer.set_node(node);
                }
                entry.answer.has_status(response.status().as_u16());
                finish(response)
            }
            Err(instead) => {
                let response = match instead {
                    Instead::Redirect(status, location) => redirection(status, &location),
                    Instead::Proof(proof) => Response::new(Full::new(Bytes::from(proof))),
                    Instead::Error(status) => {
                        counters.refused.add(1);
                        error(status, is_head)
                    }
                    Instead::Denied(denied) => {
                        counters.refused.add(1);
                        let status = StatusCode::from_u16(denied.status()).unwrap_or(StatusCode::FORBIDDEN);
                        let mut response = error(status, is_head);
                        let fields = denied.retry_after().map(|seconds| (RETRY_AFTER, seconds.into()));
                        response.headers_mut().extend(fields);
                        response
                    }
                };
                entry.is_answered(response.status().as_u16());
                response.map(Either::Right)
            }
        };
        Ok(response.map(|inner| Body { inner, entry, _stream: stream }))
    }

    /// Forwards a request to a server.
    async fn forward(
        &self,
        request: Request<Incoming>,
        target: Target<'_>,
        entry: &mut Entry,
    ) -> Result<Response<Incoming>, Instead> {
        let forwarder = match (&target, &self.greeting) {
            (Target::Own { .. }, _) => self.own.clone(),
            (Target::Pool(others), Some(greeting)) => {
                forwarder(others.servers.address().clone(), greeting.clone())
            }
            (Target::Pool(others), None) => others.forwarder.clone(),
            (Target::Peer(peer), Some(greeting)) => self.service.single.greeting(peer, greeting.clone()),
            (Target::Peer(peer), None) => self.service.single.forwarder(peer),
        };
        let _given = match &target {
            Target::Peer(peer) => Some(self.shared.loads.give(peer.address)),
            _ => None,
        };
        entry.answer.begin(&self.service.node);
        let response =
            forwarder.request(request).await.map_err(|_| Instead::Error(StatusCode::BAD_GATEWAY))?;
        if let (Target::Own { resume }, Some((insurer, after))) = (&target, &self.service.insurer)
            && *resume != Resume::Off
            && response.body().size_hint().lower() >= *after
        {
            // Streams share the numbers of records.
            insurer.is_uninsurable("http2");
        }
        Ok(response)
    }
}

/// The request as the server gets it, and whose server that is.
async fn prepare<'a>(
    request: Request<Incoming>,
    service: &'a Service,
    shared: &Shared,
    client: Requester<'_>,
    entry: &mut Entry,
) -> Result<(Request<Incoming>, Target<'a>), Instead> {
    let (mut parts, body) = request.into_parts();
    // Extended CONNECT (RFC 8441) is not offered.
    if parts.method == Method::CONNECT {
        entry.has_head(format!("CONNECT {} HTTP/1.1\r\n", parts.uri).as_bytes());
        return Err(StatusCode::NOT_IMPLEMENTED.into());
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    if let Some(authority) = &authority {
        let value = HeaderValue::from_str(authority).map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
        if parts.headers.insert(HOST, value.clone()).is_some_and(|host| host != value) {
            entry.has_head(&as_text(&parts, &path));
            return Err(StatusCode::BAD_REQUEST.into());
        }
    }
    let text = as_text(&parts, &path);
    entry.has_head(&text);
    let (fields, target) = target(&text, service, shared, client).await?;
    // The connector goes to one place whatever the authority is, but connections are kept by it.
    let uri = Uri::builder().scheme("http").authority("server").path_and_query(path).build();
    parts.uri = uri.map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
    parts.version = Version::HTTP_11;
    let replaced: Vec<HeaderName> =
        parts.headers.keys().filter(|name| service.told.replaces(name.as_str())).cloned().collect();
    replaced.iter().for_each(|name| drop(parts.headers.remove(name)));
    for (name, value) in fields {
        let value = HeaderValue::from_str(&value).map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
        parts
            .headers
            .insert(HeaderName::from_bytes(name.as_bytes()).expect("names of ours are names"), value);
    }
    join_cookies(&mut parts.headers);
    keep_trailers(&mut parts.headers, service.told);
    Ok((Request::from_parts(parts, body), target))
}

/// Fields that say who the client is, and whose server gets the request. It is read as strictly as any other
/// one, and goes by the same routes. Streams share the numbers of their connection's records, so a request
/// for another pool, or for a node that has less to do, goes there, and the connection stays.
async fn target<'a>(
    text: &[u8],
    service: &'a Service,
    shared: &Shared,
    client: Requester<'_>,
) -> Result<(Fields, Target<'a>), Instead> {
    let head = match parse_head(text, &service.limits.http) {
        Ok(Progress::Complete(head)) => head,
        Ok(Progress::Partial) => return Err(StatusCode::BAD_REQUEST.into()),
        Err(reject) => return Err(refused(reject)),
    };
    if let Some(proof) = shared.issued.answer(head.path()) {
        return Err(Instead::Proof(proof));
    }
    shared.rates.admit(service, &head, client.flow.0.ip(), Protocol::Http2).await?;
    let target = match service.way(&head, client.flow.0.ip(), Protocol::Http2) {
        Way::Here(here) => match shared.loads.lighter(service.busy, &here.others).into_iter().next() {
            Some(peer) => Target::Peer(peer),
            None => Target::Own { resume: here.resume },
        },
        Way::Elsewhere(others) => Target::Pool(others),
        Way::Redirect(redirect) => {
            let location = location(redirect, Scheme::Https, &head, client.flow.1);
            return Err(Instead::Redirect(redirect.status, location));
        }
        Way::Respond(status) => {
            return Err(StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN).into());
        }
        Way::Nowhere => return Err(StatusCode::NOT_FOUND.into()),
        Way::Refused(reject) => return Err(refused(reject)),
    };
    if !matches!(target, Target::Own { .. }) {
        debug!("service {}: a request of {} is forwarded", service.name, client.flow.0);
        service.counters.forwarded.add(1);
    }
    Ok((service.told.fields(client, head.host.unwrap_or_default()), target))
}

fn refused(reject: Reject) -> Instead {
    StatusCode::from_u16(reject.status()).unwrap_or(StatusCode::BAD_REQUEST).into()
}

/// The head as HTTP/1.1 has it. What is said of the body is the server's to see: streams say themselves where
/// they end.
fn as_text(parts: &http::request::Parts, path: &str) -> Vec<u8> {
    let mut text = format!("{} {path} HTTP/1.1\r\n", parts.method).into_bytes();
    for (name, value) in &parts.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// A client may send its cookies in several fields, which HTTP/1.1 does not allow (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> =
        headers.get_all(http::header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(http::header::COOKIE, joined);
    }
}

/// Removes the names of fields that only this endpoint may set from `Trailer`: hyper sends no others of a trailer section
/// than those that it lists.
fn keep_trailers(headers: &mut HeaderMap, told: Told) {
    let listed: Vec<HeaderValue> = headers.get_all(TRAILER).iter().cloned().collect();
    headers.remove(TRAILER);
    let names = listed.iter().filter_map(|names| names.to_str().ok()).flat_map(|names| names.split(','));
    let kept: Vec<&str> = names.map(str::trim).filter(|name| !told.replaces(name)).collect();
    if !kept.is_empty()
        && let Ok(kept) = HeaderValue::from_str(&kept.join(", "))
    {
        headers.insert(TRAILER, kept);
    }
}

/// The response as the client gets it.
fn finish(response: Response<Incoming>) -> Response<Either<Incoming, Full<Bytes>>> {
    let (mut parts, body) = response.into_parts();
    for name in [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE] {
        parts.headers.remove(name);
    }
    HOP_BY_HOP.iter().for_each(|name| drop(parts.headers.remove(*name)));
    parts.version = Version::HTTP_2;
    Response::from_parts(parts, Either::Left(body))
}

fn error(status: StatusCode, is_head: bool) -> Response<Full<Bytes>> {
    let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or("Error"));
    let body = if is_head { Bytes::new() } else { Bytes::from(text) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

fn redirection(status: u16, location: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::FOUND);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
