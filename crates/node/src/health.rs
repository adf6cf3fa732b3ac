//! Health checks of the machine's own servers, at the VIPs, which are addresses of `lo`.
//!
//! Each check has its own thread, which sleeps most of the time, so that a server that does not answer delays no other
//! check. The first result counts at once; later the state changes after a configured number of opposite results in a
//! row. Before the first result the state is unknown, and nothing is reported.

mod http2;

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use switchback_config::{Check, Cluster, Health as Settings, ServerProtocol};
use switchback_runtime::{Doing, Result};
use switchback_status::node::HealthStatus;

use crate::plan::{Plan, PoolListener};

const USER_AGENT: &str = "switchback-health";

/// Health of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Before the first check has finished.
    Unknown,
    Up,
    Down,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Unknown => "not checked yet",
            Health::Up => "up",
            Health::Down => "down",
        })
    }
}

/// Results of a server's checks.
#[derive(Clone, Debug)]
struct History {
    health: Health,
    since: Instant,
    /// Number of last results in a row that contradict `health`.
    against: u32,
    /// Error of the last failed check.
    error: Option<String>,
}

impl History {
    fn new(now: Instant) -> History {
        History { health: Health::Unknown, since: now, against: 0, error: None }
    }

    /// Adds a result; true if `health` changes.
    fn add(&mut self, settings: &Settings, outcome: std::result::Result<(), String>, now: Instant) -> bool {
        let found = if outcome.is_ok() { Health::Up } else { Health::Down };
        self.error = outcome.err().or(self.error.take());
        if found == self.health {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let enough = match self.health {
            Health::Unknown => 1,
            Health::Up => settings.fall,
            Health::Down => settings.rise,
        };
        if self.against < enough {
            return false;
        }
        *self = History { health: found, since: now, against: 0, error: self.error.take() };
        true
    }
}

/// A configured health check.
#[derive(Clone, Debug)]
pub(crate) struct CheckSpec {
    pub(crate) listener: PoolListener,
    /// Address to check: the listener itself, or the server behind TLS termination.
    pub(crate) server: SocketAddr,
    /// What the server speaks.
    pub(crate) protocol: ServerProtocol,
    pub(crate) settings: Settings,
}

impl Plan {
    /// Health checks of these nodes.
    pub(crate) fn checks(&self) -> Vec<CheckSpec> {
        let check = |listener: &PoolListener| {
            let needed = || self.needs_check(listener).then(Settings::default);
            let pool = &self.cluster.pools[listener.pool];
            let (protocol, settings) = (pool.protocol, pool.health.clone().or_else(needed)?);
            Some(CheckSpec {
                listener: listener.clone(),
                server: self.server_of(listener)?,
                protocol,
                settings,
            })
        };
        self.listeners.iter().filter_map(check).collect()
    }
}

struct RunningCheck {
    listener: PoolListener,
    /// Address to check.
    server: SocketAddr,
    protocol: ServerProtocol,
    settings: Settings,
    history: Arc<Mutex<History>>,
    /// Dropping it ends the thread after its present check.
    _stop: mpsc::Sender<()>,
}

impl RunningCheck {
    fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }
}

/// Locks the history; a panic of the thread cannot leave it inconsistent.
fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All health checks of this machine.
pub(crate) struct Checks {
    running: Vec<RunningCheck>,
    changed: Arc<EventFd>,
}

impl Checks {
    pub(crate) fn new() -> Result<Checks> {
        let changed = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        Ok(Checks { running: Vec::new(), changed: Arc::new(changed.doing(|| "make an event counter")?) })
    }

    /// Replaces the checks. The state of a server is kept if it is still checked.
    pub(crate) fn set(&mut self, wanted: Vec<CheckSpec>) -> Result<()> {
        let mut old = std::mem::take(&mut self.running);
        for CheckSpec { listener, server, protocol, settings } in wanted {
            // The pool's index may have changed and its name is not known here, so everything else is compared.
            let same = |running: &RunningCheck| {
                running.listener.address == listener.address
                    && (running.server, running.protocol) == (server, protocol)
                    && running.settings.check == settings.check
            };
            let before = old.iter().position(same).map(|index| old.swap_remove(index));
            let running = match before {
                Some(running) if running.settings == settings => RunningCheck { listener, ..running },
                Some(running) => {
                    let history = running.history().clone();
                    start(listener, (server, protocol), settings, history, &self.changed)?
                }
                None => {
                    let history = History::new(Instant::now());
                    start(listener, (server, protocol), settings, history, &self.changed)?
                }
            };
            self.running.push(running);
        }
        Ok(())
    }

