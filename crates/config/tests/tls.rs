//! What `[service.tls]` means, what is wrong with it, and how a change of it is told.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use std::path::Path;

use common::{GOOD, SECRET, changed, good, lines, loops, read};
use switchback_config::{
    Acme, Action, CertificateFiles, CertificateSource, Challenge, ClientAddress, ClientAuth,
    ClientCertificates, Cluster, ExternalAccount, HandOver, Model, Protocol, Redirect, Scheme, Server,
    Service, TicketScope, Tls, TlsMode, TlsVersion, parse,
};

/// What is said of a service without `server` whose nodes have none.
const NO_SERVER: &str = "34:8: service \"secret\" has TLS without a server, and so has its node \"n1\", needed is an address, such as server \
    = \"127.0.0.1:8080\", in [service.tls] or in [[node]], because the agent itself listens at the VIPs; or passthrough \
    = true if the servers end TLS themselves";
/// A line of [`SECRET`] in `[service.tls]`.
const SERVER: &str = "server = \"127.0.0.1:8080\"";
/// Its route.
const ROUTE: &str = "[[service.route]]\npool = \"web\"\n";

/// A service of the good file's pool whose servers end TLS.
const PASSED: &str = r#"
[[service]]
name = "secret"
listen = ["192.0.2.100:443"]

[service.tls]
passthrough = true

[[service.route]]
pool = "web"
"#;

/// The good file and [`SECRET`] with `old` replaced by `new`.
fn secret(old: &str, new: &str) -> String {
    assert!(SECRET.contains(old), "{old:?}");
    format!("{GOOD}{}", SECRET.replacen(old, new, 1))
}

/// The good file and [`SECRET`] with `lines` in `[service.tls]`.
fn keyed(lines: &str) -> String {
    secret(SERVER, &format!("{SERVER}\n{lines}"))
}

fn service(text: &str) -> Service {
    good(text).services[1].clone()
}

fn tls(text: &str) -> Tls {
    service(text).tls.terminated().unwrap().clone()
}

fn certificate(chain: &str, key: &str, staple: Option<&str>) -> CertificateSource {
    let staple = staple.map(Into::into);
    CertificateSource::Files(CertificateFiles { chain: chain.into(), key: key.into(), staple })
}

#[test]
fn what_a_service_with_tls_means() {
    let usual = Tls {
        certificates: vec![certificate("etc/secret.pem", "etc/secret.key", None)],
        client_certificates: None,
        server: Some(Server::Tcp("127.0.0.1:8080".parse().unwrap())),
        model: Model::Session,
        hand_over: HandOver::Direct,
        tickets: TicketScope::Node,
        protocols: vec![Protocol::Http2, Protocol::Http11],
        min_version: TlsVersion::Tls12,
        client_address: ClientAddress::XForwarded,
        busy_connections: 1000,
        busy_cpu: 80,
        ktls: true,
    };
    let secret = format!("{GOOD}{SECRET}");
    assert_eq!(tls(&secret), usual);
    assert_eq!((service(&secret).scheme(), good(GOOD).services[0].scheme()), (Scheme::Https, Scheme::Http));
    assert_eq!(good(&secret).summary(), "2 nodes, 1 pool, 2 services, 3 routes");

    let all = keyed(
        "sessions = \"forwarding\"\nhand_over = \"relay\"\ntickets = \"cluster\"\nprotocols = [\"http/1.1\"]\nmin_version = \"1.3\"\n\
         client_address = \"none\"\nbusy_connections = 1000000\nbusy_cpu = \"100%\"\n\
         client_certificates = { mode = \"optional\", ca = \"clients.pem\", crl = \"/etc/tls/clients.crl\" }\n\
         [[service.tls.certificate]]\nchain = \"/etc/tls/a.pem\"\nkey = \"../a.key\"\nstaple = \"a.ocsp\"",
    );
    assert_eq!(
        tls(&all),
        Tls {
            certificates: vec![
                certificate("/etc/tls/a.pem", "etc/../a.key", Some("etc/a.ocsp")),
                certificate("etc/secret.pem", "etc/secret.key", None),
            ],
            client_certificates: Some(ClientCertificates {
                mode: ClientAuth::Optional,
                ca: "etc/clients.pem".into(),
                crl: Some("/etc/tls/clients.crl".into()),
            }),
            model: Model::Forwarding,
            hand_over: HandOver::Relay,
            tickets: TicketScope::Cluster,
            protocols: vec![Protocol::Http11],
            min_version: TlsVersion::Tls13,
            client_address: ClientAddress::Nothing,
            busy_connections: 1_000_000,
            busy_cpu: 100,
            ktls: false,
            ..usual
        }
    );
}

