//! Clients whose TCP lacks what most have, or has more, get the same bytes.

mod common;

use std::time::Duration;

use common::http::{Documents, alternating, fetch, get};
use common::{Cluster, Result};

/// Both pools over both families; on connections that move, too.
fn assert_served(cluster: &Cluster) -> Result {
    let documents = Documents::of(&cluster.lab)?;
    for url in [cluster.url4("/1m"), cluster.url6("/1m")] {
        get(cluster.client(), &url, &documents.large)?;
    }
    for v6 in [false, true] {
        let gets =
            alternating(&documents, 16, |path| if v6 { cluster.url6(path) } else { cluster.url4(path) });
        let responses = fetch(cluster.client(), &gets, &[], Duration::from_secs(20))?;
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    }
    Ok(())
}

fn with_sysctls(settings: &[&str]) -> Result {
    let cluster = Cluster::start()?;
    for setting in settings {
        cluster.client().run(["sysctl", "-w", setting])?.success()?;
    }
    assert_served(&cluster)?;
    cluster.down()
}

#[test]
fn without_timestamps() -> Result {
    with_sysctls(&["net.ipv4.tcp_timestamps=0"])
}

#[test]
fn without_window_scaling() -> Result {
    with_sysctls(&["net.ipv4.tcp_window_scaling=0"])
}

#[test]
fn without_selective_acknowledgments() -> Result {
    with_sysctls(&["net.ipv4.tcp_sack=0"])
}

#[test]
fn without_any_option() -> Result {
    with_sysctls(&["net.ipv4.tcp_timestamps=0", "net.ipv4.tcp_window_scaling=0", "net.ipv4.tcp_sack=0"])
}

#[test]
fn with_congestion_notification() -> Result {
    let cluster = Cluster::start()?;
    cluster.client().run(["sysctl", "-w", "net.ipv4.tcp_ecn=1"])?.success()?;
    let marked = cluster.client().count("ip dscp 0 ip ecn != not-ect tcp sport 80")?;
    assert_served(&cluster)?;
    assert!(marked.to_host()?.packets > 100, "the nodes do not use ECN: {:?}", marked.to_host()?);
    cluster.down()
}

#[test]
fn behind_a_small_mtu() -> Result {
    let cluster = Cluster::start()?;
    cluster.client().set_mtu(1280)?;
    assert_served(&cluster)?;
    cluster.down()
}
