//! Requests as no ordinary client sends them, and what never reaches a server.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, send};
use switchback_wire::packet::flags;

use super::client::{Connection, Packet, Segment, Stack, Syn};
use super::common::responses::Responses;
use super::common::{Cluster, PATIENCE, Plan, Result};
use super::{Growth, IMG_SMALL, QUIET, SMALL, port, show, side_by_side};

const GET: &[u8] = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
/// Beyond every window that a server has.
const FAR: u32 = 1 << 26;

#[test]
fn streams() -> Result {
    show(
        Plan::default(),
        &[
            ("keep-alive probes", keep_alive_probes),
            ("urgent data in a head", urgent_data_in_a_head),
            ("a head typed by hand", a_head_typed_by_hand),
            ("retransmissions with other boundaries", retransmissions_with_other_boundaries),
            ("fragments and IP options", fragments_and_ip_options),
        ],
    )
}

#[test]
fn windows_are_kept() -> Result {
    let limits = "head_timeout = \"500ms\"";
    show(Plan { limits, ..Plan::default() }, &[("data outside the window", data_outside_the_window)])
}

/// A connection is there, says the switch before the first request and the server after it (RFC 9293 section
/// 3.8.4).
fn keep_alive_probes(cluster: &Cluster, stack: &Stack) -> Result {
    for v6 in [false, true] {
        for syn in [Syn::USUAL, Syn::LITTLE] {
            let mut connection = stack.connect(v6, port(), syn)?;
            for idle in [false, true] {
                if idle {
                    connection.get("/small", SMALL)?;
                }
                let answered = Growth::of(cluster, "probe_answered")?;
                for garbage in [&b""[..], b"g"] {
                    connection.read_for(Duration::from_millis(50))?;
                    let seq = connection.next.wrapping_sub(1);
                    let probe = Packet { seq, data: garbage.to_vec(), ..connection.packet() };
                    connection.send(&probe)?;
                    let answer = connection.receive(Instant::now() + PATIENCE)?.ok_or("no answer")?;
                    assert_eq!((answer.flags, answer.ack), (flags::ACK, connection.next), "idle {idle}");
                    assert_eq!((answer.seq, answer.data.len()), (connection.expected, 0), "idle {idle}");
                }
                assert_eq!(answered.get()?, if idle { 0 } else { 2 });
            }
            connection.get("/img/small", IMG_SMALL)?;
            connection.close()?;
        }
    }
    Ok(())
}

/// The server reads it where it stands, as the switch does.
fn urgent_data_in_a_head(cluster: &Cluster, _: &Stack) -> Result {
    let urgent = Growth::of(cluster, "urgent")?;
    for vip in [cluster.lab.vip4().into(), cluster.lab.vip6().into()] {
        let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), PATIENCE)?;
        stream.set_nodelay(true)?;
        let mut responses = Responses::new(&stream, PATIENCE)?;
        for (path, body) in [("/small", SMALL), ("/img/small", IMG_SMALL), ("/small", SMALL)] {
            let (first, rest) = path.split_at(3);
            let (letter, rest) = rest.split_at(1);
            stream.write_all(format!("GET {first}").as_bytes())?;
            send(stream.as_raw_fd(), letter.as_bytes(), MsgFlags::MSG_OOB)?;
            stream.write_all(format!("{rest} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
            let response = responses.next(false)?.ok_or("no response")?;
            assert_eq!((response.status, &response.body[..]), (200, body), "{path}");
        }
    }
    assert!(urgent.get()? >= 6, "{}", urgent.get()?);
    Ok(())
}

/// A byte each quarter of a second, which is longer than TCP waits before it sends again.
fn a_head_typed_by_hand(cluster: &Cluster, _: &Stack) -> Result {
    thread::scope(|scope| {
        let typists = [false, true].map(|v6| {
            scope.spawn(move || -> Result {
                let vip = if v6 { cluster.lab.vip6().into() } else { cluster.lab.vip4().into() };
                let mut stream = cluster.client().tcp_connect(SocketAddr::new(vip, 80), PATIENCE)?;
                stream.set_nodelay(true)?;
                for byte in GET.chunks(1) {
                    stream.write_all(byte)?;
                    thread::sleep(Duration::from_millis(250));
                }
                let response = Responses::new(&stream, PATIENCE)?.next(false)?.ok_or("no response")?;
                assert_eq!((response.status, &response.body[..]), (200, SMALL));
                Ok(())
            })
        });
        typists.into_iter().try_for_each(|typist| typist.join().expect("it returns its errors"))
    })?;
    Ok(())
}

