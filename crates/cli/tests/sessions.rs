//! A session stays on the node that began it, whatever connection its requests come by, with real
//! applications that keep their sessions to themselves.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use common::{Cluster, PATIENCE, Plan, Result, load, text, wait_until};
use serde_json::Value;
use switchback_lab::{ServerKind, SessionServerKind};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sessions/client.py");
const PYTHON: &str = "/usr/bin/python3";
const TIMEOUT: Duration = Duration::from_secs(320);
/// Requests of many packets, and responses of many.
const POOLS: &str = "/a?bytes=20000,/img/a?chunked=1&bytes=3000";

const NGINX: [SessionServerKind; 3] = [SessionServerKind::NginxPhp; 3];
const MIXED: [SessionServerKind; 3] =
    [SessionServerKind::NginxPhp, SessionServerKind::ApachePhp, SessionServerKind::Tomcat];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Rewrite,
    Insert,
    Hash,
}

impl Mode {
    /// Two pools of the same three nodes. Where the cookie's name does not tell them apart, the applications
    /// do.
    fn plan(self, servers: [SessionServerKind; 3]) -> Plan {
        let (lines, cookies) = match self {
            Mode::Rewrite => ("mode = \"rewrite\"\ncookie = \"LABSESSIONID\"", (Some("LABSESSIONID"), None)),
            Mode::Insert => ("mode = \"insert\"", (None, Some("IMGSESSION"))),
            Mode::Hash => ("mode = \"hash\"\nhash = \"header x-user\"", (None, Some("IMGSESSION"))),
        };
        Plan {
            servers: vec![ServerKind::Nginx; 3],
            session_servers: servers.to_vec(),
            session_cookies: cookies,
            pools: vec![("web", vec![0, 1, 2]), ("img", vec![0, 1, 2])],
            pool_lines: format!("[pool.persistence]\n{lines}\n"),
            ..Plan::default()
        }
    }
}

/// Clients, and requests of each. One wrong answer to 400 is found with a probability of 95 % by the short load of one test,
/// and one to 1,600 by that of all four.
fn scale() -> (u64, u64) {
    load((80, 15), (200, 50))
}

/// Runs the clients, and returns what they say.
fn clients(cluster: &Cluster, more: &[&str]) -> Result<Value> {
    let (count, requests) = scale();
    let (count, requests) = (count.to_string(), requests.to_string());
    let base = cluster.url4("");
    let words = [PYTHON, CLIENT, "--base", &base, "--pools", POOLS, "--header", "x-user"];
    let load = ["--clients", &count, "--requests", &requests, "--threads", "32", "--timeout", "60"];
    let output = cluster.client().run_within(TIMEOUT, [&words, &load[..], more].concat())?;
    let said: Value = serde_json::from_str(&output.stdout)
        .map_err(|error| format!("{error}: {}{}", output.stdout, output.stderr))?;
    println!("{said}");
    Ok(said)
}

/// Every client's counter was right at each of its requests, and all nodes were used.
fn assert_all_right(said: &Value) {
    let (clients, requests) = scale();
    assert_eq!((&said["errors"], &said["requests"]), (&Value::Array(vec![]), &(clients * requests).into()));
    for pool in said["nodes"].as_object().expect("nodes by pool").values() {
        assert_eq!(pool.as_object().map(serde_json::Map::len), Some(3), "{said}");
    }
}

fn dispatch(cluster: &Cluster, key: &str) -> Result<u64> {
    let status = cluster.switch_status()?;
    status["dispatch"][key].as_u64().ok_or_else(|| format!("no {key} in {status:#}").into())
}

fn node_sum(cluster: &Cluster, counter: &str) -> Result<u64> {
    (0..3).map(|node| cluster.node_counter(node, counter)).sum()
}

