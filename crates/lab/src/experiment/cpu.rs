//! CPU time of one host of a lab: what its processes used, and what receiving cost its kernel.
//!
//! The two are apart because the receive work of a host is done by a kernel thread (threaded NAPI), not in
//! whatever process is just running. Times are those of the scheduler (`/proc/PID/schedstat`), in nanoseconds;
//! `utime` and `stime` would be guesses from clock ticks.

use std::fs;
use std::ops::Sub;
use std::path::Path;
use std::time::Duration;

use crate::error::{Doing, Error, Result};
use crate::host::Host;
use crate::napi::NapiThread;
use crate::process::Process;

/// CPU time used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// By all threads of the program and of its child processes.
    pub process: Duration,
    /// By the kernel threads that receive for the host; on a switch they also run its XDP program.
    pub receive: Duration,
}

impl CpuTimes {
    /// Both together.
    pub fn total(&self) -> Duration {
        self.process + self.receive
    }
}

/// What was used between two readings.
impl Sub for CpuTimes {
    type Output = CpuTimes;

    fn sub(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            process: self.process.saturating_sub(earlier.process),
            receive: self.receive.saturating_sub(earlier.receive),
        }
    }
}

/// Reads the CPU time of a program and of its host's receive work.
#[derive(Debug)]
pub(super) struct CpuMeter {
    pids: Vec<u32>,
    receivers: Vec<NapiThread>,
}

impl CpuMeter {
    /// A meter for a running program and the processes that it has started so far.
    pub(super) fn new(host: &Host, process: &Process) -> Result<CpuMeter> {
        let mut pids = vec![process.pid()];
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
        let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
        parse_schedstat(&text).ok_or_else(|| Error::Invalid(format!("{path} is not as expected: {text:?}")))
    };
    threads(pid)?.iter().map(time).sum()
}

/// The directories in /proc of a process's threads.
fn threads(pid: u32) -> Result<Vec<String>> {
    let tasks = format!("/proc/{pid}/task");
    let path = |entry: fs::DirEntry| entry.path().display().to_string();
    let list = || fs::read_dir(Path::new(&tasks))?.map(|entry| entry.map(path)).collect();
    list().doing(|| format!("list the threads in {tasks}"))
}

/// The first number: nanoseconds on a CPU (Documentation/scheduler/sched-stats.rst).
fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_a_cpu_comes_first() {
        assert_eq!(parse_schedstat("1234567890 42 7\n"), Some(Duration::from_nanos(1_234_567_890)));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn all_threads_of_a_process_count() {
        let pid = std::process::id();
        let before = process_time(pid).expect("our own times");
        let spin = || while process_time(pid).expect("our own times") - before < Duration::from_millis(5) {};
        let thread = std::thread::spawn(spin);
        thread.join().expect("the thread spins until it has used its share");
        assert!(children(pid).is_ok());
    }
}
