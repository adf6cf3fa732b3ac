//! One request and its response, between a client and a server.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use switchback_config::ClientAddress;
use switchback_http::framing::{self, Followed, Framing};
use switchback_http::{Body, Head, Version};
use switchback_resume::Pipe;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::{Client, StreamError};
use super::counters::Counters;
use super::flow::Addresses;
use super::head::{Requester, ResponseBody, ResponseHead, Told, forwarded, response_head};
use super::idle::Stream;
use super::local::Upstream;
use super::log::Answer;
use super::server::Servers;
use super::services::Service;
use super::trailers::Trailers;
use crate::Outcome;

/// Bytes held for a server that does not read.
const UNREAD_MAX: usize = 64 << 10;
/// Bytes read from a server at once: four records.
const READ: usize = 64 << 10;
/// Bytes of TLS itself that are held for a client until the response begins.
const HELD_MAX: usize = 4 << 10;
/// Bytes that a part of a response has at least that is spliced.
const SPLICED_FROM: u64 = 256 << 10;
/// The longest head of a response.
const RESPONSE_HEAD_MAX: usize = 64 << 10;
/// Time for which client and server may both be silent in the middle of a request.
pub(super) const STALLED: Duration = Duration::from_secs(300);

/// Why a request has no complete response.
pub(super) enum Failure {
    Client(StreamError),
    /// `begun`: the client has got a part of it.
    Server {
        begun: bool,
        status: u16,
    },
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        Failure::Client(error)
    }
}

/// A request as the server gets it; its body may still be to come.
pub(super) struct ServerRequest {
    /// The head.
    pub(super) text: Vec<u8>,
    /// Addresses of the client and the VIP.
    flow: Addresses,
    pub(super) body: RequestBody,
    /// Whether the method is HEAD, and the client's version.
    to_head: (bool, Version),
    /// The client lets the connection stay open.
    pub(super) keep_alive: bool,
    /// [`Head::is_repeatable`]
    pub(super) may_repeat: bool,
}

impl ServerRequest {
    /// A request with this head, of which its route has made `text`.
    pub(super) fn new(text: &[u8], head: &Head<'_>, service: &Service, client: Requester<'_>) -> Self {
        ServerRequest {
            text: forwarded(text, head, service.told, client),
            flow: client.flow,
            body: RequestBody(Some(head.body.framing(&service.limits.http))),
            to_head: (head.method == "HEAD", head.version),
            keep_alive: head.keep_alive,
            may_repeat: head.is_repeatable(),
        }
    }
}

/// The end of a request's body in the client's data.
#[derive(Clone, Copy)]
pub(super) struct RequestBody(pub(super) Option<Framing>);

impl RequestBody {
    /// Length of the part of `data` that belongs to the body; an error if that is malformed.
    pub(super) fn next(&mut self, data: &[u8]) -> Result<usize, ()> {
        match &mut self.0 {
            None => Ok(data.len()),
            Some(framing) if framing.is_between_messages() => Ok(0),
            Some(framing) => match framing::requests().follow(framing, data, false) {
                Followed::More => Ok(data.len()),
                Followed::Ends(len) => Ok(len),
                Followed::Rejected(..) | Followed::Lost => Err(()),
            },
        }
    }

    /// Whether the body is complete.
    pub(super) fn is_whole(&self) -> bool {
        self.0.is_some_and(|framing| framing.is_between_messages())
    }

    /// Whether it ends with the connection.
    fn is_tunnel(&self) -> bool {
        self.0.is_none()
    }
}

/// A transfer between a client and a server or node, in steps.
pub(super) trait Steps {
    /// Moves data; true at the end, false if some has been moved.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Failure>>;

    /// The failure of a transfer that stalls; its status is for a client that has got nothing.
    fn failed(&self, status: u16) -> Failure;

    /// Does all steps. An error if none can be done for [`STALLED`].
    async fn run(&mut self) -> Result<(), Failure> {
        loop {
            let step = std::future::poll_fn(|cx| self.poll(cx));
            match timeout(STALLED, step).await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => {}
                Ok(Err(failure)) => return Err(failure),
                Err(_) => return Err(self.failed(504)),
            }
        }
    }
}

/// A connection that is kept for the next request of its client, and the servers that it is to.
pub(super) type Kept = Option<(Arc<Servers>, Box<dyn Stream>)>;

