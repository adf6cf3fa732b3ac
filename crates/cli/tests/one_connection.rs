//! One TCP connection of an unmodified client goes back and forth between two pools, request by request, and
//! the client notices nothing: the bytes are right, the connection stays, and no request waits.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::http::{Documents, alternating, fetch};
use common::{Cluster, Plan, Result};
use switchback_lab::ServerKind;

const REQUESTS: usize = 1000;
/// Packets that a busy machine is so late with that the client sends them again. Where a request waits for that, all do.
const LATE: u64 = REQUESTS as u64 / 100;

fn alternate(servers: [ServerKind; 2], v6: bool) -> Result {
    let cluster = Cluster::start_with(Plan { servers: servers.to_vec(), ..Plan::default() })?;
    let documents = Documents::of(&cluster.lab)?;
    let gets =
        alternating(&documents, REQUESTS, |path| if v6 { cluster.url6(path) } else { cluster.url4(path) });
    let mut responses = Vec::new();
    let again = cluster.sent_again(|| {
        responses = fetch(cluster.client(), &gets, &[], Duration::from_secs(60))?;
        Ok(())
    })?;
    assert_eq!(responses.len(), REQUESTS);
    for (index, response) in responses.iter().enumerate() {
        assert_eq!(response.node, format!("node{}", index % 2), "request {index}");
    }
    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    let status = cluster.switch_status()?;
    let again = again.iter().sum::<u64>();
    println!("{again} packets sent again");
    if again > LATE {
        let nodes = [cluster.node_status(0)?, cluster.node_status(1)?].map(|node| node["counters"].clone());
        panic!("{again} packets were sent again\nswitch {status:#}\nnodes {nodes:#?}");
    }

    // All but the first request moved the flow.
    let released: u64 = (0..2).filter_map(|node| status["nodes"][node]["released"].as_u64()).sum();
    assert_eq!(released, REQUESTS as u64 - 1, "{status:#}");
    assert_eq!(status["dispatch"]["answered"], serde_json::json!({}), "{status:#}");
    cluster.down()
}

#[test]
fn nginx_and_nginx_over_ipv4() -> Result {
    alternate([ServerKind::Nginx, ServerKind::Nginx], false)
}

#[test]
fn nginx_and_nginx_over_ipv6() -> Result {
    alternate([ServerKind::Nginx, ServerKind::Nginx], true)
}

#[test]
fn nginx_and_apache_over_ipv4() -> Result {
    alternate([ServerKind::Nginx, ServerKind::Apache], false)
}

#[test]
fn apache_and_nginx_over_ipv6() -> Result {
    alternate([ServerKind::Apache, ServerKind::Nginx], true)
}

#[test]
fn nginx_and_caddy_over_ipv4() -> Result {
    alternate([ServerKind::Nginx, ServerKind::Caddy], false)
}

/// Where every packet may wait for a processor, answers are late, much is sent again, and copies arrive
/// together. That may take time, but no request goes astray.
#[test]
fn nothing_goes_astray_on_a_busy_machine() -> Result {
    let servers = vec![ServerKind::Nginx, ServerKind::Caddy];
    let cluster = Cluster::start_with(Plan { servers, ..Plan::default() })?;
    let documents = Documents::of(&cluster.lab)?;
    let gets = alternating(&documents, 400, |path| cluster.url4(path));
    let ended = AtomicBool::new(false);
    let responses = thread::scope(|scope| {
        let busy = thread::available_parallelism().map_or(2, usize::from);
        for _ in 0..busy {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let responses = fetch(cluster.client(), &gets, &[], Duration::from_secs(60));
        ended.store(true, Ordering::Relaxed);
        responses
    })?;
    for (index, response) in responses.iter().enumerate() {
        assert_eq!(response.node, format!("node{}", index % 2), "request {index}");
    }
    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    println!("sent again: {}", cluster.switch_status()?["dispatch"]["resent"]);
    cluster.down()
}
