//! Metrics of the process, with the names of Prometheus' own libraries, and the version of Switchback.

use procfs::process::LimitValue;
use prometheus_client::registry::Unit;

use crate::metric::{Add, Kind, Metric, Value};

/// Numbers of the kernel about this process; None if it has none.
#[derive(Default)]
pub(super) struct Process {
    cpu_s: Option<f64>,
    started_s: Option<f64>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    threads: Option<u64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

impl Process {
    pub(super) fn read() -> Process {
        let Ok(process) = procfs::process::Process::myself() else { return Process::default() };
        let ticks = procfs::ticks_per_second() as f64;
        let limit = process.limits().ok().map(|limits| limits.max_open_files.soft_limit);
        let mut read = Process {
            open_fds: process.fd_count().ok().map(|count| count as u64),
            max_fds: limit.and_then(|limit| match limit {
                LimitValue::Value(limit) => Some(limit),
                LimitValue::Unlimited => None,
            }),
            ..Process::default()
        };
        if let Ok(stat) = process.stat() {
            read.cpu_s = Some((stat.utime + stat.stime) as f64 / ticks);
            read.started_s =
                procfs::boot_time_secs().ok().map(|boot| boot as f64 + stat.starttime as f64 / ticks);
            read.resident_bytes = Some(stat.rss * procfs::page_size());
            read.virtual_bytes = Some(stat.vsize);
            read.threads = u64::try_from(stat.num_threads).ok();
        }
        read
    }
}

/// All metrics of the process.
pub(super) fn metrics() -> Vec<Metric<Process>> {
    vec![
        Metric::new(Kind::Info, "switchback_build", "Which Switchback this is", &["version"], build),
        Metric::single(Kind::Counter, "process_cpu", "CPU time of the process", |process: &Process| {
            process.cpu_s
        })
        .unit(Unit::Seconds),
        Metric::single(
            Kind::Gauge,
            "process_start_time",
            "When it began, since 1970",
            |process: &Process| process.started_s,
        )
        .unit(Unit::Seconds),
        Metric::single(
            Kind::Gauge,
            "process_resident_memory",
            "Memory that it has in use",
            |process: &Process| process.resident_bytes,
        )
        .unit(Unit::Bytes),
        Metric::single(Kind::Gauge, "process_virtual_memory", "Its address space", |process: &Process| {
            process.virtual_bytes
        })
        .unit(Unit::Bytes),
        Metric::single(Kind::Gauge, "process_threads", "Its threads", |process: &Process| process.threads),
        Metric::single(Kind::Gauge, "process_open_fds", "Its open file descriptors", |process: &Process| {
            process.open_fds
        }),
        Metric::single(Kind::Gauge, "process_max_fds", "How many it may have open", |process: &Process| {
            process.max_fds
        }),
    ]
}

fn build(_: &Process, add: &mut Add<'_>) {
    add(&[env!("CARGO_PKG_VERSION")], Value::Labels);
}
