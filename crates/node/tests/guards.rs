//! A node has more interfaces than the one by which handoff packets come, and nothing reaches a VIP by those.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use common::{Result, config, counter, start, wait_for_counter};
use switchback_lab::{Host, Lab};

/// A connection that is not dropped takes no time.
const ATTEMPT: Duration = Duration::from_millis(300);
const SIDE: [&str; 2] = ["198.18.0.2", "fd00:5b::2"];

#[test]
fn agent_process() {
    common::agent_process();
}

fn ip(host: &Host, line: &str) -> Result<()> {
    host.run(std::iter::once("ip").chain(line.split(' ')))?.success()?;
    Ok(())
}

/// A link between the client and the node, by which the client believes to reach the VIPs.
fn side_door(lab: &Lab) -> Result<()> {
    let (node, client) = (lab.node(0), lab.client(0));
    ip(node, &format!("link add side type veth peer name far netns {}", client.namespace_name()))?;
    for (host, interface, last) in [(node, "side", 2), (client, "far", 1)] {
        ip(host, &format!("addr add 198.18.0.{last}/24 dev {interface}"))?;
        ip(host, &format!("addr add fd00:5b::{last}/64 dev {interface} nodad"))?;
        ip(host, &format!("link set {interface} up"))?;
    }
    ip(client, &format!("route replace {}/32 via {}", lab.vip4(), SIDE[0]))?;
    ip(client, &format!("-6 route replace {}/128 via {}", lab.vip6(), SIDE[1]))
}

fn assert_closed(lab: &Lab, when: &str) -> Result<()> {
    let client = lab.client(0);
    let own = SIDE.map(|text| text.parse::<IpAddr>().expect("an address"));
    for (vip, own) in [IpAddr::from(lab.vip4()), lab.vip6().into()].into_iter().zip(own) {
        let reached = client.tcp_connect(SocketAddr::new(vip, 80), ATTEMPT);
        assert!(reached.is_err(), "{when}: {vip} is reached past the switch");
        client.tcp_connect(SocketAddr::new(own, 80), common::PATIENCE)?;
    }
    Ok(())
}

#[test]
fn nothing_reaches_a_vip_by_another_interface() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, client, config) = (lab.node(0), lab.client(0), config(&lab)?);
    let _server = node.tcp_listen("[::]:80".parse()?)?;
    let agent = start(node, &config)?;
    side_door(&lab)?;
    assert_closed(&lab, "an interface that came later")?;
    assert!(wait_for_counter(node, "drop_plain", 2)? >= 2);

    // Nor does the node say that it has the VIP.
    ip(client, &format!("route replace {}/32 dev far", lab.vip4()))?;
    let ignored = counter(node, "arp_ignored")?;
    let _ = client.ping(lab.vip4());
    let neighbours = client.run(["ip", "neigh", "show", "dev", "far"])?.success()?;
    let of_vip = neighbours.lines().find(|line| line.starts_with(&format!("{} ", lab.vip4())));
    assert!(of_vip.is_some_and(|line| !line.contains("lladdr")), "{neighbours}");
    assert!(counter(node, "arp_ignored")? > ignored);
    ip(client, &format!("route replace {}/32 via {}", lab.vip4(), SIDE[0]))?;

    agent.kill()?;
    assert_closed(&lab, "the agent is dead")?;
    let agent = start(node, &config)?;
    assert_closed(&lab, "the next agent")?;
    ip(node, "link del side")?;
    side_door(&lab)?;
    assert_closed(&lab, "another interface")?;
    assert!(agent.stop()?.success(), "{}", agent.log());
    assert_eq!(common::leftovers(node)?, Vec::<std::path::PathBuf>::new());
    Ok(())
}
