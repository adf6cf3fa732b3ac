//! The HTTP server, in a thread of its own.
//!
//! It has few clients: Prometheus, a load balancer's health checks, people who look at the page. So
//! connections are bounded, and idle ones are closed: the descriptors of the process are for the daemon.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};
use switchback_access_log::escape::{printable, printable_json};
use switchback_config::Admin;
use switchback_runtime::privileges::{self, CapabilitySet};
use switchback_runtime::{Doing, Error, Result};
use switchback_status::Status;
use switchback_status::switch::SwitchStatus;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use crate::asker::{Answers, Asker};
use crate::health;
use crate::hosts::Hosts;
use crate::metrics::{self, Metrics};
use crate::view::History;

/// Most connections at a time; further ones wait.
const CONNECTIONS: usize = 64;
/// Time that a client may take to send a request, also between two requests.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for which a client may leave data unacknowledged.
const VANISHED_MS: u32 = 30_000;
/// Period of the events for the page.
const EVERY: Duration = Duration::from_secs(1);

/// Content security policy: the page loads nothing from elsewhere, and cannot be embedded.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TEXT: &str = "text/plain; charset=utf-8";
const MISDIRECTED: &str =
    "ask for an address, for localhost, or for one of `hosts` in [admin] of cluster.toml\n";

