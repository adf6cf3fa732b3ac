//! `switch`, `node`, `run`, which is either or both, and `client`: the processes that run until SIGTERM.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use clap::{Args, ValueEnum};
use nix::sys::signal::{Signal, raise};
use switchback_admin::{Keeper, asker};
use switchback_node::MapHandle;
use switchback_runtime::events::{self, Format};
use switchback_runtime::{Ender, Signals, control, first_document, interface};

use crate::config::Config;
use crate::failure::Failure;
use crate::files::{CLIENT_FILE, CLUSTER_FILE};
use crate::join::{self, Join};

/// Run the switch
///
/// Attaches the XDP program to the interfaces and serves until SIGTERM or SIGINT. SIGHUP and `switchback
/// reload` apply a changed file.
#[derive(Args)]
pub struct Switch {
    /// The cluster.toml, or its place in etcd or Kubernetes: etcd://HOST:2379/PREFIX, kubernetes://NAMESPACE/SECRET
    #[arg(long, value_name = "FILE", default_value = CLUSTER_FILE)]
    config: Config,
    /// Where clients' packets and the nodes' answers come in; may be given more than once
    #[arg(long = "interface", value_name = "IF", required = true)]
    interfaces: Vec<String>,
    /// The zone that this machine is in: nodes of the same zone are preferred
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Which [[switch]] of the file this machine is, if the file has any
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    log: Log,
}

/// The switch's threads.
#[derive(Args)]
struct Threads {
    /// Number of threads that read requests; without, one for each receive queue of the interface, but no more than CPUs
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
}

impl Switch {
    pub fn run(self) -> Result<(), Failure> {
        let Switch { config, interfaces, zone, name, threads, log } = self;
        log.begin();
        let name = name.map(|name| config.node_name(name));
        let first = interfaces.first().map_or("", String::as_str);
        let admin = admin(&[(switchback_switch::ROLE, first)])?;
        let Threads { threads } = threads;
        Ok(switchback_switch::run(switchback_switch::Options {
            config: config.source(switchback_switch::ROLE, None)?,
            interfaces,
            zone,
            name,
            threads,
            admin,
        })?)
    }
}

/// Run the agent of a node
///
/// Attaches the TC programs, adds the VIPs without answering ARP or neighbour discovery for them, and undoes
/// it on SIGTERM or SIGINT, once other nodes have its connections. Programs and VIPs stay for connections that no other
/// node has taken within ten seconds, until the next agent. A second signal ends it at once and breaks them. SIGHUP
/// and `switchback reload` apply a changed file.
#[derive(Args)]
pub struct Node {
    /// The cluster.toml, or its place in etcd or Kubernetes: etcd://HOST:2379/PREFIX, kubernetes://NAMESPACE/SECRET
    #[arg(long, value_name = "FILE", default_value = CLUSTER_FILE)]
    config: Config,
    /// Which [[node]] of the file this machine is; without, the one with an address of the interface
    #[arg(long)]
    name: Option<String>,
    /// Where the switch's packets come in
    #[arg(long, value_name = "IF")]
    interface: String,
    /// Join pools of a configuration in etcd that has no [[node]] of this name: pool=NAME, which may be given more than once, and
    /// if wanted address=IP, weight=N, zone=NAME, server=IP:PORT. Ends with the agent, or ten seconds after its machine has died
    #[arg(long, value_name = "KEY=VALUE")]
    join: Vec<Join>,
    #[command(flatten)]
    log: Log,
}

/// The log on standard error.
#[derive(Args)]
pub struct Log {
    /// The least important events in the log; debug adds events of single connections over TLS
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// The form of the log; without, that of the journal where standard error is the journal, else text
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Time, level and message
    Text,
    /// Level and message as in sd-daemon(3)
    Journal,
    /// A JSON object in each line
    Json,
}

impl Log {
    pub fn begin(&self) {
        let level = match self.log_level {
            LogLevel::Error => log::LevelFilter::Error,
            LogLevel::Warn => log::LevelFilter::Warn,
            LogLevel::Info => log::LevelFilter::Info,
            LogLevel::Debug => log::LevelFilter::Debug,
        };
        let format = match self.log_format {
            Some(LogFormat::Text) => Format::Text,
            Some(LogFormat::Journal) => Format::Journal,
            Some(LogFormat::Json) => Format::Json,
            None => Format::of_stderr(),
        };
        events::begin(level, format);
    }
}

impl Node {
    pub fn run(self) -> Result<(), Failure> {
        let Node { config, name, interface, join, log } = self;
        log.begin();
        let name = name.map(|name| config.node_name(name));
        let joins = match (join::registration(join, &interface)?, &name) {
            (None, _) => None,
            (Some(registration), Some(name)) => Some((name.clone(), registration)),
            (Some(_), None) => return Err(Failure::system("--join needs a name for the node: --name NAME")),
        };
        let config = config.source(switchback_node::ROLE, joins)?;
        let admin = admin(&[(switchback_node::ROLE, &interface)])?;
        Ok(switchback_node::run(switchback_node::Options { config, name, interface, admin })?)
    }
}

