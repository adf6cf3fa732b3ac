//! A node leaves and comes back, and no client notices.

mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::http::Documents;
use common::responses::Responses;
use common::steady::{Served, Steady};
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::ServerKind;

/// Each client asks some 50 times a second.
const LOAD: Steady = Steady { clients: 200, pause: Duration::from_millis(20), close: false };

fn start(nodes: usize) -> Result<Cluster> {
    Cluster::start_with(Plan {
        servers: vec![ServerKind::Nginx; nodes],
        pools: vec![("web", (0..nodes).collect())],
        // So that no server ends a connection because it has served enough of it.
        server_extra: "keepalive_requests 1000000;",
        ..Plan::default()
    })
}

fn beside<T>(cluster: &Cluster, load: Steady, work: impl FnOnce() -> Result<T>) -> Result<(T, Served)> {
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let body = Documents::of(&cluster.lab)?.small;
    load.run_beside(cluster.client(), vip, (body.path, &body.body), work)
}

/// What the switch says of a node.
fn of_node(cluster: &Cluster, node: usize, key: &str) -> Result<u64> {
    let status = cluster.switch_status()?;
    status["nodes"][node][key].as_u64().ok_or_else(|| format!("no {key} of node {node} in {status}").into())
}

fn assert_unharmed(served: &Served) {
    served.assert_all_answered();
    assert_eq!(served.closed_idle, 0, "idle connections were closed");
}

#[test]
fn a_rolling_restart_costs_no_request_and_no_connection() -> Result {
    let cluster = start(3)?;
    let (drains, served) = beside(&cluster, LOAD, || {
        let mut drains = Vec::new();
        for node in 0..3 {
            let name = format!("node{node}");
            let start = Instant::now();
            let said = cluster.run(cluster.lab.switch(0), &["drain", &name])?.success()?;
            drains.push(start.elapsed());
            assert!(said.contains("free after"), "{said}");
            let before = of_node(&cluster, node, "requests")?;
            cluster.stop_server(node)?;
            cluster.start_server(node)?;
            assert_eq!(of_node(&cluster, node, "requests")?, before, "requests while it was drained");
            let said = cluster.run(cluster.lab.switch(0), &["undrain", &name])?.success()?;
            assert_eq!(said, format!("node {name} drains no more\n"));
        }
        Ok(drains)
    })?;
    println!("{} requests, the slowest {:?}, drains {drains:?}", served.requests, served.slowest);
    assert_unharmed(&served);
    assert!(served.requests > LOAD.clients * 10, "{}", served.requests);
    cluster.down()
}

/// Their clients send nothing, and notice nothing.
#[test]
fn idle_connections_leave_a_draining_node_too() -> Result {
    let cluster = start(2)?;
    let idle = Steady { pause: Duration::from_secs(3), ..LOAD };
    let (took, served) = beside(&cluster, idle, || {
        let both = || -> Result<Vec<u64>> { (0..2).map(|node| of_node(&cluster, node, "adopted")).collect() };
        wait_until("adoptions", PATIENCE, both, |adopted| adopted.iter().sum::<u64>() == 200)?;
        let start = Instant::now();
        cluster.run(cluster.lab.switch(0), &["drain", "node0"])?.success()?;
        let took = start.elapsed();
        assert_eq!(cluster.node_status(0)?["flows"], 0);
        // Until each of them has asked again.
        wait_until("requests", PATIENCE, both, |adopted| adopted[1] >= 200)?;
        Ok(took)
    })?;
    println!("{} requests, drained in {took:?}", served.requests);
    assert_unharmed(&served);
    cluster.down()
}

