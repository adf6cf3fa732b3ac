//! The server with made-up daemons, asked over sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use switchback_status::node::NodeStatus;
use switchback_status::switch::{InterfaceStatus, SwitchStatus};

use super::*;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn at(listen: SocketAddr) -> Admin {
    Admin { listen, ..Admin::default() }
}

fn switch(uptime_s: u64) -> Status {
    let interfaces = vec![InterfaceStatus::default()];
    Status::Switch(Box::new(SwitchStatus { interfaces, uptime_s, flows: 7, ..SwitchStatus::default() }))
}

/// Head and body of the answer.
fn ask(server: &Server, request: &str) -> (String, String) {
    ask_host(server, request, "localhost")
}

fn ask_host(server: &Server, request: &str, host: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn a_switch_that_is_well() {
    let server = Server::start(&at(LOCAL), true, || vec![Ok(switch(1))]).unwrap();
    for (path, status, contains) in [
        ("/healthz", "200", "ok"),
        ("/readyz", "200", "ok"),
        ("/metrics", "200", "switchback_switch_flows 7"),
        ("/", "200", "<title>"),
        ("/page.js", "200", "EventSource"),
        ("/nothing", "404", "/metrics"),
    ] {
        let (head, body) = ask(&server, &format!("GET {path}"));
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{path}: {head}");
        assert!(body.contains(contains), "{path}: {body}");
        assert!(
            head.contains("content-security-policy: default-src 'none'") && head.contains("no-store"),
            "{head}"
        );
    }
    let (head, _) = ask(&server, "GET /metrics");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    let (head, body) = ask(&server, "HEAD /metrics");
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head} {body}");
    let (head, _) = ask(&server, "POST /metrics");
    assert!(head.starts_with("http/1.1 405") && head.contains("allow: get, head"), "{head}");
}

/// Otherwise the scripts of any web page that makes its name resolve to this address could read it all.
#[test]
fn a_host_that_is_not_the_servers_learns_nothing() {
    let admin = Admin { hosts: vec!["lb.example.com".to_owned()], ..at(LOCAL) };
    let server = Server::start(&admin, true, || vec![Ok(switch(1))]).unwrap();
    for path in ["/metrics", "/healthz", "/readyz", "/", "/events", "/nothing"] {
        let (head, body) = ask_host(&server, &format!("GET {path}"), "evil.example:9180");
        assert!(head.starts_with("http/1.1 421"), "{path}: {head}");
        assert!(body.contains("`hosts` in [admin]"), "{body}");
    }
    let host = server.address().to_string();
    for host in ["lb.example.com", "LB.Example.com:80", "[::1]:9180", &host] {
        assert!(ask_host(&server, "GET /healthz", host).0.starts_with("http/1.1 200"), "{host}");
    }
}

#[test]
fn a_node_has_no_page_and_says_why_it_is_not_ready() {
    let node = || NodeStatus { name: "n1".to_owned(), draining: true, ..NodeStatus::default() };
    let server = Server::start(&at(LOCAL), false, move || vec![Ok(Status::Node(Box::new(node())))]).unwrap();
    assert!(ask(&server, "GET /healthz").0.starts_with("http/1.1 200"));
    let (head, body) = ask(&server, "GET /readyz");
    assert!(head.starts_with("http/1.1 503"), "{head}");
    assert_eq!(body, "node n1: draining\n");
    assert!(ask(&server, "GET /").0.starts_with("http/1.1 404"));
    assert!(ask(&server, "GET /events").0.starts_with("http/1.1 404"));
}

#[test]
fn a_daemon_that_does_not_answer() {
    let server =
        Server::start(&at(LOCAL), true, || vec![Ok(switch(1)), Err("it is dead".to_owned())]).unwrap();
    for path in ["/healthz", "/readyz", "/metrics"] {
        let (head, body) = ask(&server, &format!("GET {path}"));
        assert!(head.starts_with("http/1.1 503"), "{head}");
        assert_eq!(body, "it is dead\n");
    }
}

