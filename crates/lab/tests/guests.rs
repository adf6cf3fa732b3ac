//! Guests of hosts come and go, and leave with their lab.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use switchback_lab::{Guest, GuestNetwork, Host, Lab, Process, Result};

const PATIENCE: Duration = Duration::from_secs(10);
const NETWORK: GuestNetwork = GuestNetwork {
    ipv4: (Ipv4Addr::new(198, 51, 100, 1), 24),
    ipv6: (Ipv6Addr::new(0x2001, 0xdb8, 4, 0, 0, 0, 0, 1), 64),
};
const IPV4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 4, 0, 0, 0, 0, 2);

fn guest(host: &Host) -> Result<(Guest, Process)> {
    let guest = host.guest("guest2", NETWORK, IPV4, IPV6)?;
    let mut command = Command::new("sleep");
    command.arg("1000");
    let process = guest.spawn("sleep", command)?;
    Ok((guest, process))
}

fn assert_gone(lab: &Lab, process: &Process) -> Result<()> {
    let name = format!("sb{}-node0-guest2", lab.id());
    assert!(!Path::new("/run/netns").join(&name).exists(), "{name} is still there");
    assert!(process.wait_timeout(Duration::ZERO)?.is_some(), "a process of {name} still runs");
    Ok(())
}

#[test]
fn guests_are_reached_through_their_host_and_go_when_dropped() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (host, client) = (lab.node(0), lab.client(0));
    host.make_guest_network(NETWORK)?;
    // The second one has the name and the addresses of the first.
    for _ in 0..2 {
        let (guest, process) = guest(host)?;
        host.ping(IPV4)?;
        host.ping(IPV6)?;
        assert!(client.ping(IPV4).is_err(), "a client has a route to guests");
        for (to, hop) in
            [("198.51.100.0/24", host.ipv4().to_string()), ("2001:db8:4::/64", host.ipv6().to_string())]
        {
            client.run(["ip", "route", "replace", to, "via", &hop])?.success()?;
        }
        client.ping(IPV4)?;
        client.ping(IPV6)?;
        client.run(["ip", "route", "del", "198.51.100.0/24"])?.success()?;
        assert!(process.wait_timeout(Duration::ZERO)?.is_none());
        drop(guest);
        assert_gone(&lab, &process)?;
    }
    // Not before the last one is made: the kernel asks for the address's owner only once in a second.
    assert!(host.ping(IPV4).is_err(), "the address is still answered for");
    Ok(())
}

#[test]
fn guests_go_with_their_lab() -> Result<()> {
    let lab = Lab::builder().up()?;
    lab.node(0).make_guest_network(NETWORK)?;
    let (guest, process) = guest(lab.node(0))?;
    lab.down()?;
    assert!(process.wait_timeout(PATIENCE)?.is_some());
    assert_gone(&lab, &process)?;
    assert!(guest.spawn("late", Command::new("true")).is_err());
    Ok(())
}
