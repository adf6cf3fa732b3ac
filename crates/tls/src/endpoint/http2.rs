//! HTTP/2 over TLS: streams of a client, each a request of HTTP/1.1 to the server of this node.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderName, LOCATION, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use log::debug;
use switchback_access_log::Ended;
use switchback_config::{ClientAddress, Protocol, Scheme};
use switchback_http::{Progress, Reject, parse_head};
use switchback_routes::location;
use tokio::io::AsyncWriteExt;

use super::Shared;
use super::budgets::{Stream, Streams};
use super::head::{SayWho, proxy_header};
use super::http1::Way;
use super::log::{Connection as Lines, Entry};
use super::moving::{Addresses, Peer};
use super::server::{self, PeersOf, ServerAddress};
use super::services::{Elsewhere, Service};
use super::stream::{StreamError, TlsStream};

/// Bytes of a stream's response that wait for the client.
const SEND_BUFFER: usize = 16 << 10;
/// Bytes of a stream's response that are read ahead from the server; also the longest head of a response.
const READ_BUFFER: usize = 16 << 10;
/// Time without frames of the client after which it gets a PING.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Connections to a server that are kept idle.
const IDLE_MAX: usize = 256;

/// Fields that are about one connection (RFC 9113 section 8.2.2).
const HOP_BY_HOP: [&str; 3] = ["keep-alive", "proxy-connection", "proxy-authenticate"];

/// Requests to the server of this node, over connections that are kept.
pub(super) type Forwarder = Client<Connector, Incoming>;

/// A forwarder to this server, over connections that begin with `greeting`.
pub(super) fn forwarder(address: ServerAddress, greeting: Vec<u8>) -> Forwarder {
    forwarder_to(Destination { address, otherwise: None, greeting })
}

fn forwarder_to(destination: Destination) -> Forwarder {
    let connector = Connector(Arc::new(destination));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_MAX)
        .http1_max_buf_size(READ_BUFFER)
        .build(connector)
}

/// Forwarders to single other nodes of the service, by their address.
#[derive(Default)]
pub(super) struct SingleNodes(Mutex<HashMap<SocketAddr, Forwarder>>);

impl SingleNodes {
    fn forwarder(&self, peer: &Peer, service: &Service, shared: &Shared) -> Forwarder {
        let mut forwarders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let forwarder = || forwarder_to(Destination::peer(peer, service, shared, Vec::new()));
        forwarders.entry(peer.address).or_insert_with(forwarder).clone()
    }
}

/// The server that answers a request.
enum Target<'a> {
    /// The server of this node.
    Own,
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
}

impl From<StatusCode> for Instead {
    fn from(status: StatusCode) -> Self {
        Instead::Error(status)
    }
}

/// Serves streams until the connection ends.
pub(super) async fn serve(
    client: TlsStream,
    service: Arc<Service>,
    shared: Arc<Shared>,
) -> Result<(), StreamError> {
    let (from, vip) = (client.client, client.vip);
    let lines = Arc::new(Lines::new(&client, &service, &shared.log));
    let requests = Arc::new(AtomicUsize::new(0));
    let (asked, connection) = (Arc::clone(&requests), Arc::clone(&lines));
    // What a connection to the server begins with names one client, so no other one may use it.
    let is_named = service.client_address == ClientAddress::Proxy;
    let greeting = move || proxy_header(from, vip);
    let own = match is_named {
        true => forwarder(service.servers.address().clone(), greeting()),
        false => service.forwarder.clone(),
    };
    let streams = Streams::new(&shared.budgets, &service.name, from.ip(), service.limits.tls);
    let window = shared.budgets.receive_window(from.ip());
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_send_buf_size(SEND_BUFFER)
        .initial_connection_window_size(window)
        .initial_stream_window_size(window)
        .max_concurrent_streams(service.limits.tls.streams_per_connection);
    let answer = service_fn(move |request| {
        let (service, shared, own) = (Arc::clone(&service), Arc::clone(&shared), own.clone());
        let stream = streams.begin();
        asked.fetch_add(1, Ordering::Relaxed);
        let mut entry = connection.request(Protocol::Http2, &[]);
        async move {
            let Some(stream) = stream else {
                service.counters.streams_refused.add(1);
                entry.forget();
                return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
            };
            service.counters.requests.add(1);
            let is_head = request.method() == Method::HEAD;
            let response = match prepare(request, &service, &shared, (from, vip), &mut entry) {
                Ok((request, target)) => {
                    let forwarder = match &target {
                        Target::Own => own,
                        Target::Pool(others) if is_named => {
                            forwarder(others.servers.address().clone(), greeting())
                        }
                        Target::Pool(others) => others.forwarder.clone(),
                        Target::Peer(peer) if is_named => {
                            forwarder_to(Destination::peer(peer, &service, &shared, greeting()))
                        }
                        Target::Peer(peer) => service.single.forwarder(peer, &service, &shared),
                    };
                    let _given = match target {
                        Target::Peer(peer) => Some(shared.loads.give(peer.address)),
                        _ => None,
                    };
                    entry.answer.begin(&service.node);
                    forwarder.request(request).await.map_err(|_| Instead::Error(StatusCode::BAD_GATEWAY))
                }
                Err(status) => Err(status),
            };
            let response = match response {
                Ok(response) => {
                    service.counters.responses.add(1);
                    if let Some(OtherNode(node)) = response.extensions().get() {
                        entry.answer.set_node(node);
                    }
                    entry.answer.has_status(response.status().as_u16());
                    finish(response)
                }
                Err(instead) => {
                    let response = match instead {
                        Instead::Redirect(status, location) => redirection(status, &location),
                        Instead::Error(status) => {
                            service.counters.refused.add(1);
                            error(status, is_head)
                        }
                    };
                    entry.is_answered(response.status().as_u16());
                    response.map(Either::Right)
                }
            };
            Ok(response.map(|inner| Body { inner, entry, _stream: stream }))
        }
    });
    let served = builder.serve_connection(TokioIo::new(client), answer).await;
    if requests.load(Ordering::Relaxed) == 0 {
        lines.without_request(None);
    }
    served.map_err(|error| StreamError::Io(io::Error::other(error)))
}

