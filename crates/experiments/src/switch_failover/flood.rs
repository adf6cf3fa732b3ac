//! Strangers' packets to the services, of flows that no node has: a switch cannot know that, and asks the nodes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, sendto, socket,
};
use switchback_lab::{Doing, Host, Lab, Result};
use switchback_wire::packet::{flags, segment};
use switchback_wire::{Seq, address_bytes, sb_flow, sb_op};

use super::super::open_loop::uniform;

/// Sources of the packets, for measurements (RFC 2544): 512 networks of 256 addresses.
const SOURCES: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const SOURCES_LEN: f64 = 131_072.0;
const TICK: Duration = Duration::from_millis(1);
/// Most packets of a tick, beyond which what is late is left out.
const MOST: u64 = 200;
const SECOND: Duration = Duration::from_secs(1);

/// Sends so many packets a second until it is over, half of them with data, the others bare acknowledgments.
pub(super) fn flood(vip: IpAddr, per_s: u32, over: &AtomicBool) -> io::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    let to: SockaddrStorage = SocketAddr::new(vip, 0).into();
    let mut state = 1;
    let mut random = |below: f64| (uniform(&mut state) * below) as u32;
    let (start, mut passed) = (Instant::now(), 0);
    while !over.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(per_s)) as u64;
        for _ in 0..(due - passed).min(MOST) {
            let source = Ipv4Addr::from_bits(SOURCES.to_bits() + random(SOURCES_LEN));
            let flow = sb_flow {
                client: address_bytes(source.into()),
                vip: address_bytes(vip),
                client_port: (1024 + random(60_000.0) as u16).to_be(),
                vip_port: 80u16.to_be(),
            };
            let [seq, ack] = [(); 2].map(|()| Seq(random(f64::from(u32::MAX))));
            let data: &[u8] = if random(2.0) == 0 { b"" } else { b"GET / HTTP/1.1\r\n\r\n" };
            let packet = segment(&flow, true, (seq, ack), flags::ACK, None, data);
            sendto(socket.as_raw_fd(), &packet, &to, MsgFlags::empty())?;
        }
        passed = due;
        thread::sleep(TICK);
    }
    Ok(())
}

/// The most questions (PROBE) that the node gets in a second until it is over.
pub(super) fn most_questions(node: &Host, over: &AtomicBool) -> Result<u64> {
    // UDP, Geneve, and four bytes of its option stand before the version and the operation.
    let counter = node.count(&format!("udp dport 6081 @th,168,8 {}", sb_op::SB_OP_PROBE as u8))?;
    let (mut most, mut before, mut at) = (0, 0, Instant::now());
    while !over.load(Ordering::Relaxed) {
        thread::sleep(SECOND);
        let (now, questions) = (Instant::now(), counter.to_host()?.packets);
        let rate = (questions - before) as f64 / (now - at).as_secs_f64();
        (most, before, at) = (most.max(rate as u64), questions, now);
    }
    Ok(most)
}

/// Runs `work` under a flood from a client of the lab; returns the most questions that the first node gets in a second.
pub(super) fn beside<T>(lab: &Lab, per_s: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
    if per_s == 0 {
        return Ok((work()?, 0));
    }
    let over = AtomicBool::new(false);
    let vip = lab.vip4().into();
    thread::scope(|scope| {
        let flooding = scope.spawn(|| lab.client(0).enter(|| flood(vip, per_s, &over)));
        let counting = scope.spawn(|| most_questions(lab.node(0), &over));
        let worked = work();
        over.store(true, Ordering::Relaxed);
        let flooded = flooding.join().expect("it does not panic");
        let most = counting.join().expect("it does not panic");
        let worked = worked?;
        flooded?.doing(|| "flood the service".to_owned())?;
        Ok((worked, most?))
    })
}
