//! Lists of networks, the clients that a service lets in, and how often it does.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{changed, good, lines, read};
use switchback_config::{Admitted, Cluster, Error, Limit, Over, Rate, RequestRate, parse};

/// The good file with these lines in its service, and these tables before its nodes.
fn limited(service: &str, tables: &str) -> String {
    let text = changed("\n\n[[service.route]]\nhost", &format!("\n{service}\n\n[[service.route]]\nhost"));
    text.replacen("[[node]]", &format!("{tables}\n[[node]]"), 1)
}

/// A directory of the test's own, and the cluster of a `cluster.toml` there.
fn read_in(test: &str, text: &str, list: &str) -> (PathBuf, Result<Cluster, Error>) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("list.txt"), list).unwrap();
    let read = parse(text, &directory.join("cluster.toml"), |_| Ok(Vec::new()));
    (directory, read)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_longest_network_decides_who_is_let_in() {
    let both = r#"clients = { allow = ["192.0.2.0/24", "2001:db8::/32"], deny = ["192.0.2.128/25", "192.0.2.7", "2001:db8::/32"] }"#;
    let only_denied = r#"clients = { deny = ["0.0.0.0/0", "2001:db8::7"] }"#;
    let rows: [(&str, &str, bool); 9] = [
        (both, "192.0.2.1", true),
        (both, "192.0.2.7", false),
        (both, "192.0.2.200", false),
        (both, "198.51.100.1", false),
        (both, "2001:db8::1", false),
        (both, "2001:db9::1", false),
        (only_denied, "192.0.2.1", false),
        (only_denied, "2001:db8::8", true),
        (only_denied, "2001:db8::7", false),
    ];
    for (lines, client, is_admitted) in rows {
        let cluster = good(&limited(lines, ""));
        let admitted = &cluster.services[0].admitted;
        assert_eq!(admitted.admits(address(client)), is_admitted, "{lines}: {client}");
    }
    assert_eq!(good(common::GOOD).services[0].admitted, Admitted::default());
}

#[test]
fn lists_come_from_the_file_and_from_files_of_their_own() {
    let tables = "[[networks]]\nname = \"office\"\nlist = \"198.51.100.0/24\"\nfile = \"list.txt\"\n";
    let text = limited("clients = { allow = [\"office\", \"192.0.2.1\"] }", tables);
    let text = text.replacen("path = \"/\"", "path = \"/\"\nclient = \"office\"", 1);
    let list = "# comment\n\n203.0.113.0/24 ; another\n  2001:db8::7\n";
    let cluster = read_in("lists", &text, list).1.unwrap_or_else(|error| panic!("{error}"));
    let service = &cluster.services[0];
    for (client, in_office) in [
        ("198.51.100.9", true),
        ("203.0.113.9", true),
        ("2001:db8::7", true),
        ("192.0.2.1", false),
        ("192.0.2.2", false),
    ] {
        let client = address(client);
        assert_eq!(service.routes[1].conditions.take_client(client), in_office, "{client}");
        let is_admitted = in_office || client == address("192.0.2.1");
        assert_eq!(service.admitted.admits(client), is_admitted, "{client}");
    }
    let words = service.routes[1].in_words();
    assert_eq!(words, "clients in office");
}

