//! A run of ten times as many requests needs no more memory. A test of its own, because what is asked is the process's.

use switchback_sim::scenario::{Arrivals, Nodes};
use switchback_sim::{Scenario, simulate};

/// The most that this process has had in memory, in KiB.
fn most_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_requests() {
    let run = |seconds| {
        let scenario = Scenario {
            replications: 1,
            warm_up_s: 0.0,
            seconds,
            arrivals: Arrivals { per_second: 20_000.0, ..Arrivals::default() },
            nodes: vec![Nodes { count: 100, ..Nodes::default() }],
            ..Scenario::default()
        };
        simulate(&scenario, || {}).unwrap()[0].answered
    };
    assert!(run(5.0) > 90_000);
    let before = most_kib();
    assert!(run(50.0) > 900_000);
    let more = most_kib() - before;
    assert!(more < 512, "{more} KiB more for 900,000 requests more");
}
