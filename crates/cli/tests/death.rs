//! A machine dies, and what it has not begun to answer another one answers.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::http::Documents;
use common::steady::{Served, Steady};
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::ServerKind;

/// All packets.
const ALL: u32 = 1000;
/// Requests that the node has before.
const BEFORE: u64 = 300;
const LOAD: Steady = Steady { clients: 100, pause: Duration::from_millis(50), close: false };

fn start() -> Result<Cluster> {
    Cluster::start_with(Plan {
        servers: vec![ServerKind::Nginx; 3],
        pools: vec![("web", vec![0, 1, 2])],
        server_extra: "keepalive_requests 1000000;",
        ..Plan::default()
    })
}

fn beside<T>(cluster: &Cluster, work: impl FnOnce() -> Result<T>) -> Result<(T, Served)> {
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let body = Documents::of(&cluster.lab)?.small;
    LOAD.run_beside(cluster.client(), vip, (body.path, &body.body), work)
}

/// What the switch says of a node.
fn of_node(cluster: &Cluster, node: usize, key: &str) -> Result<u64> {
    let status = cluster.switch_status()?;
    status["nodes"][node][key].as_u64().ok_or_else(|| format!("no {key} of node {node} in {status}").into())
}

#[test]
fn its_connections_go_on_elsewhere_and_its_requests_are_answered() -> Result {
    let cluster = start()?;
    let ((), served) = beside(&cluster, || {
        let requests = || of_node(&cluster, 0, "requests");
        wait_until("the load has begun", PATIENCE, requests, |requests| *requests > BEFORE)?;
        cluster.lab.node(0).set_loss(ALL, ALL)?;
        let start = Instant::now();
        let adopted = || Ok(of_node(&cluster, 1, "adopted")? + of_node(&cluster, 2, "adopted")?);
        let all = LOAD.clients as u64;
        wait_until("the other nodes have all flows", PATIENCE, adopted, |adopted| *adopted == all)?;
        println!("they have them after {:?}", start.elapsed());
        let before = of_node(&cluster, 0, "requests")?;
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(of_node(&cluster, 0, "requests")?, before, "nothing goes to a dead node");
        cluster.lab.node(0).set_loss(0, 0)?;
        let silent = || Ok(cluster.switch_status()?["nodes"][0]["silent"] == true);
        wait_until("the node speaks again", PATIENCE, silent, |silent| !silent)?;
        // What it still has of the flows that have left it does no harm.
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    })?;
    println!("{} requests, the slowest {:?}", served.requests, served.slowest);
    served.assert_all_answered();
    assert_eq!(served.closed_idle, 0, "idle connections were closed");
    cluster.down()
}
