//! Nodes that share an address.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use common::{good, lines, read};
use switchback_config::Cluster;

/// A file with these `[[node]]`s of one machine, of which those in `pool` serve at the VIPs in `listen`, with `tls` in the
/// service. The second node's name is in line 9.
fn file(nodes: &[&str], pool: &[&str], listen: &[&str], tls: &str) -> String {
    let head = "cluster.key_file = \"cluster.key\"\n";
    let node = |(index, lines): (usize, &&str)| {
        format!("\n[[node]]\nname = \"n{}\"\naddress = \"192.0.2.21\"\n{lines}\n", index + 1)
    };
    let nodes: String = nodes.iter().enumerate().map(node).collect();
    let pool = format!("\n[[pool]]\nname = \"web\"\nnodes = {pool:?}\npolicy = \"random\"\n");
    let service =
        format!("\n[[service]]\nname = \"shop\"\nlisten = {listen:?}\nroute = [{{ pool = \"web\" }}]\n");
    format!("{head}{nodes}{pool}{service}{tls}")
}

fn numbers(cluster: &Cluster) -> Vec<u16> {
    cluster.nodes.iter().map(|node| node.number).collect()
}

const VIP: &str = "192.0.2.100:80";
const A: &str = "server = \"127.0.0.1:8080\"";
const B: &str = "server = \"10.0.0.2:8080\"";

#[test]
fn nodes_of_one_address_have_numbers_that_their_order_does_not_change() {
    let first = good(&file(&["", A, B], &["n1", "n2", "n3"], &[VIP], ""));
    let [at_vip, second, third] = numbers(&first)[..] else { panic!("three nodes") };
    assert_eq!(at_vip, 0);
    assert!(second >= 256 && third >= 256 && second != third);
    let text = file(&["", A, B], &["n1", "n2", "n3"], &[VIP], "");
    let (n2, n3) = (text.find("n2").unwrap(), text.find("n3").unwrap());
    let mut swapped = text.clone();
    swapped.replace_range(n2..n2 + 2, "n3");
    swapped.replace_range(n3..n3 + 2, "n2");
    assert_eq!(numbers(&good(&swapped)), [0, third, second]);
    assert_eq!(numbers(&good(&file(&["", A], &["n1", "n2"], &[VIP], ""))), [0, second]);
}

