//! Inserted cookies in the data that servers write.

use std::fs::File;
use std::io::{IoSlice, Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

use NodeCounter::*;
use nix::sys::socket::{MsgFlags, send};
use sb_op::*;
use switchback_wire::session::Code;
use switchback_wire::*;

use super::super::bench::*;
use super::super::frames::*;
use super::super::wire::{Client, Wire};

/// Time in which data would have been sent or read, if at all.
const A_MOMENT: Duration = Duration::from_millis(20);
const FIRST: u32 = 1000;
/// Holds back data until more is written; from linux/socket.h.
const MSG_MORE: i32 = 0x8000;

/// Session information of a request with a cookie for `node`, or without one.
fn session(node: Option<Code>) -> sb_session {
    sb_session::new(INSERTED, node)
}

fn head(body: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n").into_bytes()
}

/// The response with the cookie.
fn inserted(response: &[u8]) -> Vec<u8> {
    let at = response.windows(2).position(|end| end == b"\r\n").expect("a first line") + 2;
    [&response[..at], LINE, &response[at..]].concat()
}

/// Reads exactly the request.
fn read(mut server: &TcpStream, request: &[u8]) {
    let mut read = vec![0; request.len()];
    server.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket can have one");
    server.read_exact(&mut read).expect("the request");
    assert_eq!(read, request);
    server.set_read_timeout(Some(A_MOMENT)).expect("a socket can have one");
    assert!(server.read(&mut [0]).is_err(), "more than the request");
}

/// How a server writes the head and body of a response.
type Way = (&'static str, fn(&TcpStream, &[u8], &[u8]));

const WAYS: [Way; 5] = [
    ("in one piece", |mut server, head, body| server.write_all(&[head, body].concat()).expect("room")),
    ("head and body", |mut server, head, body| {
        server.write_all(head).expect("room");
        server.write_all(body).expect("room");
    }),
    ("its first line and the rest", |mut server, head, body| {
        let (line, rest) = head.split_at("HTTP/1.1 200 OK\r\n".len());
        server.write_all(line).expect("room");
        server.write_all(&[rest, body].concat()).expect("room");
    }),
    ("many pieces at once", |mut server, head, body| {
        let mut pieces: Vec<IoSlice> = head.chunks(9).chain(body.chunks(5000)).map(IoSlice::new).collect();
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            let written = server.write_vectored(left).expect("room");
            IoSlice::advance_slices(&mut left, written);
        }
    }),
    ("the body from a file", |mut server, head, body| {
        let path = std::env::temp_dir().join(format!("switchback-body-{}", std::process::id()));
        let mut file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).expect("a file");
        file.write_all(body).and_then(|()| file.rewind()).expect("a file");
        std::fs::remove_file(path).expect("it is there");
        server.write_all(head).expect("room");
        // With sendfile().
        std::io::copy(&mut file, &mut server).expect("room");
    }),
];

/// Lets the server write while the client acknowledges.
fn answer(
    client: &mut Client<'_>,
    way: fn(&TcpStream, &[u8], &[u8]),
    body: &[u8],
    has_cookie: bool,
) -> Vec<u8> {
    let plain = [&head(body.len())[..], body].concat();
    let expected = if has_cookie { inserted(&plain) } else { plain };
    let before = client.has();
    let server = client.server().try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(|| way(&server, &head(body.len()), body));
        client.wait_for(before + expected.len());
    });
    let stream = client.stream();
    assert_eq!(
        String::from_utf8_lossy(&stream[before..][..200.min(expected.len())]),
        String::from_utf8_lossy(&expected[..200.min(expected.len())])
    );
    assert!(stream[before..] == expected, "the body");
    stream
}

#[test]
fn a_response_gets_the_cookie_however_it_is_written() {
    alone(|| {
        let wire = Wire::new();
        let mut port = 50_000;
        for (name, way) in WAYS {
            for (v6, len) in [(false, 2), (true, 2), (false, 300_000), (true, 300_000)] {
                println!("{name}, {len} bytes, IPv6: {v6}");
                port += 1;
                let body: Vec<u8> = (0..len).map(|at: u32| b'a' + (at % 23) as u8).collect();
                let before = wire.bench.counter(CookieInserted);
                let mut client = Client::new(&wire, flow(v6, port, PORT), FIRST);
                client.adopt(session(None), REQUEST);
                assert_eq!(wire.bench.hooked(), 1);
                read(client.server(), REQUEST);
                answer(&mut client, way, &body, true);
                assert_eq!(wire.bench.hooked(), 0, "the rest goes its usual way");
                // Only a response to a request without a cookie gets one.
                for node in [Some(OWN), None, Some(OWN)] {
                    client.ask(session(node), REQUEST);
                    read(client.server(), REQUEST);
                    assert_eq!(wire.bench.hooked(), usize::from(node.is_none()));
                    answer(&mut client, way, &body, node.is_none());
                    assert_eq!(wire.bench.hooked(), 0);
                }
                assert_eq!(wire.bench.counter(CookieInserted), before + 2);
                client.look(|| false);
                assert_eq!(client.answers, [SB_OP_ADOPTED as u8]);
            }
        }
        assert_eq!(wire.bench.counter(CookieMissed), 0);
    });
}

