//! The access log: a line for each request, wherever it is answered.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;

use serde_json::{Value, json};
use switchback_lab::Signal;

use crate::common::http::add_long_document;
use crate::common::log_file::{LogFile, number};
use crate::common::{Cluster, PATIENCE, Plan, Result, nft, wait_until};
use crate::{
    Connection, NAME, TIMEOUT, authority, change_config, curl, openssl, plan, received, relay, run_curl,
    tls_status, to_service, url,
};

/// All daemons write into one file, which is possible here and shows what is there twice.
fn logged(file: &LogFile) -> Option<String> {
    Some(format!("path = \"{}\"", file.text()))
}

/// Lines of requests with a number, by that.
fn by_number(file: &LogFile) -> Result<BTreeMap<u64, Value>> {
    let mut lines = BTreeMap::new();
    for line in file.lines()? {
        if let Some(n) = line["target"].as_str().and_then(number) {
            let before = lines.insert(n, line);
            assert!(before.is_none(), "request {n} is there twice: {before:?}");
        }
    }
    Ok(lines)
}

fn wait_for(file: &LogFile, numbers: std::ops::RangeInclusive<u64>) -> Result<BTreeMap<u64, Value>> {
    let expected: Vec<u64> = numbers.collect();
    let lines = || by_number(file);
    wait_until("lines of the log", PATIENCE, lines, |lines| expected.iter().all(|n| lines.contains_key(n)))
}

/// Asserts what a line says of these fields.
fn check(line: &Value, expected: Value) {
    for (key, value) in expected.as_object().expect("it is written as one") {
        assert_eq!(&line[key], value, "{key} of {line}");
    }
}

fn numbered(path: &str, n: u64) -> String {
    url(&format!("{path}?n={n}"))
}

/// A download of which a part has come.
fn download(cluster: &Cluster, http: &str, n: u64) -> Result<Child> {
    let before = received(cluster)?;
    let mut download = cluster.client().command("curl");
    download.args(to_service(cluster, &cluster.lab.vip4().to_string()));
    download.args(["-s", "--max-time", "60", http, "-o", "/dev/null", &numbered("/long", n)]);
    let download = download.spawn()?;
    wait_until("a download", PATIENCE, || received(cluster), |bytes| *bytes > before + (2 << 20))?;
    Ok(download)
}

fn stop(client: &mut Child) -> Result {
    client.kill()?;
    client.wait()?;
    Ok(())
}

/// One connection for each version of HTTP; requests for two pools, so that connections move and streams are forwarded.
#[test]
fn every_request_has_a_line() -> Result {
    let file = LogFile::new("tls-lines");
    let routes = "[[service.route]]\npath = \"/old/\"\nredirect = { path = \"/small\" }\n";
    let tls = Some(String::new());
    let mut cluster =
        Cluster::start_with(Plan { tls, routes, access_log: logged(&file), ..Plan::default() })?;
    let rows = [
        ("/small", 200, "web", "node0", 3, 100),
        ("/img/1m", 200, "img", "node1", 2, 1 << 20),
        ("/missing", 404, "web", "node0", 3, 0),
        ("/img/small", 200, "img", "node1", 2, 200),
        ("/1m", 200, "web", "node0", 3, 1 << 20),
    ];
    let versions = [("--http1.1", "1.2", "HTTP/1.1", "TLSv1.2"), ("--http2", "1.3", "HTTP/2.0", "TLSv1.3")];
    for ((first, (http, tls, ..)), max) in (0..).step_by(10).zip(versions).zip([5, 15]) {
        let urls: Vec<String> = (first..).zip(rows).map(|(n, row)| numbered(row.0, n)).collect();
        let mut words = vec![http, "--tls-max", tls, "-A", "\"me\"", "-e", "https://a/"];
        urls.iter().for_each(|url| words.extend(["-o", "/dev/null", url]));
        curl(&cluster, &words)?;
        // What the node answers itself ends a connection of HTTP/1.1.
        let redirected = numbered("/old/x", max);
        assert_eq!(curl(&cluster, &[http, "--tls-max", tls, "-w", "%{response_code}", &redirected])?, "301");
    }
    // Everything is written when they have ended.
    let agents = [tls_status(&cluster, 0)?, tls_status(&cluster, 1)?];
    cluster.stop_all()?;
    let lines = by_number(&file)?;
    assert_eq!(lines.keys().copied().collect::<Vec<_>>(), (0..=5).chain(10..=15).collect::<Vec<_>>());
    assert_eq!(file.lines()?.len(), lines.len(), "there are no others: {:?}", file.lines()?);
    for (first, (_, _, version, tls)) in (0..).step_by(10).zip(versions) {
        let port = &lines[&first]["client"];
        for (n, (path, status, pool, node, route, body)) in (first..).zip(rows) {
            let line = &lines[&n];
            // The connection is where the last request was, or where it began.
            let moved = match version {
                "HTTP/1.1" => n != first,
                _ => node == "node1",
            };
            let tries = u64::from(moved && version == "HTTP/1.1");
            check(
                line,
                json!({
                    "client": port, "vip": format!("{}:443", cluster.lab.vip4()), "service": "secure",
                    "method": "GET", "target": format!("{path}?n={n}"), "version": version, "host": NAME,
                    "request": null, "route": route, "pool": pool, "node": node, "policy": "round-robin",
                    "chosen_by": if moved { "hand-over" } else { "connection" }, "tries": tries, "status": status,
                    "end": "complete", "referer": "https://a/", "user_agent": "\"me\"",
                    "tls_version": tls, "server_name": NAME,
                }),
            );
            let number = |word: &str| line[word].as_u64().ok_or_else(|| format!("no {word} in {line}"));
            if status == 200 {
                assert_eq!(number("body_bytes")?, body, "{line}");
            }
            let head = number("bytes")? - number("body_bytes")?;
            assert!(if version == "HTTP/1.1" { (100..400).contains(&head) } else { head == 0 }, "{line}");
            assert!(number("first_byte_us")? <= number("duration_us")?, "{line}");
            assert!(number("queued_us")? < 5_000_000, "{line}");
        }
        let redirected = &lines[&(first + 5)];
        let expected = json!({ "status": 301, "node": null, "route": 1, "pool": null, "end": "complete", "chosen_by": null });
        check(redirected, expected);
    }
    let requests: u64 = agents.iter().filter_map(|agent| agent["requests"].as_u64()).sum();
    // A request that moves is counted at both nodes.
    assert_eq!(requests, 12 + 4);
    cluster.down()
}

