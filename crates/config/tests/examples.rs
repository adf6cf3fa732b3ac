//! The configurations in README and docs are valid, and the reference says what the code does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;
use switchback_config::{Client, ClientKey, Cluster, ClusterKey, Error, parse, reference, schema};
use toml::Table;

#[path = "../../cli/tests/common/markdown.rs"]
#[allow(dead_code)] // tests/documents.rs uses the rest
mod markdown;

/// What stands before an example that begins within a table.
const BEFORE: [(&str, &str); 3] = [
    ("[pool.", "[[pool]]\nname = \"web\"\nnodes = [\"n1\", \"n2\"]\npolicy = \"round-robin\"\n"),
    ("[[service.route]]", "[[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]\n"),
    (
        "[service.tls.",
        "[[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:443\"]\nroute = [{ redirect.scheme = \"http\" }]\n\
         [service.tls]\nserver = \"[::1]:80\"\ncertificate = [{ chain = \"shop.pem\", key = \"shop.key\" }]\n",
    ),
];

/// What `[service.tls]` needs, and what allows all of its other keys; the first line is what the next ones are about.
const TLS: &str = "server = \"[::1]:8080\"
certificate = [{ chain = \"shop.pem\", key = \"shop.key\" }]
sessions = \"forwarding\"";

fn read(text: &str) -> Result<Cluster, Error> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    std::fs::create_dir_all(&directory).expect("the directory of the tests can be written");
    std::fs::write(directory.join("blocked.txt"), "203.0.113.0/24\n").expect("likewise");
    parse(text, &directory.join("cluster.toml"), |_| Ok(vec![ClusterKey::from_bytes([7; 32])]))
}

fn read_client(text: &str) -> Result<Client, Error> {
    let address = "198.51.100.1".parse().expect("an address");
    let key = ClientKey::of(&ClusterKey::from_bytes([7; 32]), address);
    Client::parse(text, Path::new("client.toml"), |_| Ok(BTreeMap::from([(address, vec![key])])))
}

/// The example with the tables that it needs and has not.
fn completed(example: &str) -> String {
    let before = BEFORE.iter().filter(|(header, _)| example.starts_with(header));
    let mut text = before.map(|(_, text)| *text).collect::<String>() + example;
    let table: Table = toml::from_str(&text).expect("it is TOML");
    let has = |key: &str| table.contains_key(key);
    let each = |key: &str| table.get(key).and_then(toml::Value::as_array).into_iter().flatten();
    let mut add = |part: String| text.write_str(&part).expect("a string takes it");
    if !has("cluster") {
        add("\n[cluster]\nkey_file = \"cluster.key\"\n".to_owned());
    }
    if !has("pool") {
        let routes = each("service").filter_map(|service| service.get("route")?.as_array()).flatten();
        let shares =
            |route| toml::Value::get(route, "split").and_then(toml::Value::as_array).into_iter().flatten();
        let places = routes.flat_map(|route| shares(route).chain([route]));
        let pools = |place| ["pool", "mirror"].map(|key| toml::Value::get(place, key)).into_iter().flatten();
        let names: BTreeSet<&str> = places.flat_map(pools).filter_map(toml::Value::as_str).collect();
        for name in names {
            add(format!("\n[[pool]]\nname = \"{name}\"\nnodes = [\"n1\"]\npolicy = \"random\"\n"));
        }
    }
    if !has("node") {
        let nodes = each("pool").filter_map(|pool| pool.get("nodes")?.as_array()).flatten();
        let mut names: Vec<&str> = nodes.filter_map(toml::Value::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let names = if names.is_empty() { vec!["n1"] } else { names };
        for (number, name) in names.into_iter().enumerate() {
            add(format!("\n[[node]]\nname = \"{name}\"\naddress = \"192.0.2.{}\"\n", 21 + number));
        }
    }
    if !has("service") {
        let to = "redirect = { scheme = \"https\" }";
        add(format!(
            "\n[[service]]\nname = \"shop\"\nlisten = [\"192.0.2.100:80\"]\n[[service.route]]\n{to}\n"
        ));
    }
    if !has("client") && each("node").any(|node| node.get("tunnel").is_some()) {
        add("\n[[client]]\nnetwork = \"198.51.100.0/24\"\n".to_owned());
    }
    text
}

#[test]
fn every_configuration_in_the_documents_is_valid() {
    // Scenarios of the simulator are no configurations; tests/sim.rs runs them.
    let is_one =
        |code: &markdown::Code| code.language.as_deref() == Some("toml") && code.file != "docs/simulator.md";
    let examples = markdown::all_code().into_iter().filter(is_one);
    let (mut count, mut wrong) = (0, Vec::new());
    for example in examples {
        count += 1;
        let mistake = if example.text.starts_with("key_file") {
            read_client(&example.text).err()
        } else {
            read(&completed(&example.text)).err()
        };
        wrong.extend(mistake.map(|mistake| format!("{}:{}: {mistake}", example.file, example.line)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 10, "{count}: have the documents been read?");
}

#[test]
fn the_reference_is_up_to_date() {
    let committed = include_str!("../../../docs/config-reference.md");
    let command = "cargo run -p switchback-config --example config-reference > docs/config-reference.md";
    assert!(committed == reference(), "docs/config-reference.md differs: {command}");
}

/// A cluster to which one table is added, with the lines of that table.
fn with(header: &str, lines: &str) -> Result<Cluster, Error> {
    read(&format!("{}\n[{header}]\n{lines}\n", completed(BEFORE[0].1)))
}

/// What the reference says of a key is what a value beyond it is told, and the default is what is there without it.
#[test]
fn ranges_and_defaults_are_those_of_the_code() {
    let schema: Value = serde_json::from_str(&schema()).expect("it is JSON");
    let file = &schema["properties"];
    let [pool, service] = ["pool", "service"].map(|table| &file[table]["items"]["properties"]);
    let (mut ranges, mut defaults) = (0, 0);
    for (header, table, needed) in [
        ("limits", &file["limits"], ""),
        ("reports", &file["reports"], ""),
        ("admin", &file["admin"], ""),
        ("access_log", &file["access_log"], "path = \"-\""),
        ("pool.health", &pool["health"], "path = \"/\""),
        ("pool.outliers", &pool["outliers"], ""),
        ("pool.persistence", &pool["persistence"], "mode = \"insert\""),
        ("service.tls", &service["tls"], TLS),
    ] {
        let keys = table["properties"].as_object().unwrap_or_else(|| panic!("no keys of [{header}]"));
        for (name, key) in
            keys.iter().filter(|(name, _)| !needed.lines().any(|line| line.starts_with(&format!("{name} "))))
        {
            let beyond = match (key["x-kind"].as_str(), key["maximum"].as_u64()) {
                (Some("time"), _) => Some("\"10000h\"".to_owned()),
                (Some("size"), _) => Some("\"2EiB\"".to_owned()),
                (_, highest) => highest.map(|highest| (highest + 1).to_string()),
            };
            if let Some(beyond) = beyond {
                ranges += 1;
                let allowed = key["x-allowed"].as_str().expect("a range has words");
                let told = with(header, &format!("{needed}\n{name} = {beyond}")).expect_err("it is beyond");
                assert!(told.to_string().contains(allowed), "[{header}] {name}: {allowed}: {told}");
            }
            if !key["default"].is_null() {
                defaults += 1;
                let without = with(header, needed).expect("the table without the key is valid");
                let said = with(header, &format!("{needed}\n{name} = {}", key["default"]));
                let said = said.unwrap_or_else(|mistake| panic!("[{header}] {name}: {mistake}"));
                let said = Cluster { hash: without.hash, ..said };
                assert_eq!(said, without, "[{header}] {name} = {}", key["default"]);
            }
        }
    }
    assert!(ranges >= 17 && defaults >= 27, "{ranges} ranges, {defaults} defaults");
}
