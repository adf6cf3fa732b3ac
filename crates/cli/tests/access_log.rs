//! The access log, though no response passes the switch: it says of each request what the servers' own logs say.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::log_file::{LogFile, number};
use common::packets::{Random, seed};
use common::responses::Responses;
use common::{Cluster, PATIENCE, Plan, Result, load, wait_until};
use serde_json::Value;
use switchback_lab::Signal;

/// Connections at a time.
const CLIENTS: u64 = 4;
/// Requests on one of them, at most.
const ON_ONE: u64 = 20;

/// What a client has asked for, and seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// None if it went away before the end.
    status: Option<u16>,
    /// Of the body.
    bytes: u64,
}

/// What a log says of a request.
#[derive(Clone, Debug)]
struct Logged {
    node: Option<String>,
    status: Option<u16>,
    body: u64,
    end: String,
}

fn plan(log: &str, format: &str) -> Plan {
    Plan {
        server_logs: true,
        server_extra: "location = /moved { return 302 /small; } location = /broken { return 500; }",
        access_log: Some(format!("path = \"{log}\"\nformat = \"{format}\"")),
        routes: "[[service.route]]\npath = \"/old/\"\nredirect = { path = \"/small\" }\n",
        ..Plan::default()
    }
}

/// One connection with some requests, one after the other or two at once.
fn converse(stream: TcpStream, random: &mut Random, next: &AtomicU64) -> Result<Vec<(u64, Seen)>> {
    let mut stream = stream;
    let mut responses = Responses::new(&stream, PATIENCE)?;
    let mut seen = Vec::new();
    for _ in 0..1 + random.below(ON_ONE) {
        let mut asked = Vec::new();
        for _ in 0..1 + random.below(2) {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (method, path, body) = match random.below(12) {
                0..3 => ("GET", "/small", ""),
                3 | 4 => ("GET", "/img/small", ""),
                5 => ("GET", "/1m", ""),
                6 => ("HEAD", "/img/1m", ""),
                7 => ("GET", "/missing", ""),
                8 => ("GET", "/broken", ""),
                9 => ("GET", "/moved", ""),
                10 => ("POST", "/img/small", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
                _ => ("GET", ["/old/x", "/img/1m"][random.below(2) as usize], ""),
            };
            let end = if body.is_empty() { "\r\n" } else { body };
            let text =
                format!("{method} {path}?n={n} HTTP/1.1\r\nHost: shop\r\nUser-Agent: \"test\"\r\n{end}");
            // Now and then in two parts, of which the second waits for the first to be acknowledged.
            let cut = if random.below(8) == 0 { 1 + random.below(text.len() as u64 - 1) } else { 0 };
            let (first, second) = text.as_bytes().split_at(cut as usize);
            stream.write_all(first)?;
            stream.write_all(second)?;
            let aborts = path == "/img/1m" && method == "GET" && asked.is_empty();
            asked.push((n, method, path));
            // Nothing may come behind these on the same connection.
            if aborts || ["/old/x", "/broken"].contains(&path) || method == "POST" {
                break;
            }
        }
        for (index, &(n, method, path)) in asked.iter().enumerate() {
            if path == "/img/1m" && method == "GET" && index == 0 && asked.len() == 1 {
                // What is not read when the socket is closed makes the kernel say RST.
                stream.peek(&mut [0; 16])?;
                seen.push((n, Seen { status: None, bytes: 0 }));
                return Ok(seen);
            }
            let response = responses.next(method == "HEAD")?.ok_or("the connection has ended")?;
            seen.push((n, Seen { status: Some(response.status), bytes: response.body.len() as u64 }));
            if response.field("connection") == Some("close") {
                return Ok(seen);
            }
        }
    }
    Ok(seen)
}

fn by_number(lines: &[Value]) -> Result<BTreeMap<u64, Logged>> {
    let mut logged = BTreeMap::new();
    for line in lines {
        let n = line["target"].as_str().and_then(number).ok_or_else(|| format!("whose is {line}?"))?;
        let one = Logged {
            node: line["node"].as_str().map(str::to_owned),
            status: line["status"].as_u64().map(|status| status as u16),
            body: line["body_bytes"].as_u64().ok_or("no number of bytes")?,
            end: line["end"].as_str().ok_or("no end")?.to_owned(),
        };
        let before = logged.insert(n, one);
        assert!(before.is_none(), "request {n} is there twice: {before:?} and {line}");
    }
    Ok(logged)
}

/// What the server of a node has logged: status and bytes of the body, by number.
fn of_server(cluster: &Cluster, node: usize) -> Result<BTreeMap<u64, (u16, u64)>> {
    let log = cluster.server_log(node)?;
    let read = |line: &str| -> Option<(u64, (u16, u64))> {
        let (_, rest) = line.split_once('"')?;
        let (request, rest) = rest.split_once("\" ")?;
        let mut numbers = rest.split(' ');
        Some((number(request)?, (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?)))
    };
    log.lines().map(|line| read(line).ok_or_else(|| format!("not understood: {line}").into())).collect()
}

#[test]
fn it_agrees_with_the_servers_request_by_request() -> Result {
    let file = LogFile::new("mixed");
    let cluster = Cluster::start_with(plan(&file.text(), "json"))?;
    let vip = SocketAddr::new(IpAddr::from(cluster.lab.vip4()), 80);
    let next = AtomicU64::new(0);
    let deadline = Instant::now() + Duration::from_secs(load(5, 30));
    let seed = seed()?;
    let client = |number: u64| -> Result<Vec<(u64, Seen)>> {
        let mut random = Random::new(seed.wrapping_add(number));
        let mut seen = Vec::new();
        while Instant::now() < deadline {
            let stream = cluster.client().tcp_connect(vip, PATIENCE)?;
            seen.extend(converse(stream, &mut random, &next)?);
        }
        Ok(seen)
    };
    let seen: BTreeMap<u64, Seen> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        let ended = clients.into_iter().map(|client| client.join().expect("no client panics"));
        ended.collect::<Result<Vec<_>>>().map(|all| all.into_iter().flatten().collect())
    })?;
    let lines = || Ok(file.lines()?.len());
    wait_until("lines of the log", PATIENCE, lines, |lines| *lines >= seen.len())?;
    let logged = by_number(&file.lines()?)?;
    assert_eq!(logged.len(), seen.len(), "a line for each request, SWITCHBACK_SEED={seed}");

    let servers = [of_server(&cluster, 0)?, of_server(&cluster, 1)?];
    let (mut aborted, mut by_status) = (0, BTreeMap::<u16, usize>::new());
    for (n, seen) in &seen {
        let what = format!("request {n}, SWITCHBACK_SEED={seed}: seen {seen:?}, logged {:?}", logged[n]);
        let line = &logged[n];
        let said = line.node.as_deref().map(|name| match name {
            "node0" => servers[0].get(n),
            _ => servers[1].get(n),
        });
        match (seen.status, said) {
            (Some(status), None) => {
                assert_eq!((line.status, line.body), (Some(status), seen.bytes), "by the switch: {what}");
            }
            (Some(status), Some(said)) => {
                let said = *said.ok_or_else(|| format!("not in its server's log: {what}"))?;
                assert_eq!((status, seen.bytes), said, "{what}");
                assert_eq!((line.status, line.body), (Some(said.0), said.1), "{what}");
            }
            (None, said) => {
                let said = *said.flatten().ok_or_else(|| format!("not in its server's log: {what}"))?;
                aborted += 1;
                // What the server has written may not have left.
                assert!(
                    line.body <= said.1 && line.status.is_none_or(|status| status == said.0),
                    "{what}: {said:?}"
                );
                // The socket takes a mebibyte at once now and then; then it has all been sent.
                assert!(line.end == "client" || line.body == said.1, "{what}");
            }
        }
        if let Some(status) = line.status {
            *by_status.entry(status).or_default() += 1;
        }
        assert!(seen.status.is_none() || line.end == "complete", "{what}");
    }
    println!("{} requests, {aborted} aborted, by status {by_status:?}", seen.len());
    for status in [200, 302, 404, 405, 500, 308, 301] {
        let there = by_status.get(&status).copied().unwrap_or(0);
        assert!(there > 0 || [301, 308].contains(&status), "no {status} among {by_status:?}");
    }
    assert!(aborted > 0);
    assert_sums(&cluster, &logged)?;
    cluster.down()
}

