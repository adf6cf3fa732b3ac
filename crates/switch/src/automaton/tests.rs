//! The automaton compared with the strict parser and the plan's routes.

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use switchback_config::{Action, ClusterKey};
use switchback_http::{Body, Limits, Progress, parse_head};

use super::*;
use switchback_routes::{Request, Routes};

const ROUTES: &str = r#"
[cluster]
key_file = "key"
[[node]]
name = "n1"
address = "192.0.2.21"
[[pool]]
name = "a"
nodes = ["n1"]
policy = "round-robin"
[[pool]]
name = "b"
nodes = ["n1"]
policy = "round-robin"
[[pool]]
name = "c"
nodes = ["n1"]
policy = "round-robin"
[[service]]
name = "s"
listen = ["192.0.2.100:80"]
[[service.route]]
host = "img.example.com"
path = "/img/"
pool = "a"
[[service.route]]
host = "*.example.com"
method = "GET"
path = "/im"
pool = "b"
[[service.route]]
host = "*.m.example.com"
pool = "c"
[[service.route]]
path = "/beta"
header = { name = "x-beta" }
pool = "b"
[[service.route]]
method = ["HEAD", "POST"]
path = "/img/"
pool = "c"
[[service.route]]
path = "/"
host = "example.com"
pool = "a"
[[service.route]]
path_exact = "/static/img"
pool = "c"
[[service.route]]
path_regex = "/static/r[0-9]"
pool = "a"
[[service.route]]
path = "/static/im"
query = { name = "q" }
pool = "a"
[[service.route]]
path = "/static/n"
not = { path_exact = "/static/n/x" }
pool = "a"
[[service.route]]
path = "/static"
pool = "b"
"#;

fn routes() -> Vec<Route> {
    let keys = |_: &Path| Ok(vec![ClusterKey::from_bytes([7; 32])]);
    let cluster = switchback_config::parse(ROUTES, Path::new("cluster.toml"), keys).unwrap();
    cluster.services[0].routes.clone()
}

/// Verdict of the XDP program: if the bytes are one plain head, the pool, and whether it is the client's last.
fn run(automaton: &Automaton, bytes: &[u8]) -> Option<(u16, bool)> {
    match automaton.walk(bytes) {
        Walked::Pool { pool, last } => Some((pool, last)),
        Walked::Route | Walked::Stopped(_) => None,
    }
}

/// Verdict of the L7 thread.
fn judge(routes: &[Route], bytes: &[u8]) -> Option<(u16, bool)> {
    let Ok(Progress::Complete(head)) = parse_head(bytes, &Limits::default()) else { return None };
    if head.len != bytes.len() || head.body != Body::None || head.tunnel || head.expect_continue {
        return None;
    }
    let client = [192, 0, 2, 1].into();
    match Routes::new(routes.to_vec()).find(&Request { head: &head, client }).ok()??.action {
        Action::Pool(pool) => Some((pool as u16, !head.keep_alive)),
        Action::Split(_) | Action::Redirect(_) | Action::Respond(_) => None,
    }
}

