//! Cables that lose, duplicate and reorder packets.
//!
//! Not every kernel has netem. So the cable is cut, and a thread carries the frames between the two pieces through
//! packet sockets, in both directions:
//!
//! ```text
//! host eth0 === client0-h   (thread)   client0-b === client0, the bridge's port
//! ```
//!
//! The port that stays in the bridge keeps the old name, on which counters, loss and cuts depend. A frame must not be
//! longer than the MTU when it arrives here, so nothing is merged in the lab from the first impairment on, as with
//! loss.
//!
//! The choice for the nth packet of a direction depends on the seed and on n alone.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{MsgFlags, recv, send, setsockopt, sockopt::RcvBufForce};

use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::link::mtu_of;
use crate::netns::NetNs;
use crate::process::wait_readable;
use crate::teardown::Shared;
use crate::topology::Link;

/// Buffer of a socket until the thread reads it, in bytes: more than TCP sends before it waits.
const SOCKET_BUFFER_BYTES: usize = 32 << 20;
const FRAME_BYTES: usize = 1 << 16;
/// Frames taken from one piece of cable before the next one's turn.
const BATCH: usize = 64;
/// Timeout while no packet is held back.
const IDLE: Duration = Duration::from_secs(60);
const ETHERNET_HEADER: usize = 14;
/// Bit in the first byte of a group address (IEEE 802).
const GROUP_ADDRESS: u8 = 1;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_NEXT_HEADER: usize = ETHERNET_HEADER + 6;
const ICMPV6_TYPE: usize = ETHERNET_HEADER + 40;
const ICMPV6: u8 = 58;
/// ICMPv6 types from router solicitation to redirect (RFC 4861 section 4).
const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// An impairment of a host's cables, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairment {
    /// Packets of 1000 that are lost.
    pub loss_permille: u16,
    /// Packets that are duplicated, of 1000 that are not lost.
    pub duplicate_permille: u16,
    /// Packets that are held back, of 1000 that are not lost; of a duplicated packet only the second copy.
    pub reorder_permille: u16,
    /// Time for which they are held back. Later packets overtake them.
    pub hold: Duration,
    /// Seed of the choices.
    pub seed: u64,
}

/// Counts of one direction's packets. Multicast, ARP and neighbour discovery are neither impaired nor counted: their
/// retries take seconds and would distort the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImpairedTraffic {
    /// All packets.
    pub packets: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Packets that were duplicated.
    pub duplicated: u64,
    /// Packets, or second copies, that were overtaken.
    pub reordered: u64,
}

/// An impairment that lasts until it is healed or dropped.
#[derive(Debug)]
pub struct Impaired {
    host: String,
    net: NetNs,
    shared: Arc<Shared>,
    links: Vec<Link>,
    lanes: Arc<Mutex<Lanes>>,
    /// The thread, and the pipe that ends it; None once healed.
    thread: Option<(JoinHandle<Result<()>>, PipeWriter)>,
}

impl Host {
    /// Impairs the host's cables until the returned guard is healed or dropped. A packet or two may be lost uncounted
    /// at the start and at the end. Rates and MTUs must not change meanwhile.
    pub fn impair(&self, impairment: Impairment) -> Result<Impaired> {
        self.stop_merging()?;
        let (links, net) = (self.links().to_vec(), self.net().clone());
        for link in &links {
            cut(&net, link)?;
        }
        // From here on a drop of the guard restores the cables.
        let mut impaired = Impaired {
            host: self.name().to_owned(),
            net,
            shared: Arc::clone(self.shared()),
            links,
            lanes: Arc::default(),
            thread: None,
        };
        impaired.start(impairment)?;
        Ok(impaired)
    }
}

impl Impaired {
    /// Counts of packets from the host.
    pub fn from_host(&self) -> ImpairedTraffic {
        self.sum(0)
    }

    /// Counts of packets to the host.
    pub fn to_host(&self) -> ImpairedTraffic {
        self.sum(1)
    }

