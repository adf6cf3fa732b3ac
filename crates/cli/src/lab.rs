//! `lab`: clusters in network namespaces.

#[cfg(feature = "experiments")]
mod run;

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};
use switchback_lab::{Builder, Cluster, Doing, LabInfo, Role, Routing, ServerKind, ServerOptions, Topology};

use crate::demo::Demo;
use crate::failure::Failure;
use crate::table::{Align, Table};

/// Clusters in network namespaces on this machine
#[derive(Subcommand)]
pub enum Lab {
    Up(Up),
    Exec(Exec),
    Down(Down),
    List(List),
    Demo(Demo),
    #[cfg(feature = "experiments")]
    #[command(subcommand)]
    Run(run::Run),
    #[cfg(not(feature = "experiments"))]
    Run(Run),
}

impl Lab {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Lab::Up(command) => command.run(),
            Lab::Exec(command) => command.run(),
            Lab::Down(command) => command.run(),
            Lab::List(command) => command.run(),
            Lab::Demo(command) => command.run(),
            Lab::Run(command) => command.run(),
        }
    }
}

/// Make a lab, measure, remove it (not in this build)
///
/// The experiments are in builds with the cargo feature `experiments`, as `cargo build` makes them, not in releases.
#[cfg(not(feature = "experiments"))]
#[derive(Args)]
pub struct Run {
    /// The experiment and its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    experiment: Vec<OsString>,
}

#[cfg(not(feature = "experiments"))]
impl Run {
    fn run(self) -> Result<(), Failure> {
        let words: Vec<_> = self.experiment.iter().map(|word| word.to_string_lossy()).collect();
        Err(Failure::system(format!(
            "this program was built without the experiments; in the tree of its sources: \
             cargo run --release --package switchback-cli -- lab run {}",
            words.join(" ")
        )))
    }
}

