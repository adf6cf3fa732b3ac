//! Ends of connections, and new ones in the place of old ones.

use std::time::Duration;

use switchback_wire::packet::flags;

use super::client::{Connection, Packet, Stack, Syn};
use super::common::{Cluster, PATIENCE, Plan, Result, wait_until};
use super::{IMG_SMALL, QUIET, SMALL, all_over, port, show, side_by_side};

const GET: &str = "GET /small HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &str = "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const HALF: &[u8] = b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhalf of it";

#[test]
fn ends_and_beginnings() -> Result {
    show(
        Plan { node_extra: vec![(0, "dav_methods PUT; lingering_close off;")], ..Plan::default() },
        &[
            ("a client that has said all gets its answer", a_client_that_has_said_all_gets_its_answer),
            ("reset in every state", reset_in_every_state),
            ("a forged reset ends nothing", a_forged_reset_ends_nothing),
            ("both close at once", both_close_at_once),
            ("a SYN on a live connection", a_syn_on_a_live_connection),
            ("a port again in TIME_WAIT", a_port_again_while_the_server_is_in_time_wait),
        ],
    )
}

/// Whoever has said all waits for the answer.
fn a_client_that_has_said_all_gets_its_answer(cluster: &Cluster, stack: &Stack) -> Result {
    for v6 in [false, true] {
        // FIN in the packet of the request, and behind it; on a new connection and on one that moves.
        let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
        connection.finish(GET.as_bytes())?;
        connection.expect(200, SMALL)?;
        connection.read_until("FIN", |c| c.ended == Some(flags::FIN))?;
        let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
        connection.get("/img/small", IMG_SMALL)?;
        connection.write(GET.as_bytes())?;
        connection.finish(b"")?;
        connection.expect(200, SMALL)?;
        connection.read_until("FIN", |c| c.ended == Some(flags::FIN))?;
        // In a head, which is then none: the switch says so. In a body: the server ends the connection.
        let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
        connection.write(b"GET /small HTT")?;
        connection.finish(b"P/1.1\r\nHo")?;
        connection.expect(400, b"")?;
        connection.read_until("FIN", |c| c.ended == Some(flags::FIN))?;
        connection.settle()?;
        let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
        connection.write(&[b"PUT ".as_slice(), &HALF[5..]].concat())?;
        connection.finish(b"")?;
        connection.read_until("an end", |c| c.ended.is_some())?;
        // Before any request: nobody has anything to say.
        let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
        connection.finish(b"")?;
        connection.read_until("an end", |c| c.ended.is_some())?;
        all_over(cluster, "half-closed")?;
    }
    Ok(())
}

/// Brings a connection into the state in which it is reset.
type Advance = fn(&mut Connection) -> Result;

const STATES: &[(&str, Advance)] = &[
    ("before any data", |_| Ok(())),
    ("in a head", |connection| connection.write(b"GET /sma")),
    ("in a body", |connection| connection.write(HALF)),
    ("in a response", |connection| {
        connection.window = 4000;
        connection.write(b"GET /1m HTTP/1.1\r\nHost: a\r\n\r\n")?;
        connection.read_until("a part", |c| c.received.len() > 1000)
    }),
    ("idle", |connection| connection.get("/small", SMALL)),
    ("after FIN, in a response", |connection| {
        connection.window = 4000;
        connection.finish(b"GET /1m HTTP/1.1\r\nHost: a\r\n\r\n")?;
        connection.read_until("a part", |c| c.received.len() > 1000)
    }),
    ("after both FINs", |connection| {
        connection.get("/small", SMALL)?;
        connection.close()
    }),
    ("after the server's FIN", |connection| {
        connection.write(LAST.as_bytes())?;
        connection.expect(200, SMALL)?;
        connection.read_until("FIN", |c| c.ended.is_some())
    }),
    ("in an answer of the switch", |connection| {
        connection.write(b"GET /small HTTP/1.1\n")?;
        connection.expect(400, b"")
    }),
];

