//! The asker's end.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use switchback_runtime::{Doing, Result, interface};
use switchback_wire::packet::TcpView;
use switchback_wire::{SB_GENEVE_PORT, keys, sb_key};

use crate::machine::Machine;
use crate::message::{Kind, Message, SHORTEST_QUESTION};
use crate::responder::now_ms;

/// A question without an answer is repeated after this time.
const AGAIN: Duration = Duration::from_millis(250);
/// Time for an answer that needs no work, and for an ICMP message.
const QUICK: Duration = Duration::from_millis(1500);
/// Time for a machine to ask its daemons and servers.
const SLOW: Duration = Duration::from_secs(6);
/// Questions of one length.
const TRIES: u32 = 3;
/// Shortest path MTU that is looked for: the least of IPv4 hosts (RFC 791).
const LEAST_MTU: usize = 576;
/// Headers of a datagram.
const HEADERS_V4: usize = 28;
const HEADERS_V6: usize = 48;
const LONGEST_DATAGRAM: usize = 1 << 16;

/// Why a machine has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It has another cluster key.
    WrongKey,
    /// Its kernel says that nobody has the port (ICMP).
    NobodyThere,
    /// The kernel has no route to it, or the machine is not there.
    Unreachable,
    /// Nothing came back.
    NoAnswer,
}

/// Asks one machine.
#[derive(Debug)]
pub struct Asker {
    socket: UdpSocket,
    /// Receives all ICMP messages: kernels send few of them (`icmp_ratelimit`), and a switch that greets the machine each
    /// second gets those. None without the privilege.
    icmp: Option<OwnedFd>,
    key: sb_key,
    address: IpAddr,
}

impl Asker {
    /// Asks the machine with this address, under this cluster key.
    pub fn new(address: IpAddr, cluster_key: &[u8; 32]) -> Result<Asker> {
        let any: SocketAddr =
            if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
        let doing = || format!("ask {address}");
        let socket = UdpSocket::bind(any).doing(doing)?;
        socket.connect((address, SB_GENEVE_PORT as u16)).doing(doing)?;
        never_fragment(&socket).doing(doing)?;
        let icmp = icmp_socket(address.is_ipv4()).ok();
        Ok(Asker { socket, icmp, key: keys::survey_key(cluster_key), address })
    }

    /// Whether it answers at all; what its clock is ahead of this machine's, in milliseconds.
    pub fn clock(&self) -> std::result::Result<i64, Silence> {
        let asked = now_ms();
        let theirs = self.echo(SHORTEST_QUESTION, QUICK).map_err(|silence| match silence {
            Silence::NoAnswer if self.is_refused() => Silence::NobodyThere,
            other => other,
        })?;
        let here = asked.midpoint(now_ms());
        Ok(theirs.cast_signed() - here.cast_signed())
    }

    /// What it says of itself.
    pub fn describe(&self) -> std::result::Result<Machine, Silence> {
        let mut parts: Vec<Option<Vec<u8>>> = Vec::new();
        let take = |content: &[u8]| {
            let [index, count, part @ ..] = content else { return None };
            parts.resize(usize::from(*count), None);
            *parts.get_mut(usize::from(*index))? = Some(part.to_vec());
            let whole: Option<Vec<Vec<u8>>> = parts.iter().cloned().collect();
            serde_json::from_slice(&whole?.concat()).ok()
        };
        // The machine works on one question at a time: a second one would only make it do so again.
        self.ask((Kind::Describe, Kind::Described), &[], SHORTEST_QUESTION, (SLOW, SLOW), take)
    }

    /// Has it send packets from its VIPs to this port here, under this number.
    pub fn send_from_vips(&self, port: u16, number: u32) -> std::result::Result<(), Silence> {
        let question =
            Message { kind: Kind::SendFromVips, number: number.into(), content: &port.to_be_bytes() };
        let take = |_: &[u8]| Some(());
        self.exchange(&question, Kind::Sent, SHORTEST_QUESTION, (SLOW / 2, SLOW), take)
    }

