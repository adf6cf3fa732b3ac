//! Thousands of clients that never finish a head, and SYNs from nowhere beside them, take no more memory than
//! they may have, and no time from others.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::packets::{Random, Raw, flow};
use common::{Cluster, PATIENCE, Plan, Result, load, wait_until};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use switchback_wire::Seq;
use switchback_wire::packet::{bare, flags};

/// How large the attack is, and what it may take.
struct Attack {
    connections: usize,
    syns: u64,
    /// Less than the connections need: some 600 bytes each.
    held: usize,
    limits: &'static str,
}

const SHORT: Attack = Attack {
    connections: 2000,
    syns: 100_000,
    held: 1 << 20,
    limits: "held = \"1MiB\"\nheld_per_source = \"256KiB\"\nhead_timeout = \"6s\"",
};
const LONG: Attack = Attack {
    connections: 10_000,
    syns: 1_000_000,
    held: 4 << 20,
    limits: "held = \"4MiB\"\nheld_per_source = \"1MiB\"\nhead_timeout = \"6s\"",
};
const HEAD_TIMEOUT: Duration = Duration::from_secs(6);
/// A client whose first packet was given up seven times sends it again after 25.6 s.
const SENT_AGAIN: Duration = Duration::from_secs(26);
const SYNS_PER_SECOND: u32 = 20_000;
/// What the switch may take besides `held`: the packet rings, which are touched once around; the tables of
/// pending flows; what the allocator keeps.
const ALLOWANCE: usize = 24 << 20;
/// Of the client's own: the attack comes from as many addresses.
const ADDRESSES: usize = 10;
/// Requests of a normal client in a second, which is a round.
const REQUESTS: usize = 200;
const ROUNDS: usize = 5;
/// The most that the median of the rounds' 99th percentiles may grow: twice, and by what the attackers cost
/// who are on the same two cores. A packet lost would cost 200 ms.
const SLOWER: u32 = 2;
const NOISE: Duration = Duration::from_millis(15);

/// A connection for each request, one after the other; the 99th percentile of how long they take.
fn round(cluster: &Cluster) -> Result<Duration> {
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let asked = || -> Result<Duration> {
        let mut times = Vec::with_capacity(REQUESTS);
        let begun = Instant::now();
        for index in 0..REQUESTS {
            let due = Duration::from_secs(1) * index as u32 / REQUESTS as u32;
            thread::sleep(due.saturating_sub(begun.elapsed()));
            let asked = Instant::now();
            let mut stream = TcpStream::connect_timeout(&vip, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
            let mut response = Vec::new();
            stream.read_to_end(&mut response)?;
            if !response.starts_with(b"HTTP/1.1 200 ") || !response.ends_with(&[b'.'; 100]) {
                return Err(String::from_utf8_lossy(&response).into_owned().into());
            }
            times.push(asked.elapsed());
        }
        times.sort();
        Ok(times[REQUESTS * 99 / 100 - 1])
    };
    cluster.client().enter(asked)?
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, 200 + index as u8)
}

/// Connections from these addresses with a few bytes of a head each.
fn slow_heads(cluster: &Cluster, count: usize) -> Result<Vec<TcpStream>> {
    let vip: SockaddrStorage = SocketAddr::new(cluster.lab.vip4().into(), 80).into();
    let open = |index: usize| -> Result<TcpStream> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
        // The port is chosen when it is known to where, or 10,000 connections would need 10,000 ports.
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
        let from: SockaddrStorage = SocketAddr::new(address(index % ADDRESSES).into(), 0).into();
        bind(socket.as_raw_fd(), &from)?;
        connect(socket.as_raw_fd(), &vip)?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(b"GET /small HT")?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    cluster.client().enter(|| (0..count).map(open).collect())?
}

/// How the switch ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    TooSlow,
    Evicted,
}

fn fate(mut stream: &TcpStream) -> Result<Fate> {
    let mut answer = [0; 1024];
    match stream.read(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Fate::Open),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Fate::Evicted),
        Ok(len) if answer[..len].starts_with(b"HTTP/1.1 408 ") => Ok(Fate::TooSlow),
        other => Err(format!("{other:?}: {}", String::from_utf8_lossy(&answer)).into()),
    }
}

