//! Nodes from DNS: what a real name server says is followed under load, and what it says wrongly is not.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::http::answering;
use common::steady::beside;
use common::{Cluster, PATIENCE, PROGRAM, Plan, Result, stop, text, wait_until};
use nix::sys::signal::Signal;
use switchback_lab::{Host, Output, Process, ServerKind};

/// Life of the records, in seconds.
const TTL: u64 = 2;

/// dnsmasq on the lab's second client, which knows `app.example.com` and `api.example.com`.
struct NameServer {
    process: Process,
    records: PathBuf,
}

impl NameServer {
    fn start(cluster: &Cluster, addresses: &[String]) -> Result<NameServer> {
        let host = cluster.lab.client(1);
        let records = host.directory().join("records");
        write_records(&records, addresses)?;
        let mut dnsmasq = Command::new("dnsmasq");
        dnsmasq.args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"]);
        dnsmasq.args([
            "--user=root",
            "--pid-file=",
            "--log-queries",
            "--log-facility=-",
            "--local=/example.com/",
        ]);
        dnsmasq.arg(format!("--local-ttl={TTL}")).arg(format!("--listen-address={}", host.ipv4()));
        dnsmasq.arg("--bind-interfaces").arg(format!("--addn-hosts={}", text(&records)));
        let process = host.spawn("dnsmasq", dnsmasq)?;
        process.wait_for_log("addresses", PATIENCE)?;
        Ok(NameServer { process, records })
    }

    /// Changes the addresses of the name.
    fn set(&self, addresses: &[String]) -> Result {
        write_records(&self.records, addresses)?;
        Ok(self.process.signal(Signal::SIGHUP)?)
    }

    /// How often this host has asked for IPv4 addresses.
    fn questions(&self, host: &Host) -> u64 {
        let log = self.process.log();
        let line = format!("query[A] app.example.com from {}", host.ipv4());
        log.lines().filter(|found| found.ends_with(&line)).count() as u64
    }
}

fn write_records(file: &PathBuf, addresses: &[String]) -> Result {
    let records: String = addresses.iter().map(|address| format!("{address} app.example.com\n")).collect();
    Ok(fs::write(file, records)?)
}

/// A pool whose nodes are what the name server says.
fn config(cluster: &Cluster) -> String {
    format!(
        "[cluster]\nkey_file = \"{{key_file}}\"\n\n[dns]\nservers = \"{}\"\n\n[[pool]]\nname = \"web\"\n\
         nodes_from = \"dns:app.example.com\"\npolicy = \"round-robin\"\n\n[[service]]\nname = \"shop\"\n\
         listen = [\"{{vip4}}:80\"]\n\n[[service.route]]\npool = \"web\"\n",
        cluster.lab.client(1).ipv4()
    )
}

/// An agent that is not told which node it is.
fn start_agent(cluster: &Cluster, node: usize) -> Result<Process> {
    let host = cluster.lab.node(node);
    let mut agent = host.command(PROGRAM);
    agent.args(["node", "--interface", "eth0", "--config"]).arg(&cluster.config);
    agent.env("STATE_DIRECTORY", cluster.state_directory(node));
    Ok(host.spawn("agent", agent)?)
}

fn status(cluster: &Cluster) -> Result<String> {
    let url = cluster.url4("/small");
    let words = ["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", &url];
    Ok(cluster.client().run(words)?.stdout)
}

fn is_answered_by(cluster: &Cluster, nodes: &[&str]) -> Result {
    let answering =
        || Ok((status(cluster)? == "200").then(|| answering(cluster)).transpose()?.unwrap_or_default());
    wait_until("the nodes", PATIENCE, answering, |answering| *answering == *nodes).map(drop)
}

