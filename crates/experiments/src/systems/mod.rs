//! The measured systems: the direct path to a node, proxies, and Switchback, all on one lab at once.
//!
//! Switchback runs on the first switch, the proxies on the second, each on ports of its own, so that nothing is started
//! or stopped between loads. All wait for events; a system without load uses no CPU.
//!
//! Each has a port for each number of nodes that share a load; the nodes are the lab's first ones.

mod forwarder;
mod peers;
mod proxies;
mod system;

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::de::DeserializeOwned;
use switchback_lab::{Error, Host, Lab, Process, Result, ServerOptions};

pub(super) use forwarder::{builder as builder_with_forwarder, start as start_forwarder};
pub(super) use peers::peers;
use proxies::Duties;
pub(super) use system::MOVED;
use system::READY;
pub use system::System;

use super::cpu::{CpuMeter, CpuTimes};

/// A proxy that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) system: System,
    /// Its executable, or the name of one in the PATH.
    pub(super) program: PathBuf,
}

impl Proxy {
    /// The proxy of the PATH, whose program has the system's name in lower case.
    pub(super) fn installed(system: System) -> Proxy {
        Proxy { system, program: system.to_string().to_lowercase().into() }
    }

    /// The proxies that every machine with the experiments' programs has.
    pub(super) fn all_installed() -> Vec<Proxy> {
        [System::Haproxy, System::Nginx].map(Proxy::installed).to_vec()
    }
}

/// A running system.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) system: System,
    ip: Ipv4Addr,
    /// None without a host between client and node.
    meter: Option<CpuMeter>,
}

impl Running {
    /// The address of its service with this number of nodes.
    pub(super) fn address(&self, nodes: usize) -> SocketAddr {
        (self.ip, self.system.port(nodes)).into()
    }

    /// Switchback with these daemons.
    pub(super) fn switchback(lab: &Lab, daemons: &Daemons) -> Result<Running> {
        let meter = Some(CpuMeter::new(lab.switch(0), daemons.switch())?);
        Ok(Running { system: System::Switchback, ip: lab.vip4(), meter })
    }

    /// CPU time of its host so far.
    pub(super) fn cpu_times(&self) -> Result<Option<CpuTimes>> {
        self.meter.as_ref().map(CpuMeter::read).transpose()
    }
}

/// Starts nginx on all nodes, and the systems with a service for each number of nodes: the direct path, the proxies, and
/// Switchback with this program.
pub(super) fn start(
    lab: &Lab,
    program: &Path,
    proxies: &[Proxy],
    nodes: &[usize],
    server: &ServerOptions,
) -> Result<Vec<Running>> {
    let listen = nodes.iter().map(|&nodes| ([0, 0, 0, 0], System::Direct.port(nodes)).into());
    let server = ServerOptions { listen: listen.collect(), ..server.clone() };
    lab.nodes().try_for_each(|node| node.nginx(&server).map(drop))?;
    let mut systems = vec![Running { system: System::Direct, ip: lab.node(0).ipv4(), meter: None }];
    for proxy in proxies {
        let process = proxies::start(lab, proxy, nodes, Duties::PLAIN)?;
        let meter = Some(CpuMeter::new(lab.switch(1), &process)?);
        systems.push(Running { system: proxy.system, ip: lab.switch(1).ipv4(), meter });
    }
    systems.push(switchback(lab, program, nodes)?);
    Ok(systems)
}

/// Starts a proxy that ends TLS in front of this number of nodes.
pub(super) fn start_tls_proxy(
    lab: &Lab,
    system: System,
    nodes: usize,
    certificate: &Path,
) -> Result<Running> {
    let duties = Duties { certificate: Some(certificate), ..Duties::PLAIN };
    let process = proxies::start(lab, &Proxy::installed(system), &[nodes], duties)?;
    let host = lab.switch(1);
    Ok(Running { system, ip: host.ipv4(), meter: Some(CpuMeter::new(host, &process)?) })
}

/// Starts a proxy in front of this number of nodes that has no more of a download than its client takes, apart from what
/// is in memory.
pub(super) fn start_download_proxy(lab: &Lab, system: System, nodes: usize) -> Result<SocketAddr> {
    let duties = Duties { has_files: false, ..Duties::PLAIN };
    proxies::start(lab, &Proxy::installed(system), &[nodes], duties)?;
    Ok((lab.switch(1).ipv4(), system.port(nodes)).into())
}

fn switchback(lab: &Lab, program: &Path, nodes: &[usize]) -> Result<Running> {
    let services: Vec<Service> =
        nodes.iter().map(|&nodes| Service::new(System::Switchback.port(nodes), nodes)).collect();
    let config = lab.write_config_text(&config(&services))?;
    Running::switchback(lab, &start_switchback(lab, program, &config)?)
}

