//! Many connections that cost their clients next to nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};

use crate::common::{PATIENCE, Plan, Result, wait_until};
use crate::victims::{Scene, plan};

/// Of the attacker's host.
const ADDRESSES: [Ipv4Addr; 5] = [
    Ipv4Addr::new(192, 0, 2, 211),
    Ipv4Addr::new(192, 0, 2, 212),
    Ipv4Addr::new(192, 0, 2, 213),
    Ipv4Addr::new(192, 0, 2, 214),
    Ipv4Addr::new(192, 0, 2, 215),
];
const CONNECTIONS: usize = 3000;
/// The victims' flows come and go with their moves.
const FEW: u64 = 20;

const SILENCE: &str = "table inet silence {\nchain out {\ntype filter hook output priority 0;\n\
    tcp dport 80 drop\n}\n}";

/// A head that begins, and no more: what the switch keeps of it ends with `head_timeout`.
#[test]
fn first_bytes_leave_nothing_behind() -> Result {
    let mut scene = Scene::start_with(Plan { limits: "head_timeout = \"2s\"", ..plan() })?;
    let attacker = scene.cluster.lab.client(1);
    for address in ADDRESSES {
        attacker.run(["ip", "addr", "add", &format!("{address}/32"), "dev", "eth0"])?.success()?;
    }
    let before = scene.cluster.flows()?;
    let vip: SockaddrStorage = SocketAddr::new(scene.cluster.lab.vip4().into(), 80).into();
    let open = |index: usize| -> Result<TcpStream> {
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        let from: SockaddrStorage = SocketAddr::new(ADDRESSES[index % ADDRESSES.len()].into(), 0).into();
        bind(socket.as_raw_fd(), &from)?;
        connect(socket.as_raw_fd(), &vip)?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(b"G")?;
        Ok(stream)
    };
    let streams: Vec<TcpStream> = attacker.enter(|| (0..CONNECTIONS).map(open).collect::<Result<_>>())??;
    // From here on nothing more comes of them, not even what their kernel would send again.
    attacker.run(["nft", SILENCE])?.success()?;
    println!("{} flows, {before} before", scene.cluster.flows()?);
    scene.go_on()?;
    wait_until("flows", PATIENCE, || scene.cluster.flows(), |flows| *flows <= before + FEW)?;
    drop(streams);
    scene.down()
}

/// Behind the victims' address somebody draws answers of the switch itself, each on a connection of its own, and requests
/// that are refused.
#[test]
fn a_scanner_behind_the_same_address_takes_no_room() -> Result {
    const ROUTE: &str = "[[service.route]]\npath = \"/old/\"\nredirect = { path = \"/small\" }\n";
    const SCANNERS: usize = 8;
    let mut scene = Scene::start_with(Plan { routes: ROUTE, ..plan() })?;
    let vip = SocketAddr::new(scene.cluster.lab.vip4().into(), 80);
    let host = scene.cluster.client();
    let rows: [(&[u8], &[u8]); 4] = [
        (b"GET /old/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"HTTP/1.1 30"),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /old/x HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 30"),
        (b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"HTTP/1.1 404 "),
    ];
    let scan = |scanner: usize| -> Result {
        for number in 0..CONNECTIONS / SCANNERS {
            let (request, expected) = rows[(scanner + number) % rows.len()];
            let mut stream = TcpStream::connect_timeout(&vip, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request)?;
            let mut answer = vec![0; expected.len()];
            stream.read_exact(&mut answer)?;
            if answer != expected {
                return Err(String::from_utf8_lossy(&answer).into_owned().into());
            }
        }
        Ok(())
    };
    let timeouts = host.tcp_counter("TCPTimeouts")?;
    thread::scope(|scope| {
        let scanners: Vec<_> =
            (0..SCANNERS).map(|scanner| scope.spawn(move || host.enter(|| scan(scanner)))).collect();
        scanners.into_iter().try_for_each(|scanner| scanner.join().expect("it returns its errors")?)
    })?;
    // A packet that found no room comes again; on a machine that has other things to do a few do so anyway.
    let timeouts = host.tcp_counter("TCPTimeouts")? - timeouts;
    assert!(timeouts < CONNECTIONS as u64 / 20, "{timeouts} packets were sent again");
    scene.go_on()?;
    let held = || Ok(scene.cluster.switch_status()?["dispatch"]["held_bytes"].as_u64());
    wait_until("held bytes", PATIENCE, held, |held| held.is_some_and(|held| held < 100_000))?;
    scene.down()
}