/// Takes a request, whose head the client does not have any more, to the first of these servers that can be reached, and the
/// response back; true if another request may follow.
pub(super) async fn exchange(
    client: &mut impl Client,
    service: &Service,
    upstreams: &[Upstream<'_>],
    asked: &ServerRequest,
    kept: &mut Kept,
    answer: &mut Answer,
) -> Result<bool, Failure> {
    // What has been used before may be closed by the server just now: then a request that can be is made
    // again.
    let (mut is_again, mut unreachable) = (false, 0);
    loop {
        let upstream = upstreams.get(unreachable).ok_or(Failure::Server { begun: false, status: 502 })?;
        if !is_again {
            answer.begin(upstream.node);
            service.counters.forwarded.add(upstream.member.is_none().into());
        }
        let connected = server_for(asked.flow, service, upstream.servers, kept, is_again).await;
        let Ok((stream, was_used)) = connected else {
            upstream.note(Outcome::NoResponse);
            (is_again, unreachable) = (false, unreachable + 1);
            continue;
        };
        if let Some(node) = stream.node() {
            answer.set_node(node);
        }
        let mut running = Exchange::new(client, service, asked, stream, answer);
        let result = running.run().await.map(|()| running.again());
        let (stream, nothing_came) = (running.server, running.nothing_came);
        if let Err(Failure::Server { .. }) = result
            && was_used
            && nothing_came
            && asked.may_repeat
            && !is_again
        {
            is_again = true;
            continue;
        }
        note(upstream, asked, answer, &result);
        let Some(response) = result? else { return Ok(false) };
        if response.keep_alive {
            match service.told.address {
                ClientAddress::Proxy => *kept = Some((Arc::clone(upstream.servers), stream)),
                _ => upstream.servers.put_back(stream),
            }
        }
        return Ok(response.keep_alive && asked.keep_alive);
    }
}

/// Notes how an exchange with a server has ended.
fn note<T>(upstream: &Upstream<'_>, asked: &ServerRequest, answer: &Answer, result: &Result<T, Failure>) {
    match (answer.status(), result) {
        (Some(status), _) => upstream.note(Outcome::Status(status)),
        // A server may wait for the rest of a body in vain.
        (None, Err(Failure::Server { .. })) if asked.body.is_whole() => upstream.note(Outcome::NoResponse),
        (None, _) => {}
    }
}

/// A connection to the server, and whether it has been used before.
async fn server_for(
    flow: Addresses,
    service: &Service,
    servers: &Arc<Servers>,
    kept: &mut Kept,
    is_again: bool,
) -> io::Result<(Box<dyn Stream>, bool)> {
    if service.told.address != ClientAddress::Proxy && !is_again {
        return servers.take().await;
    }
    let is_to_these = |kept: &(Arc<Servers>, _)| Arc::ptr_eq(&kept.0, servers);
    if let Some((_, stream)) = kept.take().filter(|kept| !is_again && is_to_these(kept)) {
        return Ok((stream, true));
    }
    Ok((servers.connect(&service.told.greeting(flow).unwrap_or_default()).await?, false))
}

/// The part of the response that is still to come.
#[derive(Clone, Copy)]
enum Rest {
    Head,
    Body(Framing),
    UntilEnd,
    Tunnel,
    Over,
}

/// One request and its response.
struct Exchange<'a, C> {
    client: &'a mut C,
    server: Box<dyn Stream>,
    request: RequestBody,
    trailers: Trailers,
    told: Told,
    to_head: (bool, Version),
    /// Bytes for the server, of which `written` have been sent.
    to_server: Vec<u8>,
    written: usize,
    rest: Rest,
    /// Bytes of the server that are part of a head, or behind the response.
    from_server: Vec<u8>,
    response: Option<ResponseHead>,
    /// What the kernel moves data of the response through.
    pipe: Option<Pipe>,
    nothing_came: bool,
    /// Whether the client has got a part of the response.
    begun: bool,
    server_ended: bool,
    /// Whether the server's connection ended with an error.
    server_broke_off: bool,
    client_ended: bool,
    server_told: bool,
    /// The client lets the connection stay open.
    keep_alive: bool,
    counters: &'a Counters,
    answer: &'a mut Answer,
}