/// Every byte is read once, however often it comes and in whatever company.
fn retransmissions_with_other_boundaries(_: &Cluster, stack: &Stack) -> Result {
    let all = [
        GET,
        b"POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET /img/small HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        GET,
    ]
    .concat();
    // Length of the pieces, and how far behind each the next one begins.
    let rows: &[&[(usize, usize)]] = &[
        &[(1, 1)],
        &[(1, 1), (2, 2)],
        &[(5, 3)],
        &[(7, 7), (5, 3), (1, 1)],
        &[(100, 40), (1000, 1000)],
        &[(1000, 1000), (1, 1), (64, 10)],
        &[(3, 2), (200, 17), (1000, 1000)],
    ];
    let mut cases = Vec::new();
    for v6 in [false, true] {
        for syn in [Syn::USUAL, Syn::LITTLE] {
            cases.extend(rows.iter().flat_map(|row| [(v6, syn, *row, false), (v6, syn, *row, true)]));
        }
    }
    side_by_side(&cases, |&(v6, syn, row, backwards)| {
        let run = || -> Result {
            let mut connection = stack.connect(v6, port(), syn)?;
            say(&connection, &all, row, backwards)?;
            connection.wrote(&all);
            let expected = [(200, SMALL), (405, b""), (200, IMG_SMALL), (405, b""), (200, SMALL)];
            for (index, (status, body)) in expected.into_iter().enumerate() {
                let answered = connection.expect(status, body);
                answered.map_err(|error| format!("response {index}: {error}"))?;
            }
            connection.read_for(Duration::from_millis(20))?;
            assert!(connection.received.is_empty(), "more than was asked for");
            connection.close()
        };
        run().map_err(|error| format!("IPv6 {v6}, {syn:?}, {row:?}, {backwards}: {error}").into())
    })
}

fn say(connection: &Connection, all: &[u8], row: &[(usize, usize)], backwards: bool) -> Result {
    for &(len, step) in row {
        let mut starts: Vec<usize> = (0..all.len()).step_by(step).collect();
        if backwards {
            starts.reverse();
        }
        for start in starts {
            let part = &all[start..all.len().min(start + len)];
            connection.send_at(connection.next.wrapping_add(start as u32), part)?;
        }
    }
    Ok(())
}

/// Counted, and as if they had never come.
fn fragments_and_ip_options(cluster: &Cluster, stack: &Stack) -> Result {
    for v6 in [false, true] {
        let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
        // Before the first request, and when a node has the flow.
        for _ in 0..2 {
            let dropped = Growth::of(cluster, "drop_fragment")?;
            let packet = Packet { data: GET.to_vec(), ..connection.packet() };
            connection.send(&Packet { ip_options: true, ..packet.clone() })?;
            connection.send_fragments(&packet, 48)?;
            let heard = connection.read_for(QUIET)?;
            // The server may say once more what it has said, but nobody has got any of this.
            let said = |segment: &Segment| segment.ack == connection.next && !segment.has(flags::RST);
            assert!(connection.received.is_empty() && heard.iter().all(said), "{heard:?}");
            assert_eq!(dropped.get()?, 3, "IPv6 {v6}");
            connection.get("/small", SMALL)?;
        }
        connection.close()?;
    }
    Ok(())
}

/// Data that no window has room for, ahead or behind, changes nothing: anybody can send it who knows the
/// addresses.
fn data_outside_the_window(_: &Cluster, stack: &Stack) -> Result {
    let none: &[u8] = b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut cases = Vec::new();
    for v6 in [false, true] {
        for distance in [FAR, 1 << 30, FAR.wrapping_neg(), 5000u32.wrapping_neg()] {
            let states = ["a new connection", "in a head", "in a body", "idle"];
            cases.extend(states.map(|state| (v6, distance, state)));
        }
    }
    side_by_side(&cases, |&(v6, distance, state)| {
        let run = || -> Result {
            let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
            match state {
                "in a head" => connection.write(b"GET /sma")?,
                "in a body" => {
                    connection.write(b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc")?;
                }
                "idle" => connection.get("/small", SMALL)?,
                _ => {}
            }
            connection.send_at(connection.next.wrapping_add(distance), none)?;
            match state {
                "in a head" => connection.write(b"ll HTTP/1.1\r\nHost: a\r\n\r\n")?,
                "in a body" => connection.write(b"def")?,
                _ => connection.write(GET)?,
            }
            let (status, _) = connection.response()?;
            assert_eq!(status, if state == "in a body" { 405 } else { 200 });
            // Nor later, when a head would be too late.
            connection.read_for(Duration::from_millis(700))?;
            if connection.ended.is_some() {
                return Err(String::from_utf8_lossy(&connection.received).into_owned().into());
            }
            connection.get("/img/small", IMG_SMALL)?;
            connection.close()
        };
        run().map_err(|error| format!("{state}, {distance} away, IPv6 {v6}: {error}").into())
    })
}
