//! Handoff packets that somebody in the cluster's network has recorded, sent again later; and questions to nodes that a
//! stranger provokes.

use std::collections::HashMap;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use switchback_lab::Host;
use switchback_wire::packet::{flags, fold, segment, sum};
use switchback_wire::{Seq, sb_op, sb_option};

use crate::common::http::{Documents, get};
use crate::common::packets::{Random, Raw, flow, seed};
use crate::common::{Cluster, PATIENCE, Result, wait_until};
use crate::victims::Scene;

/// The operation, behind the headers of IPv4, UDP and Geneve.
const OP: usize = 20 + 8 + 8 + offset_of!(sb_option, op);
/// Recorded packets of one operation to one host that are sent again.
const EACH: usize = 40;

/// Handoff packets by destination and operation.
type Handoffs = HashMap<(Ipv4Addr, u8), Vec<Vec<u8>>>;

/// Everything that passes an interface, from the IP header on.
struct Recorder(OwnedFd);

impl Recorder {
    fn start(host: &Host) -> Result<Recorder> {
        let protocol = SockProtocol::EthAll;
        let open = || socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol);
        let socket = host.enter(open)??;
        setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20))?;
        Ok(Recorder(socket))
    }

    /// What has passed, so many of each.
    fn handoffs(&self) -> Result<Handoffs> {
        let mut recorded = Handoffs::new();
        let mut buffer = vec![0; 1 << 17];
        loop {
            let packet = match recv(self.0.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => &buffer[..len],
                Err(Errno::EAGAIN) => return Ok(recorded),
                Err(error) => return Err(error.into()),
            };
            if packet.len() <= OP
                || packet[0] != 0x45
                || packet[9] != 17
                || packet[22..24] != 6081u16.to_be_bytes()
            {
                continue;
            }
            let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
            let kept = recorded.entry((to, packet[OP])).or_default();
            if kept.len() < EACH {
                kept.push(packet.to_vec());
            }
        }
    }
}

