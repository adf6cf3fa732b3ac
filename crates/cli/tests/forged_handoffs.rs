//! Only handoff packets with a valid tag are acted on, and a tag is good for one node. All else that claims
//! to be for a VIP is dropped, and counted.

mod common;

use std::net::{IpAddr, SocketAddr};

use common::http::Documents;
use common::packets::{Raw, flow, handoff_key, handoff_packet};
use common::{Cluster, PATIENCE, Result, wait_until};
use switchback_wire::packet::{bare, flags, segment};
use switchback_wire::{Seq, sb_key, sb_op};

const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: shop\r\n\r\n";

struct Addresses {
    switch: IpAddr,
    nodes: [IpAddr; 2],
    client: SocketAddr,
    vip: SocketAddr,
}

fn addresses(cluster: &Cluster) -> Addresses {
    let lab = &cluster.lab;
    Addresses {
        switch: lab.switch(0).ipv4().into(),
        nodes: [lab.node(0).ipv4().into(), lab.node(1).ipv4().into()],
        // Nobody's, so that no kernel has a word in it.
        client: "192.0.2.250:40000".parse().expect("an address"),
        vip: SocketAddr::new(lab.vip4().into(), 80),
    }
}

fn wait_for_node(cluster: &Cluster, node: usize, counter: &str, wanted: u64) -> Result {
    wait_until(counter, PATIENCE, || cluster.node_counter(node, counter), |count| *count >= wanted)?;
    assert_eq!(cluster.node_counter(node, counter)?, wanted, "{counter}");
    Ok(())
}

fn wait_for_switch(cluster: &Cluster, counter: &str, wanted: u64) -> Result {
    wait_until(counter, PATIENCE, || cluster.switch_counter(counter), |count| *count >= wanted)?;
    assert_eq!(cluster.switch_counter(counter)?, wanted, "{counter}");
    Ok(())
}

#[test]
fn a_node_takes_only_its_own_handoffs() -> Result {
    let cluster = Cluster::start()?;
    let Addresses { switch, nodes, client, vip } = addresses(&cluster);
    let (key, flow) = (handoff_key(&cluster)?, flow(client, vip));
    let raw = Raw::open(cluster.lab.switch(0))?;

    let wrong = sb_key { k0: key.k0 ^ 1, k1: key.k1 };
    raw.send(
        nodes[0],
        &handoff_packet(&wrong, sb_op::SB_OP_ADOPT, (switch, nodes[0], nodes[0]), &flow, REQUEST),
    )?;
    wait_for_node(&cluster, 0, "drop_tag", 1)?;
    assert_eq!(cluster.node_counter(0, "adopted")?, 0);

    // Valid at the first node, and sent on to the second, as whoever sees the network could.
    let mut adopt = handoff_packet(&key, sb_op::SB_OP_ADOPT, (switch, nodes[0], nodes[0]), &flow, REQUEST);
    raw.send(nodes[0], &adopt)?;
    wait_for_node(&cluster, 0, "adopted", 1)?;
    let IpAddr::V4(other) = nodes[1] else { unreachable!("the lab's nodes are given by IPv4 here") };
    adopt[16..20].copy_from_slice(&other.octets());
    raw.send(nodes[1], &adopt)?;
    wait_for_node(&cluster, 1, "drop_tag", 1)?;
    assert_eq!(cluster.node_counter(1, "adopted")?, 0);

    // Each bit that the tag covers: another operation, another flow, another byte of the request's position.
    let valid = || handoff_packet(&key, sb_op::SB_OP_RELEASE, (switch, nodes[0], nodes[0]), &flow, REQUEST);
    let (option, inner) = (20 + 8 + 8, valid().len() - REQUEST.len() - 40);
    for (index, at) in
        [option + 4, option + 5, option + 8, inner + 12, inner + 20, inner + 24].into_iter().enumerate()
    {
        let mut changed = valid();
        changed[at] ^= 1;
        raw.send(nodes[0], &changed)?;
        wait_for_node(&cluster, 0, "drop_tag", 2 + index as u64)?;
    }
    assert_eq!(cluster.node_counter(0, "released")?, 0);
    cluster.down()
}

