//! Responses never pass the switch.

mod common;

use common::http::wrk;
use common::{Cluster, Plan, Result};

#[test]
fn the_switch_carries_no_response_byte() -> Result {
    let cluster = Cluster::start_with(Plan { pools: vec![("web", vec![0, 1])], ..Plan::default() })?;
    let (client, switch) = (cluster.client(), cluster.lab.switch(0));
    // What comes from the service but is no SYN-ACK of the switch, nor its RST to a connection that ends
    // before any request: wrk makes one to see whether there is a server.
    let responses = switch.count("tcp sport 80 tcp flags & (syn|rst) == 0")?;
    let to_client = client.count("tcp sport 80 tcp flags & (syn|rst) == 0")?;
    let requests_before = cluster.switch_status()?["services"][0]["requests"].as_u64();
    let small = wrk(client, &cluster.url4("/small"), 32, &[])?;
    let before = switch.interface_counters("eth0")?;
    let received_before = to_client.to_host()?.bytes;
    let large = wrk(client, &cluster.url4("/1m"), 32, &[])?;

    assert_eq!((responses.to_host()?.packets, responses.from_host()?.packets), (0, 0));
    let after = switch.interface_counters("eth0")?;
    let switched = after.rx.bytes + after.tx.bytes - before.rx.bytes - before.tx.bytes;
    let received = to_client.to_host()?.bytes - received_before;
    println!("{switched} bytes through the switch, {received} from the nodes to the client");
    assert!(received >= large.requests << 20, "{received} bytes for {} mebibytes", large.requests);
    assert!(switched < received / 20, "{switched} bytes through the switch, {received} to the client");

    // Each request was counted, those that wrk did not wait for too; and again if its packet was lost on the way to the
    // node, which had it read once more.
    let status = cluster.switch_status()?;
    let requests = status["services"][0]["requests"].as_u64().ok_or("no number of requests")?
        - requests_before.ok_or("no number of requests")?;
    let seen = small.requests + large.requests;
    let unread = status["dispatch"]["unread"].as_u64().ok_or("no number of repeated readings")?;
    let counted = seen..=seen + 64 + unread;
    assert!(counted.contains(&requests), "{requests} requests, wrk had {seen} responses, {unread} unread");
    cluster.down()
}

#[test]
fn keep_alive_connections_over_ipv6_have_no_errors() -> Result {
    let cluster = Cluster::start_with(Plan { pools: vec![("web", vec![0, 1])], ..Plan::default() })?;
    let load = wrk(cluster.client(), &cluster.url6("/small"), 32, &[])?;
    assert!(load.requests > 1000, "{}", load.report);
    for counter in ["drop_ring_full", "drop_malformed", "drop_too_long", "drop_no_node"] {
        assert_eq!(cluster.switch_counter(counter)?, 0, "{counter}");
    }
    cluster.down()
}
