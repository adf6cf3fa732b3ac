//! Requests whose head does not fit into one packet.

mod common;

use std::time::Duration;

use common::http::{Documents, alternating, fetch};
use common::{Cluster, Plan, Result};
use switchback_lab::ServerKind;

/// Alternates between the pools on one connection, then makes a connection for each request.
fn served(servers: [ServerKind; 2], head: usize) -> Result {
    let cluster = Cluster::start_with(Plan { servers: servers.to_vec(), ..Plan::default() })?;
    let documents = Documents::of(&cluster.lab)?;
    let header = format!("Cookie: long={}", "x".repeat(head));
    for (close, v6) in [(false, false), (true, false), (false, true), (true, true)] {
        let gets =
            alternating(&documents, 50, |path| if v6 { cluster.url6(path) } else { cluster.url4(path) });
        let options =
            if close { vec!["-H", &header, "-H", "Connection: close"] } else { vec!["-H", &header] };
        let mut responses = Vec::new();
        let again = cluster.sent_again(|| {
            responses = fetch(cluster.client(), &gets, &options, Duration::from_secs(60))?;
            Ok(())
        })?;
        for (index, response) in responses.iter().enumerate() {
            assert_eq!(response.node, format!("node{}", index % 2), "request {index}");
        }
        let connections = responses.iter().map(|response| response.connects).sum::<u64>();
        assert_eq!(connections, if close { gets.len() as u64 } else { 1 });
        let again = again.iter().sum::<u64>();
        println!("close {close}, IPv6 {v6}: {again} packets sent again");
        // A request that waits for a second copy of a packet would be one in two.
        assert!(again < gets.len() as u64 / 10, "close {close}, IPv6 {v6}: {again} packets sent again");
    }
    cluster.down()
}

#[test]
fn a_head_of_two_packets() -> Result {
    served([ServerKind::Nginx, ServerKind::Apache], 2000)
}

#[test]
fn a_head_of_five_packets() -> Result {
    served([ServerKind::Nginx, ServerKind::Nginx], 6000)
}
