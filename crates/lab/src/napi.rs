//! The kernel threads that do a host's receive work.
//!
//! Their names (`napi/eth0-8321`) do not contain the namespace, so the `netdev` family of generic netlink
//! (Documentation/netlink/specs/netdev.yaml) is asked for the NAPI instances of an interface with their threads.

use std::fs;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::netns::NetNs;

const NLMSG_HEADER: usize = 16;
const GENL_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
const GENL_VERSION: u8 = 1;
/// `NETDEV_CMD_NAPI_GET` and its attributes (include/uapi/linux/netdev.h).
const NAPI_GET: u8 = 11;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_PID: u16 = 4;

/// A NAPI instance of an interface, run by a kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NapiThread {
    /// The NAPI id, unique on the machine.
    pub napi_id: u32,
    /// The process id of the kernel thread.
    pub pid: u32,
}

impl NapiThread {
    /// Its CPU time so far (`/proc/PID/schedstat`, nanoseconds).
    pub fn cpu_time(&self) -> Result<Duration> {
        let path = format!("/proc/{}/schedstat", self.pid);
        let stat = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
        let nanoseconds = stat.split_whitespace().next().and_then(|field| field.parse().ok());
        nanoseconds
            .map(Duration::from_nanos)
            .ok_or_else(|| Error::Invalid(format!("{path} does not begin with a number: {stat:?}")))
    }
}

impl Host {
    /// The threads that receive on this interface of the host, such as `eth0`; one for each receive queue. An interface
    /// that goes down and up again has new ones. Empty with generic XDP.
    pub fn napi_threads(&self, interface: &str) -> Result<Vec<NapiThread>> {
        threads_of(self.namespace(), &self.link(interface)?.device)
    }

    /// The threads that receive on the bridge's end of the cable of this interface: the network's work for packets from
    /// the host.
    pub fn port_napi_threads(&self, interface: &str) -> Result<Vec<NapiThread>> {
        threads_of(self.net(), &self.link(interface)?.port)
    }
}

fn threads_of(namespace: &NetNs, device: &str) -> Result<Vec<NapiThread>> {
    let query = || -> nix::Result<Vec<NapiThread>> {
        let ifindex = if_nametoindex(device)?;
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkGeneric,
        )?;
        let family = family_id(&socket)?;
        let messages = request(&socket, family, NAPI_GET, true, NAPI_IFINDEX, &ifindex.to_ne_bytes())?;
        let threads = messages.iter().filter_map(|message| {
            Some(NapiThread {
                napi_id: attribute_u32(message, NAPI_ID)?,
                pid: attribute_u32(message, NAPI_PID)?,
            })
        });
        Ok(threads.collect())
    };
    namespace.enter(query)?.doing(|| format!("list NAPI instances of {device} in {}", namespace.name()))
}

fn family_id(socket: &OwnedFd) -> nix::Result<u16> {
    let command = libc::CTRL_CMD_GETFAMILY as u8;
    let id = libc::CTRL_ATTR_FAMILY_ID as u16;
    let name = libc::CTRL_ATTR_FAMILY_NAME as u16;
    let messages = request(socket, libc::GENL_ID_CTRL as u16, command, false, name, b"netdev\0")?;
    let bytes = messages.first().and_then(|message| attribute(message, id)).ok_or(Errno::ENOENT)?;
    bytes.try_into().map(u16::from_ne_bytes).map_err(|_| Errno::EBADMSG)
}

/// Sends a request with one attribute; returns the attributes of each answer.
fn request(
    socket: &OwnedFd,
    kind: u16,
    command: u8,
    dump: bool,
    key: u16,
    value: &[u8],
) -> nix::Result<Vec<Vec<u8>>> {
    let flags = libc::NLM_F_REQUEST as u16 | if dump { libc::NLM_F_DUMP as u16 } else { 0 };
    let attribute_len = ATTRIBUTE_HEADER + value.len();
    let length = NLMSG_HEADER + GENL_HEADER + aligned(attribute_len);
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence number and port: a single request on a socket of its own needs neither.
    message.extend([0; 8]);
    message.extend([command, GENL_VERSION, 0, 0]);
    message.extend((attribute_len as u16).to_ne_bytes());
    message.extend(key.to_ne_bytes());
    message.extend(value);
    message.resize(length, 0);
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;

    let mut answers = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let received = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let mut rest = &buffer[..received];
        while let Some((kind, payload, next)) = split_message(rest) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(answers),
                libc::NLMSG_ERROR => return error_of(payload).map(|()| answers),
                _ => answers.push(payload.get(GENL_HEADER..).ok_or(Errno::EBADMSG)?.to_vec()),
            }
            rest = next;
        }
        if !dump {
            return Ok(answers);
        }
    }
}

/// The type and payload of the first netlink message, and the bytes after it.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let payload = bytes.get(NLMSG_HEADER..length)?;
    Some((kind, payload, bytes.get(aligned(length)..).unwrap_or_default()))
}

fn error_of(payload: &[u8]) -> nix::Result<()> {
    let code = payload
        .get(..4)
        .and_then(|code| code.try_into().ok())
        .map(i32::from_ne_bytes)
        .ok_or(Errno::EBADMSG)?;
    if code == 0 { Ok(()) } else { Err(Errno::from_raw(-code)) }
}

fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let key = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(ATTRIBUTE_HEADER..length)?;
        if key == wanted {
            return Some(value);
        }
        attributes = attributes.get(aligned(length)..)?;
    }
}

fn attribute_u32(attributes: &[u8], wanted: u16) -> Option<u32> {
    Some(u32::from_ne_bytes(attribute(attributes, wanted)?.try_into().ok()?))
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}
