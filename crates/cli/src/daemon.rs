//! `switch`, `node`, `run`, which is either or both, and `client`: the processes that run until SIGTERM.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use clap::{Args, ValueEnum};
use nix::sys::signal::{Signal, raise};
use switchback_admin::{Server, asker};
use switchback_config::Cluster;
use switchback_node::MapHandle;
use switchback_runtime::{Signals, control, interface};

use crate::failure::Failure;

/// Run the switch
///
/// Attaches the XDP program to the interfaces and serves until SIGTERM or SIGINT. SIGHUP and `switchback
/// reload` apply a changed file.
#[derive(Args)]
pub struct Switch {
    /// The cluster.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where clients' packets and the nodes' answers come in; may be given more than once
    #[arg(long = "interface", value_name = "IF", required = true)]
    interfaces: Vec<String>,
    /// The zone that this machine is in: nodes of the same zone are preferred
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Which [[switch]] of the file this machine is, if the file has any
    #[arg(long)]
    name: Option<String>,
}

impl Switch {
    pub fn run(self) -> Result<(), Failure> {
        let Switch { config, interfaces, zone, name } = self;
        let cluster = switchback_config::load(&config)?;
        let first = interfaces.first().map_or("", String::as_str);
        serve_admin(&cluster, &[(switchback_switch::ROLE, first)])?;
        Ok(switchback_switch::run(switchback_switch::Options { config, interfaces, zone, name })?)
    }
}

/// Run the agent of a node
///
/// Attaches the TC programs, adds the VIPs without answering ARP or neighbour discovery for them, and undoes
/// it on SIGTERM or SIGINT. SIGHUP and `switchback reload` apply a changed file.
#[derive(Args)]
pub struct Node {
    /// The cluster.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which [[node]] of the file this machine is
    #[arg(long)]
    name: String,
    /// Where the switch's packets come in
    #[arg(long, value_name = "IF")]
    interface: String,
    #[command(flatten)]
    log: Log,
}

/// What the agent says on standard error.
#[derive(Args)]
struct Log {
    /// With debug, each connection over TLS that goes on at another node, and each request that another node answers
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Info,
    Debug,
}

impl Log {
    fn begin(&self) {
        let level = match self.log_level {
            LogLevel::Info => log::LevelFilter::Info,
            LogLevel::Debug => log::LevelFilter::Debug,
        };
        // The journal adds timestamps. Messages of libraries are off, since they have not been reviewed.
        env_logger::Builder::new()
            .filter_module("switchback_tls", level)
            .format_timestamp(None)
            .format_target(false)
            .init();
    }
}

impl Node {
    pub fn run(self) -> Result<(), Failure> {
        let Node { config, name, interface, log } = self;
        log.begin();
        let cluster = switchback_config::load(&config)?;
        serve_admin(&cluster, &[(switchback_node::ROLE, &interface)])?;
        Ok(switchback_node::run(switchback_node::Options { config, name, interface })?)
    }
}

