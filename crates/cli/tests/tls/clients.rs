//! Clients of many makes get, and give, the right bytes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::chromium::dump_dom_with;
use crate::common::document::block;
use crate::common::http::{Document, add_long_document, fetch};
use crate::common::{Cluster, PATIENCE, Plan, Result, build_go, load, text};
use crate::{
    NAME, PYTHON, TIMEOUT, authority, change_config, curl, openssl, plan, program, start, to_service, url,
};

/// `count` requests, of which every fourth is for a mebibyte. Each line has the file that must come, too.
fn list(cluster: &Cluster, count: usize) -> Result<PathBuf> {
    let files = cluster.lab.directory().join("documents");
    let path = |index: usize| if index % 4 == 3 { "/1m" } else { "/small" };
    let line = |index| format!("GET {} {}{}\n", url(path(index)), files.display(), path(index));
    let list = cluster.lab.directory().join("gets");
    fs::write(&list, (0..count).map(line).collect::<String>())?;
    Ok(list)
}

/// A client program fetches a list; it is told the VIP, the authority's file and the list.
fn served(client: &[&str]) -> Result {
    const COUNT: usize = 40;
    let cluster = start(2, "")?;
    let (vip, authority, list) =
        (cluster.lab.vip4().to_string(), authority(&cluster), list(&cluster, COUNT)?);
    let words = [client, &[&vip, &authority, text(&list)]].concat();
    let said = cluster.client().run_within(TIMEOUT, words)?.success()?;
    assert_eq!(said.trim(), COUNT.to_string());
    cluster.down()
}

#[test]
fn openssl_with_every_cipher_suite() -> Result {
    const SUITES: [(&str, &str, &str); 6] = [
        ("-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"),
        ("-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"),
        ("-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"),
        ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ];
    let cluster = start(2, "")?;
    let documents = cluster.lab.directory().join("documents");
    let (vip, authority) = (cluster.lab.vip4(), authority(&cluster));
    let got = cluster.lab.directory().join("got");
    for (version, option, suite) in SUITES {
        for path in ["/small", "/1m"] {
            let request = format!("GET {path} HTTP/1.1\\r\\nHost: {NAME}\\r\\nConnection: close\\r\\n\\r\\n");
            let script = format!(
                "printf '{request}' | openssl s_client -connect {vip}:443 -servername {NAME} -CAfile {authority} \
                 -verify_return_error -brief -ign_eof {version} {option} {suite} > {}",
                got.display()
            );
            let output = cluster.client().run_within(TIMEOUT, ["sh", "-c", &script])?;
            assert!(output.stderr.contains(&format!("Ciphersuite: {suite}")), "{}", output.stderr);
            assert!(output.status.success(), "{}", output.stderr);
            let response = fs::read(&got)?;
            let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or("no response")?;
            assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"), "{suite}");
            assert!(
                response[end + 4..] == fs::read(format!("{}{path}", documents.display()))?,
                "{suite} {path}"
            );
        }
    }
    // What TLS 1.2 has besides is not spoken.
    let refused = openssl(&cluster, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"])?;
    assert!(refused.contains("alert handshake failure"), "{refused}");
    cluster.down()
}

#[test]
fn python_requests() -> Result {
    served(&[PYTHON, &program("fetch.py"), "requests"])
}

#[test]
fn python_httpx() -> Result {
    served(&[PYTHON, &program("fetch.py"), "httpx"])
}

fn served_node(which: &str) -> Result {
    served(&["env", "NODE_PATH=/usr/share/nodejs", "node", &program("fetch.js"), which])
}

#[test]
fn node_https() -> Result {
    served_node("https")
}

#[test]
fn node_http2() -> Result {
    served_node("http2")
}

#[test]
fn node_undici() -> Result {
    served_node("undici")
}

/// Builds the program that is a client.
pub fn go_client() -> Result<PathBuf> {
    build_go("go-tls-client", &program("go/main.go"))
}

#[test]
fn go_net_http() -> Result {
    let binary = go_client()?;
    for version in ["HTTP/1.1", "HTTP/2.0"] {
        served(&[text(&binary), version])?;
    }
    Ok(())
}

/// The page's script adds up the bytes of a mebibyte, each by its place.
#[test]
fn a_page_in_chromium() -> Result {
    const PAGE: &str = "<!DOCTYPE html><title>page</title><script>
        const request = new XMLHttpRequest();
        request.open('GET', '/1m', false);
        request.overrideMimeType('text/plain; charset=x-user-defined');
        request.send();
        const text = request.responseText;
        let sum = 0;
        for (let at = 0; at < text.length; at++) sum = (Math.imul(sum, 31) + (text.charCodeAt(at) & 255)) >>> 0;
        const protocol = performance.getEntriesByType('navigation')[0].nextHopProtocol;
        document.title = `${text.length} bytes, ${sum}, over ${protocol}`;
        </script>\n";
    let cluster = Cluster::start_with(Plan { server_extra: "types { text/html html; }", ..plan(2, "") })?;
    cluster.lab.add_document("page.html", PAGE.as_bytes())?;
    let large = fs::read(cluster.lab.directory().join("documents/1m"))?;
    let sum = large.iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    let expected = format!("<title>{} bytes, {sum}, over h2</title>", large.len());
    let resolve = format!("--host-resolver-rules=MAP {NAME} {}", cluster.lab.vip4());
    let profile = cluster.lab.directory().join("chromium");
    let options = ["--ignore-certificate-errors", &resolve];
    let dom = dump_dom_with(cluster.client(), text(&profile), &url("/page.html"), &options)?;
    assert!(dom.contains(&expected), "{expected} is not in {dom}");
    cluster.down()
}

fn mebibytes() -> usize {
    load(8, 100)
}

#[test]
fn curl_downloads() -> Result {
    let cluster = start(2, "")?;
    let document: Document = add_long_document(&cluster.lab, "/long", mebibytes())?;
    for http in ["--http1.1", "--http2"] {
        for (tls, vip) in
            [("1.2", cluster.lab.vip4().to_string()), ("1.3", format!("[{}]", cluster.lab.vip6()))]
        {
            let to_service = to_service(&cluster, &vip);
            let mut options: Vec<&str> = to_service.iter().map(String::as_str).collect();
            options.extend([http, "--tls-max", tls]);
            // The second is on the same connection.
            let gets = vec![(url("/long"), document.clone()); 2];
            let responses = fetch(cluster.client(), &gets, &options, TIMEOUT)?;
            let connects: Vec<u64> = responses.iter().map(|response| response.connects).collect();
            assert_eq!(connects, [1, 0], "{http} {tls}");
        }
    }
    cluster.down()
}

#[test]
fn curl_uploads() -> Result {
    let cluster = Cluster::start_with(Plan {
        server_extra: "dav_methods PUT; create_full_put_path on; client_max_body_size 0;",
        ..plan(1, "")
    })?;
    let file = cluster.lab.directory().join("upload");
    let cases: [&[&str]; 4] = [
        &["--http1.1", "-H", "Expect:"],
        &["--http1.1", "-H", "Expect: 100-continue"],
        &["--http1.1", "-H", "Transfer-Encoding: chunked"],
        &["--http2"],
    ];
    for (number, options) in cases.into_iter().enumerate() {
        let sent = block(number as u64 + 1).repeat(mebibytes());
        fs::write(&file, &sent)?;
        let path = format!("/upload-{number}");
        let said = ["--fail", "-T", text(&file), "-w", "%{response_code}", "-o", "/dev/null", &url(&path)];
        assert_eq!(curl(&cluster, &[options, &said].concat())?, "201", "{options:?}");
        let arrived = format!("{}/roots/node0{path}", cluster.lab.directory().display());
        assert!(fs::read(&arrived)? == sent, "{options:?}: {arrived} is not what was sent");
    }
    cluster.down()
}

#[test]
fn a_websocket() -> Result {
    const SERVER: &str = "location /echo {
        proxy_pass http://127.0.0.1:9000;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection upgrade;
    }";
    let cluster = Cluster::start_with(Plan { server_extra: SERVER, ..plan(1, "") })?;
    let mut echo = Command::new(PYTHON);
    echo.args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/websocket_echo.py"), "9000"]);
    let node = cluster.lab.node(0);
    let echo = node.spawn("echo", echo)?;
    node.wait_for_listeners(&echo, &[([127, 0, 0, 1], 9000).into()], PATIENCE)?;
    let (vip, authority) = (cluster.lab.vip4().to_string(), authority(&cluster));
    let words = [PYTHON, &program("websocket.py"), &vip, &authority];
    assert_eq!(cluster.client().run_within(TIMEOUT, words)?.success()?.trim(), "300");
    cluster.down()
}