    /// Ends the impairment. Packets that are held back are sent on.
    pub fn heal(mut self) -> Result<()> {
        self.end()
    }

    fn sum(&self, direction: usize) -> ImpairedTraffic {
        lock(&self.lanes).iter().skip(direction).step_by(2).fold(ImpairedTraffic::default(), |sum, lane| {
            let one = lane.state.traffic;
            ImpairedTraffic {
                packets: sum.packets + one.packets,
                lost: sum.lost + one.lost,
                duplicated: sum.duplicated + one.duplicated,
                reordered: sum.reordered + one.reordered,
            }
        })
    }

    fn start(&mut self, impairment: Impairment) -> Result<()> {
        let mut lanes = Vec::new();
        for link in &self.links {
            let open = |name: String| -> Result<Arc<OwnedFd>> {
                let socket = self.net.enter(|| packet_socket(&name))?;
                socket.map(Arc::new).doing(|| format!("open a packet socket on {name}"))
            };
            let (host, bridge) = (open(host_piece(link))?, open(bridge_piece(link))?);
            for (from, to) in [(&host, &bridge), (&bridge, &host)] {
                let state = LaneState::new(impairment, lanes.len() as u64);
                lanes.push(Lane { from: Arc::clone(from), to: Arc::clone(to), state });
            }
        }
        *lock(&self.lanes) = lanes;
        let (stopped, stop) = io::pipe().doing(|| "make a pipe".to_owned())?;
        let lanes = Arc::clone(&self.lanes);
        self.thread = Some((std::thread::spawn(move || carry(&lanes, &stopped)), stop));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let carried = self.thread.take().map_or(Ok(()), |(thread, stop)| {
            drop(stop);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        for link in std::mem::take(&mut self.links) {
            self.shared.while_up(|| mend(&self.net, &link))?;
        }
        carried
    }
}

impl Drop for Impaired {
    fn drop(&mut self) {
        match self.end() {
            Ok(()) | Err(Error::TornDown) => {}
            Err(error) => eprintln!("the cables of {} are still impaired: {error}", self.host),
        }
    }
}

fn host_piece(link: &Link) -> String {
    format!("{}-h", link.port)
}

fn bridge_piece(link: &Link) -> String {
    format!("{}-b", link.port)
}

fn cut(net: &NetNs, link: &Link) -> Result<()> {
    let (host, bridge, port) = (host_piece(link), bridge_piece(link), &link.port);
    let mtu = mtu_of(net, port)?;
    net.ip(&format!(
        "link set dev {port} nomaster
link set dev {port} name {host}
link add {port} mtu {mtu} type veth peer name {bridge} mtu {mtu}
link set dev {bridge} up
link set dev {port} master {} up
",
        link.bridge
    ))
}

fn mend(net: &NetNs, link: &Link) -> Result<()> {
    let (host, port) = (host_piece(link), &link.port);
    net.ip(&format!(
        "link del {port}
link set dev {host} name {port}
link set dev {port} master {}
",
        link.bridge
    ))
}

/// A socket that receives whole frames from the interface, those sent by itself excepted, and sends them.
fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let index = if_nametoindex(interface)?;
    // With protocol 0 it receives nothing until it is bound.
    // SAFETY: plain numbers.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just created this descriptor, which has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    setsockopt(&socket, RcvBufForce, &SOCKET_BUFFER_BYTES)?;
    let yes: libc::c_int = 1;
    // SAFETY: the option is an int, as is its length.
    check(unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    })?;
    // SAFETY: an address of numbers only, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is of the type that AF_PACKET takes, and of the given length.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), len) })?;
    Ok(socket)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Two lanes for each link: from the host, to the host.
type Lanes = Vec<Lane>;

/// One direction of a cable.
#[derive(Debug)]
struct Lane {
    from: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    state: LaneState,
}

fn lock(lanes: &Mutex<Lanes>) -> MutexGuard<'_, Lanes> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries frames until the other end of the pipe is closed.
fn carry(lanes: &Mutex<Lanes>, stopped: &PipeReader) -> Result<()> {
    let sockets: Vec<Arc<OwnedFd>> = lock(lanes).iter().map(|lane| Arc::clone(&lane.from)).collect();
    let mut fds = vec![stopped.as_fd()];
    fds.extend(sockets.iter().map(|socket| socket.as_fd()));
    let mut frame = vec![0; FRAME_BYTES];
    loop {
        let due = lock(lanes).iter().filter_map(|lane| lane.state.next_due()).min();
        wait_readable(&fds, due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now())))?;
        let ended = wait_readable(&fds[..1], Duration::ZERO)?;
        for lane in lock(lanes).iter_mut() {
            lane.carry(&mut frame, ended).doing(|| "carry frames over an impaired cable".to_owned())?;
        }
        if ended {
            return Ok(());
        }
    }
}