fn every_counter_is_right(mode: Mode, servers: [SessionServerKind; 3], loss_permille: u32) -> Result {
    let cluster = Cluster::start_with(mode.plan(servers))?;
    cluster.client().set_loss(loss_permille, loss_permille)?;
    let said = clients(&cluster, &[])?;
    cluster.client().set_loss(0, 0)?;
    assert_all_right(&said);
    // One cookie for each client and pool, and no more.
    let cookies = [node_sum(&cluster, "cookie_rewritten")?, node_sum(&cluster, "cookie_inserted")?];
    let (clients, requests) = scale();
    let sessions = 2 * clients;
    let expected = match mode {
        Mode::Rewrite => [sessions, 0],
        Mode::Insert => [0, sessions],
        Mode::Hash => [0, 0],
    };
    assert_eq!(cookies, expected, "rewritten and inserted");
    assert!(dispatch(&cluster, "sessions_kept")? >= clients * (requests - 2));
    assert_eq!(dispatch(&cluster, "cookies_ignored")?, 0);
    cluster.down()
}

#[test]
fn rewriting_with_nginx() -> Result {
    every_counter_is_right(Mode::Rewrite, NGINX, 0)
}

#[test]
fn rewriting_with_three_servers_and_loss() -> Result {
    every_counter_is_right(Mode::Rewrite, MIXED, 10)
}

#[test]
fn inserting_with_three_servers_and_loss() -> Result {
    every_counter_is_right(Mode::Insert, MIXED, 10)
}

#[test]
fn hashing_with_three_servers_and_loss() -> Result {
    every_counter_is_right(Mode::Hash, MIXED, 10)
}

/// A client with a cookie jar that opens a connection for each request. It sends its older cookies first, as
/// browsers do (RFC 6265 section 5.4).
#[derive(Default)]
struct Visitor {
    jar: Vec<(String, String)>,
}

/// The application's response, or a refusal.
#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Counted { node: String, session: String, counter: u64 },
    Status(u16),
}

impl Reply {
    fn node(&self) -> &str {
        match self {
            Reply::Counted { node, .. } => node,
            Reply::Status(status) => panic!("a response from a node is due, not {status}"),
        }
    }

    fn counter(&self) -> u64 {
        match self {
            Reply::Counted { counter, .. } => *counter,
            Reply::Status(status) => panic!("a response from a node is due, not {status}"),
        }
    }
}

