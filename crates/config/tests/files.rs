//! What a good file means, how it differs from another, and what holds for any file.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use std::path::Path;
use std::time::Duration;

use common::{GOOD, changed, good, lines, pooled, read};
use proptest::prelude::*;
use switchback_config::{
    AccessLog, Action, Adoption, Balance, Caps, Cluster, ClusterKey, Conditions, Error, FieldMatch, HashKey,
    HostMatch, Limit, Limits, LogFormat, LogTarget, Node, PathChange, PathMatch, PolicyKind, Pool, Redirect,
    Reports, Resume, Rewrite, Route, Scheme, ServerProtocol, TlsLimits, TlsMode, ValueMatch, parse,
};

/// The numbers are those of sha256sum.
#[test]
fn any_byte_of_the_file_counts_for_its_hash() {
    assert_eq!(good(GOOD).hash, 0x796c_247e);
    assert_eq!(good(&format!("{GOOD}# a comment\n")).hash, 0xc67e_9482);
}

#[test]
fn what_the_good_file_means() {
    let cluster = good(GOOD);
    assert_eq!(cluster.keys, [ClusterKey::from_bytes([7; 32])]);
    assert_eq!(cluster.reports, Reports::default());
    assert_eq!(cluster.limits, Limits::default());
    assert_eq!(
        cluster.nodes,
        [
            Node {
                name: "n1".into(),
                address: "192.0.2.21".parse().unwrap(),
                number: 0,
                weight: 1,
                zone: None,
                drain: false,
                hidden: false,
                tunnel: false,
                servers: Vec::new(),
                adoption: Adoption::Auto,
                plain_tcp: false,
            },
            Node {
                name: "n2".into(),
                address: "2001:db8::22".parse().unwrap(),
                number: 0,
                weight: 3,
                zone: None,
                drain: false,
                hidden: false,
                tunnel: false,
                servers: Vec::new(),
                adoption: Adoption::Auto,
                plain_tcp: false,
            },
        ]
    );
    assert_eq!(
        cluster.pools,
        [Pool {
            name: "web".into(),
            nodes: vec![0, 1],
            nodes_from: None,
            policy: PolicyKind::RoundRobin,
            balance: Balance::Connection,
            hash: HashKey::Client,
            slow_start: Duration::ZERO,
            queue_limit: 100,
            second_candidate: false,
            delegate: None,
            health: None,
            outliers: None,
            resume: Resume::Off,
            protocol: ServerProtocol::Http11,
            persistence: None,
            empty_status: 503,
        }]
    );
    assert_eq!(cluster.switches, []);
    assert_eq!(cluster.clients, []);
    let [service] = &cluster.services[..] else { panic!("one service") };
    assert_eq!(service.name, "shop");
    let listen = ["192.0.2.100:80", "[2001:db8::100]:80"];
    assert_eq!(service.listen, listen.map(|address| address.parse().unwrap()));
    assert_eq!((&service.tls, service.scheme()), (&TlsMode::Off, Scheme::Http));
    let everything = Route {
        conditions: Conditions::default(),
        except: vec![],
        alpn: vec![],
        h2c: false,
        limit: Limit::default(),
        action: Action::Pool(0),
        rewrite: Rewrite::default(),
        mirror: None,
    };
    assert_eq!(
        service.routes,
        [
            Route {
                conditions: Conditions {
                    hosts: vec![HostMatch::Exact("static.example.com".into())],
                    path: Some(PathMatch::Prefix("/img/".into())),
                    methods: vec!["GET".into(), "HEAD".into()],
                    headers: vec![x_beta(ValueMatch::Is("1".into()))],
                    ..Conditions::default()
                },
                ..everything.clone()
            },
            everything
        ]
    );
    assert!(!service.routes[0].is_catch_all() && service.routes[1].is_catch_all());
    assert_eq!(cluster.summary(), "2 nodes, 1 pool, 1 service, 2 routes");
}

