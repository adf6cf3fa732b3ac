//! Addresses of a connection.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

/// Client and VIP of a connection.
pub type Addresses = (SocketAddr, SocketAddr);

/// Addresses of client and VIP.
pub(super) fn addresses(socket: &TcpStream) -> io::Result<Addresses> {
    Ok((plain(socket.peer_addr()?), plain(socket.local_addr()?)))
}

/// The address, as IPv4 if it is IPv4-mapped.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
