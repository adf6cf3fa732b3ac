//! Clients that know nodes: `[[client]]` and `tunnel` in `cluster.toml`, `client.toml`, and the files with their keys.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::{GOOD, changed, good, lines, read};
use switchback_config::{
    Client, ClientKey, ClusterKey, Error, MAX_CLIENT_ADDRESSES, MAX_NETWORKS, client_key_file_text,
    write_private,
};
use switchback_wire::{address_bytes, keys};

const CLIENT: &str = "key_file = \"client.key\"\nservices = [\"192.0.2.100:80\", \"[2001:db8::100]:80\"]\n";

/// The good file with these networks; the first stands at line 34.
fn with_networks(networks: &[&str]) -> String {
    let tables = networks.iter().map(|network| format!("\n[[client]]\nnetwork = {network:?}\n"));
    GOOD.to_owned() + &tables.collect::<String>()
}

/// What is wrong with a `cluster.toml`, without the file.
fn mistakes(text: &str) -> Vec<String> {
    let lines = lines(read(text));
    lines.iter().map(|line| line.strip_prefix("etc/cluster.toml:").unwrap().to_owned()).collect()
}

fn read_client(text: &str) -> Result<Client, Error> {
    let key = ClientKey::of(&ClusterKey::from_bytes([7; 32]), address("198.51.100.1"));
    let keys = BTreeMap::from([(address("198.51.100.1"), vec![key])]);
    Client::parse(text, Path::new("etc/client.toml"), |path| {
        assert_eq!(path, Path::new("etc/client.key"));
        Ok(keys)
    })
}

fn client_mistakes(text: &str) -> Vec<String> {
    let error = read_client(text).expect_err("a mistake");
    assert_eq!(error.exit_status(), 1);
    let lines = error.to_string();
    lines.lines().map(|line| line.strip_prefix("etc/client.toml:").unwrap().to_owned()).collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A new directory with a `client.toml` and this key file in it, and what comes of it.
fn with_key_file(test: &str, text: &str, mode: u32) -> (PathBuf, Result<Client, Error>) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("client.toml"), CLIENT).unwrap();
    let file = directory.join("client.key");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    let client = Client::load(&directory.join("client.toml"));
    fs::remove_dir_all(directory).unwrap();
    (file, client)
}

#[test]
fn networks_of_clients() {
    let texts = ["198.51.100.0/24", "0.0.0.0/0", "203.0.113.7/32", "2001:db8:1::/64", "::/0"];
    let clients = good(&with_networks(&texts)).clients;
    assert_eq!(clients.iter().map(ToString::to_string).collect::<Vec<_>>(), texts);
}

#[test]
fn mistakes_in_networks() {
    for bad in
        ["", "198.51.100.0", "198.51.100.0/33", "::/129", "198.51.100.0/+8", "x/24", "198.51.100.0/24/8"]
    {
        let what = format!(
            "34:11: bad network {bad:?}, allowed is an address with the length of a prefix such as \
             \"198.51.100.0/24\" or \"2001:db8:1::/64\""
        );
        assert_eq!(mistakes(&with_networks(&[bad])), [what]);
    }
    let behind = "34:11: 198.51.100.7/24 has bits behind its prefix, did you mean \"198.51.100.0/24\"?";
    assert_eq!(mistakes(&with_networks(&["198.51.100.7/24"])), [behind]);
    let mapped = "34:11: ::ffff:10.0.0.0/104 is IPv4-mapped, allowed is IPv4 as \"198.51.100.0/24\"";
    assert_eq!(mistakes(&with_networks(&["::ffff:10.0.0.0/104"])), [mapped]);
    let twice = "37:11: 10.0.0.0/8 is listed already, allowed is each network once";
    assert_eq!(mistakes(&with_networks(&["10.0.0.0/8", "10.0.0.0/8"])), [twice]);
    let networks: Vec<String> =
        (0..=MAX_NETWORKS).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
    let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
    assert_eq!(good(&with_networks(&networks[..MAX_NETWORKS])).clients.len(), 256);
    assert_eq!(
        mistakes(&with_networks(&networks)),
        ["802:11: 257 networks of clients, allowed are at most 256"]
    );
}