/// Nodes of a machine, the pool, the VIPs, `[service.tls]`, and what is wrong.
type Row = (
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

const TLS: &str =
    "[service.tls]\nserver = \"127.0.0.1:80\"\n[[service.tls.certificate]]\nchain = \"a\"\nkey = \"b\"\n";

/// Each node has its own server.
const OWN: &str = "[service.tls]\n[[service.tls.certificate]]\nchain = \"a\"\nkey = \"b\"\n";

/// Copies of requests that agents decrypt go to the servers of nodes, too.
#[test]
fn nodes_that_get_copies_behind_tls_have_servers() {
    let text = |server: &str| {
        let file = file(&[A, server], &["n1"], &[VIP], OWN);
        let mirror = "[[pool]]\nname = \"new\"\nnodes = [\"n2\"]\npolicy = \"random\"\n\n[[service]]";
        file.replace("[[service]]", mirror)
            .replace("{ pool = \"web\" }", "{ pool = \"web\", mirror = \"new\" }")
    };
    good(&text(B));
    let wrong = lines(read(&text("")));
    assert!(wrong.len() == 1 && wrong[0].contains("and so has its node \"n2\""), "{wrong:?}");
}

const ROWS: &[Row] = &[
    (
        &["", ""],
        &["n1"],
        &[VIP],
        "",
        &[
            "10:11: nodes \"n1\" and \"n2\" with the same address 192.0.2.21 both have their servers at the VIPs, allowed is \
             one of them: give the other one a server",
        ],
    ),
    (
        &[A, A],
        &["n1", "n2"],
        &[VIP],
        "",
        &[
            "11:10: nodes \"n1\" and \"n2\" with the same address have the same server 127.0.0.1:8080 for 192.0.2.100:80, \
             allowed is a different one for each",
        ],
    ),
    // The server of one is the VIP, at which the other one's listens.
    (
        &["", "server = \"192.0.2.100:80\""],
        &["n1", "n2"],
        &[VIP],
        "",
        &[
            "11:10: nodes \"n1\" and \"n2\" with the same address have the same server 192.0.2.100:80 for 192.0.2.100:80, \
             allowed is a different one for each",
        ],
    ),
    // Both have a server for IPv4 only.
    (
        &[A, B],
        &["n1", "n2"],
        &[VIP, "[2001:db8::100]:80"],
        "",
        &[
            "11:10: nodes \"n1\" and \"n2\" with the same address have the same server [2001:db8::100]:80 for \
             [2001:db8::100]:80, allowed is a different one for each",
        ],
    ),
    // Without a common service.
    (&[A, A], &["n1"], &[VIP], "", &[]),
    (
        &[
            "hidden = true\nplain_tcp = true\nadoption = \"replay\"",
            "tunnel = true\nserver = \"127.0.0.1:81\"",
        ],
        &["n1", "n2"],
        &[VIP],
        "[[client]]\nnetwork = \"198.51.100.0/24\"\n",
        &[
            "11:8: hidden false of node \"n2\", but true of node \"n1\" with the same address 192.0.2.21, allowed is the same \
             for both",
            "11:8: plain_tcp false of node \"n2\", but true of node \"n1\" with the same address 192.0.2.21, allowed is the \
             same for both",
            "11:8: adoption \"auto\" of node \"n2\", but \"replay\" of node \"n1\" with the same address 192.0.2.21, allowed \
             is the same for both",
            "13:10: tunnel true of node \"n2\", but false of node \"n1\" with the same address 192.0.2.21, allowed is the \
             same for both",
        ],
    ),
    (
        &[A, B],
        &["n1", "n2"],
        &[VIP],
        TLS,
        &[
            "10:11: nodes \"n1\" and \"n2\" with the same address are in pools of service \"shop\", whose TLS ends at their \
             machine with the one server of [service.tls], allowed is one of them, or leave that server out and give each node \
             its own",
        ],
    ),
    (&[A, B], &["n2"], &[VIP], TLS, &[]),
    // With servers of their own, which listen for VIPs of both IP versions.
    (&[A, B], &["n1", "n2"], &[VIP, "[2001:db8::100]:80"], OWN, &[]),
    (
        &[A, A],
        &["n1", "n2"],
        &[VIP],
        OWN,
        &[
            "11:10: nodes \"n1\" and \"n2\" with the same address have the same server 127.0.0.1:8080 for service \"shop\", \
             allowed is a different one for each",
        ],
    ),
    (
        &[A, ""],
        &["n1", "n2"],
        &[VIP],
        OWN,
        &[
            "19:8: service \"shop\" has TLS without a server, and so has its node \"n2\", needed is an address, such as server = \
             \"127.0.0.1:8080\", in [service.tls] or in [[node]], because the agent itself listens at the VIPs; or passthrough = \
             true if the servers end TLS themselves",
        ],
    ),
    (&[A, B], &["n1", "n2"], &[VIP], "[service.tls]\npassthrough = true\n", &[]),
];

#[test]
fn what_nodes_of_one_address_must_differ_in_and_agree_on() {
    for (nodes, pool, listen, tls, wrong) in ROWS {
        let result = read(&file(nodes, pool, listen, tls));
        if wrong.is_empty() {
            result.unwrap_or_else(|error| panic!("{nodes:?}: {error}"));
            continue;
        }
        let wrong: Vec<String> = wrong.iter().map(|line| format!("etc/cluster.toml:{line}")).collect();
        assert_eq!(lines(result), wrong);
    }
}

#[test]
fn responses_of_nodes_of_one_address_are_not_resumed() {
    let text = file(&[A, B], &["n1"], &[VIP], "")
        .replace("policy = \"random\"\n", "policy = \"random\"\nresume = \"range\"\n");
    let found = lines(read(&text));
    let what = "resume \"range\" in pool \"web\", whose node \"n1\" shares its address with another one, allowed is \"off\"";
    assert_eq!(found, [format!("etc/cluster.toml:17:10: {what}")]);
}

#[test]
fn a_machine_has_at_most_256_nodes() {
    let nodes: Vec<String> = (0..257).map(|node| format!("server = \"127.0.0.1:{}\"", node + 1000)).collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    good(&file(&nodes[..256], &["n1"], &[VIP], ""));
    let found = lines(read(&file(&nodes, &["n1"], &[VIP], "")));
    assert_eq!(found, ["etc/cluster.toml:1285:11: 257 nodes of 192.0.2.21, allowed are at most 256"]);
}
