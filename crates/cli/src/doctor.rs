//! `doctor`: the machine's unmet requirements, and remedies.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use switchback_runtime::{Check, Facts, check_node, check_switch};

use crate::failure::Failure;

/// Tell what this machine lacks to be a switch or a node, and what mends it
///
/// Exit status 2 if something is missing without which Switchback cannot work.
#[derive(Args)]
pub struct Doctor {
    /// The interface in question; without, the one with the default route
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
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
        let interface = self
            .interface
            .or_else(default_interface)
            .ok_or_else(|| Failure::system("no interface has a default route; name one with --interface"))?;
        let facts = Facts::gather(&interface);
        // The services are not known without a file, so every MPTCP listener counts, and services with TLS may be on
        // their usual ports.
        let ports = facts.mptcp_ports.clone().unwrap_or_default();
        let roles = [
            (Role::Switch, "switch", check_switch(&facts)),
            (Role::Node, "node", check_node(&facts, &ports, &[443])),
        ];
        let roles = roles.into_iter().filter(|(role, ..)| self.role.is_none_or(|wanted| wanted == *role));
        let mut fatal = false;
        let mut shown = Vec::new();
        for (_, name, checks) in roles {
            fatal |= checks.iter().any(|check| check.as_ref().is_err_and(|finding| finding.fatal));
            if self.json {
                shown.extend(checks.iter().map(|check| as_json(name, check)));
            } else {
                println!("as a {name} on {interface}:");
                checks.iter().for_each(|check| println!("{}", line(check)));
            }
        }
        if self.json {
            println!("{}", Value::from(shown));
        }
        if fatal { Err(Failure::silent(Failure::SYSTEM)) } else { Ok(()) }
    }
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
