//! What the parser accepts, sent to servers: they see the same requests, or refuse.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use switchback_http::framing::{self, Followed};
use switchback_http::{Form, Limits, Progress, parse_head, path};

use super::cases::{bytes_of, made};
use super::servers::{KINDS, Says, Server};
use crate::common::{Result, load};

/// It comes behind each case, and is for another host and path than any.
const MARKER: &str = "GET /marker HTTP/1.1\r\nHost: marker\r\nConnection: close\r\n\r\n";
/// It comes before, where the case is the second request.
const FIRST: &str = "GET /first HTTP/1.1\r\nHost: first\r\n\r\n";
const TIMEOUT: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 16;
/// Cases that are tried with each server in `make test`.
const SAMPLE: usize = 150;

/// How the bytes of a case come.
#[derive(Clone, Copy, Debug)]
enum Way {
    Fresh,
    Second,
    Cut,
    ByteByByte,
}

const WAYS: [Way; 4] = [Way::Fresh, Way::Second, Way::Cut, Way::ByteByByte];

/// A request as the parser sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    host: Option<String>,
    /// The host is that of the target alone, which some servers do not look at.
    by_target: bool,
    readings: Vec<String>,
    len: usize,
    /// It asks for another protocol. Node.js answers it as a request of HTTP and reads no further.
    upgrades: bool,
}

/// The requests that the bytes are, and nothing else; None if they are refused, or not whole.
fn requests(mut bytes: &[u8]) -> Option<Vec<Seen>> {
    let limits = Limits::default();
    let mut requests = Vec::new();
    while !bytes.is_empty() {
        let Ok(Progress::Complete(head)) = parse_head(bytes, &limits) else { return None };
        let mut framing = head.body.framing(&limits);
        let Followed::Ends(body) = framing::requests().follow(&mut framing, &bytes[head.len..], false) else {
            return None;
        };
        let is_absolute = matches!(head.target.form, Form::Absolute { .. });
        requests.push(Seen {
            host: head.host.map(str::to_owned),
            by_target: is_absolute && head.header("host").is_none(),
            readings: path::readings(head.path()).into_iter().map(Into::into).collect(),
            len: head.len + body,
            upgrades: head.tunnel,
        });
        bytes = &bytes[head.len + body..];
    }
    Some(requests)
}

/// A response: its status, and what its server saw.
#[derive(Debug)]
struct Said {
    status: u16,
    saw: Option<(String, String)>,
}

/// Final responses in what a server sent. None has a text that looks like one.
fn responses(bytes: &[u8], says: Says) -> Vec<Said> {
    let mut said: Vec<Said> = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let line: String = line.iter().map(|byte| char::from(*byte)).collect();
        let line = line.trim_end_matches('\r');
        if let Some(status) = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok()) {
            if status >= 200 {
                said.push(Said { status, saw: None });
            }
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("x-saw")
            && let Some((host, path)) = value.trim_start().split_once('|')
            && let Some(last) = said.last_mut()
        {
            let path = match says {
                Says::Encoded => path.to_owned(),
                // A value's last blanks would be lost.
                Says::Decoded => encoded(path.strip_suffix('|').unwrap_or(path)),
            };
            last.saw = Some((host.to_owned(), path));
        }
    }
    said
}

/// A decoded path, so that it means the same encoded.
fn encoded(path: &str) -> String {
    let octet = |c: char| match c {
        '!'..='~' if !"%\"#<>?\\".contains(c) => c.to_string(),
        c => format!("%{:02X}", u32::from(c)),
    };
    path.chars().map(octet).collect()
}

