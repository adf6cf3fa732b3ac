//! What TCP allows and no ordinary client does, and what it does not allow: the switch, its programs on the
//! nodes and the kernels behind them deal with it as one TCP would.

#[path = "tcp/client.rs"]
mod client;
mod common;
#[path = "tcp/ends.rs"]
mod ends;
#[path = "tcp/options.rs"]
mod options;
#[path = "tcp/segments.rs"]
mod segments;
#[path = "tcp/streams.rs"]
mod streams;
#[path = "tcp/windows.rs"]
mod windows;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::Stack;
use common::{Cluster, PATIENCE, Plan, Result, wait_until};

/// What the lab's servers have at `/small` and `/img/small`.
const SMALL: &[u8] = &[b'.'; 100];
const IMG_SMALL: &[u8] = &[b'#'; 200];
/// Time in which something would have come if it were to come at all.
const QUIET: Duration = Duration::from_millis(300);

/// One behaviour: what it is called, and what shows it.
type Behaviour = (&'static str, fn(&Cluster, &Stack) -> Result);

/// Shows them on one cluster, which has no connection before and after each.
fn show(plan: Plan, behaviours: &[Behaviour]) -> Result {
    let cluster = Cluster::start_with(plan)?;
    let stack = Stack::new(&cluster)?;
    let mut failed = Vec::new();
    for (name, behaviour) in behaviours {
        let begun = Instant::now();
        let shown = catch_unwind(AssertUnwindSafe(|| behaviour(&cluster, &stack)));
        let shown =
            shown.unwrap_or_else(|_| Err("it panicked".into())).and_then(|()| all_over(&cluster, name));
        println!("{name}: {:?}", begun.elapsed());
        if shown.is_err() {
            let nodes =
                [cluster.node_status(0)?, cluster.node_status(1)?].map(|node| node["counters"].clone());
            println!("switch {}\nnodes {nodes:?}", cluster.switch_status()?);
        }
        failed.extend(shown.err().map(|error| format!("{name}: {error}")));
    }
    assert!(failed.is_empty(), "{failed:#?}");
    cluster.down()
}

/// Rows that have nothing to do with each other, so many at a time: nearly all of their time is waiting. The error
/// names all that fail.
fn side_by_side<T: Sync>(rows: &[T], run: impl Fn(&T) -> Result + Sync) -> Result {
    const AT_A_TIME: usize = 8;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(row) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
            failed.extend(run(row).err().map(|error| error.to_string()));
        }
        failed
    };
    let failed: Vec<String> = thread::scope(|scope| {
        let workers = [(); AT_A_TIME].map(|()| scope.spawn(work));
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    if failed.is_empty() { Ok(()) } else { Err(format!("{failed:#?}").into()) }
}

/// A port that no test has used.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Neither the switch nor the nodes nor their kernels know of any connection.
fn all_over(cluster: &Cluster, what: &str) -> Result {
    let state = || {
        let status = cluster.switch_status()?;
        let mut sockets = String::new();
        for node in cluster.lab.nodes() {
            let words = ["ss", "-Htn", "state", "connected", "exclude", "time-wait"];
            sockets += &node.run(words)?.success()?;
        }
        Ok((status["flows"].as_u64(), status["dispatch"]["pending"].as_u64(), sockets))
    };
    let over = |state: &(Option<u64>, Option<u64>, String)| {
        (state.0, state.1, state.2.is_empty()) == (Some(0), Some(0), true)
    };
    wait_until(&format!("{what}: flows, pending, sockets"), PATIENCE, state, over).map(drop)
}

/// How much a counter of the switch has grown.
struct Growth<'a> {
    cluster: &'a Cluster,
    counter: &'static str,
    from: u64,
}

impl<'a> Growth<'a> {
    fn of(cluster: &'a Cluster, counter: &'static str) -> Result<Growth<'a>> {
        Ok(Growth { cluster, counter, from: cluster.switch_counter(counter)? })
    }

    fn get(&self) -> Result<u64> {
        Ok(self.cluster.switch_counter(self.counter)? - self.from)
    }
}
