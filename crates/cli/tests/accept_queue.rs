//! Bursts of connections that are too much for one accept queue and not for two: who looks at the queues delays
//! none of them.

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::packets::{Random, seed};
use common::{Cluster, PATIENCE, Plan, Result};
use switchback_experiments::{OpenLoop, dispatch_by_lot};
use switchback_lab::{Host, ServiceTime, SlowServerOptions};

const BACKLOG: u32 = 16;
/// Connections of the smallest burst, and how many sizes there are. Both nodes together have room for 36: Linux lets
/// one more wait than the backlog says, and each has one at work. Drawn by lot, more than half of the bursts are too
/// much for one of them.
const LEAST: u32 = 32;
const SPAN: u64 = 4;
const BURSTS: usize = 20;
/// A whole queue is worked off in less than 60 ms, far below the shortest time after which Linux retransmits.
const SERVICE: Duration = Duration::from_millis(3);
/// Connections in a second, within a burst.
const RATE: f64 = 20_000.0;

/// What became of bursts.
#[derive(Debug, Default)]
struct Outcome {
    bursts: usize,
    failed: u64,
    stalls: u64,
    longest_ms: f64,
    /// Of both nodes.
    listen_overflows: u64,
    listen_drops: u64,
}

/// Loads `server` with bursts of these sizes until `enough`.
fn load(
    cluster: &Cluster,
    server: impl Into<IpAddr>,
    sizes: &[u32],
    enough: impl Fn(&Outcome) -> bool,
) -> Result<Outcome> {
    let server = SocketAddr::new(server.into(), 80);
    let of_nodes = |name| -> Result<u64> {
        Ok(cluster.lab.nodes().map(|node| node.tcp_counter(name)).sum::<switchback_lab::Result<u64>>()?)
    };
    let before = (of_nodes("ListenOverflows")?, of_nodes("ListenDrops")?);
    let mut outcome = Outcome::default();
    for &connections in sizes {
        let load = OpenLoop { connections, rate: RATE, poisson: None, path: "/", timeout: PATIENCE };
        let burst = load.run(cluster.client(), &[server])?;
        outcome.bursts += 1;
        outcome.failed += burst.failures.total();
        outcome.stalls += burst.stalls();
        outcome.longest_ms = outcome.longest_ms.max(burst.quantile_ms(1.0).unwrap_or_default());
        if enough(&outcome) {
            break;
        }
    }
    outcome.listen_overflows = of_nodes("ListenOverflows")? - before.0;
    outcome.listen_drops = of_nodes("ListenDrops")? - before.1;
    Ok(outcome)
}

/// All bursts under a policy.
fn bursts(cluster: &Cluster, sizes: &[u32], policy: &'static str, limit: &'static str) -> Result<Outcome> {
    let mut plan = cluster.plan.clone();
    plan.policy = policy;
    plan.queue_limit = Some(limit);
    cluster.write_config(&plan)?;
    for host in cluster.lab.nodes().chain(cluster.lab.switches()) {
        cluster.run(host, &["reload"])?.success()?;
    }
    let outcome = load(cluster, cluster.lab.vip4(), sizes, |_| false)?;
    println!("{policy}, queue_limit {limit}: {outcome:?}");
    Ok(outcome)
}

#[test]
fn bursts_stall_only_where_nobody_looks_at_the_queues() -> Result {
    let seed = seed()?;
    println!("SWITCHBACK_SEED={seed}");
    let mut random = Random::new(seed);
    let sizes: Vec<u32> = (0..BURSTS).map(|_| LEAST + random.below(SPAN) as u32).collect();
    let slow = SlowServerOptions::new(1, BACKLOG, ServiceTime::Fixed(SERVICE));
    let plan = Plan { slow_servers: Some(slow), pools: vec![("web", vec![0, 1])], ..Plan::default() };
    let cluster = Cluster::start_with(plan)?;

    // The load is a real one: beside Switchback, where the kernel of the switch's host draws lots, connections stall.
    let nodes: Vec<Ipv4Addr> = cluster.lab.nodes().map(Host::ipv4).collect();
    let by_lot = dispatch_by_lot(cluster.lab.switch(0), &nodes)?;
    let blind = load(&cluster, *by_lot.ip(), &sizes, |outcome| outcome.failed + outcome.stalls > 0)?;
    println!("nftables: {blind:?}");
    assert!(blind.failed + blind.stalls > 0 && blind.listen_overflows > 0, "{blind:?}");

    for policy in ["fill", "accept-queue"] {
        let outcome = bursts(&cluster, &sizes, policy, "100%")?;
        assert_eq!((outcome.failed, outcome.stalls), (0, 0), "{policy}: {outcome:?}");
        assert_eq!((outcome.listen_overflows, outcome.listen_drops), (0, 0), "{policy}: {outcome:?}");
    }
    let refusing = bursts(&cluster, &sizes, "random", "100%")?;
    assert_eq!(refusing.failed, 0, "{refusing:?}");
    assert_eq!((refusing.listen_overflows, refusing.listen_drops), (0, 0), "{refusing:?}");
    // A node whose kernel drops a connection says so, and the other one gets it: no client waits for a retransmission.
    let unlimited = bursts(&cluster, &sizes, "random", "off")?;
    assert_eq!(unlimited.failed, 0, "{unlimited:?}");
    assert!(unlimited.listen_overflows > 0, "{unlimited:?}");
    cluster.down()
}
