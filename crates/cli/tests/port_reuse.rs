//! A client that uses its ports again within seconds meets the TIME_WAIT sockets of its earlier connections
//! on the nodes, and gets every connection nevertheless.

mod common;

use common::{Cluster, Plan, Result};

#[test]
fn connections_from_reused_ports_are_served() -> Result {
    let plan = Plan { pools: vec![("web", vec![0, 1])], ..Plan::default() };
    let cluster = Cluster::start_with(plan)?;
    // A client that closes before its server does keeps the port for a second rather than a minute.
    let (range, reuse) = ("net.ipv4.ip_local_port_range=40000 40999", "net.ipv4.tcp_tw_reuse=1");
    cluster.client().run(["sysctl", "-w", range, reuse])?.success()?;
    for url in [cluster.url4("/small"), cluster.url6("/small")] {
        let before = [cluster.node_counter(0, "cured")?, cluster.node_counter(1, "cured")?];
        let load = common::http::wrk(cluster.client(), &url, 16, &["-H", "Connection: close"])?;
        let (one, other) = (cluster.node_counter(0, "cured")?, cluster.node_counter(1, "cured")?);
        println!("{} connections, {} stale sockets removed", load.requests, one + other);
        assert!(load.requests > 2000, "the ports were not used twice: {}", load.report);
        assert!(one > before[0] && other > before[1], "no stale socket was met: {one}, {other}");
    }
    for node in 0..2 {
        assert_eq!(cluster.node_counter(node, "refused_failed")?, 0);
    }
    cluster.down()
}