/// The records of the response pass the node that has the connection, which cannot read them.
#[test]
fn a_relayed_response_has_one_line() -> Result {
    let file = LogFile::new("tls-relayed");
    let (mut cluster, idle) = relay::start_with(Plan {
        access_log: logged(&file),
        server_extra: "dav_methods PUT; create_full_put_path on;",
        ..Plan::default()
    })?;
    add_long_document(&cluster.lab, "/long", 20)?;
    let mut connection = Connection::open(&cluster)?;
    assert!(connection.ask("get /1m?n=0")?.starts_with("200 node1 "));
    assert!(connection.ask("get /missing?n=1")?.starts_with("404 "));
    cluster.kill_server(1)?;
    assert!(connection.ask("get /small?n=2")?.starts_with("200 node0 "));
    assert_eq!(connection.status("post /small?n=3 10")?, "502");
    cluster.start_server(1)?;
    let by_other =
        json!({ "node": "node1", "chosen_by": "hand-over", "tries": 0, "service": "secure", "pool": "web" });
    let lines = wait_for(&file, 0..=3)?;
    for n in [0, 1, 3] {
        check(&lines[&n], by_other.clone());
    }
    check(&lines[&0], json!({ "status": 200, "end": "complete", "body_bytes": 1 << 20 }));
    check(&lines[&1], json!({ "status": 404, "end": "complete" }));
    check(
        &lines[&2],
        json!({ "status": 200, "end": "complete", "node": "node0", "chosen_by": "connection", "tries": 1 }),
    );
    check(&lines[&3], json!({ "status": 502, "end": "server" }));

    // The client goes away in the middle, then the other node is lost.
    cluster.client().set_rate(Some(50_000_000))?;
    stop(&mut download(&cluster, "--http1.1", 4)?)?;
    let mut download = download(&cluster, "--http1.1", 5)?;
    cluster.kill_node(1)?;
    assert!(!download.wait()?.success());
    let lines = wait_for(&file, 4..=5)?;
    for (n, end) in [(4, "client"), (5, "server")] {
        check(&lines[&n], by_other.clone());
        check(&lines[&n], json!({ "status": 200, "end": end }));
        assert!((2 << 20..20 << 20).contains(&lines[&n]["bytes"].as_u64().unwrap_or(0)), "{}", lines[&n]);
    }
    drop((connection, idle));
    cluster.start_node(1)?;
    cluster.stop_all()?;
    assert_eq!(by_number(&file)?.len(), 6);
    cluster.down()
}

