//! The checks on machines that nobody has at hand: each fact alone is made wrong.

use switchback_runtime::facts::LinkFacts;
use switchback_runtime::{Check, Facts, check_node, check_switch, checks};

const PORTS: [u16; 2] = [80, 443];

fn healthy() -> Facts {
    Facts {
        interface: "eth0".to_owned(),
        interfaces: vec!["lo".to_owned(), "eth0".to_owned()],
        link: Some(LinkFacts {
            mtu: 1500,
            driver: Some("veth".to_owned()),
            sends_redirected: Some(true),
            gro: Some(true),
            below: None,
        }),
        btf: true,
        adopts: true,
        changes_protocols: true,
        capabilities: u64::MAX,
        bpffs: true,
        tcp_syncookies: Some(1),
        tcp_rfc1337: Some(0),
        unprivileged_port_start: Some(1024),
        rp_filter: Some(0),
        mptcp_ports: Ok(vec![8080]),
        port_is_taken: false,
    }
}

/// The findings, each with `fatal: ` or `warning: ` in front.
fn found(checks: &[Check]) -> Vec<String> {
    let findings = checks.iter().filter_map(|check| check.as_ref().err());
    findings.map(|it| format!("{}: {it}", if it.fatal { "fatal" } else { "warning" })).collect()
}

/// What a node of this machine is told; one thing.
fn only(break_it: impl FnOnce(&mut Facts)) -> String {
    let mut facts = healthy();
    break_it(&mut facts);
    let found = found(&check_node(&facts, &PORTS, &PORTS, false));
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap_or_default()
}

fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn nothing_is_wrong_with_a_healthy_machine() {
    assert_eq!(found(&check_node(&healthy(), &PORTS, &PORTS, false)), Vec::<String>::new());
    assert_eq!(found(&check_switch(&healthy())), Vec::<String>::new());
    assert!(checks::refuse_fatal(&check_node(&healthy(), &PORTS, &PORTS, false)).is_ok());
}