#[test]
fn every_value_that_has_a_name() {
    for model in Model::ALL {
        assert_eq!(tls(&keyed(&format!("sessions = \"{model}\""))).model, model);
    }
    for hand_over in HandOver::ALL {
        let lines = format!("sessions = \"forwarding\"\nhand_over = \"{hand_over}\"");
        assert_eq!(tls(&keyed(&lines)).hand_over, hand_over);
    }
    for tickets in TicketScope::ALL {
        assert_eq!(tls(&keyed(&format!("tickets = \"{tickets}\""))).tickets, tickets);
    }
    for protocol in Protocol::ALL {
        assert_eq!(tls(&keyed(&format!("protocols = [\"{protocol}\"]"))).protocols, [protocol]);
    }
    for version in TlsVersion::ALL {
        assert_eq!(tls(&keyed(&format!("min_version = \"{version}\""))).min_version, version);
    }
    for mode in ClientAuth::ALL {
        let lines = format!("[service.tls.client_certificates]\nmode = \"{mode}\"\nca = \"ca.pem\"");
        assert_eq!(tls(&keyed(&lines)).client_certificates.unwrap().mode, mode);
    }
    let usual = tls(&keyed("client_certificates.ca = \"ca.pem\"")).client_certificates.unwrap();
    assert_eq!((usual.mode, usual.crl), (ClientAuth::Required, None));
    for address in ClientAddress::ALL {
        assert_eq!(tls(&keyed(&format!("client_address = \"{address}\""))).client_address, address);
    }
}

#[test]
fn other_ways_to_write_it() {
    let usual = good(&format!("{GOOD}{SECRET}"));
    let written = |text: String| Cluster { hash: usual.hash, ..good(&text) };
    let certificate = "[[service.tls.certificate]]\nchain = \"secret.pem\"\nkey = \"secret.key\"\n";
    let inline = "certificate = [{ chain = \"secret.pem\", key = \"secret.key\" }]";
    assert_eq!(written(secret(certificate, "").replace(SERVER, &format!("{SERVER}\n{inline}"))), usual);
    let dotted = SECRET.replace("[service.tls]\nserver", "tls.server").replace(certificate, "");
    assert_eq!(
        written(format!("{GOOD}{}", dotted.replace("tls.server", &format!("tls.{inline}\ntls.server")))),
        usual
    );
}

#[test]
fn certificates_begin_at_the_directory_of_the_file() {
    for (file, chain) in [("cluster.toml", "secret.pem"), ("/etc/sb/cluster.toml", "/etc/sb/secret.pem")] {
        let cluster = parse(&format!("{GOOD}{SECRET}"), Path::new(file), |_| Ok(Vec::new())).unwrap();
        let certificates = &cluster.services[1].tls.terminated().unwrap().certificates;
        let CertificateSource::Files(files) = &certificates[0] else { panic!("it is in files") };
        assert_eq!(files.chain, Path::new(chain));
    }
}

#[test]
fn where_servers_can_be() {
    let longest = format!("unix:/{}", "x".repeat(106));
    let servers =
        ["127.0.0.1:1", "127.1.2.3:65535", "[::1]:8080", "unix:/run/app.sock", "unix:/a b", &longest];
    for text in servers {
        let server = tls(&secret("127.0.0.1:8080", text)).server.expect("the line is there");
        assert_eq!(server.to_string(), text);
        assert_eq!(matches!(server, Server::Unix(_)), text.starts_with("unix:"));
    }
    let refused = |text: &str| {
        let lines = lines(read(&secret("127.0.0.1:8080", text)));
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].clone()
    };
    for text in [
        "",
        "8080",
        "127.0.0.1",
        "127.0.0.1:0",
        "localhost:8080",
        "http://127.0.0.1:80",
        "[::1%1]:80",
        "/run/app.sock",
    ] {
        assert_eq!(
            refused(text),
            format!(
                "etc/cluster.toml:38:10: bad server {text:?}, allowed is a loopback address with a port such as \
                 \"127.0.0.1:8080\" or \"[::1]:8080\", or \"unix:/run/app.sock\""
            )
        );
    }
    for text in ["192.0.2.21:8080", "0.0.0.0:8080", "[::]:80", "[::ffff:127.0.0.1]:80", "[2001:db8::1]:80"] {
        assert_eq!(
            refused(text),
            format!(
                "etc/cluster.toml:38:10: server {text} is not a loopback address, and what goes there is not encrypted, \
                 allowed is an address such as 127.0.0.1:8080 or [::1]:8080"
            )
        );
    }
    for text in ["unix:", "unix:app.sock", "unix:/", "unix:/run/", "unix:/\\u0000", &format!("{longest}x")] {
        assert_eq!(
            refused(text),
            format!(
                "etc/cluster.toml:38:10: bad server \"{}\", allowed is \"unix:\" and the absolute path of a socket, at \
                 most 107 bytes, such as \"unix:/run/app.sock\"",
                text.replace("\\u0000", "\\0")
            )
        );
    }
}