/// SYNs from addresses that nobody has, at a steady rate.
fn forge_syns(cluster: &Cluster, count: u64) -> Result {
    const GROUP: u64 = 100;
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let raw = Raw::open(cluster.client())?;
    let mut random = Random::new(1);
    let begun = Instant::now();
    for sent in 0..count {
        if sent % GROUP == 0 {
            let due = Duration::from_secs_f64(sent as f64 / f64::from(SYNS_PER_SECOND));
            thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        let network =
            [Ipv4Addr::new(198, 51, 100, 0), Ipv4Addr::new(203, 0, 113, 0)][random.below(2) as usize];
        let source = Ipv4Addr::from_bits(network.to_bits() | random.below(256) as u32);
        let port = 1024 + random.below(60_000) as u16;
        let forged = flow(SocketAddr::new(IpAddr::V4(source), port), vip);
        raw.send(vip.ip(), &bare(&forged, true, Seq(random.next()), Seq(0), flags::SYN))?;
    }
    Ok(())
}

/// Bytes, as the kernel says it of the switch's process.
fn memory(cluster: &Cluster, what: &str) -> Result<usize> {
    let status = fs::read_to_string(format!("/proc/{}/status", cluster.switch().pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no such line")?;
    Ok(kib.parse::<usize>()? << 10)
}

#[test]
fn slow_heads_and_forged_syns() -> Result {
    let attack = load(SHORT, LONG);
    let cluster = Cluster::start_with(Plan { limits: attack.limits, ..Plan::default() })?;
    for index in 0..ADDRESSES {
        let address = format!("{}/32", address(index));
        cluster.client().run(["ip", "addr", "add", &address, "dev", "eth0"])?.success()?;
    }
    round(&cluster)?;
    let usual = (0..ROUNDS).map(|_| round(&cluster)).collect::<Result<Vec<_>>>()?;
    let (rss_before, heap_before) = (memory(&cluster, "VmRSS")?, memory(&cluster, "RssAnon")?);
    let answered = cluster.switch_counter("syn_answered")?;

    let begun = Instant::now();
    let ended = AtomicBool::new(false);
    let (streams, during, (held, heap)) = thread::scope(|scope| {
        let forger = scope.spawn(|| forge_syns(&cluster, attack.syns));
        let watcher = scope.spawn(|| -> Result<(u64, usize)> {
            let (mut most, mut heap) = (0, 0);
            while !ended.load(Ordering::Relaxed) {
                let status = cluster.switch_status()?;
                most = most.max(status["dispatch"]["held_bytes"].as_u64().ok_or("no held_bytes")?);
                heap = heap.max(memory(&cluster, "RssAnon")?);
                thread::sleep(Duration::from_millis(250));
            }
            Ok((most, heap))
        });
        let attack = || -> Result<_> {
            let streams = slow_heads(&cluster, attack.connections)?;
            println!("{} slow heads after {:?}", streams.len(), begun.elapsed());
            let mut during = Vec::new();
            while during.len() < ROUNDS || !forger.is_finished() {
                during.push(round(&cluster)?);
            }
            Ok((streams, during))
        };
        let attacked = attack();
        let forged = forger.join().expect("it returns its errors");
        ended.store(true, Ordering::Relaxed);
        let most = watcher.join().expect("it returns its errors");
        forged.and(attacked).and_then(|(streams, during)| Ok((streams, during, most?)))
    })?;
    let rss = memory(&cluster, "VmHWM")?;
    let answered = cluster.switch_counter("syn_answered")? - answered;

    let mut fates = vec![Fate::Open; streams.len()];
    let all_ended = |fates: &Vec<Fate>| fates.iter().all(|fate| *fate != Fate::Open);
    let look = || -> Result<Vec<Fate>> {
        for (found, stream) in std::iter::zip(&mut fates, &streams) {
            if *found == Fate::Open {
                *found = fate(stream)?;
            }
        }
        Ok(fates.clone())
    };
    let fates = wait_until("slow heads", SENT_AGAIN + HEAD_TIMEOUT + PATIENCE, look, all_ended);
    let status = cluster.switch_status()?;
    let fates = fates.map_err(|error| format!("{:.300}\n{status:#}", error.to_string()))?;
    let dispatch = &status["dispatch"];
    let count = |wanted: Fate| fates.iter().filter(|fate| **fate == wanted).count() as u64;
    println!("p99 of {REQUESTS} requests: usually {usual:?}, beside the attack {during:?}");
    let [rss_before, rss, heap_before, heap] = [rss_before, rss, heap_before, heap].map(|bytes| bytes >> 10);
    println!(
        "resident: {rss_before} KiB, then {rss} KiB at most; of its own {heap_before} KiB, then {heap} KiB"
    );
    println!("held at most {held} of {}; {answered} SYNs answered", attack.held);
    println!("{} too slow, {} evicted: {dispatch}", count(Fate::TooSlow), count(Fate::Evicted));

    let (usual, during) = (median(usual), median(during));
    assert!(answered >= attack.syns * 99 / 100, "{answered} SYNs answered");
    assert!(held <= attack.held as u64, "{held} bytes held");
    assert!(held > attack.held as u64 / 2, "{held} bytes held: the attack is too weak");
    let grown = rss - rss_before;
    assert!(grown <= (attack.held + ALLOWANCE) >> 10, "{grown} KiB more");
    // What is counted as held is what the allocator takes for it, nearly.
    let own = heap - heap_before;
    assert!(own <= (attack.held * 2 + (1 << 20)) >> 10, "{own} KiB more of its own");
    assert_eq!(dispatch["answered"]["408"], count(Fate::TooSlow), "{dispatch}");
    assert!(dispatch["evicted"].as_u64() >= Some(count(Fate::Evicted)), "{dispatch}");
    assert!(count(Fate::TooSlow) > 0 && count(Fate::Evicted) > 0, "{dispatch}");
    assert!(during <= usual * SLOWER + NOISE, "p99 {during:?} instead of {usual:?}");
    drop(streams);
    wait_until(
        "pending",
        PATIENCE,
        || Ok(cluster.switch_status()?["dispatch"]["pending"].as_u64()),
        |n| *n == Some(0),
    )?;
    cluster.down()
}
