//! Pools that get copies of requests, and whose answers nobody sees.

mod common;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use common::responses::Connection;
use common::{Cluster, PATIENCE, Plan, Result, start_echo, wait_until};
use nix::sys::signal::Signal;
use switchback_lab::{Process, ServerKind};

const TIMEOUT: Duration = Duration::from_secs(5);
const ROUTES: &str = r#"
[[service.route]]
path = "/all/"
pool = "web"
mirror = "shadow"

[[service.route]]
path = "/some/"
pool = "web"
mirror = "shadow"
mirror_share = "10%"

[[service.route]]
path = "/changed/"
rewrite.prefix = "/somewhere/else/"
request_header = { set = { name = "X-Set", value = "1" } }
pool = "web"
mirror = "shadow"
"#;
/// The node of the mirror.
const SHADOW: usize = 2;

/// A cluster whose mirror writes down what it gets.
fn start() -> Result<(Cluster, Process)> {
    let mut cluster = Cluster::prepare(Plan {
        servers: vec![ServerKind::Nginx; 3],
        pools: vec![("web", vec![0]), ("img", vec![1]), ("shadow", vec![SHADOW])],
        node_lines: vec![(SHADOW, "server = \"127.0.0.1:81\"".to_owned())],
        routes: ROUTES,
        ..Plan::default()
    })?;
    let echo = start_echo(cluster.lab.node(SHADOW), &log(&cluster))?;
    cluster.start_daemons()?;
    Ok((cluster, echo))
}

fn log(cluster: &Cluster) -> PathBuf {
    cluster.lab.directory().join("copies")
}

fn copies(cluster: &Cluster) -> Result<Vec<String>> {
    Ok(fs::read_to_string(log(cluster))?.lines().map(str::to_owned).collect())
}

/// A number of the switch's about copies.
fn counted(cluster: &Cluster, name: &str) -> Result<u64> {
    let status = cluster.switch_status()?;
    status["copies"][name].as_u64().ok_or_else(|| format!("no {name} in {status}").into())
}

/// Requests that the first node was given.
fn served(cluster: &Cluster) -> Result<u64> {
    let status = cluster.switch_status()?;
    status["nodes"][0]["requests"].as_u64().ok_or_else(|| format!("no requests in {status}").into())
}

/// A request as the server writes it down.
fn written(lines: &[&str], body: &str) -> String {
    let head: String = lines.iter().map(|line| format!("{line}\\r\\n")).collect();
    format!("'{head}\\r\\n{body}'")
}

impl Connection {
    fn ask(&mut self, request: &str) -> Result {
        self.stream.write_all(request.as_bytes())?;
        let response = self.responses.next(false)?.ok_or("no response")?;
        assert_eq!(response.field("x-node"), Some("node0"), "{request}");
        Ok(())
    }
}

#[test]
fn copies_go_to_the_mirror_and_answers_to_nobody() -> Result {
    let (cluster, echo) = start()?;
    let client = cluster.client().ipv4().to_string();
    let added = format!("X-Forwarded-For: {client}");
    let own = [added.as_str(), "Connection: close", "X-Mirrored: 1"];
    let open = || Connection::open(&cluster, cluster.client(), TIMEOUT);
    let mut connection = open()?;
    connection.ask("GET /all/a?b HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nCookie: c=d\r\n\r\n")?;
    connection.ask("POST /all/b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")?;
    connection.ask("GET /changed/c HTTP/1.1\r\nHost: a\r\n\r\n")?;
    connection.ask("GET /none HTTP/1.1\r\nHost: a\r\n\r\n")?;
    // The body comes when the head is with its node already.
    connection.stream.write_all(b"POST /all/late HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n")?;
    wait_until("its node has it", PATIENCE, || served(&cluster), |served| *served == 5)?;
    connection.ask("abc")?;
    connection.ask("GET /all/last HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let seen = wait_until("copies", PATIENCE, || copies(&cluster), |copies| copies.len() == 4)?;
    let expected = [
        written(&[&["GET /all/a?b HTTP/1.1", "Host: a", "Cookie: c=d"][..], &own].concat(), ""),
        written(&[&["POST /all/b HTTP/1.1", "Host: a", "Content-Length: 3"][..], &own].concat(), "abc"),
        written(&[&["GET /somewhere/else/c HTTP/1.1", "Host: a", "X-Set: 1"][..], &own].concat(), ""),
        written(&[&["GET /all/last HTTP/1.1", "Host: a"][..], &own].concat(), ""),
    ];
    let (mut seen, mut expected) = (seen, expected.to_vec());
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    let answered = || Ok(cluster.node_status(SHADOW)?["copies"]["answered"].as_u64());
    wait_until("answers", PATIENCE, answered, |answered| *answered == Some(4))?;

    for _ in 0..10 {
        let mut connection = open()?;
        for _ in 0..100 {
            connection.ask("GET /some/ HTTP/1.1\r\nHost: a\r\n\r\n")?;
        }
    }
    let sent = || counted(&cluster, "sent");
    let sent = wait_until("the last copies", PATIENCE, sent, |sent| *sent >= 4 + 40)?;
    let seen = wait_until("the share", PATIENCE, || copies(&cluster), |copies| copies.len() as u64 >= sent)?;
    // Six standard deviations of a tenth of a thousand.
    let shared = seen.len() - 4;
    assert!((43..=157).contains(&shared), "{shared} of 1000");

    // The mirror's server stops answering, then is gone: nobody else sees it.
    echo.signal(Signal::SIGSTOP)?;
    for _ in 0..200 {
        connection.ask("GET /all/paused HTTP/1.1\r\nHost: a\r\n\r\n")?;
    }
    echo.kill()?;
    let unplaced =
        || Ok(cluster.switch_status()?["dispatch"]["copies_unplaced"].as_u64().unwrap_or_default());
    let more = || {
        connection.ask("GET /all/gone HTTP/1.1\r\nHost: a\r\n\r\n")?;
        unplaced()
    };
    wait_until("no node of the mirror", PATIENCE, more, |unplaced| *unplaced > 0)?;
    cluster.down()
}
