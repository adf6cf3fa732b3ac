//! The state file of a lab, by which others can remove the lab if its owner cannot.
//!
//! A lab is namespaces, processes and a directory, none of which ends with the process that made them. So the owner
//! records them before it makes them. The next lab to start removes those of owners that have ended, for example by
//! SIGKILL. An owner is a pid with its start time, because pids are reused.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::netns;

const DIRECTORY: &str = "/run/switchback-lab";

/// The recorded description of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabInfo {
    /// Its id, unique on this machine.
    pub id: String,
    /// Whether it outlives its owner.
    pub persistent: bool,
    /// Pid of the process that made it.
    pub owner_pid: u32,
    /// Start time of that process, in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub owner_start_ticks: u64,
    /// Directory of its logs, configurations and documents.
    pub directory: PathBuf,
    /// IPv4 address of the service.
    pub vip4: Ipv4Addr,
    /// IPv6 address of the service.
    pub vip6: Ipv6Addr,
    /// Its hosts: clients, switches, nodes, and the router if any.
    pub hosts: Vec<HostInfo>,
    /// Its namespaces, as `ip netns list` shows them: the hosts' and that of the bridges. Those of guests, which come
    /// and go, are not among them.
    pub namespaces: Vec<String>,
}

/// A host of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its name in the lab, such as `node0`.
    pub name: String,
    /// The name of its network namespace.
    pub namespace: String,
    /// Its own IPv4 address.
    pub ipv4: Ipv4Addr,
    /// Its own IPv6 address.
    pub ipv6: Ipv6Addr,
}

impl LabInfo {
    /// Writes the state file of a new lab. False if the id is taken.
    pub(crate) fn create(&self) -> Result<bool> {
        let path = path_of(&self.id);
        match File::options().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            other => other.doing(|| format!("create {}", path.display()))?,
        };
        self.save().map(|()| true)
    }

    /// Replaces the state file atomically.
    pub(crate) fn save(&self) -> Result<()> {
        let path = path_of(&self.id);
        let new = path.with_extension("new");
        let text = serde_json::to_string_pretty(self).expect("the state has only strings, numbers and lists");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .doing(|| format!("write {}", path.display()))
    }

    /// Removes the state file; the last step of a teardown.
    pub(crate) fn forget(&self) {
        // Absent if the creation of the lab failed early.
        let _ = fs::remove_file(path_of(&self.id));
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Result<&HostInfo> {
        self.hosts.iter().find(|host| host.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
            Error::NotFound(format!("no host {name:?} in lab {}; it has {}", self.id, names.join(", ")))
        })
    }

    /// Name of the namespace of a host's guest. It is in no list: it is found by its beginning, which is the lab's.
    pub(crate) fn guest_namespace(&self, host: &str, guest: &str) -> String {
        format!("sb{}-{host}-{guest}", self.id)
    }

    /// All its namespaces that exist, with those of guests.
    pub(crate) fn all_namespaces(&self) -> Vec<String> {
        let beginning = format!("sb{}-", self.id);
        let mut names = self.namespaces.clone();
        names.extend(netns::names().into_iter().filter(|name| name.starts_with(&beginning)));
        names.sort();
        names.dedup();
        names
    }

    /// Name of a host's control group.
    pub(crate) fn cpu_group(&self, host: &str) -> String {
        format!("switchback-lab-{}-{host}", self.id)
    }

    /// Whether its owner has ended and it should have ended with it.
    pub(crate) fn is_orphan(&self) -> bool {
        !self.persistent && start_ticks(self.owner_pid) != Some(self.owner_start_ticks)
    }
}

/// All labs on this machine, by id.
pub fn list() -> Result<Vec<LabInfo>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing(|| format!("read {DIRECTORY}"))?,
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    // An empty or missing file belongs to a lab that is being made or removed.
    let mut labs: Vec<LabInfo> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
        .collect();
    labs.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(labs)
}

/// Locks the directory of the state files, which it creates if there is none.
pub(crate) fn lock_directory() -> Result<Flock<File>> {
    fs::create_dir_all(DIRECTORY).doing(|| format!("create {DIRECTORY}"))?;
    let path = Path::new(DIRECTORY).join("lock");
    let file = File::create(&path).doing(|| format!("open {}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .doing(|| format!("lock {}", path.display()))
}

/// When a process started, in clock ticks since boot; `None` if there is no such process or it is a zombie.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may itself contain spaces and parentheses.
    let mut after_name = stat[stat.rfind(')')? + 1..].split_whitespace();
    if after_name.next()? == "Z" { None } else { after_name.nth(18)?.parse().ok() }
}

fn path_of(id: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{id}.json"))
}