/// Description, codes in requests before the first response, the server's writes, offsets of those that get the cookie,
/// and the number of missed insertions.
type Written = (&'static str, &'static [Option<Code>], &'static [&'static str], &'static [usize], u64);

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const WRITTEN: [Written; 12] = [
    ("with a cookie of this node", &[Some(OWN)], &[OK], &[], 0),
    ("with a cookie of another node", &[Some(*b"oth")], &[OK], &[0], 0),
    ("an interim response", &[None], &[CONTINUE, OK], &[1], 0),
    ("two interim responses", &[None], &[CONTINUE, "HTTP/1.1 103 E\r\nLink: x\r\n\r\n", OK], &[2], 0),
    ("an error", &[None], &["HTTP/1.1 500 E\r\nContent-Length: 0\r\n\r\n"], &[0], 0),
    ("two requests", &[None, None], &[OK, OK], &[0], 0),
    ("two requests at once", &[None, None], &["HTTP/1.1 204 N\r\n\r\nHTTP/1.1 204 N\r\n\r\n"], &[0], 0),
    ("two requests of which the second needs it", &[Some(OWN), None], &[OK, OK], &[0], 0),
    ("half of the first line", &[None], &["HTTP/1.1 200", " OK\r\nContent-Length: 2\r\n\r\nok"], &[], 1),
    ("a part of the version", &[None], &["HTTP", "/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], &[], 1),
    (
        "an endless first line",
        &[None],
        &[
            "HTTP/1.1 200 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\nContent-Length: 0\r\n\r\n",
        ],
        &[],
        1,
    ),
    ("no response", &[None], &["ERROR\r\n"], &[], 1),
];

#[test]
fn only_final_responses_to_requests_without_a_cookie_get_one() {
    alone(|| {
        let wire = Wire::new();
        for (port, (name, requests, writes, places, missed)) in (50_000..).zip(WRITTEN) {
            println!("{name}");
            let before = wire.bench.counter(CookieMissed);
            let mut client = Client::new(&wire, flow(port % 2 == 1, port, PORT), FIRST);
            client.adopt(session(requests[0]), REQUEST);
            requests[1..].iter().for_each(|node| client.ask(session(*node), REQUEST));
            read(client.server(), &REQUEST.repeat(requests.len()));
            let mut expected = Vec::new();
            for (number, text) in writes.iter().enumerate() {
                let text = text.as_bytes();
                client.server().write_all(text).expect("room");
                expected.extend(if places.contains(&number) { inserted(text) } else { text.to_vec() });
                client.wait_for(expected.len());
            }
            std::thread::sleep(A_MOMENT);
            client.look(|| false);
            assert_eq!(
                String::from_utf8_lossy(&client.stream()),
                String::from_utf8_lossy(&expected),
                "{name}"
            );
            assert_eq!(
                (wire.bench.hooked(), wire.bench.counter(CookieMissed) - before),
                (0, missed),
                "{name}"
            );
        }
    });
}

/// The socket comes before its data, and the switch may send the request again at any time.
#[test]
fn the_server_reads_the_whole_request_once() {
    alone(|| {
        let wire = Wire::new();
        let request = [b"POST / HTTP/1.1\r\nContent-Length: 3000\r\n\r\n", &[b'x'; 3000][..]].concat();
        for (port, cut) in (50_000..).zip([1, 40, 1400, request.len()]) {
            let mut client = Client::new(&wire, flow(port % 2 == 1, port, PORT), FIRST);
            let adopt = client.begin(SB_OP_ADOPT, session(None), &request, cut);
            client.known.socket = Some(wire.bench.adopt(&adopt, &client.known.flow));
            wire.bench.send(&adopt);
            for part in request[cut..].chunks(1400) {
                let part = client.more(session(None), part);
                wire.bench.send(&part);
                wire.bench.send(&part);
            }
            wire.bench.send(&adopt);
            read(client.server(), &request);
            answer(&mut client, WAYS[0].1, b"ok", true);
            wire.bench.send(&adopt);
            client.look(|| false);
            assert_eq!(client.answers, [SB_OP_ADOPTED as u8; 4], "one for each");
            assert_eq!((client.server().read(&mut [0]).is_err(), wire.bench.hooked()), (true, 0));
        }
        assert_eq!(
            [CookieInserted, CookieMissed, Adopted].map(|counter| wire.bench.counter(counter)),
            [4, 0, 4]
        );
    });
}

/// Any of the clones that adopt a flow may be lost.
#[test]
fn the_first_data_comes_with_the_next_copy_at_the_latest() {
    alone(|| {
        let wire = Wire::new();
        let mut client = Client::new(&wire, flow(false, 50_000, PORT), FIRST);
        let adopt = client.request(SB_OP_ADOPT, session(None), REQUEST);
        client.known.socket = Some(wire.bench.adopt(&adopt, &client.known.flow));
        let owned = wire.bench.flow(&client.known.flow).expect("an adopted flow");
        assert_eq!(owned.hooked, sb_hook::SB_HOOK_SET as u8);
        wire.bench.put(&client.known.flow, &sb_owned { hooked: sb_hook::SB_HOOK_WANTED as u8, ..owned });
        assert_eq!(wire.bench.ingress(&to_us(&adopt), 0).0, Verdict::Pass, "it is delivered");
        std::thread::sleep(A_MOMENT);
        client.look(|| false);
        assert_eq!(client.answers, [SB_OP_ADOPTED as u8; 2]);
        assert_eq!(wire.bench.flow(&client.known.flow), Some(owned));
    });
}

/// A late copy of a request after its response is no new request.
#[test]
fn a_delayed_copy_asks_for_no_cookie() {
    alone(|| {
        let wire = Wire::new();
        let mut client = Client::new(&wire, flow(false, 50_000, PORT), FIRST);
        client.adopt(session(Some(OWN)), REQUEST);
        answer(&mut client, WAYS[0].1, b"ok", false);
        let forward = client.request(SB_OP_FORWARD, session(None), REQUEST);
        wire.bench.send(&forward);
        answer(&mut client, WAYS[0].1, b"ok", true);
        wire.bench.send(&forward);
        assert_eq!(wire.bench.hooked(), 0);
        client.ask(session(Some(OWN)), REQUEST);
        answer(&mut client, WAYS[0].1, b"ok", false);
    });
}

/// Only data that was sent has been followed.
#[test]
fn a_status_line_within_a_response_is_not_a_response() {
    alone(|| {
        let wire = Wire::new();
        let mut client = Client::new(&wire, flow(false, 50_000, PORT), FIRST);
        client.adopt(session(Some(OWN)), REQUEST);
        let head = head(OK.len());
        send(client.server().as_raw_fd(), &head, MsgFlags::from_bits_retain(MSG_MORE)).expect("room");
        client.ask(session(None), REQUEST);
        assert_eq!((client.look(|| false), wire.bench.hooked()), (0, 1), "the head waits");
        client.server().write_all(OK.as_bytes()).expect("room");
        let first = [&head, OK.as_bytes()].concat();
        client.wait_for(first.len());
        assert_eq!(client.stream(), first);
        answer(&mut client, WAYS[0].1, b"ok", true);
    });
}

/// If responses cannot be followed, their starts are unknown.
#[test]
fn a_flow_that_is_no_longer_http_is_not_hooked() {
    alone(|| {
        let wire = Wire::new();
        let mut client = Client::new(&wire, flow(false, 50_000, PORT), FIRST);
        client.adopt(session(None), REQUEST);
        let switched = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
        client.server().write_all(switched).expect("room");
        client.server().write_all(b"HTTP/1.1 200 OK\r\n").expect("room");
        client.wait_for(switched.len() + 17);
        assert_eq!(wire.bench.hooked(), 0);
        assert_eq!([CookieInserted, CookieMissed].map(|counter| wire.bench.counter(counter)), [0, 1]);
    });
}

#[test]
fn a_closed_socket_is_not_hooked() {
    alone(|| {
        let wire = Wire::new();
        for (port, read_before) in [(50_000, true), (50_001, false)] {
            let mut client = Client::new(&wire, flow(port % 2 == 1, port, PORT), FIRST);
            client.adopt(session(None), REQUEST);
            assert_eq!(wire.bench.hooked(), 1);
            if read_before {
                read(client.server(), REQUEST);
            }
            client.known.socket = None;
            wait_until("it is gone", || wire.bench.hooked() == 0);
        }
    });
}

/// To a socket that listens for both versions, an IPv4 flow is an IPv6 one.
#[test]
fn a_listener_for_both_versions_inserts() {
    alone(|| {
        let wire = Wire::new();
        let listener = TcpListener::bind("[::]:81").expect("nobody listens there");
        for (port, v6) in [(50_000, false), (50_001, true)] {
            let mut client = Client::new(&wire, flow(v6, port, 81), FIRST);
            let adopt = client.request(SB_OP_ADOPT, session(None), REQUEST);
            wire.bench.send(&adopt);
            client.known.socket = Some(listener.accept().expect("a connection").0);
            read(client.server(), REQUEST);
            answer(&mut client, WAYS[1].1, b"ok", true);
            client.ask(session(Some(OWN)), REQUEST);
            answer(&mut client, WAYS[1].1, b"ok", false);
            assert_eq!(wire.bench.hooked(), 0);
        }
    });
}
