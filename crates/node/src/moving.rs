//! Moves a client's TCP connection to another node from user space, in the middle of the connection.
//!
//! The node's programs keep a flow's packets from its socket as soon as its entry says "released", as they do when a
//! switch releases a flow. The state for the next owner is read with the checkpoint options of tcp(7) (`TCP_REPAIR`,
//! `tcp_setsockopt()` in net/ipv4/tcp.c); a socket closed in that mode sends nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::libc;
use switchback_http::framing::Framing;
use switchback_tls::endpoint::{Addresses, Frozen, Handoff};
use switchback_wire::flow_state::{FlowState, Stream};
use switchback_wire::message::FromNode;
use switchback_wire::packet::{flags, segment, set_window};
use switchback_wire::report::pool_id;
use switchback_wire::{
    Seq, address_bytes, address_from, bytes_of, read_from, sb_flow, sb_key, sb_owned, sb_ownership, sb_reason,
};

use crate::sender::Sender;
use crate::signer::Signer;

/// From linux/tcp.h; not in libc.
const TCP_REPAIR: libc::c_int = 19;
const TCP_REPAIR_QUEUE: libc::c_int = 20;
const TCP_QUEUE_SEQ: libc::c_int = 21;
const TCP_TIMESTAMP: libc::c_int = 24;
const TCP_REPAIR_WINDOW: libc::c_int = 29;
const REPAIR_ON: libc::c_int = 1;
/// Ends repair mode without a packet to the client.
const REPAIR_OFF: libc::c_int = -1;
const RECEIVE_QUEUE: libc::c_int = 1;
const SEND_QUEUE: libc::c_int = 2;
const ESTABLISHED: u8 = 1;

/// Number of words of `struct tcp_repair_window` in linux/tcp.h; the second is `snd_wnd`.
const WINDOW_WORDS: usize = 5;

/// Moves connections.
#[derive(Clone)]
pub(crate) struct Mover(Arc<Inner>);

struct Inner {
    owned: MapHandle,
    sender: Sender,
    /// Its key changes with the configuration.
    signer: RwLock<Signer>,
}

impl Mover {
    pub(crate) fn new(owned: MapHandle, sender: Sender, signer: Signer) -> Self {
        Mover(Arc::new(Inner { owned, sender, signer: RwLock::new(signer) }))
    }

    /// Sets the key that signs handoff packets.
    pub(crate) fn set_key(&self, key: sb_key) {
        self.0.signer.write().unwrap_or_else(PoisonError::into_inner).key = key;
    }
}