/// The request as the server gets it, and whose server that is.
fn prepare<'a>(
    request: Request<Incoming>,
    service: &'a Service,
    shared: &Shared,
    flow: Addresses,
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
    let (fields, target) = target(&text, service, shared, flow)?;
    // The connector goes to one place whatever the authority is, but connections are kept by it.
    let uri = Uri::builder().scheme("http").authority("server").path_and_query(path).build();
    parts.uri = uri.map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
    parts.version = Version::HTTP_11;
    let replaced: Vec<HeaderName> =
        parts.headers.keys().filter(|name| service.client_address.replaces(name.as_str())).cloned().collect();
    replaced.iter().for_each(|name| drop(parts.headers.remove(name)));
    for (name, value) in fields {
        let value = HeaderValue::from_str(&value).map_err(|_| Instead::Error(StatusCode::BAD_REQUEST))?;
        parts
            .headers
            .insert(HeaderName::from_bytes(name.as_bytes()).expect("names of ours are names"), value);
    }
    join_cookies(&mut parts.headers);
    Ok((Request::from_parts(parts, body), target))
}

/// Fields that say who the client is, and whose server gets the request. It is read as strictly as any other
/// one, and goes by the same routes. Streams share the numbers of their connection's records, so a request
/// for another pool, or for a node that has less to do, goes there, and the connection stays.
fn target<'a>(
    text: &[u8],
    service: &'a Service,
    shared: &Shared,
    (client, vip): Addresses,
) -> Result<(Fields, Target<'a>), Instead> {
    let head = match parse_head(text, &service.limits.http) {
        Ok(Progress::Complete(head)) => head,
        Ok(Progress::Partial) => return Err(StatusCode::BAD_REQUEST.into()),
        Err(reject) => return Err(refused(reject)),
    };
    let target = match service.way(&head, Protocol::Http2) {
        Way::Here(others) => match shared.loads.lighter(service.busy, others).into_iter().next() {
            Some(peer) => Target::Peer(peer),
            None => Target::Own,
        },
        Way::Elsewhere(others) => Target::Pool(others),
        Way::Redirect(redirect) => {
            let location = location(redirect, Scheme::Https, &head, vip);
            return Err(Instead::Redirect(redirect.status, location));
        }
        Way::Nowhere => return Err(StatusCode::NOT_FOUND.into()),
        Way::Refused(reject) => return Err(refused(reject)),
    };
    if !matches!(target, Target::Own) {
        debug!("service {}: a request of {client} is forwarded", service.name);
        service.counters.forwarded.add(1);
    }
    Ok((service.client_address.fields(client, vip, head.host.unwrap_or_default()), target))
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

/// Destination of connections, whatever the URI.
struct Destination {
    address: ServerAddress,
    /// Destination if the first one cannot be reached.
    otherwise: Option<ServerAddress>,
    greeting: Vec<u8>,
}

impl Destination {
    /// The server of this other node, or the own one if that cannot be reached.
    fn peer(peer: &Peer, service: &Service, shared: &Shared, greeting: Vec<u8>) -> Self {
        let address = ServerAddress::Peers(Arc::new(PeersOf {
            peers: Arc::clone(&shared.peers),
            service: service.name.to_string(),
            nodes: vec![peer.clone()],
            turn: AtomicUsize::new(0),
        }));
        Destination { address, otherwise: Some(service.servers.address().clone()), greeting }
    }

    /// A connection, and whether it goes to the first destination.
    async fn connect(&self) -> io::Result<(Box<dyn server::Stream>, bool)> {
        match (self.address.connect().await, &self.otherwise) {
            (Ok(stream), _) => Ok((stream, true)),
            (Err(_), Some(otherwise)) => Ok((otherwise.connect().await?, false)),
            (Err(error), None) => Err(error),
        }
    }
}

/// Makes connections to a destination.
#[derive(Clone)]
pub(super) struct Connector(Arc<Destination>);

/// Name of the other node that a connection goes to; an extension of responses.
#[derive(Clone)]
struct OtherNode(Arc<str>);

/// A connection to a server.
pub(super) struct ToServer {
    stream: TokioIo<Box<dyn server::Stream>>,
    is_meant: bool,
}

impl tower_service::Service<Uri> for Connector {
    type Response = ToServer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<ToServer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let destination = Arc::clone(&self.0);
        Box::pin(async move {
            let (mut stream, is_meant) = destination.connect().await?;
            stream.write_all(&destination.greeting).await?;
            Ok(ToServer { stream: TokioIo::new(stream), is_meant })
        })
    }
}

impl Connection for ToServer {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if !self.is_meant {
            // Only this request goes there.
            connected.poison();
        }
        match self.stream.inner().node() {
            Some(node) => connected.extra(OtherNode(Arc::clone(node))),
            None => connected,
        }
    }
}

impl hyper::rt::Read for ToServer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for ToServer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
