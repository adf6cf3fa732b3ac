//! Forged packets cost the switch no memory and its clients no request.

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::http::{Documents, fetch};
use common::packets::{Random, Raw, flow};
use common::{Cluster, PATIENCE, Result, wait_until};
use switchback_wire::Seq;
use switchback_wire::packet::{bare, flags};

const PACKETS: u64 = 100_000;
/// So many are sent before the switch must have them; fewer than wait in any queue on the way.
const GROUP: u64 = 500;
/// So many may be lost on the way, while the kernel refreshes what it knows of its neighbour.
const LOST: u64 = 8;
/// Flows of the requests beside that may be there at a time: the nodes report their ends every 50 ms.
const RECENT: u64 = 500;

/// One after the other while `work` runs, a connection for each request; returns how many were served.
fn serve_beside(cluster: &Cluster, work: impl FnOnce() -> Result) -> Result<usize> {
    let documents = Documents::of(&cluster.lab)?;
    let gets: Vec<_> = (0..20).map(|_| (cluster.url4("/small"), documents.small.clone())).collect();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let loop_of_curl = scope.spawn(|| -> Result<usize> {
            let mut served = 0;
            while !ended.load(Ordering::Relaxed) {
                served += fetch(cluster.client(), &gets, &["-H", "Connection: close"], PATIENCE)?.len();
            }
            Ok(served)
        });
        let worked = work();
        ended.store(true, Ordering::Relaxed);
        let served = loop_of_curl.join().expect("the loop does not panic")?;
        worked.map(|()| served)
    })
}

/// Sends packets with these flags, from random addresses and with random numbers.
fn flood(cluster: &Cluster, tcp_flags: u8, seed: u64) -> Result {
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let rule = "ip saddr { 198.51.100.0/24, 203.0.113.0/24 } tcp dport 80";
    let arrived = cluster.lab.switch(0).count(rule)?;
    let raw = Raw::open(cluster.client())?;
    let mut random = Random(seed);
    for sent in 1..=PACKETS {
        let [network, host] = [random.next() % 2, random.next() % 256];
        let source =
            if network == 0 { Ipv4Addr::new(198, 51, 100, 0) } else { Ipv4Addr::new(203, 0, 113, 0) };
        let source = Ipv4Addr::from_bits(source.to_bits() | host);
        let port = 1024 + (random.next() % 60_000) as u16;
        let forged = flow(SocketAddr::new(IpAddr::V4(source), port), vip);
        raw.send(vip.ip(), &bare(&forged, true, Seq(random.next()), Seq(random.next()), tcp_flags))?;
        if sent % GROUP == 0 {
            wait_until(
                "forged packets on their way",
                PATIENCE,
                || Ok(arrived.to_host()?.packets),
                |count| *count + LOST >= sent,
            )?;
        }
    }
    Ok(())
}

#[test]
fn spoofed_syns_leave_no_state() -> Result {
    let cluster = Cluster::start()?;
    let (flows, answered) = (cluster.flows()?, cluster.switch_counter("syn_answered")?);
    let served = serve_beside(&cluster, || {
        flood(&cluster, flags::SYN, 1)?;
        let during = cluster.flows()?;
        if during > flows + RECENT { Err(format!("{during} flows").into()) } else { Ok(()) }
    })?;
    let answered = cluster.switch_counter("syn_answered")? - answered;
    println!("{answered} SYNs answered, {served} requests served beside");
    assert!(
        (PACKETS - LOST..=PACKETS + 2 * served as u64).contains(&answered),
        "{answered}, {served} of them real"
    );
    assert!(served > 20, "{served} requests served");
    wait_until("flows", PATIENCE, || cluster.flows(), |now| *now == flows)?;
    cluster.down()
}

#[test]
fn forged_acks_pass_no_cookie() -> Result {
    let cluster = Cluster::start()?;
    let (flows, dropped) = (cluster.flows()?, cluster.switch_counter("drop_cookie")?);
    let served = serve_beside(&cluster, || {
        flood(&cluster, flags::ACK, 2)?;
        let during = cluster.flows()?;
        if during > flows + RECENT { Err(format!("{during} flows").into()) } else { Ok(()) }
    })?;
    let dropped = cluster.switch_counter("drop_cookie")? - dropped;
    println!("{dropped} ACKs dropped, {served} requests served beside");
    // The probability that even one of them passes is 100,000 / 2^23. Late ACKs of closed connections add
    // some.
    assert!((PACKETS - LOST - 1..=PACKETS + 4 * served as u64).contains(&dropped), "{dropped}");
    assert!(served > 20, "{served} requests served");
    wait_until("flows", PATIENCE, || cluster.flows(), |now| *now == flows)?;
    // What is asked of the nodes, and answered to nobody, is limited.
    let status = cluster.switch_status()?;
    let probed = status["dispatch"]["probed"].as_u64().ok_or("no number of probes")?;
    assert!(probed < PACKETS / 2, "{probed} packets were worth a question");
    cluster.down()
}
