//! Servers that speak HTTP/2, for clients that speak HTTP/1.1: each connection that an exchange makes ends here, and each request
//! on it is a stream to the server.
//!
//! An exchange does not know the difference. A server that cannot be reached, or resets the stream, is one that has closed the
//! connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use http::header::{CONNECTION, EXPECT, HOST, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{Either, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::oneshot;

use super::call::{CallError, ResponseBody, call, uri_at};
use super::frames::{Source, Taken};
use super::multiplexed::Multiplexed;

/// Bytes in each direction between an exchange and the bridge.
const BUFFER: usize = 16 << 10;
/// Fields of a request beside those of the client: what servers are told of it.
const FIELDS: usize = 16;

/// Servers that take each other's requests.
pub(super) struct Bridge {
    servers: Vec<Arc<Multiplexed>>,
    /// Index of the next server in rotation.
    turn: AtomicUsize,
    /// Most header fields of a client's request.
    fields: usize,
}

impl Bridge {
    pub(super) fn new(servers: Vec<Arc<Multiplexed>>, fields: usize) -> Self {
        Bridge { servers, turn: AtomicUsize::new(0), fields }
    }

    /// A connection in HTTP/1.1 to a server that can be reached, and the node of that. With a `greeting` the server gets a
    /// connection of its own, which begins with it.
    pub(super) async fn connect(&self, greeting: &[u8]) -> io::Result<(DuplexStream, Arc<str>)> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for index in 0..self.servers.len() {
            let server = &self.servers[(start + index) % self.servers.len()];
            let server = match greeting {
                [] => Arc::clone(server),
                greeting => Arc::new(server.greeting(greeting)),
            };
            match server.lease().await {
                Ok(_) => {
                    let node = Arc::clone(server.node());
                    return Ok((serve(server, self.fields + FIELDS), node));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// One end of a connection, whose other end is served by this server.
fn serve(server: Arc<Multiplexed>, fields: usize) -> DuplexStream {
    let (near, far) = tokio::io::duplex(BUFFER);
    let service = service_fn(move |request| answer(Arc::clone(&server), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .max_headers(fields)
        .serve_connection(TokioIo::new(far), service);
    tokio::spawn(async move {
        // Errors are the exchange's to see.
        let _ = connection.await;
    });
    near
}

type Answer = Response<Either<Taken<Cancelling>, Empty<Bytes>>>;

/// The server's response; after an error the connection is closed.
async fn answer(server: Arc<Multiplexed>, request: Request<Incoming>) -> Result<Answer, Unanswered> {
    let (mut parts, body) = request.into_parts();
    if parts.method == Method::CONNECT {
        let mut response = Response::new(Either::Right(Empty::new()));
        *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
        return Ok(response);
    }
    let host = parts.headers.remove(HOST);
    let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    let authority = authority.or_else(|| host.and_then(|host| Some(host.to_str().ok()?.to_owned())));
    parts.uri = uri_at(authority.as_deref(), &parts).map_err(|_| Unanswered)?;
    parts.version = if authority.is_some() { Version::HTTP_2 } else { Version::HTTP_11 };
    remove_hop_by_hop(&mut parts.headers);
    let (cancel, cancelled) = oneshot::channel();
    let request = Request::from_parts(parts, ());
    let answered = call(&[server], &request, body, cancelled).await.map_err(Unanswered::from)?;
    let (head, body) = (answered.head, Cancelling { inner: answered.body, _cancel: cancel });
    let mut response = Response::new(Either::Left(Taken(body)));
    (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
    Ok(response)
}

/// Removes what is about the client's connection (RFC 9110 section 7.6.1), and `Expect`, which is met here.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        values.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned()).collect();
    let has_te = headers.get_all(TE).iter().filter_map(|value| value.to_str().ok());
    let takes_trailers = has_te
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("trailers"));
    let always = [CONNECTION, EXPECT, TE, TRANSFER_ENCODING, UPGRADE];
    let others = ["keep-alive", "proxy-connection", "http2-settings"].map(HeaderName::from_static);
    always.iter().chain(&others).for_each(|name| drop(headers.remove(name)));
    named.iter().for_each(|name| drop(headers.remove(name)));
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The body of a response, with the end of which its request is over.
struct Cancelling {
    inner: ResponseBody,
    _cancel: oneshot::Sender<Reason>,
}

impl Body for Cancelling {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Source for Cancelling {
    const AHEAD: usize = ResponseBody::AHEAD;

    fn release(&mut self, len: usize) {
        self.inner.release(len);
    }
}

/// No response has come.
#[derive(Debug)]
struct Unanswered;

impl From<CallError> for Unanswered {
    fn from(_: CallError) -> Self {
        Unanswered
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server has not answered")
    }
}

impl std::error::Error for Unanswered {}