impl Lane {
    /// Sends packets that are due (at the end all that are held back), and those that have arrived.
    fn carry(&mut self, frame: &mut [u8], ended: bool) -> nix::Result<()> {
        for _ in 0..BATCH {
            let len = match recv(self.from.as_raw_fd(), frame, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => break,
                received => received?,
            };
            for _ in 0..self.state.take(&frame[..len], Instant::now()) {
                put(&self.to, &frame[..len])?;
            }
        }
        while let Some(held) = self.state.release(Instant::now(), ended) {
            put(&self.to, &held)?;
        }
        Ok(())
    }
}

/// Sends a frame; a full queue drops it.
fn put(socket: &OwnedFd, frame: &[u8]) -> nix::Result<()> {
    match send(socket.as_raw_fd(), frame, MsgFlags::empty()) {
        Ok(_) | Err(Errno::ENOBUFS) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Decides on the packets of a direction, and holds packets back.
#[derive(Debug)]
struct LaneState {
    impairment: Impairment,
    random: u64,
    traffic: ImpairedTraffic,
    sent: u64,
    /// Held packets, in order of arrival: all are held equally long.
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    frame: Vec<u8>,
    until: Instant,
    /// Number of packets sent before its arrival.
    after: u64,
}

impl LaneState {
    fn new(impairment: Impairment, lane: u64) -> LaneState {
        // Mixed, since otherwise one lane's numbers would be another's, shifted.
        let random = mix(mix(impairment.seed) ^ lane);
        LaneState { impairment, random, traffic: ImpairedTraffic::default(), sent: 0, held: VecDeque::new() }
    }

    /// Number of copies of the frame to send at once.
    fn take(&mut self, frame: &[u8], now: Instant) -> u64 {
        if is_spared(frame) {
            return 1;
        }
        let Impairment { loss_permille, duplicate_permille, reorder_permille, hold, .. } = self.impairment;
        // All three are drawn for every packet, so that later numbers do not depend on the results.
        let [lost, duplicated, held] =
            [loss_permille, duplicate_permille, reorder_permille].map(|permille| self.draw(permille));
        self.traffic.packets += 1;
        if lost {
            self.traffic.lost += 1;
            return 0;
        }
        let copies = if duplicated { 2 } else { 1 };
        self.traffic.duplicated += copies - 1;
        if held {
            self.held.push_back(Held { frame: frame.to_vec(), until: now + hold, after: self.sent });
        }
        let at_once = if held { copies - 1 } else { copies };
        self.sent += at_once;
        at_once
    }

    /// The next frame that has been held for long enough, or with `at_all` any.
    fn release(&mut self, now: Instant, at_all: bool) -> Option<Vec<u8>> {
        if !at_all && self.next_due()? > now {
            return None;
        }
        let held = self.held.pop_front()?;
        self.traffic.reordered += u64::from(self.sent > held.after);
        self.sent += 1;
        Some(held.frame)
    }

    fn next_due(&self) -> Option<Instant> {
        self.held.front().map(|held| held.until)
    }

    fn draw(&mut self, permille: u16) -> bool {
        self.random = self.random.wrapping_add(GOLDEN);
        mix(self.random) % 1000 < u64::from(permille)
    }
}

/// splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

fn is_spared(frame: &[u8]) -> bool {
    if frame.first().is_some_and(|byte| byte & GROUP_ADDRESS != 0) {
        return true;
    }
    match frame.get(ETHERNET_HEADER - 2..ETHERNET_HEADER) {
        Some(kind) if kind == ETHERTYPE_IPV4 => false,
        Some(kind) if kind == ETHERTYPE_IPV6 => {
            frame.get(IPV6_NEXT_HEADER) == Some(&ICMPV6)
                && frame.get(ICMPV6_TYPE).is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME_OF_ALL: Impairment = Impairment {
        loss_permille: 100,
        duplicate_permille: 100,
        reorder_permille: 100,
        hold: Duration::from_millis(3),
        seed: 1,
    };

    fn packet() -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[ETHERNET_HEADER - 2..ETHERNET_HEADER].copy_from_slice(&ETHERTYPE_IPV4);
        frame
    }

    /// Packets that a lane sends on immediately, of a thousand at intervals of a millisecond, and its counts.
    fn thousand(impairment: Impairment, lane: u64) -> (Vec<u64>, ImpairedTraffic) {
        let (mut state, start) = (LaneState::new(impairment, lane), Instant::now());
        let mut released = 0;
        let at_once: Vec<u64> = (0..1000)
            .map(|ms| {
                let now = start + Duration::from_millis(ms);
                let copies = state.take(&packet(), now);
                released += std::iter::from_fn(|| state.release(now, false)).count() as u64;
                copies
            })
            .collect();
        released += std::iter::from_fn(|| state.release(start, true)).count() as u64;
        let traffic = state.traffic;
        assert_eq!(at_once.iter().sum::<u64>() + released, 1000 - traffic.lost + traffic.duplicated);
        (at_once, traffic)
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(thousand(SOME_OF_ALL, 0), thousand(SOME_OF_ALL, 0));
        assert_ne!(thousand(SOME_OF_ALL, 0).0, thousand(SOME_OF_ALL, 1).0);
        assert_ne!(thousand(SOME_OF_ALL, 0).0, thousand(Impairment { seed: 2, ..SOME_OF_ALL }, 0).0);
    }

    #[test]
    fn the_asked_for_shares_are_lost_duplicated_and_reordered() {
        let (_, traffic) = thousand(SOME_OF_ALL, 0);
        // Six standard deviations are 57.
        for share in [traffic.lost, traffic.duplicated, traffic.reordered] {
            assert!((43..=157).contains(&share), "{traffic:?}");
        }
        assert_eq!(thousand(Impairment::default(), 0).0, [1; 1000]);
    }

    #[test]
    fn multicast_and_address_resolution_are_spared() {
        let mut state = LaneState::new(Impairment { loss_permille: 1000, ..Impairment::default() }, 0);
        let mut copies = |frame: &[u8]| state.take(frame, Instant::now());
        let arp = [[0; 12].as_slice(), &[0x08, 0x06], &[0; 28]].concat();
        assert_eq!((copies(&packet()), copies(&arp)), (0, 1));
        let mut icmpv6 = [[0; 12].as_slice(), &ETHERTYPE_IPV6, &[0; 64]].concat();
        icmpv6[IPV6_NEXT_HEADER] = ICMPV6;
        for (kind, expected) in [(128, 0), (135, 1), (136, 1)] {
            icmpv6[ICMPV6_TYPE] = kind;
            assert_eq!(copies(&icmpv6), expected, "ICMPv6 type {kind}");
        }
        let multicast = [&[0x33, 0x33], &packet()[2..]].concat();
        assert_eq!(copies(&multicast), 1);
    }
}