impl<C: Client> Steps for Exchange<'_, C> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Failure>> {
        let mut moved = self.take_request()?;
        moved |= self.client.fill(cx, &mut self.client_ended)?;
        moved |= self.poll_to_server(cx)?;
        moved |= self.poll_from_server(cx)?;
        if let Rest::Over = self.rest {
            let sent = match self.again().is_some() && self.keep_alive {
                true => self.client.poll_write_out(cx),
                false => self.client.poll_last(cx),
            };
            ready!(sent).map_err(StreamError::Io)?;
            return Poll::Ready(Ok(true));
        }
        // A session ticket or an answer to new keys goes out with the response, in one packet.
        if self.begun || self.client.unsent() >= HELD_MAX {
            moved |= self.client.write_out(cx)?;
        }
        if moved { Poll::Ready(Ok(false)) } else { Poll::Pending }
    }

    fn failed(&self, status: u16) -> Failure {
        Failure::Server { begun: self.begun, status }
    }
}

impl<'a, C: Client> Exchange<'a, C> {
    fn new(
        client: &'a mut C,
        service: &'a Service,
        asked: &ServerRequest,
        server: Box<dyn Stream>,
        answer: &'a mut Answer,
    ) -> Self {
        Exchange {
            client,
            server,
            request: asked.body,
            trailers: Trailers::default(),
            told: service.told,
            to_head: asked.to_head,
            to_server: asked.text.clone(),
            written: 0,
            rest: Rest::Head,
            from_server: Vec::new(),
            response: None,
            pipe: None,
            nothing_came: true,
            begun: false,
            server_ended: false,
            server_broke_off: false,
            client_ended: false,
            server_told: false,
            keep_alive: asked.keep_alive,
            counters: &service.counters,
            answer,
        }
    }

    /// At the end, the response's head if the connection to the server can be used again.
    fn again(&self) -> Option<ResponseHead> {
        let is_whole = self.request.is_whole() && self.from_server.is_empty() && !self.server_ended;
        self.response.filter(|response| response.keep_alive && is_whole)
    }

    /// Takes the request's data from the client, for the server.
    fn take_request(&mut self) -> Result<bool, Failure> {
        let data = self.client.data();
        let is_cut_off = self.client_ended && !self.request.is_whole() && !self.request.is_tunnel();
        if data.is_empty() && is_cut_off {
            // The rest of the request will not come.
            return Err(StreamError::Tls(crate::Error::Truncated).into());
        }
        if data.is_empty() || self.to_server.len() - self.written >= UNREAD_MAX {
            return Ok(false);
        }
        let passed = self.trailers.pass(&mut self.request, data, self.told, &mut self.to_server);
        let Ok(len) = passed else { return Err(self.failed(400)) };
        self.client.consume(len)?;
        Ok(len > 0)
    }