#[test]
fn who_listens_below_1024_needs_a_right_for_that() {
    let without = Facts { capabilities: !(1 << 10), ..healthy() };
    let found_for = |facts: &Facts, own: &[u16]| found(&check_node(facts, &PORTS, own, false));
    let said = found_for(&without, &[443]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_parts(
        &said[0],
        &["fatal: ", "CAP_NET_BIND_SERVICE", "services with TLS", "CAP_NET_RAW CAP_NET_BIND_SERVICE"],
    );
    assert_eq!(found_for(&without, &[8443]), [""; 0]);
    assert_eq!(found_for(&Facts { unprivileged_port_start: Some(443), ..without }, &[443]), [""; 0]);
}

#[test]
fn an_old_kernel_is_told_which_is_new_enough() {
    assert_parts(&only(|facts| facts.adopts = false), &["fatal: ", "bpf_sk_assign_tcp_reqsk", "Linux 6.9"]);
    assert_parts(
        &only(|facts| facts.btf = false),
        &["fatal: ", "/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"],
    );
    let old = Facts { adopts: false, ..healthy() };
    assert_eq!(found(&check_switch(&old)), Vec::<String>::new(), "a switch adopts nothing");
}

#[test]
fn each_missing_capability_is_named() {
    for (bit, name) in [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW")] {
        assert_parts(&only(|facts| facts.capabilities &= !(1 << bit)), &["fatal: ", name]);
    }
    // CAP_SYS_ADMIN, bit 21, stands in for both.
    for (bit, name) in [(38, "CAP_PERFMON"), (39, "CAP_BPF")] {
        assert_parts(&only(|facts| facts.capabilities &= !(1 << bit | 1 << 21)), &["fatal: ", name]);
    }
    let none = Facts { capabilities: 0, ..healthy() };
    assert_eq!(found(&check_switch(&none)).len(), 4);
}

#[test]
fn sysctls_that_stop_adoption_come_with_the_command() {
    let off = only(|facts| facts.tcp_syncookies = Some(0));
    assert_parts(&off, &["fatal: ", "RST", "sysctl -w net.ipv4.tcp_syncookies=1"]);
    assert_parts(&only(|facts| facts.tcp_syncookies = None), &["fatal: ", "CONFIG_SYN_COOKIES"]);
    let on = only(|facts| facts.tcp_rfc1337 = Some(1));
    assert_parts(&on, &["fatal: ", "TIME_WAIT", "sysctl -w net.ipv4.tcp_rfc1337=0"]);
    let strict = only(|facts| facts.rp_filter = Some(1));
    assert_parts(&strict, &["warning: ", "net.ipv4.conf.eth0.rp_filter=2"]);
    let loose = Facts { rp_filter: Some(2), ..healthy() };
    assert_eq!(found(&check_node(&loose, &PORTS, &PORTS, false)), Vec::<String>::new());
}

#[test]
fn an_unknown_interface_lists_the_known_ones() {
    let text = only(|facts| facts.link = None);
    assert_parts(&text, &["fatal: there is no network interface eth0", "lo, eth0"]);
    let error =
        checks::refuse_fatal(&check_switch(&Facts { link: None, ..healthy() })).expect_err("it is fatal");
    assert_eq!(error.exit_status(), 2);
    assert_parts(&error.to_string(), &["eth0", "--interface"]);
    let without_name = only(|facts| (facts.link, facts.interface) = (None, String::new()));
    assert_parts(&without_name, &["fatal: ", "no interface has an IPv4 default route", "lo, eth0"]);
}

#[test]
fn nothing_is_said_of_an_interface_that_does_not_exist() {
    let facts = Facts { link: None, ..healthy() };
    let fine: Vec<String> = check_node(&facts, &PORTS, &PORTS, false).into_iter().flatten().collect();
    assert!(!fine.iter().any(|fine| fine.contains("eth0")), "{fine:#?}");
}

#[test]
fn mtus_that_cost_mss_say_how_much() {
    let mtu = |mtu| move |facts: &mut Facts| facts.link.as_mut().expect("healthy has one").mtu = mtu;
    assert_parts(&only(mtu(1400)), &["warning: ", "1400 bytes", "MSS of 1248", "1228", "1268"]);
    assert_parts(&only(mtu(600)), &["fatal: ", "536"]);
}

#[test]
fn a_port_that_another_program_has_is_fatal() {
    let taken = only(|facts| facts.port_is_taken = true);
    assert_parts(&taken, &["fatal: ", "UDP port 6081", "ss -lunp sport = :6081"]);
}

#[test]
fn mptcp_listeners_on_our_ports_come_with_the_cures() {
    let text = only(|facts| facts.mptcp_ports = Ok(vec![443, 8080]));
    assert_parts(&text, &["warning: ", "port 443 ", "GODEBUG=multipathtcp=0", "net.mptcp.enabled=0"]);
    assert_parts(&only(|facts| facts.mptcp_ports = Err("denied".to_owned())), &["warning: ", "denied"]);
}

#[test]
fn what_stops_the_kernel_does_not_stop_a_node_that_replays() {
    let cases: [fn(&mut Facts); 4] = [
        |facts| facts.adopts = false,
        |facts| facts.tcp_syncookies = Some(0),
        |facts| facts.tcp_syncookies = None,
        |facts| facts.mptcp_ports = Ok(vec![443]),
    ];
    for break_it in cases {
        let mut facts = healthy();
        break_it(&mut facts);
        let found = found(&check_node(&facts, &PORTS, &PORTS, true));
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_parts(&found[0], &["warning: ", "handshakes are replayed"]);
        assert_eq!(facts.adopts_not().is_some(), facts.mptcp_ports == healthy().mptcp_ports);
    }
    assert_eq!(healthy().adopts_not(), None);
}

#[test]
fn a_veth_that_sends_nothing_of_xdp_is_slow() {
    let mut facts = healthy();
    facts.link.as_mut().expect("healthy has one").sends_redirected = Some(false);
    let slow = found(&check_switch(&facts));
    assert_eq!(slow.len(), 1);
    assert_parts(&slow[0], &["warning: ", "eth0 is a veth", "gro on"]);
}

#[test]
fn generic_xdp_and_gro_do_not_go_together() {
    let with = |gro| Facts {
        link: Some(LinkFacts {
            mtu: 1500,
            driver: Some("macvlan".to_owned()),
            sends_redirected: Some(false),
            gro: Some(gro),
            below: Some("eth0low".to_owned()),
        }),
        ..healthy()
    };
    let merging = found(&check_switch(&with(true)));
    assert_eq!(merging.len(), 1);
    assert_parts(&merging[0], &["fatal: ", "ethtool -K eth0low gro off"]);
    let slow = found(&check_switch(&with(false)));
    assert_eq!(slow.len(), 1);
    assert_parts(&slow[0], &["warning: ", "macvlan", "generic"]);
}

#[test]
fn an_unmounted_bpffs_is_no_obstacle() {
    assert_parts(&only(|facts| facts.bpffs = false), &["warning: ", "mount -t bpf bpf /sys/fs/bpf"]);
}