#[test]
fn a_tunnel_needs_clients() {
    let with = |lines: &str| changed("weight = 3", lines);
    let network = "\n[[client]]\nnetwork = \"198.51.100.0/24\"\n";
    let nodes = good(&(with("tunnel = true") + network)).nodes;
    assert!(!nodes[0].tunnel && nodes[1].tunnel);
    good(&with("tunnel = false"));
    let what = "11:10: node \"n2\" has a tunnel but nobody can take it, at least one [[client]] is needed";
    assert_eq!(mistakes(&with("tunnel = true")), [what]);
    assert_eq!(
        mistakes(&with("tunnel = \"yes\"")),
        ["11:10: tunnel is a text, allowed is true or false without quotes"]
    );
}

#[test]
fn changes_in_words() {
    let [none, one, two] =
        [&[][..], &["10.0.0.0/8"], &["::/0", "10.0.0.0/8"]].map(|list| good(&with_networks(list)));
    assert_eq!(none.diff(&two), ["clients of ::/0 added", "clients of 10.0.0.0/8 added"]);
    assert_eq!(two.diff(&one), ["clients of ::/0 removed"]);
    let tunnel = good(&with_networks(&["10.0.0.0/8"]).replace("weight = 3", "weight = 3\ntunnel = true"));
    assert_eq!(one.diff(&tunnel), ["node n2: tunnel false -> true"]);
}

#[test]
fn what_client_toml_means() {
    let client = read_client(CLIENT).unwrap();
    assert_eq!(client.services, ["192.0.2.100:80", "[2001:db8::100]:80"].map(|text| text.parse().unwrap()));
    assert_eq!((client.thin_acks, client.firewall), (None, false));
    for n in [2, 4, 64] {
        assert_eq!(read_client(&format!("{CLIENT}thin_acks = {n}\n")).unwrap().thin_acks, Some(n));
    }
}

#[test]
fn changes_of_client_toml_in_words() {
    let [old, new] = [CLIENT.to_owned(), CLIENT.replace(":80\"]", ":81\"]\nthin_acks = 4\nfirewall = true")]
        .map(|text| read_client(&text).unwrap());
    assert_eq!(old.diff(&old), [""; 0]);
    let keys = BTreeMap::new();
    assert_eq!(
        old.diff(&Client { keys, ..new }),
        [
            "keys changed",
            "services 192.0.2.100:80, [2001:db8::100]:80 -> 192.0.2.100:80, [2001:db8::100]:81",
            "thin_acks (none) -> 4",
            "firewall false -> true",
        ]
    );
}

#[test]
fn mistakes_in_client_toml() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("client.key", "", &["1:12: empty key_file, allowed is a path such as \"client.key\""]),
        (
            "[\"192",
            "[]\nx = [\"192",
            &[
                "2:12: no service, at least one address with a port is needed",
                "3:1: unknown key \"x\", allowed: firewall, key_file, services, thin_acks",
            ],
        ),
        (
            "key_file = \"client.key\"\n",
            "",
            &["1:1: key \"key_file\" is missing, a text in quotes is needed"],
        ),
        (
            "\"192.0.2.100:80\"",
            "\"192.0.2.100\"",
            &["2:13: bad listen address \"192.0.2.100\", allowed is an address with a port such as \
             192.0.2.100:80 or [2001:db8::100]:80"],
        ),
        (
            "[2001:db8::100]:80",
            "192.0.2.100:80",
            &["2:31: 192.0.2.100:80 is listed already, allowed is each address once"],
        ),
        ("\"]\n", "\"]\nthin_acks = 1\n", &["3:13: thin_acks 1, allowed are 2 to 64"]),
        ("\"]\n", "\"]\nthin_acks = 65\n", &["3:13: thin_acks 65, allowed are 2 to 64"]),
    ];
    for (old, new, expected) in rows {
        assert!(CLIENT.contains(old), "{old}");
        assert_eq!(client_mistakes(&CLIENT.replacen(old, new, 1)), *expected);
    }
    let none = "key_file = \"client.key\"\nservices = []\n";
    assert_eq!(client_mistakes(none), ["2:12: no service, at least one address with a port is needed"]);
}