    /// The MTU of the interface towards it, and the longest packet that gets there and back, in bytes.
    pub fn path_mtu(&self) -> Result<(usize, Option<usize>)> {
        let local = self.socket.local_addr().doing(|| "look at a socket")?.ip();
        let mtu = interface::mtu(&interface::with_address(local)?)? as usize;
        let headers = if self.address.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
        let passes = |len: usize| {
            (0..TRIES).any(|_| self.echo(len.saturating_sub(headers).max(SHORTEST_QUESTION), AGAIN).is_ok())
        };
        if passes(mtu) {
            return Ok((mtu, Some(mtu)));
        }
        if !passes(LEAST_MTU) {
            return Ok((mtu, None));
        }
        let (mut least, mut most) = (LEAST_MTU, mtu);
        while most - least > 1 {
            let middle = least.midpoint(most);
            if passes(middle) { least = middle } else { most = middle }
        }
        Ok((mtu, Some(least)))
    }

    fn echo(&self, len: usize, patience: Duration) -> std::result::Result<u64, Silence> {
        let take = |content: &[u8]| Some(u64::from_be_bytes(*content.first_chunk()?));
        self.ask((Kind::Echo, Kind::Echoed), &[], len, (AGAIN, patience), take)
    }

    /// Whether an ICMP message has come that says that nobody has the port.
    fn is_refused(&self) -> bool {
        let Some(icmp) = &self.icmp else { return false };
        let mut packet = [0; 512];
        std::iter::from_fn(|| {
            recv(icmp.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT)
                .ok()
                .map(|len| refuses(&packet[..len], self.address))
        })
        .any(|refuses| refuses)
    }

    fn ask<T>(
        &self,
        (kind, answer): (Kind, Kind),
        content: &[u8],
        len: usize,
        times: (Duration, Duration),
        take: impl FnMut(&[u8]) -> Option<T>,
    ) -> std::result::Result<T, Silence> {
        self.exchange(&Message { kind, number: random(), content }, answer, len, times, take)
    }

    /// Asks until `take` has all of the answer: again after the first time, until the second is over.
    fn exchange<T>(
        &self,
        question: &Message<'_>,
        answer: Kind,
        len: usize,
        (again, patience): (Duration, Duration),
        mut take: impl FnMut(&[u8]) -> Option<T>,
    ) -> std::result::Result<T, Silence> {
        let datagram = question.encode(&self.key, len);
        let deadline = Instant::now() + patience;
        let mut received = vec![0; LONGEST_DATAGRAM];
        let mut silence = Silence::NoAnswer;
        while Instant::now() < deadline {
            if let Err(error) = self.socket.send(&datagram) {
                silence = silence_of(error.kind());
            }
            let until = deadline.min(Instant::now() + again);
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            {
                // A timeout that is not zero is always taken.
                let _ = self.socket.set_read_timeout(Some(left));
                let len = match self.socket.recv(&mut received) {
                    Ok(len) => len,
                    Err(error) => {
                        if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                            silence = silence_of(error.kind());
                        }
                        continue;
                    }
                };
                match Message::read(&received[..len], &[self.key]) {
                    Some((said, _)) if said.number != question.number => {}
                    Some((Message { kind: Kind::WrongKey, .. }, _)) => return Err(Silence::WrongKey),
                    Some((said, true)) if said.kind == answer => {
                        if let Some(taken) = take(said.content) {
                            return Ok(taken);
                        }
                    }
                    _ => {}
                }
            }
        }
        Err(silence)
    }
}

fn silence_of(kind: ErrorKind) -> Silence {
    match kind {
        ErrorKind::ConnectionRefused => Silence::NobodyThere,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Silence::Unreachable,
        _ => Silence::NoAnswer,
    }
}

fn icmp_socket(v4: bool) -> nix::Result<OwnedFd> {
    let (family, protocol) = match v4 {
        true => (AddressFamily::Inet, SockProtocol::Icmp),
        false => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)
}

/// Whether a message from a raw socket says that the port of handoff packets is unreachable at this address (RFC 792,
/// RFC 4443 section 3.1). IPv4 messages come with their IP header.
fn refuses(message: &[u8], address: IpAddr) -> bool {
    // With either version the quoted packet's UDP header is behind 48 bytes.
    let port = &(SB_GENEVE_PORT as u16).to_be_bytes()[..];
    let (kind, quoted) = match address {
        IpAddr::V4(v4) => (message.get(20..22) == Some(&[3, 3]), message.get(44..48) == Some(&v4.octets())),
        IpAddr::V6(v6) => (message.get(..2) == Some(&[1, 4]), message.get(32..48) == Some(&v6.octets())),
    };
    kind && quoted && message.get(50..52) == Some(port)
}

