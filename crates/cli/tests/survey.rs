//! `switchback test` finds what keeps a cluster from working, and names it: twelve planted faults, each on a node of its
//! own or at the switch.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Cluster, PATIENCE, PROGRAM, Plan, Result, said_by, start_daemon, text, wait_until};
use serde_json::Value;
use switchback_lab::{Host, Process, ServerKind};

/// A server that accepts connections and says nothing; 262 is MPTCP.
const SERVER: &str = "
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, PROTOCOL)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('0.0.0.0', 80))
server.listen()
print('listens', flush=True)
while True:
    server.accept()
";

/// Five minutes more than it is.
const CLOCK: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
        int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, \"clock_gettime\");
        int result = real(clock, time);

        if (clock == CLOCK_REALTIME)
                time->tv_sec += 300;
        return result;
}
";

/// What `switchback test` says on a host, and its exit status.
fn test(host: &Host, config: &Path) -> Result<(Vec<Value>, Option<i32>)> {
    let output = host.run([PROGRAM, "test", "--json", "--config", text(config)])?;
    Ok((serde_json::from_str(&output.stdout)?, output.status.code()))
}

/// Machine, check and result of all that is not ok. The lab mounts no BPF file system that these commands see.
fn wrong(rows: &[Value]) -> BTreeSet<[String; 3]> {
    let of = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let is_wrong = |row: &&Value| row["result"] != "ok" && !of(row, "what").contains("BPF file system");
    let three = |row: &Value| ["machine", "check", "result"].map(|field| of(row, field));
    rows.iter().filter(is_wrong).map(three).collect()
}

/// Another file for one machine, with this change.
fn changed(cluster: &Cluster, name: &str, change: impl FnOnce(String) -> String) -> Result<PathBuf> {
    let path = cluster.lab.directory().join(name);
    fs::write(&path, change(fs::read_to_string(&cluster.config)?))?;
    Ok(path)
}

/// A library that puts the clock of a process five minutes ahead.
fn clock_library(cluster: &Cluster) -> Result<PathBuf> {
    let [source, library] = ["clock.c", "clock.so"].map(|name| cluster.lab.directory().join(name));
    fs::write(&source, CLOCK)?;
    said_by(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source))?;
    Ok(library)
}

/// A server in Python that accepts no requests, over this protocol, in place of the node's own.
fn replace_server(cluster: &Cluster, node: usize, protocol: u32) -> Result<Process> {
    cluster.stop_server(node)?;
    let host = cluster.lab.node(node);
    let mut python = host.command("python3");
    python.args(["-c", &SERVER.replace("PROTOCOL", &protocol.to_string())]);
    let server = host.spawn("server", python)?;
    server.wait_for_log("listens", PATIENCE)?;
    Ok(server)
}

/// Rules that drop packets, each in the chain of that hook.
fn drop_packets(host: &Host, rules: &[(&str, &str)]) -> Result {
    host.run(["nft", "add table inet cut"])?.success()?;
    for (hook, rule) in rules {
        let chain = format!("add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}");
        host.run(["nft", &format!("{chain}; add rule inet cut {hook} {rule} drop")])?.success()?;
    }
    Ok(())
}

const OTHER_KEY: usize = 1;
const FIREWALL: usize = 2;
const SOURCE_FILTER: usize = 3;
const MTU: usize = 4;
const CLOCK_AHEAD: usize = 5;
const OTHER_FILE: usize = 6;
const NO_LISTENER: usize = 7;
const MPTCP: usize = 8;
const DEAD_SERVER: usize = 9;
const RP_FILTER: usize = 10;
/// A kernel that cannot adopt connections, as one without SYN cookies and one without the kfunc: no agent starts.
const KERNEL: usize = 11;
const NODES: usize = 12;

