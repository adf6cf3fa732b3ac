//! A request to a server that speaks HTTP/2, and its response.
//!
//! Both bodies flow independently: the request's is a task of its own from the response's head on. Only what no server has
//! processed is sent once more: a stream that was refused (REFUSED_STREAM), or that is above the last one of a GOAWAY (RFC 9113
//! section 8.7). For that the beginning of the body is kept until the response begins.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use http::response::Parts;
use http::{HeaderMap, Request, Uri, request};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use super::frames::{BodyError, Broken, Sending, Source, StreamBody};
use super::multiplexed::{Lease, Multiplexed};

/// How often a request is sent at most.
const TRIES: usize = 3;
/// Bytes of a body that are kept for another try.
const KEPT_MAX: usize = 64 << 10;

/// Why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// No server can be reached.
    Unreachable,
    /// No server has processed the request, but it cannot be sent once more.
    Unprocessed,
    /// The server, or the sender of the request, has reset the stream.
    Reset(Reason),
    /// The connection to the server is lost; nobody knows what has become of the request.
    Lost,
}

/// A response, whose body is still to come.
pub(super) struct Answered {
    pub(super) head: Parts,
    pub(super) body: ResponseBody,
}

/// The body of a response. When it is dropped before its end, the server's stream is reset.
pub(super) struct ResponseBody {
    inner: StreamBody,
    lease: Arc<Lease>,
}

impl ResponseBody {
    /// Node of the server.
    pub(super) fn node(&self) -> &Arc<str> {
        self.lease.node()
    }
}

impl Body for ResponseBody {
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

impl Source for ResponseBody {
    const AHEAD: usize = StreamBody::AHEAD;

    fn release(&mut self, len: usize) {
        self.inner.release(len);
    }
}

/// Sends a request to the first of these servers that can be reached; another try begins with the next one. `cancelled` says
/// that its sender has gone, and why; it ends when the response is over.
pub(super) async fn call<B>(
    servers: &[Arc<Multiplexed>],
    request: &Request<()>,
    body: B,
    mut cancelled: oneshot::Receiver<Reason>,
) -> Result<Answered, CallError>
where
    B: Source + Send + 'static,
    B::Error: Into<BodyError> + Send,
{
    let mut body = Kept::new(body);
    for first in 0..TRIES {
        let lease = tokio::select! {
            biased;
            Ok(reason) = &mut cancelled => return Err(CallError::Reset(reason)),
            lease = reach(servers, first) => lease.ok_or(CallError::Unreachable)?,
        };
        let mut lease = lease;
        // The connection may have ended since it was chosen.
        let Ok((mut response, stream)) = lease.send(request.clone(), body.is_end_stream()) else { continue };
        let lease = Arc::new(lease);
        let is_sent = body.is_end_stream();
        let mut upload = Upload {
            body,
            sending: Sending::new(stream),
            is_sent,
            cancelled: Some(cancelled),
            _lease: Arc::clone(&lease),
        };
        let mut is_over = false;
        let answered = std::future::poll_fn(|cx| {
            is_over = is_over || Pin::new(&mut upload).poll(cx).is_ready();
            Pin::new(&mut response).poll(cx)
        });
        let error = match answered.await {
            Ok(response) => {
                upload.body.forget();
                if !is_over {
                    tokio::spawn(upload);
                }
                let (head, stream) = response.into_parts();
                return Ok(Answered {
                    head,
                    body: ResponseBody { inner: StreamBody::of_response(stream), lease },
                });
            }
            Err(error) => error,
        };
        if !is_unprocessed(&error) {
            let reset = error.reason().filter(|_| error.is_reset() && !error.is_library());
            return Err(reset.map_or(CallError::Lost, CallError::Reset));
        }
        let Some(still) = upload.cancelled.filter(|_| upload.body.rewind()) else { break };
        (body, cancelled) = (upload.body, still);
    }
    Err(CallError::Unprocessed)
}

/// The URI of a request at this authority; its path only if it has none, as in HTTP/1.0.
pub(super) fn uri_at(authority: Option<&str>, parts: &request::Parts) -> Result<Uri, http::Error> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = match authority {
        Some(authority) => Uri::builder().scheme("http").authority(authority),
        None => Uri::builder(),
    };
    uri.path_and_query(path).build()
}

/// Room for a stream at one of these servers, beginning with the one at `first`.
async fn reach(servers: &[Arc<Multiplexed>], first: usize) -> Option<Lease> {
    for server in servers.iter().cycle().skip(first).take(servers.len()) {
        if let Ok(lease) = server.lease().await {
            return Some(lease);
        }
    }
    None
}

