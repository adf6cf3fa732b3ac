//! Connections to a VIP from the switch's own machine, over a pair of veths, as docs/operations.md says.

mod common;

use std::process::Command;

use common::http::{Documents, get};
use common::{Cluster, PATIENCE, PROGRAM, Plan, Result, markdown, stop, text};

#[test]
fn a_pair_of_veths_reaches_the_vips() -> Result {
    let mut cluster = Cluster::prepare(Plan::default())?;
    cluster.start_node(0)?;
    cluster.start_node(1)?;
    let switch = cluster.lab.switch(0);
    let code = markdown::all_code();
    let block = code.iter().find(|code| code.text.starts_with("ip link add vip0"));
    let block = block.ok_or("the page does not say how")?;
    let [vip, own] = [cluster.lab.vip6(), switch.ipv6()];
    let also_ipv6 = format!("set -e\n{}\nip route add {vip} dev vip0 src {own}", block.text);
    switch.run(["sh", "-c", &also_ipv6])?.success()?;
    let mut command = Command::new(PROGRAM);
    command.args(["switch", "--interface", "eth0", "--interface", "vip1", "--config", text(&cluster.config)]);
    let process = switch.spawn("switch", command)?;
    process.wait_for_log("switch ready on vip1", PATIENCE)?;
    let documents = Documents::of(&cluster.lab)?;
    for host in [switch, cluster.client()] {
        get(host, &cluster.url4("/1m"), &documents.large)?;
        get(host, &cluster.url6("/img/small"), &documents.img_small)?;
    }
    stop(&process)?;
    cluster.down()
}
