//! What the handshake settles holds between client and server.

use std::time::{Duration, Instant};

use switchback_lab::Impairment;
use switchback_wire::packet::flags;

use super::client::{ECE, Packet, Stack, Syn};
use super::common::{Cluster, PATIENCE, Plan, Result};
use super::{IMG_SMALL, QUIET, SMALL, port, show, side_by_side};

const CE: u8 = 3;
const ECT_0: u8 = 2;

#[test]
fn options() -> Result {
    show(
        Plan::default(),
        &[
            ("every set of options", every_set_of_options),
            ("timestamps", timestamps),
            ("selective acknowledgments", selective_acknowledgments),
            ("congestion notification", congestion_notification),
        ],
    )
}

/// Every set of options is answered with what it has and nothing else, without timestamps with what its cookie has room for, and
/// every connection moves.
fn every_set_of_options(_: &Cluster, stack: &Stack) -> Result {
    let all: Vec<u32> = (0..64).collect();
    side_by_side(&all, |bits| {
        let bit = |index: u32| bits >> index & 1 == 1;
        let syn = Syn {
            mss: bit(0).then_some(1400),
            wscale: bit(1).then_some(8),
            sack: bit(2),
            timestamps: bit(3),
            ecn: bit(4),
        };
        let run = || -> Result {
            let mut connection = stack.socket(bit(5), port())?;
            let answer = connection.open(syn)?;
            let offers = (answer.option(3).is_some(), answer.option(4).is_some(), answer.option(8).is_some());
            let sack = syn.sack && (syn.timestamps || syn.mss.is_some());
            let scaled = syn.wscale.is_some() && (syn.timestamps || sack);
            assert_eq!(offers, (scaled, sack, syn.timestamps));
            let ecn = syn.ecn && syn.timestamps;
            assert_eq!((answer.option(2).is_some(), answer.has(ECE)), (true, ecn));
            connection.get("/small", SMALL)?;
            connection.get("/img/small", IMG_SMALL)?;
            connection.get("/small", SMALL)?;
            connection.close()
        };
        run().map_err(|error| format!("IPv6 {}, {syn:?}: {error}", bit(5)).into())
    })
}

/// Timestamps are the server's own, go on, and echo the client's; without, there are none.
fn timestamps(_: &Cluster, stack: &Stack) -> Result {
    for with in [false, true] {
        let mut connection = stack.connect(false, port(), Syn { timestamps: with, ..Syn::USUAL })?;
        let mut last = None;
        for path in ["/small", "/img/small", "/small"] {
            connection.write(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())?;
            let segments = connection.read_for(QUIET)?;
            assert!(segments.iter().any(|segment| !segment.data.is_empty()), "no response to {path}");
            for segment in segments {
                let Some((value, echo)) = segment.timestamps() else {
                    assert!(!with, "{segment:?}");
                    continue;
                };
                // The client's clock begins at a million milliseconds.
                assert!(with && (1_000_000..2_000_000).contains(&echo), "{segment:?}");
                let passed = last.map_or(0, |last: u32| value.wrapping_sub(last));
                assert!(passed < 60_000, "the clock jumps by {passed} ms: {segment:?}");
                last = Some(value);
            }
        }
        connection.close()?;
    }
    Ok(())
}

/// What came twice is reported where SACK was agreed on (RFC 2883), and a hole is filled with nothing else.
fn selective_acknowledgments(cluster: &Cluster, stack: &Stack) -> Result {
    // So that nothing merges packets on the way.
    let impaired =
        cluster.client().impair(Impairment { duplicate_permille: 1000, ..Impairment::default() })?;
    for sack in [false, true] {
        // Each packet of the upload comes twice to the switch.
        let mut connection = stack.connect(false, port(), Syn { sack, ..Syn::USUAL })?;
        connection.write(b"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 13000\r\n\r\n")?;
        connection.write(&[b'b'; 13000])?;
        let segments = connection.read_for(QUIET)?;
        let twice = segments.iter().filter(|segment| {
            segment
                .sack_blocks()
                .first()
                .is_some_and(|(from, _)| from.wrapping_sub(segment.ack).cast_signed() < 0)
        });
        assert_eq!(twice.count() > 0, sack, "{segments:?}");
        connection.expect(405, b"")?;
        connection.reset()?;
    }
    impaired.heal()?;
    let impaired = cluster.client().impair(Impairment::default())?;
    // The second packet of a response does not arrive; the client has what follows.
    let mut connection = stack.connect(true, port(), Syn::USUAL)?;
    connection.write(b"GET /1m HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let deadline = Instant::now() + PATIENCE;
    let mut beyond = Vec::new();
    while beyond.len() < 6 {
        let segment = connection.receive(deadline)?.ok_or("no data")?;
        match segment.data.len() {
            0 => {}
            _ if connection.received.is_empty() => connection.take(&segment),
            _ => beyond.push(segment),
        }
    }
    beyond.sort_by_key(|segment| segment.seq.wrapping_sub(connection.expected));
    let lost = beyond.remove(0);
    assert_eq!(lost.seq, connection.expected, "the first hole");
    let from = beyond[0].seq;
    for segment in &beyond {
        let to = segment.seq.wrapping_add(segment.data.len() as u32);
        let mut packet = connection.packet();
        packet.options.extend([1, 1, 5, 10]);
        packet.options.extend([from.to_be_bytes(), to.to_be_bytes()].concat());
        connection.send(&packet)?;
    }
    let mut again = Vec::new();
    let deadline = Instant::now() + Duration::from_millis(150);
    let has = beyond.last().map(|last| last.seq.wrapping_add(last.data.len() as u32)).ok_or("nothing")?;
    while let Some(segment) = connection.receive(deadline)? {
        if has.wrapping_sub(segment.seq).cast_signed() > 0 && !segment.data.is_empty() {
            again.push(segment.seq);
        }
    }
    assert_eq!(again, [lost.seq], "only the hole is filled");
    connection.reset()?;
    impaired.heal()?;
    Ok(())
}

/// A mark of congestion on the way to the server comes back, from the connection's second packet on; where it
/// was not agreed on, no packet says that it could carry one.
fn congestion_notification(_: &Cluster, stack: &Stack) -> Result {
    for v6 in [false, true] {
        for ecn in [false, true] {
            let mut connection = stack.connect(v6, port(), Syn { ecn, ..Syn::USUAL })?;
            connection.get("/small", SMALL)?;
            // Through XDP, through the L7 thread, and to another node.
            for path in ["/small", "/img/small"] {
                connection.tos = CE;
                connection.write(format!("GET {path} HTTP/1.1\r\nHost: a\r\n").as_bytes())?;
                connection.tos = ECT_0;
                connection.write(b"\r\n")?;
                let segments = connection.read_for(QUIET)?;
                let data: Vec<_> = segments.iter().filter(|segment| !segment.data.is_empty()).collect();
                assert!(!data.is_empty(), "no response");
                // Not all: what is sent again never is (RFC 3168 section 6.1.5).
                let capable = data.iter().any(|segment| segment.tos & CE != 0);
                let echoed = segments.iter().any(|segment| segment.has(ECE));
                assert_eq!(capable, ecn, "IPv6 {v6}, {path}");
                if path == "/small" {
                    assert_eq!(echoed, ecn, "IPv6 {v6}, {path}");
                }
                // CWR: the client has slowed down.
                connection.tos = 0;
                connection.send(&Packet { flags: flags::ACK | super::client::CWR, ..connection.packet() })?;
                connection.received.clear();
            }
            connection.close()?;
        }
    }
    Ok(())
}