/// Changes to [`SECRET`], and what is wrong then: what comes after `etc/cluster.toml:`.
const BAD: &[(&str, &str, &[&str])] = &[
    // What toml finds.
    (SERVER, "servers = \"127.0.0.1:8080\"", &["38:1: unknown key \"servers\", did you mean \"server\"?"]),
    (
        "key = \"secret.key\"",
        "",
        &["40:1: certificate without key, needed are chain and key, or domains for one from a CA"],
    ),
    ("key =", "kee =", &["42:1: unknown key \"kee\", did you mean \"key\"?"]),
    (SERVER, "", &[NO_SERVER]),
    // Certificates.
    (
        "[[service.tls.certificate]]\nchain = \"secret.pem\"\nkey = \"secret.key\"\n",
        "",
        &[
            "34:8: service \"secret\" has TLS without a certificate, at least one [[service.tls.certificate]] is \
           needed",
        ],
    ),
    (
        "\"secret.pem\"\nkey = \"secret.key\"",
        "\"\"\nkey = \"\"\nstaple = \"\"",
        &[
            "41:9: empty chain, allowed is a path such as \"shop.pem\"",
            "42:7: empty key, allowed is a path such as \"shop.key\"",
            "43:10: empty staple, allowed is a path such as \"shop.ocsp\"",
        ],
    ),
    // The other keys.
    (
        SERVER,
        "server = \"8080\"\nsessions = \"sticky\"\ntickets = \"all\"\nprotocols = [\"http/2\", \"h2c\"]\n\
         min_version = \"TLSv1.2\"\nclient_address = \"x-real-ip\"\nbusy_connections = 1000001\n\
         busy_cpu = \"80\"\nhand_over = \"send\"",
        &[
            "38:10: bad server \"8080\", allowed is a loopback address with a port such as \"127.0.0.1:8080\" or \
             \"[::1]:8080\", or \"unix:/run/app.sock\"",
            "39:12: unknown sessions \"sticky\", allowed: round-robin, session, forwarding",
            "40:11: unknown tickets \"all\", allowed: node, cluster",
            "41:14: unknown protocol \"http/2\", allowed: h2, http/1.1",
            "41:24: unknown protocol \"h2c\", did you mean \"h2\"?",
            "42:15: unknown min_version \"TLSv1.2\", allowed: 1.2, 1.3",
            "43:18: unknown client_address \"x-real-ip\", allowed: x-forwarded, forwarded, proxy, none",
            "44:20: busy_connections 1000001, allowed are 0 to 1000000",
            "45:12: bad busy_cpu \"80\", allowed are \"1%\" to \"100%\"",
            "46:13: unknown hand_over \"send\", allowed: direct, relay",
        ],
    ),
    (
        SERVER,
        "server = \"[::1]:80\"\nclient_certificates = { mode = \"require\", ca = \"\", crl = \"\" }",
        &[
            "39:32: unknown mode \"require\", did you mean \"required\"?",
            "39:48: empty ca, allowed is a path such as \"clients.pem\"",
            "39:58: empty crl, allowed is a path such as \"clients.crl\"",
        ],
    ),
    (
        SERVER,
        "server = \"[::1]:80\"\nclient_certificates = { mode = \"optional\" }",
        &["39:23: key \"ca\" is missing, a text in quotes is needed"],
    ),
    (
        SERVER,
        "server = \"[::1]:80\"\nprotocols = []",
        &["39:13: no protocol, leave the line out for h2, http/1.1"],
    ),
    (
        SERVER,
        "server = \"[::1]:80\"\nprotocols = [\"h2\", \"http/1.1\", \"h2\"]",
        &["39:32: protocol \"h2\" is listed already, allowed is each once"],
    ),
    (
        SERVER,
        "server = \"[::1]:80\"\nbusy_connections = 1000\nbusy_cpu = \"80%\"\nhand_over = \"direct\"",
        &[
            "39:20: busy_connections with sessions \"session\", allowed is it only with sessions \"forwarding\"",
            "40:12: busy_cpu with sessions \"session\", allowed is it only with sessions \"forwarding\"",
            "41:13: hand_over with sessions \"session\", allowed is it only with sessions \"forwarding\"",
        ],
    ),
    (
        SERVER,
        "server = \"[::1]:80\"\nsessions = \"round-robin\"\nbusy_cpu = \"80%\"",
        &["40:12: busy_cpu with sessions \"round-robin\", allowed is it only with sessions \"forwarding\""],
    ),
    (
        SERVER,
        "sessions = \"forwarding\"",
        &[
            NO_SERVER,
            "38:12: sessions \"forwarding\" in [service.tls] without server, allowed is it only with one server for each machine",
        ],
    ),
    (
        SERVER,
        "server = \"[::1]:80\"\nsessions = \"forwarding\"\nhand_over = \"relay\"\nktls = true",
        &["41:8: ktls with hand_over \"relay\", allowed is it only with hand_over \"direct\""],
    ),
    // Routes.
    (ROUTE, "", &["34:8: service \"secret\" has no route, at least one [[service.route]] is needed"]),
    (
        ROUTE,
        "[[service.route]]\nalpn = \"http2\"\npool = \"web\"\n[[service.route]]\nalpn = []\npool = \"web\"\n",
        &[
            "45:8: unknown alpn \"http2\", allowed: h2, http/1.1",
            "48:8: no protocol, leave the line out to allow any",
        ],
    ),
];

