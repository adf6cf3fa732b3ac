//! What the agent makes of a machine, and that nothing of it stays.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{Result, call, config, counter, leftovers, spawn, start, status};
use switchback_lab::{Cluster, Host, Lab};
use switchback_runtime::control::{Request, Response};

#[test]
fn agent_process() {
    common::agent_process();
}

fn has_vips(lab: &Lab, host: &Host) -> Result<bool> {
    let shown = host.run(["ip", "addr", "show", "dev", "lo"])?.success()?;
    let (v4, v6) =
        (shown.contains(&format!("{}/32", lab.vip4())), shown.contains(&format!("{}/128", lab.vip6())));
    assert_eq!(v4, v6, "{shown}");
    Ok(v4)
}

/// The number of programs that are attached to eth0.
fn attached(host: &Host) -> Result<u32> {
    let count = |direction| {
        let mut query = libbpf_sys::bpf_prog_query_opts {
            sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
            ..Default::default()
        };
        let index = switchback_runtime::interface::index("eth0").expect("every host has it");
        // SAFETY: the options say their own size and outlive the call.
        let result =
            unsafe { libbpf_sys::bpf_prog_query_opts(index.cast_signed(), direction, &raw mut query) };
        assert_eq!(result, 0);
        // SAFETY: the kernel has filled this member of the union.
        unsafe { query.__bindgen_anon_1.count }
    };
    Ok(host.enter(|| count(libbpf_sys::BPF_TCX_INGRESS) + count(libbpf_sys::BPF_TCX_EGRESS))?)
}

fn assert_as_found(lab: &Lab, host: &Host) -> Result<()> {
    assert!(!has_vips(lab, host)?);
    assert_eq!(leftovers(host)?, Vec::<PathBuf>::new());
    assert_eq!(attached(host)?, 0);
    Ok(())
}

/// Whether somebody answers when a client asks who has the VIP. The lab's switch must not have it.
fn vip_is_answered(lab: &Lab) -> Result<bool> {
    let (client, vip) = (lab.client(0), lab.vip4());
    // The echo gets no answer in any case; it makes the kernel ask.
    let _ = client.ping(vip);
    Ok(client.run(["ip", "neigh", "show", &vip.to_string()])?.success()?.contains("lladdr"))
}

#[test]
fn the_machine_is_left_as_it_was_found() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, config) = (lab.node(0), config(&lab)?);
    assert_as_found(&lab, node)?;
    let agent = start(node, &config)?;
    assert!(agent.log().contains("node node0 ready on eth0: 2 VIPs"), "{}", agent.log());
    assert!(has_vips(&lab, node)?);
    assert_eq!(attached(node)?, 2);
    assert_eq!(status(node)?["pid"], agent.pid());
    assert!(agent.stop()?.success(), "{}", agent.log());
    assert_as_found(&lab, node)
}

#[test]
fn a_killed_agent_is_taken_over() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, config) = (lab.node(0), config(&lab)?);
    let agent = start(node, &config)?;
    assert!(!vip_is_answered(&lab)?);
    let ignored = counter(node, "arp_ignored")?;
    assert!(ignored > 0);
    agent.kill()?;
    assert!(has_vips(&lab, node)?);
    assert_eq!(attached(node)?, 2, "the programs are still there");
    assert!(!vip_is_answered(&lab)?);
    let next = start(node, &config)?;
    assert_eq!(attached(node)?, 2);
    assert!(counter(node, "arp_ignored")? > ignored, "counters go on");
    assert!(!vip_is_answered(&lab)?);
    assert!(next.stop()?.success(), "{}", next.log());
    assert_as_found(&lab, node)
}

#[test]
fn a_second_agent_is_refused_and_the_first_goes_on() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, config) = (lab.node(0), config(&lab)?);
    let agent = start(node, &config)?;
    let second = spawn(node, &config)?;
    second.wait_for_log(&format!("already running, pid {}", agent.pid()), common::PATIENCE)?;
    assert_eq!(second.wait_timeout(common::PATIENCE)?.and_then(|status| status.code()), Some(2));
    assert_eq!(status(node)?["pid"], agent.pid());
    assert!(agent.stop()?.success());
    Ok(())
}

#[test]
fn a_taken_port_is_named() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, config) = (lab.node(0), config(&lab)?);
    let _other = node.udp_bind((node.ipv4(), 6081).into())?;
    let agent = spawn(node, &config)?;
    agent.wait_for_log("another program has UDP port 6081", common::PATIENCE)?;
    assert_eq!(agent.wait_timeout(common::PATIENCE)?.and_then(|status| status.code()), Some(2));
    assert_as_found(&lab, node)
}

