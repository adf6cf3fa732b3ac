//! A machine or a file that is not as it must be: the process ends at once, says what is wrong and what mends
//! it, and leaves the machine as it was.

mod common;

use std::fs;
use std::process::Command;

use common::packets::attach_foreign_xdp;
use common::{Cluster, PATIENCE, PROGRAM, Plan, Result, text, traces};
use switchback_lab::{Host, Process};

/// The process ends with this status and an error that contains all these parts, and nothing is left.
fn refused(cluster: &Cluster, process: &Process, status: i32, parts: &[&str]) -> Result {
    let ended = process.wait_timeout(PATIENCE)?;
    let log = process.log();
    let ended = ended.ok_or_else(|| format!("{} goes on: {log}", process.name()))?;
    assert_eq!(ended.code(), Some(status), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains(" WARN ")).collect();
    assert_eq!(lines.len(), 1, "more than one line: {log}");
    for part in parts {
        assert!(lines[0].contains(part), "{part:?} is not in {log}");
    }
    cluster.assert_no_trace()
}

fn prepare() -> Result<Cluster> {
    Cluster::prepare(Plan::default())
}

/// A command of ours on a host.
fn spawn(cluster: &Cluster, host: &Host, words: &[&str]) -> Result<Process> {
    let mut command = Command::new(PROGRAM);
    command.args(words).args(["--config", text(&cluster.config)]);
    Ok(host.spawn("refused", command)?)
}

const SWITCH: &[&str] = &["switch", "--interface", "eth0"];
const NODE: &[&str] = &["node", "--name", "node0", "--interface", "eth0"];

#[test]
fn an_interface_that_does_not_exist() -> Result {
    let cluster = prepare()?;
    let parts = ["there is no network interface eth7", "eth0", "--interface"];
    let switch = spawn(&cluster, cluster.lab.switch(0), &["switch", "--interface", "eth7"])?;
    refused(&cluster, &switch, 2, &parts)?;
    // The first one is there, and left alone again.
    let words = ["switch", "--interface", "eth0", "--interface", "eth7"];
    refused(&cluster, &spawn(&cluster, cluster.lab.switch(0), &words)?, 2, &parts)?;
    let node = spawn(&cluster, cluster.lab.node(0), &["node", "--name", "node0", "--interface", "eth7"])?;
    refused(&cluster, &node, 2, &parts)
}

#[test]
fn a_port_that_is_taken() -> Result {
    let cluster = prepare()?;
    let (switch, node) = (cluster.lab.switch(0), cluster.lab.node(0));
    for (host, words) in [(switch, SWITCH), (node, NODE)] {
        let _taken = host.udp_bind((host.ipv4(), 6081).into())?;
        let process = spawn(&cluster, host, words)?;
        refused(&cluster, &process, 2, &["UDP port 6081", "ss -"])?;
        // The remedy, taken at its word, finds who has it.
        let log = process.log();
        let remedy = log.split("ss -").nth(1).expect("it is part of the message").trim_end();
        let remedy: Vec<&str> = remedy.split('`').next().unwrap_or(remedy).split(' ').collect();
        let shown = host.run([&["ss", &format!("-{}", remedy[0])], &remedy[1..]].concat())?.success()?;
        assert!(shown.contains(":6081"), "{log} shows {shown}");
    }
    Ok(())
}

#[test]
fn a_node_without_syn_cookies() -> Result {
    let node_lines = vec![(0, "adoption = \"kernel\"".to_owned())];
    let cluster = Cluster::prepare(Plan { node_lines, ..Plan::default() })?;
    let node = cluster.lab.node(0);
    node.run(["sysctl", "-w", "net.ipv4.tcp_syncookies=0"])?.success()?;
    let parts = ["net.ipv4.tcp_syncookies is 0", "sysctl -w net.ipv4.tcp_syncookies=1"];
    refused(&cluster, &spawn(&cluster, node, NODE)?, 2, &parts)?;
    // The switch does not need them.
    let switch = cluster.lab.switch(0);
    switch.run(["sysctl", "-w", "net.ipv4.tcp_syncookies=0"])?.success()?;
    let process = spawn(&cluster, switch, SWITCH)?;
    process.wait_for_log("ready", PATIENCE)?;
    assert!(process.stop()?.success());
    cluster.down()
}