/// Run whatever the configuration makes of this machine: a switch, a node, or both
///
/// A machine whose name has a [[switch]] and a [[node]] in the file is both in one process. What its own node gets does not
/// leave the machine. Ends on SIGTERM or SIGINT; SIGHUP and `switchback reload` apply a changed file.
#[derive(Args)]
pub struct Run {
    /// The cluster.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The name of this machine in the file
    #[arg(long)]
    name: String,
    /// Where packets of clients, switches and nodes come in; unless told, the interface that has the node's address
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The zone that this machine is in: nodes of the same zone are preferred
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    #[command(flatten)]
    log: Log,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let Run { config, name, zone, .. } = &self;
        self.log.begin();
        let cluster = switchback_config::load(config)?;
        let node = cluster.nodes.iter().find(|node| node.name == *name);
        let is_switch = cluster.switches.iter().any(|switch| switch.name == *name);
        if node.is_none() && !is_switch {
            return Err(Failure::invalid(format!(
                "{} has no [[switch]] and no [[node]] with the name {name}",
                config.display()
            )));
        }
        let interface = match (&self.interface, node) {
            (Some(interface), _) => interface.clone(),
            (None, Some(node)) => interface::with_address(node.address)?,
            (None, None) => {
                return Err(Failure::system(format!(
                    "{name} is a switch and no node, so the configuration does not tell its interface; name it \
                     with --interface"
                )));
            }
        };
        let roles = [(is_switch, switchback_switch::ROLE), (node.is_some(), switchback_node::ROLE)];
        let roles = roles.into_iter().filter(|(is, _)| *is).map(|(_, role)| (role, &interface[..]));
        serve_admin(&cluster, &roles.collect::<Vec<_>>())?;
        let switch = switchback_switch::Options {
            config: config.clone(),
            interfaces: vec![interface.clone()],
            zone: zone.clone(),
            name: Some(name.clone()),
        };
        let agent = switchback_node::Options { config: config.clone(), name: name.clone(), interface };
        match (node.is_some(), is_switch) {
            (true, true) => run_both(switch, agent),
            (true, false) => Ok(switchback_node::run(agent)?),
            (false, _) => Ok(switchback_switch::run(switch)?),
        }
    }
}

/// Starts the server of `[admin]`, if configured: one for all roles of this process, each with its interface. It runs
/// as long as the process.
fn serve_admin(cluster: &Cluster, roles: &[(&str, &str)]) -> Result<(), Failure> {
    let Some(admin) = &cluster.admin else { return Ok(()) };
    let sockets = roles.iter().map(|(role, interface)| control::path_of(role, interface));
    let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
    let with_page = roles.iter().any(|(role, _)| *role == switchback_switch::ROLE);
    let server = Server::start(admin, with_page, asker::over(sockets))?;
    eprintln!("metrics at http://{}/metrics", server.address());
    Ok(())
}

/// Channels of the agent's thread to the switch's thread: for the start, and for the end of the switch.
struct Beside {
    begin: Sender<MapHandle>,
    ended: Receiver<()>,
}

impl switchback_node::SwitchHere for Beside {
    fn begin(&self, ring: MapHandle) {
        // The switch's thread may have ended already.
        let _ = self.begin.send(ring);
    }

    fn end(&self) {
        end_both();
        // The switch has ended when its side of the channel is dropped.
        let _ = self.ended.recv();
    }
}

/// Runs both roles. The node starts first and ends last: the switch uses it until its own end.
fn run_both(switch: switchback_switch::Options, agent: switchback_node::Options) -> Result<(), Failure> {
    let signals = Signals::take()?;
    let (begin, begun) = channel();
    let (switch_runs, ended) = channel::<()>();
    let name = agent.name.clone();
    let beside = Beside { begin, ended };
    let node = thread::spawn(move || switchback_node::run_beside_switch(agent, beside));
    let switched = match begun.recv() {
        Ok(ring) => {
            let here = switchback_switch::Here { name, ring, signals };
            switchback_switch::run_beside_node(switch, here)
        }
        // The agent failed before it was ready, and returns the error.
        Err(_) => Ok(()),
    };
    drop(switch_runs);
    end_both();
    let node = node.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(switched.and(node)?)
}

/// Signals SIGTERM to the process, which ends both roles.
fn end_both() {
    // A thread may always signal its own process.
    let _ = raise(Signal::SIGTERM);
}

/// Run the shim of a client
///
/// Lets every program on this machine speak to the nodes of a cluster directly once the switch has read its request.
/// Attaches two TC programs and takes them away on SIGTERM or SIGINT. SIGHUP and `switchback reload` apply a changed
/// file.
#[derive(Args)]
pub struct Client {
    /// The client.toml
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where packets to the services leave
    #[arg(long, value_name = "IF")]
    interface: String,
}

impl Client {
    pub fn run(self) -> Result<(), Failure> {
        let Client { config, interface } = self;
        Ok(switchback_client::run(switchback_client::Options { config, interface })?)
    }
}