#[test]
fn plain_requests_are_accepted_with_their_pool() {
    let routes = routes();
    let automaton = Automaton::compile(&routes, 4000).unwrap();
    let rows = [
        ("GET /img/a.png HTTP/1.1\r\nHost: img.example.com\r\n\r\n", Some(0)),
        ("GET /img HTTP/1.1\r\nhost:IMG.example.com:8080\r\nAccept: */*\r\n\r\n", Some(1)),
        ("HEAD /img/x HTTP/1.1\r\nHost: www.example.com\r\n\r\n", Some(2)),
        ("GET / HTTP/1.1\r\nUser-Agent: curl/8\r\nHost: a.m.example.com\r\n\r\n", Some(2)),
        ("GET /?q=/img/ HTTP/1.1\r\nHost: example.com\r\nConnection: Keep-Alive\r\n\r\n", Some(0)),
        ("GET /static/x?y HTTP/1.1\r\nHost: 192.0.2.100\r\nCookie: a=b; c=d\r\n\r\n", Some(1)),
        ("GET /img.x/y.z/?/..//%2f;a HTTP/1.1\r\nHost: img.example.com\r\n\r\n", Some(1)),
        ("GET /static/img HTTP/1.1\r\nHost: b\r\n\r\n", Some(2)),
        ("GET /static/img?x/ HTTP/1.1\r\nHost: b\r\n\r\n", Some(2)),
        ("GET /static/img/ HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /static/i HTTP/1.1\r\nHost: b\r\n\r\n", Some(1)),
        ("GET /static/r1 HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /static/n/x HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET //static HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /static//x HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /static/x//y HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /x/../static HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /%73tatic HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /static;x HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /beta HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /none HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("POST /static/x HTTP/1.1\r\nHost: b\r\n\r\n", None),
        ("GET /static/ HTTP/1.1\r\nHost: b\r\nContent-Length: 1\r\n\r\n", None),
        ("GET /static/ HTTP/1.1\r\nHost: b\r\nHost: b\r\n\r\n", None),
        ("GET /static/ HTTP/1.1\r\nAccept: b\r\n\r\n", None),
        ("GET /static/ HTTP/1.1\r\nHost: b\r\n\r\nG", None),
    ];
    for (text, pool) in rows {
        let expected = pool.map(|pool| (pool, false));
        assert_eq!(run(&automaton, text.as_bytes()), expected, "{text:?}");
        if expected.is_some() {
            assert_eq!(judge(&routes, text.as_bytes()), expected, "{text:?}");
        }
    }
}

/// Which requests are the client's last. None: the head is left to the L7 thread.
#[test]
fn last_requests_are_told() {
    let routes = routes();
    let automaton = Automaton::compile(&routes, 4000).unwrap();
    let rows = [
        ("1.1", "", Some(false)),
        ("1.1", "Connection: keep-alive\r\n", Some(false)),
        ("1.1", "Connection:close\r\n", Some(true)),
        ("1.1", "Connection: close\r\n", Some(true)),
        ("1.1", "CONNECTION: CLOSE\r\n", Some(true)),
        ("1.1", "connection: Close\r\n", Some(true)),
        ("1.1", "Connections: close\r\n", Some(false)),
        ("1.1", "Proxy-Connection: close\r\n", Some(false)),
        ("1.1", "Connection: keep-alive\r\nConnection: keep-alive\r\n", Some(false)),
        ("1.1", "Connection: close\r\nConnection: close\r\n", Some(true)),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", None),
        ("1.1", "Connection: keep-alive\r\nAccept: */*\r\nConnection: close\r\n", None),
        ("1.1", "Connection: keep-alive, close\r\n", None),
        ("1.1", "Connection: close, te\r\n", None),
        ("1.1", "Connection:  close\r\n", None),
        ("1.1", "Connection:\tclose\r\n", None),
        ("1.1", "Connection: close \r\n", None),
        ("1.1", "Connection: closed\r\n", None),
        ("1.1", "Connection: clos\r\n", None),
        ("1.1", "Connection: \r\n", None),
        ("1.0", "", Some(true)),
        ("1.0", "Accept: */*\r\n", Some(true)),
        ("1.0", "Connection: close\r\n", Some(true)),
        ("1.0", "Connection: keep-alive\r\n", None),
        ("1.0", "Connection: close\r\nConnection: keep-alive\r\n", None),
        ("1.0", "Content-Length: 1\r\n", None),
        ("1.2", "", None),
        ("2.0", "", None),
    ];
    for (version, lines, last) in rows {
        let host = "Host: example.com\r\n";
        for fields in [format!("{host}{lines}"), format!("{lines}{host}")] {
            let text = format!("GET / HTTP/{version}\r\n{fields}\r\n");
            let expected = last.map(|last| (0, last));
            assert_eq!(run(&automaton, text.as_bytes()), expected, "{text:?}");
            if expected.is_some() {
                assert_eq!(judge(&routes, text.as_bytes()), expected, "{text:?}");
            }
        }
        let hostless = format!("GET / HTTP/{version}\r\n{lines}\r\n");
        assert_eq!(run(&automaton, hostless.as_bytes()), None, "{hostless:?}");
    }
}

#[test]
fn changed_heads_are_accepted_only_as_by_the_parser() {
    let routes = routes();
    let automaton = Automaton::compile(&routes, 4000).unwrap();
    for (version, option, last) in
        [("1.1", "keep-alive", false), ("1.1", "close", true), ("1.0", "close", true)]
    {
        let text = format!(
            "GET /img/a?b HTTP/{version}\r\nHost: img.example.com:80\r\nConnection: {option}\r\nExpect-X: y\r\n\r\n"
        );
        let text = text.as_bytes();
        assert_eq!(run(&automaton, text), Some((0, last)));
        for at in 0..text.len() {
            assert_eq!(run(&automaton, &text[..at]), None, "{at} bytes");
            for byte in 0..=255 {
                let mut changed = text.to_vec();
                changed[at] = byte;
                let accepted = run(&automaton, &changed);
                if accepted.is_some() {
                    let shown = String::from_utf8_lossy(&changed);
                    assert_eq!(judge(&routes, &changed), accepted, "{shown:?}");
                }
            }
        }
    }
}

#[test]
fn too_many_states_make_no_automaton() {
    assert!(Automaton::compile(&routes(), 10).is_none());
}

static COMPILED: LazyLock<(Vec<Route>, Automaton)> = LazyLock::new(|| {
    let routes = routes();
    let automaton = Automaton::compile(&routes, 4000).unwrap();
    (routes, automaton)
});

/// Values of `Connection` in one field, in more than one spelling.
fn connection() -> impl Strategy<Value = String> {
    const CONNECTIONS: &[&str] = &[
        "Connection: keep-alive\r\n",
        "connection:Keep-Alive\r\n",
        "Connection: close\r\n",
        "CONNECTION:CLOSE\r\n",
        "Connection: close, keep-alive\r\n",
        "Connection: keep-alive,close\r\n",
        "Connection: close \r\n",
        "Connection: closed\r\n",
        "Connection:  close\r\n",
        "Connection: c\r\n",
        "Connection:\r\n",
        "Keep-Alive: 5\r\n",
    ];
    prop::sample::select(CONNECTIONS).prop_map(str::to_string)
}

fn part() -> impl Strategy<Value = String> {
    const FIELDS: &[&str] = &[
        "Host: example.com\r\n",
        "Host:img.example.com\r\n",
        "host: x.m.example.com:99\r\n",
        "Host: m.example.com.\r\n",
        "Host: a..b\r\n",
        "Host: [2001:db8::1]\r\n",
        "Host: .example.com\r\n",
        "HOST: my_host\r\n",
        "Host: \r\n",
        "Host: b:0\r\n",
        "Host: b:65536\r\n",
        "Host: b:9999\r\n",
        "Connection: upgrade\r\nUpgrade: h2c\r\n",
        "Content-Length: 5\r\n",
        "content_length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "TE: trailers\r\n",
        "Trailer: x\r\n",
        "Accept:*/*\r\n",
        "A: b\r\n",
        "Ab:\r\n",
        "Ab: \t\r\n",
        "Cookie: \u{e9}\r\n",
        " folded\r\n",
        "Bad Name: x\r\n",
        "x-beta: 1\r\n",
        "\r\n",
        "\n",
        "\r",
        "Ab : c\r\n",
        "Ab: c \r\n",
    ];
    prop_oneof![
        8 => prop::sample::select(FIELDS).prop_map(str::to_string),
        2 => connection(),
        1 => "[ -~]{0,6}",
        1 => "[A-Za-z-]{1,8}: ?[ -~]{0,10}\r\n",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn accepted_heads_are_routed_as_by_the_parser(
        method in prop::sample::select(&["GET", "HEAD", "POST", "get", "GETT"][..]),
        path in prop_oneof![prop::sample::select(&["/", "/im", "/img", "/img/", "/img/x?/y#", "/beta", "/static", "/static/r1", "/static/img?q", "/static/img", "/stati", "*", "//x", "/a\\b",
            "/%zz", "http://example.com/", "/static?a=\"", "/img/?\\", "/img/../static"][..]).prop_map(str::to_owned),
            "/(img|static|/|\\.|%2f|%69|;|x|im|r|n|1){0,6}(\\?[/.%;q]{0,3})?"],
        version in prop::sample::select(&["HTTP/1.1\r\n", "HTTP/1.0\r\n", "HTTP/1.1\n", "HTTP/2\r\n", "HTTP/1.2\r\n"][..]),
        parts in prop::collection::vec(part(), 0..6),
        end in prop::sample::select(&["\r\n", "", "\r\n\r\n", "\r\nGET "][..]),
    ) {
        let (routes, automaton) = &*COMPILED;
        let text = format!("{method} {path} {version}{}{end}", parts.concat());
        let accepted = run(automaton, text.as_bytes());
        if accepted.is_some() {
            prop_assert_eq!(judge(routes, text.as_bytes()), accepted, "{:?}", text);
        }
    }

    #[test]
    fn last_requests_are_those_of_the_parser(
        version in prop::sample::select(&["1.0", "1.1"][..]),
        before in prop::collection::vec(connection(), 0..3),
        after in prop::collection::vec(connection(), 0..3),
    ) {
        let (routes, automaton) = &*COMPILED;
        let (before, after) = (before.concat(), after.concat());
        let text = format!("GET / HTTP/{version}\r\n{before}Host: example.com\r\n{after}\r\n");
        let accepted = run(automaton, text.as_bytes());
        if accepted.is_some() {
            prop_assert_eq!(judge(routes, text.as_bytes()), accepted, "{:?}", text);
        }
    }
}
