//! Daemons that have been started with all capabilities keep few of them: every thread, those that read what
//! strangers send among them.

mod common;

use std::fs;

use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::Process;

/// Bit numbers of linux/capability.h.
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const SYS_NICE: u64 = 1 << 23;
const USUAL: u64 = DAC_OVERRIDE | DAC_READ_SEARCH | SYS_NICE;

#[derive(Debug)]
struct Thread {
    name: String,
    /// Permitted; the effective ones are among them.
    capabilities: u64,
    no_new_privileges: bool,
}

fn threads(process: &Process) -> Result<Vec<Thread>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", process.pid()))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.map(str::trim).ok_or_else(|| format!("no {key} in {status}"))
        };
        found.push(Thread {
            name: value("Name:")?.to_owned(),
            capabilities: u64::from_str_radix(value("CapPrm:")?, 16)?,
            no_new_privileges: value("NoNewPrivs:")? == "1",
        });
    }
    Ok(found)
}

#[test]
fn no_thread_keeps_what_only_the_start_needs() -> Result {
    let log = "path = \"-\"".to_owned();
    let mut cluster = Cluster::prepare(Plan {
        admin: true,
        access_log: Some(log),
        tls: Some(String::new()),
        ..Plan::default()
    })?;
    cluster.start_node(0)?;
    cluster.start_switch()?;
    let of_node = USUAL | NET_ADMIN | NET_RAW | NET_BIND_SERVICE;
    for (process, kept) in [(cluster.switch(), USUAL), (cluster.agent(0), of_node)] {
        let is_switch = kept == USUAL;
        let wanted = if is_switch { &["admin", "observer"][..] } else { &["admin", "access-log"] };
        // A thread has its name a moment after it has begun.
        let are_there = |threads: &Vec<Thread>| {
            wanted.iter().all(|name| threads.iter().any(|thread| thread.name == *name))
        };
        let threads = wait_until("all threads", PATIENCE, || threads(process), are_there)?;
        let names: Vec<_> = threads.iter().map(|thread| &thread.name[..]).collect();
        assert!(is_switch || !names.contains(&"observer"), "{names:?}");
        for thread in &threads {
            let Thread { name, capabilities, no_new_privileges } = thread;
            assert_eq!(capabilities & !kept, 0, "{name} of {names:?} has {capabilities:#x}");
            assert!(no_new_privileges, "{name} of {names:?}");
        }
    }
    cluster.down()
}