#[test]
fn bad_files() {
    for (old, new, expected) in BAD {
        let expected: Vec<_> = expected.iter().map(|line| format!("etc/cluster.toml:{line}")).collect();
        assert_eq!(lines(read(&secret(old, new))), expected, "{new}");
    }
}

#[test]
fn a_server_is_not_where_the_daemons_listen() {
    let beside = |admin: &str, server: &str| {
        read(&format!("{}\n[admin]\n{admin}\n", secret("127.0.0.1:8080", server)))
    };
    for (admin, server) in [
        ("", "127.0.0.1:9180"),
        ("listen = \"0.0.0.0:81\"", "127.0.0.2:81"),
        ("listen = \"[::1]:81\"", "[::1]:81"),
    ] {
        let line = format!(
            "etc/cluster.toml:38:10: server {server} is where [admin] listens, allowed is another port"
        );
        assert_eq!(lines(beside(admin, server)), [line]);
    }
    for (admin, server) in
        [("", "127.0.0.2:9180"), ("", "127.0.0.1:9181"), ("listen = \"0.0.0.0:81\"", "unix:/81")]
    {
        assert!(beside(admin, server).is_ok(), "{admin} {server}");
    }
    good(&secret("127.0.0.1:8080", "127.0.0.1:9180"));
}

#[test]
fn what_is_spoken_above_tls_can_be_a_condition() {
    let route =
        |alpn: &str| service(&secret("pool = ", &format!("alpn = {alpn}\npool = "))).routes[0].clone();
    assert_eq!(route("\"h2\"").alpn, [Protocol::Http2]);
    assert_eq!(route("[\"http/1.1\", \"h2\"]").alpn, [Protocol::Http11, Protocol::Http2]);
    assert!(!route("\"h2\"").is_catch_all());
    let usual = service(&format!("{GOOD}{SECRET}"));
    assert!(usual.routes[0].alpn.is_empty() && usual.routes[0].is_catch_all());

    // A route behind one with the condition can match.
    good(&secret(ROUTE, &format!("[[service.route]]\nalpn = \"h2\"\npool = \"web\"\n{ROUTE}")));

    let other = secret("pool = ", "alpn = [\"http/1.1\", \"h2\"]\npool = ")
        .replace(SERVER, &format!("{SERVER}\nprotocols = [\"http/1.1\"]"));
    let line = "etc/cluster.toml:46:21: alpn \"h2\" is not among the service's protocols, allowed: http/1.1";
    assert_eq!(lines(read(&other)), [line]);

    // Of what is meant to be among them nothing can be said.
    let misspelt = other.replace("[\"http/1.1\"]", "[\"http/1.1\", \"http/2\"]");
    let line = "etc/cluster.toml:39:26: unknown protocol \"http/2\", allowed: h2, http/1.1";
    assert_eq!(lines(read(&misspelt)), [line]);

    let plain = changed("path = \"/img/\"", "path = \"/img/\"\nalpn = \"h3\"");
    let line =
        "etc/cluster.toml:25:8: alpn in a service without TLS, allowed is it only in one with [service.tls]";
    assert_eq!(lines(read(&plain)), [line]);
}

