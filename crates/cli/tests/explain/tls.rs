//! Clients that speak TLS.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};
use switchback_wire::{SB_HANDOVER_REQUEST, sb_flow, sb_op};

use super::captures::{ETHERNET, bytes, fin, flow, handed_over, pcap, syn};
use super::{CLUSTER, assert_lines, explain, explain_bytes, stderr, stdout};

/// Nodes need certificates, `explain` does not.
const SECURE: &str = r#"
[[service]]
name = "secure"
listen = ["192.0.2.100:443"]
[service.tls]
server = "127.0.0.1:80"
[[service.tls.certificate]]
chain = "not-there.pem"
key = "not-there.key"
[[service.route]]
host = "img.example.com"
pool = "img"
[[service.route]]
path = "/img/"
pool = "img"
[[service.route]]
host = "*.example.com"
path = "/old"
redirect = { path = "/new" }
[[service.route]]
host = "h2.example.com"
alpn = ["h2"]
pool = "web"
[[service.route]]
host = "shop.example.com"
pool = "web"
[[service.route]]
host = "api.example.com"
path = "/v1/"
rewrite = { host = "internal.example.com", prefix = "/" }
request_header = { set = { name = "X-Tenant", value = "7" } }
pool = "web"
"#;

fn directory(test: &str, lines: &str) -> PathBuf {
    let secure = SECURE.replace("[service.tls]\n", &format!("[service.tls]\n{lines}\n"));
    super::directory(test, &format!("{CLUSTER}{secure}"))
}

