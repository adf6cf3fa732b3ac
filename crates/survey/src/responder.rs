//! The daemon's end: a thread that answers questions at a UDP socket.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};
use switchback_runtime::{Doing, Result, since_1970};
use switchback_wire::packet::{flags, segment};
use switchback_wire::{Seq, address_bytes, keys, sb_flow, sb_key};

use crate::machine::{self, Machine};
use crate::message::{Kind, Message, PART, SHORTEST_QUESTION};

/// Answers in a second, whoever asks.
pub const MOST_PER_SECOND: u32 = 100;
const LONGEST_DATAGRAM: usize = 1 << 16;

/// Answers questions until it is dropped.
#[derive(Debug)]
pub struct Responder {
    keys: Arc<Mutex<Vec<sb_key>>>,
    stop: Arc<EventFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Responder {
    /// Answers at these sockets, which are bound to the port of handoff packets.
    pub fn start(sockets: Vec<UdpSocket>, cluster_keys: &[[u8; 32]]) -> Result<Responder> {
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let stop = Arc::new(stop.doing(|| "make an event descriptor")?);
        let keys = Arc::new(Mutex::new(survey_keys(cluster_keys)));
        let mut responder = Responder { keys, stop, threads: Vec::new() };
        for socket in sockets {
            let doing = || "prepare the socket for questions of other machines";
            socket.set_nonblocking(true).doing(doing)?;
            crate::asker::never_fragment(&socket).doing(doing)?;
            let mut answering = Answering {
                raw: raw_socket(socket.local_addr().doing(doing)?.is_ipv4()).ok(),
                socket,
                keys: Arc::clone(&responder.keys),
                pace: Pace { second: Instant::now(), left: MOST_PER_SECOND },
            };
            let stop = Arc::clone(&responder.stop);
            let thread = thread::Builder::new().name("survey".to_owned());
            let thread = thread.spawn(move || answering.run(&stop)).doing(|| "start a thread")?;
            responder.threads.push(thread);
        }
        Ok(responder)
    }

    /// Takes other keys, after a reload.
    pub fn set_keys(&self, cluster_keys: &[[u8; 32]]) {
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = survey_keys(cluster_keys);
    }
}

fn survey_keys(cluster_keys: &[[u8; 32]]) -> Vec<sb_key> {
    cluster_keys.iter().map(keys::survey_key).collect()
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Fails only at 2^64 - 1 stops.
        let _ = self.stop.write(1);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

struct Answering {
    socket: UdpSocket,
    keys: Arc<Mutex<Vec<sb_key>>>,
    /// For packets from VIPs; None where the process must not open one.
    raw: Option<OwnedFd>,
    pace: Pace,
}

impl Answering {
    fn run(&mut self, stop: &EventFd) {
        let mut datagram = vec![0; LONGEST_DATAGRAM];
        loop {
            let mut waiting = [
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
                PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            ];
            let polled = poll(&mut waiting, PollTimeout::NONE);
            if polled.is_err_and(|errno| errno != nix::errno::Errno::EINTR) || waiting[1].any() == Some(true)
            {
                return;
            }
            while let Ok((len, from)) = self.socket.recv_from(&mut datagram) {
                self.answer(&datagram[..len], from);
            }
        }
    }

    fn answer(&mut self, datagram: &[u8], from: SocketAddr) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some((question, is_right)), Some(key)) = (Message::read(datagram, &keys), keys.first()) else {
            return;
        };
        if datagram.len() < SHORTEST_QUESTION || !self.pace.admits(Instant::now()) {
            return;
        }
        let number = question.number;
        let send = |kind, content: &[u8], len| {
            // The asker asks again.
            let _ = self.socket.send_to(&Message { kind, number, content }.encode(key, len), from);
        };
        match question.kind {
            _ if !is_right => send(Kind::WrongKey, &[], 0),
            Kind::Describe => {
                let json = serde_json::to_vec(&Machine::here()).unwrap_or_default();
                let parts: Vec<&[u8]> = json.chunks(PART).take(usize::from(u8::MAX)).collect();
                for (index, part) in parts.iter().enumerate() {
                    send(Kind::Described, &[&[index as u8, parts.len() as u8], *part].concat(), 0);
                }
            }
            Kind::Echo => send(Kind::Echoed, &now_ms().to_be_bytes(), datagram.len()),
            Kind::SendFromVips => {
                let port = question.content.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
                self.send_from_vips(SocketAddr::new(from.ip(), port), number as u32);
                send(Kind::Sent, &[], 0);
            }
            Kind::Described | Kind::Echoed | Kind::Sent | Kind::WrongKey => {}
        }
    }

    /// Sends a packet like those of responses from each VIP of the machine's node.
    fn send_from_vips(&self, to: SocketAddr, seq: u32) {
        let Some(raw) = &self.raw else { return };
        let address = to.ip().to_canonical();
        for vip in machine::vips().into_iter().filter(|vip| vip.is_ipv4() == address.is_ipv4()) {
            let packet = from_vip(vip, SocketAddr::new(address, to.port()), seq);
            let there: SockaddrStorage = SocketAddr::new(address, 0).into();
            // Whether it arrives is the question.
            let _ = sendto(raw.as_raw_fd(), &packet, &there, MsgFlags::MSG_DONTWAIT);
        }
    }
}

/// A TCP packet with data of a connection from `to` to `vip` that does not exist.
pub(crate) fn from_vip(vip: SocketAddr, to: SocketAddr, seq: u32) -> Vec<u8> {
    let flow = sb_flow {
        client: address_bytes(to.ip()),
        vip: address_bytes(vip.ip()),
        client_port: to.port().to_be(),
        vip_port: vip.port().to_be(),
    };
    segment(&flow, false, (Seq(seq), Seq(0)), flags::ACK | flags::PSH, None, b"switchback test")
}

fn raw_socket(v4: bool) -> nix::Result<OwnedFd> {
    let family = if v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)
}

/// The time since 1970 in milliseconds.
pub(crate) fn now_ms() -> u64 {
    since_1970().as_millis() as u64
}

/// The budget of a second.
struct Pace {
    second: Instant,
    left: u32,
}

impl Pace {
    fn admits(&mut self, now: Instant) -> bool {
        if now >= self.second + Duration::from_secs(1) {
            (self.second, self.left) = (now, MOST_PER_SECOND);
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_a_budget() {
        let start = Instant::now();
        let mut pace = Pace { second: start, left: MOST_PER_SECOND };
        let admitted = |pace: &mut Pace, now| (0..1000).filter(|_| pace.admits(now)).count() as u32;
        assert_eq!(admitted(&mut pace, start), MOST_PER_SECOND);
        assert_eq!(admitted(&mut pace, start + Duration::from_millis(999)), 0);
        assert_eq!(admitted(&mut pace, start + Duration::from_secs(1)), MOST_PER_SECOND);
    }
}