/// As in an upgrade of all machines: the switch, which has taken the connections from the node, is restarted last.
#[test]
fn idle_connections_outlive_the_agent_of_their_node_and_the_switch() -> Result {
    let mut cluster = start(2)?;
    let small = Documents::of(&cluster.lab)?.small;
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", small.path);
    let mut connections = Vec::new();
    for _ in 0..20 {
        let stream = cluster.client().tcp_connect(vip, PATIENCE)?;
        let responses = Responses::new(&stream, PATIENCE)?;
        connections.push((stream, responses));
    }
    let mut ask_on_all = || -> Result {
        for (stream, responses) in &mut connections {
            stream.write_all(request.as_bytes())?;
            let response = responses.next(false)?.ok_or("the connection has ended")?;
            assert_eq!((response.status, &response.body[..]), (200, &small.body[..]));
        }
        Ok(())
    };
    ask_on_all()?;
    cluster.run(cluster.lab.switch(0), &["drain", "node0"])?.success()?;
    let released = cluster.node_counter(0, "released")?;
    assert!(released > 0, "node 0 had no connection");
    cluster.stop_node(0)?;
    cluster.start_node(0)?;
    cluster.stop_switch()?;
    cluster.start_switch()?;
    ask_on_all()?;
    cluster.run(cluster.lab.switch(0), &["undrain", "node0"])?.success()?;
    cluster.down()
}

/// The node's own agent is told, and all switches hear of it; a node that is unknown is a mistake.
#[test]
fn a_node_drains_itself_and_names_are_checked() -> Result {
    let cluster = start(2)?;
    let said = cluster.run(cluster.lab.node(1), &["drain", "node1"])?.success()?;
    assert!(said.contains("node node1 drains") && said.contains("free after"), "{said}");
    let state = || Ok(cluster.switch_status()?["nodes"][1]["listeners"][0]["state"].clone());
    wait_until("the switch's view", PATIENCE, state, |state| state == "draining")?;
    let said = cluster.run(cluster.lab.node(1), &["undrain", "node1"])?.success()?;
    assert!(said.contains("node node1 drains no more"), "{said}");
    wait_until("the switch's view", PATIENCE, state, |state| state == "up")?;
    for (host, name) in [(cluster.lab.switch(0), "node7"), (cluster.lab.node(0), "node1")] {
        let output = cluster.run(host, &["drain", name])?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = output.stderr;
        assert!(said.contains(name), "{said}");
    }
    cluster.down()
}

/// `drain = true` in the file.
#[test]
fn a_reload_drains_a_node() -> Result {
    let cluster = start(2)?;
    let mut plan = cluster.plan.clone();
    let ((), served) = beside(&cluster, LOAD, || {
        plan.node_lines = vec![(0, "drain = true".to_owned())];
        cluster.write_config(&plan)?;
        let said = cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
        assert!(said.contains("node node0: drain"), "{said}");
        wait_until("flows", PATIENCE, || Ok(cluster.node_status(0)?["flows"].clone()), |flows| *flows == 0)?;
        let output = cluster.run(cluster.lab.switch(0), &["undrain", "node0"])?;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        plan.node_lines.clear();
        cluster.write_config(&plan)?;
        cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
        Ok(())
    })?;
    assert_unharmed(&served);
    cluster.down()
}

/// The node remembers it, and tells a switch that knows nothing of the command.
#[test]
fn a_drain_at_a_switch_is_the_nodes_and_survives_restarts() -> Result {
    let mut cluster = start(2)?;
    let at_node = |cluster: &Cluster| Ok(cluster.node_status(1)?["draining"].clone());
    let at_switch =
        |cluster: &Cluster| Ok(cluster.switch_status()?["nodes"][1]["listeners"][0]["state"].clone());
    cluster.run(cluster.lab.switch(0), &["drain", "node1"])?.success()?;
    wait_until("the node", PATIENCE, || at_node(&cluster), |draining| *draining == true)?;
    cluster.stop_node(1)?;
    cluster.start_node(1)?;
    assert_eq!(at_node(&cluster)?, true, "the agent was restarted");
    cluster.stop_switch()?;
    cluster.start_switch()?;
    wait_until("the switch's view", PATIENCE, || at_switch(&cluster), |state| state == "draining")?;

    cluster.run(cluster.lab.switch(0), &["undrain", "node1"])?.success()?;
    wait_until("the node", PATIENCE, || at_node(&cluster), |draining| *draining == false)?;
    wait_until("the switch's view", PATIENCE, || at_switch(&cluster), |state| state == "up")?;
    cluster.stop_node(1)?;
    cluster.start_node(1)?;
    assert_eq!(at_node(&cluster)?, false);
    cluster.down()
}