/// A server that dies, and a client that goes away, in the middle of a response.
#[test]
fn what_broke_off_says_so() -> Result {
    let file = LogFile::new("tls-broken");
    let cluster = Cluster::start_with(Plan { access_log: logged(&file), ..plan(1, "") })?;
    add_long_document(&cluster.lab, "/long", 20)?;
    cluster.client().set_rate(Some(50_000_000))?;
    for (http, server, client, none) in [("--http1.1", 0, 1, 2), ("--http2", 3, 4, 5)] {
        let version = if http == "--http2" { "HTTP/2.0" } else { "HTTP/1.1" };
        for n in [server, client] {
            let mut download = download(&cluster, http, n)?;
            if n == server {
                cluster.kill_server(0)?;
                assert!(!download.wait()?.success());
                let status = ["-w", "%{response_code}", "-o", "/dev/null", &numbered("/small", none)];
                assert_eq!(curl(&cluster, &[&[http], &status[..]].concat())?, "502");
                cluster.start_server(0)?;
            } else {
                stop(&mut download)?;
            }
        }
        let lines = wait_for(&file, server..=none)?;
        for (n, end) in [(server, "server"), (client, "client")] {
            check(&lines[&n], json!({ "status": 200, "end": end, "node": "node0", "version": version }));
            assert!((2 << 20..20 << 20).contains(&lines[&n]["bytes"].as_u64().unwrap_or(0)), "{}", lines[&n]);
        }
        check(&lines[&none], json!({ "status": 502, "end": "server", "node": "node0", "version": version }));
    }
    cluster.down()
}

/// A client whose acknowledgments are lost has its response, but nobody else knows that.
#[test]
fn a_response_is_complete_when_it_is_acknowledged() -> Result {
    const NO_ACKNOWLEDGMENTS: &str = "table inet lost {\nchain out {\ntype filter hook output priority 0;\n\
        tcp dport 443 tcp flags & (fin | syn | rst | psh) == 0 drop\n}\n}\n";
    let file = LogFile::new("tls-acknowledged");
    let cluster = Cluster::start_with(Plan { access_log: logged(&file), ..plan(1, "") })?;
    let sent_again = || Ok(cluster.lab.node(0).tcp_counter("RetransSegs")?);
    let mut connection = Connection::open(&cluster)?;
    for (n, end) in [(1, "complete"), (2, "client")] {
        nft(cluster.client(), NO_ACKNOWLEDGMENTS)?;
        let before = sent_again()?;
        assert!(connection.ask(&format!("get /small?n={n}"))?.starts_with("200 "));
        // Longer than the first look, at all events.
        wait_until("copies of the response", PATIENCE, sent_again, |again| *again > before + 2)?;
        assert!(!by_number(&file)?.contains_key(&n), "{:?}", file.lines()?);
        if end == "client" {
            assert_eq!(connection.ask("reset")?, "reset");
        }
        nft(cluster.client(), "delete table inet lost\n")?;
        check(&wait_for(&file, n..=n)?[&n], json!({ "status": 200, "end": end }));
    }
    cluster.down()
}