/// Whether the server says that it has done nothing with a request.
fn is_unprocessed(error: &h2::Error) -> bool {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (error.is_go_away() || is_refused)
}

/// A request's body on its way to a server, and then the watch over its stream until the response is over.
struct Upload<B> {
    body: Kept<B>,
    sending: Sending,
    is_sent: bool,
    /// None when the response is over.
    cancelled: Option<oneshot::Receiver<Reason>>,
    _lease: Arc<Lease>,
}

impl<B> Future for Upload<B>
where
    B: Source,
    B::Error: Into<BodyError>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some(cancelled) = &mut this.cancelled
            && let Poll::Ready(reason) = Pin::new(cancelled).poll(cx)
        {
            this.cancelled = None;
            if let Ok(reason) = reason {
                this.sending.reset(reason);
                return Poll::Ready(());
            }
        }
        if !this.is_sent {
            match this.sending.poll_send(&mut this.body, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => this.is_sent = true,
                Poll::Ready(Err(Broken::Receiver(_))) => return Poll::Ready(()),
                Poll::Ready(Err(Broken::Body(error))) => {
                    this.sending.reset(reason(&*error.into()).unwrap_or(Reason::CANCEL));
                    return Poll::Ready(());
                }
            }
        }
        if this.cancelled.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The code with which the sender of a body has reset its stream.
pub(super) fn reason(error: &(dyn std::error::Error + 'static)) -> Option<Reason> {
    error.downcast_ref::<h2::Error>().filter(|error| error.is_reset()).and_then(h2::Error::reason)
}

/// A body whose beginning can be sent again.
struct Kept<B> {
    body: B,
    is_over: bool,
    /// What has been taken; None if it is too much, or is not needed any more.
    taken: Option<Vec<Part>>,
    /// Bytes of it.
    len: usize,
    /// Number of its parts that have been taken since the beginning of this try.
    again: usize,
    /// Whether there will be no other try.
    is_last_try: bool,
    /// Bytes that have been taken and not released.
    held: usize,
}

#[derive(Clone)]
enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Part {
    fn frame(self) -> Frame<Bytes> {
        match self {
            Part::Data(data) => Frame::data(data),
            Part::Trailers(trailers) => Frame::trailers(trailers),
        }
    }
}

impl<B: Source> Kept<B> {
    fn new(body: B) -> Self {
        Kept { body, is_over: false, taken: Some(Vec::new()), len: 0, again: 0, is_last_try: false, held: 0 }
    }

    /// Goes back to the beginning; false if that is gone.
    fn rewind(&mut self) -> bool {
        self.again = 0;
        self.taken.is_some()
    }

    /// Keeps nothing any more but what is still to be taken again.
    fn forget(&mut self) {
        self.is_last_try = true;
    }

    fn keep(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let Some(taken) = &mut self.taken else { return frame };
        let part = match frame.into_data() {
            Ok(data) => Part::Data(data),
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => Part::Trailers(trailers),
                Err(frame) => return frame,
            },
        };
        if let Part::Data(data) = &part {
            self.len += data.len();
        }
        if self.len > KEPT_MAX || self.is_last_try {
            self.taken = None;
        } else {
            taken.push(part.clone());
            self.again = taken.len();
        }
        part.frame()
    }
}

impl<B: Source> Body for Kept<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let next = self.taken.as_ref().and_then(|taken| taken.get(self.again)).cloned();
        if let Some(part) = next {
            self.again += 1;
            return Poll::Ready(Some(Ok(part.frame())));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(cx).map(|next| match next {
            Some(Ok(frame)) => {
                self.held += frame.data_ref().map_or(0, Bytes::len);
                Some(Ok(self.keep(frame)))
            }
            Some(Err(error)) => Some(Err(error)),
            None => {
                self.is_over = true;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        let is_taken = self.taken.as_ref().is_none_or(|taken| self.again == taken.len());
        is_taken && (self.is_over || self.body.is_end_stream())
    }
}

/// What is sent once more has been released before, as far as it was sent then.
impl<B: Source> Source for Kept<B> {
    const AHEAD: usize = B::AHEAD;

    fn release(&mut self, len: usize) {
        let len = len.min(self.held);
        self.held -= len;
        self.body.release(len);
    }
}

#[cfg(test)]
mod tests;