/// The status says the same in sums.
fn assert_sums(cluster: &Cluster, logged: &BTreeMap<u64, Logged>) -> Result {
    let status = cluster.switch_status()?;
    let responses = status["responses"]["responses"].as_array().ok_or("no sums")?;
    for node in [Some("node0"), Some("node1"), None] {
        let of_node = |value: &&Value| value["node"].as_str() == Some(node.unwrap_or(""));
        let mut statuses = [0; 6];
        for part in responses.iter().filter(of_node) {
            for (sum, value) in
                std::iter::zip(&mut statuses, part["statuses"].as_array().ok_or("no classes")?)
            {
                *sum += value.as_u64().ok_or("no number")?;
            }
        }
        let mut expected = [0; 6];
        for line in logged.values().filter(|line| line.node.as_deref() == node) {
            expected[line.status.map_or(0, |status| usize::from(status / 100))] += 1;
        }
        assert_eq!(statuses, expected, "{node:?}");
    }
    assert_eq!(status["responses"]["log_lines"], logged.len());
    assert_eq!(status["responses"]["log_lost"], 0);
    assert_eq!(status["responses"]["facts_lost"], 0);
    Ok(())
}

#[test]
fn it_can_be_moved_away_and_changed() -> Result {
    let file = LogFile::new("moved");
    let old = LogFile::new("moved-old");
    let mut cluster = Cluster::start_with(plan(&file.text(), "combined"))?;
    let ask = |cluster: &Cluster, path: &str| {
        let agent = "say \"hi\" \\";
        let url = cluster.url4(path);
        cluster.client().run(["curl", "-s", "-m", "5", "-A", agent, "-e", "http://a/", &url])?.success()
    };
    let written = |file: &LogFile, count: usize| {
        let read = || Ok(fs::read_to_string(&file.0).unwrap_or_default());
        wait_until("a line", PATIENCE, read, |text| text.lines().count() == count)
    };
    ask(&cluster, "/small")?;
    let text = written(&file, 1)?;
    let (start, rest) = text.split_once(" [").ok_or("no time")?;
    assert_eq!(start, format!("{} - -", cluster.client().ipv4()));
    let (time, rest) = rest.split_once("] ").ok_or("no end of the time")?;
    assert!(time.len() == "22/Nov/2026:02:45:14 +0000".len() && time.ends_with(" +0000"), "{time}");
    assert_eq!(rest, "\"GET /small HTTP/1.1\" 200 100 \"http://a/\" \"say \\\"hi\\\" \\\\\"\n");

    // As logrotate does it.
    fs::rename(&file.0, &old.0)?;
    ask(&cluster, "/img/small")?;
    written(&old, 2)?;
    cluster.switch().signal(Signal::SIGUSR1)?;
    wait_until("a new file", PATIENCE, || Ok(file.0.exists()), |there| *there)?;
    ask(&cluster, "/small")?;
    written(&file, 1)?;
    written(&old, 2)?;

    // Another format from here on, in the same file.
    let json = plan(&file.text(), "json");
    cluster.write_config(&json)?;
    cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
    ask(&cluster, "/small")?;
    let text = written(&file, 2)?;
    let line: Value = serde_json::from_str(text.lines().nth(1).unwrap_or_default())?;
    let words =
        ["client", "vip", "service", "method", "target", "host", "pool", "node", "chosen_by", "policy"];
    let said: Vec<_> =
        words[2..].iter().map(|word| line[word].as_str().unwrap_or_default().to_owned()).collect();
    let host = cluster.lab.vip4().to_string();
    assert_eq!(said, ["shop", "GET", "/small", &host, "web", "node0", "policy", "round-robin"], "{line}");
    assert_eq!((line["route"].as_u64(), line["tries"].as_u64()), (Some(3), Some(0)));
    assert_eq!(
        (line["user_agent"].as_str(), line["referer"].as_str()),
        (Some("say \"hi\" \\"), Some("http://a/"))
    );
    let micros = |word: &str| line[word].as_u64().ok_or_else(|| format!("no {word} in {line}"));
    assert!(micros("first_byte_us")? <= micros("duration_us")? && micros("queued_us")? < 5_000_000);

    // What cannot be read.
    cluster.client().run(["curl", "-s", "-m", "5", "-X", "BAD?", &cluster.url4("/small")])?.success()?;
    let text = written(&file, 3)?;
    let line: Value = serde_json::from_str(text.lines().nth(2).unwrap_or_default())?;
    assert_eq!(
        (line["request"].as_str(), line["status"].as_u64()),
        (Some("BAD? /small HTTP/1.1"), Some(400))
    );
    assert!(["node", "pool", "method", "chosen_by"].iter().all(|word| line[word].is_null()), "{line}");

    // And none.
    cluster.write_config(&Plan { access_log: None, ..json })?;
    cluster.run(cluster.lab.switch(0), &["reload"])?.success()?;
    ask(&cluster, "/small")?;
    assert!(cluster.switch_status()?["responses"].is_null());
    cluster.stop_switch()?;
    written(&file, 3)?;
    cluster.down()
}