/// Whether the server saw this request.
fn is_seen(request: &Seen, (host, path): &(String, String)) -> bool {
    let without_port = |host: &str| {
        let end = if host.ends_with(']') { None } else { host.rfind(':') };
        host[..end.unwrap_or(host.len())].trim_end_matches('.').to_ascii_lowercase()
    };
    let same_host = match &request.host {
        // A server's own name, or none.
        None => true,
        Some(wanted) => without_port(host) == without_port(wanted) || request.by_target && host.is_empty(),
    };
    let absolute = path.split_once("://").filter(|_| !path.starts_with('/'));
    let target = absolute.map_or(&**path, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    let target = if target.is_empty() { "/" } else { target };
    same_host && request.readings.contains(&path::normal(target).into_owned())
}

/// What is wrong with the answers to these requests, if anything is. A server may refuse what it is sent, but not the marker:
/// then it began to read it elsewhere.
fn disagreement(requests: &[Seen], said: &[Said], timed_out: bool) -> Option<String> {
    for (index, response) in said.iter().enumerate() {
        let is_last = index + 1 == said.len();
        let Some(request) = requests.get(index) else {
            return Some(format!("it saw one more: {response:?}"));
        };
        match &response.saw {
            Some(saw) if is_seen(request, saw) => {}
            None if request.readings == ["*"] => {}
            _ if index + 1 == requests.len() && request.len == MARKER.len() => {
                return Some(format!("it answered the marker so: {response:?}"));
            }
            _ if response.status >= 400 && is_last && !timed_out => return None,
            None if response.status >= 400 => {}
            saw => return Some(format!("it saw {saw:?} for {request:?}")),
        }
    }
    let reads_on = requests.iter().take(said.len()).all(|request| !request.upgrades);
    (timed_out && reads_on && said.len() < requests.len())
        .then(|| format!("{} answers, and silence", said.len()))
}

fn converse(server: &Server, case: &[u8], way: Way) -> Result<Option<String>> {
    let first = if let Way::Second = way { FIRST } else { "" };
    let bytes = [first.as_bytes(), case, MARKER.as_bytes()].concat();
    let requests = requests(&bytes).ok_or("only what is accepted is sent")?;
    let mut stream = TcpStream::connect(server.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut received = Vec::new();
    let mut timed_out = false;
    let mut rest = &bytes[..];
    for (index, request) in requests.iter().enumerate() {
        let (this, next) = rest.split_at(request.len);
        rest = next;
        // A server that has closed is found out when it is read from.
        let _ = match way {
            Way::ByteByByte => this.chunks(1).try_for_each(|byte| stream.write_all(byte)),
            Way::Cut => this.chunks(this.len() / 2 + 1).try_for_each(|half| stream.write_all(half)),
            Way::Fresh | Way::Second => stream.write_all(this),
        };
        let waits = !server.kind.pipelines || index == 0 && matches!(way, Way::Second);
        let is_enough = |received: &[u8]| waits && responses(received, server.kind.says).len() > index;
        if waits || index + 1 == requests.len() {
            timed_out |= !receive(&mut stream, &mut received, is_enough)?;
        }
    }
    let said = responses(&received, server.kind.says);
    Ok(disagreement(&requests, &said, timed_out))
}

/// Reads up to the end of the connection, or until it is enough; false if nothing more comes.
fn receive(
    stream: &mut TcpStream,
    received: &mut Vec<u8>,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<bool> {
    let mut buffer = [0; 16_384];
    while !is_enough(received) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(len) => received.extend_from_slice(&buffer[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                return Ok(true);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// SplitMix64, to choose cases by a number.
fn mixed(seed: u64, index: u64) -> u64 {
    let mut state = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The parser alone is asked, because it decides what the switch forwards, byte by byte as it came. Of what it accepts all is
/// sent, in every way, with `SWITCHBACK_LONG=1`; otherwise a sample, each case in one way.
#[test]
fn servers_see_the_requests_that_the_parser_sees() -> Result {
    let seed: u64 = std::env::var("SWITCHBACK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let is_long = load(false, true);
    let listed = super::cases()?.into_iter().map(|case| case.bytes());
    let all: Vec<Vec<u8>> = listed.chain(made()).collect();
    assert!(all.len() > 2000, "{} cases", all.len());
    let with_marker = |case: &[u8]| requests(&[case, MARKER.as_bytes()].concat());
    let mut accepted: Vec<Vec<u8>> = all.iter().filter(|case| with_marker(case).is_some()).cloned().collect();
    println!("{} cases, {} accepted, SWITCHBACK_SEED={seed}", all.len(), accepted.len());
    assert!(accepted.len() > 1000, "{} accepted", accepted.len());
    accepted.sort_by_cached_key(|case| case.iter().fold(seed, |sum, byte| mixed(sum, u64::from(*byte))));
    let tried: Vec<(Vec<u8>, Way)> = match is_long {
        true => accepted.iter().flat_map(|case| WAYS.map(|way| (case.clone(), way))).collect(),
        false => std::iter::zip(accepted, WAYS.into_iter().cycle()).take(SAMPLE).collect(),
    };
    let servers = thread::scope(|scope| {
        let starting: Vec<_> = KINDS
            .map(|kind| scope.spawn(move || Server::start(kind).map_err(|error| error.to_string())))
            .into();
        starting
            .into_iter()
            .map(|server| server.join().expect("no thread panics"))
            .collect::<std::result::Result<Vec<_>, _>>()
    })?;
    let next = Mutex::new(servers.iter().flat_map(|server| tried.iter().map(move |one| (server, one))));
    let work = || {
        let take = || next.lock().expect("nobody panics with it").next();
        let tries = std::iter::from_fn(take).filter_map(|(server, (case, way))| {
            let wrong = converse(server, case, *way).unwrap_or_else(|error| Some(error.to_string()))?;
            Some(format!("{}, {way:?}: {}\n    {wrong}", server.kind.name, case.escape_ascii()))
        });
        tries.collect::<Vec<_>>()
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics")).collect()
    });
    assert!(wrong.is_empty(), "{} disagreements\n{}", wrong.len(), wrong[..wrong.len().min(50)].join("\n"));
    Ok(())
}

/// A check of the checks: what differs is told.
#[test]
fn a_server_that_differs_is_found() {
    let requests = requests(&bytes_of(&format!(
        "POST /a//b HTTP/1.1\r\nHost: A.\r\nContent-Length: 1\r\n\r\nx{MARKER}"
    )));
    let requests = requests.expect("it is two requests");
    let told = |text: &str, timed_out| {
        disagreement(&requests, &responses(text.as_bytes(), Says::Encoded), timed_out)
    };
    let (first, marker) =
        ("HTTP/1.1 200 OK\r\nX-Saw: a:80|/a/%62\r\n\r\n", "HTTP/1.1 200 OK\r\nx-saw:marker|/marker\r\n\r\n");
    assert_eq!(told(&format!("HTTP/1.1 100 Continue\r\n\r\n{first}{marker}"), false), None);
    assert_eq!(told(first, false), None, "it closes");
    assert_eq!(told("HTTP/1.1 400 Bad\r\n\r\n", false), None, "it refuses");
    assert_eq!(told(&format!("HTTP/1.1 405 No\r\n\r\n{marker}"), false), None, "it refuses and goes on");
    assert!(told(&format!("{first}HTTP/1.1 400 Bad\r\n\r\n"), false).is_some(), "it begins elsewhere");
    assert!(told(first, true).is_some(), "it waits for more");
    assert!(told(&format!("{first}{first}"), false).is_some(), "it sees another request");
    assert!(told(&format!("{first}{marker}{marker}"), false).is_some(), "it sees one more");
    assert!(told(&format!("{}{marker}", first.replace("a:80", "b")), false).is_some(), "another host");
    assert!(told(&format!("{}{marker}", first.replace("%62", "c")), false).is_some(), "another path");
}
