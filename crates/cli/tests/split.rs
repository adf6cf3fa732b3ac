//! Machines that are switch and node at once: what they hand to themselves, and to each other.

mod common;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::http::{Document, fetch, get, wrk};
use common::responses::Responses;
use common::{PATIENCE, PROGRAM, Result, alone, openmetrics, wait_until};
use serde_json::Value;
use switchback_lab::{Host, Lab, Process, ServerKind, ServerOptions, Signal};

/// A cluster without a switch of its own: nodes with nginx, of which the first ones are switches, too.
struct Split {
    lab: Lab,
    config: PathBuf,
    running: Vec<Process>,
    _alone: std::sync::MutexGuard<'static, ()>,
}

/// What to make of a lab whose nodes are all in the pool `web`.
struct Wanted {
    nodes: usize,
    /// Which of them are switches, and what each serves if not everything.
    switches: Vec<(usize, Option<&'static str>)>,
    /// More lines of the pool.
    pool: &'static str,
    /// Nodes that nobody is to see.
    hidden: Vec<usize>,
    /// Another service besides `shop`, at 192.0.2.101.
    second_service: bool,
}

impl Default for Wanted {
    /// Two nodes, of which the first is a switch.
    fn default() -> Self {
        Wanted { nodes: 2, switches: vec![(0, None)], pool: "", hidden: Vec::new(), second_service: false }
    }
}

impl Wanted {
    fn config(&self, lab: &Lab) -> String {
        let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n[admin]\n\n".to_owned();
        for (index, node) in lab.nodes().enumerate() {
            let (name, address) = (node.name(), node.ipv4());
            text += &format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\n");
            text += if self.hidden.contains(&index) { "hidden = true\n\n" } else { "\n" };
        }
        for (index, service) in &self.switches {
            text += &format!("[[switch]]\nname = \"node{index}\"\n");
            text += &service.map(|name| format!("services = [\"{name}\"]\n")).unwrap_or_default();
        }
        let pool = self.pool;
        text += &format!(
            "\n[[pool]]\nname = \"web\"\nnodes = [{{node_names}}]\npolicy = \"round-robin\"\n{pool}\n"
        );
        let service = |name: &str, listen: &str| {
            format!(
                "\n[[service]]\nname = \"{name}\"\nlisten = [{listen}]\n\n[[service.route]]\npool = \"web\"\n"
            )
        };
        text += &service("shop", "\"{vip4}:80\", \"[{vip6}]:80\"");
        if self.second_service {
            text += &service("shop2", &format!("\"{SECOND_VIP}:80\""));
        }
        text
    }
}

const SECOND_VIP: &str = "192.0.2.101";

impl Split {
    fn start(wanted: &Wanted) -> Result<Split> {
        let alone = alone();
        let lab = Lab::builder().switches(0).nodes(wanted.nodes).up()?;
        for node in lab.nodes() {
            node.server(ServerKind::Nginx, &ServerOptions::default())?;
        }
        let config = lab.write_config_text(&wanted.config(&lab))?;
        let mut split = Split { lab, config, running: Vec::new(), _alone: alone };
        for index in 0..wanted.nodes {
            let is_switch = wanted.switches.iter().any(|(switch, _)| *switch == index);
            let process = split.run(index, is_switch)?;
            split.running.push(process);
        }
        // Nobody is chosen for what it is to be known for.
        wait_until("reports of all nodes", PATIENCE, || split.silent(), |silent| *silent == 0)?;
        Ok(split)
    }

    /// Nodes of which a switch has heard nothing, over all switches.
    fn silent(&self) -> Result<usize> {
        let mut silent = 0;
        for index in 0..self.running.len() {
            for status in self.status(index)?.iter().filter(|status| status["role"] == "switch") {
                let nodes = status["nodes"].as_array().ok_or("no nodes")?;
                silent += nodes.iter().filter(|node| node["load"].is_null()).count();
            }
        }
        Ok(silent)
    }

    /// `switchback run` on a node, ready.
    fn run(&self, node: usize, is_switch: bool) -> Result<Process> {
        let host = self.lab.node(node);
        host.set_xdp_port(true)?;
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--name", host.name(), "--config"]).arg(&self.config);
        let process = host.spawn("run", command)?;
        process.wait_for_log(if is_switch { "switch ready" } else { "ready" }, PATIENCE)?;
        Ok(process)
    }

