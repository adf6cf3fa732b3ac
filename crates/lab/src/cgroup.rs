//! CPU quota of a host: a control group for the processes that are started on it.
//!
//! All hosts of a lab share this machine's CPUs, so an overload of one of them is an overload of all. A quota slows
//! down one host alone. It applies to processes: the kernel's time for receiving packets is in no group.
//!
//! The CPU controller may be in the unified hierarchy (Documentation/admin-guide/cgroup-v2.rst), or in
//! one of its own (Documentation/scheduler/sched-bwc.rst).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;

use crate::error::{Doing, Error, Result};

const MOUNTS: &str = "/proc/self/mounts";
/// Period of the quota. The kernel's default is ten times that, for most of which a host with a small quota would be
/// stopped.
const PERIOD_US: u64 = 10_000;
/// Least quota that the kernel allows.
const LEAST_QUOTA_US: u64 = 1_000;
/// Time for which a group may still count processes that have ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// Version of the hierarchy, which decides the names of a group's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unified,
    Separate,
}

/// A control group with a quota. Children of its processes stay in it.
#[derive(Clone, Debug)]
pub(crate) struct CpuGroup {
    kind: Kind,
    path: PathBuf,
    processes: Arc<File>,
}

impl CpuGroup {
    /// Creates the group, without a quota.
    pub(crate) fn create(name: &str) -> Result<CpuGroup> {
        let (kind, root) = controller()?;
        let path = root.join(name);
        fs::create_dir_all(&path).doing(|| format!("create {}", path.display()))?;
        let file = path.join("cgroup.procs");
        let processes =
            File::options().write(true).open(&file).doing(|| format!("open {}", file.display()))?;
        Ok(CpuGroup { kind, path, processes: Arc::new(processes) })
    }

    /// Limits the sum of its processes to this many thousandths of one CPU.
    pub(crate) fn limit(&self, thousandths: u32) -> Result<()> {
        let quota_us = u64::from(thousandths) * PERIOD_US / 1000;
        if quota_us < LEAST_QUOTA_US {
            return Err(Error::Invalid(format!(
                "{thousandths}/1000 of a CPU is less than the kernel shares out"
            )));
        }
        let write = |file: &str, value: String| {
            let path = self.path.join(file);
            fs::write(&path, &value).doing(|| format!("write {value} to {}", path.display()))
        };
        match self.kind {
            Kind::Unified => write("cpu.max", format!("{quota_us} {PERIOD_US}")),
            Kind::Separate => {
                write("cpu.cfs_period_us", PERIOD_US.to_string())?;
                write("cpu.cfs_quota_us", quota_us.to_string())
            }
        }
    }

    /// Makes the command's child join the group.
    pub(crate) fn attach(&self, command: &mut Command) {
        let file = Arc::clone(&self.processes);
        // SAFETY: between fork and exec only write(2) is called, which is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                // Zero stands for the writing process.
                match libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
    }
}

/// Removes a group whose processes have ended. No error if absent.
pub(crate) fn remove(name: &str) -> Result<()> {
    let mounts = fs::read_to_string(MOUNTS).doing(|| format!("read {MOUNTS}"))?;
    hierarchies(&mounts).try_for_each(|(_, root)| remove_directory(&root.join(name)))
}

fn remove_directory(path: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                // The kernel has no event for an empty group.
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result.doing(|| format!("remove {}", path.display())),
        }
    }
}

/// Hierarchy and directory in which groups with quotas can be made.
fn controller() -> Result<(Kind, PathBuf)> {
    let mounts = fs::read_to_string(MOUNTS).doing(|| format!("read {MOUNTS}"))?;
    let found = hierarchies(&mounts).find(|(kind, root)| *kind == Kind::Separate || has_cpu(root));
    found.ok_or_else(|| Error::NotFound("a quota needs control groups with the CPU controller".to_owned()))
}

/// Whether groups of a unified hierarchy have the controller, which is enabled if possible.
fn has_cpu(root: &Path) -> bool {
    let path = root.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&path).unwrap_or_default();
    enabled.split_whitespace().any(|controller| controller == "cpu") || fs::write(&path, "+cpu").is_ok()
}

/// Hierarchies in a table of mounts that may have the controller.
fn hierarchies(mounts: &str) -> impl Iterator<Item = (Kind, PathBuf)> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (root, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let kind = match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => Kind::Separate,
            "cgroup2" => Kind::Unified,
            _ => return None,
        };
        Some((kind, root.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_looked_for_in_both_kinds_of_hierarchies() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found: Vec<_> = hierarchies(mounts).collect();
        let at = |kind, path: &str| (kind, PathBuf::from(path));
        let expected =
            [at(Kind::Separate, "/sys/fs/cgroup/cpu,cpuacct"), at(Kind::Unified, "/sys/fs/cgroup/unified")];
        assert_eq!(found, expected);
    }
}