#[test]
fn the_switch_takes_only_handoffs_of_its_cluster() -> Result {
    let cluster = Cluster::start()?;
    let Addresses { switch, nodes, client, vip } = addresses(&cluster);
    let (key, flow) = (handoff_key(&cluster)?, flow(client, vip));
    let raw = Raw::open(cluster.lab.node(0))?;
    let wrong = sb_key { k0: key.k0, k1: key.k1 ^ 1 };
    let packet =
        |key: &sb_key| handoff_packet(key, sb_op::SB_OP_OWNED, (nodes[0], switch, nodes[0]), &flow, REQUEST);
    let flows = cluster.flows()?;
    raw.send(switch, &packet(&wrong))?;
    wait_for_switch(&cluster, "drop_tag", 1)?;
    assert_eq!(cluster.flows()?, flows);
    // In the name of another node.
    let mut replayed = packet(&key);
    let IpAddr::V4(other) = nodes[1] else { unreachable!("the lab's nodes are given by IPv4 here") };
    replayed[12..16].copy_from_slice(&other.octets());
    replayed[10..12].fill(0);
    let check = switchback_wire::packet::fold(switchback_wire::packet::sum(&replayed[..20]));
    replayed[10..12].copy_from_slice(&check.to_be_bytes());
    raw.send(switch, &replayed)?;
    wait_for_switch(&cluster, "drop_tag", 2)?;
    // In the name of nobody.
    raw.send(
        switch,
        &handoff_packet(&key, sb_op::SB_OP_OWNED, (client.ip(), switch, client.ip()), &flow, REQUEST),
    )?;
    wait_for_switch(&cluster, "drop_epoch", 1)?;
    let recovered = cluster.switch_status()?["dispatch"]["recovered"].as_u64();
    assert_eq!((cluster.flows()?, recovered), (flows, Some(0)));
    cluster.down()
}

#[test]
fn a_node_takes_nothing_for_a_vip_but_from_a_switch() -> Result {
    let cluster = Cluster::start()?;
    let Addresses { nodes, client, vip, .. } = addresses(&cluster);
    let flow = flow(client, vip);
    let host = cluster.client();
    // Straight to the node, as a neighbour with a static entry would send it.
    let link = cluster.lab.node(0).run(["ip", "-j", "link", "show", "dev", "eth0"])?.success()?;
    let link: serde_json::Value = serde_json::from_str(&link)?;
    let mac = link[0]["address"].as_str().ok_or("no hardware address")?;
    let other = "192.0.2.254";
    host.run(["ip", "neigh", "replace", other, "lladdr", mac, "dev", "eth0"])?.success()?;
    host.run(["ip", "route", "replace", &format!("{}/32", vip.ip()), "via", other])?.success()?;
    let from_vip = cluster.lab.node(0).count(&format!("ip saddr {}", vip.ip()))?;
    let raw = Raw::open(host)?;
    let plain = [
        bare(&flow, true, Seq(1), Seq(0), flags::SYN),
        bare(&flow, true, Seq(1), Seq(1), flags::ACK),
        segment(&flow, true, (Seq(1), Seq(1)), flags::ACK | flags::PSH, None, REQUEST),
        bare(&flow, true, Seq(1), Seq(1), flags::RST),
    ];
    for (index, packet) in plain.iter().enumerate() {
        raw.send(vip.ip(), packet)?;
        wait_for_node(&cluster, 0, "drop_plain", 1 + index as u64)?;
    }
    assert_eq!(from_vip.from_host()?.packets, 0, "the node answers");
    host.run(["ip", "route", "del", &format!("{}/32", vip.ip())])?.success()?;

    // The node's own address is no affair of ours.
    let small = Documents::of(&cluster.lab)?.small;
    common::http::get(host, &format!("http://{}/small", nodes[0]), &small)?;
    common::http::get(host, &cluster.url4("/small"), &small)?;
    cluster.down()
}
