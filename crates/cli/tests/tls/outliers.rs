//! Nodes whose servers fail requests over TLS: with a status, or not at all.

use std::fs;

use crate::common::{Cluster, PATIENCE, Plan, Result, wait_until};
use crate::{Connection, curl, plan, url};

fn cluster() -> Result<Cluster> {
    Cluster::start_with(Plan {
        pool_lines: "outliers = { failures = 3, time = \"20s\" }\n".to_owned(),
        // An ejected node gets requests while all others are suspect, as they may be on a busy machine.
        limits: "[reports]\nsuspect_after = 100\ndead_after = 200",
        server_extra: "if (-f $document_root/broken) { return 500; }",
        ..plan(3, "")
    })
}

/// Status and node of each of these requests, all on one connection.
fn get(cluster: &Cluster, http: &str, requests: usize) -> Result<Vec<String>> {
    let small = url("/small");
    let mut words = vec![http, "-w", "%{response_code} %header{x-node}\\n"];
    (0..requests).for_each(|_| words.extend(["-o", "/dev/null", &small]));
    Ok(curl(cluster, &words)?.lines().map(str::to_owned).collect())
}

/// A connection to the first node.
fn connect(cluster: &Cluster) -> Result<Connection> {
    let one = || -> Result<(Connection, bool)> {
        let mut connection = Connection::open(cluster)?;
        let is_first = connection.ask("get /small")?.starts_with("200 node0 ");
        Ok((connection, is_first))
    };
    loop {
        if let (connection, true) = one()? {
            return Ok(connection);
        }
    }
}

fn wait_for_ejection(cluster: &Cluster) -> Result {
    let listeners = || Ok(cluster.switch_status()?["nodes"][0]["listeners"].to_string());
    // Two VIPs without TLS, whose responses are of other requests, and two with it.
    let are = |listeners: &String| listeners.matches("\"ejected\"").count() == 2;
    wait_until("an ejection", PATIENCE, listeners, are)?;
    Ok(())
}

#[test]
fn a_node_whose_server_answers_with_failures_is_ejected() -> Result {
    for http in ["--http1.1", "--http2"] {
        let cluster = cluster()?;
        let mut kept = connect(&cluster)?;
        let broken = cluster.lab.directory().join("roots/node0/broken");
        fs::write(&broken, "")?;
        let failed = || get(&cluster, http, 3);
        wait_until("failures", PATIENCE, failed, |said| said.contains(&"500 node0".to_owned()))?;
        wait_for_ejection(&cluster)?;
        for _ in 0..4 {
            let said = get(&cluster, http, 3)?;
            assert!(said.iter().all(|one| one == "200 node1" || one == "200 node2"), "{said:?}");
        }
        // It leaves when the other nodes have said that they do not fail, which they do five times a second.
        let has_left = |answer: &String| answer.starts_with("200 node1 ") || answer.starts_with("200 node2 ");
        wait_until("another node", PATIENCE, || kept.ask("get /small"), has_left)?;
        cluster.down()?;
    }
    Ok(())
}

#[test]
fn a_node_whose_server_has_gone_is_ejected() -> Result {
    let cluster = cluster()?;
    cluster.stop_server(0)?;
    // Other nodes answer from the first failure on, and before the switch hears of it.
    for http in ["--http1.1", "--http2"] {
        for _ in 0..6 {
            let said = get(&cluster, http, 3)?;
            assert!(said.iter().all(|one| one == "200 node1" || one == "200 node2"), "{http}: {said:?}");
        }
    }
    wait_for_ejection(&cluster)?;
    assert!(crate::tls_status(&cluster, 0)?["forwarded"].as_u64() >= Some(3));
    cluster.down()
}
