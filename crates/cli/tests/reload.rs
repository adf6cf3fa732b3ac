//! A changed file is applied while requests run, all of it or nothing.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use common::http::{Documents, add_long_document, fetch, get, start_fetch};
use common::packets::{Random, seed};
use common::steady::Steady;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::{ServerKind, Signal};

/// How a reload is triggered.
#[derive(Clone, Copy)]
enum Trigger {
    Signal,
    Command,
}

/// Three machines, of which the first two are nodes of one pool.
fn start() -> Result<(Cluster, Plan)> {
    let plan =
        Plan { servers: vec![ServerKind::Nginx; 3], pools: vec![("web", vec![0, 1])], ..Plan::default() };
    Ok((Cluster::start_with(plan.clone())?, plan))
}

fn reload_switch(cluster: &Cluster, trigger: Trigger, expected: &str) -> Result {
    match trigger {
        Trigger::Signal => {
            cluster.switch().signal(Signal::SIGHUP)?;
            cluster.switch().wait_for_log(expected, PATIENCE)?;
        }
        Trigger::Command => {
            let said = cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
            assert!(said.contains(expected), "{said}");
        }
    }
    Ok(())
}

/// The nodes that answer `count` requests on connections of their own, in order of name.
fn answering(cluster: &Cluster, count: usize) -> Result<Vec<String>> {
    let small = Documents::of(&cluster.lab)?.small;
    let gets = vec![(cluster.url4("/small"), small); count];
    let responses = fetch(cluster.client(), &gets, &["-H", "Connection: close"], PATIENCE)?;
    let mut nodes: Vec<String> = responses.into_iter().map(|response| response.node).collect();
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}

fn a_node_comes(trigger: Trigger) -> Result {
    let (mut cluster, mut plan) = start()?;
    assert_eq!(answering(&cluster, 12)?, ["node0", "node1"]);
    plan.pools = vec![("web", vec![0, 1, 2])];
    cluster.write_config(&plan)?;
    cluster.start_node(2)?;
    reload_switch(&cluster, trigger, "node node2 added")?;
    assert_eq!(answering(&cluster, 12)?, ["node0", "node1", "node2"]);
    // The other nodes do not mind.
    let said = cluster.run(cluster.lab.node(0), &["reload"])?.success()?;
    assert!(said.contains("node node2 added"), "{said}");
    let said = cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
    assert_eq!(said, "nothing changed\n");
    cluster.down()
}

#[test]
fn a_node_comes_by_command() -> Result {
    a_node_comes(Trigger::Command)
}

#[test]
fn a_node_comes_by_signal() -> Result {
    a_node_comes(Trigger::Signal)
}

