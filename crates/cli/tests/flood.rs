//! Forged packets cost the switch no memory and its clients no request, and do not keep another switch from finding the
//! flows of one that has died.

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::http::{Document, Documents, fetch};
use common::packets::{Random, Raw, flow};
use common::steady::Steady;
use common::{Cluster, PATIENCE, Result, start_daemon, status, wait_until};
use switchback_lab::{Host, Lab, ServerOptions, Topology};
use switchback_wire::packet::{bare, flags, segment};
use switchback_wire::{Seq, sb_op};

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
    assert!(served > 5, "{served} requests served");
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
    assert!(served > 5, "{served} requests served");
    wait_until("flows", PATIENCE, || cluster.flows(), |now| *now == flows)?;
    cluster.down()
}

/// Packets of flows that nobody knows, half of them with data, from random addresses of 512 networks: more than the
/// questions of a period, which are divided by networks.
struct Strangers {
    raw: Raw,
    random: Random,
    vip: SocketAddr,
}

impl Strangers {
    /// Packets in a second.
    const RATE: u32 = 20_000;
    const TICK: Duration = Duration::from_millis(1);

    fn send(&mut self) -> Result {
        let source =
            Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() | self.random.next() & 0x1_ffff);
        let port = 1024 + self.random.below(60_000) as u16;
        let forged = flow(SocketAddr::new(source.into(), port), self.vip);
        let numbers = (Seq(self.random.next()), Seq(self.random.next()));
        let data: &[u8] = if self.random.below(2) == 0 { b"" } else { b"GET / HTTP/1.1\r\n\r\n" };
        let packet = segment(&forged, true, numbers, flags::ACK, None, data);
        self.raw.send(self.vip.ip(), &packet)
    }

    /// Sends until it is over; returns the number of packets.
    fn flood(mut self, over: &AtomicBool) -> Result<u64> {
        let (start, mut passed, mut sent) = (Instant::now(), 0, 0);
        while !over.load(Ordering::Relaxed) {
            let due = (start.elapsed().as_secs_f64() * f64::from(Self::RATE)) as u64;
            // What could not be sent in time is not sent later.
            let now = (due - passed).min(u64::from(Self::RATE / 100));
            (0..now).try_for_each(|_| self.send())?;
            (passed, sent) = (due, sent + now);
            thread::sleep(Self::TICK);
        }
        Ok(sent)
    }
}

/// The switch dies under a flood of packets that the other one has to ask the nodes about.
#[test]
fn flows_of_a_dead_switch_are_found_beside_a_flood() -> Result {
    const NODES: usize = 2;
    /// Questions that a switch may ask in a second.
    const QUESTIONS: f64 = 100_000.0;
    let _alone = common::alone();
    let lab = Lab::builder().topology(Topology::Routed).clients(2).switches(2).nodes(NODES).up()?;
    let plan = common::Plan {
        servers: vec![switchback_lab::ServerKind::Nginx; NODES],
        pools: vec![("web", vec![0, 1])],
        ..Default::default()
    };
    let config = lab.write_config_text(&(plan.config(&lab) + "\n{switches}"))?;
    for node in lab.nodes() {
        node.nginx(&ServerOptions { extra: "keepalive_requests 1000000;".to_owned(), ..Default::default() })?;
        start_daemon(node, "node", &config)?;
    }
    let first = start_daemon(lab.switch(0), "switch", &config)?;
    start_daemon(lab.switch(1), "switch", &config)?;
    let vip = SocketAddr::new(lab.vip4().into(), 80);
    let strangers = Strangers { raw: Raw::open(lab.client(1))?, random: Random::new(7), vip };
    let asked = |host: &Host, name: &str| -> Result<u64> {
        status(host)?["dispatch"][name].as_u64().ok_or_else(|| format!("no {name}").into())
    };
    let probes = format!("udp dport 6081 @th,168,8 {}", sb_op::SB_OP_PROBE as u8);
    let probes = lab.node(0).count(&probes)?;
    let over = AtomicBool::new(false);
    let load = Steady { clients: 100, pause: Duration::from_millis(100), close: false };
    let small = Document::of(&lab, "/small")?;
    let changes = || -> Result<(u64, u64)> {
        thread::scope(|scope| {
            let flood = scope.spawn(|| strangers.flood(&over));
            let worked = || -> Result<u64> {
                wait_until(
                    "questions",
                    PATIENCE,
                    || asked(lab.switch(0), "probed"),
                    |probed| *probed > 1000,
                )?;
                let (begun, before) = (Instant::now(), probes.to_host()?.packets);
                first.kill()?;
                lab.move_vips(1)?;
                let known = || status(lab.switch(1))?["flows"].as_u64().ok_or_else(|| "no flows".into());
                wait_until("flows", PATIENCE, known, |flows| *flows >= load.clients as u64)?;
                let found = begun.elapsed();
                println!("{} flows found after {found:?}", load.clients);
                assert!(found < Duration::from_secs(1), "{found:?}");
                thread::sleep(Duration::from_secs(2));
                let (took, there) = (begun.elapsed().as_secs_f64(), probes.to_host()?.packets - before);
                println!("{:.0} questions a second to each node", there as f64 / took);
                assert!(there > 1000, "{there} questions in {took} s");
                assert!(there as f64 <= (took + 0.1) * QUESTIONS / NODES as f64, "{there} in {took} s");
                Ok(there)
            };
            let worked = worked();
            over.store(true, Ordering::Relaxed);
            let sent = flood.join().expect("it does not panic")?;
            Ok((worked?, sent))
        })
    };
    let ((there, sent), served) = load.run_beside(lab.client(0), vip, (small.path, &small.body), changes)?;
    println!(
        "{sent} packets of strangers, {there} questions; {} requests, the slowest {:?}",
        served.requests, served.slowest
    );
    served.assert_all_answered();
    assert_eq!(served.closed_idle, 0, "connections were lost");
    assert!(served.slowest < Duration::from_secs(2), "found after {:?}", served.slowest);
    lab.down()?;
    Ok(())
}
