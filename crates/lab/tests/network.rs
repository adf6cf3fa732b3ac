//! What the labs' networks do: reach, lose, delay, cut, count.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use switchback_lab::{Host, Lab, Result, Role, Topology, TrafficCounter};

const PATIENCE: Duration = Duration::from_secs(10);
const MIB: usize = 1 << 20;

fn both(host: &Host) -> [IpAddr; 2] {
    [host.ipv4().into(), host.ipv6().into()]
}

#[test]
fn every_host_reaches_every_other_in_each_topology() -> Result<()> {
    for topology in [Topology::Flat, Topology::Routed, Topology::TwoArmed] {
        let lab = Lab::builder().topology(topology).clients(2).nodes(2).up()?;
        for from in lab.hosts() {
            for to in lab.hosts() {
                both(to).into_iter().try_for_each(|address| from.ping(address))?;
            }
        }
        // No kernel has a VIP, or it would answer with RST whenever the switch's program is away.
        for host in lab.hosts() {
            let addresses = host.run(["ip", "-o", "addr", "show"])?.success()?;
            for vip in [IpAddr::from(lab.vip4()), lab.vip6().into()] {
                assert!(!addresses.contains(&format!(" {vip}/")), "{vip} in {addresses}");
            }
        }
        let forwarding = |host: &Host| host.run(["cat", "/proc/sys/net/ipv4/ip_forward"])?.success();
        for host in lab.hosts() {
            assert_eq!(forwarding(host)?.trim() == "1", host.role() == Role::Router, "{}", host.name());
        }
    }
    Ok(())
}

#[test]
fn a_two_armed_switch_reaches_nodes_without_the_router() -> Result<()> {
    let lab = Lab::builder().topology(Topology::TwoArmed).up()?;
    let (_, address, _) = lab.switch(0).interfaces()[1];
    assert_eq!(address.to_string(), "203.0.113.10");
    lab.router().expect("a routed lab has a router").cut_link()?;
    lab.switch(0).ping(lab.node(0).ipv4())?;
    assert!(lab.client(0).ping(lab.node(0).ipv4()).is_err());
    Ok(())
}

#[test]
fn vips_move_to_another_switch() -> Result<()> {
    for topology in [Topology::Flat, Topology::Routed] {
        let lab = Lab::builder().topology(topology).switches(2).up()?;
        let counters =
            [lab.switch(0).count("icmp type echo-request")?, lab.switch(1).count("icmp type echo-request")?];
        // In place of the switch's program, the kernel answers for the VIPs here.
        let addresses = [format!("{}/32", lab.vip4()), format!("{}/128", lab.vip6())];
        for switch in 0..2 {
            for address in &addresses {
                lab.switch(switch).run(["ip", "addr", "add", address, "dev", "eth0", "nodad"])?.success()?;
            }
            lab.move_vips(switch)?;
            lab.client(0).ping(lab.vip4())?;
            lab.client(0).ping(lab.vip6())?;
            for address in &addresses {
                lab.switch(switch).run(["ip", "addr", "del", address, "dev", "eth0"])?.success()?;
            }
        }
        for counter in counters {
            assert_eq!(counter.to_host()?.packets, 1, "{topology:?}");
        }
    }
    Ok(())
}

#[test]
fn a_macvlan_host_is_reached_and_has_no_napi_thread() -> Result<()> {
    let lab = Lab::builder().generic_xdp(Role::Switch).up()?;
    let details = lab.switch(0).run(["ip", "-d", "link", "show", "dev", "eth0"])?.success()?;
    assert!(details.contains("macvlan mode private"), "{details}");
    both(lab.switch(0)).into_iter().try_for_each(|address| lab.client(0).ping(address))?;
    assert_eq!(lab.switch(0).napi_threads("eth0")?, []);
    transfer(lab.client(0), lab.switch(0), MIB)?;
    assert_whole_packets(lab.switch(0))
}

#[test]
fn switches_receive_packets_no_larger_than_the_mtu() -> Result<()> {
    let lab = Lab::builder().up()?;
    transfer(lab.client(0), lab.switch(0), MIB)?;
    assert_whole_packets(lab.switch(0))
}

fn assert_whole_packets(host: &Host) -> Result<()> {
    let rx = host.interface_counters("eth0")?.rx;
    assert!(rx.bytes > MIB as u64 && rx.bytes <= rx.packets * 1514, "{rx:?}");
    Ok(())
}

