//! What clients hear that cannot be served.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::http::{Document, add_long_document, start_fetch};
use crate::common::{Cluster, PATIENCE, Plan, Result, text, wait_until};
use crate::{
    Connection, NAME, PYTHON, TIMEOUT, change_config, openssl, plan, received, run_curl, start, to_service,
    url,
};

/// Only this host has a route.
#[test]
fn an_unknown_name_is_refused_with_an_alert() -> Result {
    let mut cluster = Cluster::prepare(plan(2, ""))?;
    let route = |condition: &str| format!("[[service.route]]\n{condition}pool");
    change_config(&cluster, &route(""), &route(&format!("host = \"{NAME}\"\n")))?;
    cluster.start_daemons()?;
    for version in ["-tls1_2", "-tls1_3"] {
        let known = openssl(&cluster, &["-servername", NAME, "-verify_return_error", version])?;
        assert!(known.contains("Verify return code: 0 (ok)"), "{known}");
        for name in [&["-servername", "unknown.example.com"][..], &["-noservername"]] {
            let refused = openssl(&cluster, &[name, &[version]].concat())?;
            assert!(
                refused.contains("unrecognized name") && refused.contains("SSL alert number 112"),
                "{refused}"
            );
        }
    }
    // The name is right, but what is asked for then is another host.
    for http in ["--http1.1", "--http2"] {
        let options = [http, "-H", "Host: unknown.example.com", "-w", "%{response_code}", "-o", "/dev/null"];
        let refused = run_curl(&cluster, &[&options[..], &[&url("/small")]].concat())?.success()?;
        assert_eq!(refused, "404", "{http}");
    }
    cluster.down()
}

/// Behind the handshake as in it.
#[test]
fn a_client_hears_why_its_connection_ends() -> Result {
    let cluster = start(1, "")?;
    let mut connection = Connection::open(&cluster)?;
    assert_eq!(connection.status("get /small")?, "200");
    assert_eq!(connection.ask("garbage")?, "SSLV3_ALERT_BAD_RECORD_MAC");
    cluster.down()
}