/// Its download goes on, its idle connections are given to others at their next request.
#[test]
fn a_node_leaves_during_a_download() -> Result {
    let (cluster, mut plan) = start()?;
    let long = add_long_document(&cluster.lab, "/long", 100)?;
    cluster.client().set_rate(Some(200_000_000))?;
    let documents = Documents::of(&cluster.lab)?;
    // Round robin: one of two downloads that begin together is node1's. Each is followed by a small request
    // on the same connection.
    let gets =
        || vec![(cluster.url4("/long"), long.clone()), (cluster.url4("/small"), documents.small.clone())];
    let timeout = Duration::from_secs(60);
    let downloads = [0, 1].map(|_| start_fetch(cluster.client(), gets(), &[], timeout));
    let downloads = downloads.into_iter().map(|download| Ok(thread::spawn(download?)));
    let downloads: Vec<_> = downloads.collect::<Result<_>>()?;
    let adopted = || Ok([cluster.node_counter(0, "adopted")?, cluster.node_counter(1, "adopted")?]);
    wait_until("both downloads", PATIENCE, adopted, |adopted| *adopted == [1, 1])?;
    let received = || Ok(cluster.client().interface_counters("eth0")?.rx.bytes);
    let now = received()?;
    wait_until("downloads in progress", PATIENCE, received, |bytes| *bytes > now + (20 << 20))?;

    plan.pools = vec![("web", vec![0])];
    cluster.write_config(&plan)?;
    reload_switch(&cluster, Trigger::Command, "node node1 removed")?;
    assert_eq!(answering(&cluster, 6)?, ["node0"]);
    assert_eq!(cluster.node_status(1)?["flows"], 1, "the download was over too early");
    let mut first = Vec::new();
    for download in downloads {
        let responses = download.join().expect("the download does not panic")?;
        assert_eq!(responses.iter().map(|response| response.connects).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(responses[1].node, "node0");
        first.push(responses[0].node.clone());
    }
    first.sort();
    assert_eq!(first, ["node0", "node1"]);
    cluster.down()
}

fn a_broken_file_changes_nothing(trigger: Trigger) -> Result {
    let (cluster, _) = start()?;
    let good = fs::read_to_string(&cluster.config)?;
    // It also has a change that would be right.
    let broken = good.replacen("nodes = [\"node0\", \"node1\"]", "nodes = [\"node0\", \"node9\"]", 1);
    assert_ne!(broken, good);
    fs::write(&cluster.config, &broken)?;
    let line = broken.lines().position(|line| line.contains("node9")).expect("it is there") + 1;
    let place = format!("{}:{line}:", common::text(&cluster.config));
    for (host, process) in
        [(cluster.lab.switch(0), cluster.switch()), (cluster.lab.node(0), cluster.agent(0))]
    {
        match trigger {
            Trigger::Signal => {
                process.signal(Signal::SIGHUP)?;
                let line = process.wait_for_log(&place, PATIENCE)?;
                assert!(line.contains("node9"), "{line}");
            }
            Trigger::Command => {
                let output = cluster.run(host, &["reload"])?;
                assert_eq!(output.status.code(), Some(1));
                assert!(
                    output.stderr.contains(&place) && output.stderr.contains("node9"),
                    "{}",
                    output.stderr
                );
            }
        }
    }
    assert_eq!(answering(&cluster, 12)?, ["node0", "node1"]);
    // Another start refuses it; this process goes on when the file is mended.
    fs::write(&cluster.config, &good)?;
    let said = cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
    assert_eq!(said, "nothing changed\n");
    cluster.down()
}

#[test]
fn a_broken_file_changes_nothing_by_command() -> Result {
    a_broken_file_changes_nothing(Trigger::Command)
}

#[test]
fn a_broken_file_changes_nothing_by_signal() -> Result {
    a_broken_file_changes_nothing(Trigger::Signal)
}

/// A service on a new VIP: the nodes take it as an address first, then the switch answers for it.
#[test]
fn a_vip_comes_and_goes() -> Result {
    let (cluster, plan) = start()?;
    let good = plan.config(&cluster.lab);
    let more = good.replacen("listen = [", "listen = [\"192.0.2.101:80\", ", 1);
    let small = Documents::of(&cluster.lab)?.small;
    cluster.lab.write_config_text(&more)?;
    for host in [cluster.lab.node(0), cluster.lab.node(1), cluster.lab.switch(0)] {
        let said = cluster.run(host, &["reload"])?.success()?;
        assert!(said.contains("shop"), "{said}");
    }
    get(cluster.client(), "http://192.0.2.101/small", &small)?;
    cluster.lab.write_config_text(&good)?;
    for host in [cluster.lab.switch(0), cluster.lab.node(0), cluster.lab.node(1)] {
        cluster.run(host, &["reload"])?.success()?;
    }
    let gone = cluster.client().run(["curl", "-s", "--max-time", "0.5", "http://192.0.2.101/small"])?;
    assert!(!gone.status.success());
    get(cluster.client(), &cluster.url4("/small"), &small)?;
    cluster.down()
}

/// Other weights, other routes, other nodes, in any order, while clients go on.
#[test]
fn two_hundred_reloads_lose_no_request() -> Result {
    const RELOADS: u64 = 200;
    let mut plan =
        Plan { servers: vec![ServerKind::Nginx; 3], pools: vec![("web", vec![0, 1, 2])], ..Plan::default() };
    let cluster = Cluster::start_with(plan.clone())?;
    let seed = seed()?;
    println!("SWITCHBACK_SEED={seed}");
    let mut random = Random::new(seed);
    let small = Documents::of(&cluster.lab)?.small;
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let load = Steady { clients: 50, pause: Duration::from_millis(5), close: false };
    let (changes, served) = load.run_beside(cluster.client(), vip, (small.path, &small.body), || {
        let mut changes = 0;
        for _ in 0..RELOADS {
            match random.next() % 3 {
                0 => {
                    let weight = |node: usize, weight: u32| (node, format!("weight = {}", 1 + weight % 5));
                    plan.node_lines = (0..3).map(|node| weight(node, random.next())).collect();
                }
                1 => {
                    let routes = [
                        "",
                        "[[service.route]]\npath = \"/small\"\npool = \"web\"\n",
                        "[[service.route]]\nhost = \"a.example.com\"\nredirect = { scheme = \"https\" }\n",
                    ];
                    plan.routes = routes[random.next() as usize % 3];
                }
                _ => {
                    let nodes = [vec![0, 1, 2], vec![0, 1], vec![1, 2], vec![2, 0], vec![1]];
                    plan.pools = vec![("web", nodes[random.next() as usize % 5].clone())];
                }
            }
            cluster.write_config(&plan)?;
            let said = cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
            changes += u64::from(said != "nothing changed\n");
        }
        Ok(changes)
    })?;
    println!("{changes} changes, {} requests, the slowest {:?}", served.requests, served.slowest);
    served.assert_all_answered();
    assert_eq!(served.closed_idle, 0);
    assert!(
        changes > RELOADS / 2 && served.requests > 1000,
        "{changes} changes, {} requests",
        served.requests
    );
    cluster.down()
}