#[test]
fn a_switch_with_a_rate_loses_packets_too() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (client, switch) = (lab.client(0), lab.switch(0));
    switch.set_rate(Some(100_000_000))?;
    client.ping(switch.ipv4())?;
    switch.set_loss(1000, 0)?;
    assert!(client.ping(switch.ipv4()).is_err(), "an answer came through 100 % loss");
    // Neighbour discovery is spared.
    client.run(["ip", "neigh", "flush", "dev", "eth0"])?.success()?;
    assert!(client.ping(switch.ipv6()).is_err(), "an answer came through 100 % loss");
    let neighbours = client.run(["ip", "neigh", "show", "to", &switch.ipv6().to_string()])?.success()?;
    assert!(neighbours.contains("lladdr"), "{neighbours}");
    Ok(())
}

#[test]
fn the_asked_for_share_of_packets_is_lost() -> Result<()> {
    const SENT: u64 = 4000;
    let lab = Lab::builder().up()?;
    let (client, node) = (lab.client(0), lab.node(0));
    let (left, arrived) = (client.count("udp dport 7000")?, node.count("udp dport 7000")?);

    send_datagrams(client, node, SENT, &left)?;
    let before = arrived.to_host()?.packets;
    assert_eq!(before, SENT, "nothing is lost unless asked for");

    client.set_loss(300, 0)?;
    send_datagrams(client, node, SENT, &left)?;
    let one_way = arrived.to_host()?.packets - before;
    // Six standard deviations are 174.
    assert!((2600..=3000).contains(&one_way), "{one_way} of {SENT} came through 30 % loss");

    client.set_loss(0, 300)?;
    node.set_loss(0, 500)?;
    send_datagrams(client, node, SENT, &left)?;
    let other_way = arrived.to_host()?.packets - before - one_way;
    assert!((1800..=2200).contains(&other_way), "{other_way} of {SENT} came through 50 % loss");

    client.set_loss(0, 0)?;
    node.set_loss(0, 0)?;
    send_datagrams(client, node, SENT, &left)?;
    assert_eq!(arrived.to_host()?.packets - before - one_way - other_way, SENT);
    Ok(())
}

/// Sends in small groups, each when the one before has left: fewer than wait in any queue on the way.
fn send_datagrams(from: &Host, to: &Host, count: u64, left: &TrafficCounter) -> Result<()> {
    const GROUP: u64 = 200;
    let socket = from.udp_bind(SocketAddr::from(([0, 0, 0, 0], 0)))?;
    let start = left.from_host()?.packets;
    for sent in (GROUP..=count).step_by(GROUP as usize) {
        for _ in 0..GROUP {
            socket.send_to(&[0; 32], (to.ipv4(), 7000)).expect("a datagram can be sent");
        }
        let deadline = Instant::now() + PATIENCE;
        while left.from_host()?.packets < start + sent {
            assert!(Instant::now() < deadline, "datagrams got lost before they left the host");
        }
    }
    Ok(())
}

#[test]
fn a_cut_link_passes_nothing_until_it_is_mended() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let (client, node) = (lab.client(0), lab.node(0));
    client.ping(node.ipv4())?;
    node.cut_link()?;
    assert!(client.ping(node.ipv4()).is_err(), "a ping passed the cut link");
    assert!(node.ping(lab.node(1).ipv6()).is_err(), "a ping passed the cut link");
    client.ping(lab.node(1).ipv4())?;
    let addresses = node.run(["ip", "addr", "show", "dev", "eth0"])?.success()?;
    assert!(addresses.contains("192.0.2.20/24") && addresses.contains("LOWER_UP"), "{addresses}");
    node.mend_link()?;
    both(node).into_iter().try_for_each(|address| client.ping(address))
}

#[test]
fn a_rate_limits_both_directions() -> Result<()> {
    const RATE: u64 = 40_000_000;
    /// 4 MiB at 40 Mbit/s are 0.84 s; headers make it more, the queue at the end and the burst less.
    const LEAST: Duration = Duration::from_millis(600);
    let lab = Lab::builder().up()?;
    let client = lab.client(0);
    for host in [lab.node(0), lab.switch(0)] {
        for (from, to) in [(client, host), (host, client)] {
            host.set_rate(Some(RATE))?;
            let passed = from.count("meta l4proto tcp")?;
            let slow = transfer(from, to, 4 * MIB)?;
            let name = host.name();
            assert!(slow > LEAST, "{name}: {slow:?} at 40 Mbit/s");
            // What waits in a queue is counted and lost like everything else.
            let bytes = passed.from_host()?.bytes;
            assert!(bytes >= 4 * MIB as u64, "{name}: {bytes} bytes counted");
            host.set_rate(None)?;
            // However busy the machine is, one transfer in ten is faster than the limit allowed.
            let fast = |_| transfer(from, to, 4 * MIB).map(|took| took < LEAST);
            let fast: Vec<bool> = (0..10).map(fast).collect::<Result<_>>()?;
            assert!(fast.contains(&true), "{name}: as slow without limit");
        }
    }
    Ok(())
}