/// A service of Switchback with a pool of its own.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) port: u16,
    /// Its nodes in the lab.
    pub(super) nodes: Range<usize>,
    /// Additional lines of TOML in the pool's table.
    pub(super) pool: String,
    /// Its `[service.tls]`, if nodes end TLS.
    pub(super) tls: String,
}

impl Service {
    /// A service that gives its connections to the lab's first nodes in turn.
    pub(super) fn new(port: u16, nodes: usize) -> Service {
        Service { port, nodes: 0..nodes, pool: String::new(), tls: String::new() }
    }
}

/// A `cluster.toml` for these services.
pub(super) fn config(services: &[Service]) -> String {
    let mut text = "[cluster]\nkey_file = \"{key_file}\"\n\n{nodes}\n".to_owned();
    for Service { port, nodes, pool, tls } in services {
        let names: Vec<String> = nodes.clone().map(|index| format!("\"node{index}\"")).collect();
        let names = names.join(", ");
        text += &format!(
            "[[pool]]\nname = \"p{port}\"\nnodes = [{names}]\npolicy = \"round-robin\"\n{pool}\n\
             [[service]]\nname = \"s{port}\"\nlisten = [\"{{vip4}}:{port}\"]\nroute = [\n\
             {{ path = \"{MOVED}\", redirect = {{ path = \"/small\", status = 301 }} }},\n{{ pool = \"p{port}\" }},\n]\n\n{tls}"
        );
    }
    text
}

/// The lab's nodes as tables of a `cluster.toml`, in the place of `{nodes}`, with how each of them adopts.
pub(super) fn node_tables(lab: &Lab, adoption: impl Fn(usize) -> &'static str) -> String {
    let table = |(index, node): (usize, &Host)| {
        let (name, address, adoption) = (node.name(), node.ipv4(), adoption(index));
        format!("[[node]]\nname = \"{name}\"\naddress = \"{address}\"\nadoption = \"{adoption}\"\n\n")
    };
    lab.nodes().enumerate().map(table).collect()
}

/// The processes of a cluster: the switch, then the agents.
pub(super) struct Daemons(Vec<Process>);

impl Daemons {
    pub(super) fn switch(&self) -> &Process {
        &self.0[0]
    }

    pub(super) fn agents(&self) -> &[Process] {
        &self.0[1..]
    }

    pub(super) fn all(&self) -> &[Process] {
        &self.0
    }
}

/// Starts the first switch and the agents of all nodes, and waits until they are ready.
pub(super) fn start_switchback(lab: &Lab, program: &Path, config: &Path) -> Result<Daemons> {
    let mut daemons = vec![start_daemon(lab.switch(0), program, config, "switchback-switch", &["switch"])?];
    for node in lab.nodes() {
        daemons.push(spawn_agent(node, program, config)?);
    }
    daemons.iter().try_for_each(|daemon| daemon.wait_for_log("ready", READY).map(drop))?;
    Ok(Daemons(daemons))
}

/// Starts the first switch and waits until it is ready.
pub(super) fn start_switch(lab: &Lab, program: &Path, config: &Path) -> Result<Process> {
    let switch = start_daemon(lab.switch(0), program, config, "switchback-switch", &["switch"])?;
    switch.wait_for_log("ready", READY)?;
    Ok(switch)
}

/// Starts a node's agent and waits until it is ready.
pub(super) fn start_agent(node: &Host, program: &Path, config: &Path) -> Result<Process> {
    let agent = spawn_agent(node, program, config)?;
    agent.wait_for_log("ready", READY)?;
    Ok(agent)
}

fn spawn_agent(node: &Host, program: &Path, config: &Path) -> Result<Process> {
    start_daemon(node, program, config, "switchback-node", &["node", "--name", node.name()])
}

fn start_daemon(host: &Host, program: &Path, config: &Path, name: &str, words: &[&str]) -> Result<Process> {
    let mut command = Command::new(program);
    command.args(words).args(["--interface", "eth0", "--config"]).arg(config);
    host.spawn(name, command)
}

/// The part of `switchback status --json` on a host that `T` describes.
pub(super) fn status<T: DeserializeOwned>(host: &Host, program: &Path) -> Result<T> {
    let said = host.run([program.as_os_str(), "status".as_ref(), "--json".as_ref()])?.success()?;
    serde_json::from_str(&said).map_err(|error| Error::Invalid(format!("status of {}: {error}", host.name())))
}