#[test]
fn redirects_over_tls() {
    let redirect = |parts: &str| secret("pool = \"web\"", &format!("redirect = {{ {parts} }}"));
    let rows = [
        ("scheme = \"https\"", true),
        ("scheme = \"http\"", false),
        ("port = 443", true),
        ("port = 80", false),
        ("scheme = \"https\", port = 443", true),
        ("scheme = \"https\", port = 8443", false),
        ("scheme = \"http\", port = 443", false),
        ("path = \"/\"", true),
        ("path = \"/a\"", false),
    ];
    for (parts, back) in rows {
        assert_eq!(loops(&redirect(parts)).len(), usize::from(back), "{parts}");
    }
    let http = good(&redirect("scheme = \"http\""));
    let Action::Redirect(Redirect { scheme, port, .. }) = &http.services[1].routes[0].action else {
        panic!()
    };
    assert_eq!((scheme, port), (&Some(Scheme::Http), &None));
    // On another port https leads elsewhere.
    assert!(loops(&redirect("scheme = \"https\"").replace(":443", ":8443")).is_empty());
}

/// The good file with `pool` as the last lines of its pool, and [`SECRET`].
fn pooled(pool: &str) -> String {
    let switch = if pool.contains("delegate") { "[[switch]]\nname = \"n1\"\n" } else { "" };
    format!("{}{SECRET}{switch}", common::pooled(pool))
}

#[test]
fn switches_need_not_read_what_comes_over_tls() {
    let whose = "in pool \"web\" of service \"secret\", whose requests switches cannot read under TLS";
    let to_client = "allowed is hash \"client\"";
    let to_hash = "allowed is mode \"hash\" with hash \"client\"";
    let rows = [
        ("policy = \"hash\"\nhash = \"path\"", vec![format!("17:8: hash \"path\" {whose}, {to_client}")]),
        (
            "policy = \"hash\"\nhash = \"header X-User\"\nbalance = \"request\"",
            vec![format!("17:8: hash \"header x-user\" {whose}, {to_client}")],
        ),
        (
            "policy = \"hash\"\nhash = \"cookie Sid\"\nbalance = \"connection\"",
            vec![format!("17:8: hash \"cookie Sid\" {whose}, {to_client}")],
        ),
        (
            "policy = \"fill\"\nbalance = \"request\"",
            vec![format!("17:11: balance \"request\" {whose}, allowed is balance \"connection\"")],
        ),
        (
            "policy = \"fill\"\ndelegate = \"all\"",
            vec![format!("17:12: delegate {whose}, leave the line out")],
        ),
        (
            "policy = \"fill\"\n[pool.persistence]\nmode = \"insert\"",
            vec![format!("18:8: mode \"insert\" {whose}, {to_hash}")],
        ),
        (
            "policy = \"fill\"\n[pool.persistence]\nmode = \"rewrite\"\ncookie = \"PHPSESSID\"",
            vec![format!("18:8: mode \"rewrite\" {whose}, {to_hash}")],
        ),
        (
            "policy = \"hash\"\nhash = \"path\"\n[pool.persistence]\nmode = \"hash\"\nhash = \"header x\"",
            vec![
                format!("17:8: hash \"path\" {whose}, {to_client}"),
                format!("20:8: hash \"header x\" {whose}, {to_client}"),
            ],
        ),
    ];
    for (pool, expected) in rows {
        let expected: Vec<_> = expected.iter().map(|line| format!("etc/cluster.toml:{line}")).collect();
        assert_eq!(lines(read(&pooled(pool))), expected, "{pool}");
        // Other services can do with all of it, and a pool that no route names is nobody's.
        let plain = pooled(pool).replace(ROUTE, "[[service.route]]\nredirect = { path = \"/a\" }\n");
        good(&plain);
    }
    for pool in [
        "policy = \"hash\"",
        "policy = \"hash\"\nhash = \"client\"\nbalance = \"connection\"",
        "policy = \"fill\"\nsecond_candidate = true\nhealth = { path = \"/\" }",
        "policy = \"fill\"\npersistence = { mode = \"hash\", hash = \"client\", sticky = \"strict\" }",
    ] {
        good(&pooled(pool));
    }
}

