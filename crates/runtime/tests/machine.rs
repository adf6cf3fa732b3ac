//! Facts, pins and control sockets on real machines: hosts of a lab.

use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{Backlog, SockaddrIn, bind, listen};
use switchback_lab::{Lab, Role};
use switchback_runtime::control::{ControlClient, ControlServer, Request, Response, find_sockets};
use switchback_runtime::netlink::Socket;
use switchback_runtime::pins::{PinDir, sweep};
use switchback_runtime::{Facts, interface};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[test]
fn facts_are_those_of_the_threads_own_namespace() -> Result<()> {
    let lab = Lab::builder().up()?;
    let node = lab.node(0);
    let facts = || node.enter(|| Facts::gather("eth0"));
    let before = facts()?;
    let link = before.link.clone().expect("every host has eth0");
    assert_eq!((link.mtu, link.driver.as_deref()), (1500, Some("veth")));
    assert!(before.interfaces.contains(&"eth0".to_owned()) && before.btf && before.adopts, "{before:?}");
    assert_eq!(before.mptcp_ports, Ok(Vec::new()));

    node.set_mtu(1400)?;
    for setting in ["ipv4.tcp_syncookies=0", "ipv4.tcp_rfc1337=1", "ipv4.conf.eth0.rp_filter=1"] {
        node.run(["sysctl", "-w", &format!("net.{setting}")])?.success()?;
    }
    for (word, merges) in [("on", true), ("off", false)] {
        node.run(["ethtool", "-K", "eth0", "gro", word])?.success()?;
        assert_eq!(node.enter(|| interface::gro("eth0"))??, merges);
    }
    let after = facts()?;
    assert_eq!(after.link.map(|link| (link.mtu, link.gro)), Some((1400, Some(false))));
    assert_eq!((after.tcp_syncookies, after.tcp_rfc1337, after.rp_filter), (Some(0), Some(1), Some(1)));
    assert_eq!(node.enter(|| Facts::gather("eth9"))?.link, None);
    Ok(())
}

#[test]
fn below_a_macvlan_the_veths_gro_counts() -> Result<()> {
    let lab = Lab::builder().generic_xdp(Role::Switch).up()?;
    let switch = lab.switch(0);
    for (word, merges) in [("on", true), ("off", false)] {
        switch.run(["ethtool", "-K", "eth0low", "gro", word])?.success()?;
        assert_eq!(switch.enter(|| interface::gro("eth0"))??, merges);
    }
    Ok(())
}

#[test]
fn an_mptcp_listener_is_seen() -> Result<()> {
    let lab = Lab::builder().up()?;
    let node = lab.node(0);
    let listening = node.enter(|| {
        // SAFETY: socket takes three integers.
        let fd = unsafe {
            libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP)
        };
        let fd = nix::errno::Errno::result(fd)?;
        // SAFETY: the kernel has just given us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &SockaddrIn::new(0, 0, 0, 0, 8088))?;
        listen(&fd, Backlog::new(1)?)?;
        nix::Result::Ok(fd)
    })??;
    assert_eq!(node.enter(|| Facts::gather("eth0"))?.mptcp_ports, Ok(vec![8088]));
    drop(listening);
    Ok(())
}

