//! A busy node lends its keys to another, which answers: backend forwarding.

use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{ChildStdin, Stdio};

use crate::common::document::block;
use crate::common::http::add_long_document;
use crate::common::{Cluster, PATIENCE, Plan, Result, text, wait_until};
use crate::{Connection, NAME, authority, curl, received, tls_status, to_service, url};

/// Connections begin at the first node, which is busy as long as the idle ones are kept, and so has the second one answer.
fn start(server_extra: &'static str) -> Result<(Cluster, [Connection; 3])> {
    start_with(Plan { server_extra, ..Plan::default() })
}

/// Likewise, with other things as they are in `plan`.
pub fn start_with(plan: Plan) -> Result<(Cluster, [Connection; 3])> {
    let lines = "sessions = \"forwarding\"\nhand_over = \"relay\"\nbusy_connections = 2\nbusy_cpu = \"100%\"";
    let cluster = Cluster::start_with(Plan {
        policy: "fill",
        pools: vec![("web", vec![0, 1])],
        tls: Some(lines.to_owned()),
        ..plan
    })?;
    let mut idle = [Connection::open(&cluster)?, Connection::open(&cluster)?, Connection::open(&cluster)?];
    // The first node has to have heard how little the other one has to do.
    let answer = || idle[0].ask("get /small");
    wait_until("the second node's answer", PATIENCE, answer, |answer| answer.contains(" node1 "))?;
    Ok((cluster, idle))
}

/// Requests that the first node has given, those that the second has taken, connections that have moved.
fn counts(cluster: &Cluster) -> Result<[u64; 3]> {
    let (first, second) = (tls_status(cluster, 0)?, tls_status(cluster, 1)?);
    let counts = [&first["requests_given"], &second["requests_taken"], &first["given"]];
    Ok(counts.map(|count| count.as_u64().unwrap_or_default()))
}

#[test]
fn every_request_of_a_connection_is_answered_by_another_node() -> Result {
    let (cluster, _idle) = start_with(Plan {
        server_extra: "dav_methods PUT; create_full_put_path on; client_max_body_size 0;",
        tls_routes: "[[service.route]]\npath = \"/as/\"\nrewrite.prefix = \"/\"\npool = \"web\"\n",
        ..Plan::default()
    })?;
    let [before, ..] = counts(&cluster)?;
    let large = fs::read(cluster.lab.directory().join("documents/1m"))?;
    let mut asked = 0;
    for tls in ["1.2", "1.3"] {
        let out: Vec<_> = (0..20).map(|index| cluster.lab.directory().join(format!("got{index}"))).collect();
        let mut words = vec!["--http1.1", "--tls-max", tls, "-w", "%header{x-node} %{num_connects}\\n"];
        // The node that answers changes the path.
        let page = url("/as/1m");
        out.iter().for_each(|out| words.extend(["-o", text(out), &page]));
        let said = curl(&cluster, &words)?;
        let expected = (0..20).map(|index| format!("node1 {}\n", u8::from(index == 0)));
        assert_eq!(said, expected.collect::<String>(), "{tls}");
        asked += 20;
        for out in &out {
            assert!(fs::read(out)? == large, "{tls}: {} is not what it should be", out.display());
        }
        let sent = block(7).repeat(5);
        let file = cluster.lab.directory().join("upload");
        fs::write(&file, &sent)?;
        for (number, encoding) in
            ["Expect:", "Expect: 100-continue", "Transfer-Encoding: chunked"].into_iter().enumerate()
        {
            let path = format!("/upload-{tls}-{number}");
            let options = ["--http1.1", "--tls-max", tls, "-H", encoding, "--fail", "-T", text(&file)];
            let said = curl(
                &cluster,
                &[&options[..], &["-w", "%{response_code}", "-o", "/dev/null", &url(&path)]].concat(),
            )?;
            assert_eq!(said, "201", "{tls} {encoding}");
            let arrived = format!("{}/roots/node1{path}", cluster.lab.directory().display());
            assert!(fs::read(&arrived)? == sent, "{tls} {encoding}: {arrived} is not what was sent");
            asked += 1;
        }
    }
    let [given, taken, moved] = counts(&cluster)?;
    assert_eq!((given - before, moved), (asked, 0));
    assert_eq!(given, taken);
    let said = |node: usize, words: &str| cluster.agent(node).log().matches(words).count() as u64;
    assert_eq!(
        [said(0, " was answered by node1\n"), said(1, " was answered for another node\n")],
        [given; 2]
    );
    cluster.down()
}

