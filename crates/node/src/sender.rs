//! Sends packets to switches and clients; all of them may be lost without harm.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType, SockaddrStorage, sendmmsg,
    setsockopt, socket, sockopt,
};
use switchback_runtime::{Doing, Error, Result};

/// Packets per system call.
const BATCH: usize = 64;
/// Size of the send buffer in bytes, regardless of `net.core.wmem_max`.
const SEND_BUFFER: usize = 4 << 20;

/// Sends whole IP packets.
pub(crate) struct Sender {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl Sender {
    pub(crate) fn open() -> Result<Sender> {
        let v4 = raw_socket(AddressFamily::Inet)
            .doing(|| "open a raw socket for packets to switches and clients")
            .map_err(|error| error.remedy("CAP_NET_RAW is needed: run as root"))?;
        // The kernel may have been booted without IPv6.
        Ok(Sender { v4, v6: raw_socket(AddressFamily::Inet6).ok() })
    }

    /// Sends each packet to its destination.
    pub(crate) fn send(&self, packets: &[(IpAddr, Vec<u8>)]) -> Result<()> {
        let is_v4 = |packet: &(IpAddr, Vec<u8>)| packet.0.is_ipv4();
        let of_one_version = packets.chunk_by(|one, next| is_v4(one) == is_v4(next));
        for batch in of_one_version.flat_map(|packets| packets.chunks(BATCH)) {
            let Some(raw) = (if is_v4(&batch[0]) { Some(&self.v4) } else { self.v6.as_ref() }) else {
                return Err(Error::new(format!("this machine has no IPv6, but sends to {}", batch[0].0)));
            };
            let slices: Vec<[IoSlice<'_>; 1]> =
                batch.iter().map(|(_, packet)| [IoSlice::new(packet)]).collect();
            let to: Vec<Option<SockaddrStorage>> =
                batch.iter().map(|(to, _)| Some(SocketAddr::new(*to, 0).into())).collect();
            let mut headers = MultiHeaders::preallocate(batch.len(), None);
            // A packet to an unreachable destination is dropped.
            let _ = sendmmsg(raw.as_raw_fd(), &mut headers, &slices, &to, [], MsgFlags::MSG_DONTWAIT);
        }
        Ok(())
    }
}

/// A raw socket that takes complete IP packets (IPPROTO_RAW in raw(7)).
fn raw_socket(family: AddressFamily) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
    setsockopt(&socket, sockopt::SndBufForce, &SEND_BUFFER)?;
    Ok(socket)
}
