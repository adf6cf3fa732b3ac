//! A switch in a virtual machine, whose interface is a virtio_net with several queues. `make test-kernels` runs the other
//! suites in such machines, too.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::http::{Documents, alternating, fetch};
use common::responses::Responses;
use common::{Cluster, PATIENCE, PROGRAM, Result};
use switchback_lab::{Host, Process, within};

/// Boots a kernel, and runs a command there.
const VM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/vm");
/// How long the machine may run.
const TIME: Duration = Duration::from_secs(900);
/// Processors of the machine.
const PROCESSORS: usize = 2;
const REQUESTS: usize = 200;
const UPLOAD: usize = 1_000_000;

/// Starts the switch in a machine that takes the host's place in the network: its addresses, also of the hardware. Its
/// interface can have so many pairs of queues, of which one for each processor is for the kernel.
fn start_switch(host: &Host, config: &Path, queues: usize) -> Result<Process> {
    let kernel = std::env::var("SWITCHBACK_KERNEL")
        .map_err(|_| "SWITCHBACK_KERNEL is to name a directory with a kernel: make test-kernels does that")?;
    let (v4, v6) = (host.ipv4(), host.ipv6());
    let mac = host.run(["cat", "/sys/class/net/eth0/address"])?.success()?.trim().to_owned();
    for line in [
        "ip addr flush dev eth0",
        "ip link set eth0 address 02:00:00:00:00:01",
        "ip link add lan type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        "ip tuntap add dev machine mode tap multi_queue",
        "ip link set eth0 master lan promisc on up",
        "ip link set machine master lan up",
        "ip link set lan up",
    ] {
        host.run(line.split(' '))?.success()?;
    }
    let devices = format!(
        "-netdev tap,id=net,ifname=machine,script=no,downscript=no,queues={queues} \
         -device virtio-net-pci,netdev=net,mac={mac},mq=on,vectors={}",
        2 * queues + 2
    );
    let script = format!(
        "set -e
        ip addr add {v4}/24 dev eth0
        ip addr add {v6}/64 dev eth0 nodad
        ethtool -L eth0 combined {PROCESSORS}
        ip link set eth0 up
        (until ip link show eth0 | grep xdp; do sleep 0.1; done) &
        exec {PROGRAM} switch --config /mnt{} --interface eth0",
        config.display()
    );
    let mut command = Command::new(VM);
    command.arg(kernel).arg(TIME.as_secs().to_string()).args(["bash", "-c", &script]).env("VM_QEMU", devices);
    Ok(host.spawn("machine", command)?)
}

/// Uploads from the network of the machine, whose packets come to its interface as the kernel of this one makes them: large
/// ones, and without checksums, if the interface takes such. With a native XDP program it must not.
fn upload(cluster: &Cluster, vip: IpAddr) -> Result {
    let host = cluster.lab.switch(0);
    let (length, local, gateway) = match vip {
        IpAddr::V4(_) => (24, IpAddr::from([192, 0, 2, 250]), IpAddr::from(host.ipv4())),
        IpAddr::V6(_) => (64, "2001:db8::250".parse()?, host.ipv6().into()),
    };
    let own = if vip.is_ipv4() { "" } else { " nodad" };
    for line in
        [format!("ip addr add {local}/{length} dev lan{own}"), format!("ip route add {vip} via {gateway}")]
    {
        host.run(line.split(' '))?.success()?;
    }
    let stream = host.tcp_connect(SocketAddr::new(vip, 80), PATIENCE)?;
    let mut responses = Responses::new(&stream, PATIENCE)?;
    for _ in 0..3 {
        responses.upload(UPLOAD)?;
    }
    Ok(())
}

fn serves_on_virtio_net(queues: usize) -> Result {
    let mut cluster = Cluster::prepare(common::Plan::default())?;
    for node in 0..2 {
        cluster.start_node(node)?;
    }
    let machine = start_switch(cluster.lab.switch(0), &cluster.config, queues)?;
    machine.wait_for_log("ready", PATIENCE)?;
    let mode = machine.wait_for_log(" xdp", PATIENCE)?;
    assert!(mode.contains(" xdp "), "in the driver: {mode}");
    let documents = Documents::of(&cluster.lab)?;
    for v6 in [false, true] {
        let url = |path: &str| if v6 { cluster.url6(path) } else { cluster.url4(path) };
        let gets = alternating(&documents, REQUESTS, url);
        let responses = fetch(cluster.client(), &gets, &[], within(Duration::from_secs(30)))?;
        for (index, response) in responses.iter().enumerate() {
            assert_eq!(response.node, format!("node{}", index % 2), "request {index}");
        }
        assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), 1);
    }
    for vip in [IpAddr::from(cluster.lab.vip4()), cluster.lab.vip6().into()] {
        upload(&cluster, vip)?;
    }
    machine.stop()?;
    cluster.down()
}

#[test]
#[ignore = "takes QEMU and a kernel: make test-kernels"]
fn a_switch_on_virtio_net() -> Result {
    serves_on_virtio_net(2 * PROCESSORS)
}

/// XDP_TX takes the kernel's queues, under a lock.
#[test]
#[ignore = "takes QEMU and a kernel: make test-kernels"]
fn a_switch_on_virtio_net_without_queues_of_its_own() -> Result {
    serves_on_virtio_net(PROCESSORS)
}