/// Sends packets with the don't-fragment bit, however short the kernel takes the path to be (`IP_PMTUDISC_PROBE`).
pub(crate) fn never_fragment(socket: &UdpSocket) -> std::io::Result<()> {
    let (level, name) = match socket.local_addr()? {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    let probe: libc::c_int = libc::IP_PMTUDISC_PROBE;
    // SAFETY: the kernel reads an int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const probe).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(result).map(drop).map_err(Into::into)
}

/// Sees packets from VIPs before this machine's kernel filters them by their source.
#[derive(Debug)]
pub struct VipListener {
    socket: OwnedFd,
}

impl VipListener {
    /// Listens on all interfaces.
    pub fn open() -> Result<VipListener> {
        let doing = || "open a packet socket";
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket =
            socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll).doing(doing)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).doing(doing)?;
        Ok(VipListener { socket })
    }

    /// The sources of packets to this port under this number that come within `patience`; fewer if `enough` says so.
    pub fn sources(
        &self,
        (port, number): (u16, u32),
        patience: Duration,
        enough: impl Fn(&[SocketAddr]) -> bool,
    ) -> Vec<SocketAddr> {
        let (deadline, mut packet, mut sources) = (Instant::now() + patience, vec![0; 1 << 16], Vec::new());
        while Instant::now() < deadline && !enough(&sources) {
            let Ok(len) = recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::empty()) else { continue };
            let source = source_of(&packet[..len], port, number).filter(|source| !sources.contains(source));
            sources.extend(source);
        }
        sources
    }
}

/// The source of a packet to this port with this sequence number.
fn source_of(packet: &[u8], port: u16, number: u32) -> Option<SocketAddr> {
    let view = TcpView::parse(packet)?;
    let be16 = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    if view.seq.0 != number || be16(view.tcp + 2)? != port {
        return None;
    }
    let source: IpAddr = if view.tcp == 20 {
        packet[12..].first_chunk::<4>().copied()?.into()
    } else {
        packet[8..].first_chunk::<16>().copied()?.into()
    };
    Some(SocketAddr::new(source, be16(view.tcp)?))
}

/// A port of the dynamic range (RFC 6335) and a number, both random.
pub fn unused() -> (u16, u32) {
    let random = random();
    (49_152 + (random % 16_384) as u16, (random >> 32) as u32)
}

fn random() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(now_ms())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responder::from_vip;

    #[test]
    fn a_port_is_refused_by_the_machine_itself() {
        let v4: IpAddr = "192.0.2.21".parse().unwrap();
        let mut message = vec![0; 20 + 8 + 28];
        message[20..22].copy_from_slice(&[3, 3]);
        message[44..48].copy_from_slice(&[192, 0, 2, 21]);
        message[50..52].copy_from_slice(&6081u16.to_be_bytes());
        assert!(refuses(&message, v4));
        assert!(!refuses(&message, "192.0.2.22".parse().unwrap()));
        assert!((0..52).all(|len| !refuses(&message[..len], v4)));
        message[51] ^= 1;
        assert!(!refuses(&message, v4));
        let v6: IpAddr = "2001:db8::21".parse().unwrap();
        let mut message = vec![0; 8 + 48];
        message[..2].copy_from_slice(&[1, 4]);
        message[32..48].copy_from_slice(&"2001:db8::21".parse::<std::net::Ipv6Addr>().unwrap().octets());
        message[50..52].copy_from_slice(&6081u16.to_be_bytes());
        assert!(refuses(&message, v6) && (0..52).all(|len| !refuses(&message[..len], v6)));
    }

    #[test]
    fn packets_from_vips_are_known_by_port_and_number() {
        for (vip, to) in
            [("192.0.2.100:80", "192.0.2.10:40000"), ("[2001:db8::100]:443", "[2001:db8::10]:40000")]
        {
            let (vip, to): (SocketAddr, SocketAddr) = (vip.parse().unwrap(), to.parse().unwrap());
            let packet = from_vip(vip, to, 77);
            assert_eq!(source_of(&packet, 40000, 77), Some(vip));
            assert_eq!(source_of(&packet, 40000, 78), None);
            assert_eq!(source_of(&packet, 40001, 77), None);
        }
    }
}
