//! HTTP/1.1 over TLS: requests of a client, one after the other, to the server of this node.

use std::io;
use std::time::Duration;

use log::debug;
use switchback_config::{HandOver, Protocol, Redirect, Scheme};
use switchback_http::{Progress, Version, parse_head};
use switchback_routes::location;
use tokio::time::{Instant, timeout_at};

use super::exchange::{Asked, Client, Failure, exchange};
use super::head::{error_response, redirection};
use super::moving::{Peer, give_away};
use super::stream::{StreamError, TlsStream};
use super::{Elsewhere, Service, Shared, relay};

/// A client may be silent for so long between requests.
const IDLE: Duration = Duration::from_secs(75);

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

/// Serves requests until the connection ends, or goes on at another node. The first request of one that `was_given` by another
/// node is answered here, however busy this node has become: it would go round among busy nodes, and each move costs them.
pub(super) async fn serve(
    mut client: TlsStream,
    service: &Service,
    shared: &Shared,
    was_given: bool,
) -> Result<(), StreamError> {
    let mut kept = None;
    let mut is_first = true;
    loop {
        let patience = if is_first { service.limits.head_timeout } else { IDLE };
        let stays = was_given && is_first && !shared.loads.is_draining();
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
            Way::Here(_) if stays => Vec::new(),
            Way::Here(others) => shared.loads.lighter(service.busy, others),
            Way::Elsewhere(others) => others.in_turn(),
            Way::Redirect(redirect) => {
                let location = location(redirect, Scheme::Https, &head, client.vip);
                client.session.send(&redirection(redirect.status, &location))?;
                return client.end().await;
            }
            Way::Nowhere => return refuse(client, service, 404, is_head).await,
        };
        // Whoever drains gives connections away, not requests. What may become a tunnel has no end that both nodes see.
        let relays = matches!(way, Way::Here(_))
            && service.hand_over == HandOver::Relay
            && !shared.loads.is_draining()
            && !head.tunnel;
        if !relays {
            match give_away(client, &service.name, &elsewhere, shared).await? {
                Some(stays) => client = stays,
                None => {
                    service.counters.given.add(1);
                    return Ok(());
                }
            }
        }
        let servers = match way {
            Way::Elsewhere(others) => {
                debug!("service {}: a request of {} is forwarded", service.name, client.client);
                service.counters.forwarded.add(1);
                kept = None;
                &others.servers
            }
            _ => &service.servers,
        };
        let asked = Asked::new(&bytes, &head, service, (client.client, client.vip));
        client.consume(head.len)?;
        let relayed = match relays {
            true => relay::give(&mut client, service, &asked, &bytes[..head.len], &elsewhere, shared).await,
            false => Ok(None),
        };
        let result = match relayed {
            Ok(None) => exchange(&mut client, service, servers, &asked, &mut kept).await,
            Ok(Some(another)) => Ok(another),
            Err(failure) => Err(failure),
        };
        match result {
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
