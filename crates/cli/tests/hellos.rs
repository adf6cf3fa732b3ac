//! Fresh connections of clients whose first words take two packets: each is answered, and none has to say them again.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::browser::Browser;
use common::{Cluster, PATIENCE, Plan, Result, TLS_NAME, load, text};
use switchback_lab::ServerKind;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hellos");
const CAPTURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hello/tests/clients");
const PYTHON: &str = "/usr/bin/python3";
/// What a person would call hanging.
const TOO_LONG: Duration = Duration::from_secs(3);
const PAGE: &str = "<!DOCTYPE html><title>page</title>\n";

fn connections() -> usize {
    load(60, 500)
}

fn start() -> Result<Cluster> {
    Cluster::start_with(Plan {
        servers: vec![ServerKind::Nginx; 2],
        pools: vec![("web", vec![0, 1])],
        server_extra: "types { text/html html; }",
        tls: Some(String::new()),
        ..Plan::default()
    })
}

/// A program makes so many connections, and says of each whether it was answered. That a machine with other things to do
/// is late for one packet in twenty is no matter: what waits for a second packet waits for half of them.
fn answered(program: &[&str]) -> Result {
    let cluster = start()?;
    let (vip, authority) = (cluster.lab.vip4().to_string(), cluster.lab.directory().join("shop.pem"));
    let count = connections();
    let count_text = count.to_string();
    let words = [program, &[&vip, text(&authority), &count_text]].concat();
    let [handshakes, others] = cluster.sent_again(|| {
        let patience = TOO_LONG * count as u32;
        let said = cluster.client().run_within(patience, &words)?.success()?;
        let lines: Vec<&str> = said.lines().collect();
        let failed: Vec<&&str> = lines.iter().filter(|line| **line != "ok").collect();
        assert!(lines.len() == count && failed.is_empty(), "{} of {count}: {failed:?}", failed.len());
        Ok(())
    })?;
    println!("{count} connections, {handshakes} handshakes and {others} other packets sent again");
    assert!(handshakes + others <= count as u64 / 20, "{handshakes} and {others} sent again");
    cluster.down()
}

#[test]
fn go() -> Result {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let binary = target.join("go-hellos");
    let mut build = Command::new("timeout");
    build.args(["300", "go", "build", "-o", text(&binary), "main.go"]).current_dir(format!("{PROGRAMS}/go"));
    build.env("GOCACHE", target.join("go-cache"));
    // Nothing of it comes from the network, and it needs no C compiler.
    build.env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    assert!(build.status()?.success());
    answered(&[text(&binary)])
}

#[test]
fn openssl() -> Result {
    // Where `make deps` puts them.
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../python");
    let path = format!("PYTHONPATH={}", packages.display());
    answered(&["env", &path, PYTHON, &format!("{PROGRAMS}/openssl.py")])
}

/// Each page in a context of its own, which shares no connection with others.
#[test]
fn chromium() -> Result {
    let cluster = start()?;
    cluster.lab.add_document("page.html", PAGE.as_bytes())?;
    let count = connections();
    let resolve = format!("--host-resolver-rules=MAP {TLS_NAME} {}", cluster.lab.vip4());
    let profile = cluster.lab.directory().join("chromium");
    let options = ["--disable-quic", "--ignore-certificate-errors", &resolve];
    let mut browser = Browser::start_with(cluster.client().command("sh"), &profile, &options)?;
    let opened = cluster.client().count("tcp dport 443 tcp flags & (syn | ack) == syn")?;
    let url = format!("https://{TLS_NAME}/page.html");
    for number in 0..count {
        let start = Instant::now();
        assert_eq!(browser.title_anew(&url)?, "page", "connection {number}");
        assert!(start.elapsed() < TOO_LONG, "connection {number} took {:?}", start.elapsed());
    }
    let opened = opened.from_host()?.packets;
    assert!(opened >= count as u64, "{opened} connections for {count} pages");
    browser.close()?;
    cluster.down()
}

/// Hellos that were captured, in two writes; a ServerHello comes (RFC 8446 section 4), or RFC 5246's.
#[test]
fn captured_ones_cut_in_two() -> Result {
    let cluster = start()?;
    let service = SocketAddr::new(cluster.lab.vip4().into(), 443);
    let mut files: Vec<PathBuf> =
        fs::read_dir(CAPTURED)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.sort();
    for file in files {
        let hello = fs::read(&file)?;
        let ends = [1, 5, 6, 9, hello.len() / 2, hello.len() - 1];
        for end in ends {
            let mut stream = cluster.client().tcp_connect(service, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TOO_LONG))?;
            stream.write_all(&hello[..end])?;
            stream.write_all(&hello[end..])?;
            let mut answer = [0; 6];
            let read = stream.read_exact(&mut answer);
            read.map_err(|error| format!("{}, cut at {end}: {error}", file.display()))?;
            assert_eq!((answer[0], answer[1], answer[5]), (22, 3, 2), "{}, cut at {end}", file.display());
        }
    }
    cluster.down()
}