#[test]
fn mistakes_in_lists_are_told_with_their_line() {
    let tables = "[[networks]]\nname = \"office\"\nfile = \"list.txt\"\n";
    let text = limited("clients = { deny = [\"ofice\", \"300.0.0.1\", \"office\"] }", tables);
    let (directory, read) = read_in("mistakes", &text, "192.0.2.0/24\n192.0.2.1/24\nexample.com\n");
    let file = directory.display();
    let expected = [
        format!(
            "{file}/cluster.toml:6:8: {file}/list.txt line 2: 192.0.2.1/24 has bits behind its prefix, did you mean \"192.0.2.0/24\"?"
        ),
        format!(
            "{file}/cluster.toml:6:8: {file}/list.txt line 3: bad network \"example.com\", allowed is an address with the length of a prefix such as \"198.51.100.0/24\" or \"2001:db8:1::/64\""
        ),
        format!("{file}/cluster.toml:25:21: unknown networks \"ofice\", did you mean \"office\"?"),
        format!(
            "{file}/cluster.toml:25:30: bad network \"300.0.0.1\", allowed is an address with the length of a prefix such as \"198.51.100.0/24\" or \"2001:db8:1::/64\""
        ),
    ];
    assert_eq!(lines(read), expected);
    let (directory, read) =
        read_in("many", &text.replace("\"ofice\", \"300.0.0.1\", ", ""), &"x\n".repeat(50));
    let told = lines(read);
    assert_eq!(told.len(), 11);
    assert!(
        told[10].ends_with(&format!("{}/list.txt has 40 more mistakes", directory.display())),
        "{}",
        told[10]
    );
    let missing = tables.replace("list.txt", "none.txt");
    let told = lines(common::read(&limited("", &missing)));
    assert_eq!(
        told,
        ["etc/cluster.toml:6:8: cannot read etc/none.txt: No such file or directory (os error 2)"]
    );
}

#[test]
fn limits_are_rates_with_a_burst() {
    let text = limited(
        "[service.limit]\nipv4_prefix = 24\n[service.limit.client]\nconnections = { rate = 20, burst = 40 }\n\
         concurrent = 9\nrequests = { rate = 5, period = \"1m\", over = \"wait\" }\n[service.limit.all]\nrequests = { rate = 10000 }\n",
        "",
    );
    let text =
        text.replacen("path = \"/\"", "path = \"/\"\nlimit = { client = { rate = 1, period = \"1h\" } }", 1);
    let cluster = good(&text);
    let limits = &cluster.services[0].limits;
    let rate = |events, seconds, burst| Rate { events, period: Duration::from_secs(seconds), burst };
    assert_eq!(limits.prefixes, (24, 64));
    assert_eq!(limits.connections, Limit { client: Some(rate(20, 1, 40)), all: None });
    assert_eq!(limits.concurrent, Limit { client: Some(9), all: None });
    let requests = Limit {
        client: Some(RequestRate { rate: rate(5, 60, 5), over: Over::Wait }),
        all: Some(RequestRate { rate: rate(10_000, 1, 10_000), over: Over::Refuse }),
    };
    assert_eq!(limits.requests, requests);
    let limit = cluster.services[0].routes[1].limit;
    assert_eq!(limit.client, Some(RequestRate { rate: rate(1, 3600, 1), over: Over::Refuse }));
    let shown: Vec<String> = limits.shown().collect();
    assert_eq!(
        shown[..2],
        ["connections of each client: 20 in 1s, burst 40", "connections at a time of each client: 9"]
    );
    let difference = good(common::GOOD).diff(&cluster);
    let of_requests = "service shop: limit.client.requests any -> 5 in 1m, burst 5, wait".to_owned();
    assert!(difference.contains(&of_requests), "{difference:?}");
}

#[test]
fn limits_that_cannot_be() {
    let told = lines(read(&limited(
        "limit.client = { connections = { rate = 0, over = \"wait\" }, requests = { rate = 1, period = \"0s\", burst = 0, over = \"drop\" } }\n\
         limit.ipv4_prefix = 33",
        "",
    )));
    assert_eq!(
        told,
        [
            "etc/cluster.toml:22:41: rate 0, allowed are 1 to 10000000",
            "etc/cluster.toml:22:51: connections over a limit are not answered, leave over out",
            "etc/cluster.toml:22:93: bad period \"0s\", allowed is a time from 1ms to 24h such as \"10s\"",
            "etc/cluster.toml:22:107: burst 0, allowed are 1 to 10000000",
            "etc/cluster.toml:22:117: unknown over \"drop\", allowed: refuse, wait",
            "etc/cluster.toml:23:21: ipv4_prefix 33, allowed are 8 to 32",
        ]
    );
}
