//! Nodes that come from names, and what name servers cannot do to a file.

#[allow(dead_code)] // Another test uses the rest.
mod common;

use std::net::IpAddr;
use std::path::Path;

use common::GOOD;
use switchback_config::{Addresses, Checked, Cluster, Document, MAX_NODES, NodesFrom};

/// A service with two pools whose nodes come from names, besides what others have.
const NAMED: &str = r#"[cluster]
key_file = "cluster.key"

[[node]]
name = "n1"
address = "192.0.2.21"
server = ["127.0.0.1:8080", "[::1]:8080"]

[[pool]]
name = "web"
nodes_from = "dns:Web.example.com."
policy = "random"

[[pool]]
name = "api"
nodes = ["n1"]
nodes_from = "dns:api.example.com:8081"
policy = "random"

[[service]]
name = "shop"
listen = ["192.0.2.100:80", "[2001:db8::100]:80"]

[[service.route]]
path = "/api/"
pool = "api"

[[service.route]]
pool = "web"
"#;

fn addresses(names: &[(&str, &[&str])]) -> Addresses {
    let parsed = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    names.iter().map(|(name, texts)| ((*name).to_owned(), parsed(texts))).collect()
}

fn document(text: &str, names: &[(&str, &[&str])]) -> Document {
    Document::new(text, Path::new("cluster.toml")).with_addresses(addresses(names))
}

fn check(text: &str, names: &[(&str, &[&str])]) -> (Cluster, Vec<String>) {
    let Checked { cluster, warnings } = document(text, names).check_text().unwrap();
    (cluster, warnings.iter().map(ToString::to_string).collect())
}

/// Names of the nodes of each pool.
fn pools(cluster: &Cluster) -> Vec<Vec<&str>> {
    let names = |nodes: &[usize]| nodes.iter().map(|node| cluster.nodes[*node].name.as_str()).collect();
    cluster.pools.iter().map(|pool| names(&pool.nodes)).collect()
}

#[test]
fn addresses_of_a_name_are_nodes_of_its_pool() {
    let (cluster, warnings) = check(NAMED, &[]);
    assert_eq!((pools(&cluster), warnings.len()), (vec![vec![], vec!["n1"]], 0), "nobody has asked");
    let host = "web.example.com".to_owned();
    assert_eq!(cluster.pools[0].nodes_from, Some(NodesFrom { host, port: None }));
    assert!(cluster.names().into_iter().eq(["api.example.com", "web.example.com"]));
    assert!(cluster.summary().ends_with(", 2 names"), "{}", cluster.summary());

    let (cluster, warnings) = check(
        NAMED,
        &[
            ("web.example.com", &["192.0.2.22", "2001:db8::22"]),
            ("api.example.com", &["192.0.2.22", "2001:db8::23"]),
        ],
    );
    assert_eq!(warnings, [""; 0]);
    let web = vec!["dns-192-0-2-22", "dns-2001-db8--22"];
    assert_eq!(pools(&cluster), [web, vec!["n1", "dns-192-0-2-22-p8081", "dns-2001-db8--23-p8081"]]);
    let of = |name: &str| cluster.nodes.iter().find(|node| node.name == name).unwrap();
    assert_eq!(of("dns-192-0-2-22").servers, []);
    assert_eq!(
        of("dns-2001-db8--23-p8081").servers,
        ["[2001:db8::23]:8081", "127.0.0.1:8081"].map(|server| server.parse().unwrap())
    );
    let [one, other] = ["dns-192-0-2-22", "dns-192-0-2-22-p8081"].map(|name| of(name).handoff_address());
    assert_eq!(one.machine, other.machine);
    assert_ne!(one.number, other.number, "two nodes of one machine");

    let (cluster, warnings) = check(NAMED, &[("web.example.com", &[])]);
    assert_eq!(pools(&cluster), [vec![], vec!["n1"]]);
    assert_eq!(warnings, ["cluster.toml:11:14: warning: no address of web.example.com is known"]);
}