/// However many ask, a daemon is asked at most ten times a second.
#[test]
fn an_answer_is_for_all_who_ask() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let answers = || {
        ASKED.fetch_add(1, Ordering::Relaxed);
        vec![Ok(switch(1))]
    };
    let server = Server::start(&at(LOCAL), true, answers).unwrap();
    let begun = std::time::Instant::now();
    let ask_often = || (0..25).for_each(|_| assert!(ask(&server, "GET /healthz").0.contains("200")));
    thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(ask_often))));
    let most = begun.elapsed().as_millis() as u64 / 100 + 1;
    let asked = ASKED.load(Ordering::Relaxed);
    assert!(asked <= most, "asked {asked} times, {most} are allowed");
}

fn events(server: &Server) -> impl Iterator<Item = String> {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    lines.filter(|line| line.starts_with("data: ") || line.starts_with("event: "))
}

#[test]
fn events_tell_how_the_switch_is_doing() {
    static UPTIME: AtomicU64 = AtomicU64::new(0);
    let server =
        Server::start(&at(LOCAL), true, || vec![Ok(switch(UPTIME.fetch_add(1, Ordering::Relaxed)))]).unwrap();
    let views = || {
        let data = events(&server).map(|line| line.strip_prefix("data: ").unwrap().to_owned());
        data.map(|data| serde_json::from_str::<crate::View>(&data).unwrap())
    };
    let mut seen = views();
    let (first, second) = (seen.next().unwrap(), seen.next().unwrap());
    assert_eq!((first.flows, first.requests_per_s), (7, None));
    assert_eq!((second.uptime_s, second.requests_per_s), (first.uptime_s + 1, Some(0.0)));
    // Another one hears at once what the first one has heard last.
    assert!(views().next().unwrap().uptime_s >= second.uptime_s);
}

#[test]
fn events_say_that_the_switch_does_not_answer() {
    let server = Server::start(&at(LOCAL), true, || vec![Err("it is\ndead".to_owned())]).unwrap();
    assert_eq!(events(&server).take(2).collect::<Vec<_>>(), ["event: trouble", "data: it is dead"]);
}

#[test]
fn an_address_that_cannot_be_had() {
    let server = Server::start(&at(LOCAL), true, Vec::new).unwrap();
    let taken = server.address();
    let error = Server::start(&at(taken), true, Vec::new).unwrap_err().to_string();
    assert!(error.contains(&taken.to_string()) && error.contains("ss -ltnp"), "{error}");
    let error = Server::start(&at(([192, 0, 2, 77], 9180).into()), true, Vec::new).unwrap_err().to_string();
    assert!(error.contains("the same on every machine"), "{error}");
}

/// With other names at its address, at an address that has the old one, and at that again.
#[test]
fn a_server_follows_another() {
    let answers = || vec![Ok(switch(1))];
    let first = Server::start(&at(LOCAL), true, answers).unwrap();
    let everywhere = |port| SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, port));
    let [own, all] = [first.address(), everywhere(first.address().port())];
    let asked = |server: &Server, host| ask_host(server, "GET /healthz", host).0[9..12].to_owned();
    assert_eq!(asked(&first, "switch1"), "421");
    let named = Admin { hosts: vec!["switch1".to_owned()], ..at(own) };
    let second = Server::replace(Some(&first), &named, true, answers).unwrap();
    drop(first);
    assert_eq!(asked(&second, "switch1"), "200");
    let third = Server::replace(Some(&second), &at(all), true, answers).unwrap();
    drop(second);
    assert_eq!((third.address(), asked(&third, "localhost")), (all, "200".to_owned()));
    assert!(Server::start(&at(own), true, answers).is_err(), "the address is shared with others");
    drop(third);
    let last = Server::start(&at(own), true, answers).unwrap();
    assert_eq!(asked(&last, "localhost"), "200");
}
