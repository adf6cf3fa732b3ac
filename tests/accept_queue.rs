//! Bursts of connections that are too much for one accept queue and not for two: who looks at the queues loses
//! none of them.

mod common;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::packets::Random;
use common::{Cluster, PATIENCE, Plan, Result};
use switchback_lab::experiment::OpenLoop;
use switchback_lab::{ServiceTime, SlowServerOptions};

const BACKLOG: u32 = 16;
/// Connections of the smallest burst, and how many sizes there are. Both nodes together have room for 36: Linux lets
/// one more wait than the backlog says, and each has one at work.
const LEAST: u32 = 28;
const SPAN: u64 = 5;
const BURSTS: usize = 20;
/// A whole queue is worked off in less than 100 ms, half of the shortest time after which Linux retransmits.
const SERVICE: Duration = Duration::from_millis(4);
/// Connections in a second, within a burst.
const RATE: f64 = 20_000.0;

/// What became of all bursts of one policy.
#[derive(Debug, Default)]
struct Outcome {
    connections: u64,
    failed: u64,
    stalls: u64,
    longest_ms: f64,
    /// Of both nodes.
    listen_overflows: u64,
    listen_drops: u64,
}

fn bursts(cluster: &Cluster, sizes: &[u32], policy: &'static str, limit: &'static str) -> Result<Outcome> {
    let mut plan = cluster.plan.clone();
    plan.policy = policy;
    plan.queue_limit = Some(limit);
    cluster.write_config(&plan)?;
    for host in cluster.lab.nodes().chain(cluster.lab.switches()) {
        cluster.run(host, &["reload"])?.success()?;
    }
    let of_nodes = |name| -> Result<u64> {
        Ok(cluster.lab.nodes().map(|node| node.tcp_counter(name)).sum::<switchback_lab::Result<u64>>()?)
    };
    let before = (of_nodes("ListenOverflows")?, of_nodes("ListenDrops")?);
    let mut outcome = Outcome::default();
    for &connections in sizes {
        let load = OpenLoop { connections, rate: RATE, poisson: None, timeout: PATIENCE };
        let burst = load.run(cluster.client(), (cluster.lab.vip4(), 80).into())?;
        outcome.connections += u64::from(connections);
        outcome.failed += burst.failures.total();
        outcome.stalls += burst.stalls();
        outcome.longest_ms = outcome.longest_ms.max(burst.quantile_ms(1.0).unwrap_or_default());
    }
    outcome.listen_overflows = of_nodes("ListenOverflows")? - before.0;
    outcome.listen_drops = of_nodes("ListenDrops")? - before.1;
    println!("{policy}, queue_limit {limit}: {outcome:?}");
    Ok(outcome)
}

#[test]
fn bursts_fail_only_where_nobody_looks_at_the_queues() -> Result {
    let seed: u64 = match std::env::var("SWITCHBACK_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64,
    };
    println!("SWITCHBACK_SEED={seed}");
    let mut random = Random::new(seed);
    let sizes: Vec<u32> = (0..BURSTS).map(|_| LEAST + random.below(SPAN) as u32).collect();
    let slow = SlowServerOptions::new(1, BACKLOG, ServiceTime::Fixed(SERVICE));
    let plan = Plan { slow_servers: Some(slow), pools: vec![("web", vec![0, 1])], ..Plan::default() };
    let cluster = Cluster::start_with(plan)?;

    let blind = bursts(&cluster, &sizes, "random", "off")?;
    assert!(blind.listen_overflows > 0, "the load is none: {blind:?}");
    for policy in ["fill", "accept-queue"] {
        let outcome = bursts(&cluster, &sizes, policy, "100%")?;
        assert_eq!((outcome.failed, outcome.stalls), (0, 0), "{policy}: {outcome:?}");
        assert_eq!((outcome.listen_overflows, outcome.listen_drops), (0, 0), "{policy}: {outcome:?}");
    }
    let refusing = bursts(&cluster, &sizes, "random", "100%")?;
    assert_eq!(refusing.failed, 0, "{refusing:?}");
    cluster.down()
}
