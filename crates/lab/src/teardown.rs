//! Teardown of labs: on drop, on ^C, on `down`, and after owners that have ended.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cgroup;
use crate::error::{Doing, Error, Result};
use crate::netns;
use crate::process::{AGAIN, GRACE, Process, open_pidfd, wait_readable};
use crate::state::{self, LabInfo};

/// Time after SIGKILL for which a process's end is awaited.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// The exit status of a process interrupted by ^C, as shells report it.
const INTERRUPTED: i32 = 130;

static LIVE: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());
/// Read-locked while a lab is being made, so that ^C does not remove a partial one.
static MAKING: RwLock<()> = RwLock::new(());

/// State shared by a lab, its hosts and their guests.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) info: LabInfo,
    lifecycle: Mutex<Lifecycle>,
}

#[derive(Debug, Default)]
struct Lifecycle {
    ended: bool,
    processes: Vec<Process>,
}

impl Shared {
    /// Registers a lab whose state file has been written. From here on it is taken down on ^C.
    pub(crate) fn register(info: LabInfo) -> Result<Arc<Shared>> {
        let shared = Arc::new(Shared { info, lifecycle: Mutex::default() });
        lock(&LIVE).push(Arc::clone(&shared));
        watch_signals()?;
        Ok(shared)
    }

    /// Runs `start` unless the lab has been taken down, and never while it is being taken down.
    pub(crate) fn while_up<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let lifecycle = lock(&self.lifecycle);
        if lifecycle.ended { Err(Error::TornDown) } else { start() }
    }

    /// Starts a process that the lab ends at its teardown.
    pub(crate) fn track(&self, start: impl FnOnce() -> Result<Process>) -> Result<Process> {
        let mut lifecycle = lock(&self.lifecycle);
        if lifecycle.ended {
            return Err(Error::TornDown);
        }
        let process = start()?;
        lifecycle.processes.push(process.clone());
        Ok(process)
    }

    /// The processes started so far.
    pub(crate) fn processes(&self) -> Vec<Process> {
        lock(&self.lifecycle).processes.clone()
    }

    /// Takes the lab down once; a second caller waits for the first.
    pub(crate) fn end(&self) -> Result<()> {
        let mut lifecycle = lock(&self.lifecycle);
        if lifecycle.ended {
            return Ok(());
        }
        lifecycle.ended = true;
        let removed = remove(&self.info);
        // They have ended with their namespaces; this only reaps them.
        for process in lifecycle.processes.drain(..) {
            process.wait_timeout(Duration::ZERO)?;
        }
        self.unregister();
        removed
    }

    /// Leaves the lab running: this process no longer takes it down.
    pub(crate) fn unregister(&self) {
        lock(&LIVE).retain(|lab| lab.info.id != self.info.id);
    }
}

/// Delays ^C while a lab is made.
pub(crate) fn making() -> RwLockReadGuard<'static, ()> {
    MAKING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the labs whose owner has ended; returns their ids.
pub fn sweep() -> Result<Vec<String>> {
    // Held until the end, so that two processes that start together do not both remove the same lab.
    let _lock = state::lock_directory()?;
    let orphans: Vec<LabInfo> = state::list()?.into_iter().filter(LabInfo::is_orphan).collect();
    orphans.iter().try_for_each(remove)?;
    Ok(orphans.into_iter().map(|lab| lab.id).collect())
}

/// Removes a lab: its processes, control groups, namespaces, directory and state file.
pub(crate) fn remove(lab: &LabInfo) -> Result<()> {
    let namespaces = lab.all_namespaces();
    end_processes(&namespaces)?;
    lab.hosts.iter().try_for_each(|host| cgroup::remove(&lab.cpu_group(&host.name)))?;
    namespaces.iter().try_for_each(|name| netns::remove(name))?;
    remove_directory(&lab.directory)?;
    lab.forget();
    Ok(())
}

/// Removes a directory, again if its owner adds files meanwhile, which it does until its next start of a process.
fn remove_directory(path: &Path) -> Result<()> {
    let deadline = Instant::now() + KILL_PATIENCE;
    loop {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < deadline => {}
            result => return result.doing(|| format!("remove {}", path.display())),
        }
    }
}

/// Ends all processes in the namespaces: SIGTERM each second, after five seconds SIGKILL. Repeats until none is left, because a
/// process may have forked meanwhile.
pub(crate) fn end_processes(namespaces: &[String]) -> Result<()> {
    let start = Instant::now();
    loop {
        let pids = netns::processes_in(namespaces);
        if pids.is_empty() {
            return Ok(());
        }
        let elapsed = start.elapsed();
        if elapsed > GRACE + KILL_PATIENCE {
            let waiting_for = format!("end of processes {pids:?} after SIGKILL");
            return Err(Error::Timeout { waiting_for, after: elapsed, log: String::new() });
        }
        let (signal, patience) = match GRACE.checked_sub(elapsed) {
            Some(left) if !left.is_zero() => (Signal::SIGTERM, left.min(AGAIN)),
            _ => (Signal::SIGKILL, KILL_PATIENCE),
        };
        // The pidfd comes first: if it can be opened and the pid is still in the namespace, it is the right process.
        let pidfds: Vec<OwnedFd> = pids.iter().filter_map(|&pid| open_pidfd(pid).ok()).collect();
        for pid in pids {
            // A failure means that the process has ended.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        let deadline = Instant::now() + patience;
        for pidfd in &pidfds {
            wait_readable(&[pidfd.as_fd()], deadline.saturating_duration_since(Instant::now()))?;
        }
    }
}

/// Makes SIGINT and SIGTERM take all labs of this process down and end it with status 130, from the first lab on.
fn watch_signals() -> Result<()> {
    static WATCH: Once = Once::new();
    let mut result = Ok(());
    WATCH.call_once(|| {
        result = Signals::new([SIGINT, SIGTERM]).map(|mut signals| {
            thread::spawn(move || {
                if signals.forever().next().is_some() {
                    end_all();
                    std::process::exit(INTERRUPTED);
                }
            });
        });
    });
    result.doing(|| "catch SIGINT and SIGTERM".to_owned())
}

fn end_all() {
    let _making = MAKING.write().unwrap_or_else(PoisonError::into_inner);
    let labs = lock(&LIVE).clone();
    thread::scope(|scope| {
        for lab in &labs {
            scope.spawn(|| {
                if let Err(error) = lab.end() {
                    eprintln!("lab {} is not gone: {error}", lab.info.id);
                }
            });
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