    /// Whether a server has come up or gone down since the last call.
    pub(crate) fn have_changed(&self) -> bool {
        self.changed.read().is_ok()
    }

    /// Health of a pool's server; None if it is not checked.
    pub(crate) fn of(&self, listener: &PoolListener) -> Option<Health> {
        let running = self.running.iter().find(|running| running.listener == *listener)?;
        Some(running.history().health)
    }

    /// Whether the server of a node in a pool is down for one of these VIPs.
    pub(crate) fn are_down(&self, node: usize, pool: usize, vips: &[SocketAddr]) -> bool {
        self.running.iter().any(|RunningCheck { listener, history, .. }| {
            (listener.node, listener.pool) == (node, pool)
                && vips.contains(&listener.address)
                && lock(history).health == Health::Down
        })
    }

    /// The last error of a listener's check, if it is down.
    pub(crate) fn last_error(&self, listener: &PoolListener) -> Option<String> {
        let history = self.running.iter().find(|running| running.listener == *listener)?.history();
        history.error.clone().filter(|_| history.health == Health::Down)
    }

    /// All checks for the status.
    pub(crate) fn status(&self, cluster: &Cluster) -> Vec<HealthStatus> {
        let one = |running: &RunningCheck| {
            let history = running.history();
            HealthStatus {
                node: cluster.nodes[running.listener.node].name.clone(),
                pool: cluster.pools[running.listener.pool].name.clone(),
                address: Some(running.server),
                check: running.settings.check.to_string(),
                state: history.health.to_string(),
                since_s: history.since.elapsed().as_secs(),
                last_error: history.error.clone(),
            }
        };
        self.running.iter().map(one).collect()
    }
}

/// Readable when [`Checks::have_changed`] is true.
impl AsFd for Checks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changed.as_fd()
    }
}

fn start(
    listener: PoolListener,
    (server, protocol): (SocketAddr, ServerProtocol),
    settings: Settings,
    history: History,
    changed: &Arc<EventFd>,
) -> Result<RunningCheck> {
    let (stop, stopped) = mpsc::channel();
    let history = Arc::new(Mutex::new(history));
    let (ours, changed) = (Arc::clone(&history), Arc::clone(changed));
    let check = settings.clone();
    let run = move || {
        loop {
            let begun = Instant::now();
            let outcome = try_once(server, protocol, &check.check, check.timeout);
            if lock(&ours).add(&check, outcome, Instant::now()) {
                // Fails only if the counter overflows, which it does not in practice.
                let _ = changed.write(1);
            }
            let rest = check.interval.saturating_sub(begun.elapsed());
            if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("health".to_owned())
        .spawn(run)
        .doing(|| format!("start the health check of {server}"))?;
    Ok(RunningCheck { listener, server, protocol, settings, history, _stop: stop })
}

/// Performs one check; the error is in words.
fn try_once(
    address: SocketAddr,
    protocol: ServerProtocol,
    check: &Check,
    timeout: Duration,
) -> std::result::Result<(), String> {
    let (path, host, status) = match check {
        Check::Tcp => {
            return TcpStream::connect_timeout(&address, timeout)
                .map(drop)
                .map_err(|error| error.to_string());
        }
        Check::Grpc { service } => return http2::is_serving(address, service, timeout),
        Check::Http { path, host, status } => (path, host.as_deref(), status),
    };
    let found = match protocol {
        ServerProtocol::Http11 => get(address, path, host, timeout),
        ServerProtocol::H2c => http2::get(address, path, host, timeout),
    }?;
    match status.iter().any(|good| good.contains(&found)) {
        true => Ok(()),
        false => Err(format!("the answer has status {found}")),
    }
}

/// Status of the answer to a request in HTTP/1.1.
fn get(
    address: SocketAddr,
    path: &str,
    host: Option<&str>,
    timeout: Duration,
) -> std::result::Result<u16, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .user_agent(USER_AGENT)
        .http_status_as_error(false)
        .max_redirects(0)
        // The proxy of the environment is not for local addresses.
        .proxy(None)
        .build()
        .into();
    let mut request = agent.get(format!("http://{address}{path}")).header("Connection", "close");
    if let Some(host) = host {
        request = request.header("Host", host);
    }
    match request.call() {
        Ok(answer) => Ok(answer.status().as_u16()),
        Err(ureq::Error::Timeout(_)) => Err(late(timeout)),
        Err(ureq::Error::Io(error)) => Err(error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// The error of a check whose server has not answered in time.
fn late(timeout: Duration) -> String {
    format!("no answer within {} ms", timeout.as_millis())
}

#[cfg(test)]
mod tests;