#[test]
fn a_pool_of_several_services_with_tls_is_told_once() {
    let again = SECRET.replace("\"secret\"", "\"hidden\"").replace(":443", ":444");
    let text = format!("{}{again}{ROUTE}", pooled("policy = \"fill\"\nbalance = \"request\""));
    let told = lines(read(&text));
    assert!(told[0].contains("of service \"secret\"") && told[1].contains("can never match"), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[test]
fn changes_in_words() {
    let differences = |old: &str, new: &str| {
        let [old, new]: [Cluster; 2] = [old, new].map(good);
        assert_eq!(old.diff(&old), [""; 0]);
        old.diff(&new)
    };
    let said =
        |lines: &[&str]| lines.iter().map(|line| format!("service secret: {line}")).collect::<Vec<_>>();

    let usual = format!("{GOOD}{SECRET}");
    let all = secret(
        SERVER,
        "server = \"unix:/run/app.sock\"\nsessions = \"forwarding\"\nhand_over = \"relay\"\n\
         tickets = \"cluster\"\nprotocols = [\"http/1.1\", \"h2\"]\nmin_version = \"1.3\"\nclient_address = \"forwarded\"\n\
         busy_connections = 7\nbusy_cpu = \"8%\"\nclient_certificates = { ca = \"ca.pem\", crl = \"/ca.crl\" }",
    )
    .replace("key = \"secret.key\"", "key = \"b.key\"\nstaple = \"b\\\", key = \\\"c\"");
    assert_eq!(
        differences(&usual, &all),
        said(&[
            "tls.certificate { chain = \"etc/secret.pem\", key = \"etc/secret.key\" } -> { chain = \"etc/secret.pem\", \
             key = \"etc/b.key\", staple = \"etc/b\\\", key = \\\"c\" }",
            "tls.client_certificates (none) -> { mode = \"required\", ca = \"etc/ca.pem\", crl = \"/ca.crl\" }",
            "tls.server 127.0.0.1:8080 -> unix:/run/app.sock",
            "tls.sessions session -> forwarding",
            "tls.hand_over direct -> relay",
            "tls.tickets node -> cluster",
            "tls.protocols h2, http/1.1 -> http/1.1, h2",
            "tls.min_version 1.2 -> 1.3",
            "tls.client_address x-forwarded -> forwarded",
            "tls.busy_connections 1000 -> 7",
            "tls.busy_cpu 80% -> 8%",
            "tls.ktls true -> false",
        ])
    );

    let plain = format!("{GOOD}\n[[service]]\nname = \"secret\"\nlisten = [\"192.0.2.100:443\"]\n{ROUTE}");
    let off = differences(&usual, &plain);
    assert_eq!(off[..2], said(&["tls.passthrough false -> (none)", off[1].split_once(": ").unwrap().1]));
    assert_eq!(off[2], "service secret: tls.server 127.0.0.1:8080 -> (none)");
    assert!(off.len() == 12 && off.iter().all(|line| line.ends_with(" -> (none)")), "{off:?}");
    assert_eq!(differences(&plain, &usual).len(), 12);
    assert_eq!(differences(&plain, &format!("{GOOD}{PASSED}")), said(&["tls.passthrough (none) -> true"]));
    assert_eq!(differences(&usual, &format!("{GOOD}{PASSED}")).len(), 12);

    let two = "[[service.tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.pem\"\n[[service.route]]";
    assert_eq!(
        differences(&usual, &secret("[[service.route]]", two)),
        said(&[
            "tls.certificate { chain = \"etc/secret.pem\", key = \"etc/secret.key\" } -> { chain = \"etc/secret.pem\", \
             key = \"etc/secret.key\" }, { chain = \"etc/a.pem\", key = \"etc/a.pem\" }",
        ])
    );

    let both = "host = \"a\"\nheader = { name = \"x\", value = \"1\" }\nalpn = [\"h2\", \"http/1.1\"]\npool";
    assert_eq!(
        differences(&usual, &secret("pool", both)),
        said(&[
            "route removed: every request -> web",
            "route added: host a, header field x with 1, protocol h2 or http/1.1 -> web",
        ])
    );
}

#[test]
fn servers_can_end_tls() {
    let passed = service(&format!("{GOOD}{PASSED}"));
    assert_eq!((&passed.tls, passed.scheme()), (&TlsMode::Passthrough, Scheme::Https));
    // Without it nodes do.
    assert_eq!(service(&keyed("passthrough = false")), service(&format!("{GOOD}{SECRET}")));
    let conditions = "host = \"*.example.com\"\nalpn = [\"h2\", \"http/1.1\"]\npool";
    let routes = service(&format!("{GOOD}{}", PASSED.replace("pool", conditions))).routes;
    assert_eq!(routes[0].in_words(), "host *.example.com, protocol h2 or http/1.1");
}

#[test]
fn what_needs_a_node_that_reads_is_wrong_where_servers_end_tls() {
    let told = |text: &str| {
        let lines = lines(read(text));
        let place = |line: &String| line.strip_prefix("etc/cluster.toml:").unwrap().to_owned();
        lines.iter().map(place).collect::<Vec<_>>()
    };
    let keys = "server = \"127.0.0.1:80\"\nsessions = \"session\"\nhand_over = \"direct\"\ntickets = \"node\"\n\
                protocols = [\"h2\"]\nmin_version = \"1.2\"\nclient_address = \"none\"\nbusy_connections = 1\n\
                busy_cpu = \"1%\"\nktls = true\nclient_certificates = { ca = \"c\" }\n[[service.tls.certificate]]\nchain = \"a\"\nkey = \"b\"\n";
    let keyed =
        format!("{GOOD}{}", PASSED.replace("passthrough = true\n", &format!("passthrough = true\n{keys}")));
    let names = keys.lines().filter(|line| !line.starts_with("[[") && !line.starts_with("key"));
    let names = names.map(|line| line.split_once(' ').unwrap().0.replace("chain", "certificate"));
    let expected: Vec<String> =
        names.map(|key| format!("{key} with passthrough: the servers end TLS, leave {key} out")).collect();
    let (places, whats): (Vec<_>, Vec<_>) = told(&keyed)
        .iter()
        .map(|line| line.split_once(": ").unwrap())
        .map(|(at, what)| (at.to_owned(), what.to_owned()))
        .unzip();
    assert_eq!(whats, expected);
    assert_eq!((&*places[0], &*places[9], &*places[11]), ("39:10", "48:8", "50:1"));

    let why = "in a service with passthrough, where nobody reads requests";
    let conditions = "path = \"/a\"\nmethod = \"GET\"\nheader = { name = \"x\" }\nh2c = true\npool";
    assert_eq!(
        told(&format!("{GOOD}{}", PASSED.replace("pool", conditions))),
        [
            format!("41:8: path {why}, allowed are host, client and alpn"),
            format!("42:10: method {why}, allowed are host, client and alpn"),
            format!("43:10: header {why}, allowed are host, client and alpn"),
            "44:7: h2c is HTTP/2 without TLS, but the service has TLS".to_owned(),
        ]
    );
    let not = "client = \"10.0.0.0/8\"\nnot = [{ host = \"a.example.com\" }, { path_exact = \"/a\" }, { query = { name = \"a\" } }]\npool";
    let told_of_not = told(&format!("{GOOD}{}", PASSED.replace("pool", not)));
    let keys = told_of_not.iter().map(|line| line.split_once(": ").unwrap().1);
    assert_eq!(
        keys.collect::<Vec<_>>(),
        ["path_exact", "query"].map(|key| format!("{key} {why}, allowed are host, client and alpn"))
    );
    let redirect = PASSED.replace("pool = \"web\"", "redirect = { path = \"/a\" }");
    assert_eq!(
        told(&format!("{GOOD}{redirect}")),
        [format!("41:12: redirect {why}, allowed are pool and split")]
    );
    let respond = PASSED.replace("pool = \"web\"", "respond = 403");
    assert_eq!(
        told(&format!("{GOOD}{respond}")),
        [format!("41:11: respond {why}, allowed are pool and split")]
    );

    let pooled = |lines: &str| told(&format!("{}{PASSED}", common::pooled(lines)));
    let whose = "in pool \"web\" of a service with passthrough";
    assert_eq!(
        pooled("policy = \"fill\"\nresume = \"range\"\nhealth = { path = \"/\" }\noutliers = {}"),
        [
            format!("17:10: resume \"range\" {whose}, where nobody reads responses, allowed is \"off\""),
            format!(
                "18:19: path {whose}, whose servers speak TLS, leave the line out to check that they accept connections"
            ),
            format!("19:12: outliers {whose}, where nobody reads responses, leave the table out"),
        ]
    );
    let checked = "policy = \"fill\"\nresume = \"off\"\nhealth = { rise = 1 }";
    good(&format!("{}{PASSED}", common::pooled(checked)));
    assert_eq!(
        pooled("policy = \"fill\"\nbalance = \"request\""),
        [
            "17:11: balance \"request\" in pool \"web\" of service \"secret\", whose requests switches cannot read under TLS, \
             allowed is balance \"connection\""
        ]
    );
}

const ISSUED: &str = "chain = \"secret.pem\"\nkey = \"secret.key\"";

/// The good file with `[acme]` with these lines, and a certificate for these domains.
fn issued(acme: &str, domains: &str) -> String {
    format!("[acme]\n{acme}\n\n{}", secret(ISSUED, &format!("domains = {domains}")))
}

#[test]
fn what_a_certificate_of_a_ca_means() {
    let text = issued("node = \"n2\"\nterms_agreed = true", "[\"Shop.example.com\", \"www.example.com\"]");
    let cluster = good(&text);
    let usual = Acme {
        directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
        email: None,
        node: 1,
        challenge: Challenge::TlsAlpn01,
        profile: None,
        ca: None,
        external_account: None,
    };
    assert_eq!(cluster.acme, Some(usual));
    let domains = vec!["shop.example.com".to_owned(), "www.example.com".to_owned()];
    assert_eq!(tls(&text).certificates, [CertificateSource::Issued(domains.clone())]);
    assert_eq!(cluster.issued_certificates(), [domains]);

    let all = "node = \"n1\"\nterms_agreed = true\ndirectory = \"https://ca.example:14000/dir\"\nemail = \"ops@example.com\"\n\
               challenge = \"http-01\"\nprofile = \"shortlived\"\nca = \"ca.pem\"\n\
               external_account_id = \"kid-1\"\nexternal_account_key = \"ca.hmac\"";
    let acme = Acme {
        directory: "https://ca.example:14000/dir".to_owned(),
        email: Some("ops@example.com".to_owned()),
        node: 0,
        challenge: Challenge::Http01,
        profile: Some("shortlived".to_owned()),
        ca: Some("etc/ca.pem".into()),
        external_account: Some(ExternalAccount { id: "kid-1".to_owned(), key: "etc/ca.hmac".into() }),
    };
    assert_eq!(good(&issued(all, "[\"a.example\"]")).acme, Some(acme));
    let lines = good(GOOD).diff(&good(&issued(all, "[\"a.example\"]")));
    for line in ["acme: node (none) -> n1", "acme: challenge (none) -> http-01"] {
        assert!(lines.contains(&line.to_owned()), "{line}: {lines:?}");
    }
}

#[test]
fn mistakes_about_a_ca() {
    let right = "node = \"n1\"\nterms_agreed = true";
    let one = "[\"a.example\"]";
    let with = |line: &str| issued(&format!("{right}\n{line}"), one);
    let rows = [
        (issued("node = \"n7\"\nterms_agreed = true", one), "unknown node \"n7\", did you mean"),
        (issued("node = \"n1\"\nterms_agreed = false", one), "terms_agreed is false, needed is true"),
        (issued("terms_agreed = true", one), "key \"node\" is missing, a text in quotes is needed"),
        (
            with("directory = \"http://ca.example/\""),
            "bad directory \"http://ca.example/\", allowed is a URL that begins with https://",
        ),
        (with("email = \"ops\""), "bad email \"ops\", allowed is an address"),
        (with("challenge = \"dns-01\""), "unknown challenge \"dns-01\", allowed: tls-alpn-01, http-01"),
        (with("profile = \"a b\""), "bad profile \"a b\", allowed are letters"),
        (with("ca = \"\""), "empty ca, allowed is a path"),
        (
            with("external_account_id = \"kid-1\""),
            "external_account_id without external_account_key, needed are both",
        ),
        (
            with("external_account_key = \"ca.hmac\""),
            "external_account_key without external_account_id, needed are both",
        ),
        (
            with("external_account_id = \"\"\nexternal_account_key = \"ca.hmac\""),
            "empty external_account_id, allowed is the id that the CA has given the key",
        ),
        (
            with("external_account_id = \"kid-1\"\nexternal_account_key = \"\""),
            "empty external_account_key, allowed is a path",
        ),
        (issued(right, "[]"), "0 domains, allowed are 1 to 100"),
        (
            issued(right, "[\"*.example.com\"]"),
            "domain \"*.example.com\" has a wildcard, whose proof takes DNS-01",
        ),
        (issued(right, "[\"192.0.2.1\"]"), "bad domain \"192.0.2.1\", allowed is a host name"),
        (issued(right, "[\"a_b.example\"]"), "bad domain \"a_b.example\""),
        (issued(right, "[\"a.example\", \"A.example\"]"), "domain \"a.example\" is listed already"),
        (secret(ISSUED, "domains = [\"a.example\"]"), "domains without a CA, needed is the table [acme]"),
        (
            secret(ISSUED, "chain = \"a.pem\""),
            "certificate without key, needed are chain and key, or domains",
        ),
        (
            secret(ISSUED, "key = \"a.key\"\ndomains = [\"a.example\"]"),
            "key with domains: the CA issues the certificate, leave key out",
        ),
        (
            issued(
                right,
                "[\"a.example\"]\n[[service.tls.certificate]]\ndomains = [\"a.example\", \"b.example\"]",
            ),
            "another certificate with other domains begins with \"a.example\"",
        ),
        (
            with("challenge = \"http-01\"")
                .replace(SERVER, &format!("{SERVER}\nclient_certificates.ca = \"ca.pem\"")),
            "client certificates are required, which a CA does not have",
        ),
        (
            issued(right, one).replacen("name = \"n2\"", "name = \"n2\"\nhidden = true", 1),
            "domains in a service with node \"n2\", which is hidden, so that node \"n1\" cannot tell it",
        ),
    ];
    for (text, expected) in rows {
        let error = parse(&text, Path::new("cluster.toml"), |_| Ok(Vec::new())).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}\n{text}");
    }
}
