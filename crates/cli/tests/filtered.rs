//! A network that drops one node's responses, because their source is not the node's own address: its requests are no
//! successes in the access log, and it gets none while another node is there.

mod common;

use std::fs;

use common::http::Documents;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use serde_json::Value;
use switchback_lab::{ServerKind, Topology};

#[test]
fn a_node_whose_responses_do_not_arrive_is_suspect() -> Result {
    let log = std::env::temp_dir().join(format!("switchback-filtered-{}.log", std::process::id()));
    let plan = Plan {
        topology: Topology::Routed,
        servers: vec![ServerKind::Nginx; 2],
        pools: vec![("web", vec![0, 1])],
        access_log: Some(format!("path = {log:?}\nformat = \"json\"")),
        ..Plan::default()
    };
    let cluster = Cluster::start_with(plan)?;
    let small = Documents::of(&cluster.lab)?.small;
    let router = cluster.lab.router().ok_or("no router")?;
    let address = cluster.lab.node(0).run(["ip", "-brief", "link", "show", "eth0"])?.success()?;
    let address = address.split_whitespace().nth(2).ok_or("no hardware address")?.to_owned();
    let vip = cluster.lab.vip4();
    router.run(["nft", "add table inet cut"])?.success()?;
    let chain = "add chain inet cut forward { type filter hook forward priority 0; }";
    let rule = format!("add rule inet cut forward ether saddr {address} ip saddr {vip} drop");
    router.run(["nft", &format!("{chain}; {rule}")])?.success()?;

    // Each connection is given up after a moment, as by a client without patience.
    let get = || -> Result<bool> {
        let command =
            ["curl", "-s", "-m", "0.3", "-o", "/dev/null", "-w", "%{size_download}", &cluster.url4("/small")];
        let said = cluster.client().run(command)?;
        Ok(said.stdout == small.body.len().to_string())
    };
    let state = || {
        let _ = get()?;
        Ok(cluster.switch_status()?["nodes"][0]["listeners"][0]["state"].take())
    };
    wait_until("the node to be suspect", PATIENCE, state, |state| *state == "unacknowledged")?;
    let served: Vec<bool> = (0..10).map(|_| get()).collect::<Result<_>>()?;
    assert_eq!(served, [true; 10], "the other node is there");
    let words = cluster.agent(0).log();
    assert!(words.contains("nobody acknowledges responses"), "{words}");

    let read = || -> Result<Vec<Value>> {
        let text = fs::read_to_string(&log)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    let of = |lines: &[Value], node: &str| {
        let ends = lines.iter().filter(|line| line["node"] == node);
        ends.map(|line| line["end"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let complete = |lines: &Vec<Value>| of(lines, "node1").len() >= 10;
    let lines = wait_until("the log", PATIENCE, read, complete)?;
    assert!(of(&lines, "node1").iter().all(|end| end == "complete"), "{lines:#?}");
    assert!(of(&lines, "node0").iter().all(|end| end != "complete"), "{lines:#?}");

    router.run(["nft", "delete table inet cut"])?.success()?;
    let healed = || {
        assert!(get()?, "a request after the filter is gone");
        Ok(cluster.switch_status()?["nodes"][0]["listeners"][0]["state"].take())
    };
    wait_until("the node to serve again", PATIENCE, healed, |state| *state == "up")?;
    // What is sent again now finds nobody.
    let lost = || Ok(of(&read()?, "node0"));
    wait_until("lines of lost responses", PATIENCE, lost, |ends| ends.iter().any(|end| end == "client"))?;
    fs::remove_file(&log)?;
    cluster.down()
}
