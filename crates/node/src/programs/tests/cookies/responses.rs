//! Random packets of responses through the egress program. In a test run a packet has no socket, so nobody knows what
//! has been acknowledged: after SB_CHANGED_MAX names all others stay as they are.

use NodeCounter::*;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::session::rewritten;
use switchback_wire::*;

use super::super::bench::*;
use super::super::frames::*;
use super::{Stream, add_response};

const STREAMS: usize = 600;
const MOST: usize = SB_CHANGED_MAX as usize;
/// CUT_TRIES of bpf/session_cookie.h.
const TRIES: u8 = 4;
const COUNTERS: [NodeCounter; 3] = [CookieRewritten, CookieMissed, CookieWaited];

/// A flow in a pool whose server's cookie is rewritten, with so many requests that have no response.
fn asked(start: u32, requests: u16) -> sb_owned {
    let session = sb_session::new(REWRITTEN, Some(OWN));
    sb_owned {
        followed: start,
        requests,
        state: sb_ownership::SB_OWN_OPEN as u8,
        framing: idle(),
        cookies: sb_cookies { session, ..Default::default() },
        ..Default::default()
    }
}

/// What the client has got of a stream.
struct Client {
    got: Vec<Option<u8>>,
}

impl Client {
    fn new(len: usize) -> Self {
        Client { got: vec![None; len] }
    }

    fn take(&mut self, at: usize, data: &[u8]) {
        for (place, byte) in self.got[at..at + data.len()].iter_mut().zip(data) {
            assert!(place.is_none_or(|before| before == *byte), "what is sent again differs, at {at}");
            *place = Some(*byte);
        }
    }

    fn missing(&self) -> Option<usize> {
        self.got.iter().position(Option::is_none)
    }
}

/// What differs between a packet before and after the program is data and its checksum, which stays right.
fn check_packet(frame: &[u8], out: &[u8]) -> TcpView {
    let view = TcpView::parse(&frame[14..]).expect("a TCP packet");
    let headers = |frame: &[u8]| {
        let mut headers = frame[..14 + view.data].to_vec();
        headers[14 + view.tcp + 16..][..2].fill(0);
        headers
    };
    assert_eq!((out.len(), headers(out)), (frame.len(), headers(frame)), "headers");
    assert!(is_tcp_sealed(&out[14..]), "the checksum");
    view
}

/// Which part of the stream leaves next, when what is before `followed` has been seen.
fn next_part(
    random: &mut Random,
    client: &Client,
    (followed, most): (usize, usize),
    owned: &sb_owned,
) -> std::ops::Range<usize> {
    let len = client.got.len();
    let size = 1 + random.below(most);
    // One more and the name would be given up.
    let must_go_on = owned.cookies.rewritten.tries + 1 >= TRIES;
    let start = match client.missing() {
        _ if must_go_on => followed,
        Some(missing) if followed == len => missing - random.below(missing.min(50) + 1),
        _ if random.one_in(4) => followed - random.below(followed.min(200) + 1),
        _ => followed,
    };
    start..(start + size).min(len)
}