impl Inner {
    fn read(&self, flow: &sb_flow) -> io::Result<sb_owned> {
        let value = self.owned.lookup(bytes_of(flow), MapFlags::ANY).map_err(io::Error::other)?;
        value.and_then(|value| read_from(&value)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&self, flow: &sb_flow, owned: &sb_owned) -> io::Result<()> {
        self.owned.update(bytes_of(flow), bytes_of(owned), MapFlags::EXIST).map_err(io::Error::other)
    }
}

impl Handoff for Mover {
    fn freeze(&self, addresses: Addresses) -> io::Result<Box<dyn Frozen>> {
        let flow = flow_of(addresses);
        let before = self.0.read(&flow)?;
        if before.state != sb_ownership::SB_OWN_OPEN as u8 {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let frozen = sb_owned {
            state: sb_ownership::SB_OWN_RELEASED as u8,
            reason: sb_reason::SB_REASON_FROZEN as u8,
            ..before
        };
        self.0.write(&flow, &frozen)?;
        Ok(Box::new(FrozenFlow { inner: Arc::clone(&self.0), flow, before, taken: None, given: false }))
    }

    fn number(&self, addresses: Addresses) -> Option<u16> {
        self.0.read(&flow_of(addresses)).ok().map(|owned| owned.node)
    }
}

fn flow_of((client, vip): Addresses) -> sb_flow {
    sb_flow {
        client: address_bytes(client.ip()),
        vip: address_bytes(vip.ip()),
        client_port: client.port().to_be(),
        vip_port: vip.port().to_be(),
    }
}

/// State of a socket for the next owner.
struct SocketState {
    socket: OwnedFd,
    receive_next: Seq,
    send_next: Seq,
    window: u32,
    clock: u32,
}

struct FrozenFlow {
    inner: Arc<Inner>,
    flow: sb_flow,
    before: sb_owned,
    taken: Option<SocketState>,
    given: bool,
}

impl Frozen for FrozenFlow {
    fn take(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        let info: [u8; 1] = get(socket, libc::TCP_INFO)?;
        if info[0] != ESTABLISHED {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let owned = socket.as_fd().try_clone_to_owned()?;
        set(socket, TCP_REPAIR, REPAIR_ON)?;
        let numbers = numbers(socket);
        match numbers {
            Ok(Some((receive_next, sent, window, ticks))) => {
                // The client knows other numbers, if the handshake was replayed.
                let masquerade = self.before.masquerade;
                let send_next = Seq(sent.0.wrapping_add(masquerade.seq));
                let clock = ticks.wrapping_add(masquerade.tsval);
                self.taken = Some(SocketState { socket: owned, receive_next, send_next, window, clock });
                Ok(true)
            }
            other => {
                set(socket, TCP_REPAIR, REPAIR_OFF)?;
                other.map(|_| false)
            }
        }
    }

    fn give(&mut self, node: &str) -> io::Result<()> {
        let Some(taken) = &self.taken else { return Err(io::ErrorKind::NotConnected.into()) };
        let (inner, before) = (&self.inner, &self.before);
        if !self.given {
            let released = sb_owned {
                state: sb_ownership::SB_OWN_RELEASED as u8,
                reason: sb_reason::SB_REASON_NONE as u8,
                next: taken.receive_next.0,
                answered: taken.send_next.0,
                tsval: taken.clock,
                ..*before
            };
            inner.write(&self.flow, &released)?;
            self.given = true;
        }
        let state = before.flow_state();
        // The client's last timestamp is unknown here; zero means none (tcp_paws_check(), include/net/tcp.h).
        let clock = state.handshake.has_timestamps().then_some((0, taken.clock));
        let numbers = (taken.receive_next, taken.send_next);
        let mut packet = segment(&self.flow, true, numbers, flags::ACK, clock, &[]);
        let window = taken.window >> state.handshake.client_scale();
        set_window(&mut packet, u16::try_from(window).unwrap_or(u16::MAX));
        let at_mark = Some((Stream::Tunnel, Framing::default()));
        let message = FromNode::Move { target: pool_id(node), state: FlowState { at_mark, ..state } };
        let switch = address_from(before.switch_address);
        let signer = *inner.signer.read().unwrap_or_else(PoisonError::into_inner);
        let packet = signer.of(before.node).packet(switch, &self.flow, message.option(), &packet);
        let packet = packet.ok_or(io::ErrorKind::InvalidData)?;
        inner.sender.send(&[(switch, packet)]).map_err(io::Error::other)
    }
}

/// A flow that was not given away continues here.
impl Drop for FrozenFlow {
    fn drop(&mut self) {
        if self.given {
            return;
        }
        if let Some(taken) = &self.taken {
            let _ = set(taken.socket.as_fd(), TCP_REPAIR, REPAIR_OFF);
        }
        // Fails only if the flow has gone already.
        let _ = self.inner.write(&self.flow, &self.before);
    }
}

/// Next sequence numbers of both directions, the client's window, and the socket's clock; None if there is unread data.
fn numbers(socket: BorrowedFd<'_>) -> io::Result<Option<(Seq, Seq, u32, u32)>> {
    set(socket, TCP_REPAIR_QUEUE, RECEIVE_QUEUE)?;
    let mut byte = [0u8];
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the buffer has one byte.
    let peeked = unsafe { libc::recv(socket.as_raw_fd(), byte.as_mut_ptr().cast(), 1, flags) };
    if peeked > 0 {
        return Ok(None);
    }
    let receive_next = Seq(u32::from_ne_bytes(get(socket, TCP_QUEUE_SEQ)?));
    set(socket, TCP_REPAIR_QUEUE, SEND_QUEUE)?;
    let send_next = Seq(u32::from_ne_bytes(get(socket, TCP_QUEUE_SEQ)?));
    let clock = u32::from_ne_bytes(get(socket, TCP_TIMESTAMP)?);
    let window: [u8; 4 * WINDOW_WORDS] = get(socket, TCP_REPAIR_WINDOW)?;
    let [_, _, _, _, a, b, c, d, ..] = window;
    Ok(Some((receive_next, send_next, u32::from_ne_bytes([a, b, c, d]), clock)))
}

fn set(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is one int, and is read during the call only.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, (&raw const value).cast(), len)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The first N bytes of an option.
pub(crate) fn get<const N: usize>(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<[u8; N]> {
    let mut value = [0; N];
    let mut len = N as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of the array.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
