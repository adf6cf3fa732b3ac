//! A named network namespace, as `ip netns` keeps it: entered by threads, joined by commands, searched for processes,
//! removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Doing, Error, Result};

const DIRECTORY: &str = "/run/netns";

/// An open network namespace.
#[derive(Clone, Debug)]
pub(crate) struct NetNs {
    name: String,
    file: Arc<File>,
}

impl NetNs {
    pub(crate) fn open(name: &str) -> Result<NetNs> {
        let path = path_of(name);
        let file = File::open(&path).doing(|| format!("open {}", path.display()))?;
        Ok(NetNs { name: name.to_owned(), file: Arc::new(file) })
    }

    /// The name under which `ip netns` knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs a closure in the namespace, on a thread of its own. Sockets opened there stay there.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&*self.file, CloneFlags::CLONE_NEWNET)
                    .doing(|| format!("enter namespace {}", self.name))?;
                Ok(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Like [`enter`](Self::enter), with a `/sys` that shows the namespace's interfaces. The mount belongs to the
    /// thread and ends with it.
    pub(crate) fn enter_with_sysfs<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.enter(|| {
            let none: Option<&str> = None;
            unshare(CloneFlags::CLONE_NEWNS)
                .and_then(|()| mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none))
                .and_then(|()| mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none))
                .doing(|| format!("mount sysfs of {}", self.name))?;
            Ok(work())
        })?
    }

    /// Makes the command's child join the namespace. Its mounts are unchanged, so that pinned BPF maps are visible.
    pub(crate) fn attach(&self, command: &mut Command) {
        let file = Arc::clone(&self.file);
        // SAFETY: between fork and exec only setns(2) is called, which is async-signal-safe and does not allocate.
        unsafe {
            command.pre_exec(move || setns(&*file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from));
        }
    }

    /// Runs a tool in the namespace with `input` on its stdin; returns its stdout.
    pub(crate) fn tool(&self, words: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.attach(&mut command);
        run_tool(command, input)
    }

    /// Runs the lines of an `ip -batch` script in the namespace.
    pub(crate) fn ip(&self, script: &str) -> Result<()> {
        self.tool(&["ip", "-batch", "-"], script).map(drop)
    }

    /// Writes sysctls of the namespace, each given as a path below `/proc/sys/net`.
    pub(crate) fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.enter(|| {
            settings.iter().try_for_each(|(key, value)| {
                let path = Path::new("/proc/sys/net").join(key);
                fs::write(&path, value)
                    .doing(|| format!("write {value} to {} in {}", path.display(), self.name))
            })
        })?
    }
}

/// Runs a command to its end with `input` on its stdin; returns its stdout. It has a process group of its own, so that
/// a ^C at the terminal does not end it before the lab, which would look like a failure.
pub(crate) fn run_tool(mut command: Command, input: &str) -> Result<String> {
    let shown = show(&command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().doing(|| format!("start `{shown}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that stops reading prints the reason on stderr, which is the better error.
        let _ = io::Write::write_all(&mut stdin, input.as_bytes());
    }
    let output = child.wait_with_output().doing(|| format!("wait for `{shown}`"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    Err(Error::Command { command: shown, status: output.status, output: said })
}

/// The command line in shell syntax.
pub(crate) fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

/// The names of all namespaces on this machine.
pub(crate) fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

fn path_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// The processes, other than this one, whose main thread is in one of the named namespaces. Zombies do not
/// count.
pub(crate) fn processes_in(names: &[String]) -> Vec<i32> {
    let inodes: BTreeSet<u64> =
        names.iter().filter_map(|name| Some(fs::metadata(path_of(name)).ok()?.ino())).collect();
    let own = std::process::id().cast_signed();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid: &i32| {
            let inode = fs::metadata(format!("/proc/{pid}/ns/net")).map(|data| data.ino());
            pid != own && inode.is_ok_and(|inode| inodes.contains(&inode))
        })
        .collect()
}

/// Removes a namespace's name; the kernel frees it with its last process and socket. No error if absent.
pub(crate) fn remove(name: &str) -> Result<()> {
    let path = path_of(name);
    // Not mounted if its creation was interrupted: then only the file is removed.
    let _ = umount2(&path, MntFlags::MNT_DETACH);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
