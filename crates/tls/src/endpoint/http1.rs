//! HTTP/1.1 over TLS: requests of a client, one after the other, to the server of this node.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::debug;
use switchback_config::{HandOver, Protocol, Redirect, Scheme};
use switchback_http::{Progress, Reject, Version, parse_head};
use switchback_log::Ended;
use switchback_routes::location;
use tokio::time::timeout_at;

use super::exchange::{Asked, Client, Failure, exchange};
use super::head::{error_response, redirection};
use super::log::{Connection, Entry};
use super::moving::{Given, Peer, give_away};
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
    /// Routes cannot tell where it goes.
    Refused(Reject),
}

/// Serves requests until the connection ends, or goes on at another node. The first request of one that `was_given` by another
/// node, where it came at that moment, is answered here, however busy this node has become: it would go round among busy nodes,
/// and each move costs them.
pub(super) async fn serve(
    mut client: TlsStream,
    service: &Arc<Service>,
    shared: &Shared,
    was_given: Option<Instant>,
) -> Result<(), StreamError> {
    let connection = Connection::new(&client, service, &shared.log);
    let mut kept = None;
    let mut is_first = true;
    loop {
        let patience = if is_first { service.limits.head_timeout } else { IDLE };
        let given = was_given.filter(|_| is_first);
        let waited = wait_for_head(&mut client, service, patience).await;
        let bytes = client.session.data().to_vec();
        if !matches!(waited, Ok(Waited::Head)) {
            if is_first && bytes.is_empty() {
                connection.without_request(None);
            }
            if !bytes.is_empty() {
                let mut entry = connection.request(Protocol::Http11, &bytes);
                if let Ok(Waited::TooLong) = waited {
                    answer(&mut client, &mut entry, 408, &error_response(408, false))?;
                }
            }
            waited?;
            return client.end().await;
        }
        is_first = false;
        let parsed = parse_head(&bytes, &service.limits.http);
        let head_len = if let Ok(Progress::Complete(head)) = &parsed { head.len } else { bytes.len() };
        let mut entry = connection.request(Protocol::Http11, &bytes[..head_len]);
        if let Some(asked) = given {
            entry.was_given(asked);
        }
        let head = match parsed {
            Ok(Progress::Complete(head)) if head.version != Version::Http2 => head,
            Ok(Progress::Complete(_)) => return refuse(client, service, entry, 505, false).await,
            Err(reject) => {
                let is_head = bytes.starts_with(b"HEAD ");
                return refuse(client, service, entry, reject.status(), is_head).await;
            }
            Ok(Progress::Partial) => return Err(StreamError::Io(io::ErrorKind::TimedOut.into())),
        };
        let is_head = head.method == "HEAD";
        service.counters.requests.add(1);
        let way = service.way(&head, Protocol::Http11);
        let elsewhere = match way {
            Way::Here(_) if given.is_some() && !shared.loads.is_draining() => Vec::new(),
            Way::Here(others) => shared.loads.lighter(service.busy, others),
            Way::Elsewhere(others) => others.in_turn(),
            Way::Redirect(redirect) => {
                let location = location(redirect, Scheme::Https, &head, client.vip);
                answer(&mut client, &mut entry, redirect.status, &redirection(redirect.status, &location))?;
                drop(entry);
                return client.end().await;
            }
            Way::Nowhere => return refuse(client, service, entry, 404, is_head).await,
            Way::Refused(reject) => return refuse(client, service, entry, reject.status(), is_head).await,
        };
        // Whoever drains gives connections away, not requests. What may become a tunnel has no end that both nodes see.
        let relays = matches!(way, Way::Here(_))
            && service.hand_over == HandOver::Relay
            && !shared.loads.is_draining()
            && !head.tunnel;
        if !relays {
            match give_away(client, &service.name, &elsewhere, shared, entry.at).await? {
                Given::Not(stays) => client = stays,
                away => {
                    service.counters.given.add(1);
                    match away {
                        Given::Lost(peer) => entry.lose(&peer.name),
                        _ => entry.forget(),
                    }
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
        let told = &mut entry.answer;
        let relayed = match relays {
            true => {
                relay::give(&mut client, service, &asked, &bytes[..head.len], &elsewhere, shared, told).await
            }
            false => Ok(None),
        };
        let result = match relayed {
            Ok(None) => exchange(&mut client, service, servers, &asked, &mut kept, told).await,
            Ok(Some(another)) => Ok(another),
            Err(failure) => Err(failure),
        };
        match result {
            Ok(another) => {
                entry.ends(Ended::Complete);
                drop(entry);
                if !another {
                    return client.end().await;
                }
            }
            Err(Failure::Client(error)) => return Err(error),
            Err(Failure::Server { begun: false, status }) => {
                return refuse(client, service, entry, status, is_head).await;
            }
            // The client sees that something is missing, because nothing says that the connection ends.
            Err(Failure::Server { begun: true, .. }) => {
                entry.ends(Ended::ByServer);
                return Err(StreamError::Io(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }
}

/// What has come of waiting for a request.
enum Waited {
    /// A whole head, or something that is none.
    Head,
    /// The client has ended, or has not begun one in time.
    Nothing,
    /// It has not been whole in time.
    TooLong,
}

async fn wait_for_head(
    client: &mut TlsStream,
    service: &Service,
    patience: Duration,
) -> Result<Waited, StreamError> {
    let mut deadline = Instant::now() + patience;
    let mut has_begun = false;
    loop {
        let data = client.session.data();
        if !has_begun && !data.is_empty() {
            (has_begun, deadline) = (true, Instant::now() + service.limits.head_timeout);
        }
        match parse_head(data, &service.limits.http) {
            Ok(Progress::Partial) => {}
            _ => return Ok(Waited::Head),
        }
        match timeout_at(deadline.into(), client.wait_for_data()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) if client.session.data().is_empty() => return Ok(Waited::Nothing),
            Ok(Ok(false)) => return Err(StreamError::Tls(crate::Error::Truncated)),
            Ok(Err(error)) => return Err(error),
            Err(_) if !has_begun => return Ok(Waited::Nothing),
            Err(_) => return Ok(Waited::TooLong),
        }
    }
}

/// Answers with an error, and closes.
async fn refuse(
    mut client: TlsStream,
    service: &Service,
    mut entry: Entry,
    status: u16,
    is_head: bool,
) -> Result<(), StreamError> {
    service.counters.refused.add(1);
    answer(&mut client, &mut entry, status, &error_response(status, is_head))?;
    drop(entry);
    client.end().await
}

/// Says this, instead of what a server would say.
fn answer(
    client: &mut TlsStream,
    entry: &mut Entry,
    status: u16,
    response: &[u8],
) -> Result<(), StreamError> {
    let head_len = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(0, |end| end + 4);
    entry.is_answered(status);
    entry.answer.sent(head_len, true);
    entry.answer.sent(response.len() - head_len, false);
    Ok(client.session.send(response)?)
}
