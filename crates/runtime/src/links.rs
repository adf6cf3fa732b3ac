//! The network interfaces of a machine, and notifications of their changes (rtnetlink(7)).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::error::{Doing, Error, Result};
use crate::netlink::{Attributes, Request, Socket};

const RTM_GETLINK: u16 = 18;
/// The index of the interface that this one is a part of: a bridge, a bond (include/uapi/linux/if_link.h).
const IFLA_MASTER: u16 = 10;
/// Length of `struct ifinfomsg`.
const FIXED_LEN: usize = 16;

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Whether it is `lo`.
    pub is_loopback: bool,
    /// Whether it is a part of a bridge or a bond: its packets arrive at the other interface too, or are
    /// forwarded.
    pub is_part: bool,
}

/// Notifications of interfaces that have come, gone or changed.
pub struct Watch {
    news: OwnedFd,
    questions: Socket,
}

impl Watch {
    /// Watches the network namespace of this thread.
    pub fn open() -> Result<Watch> {
        let doing = || "watch the network interfaces";
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let news = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute);
        let news = news.doing(doing)?;
        bind(news.as_raw_fd(), &NetlinkAddr::new(0, libc::RTMGRP_LINK as u32)).doing(doing)?;
        Ok(Watch { news, questions: Socket::route().doing(doing)? })
    }

    /// Whether an interface has changed since the last call.
    pub fn has_news(&self) -> Result<bool> {
        let (mut any, mut buffer) = (false, [0; 1]);
        loop {
            match recv(self.news.as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC) {
                // There was more than the socket could keep.
                Ok(_) | Err(Errno::ENOBUFS) => any = true,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(any),
                Err(errno) => return Err(Error::cannot("watch the network interfaces", errno)),
            }
        }
    }

    /// All interfaces.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>> {
        let answers = self.questions.ask(Request::new(RTM_GETLINK, &[0; FIXED_LEN]).dump());
        let answers = answers.doing(|| "list the network interfaces")?;
        Ok(answers.iter().filter_map(|answer| read(answer)).collect())
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

fn read(answer: &[u8]) -> Option<Interface> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    Some(Interface {
        index: word(4)?,
        is_loopback: word(8)? & libc::IFF_LOOPBACK as u32 != 0,
        is_part: Attributes::after(answer, FIXED_LEN).find(IFLA_MASTER).is_some(),
    })
}
