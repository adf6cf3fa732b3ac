//! The cases of crates/cli/tests/corpus.toml through the switch to real servers: what is accepted ends for switch and
//! server at the same byte, what is refused reaches no server. With many more, the parser is compared with ten kinds of servers.

#[path = "corpus/agreement.rs"]
mod agreement;
#[path = "corpus/cases.rs"]
mod cases;
mod common;
#[path = "corpus/servers.rs"]
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use common::responses::{End, Responses};
use common::{Cluster, PATIENCE, Plan, Result, wait_until};
use serde::Deserialize;
use switchback_http::Reject;
use switchback_lab::ServerKind;

const TIMEOUT: Duration = Duration::from_secs(8);
const AT_ONCE: usize = 16;

/// Cases after which a server closes the connection for its own reasons. That is no disagreement about where the next
/// request begins.
const ENDED_BY_SERVER: &[(ServerKind, &str, u16, &str)] = &[
    (ServerKind::Nginx, "chunked-among-blanks", 501, "a tab is part of a value"),
    (ServerKind::Nginx, "content-length-among-blanks", 400, "a tab is part of a value"),
    (ServerKind::Nginx, "host-lower-case-behind-blanks", 400, "a tab is part of a value"),
    (ServerKind::Nginx, "method-lower-case", 400, "methods are capital letters, - and _"),
    (ServerKind::Nginx, "method-of-odd-characters", 400, "methods are capital letters, - and _"),
    (ServerKind::Nginx, "options-asterisk", 400, "targets begin with a slash"),
    (ServerKind::Apache, "method-lower-case", 501, "methods are registered ones"),
    (ServerKind::Apache, "method-of-odd-characters", 501, "methods are registered ones"),
    (ServerKind::Apache, "host-with-empty-port", 400, "a colon has a port behind it"),
    (ServerKind::Apache, "host-with-semicolon", 400, "hosts are letters, digits, -, _ and dots"),
    (ServerKind::Caddy, "leading-empty-line", 400, "no empty line comes first"),
    (ServerKind::Caddy, "leading-empty-line-and-body", 400, "no empty line comes first"),
    (ServerKind::Caddy, "chunked-with-expect-100-continue", 200, "a body that was not asked for is not read"),
    (ServerKind::Caddy, "expect-100-continue-with-body", 200, "a body that was not asked for is not read"),
];

#[derive(Deserialize)]
struct Corpus {
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    bytes: String,
    refused: Option<String>,
}

impl Case {
    fn bytes(&self) -> Vec<u8> {
        cases::bytes_of(&self.bytes)
    }

    /// The client wants no further response.
    fn is_last(&self) -> bool {
        let head = self.bytes.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase();
        let connection =
            head.split("\r\n").find_map(|line| line.strip_prefix("connection:")).unwrap_or_default();
        connection.contains("close") || head.contains("http/1.0") && !connection.contains("keep-alive")
    }
}

fn cases() -> Result<Vec<Case>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus.toml");
    Ok(toml::from_str::<Corpus>(&std::fs::read_to_string(path)?)?.case)
}

/// What a test does with each case, many at once; returns what went wrong.
fn try_all(cases: &[&Case], attempt: impl Fn(&Case) -> Result + Sync) -> Vec<String> {
    let next = Mutex::new(cases.iter());
    let work = || {
        let take = || next.lock().expect("nobody panics with it").next();
        let tried = std::iter::from_fn(|| take().map(|case| (case, attempt(case))));
        tried.filter_map(|(case, tried)| Some(format!("{}: {}", case.name, tried.err()?))).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics")).collect()
    })
}

/// The marker is a request that follows at once, whose response cannot be mistaken.
struct Marker {
    path: &'static str,
    node: &'static str,
    body: Vec<u8>,
}

fn accepted_by(kind: ServerKind) -> Result {
    // The second marker is for another pool: there the switch itself has to find where it begins.
    let cluster = Cluster::start_with(Plan { servers: vec![kind, ServerKind::Nginx], ..Plan::default() })?;
    let markers = [
        Marker { path: "/small", node: "node0", body: vec![b'.'; 100] },
        Marker { path: "/img/small", node: "node1", body: vec![b'#'; 200] },
    ];
    let cases = cases()?;
    let accepted: Vec<&Case> = cases.iter().filter(|case| case.refused.is_none()).collect();
    assert!(accepted.len() > 50, "{} cases", accepted.len());
    let ended = Mutex::new(Vec::new());
    let failed = try_all(&accepted, |case| {
        for marker in &markers {
            if let Some(status) = converse(&cluster, case, marker)? {
                ended.lock().expect("nobody panics with it").push((case.name.clone(), status));
            }
        }
        Ok(())
    });
    let listed = ENDED_BY_SERVER.iter().filter(|(server, ..)| *server == kind);
    let listed: BTreeSet<_> = listed.map(|(_, name, status, _)| (name.to_string(), *status)).collect();
    // Once is enough: with the other marker the flow may move before the server gets to its FIN.
    let ended: BTreeSet<_> = ended.into_inner()?.into_iter().collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!(ended, listed, "what {kind:?} ends by itself");
    let status = cluster.switch_status()?;
    assert_eq!(status["dispatch"]["answered"], serde_json::json!({}), "{status:#}");
    cluster.down()
}