#[test]
fn http_in_the_clear_is_answered_in_the_clear() -> Result {
    let cluster = start(2, "")?;
    let url = format!("http://{}:443/small", cluster.lab.vip4());
    let said = run_curl(&cluster, &["-i", &url])?.success()?;
    assert!(said.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{said}");
    assert!(said.contains("This port speaks HTTPS."), "{said}");
    cluster.down()
}

#[test]
fn no_protocol_in_common() -> Result {
    for (lines, offered) in [("", "spdy/3"), ("protocols = [\"h2\"]", "http/1.1")] {
        let cluster = start(2, lines)?;
        for version in ["-tls1_2", "-tls1_3"] {
            let said = openssl(&cluster, &["-servername", NAME, "-alpn", offered, version])?;
            assert!(said.contains("alert no application protocol"), "{said}");
            assert!(said.contains("SSL alert number 120"), "{said}");
        }
        // Who does not say what it speaks gets HTTP/1.1.
        let options = ["--no-alpn", "-w", "%{http_version} %{response_code}", "-o", "/dev/null"];
        let said = run_curl(&cluster, &[&options[..], &[&url("/small")]].concat())?.success()?;
        assert_eq!(said, "1.1 200", "{lines}");
        cluster.down()?;
    }
    Ok(())
}

/// A pool may wait for its nodes.
#[test]
fn a_pool_without_nodes_answers_with_its_status() -> Result {
    const ROUTES: &str = "[[service.route]]\npath = \"/early\"\npool = \"early\"\n\
        [[service.route]]\npath = \"/usual\"\npool = \"usual\"\n\
        [[pool]]\nname = \"early\"\npolicy = \"random\"\nempty_status = 500\n\
        [[pool]]\nname = \"usual\"\npolicy = \"random\"\n";
    let cluster = Cluster::start_with(Plan { tls_routes: ROUTES, ..plan(1, "") })?;
    for http in ["--http1.1", "--http2"] {
        let mut options = vec![http, "-w", "%{response_code}\\n"];
        let urls = [url("/early"), url("/usual"), url("/small")];
        urls.iter().for_each(|url| options.extend(["-o", "/dev/null", url]));
        assert_eq!(run_curl(&cluster, &options)?.success()?, "500\n503\n200\n", "{http}");
    }
    cluster.down()
}

#[test]
fn without_its_server_a_node_answers_502_and_says_that_it_ends() -> Result {
    let mut cluster = Cluster::prepare(plan(1, ""))?;
    change_config(&cluster, "server = \"127.0.0.1:80\"", "server = \"127.0.0.1:81\"")?;
    cluster.start_daemons()?;
    // The answer comes before the request has been sent.
    for request in ["get /small", "post /small 8000000"] {
        let mut connection = Connection::open(&cluster)?;
        assert_eq!(connection.status(request)?, "502", "{request}");
        assert_eq!(connection.ask("end")?, "closed", "{request}");
    }
    let options = ["--http2", "-w", "%{response_code}", "-o", "/dev/null", &url("/small")];
    assert_eq!(run_curl(&cluster, &options)?.success()?, "502");
    assert_eq!(crate::tls_status(&cluster, 0)?["refused"], 3);
    cluster.down()
}

/// A server that answers before it has read all.
#[test]
fn an_upload_that_is_too_long_is_answered() -> Result {
    let cluster = Cluster::start_with(Plan { server_extra: "client_max_body_size 1m;", ..plan(1, "") })?;
    // A reset would take the answer from a client that has not read it yet.
    let resets = cluster.client().count("tcp sport 443 tcp flags & rst == rst")?;
    let mut connection = Connection::open(&cluster)?;
    assert_eq!(connection.status("post /small 8000000")?, "413");
    assert_eq!(connection.ask("end")?, "closed");
    let file = cluster.lab.directory().join("upload");
    fs::write(&file, vec![0; 8 << 20])?;
    for http in ["--http1.1", "--http2"] {
        let options = [http, "-X", "POST", "-T", text(&file), "-w", "%{response_code}", "-o", "/dev/null"];
        let said = run_curl(&cluster, &[&options[..], &[&url("/small")]].concat())?;
        assert_eq!(said.stdout, "413", "{http}: {}", said.stderr);
    }
    assert_eq!(resets.to_host()?.packets, 0, "resets");
    cluster.down()
}

/// The server dies between two requests, and in the middle of a response.
#[test]
fn a_server_that_dies() -> Result {
    let cluster = start(1, "")?;
    add_long_document(&cluster.lab, "/long", 20)?;
    let mut connection = Connection::open(&cluster)?;
    assert_eq!(connection.status("get /small")?, "200");
    cluster.kill_server(0)?;
    assert_eq!(connection.status("get /small")?, "502");
    assert_eq!(connection.ask("end")?, "closed");

    cluster.start_server(0)?;
    cluster.client().set_rate(Some(50_000_000))?;
    for http in ["--http1.1", "--http2"] {
        let before = received(&cluster)?;
        let download = thread::scope(|scope| {
            let download = scope.spawn(|| run_curl(&cluster, &[http, "-o", "/dev/null", &url("/long")]));
            wait_until("a download", PATIENCE, || received(&cluster), |bytes| *bytes > before + (2 << 20))?;
            cluster.kill_server(0)?;
            download.join().expect("the download does not panic")
        })?;
        assert!(!download.status.success(), "{http}: nobody has noticed");
        cluster.start_server(0)?;
    }
    cluster.down()
}

/// Nobody waits for what will not come.
#[test]
fn half_a_request() -> Result {
    let cluster = Cluster::start_with(Plan { server_extra: "dav_methods PUT;", ..plan(1, "") })?;
    let mut connection = Connection::open(&cluster)?;
    assert_eq!(connection.status("get /small")?, "200");
    assert_eq!(connection.ask("abandon /upload")?, "abandoned");
    let connections = || Ok(crate::tls_status(&cluster, 0)?["connections"].clone());
    wait_until("the end of the connection", Duration::from_secs(3), connections, |count| *count == 0)?;
    cluster.down()
}

/// A server that says neither how long its response is nor that it has ended, but breaks off.
const BREAKS_OFF: &str = "
import socket, struct
listener = socket.create_server(('127.0.0.1', 81))
while True:
    connection, _ = listener.accept()
    connection.recv(10000)
    connection.sendall(b'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\nhalf')
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    connection.close()
";

#[test]
fn a_response_without_length_that_breaks_off_is_not_whole() -> Result {
    let mut cluster = Cluster::prepare(plan(1, ""))?;
    change_config(&cluster, "server = \"127.0.0.1:80\"", "server = \"127.0.0.1:81\"")?;
    let mut server = Command::new(PYTHON);
    server.args(["-c", BREAKS_OFF]);
    let node = cluster.lab.node(0);
    let server = node.spawn("breaks-off", server)?;
    node.wait_for_listeners(&server, &[([127, 0, 0, 1], 81).into()], PATIENCE)?;
    cluster.start_daemons()?;
    let said = Connection::open(&cluster)?.ask("get /small")?;
    assert!(said.contains("unexpected eof"), "{said}");
    let broken = run_curl(&cluster, &["--http2", &url("/small")])?;
    assert!(!broken.status.success(), "{}", broken.stdout);
    cluster.down()
}

/// What comes of the connections of a node that dies is an error, and nothing else changes.
#[test]
fn an_agent_is_killed_during_downloads() -> Result {
    for http in ["--http1.1", "--http2"] {
        let mut cluster = start(2, "")?;
        let document = add_long_document(&cluster.lab, "/long", 20)?;
        cluster.client().set_rate(Some(100_000_000))?;
        let to_service = to_service(&cluster, &cluster.lab.vip4().to_string());
        let mut options: Vec<&str> = to_service.iter().map(String::as_str).collect();
        options.push(http);
        // Round robin: of two downloads that begin together each node has one.
        let gets = vec![(url("/long"), document.clone())];
        let downloads = [0, 1].map(|_| start_fetch(cluster.client(), gets.clone(), &options, TIMEOUT));
        let downloads = downloads.into_iter().map(|download| Ok(thread::spawn(download?)));
        let downloads: Vec<_> = downloads.collect::<Result<_>>()?;
        let before = received(&cluster)?;
        wait_until("downloads", PATIENCE, || received(&cluster), |bytes| *bytes > before + (10 << 20))?;
        cluster.kill_node(0)?;
        let ended: Vec<_> =
            downloads.into_iter().map(|download| download.join().expect("it does not panic")).collect();
        let (whole, cut): (Vec<_>, Vec<_>) = ended.into_iter().partition(|ended| ended.is_ok());
        assert_eq!((whole.len(), cut.len()), (1, 1), "{http}: {whole:?} {cut:?}");
        for error in cut {
            let error = error.expect_err("they have been sorted").to_string();
            println!("{http}: {error}");
            assert!(error.contains("the body ends after"), "{http}: {error}");
        }
        cluster.start_node(0)?;
        thread::sleep(Duration::from_millis(200));
        let mut connection = Connection::open(&cluster)?;
        assert_eq!(connection.status("get /1m")?, "200", "{http}");
        cluster.down()?;
    }
    Ok(())
}

/// Dead with its server or stopped in order, and back again, while the other node sends: on a connection that it has had
/// before, and on one that it has not.
#[test]
fn a_node_comes_back_during_downloads_of_another() -> Result {
    let moved = Plan { tls: Some(String::new()), ..Plan::default() };
    let own = Plan { policy: "fill", pools: vec![("web", vec![1, 0])], ..moved.clone() };
    for (plan, http, given) in [(moved, "--http1.1", 1), (own, "--http2", 0)] {
        let mut cluster = Cluster::start_with(plan)?;
        let small = Document::of(&cluster.lab, "/small")?;
        let document = add_long_document(&cluster.lab, "/img/long", 20)?;
        cluster.client().set_rate(Some(20_000_000))?;
        let to_service = to_service(&cluster, &cluster.lab.vip4().to_string());
        let mut options: Vec<&str> = to_service.iter().map(String::as_str).collect();
        options.push(http);
        let gets = vec![(url("/small"), small), (url("/img/long"), document)];
        let before = received(&cluster)?;
        let download = thread::spawn(start_fetch(cluster.client(), gets, &options, TIMEOUT)?);
        wait_until("a download", PATIENCE, || received(&cluster), |bytes| *bytes > before + (1 << 20))?;
        assert_eq!(crate::tls_status(&cluster, 0)?["given"], given, "{http}");
        cluster.kill_node(0)?;
        cluster.kill_server(0)?;
        cluster.start_server(0)?;
        cluster.start_node(0)?;
        cluster.stop_node(0)?;
        cluster.start_node(0)?;
        assert!(!download.is_finished(), "{http}: it was over before");
        cluster.client().set_rate(None)?;
        let responses = download.join().expect("it does not panic")?;
        assert_eq!((responses[1].connects, &*responses[1].node), (0, "node1"), "{http}");
        cluster.down()?;
    }
    Ok(())
}