#[test]
fn twelve_planted_faults_are_found() -> Result {
    let plan = Plan {
        servers: vec![ServerKind::Nginx; NODES],
        pools: vec![("web", (0..NODES).collect())],
        node_lines: [MPTCP, KERNEL].map(|node| (node, "adoption = \"kernel\"".to_owned())).to_vec(),
        ..Plan::default()
    };
    let mut cluster = Cluster::prepare(plan)?;
    for (node, settings) in
        [(RP_FILTER, ("ipv4/conf/eth0/rp_filter", "1")), (KERNEL, ("ipv4/tcp_syncookies", "0"))]
    {
        cluster.lab.node(node).sysctl(&[settings])?;
    }
    let library = clock_library(&cluster)?;
    said_by(Command::new(PROGRAM).arg("keygen").arg(cluster.lab.directory().join("other.key")))?;
    let other_key = changed(&cluster, "key.toml", |file| file.replace("cluster.key", "other.key"))?;
    let other_file = changed(&cluster, "comment.toml", |file| file + "# of yesterday\n")?;
    let mut agents = Vec::new();
    for node in (0..NODES).filter(|node| *node != KERNEL) {
        let host = cluster.lab.node(node);
        agents.push(match node {
            OTHER_KEY => start_daemon(host, "node", &other_key)?,
            OTHER_FILE => start_daemon(host, "node", &other_file)?,
            CLOCK_AHEAD => {
                let mut command = host.command(PROGRAM);
                command.env("LD_PRELOAD", &library);
                command.args(["node", "--name", host.name(), "--interface", "eth0", "--config"]);
                let process = host.spawn("node", {
                    command.arg(&cluster.config);
                    command
                })?;
                process.wait_for_log("ready", PATIENCE)?;
                process
            }
            _ => start_daemon(host, "node", &cluster.config)?,
        });
    }
    let switch = cluster.lab.switch(0);
    switch.set_xdp_port(false)?;
    switch.set_gro_port(false)?;
    cluster.start_switch()?;

    drop_packets(cluster.lab.node(FIREWALL), &[("input", "udp dport 6081"), ("output", "udp dport 6081")])?;
    let from_vip = format!("oifname eth0 ip saddr {}", cluster.lab.vip4());
    drop_packets(cluster.lab.node(SOURCE_FILTER), &[("output", &from_vip)])?;
    cluster.lab.node(MTU).set_mtu(1400)?;
    cluster.stop_server(NO_LISTENER)?;
    let _servers = [replace_server(&cluster, MPTCP, 262)?, replace_server(&cluster, DEAD_SERVER, 0)?];

    let expected = [
        ("this machine".to_owned(), "machine", "warning"), // the bare veth
        (node(OTHER_KEY), "key", "failed"),
        (node(FIREWALL), "network", "failed"),
        (node(SOURCE_FILTER), "VIP source", "failed"),
        (node(MTU), "path MTU", "failed"),
        (node(MTU), "machine", "warning"),
        (node(CLOCK_AHEAD), "clock", "failed"),
        (node(OTHER_FILE), "configuration", "failed"),
        (node(NO_LISTENER), "servers", "failed"),
        (node(MPTCP), "servers", "failed"),
        (node(MPTCP), "machine", "warning"),
        (node(DEAD_SERVER), "servers", "failed"),
        (node(RP_FILTER), "machine", "warning"),
        (node(KERNEL), "daemons", "failed"),
    ];
    let expected: BTreeSet<_> =
        expected.map(|(machine, check, result)| [machine, check.to_owned(), result.to_owned()]).into();
    let is_silent = || {
        let nodes = cluster.switch_status()?["nodes"].take();
        Ok(nodes[FIREWALL]["silent"] == true && nodes[NO_LISTENER]["listeners"][0]["state"] == "no listener")
    };
    wait_until("the switch to miss the node", PATIENCE, is_silent, |silent| *silent)?;
    let (rows, status) = test(cluster.lab.switch(0), &cluster.config)?;
    assert_eq!(wrong(&rows), expected);
    assert_eq!(status, Some(2));
    let has_remedy = |row: &Value| {
        row["result"] == "ok" || row["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty())
    };
    assert!(rows.iter().all(has_remedy), "{rows:#?}");
    // What the machine says of itself, where no agent can be asked.
    let doctor =
        cluster.lab.node(KERNEL).run([PROGRAM, "doctor", "--role", "node", "--interface", "eth0"])?;
    assert!(doctor.stdout.contains("mend it: sysctl -w net.ipv4.tcp_syncookies=1"), "{}", doctor.stdout);
    cluster.lab.down().map_err(Into::into)
}

fn node(index: usize) -> String {
    format!("node{index}")
}