/// The server hears of it by each way that there is, and does not believe what clients say.
#[test]
fn the_server_learns_the_address_of_the_client() -> Result {
    const SERVER: &str = "listen 127.0.0.1:81 proxy_protocol;
        location /client {
            return 200 \"$proxy_protocol_addr|$http_x_forwarded_for|$http_forwarded\";
        }";
    for said_by in ["proxy", "x-forwarded", "forwarded", "none"] {
        let lines = format!("client_address = \"{said_by}\"");
        let mut cluster = Cluster::prepare(Plan { server_extra: SERVER, ..plan(1, &lines) })?;
        if said_by == "proxy" {
            change_config(&cluster, "server = \"127.0.0.1:80\"", "server = \"127.0.0.1:81\"")?;
        }
        cluster.start_daemons()?;
        let client = cluster.client().ipv4();
        let expected = match said_by {
            "proxy" => format!("{client}|1.2.3.4|for=me"),
            "x-forwarded" => format!("|{client}|"),
            "forwarded" => format!("||for={client};host=\"{NAME}\";proto=https"),
            _ => "|1.2.3.4|for=me".to_owned(),
        };
        for http in ["--http1.1", "--http2"] {
            let lie = ["-H", "X-Forwarded-For: 1.2.3.4", "-H", "Forwarded: for=me"];
            // The second is on the same connection.
            let urls = [url("/client"), url("/client")];
            let said = curl(&cluster, &[&[http, "-w", "\n"], &lie[..], &[&urls[0], &urls[1]]].concat())?;
            assert_eq!(said.lines().collect::<Vec<_>>(), [&expected, &expected], "{said_by} {http}");
        }
        cluster.down()?;
    }
    Ok(())
}

/// Packets are most of what a short connection costs, so the ticket, the response and the end go out together.
#[test]
fn a_response_and_the_end_of_its_connection_are_one_packet() -> Result {
    let cluster = start(1, "")?;
    let script = program("packets.py");
    let (vip, authority) = (cluster.lab.vip4().to_string(), authority(&cluster));
    let said = cluster.client().run_within(TIMEOUT, [PYTHON, &script, &vip, &authority])?.success()?;
    let words: Vec<&str> = said.split_whitespace().collect();
    let [with_data, all, "True", "404", "True"] = words[..] else { panic!("{said}") };
    assert_eq!(with_data, "1", "{said}");
    // The request may have been acknowledged before the server answered.
    assert!(["1", "2"].contains(&all), "{said}");
    cluster.down()
}