#[test]
fn names_are_rewritten_however_packets_are_cut_and_sent_again() {
    alone(|| {
        let bench = Bench::new();
        let seed = seed();
        let (mut swallowed, mut packets) = (0, 0);
        for number in 0..STREAMS {
            println!("SWITCHBACK_FUZZ_SEED={seed}, stream {number}");
            let random = &mut Random(seed.wrapping_add(number as u64));
            let key = flow(random.one_in(2), 40_000, PORT);
            let any = random.next() as u32;
            let start = random.pick(&[any, any, 0u32.wrapping_sub(any % 500), (1 << 31) - any % 500]);
            let mut stream = Stream::default();
            let responses = 1 + random.below(4);
            (0..responses).for_each(|_| add_response(random, &mut stream, NAME));
            bench.put(&key, &asked(start, responses as u16));
            let before = COUNTERS.map(|counter| bench.counter(counter));
            let mut client = Client::new(stream.bytes.len());
            let most = random.pick(&[1, 3, 20, 100, 1400]);
            let mut waited = 0;
            while client.missing().is_some() {
                let owned = bench.flow(&key).expect("it stays");
                let followed = owned.followed.wrapping_sub(start) as usize;
                let part = next_part(random, &client, (followed, most), &owned);
                let seq = start.wrapping_add(part.start as u32);
                let stamped = random.one_in(2);
                let frame = response(&key, (seq, 1), flags::ACK, stamped, &stream.bytes[part.clone()]);
                let (verdict, out) = bench.egress(&frame);
                packets += 1;
                if verdict != Verdict::Next {
                    assert!(matches!(verdict, Verdict::Redirect | Verdict::Drop), "{verdict:?}");
                    waited += 1;
                    continue;
                }
                let view = check_packet(&frame, &out);
                client.take(part.start, &out[14 + view.data..]);
            }
            let got: Vec<u8> = client.got.iter().flatten().copied().collect();
            let expected = stream.changed(&rewritten(REWRITTEN, OWN), MOST);
            assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected));
            let after = COUNTERS.map(|counter| bench.counter(counter));
            let moved: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
            let names = stream.names.len();
            assert_eq!(moved, [names.min(MOST) as u64, names.saturating_sub(MOST) as u64, waited]);
            let owned = bench.flow(&key).expect("it stays");
            assert_eq!(owned.responses, owned.requests, "the responses are followed");
            swallowed += waited;
        }
        println!("{packets} packets, of which {swallowed} had to be sent again");
        assert!(swallowed > STREAMS as u64 / 2);
    });
}

const BEGINNING: &[u8] = b"HTTP/1.1 200 OK\r\nSet-Cookie: LONGNAM";
const REST: &[u8] = b"ESID=1\r\nContent-Length: 0\r\n\r\n";

/// Client and server may not be able to go on before the packet has arrived.
#[test]
fn a_cut_name_is_given_up_at_last() {
    alone(|| {
        let bench = Bench::new();
        let key = flow(false, 40_000, PORT);
        bench.put(&key, &asked(100, 1));
        let beginning = response(&key, (100, 1), flags::ACK, false, BEGINNING);
        for _ in 0..TRIES {
            assert_eq!(bench.egress(&beginning).0, Verdict::Redirect);
        }
        assert_eq!(bench.egress(&beginning), (Verdict::Next, beginning));
        let rest = response(&key, (100 + BEGINNING.len() as u32, 1), flags::ACK, false, REST);
        assert_eq!(bench.egress(&rest), (Verdict::Next, rest));
        let counted =
            [CookieWaited, CookieMissed, CookieRewritten, Responses].map(|counter| bench.counter(counter));
        assert_eq!(counted, [u64::from(TRIES), 1, 0, 1]);
    });
}

/// Nothing comes behind a server's end.
#[test]
fn a_server_may_end_in_the_middle_of_a_name() {
    alone(|| {
        let bench = Bench::new();
        for (port, end) in [(40_000, flags::FIN | flags::ACK), (40_002, flags::RST)] {
            let key = flow(false, port, PORT);
            bench.put(&key, &asked(100, 1));
            let frame = response(&key, (100, 1), end, false, BEGINNING);
            assert_eq!(bench.egress(&frame), (Verdict::Next, frame));
        }
        assert_eq!(bench.counter(CookieMissed), 2);
    });
}

#[test]
fn other_pools_responses_are_left_alone() {
    alone(|| {
        let bench = Bench::new();
        let (key, data) = (flow(true, 40_000, PORT), [BEGINNING, REST].concat());
        for pool in [[0; 3], INSERTED, *b"???"] {
            let mut owned = asked(100, 1);
            owned.cookies.session = sb_session::new(pool, Some(OWN));
            bench.put(&key, &owned);
            for part in [&data[..BEGINNING.len()], &data] {
                let frame = response(&key, (100, 1), flags::ACK, false, part);
                assert_eq!(bench.egress(&frame), (Verdict::Next, frame), "{pool:?}");
            }
        }
        assert_eq!(COUNTERS.map(|counter| bench.counter(counter)), [0; 3]);
    });
}
