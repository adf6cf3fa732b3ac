//! Impaired cables do what they are told, count it, and are as before when healed.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use switchback_lab::{Host, ImpairedTraffic, Impairment, Lab, Result, Topology};

const PATIENCE: Duration = Duration::from_secs(10);
const HOLD: Duration = Duration::from_millis(3);
const DATAGRAMS: u64 = 2000;
/// Fewer than the buffer of a socket holds.
const GROUP: u64 = 50;
const MIB: usize = 1 << 20;

fn address(host: &Host, v6: bool, port: u16) -> SocketAddr {
    let ip: IpAddr = if v6 { host.ipv6().into() } else { host.ipv4().into() };
    (ip, port).into()
}

/// Sends numbers from 0 up; returns them in the order in which they arrive. `counted` is what has become of
/// this direction's packets.
fn send_numbers(from: &Host, to: &Host, v6: bool, counted: impl Fn() -> ImpairedTraffic) -> Result<Vec<u64>> {
    let receiver = to.udp_bind(address(to, v6, 7000))?;
    let sender = from.udp_bind(address(from, v6, 0))?;
    receiver.set_read_timeout(Some(HOLD)).expect("a socket takes a timeout");
    let deadline = Instant::now() + PATIENCE;
    let mut arrived = Vec::new();
    for first in (0..DATAGRAMS).step_by(GROUP as usize) {
        for number in first..first + GROUP {
            sender.send_to(&number.to_be_bytes(), address(to, v6, 7000)).expect("a datagram can be sent");
        }
        let complete = |arrived: usize| {
            let ImpairedTraffic { packets, lost, duplicated, .. } = counted();
            packets == first + GROUP && arrived as u64 == packets - lost + duplicated
        };
        while !complete(arrived.len()) {
            assert!(Instant::now() < deadline, "{} arrived; {:?}", arrived.len(), counted());
            let mut number = [0; 8];
            if receiver.recv(&mut number).is_ok() {
                arrived.push(u64::from_be_bytes(number));
            }
        }
    }
    Ok(arrived)
}

/// That what was counted is what arrived; and that it is about the asked-for share, of each kind 5 %.
fn assert_counted(arrived: &[u64], counted: ImpairedTraffic) {
    println!("{counted:?}");
    let distinct = arrived.iter().collect::<BTreeSet<_>>().len() as u64;
    assert_eq!(counted.packets, DATAGRAMS);
    assert_eq!(counted.lost, DATAGRAMS - distinct);
    assert_eq!(counted.duplicated, arrived.len() as u64 - distinct);
    // Six standard deviations are 59.
    for share in [counted.lost, counted.duplicated, counted.reordered] {
        assert!((41..=159).contains(&share), "{counted:?}");
    }
    assert!(!arrived.is_sorted(), "{counted:?}");
}

#[test]
fn packets_are_lost_duplicated_and_reordered_both_ways() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (client, node) = (lab.client(0), lab.node(0));
    for v6 in [false, true] {
        let impairment = Impairment {
            loss_permille: 50,
            duplicate_permille: 50,
            reorder_permille: 50,
            hold: HOLD,
            seed: 42,
        };
        let impaired = client.impair(impairment)?;
        let arrived = send_numbers(client, node, v6, || impaired.from_host())?;
        assert_counted(&arrived, impaired.from_host());
        assert_eq!(impaired.to_host().packets, 0);
        let arrived = send_numbers(node, client, v6, || impaired.to_host())?;
        assert_counted(&arrived, impaired.to_host());
        impaired.heal()?;
    }
    Ok(())
}

#[test]
fn a_healed_cable_is_as_before() -> Result<()> {
    let lab = Lab::builder().topology(Topology::TwoArmed).up()?;
    let bridges = || {
        let mut command = std::process::Command::new("ip");
        command.args(["-n", &format!("sb{}-net", lab.id()), "-br", "link", "show", "type", "bridge_slave"]);
        let output = command.output().expect("ip runs");
        let shown = String::from_utf8(output.stdout).expect("names are ASCII");
        let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = bridges();
    assert!(before.iter().any(|line| line.starts_with("switch0-eth1@")), "{before:?}");
    for host in lab.hosts() {
        let other = if host.name() == "node0" { lab.switch(0) } else { lab.node(0) };
        // Otherwise the time for the answer may pass before the neighbour is known.
        host.ping(other.ipv4())?;
        let impaired = host.impair(Impairment { loss_permille: 1000, ..Impairment::default() })?;
        assert!(host.ping(other.ipv4()).is_err(), "{}", host.name());
        let deadline = Instant::now() + PATIENCE;
        while impaired.from_host().lost == 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(impaired.from_host().lost, 1, "{}", host.name());
        drop(impaired);
        host.ping(other.ipv4())?;
        host.ping(other.ipv6())?;
    }
    assert_eq!(bridges(), before);
    Ok(())
}

/// Counters and cuts of the cable go on working while it is impaired; a guard may outlive its lab.
#[test]
fn what_else_is_done_with_the_cable_still_works() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (client, node) = (lab.client(0), lab.node(0));
    let counter = client.count("icmp type echo-request")?;
    let impaired = client.impair(Impairment::default())?;
    client.ping(node.ipv4())?;
    assert_eq!(counter.from_host()?.packets, 1);
    client.cut_link()?;
    assert!(client.ping(node.ipv4()).is_err(), "a ping passed the cut link");
    client.mend_link()?;
    client.ping(node.ipv4())?;
    lab.down()?;
    assert!(matches!(impaired.heal(), Err(switchback_lab::Error::TornDown)));
    Ok(())
}

#[test]
fn an_impaired_cable_is_fast_enough() -> Result<()> {
    const BYTES: usize = 32 * MIB;
    let lab = Lab::builder().up()?;
    let (client, node) = (lab.client(0), lab.node(0));
    let listener = client.tcp_listen(address(client, false, 7001))?;
    for loss_permille in [0, 10] {
        let impairment = Impairment {
            loss_permille,
            duplicate_permille: loss_permille,
            reorder_permille: loss_permille,
            hold: HOLD,
            seed: 7,
        };
        let impaired = client.impair(impairment)?;
        let start = Instant::now();
        let mut sender = node.tcp_connect(address(client, false, 7001), PATIENCE)?;
        let (mut receiver, _) = listener.accept().expect("the connection is there");
        receiver.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        let sent: Vec<u8> = (0..BYTES).map(|at| (at / 251 % 256) as u8).collect();
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sender.write_all(&sent).expect("the connection stands");
                drop(sender);
            });
            receiver.read_to_end(&mut received).expect("the connection stands");
        });
        let took = start.elapsed();
        println!("{BYTES} bytes in {took:?}: {:?}", impaired.to_host());
        assert!(received == sent, "other bytes have arrived");
        impaired.heal()?;
    }
    Ok(())
}