/// Connections that did not get as far as a request have a line, others have none besides those of their requests.
#[test]
fn connections_without_a_request_have_a_line() -> Result {
    let file = LogFile::new("tls-no-request");
    let limits = "head_timeout = \"1s\"";
    let mut cluster = Cluster::prepare(Plan { access_log: logged(&file), limits, ..plan(1, "") })?;
    let route = |condition: &str| format!("[[service.route]]\n{condition}pool");
    change_config(&cluster, &route(""), &route(&format!("host = \"{NAME}\"\n")))?;
    cluster.start_daemons()?;
    let next = |before: usize| -> Result<Value> {
        let lines = wait_until("a line", PATIENCE, || file.lines(), |lines| lines.len() > before)?;
        assert_eq!(lines.len(), before + 1, "{lines:?}");
        Ok(lines[before].clone())
    };
    let nothing = json!({ "service": "secure", "method": null, "target": null, "request": null });

    openssl(&cluster, &["-servername", "unknown.example.com"])?;
    let line = next(0)?;
    check(&line, nothing.clone());
    check(
        &line,
        json!({ "node": null, "host": "unknown.example.com", "server_name": "unknown.example.com" }),
    );

    openssl(&cluster, &["-servername", NAME, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"])?;
    let line = next(1)?;
    check(&line, nothing.clone());
    check(&line, json!({ "node": null, "host": NAME, "status": null, "end": "client", "tls_version": null }));
    assert!(line["error"].as_str().is_some_and(|error| error.contains("handshake")), "{line}");

    // It says nothing.
    assert_eq!(Connection::open(&cluster)?.ask("end")?, "closed");
    let line = next(2)?;
    check(&line, nothing);
    check(
        &line,
        json!({ "host": NAME, "status": null, "end": "client", "tls_version": "TLSv1.3", "error": null }),
    );

    // What is no request.
    let (vip, authority) = (cluster.lab.vip4(), authority(&cluster));
    let script = format!(
        "printf 'BAD? /small HTTP/1.1\\r\\n\\r\\n' | openssl s_client -connect {vip}:443 -servername {NAME} \
         -CAfile {authority} -quiet -ign_eof"
    );
    let said = cluster.client().run_within(TIMEOUT, ["sh", "-c", &script])?.stdout;
    assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    let line = next(3)?;
    check(
        &line,
        json!({ "request": "BAD? /small HTTP/1.1", "status": 400, "end": "complete", "node": null, "method": null }),
    );

    // And what is one has no other line than its own.
    curl(&cluster, &["-o", "/dev/null", &url("/small")])?;
    check(&next(4)?, json!({ "target": "/small", "status": 200 }));
    cluster.stop_all()?;
    assert_eq!(file.lines()?.len(), 5);
    cluster.down()
}

/// The other format, a file that is moved away, a log that is turned off, and one that there cannot be.
#[test]
fn the_file_is_as_the_configuration_says() -> Result {
    let (file, old) = (LogFile::new("tls-combined"), LogFile::new("tls-combined-1"));
    let log = |path: &str| Some(format!("path = \"{path}\"\nformat = \"combined\""));
    let plan = |access_log| Plan { access_log, ..plan(1, "") };
    let mut cluster = Cluster::prepare(plan(log("/nowhere/access.log")))?;
    let node = cluster.spawn_node(0)?;
    assert_eq!(node.wait_timeout(PATIENCE)?.ok_or("the node goes on")?.code(), Some(2));
    let said = node.log();
    assert!(said.contains("begin the access log: cannot open /nowhere/access.log: No such file"), "{said}");

    cluster.write_config(&plan(log(&file.text())))?;
    cluster.start_daemons()?;
    let text = |file: &LogFile, lines: usize| {
        let read = || Ok(fs::read_to_string(&file.0).unwrap_or_default());
        wait_until("lines of the log", PATIENCE, read, |text| text.lines().count() == lines)
    };
    for (count, (http, version)) in (1..).zip([("--http1.1", "1.1"), ("--http2", "2.0")]) {
        curl(&cluster, &[http, "-o", "/dev/null", "-A", "a\"b", &url("/small")])?;
        let text = text(&file, count)?;
        let (start, rest) = text.lines().last().and_then(|line| line.split_once(" [")).ok_or("no time")?;
        assert_eq!(start, format!("{} - -", cluster.client().ipv4()));
        let (_, rest) = rest.split_once("] ").ok_or("no end of the time")?;
        assert_eq!(rest, format!("\"GET /small HTTP/{version}\" 200 100 \"-\" \"a\\\"b\""));
    }
    fs::rename(&file.0, &old.0)?;
    cluster.agent(0).signal(Signal::SIGUSR1)?;
    wait_until("a new file", PATIENCE, || Ok(file.0.exists()), |there| *there)?;
    curl(&cluster, &["-o", "/dev/null", &url("/small")])?;
    text(&file, 1)?;
    text(&old, 2)?;
    let status = cluster.node_status(0)?;
    assert_eq!((&status["log_lines"], &status["log_lost"]), (&3.into(), &0.into()));

    cluster.write_config(&plan(None))?;
    cluster.run(cluster.lab.node(0), &["reload"])?.success()?;
    run_curl(&cluster, &["-o", "/dev/null", &url("/small")])?.success()?;
    cluster.write_config(&plan(Some(format!("path = \"{}\"\nlines_per_second = 1", file.text()))))?;
    cluster.run(cluster.lab.node(0), &["reload"])?.success()?;
    let urls = vec![url("/small"); 20];
    let words: Vec<&str> = urls.iter().flat_map(|url| ["-o", "/dev/null", url]).collect();
    curl(&cluster, &words)?;
    let counts = || {
        let status = cluster.node_status(0)?;
        Ok([&status["log_lines"], &status["log_lost"]].map(|count| count.as_u64().unwrap_or_default()))
    };
    let [lines, lost] = wait_until("all requests", PATIENCE, counts, |counts| counts[0] + counts[1] == 23)?;
    assert!(lost >= 17, "{lines} lines, {lost} lost");
    cluster.down()
}
