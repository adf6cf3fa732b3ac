//! What a machine says of itself.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use switchback_runtime::control::{Instance, find_sockets};
use switchback_runtime::{Check, Facts, check_node, check_switch};
use switchback_status::Status;
use switchback_status::node::{ListenerStatus, NodeStatus};

/// Time that a daemon on the machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time that a server may take to answer, and all of them together.
const SERVER_PATIENCE: Duration = Duration::from_secs(1);
const ALL_SERVERS: Duration = Duration::from_secs(3);

/// A machine, as its daemons and its kernel are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Version of the program.
    pub version: String,
    /// For each daemon its role and the first eight digits of its configuration's SHA-256.
    pub configs: Vec<(String, String)>,
    /// Switches that the node hears.
    pub switches: Vec<IpAddr>,
    /// Servers on the node.
    pub servers: Vec<Server>,
    /// What the machine lacks.
    pub flaws: Vec<Flaw>,
}

/// A server on a node, for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Name of the pool.
    pub pool: String,
    /// The VIP.
    pub address: Option<SocketAddr>,
    /// What keeps requests from it, in words; None if it may get some.
    pub ill: Option<String>,
    /// Whether it answers a request, if that was tried.
    pub answers: Option<bool>,
}

/// A defect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flaw {
    /// The defect and its effect.
    pub what: String,
    /// What removes it.
    pub remedy: String,
    /// Whether Switchback cannot work with it.
    pub fatal: bool,
}

impl Machine {
    /// Asks this machine's daemons and kernel, and its servers for a response.
    pub fn here() -> Machine {
        let mut machine = Machine { version: env!("CARGO_PKG_VERSION").to_owned(), ..Machine::default() };
        for (instance, status) in daemons() {
            let facts = Facts { capabilities: u64::MAX, ..Facts::gather(&instance.interface) };
            let config = match &status {
                Status::Switch(status) => {
                    machine.add_flaws(check_switch(&facts));
                    status.config.clone()
                }
                Status::Node(status) => {
                    machine.add_flaws(check_node(&facts, &ports(status), &[], status.replays));
                    machine.switches.clone_from(&status.switches);
                    machine.servers = servers(&status.listeners);
                    status.config.clone()
                }
                Status::Client(_) => continue,
            };
            machine.configs.push((instance.role, config));
        }
        machine
    }

    fn add_flaws(&mut self, checks: Vec<Check>) {
        let findings = checks.into_iter().filter_map(Result::err);
        let flaws = findings.map(|found| Flaw { what: found.what, remedy: found.remedy, fatal: found.fatal });
        for flaw in flaws {
            if !self.flaws.contains(&flaw) {
                self.flaws.push(flaw);
            }
        }
    }
}

/// The daemons of this machine that answer.
fn daemons() -> Vec<(Instance, Status)> {
    let instances = find_sockets().unwrap_or_default().into_iter();
    instances
        .filter_map(|instance| Status::ask(&instance.path, PATIENCE).ok().map(|status| (instance, status)))
        .collect()
}

/// VIPs and ports of the node on this machine.
pub(crate) fn vips() -> Vec<SocketAddr> {
    let listeners = daemons().into_iter().flat_map(|(_, status)| match status {
        Status::Node(status) => status.listeners,
        _ => Vec::new(),
    });
    let vips: BTreeSet<SocketAddr> = listeners.filter_map(|listener| listener.address).collect();
    vips.into_iter().collect()
}

fn ports(status: &NodeStatus) -> Vec<u16> {
    status.listeners.iter().filter_map(|listener| Some(listener.address?.port())).collect()
}

fn servers(listeners: &[ListenerStatus]) -> Vec<Server> {
    let until = Instant::now() + ALL_SERVERS;
    let server = |listener: &ListenerStatus| {
        let left = until.saturating_duration_since(Instant::now()).min(SERVER_PATIENCE);
        let is_tried = listener.queue_len.is_some() && !left.is_zero();
        Server {
            pool: listener.pool.clone(),
            address: listener.address,
            ill: (!listener.is_ready()).then(|| listener.state.to_string()),
            answers: listener.address.filter(|_| is_tried).map(|address| answers(address, left)),
        }
    };
    listeners.iter().map(server).collect()
}

/// Whether a server sends anything for a request within `patience`. One with TLS sends an alert.
fn answers(address: SocketAddr, patience: Duration) -> bool {
    let request = format!(
        "HEAD / HTTP/1.1\r\nHost: {}\r\nUser-Agent: switchback-test\r\nConnection: close\r\n\r\n",
        address.ip()
    );
    let try_it = || {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(request.as_bytes())?;
        loop {
            match stream.read(&mut [0; 64]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    };
    try_it().is_ok_and(|len| len > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_server_that_says_nothing_does_not_answer() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!answers(silent.local_addr().unwrap(), Duration::from_millis(100)));
        let speaking = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = speaking.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = speaking.accept().unwrap();
            let len = stream.read(&mut [0; 512]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            len
        });
        assert!(answers(address, Duration::from_secs(5)));
        assert!(server.join().unwrap() > 0);
    }
}
