//! What is measured: the direct way to a node, two proxies, and Switchback, all on one lab at once.
//!
//! Switchback runs on the first switch, the proxies on the second, each on a port of its own, so that nothing
//! has to be started or stopped between loads. All wait for events; a system that has no load uses no CPU.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::cpu::{CpuMeter, CpuTimes};
use crate::cluster::Cluster;
use crate::error::{Doing, Result};
use crate::host::Host;
use crate::lab::Lab;
use crate::process::Process;

const READY: Duration = Duration::from_secs(10);
const HAPROXY_PORT: u16 = 8080;
const NGINX_PORT: u16 = 8081;
/// Worker threads or processes of each proxy.
const PROXY_WORKERS: usize = 2;
/// Idle connections to the nodes that each worker of nginx keeps.
const NGINX_IDLE: usize = 64;

/// A way from the client to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// To one node, with nothing between.
    Direct,
    /// HAProxy in between, as an HTTP proxy.
    Haproxy,
    /// nginx in between, as an HTTP proxy.
    Nginx,
    /// Switchback: requests by the switch, responses past it.
    Switchback,
}

impl System {
    /// All, in the order of the tables.
    pub const ALL: [System; 4] = [System::Direct, System::Haproxy, System::Nginx, System::Switchback];
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            System::Direct => "direct",
            System::Haproxy => "HAProxy",
            System::Nginx => "nginx",
            System::Switchback => "Switchback",
        })
    }
}

/// A system that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) system: System,
    pub(super) address: SocketAddr,
    /// None where nothing is between client and node.
    meter: Option<CpuMeter>,
}

impl Running {
    /// CPU time that its host has used for it so far.
    pub(super) fn cpu_times(&self) -> Result<Option<CpuTimes>> {
        self.meter.as_ref().map(CpuMeter::read).transpose()
    }
}

/// Starts all systems; `program` is the switchback binary.
pub(super) fn start(lab: &Lab, program: &Path) -> Result<Vec<Running>> {
    System::ALL
        .into_iter()
        .map(|system| match system {
            System::Direct => Ok(Running { system, address: (lab.node(0).ipv4(), 80).into(), meter: None }),
            System::Haproxy => proxy(lab, system, HAPROXY_PORT, haproxy_configuration, haproxy_command),
            System::Nginx => proxy(lab, system, NGINX_PORT, nginx_configuration, nginx_command),
            System::Switchback => switchback(lab, program),
        })
        .collect()
}

fn proxy(
    lab: &Lab,
    system: System,
    port: u16,
    configuration: fn(&Path, SocketAddr, &[SocketAddr]) -> String,
    command: fn(&Path, &Path) -> Command,
) -> Result<Running> {
    let host = lab.switch(1);
    let name = format!("{system}-proxy").to_lowercase();
    let directory = host.directory().join(&name);
    fs::create_dir(&directory).doing(|| format!("create {}", directory.display()))?;
    let address = (host.ipv4(), port).into();
    let nodes: Vec<SocketAddr> = lab.nodes().map(|node| (node.ipv4(), 80).into()).collect();
    let file = directory.join("proxy.conf");
    fs::write(&file, configuration(&directory, address, &nodes))
        .doing(|| format!("write {}", file.display()))?;
    let process = host.spawn(&name, command(&directory, &file))?;
    host.wait_for_listeners(&process, &[address], READY)?;
    Ok(Running { system, address, meter: Some(CpuMeter::new(host, &process)?) })
}

fn switchback(lab: &Lab, program: &Path) -> Result<Running> {
    let config = lab.write_config(&Cluster::with_policy("round-robin"))?;
    let switch = start_switchback(lab, program, &config)?;
    let meter = Some(CpuMeter::new(lab.switch(0), &switch)?);
    Ok(Running { system: System::Switchback, address: (lab.vip4(), 80).into(), meter })
}

/// Starts the agents of all nodes and the first switch, waits until they are ready, and returns the switch.
pub(super) fn start_switchback(lab: &Lab, program: &Path, config: &Path) -> Result<Process> {
    let start = |host: &Host, name: &str, words: &[&str]| -> Result<Process> {
        let mut command = Command::new(program);
        command.args(words).args(["--interface", "eth0", "--config"]).arg(config);
        host.spawn(name, command)
    };
    let mut daemons = Vec::new();
    for node in lab.nodes() {
        daemons.push(start(node, "switchback-node", &["node", "--name", node.name()])?);
    }
    let switch = start(lab.switch(0), "switchback-switch", &["switch"])?;
    daemons.push(switch.clone());
    daemons.iter().try_for_each(|daemon| daemon.wait_for_log("ready", READY).map(drop))?;
    Ok(switch)
}

fn haproxy_command(_: &Path, file: &Path) -> Command {
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f"]).arg(file);
    command
}

fn haproxy_configuration(_: &Path, address: SocketAddr, nodes: &[SocketAddr]) -> String {
    let servers: String =
        nodes.iter().enumerate().map(|(n, node)| format!("    server node{n} {node}\n")).collect();
    format!(
        "global
    nbthread {PROXY_WORKERS}
    maxconn 4096
defaults
    mode http
    option http-keep-alive
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout http-keep-alive 60s
frontend clients
    bind {address}
    default_backend nodes
backend nodes
    balance roundrobin
{servers}"
    )
}

fn nginx_command(directory: &Path, file: &Path) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(directory).args(["-e", "stderr", "-c"]).arg(file);
    command
}

/// An empty `Connection` is what makes nginx keep connections to the nodes. Both limits on requests for each
/// connection (1000 if not set) would be HAProxy's advantage, which has none.
fn nginx_configuration(directory: &Path, address: SocketAddr, nodes: &[SocketAddr]) -> String {
    let servers: String = nodes.iter().map(|node| format!("        server {node};\n")).collect();
    let path = |name: &str| directory.join(name).display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|what| format!("    {what}_temp_path {};\n", path(&format!("{what}-temp"))))
        .collect();
    format!(
        "daemon off;
user root;
worker_processes {PROXY_WORKERS};
worker_rlimit_nofile 16384;
pid {pid};
error_log stderr notice;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
{temporary}    upstream nodes {{
{servers}        keepalive {NGINX_IDLE};
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://nodes;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
    }}
}}
",
        pid = path("nginx.pid"),
    )
}
