//! Processes started by the lab in a host: waited for by pidfd, logged to a file, ended by pid.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::kill;
use nix::unistd::Pid;

pub use nix::sys::signal::Signal;

use crate::error::{Doing, Error, Result};

/// A limit of time for what the processor does, of which an emulated one needs more.
pub const fn within(limit: Duration) -> Duration {
    limit.saturating_mul(if option_env!("SWITCHBACK_EMULATED").is_some() { 10 } else { 1 })
}

/// Time between SIGTERM and SIGKILL.
pub(crate) const GRACE: Duration = within(Duration::from_secs(5));
/// Time until SIGTERM is sent again: an agent whose node has connections ends in order only when told twice.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);
const LOG_TAIL_LINES: usize = 20;

/// A process in a host. The handle may be cloned and dropped freely: the process ends when it is stopped or its lab is
/// taken down.
#[derive(Clone, Debug)]
pub struct Process {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    pid: i32,
    pidfd: OwnedFd,
    child: Mutex<Child>,
    log: PathBuf,
    /// Start of this process's log in the file, after that of an earlier process of the same name.
    log_start: u64,
}

impl Process {
    /// Starts the command with both outputs appended to `log`, in a process group of its own so that a ^C at the
    /// terminal reaches it only through the lab.
    pub(crate) fn start(name: &str, command: &mut Command, log: PathBuf) -> Result<Process> {
        let opening = || format!("open {}", log.display());
        let file = File::options().create(true).append(true).open(&log).doing(opening)?;
        let log_start = file.metadata().doing(opening)?.len();
        let stderr = file.try_clone().doing(opening)?;
        command.stdin(Stdio::null()).stdout(file).stderr(stderr).process_group(0);
        let child = command.spawn().doing(|| format!("start `{}`", crate::netns::show(command)))?;
        let pid = child.id().cast_signed();
        let pidfd = open_pidfd(pid)?;
        let child = Mutex::new(child);
        Ok(Process { inner: Arc::new(Inner { name: name.to_owned(), pid, pidfd, child, log, log_start }) })
    }

    /// The name given to `spawn`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.inner.pid.cast_unsigned()
    }

    /// Sends a signal. No error if the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The child is reaped only under this lock, so the pid cannot have been reused.
        let mut child = self.lock_child();
        if child.try_wait().doing(|| format!("wait for {}", self.name()))?.is_some() {
            return Ok(());
        }
        kill(Pid::from_raw(self.inner.pid), signal).doing(|| format!("send {signal} to {}", self.name()))
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&self) -> Result<ExitStatus> {
        self.signal(Signal::SIGKILL)?;
        self.lock_child().wait().doing(|| format!("wait for {}", self.name()))
    }

    /// Sends SIGTERM, after a second again, after five more SIGKILL, and waits for the end.
    pub fn stop(&self) -> Result<ExitStatus> {
        for patience in [AGAIN, GRACE] {
            self.signal(Signal::SIGTERM)?;
            if let Some(status) = self.wait_timeout(patience)? {
                return Ok(status);
            }
        }
        self.kill()
    }

    /// Waits for the end; `None` if the process still runs after `timeout`.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<ExitStatus>> {
        wait_readable(&[self.inner.pidfd.as_fd()], timeout)?;
        self.lock_child().try_wait().doing(|| format!("wait for {}", self.name()))
    }

    /// Its stdout and stderr so far.
    pub fn log(&self) -> String {
        read_from(&self.inner.log, self.inner.log_start).unwrap_or_default()
    }

    /// Waits until the log has a whole line that contains `pattern`, and returns the first such line. An error if the
    /// process ends without writing one.
    pub fn wait_for_log(&self, pattern: &str, timeout: Duration) -> Result<String> {
        let watching = || format!("watch {}", self.inner.log.display());
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).doing(watching)?;
        inotify.add_watch(&self.inner.log, AddWatchFlags::IN_MODIFY).doing(watching)?;
        let deadline = Instant::now() + timeout;
        loop {
            // The state is read before the log, so that output before the end is not missed.
            let ended = self.wait_timeout(Duration::ZERO)?;
            let log = self.log();
            let whole_lines =
                log.split_inclusive('\n').filter(|line| ended.is_some() || line.ends_with('\n'));
            if let Some(line) = whole_lines.map(str::trim_end).find(|line| line.contains(pattern)) {
                return Ok(line.to_owned());
            }
            if let Some(status) = ended {
                return Err(Error::Exited { process: self.name().to_owned(), status, log: self.log_tail() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waiting_for = format!("line with {pattern:?} in the log of {}", self.name());
                return Err(Error::Timeout { waiting_for, after: timeout, log: self.log_tail() });
            }
            wait_readable(&[inotify.as_fd(), self.inner.pidfd.as_fd()], left)?;
            // Only empties the queue: each round reads the log again.
            let _ = inotify.read_events();
        }
    }

    /// The last lines of the log, for error messages.
    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn lock_child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.inner.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file descriptor that becomes readable when the process ends.
pub(crate) fn open_pidfd(pid: i32) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and accesses no memory of the process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = nix::errno::Errno::result(fd).doing(|| format!("open pidfd of {pid}"))?;
    let fd = libc::c_int::try_from(fd).expect("the kernel returns file descriptors as int");
    // SAFETY: the kernel has just created this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of the descriptors is readable; false if none was within `timeout`.
pub(crate) fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that a rest below a millisecond does not cause a busy loop.
        let millis = left.as_micros().div_ceil(1000).try_into().unwrap_or(i32::MAX);
        let wait = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, wait) {
            Ok(0) if Instant::now() < deadline => {}
            Ok(ready) => return Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).doing(|| format!("poll descriptor {}", fds[0].as_raw_fd())),
        }
    }
}

/// Its pidfd, which becomes readable when the process ends.
impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.pidfd.as_fd()
    }
}

fn read_from(path: &Path, start: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
