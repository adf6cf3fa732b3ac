//! Sends whole IP packets, many in one system call.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrLike, SockaddrStorage, setsockopt, socket,
    sockopt,
};
use switchback_wire::SB_SKB_MARK_SWITCH;

/// Packets in one call of sendmmsg(2).
const BATCH: usize = 64;
const SEND_BUFFER: usize = 4 << 20;

/// Raw sockets (raw(7)) that take the IP header from us.
pub struct Sender {
    v4: OwnedFd,
    v6: OwnedFd,
    /// Packets that the kernel would not take: no route, full queue.
    pub failed: u64,
}

impl Sender {
    /// Needs CAP_NET_RAW. With a `mark`, which needs CAP_NET_ADMIN, the programs of a node on the same machine tell what
    /// is sent from what servers send.
    pub fn new(mark: bool) -> io::Result<Self> {
        let (v4, v6) = (raw(AddressFamily::Inet)?, raw(AddressFamily::Inet6)?);
        if mark {
            setsockopt(&v4, sockopt::Mark, &SB_SKB_MARK_SWITCH)?;
            setsockopt(&v6, sockopt::Mark, &SB_SKB_MARK_SWITCH)?;
        }
        Ok(Sender { v4, v6, failed: 0 })
    }

    /// Sends what can be sent at once. A packet that cannot is lost and counted: whoever waits for its effect sends
    /// again.
    pub fn send<'a>(&mut self, packets: impl Iterator<Item = (&'a [u8], IpAddr)>) {
        let mut v4 = Vec::with_capacity(BATCH);
        let mut v6 = Vec::with_capacity(BATCH);
        for (packet, to) in packets {
            let batch = if to.is_ipv4() { &mut v4 } else { &mut v6 };
            batch.push((packet, SockaddrStorage::from(SocketAddr::new(to, 0))));
            if batch.len() == BATCH {
                self.failed += flush(if to.is_ipv4() { &self.v4 } else { &self.v6 }, batch);
            }
        }
        self.failed += flush(&self.v4, &mut v4) + flush(&self.v6, &mut v6);
    }
}

fn raw(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
    setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER)?;
    Ok(socket)
}

/// Sends the batch; how many packets were not taken.
fn flush(socket: &OwnedFd, batch: &mut Vec<(&[u8], SockaddrStorage)>) -> u64 {
    let mut vectors: Vec<libc::iovec> = batch
        .iter()
        .map(|(packet, _)| libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() })
        .collect();
    let mut headers: Vec<libc::mmsghdr> = std::iter::zip(batch.iter(), &mut vectors)
        .map(|((_, to), vector)| {
            // SAFETY: mmsghdr is plain data for which zeroes mean absent.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header
        })
        .collect();
    let mut failed = 0;
    let mut rest = &mut headers[..];
    while !rest.is_empty() {
        // SAFETY: every header points to a vector and an address that live until the call returns.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0) };
        // An error is the first packet's; the others are still to be tried.
        let done = if sent <= 0 { 1 } else { sent as usize };
        failed += u64::from(sent <= 0);
        rest = &mut rest[done..];
    }
    batch.clear();
    failed
}
