//! How long BPF programs run, as the kernel measures it (`BPF_ENABLE_STATS`).

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Sub;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::error::{Doing, Result};

/// Runs of one or several programs, and the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpfTime {
    /// How often.
    pub runs: u64,
    /// How long altogether.
    pub time: Duration,
}

/// Between two readings.
impl Sub for BpfTime {
    type Output = BpfTime;

    fn sub(self, earlier: BpfTime) -> BpfTime {
        BpfTime { runs: self.runs - earlier.runs, time: self.time.saturating_sub(earlier.time) }
    }
}

/// Of our programs, those of all hosts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpfTimes {
    /// The switch's.
    pub xdp: BpfTime,
    /// Nodes': packets that come in.
    pub ingress: BpfTime,
    /// Nodes': packets that go out.
    pub egress: BpfTime,
    /// Nodes': what the server writes, where a cookie may have to be inserted.
    pub insert: BpfTime,
    /// Nodes': sockets that begin and end.
    pub socket_state: BpfTime,
}

/// Between two readings.
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

/// While it lives the kernel measures every program of the machine, which costs each run some 20 ns.
#[derive(Debug)]
pub(super) struct BpfMeter {
    _enabled: OwnedFd,
}

impl BpfMeter {
    pub(super) fn new() -> Result<BpfMeter> {
        // SAFETY: a system call with a number.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        let fd = descriptor(fd).doing(|| "let the kernel measure BPF programs".to_owned())?;
        Ok(BpfMeter { _enabled: fd })
    }

    /// So far, by the programs' names, of which the kernel keeps 15 characters.
    pub(super) fn read(&self) -> Result<BpfTimes> {
        let mut times = BpfTimes::default();
        let mut id = 0;
        // SAFETY: `id` outlives the call.
        while unsafe { libbpf_sys::bpf_prog_get_next_id(id, &raw mut id) } == 0 {
            // SAFETY: a system call with a number.
            let Ok(program) = descriptor(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) }) else {
                // It has gone meanwhile.
                continue;
            };
            let info = info(&program).doing(|| "ask for a BPF program's times".to_owned())?;
            // SAFETY: the kernel ends the name with a zero.
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
