//! HTTP/1.1 over TLS: requests of a client, one after the other, to the server of this node.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use switchback_config::{Protocol, Redirect, Scheme};
use switchback_http::framing::{self, Followed};
use switchback_http::{Body, Head, Progress, Version, parse_head};
use switchback_routes::location;
use switchback_wire::{SB_FRAMING_CHUNK, sb_framing};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

use super::head::{
    ResponseBody, ResponseHead, error_response, forwarded, proxy_header, redirection, response_head,
};
use super::moving::{Peer, give_away};
use super::server::{Servers, Stream};
use super::stream::{StreamError, TlsStream, UNSENT_MAX};
use super::{ClientAddress, Elsewhere, Service, Shared};

/// What is held for a server that does not read.
const UNREAD_MAX: usize = 64 << 10;
/// What is read from a server at once.
const READ: usize = 16 << 10;
/// The longest head of a response.
const RESPONSE_HEAD_MAX: usize = 64 << 10;
/// A client may be silent for so long between requests.
const IDLE: Duration = Duration::from_secs(75);
/// Client and server may both be silent for so long in the middle of a request.
const STALLED: Duration = Duration::from_secs(300);

/// What is to become of a request.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// The server of this node answers it; that of these others could.
    Here(&'a [Peer]),
    /// Other nodes have the pool.
    Elsewhere(&'a Elsewhere),
    /// The client is sent elsewhere.
    Redirect(&'a Redirect),
    /// No route takes it.
    Nowhere,
}

/// Serves requests until the connection ends, or goes on at another node.
pub(super) async fn serve(
    mut client: TlsStream,
    service: &Service,
    shared: &Shared,
) -> Result<(), StreamError> {
    let mut kept = None;
    let mut is_first = true;
    loop {
        let patience = if is_first { service.limits.head_timeout } else { IDLE };
        is_first = false;
        if !wait_for_head(&mut client, service, patience).await? {
            return client.end().await;
        }
        let bytes = client.session.data().to_vec();
        let head = match parse_head(&bytes, &service.limits.http) {
            Ok(Progress::Complete(head)) if head.version != Version::Http2 => head,
            Ok(Progress::Complete(_)) => return refuse(client, service, 505, false).await,
            Err(reject) => {
                return refuse(client, service, reject.status(), bytes.starts_with(b"HEAD ")).await;
            }
            Ok(Progress::Partial) => return Err(StreamError::Io(io::ErrorKind::TimedOut.into())),
        };
        let is_head = head.method == "HEAD";
        service.counters.requests.add(1);
        let way = service.way(&head, Protocol::Http11);
        let elsewhere = match way {
            Way::Here(others) => shared.loads.lighter(service.busy, others),
            Way::Elsewhere(others) => others.in_turn(),
            Way::Redirect(redirect) => {
                let location = location(redirect, Scheme::Https, &head, client.vip);
                client.session.send(&redirection(redirect.status, &location))?;
                return client.end().await;
            }
            Way::Nowhere => return refuse(client, service, 404, is_head).await,
        };
        match give_away(client, &service.name, &elsewhere, shared).await? {
            Some(stays) => client = stays,
            None => {
                service.counters.given.add(1);
                return Ok(());
            }
        }
        let servers = match way {
            Way::Elsewhere(others) => {
                service.counters.forwarded.add(1);
                kept = None;
                &others.servers
            }
            _ => &service.servers,
        };
        match exchange(&mut client, service, servers, &bytes, &head, &mut kept).await {
            Ok(true) => {}
            Ok(false) => return client.end().await,
            Err(Failure::Client(error)) => return Err(error),
            Err(Failure::Server { begun: false, status }) => {
                return refuse(client, service, status, is_head).await;
            }
            // The client sees that something is missing, because nothing says that the connection ends.
            Err(Failure::Server { begun: true, .. }) => {
                return Err(StreamError::Io(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }
}

/// Waits until a whole head is there, or something that is none; false if the client ends before it begins one.
async fn wait_for_head(
    client: &mut TlsStream,
    service: &Service,
    patience: Duration,
) -> Result<bool, StreamError> {
    let mut deadline = Instant::now() + patience;
    let mut has_begun = false;
    loop {
        let data = client.session.data();
        if !has_begun && !data.is_empty() {
            (has_begun, deadline) = (true, Instant::now() + service.limits.head_timeout);
        }
        match parse_head(data, &service.limits.http) {
            Ok(Progress::Partial) => {}
            _ => return Ok(true),
        }
        match timeout_at(deadline, client.wait_for_data()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) if client.session.data().is_empty() => return Ok(false),
            Ok(Ok(false)) => return Err(StreamError::Tls(crate::Error::Truncated)),
            Ok(Err(error)) => return Err(error),
            Err(_) if !has_begun => return Ok(false),
            Err(_) => {
                client.session.send(&error_response(408, false))?;
                return Ok(false);
            }
        }
    }
}

/// Answers with an error, and closes.
async fn refuse(
    mut client: TlsStream,
    service: &Service,
    status: u16,
    is_head: bool,
) -> Result<(), StreamError> {
    service.counters.refused.add(1);
    client.session.send(&error_response(status, is_head))?;
    client.end().await
}

/// Why a request has no whole response.
enum Failure {
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

/// Takes a request to the server and the response back; true if another request may follow.
async fn exchange(
    client: &mut TlsStream,
    service: &Service,
    servers: &Servers,
    bytes: &[u8],
    head: &Head<'_>,
    kept: &mut Option<Box<dyn Stream>>,
) -> Result<bool, Failure> {
    let text = forwarded(bytes, head, service.client_address, client.client, client.vip);
    client.session.take(head.len);
    client.session.advance().map_err(StreamError::Tls)?;
    // What has been used before may be closed by the server just now: then a request that has no body is made again.
    let may_repeat = head.body == Body::None && !head.tunnel;
    let mut is_again = false;
    loop {
        let (stream, was_used) = server_for(client, service, servers, kept, is_again).await?;
        let mut running = Exchange::new(client, service, head, &text, stream);
        let result = running.run().await;
        let (stream, nothing_came) = (running.server, running.nothing_came);
        match result {
            Ok(Some(response)) => {
                if response.keep_alive {
                    match service.client_address {
                        ClientAddress::Proxy => *kept = Some(stream),
                        _ => servers.put_back(stream),
                    }
                }
                return Ok(response.keep_alive && head.keep_alive);
            }
            Ok(None) => return Ok(false),
            Err(Failure::Server { .. }) if was_used && nothing_came && may_repeat && !is_again => {
                is_again = true
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// A connection to the server, and whether it has been used before.
async fn server_for(
    client: &TlsStream,
    service: &Service,
    servers: &Servers,
    kept: &mut Option<Box<dyn Stream>>,
    is_again: bool,
) -> Result<(Box<dyn Stream>, bool), Failure> {
    let failed = |_| Failure::Server { begun: false, status: 502 };
    if service.client_address != ClientAddress::Proxy {
        return match is_again {
            true => Ok((servers.connect().await.map_err(failed)?, false)),
            false => servers.take().await.map_err(failed),
        };
    }
    if let Some(stream) = kept.take().filter(|_| !is_again) {
        return Ok((stream, true));
    }
    let mut stream = servers.connect().await.map_err(failed)?;
    let header = proxy_header(client.client, client.vip);
    tokio::io::AsyncWriteExt::write_all(&mut stream, &header).await.map_err(failed)?;
    Ok((stream, false))
}

/// What of the response is still to come.
#[derive(Clone, Copy)]
enum Rest {
    Head,
    Body(sb_framing),
    UntilEnd,
    Tunnel,
    Over,
}

/// One request and its response.
struct Exchange<'a> {
    client: &'a mut TlsStream,
    server: Box<dyn Stream>,
    /// What the client sends belongs to the request as long as this says so; None in a tunnel.
    request: Option<sb_framing>,
    to_head: (bool, Version),
    /// For the server, of which `written` bytes have been taken.
    to_server: Vec<u8>,
    written: usize,
    rest: Rest,
    /// From the server, not looked at yet.
    from_server: Vec<u8>,
    response: Option<ResponseHead>,
    nothing_came: bool,
    /// The client has been sent something of the response.
    begun: bool,
    server_ended: bool,
    /// It ended with an error.
    server_broke_off: bool,
    client_ended: bool,
    server_told: bool,
    responses: &'a crate::endpoint::Counter,
}

impl<'a> Exchange<'a> {
    fn new(
        client: &'a mut TlsStream,
        service: &'a Service,
        head: &Head<'_>,
        text: &[u8],
        server: Box<dyn Stream>,
    ) -> Self {
        Exchange {
            client,
            server,
            request: Some(head.body.framing(&service.limits.http)),
            to_head: (head.method == "HEAD", head.version),
            to_server: text.to_vec(),
            written: 0,
            rest: Rest::Head,
            from_server: Vec::new(),
            response: None,
            nothing_came: true,
            begun: false,
            server_ended: false,
            server_broke_off: false,
            client_ended: false,
            server_told: false,
            responses: &service.counters.responses,
        }
    }

    /// The response's head if the connection to the server can be used again.
    async fn run(&mut self) -> Result<Option<ResponseHead>, Failure> {
        loop {
            let step = std::future::poll_fn(|cx| self.poll(cx));
            match tokio::time::timeout(STALLED, pin!(step)).await {
                Ok(Ok(true)) => {
                    let whole = self.request.is_some_and(|framing| framing.state == 0);
                    let again = self.response.filter(|response| response.keep_alive && whole);
                    return Ok(again.filter(|_| self.from_server.is_empty() && !self.server_ended));
                }
                Ok(Ok(false)) => {}
                Ok(Err(failure)) => return Err(failure),
                Err(_) => return Err(self.server_failed(504)),
            }
        }
    }

    fn server_failed(&self, status: u16) -> Failure {
        Failure::Server { begun: self.begun, status }
    }

    /// Moves what can be moved; true at the end, false if something has been moved.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Failure>> {
        let mut moved = self.take_request()?;
        moved |= self.poll_client(cx)?;
        moved |= self.poll_to_server(cx)?;
        moved |= self.poll_from_server(cx)?;
        moved |= self.take_response()?;
        if let Rest::Over = self.rest {
            ready!(self.client.poll_write_out(cx)).map_err(StreamError::Io)?;
            return Poll::Ready(Ok(true));
        }
        let unsent = self.client.unsent();
        if unsent > 0 {
            let _ = self.client.poll_write_out(cx).map_err(StreamError::Io)?;
            moved |= self.client.unsent() < unsent;
        }
        if moved { Poll::Ready(Ok(false)) } else { Poll::Pending }
    }

    /// Data of the client that belongs to the request goes to the server.
    fn take_request(&mut self) -> Result<bool, Failure> {
        let data = self.client.session.data();
        if data.is_empty() && self.client_ended && self.request.is_some_and(|framing| framing.state != 0) {
            // The rest of the request will not come.
            return Err(StreamError::Tls(crate::Error::Truncated).into());
        }
        if data.is_empty() || self.to_server.len() - self.written >= UNREAD_MAX {
            return Ok(false);
        }
        let len = match &mut self.request {
            None => data.len(),
            Some(framing) if framing.state == 0 => 0,
            Some(framing) => match framing::requests().follow(framing, data, false) {
                Followed::More => data.len(),
                Followed::Ends(len) => len,
                Followed::Rejected(..) | Followed::Lost => return Err(self.server_failed(400)),
            },
        };
        self.to_server.extend_from_slice(&data[..len]);
        self.client.session.take(len);
        self.client.session.advance().map_err(StreamError::Tls)?;
        Ok(len > 0)
    }

    fn poll_client(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.client_ended || !self.client.session.wants_more() {
            return Ok(false);
        }
        match self.client.poll_fill(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(true)) => Ok(true),
            Poll::Ready(Ok(false)) => {
                self.client_ended = true;
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error.into()),
        }
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
        if self.client_ended && self.request.is_none() && !self.server_told {
            self.server_told = Pin::new(&mut self.server).poll_shutdown(cx).is_ready();
        }
        Ok(moved)
    }

    fn poll_from_server(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        if self.server_ended
            || self.client.unsent() >= UNSENT_MAX
            || !self.from_server.is_empty() && !self.in_head()
        {
            return Ok(false);
        }
        let mut storage = [std::mem::MaybeUninit::uninit(); READ];
        let mut buffer = ReadBuf::uninit(&mut storage);
        match Pin::new(&mut self.server).poll_read(cx, &mut buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(result) => {
                self.server_broke_off = result.is_err();
                let len = result.map(|()| buffer.filled().len()).unwrap_or(0);
                self.from_server.extend_from_slice(buffer.filled());
                self.server_ended = len == 0;
                self.nothing_came &= len == 0;
                Ok(true)
            }
        }
    }

    fn in_head(&self) -> bool {
        matches!(self.rest, Rest::Head)
    }

    /// What has come from the server goes to the client, as far as it belongs to the response.
    fn take_response(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            let len = match &mut self.rest {
                Rest::Over => return Ok(moved),
                Rest::Head => {
                    let head = response_head(&self.from_server, self.to_head);
                    let head = head.map_err(|_| self.server_failed(502))?;
                    let Some(head) = head else {
                        if self.server_ended || self.from_server.len() > RESPONSE_HEAD_MAX {
                            return Err(self.server_failed(502));
                        }
                        return Ok(moved);
                    };
                    self.enter_body(head);
                    head.len
                }
                Rest::Body(framing) => match framing::responses().follow(framing, &self.from_server, false) {
                    Followed::More if self.server_ended && self.from_server.is_empty() => {
                        return Err(self.server_failed(502));
                    }
                    Followed::More => self.from_server.len(),
                    Followed::Ends(len) => {
                        self.rest = Rest::Over;
                        len
                    }
                    Followed::Rejected(..) | Followed::Lost => return Err(self.server_failed(502)),
                },
                Rest::UntilEnd | Rest::Tunnel => {
                    if self.server_ended && self.from_server.is_empty() {
                        if self.server_broke_off {
                            return Err(self.server_failed(502));
                        }
                        self.rest = Rest::Over;
                    }
                    self.from_server.len()
                }
            };
            if len == 0 && !matches!(self.rest, Rest::Over) {
                return Ok(moved);
            }
            self.client.session.send(&self.from_server[..len]).map_err(StreamError::Tls)?;
            self.begun |= len > 0;
            self.from_server.drain(..len);
            moved = true;
        }
    }

    fn enter_body(&mut self, head: ResponseHead) {
        self.rest = match head.body {
            ResponseBody::Interim => return,
            ResponseBody::Length(0) => Rest::Over,
            ResponseBody::Length(len) => Rest::Body(Body::Length(len).framing(&ANY)),
            ResponseBody::Chunked => Rest::Body(sb_framing {
                state: SB_FRAMING_CHUNK as u16,
                allowed: u64::MAX,
                ..sb_framing::default()
            }),
            ResponseBody::UntilEnd => Rest::UntilEnd,
            ResponseBody::Tunnel => {
                self.request = None;
                Rest::Tunnel
            }
        };
        self.responses.add(1);
        self.response = Some(head);
    }
}

/// Responses may be of any length.
const ANY: switchback_http::Limits =
    switchback_http::Limits { head_len: RESPONSE_HEAD_MAX, fields: 0, body_len: u64::MAX };
