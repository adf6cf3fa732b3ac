//! One bridge, a router between, a second arm; IPv4 and IPv6 inside and outside; native and generic XDP.

mod common;

use std::time::Duration;

use common::http::{Documents, alternating, fetch, get};
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::Topology;

fn assert_served(cluster: &Cluster) -> Result {
    let documents = Documents::of(&cluster.lab)?;
    for v6 in [false, true] {
        let url = |path: &str| if v6 { cluster.url6(path) } else { cluster.url4(path) };
        get(cluster.client(), &url("/small"), &documents.small)?;
        get(cluster.client(), &url("/1m"), &documents.large)?;
        let gets = alternating(&documents, 24, url);
        let responses = fetch(cluster.client(), &gets, &[], Duration::from_secs(20))?;
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    }
    Ok(())
}

/// Each combination of the families of the VIP and of the nodes' addresses.
fn works(topology: Topology) -> Result {
    for ipv6_nodes in [vec![], vec![0, 1], vec![1]] {
        println!("{topology:?}, nodes with IPv6 addresses: {ipv6_nodes:?}");
        let cluster = Cluster::start_with(Plan { topology, ipv6_nodes, ..Plan::default() })?;
        let status = cluster.switch_status()?;
        let interfaces = status["interfaces"].as_array().map_or(0, Vec::len);
        assert_eq!(interfaces, if topology == Topology::TwoArmed { 2 } else { 1 }, "{status:#}");
        assert_eq!(status["interfaces"][0]["mode"], "native");
        assert_served(&cluster)?;
        cluster.down()?;
    }
    Ok(())
}

#[test]
fn on_one_bridge() -> Result {
    works(Topology::Flat)
}

#[test]
fn behind_a_router() -> Result {
    works(Topology::Routed)
}

#[test]
fn with_a_second_arm() -> Result {
    works(Topology::TwoArmed)
}

#[test]
fn a_second_arm_carries_the_handoffs() -> Result {
    let cluster = Cluster::start_with(Plan { topology: Topology::TwoArmed, ..Plan::default() })?;
    let documents = Documents::of(&cluster.lab)?;
    // The next hop is looked up once at the start; until then the kernel routes, over the same arm.
    let router = cluster.lab.router().expect("there is one").count("udp dport 6081")?;
    fetch(cluster.client(), &alternating(&documents, 24, |path| cluster.url4(path)), &[], PATIENCE)?;
    assert_eq!(router.to_host()?.packets, 0, "handoffs went by the router");
    let counters = cluster.lab.switch(0).interface_counters("eth1")?;
    assert!(counters.tx.packets > 24, "{counters:?}");
    cluster.down()
}

/// The other end of the switch's veth has neither an XDP program nor NAPI, as in a container.
#[test]
fn on_a_bare_veth_the_kernel_sends() -> Result {
    let mut cluster = Cluster::prepare(Plan::default())?;
    let make_bare = |cluster: &Cluster| -> Result {
        let switch = cluster.lab.switch(0);
        switch.set_xdp_port(false)?;
        Ok(switch.set_gro_port(false)?)
    };
    let kernel_sends = |cluster: &Cluster| -> Result<bool> {
        let interface = cluster.switch_status()?["interfaces"][0].take();
        assert_eq!(interface["mode"], "native");
        interface["kernel_sends"].as_bool().ok_or_else(|| format!("{interface}").into())
    };
    make_bare(&cluster)?;
    for node in 0..2 {
        cluster.start_node(node)?;
    }
    cluster.start_switch()?;
    assert!(kernel_sends(&cluster)?);
    cluster.client().ping(cluster.lab.vip4())?;
    assert_served(&cluster)?;

    println!("the other end changes");
    cluster.lab.switch(0).set_gro_port(true)?;
    wait_until("XDP to send", PATIENCE, || kernel_sends(&cluster), |kernel| !kernel)?;
    assert_served(&cluster)?;
    make_bare(&cluster)?;
    wait_until("the kernel to send", PATIENCE, || kernel_sends(&cluster), |kernel| *kernel)?;
    assert_served(&cluster)?;
    cluster.down()
}

#[test]
fn generic_xdp_works() -> Result {
    let cluster = Cluster::start_with(Plan { generic_xdp: true, ..Plan::default() })?;
    assert_eq!(cluster.switch_status()?["interfaces"][0]["mode"], "generic");
    assert_served(&cluster)?;
    cluster.down()
}

/// The remedy that the refusal names is taken at its word.
#[test]
fn generic_xdp_with_merged_packets_is_refused() -> Result {
    let mut cluster = Cluster::prepare(Plan { generic_xdp: true, ..Plan::default() })?;
    let switch = cluster.lab.switch(0);
    switch.run(["ethtool", "-K", "eth0low", "gro", "on"])?.success()?;
    let refused = cluster.spawn_switch()?;
    let status = refused.wait_timeout(PATIENCE)?.ok_or("the switch runs nevertheless")?;
    let log = refused.log();
    assert_eq!(status.code(), Some(2), "{log}");
    let remedy = log.lines().find_map(|line| line.split_once("; ").map(|(_, remedy)| remedy.to_owned()));
    let remedy = remedy.ok_or_else(|| format!("no remedy in {log}"))?;
    assert!(remedy.starts_with("ethtool -K "), "{log}");
    cluster.assert_no_trace()?;
    switch.run(remedy.split(' '))?.success()?;
    for node in 0..2 {
        cluster.start_node(node)?;
    }
    cluster.start_switch()?;
    assert_served(&cluster)?;
    cluster.down()
}
