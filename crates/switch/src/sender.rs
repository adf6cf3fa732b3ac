//! Sends whole IP packets in batches.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrLike, SockaddrStorage, setsockopt, socket,
    sockopt,
};
use switchback_wire::SB_SKB_MARK_SWITCH;

/// Packets per call of sendmmsg(2).
const BATCH: usize = 64;
/// Most memory of packets on their way. Those for a machine that does not answer ARP wait in the kernel for seconds, up to 208 KiB for
/// each (`neigh/*/unres_qlen_bytes`), and none of the others could be sent if they filled the buffer.
const SEND_BUFFER: usize = 64 << 20;

/// Raw sockets (raw(7)) that take complete IP packets.
pub struct Sender {
    v4: OwnedFd,
    v6: OwnedFd,
    /// Packets that the kernel did not accept, for example without a route or with a full queue.
    pub failed: u64,
}

impl Sender {
    /// Needs CAP_NET_RAW. A `mark`, which needs CAP_NET_ADMIN, lets the programs of a node on the same machine
    /// distinguish these packets from those of servers.
    pub fn new(mark: bool) -> io::Result<Self> {
        let (v4, v6) = (raw(AddressFamily::Inet)?, raw(AddressFamily::Inet6)?);
        if mark {
            setsockopt(&v4, sockopt::Mark, &SB_SKB_MARK_SWITCH)?;
            setsockopt(&v6, sockopt::Mark, &SB_SKB_MARK_SWITCH)?;
        }
        Ok(Sender { v4, v6, failed: 0 })
    }

    /// Sends the packets without blocking. A packet that cannot be sent is counted and dropped; its sender retransmits.
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
    // More than `net.core.wmem_max` takes CAP_NET_ADMIN.
    setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER)
        .or_else(|_| setsockopt(&socket, sockopt::SndBuf, &SEND_BUFFER))?;
    Ok(socket)
}

/// Sends the batch and returns the number of packets that were not accepted.
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
        // An error concerns the first packet; the rest is tried again.
        let done = if sent <= 0 { 1 } else { sent as usize };
        failed += u64::from(sent <= 0);
        rest = &mut rest[done..];
    }
    batch.clear();
    failed
}