impl Visitor {
    fn ask(&mut self, cluster: &Cluster, path: &str) -> Result<Reply> {
        let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
        let mut stream = cluster.client().tcp_connect(vip, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let cookies: Vec<String> = self.jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies =
            if cookies.is_empty() { String::new() } else { format!("Cookie: {}\r\n", cookies.join("; ")) };
        write!(stream, "GET {path} HTTP/1.1\r\nHost: shop\r\n{cookies}Connection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| format!("no response: {text:?}"))?;
        for line in head.lines() {
            let (name, value) = line.split_once(": ").unwrap_or_default();
            if name.eq_ignore_ascii_case("set-cookie") {
                let pair = value.split(';').next().and_then(|pair| pair.split_once('='));
                let (name, value) = pair.ok_or_else(|| format!("no cookie: {line}"))?;
                self.set(name, value);
            }
        }
        let status: u16 = head.get(9..12).ok_or("no status")?.parse()?;
        if status != 200 {
            return Ok(Reply::Status(status));
        }
        let words: Vec<&str> = body.lines().next().unwrap_or_default().split(' ').collect();
        let [node, session, counter] = words[..] else { return Err(format!("no counter: {body:?}").into()) };
        Ok(Reply::Counted { node: node.to_owned(), session: session.to_owned(), counter: counter.parse()? })
    }

    fn set(&mut self, name: &str, value: &str) {
        match self.jar.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => value.clone_into(known),
            None => self.jar.push((name.to_owned(), value.to_owned())),
        }
    }
}

const VISITORS: usize = 12;

fn ask_all(cluster: &Cluster, visitors: &mut [Visitor]) -> Result<Vec<Reply>> {
    visitors.iter_mut().map(|visitor| visitor.ask(cluster, "/a")).collect()
}

/// Visitors whose sessions have begun.
fn visitors(cluster: &Cluster) -> Result<(Vec<Visitor>, Vec<Reply>)> {
    let mut visitors: Vec<Visitor> = (0..VISITORS).map(|_| Visitor::default()).collect();
    let said = ask_all(cluster, &mut visitors)?;
    assert!(said.iter().all(|said| said.counter() == 1), "{said:?}");
    Ok((visitors, said))
}

/// All sessions go on where they were.
fn assert_go_on(cluster: &Cluster, visitors: &mut [Visitor], before: &[Reply]) -> Result<Vec<Reply>> {
    let now = ask_all(cluster, visitors)?;
    for (before, now) in std::iter::zip(before, &now) {
        assert_eq!((now.node(), now.counter()), (before.node(), before.counter() + 1), "{before:?}");
    }
    Ok(now)
}

fn strict(plan: Plan) -> Plan {
    Plan { pool_lines: format!("{}sticky = \"strict\"\n", plan.pool_lines), ..plan }
}

/// A node goes; its sessions begin again elsewhere, and stay there when it comes back.
fn sessions_follow(mode: Mode, go: impl Fn(&Cluster) -> Result, come: impl Fn(&Cluster) -> Result) -> Result {
    let cluster = Cluster::start_with(mode.plan(NGINX))?;
    let (mut visitors, before) = visitors(&cluster)?;
    go(&cluster)?;
    let away = ask_all(&cluster, &mut visitors)?;
    let mut moved = 0;
    for (before, away) in std::iter::zip(&before, &away) {
        assert_ne!(away.node(), "node0");
        let expected = if before.node() == "node0" { 1 } else { 2 };
        assert_eq!(away.counter(), expected, "{before:?}, then {away:?}");
        moved += u64::from(expected == 1);
    }
    assert!((1..VISITORS as u64).contains(&moved), "{moved} sessions were on node0");
    assert_eq!(dispatch(&cluster, "sessions_moved")?, moved);
    come(&cluster)?;
    let back = assert_go_on(&cluster, &mut visitors, &away)?;
    assert_go_on(&cluster, &mut visitors, &back)?;
    cluster.down()
}

fn drain(cluster: &Cluster) -> Result {
    cluster.run(cluster.lab.switch(0), &["drain", "node0"])?.success()?;
    Ok(())
}

fn undrain(cluster: &Cluster) -> Result {
    cluster.run(cluster.lab.switch(0), &["undrain", "node0"])?.success()?;
    Ok(())
}

/// Until the switch has heard what a node says of its listeners.
fn wait_for_listener(cluster: &Cluster, is_there: bool) -> Result {
    let state = || Ok(cluster.switch_status()?["nodes"][0].to_string());
    let wanted = |state: &String| state.contains("no listener") != is_there;
    wait_until("the switch hears of the listener", PATIENCE, state, wanted)?;
    Ok(())
}

fn stop_server(cluster: &Cluster) -> Result {
    cluster.kill_server(0)?;
    wait_for_listener(cluster, false)
}

fn start_server(cluster: &Cluster) -> Result {
    cluster.start_server(0)?;
    wait_for_listener(cluster, true)
}

#[test]
fn rewritten_cookies_follow_from_a_draining_node() -> Result {
    sessions_follow(Mode::Rewrite, drain, undrain)
}

/// nginx reads what does not fit into its first kilobyte only if FIONREAD tells of it, which not all kernels do while a socket
/// waits for its cookie.
#[test]
fn long_requests_are_read_where_cookies_are_inserted() -> Result {
    let cluster = Cluster::start_with(Mode::Insert.plan(NGINX))?;
    let upload = cluster.client().directory().join("upload");
    fs::write(&upload, vec![b'x'; 1 << 20])?;
    // Of a node that is none, so that the socket waits for its cookie when the server reads.
    let words = ["curl", "--silent", "--max-time", "10", "--cookie", "SB-web=AAAAAAAAAAAAAA"];
    let asked = ["--output", "/dev/null", "--write-out", "%{http_code} %header{set-cookie}"];
    let url = cluster.url4("/a");
    let asks = |more: &[&str]| -> Result<String> {
        let said = cluster.client().run([&words[..], &asked, more, &[&url]].concat())?.stdout;
        assert!(said.starts_with("200 "), "{more:?}: {said}");
        Ok(said)
    };
    for len in [500, 850, 1000, 1200, 3000, 6000] {
        let said = asks(&["--header", &format!("X-Long: {}", "x".repeat(len))])?;
        assert!(len > 800 || said.contains("SB-web="), "{len}: {said}");
    }
    asks(&["--data-binary", &format!("@{}", text(&upload))])?;
    asks(&["--data-binary", &format!("@{}", text(&upload)), "--header", "Expect:"])?;
    cluster.down()
}

#[test]
fn inserted_cookies_follow_from_a_draining_node() -> Result {
    sessions_follow(Mode::Insert, drain, undrain)
}

#[test]
fn rewritten_cookies_follow_from_a_dead_server() -> Result {
    sessions_follow(Mode::Rewrite, stop_server, start_server)
}

#[test]
fn inserted_cookies_follow_from_a_dead_server() -> Result {
    sessions_follow(Mode::Insert, stop_server, start_server)
}

#[test]
fn a_strict_session_waits_for_its_node() -> Result {
    for mode in [Mode::Rewrite, Mode::Insert] {
        let cluster = Cluster::start_with(strict(mode.plan(NGINX)))?;
        let (mut visitors, before) = visitors(&cluster)?;
        drain(&cluster)?;
        let away = ask_all(&cluster, &mut visitors)?;
        let mut refused = 0;
        let mut expected = Vec::new();
        for (before, away) in std::iter::zip(&before, &away) {
            if before.node() == "node0" {
                assert_eq!(*away, Reply::Status(503));
                refused += 1;
                expected.push(before.clone());
            } else {
                assert_eq!(away.counter(), 2);
                expected.push(away.clone());
            }
        }
        assert_eq!(dispatch(&cluster, "sessions_refused")?, refused);
        // Who has no session is served as usual.
        assert_eq!(Visitor::default().ask(&cluster, "/a")?.counter(), 1);
        undrain(&cluster)?;
        assert_go_on(&cluster, &mut visitors, &expected)?;
        cluster.down()?;
    }
    Ok(())
}

/// The name of the cookie lies at every place about the end of the first packet.
#[test]
fn a_name_may_be_cut_by_the_end_of_a_packet() -> Result {
    let cluster = Cluster::start_with(Mode::Rewrite.plan(NGINX))?;
    let mut visitor = Visitor::default();
    visitor.jar.push(("padding".to_owned(), String::new()));
    let mut before = visitor.ask(&cluster, "/a")?;
    // The MSS is 1,384; the head has some 100 bytes besides.
    for padding in 1240..1340 {
        visitor.jar[0].1 = "x".repeat(padding);
        let now = visitor.ask(&cluster, "/a")?;
        assert_eq!(
            (now.node(), now.counter()),
            (before.node(), before.counter() + 1),
            "{padding} bytes before it"
        );
        before = now;
    }
    let sent_again = node_sum(&cluster, "cookie_waited")?;
    assert_eq!(sent_again, 0, "no packet had to be sent again");
    cluster.down()
}

#[test]
fn a_forged_or_damaged_cookie_is_ignored_and_counted() -> Result {
    for mode in [Mode::Rewrite, Mode::Insert] {
        let cluster = Cluster::start_with(mode.plan(NGINX))?;
        let mut honest = Visitor::default();
        honest.ask(&cluster, "/a")?;
        let (name, value) =
            honest.jar.iter().find(|(name, _)| name.starts_with("SB")).ok_or("no cookie of ours")?;
        let replaced = |text: &str, at: usize| {
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            format!("{}{other}{}", &text[..at], &text[at + 1..])
        };
        // Another node's code, another name behind it; another node, another tag, a part.
        let forged: Vec<(String, String)> = match mode {
            Mode::Rewrite => vec![(replaced(name, 6), value.clone()), (format!("{name}2"), value.clone())],
            _ => ["", "A", &value[..13], &replaced(value, 1), &replaced(value, 8), &format!("{value}A")]
                .map(|value| (name.clone(), value.to_owned()))
                .to_vec(),
        };
        for cookie in forged {
            let before = dispatch(&cluster, "cookies_ignored")?;
            let mut forger = Visitor { jar: vec![cookie.clone()] };
            assert_eq!(forger.ask(&cluster, "/a")?.counter(), 1, "{cookie:?}");
            assert_eq!(dispatch(&cluster, "cookies_ignored")?, before + 1, "{cookie:?}");
            // And the forger has a session of its own now, beside a forged name or in place of a forged
            // value.
            assert_eq!(forger.ask(&cluster, "/a")?.counter(), 2, "{cookie:?}");
            let still = u64::from(mode == Mode::Rewrite);
            assert_eq!(dispatch(&cluster, "cookies_ignored")?, before + 1 + still, "{cookie:?}");
        }
        cluster.down()?;
    }
    Ok(())
}

#[test]
fn sessions_outlive_the_switch_and_a_change_of_keys() -> Result {
    for mode in [Mode::Rewrite, Mode::Insert] {
        let mut cluster = Cluster::start_with(mode.plan(NGINX))?;
        let (mut visitors, said) = visitors(&cluster)?;
        cluster.stop_switch()?;
        cluster.start_switch()?;
        let said = assert_go_on(&cluster, &mut visitors, &said)?;
        // A new key first, the old one still accepted: on the nodes before the switch.
        let file = cluster.lab.directory().join("cluster.key");
        let old = fs::read_to_string(&file)?;
        fs::write(&file, format!("{}\n{old}", "5b".repeat(32)))?;
        for host in cluster.lab.nodes().chain(cluster.lab.switches()) {
            cluster.run(host, &["reload"])?.success()?;
        }
        let said = assert_go_on(&cluster, &mut visitors, &said)?;
        let said = assert_go_on(&cluster, &mut visitors, &said)?;
        if mode == Mode::Insert {
            // Their cookies have been made anew, so the old key can go.
            fs::write(&file, "5b".repeat(32))?;
            for host in cluster.lab.nodes().chain(cluster.lab.switches()) {
                cluster.run(host, &["reload"])?.success()?;
            }
            assert_go_on(&cluster, &mut visitors, &said)?;
        }
        cluster.down()?;
    }
    Ok(())
}

#[test]
fn chromium_keeps_a_session_in_each_pool() -> Result {
    const SCRIPT: &str = "
        const last = {};
        let right = 0;
        for (let i = 0; i < 50; i++) {
            const path = i % 2 ? '/img/a' : '/a';
            const request = new XMLHttpRequest();
            request.open('GET', path, false);
            request.send();
            const [node, session, counter] = request.responseText.split('\\n')[0].split(' ');
            const now = { node, session, counter: Number(counter) };
            const before = last[path] ?? { node, session, counter: 0 };
            if (node === before.node && session === before.session && now.counter === before.counter + 1) right++;
            last[path] = now;
        }
        document.title = `${right} were right`;";
    for mode in [Mode::Rewrite, Mode::Insert] {
        let plan = mode.plan(MIXED);
        let cluster = Cluster::start_with(Plan {
            servers: vec![ServerKind::Nginx; 4],
            pools: [plan.pools.clone(), vec![("page", vec![3])]].concat(),
            routes: "[[service.route]]\npath = \"/page.html\"\npool = \"page\"\n",
            server_extra: "types { text/html html; }",
            ..plan
        })?;
        let page = format!("<!DOCTYPE html><title>page</title><script>{SCRIPT}</script>\n");
        cluster.lab.add_document("page.html", page.as_bytes())?;
        let profile = cluster.lab.directory().join("chromium");
        let dom = common::chromium::dump_dom(cluster.client(), text(&profile), &cluster.url4("/page.html"))?;
        assert!(dom.contains("<title>50 were right</title>"), "{dom}");
        cluster.down()?;
    }
    Ok(())
}