#[test]
fn an_address_that_a_node_has_is_that_node() {
    let both: &[(&str, &[&str])] =
        &[("web.example.com", &["192.0.2.21"]), ("api.example.com", &["192.0.2.21"])];
    let (cluster, warnings) = check(NAMED, both);
    assert_eq!((pools(&cluster), warnings.len()), (vec![vec!["n1"], vec!["n1"]], 0));
    assert_eq!(cluster.nodes.len(), 1, "its server is what the file says");

    // One name in two pools, and two nodes of a machine.
    let twice = NAMED.replace("api.example.com:8081", "web.example.com");
    let (cluster, _) = check(&twice, &[("web.example.com", &["192.0.2.22"])]);
    assert_eq!(pools(&cluster), [vec!["dns-192-0-2-22"], vec!["n1", "dns-192-0-2-22"]]);
    let pods = NAMED.replace(
        "[[pool]]\nname = \"web\"",
        "[[node]]\nname = \"n2\"\naddress = \"192.0.2.21\"\n\n[[pool]]\nname = \"web\"",
    );
    assert_eq!(pools(&check(&pods, both).0), [vec!["n1", "n2"], vec!["n1", "n2"]]);
}

/// A name server decides who is a node, and not whether the file is valid.
#[test]
fn addresses_that_cannot_be_nodes_are_left_out() {
    for (address, why) in [
        ("127.0.0.5", "127.0.0.5 is loopback"),
        ("::1", "loopback"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("255.255.255.255", "broadcast"),
        ("::ffff:192.0.2.9", "IPv4-mapped"),
        ("192.0.2.100", "it is a VIP"),
        ("2001:db8::100", "it is a VIP"),
    ] {
        let (cluster, warnings) = check(NAMED, &[("web.example.com", &[address, "192.0.2.22"])]);
        assert_eq!(pools(&cluster)[0], ["dns-192-0-2-22"], "{address}");
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        let begin = format!("cluster.toml:11:14: warning: {address} is left out: ");
        assert!(warning.starts_with(&begin) && warning.contains(why), "{warning}");
    }

    // A machine makes responses under one name.
    let resumed = NAMED.replacen("policy = \"random\"", "policy = \"random\"\nresume = \"range\"", 1);
    let names: &[(&str, &[&str])] = &[
        ("web.example.com", &["192.0.2.22", "192.0.2.23"]),
        ("api.example.com", &["192.0.2.22", "192.0.2.24", "192.0.2.25"]),
    ];
    let (cluster, warnings) = check(&resumed, names);
    let api = vec!["n1", "dns-192-0-2-24-p8081", "dns-192-0-2-25-p8081"];
    assert_eq!(pools(&cluster), [vec!["dns-192-0-2-22", "dns-192-0-2-23"], api]);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains(":18:14: warning: 192.0.2.22 is left out: resume \"range\" in pool"),
        "{warning}"
    );

    // A node that has the name already.
    let taken = NAMED.replace("\"n1\"", "\"dns-192-0-2-22\"");
    let (cluster, warnings) = check(&taken, &[("web.example.com", &["192.0.2.22", "192.0.2.23"])]);
    assert_eq!(pools(&cluster)[0], ["dns-192-0-2-23"]);
    assert!(warnings.len() == 1 && warnings[0].contains("is taken already"), "{warnings:?}");

    // A mistake of the file is told as ever.
    let broken = NAMED.replacen("random", "rundom", 1);
    let error = document(&broken, names).check_text().unwrap_err().to_string();
    assert!(error.starts_with("cluster.toml:12:10: unknown policy") && !error.contains('\n'), "{error}");
}