    /// What both roles of a node say of themselves.
    fn status(&self, node: usize) -> Result<Vec<Value>> {
        let shown = self.lab.node(node).run([PROGRAM, "status", "--json"])?.success()?;
        Ok(shown.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
    }

    fn role(&self, node: usize, role: &str) -> Result<Value> {
        let all = self.status(node)?;
        Ok(all.into_iter().find(|value| value["role"] == role).ok_or_else(|| format!("no {role}"))?)
    }

    /// How many requests a node's switch has given to each node.
    fn given(&self, node: usize) -> Result<Vec<u64>> {
        let nodes = self.role(node, "switch")?["nodes"].clone();
        let nodes = nodes.as_array().ok_or("no nodes")?;
        Ok(nodes.iter().filter_map(|node| node["requests"].as_u64()).collect())
    }

    fn client(&self) -> &Host {
        self.lab.client(0)
    }

    /// So many requests, each on a connection of its own, at this address; who answered, by node.
    fn ask(&self, vip: &str, path: &'static str, count: usize) -> Result<Vec<usize>> {
        let document = Document::of(&self.lab, path)?;
        let mut answered = vec![0; self.running.len()];
        for _ in 0..count {
            let node = get(self.client(), &format!("http://{vip}{path}"), &document)?.node;
            answered[node.trim_start_matches("node").parse::<usize>()?] += 1;
        }
        Ok(answered)
    }

    fn vip(&self) -> String {
        self.lab.vip4().to_string()
    }

    fn down(self) -> Result {
        for process in &self.running {
            process.signal(Signal::SIGTERM)?;
        }
        for process in &self.running {
            let ended = process.wait_timeout(PATIENCE)?;
            assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {}", process.log());
        }
        for host in self.lab.nodes() {
            let traces = common::traces::of(host)?;
            assert!(traces.is_empty(), "left on {}: {traces:#?}", host.name());
        }
        Ok(self.lab.down()?)
    }
}

#[test]
fn a_machine_serves_what_it_takes_in() -> Result {
    let split = Split::start(&Wanted { nodes: 1, ..Wanted::default() })?;
    let (small, large) = (Document::of(&split.lab, "/small")?, Document::of(&split.lab, "/1m")?);
    for vip in [split.vip(), format!("[{}]", split.lab.vip6())] {
        let gets: Vec<_> = (0..20)
            .map(|index| if index % 4 == 3 { &large } else { &small })
            .map(|document| (format!("http://{vip}{}", document.path), document.clone()))
            .collect();
        let responses = fetch(split.client(), &gets, &[], PATIENCE)?;
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1, "one connection");
    }
    // Nothing that is between switch and node leaves the machine.
    let handoffs = split.lab.node(0).count("udp dport 6081")?;
    let load = wrk(split.client(), &format!("http://{}/small", split.vip()), 16, &[])?;
    assert!(load.requests > 1000, "{}", load.report);
    assert_eq!(handoffs.from_host()?.packets, 0);
    let node = split.role(0, "node")?;
    for counter in ["drop_ring_full", "drop_malformed", "drop_tag", "lost_track"] {
        assert_eq!(node["counters"][counter], 0, "{node:#}");
    }
    split.down()
}

#[test]
fn a_killed_machine_goes_on_where_it_was() -> Result {
    let mut split = Split::start(&Wanted { nodes: 1, ..Wanted::default() })?;
    split.ask(&split.vip(), "/small", 2)?;
    split.running[0].kill()?;
    split.running[0] = split.run(0, true)?;
    assert_eq!(split.ask(&split.vip(), "/1m", 3)?, [3]);
    split.down()
}

/// The signal is for both roles, and the node needs the switch until its connections are gone.
#[test]
fn a_machine_that_is_told_to_end_finishes_its_responses() -> Result {
    let split = Split::start(&Wanted { pool: "delegate = \"none\"\n", ..Wanted::default() })?;
    let vip = SocketAddr::new(split.lab.vip4().into(), 80);
    let mut stream = split.client().tcp_connect(vip, PATIENCE)?;
    let mut responses = Responses::new(&stream, PATIENCE)?;
    let large = Document::of(&split.lab, "/1m")?;
    // The response takes some two seconds, longer than a switch takes to end.
    split.client().set_rate(Some(4_000_000))?;
    stream.write_all(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", large.path).as_bytes())?;
    let flows = || Ok(split.role(0, "node")?["in_flight"].clone());
    wait_until("a response", PATIENCE, flows, |flows| *flows == 1)?;
    split.running[0].signal(Signal::SIGTERM)?;
    split.running[0].wait_for_log("told to end: node node0 drains", PATIENCE)?;
    let response = responses.next(false)?.ok_or("the connection has ended")?;
    assert_eq!((response.status, &response.body), (200, &*large.body));
    let ended = split.running[0].wait_timeout(PATIENCE)?.ok_or("it goes on")?;
    assert!(ended.success(), "{}", split.running[0].log());
    split.down()
}

#[test]
fn delegation_says_who_answers() -> Result {
    let all = Split::start(&Wanted { nodes: 3, pool: "delegate = \"all\"\n", ..Wanted::default() })?;
    assert_eq!(all.ask(&all.vip(), "/small", 20)?, [0, 10, 10]);
    assert_eq!(all.given(0)?, [0, 10, 10]);
    all.down()?;
    let none = Split::start(&Wanted { nodes: 3, pool: "delegate = \"none\"\n", ..Wanted::default() })?;
    assert_eq!(none.ask(&none.vip(), "/small", 10)?, [10, 0, 0]);
    none.down()?;
    let share = Split::start(&Wanted { nodes: 3, pool: "delegate = \"50%\"\n", ..Wanted::default() })?;
    let answered = share.ask(&share.vip(), "/small", 60)?;
    // Off by chance once in 100,000 runs.
    assert!((13..=47).contains(&answered[0]) && answered[1] > 0 && answered[2] > 0, "{answered:?}");
    share.down()
}

#[test]
fn when_nobody_else_can_the_machine_answers_itself() -> Result {
    let mut split = Split::start(&Wanted { pool: "delegate = \"all\"\n", ..Wanted::default() })?;
    assert_eq!(split.ask(&split.vip(), "/small", 2)?, [0, 2]);
    let other = split.running.pop().expect("two nodes");
    assert!(other.stop()?.success());
    split.running.push(other);
    let alone = || split.ask(&split.vip(), "/small", 1);
    wait_until("the machine itself", PATIENCE, alone, |answered| *answered == [1, 0])?;
    split.running.pop();
    split.down()
}

#[test]
fn long_responses_are_left_to_others() -> Result {
    let pool = "delegate = { above = \"32KiB\" }\n";
    let split = Split::start(&Wanted { nodes: 3, pool, ..Wanted::default() })?;
    // What is not known yet may be long.
    assert_eq!(split.ask(&split.vip(), "/small", 1)?[0], 0);
    let known = || split.ask(&split.vip(), "/small", 1);
    wait_until("the length of /small", PATIENCE, known, |answered| answered[0] == 1)?;
    assert_eq!(split.ask(&split.vip(), "/small", 10)?, [10, 0, 0]);
    assert_eq!(split.ask(&split.vip(), "/1m", 10)?, [0, 5, 5]);
    // Request by request, also on one connection.
    let (small, large) = (Document::of(&split.lab, "/small")?, Document::of(&split.lab, "/1m")?);
    let gets: Vec<_> = (0..20)
        .map(|index| if index % 2 == 1 { &large } else { &small })
        .map(|document| (format!("http://{}{}", split.vip(), document.path), document.clone()))
        .collect();
    let responses = fetch(split.client(), &gets, &[], Duration::from_secs(20))?;
    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1, "one connection");
    for (index, response) in responses.iter().enumerate() {
        assert_eq!(response.node == "node0", index % 2 == 0, "request {index}: {response:?}");
    }
    split.down()
}

/// The paper's configuration without a dispatcher: each machine is the switch of some clients and a node for the others.
#[test]
fn machines_serve_each_others_clients() -> Result {
    let switches = vec![(0, Some("shop")), (1, Some("shop2"))];
    let split = Split::start(&Wanted { switches, second_service: true, ..Wanted::default() })?;
    assert_eq!(split.ask(&split.vip(), "/small", 10)?, [5, 5]);
    assert_eq!(split.ask(SECOND_VIP, "/1m", 10)?, [5, 5]);
    assert_eq!((split.given(0)?, split.given(1)?), (vec![5, 5], vec![5, 5]));
    for vip in [&split.vip()[..], SECOND_VIP] {
        let load = wrk(split.client(), &format!("http://{vip}/small"), 16, &[])?;
        assert!(load.requests > 500, "{}", load.report);
    }
    split.down()
}

#[test]
fn two_switches_and_a_node_that_nobody_sees() -> Result {
    let switches = vec![(0, Some("shop")), (1, Some("shop2"))];
    let pool = "delegate = \"all\"\n";
    let wanted = Wanted { nodes: 3, switches, pool, hidden: vec![2], second_service: true };
    let split = Split::start(&wanted)?;
    // Each of the two leaves its own requests to the other one and to the third.
    assert_eq!(split.ask(&split.vip(), "/1m", 10)?, [0, 5, 5]);
    assert_eq!(split.ask(SECOND_VIP, "/1m", 10)?, [5, 0, 5]);
    let (client, hidden) = (split.client(), split.lab.node(2).ipv4());
    let answers = client.count(&format!("ip saddr {hidden}"))?;
    assert!(client.run(["ping", "-c", "1", "-W", "1", &hidden.to_string()])?.success().is_err());
    for port in (1..100).chain([6081]) {
        assert!(client.tcp_connect((hidden, port).into(), Duration::from_millis(5)).is_err(), "port {port}");
        client.udp_bind((client.ipv4(), 0).into())?.send_to(b"?", (hidden, port))?;
    }
    assert_eq!(answers.to_host()?.packets, 0, "something shows");
    let dropped = split.role(2, "node")?["counters"]["hidden"].as_u64();
    assert!(dropped >= Some(199), "{dropped:?}");
    split.down()
}

#[test]
fn one_command_reaches_both_roles() -> Result {
    let split = Split::start(&Wanted { pool: "delegate = \"none\"\n", ..Wanted::default() })?;
    assert_eq!(split.ask(&split.vip(), "/small", 4)?, [4, 0]);
    let changed = Wanted { pool: "delegate = \"all\"\n", ..Wanted::default() };
    split.lab.write_config_text(&changed.config(&split.lab))?;
    let host = split.lab.node(0);
    let said = host.run([PROGRAM, "reload"])?.success()?;
    assert_eq!(said.matches("pool web: delegate none -> all").count(), 2, "{said}");
    assert_eq!(split.ask(&split.vip(), "/small", 4)?, [0, 4]);
    // The only other node drains, so the machine answers again; and it may drain itself.
    host.run([PROGRAM, "drain", "node1"])?.success()?;
    assert_eq!(split.ask(&split.vip(), "/small", 4)?, [4, 0]);
    host.run([PROGRAM, "undrain", "node1"])?.success()?;
    host.run([PROGRAM, "drain", "node0"])?.success()?;
    assert_eq!(split.role(0, "node")?["draining"], true);
    assert_eq!(split.ask(&split.vip(), "/small", 4)?, [0, 4]);
    let shown = host.run([PROGRAM, "status"])?.success()?;
    assert!(shown.contains("this machine") && shown.contains("SHARE"), "{shown}");
    split.down()
}

/// One process, one address, the metrics of both roles; a machine that is a node only has its own.
#[test]
fn both_roles_tell_how_they_are_doing() -> Result {
    let split = Split::start(&Wanted::default())?;
    split.ask(&split.vip(), "/small", 1)?;
    let scrape = |node: usize| -> Result<openmetrics::Metrics> {
        let words = ["curl", "-sS", "--fail", "http://127.0.0.1:9180/metrics"];
        Ok(openmetrics::parse(&split.lab.node(node).run(words)?.success()?)?)
    };
    let (both, node) = (scrape(0)?, scrape(1)?);
    assert_eq!(both.sum("switchback_requests_total", &[("service", "shop")]), Some(1.0));
    for (metrics, name) in [(&both, "node0"), (&node, "node1")] {
        assert_eq!(metrics.sum("switchback_node_info", &[("node", name)]), Some(1.0));
        assert!(metrics.sum("process_cpu_seconds_total", &[]) > Some(0.0));
    }
    assert_eq!(node.sum("switchback_requests_total", &[]), None);
    let ready = || Ok(split.lab.node(0).run(["curl", "-sS", "http://127.0.0.1:9180/readyz"])?.success()?);
    wait_until("both to be ready", PATIENCE, ready, |said| said == "ok\n")?;
    split.lab.node(0).run([PROGRAM, "drain", "--no-wait", "node0"])?.success()?;
    assert_eq!(ready()?, "node node0: draining\n");
    // Both hear the signal.
    let moved =
        Wanted::default().config(&split.lab).replacen("[admin]", "[admin]\nlisten = \"127.0.0.1:9181\"", 1);
    split.lab.write_config_text(&moved)?;
    split.running[0].signal(Signal::SIGHUP)?;
    split.running[0].wait_for_log("metrics at http://127.0.0.1:9181/metrics", PATIENCE)?;
    let status = || Ok(split.lab.node(0).run(["curl", "-s", "http://127.0.0.1:9181/healthz"])?.stdout);
    wait_until("both at the new address", PATIENCE, status, |said| said == "ok\n")?;
    assert!(!split.running[0].log().contains("refused"), "{}", split.running[0].log());
    split.down()
}
