//! Run times of BPF programs, measured by the kernel (`BPF_ENABLE_STATS`).

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Sub;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use switchback_lab::{Doing, Process, Result};

/// Runs of one or several programs, and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpfTime {
    /// Number of runs.
    pub runs: u64,
    /// Total time.
    pub time: Duration,
}

/// The difference of two readings.
impl Sub for BpfTime {
    type Output = BpfTime;

    fn sub(self, earlier: BpfTime) -> BpfTime {
        BpfTime { runs: self.runs - earlier.runs, time: self.time.saturating_sub(earlier.time) }
    }
}

/// Run times of our programs, summed over all hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpfTimes {
    /// The switch's XDP program.
    pub xdp: BpfTime,
    /// The nodes' programs for incoming packets.
    pub ingress: BpfTime,
    /// The nodes' programs for outgoing packets.
    pub egress: BpfTime,
    /// The nodes' programs for the server's writes, into which a cookie may have to be inserted.
    pub insert: BpfTime,
    /// The nodes' programs for socket state changes.
    pub socket_state: BpfTime,
}

/// The difference of two readings.
impl Sub for BpfTimes {
    type Output = BpfTimes;

    fn sub(self, earlier: BpfTimes) -> BpfTimes {
        BpfTimes {
            xdp: self.xdp - earlier.xdp,
            ingress: self.ingress - earlier.ingress,
            egress: self.egress - earlier.egress,
            insert: self.insert - earlier.insert,
            socket_state: self.socket_state - earlier.socket_state,
        }
    }
}

/// Makes the kernel measure every program of the machine as long as it lives, at some 20 ns per run. It reads only the
/// programs of a few processes, since other labs have programs of the same names.
#[derive(Debug)]
pub(super) struct BpfMeter {
    _enabled: OwnedFd,
    programs: Vec<OwnedFd>,
}

impl BpfMeter {
    /// A meter for the programs that these processes have loaded so far.
    pub(super) fn new(processes: &[Process]) -> Result<BpfMeter> {
        // SAFETY: a system call with a number.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        let enabled = descriptor(fd).doing(|| "let the kernel measure BPF programs".to_owned())?;
        let mut ids = BTreeSet::new();
        for process in processes {
            ids.extend(program_ids(process.pid())?);
        }
        let open = |id| {
            // SAFETY: a system call with a number.
            descriptor(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
                .doing(|| format!("open the BPF program {id}"))
        };
        let programs = ids.into_iter().map(open).collect::<Result<_>>()?;
        Ok(BpfMeter { _enabled: enabled, programs })
    }

    /// The times so far, by program name, of which the kernel keeps 15 characters.
    pub(super) fn read(&self) -> Result<BpfTimes> {
        let mut times = BpfTimes::default();
        for program in &self.programs {
            let info = info(program).doing(|| "ask for a BPF program's times".to_owned())?;
            // SAFETY: the kernel terminates the name with a zero.
            let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
            let sum = match name.to_bytes() {
                b"switchback" => &mut times.xdp,
                b"switchback_ingr" => &mut times.ingress,
                b"switchback_egre" => &mut times.egress,
                b"switchback_inse" => &mut times.insert,
                b"switchback_sock" => &mut times.socket_state,
                _ => continue,
            };
            sum.runs += info.run_cnt;
            sum.time += Duration::from_nanos(info.run_time_ns);
        }
        Ok(times)
    }
}

/// The ids of the programs that a process holds, or has attached.
fn program_ids(pid: u32) -> Result<BTreeSet<u32>> {
    let directory = format!("/proc/{pid}/fdinfo");
    let list = || {
        let mut ids = BTreeSet::new();
        for entry in fs::read_dir(&directory)? {
            // A descriptor that has been closed meanwhile refers to no program.
            let text = fs::read_to_string(entry?.path()).unwrap_or_default();
            ids.extend(program_id(&text));
        }
        io::Result::Ok(ids)
    };
    list().doing(|| format!("list the descriptors in {directory}"))
}

/// The program id in the fdinfo of a program or a link.
fn program_id(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok()
}

fn info(program: &OwnedFd) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = MaybeUninit::<libbpf_sys::bpf_prog_info>::zeroed();
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: the kernel fills in at most `len` bytes; with zeroes it is asked for no arrays.
    let result =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), info.as_mut_ptr(), &raw mut len) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: zeroes were valid, and what the kernel has written is.
    Ok(unsafe { info.assume_init() })
}

fn descriptor(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_the_lines_of_its_descriptor() {
        let program =
            "pos:\t0\nflags:\t02000002\nprog_type:\t6\nprog_jited:\t1\nprog_id:\t1234\nrun_time_ns:\t0\n";
        let link = "pos:\t0\nlink_type:\txdp\nlink_id:\t7\nprog_tag:\t3f0c\nprog_id:\t1234\nifindex:\t2\n";
        let map = "pos:\t0\nmap_type:\t1\nmap_id:\t99\n";
        assert_eq!([program, link, map].map(program_id), [Some(1234), Some(1234), None]);
        assert_eq!(program_ids(std::process::id()).expect("our own"), BTreeSet::new());
    }
}
