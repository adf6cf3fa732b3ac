//! Unmodified clients of many makes get, and give, the right bytes.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::document::block;
use common::http::{Documents, alternating, fetch};
use common::{Cluster, PATIENCE, Plan, Result, build_go, chromium, load, text};
use switchback_lab::{Host, TrafficCounter};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
const PYTHON: &str = "/usr/bin/python3";
const TIMEOUT: Duration = Duration::from_secs(60);
const ECHO_PORT: u16 = 9000;

/// The path of a program for a client.
fn client(name: &str) -> String {
    format!("{CLIENTS}/{name}")
}

/// Connections that a host opens from now on.
fn connections(host: &Host) -> Result<TrafficCounter> {
    Ok(host.count("tcp dport 80 tcp flags & (syn | ack) == syn")?)
}

/// A list for a client program: `count` requests that change the pool each time. Its lines are a URL and the
/// file that must come.
fn list(cluster: &Cluster, count: usize, v6: bool) -> Result<PathBuf> {
    let documents = Documents::of(&cluster.lab)?;
    let gets =
        alternating(&documents, count, |path| if v6 { cluster.url6(path) } else { cluster.url4(path) });
    let files = cluster.lab.directory().join("documents");
    let line = |url: &str, path: &str| format!("{url} {}{path}\n", files.display());
    let lines: String = gets.iter().map(|(url, document)| line(url, document.path)).collect();
    let path = cluster.lab.directory().join("gets");
    fs::write(&path, lines)?;
    Ok(path)
}

/// Runs a client program with a list of `count` requests over each family; it opens at most as many
/// connections as `at_a_time`.
fn served(plan: Plan, program: &[&str], count: usize, at_a_time: u64) -> Result {
    let cluster = Cluster::start_with(plan)?;
    for v6 in [false, true] {
        let opened = connections(cluster.client())?;
        let list = list(&cluster, count, v6)?;
        let said = cluster.client().run_within(TIMEOUT, [program, &[text(&list)]].concat())?.success()?;
        assert_eq!(said.trim(), count.to_string());
        let opened = opened.from_host()?.packets;
        assert!((1..=at_a_time).contains(&opened), "{opened} connections");
    }
    cluster.down()
}

#[test]
fn curl_with_both_versions() -> Result {
    let cluster = Cluster::start()?;
    let documents = Documents::of(&cluster.lab)?;
    for (option, connections) in [("--http1.1", 1), ("--http1.0", 50)] {
        for v6 in [false, true] {
            let gets =
                alternating(&documents, 50, |path| if v6 { cluster.url6(path) } else { cluster.url4(path) });
            let responses = fetch(cluster.client(), &gets, &[option], TIMEOUT)?;
            assert_eq!(responses.iter().map(|response| response.connects).sum::<u64>(), connections);
        }
    }
    cluster.down()
}

/// Files that arrive on the node of the pool that the path is for.
#[test]
fn curl_uploads() -> Result {
    let cluster = Cluster::start_with(Plan {
        server_extra: "dav_methods PUT; create_full_put_path on; client_max_body_size 0;",
        ..Plan::default()
    })?;
    let cases: [(usize, &[&str]); 4] = [
        (1, &["-H", "Expect:"]),
        (8, &["-H", "Transfer-Encoding: chunked"]),
        (8, &["-H", "Transfer-Encoding: chunked", "-H", "Expect:"]),
        (100, &["-H", "Expect: 100-continue"]),
    ];
    for (number, (mebibytes, options)) in cases.into_iter().enumerate() {
        for (node, directory) in ["", "/img"].into_iter().enumerate() {
            println!("{mebibytes} MiB to node{node}, {options:?}");
            let sent = block(number as u64 + 1).repeat(mebibytes);
            let file = cluster.lab.directory().join("upload");
            fs::write(&file, &sent)?;
            let path = format!("{directory}/upload-{number}");
            let url = if node == 0 { cluster.url4(&path) } else { cluster.url6(&path) };
            let words = ["curl", "-sSv", "--fail", "-T", text(&file)];
            let output = cluster.client().run_within(TIMEOUT, [&words[..], options, &[&url]].concat())?;
            let said = output.stderr.clone();
            output.success()?;
            assert!(said.contains("< HTTP/1.1 201 Created"), "{said}");
            let asked = said.contains("> Expect: 100-continue");
            assert_eq!(asked, said.contains("< HTTP/1.1 100 Continue"), "{said}");
            let arrived = format!("{}/roots/node{node}{path}", cluster.lab.directory().display());
            assert!(fs::read(&arrived)? == sent, "{arrived} is not what was sent");
        }
    }
    cluster.down()
}

