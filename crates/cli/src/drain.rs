//! `drain` and `undrain`: a node is drained, or this machine's switch withdrawn, and returned to service.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use jiff::SignedDuration;
use switchback_access_log::escape::printable;
use switchback_runtime::control::{ControlClient, Request, Response};
use switchback_runtime::marks;
use switchback_status::Status;

use crate::config::Config;
use crate::control::Target;
use crate::explain;
use crate::failure::Failure;
use crate::files::CLUSTER_FILE;

/// Interval between polls of the node.
const LOOK: Duration = Duration::from_millis(50);
/// Time after which a node's answers cannot date from before the request or its arrival.
const SETTLED: Duration = Duration::from_millis(150);
/// Timeout of a process's answer.
const ASKED: Duration = Duration::from_secs(10);
/// Interval between lines of progress without a terminal.
const LINE: Duration = Duration::from_secs(1);

/// Let a node become idle
///
/// It gets no new requests. Requests that it has are finished; connections without one move to other nodes,
/// and their clients notice nothing. Waits until the node has no connection left, and shows how many there
/// are. Holds until `undrain` or the next boot of the node. On a machine with a switch the node can be any; on a node
/// it is that one.
///
/// With --self, this machine's switch is withdrawn instead: it serves as before, but `ready` ends with status 1, so that
/// whoever asks it sends clients' packets to another switch. That lasts until `undrain --self` or the next boot.
#[derive(Args)]
pub struct Drain {
    /// The node's name in cluster.toml
    // A host to clap: shells' completions ask `NodeNames` instead.
    #[arg(required_unless_present = "own_switch", value_hint = ValueHint::Hostname)]
    node: Option<String>,
    /// Withdraw the switch on this machine
    #[arg(long = "self", conflicts_with_all = ["node", "no_wait", "timeout", "socket"])]
    own_switch: bool,
    /// Do not wait
    #[arg(long)]
    no_wait: bool,
    /// Stop waiting after so long, such as 30s or 5min; the node goes on draining
    #[arg(long, value_name = "TIME", default_value = "10min")]
    timeout: SignedDuration,
    #[command(flatten)]
    target: Target,
}

/// Take a drained node, or with --self this machine's switch, into service again
#[derive(Args)]
pub struct Undrain {
    /// The node's name in cluster.toml
    // A host to clap: shells' completions ask `NodeNames` instead.
    #[arg(required_unless_present = "own_switch", value_hint = ValueHint::Hostname)]
    node: Option<String>,
    /// The switch on this machine, which `drain --self` has withdrawn
    #[arg(long = "self", conflicts_with_all = ["node", "socket"])]
    own_switch: bool,
    #[command(flatten)]
    target: Target,
}

/// Print the names that `drain` takes, for the completions of shells
///
/// Those that the processes of this network namespace know; if none runs, those of /etc/switchback/cluster.toml.
#[derive(Args)]
#[command(hide = true)]
pub struct NodeNames {}

impl NodeNames {
    pub fn run(self) -> Result<(), Failure> {
        let sockets = Target { socket: None }.sockets().unwrap_or_default();
        let mut names: Vec<String> = if sockets.is_empty() {
            explain::load(&Config::File(CLUSTER_FILE.into()))?
                .nodes
                .into_iter()
                .map(|node| node.name)
                .collect()
        } else {
            sockets.iter().filter_map(|socket| Status::ask(socket, ASKED).ok()).flat_map(names_in).collect()
        };
        names.sort();
        names.dedup();
        names.iter().for_each(|name| println!("{name}"));
        Ok(())
    }
}

fn names_in(status: Status) -> Vec<String> {
    match status {
        Status::Switch(status) => status.nodes.into_iter().map(|node| node.name).collect(),
        Status::Node(status) => status.nodes.into_iter().map(|node| node.name).collect(),
        Status::Client(_) => Vec::new(),
    }
}

