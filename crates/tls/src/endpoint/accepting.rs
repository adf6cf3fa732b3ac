//! Listeners, and what becomes of a connection that one of them accepts: its handshake, then HTTP/1.1 or HTTP/2; and, of
//! other nodes' connections, what each message on them asks for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::log::debug;
use switchback_routes::ACME_TLS;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::budgets::{Always, Kind, Permit};
use super::client::StreamError;
use super::counters::Counted;
use super::flow::{Addresses, plain};
use super::http1::{self, Start};
use super::idle::Stream;
use super::local::LocalNode;
use super::messages::{Opening, hear, say};
use super::server::{ServerAddress, connect_to_one};
use super::services::Service;
use super::shared::Shared;
use super::stream::TlsStream;
use super::{http2, load, log, moving, relay};

/// Capacity of the accept queue of each VIP, in connections.
const BACKLOG: u32 = 1024;
/// Pause after `accept` fails for want of descriptors or memory, which others may give back.
const RETRY: Duration = Duration::from_millis(10);
/// How long a connection between nodes may be idle; longer than [`peers`](super::peers) keep one.
const PEER_IDLE: Duration = Duration::from_secs(60);

/// A listener at this address only, so that each VIP has accept queues of its own. Its connections do not wait to fill
/// packets: Linux gives a new socket the listener's TCP_NODELAY.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = new_socket(address)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// So many listeners at this address, among which the kernel divides its connections (`SO_REUSEPORT`): threads that
/// accept do not contend for one queue.
pub(super) fn listen_together(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let listener = |_| {
        let socket = new_socket(address)?;
        socket.set_reuseport(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    (0..count).map(listener).collect()
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Accepts clients' connections to a VIP from all of its listeners.
pub(super) async fn accept_clients(listeners: Vec<TcpListener>, vip: SocketAddr, shared: Arc<Shared>) {
    let accepting = listeners.into_iter().map(|listener| accept_from(listener, vip, Arc::clone(&shared)));
    accepting.collect::<JoinSet<()>>().join_all().await;
}

/// Accepts connections of one listener. Each is served by the service that is configured there when it is accepted.
async fn accept_from(listener: TcpListener, vip: SocketAddr, shared: Arc<Shared>) {
    loop {
        let Ok((socket, client)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        // None: a reload has just removed the service, and this task ends.
        let Some(service) = shared.services.load().at(&vip).cloned() else { continue };
        tokio::spawn(serve_client(socket, (plain(client), vip), service, Arc::clone(&shared)));
    }
}

async fn serve_client(socket: TcpStream, flow: Addresses, service: Arc<Service>, shared: Arc<Shared>) {
    let counters = Arc::clone(&service.counters);
    let _counted = (Counted::new(&counters.connections), shared.loads.work());
    // Errors are the client's to see; those that matter to others have been counted.
    let _ = serve_stream(socket, flow, service, &shared).await;
}

async fn serve_stream(
    socket: TcpStream,
    flow: Addresses,
    service: Arc<Service>,
    shared: &Arc<Shared>,
) -> Result<(), StreamError> {
    let promised = shared.expected.take(flow);
    let node = shared.node_of(&service, flow);
    let permit = |kind, may_always| {
        shared.budgets.take(kind, &service.name, flow.0.ip(), &service.limits.tls, may_always)
    };
    // A connection that another node has given away has nowhere else to go.
    let may_always = if promised.is_some() { Always::Yes } else { Always::Never };
    let Some(_connection) = permit(Kind::Connection, may_always) else {
        service.counters.connections_refused.add(1);
        return Ok(());
    };
    if let Some((session, asked)) = promised {
        service.counters.taken.add(1);
        let client = TlsStream::with(socket, flow, session, &service);
        debug!("service {}: the connection of {} goes on here", service.name, client.client);
        return http1::serve(client, service, node, shared, Start::Request(asked)).await;
    }
    let Some(handshake) = permit(Kind::Handshake, Always::Never) else {
        service.counters.handshakes_refused.add(1);
        return Ok(());
    };
    let client = shake_hands(socket, flow, (&service, &node), shared, handshake).await?;
    match client.session.facts().protocol.as_deref() {
        Some(b"h2") => http2::serve(client, service, node, Arc::clone(shared)).await,
        // The certificate was all that a CA has come for.
        Some(ACME_TLS) => client.end().await,
        _ => http1::serve(client, service, node, shared, Start::New).await,
    }
}

/// Does the handshake, within `head_timeout`, and counts it.
async fn shake_hands(
    socket: TcpStream,
    flow: Addresses,
    (service, node): (&Arc<Service>, &Arc<LocalNode>),
    shared: &Shared,
    _permit: Permit,
) -> Result<TlsStream, StreamError> {
    let mut client = TlsStream::new(socket, flow, service, node)?;
    let shaken = timeout(service.limits.head_timeout, client.shake_hands()).await;
    if let Err(error) = shaken.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into())) {
        service.counters.failed.add(1);
        let lines = log::Connection::new(&client, node, &shared.log);
        lines.without_request(service, Some(error.to_string()));
        return Err(error);
    }
    let counters = &service.counters;
    let resumed = client.session.facts().resumed;
    if resumed { &counters.resumed } else { &counters.handshakes }.add(1);
    Ok(client)
}

/// Accepts connections of other nodes.
pub(super) async fn accept_peers(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // Errors are the other node's to see.
            let _ = serve_peer(socket, &shared).await;
        });
    }
}

