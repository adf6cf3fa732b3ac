//! Nodes whose servers fail requests, while all else about them is well.

mod common;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::responses::{Connection, Response};
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::ServerKind;

const TIMEOUT: Duration = Duration::from_secs(5);
/// The time of an ejection.
const TIME: Duration = Duration::from_secs(4);
/// Failures in a row that eject a node.
const FAILURES: usize = 3;

fn plan() -> Plan {
    Plan {
        servers: vec![ServerKind::Nginx; 3],
        pools: vec![("web", vec![0, 1, 2])],
        pool_lines: format!(
            "outliers = {{ failures = {FAILURES}, time = \"{}s\", max_time = \"1m\" }}\n",
            TIME.as_secs()
        ),
        // An ejected node gets requests while all others are suspect, as they may be on a busy machine.
        limits: "[reports]\nsuspect_after = 100\ndead_after = 200",
        server_extra: "if (-f $document_root/broken) { return 500; }",
        ..Plan::default()
    }
}

/// The file that has a node's server fail all requests.
fn broken(cluster: &Cluster, node: usize) -> PathBuf {
    cluster.lab.directory().join(format!("roots/node{node}/broken"))
}

fn connect(cluster: &Cluster) -> Result<Connection> {
    Connection::open(cluster, cluster.client(), TIMEOUT)
}

impl Connection {
    /// A connection to this node.
    fn open_to(cluster: &Cluster, node: &str) -> Result<Connection> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut client = connect(cluster)?;
            if client.get()?.1 == node {
                return Ok(client);
            }
        }
        Err(format!("{node} gets no connection").into())
    }

    /// Status and node.
    fn get(&mut self) -> Result<(u16, String)> {
        self.stream.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")?;
        let response: Response = self.responses.next(false)?.ok_or("no response")?;
        let node = response.field("x-node").ok_or("a response of no node")?.to_owned();
        Ok((response.status, node))
    }
}

/// Status and node of a request on a connection of its own.
fn get(cluster: &Cluster) -> Result<(u16, String)> {
    connect(cluster)?.get()
}

/// The states of the pool's nodes at the IPv4 VIP, and how often each has been ejected.
fn seen(cluster: &Cluster) -> Result<Vec<(String, u64)>> {
    let status = cluster.switch_status()?;
    let nodes = status["nodes"].as_array().ok_or("no nodes")?;
    let of = |node: &serde_json::Value| {
        let listener = &node["listeners"][0];
        let state = listener["state"].as_str().unwrap_or_default().to_owned();
        (state, listener["ejections"].as_u64().unwrap_or_default())
    };
    Ok(nodes.iter().map(of).collect())
}

fn states(cluster: &Cluster) -> Result<Vec<String>> {
    Ok(seen(cluster)?.into_iter().map(|(state, _)| state).collect())
}

#[test]
fn a_node_that_fails_requests_is_ejected_and_comes_back() -> Result {
    let cluster = Cluster::start_with(plan())?;
    let mut kept = Connection::open_to(&cluster, "node0")?;
    fs::write(broken(&cluster, 0), "")?;
    let mut failed = 0;
    while failed < FAILURES {
        let (status, node) = get(&cluster)?;
        assert_eq!(status, if node == "node0" { 500 } else { 200 });
        failed += usize::from(status == 500);
    }
    let begun = Instant::now();
    wait_until("an ejection", PATIENCE, || states(&cluster), |states| *states == ["ejected", "up", "up"])?;
    let mut asked = 0;
    while begun.elapsed() < TIME - Duration::from_secs(1) && asked < 50 {
        assert_eq!(get(&cluster)?.0, 200, "it is ejected");
        asked += 1;
    }
    let (status, node) = kept.get()?;
    assert!(begun.elapsed() > TIME || (status, &node[..]) != (500, "node0"), "connections leave it");
    let said = cluster.agent(0).log();
    assert!(
        said.contains("fails requests: requests in a row have failed, the last with status 500; for 4s"),
        "{said}"
    );
    cluster.switch().wait_for_log("pool web at node node0: ejected", PATIENCE)?;

    fs::remove_file(broken(&cluster, 0))?;
    Connection::open_to(&cluster, "node0")?;
    assert!(begun.elapsed() >= TIME - Duration::from_millis(500), "after {:?}", begun.elapsed());
    assert_eq!(seen(&cluster)?[0].1, 1, "one ejection");
    cluster.down()
}

#[test]
fn a_pool_whose_nodes_all_fail_loses_one_only() -> Result {
    let cluster = Cluster::start_with(plan())?;
    (0..3).try_for_each(|node| fs::write(broken(&cluster, node), ""))?;
    let said = || -> Result<Vec<String>> {
        let (status, node) = get(&cluster)?;
        assert!(status >= 500, "{node}: {status}");
        states_of_agents(&cluster)
    };
    wait_until("failures everywhere", PATIENCE, said, |said| {
        said.iter().all(|one| one.contains("fails requests"))
    })?;
    let states = states(&cluster)?;
    let count = |state: &str| states.iter().filter(|found| *found == state).count();
    assert_eq!((count("ejected"), count("up")), (1, 2), "{states:?}");

    (0..3).try_for_each(|node| fs::remove_file(broken(&cluster, node)))?;
    let mended = || -> Result<Vec<String>> {
        get(&cluster)?;
        states_of_agents(&cluster)
    };
    let are_ready = |said: &Vec<String>| said.iter().filter(|one| one.contains("ready")).count() >= 2;
    wait_until("successes", PATIENCE, mended, are_ready)?;
    cluster.down()
}

fn states_of_agents(cluster: &Cluster) -> Result<Vec<String>> {
    (0..3).map(|node| Ok(cluster.node_status(node)?["listeners"][0]["state"].to_string())).collect()
}

#[test]
fn a_server_that_has_been_restarted_is_judged_anew() -> Result {
    let plan = Plan { pool_lines: "outliers = { failures = 1, time = \"5m\" }\n".to_owned(), ..plan() };
    let cluster = Cluster::start_with(plan)?;
    fs::write(broken(&cluster, 2), "")?;
    wait_until(
        "an ejection",
        PATIENCE,
        || get(&cluster).and_then(|_| states(&cluster)),
        |states| states[2] == "ejected",
    )?;
    cluster.stop_server(2)?;
    wait_until("its end", PATIENCE, || states(&cluster), |states| states[2] == "no listener")?;
    fs::remove_file(broken(&cluster, 2))?;
    cluster.start_server(2)?;
    Connection::open_to(&cluster, "node2")?;
    cluster.down()
}
