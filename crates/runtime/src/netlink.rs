//! Netlink: one request, all its answers. See RFC 3549 and
//! include/uapi/linux/netlink.h.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

const NLM_F_REQUEST: u16 = 0x01;
const NLM_F_ACK: u16 = 0x04;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_LEN: usize = 16;
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// The flags in the upper bits of an attribute's type.
const ATTRIBUTE_TYPE: u16 = 0x3fff;
const ANSWER_TIMEOUT_S: i64 = 5;

/// A request under construction.
pub struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// A request of this message type with the fixed part that the type asks for.
    pub fn new(kind: u16, fixed: &[u8]) -> Request {
        let mut body = fixed.to_vec();
        pad(&mut body);
        Request { kind, flags: NLM_F_REQUEST | NLM_F_ACK, body }
    }

    /// Asks for all objects.
    pub fn dump(mut self) -> Request {
        self.flags = NLM_F_REQUEST | NLM_F_DUMP;
        self
    }

    /// Creates an object, which must not exist yet.
    pub fn create(mut self) -> Request {
        self.flags |= NLM_F_CREATE | NLM_F_EXCL;
        self
    }

    /// Adds an attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        let len = (ATTRIBUTE_HEADER_LEN + value.len()) as u16;
        self.body.extend_from_slice(&len.to_ne_bytes());
        self.body.extend_from_slice(&kind.to_ne_bytes());
        self.body.extend_from_slice(value);
        pad(&mut self.body);
        self
    }

    fn encode(&self, sequence: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + self.body.len());
        out.extend_from_slice(&((HEADER_LEN + self.body.len()) as u32).to_ne_bytes());
        out.extend_from_slice(&self.kind.to_ne_bytes());
        out.extend_from_slice(&self.flags.to_ne_bytes());
        out.extend_from_slice(&sequence.to_ne_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.body);
        out
    }
}

/// A netlink socket in the network namespace of the thread that made it.
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// A socket for interfaces, addresses, routes and neighbours (rtnetlink(7)).
    pub fn route() -> io::Result<Socket> {
        Socket::of(SockProtocol::NetlinkRoute)
    }

    /// A socket for the list of sockets (sock_diag(7)).
    pub fn sock_diag() -> io::Result<Socket> {
        Socket::of(SockProtocol::NetlinkSockDiag)
    }

    fn of(protocol: SockProtocol) -> io::Result<Socket> {
        let fd = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(ANSWER_TIMEOUT_S, 0))?;
        Ok(Socket { fd, sequence: 0 })
    }

    /// Sends the request and returns the bodies of the answers; an error if the kernel refuses.
    pub fn ask(&mut self, request: Request) -> io::Result<Vec<Vec<u8>>> {
        self.sequence += 1;
        send(self.fd.as_raw_fd(), &request.encode(self.sequence), MsgFlags::empty())?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let len = recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..len];
            while let Some((kind, sequence, body)) = next_message(&mut rest) {
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    NLMSG_DONE => return Ok(answers),
                    NLMSG_ERROR => {
                        let errno =
                            body.get(..4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
                        return match errno {
                            Some(0) => Ok(answers),
                            Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
                            None => Err(io::Error::from(io::ErrorKind::InvalidData)),
                        };
                    }
                    _ => answers.push(body.to_vec()),
                }
            }
        }
    }
}

/// Takes the first message off: its type, sequence number and body.
fn next_message<'a>(rest: &mut &'a [u8]) -> Option<(u16, u32, &'a [u8])> {
    let header = rest.get(..HEADER_LEN)?;
    let len = u32::from_ne_bytes(header[..4].try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(header[4..6].try_into().ok()?);
    let sequence = u32::from_ne_bytes(header[8..12].try_into().ok()?);
    let body = rest.get(HEADER_LEN..len)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, sequence, body))
}

/// Rounds up to four bytes, where the next part begins.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// The attributes of an answer.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The attributes behind the fixed part of `fixed_len` bytes.
    pub fn after(answer: &'a [u8], fixed_len: usize) -> Attributes<'a> {
        Attributes { rest: answer.get(fixed_len.next_multiple_of(4)..).unwrap_or_default() }
    }

    /// The first attribute of this type.
    pub fn find(mut self, kind: u16) -> Option<Attribute<'a>> {
        loop {
            let len = usize::from(u16::from_ne_bytes(self.rest.get(..2)?.try_into().ok()?));
            let found = u16::from_ne_bytes(self.rest.get(2..4)?.try_into().ok()?);
            let value = self.rest.get(ATTRIBUTE_HEADER_LEN..len)?;
            if found & ATTRIBUTE_TYPE == kind {
                return Some(Attribute { value });
            }
            self.rest = self.rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// One attribute's value.
#[derive(Clone, Copy)]
pub struct Attribute<'a> {
    /// Bytes of the value.
    pub value: &'a [u8],
}

impl Attribute<'_> {
    /// The value as a number of 32 bits.
    pub fn as_u32(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.value.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_read_back_padded() {
        let request = Request::new(16, &[1, 2, 3]).attribute(7, b"abcde").attribute(9, &5u32.to_ne_bytes());
        let bytes = request.encode(3);
        let mut rest = bytes.as_slice();
        let (kind, sequence, body) = next_message(&mut rest).expect("one message");
        assert_eq!((kind, sequence, rest.len()), (16, 3, 0));
        let attributes = Attributes::after(body, 3);
        assert_eq!(attributes.find(7).expect("the first").value, b"abcde");
        assert_eq!(attributes.find(9).and_then(|attribute| attribute.as_u32()), Some(5));
        assert!(attributes.find(8).is_none());
    }

    #[test]
    fn truncated_messages_end_the_reading() {
        let bytes = Request::new(16, &[0; 8]).attribute(7, b"abcd").encode(1);
        for len in 0..bytes.len() {
            assert!(next_message(&mut &bytes[..len]).is_none(), "{len} bytes");
        }
        assert!(Attributes { rest: &[3, 0, 7, 0] }.find(7).is_none(), "shorter than its own header");
    }

    #[test]
    fn the_kernel_answers_and_refuses() {
        let mut socket = Socket::route().expect("a socket");
        let links = socket.ask(Request::new(18, &[0; 16]).dump()).expect("a dump of interfaces");
        assert!(!links.is_empty(), "there is at least the loopback interface");
        let mut missing = [0; 16];
        missing[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error = socket.ask(Request::new(18, &missing)).expect_err("no such interface");
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENODEV));
    }
}