impl Drain {
    pub fn run(self) -> Result<(), Failure> {
        let Some(node) = &self.node else { return withdraw(true) };
        let timeout = Duration::try_from(self.timeout)
            .map_err(|_| Failure::system(format!("--timeout {:#} is negative", self.timeout)))?;
        let start = Instant::now();
        let sockets = ask(&self.target, node, true)?;
        if self.no_wait {
            return Ok(());
        }
        let mut progress = Progress::new();
        loop {
            let left = left(&sockets, node)?;
            match left {
                Some(left) if left.is_free() && start.elapsed() >= SETTLED => {
                    progress.end();
                    println!("node {node}: free after {:.1} s", start.elapsed().as_secs_f64());
                    return Ok(());
                }
                left => progress.show(node, left),
            }
            if start.elapsed() >= timeout {
                progress.end();
                return Err(Failure::system(match left {
                    Some(left) => format!("node {node} still has {left}; it goes on draining"),
                    None => format!(
                        "node {node} does not say how many connections it has; is its agent running? It goes on draining"
                    ),
                }));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Undrain {
    pub fn run(self) -> Result<(), Failure> {
        let Some(node) = &self.node else { return withdraw(false) };
        ask(&self.target, node, false).map(drop)
    }
}

/// Withdraws the switch of this network namespace, or ends that.
fn withdraw(on: bool) -> Result<(), Failure> {
    let changed = marks::set_withdrawn(on)?;
    println!(
        "{}",
        match (on, changed) {
            (true, true) =>
                "withdrawn: `switchback ready` ends with status 1 until `switchback undrain --self`",
            (true, false) => "withdrawn already",
            (false, true) => "withdrawn no more",
            (false, false) => "not withdrawn",
        }
    );
    Ok(())
}

/// Asks every process, and returns the sockets of those concerned; the others refuse.
fn ask(target: &Target, node: &str, on: bool) -> Result<Vec<PathBuf>, Failure> {
    let request = Request::Drain { node: node.to_owned(), on };
    let (mut concerned, mut refusals) = (Vec::new(), Vec::new());
    for socket in target.sockets()? {
        match ControlClient::call(&socket, &request)? {
            Response::Done { lines } => {
                lines.iter().for_each(|line| println!("{}", printable(line)));
                concerned.push(socket);
            }
            Response::Failed { message } => refusals.push(message),
            Response::Status(_) => {
                return Err(Failure::system("the process answered something else than was asked"));
            }
        }
    }
    if concerned.is_empty() { Err(Failure::invalid(refusals.join("\n"))) } else { Ok(concerned) }
}

/// The node's remaining work.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    flows: u64,
    in_flight: u64,
}

impl Left {
    fn is_free(self) -> bool {
        self.flows == 0
    }
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let Left { flows, in_flight } = self;
        write!(f, "{flows} connection{}, {in_flight} request{} in flight", plural(*flows), plural(*in_flight))
    }
}

/// The greatest number of any process; None if one of them does not know its own.
fn left(sockets: &[PathBuf], node: &str) -> Result<Option<Left>, Failure> {
    let mut most = Left { flows: 0, in_flight: 0 };
    for socket in sockets {
        let Some(left) = left_of(&Status::ask(socket, ASKED)?, node) else { return Ok(None) };
        most = Left { flows: most.flows.max(left.flows), in_flight: most.in_flight.max(left.in_flight) };
    }
    Ok(Some(most))
}

fn left_of(status: &Status, node: &str) -> Option<Left> {
    match status {
        Status::Node(status) => {
            let own = status.nodes.iter().find(|own| own.name == node)?;
            Some(Left { flows: own.flows.into(), in_flight: own.in_flight.into() })
        }
        Status::Switch(status) => {
            let known = status.nodes.iter().find(|known| known.name == node && !known.silent)?;
            let load = known.load?;
            Some(Left { flows: load.flows.into(), in_flight: load.in_flight.into() })
        }
        Status::Client(_) => None,
    }
}

/// Progress, on one line of a terminal, or on a line each second.
struct Progress {
    terminal: bool,
    shown: Option<(Instant, Option<Left>)>,
}

impl Progress {
    fn new() -> Self {
        Progress { terminal: std::io::stdout().is_terminal(), shown: None }
    }

    fn show(&mut self, node: &str, left: Option<Left>) {
        let is_due =
            self.shown.is_none_or(|(at, before)| before != left && (self.terminal || at.elapsed() >= LINE));
        if !is_due {
            return;
        }
        self.shown = Some((Instant::now(), left));
        let text = left.map_or("waiting for its report".to_owned(), |left| left.to_string());
        if self.terminal {
            print!("\r\x1b[Knode {node}: {text}");
            // A failure to show progress is no reason to stop.
            let _ = std::io::stdout().flush();
        } else {
            println!("node {node}: {text}");
        }
    }

    fn end(&self) {
        if self.terminal && self.shown.is_some() {
            print!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_is_what_the_node_says() {
        let load = json!({"flows": 3, "in_flight": 1});
        let switch = json!({"role": "switch", "nodes": [
            {"name": "n1", "silent": false, "load": load},
            {"name": "n2", "silent": true, "load": load},
            {"name": "n3", "silent": false, "load": null},
        ]});
        let [switch, node] =
            [switch, json!({"role": "node", "nodes": [{"name": "n1"}, {"name": "n2", "flows": 1}]})]
                .map(|said| Status::read(said).unwrap());
        let shown = |status: &Status, node: &str| left_of(status, node).map(|left| left.to_string());
        assert_eq!(shown(&switch, "n1").as_deref(), Some("3 connections, 1 request in flight"));
        assert!(["n2", "n3", "n4"].iter().all(|node| left_of(&switch, node).is_none()));
        assert!(left_of(&node, "n1").is_some_and(Left::is_free));
        assert_eq!(shown(&node, "n2").as_deref(), Some("1 connection, 0 requests in flight"));
        assert!(left_of(&node, "n3").is_none());
    }
}
