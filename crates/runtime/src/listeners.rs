//! TCP listeners of this machine, by sock_diag(7).

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::netlink::{Attributes, Request, Socket};

/// linux/sock_diag.h, linux/inet_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Extension whose answer includes the upper-layer protocol.
const INET_DIAG_INFO: u8 = 2;
const INET_DIAG_SKV6ONLY: u16 = 11;
const INET_DIAG_ULP_INFO: u16 = 19;
const INET_ULP_INFO_NAME: u16 = 1;
/// A bit for each TCP state; the tenth is LISTEN.
const LISTENERS: u32 = 1 << 10;
const REQUEST_LEN: usize = 56;
const ANSWER_LEN: usize = 72;

/// A socket that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its address; all zeroes for any address.
    pub address: SocketAddr,
    /// Whether it is an IPv6 socket that takes no IPv4 connections.
    pub only_v6: bool,
    /// Connections that wait in its accept queue.
    pub len: u32,
    /// Limit of the accept queue. The kernel lets one more in.
    pub limit: u32,
    /// Whether it is the TCP socket inside an MPTCP listener.
    pub mptcp: bool,
}

/// The TCP listeners of the network namespace in which the socket was made.
pub fn list(socket: &mut Socket) -> io::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for family in [nix::libc::AF_INET, nix::libc::AF_INET6] {
        // struct inet_diag_req_v2: family, protocol, extensions, padding, states, an empty socket id.
        let mut request = [0; REQUEST_LEN];
        request[0] = family as u8;
        request[1] = nix::libc::IPPROTO_TCP as u8;
        request[2] = 1 << (INET_DIAG_INFO - 1);
        request[4..8].copy_from_slice(&LISTENERS.to_ne_bytes());
        let answers = socket.ask(Request::new(SOCK_DIAG_BY_FAMILY, &request).dump())?;
        listeners.extend(answers.iter().filter_map(|answer| read(answer)));
    }
    Ok(listeners)
}

/// struct inet_diag_msg: family, state, timer, retransmissions, the socket id (ports, addresses, interface,
/// cookie), expiry, length and limit of the queue, owner, inode.
fn read(answer: &[u8]) -> Option<Listener> {
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let source: [u8; 16] = answer.get(8..24)?.try_into().ok()?;
    let ip = if i32::from(*answer.first()?) == nix::libc::AF_INET {
        IpAddr::from(<[u8; 4]>::try_from(&source[..4]).ok()?)
    } else {
        IpAddr::from(source)
    };
    let attributes = Attributes::after(answer, ANSWER_LEN);
    let protocol = attributes.find(INET_DIAG_ULP_INFO);
    let name = protocol.and_then(|info| Attributes::after(info.value, 0).find(INET_ULP_INFO_NAME));
    Some(Listener {
        address: SocketAddr::new(ip, u16::from_be_bytes(answer.get(4..6)?.try_into().ok()?)),
        only_v6: attributes.find(INET_DIAG_SKV6ONLY).is_some_and(|only| only.value == [1]),
        len: number(56)?,
        limit: number(60)?,
        mptcp: name.is_some_and(|name| name.value.starts_with(b"mptcp")),
    })
}
