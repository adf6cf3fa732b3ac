//! However the processes end, the machine is as before once they have ended in order; and while they are
//! away, running responses go on.

mod common;

use std::thread;
use std::time::Duration;

use common::http::{Documents, add_long_document, fetch, get, start_fetch};
use common::{Cluster, PATIENCE, Result, traces, wait_until};

const MEBIBYTES: usize = 300;
/// So slow that the download lasts some 6 s.
const CLIENT_RATE: u64 = 400_000_000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Asserts that a log begins with the first of these events, and that all others begin with one of them.
fn assert_events(log: &str, expected: &[&str]) {
    let event = |line: &str| line.split_once(' ').map(|(_, event)| event.replacen("  ", " ", 1));
    let events: Vec<String> = log.lines().map(|line| event(line).unwrap_or(line.to_owned())).collect();
    assert!(events[0].starts_with(expected[0]), "{log}");
    let is_expected = |event: &String| expected.iter().any(|begin| event.starts_with(begin));
    assert!(events.iter().all(is_expected), "{log}");
}

#[test]
fn after_sigterm() -> Result {
    let mut cluster = Cluster::prepare(common::Plan::default())?;
    cluster.assert_no_trace()?;
    cluster.start_node(0)?;
    cluster.start_node(1)?;
    cluster.start_switch()?;
    for host in cluster.lab.switches().chain(cluster.lab.nodes()) {
        assert!(!traces::of(host)?.is_empty(), "nothing would be seen on {}", host.name());
    }
    let documents = Documents::of(&cluster.lab)?;
    get(cluster.client(), &cluster.url4("/small"), &documents.small)?;
    // No word but this one, or the ones that matter would go unread.
    let heard = || Ok(cluster.switch().log());
    wait_until("both nodes in the log", PATIENCE, heard, |log| {
        log.contains("node0") && log.contains("node1")
    })?;
    assert_events(&cluster.switch().log(), &["INFO switch ready on eth0 (native XDP)", "INFO node"]);
    let switch = format!("INFO switch {} is heard", cluster.lab.switch(0).ipv4());
    cluster.agent(0).wait_for_log(&switch[5..], PATIENCE)?;
    assert_events(&cluster.agent(0).log(), &["INFO node node0 ready on eth0: 2 VIPs", &switch]);
    cluster.stop_all()?;
    cluster.assert_no_trace()?;
    // Nobody answers for the VIPs any more.
    assert!(cluster.client().ping(cluster.lab.vip4()).is_err());
    cluster.down()
}

#[test]
fn after_sigkill_restart_and_sigterm() -> Result {
    let mut cluster = Cluster::start()?;
    let documents = Documents::of(&cluster.lab)?;
    for _ in 0..2 {
        get(cluster.client(), &cluster.url4("/small"), &documents.small)?;
        cluster.kill_switch()?;
        cluster.kill_node(0)?;
        cluster.kill_node(1)?;
        for host in cluster.lab.switches().chain(cluster.lab.nodes()) {
            assert!(
                !traces::of(host)?.is_empty(),
                "what is attached on {} is gone with the process",
                host.name()
            );
        }
        cluster.start_node(1)?;
        cluster.start_switch()?;
        cluster.start_node(0)?;
        get(cluster.client(), &cluster.url6("/img/small"), &documents.img_small)?;
    }
    cluster.down()
}

/// A long download, in the middle of which something is done to the cluster.
fn download_while(disturb: impl FnOnce(&mut Cluster) -> Result) -> Result {
    let mut cluster = Cluster::start()?;
    let long = add_long_document(&cluster.lab, "/long", MEBIBYTES)?;
    cluster.client().set_rate(Some(CLIENT_RATE))?;
    let url = cluster.url4("/long");
    let received = |cluster: &Cluster| Ok(cluster.client().interface_counters("eth0")?.rx.bytes);
    let start = received(&cluster)?;
    let download = thread::spawn(start_fetch(cluster.client(), vec![(url, long)], &[], TIMEOUT)?);
    wait_until(
        "the download has begun",
        PATIENCE,
        || received(&cluster),
        |bytes| *bytes > start + (50 << 20),
    )?;
    disturb(&mut cluster)?;
    let so_far = received(&cluster)? - start;
    assert!(so_far < (MEBIBYTES as u64 - 50) << 20, "the download was over too early: {so_far} bytes");
    let responses = download.join().expect("the download does not panic")?;
    assert_eq!(responses.iter().map(|response| response.connects).collect::<Vec<_>>(), [1]);
    println!("{:?}", responses[0].time);
    // The next request of the same client is served as ever.
    let documents = Documents::of(&cluster.lab)?;
    get(cluster.client(), &cluster.url4("/img/small"), &documents.img_small)?;
    cluster.down()
}

#[test]
fn a_download_goes_on_over_a_killed_switch() -> Result {
    download_while(|cluster| {
        cluster.kill_switch()?;
        cluster.start_switch()
    })
}

#[test]
fn a_download_goes_on_over_a_restarted_switch() -> Result {
    download_while(|cluster| {
        cluster.stop_switch()?;
        let switch = traces::of(cluster.lab.switch(0))?;
        assert!(switch.is_empty(), "{switch:#?}");
        cluster.start_switch()?;
        let found = || {
            let dispatch = &cluster.switch_status()?["dispatch"];
            Ok(["recovered", "listed"].map(|count| dispatch[count].as_u64().unwrap_or(0)))
        };
        wait_until("flows found again", PATIENCE, found, |found| found.iter().sum::<u64>() > 0)?;
        Ok(())
    })
}

#[test]
fn a_download_goes_on_over_a_killed_agent() -> Result {
    download_while(|cluster| {
        cluster.kill_node(0)?;
        cluster.start_node(0)
    })
}

#[test]
fn a_keep_alive_connection_goes_on_over_both() -> Result {
    let mut cluster = Cluster::start()?;
    let documents = Documents::of(&cluster.lab)?;
    let gets: Vec<_> = (0..200)
        .map(|index| {
            let document = [&documents.small, &documents.img_small][index % 2];
            (cluster.url4(document.path), document.clone())
        })
        .collect();
    // Slow enough that both ends of the switch fall between them.
    let download = thread::spawn(start_fetch(cluster.client(), gets, &["--rate", "40/s"], TIMEOUT)?);
    let served = |cluster: &Cluster| Ok(cluster.switch_status()?["services"][0]["requests"].as_u64());
    wait_until("requests", PATIENCE, || served(&cluster), |count| *count > Some(10))?;
    cluster.kill_switch()?;
    cluster.start_switch()?;
    wait_until("requests", PATIENCE, || served(&cluster), |count| *count > Some(10))?;
    cluster.stop_switch()?;
    cluster.start_switch()?;
    wait_until("requests", PATIENCE, || served(&cluster), |count| *count > Some(10))?;
    let responses = download.join().expect("the download does not panic")?;
    assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    cluster.down()
}

/// `fetch` is used as it is where nothing happens meanwhile.
#[test]
fn the_first_request_after_a_start_needs_no_patience() -> Result {
    let cluster = Cluster::start()?;
    let documents = Documents::of(&cluster.lab)?;
    let gets = [(cluster.url4("/small"), documents.small.clone())];
    let [handshakes, _] = cluster.sent_again(|| fetch(cluster.client(), &gets, &[], PATIENCE).map(drop))?;
    assert_eq!(handshakes, 0, "sent again");
    cluster.down()
}