/// Does what each message of another node asks for, until one takes the connection for itself.
async fn serve_peer(socket: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut channel = shared.peers.accept(socket).await?;
    loop {
        match timeout(PEER_IDLE, hear(&mut channel)).await?? {
            Opening::Move(offer) => moving::expect(&mut channel, offer, shared).await?,
            Opening::Relay(request) => channel = relay::answer(channel, request, shared).await?,
            Opening::TicketKeys(told) => {
                shared.ticket_keys.learn(told, Instant::now());
                say(&mut channel, &shared.ticket_keys.tell(Instant::now())).await?;
            }
            Opening::Issued(told) => {
                shared.issued.hear(told);
                say(&mut channel, &shared.issued.tell()).await?;
            }
            Opening::Insurance => {
                shared.insurer.hear(channel).await;
                return Ok(());
            }
            Opening::Load => return load::tell(&mut channel, || shared.loads.own()).await,
            Opening::Failing => return load::tell(&mut channel, || shared.failing()).await,
            Opening::Mirror => return shared.mirrored.take_from(channel, PEER_IDLE).await,
            Opening::Forward { service } => {
                let service = shared.service(&service).ok_or(io::ErrorKind::NotFound)?;
                return forward(channel, service.servers("")).await;
            }
            Opening::ForwardToNode { service, pool, node } => {
                let service = shared.service(&service).ok_or(io::ErrorKind::NotFound)?;
                let here = pool.and_then(|pool| service.here(pool));
                let servers = match here {
                    Some(here) => {
                        here.group.in_order(&node).iter().map(|member| &member.server.address).collect()
                    }
                    None => service.servers(&node),
                };
                return forward(channel, servers).await;
            }
        }
    }
}

/// Connects another node with the first of these servers that can be reached.
async fn forward(mut channel: Box<dyn Stream>, servers: Vec<&ServerAddress>) -> io::Result<()> {
    let mut server = connect_to_one(&servers, &[]).await?;
    tokio::io::copy_bidirectional(&mut channel, &mut server).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel chooses the listener by a hash of the connection's addresses: that all of them go to one of two has a
    /// chance of 2^-63.
    #[tokio::test]
    async fn listeners_share_the_connections_of_their_address() -> io::Result<()> {
        const CONNECTIONS: usize = 64;
        let free = listen((std::net::Ipv4Addr::LOCALHOST, 0).into())?.local_addr()?;
        let listeners = listen_together(free, 2)?;
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(TcpStream::connect(free).await?);
        }
        let mut accepted = [0; 2];
        for _ in 0..CONNECTIONS {
            tokio::select! {
                one = listeners[0].accept() => accepted[0] += usize::from(one.is_ok()),
                one = listeners[1].accept() => accepted[1] += usize::from(one.is_ok()),
            }
        }
        assert_eq!(accepted[0] + accepted[1], CONNECTIONS);
        assert!(accepted.iter().all(|count| *count > 0), "{accepted:?}");
        Ok(())
    }
}
