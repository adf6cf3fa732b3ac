//! Servers that listen elsewhere than at the VIPs: `server` of a node.

mod common;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use common::http::Documents;
use common::responses::Responses;
use common::{Cluster, PATIENCE, Plan, Result};
use switchback_lab::Signal;

const PORT: u16 = 8080;

/// The server of the first node listens at loopback addresses only, and the file says that it does so at this port.
fn plan(port: u16) -> Plan {
    let loopback = ["127.0.0.1", "::1"].map(|ip| ip.parse::<IpAddr>().expect("an address"));
    Plan {
        listen: vec![(0, loopback.map(|ip| SocketAddr::new(ip, PORT)).to_vec())],
        node_lines: vec![(0, format!("server = [\"127.0.0.1:{port}\", \"[::1]:{port}\"]"))],
        server_extra: "add_header X-Client $remote_addr always;",
        pool_lines: "[pool.health]\npath = \"/small\"\n".to_owned(),
        ..Plan::default()
    }
}

/// One connection, whose requests go to both nodes in turn; each server sees its client.
fn ask(cluster: &Cluster, vip: IpAddr) -> Result {
    let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), PATIENCE)?;
    let client = stream.local_addr()?.ip().to_string();
    let mut responses = Responses::new(&stream, PATIENCE)?;
    let body = &Documents::of(&cluster.lab)?.small.body;
    for turn in 0..6 {
        let (path, node) = if turn % 2 == 0 { ("/small", "node0") } else { ("/img/small", "node1") };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let response = responses.next(false)?.ok_or("the connection has ended")?;
        assert_eq!((response.status, response.field("x-node")), (200, Some(node)));
        assert_eq!(response.field("x-client"), Some(&client[..]));
        assert!(turn % 2 == 1 || response.body == **body);
    }
    Ok(())
}

#[test]
fn a_server_gets_connections_where_it_listens() -> Result {
    let mut cluster = Cluster::start_with(plan(PORT))?;
    cluster.wait_for_listeners("ready")?;
    for vip in [IpAddr::from(cluster.lab.vip4()), cluster.lab.vip6().into()] {
        ask(&cluster, vip)?;
    }
    cluster.stop_server(0)?;
    cluster.wait_for_listeners("nobody listens")?;
    cluster.start_server(0)?;
    cluster.wait_for_listeners("ready")?;
    // Its flows are known to the next process.
    cluster.kill_node(0)?;
    cluster.start_node(0)?;
    cluster.wait_for_listeners("ready")?;
    ask(&cluster, cluster.lab.vip4().into())?;
    cluster.down()
}

#[test]
fn the_file_may_say_another_place() -> Result {
    let mut cluster = Cluster::start_with(plan(PORT + 1))?;
    cluster.wait_for_listeners("nobody listens")?;
    cluster.plan = plan(PORT);
    cluster.write_config(&cluster.plan)?;
    cluster.agent(0).signal(Signal::SIGHUP)?;
    cluster.wait_for_listeners("ready")?;
    ask(&cluster, cluster.lab.vip4().into())?;
    assert_eq!(cluster.node_counter(0, "refused_no_listener")?, 0);
    cluster.down()
}