#[test]
fn a_name_has_a_bounded_number_of_nodes() {
    let many = |len: u32| (1..=len).map(|number| IpAddr::from((0x0a00_0000 + number).to_be_bytes()));
    let mut document = document(NAMED, &[]);
    document.addresses.insert("web.example.com".to_owned(), many(300).collect());
    let Checked { cluster, warnings } = document.check_text().unwrap();
    assert_eq!(cluster.pools[0].nodes.len(), 256);
    let said = "44 addresses of web.example.com are left out, allowed are at most 256";
    assert!(warnings.len() == 1 && warnings[0].message == said, "{warnings:?}");

    // With those of the file no more than a cluster can have.
    let node = |number| {
        format!("[[node]]\nname = \"m{number}\"\naddress = \"10.9.{}.{}\"\n", number / 200, number % 200)
    };
    document.text += &(0..MAX_NODES - 24).map(node).collect::<String>();
    let Checked { cluster, warnings } = document.check_text().unwrap();
    assert_eq!((cluster.nodes.len(), cluster.pools[0].nodes.len()), (MAX_NODES, 23));
    assert_eq!(warnings.len(), 1 + 256 - 23);
    let said = format!(" is left out: there are {MAX_NODES} nodes already");
    assert!(warnings[1].message.ends_with(&said), "{}", warnings[1]);
}

#[test]
fn machines_with_the_same_addresses_have_the_same_configuration() {
    let with = |found: &[&str]| check(NAMED, &[("web.example.com", found)]).0;
    let [one, same, other] =
        [&["192.0.2.22", "192.0.2.23"][..], &["192.0.2.23", "192.0.2.22"], &["192.0.2.22"]].map(with);
    assert_eq!(one, same);
    assert_ne!(one.hash, other.hash);
    assert_eq!(
        other.diff(&one),
        ["node dns-192-0-2-23 added", "pool web: nodes dns-192-0-2-22 -> dns-192-0-2-22, dns-192-0-2-23"]
    );
    let dns =
        NAMED.to_owned() + "[dns]\nservers = [\"192.0.2.53\", \"[2001:db8::53]:5353\"]\nhold = \"30s\"\n";
    let renamed = dns.replace("dns:api.example.com:8081", "dns:api.example.com");
    assert_eq!(
        check(NAMED, &[]).0.diff(&check(&renamed, &[]).0),
        [
            "dns: servers (the machine's) -> 192.0.2.53:53, [2001:db8::53]:5353",
            "dns: hold 0s -> 30s",
            "pool api: nodes_from dns:api.example.com:8081 -> dns:api.example.com",
        ]
    );
}

#[test]
fn mistakes_in_names_and_servers() {
    let pool = |text: &str| GOOD.replace("policy =", &format!("nodes_from = \"{text}\"\npolicy ="));
    for text in [
        "app.example.com",
        "dns:",
        "dns:.",
        "dns:a..b",
        "dns:192.0.2.1",
        "dns:a b",
        "dns:a:0",
        "dns:a:x",
        "dns:a:65536",
        "dns:[::1]:80",
        "dns:*.a",
    ] {
        let error = common::read(&pool(text)).unwrap_err().to_string();
        let expected =
            format!("etc/cluster.toml:16:14: bad nodes_from {text:?}, allowed is a host name such as");
        assert!(error.starts_with(&expected) && !error.contains('\n'), "{error}");
    }
    for text in ["dns:app", "dns:APP.example.com.", "dns:_a.example.com:65535"] {
        assert!(common::read(&pool(text)).is_ok(), "{text}");
    }
    for (servers, what) in [
        ("[]", "no name server, leave the line out"),
        ("\"ns.example.com\"", "bad name server"),
        ("[\"192.0.2.53\", \"0.0.0.0\"]", "bad name server \"0.0.0.0\""),
        ("\"224.0.0.1\"", "bad name server"),
        ("\"192.0.2.53:0\"", "bad name server"),
    ] {
        let error = common::read(&format!("{GOOD}[dns]\nservers = {servers}\n")).unwrap_err().to_string();
        assert!(error.contains(what) && !error.contains('\n'), "{error}");
    }
    let error = common::read(&format!("{GOOD}[dns]\nhold = \"2h\"\n")).unwrap_err().to_string();
    assert!(error.contains("bad hold \"2h\", allowed is a time from 0s to"), "{error}");
}