#[test]
fn a_log_that_cannot_be_opened_is_said_at_once() -> Result {
    let cluster = Cluster::prepare(plan("/nowhere/access.log", "json"))?;
    let switch = cluster.spawn_switch()?;
    let status = switch.wait_timeout(PATIENCE)?.ok_or("the switch goes on")?;
    assert_eq!(status.code(), Some(2));
    let log = switch.log();
    assert!(log.contains("begin the access log: cannot open /nowhere/access.log: No such file"), "{log}");
    cluster.down()
}

#[test]
fn what_is_too_much_is_left_out_and_counted() -> Result {
    const LINES: u64 = 5;
    let file = LogFile::new("lost");
    let log = format!("path = \"{}\"\nlines_per_second = {LINES}", file.text());
    let cluster = Cluster::start_with(Plan { access_log: Some(log), ..Plan::default() })?;
    let urls: Vec<String> = (0..100).map(|_| cluster.url4("/small")).collect();
    let mut words = vec!["curl", "-s", "-m", "5", "-o", "/dev/null"];
    words.extend(urls.iter().flat_map(|url| [url.as_str(), "-o", "/dev/null"]));
    cluster.client().run(words)?.success()?;
    let sums = || Ok(cluster.switch_status()?["responses"].clone());
    let count =
        |sums: &Value| sums["log_lines"].as_u64().unwrap_or(0) + sums["log_lost"].as_u64().unwrap_or(0);
    let sums = wait_until("all requests", PATIENCE, sums, |sums| count(sums) == 100)?;
    assert!((1..=3 * LINES).contains(&sums["log_lines"].as_u64().unwrap_or(0)), "{sums}");
    let lines = file.lines()?;
    let lost: u64 = lines.iter().filter_map(|line| line["lost"].as_u64()).sum();
    assert!(lost <= sums["log_lost"].as_u64().unwrap_or(0));
    assert_eq!(lines.len() as u64, sums["log_lines"].as_u64().unwrap_or(0));
    cluster.down()
}