#[test]
fn python_requests() -> Result {
    served(Plan::default(), &[PYTHON, &client("pooled_requests.py")], 400, 1)
}

#[test]
fn python_httpx() -> Result {
    served(Plan::default(), &[PYTHON, &client("pooled_httpx.py")], 400, 8)
}

#[test]
fn go_net_http() -> Result {
    let program = build_go("go-client", &client("go/main.go"))?;
    served(Plan::default(), &[text(&program)], 2000, 8)
}

/// Ten requests at a time on one connection.
fn pipelined(plan: Plan) -> Result {
    let program = client("pipelined_undici.js");
    served(plan, &["env", "NODE_PATH=/usr/share/nodejs", "node", &program], 500, 1)
}

#[test]
fn node_undici_pipelining_to_one_pool() -> Result {
    pipelined(Plan { pools: vec![("web", vec![0, 1])], ..Plan::default() })
}

#[test]
fn node_undici_pipelining_to_two_pools() -> Result {
    pipelined(Plan::default())
}

#[test]
fn a_page_in_chromium() -> Result {
    const RESOURCES: usize = 50;
    let cluster = Cluster::start_with(Plan {
        server_extra: "types { text/html html; text/javascript js; image/svg+xml svg; }",
        ..Plan::default()
    })?;
    // The page's own script adds up what the scripts say and how wide the images are.
    let mut page = "<!DOCTYPE html><title>page</title><script>let sum = 0;</script>\n".to_owned();
    let padding = "x".repeat(20_000);
    for number in 0..RESOURCES {
        let width = number + 1;
        if number % 2 == 0 {
            let script = format!("/* {padding} */\nsum += {width};\n");
            cluster.lab.add_document(&format!("{number}.js"), script.as_bytes())?;
            page += &format!("<script src=\"/{number}.js\"></script>\n");
        } else {
            let image = format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"1\"><!-- {padding} --></svg>\n"
            );
            cluster.lab.add_document(&format!("img/{number}.svg"), image.as_bytes())?;
            page += &format!("<img src=\"/img/{number}.svg\" onload=\"sum += this.naturalWidth\">\n");
        }
    }
    page += "<script>onload = () => { document.title = `the sum is ${sum}`; };</script>\n";
    cluster.lab.add_document("page.html", page.as_bytes())?;
    for (number, url) in [cluster.url4("/page.html"), cluster.url6("/page.html")].iter().enumerate() {
        let profile = cluster.lab.directory().join(format!("chromium-{number}"));
        let dom = chromium::dump_dom(cluster.client(), text(&profile), url)?;
        let expected = format!("<title>the sum is {}</title>", RESOURCES * (RESOURCES + 1) / 2);
        assert!(dom.contains(&expected), "{dom}");
    }
    cluster.down()
}

#[test]
fn a_websocket() -> Result {
    let cluster = Cluster::start_with(Plan {
        server_extra: "location /echo {
            proxy_pass http://127.0.0.1:9000;
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }",
        ..Plan::default()
    })?;
    let mut echo = Command::new(PYTHON);
    echo.args([&client("websocket_echo.py"), &ECHO_PORT.to_string()]);
    let node = cluster.lab.node(0);
    let echo = node.spawn("echo", echo)?;
    node.wait_for_listeners(&echo, &[([127, 0, 0, 1], ECHO_PORT).into()], PATIENCE)?;
    let seconds = load(5, 60);
    let url = format!("ws://{}/echo", cluster.lab.vip4());
    let words = [PYTHON, &client("websocket_client.py"), &url, &seconds.to_string()];
    let said = cluster.client().run_within(Duration::from_secs(seconds) + PATIENCE, words)?.success()?;
    let messages: u64 = said.trim().parse()?;
    println!("{messages} messages in {seconds} s");
    assert!(messages > 10 * seconds, "{messages} messages in {seconds} s");
    cluster.down()
}