#[test]
fn a_configuration_with_a_mistake() -> Result {
    let cluster = prepare()?;
    let good = fs::read_to_string(&cluster.config)?;
    fs::write(&cluster.config, good.replacen("round-robin", "roundrobin", 1))?;
    let line = good.lines().position(|line| line.contains("round-robin")).expect("there is a policy") + 1;
    let place = format!("{}:{line}:10: ", text(&cluster.config));
    for (host, words) in [(cluster.lab.switch(0), SWITCH), (cluster.lab.node(0), NODE)] {
        let process = spawn(&cluster, host, words)?;
        refused(&cluster, &process, 1, &[&place, "roundrobin", "round-robin"])?;
        assert!(process.log().starts_with(&place), "{}", process.log());
    }
    fs::write(&cluster.config, "[cluster\n")?;
    for (host, words) in [(cluster.lab.switch(0), SWITCH), (cluster.lab.node(0), NODE)] {
        let process = spawn(&cluster, host, words)?;
        refused(&cluster, &process, 1, &[&format!("{}:1:", text(&cluster.config))])?;
    }
    fs::remove_file(&cluster.config)?;
    for (host, words) in [(cluster.lab.switch(0), SWITCH), (cluster.lab.node(0), NODE)] {
        refused(&cluster, &spawn(&cluster, host, words)?, 2, &["cannot read", text(&cluster.config)])?;
    }
    Ok(())
}

#[test]
fn a_node_that_is_not_in_the_configuration() -> Result {
    let cluster = prepare()?;
    let words = ["node", "--name", "node7", "--interface", "eth0"];
    let process = spawn(&cluster, cluster.lab.node(0), &words)?;
    refused(&cluster, &process, 1, &["no node node7", "node0, node1"])?;
    // It is another machine.
    let words = ["node", "--name", "node1", "--interface", "eth0"];
    let process = spawn(&cluster, cluster.lab.node(0), &words)?;
    refused(&cluster, &process, 2, &["192.0.2.21 is not an address of this machine", "--name"])
}

#[test]
fn a_key_file_that_is_missing_or_open_to_all() -> Result {
    let cluster = prepare()?;
    let key = cluster.config.with_file_name("cluster.key");
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    for (host, words) in [(cluster.lab.switch(0), SWITCH), (cluster.lab.node(0), NODE)] {
        refused(&cluster, &spawn(&cluster, host, words)?, 2, &[text(&key), "chmod 600"])?;
    }
    fs::remove_file(&key)?;
    for (host, words) in [(cluster.lab.switch(0), SWITCH), (cluster.lab.node(0), NODE)] {
        refused(
            &cluster,
            &spawn(&cluster, host, words)?,
            2,
            &["cannot read", text(&key), "switchback keygen"],
        )?;
    }
    Ok(())
}

#[test]
fn an_interface_with_another_xdp_program() -> Result {
    let cluster = prepare()?;
    let switch = cluster.lab.switch(0);
    attach_foreign_xdp(switch, "eth0")?;
    let process = spawn(&cluster, switch, SWITCH)?;
    let ended = process.wait_timeout(PATIENCE)?.ok_or("the switch goes on")?;
    let log = process.log();
    assert_eq!(ended.code(), Some(2), "{log}");
    for part in ["attach XDP to eth0", "another XDP program", "ip link set eth0 xdp off"] {
        assert!(log.contains(part), "{part:?} is not in {log}");
    }
    // The other program is still there, and nothing of ours.
    let traces = traces::of(switch)?;
    assert!(matches!(&traces[..], [xdp] if xdp.starts_with("XDP on eth0")), "{traces:#?}");
    switch.run(["ip", "link", "set", "eth0", "xdp", "off"])?.success()?;
    let process = spawn(&cluster, switch, SWITCH)?;
    process.wait_for_log("ready", PATIENCE)?;
    assert!(process.stop()?.success());
    cluster.down()
}

/// Whatever else the first process has: the address of `[admin]` and the port of handoff packets.
#[test]
fn a_second_process_on_the_same_interface() -> Result {
    let cluster = Cluster::start_with(Plan { admin: true, ..Plan::default() })?;
    let rows = [
        (cluster.lab.switch(0), SWITCH, cluster.switch().pid()),
        (cluster.lab.node(0), NODE, cluster.agent(0).pid()),
    ];
    for (host, words, pid) in rows {
        let process = spawn(&cluster, host, words)?;
        let ended = process.wait_timeout(PATIENCE)?.ok_or("the second process goes on")?;
        assert_eq!(ended.code(), Some(2));
        let log = process.log();
        assert!(log.contains(&format!("already running, pid {pid}; stop it first: kill {pid}")), "{log}");
        assert!(!log.contains("9180"), "{log}");
    }
    // The first ones are not disturbed.
    let documents = common::http::Documents::of(&cluster.lab)?;
    common::http::get(cluster.client(), &cluster.url4("/1m"), &documents.large)?;
    cluster.down()
}
