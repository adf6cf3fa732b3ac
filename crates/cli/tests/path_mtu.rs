//! The way to the client may be narrower than the client knows: what a router says about it reaches the node
//! that has the flow.

mod common;

use std::time::Duration;

use common::http::{Documents, alternating, fetch};
use common::{Cluster, Plan, Result};
use switchback_lab::Topology;

const PATH_MTU: u32 = 1280;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Each node learns it for itself; an IPv6 address does not tell an IPv4 one.
#[test]
fn behind_a_narrow_path() -> Result {
    let cluster = Cluster::start_with(Plan { topology: Topology::Routed, ..Plan::default() })?;
    let documents = Documents::of(&cluster.lab)?;
    cluster.lab.set_path_mtu(PATH_MTU)?;
    let told = [
        cluster.lab.switch(0).count("icmp type destination-unreachable icmp code frag-needed")?,
        cluster.lab.switch(0).count("icmpv6 type packet-too-big")?,
    ];
    for (v6, told) in [false, true].into_iter().zip(told) {
        let gets =
            alternating(&documents, 24, |path| if v6 { cluster.url6(path) } else { cluster.url4(path) });
        let responses = fetch(cluster.client(), &gets, &[], TIMEOUT)?;
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
        // At least once for each node.
        assert!(told.to_host()?.packets >= 2, "IPv6 {v6}: {:?}", told.to_host()?);
    }
    cluster.down()
}