/// What rustls says first.
fn hello(name: &str, protocols: &[&str]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("there are versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = name.to_owned().try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("a vector takes everything");
    bytes
}

#[test]
fn https_urls() {
    let directory = directory("https", "");
    let rows: &[(&[&str], &[&str])] = &[
        (
            &["https://shop.example.com/img/a.png"],
            &[
                "ClientHello: shop.example.com, offers h2, http/1.1",
                "service   secure (192.0.2.100:443)",
                "route 1   no: it wants shop.example.com, not img.example.com",
                "route 2   not yet: it takes some of its requests (paths that begin with /img/)",
                "route 3   not yet: the node answers some of its requests (host *.example.com, paths that begin with /old)",
                "route 4   no: it wants shop.example.com, not h2.example.com",
                "route 5   yes: it takes host shop.example.com",
                "pool      web: n1 (weight 1), n2 (weight 2)",
                "policy    round-robin: in turn, by weight",
                "session   it offers none",
                "node      n2, if nothing but what is shown here came before",
                "speaks    h2, which the service likes best",
                "request over h2, which the node reads: GET /img/a.png HTTP/1.1",
                "route 1   no: host is shop.example.com, not img.example.com",
                "route 2   yes: it takes paths that begin with /img/",
                "pool      img: n1 (weight 1)",
                "answered  n2 is not in the pool: the request is forwarded to n1",
            ],
        ),
        (
            &["--alpn", "http/1.1", "https://shop.example.com/img/a.png"],
            &[
                "ClientHello: shop.example.com, offers http/1.1",
                "speaks    http/1.1",
                "answered  n2 is not in the pool: the connection moves to n1",
            ],
        ),
        (
            &["--alpn", "http/1.1", "https://shop.example.com:443/a"],
            &["route 5   yes", "answered  by the server of n2: the connection stays"],
        ),
        (
            &["--alpn", "spdy/3", "https://shop.example.com/"],
            &["speaks    nothing in common: the node answers with the alert no_application_protocol"],
        ),
        (
            &["--alpn", "http/1.1", "https://h2.example.com/"],
            &[
                "route 2   yes: it may take some of its requests",
                "pool      img",
                "request over http/1.1, which the node reads: GET / HTTP/1.1",
                "route 4   no: it comes over http/1.1",
                "answer    no route takes it: the node answers 404",
            ],
        ),
        (&["https://h2.example.com/"], &["route 4   yes: it takes host h2.example.com, protocol h2"]),
        (
            &["https://shop.example.com/old"],
            &[
                "route 3   yes: it takes host *.example.com, paths that begin with /old",
                "redirect  the node answers 301",
                "Location  https://shop.example.com/new",
            ],
        ),
        (
            &["--header", "x-tenant: 1", "https://api.example.com/v1/a?b"],
            &[
                "route 6   yes: it takes host api.example.com, paths that begin with /v1/",
                "becomes   GET /a?b HTTP/1.1",
                "Host: internal.example.com",
                "X-Tenant: 7",
                "pool      web",
            ],
        ),
        (
            &["https://192.0.2.100/img/"],
            &[
                "ClientHello: no name, offers h2, http/1.1",
                "route 1   no: it wants no name, and img.example.com is asked for",
                "route 2   yes: it may take some of its requests (paths that begin with /img/), and no route takes all",
                "answered  by the server of n1",
            ],
        ),
        (&["--service", "secure", "/img/"], &["ClientHello: no name", "request over h2"]),
        (
            &["https://shop.example.com/a b"],
            &["request over h2", "refused   invalid_version: the client gets 400", "at byte   7"],
        ),
        (
            &["--service", "secure", "http://shop.example.com/"],
            &["ClientHello", "refused   it is HTTP without TLS: the switch answers 400"],
        ),
    ];
    for (arguments, parts) in rows {
        let output = explain(&directory, arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
        assert_lines(&stdout(&output), parts, &format!("{arguments:?}"));
    }
}

#[test]
fn no_route_takes_a_client() {
    let secure = SECURE.replace("path = \"/img/\"\n", "host = \"x.example.com\"\n");
    let directory = super::directory("unrecognized", &format!("{CLUSTER}{secure}"));
    let output = explain(&directory, &["https://y.example.org/"]);
    let parts = [
        "route 4   no: it wants y.example.org, not h2.example.com",
        "route 5   no: it wants y.example.org",
        "refused   tls-unrecognized-name: the switch answers with the alert 112",
    ];
    assert_lines(&stdout(&output), &parts, "no route");
    assert!(!stdout(&output).contains("request over"), "{}", stdout(&output));
}

#[test]
fn a_busy_node_hands_over() {
    for (hand_over, protocol, what) in [
        ("direct", "http/1.1", "the connection moves there"),
        ("relay", "http/1.1", "the response is made there"),
        ("relay", "h2", "the request is forwarded there"),
    ] {
        let lines = format!("sessions = \"forwarding\"\nhand_over = {hand_over:?}");
        let output =
            explain(&directory("forwarding", &lines), &["--alpn", protocol, "https://shop.example.com/"]);
        let part = format!("busy      if n2 is busy and another node of the pool is not: {what}");
        assert_lines(&stdout(&output), &[&part], protocol);
    }
}

#[test]
fn a_client_is_asked_for_its_certificate() {
    for (mode, what) in [("required", "without one the handshake fails"), ("optional", "it may have none")] {
        let lines = format!("client_certificates = {{ mode = {mode:?}, ca = \"not-there.pem\" }}");
        let directory = directory("client-certificates", &lines);
        let output = explain(&directory, &["https://shop.example.com/"]);
        assert_lines(&stdout(&output), &[&format!("client    is asked for its certificate: {what}")], mode);
        let output = explain(&directory, &["--json", "https://shop.example.com/"]);
        let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        assert_eq!(value["connections"][0]["hello"]["client_certificates"], mode);
    }
}

#[test]
fn json_says_the_same_of_tls() {
    let directory = directory("https-json", "");
    let said = |arguments: &[&str]| -> Value {
        let output = explain(&directory, &[&["--json"], arguments].concat());
        let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        value["connections"][0].clone()
    };
    let connection = said(&["https://shop.example.com/img/"]);
    let hello = &connection["hello"];
    assert_eq!(
        hello["given"],
        json!({"route": 5, "pool": "web", "policy": "round-robin", "node": "n2", "tls_ends_at": "node", "spoken": "h2"})
    );
    assert_eq!(
        (&hello["server_name"], &hello["protocols"]),
        (&"shop.example.com".into(), &json!(["h2", "http/1.1"]))
    );
    assert_eq!(
        (&hello["routes"][0]["takes"], &hello["routes"][1]["takes"]),
        (&"none".into(), &"some".into())
    );
    assert_eq!(hello["client_certificates"], Value::Null);
    assert_eq!((&hello["session"]["names"], &hello["tickets"]), (&"nothing".into(), &0.into()));
    let request = &connection["over_tls"];
    assert_eq!(request["forwarded"], json!({"pool": "img", "nodes": ["n1"]}));
    assert_eq!(request["routes"][1], json!({"number": 2, "takes": true, "why_not": null}));
    let moves = &said(&["--alpn", "http/1.1", "https://shop.example.com/img/"])["over_tls"];
    assert_eq!((&moves["outcome"], &moves["moves"]["nodes"]), (&"moves".into(), &json!(["n1"])));
    let plain = &said(&["http://www.example.com/"]);
    assert_eq!((&plain["hello"], &plain["over_tls"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_ca_that_wants_proof() {
    let secure = SECURE
        .replace("chain = \"not-there.pem\"\nkey = \"not-there.key\"", "domains = [\"shop.example.com\"]");
    let acme = "[acme]\nnode = \"n1\"\nterms_agreed = true\n";
    let directory = super::directory("acme", &format!("{acme}{CLUSTER}{secure}"));
    // Whatever protocols the routes ask for.
    let output = explain(&directory, &["--alpn", "acme-tls/1", "https://h2.example.com/"]);
    let expected = [
        "ClientHello: h2.example.com, offers acme-tls/1",
        "route 4   yes: it takes host h2.example.com, protocol h2",
        "speaks    acme-tls/1: a CA gets its proof",
    ];
    assert_lines(&stdout(&output), &expected, "a CA");
    let output = explain(&directory, &["--json", "--alpn", "acme-tls/1", "https://h2.example.com/"]);
    assert!(stdout(&output).contains("\"spoken\":\"acme-tls/1\""), "{}", stdout(&output));
}

#[test]
fn tls_that_passes_through() {
    const PASSED: &str = "
[[service]]
name = \"passed\"
listen = [\"192.0.2.100:443\"]
[service.tls]
passthrough = true
[[service.route]]
host = \"img.example.com\"
alpn = \"h2\"
pool = \"img\"
[[service.route]]
host = \"*.example.com\"
pool = \"web\"
";
    let directory = super::directory("passthrough", &format!("{CLUSTER}{PASSED}"));
    let rows: &[(&[&str], &[&str])] = &[
        (
            &["https://img.example.com/a"],
            &[
                "ClientHello: img.example.com, offers h2, http/1.1",
                "service   passed (192.0.2.100:443)",
                "route 1   yes: it takes host img.example.com, protocol h2",
                "pool      img: n1 (weight 1)",
                "session   the service does not go by sessions",
                "node      n1",
                "speaks    what the server chooses: TLS passes through to it",
            ],
        ),
        (
            &["--alpn", "http/1.1", "https://img.example.com/a"],
            &["route 1   no: it offers no h2", "route 2   yes: it takes host *.example.com", "pool      web"],
        ),
        (
            &["https://192.0.2.100/a"],
            &["refused   tls-unrecognized-name: the switch answers with the alert 112"],
        ),
        (
            &["--service", "passed", "http://img.example.com/"],
            &["refused   it is HTTP without TLS: the switch answers 400"],
        ),
    ];
    for (arguments, parts) in rows {
        let output = explain(&directory, arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
        assert_lines(&stdout(&output), parts, &format!("{arguments:?}"));
        assert!(!stdout(&output).contains("request over"), "{}", stdout(&output));
    }
    let output = explain(&directory, &["--json", "https://img.example.com/a"]);
    let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let given = &said["connections"][0]["hello"]["given"];
    assert_eq!(
        (&given["tls_ends_at"], &given["spoken"], &given["node"]),
        (&"server".into(), &Value::Null, &"n1".into())
    );
}

fn secure_flow(port: u16) -> sb_flow {
    sb_flow { vip_port: 443u16.to_be(), ..flow(port, false) }
}

#[test]
fn client_hellos_in_a_capture() {
    let directory = directory("https-pcap", "");
    let said = hello("img.example.com", &["http/1.1"]);
    let (first, rest) = said.split_at(200);
    let [whole, cut, given, moved] = [1, 2, 3, 4].map(secure_flow);
    let encrypted = [&[23, 3, 3, 0, 40][..], &[9; 40]].concat();
    let packets = [
        // In disorder, and with what follows.
        syn(&whole),
        bytes(&whole, first.len(), rest),
        bytes(&whole, 0, first),
        bytes(&whole, said.len(), &encrypted),
        syn(&cut),
        bytes(&cut, 0, first),
        fin(&cut, first.len()),
        handed_over(sb_op::SB_OP_ADOPT, SB_HANDOVER_REQUEST as u8, &given, &bytes(&given, 0, &said)),
        bytes(&moved, 5000, &encrypted),
    ];
    fs::write(directory.join("file"), pcap(ETHERNET, &packets, 65535)).expect("a new file");
    let output = explain(&directory, &["--pcap", "file"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let parts = [
        "connection 1: 198.51.100.7:1 to 192.0.2.100:443",
        "ClientHello of connection 1: img.example.com, offers http/1.1",
        "route 1   yes: it takes host img.example.com",
        "node      n1",
        "speaks    http/1.1",
        "connection 2: ",
        "ClientHello of connection 2",
        "hello     200 bytes, then the client closes",
        "connection 3: 198.51.100.7:3 to 192.0.2.100:443, from a request on that a node was given",
        "ClientHello of connection 3: img.example.com",
        "connection 4: ",
        "hello     was not captured: the connection has been encrypted since",
    ];
    assert_lines(&stdout(&output), &parts, "capture");
}

#[test]
fn bytes_of_a_client_that_speaks_tls() {
    let directory = directory("https-bytes", "");
    let said = hello("img.example.com", &[]);
    let rows: [(&[u8], &[&str]); 3] = [
        (&said, &["ClientHello: img.example.com", "speaks    http/1.1, because it offers nothing"]),
        (&said[..20], &["hello     20 bytes, not all: the switch waits for the rest"]),
        (b"\x80\x2e\x01", &["refused   tls-not-tls: the switch answers with the alert 50"]),
    ];
    for (bytes, parts) in rows {
        let output = explain_bytes(&directory, &["--service", "secure", "--request", "-"], bytes);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{parts:?}");
        assert_lines(&stdout(&output), parts, &format!("{parts:?}"));
    }
}