/// Run whatever the configuration makes of this machine: a switch, a node, or both
///
/// A machine whose name has a [[switch]] and a [[node]] in the file is both in one process. What its own node gets does not
/// leave the machine. Ends on SIGTERM or SIGINT; SIGHUP and `switchback reload` apply a changed file.
#[derive(Args)]
pub struct Run {
    /// The cluster.toml, or its place in etcd or Kubernetes: etcd://HOST:2379/PREFIX, kubernetes://NAMESPACE/SECRET
    #[arg(long, value_name = "FILE", default_value = CLUSTER_FILE)]
    config: Config,
    /// The name of this machine in the file
    #[arg(long)]
    name: String,
    /// A role that the configuration has to give this machine, or it does not start; may be given more than once
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<Role>,
    /// Where packets of clients, switches and nodes come in; unless told, the interface that has the node's address
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The zone that this machine is in: nodes of the same zone are preferred
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    log: Log,
}

/// What a machine can be.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// It has a [[switch]]
    Switch,
    /// It has a [[node]]
    Node,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let Run { config, zone, threads, roles, .. } = &self;
        self.log.begin();
        let name = &config.node_name(self.name.clone());
        let source = config.source("run", None)?;
        let (_, cluster) = first_document(&*source, |document| Ok(document.cluster()?))?;
        let node = cluster.nodes.iter().find(|node| node.name == *name);
        let is_switch = cluster.switches.iter().any(|switch| switch.name == *name);
        let lacks = match (node.is_some(), is_switch) {
            (false, false) => Some("[[switch]] and no [[node]]"),
            (false, true) => roles.contains(&Role::Node).then_some("[[node]]"),
            (true, false) => roles.contains(&Role::Switch).then_some("[[switch]]"),
            (true, true) => None,
        };
        if let Some(what) = lacks {
            return Err(Failure::invalid(format!("{config} has no {what} with the name {name}")));
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
        let admin = admin(&roles.collect::<Vec<_>>())?;
        let switch = switchback_switch::Options {
            config: Arc::clone(&source),
            interfaces: vec![interface.clone()],
            zone: zone.clone(),
            name: Some(name.clone()),
            threads: threads.threads,
            admin: admin.clone(),
        };
        let agent = switchback_node::Options { config: source, name: Some(name.clone()), interface, admin };
        match (node.is_some(), is_switch) {
            (true, true) => run_both(name.clone(), switch, agent),
            (true, false) => Ok(switchback_node::run(agent)?),
            (false, _) => Ok(switchback_switch::run(switch)?),
        }
    }
}

/// The server of `[admin]` for all roles of this process, each with its interface.
fn admin(roles: &[(&str, &str)]) -> Result<Arc<Keeper>, Failure> {
    let sockets = roles.iter().map(|(role, interface)| control::path_of(role, interface));
    let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
    let with_page = roles.iter().any(|(role, _)| *role == switchback_switch::ROLE);
    Ok(Arc::new(Keeper::new(with_page, asker::over(sockets))))
}

/// What the agent's thread has of the switch's thread.
struct Beside {
    /// Begins the switch, once.
    begin: Cell<Option<Sender<MapHandle>>>,
    ender: Ender,
    ended: Receiver<()>,
}

impl switchback_node::SwitchHere for Beside {
    fn begin(&self, ring: MapHandle) {
        if let Some(begin) = self.begin.take() {
            // The switch's thread may have ended already.
            let _ = begin.send(ring);
        }
    }

    fn end(&self) {
        // A switch that has not begun never does.
        drop(self.begin.take());
        self.ender.end();
        // The switch has ended when its side of the channel is dropped.
        let _ = self.ended.recv();
    }
}

/// Runs both roles. The node starts first and ends last: the switch uses it until its own end. So the signals that end the
/// process are the node's, which hands its connections over while the switch serves, and then ends the switch.
fn run_both(
    name: String,
    switch: switchback_switch::Options,
    agent: switchback_node::Options,
) -> Result<(), Failure> {
    let (signals, ender) = Signals::take_all_but_ends()?;
    let (begin, begun) = channel();
    let (switch_runs, ended) = channel::<()>();
    let beside = Beside { begin: Cell::new(Some(begin)), ender, ended };
    let node = thread::spawn(move || switchback_node::run_beside_switch(agent, beside));
    let switched = match begun.recv() {
        Ok(ring) => {
            let here = switchback_switch::Here { name, ring, signals };
            let switched = switchback_switch::run_beside_node(switch, here);
            // If the switch has failed, the node does not know yet. A thread may always signal its own process.
            let _ = raise(Signal::SIGTERM);
            switched
        }
        // The agent failed before it was ready, and returns the error.
        Err(_) => Ok(()),
    };
    drop(switch_runs);
    let node = node.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(switched.and(node)?)
}

/// Run the shim of a client
///
/// Lets every program on this machine speak to the nodes of a cluster directly once the switch has read its request.
/// Attaches two TC programs and takes them away on SIGTERM or SIGINT. SIGHUP and `switchback reload` apply a changed
/// file.
#[derive(Args)]
pub struct Client {
    /// The client.toml
    #[arg(long, value_name = "FILE", default_value = CLIENT_FILE)]
    config: PathBuf,
    /// Where packets to the services leave
    #[arg(long, value_name = "IF")]
    interface: String,
    #[command(flatten)]
    log: Log,
}

impl Client {
    pub fn run(self) -> Result<(), Failure> {
        let Client { config, interface, log } = self;
        log.begin();
        Ok(switchback_client::run(switchback_client::Options { config, interface })?)
    }
}
