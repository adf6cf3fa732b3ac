//! Responses of a server with a socket, whose kernel knows what was written and acknowledged.

use std::io::Write;
use std::time::{Duration, Instant};

use NodeCounter::*;
use switchback_wire::session::rewritten;
use switchback_wire::*;

use super::super::bench::*;
use super::super::frames::*;
use super::super::wire::{Client, Wire};
use super::{Stream, add_response};

/// Time in which data would have been sent, if at all.
const A_MOMENT: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);
const RESPONSES: usize = 6;
/// MSS in [`KnownFlow::option`].
const MSS: usize = 1400;
const BEGINNING: &[u8] = b"HTTP/1.1 200 OK\r\nSet-Cookie: LONG";
const REST: &[u8] = b"NAMESID=1\r\nContent-Length: 0\r\n\r\n";

fn session() -> sb_session {
    sb_session::new(REWRITTEN, Some(OWN))
}

/// The cut packet counts as unsent, and its data leaves with the data that follows.
#[test]
fn a_server_may_write_half_a_name() {
    alone(|| {
        let wire = Wire::new();
        for (port, v6) in [(50_000, false), (50_001, true)] {
            let mut client = Client::new(&wire, flow(v6, port, PORT), 1000);
            client.adopt(session(), REQUEST);
            client.server().write_all(BEGINNING).expect("room");
            std::thread::sleep(A_MOMENT);
            client.look(|| false);
            assert_eq!(client.has(), 0, "nothing leaves");
            client.server().write_all(REST).expect("room");
            client.wait_for(BEGINNING.len() + REST.len());
            let expected = [BEGINNING, REST].concat();
            let expected = String::from_utf8_lossy(&expected).replace("LONGNAME", "SBrewown");
            assert_eq!(String::from_utf8_lossy(&client.stream()), expected);
        }
        assert!(wire.bench.counter(CookieWaited) >= 2);
        assert_eq!([CookieRewritten, CookieMissed].map(|counter| wire.bench.counter(counter)), [2, 0]);
    });
}

#[test]
fn a_server_may_end_in_the_middle_of_a_name() {
    alone(|| {
        let wire = Wire::new();
        let mut client = Client::new(&wire, flow(false, 50_000, PORT), 1000);
        client.adopt(session(), REQUEST);
        client.server().write_all(BEGINNING).expect("room");
        client.server().shutdown(std::net::Shutdown::Write).expect("a socket can be");
        client.wait_for(BEGINNING.len());
        assert_eq!(client.stream(), BEGINNING);
        assert_eq!(wire.bench.counter(CookieMissed), 1);
    });
}

fn no_content() -> Stream {
    let mut stream = Stream::default();
    stream.say("HTTP/1.1 204 No Content\r\n\r\n");
    stream
}

/// A response with names after an interim one that is long enough for the packet's end to cut the first name.
fn cut_response(random: &mut Random) -> Stream {
    let mut response = Stream::default();
    while response.names.is_empty() {
        response = Stream::default();
        add_response(random, &mut response, NAME);
    }
    let mut stream = Stream::default();
    stream.say("HTTP/1.1 103 Early Hints\r\nX: ");
    let len = MSS - 1 - random.below(NAME.len()) - response.names[0] - stream.bytes.len() - "\r\n\r\n".len();
    stream.say(&"x".repeat(len));
    stream.say("\r\n\r\n");
    let start = stream.bytes.len();
    stream.names.extend(response.names.iter().map(|at| start + at));
    stream.bytes.extend_from_slice(&response.bytes);
    stream
}

/// Acknowledged names make room for others. Packets are as long as the path allows, so that their ends cut names.
#[test]
fn names_are_rewritten_whatever_is_lost() {
    alone(|| {
        let wire = Wire::new();
        ip("link set lo gso_max_segs 1");
        let seed = seed();
        println!("SWITCHBACK_FUZZ_SEED={seed}");
        let random = &mut Random(seed);
        let mut client = Client::new(&wire, flow(false, 50_000, PORT), 1000);
        let mut names = 0;
        for number in 0..2 * RESPONSES {
            if number == 0 {
                client.adopt(session(), REQUEST);
            } else {
                client.ask(session(), REQUEST);
            }
            // The kernel measures the round trip only with data that was sent once.
            let is_cut = number % 2 == 1;
            let stream = if is_cut { cut_response(random) } else { no_content() };
            names += stream.names.len() as u64;
            let before = client.has();
            let end = before + stream.bytes.len();
            let mut unwritten = &stream.bytes[..];
            let deadline = Instant::now() + PATIENCE;
            while client.has() < end {
                assert!(Instant::now() < deadline, "{} of {end} bytes", client.has());
                if !unwritten.is_empty() {
                    let most = random.pick(&[20, unwritten.len(), unwritten.len()]).min(unwritten.len());
                    let len =
                        if number < 2 || random.one_in(2) { unwritten.len() } else { 1 + random.below(most) };
                    let (part, rest) = unwritten.split_at(len);
                    client.server().write_all(part).expect("room");
                    unwritten = rest;
                }
                if client.look(|| is_cut && random.one_in(16)) > 0 {
                    client.acknowledge();
                }
            }
            let expected = stream.changed(&rewritten(REWRITTEN, OWN), usize::MAX);
            assert_eq!(
                String::from_utf8_lossy(&client.stream()[before..]),
                String::from_utf8_lossy(&expected)
            );
        }
        let counted = [CookieRewritten, CookieMissed].map(|counter| wire.bench.counter(counter));
        assert_eq!(counted, [names, 0]);
        println!("{names} names, {} packets had to be sent again", wire.bench.counter(CookieWaited));
        assert!(wire.bench.counter(CookieWaited) > 0);
    });
}
