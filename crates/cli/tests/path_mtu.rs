//! The way to the client may be narrower than the client knows: what a router says about it reaches the node
//! that has the flow.

mod common;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use common::http::{Document, Documents, alternating, fetch};
use common::{Cluster, PATIENCE, PROGRAM, Plan, Result, alone, start_daemon, status, wait_until};
use switchback_lab::{Lab, Routing, ServerKind, ServerOptions, Topology};

const PATH_MTU: u32 = 1280;
const TIMEOUT: Duration = Duration::from_secs(20);

/// A router's message reaches one of two switches, whichever has the flow.
#[test]
fn behind_a_narrow_path_and_two_switches() -> Result {
    const DOWNLOADS: usize = 12;
    let _alone = alone();
    let lab = Lab::builder().topology(Topology::Routed).routing(Routing::Bird);
    let lab = lab.switches(2).nodes(2).up()?;
    let plan = Plan { servers: vec![ServerKind::Nginx; 2], ..Default::default() };
    let config = lab.write_config_text(&(plan.config(&lab) + "\n{switches}"))?;
    for node in lab.nodes() {
        node.nginx(&ServerOptions::default())?;
        start_daemon(node, "node", &config)?;
    }
    for switch in lab.switches() {
        start_daemon(switch, "switch", &config)?;
        switch.announce_when_ready(Path::new(PROGRAM))?;
    }
    let vips: [IpAddr; 2] = [lab.vip4().into(), lab.vip6().into()];
    let routed = || Ok([lab.routed_switches(vips[0])?, lab.routed_switches(vips[1])?]);
    wait_until("the routes", PATIENCE, routed, |routes| routes.iter().all(|there| there == &[0, 1]))?;
    lab.set_path_mtu(PATH_MTU)?;
    let document = Document::of(&lab, "/1m")?;
    for base in [format!("http://{}", lab.vip4()), format!("http://[{}]", lab.vip6())] {
        for _ in 0..DOWNLOADS {
            // Each connection is to learn it for itself.
            for (node, family) in lab.nodes().flat_map(|node| [(node, "-4"), (node, "-6")]) {
                node.run(["ip", family, "route", "flush", "cache"])?.success()?;
            }
            let get = [(format!("{base}/1m"), document.clone())];
            fetch(lab.client(0), &get, &[], TIMEOUT)?;
        }
    }
    let recovered = lab.switches().map(|host| {
        let status = status(host)?;
        status["dispatch"]["recovered"].as_u64().ok_or_else(|| "no count".into())
    });
    let recovered: u64 = recovered.collect::<Result<Vec<u64>>>()?.into_iter().sum();
    assert!(recovered > 0, "no message came to the other switch");
    lab.down()?;
    Ok(())
}

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