#[test]
fn the_key_file_of_a_client_has_what_nodes_make_of_its_addresses() {
    let cluster = [[1; 32], [2; 32]].map(ClusterKey::from_bytes);
    let addresses = ["198.51.100.1", "2001:db8:1::1"].map(address);
    let text = client_key_file_text(&cluster, &addresses);
    let (_, client) = with_key_file("made", &text, 0o600);
    let keys = client.unwrap().keys;
    assert_eq!(keys.len(), 2);
    for address in addresses {
        let expected = cluster
            .each_ref()
            .map(|key| keys::client_key(&keys::client_master_key(key.as_bytes()), address_bytes(address)));
        assert_eq!(keys[&address].iter().map(|key| key.to_wire()).collect::<Vec<_>>(), expected);
    }
    assert_eq!(format!("{:?}", keys[&addresses[0]][0]), "ClientKey(..)");
}

#[test]
fn a_written_key_file_is_private_and_never_overwritten() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("client-{}.key", std::process::id()));
    write_private(&file, "a").unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let message = write_private(&file, "b").unwrap_err().to_string();
    assert!(message.ends_with("; a key is never overwritten, move the old file away first"), "{message}");
    fs::remove_file(file).unwrap();
}

#[test]
fn mistakes_in_key_files() {
    let key = |digit: char| digit.to_string().repeat(32);
    let (a, b, c) = (key('a'), key('b'), key('c'));
    let rows = [
        (String::new(), "1:1: no key, a line with an address and 32 hexadecimal digits is needed"),
        (format!("# only\n\n  {a}\n"), "3:3: not an address, a line is an address and 32 hexadecimal digits"),
        ("10.0.0.1\n".to_owned(), "1:1: not a key of 10.0.0.1, a key is 32 hexadecimal digits"),
        (format!("10.0.0.1 +{}\n", &a[1..]), "1:1: not a key of 10.0.0.1, a key is 32 hexadecimal digits"),
        (
            format!("10.0.0.1 {a}\n10.0.0.1 {a}\n"),
            "2:1: the same key of 10.0.0.1 again, two keys must differ",
        ),
        (
            format!("10.0.0.1 {a}\n10.0.0.1 {b} # new\n10.0.0.1 {c}\n"),
            "3:1: one key of 10.0.0.1 too many, allowed are one key, or two while the cluster's is replaced",
        ),
    ];
    for (text, expected) in rows {
        let (file, client) = with_key_file("mistakes", &text, 0o600);
        assert_eq!(client.unwrap_err().to_string(), format!("{}:{expected}", file.display()));
    }
    let many: String = (0..=MAX_CLIENT_ADDRESSES).map(|i| format!("10.0.0.{i} {a}\n")).collect();
    let (file, client) = with_key_file("many", &many, 0o600);
    let expected = format!("{}:65:1: one address too many, allowed are at most 64", file.display());
    assert_eq!(client.unwrap_err().to_string(), expected);

    let (file, client) = with_key_file("open", &format!("10.0.0.1 {a}\n"), 0o640);
    let message = client.unwrap_err().to_string();
    assert!(message.ends_with(&format!("; chmod 600 {}", file.display())), "{message}");
}

#[test]
fn a_key_file_that_is_missing_can_be_made() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("no-key-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("client.toml"), CLIENT).unwrap();
    let message = Client::load(&directory.join("client.toml")).unwrap_err().to_string();
    fs::remove_dir_all(&directory).unwrap();
    let remedy = "make it where the cluster key is: switchback keygen --client ADDRESS --config cluster.toml";
    assert!(message.contains(remedy), "{message}");
}