/// The packet, as `source` would send it.
fn from(source: Ipv4Addr, packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[12..16].copy_from_slice(&source.octets());
    packet[10..12].fill(0);
    let check = fold(sum(&packet[..20]));
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

/// Packets by the address that they went to, and the operation that they ask for.
type Recorded = Vec<((Ipv4Addr, u8), Vec<Vec<u8>>)>;

/// A cluster with victims, and what its nodes have heard and said while they went on and some requests were made once.
fn recorded() -> Result<(Scene, Recorded)> {
    let mut scene = Scene::start()?;
    let recorders =
        [Recorder::start(scene.cluster.lab.node(0))?, Recorder::start(scene.cluster.lab.node(1))?];
    let small = Documents::of(&scene.cluster.lab)?.small;
    for number in 0..EACH {
        get(scene.cluster.client(), &scene.cluster.url4(&once(number)), &small)?;
    }
    scene.go_on()?;
    let mut recorded: Vec<_> = recorders[0].handoffs()?.into_iter().chain(recorders[1].handoffs()?).collect();
    recorded.sort();
    let kinds: Vec<_> = recorded.iter().map(|((to, op), packets)| (*to, *op, packets.len())).collect();
    println!("recorded: {kinds:?}");
    assert!(kinds.len() > 8, "{kinds:?}");
    Ok((scene, recorded))
}

fn once(number: usize) -> String {
    format!("/small?once-{number}.")
}

fn assert_served_once(scene: &Scene) -> Result {
    let log = scene.cluster.server_log(0)?;
    let more: Vec<String> = (0..EACH)
        .map(once)
        .filter(|name| log.lines().filter(|line| line.contains(name.as_str())).count() != 1)
        .collect();
    assert!(more.is_empty(), "{} requests were served again: {more:?}", more.len());
    Ok(())
}

#[test]
fn recorded_handoffs_do_nothing_when_they_come_again() -> Result {
    const TIMES: usize = 3;
    let (mut scene, recorded) = recorded()?;
    let attacker = scene.cluster.lab.client(1);
    let (raw, own) = (Raw::open(attacker)?, attacker.ipv4());
    for _ in 0..TIMES {
        for ((to, _), packets) in &recorded {
            for packet in packets {
                raw.send(IpAddr::V4(*to), packet)?;
                raw.send(IpAddr::V4(*to), &from(own, packet))?;
            }
        }
        scene.go_on()?;
    }
    assert_served_once(&scene)?;
    scene.down()
}

/// After some seconds they are not even looked at, whoever they are from.
#[test]
fn recorded_handoffs_grow_old() -> Result {
    /// More than two epochs, and what their edges may add.
    const OLD: Duration = Duration::from_secs(14);
    const WITHOUT_EPOCH: [u8; 2] = [sb_op::SB_OP_SYNC as u8, sb_op::SB_OP_SYNCED as u8];
    let (mut scene, mut recorded) = recorded()?;
    recorded.retain(|((_, op), _)| !WITHOUT_EPOCH.contains(op));
    let until = Instant::now() + OLD;
    wait_until("old packets", OLD * 2, || Ok(Instant::now()), |now| *now > until)?;
    let cluster = &scene.cluster;
    let dropped = || -> Result<u64> {
        let nodes = cluster.node_counter(0, "drop_epoch")? + cluster.node_counter(1, "drop_epoch")?;
        Ok(nodes + cluster.switch_counter("drop_epoch")?)
    };
    let before = dropped()?;
    let raw = Raw::open(cluster.lab.client(1))?;
    let mut sent = 0;
    for ((to, _), packets) in &recorded {
        for packet in packets {
            raw.send(IpAddr::V4(*to), packet)?;
            sent += 1;
        }
    }
    wait_until("dropped packets", PATIENCE, dropped, |dropped| *dropped >= before + sent)?;
    assert_eq!(dropped()?, before + sent);
    scene.go_on()?;
    assert_served_once(&scene)?;
    scene.down()
}

/// Data for connections that there are not: nodes are asked whether they have them.
fn forged_data(cluster: &Cluster, count: u32, len: usize) -> Result<u64> {
    let seed = seed()?;
    println!("SWITCHBACK_SEED={seed}");
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let arrived = cluster.lab.switch(0).count("ip saddr 203.0.113.0/24 tcp dport 80")?;
    let (raw, mut random) = (Raw::open(cluster.client())?, Random::new(seed));
    let mut bytes = 0;
    for sent in 1..=count {
        let source = Ipv4Addr::new(203, 0, 113, random.below(256) as u8);
        let port = 1024 + random.below(60_000) as u16;
        let forged = flow(SocketAddr::new(source.into(), port), vip);
        let numbers = (Seq(random.next()), Seq(random.next()));
        let packet = segment(&forged, true, numbers, flags::ACK | flags::PSH, None, &vec![b'x'; len]);
        raw.send(vip.ip(), &packet)?;
        bytes += packet.len() as u64;
        if sent % 200 == 0 {
            let arrived = || Ok(arrived.to_host()?.packets);
            wait_until("forged packets on their way", PATIENCE, arrived, |arrived| {
                arrived + 8 >= sent.into()
            })?;
        }
    }
    Ok(bytes)
}

/// A question goes to each node once, and carries a header and not the data. How many there may be is tested in
/// `flood.rs`.
#[test]
fn a_forged_packet_provokes_one_header_for_each_node() -> Result {
    const COUNT: u32 = 4000;
    const NODES: u64 = 2;
    /// Bytes of the outer IPv4 and UDP headers, of Geneve with its option, and of the packet's own headers.
    const HEADERS: u64 = 150;
    let cluster = Cluster::start()?;
    for len in [1, 1000] {
        let begun = Instant::now();
        let asked = cluster.lab.switch(0).count("udp dport 6081")?;
        let bytes = forged_data(&cluster, COUNT, len)?;
        // Longer than the switch would wait for an answer.
        let until = Instant::now() + Duration::from_secs(1);
        wait_until("repeated questions", PATIENCE, || Ok(Instant::now()), |now| *now > until)?;
        let asked = asked.from_host()?;
        println!("{COUNT} packets of {bytes} bytes; asked with {asked:?}");
        assert!(asked.packets > 0, "nobody was asked");
        // Each second a HELLO goes to each node, too.
        let hellos = NODES * (begun.elapsed().as_secs() + 2);
        let most = NODES * u64::from(COUNT) + hellos;
        assert!(asked.packets <= most, "{asked:?} for {COUNT} packets of {len} bytes");
        assert!(asked.bytes <= HEADERS * asked.packets, "{asked:?}");
    }
    cluster.down()
}

#[test]
fn questions_about_forged_data_delay_nobody_else() -> Result {
    let mut scene = Scene::start()?;
    for _ in 0..3 {
        forged_data(&scene.cluster, 4000, 1000)?;
        scene.go_on()?;
    }
    scene.down()
}