/// The case with a marker behind it. The status, if the server ends the connection without a response to the marker.
fn converse(cluster: &Cluster, case: &Case, marker: &Marker) -> Result<Option<u16>> {
    let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
    let mut stream = cluster.client().tcp_connect(vip, TIMEOUT)?;
    let behind =
        format!("GET {} HTTP/1.1\r\nHost: a\r\nX-Marker: 1\r\nConnection: close\r\n\r\n", marker.path);
    stream.write_all(&[case.bytes(), behind.into_bytes()].concat())?;
    let mut responses = Responses::new(&stream, TIMEOUT)?;
    let is_head = case.bytes.starts_with("HEAD ");
    let first = responses.next(is_head)?.ok_or("no response")?;
    // Without the field where a server answers before it looks at its configuration; that it is not the
    // switch is seen from what the switch counts.
    if first.field("X-Node").is_some_and(|node| node != "node0") {
        return Err(format!("answered by another: {first:?}").into());
    }
    // The last request is not the end where the flow moves before its server has closed.
    let Some(second) = responses.next(false).unwrap_or(None) else {
        // The kernel of a server that has closed resets the connection when the marker arrives later.
        let rest = responses.rest().map(|(rest, _)| rest).unwrap_or_default();
        if !rest.is_empty() {
            return Err(format!("a second response: {}", String::from_utf8_lossy(&rest)).into());
        }
        return Ok((!case.is_last()).then_some(first.status));
    };
    if second.status != 200 || second.field("X-Node") != Some(marker.node) || second.body != marker.body {
        return Err(format!("the marker for {} gets {second:?} after {first:?}", marker.node).into());
    }
    match responses.rest()? {
        (rest, End::Closed) if rest.is_empty() => Ok(None),
        rest => Err(format!("after the marker: {rest:?}").into()),
    }
}

#[test]
fn accepted_by_nginx() -> Result {
    accepted_by(ServerKind::Nginx)
}

#[test]
fn accepted_by_apache() -> Result {
    accepted_by(ServerKind::Apache)
}

#[test]
fn accepted_by_caddy() -> Result {
    accepted_by(ServerKind::Caddy)
}

/// The switch says why, closes, and counts; no server says a word.
#[test]
fn refused() -> Result {
    let cluster = Cluster::start()?;
    let cases = cases()?;
    let refused: Vec<&Case> = cases.iter().filter(|case| case.refused.is_some()).collect();
    assert!(refused.len() > 200, "{} cases", refused.len());
    let failed = try_all(&refused, |case| {
        let vip = SocketAddr::new(cluster.lab.vip4().into(), 80);
        let mut stream = cluster.client().tcp_connect(vip, TIMEOUT)?;
        stream.write_all(&case.bytes())?;
        let mut responses = Responses::new(&stream, TIMEOUT)?;
        let is_head = case.bytes.starts_with("HEAD ");
        let response = responses.next(is_head)?.ok_or("no response")?;
        let name = case.refused.as_deref().expect("they are refused");
        let reject = Reject::ALL.iter().find(|reject| reject.name() == name).ok_or("an unknown reason")?;
        let says_why = is_head || response.text().contains(&format!("Reason: {name}."));
        if response.status != reject.status() || !says_why || response.field("X-Node").is_some() {
            return Err(format!("{name} expected: {response:?}").into());
        }
        match responses.rest()? {
            (rest, End::Closed) if rest.is_empty() => Ok(()),
            rest => Err(format!("after the response: {rest:?}").into()),
        }
    });
    assert!(failed.is_empty(), "{failed:#?}");
    let mut expected = BTreeMap::new();
    for case in &refused {
        *expected.entry(case.refused.as_deref().expect("they are refused")).or_insert(0) += 1;
    }
    let status = cluster.switch_status()?;
    assert_eq!(status["dispatch"]["refused_requests"], serde_json::json!(expected));
    for node in 0..2 {
        assert_eq!(status["nodes"][node]["requests"], 0, "{status:#}");
        assert_eq!(cluster.node_counter(node, "adopted")?, 0);
    }
    wait_until("flows", PATIENCE, || cluster.flows(), |flows| *flows == 0)?;
    cluster.down()
}
