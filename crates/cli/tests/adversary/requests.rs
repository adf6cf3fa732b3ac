//! Requests for one pool that are to reach the other's servers: unread on a connection that looks finished, upgraded or
//! found again, or under a path that routes and servers read differently.

use switchback_wire::packet::flags;

use crate::client::{Connection, Packet, Stack, Syn};
use crate::common::{Cluster, Plan, Result, TLS_NAME, text};
use crate::victims::{Scene, plan};

/// Requests after which a connection may be over, or something else than HTTP/1.1. Of each it is for servers to say.
const LAST_ONES: [&str; 14] = [
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
    "HEAD /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close, keep-alive\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
    "GET /small HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
    "GET /small HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    "GET /small HTTP/1.0\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n",
    "GET /small HTTP/1.0\r\nHost: a\r\nConnection: keep-alivex\r\n\r\n",
];

/// A request for the second node's pool, with a name to be found in logs.
fn forbidden(name: &str) -> Vec<u8> {
    format!("GET /img/small?{name} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Neither server has had a request for the other's pool.
fn assert_kept_apart(cluster: &Cluster) -> Result {
    let lines = |node: usize, img: bool| -> Result<Vec<String>> {
        let log = cluster.server_log(node)?;
        // What is after the path is what the test says of the request.
        let wrong = log.lines().filter(|line| line.contains("/img/small?") == img && line.contains('?'));
        Ok(wrong.map(str::to_owned).collect())
    };
    let (first, second) = (lines(0, true)?, lines(1, false)?);
    assert!(first.is_empty() && second.is_empty(), "at the wrong servers: {first:#?} {second:#?}");
    Ok(())
}

/// Until the connection has ended, or enough has come for two responses.
fn read_out(connection: &mut Connection<'_>) -> Result {
    let heads = |received: &[u8]| received.windows(9).filter(|bytes| bytes == b"HTTP/1.1 ").count();
    connection
        .read_until("an end", |connection| connection.ended.is_some() || heads(&connection.received) > 1)?;
    connection.reset()
}

#[test]
fn nothing_is_unread_behind_what_looks_like_the_last_request() -> Result {
    let scene = Scene::start()?;
    let stack = Stack::new(&scene.cluster)?;
    for (index, first) in LAST_ONES.iter().enumerate() {
        // In the same packet, in the next one, and when the response is there.
        for (way, name) in ["joined", "behind", "later"].into_iter().enumerate() {
            let port = 30_000 + (index * 3 + way) as u16;
            let mut connection = stack.connect(false, port, Syn::USUAL)?;
            let second = forbidden(&format!("{index}-{name}"));
            match way {
                0 => connection.write(&[first.as_bytes(), &second].concat())?,
                1 => {
                    connection.write(first.as_bytes())?;
                    connection.write(&second)?;
                }
                _ => {
                    connection.write(first.as_bytes())?;
                    connection.read_until("a response", |connection| {
                        connection.received.windows(4).any(|bytes| bytes == b"\r\n\r\n")
                    })?;
                    connection.write(&second)?;
                }
            }
            read_out(&mut connection).map_err(|error| format!("{first:?}, {name}: {error}"))?;
            assert_kept_apart(&scene.cluster)?;
        }
    }
    drop(stack);
    scene.down()
}

/// A flow that is found again in the middle of a body is no tunnel.
#[test]
fn nothing_is_unread_behind_a_syn_of_ones_own() -> Result {
    let scene = Scene::start()?;
    let stack = Stack::new(&scene.cluster)?;
    for number in 0..8 {
        let mut connection = stack.connect(false, 31_000 + number, Syn::USUAL)?;
        let chunk = format!("400\r\n{}\r\n", "x".repeat(0x400));
        connection.write(
            format!(
                "PUT /own-{number} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                &chunk[..100]
            )
            .as_bytes(),
        )?;
        connection.settle()?;
        let seq = connection.next.wrapping_add(u32::from(number) << 28);
        connection.send(&Packet { seq, ack: 0, flags: flags::SYN, ..connection.packet() })?;
        connection.write(&chunk.as_bytes()[100..])?;
        let end = [b"0\r\n\r\n", &forbidden(&format!("own-{number}"))[..]].concat();
        connection.write(&end)?;
        // Refused, or ended, or answered: but by its own pool's server.
        read_out(&mut connection).map_err(|error| format!("SYN at {seq}: {error}"))?;
        assert_kept_apart(&scene.cluster)?;
    }
    drop(stack);
    scene.down()
}

/// What makes a kernel drop the first of two copies, when the switch has read it.
#[derive(Clone, Copy, Debug)]
enum Spoiled {
    /// Nothing: the second one follows at once.
    No,
    /// Timestamps from long ago (PAWS, RFC 7323 section 5).
    Timestamps,
    /// It acknowledges what has not been sent (RFC 9293 section 3.10.7.4).
    Acknowledgment,
}

/// Whatever became of the first copy, a server gets no other request in its place than one that the switch has read.
#[test]
fn no_second_copy_of_a_request_takes_the_place_of_the_first() -> Result {
    let mut scene = Scene::start()?;
    let stack = Stack::new(&scene.cluster)?;
    // A connection whose first copy was dropped takes seconds until it ends.
    let spoiled =
        [Spoiled::Timestamps, Spoiled::Acknowledgment, Spoiled::Timestamps, Spoiled::Acknowledgment];
    for (index, spoiled) in spoiled.into_iter().chain([Spoiled::No; 40]).enumerate() {
        let mut connection = stack.connect(false, 33_000 + index as u16, Syn::USUAL)?;
        connection.get("/small", b"")?;
        let first = format!("GET /small?copy{index:04} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
        let second = format!("GET /img/small?{index:04} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
        assert_eq!(first.len(), second.len());
        let mut packet = Packet { data: first, flags: flags::ACK | flags::PSH, ..connection.packet() };
        match spoiled {
            Spoiled::No => {}
            Spoiled::Timestamps => packet.options[4..8].copy_from_slice(&900_000u32.to_be_bytes()),
            Spoiled::Acknowledgment => packet.ack = packet.ack.wrapping_add(100_000),
        }
        connection.send(&packet)?;
        connection.write(&second)?;
        connection
            .read_until("a response, or the end", |connection| {
                connection.ended.is_some() || connection.received.windows(4).any(|bytes| bytes == b"\r\n\r\n")
            })
            .map_err(|error| format!("{spoiled:?}: {error}"))?;
        connection.reset()?;
    }
    assert_kept_apart(&scene.cluster)?;
    drop(stack);
    scene.go_on()?;
    scene.down()
}

/// Which node answers a request, whose target nobody changes on the way; "-" if it is refused.
fn answered_by(cluster: &Cluster, scheme: &str, path: &str) -> Result<String> {
    let (vip, authority) = (cluster.lab.vip4(), cluster.lab.directory().join("shop.pem"));
    let port = if scheme == "https" { 443 } else { 80 };
    let (resolve, url) = (format!("{TLS_NAME}:{port}:{vip}"), format!("{scheme}://{TLS_NAME}{path}"));
    let words = ["curl", "-sS", "--max-time", "10", "--path-as-is", "--cacert", text(&authority)];
    let more = ["--resolve", &resolve, "-o", "/dev/null", "-w", "%{response_code} %header{x-node}", &url];
    let said = cluster.client().run([&words[..], &more].concat())?.success()?;
    let (status, node) = said.split_once(' ').ok_or("curl says nothing")?;
    Ok(if status == "200" { node } else { "-" }.to_owned())
}

/// RFC 3986 section 6.2.2: a path has one reading, for routes as for servers.
#[test]
fn no_spelling_of_a_path_reaches_the_other_pool() -> Result {
    const IMG: [&str; 11] = [
        "/img/small",
        "//img/small",
        "/img//small",
        "/./img/small",
        "/x/../img/small",
        "/x/%2e%2e/img/small",
        "/x/.%2E/img/small",
        "/%69mg/small",
        "/i%6Dg/small",
        "/img%2fsmall",
        "/img/./small",
    ];
    const WEB: [&str; 5] =
        ["/small", "/img/../small", "/img/%2e%2e/small", "/img/.%2e/small", "/img/x/../../small"];
    let mut scene = Scene::start()?;
    for scheme in ["http", "https"] {
        let rows = IMG.map(|path| (path, "node1")).into_iter().chain(WEB.map(|path| (path, "node0")));
        for (path, node) in rows {
            let answered = answered_by(&scene.cluster, scheme, path)?;
            let is_plain = path == "/img/small" || path == "/small";
            assert!(answered == node || answered == "-" && !is_plain, "{scheme} {path}: {answered}");
        }
        for path in
            ["/img/..%2f..%2fsmall", "/../small", "/img/../../small", "/small%00", "/img%5c..%5csmall"]
        {
            let answered = answered_by(&scene.cluster, scheme, path)?;
            assert!(answered == "-", "{scheme} {path}: {answered}");
        }
        scene.go_on()?;
    }
    scene.down()
}

/// RFC 9112 section 3.2.2: the target's authority counts, also where there is no `Host`.
#[test]
fn a_host_in_the_target_counts() -> Result {
    const ROUTE: &str = "[[service.route]]\nhost = \"img.example.com\"\npool = \"img\"\n";
    let scene = Scene::start_with(Plan { routes: ROUTE, ..plan() })?;
    let stack = Stack::new(&scene.cluster)?;
    let rows = ["HTTP/1.0\r\n\r\n", "HTTP/1.0\r\nHost: a\r\n\r\n", "HTTP/1.1\r\nHost: a\r\n\r\n"];
    for (index, rest) in rows.into_iter().enumerate() {
        let mut connection = stack.connect(false, 32_000 + index as u16, Syn::USUAL)?;
        connection.write(format!("GET http://img.example.com/small?target-{index} {rest}").as_bytes())?;
        connection.read_until("an answer", |connection| {
            !connection.received.is_empty() || connection.ended.is_some()
        })?;
        connection.reset()?;
        let log = scene.cluster.server_log(0)?;
        assert!(!log.contains("?target-"), "{rest:?} is served by the host's other pool");
    }
    drop(stack);
    scene.down()
}