nix::ioctl_read_bad!(fionread, nix::libc::FIONREAD, nix::libc::c_int);

/// Bytes in a pipe that nobody has read.
fn unread(pipe: &ChildStdin) -> Result<i32> {
    let mut bytes = 0;
    // SAFETY: FIONREAD writes one int.
    unsafe { fionread(pipe.as_raw_fd(), &raw mut bytes) }?;
    Ok(bytes)
}

/// openssl asks for new keys in the middle of a response (its command "K"), which the node that has lent its own cannot make.
#[test]
fn a_client_gets_new_keys_from_whoever_writes() -> Result {
    let (cluster, _idle) = start("limit_rate 6m;")?;
    add_long_document(&cluster.lab, "/long", 20)?;
    let document = fs::read(cluster.lab.directory().join("documents/long"))?;
    let directory = cluster.lab.directory();
    let [response, messages, errors] = ["response", "messages", "errors"].map(|name| directory.join(name));
    let (vip, authority) = (format!("{}:443", cluster.lab.vip4()), authority(&cluster));
    let mut command = cluster.client().command("openssl");
    command.args(["s_client", "-connect", &vip, "-servername", NAME, "-CAfile", &authority, "-tls1_3"]);
    command.args(["-verify_return_error", "-msg", "-msgfile", text(&messages)]);
    command.stdin(Stdio::piped()).stdout(fs::File::create(&response)?).stderr(fs::File::create(&errors)?);
    let mut child = command.spawn()?;
    let mut to = child.stdin.take().expect("piped");
    write!(to, "GET /long HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n")?;
    for part in 1..=3 {
        let has_come = || Ok(fs::metadata(&response)?.len());
        wait_until("a part of the response", PATIENCE, has_come, |len| *len > part << 21)?;
        to.write_all(b"K")?;
        let counted = |file: &Path, word: &str| Ok(fs::read_to_string(file)?.matches(word).count() as u64);
        wait_until("the command", PATIENCE, || counted(&errors, "KEYUPDATE"), |count| *count == part)?;
        // It renews them when it has something to say.
        to.write_all(b".")?;
        let renewed = || counted(&messages, "KeyUpdate");
        wait_until("a renewal of both keys", PATIENCE, renewed, |count| *count == 2 * part)?;
        // A command is one only at the beginning of what openssl reads.
        wait_until("an empty pipe", PATIENCE, || unread(&to), |bytes| *bytes == 0)?;
    }
    assert!(child.wait()?.success());
    let response = fs::read(&response)?;
    let begin = response.windows(15).position(|bytes| bytes == b"HTTP/1.1 200 OK").ok_or("no response")?;
    let body =
        response[begin..].windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or("no end of its head")?;
    assert!(response[begin + body + 4..].starts_with(&document), "the document is not what it should be");
    cluster.down()
}

/// The node that answers is lost. Before it has said anything the first one answers itself, if the request can be repeated; in
/// the middle the client sees that something is missing.
#[test]
fn the_node_that_answers_is_lost() -> Result {
    let (mut cluster, _idle) = start("")?;
    add_long_document(&cluster.lab, "/long", 20)?;
    let mut connection = Connection::open(&cluster)?;
    assert!(connection.ask("get /small")?.starts_with("200 node1 "));
    cluster.kill_server(1)?;
    assert!(connection.ask("get /small")?.starts_with("200 node0 "));
    assert_eq!(connection.status("post /small 10")?, "502");
    cluster.start_server(1)?;

    cluster.client().set_rate(Some(50_000_000))?;
    let before = received(&cluster)?;
    let mut download = cluster.client().command("curl");
    download.args(to_service(&cluster, &cluster.lab.vip4().to_string()));
    download.args(["-sS", "--max-time", "60", "--http1.1", "-o", "/dev/null", &url("/long")]);
    let mut download = download.stderr(Stdio::null()).spawn()?;
    wait_until("a download", PATIENCE, || received(&cluster), |bytes| *bytes > before + (2 << 20))?;
    cluster.kill_node(1)?;
    assert!(!download.wait()?.success(), "nobody has noticed");
    assert!(Connection::open(&cluster)?.ask("get /small")?.starts_with("200 node0 "));
    cluster.start_node(1)?;
    cluster.down()
}
