//! What `switchback explain` says of requests on the command line, of bytes, and of captures.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[path = "explain/captures.rs"]
mod captures;
#[path = "explain/tls.rs"]
mod tls;

const CLUSTER: &str = r#"
[cluster]
key_file = "not-there.key"
[limits]
body = "1KiB"
[[node]]
name = "n1"
address = "192.0.2.21"
[[node]]
name = "n2"
address = "192.0.2.22"
weight = 2
[[pool]]
name = "web"
nodes = ["n1", "n2"]
policy = "round-robin"
[[pool]]
name = "img"
nodes = ["n1"]
policy = "round-robin"
[[service]]
name = "shop"
listen = ["192.0.2.100:80", "[2001:db8::100]:80"]
[[service.route]]
host = "old.example.com"
redirect = { host = "www.example.com", status = 308 }
[[service.route]]
host = "*.example.com"
path = "/img/"
method = ["GET", "HEAD"]
pool = "img"
[[service.route]]
path = "/beta"
header = { name = "x-tenant", value = "7" }
pool = "img"
[[service.route]]
host = "www.example.com"
pool = "web"
[[service.route]]
host = "api.example.com"
path = "/v1/"
rewrite = { host = "internal.example.com", prefix = "/" }
request_header.remove = "x-tenant"
pool = "web"
"#;

const OTHER: &str = r#"
[[service]]
name = "api"
listen = ["192.0.2.101:8080"]
[[service.route]]
h2c = true
pool = "web"
"#;

const WWW: &str = "GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
const IMG: &str = "GET /img/x HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: chunked\r\n\r\n\
                       5\r\nhello\r\n0\r\n\r\n";

/// A new directory of this test's own, with the configuration in it.
fn directory(test: &str, cluster: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("explain-{test}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the target directory can be written");
    fs::write(path.join("cluster.toml"), cluster).expect("a new file");
    path
}

