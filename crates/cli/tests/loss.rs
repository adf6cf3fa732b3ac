//! Loss costs time and never a byte.

mod common;

use std::thread;
use std::time::Duration;

use common::http::{Documents, alternating, fetch};
use common::{Cluster, Result};
use switchback_lab::{Host, Impairment};

const CONNECTIONS: usize = 4;
const DOWNLOADS: usize = 5;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Twenty mebibytes on four connections, each of which changes the pool at every request.
fn download(cluster: &Cluster) -> Result {
    let documents = Documents::of(&cluster.lab)?;
    thread::scope(|scope| {
        let loads: Vec<_> = (0..CONNECTIONS)
            .map(|connection| {
                let documents = &documents;
                scope.spawn(move || -> Result {
                    let choose = |index: usize| {
                        let large = [&documents.large, &documents.img_large][(index + connection) % 2];
                        let url =
                            [cluster.url4(large.path), cluster.url6(large.path)][connection % 2].clone();
                        (url, large.clone())
                    };
                    let gets: Vec<_> = (0..DOWNLOADS).map(choose).collect();
                    let responses = fetch(cluster.client(), &gets, &[], TIMEOUT)?;
                    assert_eq!(responses.len(), DOWNLOADS);
                    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
                    Ok(())
                })
            })
            .collect();
        loads.into_iter().try_for_each(|load| load.join().expect("the load does not panic"))
    })
}

#[test]
fn one_percent_each_way_at_the_client() -> Result {
    let cluster = Cluster::start()?;
    let sent = cluster.client().count("meta l4proto tcp")?;
    cluster.client().set_loss(10, 10)?;
    download(&cluster)?;
    // That there was loss: with so many packets, none lost is less likely than one in 10^20.
    assert!(sent.to_host()?.packets > 5000, "{:?}", sent.to_host()?);
    cluster.client().set_loss(0, 0)?;
    cluster.down()
}

#[test]
fn one_percent_each_way_between_switch_and_nodes() -> Result {
    let cluster = Cluster::start()?;
    cluster.lab.switch(0).set_loss(10, 10)?;
    // Enough small requests to lose some handoffs, each of which is sent again after 10 ms.
    let documents = Documents::of(&cluster.lab)?;
    let gets = common::http::alternating(&documents, 1000, |path| cluster.url4(path));
    fetch(cluster.client(), &gets, &[], TIMEOUT)?;
    download(&cluster)?;
    let status = cluster.switch_status()?;
    assert!(status["dispatch"]["resent"].as_u64() > Some(0), "{status:#}");
    cluster.lab.switch(0).set_loss(0, 0)?;
    cluster.down()
}

/// Packets lost, duplicated and late, each way, on a host's cable: copies of handoffs arrive long after the flow
/// has moved on. No connection ends for it.
fn impaired(host: impl Fn(&Cluster) -> &Host) -> Result {
    const CONNECTIONS: usize = 6;
    const ROUNDS: u64 = 4;
    const REQUESTS: usize = 100;
    let cluster = Cluster::start()?;
    let documents = Documents::of(&cluster.lab)?;
    for seed in 0..ROUNDS {
        let impaired = host(&cluster).impair(Impairment {
            loss_permille: 30,
            duplicate_permille: 30,
            reorder_permille: 30,
            hold: Duration::from_millis(60),
            seed,
        })?;
        let url = |path: &str| if seed % 2 == 0 { cluster.url4(path) } else { cluster.url6(path) };
        thread::scope(|scope| {
            let load = || -> Result {
                let responses =
                    fetch(cluster.client(), &alternating(&documents, REQUESTS, url), &[], TIMEOUT)?;
                assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
                Ok(())
            };
            let loads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(load)).collect();
            loads.into_iter().try_for_each(|load| load.join().expect("all on one connection"))
        })?;
        for traffic in [impaired.from_host(), impaired.to_host()] {
            assert!(traffic.lost.min(traffic.duplicated).min(traffic.reordered) > 10, "{traffic:?}");
        }
        impaired.heal()?;
    }
    cluster.down()
}

#[test]
fn late_copies_at_the_client() -> Result {
    impaired(Cluster::client)
}

#[test]
fn late_copies_at_the_switch() -> Result {
    impaired(|cluster| cluster.lab.switch(0))
}

#[test]
fn late_copies_at_a_node() -> Result {
    impaired(|cluster| cluster.lab.node(0))
}
