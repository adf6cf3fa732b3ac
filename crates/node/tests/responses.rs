//! Whether the node knows when its server's responses are complete: each row is what a server writes, and a switch asks
//! for the flow before, in between and behind.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use common::flow::*;
use common::{Raw, Result};
use switchback_wire::{Seq, sb_op, sb_reason, sb_reason::*};

#[test]
fn agent_process() {
    common::agent_process();
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

struct Row {
    what: &'static str,
    requests: Vec<&'static [u8]>,
    /// Each is written when the client has acknowledged the one before.
    pieces: Vec<Vec<u8>>,
}

fn row(what: &'static str, requests: &[&'static [u8]], pieces: &[&str]) -> Row {
    let pieces = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
    Row { what, requests: requests.to_vec(), pieces }
}

fn every_byte(what: &'static str, requests: &[&'static [u8]], text: &str) -> Row {
    Row { pieces: text.bytes().map(|byte| vec![byte]).collect(), ..row(what, requests, &[]) }
}

fn rows() -> Vec<Row> {
    let long = "x".repeat(1 << 20);
    let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{long}", long.len());
    let chunks = format!("{CHUNKED}{:x}\r\n{long}\r\nA;a=b\r\n0123456789\r\n0\r\n\r\n", long.len());
    vec![
        row("one response", &[GET], &[OK]),
        row("no body", &[GET], &["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]),
        row("HTTP/1.0 with a length", &[GET], &["HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"]),
        row(
            "many writes",
            &[GET],
            &["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "abc", "def", "gh", "i"],
        ),
        row("chunks", &[GET], &[CHUNKED, "5\r\nhello\r\n", "00a;x=y\r\n0123456789\r\n", "0\r\n\r\n"]),
        row("split sizes", &[GET], &[CHUNKED, "1", "0\r", "\n0123456789abcd", "ef\r", "\n0", "\r\n", "\r\n"]),
        row("trailers", &[GET], &[CHUNKED, "1\r\nx\r\n0\r\nDigest: 1\r\n", "a: b\r\n", "\r\n"]),
        row("HEAD", &[HEAD], &["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"]),
        row("HEAD with chunks", &[HEAD], &[CHUNKED]),
        row("204", &[GET], &["HTTP/1.1 204 No Content\r\n\r\n"]),
        row("304 with a length", &[GET], &["HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"]),
        row(
            "100 and 103 first",
            &[GET],
            &["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n", OK],
        ),
        row("three in one write", &[GET; 3], &[&OK.repeat(3)]),
        row(
            "HEAD among others in one write",
            &[GET, HEAD, GET, HEAD],
            &[&[OK, CHUNKED, OK, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"].concat()],
        ),
        every_byte("every byte of two", &[GET, HEAD], &format!("{OK}{CHUNKED}")),
        every_byte("every byte of chunks", &[GET], &format!("{CHUNKED}5;a\r\nhello\r\n0\r\nb: c\r\n\r\n")),
        row("a long body", &[GET], &[&length]),
        row("long chunks", &[GET], &[&chunks]),
    ]
}

impl Row {
    fn run(&self, world: &World) -> Result<()> {
        let counts = || -> Result<[u64; 4]> {
            let [a, b, c, d] = ["responses", "busy", "released", "lost_track"].map(|name| world.count(name));
            Ok([a?, b?, c?, d?])
        };
        let [responses, busy, released, lost] = counts()?;
        let count = self.requests.len() as u64;
        let mut flow = world.flow()?;
        for request in &self.requests {
            flow.request(request)?;
        }
        assert_eq!(flow.release()?, (SB_OP_BUSY, 0), "before");
        let (last, pieces) = self.pieces.split_last().ok_or("no pieces")?;
        let (end, most) = last.split_last().ok_or("an empty piece")?;
        for piece in pieces.iter().map(Vec::as_slice).chain((!most.is_empty()).then_some(most)) {
            flow.serve(piece)?;
        }
        assert_eq!(flow.release()?, (SB_OP_BUSY, 0), "all but the last byte");
        assert_eq!(counts()?, [responses + count - 1, busy + 2, released, lost], "all but the last byte");
        flow.show(&[*end])?;
        flow.handoff.ack = flow.handoff.ack.wrapping_sub(1);
        assert_eq!(flow.release()?, (SB_OP_BUSY, 0), "not acknowledged");
        flow.handoff.ack = flow.handoff.ack.wrapping_add(1);
        assert_eq!(flow.release()?, (SB_OP_RELEASED, 0), "the end");
        assert_eq!(counts()?, [responses + count, busy + 3, released + 1, lost], "the end");
        Ok(())
    }
}

fn all_are_followed(v6: bool) -> Result<()> {
    let world = World::up(v6)?;
    for row in rows() {
        println!("{}", row.what);
        row.run(&world)?;
    }
    Ok(())
}

#[test]
fn a_flow_is_given_up_when_the_last_response_has_ended() -> Result<()> {
    all_are_followed(false)
}

#[test]
fn so_is_one_by_ipv6() -> Result<()> {
    all_are_followed(true)
}

#[test]
fn a_file_that_the_kernel_sends_is_followed() -> Result<()> {
    const LEN: usize = 300_000;
    let world = World::up(false)?;
    let mut flow = world.flow()?;
    flow.request(GET)?;
    flow.serve(format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n").as_bytes())?;
    let content: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
    let path = world.lab.directory().join("content");
    std::fs::write(&path, &content)?;
    let mut file = std::fs::File::open(&path)?;
    // Between these two, std::io::copy() is sendfile(2).
    flow.serve_by(&content, |mut server| std::io::copy(&mut file, &mut server).map(drop), true)?;
    assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
    assert_eq!((world.count("responses")?, world.count("lost_track")?), (1, 0));
    Ok(())
}

#[test]
fn what_is_sent_again_is_not_counted_again() -> Result<()> {
    let world = World::up(false)?;
    let mut flow = world.flow()?;
    flow.request(GET)?;
    let start = flow.handoff.ack;
    flow.show(OK.as_bytes())?;
    // The client says nothing, so its packet comes once more.
    world.sniffer.until(|packet| {
        flow.response_in(packet).is_some_and(|(_, view)| view.seq == Seq(start) && !view.is_empty())
    });
    flow.say(SB_OP_FORWARD, 0, &[])?;
    flow.request(GET)?;
    flow.serve(&OK.as_bytes()[..10])?;
    assert_eq!(flow.release()?, (SB_OP_BUSY, 0));
    flow.serve(&OK.as_bytes()[10..])?;
    assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
    assert_eq!((world.count("responses")?, world.count("lost_track")?), (2, 0));
    Ok(())
}

#[test]
fn a_server_that_answers_before_it_reads_keeps_the_flow() -> Result<()> {
    let world = World::up(false)?;
    let mut flow = world.flow()?;
    flow.hand_over(GET)?;
    flow.serve(OK.as_bytes())?;
    assert_eq!(flow.release()?, (SB_OP_BUSY, 0));
    flow.server().read_exact(&mut [0; GET.len()])?;
    assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
    Ok(())
}

/// A node that looks whether it can give a flow up must not keep anything of its response back.
#[test]
fn a_response_goes_on_while_a_switch_asks_for_the_flow() -> Result<()> {
    const LEN: usize = 4_000_000;
    let world = World::up(false)?;
    let mut flow = world.flow()?;
    flow.request(GET)?;
    let response =
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n").into_bytes(), vec![b'x'; LEN]].concat();
    let release = flow.handed_over(SB_OP_RELEASE, 0, &[]);
    let (raw, node) = (Raw::open(world.lab.switch(0))?, world.node().ipv4().into());
    let served = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !served.load(Ordering::Relaxed) {
                raw.send(node, &release).expect("the switch can send");
            }
        });
        let write =
            |mut server: &TcpStream| response.chunks(200).try_for_each(|piece| server.write_all(piece));
        let done = flow.serve_by(&response, write, true);
        served.store(true, Ordering::Relaxed);
        asking.join().expect("the switch can send");
        done
    })?;
    println!("asked {} times", world.count("busy")?);
    assert!(world.count("busy")? > 100);
    assert_eq!(
        ["muted", "lost_track", "responses"].map(|name| world.count(name).ok()),
        [Some(0), Some(0), Some(1)]
    );
    Ok(())
}

/// Where the end cannot be told, a response that has begun and is acknowledged is taken for a whole one.
#[test]
fn responses_that_cannot_be_followed_are_given_the_benefit_of_the_doubt() -> Result<()> {
    let rows = [
        ("ends with the connection", "HTTP/1.0 200 OK\r\n\r\nhello"),
        ("another protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nhello"),
        ("no HTTP", "hello"),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"),
        ("a contradiction", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx"),
        ("more than was asked for", &*OK.repeat(2)),
    ];
    let world = World::up(false)?;
    for (what, text) in rows {
        println!("{what}");
        let lost = world.count("lost_track")?;
        let mut flow = world.flow()?;
        flow.request(GET)?;
        assert_eq!(flow.release()?, (SB_OP_BUSY, 0), "nothing has been sent");
        flow.serve(text.as_bytes())?;
        assert_eq!(world.count("lost_track")?, lost + 1);
        flow.request(GET)?;
        assert_eq!(flow.release()?, (SB_OP_BUSY, 0), "nothing has been sent for the second request");
        flow.serve(OK.as_bytes())?;
        assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
        assert_eq!(world.count("lost_track")?, lost + 1, "track can be lost once");
    }
    Ok(())
}

struct Abort {
    what: &'static str,
    /// Requests before the one that is not complete.
    before: u16,
    /// What the server has sent.
    sent: String,
    acknowledged: bool,
    answer: (sb_op, sb_reason),
}

#[test]
fn a_request_that_is_not_complete_can_be_given_up() -> Result<()> {
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\n12345";
    const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    let row = |what, before, sent: &str, answer| Abort {
        what,
        before,
        sent: sent.to_owned(),
        acknowledged: true,
        answer,
    };
    let none = (SB_OP_RELEASED, SB_REASON_NONE);
    let responding = (SB_OP_RELEASED, SB_REASON_RESPONDING);
    let busy = (SB_OP_BUSY, SB_REASON_NONE);
    let rows = [
        row("nothing is sent", 0, "", none),
        row("an interim response", 0, CONTINUE, none),
        row("two", 0, &CONTINUE.repeat(2), none),
        Abort { acknowledged: false, ..row("an interim response is on its way", 0, CONTINUE, busy) },
        row("a byte of a response", 0, "H", responding),
        row("in the middle", 0, &OK[..OK.len() - 1], responding),
        row("behind an interim response", 0, &format!("{CONTINUE}{OK}")[..40], responding),
        row("a whole response", 0, OK, responding),
        row("one behind another's response", 1, OK, none),
        row("one behind another's, in the middle", 1, &format!("{OK}{CONTINUE}{}", &OK[..20]), responding),
        row("one behind another that has no response", 1, "", busy),
        row("one behind another's half of a response", 1, &OK[..OK.len() - 1], busy),
        row("no HTTP", 0, "hello", responding),
    ];
    let world = World::up(false)?;
    for row in rows {
        println!("{}", row.what);
        let aborted = world.count("aborted")?;
        let mut flow = world.flow()?;
        for _ in 0..row.before {
            flow.request(GET)?;
        }
        flow.request(POST)?;
        match (row.sent.is_empty(), row.acknowledged) {
            (true, _) => {}
            (_, true) => flow.serve(row.sent.as_bytes())?,
            (_, false) => flow.show(row.sent.as_bytes())?,
        }
        if !row.acknowledged {
            flow.handoff.ack = flow.handoff.ack.wrapping_sub(1);
        }
        let answer = (row.answer.0, row.answer.1 as u8);
        assert_eq!(flow.abort()?, answer);
        // Sent again, because the answer was lost.
        assert_eq!(flow.abort()?, answer, "the second time");
        assert_eq!(world.count("aborted")?, aborted + u64::from(row.answer.0 == SB_OP_RELEASED));
    }
    Ok(())
}