/// Sends bytes over TCP; returns the time until the receiver has them all.
fn transfer(from: &Host, to: &Host, bytes: usize) -> Result<Duration> {
    // A port of its own: a child that another test is about to start may still hold the last listener.
    let listener = to.tcp_listen((to.ipv4(), 0).into())?;
    let mut sender = from.tcp_connect(listener.local_addr().expect("it listens"), PATIENCE)?;
    let (mut receiver, _) = listener.accept().expect("the connection is there");
    receiver.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&vec![7; bytes]).expect("the connection stands"));
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).expect("the connection stands");
        assert_eq!(received.len(), bytes);
    });
    Ok(start.elapsed())
}

#[test]
fn packets_above_the_mtu_do_not_pass() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let ping = |size: &str, to: &Host| {
        let to = to.ipv4().to_string();
        lab.client(0).run(["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", size, &to])?.success()
    };
    ping("1472", lab.node(0))?;
    assert!(ping("1473", lab.node(0)).is_err());
    lab.hosts().iter().filter(|host| host.name() != "node1").try_for_each(|host| host.set_mtu(1600))?;
    ping("1572", lab.node(0))?;
    assert!(ping("1572", lab.node(1)).is_err(), "the cable of node1 has an MTU of 1500");
    Ok(())
}

#[test]
fn a_narrow_path_tells_senders_so() -> Result<()> {
    let lab = Lab::builder().topology(Topology::Routed).up()?;
    let (client, node) = (lab.client(0), lab.node(0));
    let told = [
        node.count("icmp type destination-unreachable icmp code frag-needed")?,
        node.count("icmpv6 type packet-too-big")?,
    ];
    lab.set_path_mtu(1280)?;
    for (to, told) in both(client).into_iter().zip(told) {
        // No longer than the MTU of any interface, headers included.
        let long = |host: &Host, to: IpAddr| {
            host.run(["ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", "1400", &to.to_string()])
        };
        let refused = long(node, to)?;
        assert!(!refused.status.success() && refused.stdout.contains("mtu"), "{}", refused.stdout);
        assert_eq!(told.to_host()?.packets, 1, "{to}");
    }
    // Over TCP the sender makes shorter packets.
    transfer(node, client, MIB).map(drop)
}

#[test]
fn counters_count_what_passes() -> Result<()> {
    let lab = Lab::builder().up()?;
    let counter = lab.node(0).count("icmp type echo-reply")?;
    let before = lab.node(0).interface_counters("eth0")?;
    for _ in 0..3 {
        lab.client(0).ping(lab.node(0).ipv4())?;
    }
    assert_eq!(counter.from_host()?.packets, 3);
    // IPv4 header, ICMP header and 56 bytes of payload each.
    assert_eq!(counter.from_host()?.bytes, 3 * (20 + 8 + 56));
    assert_eq!(counter.to_host()?.packets, 0);
    let after = lab.node(0).interface_counters("eth0")?;
    assert!(after.rx.packets >= before.rx.packets + 3, "{before:?} {after:?}");
    assert!(after.tx.bytes >= before.tx.bytes + 3 * 84, "{before:?} {after:?}");
    assert!(lab.node(0).interface_counters("eth7").is_err());
    Ok(())
}

#[test]
fn each_interface_has_a_napi_thread_that_does_its_receive_work() -> Result<()> {
    let (busy, idle) = (Lab::builder().up()?, Lab::builder().up()?);
    let mut pids = Vec::new();
    for lab in [&busy, &idle] {
        for host in lab.hosts() {
            let [thread] = host.napi_threads("eth0")?[..] else {
                panic!("{} has one receive queue", host.name())
            };
            let comm =
                std::fs::read_to_string(format!("/proc/{}/comm", thread.pid)).expect("the thread runs");
            assert_eq!(comm.trim(), format!("napi/eth0-{}", thread.napi_id));
            let [port] = host.port_napi_threads("eth0")?[..] else { panic!("a port has one receive queue") };
            pids.extend([thread.pid, port.pid]);
        }
    }
    let count = pids.len();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), count, "two interfaces share a thread");

    let times = |lab: &Lab| -> Result<Duration> { lab.node(0).napi_threads("eth0")?[0].cpu_time() };
    let (busy_before, idle_before) = (times(&busy)?, times(&idle)?);
    transfer(busy.client(0), busy.node(0), 16 * MIB)?;
    let (worked, idled) = (times(&busy)? - busy_before, times(&idle)? - idle_before);
    println!("{worked:?} busy, {idled:?} idle");
    assert!(worked > Duration::ZERO);
    Ok(())
}
