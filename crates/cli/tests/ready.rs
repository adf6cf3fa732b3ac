//! `switchback ready`, as a health script meets it: exit status, and one line.

mod common;

use common::http::{Documents, get};
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use switchback_lab::Signal;

/// The exit status, and the line.
fn ready(cluster: &Cluster) -> Result<(i32, String)> {
    let output = cluster.run(cluster.lab.switch(0), &["ready"])?;
    let status = output.status.code().ok_or("a signal ended it")?;
    let line = if status == 0 { &output.stdout } else { &output.stderr };
    assert_eq!(line.lines().count(), 1, "{output:?}");
    Ok((status, line.trim_end().to_owned()))
}

/// Waits until it is not ready for this reason.
fn lacks(cluster: &Cluster, parts: &[&str]) -> Result {
    let wanted =
        |(status, line): &(i32, String)| *status == 1 && parts.iter().all(|part| line.contains(part));
    wait_until("not ready", PATIENCE, || ready(cluster), wanted).map(drop)
}

fn serves(cluster: &Cluster) -> Result {
    wait_until("ready", PATIENCE, || ready(cluster), |said| *said == (0, "ready".to_owned())).map(drop)
}

#[test]
fn the_exit_status_says_whether_the_switch_can_serve() -> Result {
    let mut cluster = Cluster::prepare(Plan::default())?;
    let start = "systemctl start switchback-switch";
    assert_eq!(ready(&cluster)?.0, 1);
    lacks(&cluster, &["not ready: no switch runs", start])?;
    cluster.start_switch()?;
    lacks(&cluster, &["service shop: no node is heard", "node0 has not reported", "UDP port 6081"])?;
    // One of them is enough.
    cluster.start_node(1)?;
    serves(&cluster)?;
    // It has a socket, too, but is no switch.
    let on_node = cluster.run(cluster.lab.node(1), &["ready"])?;
    assert_eq!(on_node.status.code(), Some(1), "{on_node:?}");

    cluster.lab.switch(0).cut_link()?;
    lacks(&cluster, &["service shop", "node1 silent"])?;
    cluster.lab.switch(0).mend_link()?;
    serves(&cluster)?;

    cluster.switch().signal(Signal::SIGSTOP)?;
    lacks(&cluster, &["not ready: ", "restart the switch"])?;
    cluster.switch().signal(Signal::SIGCONT)?;
    serves(&cluster)?;

    cluster.kill_switch()?;
    lacks(&cluster, &["not ready: ", "restart the switch"])?;
    cluster.start_switch()?;
    serves(&cluster)?;
    cluster.down()
}

#[test]
fn a_switch_that_withdraws_serves_and_is_not_ready() -> Result {
    let mut cluster = Cluster::start()?;
    let documents = Documents::of(&cluster.lab)?;
    serves(&cluster)?;
    let say = |cluster: &Cluster, word: &str| -> Result<String> {
        Ok(cluster.run(cluster.lab.switch(0), &[word, "--self"])?.success()?)
    };
    let said = say(&cluster, "drain")?;
    assert!(said.starts_with("withdrawn: "), "{said}");
    assert_eq!(say(&cluster, "drain")?, "withdrawn already\n");
    lacks(&cluster, &["not ready: withdrawn", "switchback undrain --self"])?;
    get(cluster.client(), &cluster.url4("/small"), &documents.small)?;
    // It is for an upgrade, too. Sockets of dead processes are removed when the next one starts, the mark is not.
    cluster.stop_switch()?;
    cluster.start_switch()?;
    lacks(&cluster, &["withdrawn"])?;
    assert_eq!(say(&cluster, "undrain")?, "withdrawn no more\n");
    assert_eq!(say(&cluster, "undrain")?, "not withdrawn\n");
    serves(&cluster)?;
    // Only this switch.
    let both = cluster.run(cluster.lab.switch(0), &["drain", "--self", "node0"])?;
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    cluster.down()
}
