//! CPU time of one host of a lab: of its processes, and of its kernel's receive work.
//!
//! The two are separate because a host's receive work is done by a kernel thread (threaded NAPI), and not by any
//! running process. Times are the scheduler's (`/proc/PID/schedstat`), in nanoseconds; `utime` and `stime` would be
//! estimates from clock ticks.

use std::fs;
use std::io;
use std::iter::Sum;
use std::ops::Sub;
use std::time::Duration;

use switchback_lab::{Doing, Error, Host, NapiThread, Process, Result};

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time of all threads of the program and of its child processes.
    pub process: Duration,
    /// Time of the kernel threads that receive for the host; on a switch they also run its XDP program.
    pub receive: Duration,
}

impl CpuTimes {
    /// The sum of both.
    pub fn total(&self) -> Duration {
        self.process + self.receive
    }
}

/// The sum over several programs.
impl Sum for CpuTimes {
    fn sum<I: Iterator<Item = CpuTimes>>(all: I) -> CpuTimes {
        all.fold(CpuTimes::default(), |sum, one| CpuTimes {
            process: sum.process + one.process,
            receive: sum.receive + one.receive,
        })
    }
}

/// The time between two readings.
impl Sub for CpuTimes {
    type Output = CpuTimes;

    fn sub(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            process: self.process.saturating_sub(earlier.process),
            receive: self.receive.saturating_sub(earlier.receive),
        }
    }
}

/// Reads the CPU time of programs and of their host's receive work.
#[derive(Debug)]
pub(super) struct CpuMeter {
    pids: Vec<u32>,
    receivers: Vec<NapiThread>,
}

impl CpuMeter {
    /// A meter for a running program and the processes that it has started so far.
    pub(super) fn new(host: &Host, process: &Process) -> Result<CpuMeter> {
        CpuMeter::of_all(host, [process])
    }

    /// A meter for several programs together.
    pub(super) fn of_all<'a>(
        host: &Host,
        processes: impl IntoIterator<Item = &'a Process>,
    ) -> Result<CpuMeter> {
        let mut pids: Vec<u32> = processes.into_iter().map(Process::pid).collect();
        let mut next = 0;
        while let Some(&pid) = pids.get(next) {
            pids.extend(children(pid)?);
            next += 1;
        }
        let receivers = host.napi_threads("eth0")?;
        if receivers.is_empty() {
            let name = host.name();
            return Err(Error::NotFound(format!("eth0 of {name} has no NAPI thread to measure")));
        }
        Ok(CpuMeter { pids, receivers })
    }

    pub(super) fn read(&self) -> Result<CpuTimes> {
        Ok(CpuTimes {
            process: self.pids.iter().map(|&pid| process_time(pid)).sum::<Result<_>>()?,
            receive: self.receivers.iter().map(NapiThread::cpu_time).sum::<Result<_>>()?,
        })
    }
}

fn children(pid: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for thread in threads(pid)? {
        let path = format!("{thread}/children");
        let list = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
        found.extend(list.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(found)
}

fn process_time(pid: u32) -> Result<Duration> {
    let time = |thread: &String| {
        let path = format!("{thread}/schedstat");
        match fs::read_to_string(&path) {
            // The thread has ended. Programs measured here start their threads at the beginning and keep them.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Duration::ZERO),
            text => {
                let text = text.doing(|| format!("read {path}"))?;
                let unexpected = || Error::Invalid(format!("{path} is not as expected: {text:?}"));
                parse_schedstat(&text).ok_or_else(unexpected)
            }
        }
    };
    threads(pid)?.iter().map(time).sum()
}

/// The directories in /proc of a process's threads.
fn threads(pid: u32) -> Result<Vec<String>> {
    let tasks = format!("/proc/{pid}/task");
    let path = |entry: fs::DirEntry| entry.path().display().to_string();
    let list = || fs::read_dir(&tasks)?.map(|entry| entry.map(path)).collect::<io::Result<_>>();
    list().doing(|| format!("list the threads in {tasks}"))
}

/// Parses the first number: nanoseconds on a CPU (Documentation/scheduler/sched-stats.rst).
fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::Instant;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn time_on_a_cpu_comes_first() {
        assert_eq!(parse_schedstat("1234567890 42 7\n"), Some(Duration::from_nanos(1_234_567_890)));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn a_meter_reads_child_processes_too() {
        // A parent of its own: the kernel may omit a child from the list while others of its parent end.
        let mut parent = Command::new("sh");
        let mut parent = parent.args(["-c", "sleep 60 & wait"]).spawn().expect("sh is everywhere");
        // The scheduler counts the time with a delay.
        let deadline = Instant::now() + Duration::from_secs(30);
        let sleeps = loop {
            let found = children(parent.id()).expect("the children of one that waits");
            match found[..] {
                [child] if process_time(child).expect("a process that runs") > Duration::ZERO => break child,
                _ => assert!(Instant::now() < deadline, "{found:?}"),
            }
            thread::sleep(Duration::from_millis(1));
        };
        let end = |pid| kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("a process of ours");
        end(sleeps);
        parent.wait().expect("our own child");
        assert!(process_time(parent.id()).is_err(), "it has ended");
    }
}