/// Make a lab that stays until `lab down`
///
/// Writes a cluster.toml of one pool with all nodes, and says how to start the switches and the node agents.
#[derive(Args)]
pub struct Up {
    /// Number of clients
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Number of nodes
    #[arg(long, default_value_t = 2)]
    nodes: usize,
    /// Number of switches
    #[arg(long, default_value_t = 1)]
    switches: usize,
    /// How the hosts are connected; without, flat, or routed with --router
    #[arg(long, value_enum)]
    topology: Option<TopologyName>,
    /// What tells the router which switches serve; without, it sends everything to the first one
    #[arg(long, value_enum)]
    router: Option<RouterName>,
    /// A server to start on every node; at / it has a page that names the node
    #[arg(long, value_enum)]
    server: Option<ServerName>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TopologyName {
    /// All hosts on one bridge
    Flat,
    /// Clients, switch and nodes in subnets of their own, with a router between
    Routed,
    /// Likewise, and the switch has a second interface in the nodes' subnet
    TwoArmed,
}

#[derive(Clone, Copy, ValueEnum)]
enum RouterName {
    /// BIRD on the router and on each switch (BGP with BFD): flows spread over all switches that are ready
    Bird,
}

#[derive(Clone, Copy, ValueEnum)]
enum ServerName {
    Nginx,
    Apache,
    Caddy,
}

impl Up {
    fn run(self) -> Result<(), Failure> {
        let (routing, usual) = match self.router {
            None => (Routing::Static, TopologyName::Flat),
            Some(RouterName::Bird) => (Routing::Bird, TopologyName::Routed),
        };
        let topology = match self.topology.unwrap_or(usual) {
            TopologyName::Flat => Topology::Flat,
            TopologyName::Routed => Topology::Routed,
            TopologyName::TwoArmed => Topology::TwoArmed,
        };
        let server = self.server.map(|server| match server {
            ServerName::Nginx => ServerKind::Nginx,
            ServerName::Apache => ServerKind::Apache,
            ServerName::Caddy => ServerKind::Caddy,
        });
        let lab = Builder::default().topology(topology).routing(routing);
        let lab = lab.clients(self.clients).switches(self.switches).nodes(self.nodes).up()?;
        if let Some(kind) = server {
            lab.nodes().try_for_each(|node| node.server(kind, &ServerOptions::default()).map(drop))?;
        }
        let several = self.switches > 1;
        let extra = if several { "\n{switches}" } else { "" }.to_owned();
        let config = lab.write_config(&Cluster { extra, ..Cluster::with_policy("round-robin") })?;
        if routing == Routing::Bird {
            let program = std::env::current_exe().doing(|| "find this program".to_owned())?;
            lab.switches().try_for_each(|switch| switch.announce_when_ready(&program).map(drop))?;
        }
        let daemons: Vec<String> = lab
            .hosts()
            .iter()
            .filter_map(|host| match host.role() {
                Role::Switch if several => Some((host.name(), format!("switch --name {}", host.name()))),
                Role::Switch => Some((host.name(), "switch".to_owned())),
                Role::Node => Some((host.name(), format!("node --name {}", host.name()))),
                _ => None,
            })
            .map(|(host, role)| {
                let config = config.display();
                format!("switchback lab exec {host} switchback {role} --interface eth0 --config {config}")
            })
            .collect();
        print_lab(&lab.persist()?);
        let switches = if several { "switches" } else { "switch" };
        println!("To start the {switches} and the node agents, each in a terminal of its own:");
        daemons.iter().for_each(|line| println!("  {line}"));
        Ok(())
    }
}

/// Run a command on a host of a lab
#[derive(Args)]
pub struct Exec {
    /// Which lab; not needed if there is only one
    #[arg(long, value_name = "ID")]
    lab: Option<String>,
    /// The host, such as client0, switch0, node1
    host: String,
    /// The command and its arguments; without, a shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Exec {
    fn run(self) -> Result<(), Failure> {
        let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
        let words = if self.command.is_empty() { shell() } else { self.command };
        match switchback_lab::exec(self.lab.as_deref(), &self.host, &words)? {}
    }
}

/// Remove a lab and end what runs in it
#[derive(Args)]
pub struct Down {
    /// Which lab; not needed if there is only one
    id: Option<String>,
}

impl Down {
    fn run(self) -> Result<(), Failure> {
        let lab = switchback_lab::down(self.id.as_deref())?;
        println!("lab {} is gone", lab.id);
        Ok(())
    }
}

/// Show the labs of this machine
#[derive(Args)]
pub struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let labs = switchback_lab::list()?;
        if self.json {
            let labs: Vec<serde_json::Value> = labs.iter().map(as_json).collect();
            println!("{}", serde_json::Value::from(labs));
        } else {
            labs.iter().for_each(print_lab);
        }
        Ok(())
    }
}

fn as_json(lab: &LabInfo) -> serde_json::Value {
    let host = |host: &switchback_lab::HostInfo| {
        serde_json::json!({
            "name": host.name,
            "namespace": host.namespace,
            "ipv4": host.ipv4.to_string(),
            "ipv6": host.ipv6.to_string(),
        })
    };
    serde_json::json!({
        "id": lab.id,
        "persistent": lab.persistent,
        "directory": lab.directory.display().to_string(),
        "vip4": lab.vip4.to_string(),
        "vip6": lab.vip6.to_string(),
        "hosts": lab.hosts.iter().map(host).collect::<Vec<_>>(),
    })
}

fn print_lab(lab: &LabInfo) {
    println!("lab {}, VIPs {} and {}, files in {}", lab.id, lab.vip4, lab.vip6, lab.directory.display());
    let columns = ["HOST", "IPV4", "IPV6", "NAMESPACE"].map(|title| (title, Align::Left));
    let mut table = Table::new(&columns);
    for host in &lab.hosts {
        table.row([host.name.clone(), host.ipv4.to_string(), host.ipv6.to_string(), host.namespace.clone()]);
    }
    print!("{}", table.render(2));
}
