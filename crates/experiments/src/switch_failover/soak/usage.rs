//! What the daemons use: memory, open files, flows.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use switchback_lab::{Doing, Error, Host, Process, Result};

use super::super::super::systems::status;
use super::super::switches::Switches;

/// What a daemon uses at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Resident memory of its own (`RssAnon`), in KiB.
    pub(super) memory_kib: u64,
    /// Open file descriptors.
    pub(super) files: u64,
    /// Entries of its maps of flows.
    pub(super) flows: u64,
    /// Flows that wait for something in its own memory; for an agent, the connections whose TLS it ends.
    pub(super) own: u64,
}

/// The role of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Switch,
    Agent,
}

/// A daemon's usage at a time.
pub(super) struct Reading {
    role: Role,
    host: String,
    pid: u32,
    usage: Usage,
}

/// A daemon's usage at the beginning and at the end, perhaps of two processes.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub(super) role: Role,
    pub(super) host: String,
    /// Whether both readings are of the same process.
    pub(super) is_same: bool,
    pub(super) usages: [Usage; 2],
}

impl From<(Reading, Reading)> for Daemon {
    fn from((first, last): (Reading, Reading)) -> Daemon {
        Daemon {
            role: first.role,
            is_same: first.pid == last.pid,
            usages: [first.usage, last.usage],
            host: first.host,
        }
    }
}

/// The part of a switch's status that is read.
#[derive(Deserialize)]
struct SwitchStatus {
    flows: u64,
    dispatch: Dispatch,
}

#[derive(Deserialize)]
struct Dispatch {
    pending: u64,
    waiting: u64,
}

/// The part of an agent's status that is read.
#[derive(Deserialize)]
struct AgentStatus {
    flows: u64,
    tls: Vec<Tls>,
}

#[derive(Deserialize)]
struct Tls {
    connections: u64,
}

/// Reads all daemons, always in the same order.
pub(super) fn read(switches: &Switches<'_>, program: &Path) -> Result<Vec<Reading>> {
    let of_switch = |(host, process): (&Host, &Process)| {
        let status: SwitchStatus = status(host, program)?;
        let own = status.dispatch.pending + status.dispatch.waiting;
        reading(Role::Switch, host, process, status.flows, own)
    };
    let of_agent = |(host, process): (&Host, &Process)| {
        let status: AgentStatus = status(host, program)?;
        let own = status.tls.iter().map(|service| service.connections).sum();
        reading(Role::Agent, host, process, status.flows, own)
    };
    switches.switches().map(of_switch).chain(switches.agents().map(of_agent)).collect()
}

fn reading(role: Role, host: &Host, process: &Process, flows: u64, own: u64) -> Result<Reading> {
    let pid = process.pid();
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    let unexpected = || Error::Invalid(format!("{path} is not as expected"));
    let memory_kib = anonymous_kib(&text).ok_or_else(unexpected)?;
    let directory = format!("/proc/{pid}/fd");
    let files = fs::read_dir(&directory).doing(|| format!("list {directory}"))?.count() as u64;
    let usage = Usage { memory_kib, files, flows, own };
    Ok(Reading { role, host: host.name().to_owned(), pid, usage })
}

/// `RssAnon` in a process's status (proc_pid_status(5)), in KiB.
fn anonymous_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_processs_own() {
        let text = "VmRSS:\t    9000 kB\nRssAnon:\t    4321 kB\nRssFile:\t    4679 kB\n";
        assert_eq!(anonymous_kib(text), Some(4321));
        assert_eq!(anonymous_kib("VmRSS:\t    9000 kB\n"), None);
    }
}