/// All states, over IPv4 and IPv6, each with a port.
fn in_every_state(states: &[(&'static str, Advance)]) -> Vec<(bool, &'static str, Advance, u16)> {
    let over = |v6| states.iter().map(move |&(state, advance)| (v6, state, advance, port()));
    over(false).chain(over(true)).collect()
}

/// Whatever it was in, nothing is left of it, and its port can be used at once.
fn reset_in_every_state(cluster: &Cluster, stack: &Stack) -> Result {
    let cases = in_every_state(STATES);
    side_by_side(&cases, |&(v6, state, advance, port)| {
        let run = || -> Result {
            let mut connection = stack.connect(v6, port, Syn::USUAL)?;
            advance(&mut connection)?;
            connection.reset()
        };
        run().map_err(|error| format!("{state}, IPv6 {v6}: {error}").into())
    })?;
    all_over(cluster, "after RST")?;
    side_by_side(&cases, |&(v6, state, _, port)| {
        let run = || -> Result {
            let mut again = stack.connect(v6, port, Syn::USUAL)?;
            again.get("/img/small", IMG_SMALL)?;
            again.close()
        };
        run().map_err(|error| format!("again after {state}, IPv6 {v6}: {error}").into())
    })
}

/// RFC 5961 section 3: only a RST with exactly the next number ends a connection.
fn a_forged_reset_ends_nothing(_: &Cluster, stack: &Stack) -> Result {
    // A window's length away, and further.
    let distances = [1, 5000, 1 << 30, u32::MAX - 3];
    let cases: Vec<_> =
        STATES[..5].iter().flat_map(|state| distances.map(|distance| (state, distance))).collect();
    side_by_side(&cases, |&((state, advance), distance)| {
        let run = || -> Result {
            let mut connection = stack.connect(false, port(), Syn::USUAL)?;
            advance(&mut connection)?;
            let seq = connection.next.wrapping_add(distance);
            connection.send(&Packet { seq, flags: flags::RST, ..connection.packet() })?;
            go_on(&mut connection, state)?;
            connection.close()
        };
        run().map_err(|error| format!("{state}, {distance} away: {error}").into())
    })
}

fn both_close_at_once(cluster: &Cluster, stack: &Stack) -> Result {
    for v6 in [false, true] {
        let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
        connection.write(LAST.as_bytes())?;
        // The server's FIN is on its way; the client closes without having seen it.
        let deadline = std::time::Instant::now() + PATIENCE;
        while connection.ended.is_none() {
            let segment = connection.receive(deadline)?.ok_or("no FIN")?;
            connection.take(&segment);
        }
        let fin = Packet { flags: flags::ACK | flags::FIN, ..connection.packet() };
        connection.send(&Packet { ack: connection.expected.wrapping_sub(1), ..fin })?;
        connection.next = connection.next.wrapping_add(1);
        loop {
            let segment = connection.receive(deadline)?.ok_or("no ACK of the FIN")?;
            assert!(!segment.has(flags::RST), "{segment:?}");
            if segment.ack == connection.next {
                break;
            }
        }
        connection.acknowledge()?;
        all_over(cluster, "both closed")?;
        assert_eq!(connection.read_for(QUIET)?.iter().filter(|segment| segment.has(flags::RST)).count(), 0);
    }
    Ok(())
}

/// The SYN of a connection once more is a late copy; one with another number is a new connection.
fn a_syn_on_a_live_connection(_: &Cluster, stack: &Stack) -> Result {
    // At once, while the switch is busy with what came before; and when it has dealt with that.
    let pauses = [QUIET, Duration::ZERO];
    let states = in_every_state(&STATES[..5]).into_iter();
    let cases: Vec<_> = states.flat_map(|case| pauses.map(|pause| (case, pause))).collect();
    side_by_side(&cases, |&((v6, state, advance, _), pause)| {
        let run = || -> Result {
            let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
            advance(&mut connection)?;
            connection.read_for(pause)?;
            connection.send_syn()?;
            go_on(&mut connection, state)?;
            connection.get("/img/small", IMG_SMALL)?;
            connection.close()
        };
        run().map_err(|error| format!("a late copy, {state}, after {pause:?}, IPv6 {v6}: {error}"))?;
        let run = || -> Result {
            let mut connection = stack.connect(v6, port(), Syn::USUAL)?;
            advance(&mut connection)?;
            connection.read_for(pause)?;
            connection.window = u16::MAX;
            connection.open(Syn::USUAL)?;
            connection.get("/small", SMALL)?;
            connection.get("/img/small", IMG_SMALL)?;
            connection.close()
        };
        run()
            .map_err(|error| format!("a new connection, {state}, after {pause:?}, IPv6 {v6}: {error}").into())
    })
}

/// What the state needs for a response, which must come.
fn go_on(connection: &mut Connection, state: &str) -> Result {
    connection.window = u16::MAX;
    let status = match state {
        "in a body" => 405,
        _ => 200,
    };
    match state {
        "in a head" => connection.write(b"ll HTTP/1.1\r\nHost: a\r\n\r\n")?,
        "in a body" => connection.write(&[b'b'; 990])?,
        "in a response" => connection.acknowledge()?,
        _ => connection.write(GET.as_bytes())?,
    }
    connection.expect(status, b"")
}

/// The server has closed first, so its kernel keeps the connection's port for a minute.
fn a_port_again_while_the_server_is_in_time_wait(cluster: &Cluster, stack: &Stack) -> Result {
    const ROUNDS: u64 = 10;
    for v6 in [false, true] {
        let port = port();
        let before = cluster.node_counter(0, "cured")?;
        for round in 0..ROUNDS {
            let run = || -> Result {
                let mut connection =
                    stack.connect(v6, port, if round % 2 == 0 { Syn::USUAL } else { Syn::LITTLE })?;
                connection.write(LAST.as_bytes())?;
                connection.expect(200, SMALL)?;
                connection.read_until("FIN", |c| c.ended.is_some())?;
                connection.finish(b"")?;
                let words = ["ss", "-Htn", "state", "time-wait"];
                let waiting = || Ok(cluster.lab.node(0).run(words)?.success()?);
                wait_until("TIME_WAIT", PATIENCE, waiting, |shown| shown.contains(&format!(":{port}")))?;
                Ok(())
            };
            run().map_err(|error| format!("round {round}, IPv6 {v6}: {error}"))?;
        }
        let cured = cluster.node_counter(0, "cured")? - before;
        assert_eq!(cured, ROUNDS - 1, "IPv6 {v6}");
    }
    Ok(())
}
