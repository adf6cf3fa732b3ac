//! `switch` and `node`: the two processes that run until SIGTERM.

use std::path::PathBuf;

use clap::Args;

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
}

impl Switch {
    pub fn run(self) -> Result<(), Failure> {
        let Switch { config, interfaces, zone } = self;
        Ok(switchback_switch::run(switchback_switch::Options { config, interfaces, zone })?)
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
}

impl Node {
    pub fn run(self) -> Result<(), Failure> {
        let Node { config, name, interface } = self;
        Ok(switchback_node::run(switchback_node::Options { config, name, interface })?)
    }
}