#[test]
fn listeners_are_listed_with_their_queues() -> Result<()> {
    let lab = Lab::builder().up()?;
    let node = lab.node(0);
    let v4 = node.tcp_listen((node.ipv4(), 80).into())?;
    let dual = node.tcp_listen("[::]:81".parse()?)?;
    let v6 = node.enter(|| {
        let flags = nix::sys::socket::SockFlag::SOCK_CLOEXEC;
        let (family, kind) = (nix::sys::socket::AddressFamily::Inet6, nix::sys::socket::SockType::Stream);
        let fd = nix::sys::socket::socket(family, kind, flags, None)?;
        nix::sys::socket::setsockopt(&fd, nix::sys::socket::sockopt::Ipv6V6Only, &true)?;
        let address: std::net::SocketAddrV6 = "[::]:82".parse().expect("an address");
        bind(std::os::fd::AsRawFd::as_raw_fd(&fd), &nix::sys::socket::SockaddrIn6::from(address))?;
        listen(&fd, Backlog::new(1)?)?;
        nix::Result::Ok(fd)
    })??;
    listen(&v4, Backlog::new(5)?)?;
    let _waiting = node.tcp_connect((node.ipv4(), 80).into(), Duration::from_secs(1))?;
    let list = || switchback_runtime::listeners::list(&mut Socket::sock_diag()?);
    let mut found = node.enter(list)??;
    // The kernel lists them by hash.
    found.sort_by_key(|found| found.address);
    let shown: Vec<_> =
        found.iter().map(|found| (found.address, found.only_v6, found.len, found.mptcp)).collect();
    assert_eq!(
        shown,
        [
            ((node.ipv4(), 80).into(), false, 1, false),
            ("[::]:81".parse()?, false, 0, false),
            ("[::]:82".parse()?, true, 0, false),
        ]
    );
    assert_eq!((found[0].limit, found[2].limit), (5, 1));
    drop((v4, dual, v6));
    Ok(())
}

#[test]
fn a_control_socket_serves_its_own_namespace() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, other) = (lab.node(0), lab.client(0));
    let mut server = node.enter(|| ControlServer::bind("node", "eth0.7"))??;
    let second = node.enter(|| ControlServer::bind("node", "eth0.7"))?.expect_err("one is enough");
    assert!(second.to_string().contains(&format!("already running, pid {}", std::process::id())), "{second}");
    let found = node.enter(find_sockets)??;
    assert_eq!((found[0].role.as_str(), found[0].interface.as_str()), ("node", "eth0.7"));
    assert_eq!(other.enter(find_sockets)??, []);

    // One that is connected and silent is given up; the next is served.
    let mut silent = UnixStream::connect(server.path())?;
    let path = server.path().to_owned();
    let client = std::thread::spawn(move || ControlClient::call(&path, &Request::Reload {}));
    std::thread::sleep(Duration::from_millis(50));
    let mut asked = Vec::new();
    server.accept_and_serve(|request| {
        asked.push(request);
        Response::Done { lines: vec!["pool web added".to_owned()] }
    })?;
    assert_eq!(asked, [Request::Reload {}]);
    let response = client.join().expect("the client does not panic")?;
    assert_eq!(response, Response::Done { lines: vec!["pool web added".to_owned()] });
    assert_eq!(silent.read(&mut [0])?, 0);

    let path = server.path().to_owned();
    drop(server);
    assert!(!path.exists());
    // What a dead process leaves: a socket that nobody listens on.
    drop(std::os::unix::net::UnixListener::bind(&path).or_else(|_| {
        std::fs::create_dir_all(path.parent().expect("it is in a directory"))?;
        std::os::unix::net::UnixListener::bind(&path)
    })?);
    assert!(path.exists());
    drop(node.enter(|| ControlServer::bind("node", "eth0.7"))??);
    assert!(!path.exists());
    Ok(())
}

#[test]
fn pins_have_a_directory_for_each_namespace_and_interface() -> Result<()> {
    let lab = Lab::builder().up()?;
    let open = |interface| lab.node(0).enter(move || PinDir::open("test", interface));
    let (plain, vlan) = (open("eth0")??, open("eth0.7")??);
    let other = lab.client(0).enter(|| PinDir::open("test", "eth0"))??;
    let parents =
        [&plain, &vlan, &other].map(|pins| pins.path("map").parent().map(std::path::Path::to_owned));
    assert!(parents[0] != parents[1] && parents[0] != parents[2]);
    sweep()?;
    for (pins, directory) in [plain, vlan, other].into_iter().zip(parents) {
        let directory = directory.expect("a pin is in a directory");
        assert!(directory.exists());
        pins.remove_all()?;
        assert!(!directory.exists());
    }
    Ok(())
}
