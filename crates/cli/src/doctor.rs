//! `doctor`: the machine's unmet requirements, and remedies.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use switchback_config::Cluster;
use switchback_runtime::{Check, Facts, check_node, check_switch};

use crate::config::Config;
use crate::failure::Failure;
use crate::survey::{self, Row};

/// Tell what this machine lacks to be a switch or a node, and what mends it
///
/// Exit status 2 if something is missing without which Switchback cannot work.
#[derive(Args)]
pub struct Doctor {
    /// The interface in question; without, the one with the default route
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The cluster.toml: its ports are checked, and then the whole cluster, as `switchback test` does
    #[arg(long, value_name = "FILE")]
    config: Option<Config>,
    /// What the machine is to be; without, both are checked
    #[arg(long, value_enum)]
    role: Option<Role>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Switch,
    Node,
}

impl Doctor {
    pub fn run(self) -> Result<(), Failure> {
        let interface = self.interface.or_else(default_interface).unwrap_or_default();
        let facts = Facts::gather(&interface);
        let cluster = self.config.map(|config| config.cluster()).transpose()?;
        let (ports, own_ports) = match &cluster {
            Some(cluster) => (switchback_node::server_ports(cluster), tls_ports(cluster)),
            // Every MPTCP listener counts, and services with TLS may be on their usual ports.
            None => (facts.mptcp_ports.clone().unwrap_or_default(), vec![443]),
        };
        let replays = cluster
            .as_ref()
            .is_none_or(|cluster| cluster.nodes.iter().all(|node| node.adoption.may_replay()));
        let roles = [
            (Role::Switch, "switch", check_switch(&facts)),
            (Role::Node, "node", check_node(&facts, &ports, &own_ports, replays)),
        ];
        let roles = roles.into_iter().filter(|(role, ..)| self.role.is_none_or(|wanted| wanted == *role));
        let mut fatal = false;
        let mut shown = Vec::new();
        for (_, name, checks) in roles {
            fatal |= checks.iter().any(|check| check.as_ref().is_err_and(|finding| finding.fatal));
            if self.json {
                shown.extend(checks.iter().map(|check| as_json(name, check)));
            } else {
                let on = if interface.is_empty() { String::new() } else { format!(" on {interface}") };
                println!("as a {name}{on}:");
                checks.iter().for_each(|check| println!("{}", line(check)));
            }
        }
        let rows = cluster.map(|cluster| survey::survey(&cluster)).unwrap_or_default();
        fatal |= survey::has_failed(&rows);
        if self.json {
            shown.extend(rows.iter().map(Row::json));
            println!("{}", Value::from(shown));
        } else if !rows.is_empty() {
            print!("\n{}", survey::render(&rows));
        }
        if fatal { Err(Failure::silent(Failure::SYSTEM)) } else { Ok(()) }
    }
}

/// Ports at which agents listen, because they end TLS there.
fn tls_ports(cluster: &Cluster) -> Vec<u16> {
    let services = cluster.services.iter().filter(|service| service.tls.terminated().is_some());
    services.flat_map(|service| &service.listen).map(SocketAddr::port).collect()
}

fn line(check: &Check) -> String {
    match check {
        Ok(fine) => format!("  ok       {fine}"),
        Err(finding) => {
            let kind = if finding.fatal { "missing" } else { "warning" };
            format!("  {kind}  {}\n           mend it: {}", finding.what, finding.remedy)
        }
    }
}

fn as_json(role: &str, check: &Check) -> Value {
    match check {
        Ok(fine) => json!({"role": role, "result": "ok", "what": fine}),
        Err(finding) => json!({
            "role": role,
            "result": if finding.fatal { "missing" } else { "warning" },
            "what": finding.what,
            "remedy": finding.remedy,
        }),
    }
}

/// The interface of the IPv4 default route in the kernel's table.
fn default_interface() -> Option<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/route").ok()?;
    find_default(&table)
}

/// Parses the routing table. Columns: interface, destination, gateway and others; numbers in hexadecimal.
fn find_default(table: &str) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let interface = words.next()?;
        (words.next()? == "00000000").then(|| interface.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_route_is_the_one_to_zero() {
        let table = "Iface\tDestination\tGateway\neth1\t000200C0\t00000000\neth0\t00000000\t010200C0\n";
        assert_eq!(find_default(table).as_deref(), Some("eth0"));
        assert_eq!(find_default("Iface\tDestination\n"), None);
    }
}