/// The files of the page: path, type, content.
const PAGE: [(&str, &str, &str); 9] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/latency.js", SCRIPT, include_str!("page/latency.js")),
    ("/nodes.js", SCRIPT, include_str!("page/nodes.js")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/picture.js", SCRIPT, include_str!("page/picture.js")),
    ("/theme.js", SCRIPT, include_str!("page/theme.js")),
    ("/words.js", SCRIPT, include_str!("page/words.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// A running server; it ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: StdListener,
    /// Sender, whose end is the server's, and thread; None at the end.
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Server {
    /// Starts the server, with the page if one of the daemons is a switch. `ask` asks the daemons, see
    /// [`over`](crate::asker::over).
    pub fn start(
        admin: &Admin,
        with_page: bool,
        ask: impl Fn() -> Answers + Send + Sync + 'static,
    ) -> Result<Server> {
        Server::replace(None, admin, with_page, ask)
    }

    /// Starts the server that is to follow another one, whose address it may have.
    pub fn replace(
        before: Option<&Server>,
        admin: &Admin,
        with_page: bool,
        ask: impl Fn() -> Answers + Send + Sync + 'static,
    ) -> Result<Server> {
        let listener = match before.filter(|before| before.address == admin.listen) {
            Some(same) => same.listener.try_clone().doing(|| "share the socket of [admin]")?,
            None => listen_at(admin.listen, before.map(|before| &before.listener))
                .map_err(|errno| cannot_listen(admin.listen, errno))?,
        };
        let address = listener.local_addr().doing(|| "ask for the address of [admin]")?;
        let accepts = listener.try_clone().doing(|| "share the socket of [admin]")?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build();
        let runtime = runtime.doing(|| "start the server of [admin]")?;
        let desk = Arc::new(Desk {
            asker: Asker::new(ask),
            hosts: Hosts::new(&admin.hosts),
            metrics: Arc::new(Metrics::new()),
            with_page,
            events: watch::Sender::default(),
            looked_at: Notify::new(),
        });
        let (end, ended) = oneshot::channel();
        let serve = move || {
            if let Err(error) = privileges::keep_only(CapabilitySet::empty()) {
                log::warn!("the server of [admin] has all privileges: {error}");
            }
            runtime.block_on(async {
                tokio::select! {
                    () = serve(accepts, desk) => {}
                    _ = ended => {}
                }
            });
            // The daemon may wait for this thread, and then does not answer what it is being asked.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("admin".to_owned()).spawn(serve);
        let thread = thread.doing(|| "start the server of [admin]")?;
        Ok(Server { address, listener, running: Some((end, thread)) })
    }

    /// Address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Waits until the address is free.
impl Drop for Server {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            // It ends even if it has panicked.
            let _ = thread.join();
        }
    }
}

/// Listens at an address, which may overlap with that of a listener before, as 0.0.0.0 does with 127.0.0.1. The kernel
/// allows that to sockets that share their port (`inet_csk_bind_conflict()`), which these do for a moment only: nobody
/// else is to share it.
fn listen_at(address: SocketAddr, before: Option<&StdListener>) -> nix::Result<StdListener> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    let share = |on: bool| {
        let both = [Some(socket.as_fd()), before.map(AsFd::as_fd)];
        both.iter().flatten().try_for_each(|socket| setsockopt(socket, sockopt::ReusePort, &on))
    };
    let bound = share(before.is_some())
        .and_then(|()| bind(socket.as_raw_fd(), &SockaddrStorage::from(address)))
        .and_then(|()| listen(&socket, Backlog::new(CONNECTIONS as i32)?));
    share(false).and(bound)?;
    Ok(StdListener::from(socket))
}

fn cannot_listen(listen: SocketAddr, errno: Errno) -> Error {
    let said = Error::cannot(format!("listen on {listen}, as [admin] says"), io::Error::from(errno));
    match errno {
        Errno::EADDRINUSE => said.remedy(format!("`ss -ltnp sport = {}` shows who has it", listen.port())),
        Errno::EADDRNOTAVAIL => said.remedy(
            "cluster.toml is the same on every machine, so the address has to be one that each has, such as \
             127.0.0.1 or 0.0.0.0",
        ),
        _ => said,
    }
}

async fn serve(listener: StdListener, desk: Arc<Desk>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log::error!("the server of [admin] ends: {error}"),
    };
    tokio::spawn(Arc::clone(&desk).tell());
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
        let Ok((stream, _)) = listener.accept().await else {
            // The process has no descriptors left, or the client has gone already.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            connection(stream, desk).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, desk: Arc<Desk>) {
    // Otherwise who vanishes while looking at the page would keep a place for a quarter of an hour.
    let _ = setsockopt(&stream, sockopt::TcpUserTimeout, &VANISHED_MS);
    let answer = move |request| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, Infallible>(desk.answer(&request).await) }
    };
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(16 << 10);
    // A client's misbehaviour is its own affair.
    let _ = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

/// State that all connections share.
struct Desk {
    asker: Asker,
    hosts: Hosts,
    metrics: Arc<Metrics>,
    with_page: bool,
    /// The latest event for open pages.
    events: watch::Sender<Bytes>,
    /// Notified when a page is opened.
    looked_at: Notify,
}

impl Desk {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        if !self.hosts.allow(request) {
            return respond(StatusCode::MISDIRECTED_REQUEST, TEXT, MISDIRECTED);
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => self.metrics().await,
            "/healthz" => verdict(&health::dead(&*self.asker.ask().await)),
            "/readyz" => verdict(&health::unready(&*self.asker.ask().await)),
            "/events" if self.with_page => self.events(),
            path => match PAGE.iter().find(|(file, ..)| self.with_page && *file == path) {
                Some((_, kind, content)) => respond(StatusCode::OK, kind, *content),
                None => respond(StatusCode::NOT_FOUND, TEXT, "there are /metrics, /healthz and /readyz\n"),
            },
        }
    }

    async fn metrics(&self) -> Response<Body> {
        let answers = self.asker.ask().await;
        let dead = health::dead(&answers);
        if !dead.is_empty() {
            return verdict(&dead);
        }
        match self.metrics.text(answers) {
            Ok(text) => respond(StatusCode::OK, metrics::CONTENT_TYPE, text),
            Err(error) => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        }
    }

    /// A stream of events that ends when the client goes.
    fn events(&self) -> Response<Body> {
        let (mut sender, body) = Channel::new(1);
        let mut events = self.events.subscribe();
        // What others have been told last is better than to wait for the next.
        if !events.borrow().is_empty() {
            events.mark_changed();
        }
        self.looked_at.notify_one();
        tokio::spawn(async move {
            while events.changed().await.is_ok() {
                let event = events.borrow_and_update().clone();
                if sender.send_data(event).await.is_err() {
                    return;
                }
            }
        });
        let mut response = respond(StatusCode::OK, "text/event-stream", "");
        *response.body_mut() = Either::Right(body);
        response
    }

    /// Sends events of the switch to open pages, as long as there are any.
    async fn tell(self: Arc<Self>) {
        let mut history = History::default();
        loop {
            if self.events.receiver_count() == 0 {
                history.clear();
                self.events.send_replace(Bytes::new());
                self.looked_at.notified().await;
                continue;
            }
            let answers = self.asker.ask().await;
            let at = std::time::Instant::now();
            let status = answers.iter().find_map(|answer| match answer {
                Ok(Status::Switch(status)) => Some(Ok(status)),
                Ok(_) => None,
                Err(error) => Some(Err(error.clone())),
            });
            let view =
                status.unwrap_or(Err("no switch runs in this process".to_owned())).and_then(|status| {
                    history.push(at, SwitchStatus::clone(status));
                    serde_json::to_string(&history.view()).map_err(|error| error.to_string())
                });
            let event = match view {
                Ok(view) => format!("data: {}\n\n", printable_json(&view)),
                Err(error) => format!("event: trouble\ndata: {}\n\n", printable(&error.replace('\n', " "))),
            };
            self.events.send_replace(event.into());
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// 200 without reasons, otherwise 503 with the reasons.
fn verdict(reasons: &[String]) -> Response<Body> {
    if reasons.is_empty() {
        return respond(StatusCode::OK, TEXT, "ok\n");
    }
    respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, printable(&reasons.join("\n")).into_owned() + "\n")
}

fn respond(status: StatusCode, kind: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(content.into())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