    fn poll_to_server(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        while self.written < self.to_server.len() {
            match Pin::new(&mut self.server).poll_write(cx, &self.to_server[self.written..]) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(len)) => self.written += len,
                // It may have answered before it had read all (RFC 9112 section 9.6).
                Poll::Ready(Err(_)) => self.written = self.to_server.len(),
            }
            moved = true;
        }
        self.to_server.clear();
        self.written = 0;
        if self.client_ended && self.request.is_tunnel() && !self.server_told {
            self.server_told = Pin::new(&mut self.server).poll_shutdown(cx).is_ready();
        }
        Ok(moved)
    }

    /// Moves data of the response within the kernel, if that encrypts for the client; None if the server is to be read.
    fn poll_splice(&mut self, cx: &mut Context<'_>) -> Option<Result<bool, Failure>> {
        let Exchange { client, server, rest: Rest::Body(framing), pipe, .. } = self else { return None };
        let is_long = framing.is_in_data() && framing.left() > SPLICED_FROM;
        let takes = is_long && self.from_server.is_empty() && client.can_splice();
        let holds = pipe.as_ref().is_some_and(|pipe| pipe.holds() > 0);
        if !takes && !holds {
            return None;
        }
        let socket = server.tcp()?;
        if client.unsent() > 0 {
            return Some(Ok(false));
        }
        let pipe = match pipe {
            Some(pipe) => pipe,
            // Without room for more descriptors, data is copied.
            None => {
                let new = Pipe::new().ok()?;
                self.counters.spliced.add(1);
                pipe.insert(new)
            }
        };
        let mut moved = false;
        if !holds {
            // What is left then is read, so that its end is.
            let most = usize::try_from(framing.left() - 1).unwrap_or(usize::MAX);
            match poll_take(cx, socket, pipe, most) {
                Poll::Pending => return Some(Ok(false)),
                Poll::Ready(Ok(len)) if len > 0 => {
                    framing.skip(len as u64);
                    self.answer.sent(len, false);
                    moved = true;
                }
                Poll::Ready(_) => return Some(Err(self.failed(502))),
            }
        }
        match client.poll_splice(cx, pipe) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => moved = true,
            Poll::Ready(Err(error)) => return Some(Err(StreamError::Io(error).into())),
        }
        Some(Ok(moved))
    }

    /// Reads from the server, and takes what comes for the client.
    fn poll_from_server(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if let Some(spliced) = self.poll_splice(cx) {
            return spliced;
        }
        let has_surplus = matches!(self.rest, Rest::Over) && !self.from_server.is_empty();
        if self.server_ended || self.client.is_full() || has_surplus {
            return Ok(false);
        }
        let mut storage = [MaybeUninit::uninit(); READ];
        let mut buffer = ReadBuf::uninit(&mut storage);
        let Poll::Ready(result) = Pin::new(&mut self.server).poll_read(cx, &mut buffer) else {
            return Ok(false);
        };
        self.server_broke_off = result.is_err();
        let read = buffer.filled();
        self.server_ended = read.is_empty();
        self.nothing_came &= read.is_empty();
        if self.from_server.is_empty() {
            let taken = self.take_response(read)?;
            self.from_server.extend_from_slice(&read[taken..]);
        } else {
            self.from_server.extend_from_slice(read);
            let data = std::mem::take(&mut self.from_server);
            let taken = self.take_response(&data)?;
            self.from_server.extend_from_slice(&data[taken..]);
        }
        Ok(true)
    }

    /// Takes the response's bytes from those of the server, for the client, and returns their number.
    fn take_response(&mut self, data: &[u8]) -> Result<usize, Failure> {
        let mut taken = 0;
        loop {
            let data = &data[taken..];
            let in_head = matches!(self.rest, Rest::Head);
            let len = match &mut self.rest {
                Rest::Over => return Ok(taken),
                Rest::Head => {
                    let head = response_head(data, self.to_head);
                    let head = head.map_err(|_| self.failed(502))?;
                    let Some(head) = head else {
                        if self.server_ended || data.len() > RESPONSE_HEAD_MAX {
                            return Err(self.failed(502));
                        }
                        return Ok(taken);
                    };
                    self.enter_body(head, &data[..head.len]);
                    head.len
                }
                Rest::Body(framing) => match framing::responses().follow(framing, data, false) {
                    Followed::More if self.server_ended && data.is_empty() => {
                        return Err(self.failed(502));
                    }
                    Followed::More => data.len(),
                    Followed::Ends(len) => {
                        self.rest = Rest::Over;
                        len
                    }
                    Followed::Rejected(..) | Followed::Lost => return Err(self.failed(502)),
                },
                Rest::UntilEnd | Rest::Tunnel => {
                    if self.server_ended && data.is_empty() {
                        if self.server_broke_off {
                            return Err(self.failed(502));
                        }
                        self.rest = Rest::Over;
                    }
                    data.len()
                }
            };
            if len == 0 && !matches!(self.rest, Rest::Over) {
                return Ok(taken);
            }
            self.client.send(&data[..len])?;
            self.answer.sent(len, in_head);
            self.begun |= len > 0;
            taken += len;
        }
    }

    fn enter_body(&mut self, head: ResponseHead, text: &[u8]) {
        self.rest = match head.body {
            ResponseBody::Interim => return,
            ResponseBody::Length(0) => Rest::Over,
            ResponseBody::Length(len) => Rest::Body(Body::Length(len).framing(&ANY)),
            ResponseBody::Chunked => Rest::Body(Body::Chunked.framing(&ANY)),
            ResponseBody::UntilEnd => Rest::UntilEnd,
            ResponseBody::Tunnel => {
                self.request = RequestBody(None);
                Rest::Tunnel
            }
        };
        self.counters.responses.add(1);
        self.client.begins(&head, text);
        self.answer.has_status(head.status);
        self.response = Some(head);
    }
}

/// Waits until the server's socket has data for an empty pipe; 0 at its end.
fn poll_take(
    cx: &mut Context<'_>,
    socket: &TcpStream,
    pipe: &mut Pipe,
    most: usize,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(socket.poll_read_ready(cx))?;
        match socket.try_io(Interest::READABLE, || pipe.take(socket.as_fd(), most)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            taken => return Poll::Ready(taken),
        }
    }
}

/// Responses may be of any length.
const ANY: switchback_http::Limits =
    switchback_http::Limits { head_len: RESPONSE_HEAD_MAX, fields: 0, body_len: u64::MAX };
