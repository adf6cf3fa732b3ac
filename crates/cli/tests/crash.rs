//! A server dies in the middle of a load. Requests whose responses had not begun are answered by another one.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::http::Documents;
use common::steady::Steady;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::ServerKind;

/// Requests that a node has before its server is killed.
const BEFORE: u64 = 500;

fn servers_are_killed_under(load: Steady) -> Result {
    let cluster = Cluster::start_with(Plan {
        servers: vec![ServerKind::Nginx; 2],
        pools: vec![("web", vec![0, 1])],
        server_extra: "keepalive_requests 1000000;",
        ..Plan::default()
    })?;
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let body = Documents::of(&cluster.lab)?.small;
    let ((), served) = load.run_beside(cluster.client(), vip, (body.path, &body.body), || {
        for node in [0, 1] {
            let of_node = |wanted: &dyn Fn(&serde_json::Value) -> bool| {
                let state = || Ok(cluster.switch_status()?["nodes"][node].clone());
                wait_until("the switch's view of the node", PATIENCE, state, wanted)
            };
            let before = of_node(&|_| true)?["requests"].as_u64().unwrap_or_default();
            of_node(&|seen| seen["requests"].as_u64() > Some(before + BEFORE))?;
            cluster.kill_server(node)?;
            of_node(&|seen| seen["listeners"][0]["state"] == "no listener")?;
            cluster.start_server(node)?;
            of_node(&|seen| seen["listeners"][0]["state"] == "up")?;
        }
        Ok(())
    })?;
    println!(
        "{} requests, the slowest {:?}, {} cut off, {} idle connections closed",
        served.requests,
        served.slowest,
        served.cut_off.len(),
        served.closed_idle
    );
    served.assert_all_begun();
    assert!(served.requests as u64 > 2 * BEFORE, "{}", served.requests);
    cluster.down()
}

#[test]
fn under_new_connections() -> Result {
    servers_are_killed_under(Steady { clients: 30, pause: Duration::from_millis(1), close: true })
}

#[test]
fn under_kept_connections() -> Result {
    servers_are_killed_under(Steady { clients: 100, pause: Duration::from_millis(5), close: false })
}