fn explain_bytes(directory: &Path, arguments: &[&str], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchback"));
    command.current_dir(directory).args(["explain", "--config", "cluster.toml"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary has been built");
    // A command that does not read its input may be gone before it is written.
    let _ = child.stdin.take().expect("stdin is a pipe").write_all(stdin);
    child.wait_with_output().expect("the process ends")
}

fn explain(directory: &Path, arguments: &[&str]) -> Output {
    explain_bytes(directory, arguments, b"")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Each of `parts` is one of the lines that were printed, or the beginning of one, in this order. What a line
/// shows without a name in front, as a caret, is as far in as the names' texts are.
fn assert_lines(shown: &str, parts: &[&str], what: &str) {
    let unnamed = |line| str::strip_prefix(line, "            ");
    let mut lines = shown.lines().map(|line| unnamed(line).or(line.strip_prefix("  ")).unwrap_or(line));
    for part in parts {
        assert!(
            lines.any(|line| line.starts_with(part)),
            "{what}: {part:?} is not in, or not here in\n{shown}"
        );
    }
}

#[test]
fn requests_on_the_command_line() {
    let directory = directory("arguments", CLUSTER);
    let rows: &[(&[&str], &[&str])] = &[
        (
            &["http://www.example.com/img/a.png?x"],
            &[
                "request 1: GET /img/a.png?x HTTP/1.1",
                "service   shop (192.0.2.100:80)",
                "route 1   no: host is www.example.com, not old.example.com",
                "route 2   yes: it takes host *.example.com, paths that begin with /img/, method GET or HEAD",
                "pool      img: n1 (weight 1)",
                "policy    round-robin: in turn, by weight",
                "node      n1, if nothing but what is shown here came before; a running switch has its own state",
                "decided   in XDP while the pool is busy, if its head is one packet",
                "body      none",
                "then      the next request is routed again",
            ],
        ),
        (
            &["--method", "POST", "--header", "Content-Length: 5", "http://www.example.com/img/"],
            &[
                "route 2   no: method is POST, not GET or HEAD",
                "route 3   no: path is /img/, which does not begin with /beta",
                "route 4   yes",
                "pool      web: n1 (weight 1), n2 (weight 2)",
                "node      n2",
                "decided   by the L7 thread: XDP does not read what is at byte 0",
                "POST /img/ HTTP/1.1\\r\\n",
                "^",
                "body      5 bytes, by Content-Length; the next request begins at byte 70",
            ],
        ),
        (
            &["http://old.example.com/a?b"],
            &[
                "route 1   yes: it takes host old.example.com",
                "redirect  the switch answers 308 and ends the connection",
                "Location  http://www.example.com/a?b",
            ],
        ),
        (
            &["/beta"],
            &[
                "route 2   no: host is 192.0.2.100, not *.example.com",
                "route 3   no: it has no header field x-tenant",
                "answer    no route takes it: the switch answers 404",
            ],
        ),
        (
            &["--header", "X-Tenant: 8", "/beta"],
            &["route 3   no: x-tenant is 8, not 7", "answer    no route"],
        ),
        (
            &["--header", "X-Tenant: 7", "http://api.example.com/v1/a?b"],
            &[
                "route 5   yes: it takes host api.example.com, paths that begin with /v1/",
                "becomes   GET /a?b HTTP/1.1",
                "Host: internal.example.com",
                "pool      web",
                "decided   by the L7 thread: the route has conditions or limits that XDP does not know, or changes or copies requests",
            ],
        ),
        (
            &["--header", "X-Tenant: 7", "/beta"],
            &[
                "route 3   yes: it takes paths that begin with /beta, header field x-tenant with 7",
                "decided   by the L7 thread: the route has conditions or limits that XDP does not know",
            ],
        ),
        (
            &["--http1.0", "--header", "host: www.example.com", "/"],
            &["request 1: GET / HTTP/1.0", "then      the client wants the connection to end"],
        ),
        (&["--http1.0", "/"], &["route 1   no: it names no host, and old.example.com is asked for"]),
        (
            &["--vip", "[2001:db8::100]:80", "/"],
            &["service   shop ([2001:db8::100]:80)", "route 1   no: host is [2001:db8::100],"],
        ),
        (&["http://[2001:db8::100]/"], &["service   shop ([2001:db8::100]:80)"]),
        (&["http://www.example.com"], &["request 1: GET / HTTP/1.1"]),
        (&["http://www.example.com?a#b"], &["request 1: GET /?a HTTP/1.1"]),
        (
            &["--header", "Connection: upgrade", "--header", "Upgrade: websocket", "http://www.example.com/"],
            &["Connection: upgrade\\r\\n", "then      the connection stays with the node if the server"],
        ),
        (
            &["--header", &format!("Cookie: {}", "x".repeat(600)), "http://www.example.com/"],
            &["decided   by the L7 thread: the head is longer than what XDP reads"],
        ),
        (
            &["http://www.example.com/a b"],
            &[
                "refused   invalid_version: the client gets 400",
                "at byte   7",
                "GET /a b HTTP/1.1\\r\\n",
                "       ^",
            ],
        ),
        (
            &["--header", "Content-Length: 1025", "http://www.example.com/"],
            &["refused   body_too_long: the client gets 413", "Content-Length: 1025\\r\\n"],
        ),
    ];
    for (arguments, parts) in rows {
        let output = explain(&directory, arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
        assert_lines(&stdout(&output), parts, &format!("{arguments:?}"));
    }
}

#[test]
fn each_kind_of_condition_says_why_it_does_not_hold() {
    let before = CLUSTER.split_once("[[service.route]]").expect("it has routes").0;
    let routes = [
        "path_exact = \"/login\"",
        "path_regex = \"/v[0-9]+/.*\"",
        "query = { name = \"v\", regex = \"[0-9]+\" }",
        "header = { name = \"x-beta\", absent = true }\nquery = { name = \"v\" }",
        "client = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nnot = { path = \"/v\" }",
        "not = [{ method = \"PUT\" }, { path = \"/x\", client = \"127.0.0.0/8\" }]",
    ];
    let routes = routes.map(|lines| format!("[[service.route]]\n{lines}\npool = \"web\"\n")).concat();
    let directory = directory("conditions", &format!("{before}{routes}"));
    let rows: &[(&[&str], &[&str])] = &[
        (
            &["--header", "X-Beta: 1", "/x?v=a"],
            &[
                "route 1   no: path is /x, not /login",
                "route 2   no: path is /x, which does not match /v[0-9]+/.*",
                "route 3   no: v is a, which does not match [0-9]+",
                "route 4   no: it has header field x-beta",
                "route 5   no: client is 127.0.0.1, not in 192.0.2.0/24 or 2001:db8::/32",
                "route 6   no: not takes it: paths that begin with /x, clients in 127.0.0.0/8",
            ],
        ),
        (
            &["--client", "192.0.2.7", "/x"],
            &[
                "route 3   no: it has no query parameter v",
                "route 5   yes: it takes clients in 192.0.2.0/24 or 2001:db8::/32, not (paths that begin with /v)",
                "decided   by the L7 thread: the route has conditions or limits that XDP does not know",
            ],
        ),
        (&["/login"], &["route 1   yes: it takes path /login", "decided   in XDP"]),
        (&["/v1/x"], &["route 2   yes: it takes paths that match /v[0-9]+/.*"]),
        (&["/?v=7"], &["route 3   yes: it takes query v that matches [0-9]+"]),
    ];
    for (arguments, parts) in rows {
        let output = explain(&directory, arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
        assert_lines(&stdout(&output), parts, &format!("{arguments:?}"));
    }
}

#[test]
fn limits_and_clients_that_are_not_let_in() {
    let cluster = r#"
[cluster]
key_file = "key"
[[networks]]
name = "office"
file = "office.txt"
[[node]]
name = "n1"
address = "192.0.2.21"
[[pool]]
name = "web"
nodes = ["n1"]
policy = "round-robin"
[[service]]
name = "shop"
listen = ["192.0.2.100:80"]
clients = { allow = ["office"], deny = ["198.51.100.66"] }
limit.client = { connections = { rate = 20 }, requests = { rate = 100, burst = 200 } }
[[service.route]]
path = "/login"
pool = "web"
limit = { client = { rate = 5, period = "1m" }, all = { rate = 50, over = "wait" } }
[[service.route]]
pool = "web"
"#;
    let directory = directory("limits", cluster);
    fs::write(directory.join("office.txt"), "198.51.100.0/24\n").unwrap();
    let rows: [(&[&str], &[&str]); 3] = [
        (
            &["--client", "198.51.100.7", "/login"],
            &[
                "limit     connections of each client: 20 in 1s, burst 20",
                "limit     requests of each client: 100 in 1s, burst 200",
                "limit     requests by this route of each client: 5 in 1m, burst 5",
                "limit     requests by this route of all clients: 50 in 1s, burst 50, wait",
                "decided   by the L7 thread: the route has conditions or limits that XDP does not know",
            ],
        ),
        (&["--client", "198.51.100.7", "/"], &["decided   in XDP"]),
        (
            &["--client", "198.51.100.66", "/"],
            &[
                "client    198.51.100.66 is not let in: its connections are not answered, and requests on open ones get 403",
                "answer    the switch answers 403",
            ],
        ),
    ];
    for (arguments, parts) in rows {
        let output = explain(&directory, arguments);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
        assert_lines(&stdout(&output), parts, &format!("{arguments:?}"));
    }
    let output = explain(&directory, &["--json", "--client", "198.51.100.66", "/"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let request = &said["connections"][0]["requests"][0];
    assert_eq!((&request["client_admitted"], &request["outcome"]), (&false.into(), &"answered".into()));
    assert_eq!(request["limits"].as_array().unwrap().len(), 2);
}

#[test]
fn bytes_as_a_client_would_send_them() {
    let directory = directory("bytes", CLUSTER);
    let bare_lf = "GET / HTTP/1.1\nHost: a\n\n";
    let three = [WWW, IMG, CHUNKED, "PUT / HTTP/1.1\r\nHost : a\r\n\r\n"].concat();
    let bad_chunk = CHUNKED.replace("5\r\n", "5; x\r\n");
    let pieces =
        [&WWW.replace("\r\n\r\n", &format!("\r\nCookie: {}\r\n\r\n", "x".repeat(1300))), IMG].concat();
    let rows: &[(&str, &[&str])] = &[
        (
            bare_lf,
            &[
                "refused   bare_lf: the client gets 400, and the connection ends",
                "at byte   14",
                "GET / HTTP/1.1\\n",
                "              ^",
            ],
        ),
        (
            &three,
            &[
                "request 1: GET / HTTP/1.1",
                "node      n2, if nothing",
                "request 2: GET /img/x HTTP/1.1",
                "node      n1, to which the connection moves from n2",
                "decided   by the L7 thread: n2, which has the connection, is not in the pool",
                "request 3: POST / HTTP/1.1",
                "node      n1, because it has the connection",
                "body      in chunks, which are followed to the last one; the next request begins at byte 172",
                "request 4: PUT / HTTP/1.1",
                "refused   space_before_colon: the client gets 400",
                "at byte   192",
                "Host : a\\r\\n",
                "    ^",
            ],
        ),
        (&[WWW, WWW].concat(), &["request 2", "decided   in XDP, if its head is one packet"]),
        (&bad_chunk, &["route 4   yes", "refused   chunk_extension", "at byte   72", "5; x\\r\\n", "  ^"]),
        (
            &IMG.replace("/img/x", "//x/..//%69mg/x"),
            &["service   shop", "path      read as /img/x", "route 2   yes", "decided   by the L7 thread"],
        ),
        (
            &IMG.replace("/img/x", "/x%2f..%2fimg/x"),
            &[
                "path      read as /x%2F..%2Fimg/x or /img/x",
                "refused   ambiguous_path: the client gets 400",
                "at byte   4",
                "GET /x%2f..%2fimg/x HTTP/1.1\\r\\n",
                "    ^",
            ],
        ),
        (&pieces, &["decided   by the L7 thread: the head is longer", "request 2: GET /img/x HTTP/1.1"]),
        (
            "GET / HTTP/1.1\r\nHost: a\r\n",
            &["head      25 bytes, not all: the switch waits 10 s for the rest, then answers 408"],
        ),
        (
            &CHUNKED[..CHUNKED.len() - 2],
            &["body      in chunks, which are followed to the last one; not all of it is here"],
        ),
        (
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            &["request 1: PRI * HTTP/2.0", "route 4   no: it names no host", "answer    no route takes it"],
        ),
        ("\u{e9}", &["request 1: \\xc3\\xa9", "refused   invalid_method", "at byte   0", "\\xc3\\xa9", "^"]),
    ];
    for (bytes, parts) in rows {
        let output = explain_bytes(&directory, &["--request", "-"], bytes.as_bytes());
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{bytes:?}");
        assert_lines(&stdout(&output), parts, &format!("{bytes:?}"));
    }
}

#[test]
fn http2_goes_where_a_route_takes_everything() {
    let directory = directory("http2", &format!("{CLUSTER}{OTHER}"));
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let output = explain_bytes(&directory, &["--request", "-", "--service", "api"], preface);
    let parts = [
        "route 1   yes: it takes every request",
        "then      the connection stays with the node: it is HTTP/2",
    ];
    assert_lines(&stdout(&output), &parts, "HTTP/2");
}

#[test]
fn one_of_several_services_is_chosen() {
    let directory = directory("services", &format!("{CLUSTER}{OTHER}"));
    let rows: &[(&[&str], &str)] = &[
        (&["--service", "api", "/"], "service   api (192.0.2.101:8080)"),
        (&["--vip", "192.0.2.101:8080", "/"], "service   api (192.0.2.101:8080)"),
        (&["http://192.0.2.101:8080/"], "service   api (192.0.2.101:8080)"),
        (&["http://192.0.2.100/"], "service   shop (192.0.2.100:80)"),
        (&["--service", "api", "http://192.0.2.100/"], "service   api (192.0.2.101:8080)"),
    ];
    for (arguments, part) in rows {
        let output = explain(&directory, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_lines(&stdout(&output), &[part], &format!("{arguments:?}"));
    }
    let output = explain(&directory, &["/"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--service or --vip; there are shop, api"), "{}", stderr(&output));
}

#[test]
fn routes_may_be_too_many_for_xdp() {
    let pools =
        (0..257).map(|i| format!("[[pool]]\nname = \"p{i}\"\nnodes = [\"n1\"]\npolicy = \"round-robin\"\n"));
    let directory = directory("many", &format!("{CLUSTER}{}", pools.collect::<String>()));
    let output = explain(&directory, &["http://www.example.com/"]);
    let parts = ["decided   by the L7 thread: the routes need more room than XDP has"];
    assert_lines(&stdout(&output), &parts, "many pools");
}

#[test]
fn json_says_the_same() {
    let directory = directory("json", CLUSTER);
    let json = |bytes: &str| -> Value {
        let output = explain_bytes(&directory, &["--json", "--request", "-"], bytes.as_bytes());
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        assert_eq!(value["connections"].as_array().map(Vec::len), Some(1));
        value["connections"][0].clone()
    };
    let connection = json(&[WWW, IMG, CHUNKED].concat());
    assert_eq!((&connection["vip"], &connection["client"]), (&"192.0.2.100:80".into(), &Value::Null));
    let requests = connection["requests"].as_array().expect("a list");
    assert_eq!(requests.len(), 3);
    let first = &requests[0];
    assert_eq!((&first["service"], &first["outcome"]), (&"shop".into(), &"forwarded".into()));
    assert_eq!(first["routes"][0]["why_not"], "host is www.example.com, not old.example.com");
    assert_eq!((&first["routes"][3]["takes"], &first["routes"][3]["why_not"]), (&true.into(), &Value::Null));
    let forwarded = &first["forwarded"];
    assert_eq!((&forwarded["pool"], &forwarded["node"]), (&"web".into(), &"n2".into()));
    assert_eq!((&forwarded["flow"], &forwarded["then"]), (&"new".into(), &"routed".into()));
    assert_eq!(forwarded["nodes"][1], serde_json::json!({ "name": "n2", "weight": 2 }));
    assert_eq!(forwarded["automaton"]["takes"], true);
    assert_eq!(
        (&requests[1]["forwarded"]["flow"], &requests[1]["forwarded"]["from"]),
        (&"moves".into(), &"n2".into())
    );
    assert_eq!(requests[2]["offset"], (WWW.len() + IMG.len()) as u64);
    let chunked = &requests[2]["forwarded"];
    assert_eq!((&chunked["body"]["framing"], &chunked["end"]), (&"chunked".into(), &172.into()));
    let why_not = &chunked["automaton"]["why_not"];
    assert_eq!((&why_not["reason"], &why_not["place"]["column"]), (&"unknown".into(), &0.into()));

    let refused = &json("GET / HTTP/1.1\nHost: a\n\n")["requests"][0];
    assert_eq!(refused["outcome"], "refused");
    let expected = serde_json::json!({
        "reason": "bare_lf",
        "status": 400,
        "place": { "offset": 14, "line": "GET / HTTP/1.1\\n", "column": 14 },
    });
    assert_eq!(refused["refused"], expected);
    let redirected = &json("GET /a HTTP/1.1\r\nHost: old.example.com\r\n\r\n")["requests"][0];
    let expected = serde_json::json!({ "status": 308, "location": "http://www.example.com/a" });
    assert_eq!(redirected["answered"], expected);
    assert_eq!(json("GET")["requests"][0]["incomplete"]["received"], 3);
}

#[test]
fn what_cannot_be_read_is_status_2_and_says_why() {
    let directory = directory("errors", CLUSTER);
    fs::write(directory.join("empty"), "").expect("a new file");
    let rows: &[(&[&str], &str)] = &[
        (&["foo"], "foo is neither an http:// or https:// URL nor a path"),
        (&["ftp://www.example.com/"], "ftp:// is not served"),
        (&["https://www.example.com/"], "192.0.2.100:80: no TLS is spoken there"),
        (&["--alpn", "h2", "/"], "--alpn is for an https:// URL"),
        (&["--service", "x", "/"], "there is no service x; there are shop"),
        (&["--vip", "192.0.2.9:80", "/"], "is no VIP; there are 192.0.2.100:80, [2001:db8::100]:80"),
        (&["--request", "nope"], "cannot read nope: No such file"),
        (&["--request", "empty"], "cannot read empty: it is empty"),
        (&["--pcap", "nope"], "cannot read nope: No such file"),
        (&["--pcap", "empty"], "cannot read empty: it is empty"),
        (&["--pcap", "cluster.toml"], "cannot read cluster.toml: it is neither pcap nor pcapng"),
        (&[], "Usage:"),
        (&["--request", "-", "/"], "cannot be used with"),
        (&["--request", "-", "--method", "PUT"], "cannot be used with"),
        (&["--pcap", "empty", "--service", "shop"], "cannot be used with"),
    ];
    for (arguments, why) in rows {
        let output = explain(&directory, arguments);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr(&output).contains(why), "{arguments:?}: {}", stderr(&output));
    }
    let invalid = self::directory("invalid", &CLUSTER.replace("round-robin", "robin"));
    assert_eq!(explain(&invalid, &["/"]).status.code(), Some(1));
    fs::remove_file(invalid.join("cluster.toml")).expect("the file is there");
    let output = explain(&invalid, &["/"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot read cluster.toml"), "{}", stderr(&output));
}

#[test]
fn the_command_explains_itself() {
    let help = stdout(&explain(&directory("help", CLUSTER), &["--help"]));
    for part in ["Usage: switchback explain", "--http1.0", "--pcap <FILE>"] {
        assert!(help.contains(part), "{help}");
    }
}
