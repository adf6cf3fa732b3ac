//! Bodies in HTTP/2: what a stream brings, and what goes into one.
//!
//! Neither side of a request waits for more of it than a frame. The sender's window opens as its receiver takes what was sent, so
//! the windows bound what is held here. It is held as bytes, not as frames: those of many short messages would take many
//! times as much memory, and h2 ends a connection on which too many of them wait.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::head::Told;

/// An error of a body, as hyper has it.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a stream that wait in h2 for the receiver's window.
pub(super) const SEND_BUFFER: usize = 16 << 10;

/// A body that goes into a stream.
pub(super) trait Source: Body<Data = Bytes> + Unpin {
    /// Bytes that may be taken ahead of the receiver.
    const AHEAD: usize = SEND_BUFFER;

    /// The receiver has taken so many bytes, and the sender may send as many more.
    fn release(&mut self, _len: usize) {}
}

/// hyper reads on when a part is taken.
impl Source for Incoming {}

/// What a stream of HTTP/2 brings behind its head.
pub(super) struct StreamBody {
    stream: RecvStream,
    next: Next,
    from: From,
}

/// What comes next in a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Data,
    Trailers,
    Nothing,
}

/// Who sends a body.
#[derive(Clone, Copy)]
enum From {
    Client {
        /// `Content-Length`, which h2 has compared with what came before the body's end.
        length: Option<u64>,
        /// What is removed from the trailer section.
        told: Told,
    },
    Server,
}

impl StreamBody {
    /// The body of a client's request with these header fields.
    pub(super) fn of_request(stream: RecvStream, headers: &HeaderMap, told: Told) -> Self {
        let length = headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse().ok());
        StreamBody { stream, next: Next::Data, from: From::Client { length, told } }
    }

    /// The body of a server's response.
    pub(super) fn of_response(stream: RecvStream) -> Self {
        StreamBody { stream, next: Next::Data, from: From::Server }
    }

    /// Whether a reset is the end of a complete body: a server's that has answered, and wants no more of the request
    /// (RFC 9113 section 8.1).
    fn is_complete(&self, error: &h2::Error) -> bool {
        matches!(self.from, From::Server) && error.is_reset() && error.reason() == Some(Reason::NO_ERROR)
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        loop {
            match self.next {
                Next::Data => match ready!(self.stream.poll_data(cx)) {
                    Some(Ok(data)) if data.is_empty() => {}
                    Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Some(Err(error)) if self.is_complete(&error) => self.next = Next::Nothing,
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => self.next = Next::Trailers,
                },
                Next::Trailers => {
                    let trailers = ready!(self.stream.poll_trailers(cx));
                    self.next = Next::Nothing;
                    let Some(mut trailers) = trailers? else { continue };
                    if let From::Client { told, .. } = self.from {
                        told.remove_from(&mut trailers);
                    }
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Next::Nothing => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next == Next::Nothing || self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.from {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            From::Client { length: Some(length), .. } => SizeHint::with_exact(length),
            _ => SizeHint::default(),
        }
    }
}

/// The sender's window bounds it.
impl Source for StreamBody {
    const AHEAD: usize = usize::MAX;

    fn release(&mut self, len: usize) {
        // The stream may have ended meanwhile.
        let _ = self.stream.flow_control().release_capacity(len);
    }
}

/// A body for hyper, which has taken what it polls for.
pub(super) struct Taken<B>(pub(super) B);

impl<B: Source> Body for Taken<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let len = frame.data_ref().map_or(0, Bytes::len);
            self.0.release(len);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A body on its way into a stream, whose head has been sent.
pub(super) struct Sending {
    stream: SendStream<Bytes>,
    /// What waits for room in the receiver's window.
    waiting: BytesMut,
    /// What follows it, when that is known.
    end: Option<End>,
}

/// The end of a body.
enum End {
    Data,
    Trailers(HeaderMap),
}

/// Why a body has not been sent to its end.
pub(super) enum Broken<E> {
    /// The receiver has reset the stream; without a reason its connection is lost.
    Receiver(Option<Reason>),
    /// The body is broken.
    Body(E),
}

/// The stream cannot take any more.
impl<E> std::convert::From<h2::Error> for Broken<E> {
    fn from(_: h2::Error) -> Self {
        Broken::Receiver(None)
    }
}

impl Sending {
    pub(super) fn new(stream: SendStream<Bytes>) -> Self {
        Sending { stream, waiting: BytesMut::new(), end: None }
    }

    /// Resets the stream.
    pub(super) fn reset(&mut self, reason: Reason) {
        self.stream.send_reset(reason);
    }

    /// Ends the stream with these trailers. What waits for room is lost.
    pub(super) fn end(&mut self, trailers: HeaderMap) {
        // The receiver may have gone.
        let _ = self.stream.send_trailers(trailers);
    }

    /// Sends the rest of the body, as far as the receiver's window allows.
    pub(super) fn poll_send<B: Source>(
        &mut self,
        body: &mut B,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken<B::Error>>> {
        if let Poll::Ready(reason) = self.stream.poll_reset(cx) {
            return Poll::Ready(Err(Broken::Receiver(reason.ok())));
        }
        loop {
            if self.poll_take(body, cx)? {
                return Poll::Ready(Ok(()));
            }
            if self.waiting.is_empty() {
                return match self.end.take() {
                    None => Poll::Pending,
                    Some(End::Data) => Poll::Ready(Ok(self.stream.send_data(Bytes::new(), true)?)),
                    Some(End::Trailers(trailers)) => Poll::Ready(Ok(self.stream.send_trailers(trailers)?)),
                };
            }
            let room = ready!(self.poll_room(cx))?;
            let data = self.waiting.split_to(room.min(self.waiting.len())).freeze();
            let (len, is_last) = (data.len(), self.waiting.is_empty() && matches!(self.end, Some(End::Data)));
            self.stream.send_data(data, is_last)?;
            body.release(len);
            if is_last {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes what has come of the body; true if all of it has been sent.
    fn poll_take<B: Source>(&mut self, body: &mut B, cx: &mut Context<'_>) -> Result<bool, Broken<B::Error>> {
        while self.end.is_none() && self.waiting.len() < B::AHEAD {
            let Poll::Ready(next) = Pin::new(&mut *body).poll_frame(cx) else { break };
            let Some(frame) = next else {
                self.end = Some(End::Data);
                break;
            };
            match frame.map_err(Broken::Body)?.into_data() {
                Ok(data) => {
                    let is_last = body.is_end_stream();
                    if self.waiting.is_empty() && self.poll_room(cx).is_ready() {
                        let len = data.len();
                        self.stream.send_data(data, is_last)?;
                        body.release(len);
                        if is_last {
                            return Ok(true);
                        }
                    } else {
                        self.waiting.extend_from_slice(&data);
                        self.end = is_last.then_some(End::Data);
                    }
                }
                Err(frame) => self.end = frame.into_trailers().ok().map(End::Trailers),
            }
        }
        Ok(false)
    }

    /// Waits for room in the receiver's window, for what is at hand. A byte is enough to be asked for: it is the start of a frame,
    /// and h2 counts all of that.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, h2::Error>> {
        self.stream.reserve_capacity(self.waiting.len().clamp(1, SEND_BUFFER));
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(Reason::STREAM_CLOSED.into())),
            }
        }
        Poll::Ready(Ok(self.stream.capacity()))
    }
}

#[cfg(test)]
mod tests;