fn x_beta(value: ValueMatch) -> FieldMatch {
    FieldMatch { name: "x-beta".into(), value }
}

#[test]
fn other_ways_to_write_it() {
    let one_method = good(&changed(r#"["GET", "HEAD"]"#, r#""PURGE""#));
    let conditions = |cluster: &Cluster| cluster.services[0].routes[0].conditions.clone();
    assert_eq!(conditions(&one_method).methods, ["PURGE"]);
    let presence = good(&changed(r#", value = "1""#, ""));
    assert_eq!(conditions(&presence).headers, [x_beta(ValueMatch::Any)]);
    let list = good(&changed(r#"{ name = "X-Beta", value = "1" }"#, r#"[{ name = "X-Beta" }]"#));
    assert_eq!(conditions(&list), conditions(&presence));
    let hosts = good(&changed("\"Static.example.com\"", r#"["a.example", "*.b.example"]"#));
    let [exact, suffix] = [HostMatch::Exact("a.example".into()), HostMatch::Suffix(".b.example".into())];
    assert_eq!(conditions(&hosts).hosts, [exact, suffix]);
    let literal = good(&changed("Static.example.com", "[2001:DB8::100]"));
    assert_eq!(conditions(&literal).hosts, [HostMatch::Exact("[2001:db8::100]".into())]);
    let no_catch_all = good(&changed("path = \"/\"", "path = \"/a\""));
    assert!(!no_catch_all.services[0].routes[1].is_catch_all());
}

#[test]
fn where_requests_are_logged() {
    let log = |lines: &str| good(&format!("{GOOD}{lines}")).access_log;
    assert_eq!(log(""), None);
    let file = LogTarget::File("/var/log/a.log".into());
    let plain = log("[access_log]\npath = \"/var/log/a.log\"");
    assert_eq!(plain, Some(AccessLog { target: file, format: LogFormat::Json, lines_per_second: 100_000 }));
    let other = log("[access_log]\npath = \"-\"\nformat = \"combined\"\nlines_per_second = 7");
    let stdout = LogTarget::Stdout;
    assert_eq!(other, Some(AccessLog { target: stdout, format: LogFormat::Combined, lines_per_second: 7 }));
    for path in ["", "a.log", "/var/log/", "--"] {
        assert_eq!(lines(read(&format!("{GOOD}[access_log]\npath = \"{path}\""))).len(), 1, "{path:?}");
    }
    let with = good(&format!("{GOOD}[access_log]\npath = \"-\""));
    let said = ["path (none) -> -", "format (none) -> json", "lines_per_second (none) -> 100000"];
    assert_eq!(good(GOOD).diff(&with), said.map(|line| format!("access_log: {line}")));
}

#[test]
fn where_the_daemons_tell_how_they_are_doing() {
    let listening = |lines: &str| good(&format!("{GOOD}{lines}")).admin.map(|admin| admin.listen.to_string());
    assert_eq!(listening(""), None);
    assert_eq!(listening("[admin]").as_deref(), Some("127.0.0.1:9180"));
    for address in ["127.0.0.1:80", "[::1]:9180", "0.0.0.0:9180", "[::]:81", "192.0.2.9:80"] {
        assert_eq!(listening(&format!("[admin]\nlisten = \"{address}\"")).as_deref(), Some(address));
    }
    for address in ["127.0.0.1", "127.0.0.1:0", "224.0.0.1:9180", "[fe80::1]:9180", "[::1%1]:9180"] {
        assert_eq!(lines(read(&format!("{GOOD}[admin]\nlisten = \"{address}\""))).len(), 1, "{address}");
    }
    let with = good(&format!("{GOOD}[admin]"));
    let line = "admin: listen (nowhere) -> 127.0.0.1:9180";
    assert_eq!(good(GOOD).diff(&with), [line]);
    let line = "admin: listen 127.0.0.1:9180 -> (nowhere)";
    assert_eq!(with.diff(&good(GOOD)), [line]);
    let named = good(&format!("{GOOD}[admin]\nhosts = [\"LB.example.com\", \"lb\"]"));
    assert_eq!(
        named.admin.as_ref().map(|admin| &admin.hosts[..]),
        Some(&["lb.example.com", "lb"].map(String::from)[..])
    );
    assert_eq!(with.diff(&named), ["admin: hosts [] -> [lb.example.com, lb]"]);
}

/// The good file with `lines` in `[limits]`.
fn limited(lines: &str) -> String {
    format!("{GOOD}[limits]\n{lines}\n")
}

#[test]
fn limits_and_their_defaults() {
    let defaults = Limits {
        head: 16 * 1024,
        fields: 100,
        body: None,
        head_timeout: Duration::from_secs(10),
        wait_timeout: Duration::from_secs(3),
        waiting: 1024,
        held_per_flow: 64 * 1024,
        held_per_source: 1024 * 1024,
        held: 64 * 1024 * 1024,
        flows: 262_144,
        node_flows: 65_536,
        resume_after: 256 * 1024,
        tls: TlsLimits {
            connections: Caps { source: 4096, service: 16_384, all: 32_768 },
            handshakes: Caps { source: 512, service: 4096, all: 8192 },
            streams: Caps { source: 1024, service: 8192, all: 12_288 },
            streams_per_connection: 128,
        },
    };
    assert_eq!(good(&limited("")).limits, defaults);
    let all = good(&limited(
        "head = \"32 KiB\"\nfields = 1000\nbody = \"10GiB\"\nhead_timeout = \"500ms\"\n\
         wait_timeout = \"2min\"\nwaiting = 7\n\
         held_per_flow = \"100kB\"\nheld_per_source = \"1.5MiB\"\nheld = \"1GB\"\nflows = 2000000\nnode_flows = 100000\nresume_after = \"1MiB\"\n\
         tls_connections_per_source = 1\ntls_connections_per_service = 2\ntls_connections = 3\n\
         tls_handshakes_per_source = 4\ntls_handshakes_per_service = 5\ntls_handshakes = 6\n\
         tls_streams_per_connection = 7\ntls_streams_per_source = 8\ntls_streams_per_service = 9\n\
         tls_streams = 10",
    ));
    assert_eq!(
        all.limits,
        Limits {
            head: 32 * 1024,
            fields: 1000,
            body: Some(10 * 1024 * 1024 * 1024),
            head_timeout: Duration::from_millis(500),
            wait_timeout: Duration::from_secs(120),
            waiting: 7,
            held_per_flow: 100_000,
            held_per_source: 3 * 512 * 1024,
            held: 1_000_000_000,
            flows: 2_000_000,
            node_flows: 100_000,
            resume_after: 1024 * 1024,
            tls: TlsLimits {
                connections: Caps { source: 1, service: 2, all: 3 },
                handshakes: Caps { source: 4, service: 5, all: 6 },
                streams: Caps { source: 8, service: 9, all: 10 },
                streams_per_connection: 7,
            },
        }
    );
    // The first and the last value allowed, and those beside them.
    let rows = [
        ("head", "1KiB", "1023B"),
        ("head", "64KiB", "65537B"),
        ("fields", "1", "0"),
        ("fields", "1000", "1001"),
        ("body", "0B", "-1B"),
        ("body", "1EiB", "1152921504606846977B"),
        ("head_timeout", "100ms", "99.9ms"),
        ("head_timeout", "10min", "10m 1ms"),
        ("wait_timeout", "0s", "-1ns"),
        ("wait_timeout", "10m", "600s 1ns"),
        ("resume_after", "64KiB", "65535B"),
        ("resume_after", "1GiB", "1073741825B"),
        ("tls_streams", "1", "0"),
        ("tls_streams", "1000000", "1000001"),
        ("tls_streams_per_connection", "1", "0"),
        ("tls_streams_per_connection", "10000", "10001"),
        ("waiting", "0", "-1"),
        ("waiting", "1000000", "1000001"),
        ("flows", "1024", "1023"),
        ("flows", "16777216", "16777217"),
        ("node_flows", "1024", "1023"),
        ("node_flows", "16777216", "16777217"),
        ("held", "1TiB", "1099511627777B"),
        ("held", "1MiB", "1048575B"),
        ("held_per_flow", "16KiB", "16383B"),
        ("held_per_flow", "1MiB", "1048577B"),
        ("held_per_source", "64KiB", "65535B"),
        ("held_per_source", "64MiB", "67108865B"),
    ];
    for (key, last, beyond) in rows {
        let line = |value: &str| match key {
            "fields" | "waiting" | "flows" | "node_flows" | "tls_streams" | "tls_streams_per_connection" => {
                limited(&format!("{key} = {value}"))
            }
            _ => limited(&format!("{key} = \"{value}\"")),
        };
        good(&line(last));
        assert!(matches!(read(&line(beyond)), Err(Error::Invalid(_))), "{key} {beyond}");
    }
}

#[test]
fn reports() {
    let reported = |lines: &str| format!("{GOOD}[reports]\n{lines}\n");
    let defaults = Reports { interval: Duration::from_millis(50), suspect_after: 3, dead_after: 20 };
    assert_eq!(good(&reported("")).reports, defaults);
    assert_eq!(
        good(&reported("interval = \"200ms\"\nsuspect_after = 5\ndead_after = 6")).reports,
        Reports { interval: Duration::from_millis(200), suspect_after: 5, dead_after: 6 }
    );
    let of_nodes = |count: u32, lines: &str| {
        let mut text = reported(lines);
        let others = (0..count)
            .map(|node| format!("[[node]]\nname = \"m{node}\"\naddress = \"2001:db8:1::{node:x}\"\n"));
        text.extend(others);
        good(&text).reports
    };
    let few = good(GOOD).nodes.len() as u32;
    assert_eq!(of_nodes(400 - few, ""), defaults);
    let many = |millis, dead_after| Reports {
        interval: Duration::from_millis(millis),
        suspect_after: 3,
        dead_after,
    };
    assert_eq!(of_nodes(401 - few, ""), many(51, 20));
    assert_eq!(of_nodes(1000 - few, ""), many(125, 8));
    assert_eq!(of_nodes(1000 - few, "interval = \"50ms\""), defaults);
    assert_eq!(of_nodes(1000 - few, "suspect_after = 9"), Reports { suspect_after: 9, ..many(125, 9) });
    let rows = [
        ("interval", "\"10ms\"", "\"9999us\""),
        ("interval", "\"1s\"", "\"1s 1ns\""),
        ("suspect_after", "1", "0"),
        ("suspect_after", "100", "101"),
        ("dead_after", "3", "0"),
        ("dead_after", "1000", "1001"),
    ];
    for (key, last, beyond) in rows {
        good(&reported(&format!("{key} = {last}")));
        let result = read(&reported(&format!("{key} = {beyond}")));
        assert!(matches!(result, Err(Error::Invalid(_))), "{key} {beyond}");
    }
}

#[test]
fn nodes_without_new_requests() {
    let node = |lines: &str| good(&changed("weight = 3", lines)).nodes[1].clone();
    let usual = node("");
    assert_eq!((usual.weight, usual.zone, usual.drain), (1, None, false));
    assert_eq!(node("weight = 0").weight, 0);
    assert_eq!(node("weight = 1000").weight, 1000);
    assert_eq!(node("zone = \"rack-1\"").zone.as_deref(), Some("rack-1"));
    assert!(node("drain = true").drain && !node("drain = false").drain);

    // A pool may be all of these; its requests are answered 503.
    let none = changed("weight = 3", "weight = 0").replace("192.0.2.21\"", "192.0.2.21\"\ndrain = true");
    assert_eq!(good(&none).pools[0].nodes, [0, 1]);
}

#[test]
fn redirects() {
    let action = |redirect: &str| {
        let text = changed("path = \"/\"\npool = \"web\"", &format!("redirect = {{ {redirect} }}"));
        good(&text).services[0].routes[1].action.clone()
    };
    assert_eq!(
        action(r#"scheme = "https", host = "WWW.example.com", port = 8443, path = "/new/", status = 308"#),
        Action::Redirect(Redirect {
            scheme: Some(Scheme::Https),
            host: Some("www.example.com".into()),
            port: Some(8443),
            path: Some(PathChange::Whole("/new/".into())),
            status: 308,
        })
    );
    let nothing = Redirect { scheme: None, host: None, port: None, path: None, status: 301 };
    let https = Redirect { scheme: Some(Scheme::Https), ..nothing.clone() };
    assert_eq!(action("scheme = \"https\""), Action::Redirect(https));
    let literal = Redirect { host: Some("[2001:db8::1]".into()), ..nothing };
    assert_eq!(action("host = \"[2001:DB8::1]\""), Action::Redirect(literal));
    for status in [301, 302, 303, 307, 308] {
        let Action::Redirect(redirect) = action(&format!("port = 81, status = {status}")) else { panic!() };
        assert_eq!(redirect.status, status);
    }

    // A cluster that only redirects needs no pool.
    let all = "[cluster]\nkey_file = \"k\"\n[[node]]\nname = \"n\"\naddress = \"192.0.2.1\"\n[[service]]\n\
               name = \"s\"\nlisten = [\"192.0.2.100:80\"]\n[[service.route]]\n[service.route.redirect]\n\
               scheme = \"https\"\n";
    assert_eq!(good(all).summary(), "1 node, 0 pools, 1 service, 1 route");
}

#[test]
fn hosts_are_compared_without_case_and_final_dot() {
    let route = |host: &str| {
        let cluster = good(&changed("Static.example.com", host));
        cluster.services[0].routes[0].conditions.hosts[0].clone()
    };
    let exact = route("Example.com");
    assert_eq!(exact.to_string(), "example.com");
    for (host, is) in [("example.com", true), ("EXAMPLE.COM.", true), ("a.example.com", false), ("", false)] {
        assert_eq!(exact.matches(host), is, "{host}");
    }
    let wildcard = route("*.Example.com");
    assert_eq!(wildcard.to_string(), "*.example.com");
    let rows = [
        ("a.example.com", true),
        ("a.b.EXAMPLE.com.", true),
        ("example.com", false),
        (".example.com", false),
        ("aexample.com", false),
        ("caf\u{e9}.com", false),
    ];
    for (host, is) in rows {
        assert_eq!(wildcard.matches(host), is, "{host}");
    }
}

#[test]
fn key_file_is_looked_for_beside_the_configuration_and_only_if_that_is_valid() {
    let expect = |text: &str, path: &str| {
        let mut asked = None;
        let _ = parse(text, Path::new("etc/cluster.toml"), |file| {
            asked = Some(file.to_owned());
            Ok(vec![])
        });
        assert_eq!(asked.as_deref(), Some(Path::new(path)));
    };
    expect(GOOD, "etc/cluster.key");
    expect(&changed("cluster.key", "/run/k"), "/run/k");
    let _ = parse("", Path::new("x"), |_| unreachable!("the file is not valid"));
}

#[test]
fn changes_in_words() {
    let old = good(GOOD);
    assert_eq!(old.diff(&old), [""; 0]);
    let mut new = good(
        &GOOD
            .replace("\"n2\"", "\"n3\"")
            .replace("192.0.2.21", "192.0.2.31")
            .replace(":80\", ", ":8080\", ")
            .replace("/img/", "/i/")
            .replace("HEAD", "PUT"),
    );
    new.keys = vec![ClusterKey::from_bytes([8; 32])];
    assert_eq!(
        old.diff(&new),
        [
            "cluster key changed",
            "node n2 removed",
            "node n1: address 192.0.2.21 -> 192.0.2.31",
            "node n3 added",
            "pool web: nodes n1, n2 -> n1, n3",
            "service shop: listen 192.0.2.100:80, [2001:db8::100]:80 -> 192.0.2.100:8080, [2001:db8::100]:80",
            "service shop: route removed: host static.example.com, paths that begin with /img/, method GET or HEAD, \
             header field x-beta with 1 -> web",
            "service shop: route added: host static.example.com, paths that begin with /i/, method \
             GET or PUT, header field x-beta with 1 -> web",
        ]
    );
    let without_any = changed("path = \"/\"", "path = \"/b\"");
    let mut swapped = good(&without_any);
    swapped.services[0].routes.reverse();
    assert_eq!(good(&without_any).diff(&swapped), ["service shop: routes in another order"]);
    assert_eq!(
        old.diff(&good(&without_any)),
        [
            "service shop: route removed: every request -> web",
            "service shop: route added: paths that begin with /b -> web"
        ]
    );
    let renamed =
        GOOD.replace("\"web\"", "\"www\"").replace("\"shop\"", "\"store\"").replace("weight = 3", "");
    assert_eq!(
        old.diff(&good(&renamed)),
        [
            "node n2: weight 3 -> 1",
            "pool web removed",
            "pool www added",
            "service shop removed",
            "service store added"
        ]
    );
}

#[test]
fn two_methods_and_one_with_a_bar_in_its_name_are_not_the_same() {
    let [two, one] = ["[\"A\", \"B\"]", "\"A|B\""].map(|text| good(&changed("[\"GET\", \"HEAD\"]", text)));
    assert_eq!(two.diff(&one).len(), 2);
}

#[test]
fn changed_limits_and_redirects_in_words() {
    let old = good(GOOD);
    let new = limited(
        "head = \"32KiB\"\nfields = 50\nbody = \"10GiB\"\nhead_timeout = \"500ms\"\nwait_timeout = \"0s\"\n\
         waiting = 0\n\
         held_per_flow = \"65537B\"\nheld_per_source = \"2MB\"\nheld = \"2.5GiB\"",
    );
    assert_eq!(
        old.diff(&good(&new)),
        [
            "limits: head 16KiB -> 32KiB",
            "limits: fields 100 -> 50",
            "limits: body any -> 10GiB",
            "limits: head_timeout 10s -> 500ms",
            "limits: wait_timeout 3s -> 0s",
            "limits: waiting 1024 -> 0",
            "limits: held_per_flow 64KiB -> 65537B",
            "limits: held_per_source 1MiB -> 2000000B",
            "limits: held 64MiB -> 2560MiB",
        ]
    );
    assert_eq!(old.diff(&good(&limited("head = \"16384B\"\nhead_timeout = \"10000ms\""))), [""; 0]);

    let redirect = |parts: &str| good(&changed("pool = \"web\"", &format!("redirect = {{ {parts} }}")));
    let conditions = "host static.example.com, paths that begin with /img/, method GET or HEAD, header field x-beta with 1";
    let https = redirect("scheme = \"https\"");
    assert_eq!(
        old.diff(&https),
        [
            format!("service shop: route removed: {conditions} -> web"),
            format!("service shop: route added: {conditions} -> redirect 301 https://{{host}}{{path}}"),
        ]
    );
    assert_eq!(
        https.diff(&redirect("host = \"a.example\", port = 8080, path = \"/new/\", status = 302")),
        [
            format!("service shop: route removed: {conditions} -> redirect 301 https://{{host}}{{path}}"),
            format!(
                "service shop: route added: {conditions} -> redirect 302 {{scheme}}://a.example:8080/new/"
            ),
        ]
    );
}

#[test]
fn a_key_is_not_shown() {
    let shown = format!("{:?}", good(GOOD));
    assert!(shown.contains("keys: [ClusterKey(..)]"), "{shown}");
}

/// Every position that is told lies in the text, or right behind it.
fn check(text: &str) -> Result<(), TestCaseError> {
    match read(text) {
        Ok(cluster) => prop_assert!(!cluster.services.is_empty()),
        Err(Error::Invalid(diagnostics)) => {
            prop_assert!(!diagnostics.is_empty());
            for diagnostic in diagnostics {
                let line = text.split('\n').nth(diagnostic.line - 1);
                let line = line.ok_or_else(|| TestCaseError::fail(diagnostic.to_string()))?;
                prop_assert!(diagnostic.column <= line.chars().count() + 1, "{}", diagnostic);
            }
        }
        Err(other) => prop_assert!(false, "{}", other),
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn the_good_file_with_any_text_in_it(
        at in any::<prop::sample::Index>(), len in 0usize..40,
        text in "[a-z0-9\\[\\]\"'=.:/\n\u{e9} #*{},-]{0,12}",
    ) {
        let start = at.index(GOOD.len());
        let end = (start + len).min(GOOD.len());
        check(&format!("{}{text}{}", &GOOD[..start], &GOOD[end..]))?;
    }

    #[test]
    fn any_limit(value in "[0-9.]{0,24} ?[a-zA-Z]{0,3}[0-9 ]{0,8}[a-z]{0,2}", row in 0usize..7) {
        let key = ["head", "body", "head_timeout", "wait_timeout",
                   "held_per_flow", "held_per_source", "held"][row];
        check(&limited(&format!("{key} = {value:?}")))?;
    }

    #[test]
    fn any_value_of_a_pool(value in "[a-z0-9+-]{0,8}[ %]?\\PC{0,12}", row in 0usize..5) {
        let key = ["balance", "hash", "slow_start", "queue_limit", "delegate"][row];
        check(&pooled(&format!("policy = \"hash\"\n{key} = {value:?}")))?;
    }

    #[test]
    fn any_health(value in "[0-9/-]{0,8}\\PC{0,12}", row in 0usize..5) {
        let key = ["path", "host", "status", "interval", "timeout"][row];
        check(&pooled(&format!("policy = \"random\"\nhealth = {{ {key} = {value:?} }}")))?;
        check(&pooled(&format!("policy = \"random\"\nhealth.path = \"/\"\nhealth.status = [{value:?}]")))?;
    }

    #[test]
    fn any_persistence(
        value in "(SB|__Host-|__secure-|/)?[a-z0-9.-]{0,40}\\PC{0,12}", row in 0usize..8, mode in 0usize..3,
    ) {
        let key = ["mode", "cookie", "hash", "sticky", "path", "domain", "same_site", "max_age"][row];
        let mode = ["rewrite", "insert", "hash"][mode];
        let mode = if row == 0 { String::new() } else { format!("mode = \"{mode}\", ") };
        check(&pooled(&format!("policy = \"random\"\npersistence = {{ {mode}{key} = {value:?} }}")))?;
    }

    #[test]
    fn any_redirect(value in "\\PC{0,20}", row in 0usize..3) {
        let key = ["scheme", "host", "path"][row];
        check(&changed("pool = \"web\"", &format!("redirect = {{ {key} = {value:?} }}")))?;
    }

    #[test]
    fn any_value_of_each_kind(value in "\\PC{0,20}", row in 0usize..10) {
        let old = ["cluster.key", "n1", "192.0.2.21", "web", "round-robin", "[2001:db8::100]:80",
                   "Static.example.com", "/img/", "HEAD", "X-Beta"][row];
        check(&changed(&format!("\"{old}\""), &format!("{value:?}")))?;
    }
}