#[test]
fn what_the_kernel_needs_is_asked_for_before_anything_is_attached() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, config) = (lab.node(0), config(&lab)?);
    let (text, address) = (std::fs::read_to_string(&config)?, format!("address = \"{}\"\n", node.ipv4()));
    std::fs::write(&config, text.replace(&address, &format!("{address}adoption = \"kernel\"\n")))?;
    node.run(["sysctl", "-w", "net.ipv4.tcp_syncookies=0"])?.success()?;
    let agent = spawn(node, &config)?;
    agent.wait_for_log("sysctl -w net.ipv4.tcp_syncookies=1", common::PATIENCE)?;
    assert_eq!(agent.wait_timeout(common::PATIENCE)?.and_then(|status| status.code()), Some(2));
    assert_as_found(&lab, node)?;
    // It replays handshakes instead.
    std::fs::write(&config, text)?;
    let agent = start(node, &config)?;
    assert!(agent.log().contains("handshakes are replayed"), "{}", agent.log());
    assert!(agent.stop()?.success());
    assert_as_found(&lab, node)
}

#[test]
fn addresses_of_others_are_left_alone() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, config) = (lab.node(0), config(&lab)?);
    let (v4, v6) = (format!("{}/32", lab.vip4()), format!("{}/128", lab.vip6()));
    for address in [&v4, &v6] {
        node.run(["ip", "addr", "add", address, "dev", "lo"])?.success()?;
    }
    let agent = start(node, &config)?;
    assert!(agent.stop()?.success());
    assert!(has_vips(&lab, node)?);
    Ok(())
}

#[test]
fn a_reload_applies_all_or_nothing() -> Result<()> {
    let lab = Lab::builder().up()?;
    let (node, config) = (lab.node(0), config(&lab)?);
    let agent = start(node, &config)?;
    let mut cluster = Cluster::with_policy("round-robin");
    cluster.extra =
        "[[service]]\nname = \"more\"\nlisten = [\"192.0.2.101:80\"]\n\n[[service.route]]\npool = \"web\"\n"
            .to_owned();
    lab.write_config(&cluster)?;
    let done = call(node, Request::Reload {})?;
    assert!(matches!(&done, Response::Done { lines } if lines == &["service more added"]), "{done:?}");
    assert_eq!(status(node)?["vips"].as_array().map(Vec::len), Some(3));
    let shown = node.run(["ip", "addr", "show", "dev", "lo"])?.success()?;
    assert!(shown.contains("192.0.2.101/32"), "{shown}");

    lab.write_config_text("[cluster]\nkey_file = \"{key_file}\"\n")?;
    let failed = call(node, Request::Reload {})?;
    assert!(matches!(failed, Response::Failed { .. }), "{failed:?}");
    assert_eq!(status(node)?["vips"].as_array().map(Vec::len), Some(3));

    lab.write_config(&Cluster::with_policy("round-robin"))?;
    agent.signal(switchback_lab::Signal::SIGHUP)?;
    agent.wait_for_log("service more removed", Duration::from_secs(2))?;
    let shown = node.run(["ip", "addr", "show", "dev", "lo"])?.success()?;
    assert!(!shown.contains("192.0.2.101/32") && has_vips(&lab, node)?, "{shown}");
    assert!(agent.stop()?.success());
    assert_as_found(&lab, node)
}

#[test]
fn what_a_deleted_namespace_has_left_is_swept() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let config = config(&lab)?;
    start(lab.node(0), &config)?.kill()?;
    // Another namespace may be given the old one's inode, and with it the names of what it has left: the pins get a
    // name here that nobody gets, and the socket goes.
    let (pins, sockets): (Vec<PathBuf>, Vec<PathBuf>) =
        leftovers(lab.node(0))?.into_iter().partition(|path| path.starts_with("/sys/fs/bpf"));
    let pins = pins.first().ok_or("nothing is pinned")?;
    let pins_of_nobody = pins.with_file_name("node-eth0-0");
    std::fs::rename(pins, &pins_of_nobody)?;
    sockets.iter().try_for_each(std::fs::remove_file)?;
    // The kernel takes its time over the interfaces of a deleted namespace; this one is gone when the command ends.
    lab.node(0).run(["ip", "link", "del", "eth0"])?.success()?;
    lab.down()?;
    let other = Lab::builder().up()?;
    start(other.node(0), &common::config(&other)?)?;
    assert!(!pins_of_nobody.exists(), "{}", pins_of_nobody.display());
    Ok(())
}