#[test]
fn pools_follow_names() -> Result {
    let plan = Plan { servers: vec![ServerKind::Nginx; 3], clients_len: 2, ..Plan::default() };
    let mut cluster = Cluster::prepare(plan)?;
    cluster.lab.write_config_text(&config(&cluster))?;
    let addresses: Vec<String> = cluster.lab.nodes().map(|node| node.ipv4().to_string()).collect();
    let names: Vec<String> =
        addresses.iter().map(|address| format!("dns-{}", address.replace('.', "-"))).collect();
    let on_switch = |cluster: &Cluster, arguments: &[&str]| -> Result<Output> {
        cluster.run(cluster.lab.switch(0), arguments)
    };

    // A check needs no network, and a switch no name server.
    let file = text(&cluster.config).to_owned();
    let checked = on_switch(&cluster, &["check", &file])?;
    assert!(
        checked.stdout.starts_with("ok: 0 nodes") && checked.stdout.ends_with(", 1 name\n"),
        "{checked:?}"
    );
    let begun = Instant::now();
    cluster.start_switch()?;
    assert!(begun.elapsed() < Duration::from_secs(8), "the start has waited {:?}", begun.elapsed());
    cluster.switch().wait_for_log("cannot resolve app.example.com: ", PATIENCE)?;
    assert_eq!(status(&cluster)?, "503");
    let early = start_agent(&cluster, 0)?;
    let ended = early.wait_timeout(PATIENCE)?.ok_or("an agent serves without an address")?;
    assert!(
        ended.code() == Some(2) && early.log().contains("no node has an address of eth0"),
        "{}",
        early.log()
    );

    let server = NameServer::start(&cluster, &addresses[..1])?;
    cluster.switch().wait_for_log("app.example.com is resolved again", PATIENCE)?;
    let first = start_agent(&cluster, 0)?;
    first.wait_for_log(&format!("node {} ready", names[0]), PATIENCE)?;
    is_answered_by(&cluster, &["node0"])?;

    // Commands ask as daemons do.
    let explained =
        on_switch(&cluster, &["explain", "--config", &file, &cluster.url4("/small")])?.success()?;
    assert!(explained.contains(&names[0]), "{explained}");
    let surveyed = on_switch(&cluster, &["test", "--config", &file])?.stdout;
    assert!(surveyed.contains(&names[0]) && surveyed.contains(", 0 warnings, 0 failed"), "{surveyed}");

    // The file changes and is not read; the name changes and is followed.
    fs::write(&file, fs::read_to_string(&file)?.replace("app.example.com", "nobody.example.com"))?;
    let asked = (server.questions(cluster.lab.switch(0)), Instant::now());
    let work = || -> Result<Vec<Process>> {
        server.set(&addresses[..2])?;
        cluster.switch().wait_for_log(&format!("node {} added", names[1]), PATIENCE)?;
        fs::write(&file, fs::read_to_string(&file)?.replace("nobody.example.com", "app.example.com"))?;
        let second = start_agent(&cluster, 1)?;
        second.wait_for_log(&format!("node {} ready", names[1]), PATIENCE)?;
        is_answered_by(&cluster, &["node0", "node1"])?;
        server.set(&addresses[1..])?;
        cluster.switch().wait_for_log(&format!("node {} removed", names[0]), PATIENCE)?;
        let third = start_agent(&cluster, 2)?;
        third.wait_for_log(&format!("node {} ready", names[2]), PATIENCE)?;
        is_answered_by(&cluster, &["node1", "node2"])?;
        first.wait_for_log(
            "reload refused, the old configuration goes on: no node has an address",
            PATIENCE,
        )?;
        Ok(vec![second, third])
    };
    let (mut agents, served) = beside(&cluster, work)?;
    served.assert_all_answered();
    let count = server.questions(cluster.lab.switch(0)) - asked.0;
    let most = asked.1.elapsed().as_secs() / TTL + 2;
    assert!((2..=most).contains(&count), "{count} questions, at most {most} are right");
    agents.push(first);

    // A new name has to be one.
    let config = fs::read_to_string(&file)?;
    fs::write(&file, config.replace("app.example.com", "nobody.example.com"))?;
    let refused = on_switch(&cluster, &["reload"])?;
    assert!(refused.stderr.contains("no address of nobody.example.com is known"), "{refused:?}");
    fs::write(&file, config)?;
    on_switch(&cluster, &["reload"])?.success()?;

    // The name server dies, and so does the switch.
    let records = server.records.clone();
    let work = || -> Result<Process> {
        server.process.kill()?;
        cluster.switch().wait_for_log("cannot resolve app.example.com, its last addresses stay", PATIENCE)?;
        cluster.switch().kill()?;
        let switch = cluster.spawn_switch()?;
        switch.wait_for_log("ready", PATIENCE)?;
        is_answered_by(&cluster, &["node1", "node2"])?;
        Ok(switch)
    };
    let (switch, served) = beside(&cluster, work)?;
    served.assert_all_answered();
    cluster.replace_switch(switch);

    // It comes back with answers that nobody should believe.
    let vip = cluster.lab.vip4().to_string();
    let wrong = ["127.0.0.5".to_owned(), "224.0.0.5".to_owned(), vip.clone(), addresses[1].clone()];
    let server = NameServer::start(&cluster, &wrong)?;
    cluster.switch().wait_for_log(&format!("node {} removed", names[2]), PATIENCE)?;
    for (address, why) in [("127.0.0.5", "loopback"), ("224.0.0.5", "multicast"), (&vip, "it is a VIP")] {
        let log = cluster.switch().log();
        let is_told = |line: &str| line.contains(&format!("{address} is left out: ")) && line.contains(why);
        assert!(log.lines().any(is_told), "{log}");
    }
    is_answered_by(&cluster, &["node1"])?;
    fs::write(&records, "")?;
    server.process.signal(Signal::SIGHUP)?;
    cluster.switch().wait_for_log("its last addresses stay: there is no such name", PATIENCE)?;
    is_answered_by(&cluster, &["node1"])?;

    agents.iter().try_for_each(stop)?;
    server.process.kill()?;
    cluster.down()
}
