//! `ready`: whether this machine's switch can take clients' packets, as an exit status.
//!
//! What asks is a script that decides for one of several switches: whether BIRD announces the VIPs here, or which
//! machine is VRRP's master. So only what another switch may do better counts: the process, its program, its way to the
//! nodes. A pool whose servers are all down or draining is down for every switch; if each gave up its VIPs for that,
//! clients would get no answer instead of 503. `/readyz` counts it, too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use switchback_runtime::control::find_sockets;
use switchback_runtime::marks;
use switchback_status::Status;
use switchback_status::switch::{NodeView, ServiceStatus, SwitchStatus};

use crate::failure::Failure;

/// Time that the switch may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tell by the exit status whether the switch on this machine is ready
///
/// For scripts that decide which of several switches gets the clients' packets. Exit status 0: the switch answers
/// within a second and is not ending, its program is attached, it hears from at least one node of every service and has
/// the nodes' flows, and is not withdrawn (`drain --self`). Otherwise 1, and a line says what is missing and what mends
/// it.
#[derive(Args)]
pub struct Ready {
    /// The switch's socket; without, that of the switch in this network namespace
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Ready {
    pub fn run(self) -> Result<(), Failure> {
        if marks::is_withdrawn().map_err(Failure::not_ready)? {
            return Err(Failure::not_ready(
                "withdrawn; take it into service again: switchback undrain --self",
            ));
        }
        let sockets = match self.socket {
            Some(path) => vec![path],
            None => {
                let instances = find_sockets().map_err(Failure::not_ready)?.into_iter();
                let switches = instances.filter(|instance| instance.role == switchback_switch::ROLE);
                switches.map(|switch| switch.path).collect()
            }
        };
        if sockets.is_empty() {
            return Err(Failure::not_ready(
                "no switch runs in this network namespace; start it: systemctl start switchback-switch",
            ));
        }
        sockets.iter().try_for_each(|socket| ask(socket))?;
        println!("ready");
        Ok(())
    }
}

fn ask(socket: &Path) -> Result<(), Failure> {
    let status = Status::ask(socket, PATIENCE).map_err(|error| {
        Failure::not_ready(format!("{error}; restart the switch: systemctl restart switchback-switch"))
    })?;
    match status {
        Status::Switch(status) => missing(&status).map_or(Ok(()), |what| Err(Failure::not_ready(what))),
        _ => Err(Failure::not_ready(format!("{} is not a switch's socket; name that", socket.display()))),
    }
}

/// What the switch lacks, with the remedy.
fn missing(status: &SwitchStatus) -> Option<String> {
    if status.leaving {
        return Some("the switch is ending".to_owned());
    }
    if status.interfaces.is_empty() {
        return Some(
            "the switch is attached to no interface; restart it: systemctl restart switchback-switch"
                .to_owned(),
        );
    }
    if status.services.is_empty() {
        return Some("the switch has no service; add one to cluster.toml: switchback reload".to_owned());
    }
    if status.learning {
        return Some(
            "the switch has just started, and nodes are telling it their flows; wait a moment".to_owned(),
        );
    }
    status.services.iter().find_map(|service| {
        let mut nodes = status.nodes.iter().filter(|node| serves(node, service)).peekable();
        // A service that redirects everything has no nodes.
        nodes.peek()?;
        let states: Option<Vec<String>> = nodes.map(unheard).collect();
        states.map(|states| {
            format!(
                "service {}: no node is heard ({}); start their agents, or let UDP port 6081 pass in both directions",
                service.name,
                states.join(", ")
            )
        })
    })
}

fn serves(node: &NodeView, service: &ServiceStatus) -> bool {
    let answering = node.listeners.iter().filter(|listener| !listener.mirrors);
    let mut vips = answering.filter_map(|listener| listener.listen);
    vips.any(|vip| service.listen.contains(&vip))
}

/// The node's name and why nothing is heard of it; None if something is.
fn unheard(node: &NodeView) -> Option<String> {
    match node.load {
        None => Some(format!("{} has not reported", node.name)),
        Some(_) if node.silent => Some(format!("{} silent", node.name)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use switchback_status::switch::{InterfaceStatus, ListenerView, LoadStatus};

    use super::*;

    const SHOP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)), 80);
    const BLOG: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 101)), 80);

    fn node(name: &str, vips: &[SocketAddr]) -> NodeView {
        let listener = |vip: &SocketAddr| ListenerView {
            listen: Some(*vip),
            state: "no listener".to_owned(),
            ..ListenerView::default()
        };
        NodeView {
            name: name.to_owned(),
            load: Some(LoadStatus::default()),
            listeners: vips.iter().map(listener).collect(),
            ..NodeView::default()
        }
    }

    fn service(name: &str, vip: SocketAddr) -> ServiceStatus {
        ServiceStatus { name: name.to_owned(), listen: vec![vip], ..ServiceStatus::default() }
    }

    fn switch() -> SwitchStatus {
        SwitchStatus {
            interfaces: vec![InterfaceStatus::default()],
            services: vec![service("shop", SHOP), service("blog", BLOG)],
            nodes: vec![node("n1", &[SHOP]), node("n2", &[SHOP, BLOG]), node("n3", &[BLOG])],
            ..SwitchStatus::default()
        }
    }

    #[test]
    fn one_node_of_each_service_is_enough_in_whatever_state() {
        let mut status = switch();
        status.nodes[0].silent = true;
        status.nodes[1].draining = true;
        status.nodes[2].load = None;
        assert_eq!(missing(&status), None);
    }

    #[test]
    fn a_service_without_a_voice_is_named_with_its_nodes() {
        let mut status = switch();
        status.nodes[1].silent = true;
        status.nodes[2].load = None;
        let what = missing(&status).expect("nobody speaks for the blog");
        assert!(
            what.starts_with("service blog: no node is heard (n2 silent, n3 has not reported); "),
            "{what}"
        );
    }

    #[test]
    fn a_node_that_gets_copies_speaks_for_nobody() {
        let mut status = switch();
        status.nodes[1].silent = true;
        status.nodes[2].listeners[0].mirrors = true;
        assert!(missing(&status).is_some_and(|what| what.contains("(n2 silent)")));
    }

    #[test]
    fn redirects_need_no_node() {
        let mut status = switch();
        status.nodes.truncate(1);
        assert_eq!(missing(&status), None);
    }

    #[test]
    fn without_program_or_services_nothing_is_ready() {
        let detached = SwitchStatus { interfaces: Vec::new(), ..switch() };
        assert!(missing(&detached).is_some_and(|what| what.contains("attached to no interface")));
        let empty = SwitchStatus { services: Vec::new(), ..switch() };
        assert!(missing(&empty).is_some_and(|what| what.contains("no service")));
        let leaving = SwitchStatus { leaving: true, ..switch() };
        assert!(missing(&leaving).is_some_and(|what| what.contains("ending")));
        let learning = SwitchStatus { learning: true, ..switch() };
        assert!(missing(&learning).is_some_and(|what| what.contains("just started")));
    }
}
