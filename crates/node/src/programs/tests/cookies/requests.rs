//! Requests in random packets to a server with a socket, which must read the client's data with the session names
//! restored in heads and nowhere else.

use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::time::{Duration, Instant};

use NodeCounter::*;
use sb_op::*;
use switchback_wire::session::Code;
use switchback_wire::*;

use super::super::bench::*;
use super::super::frames::*;
use super::{Stream, as_sent};

const STREAMS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(20);
/// CUT_TRIES of bpf/session_cookie.h.
const TRIES: u8 = 4;
/// Bytes that a client sends beyond what the server has read.
const WINDOW: usize = 6000;
/// Node code in the session cookie, which may be another node's than the flow's.
const NODE_CODE: &[u8; 3] = b"xyz";
/// Counters of which every forwarded packet moves one.
const FATES: [NodeCounter; 4] = [Forwarded, DropBehindGap, CookieWaited, Unread];

/// Starts of requests, and how far the switch reads each.
#[derive(Default)]
struct Requests {
    stream: Stream,
    starts: Vec<usize>,
    read: Vec<usize>,
}

impl Requests {
    /// Appends a request with cookies and without a body.
    fn get(&mut self) {
        self.starts.push(self.stream.bytes.len());
        self.stream.say(WITH_COOKIE);
        self.read.push(self.stream.bytes.len());
    }
}

fn add_cookies(random: &mut Random, stream: &mut Stream) {
    stream.say(random.pick(&["Cookie: ", "cookie:", "COOKIE: \t", "Cookie: "]));
    for pair in 0..1 + random.below(4) {
        if pair > 0 {
            stream.say(random.pick(&["; ", ";", "; \t", "; "]));
        }
        if random.one_in(2) {
            stream.name(&as_sent(*NODE_CODE));
            stream.say(random.pick(&["=1", "=", "=SBrewxyzSID=2", "=\"a b\""]));
            continue;
        }
        stream.say(random.pick(&[
            "a=1",
            "a=SBrewxyzSID=1",
            "SBrewxyzSI=1",
            "SBrewxyzSIDX=1",
            "SBrewxyzSID",
            "SBrewabcSID=1",
            "SBothxyzSID=1",
            "sbrewxyzsid=1",
            "LONGNAMESID=1",
            "SBSBrewxyzSID=1",
            "",
        ]));
    }
    stream.say("\r\n");
}

fn add_request(random: &mut Random, requests: &mut Requests) {
    requests.starts.push(requests.stream.bytes.len());
    let stream = &mut requests.stream;
    let body = random.pick(&["", "length", "chunks"]);
    stream.say(if body.is_empty() { "GET" } else { "POST" });
    stream.say(random.pick(&[" / HTTP/1.1\r\n", " /?Cookie: SBrewxyzSID=1 HTTP/1.1\r\n"]));
    stream.say(
        random.pick(&["Host: a\r\n", "Host: a\r\nX-Cookie: SBrewxyzSID=1\r\nCookie2: SBrewxyzSID=1\r\n"]),
    );
    for _ in 0..random.below(3) {
        add_cookies(random, stream);
    }
    let text = "GET / HTTP/1.1\r\nCookie: SBrewxyzSID=1\r\n\r\n".repeat(random.pick(&[1, 1, 2, 50]));
    let text = &text[random.below(20)..];
    let mut unread = 0;
    match body {
        "" => stream.say("\r\n"),
        "length" => {
            stream.say(&format!("Content-Length: {}\r\n\r\n{text}", text.len()));
            unread = text.len();
        }
        _ => {
            stream.say("Transfer-Encoding: chunked\r\n\r\n");
            let size = 1 + random.below(text.len());
            for chunk in text.as_bytes().chunks(size.max(text.len() / 20)) {
                let chunk = String::from_utf8_lossy(chunk);
                stream.say(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
            }
            stream.say(random.pick(&["0\r\n\r\n", "0\r\nX-Cookie: SBrewxyzSID=1\r\n\r\n"]));
        }
    }
    requests.read.push(stream.bytes.len() - unread);
}

/// A client that sends a stream to a server.
struct Sender<'a> {
    bench: &'a Bench,
    known: KnownFlow,
    origin: u32,
    session: sb_session,
    requests: &'a Requests,
    last: bool,
    read: Vec<u8>,
}

impl<'a> Sender<'a> {
    fn new(bench: &'a Bench, flow: sb_flow, origin: u32, requests: &'a Requests) -> Self {
        let known = KnownFlow { flow, seq: origin, ack: 5000, socket: None };
        let session = sb_session::new(REWRITTEN, Some(*NODE_CODE));
        Sender { bench, known, origin, session, requests, last: false, read: Vec::new() }
    }

    /// Number of the request that contains the byte, and the start of the next one.
    fn request_at(&self, at: usize) -> (usize, usize) {
        let starts = &self.requests.starts;
        let number = starts.iter().filter(|start| **start <= at).count();
        (number, starts.get(number).copied().unwrap_or(self.requests.stream.bytes.len()))
    }

    /// A handoff packet with part of a request.
    fn packet(&self, op: sb_op, part: Range<usize>) -> Vec<u8> {
        let Requests { starts, read, .. } = self.requests;
        let (number, next) = self.request_at(part.start);
        let (start, read) = (starts[number - 1], read[number - 1]);
        let (more, head) = match part.start {
            at if at == start => (if op == SB_OP_ADOPT { 0 } else { SB_HANDOVER_REQUEST }, read - start),
            at if at < read => (SB_HANDOVER_READ, 0),
            _ => (0, 0),
        };
        let known =
            KnownFlow { seq: self.origin.wrapping_add(part.start as u32), socket: None, ..self.known };
        let ends = if number == starts.len() && self.last { SB_HANDOVER_LAST } else { 0 };
        let flags = if part.start == start { ends | more } else { more };
        let option = sb_option {
            flags: flags as u8,
            ..known.option(op).with(|said: &mut sb_handover| {
                said.flow.origin = self.origin.to_be();
                said.flow.requests = (number as u16).to_be();
                said.flow.next = self.origin.wrapping_add(next as u32).to_be();
                said.flow.session = self.session;
                said.boundary = (head as u16).to_be();
            })
        };
        known.hand_over(option, &self.requests.stream.bytes[part])
    }

    fn adopt(&mut self, len: usize) {
        let len = len.min(self.request_at(0).1);
        let socket = self.bench.adopt(&self.packet(SB_OP_ADOPT, 0..len), &self.known.flow);
        socket.set_nonblocking(true).expect("a socket can be");
        self.known.socket = Some(socket);
    }

    /// Forwards a part as the switch does, split where requests begin, each not before the server has read the part of
    /// the previous one that the switch has read. Waits until all packets have been processed.
    fn forward(&mut self, mut part: Range<usize>) {
        let fates = |bench: &Bench| FATES.map(|counter| bench.counter(counter)).iter().sum::<u64>();
        while !part.is_empty() {
            let (number, next) = self.request_at(part.start);
            self.read();
            if number > 1 && self.read.len() < self.requests.read[number - 2] {
                return;
            }
            let end = part.end.min(next);
            let before = fates(self.bench);
            self.bench.send(&self.packet(SB_OP_FORWARD, part.start..end));
            wait_until("a packet has come", || fates(self.bench) > before);
            assert_eq!(fates(self.bench), before + 1, "a packet is counted once");
            part.start = end;
        }
    }

    fn read(&mut self) {
        let socket = self.known.socket.as_mut().expect("an adopted flow");
        match socket.read_to_end(&mut self.read) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("the connection ends: {other:?}"),
        }
    }

    /// End of the data whose changed names the node can remember.
    fn names_end(&self) -> usize {
        let code = SB_CODE_LEN as usize;
        let mut unread = self.requests.stream.names.iter().filter(|name| **name + code > self.read.len());
        unread.nth(SB_CHANGED_MAX as usize).copied().unwrap_or(self.requests.stream.bytes.len())
    }

    /// Length of the first part in an adoption, which the switch does not end within a name.
    fn first_part(&self, random: &mut Random, most: usize) -> usize {
        loop {
            let len = 1 + random.below(most.min(self.names_end()));
            let names = &self.requests.stream.names;
            if !names.iter().any(|name| (name + 1..=name + NAME.len()).contains(&len)) {
                return len;
            }
        }
    }

    /// The part that the client sends next.
    fn next_part(&self, random: &mut Random, most: usize) -> Range<usize> {
        let owned = self.bench.flow(&self.known.flow).expect("an adopted flow");
        let heard = owned.cookies.heard.wrapping_sub(self.origin) as usize;
        let end = self.names_end();
        // One more retransmission, and the name would be given up.
        if owned.cookies.restored.tries + 1 >= TRIES {
            return heard..(heard + 1 + random.below(most)).min(end);
        }
        let end = end.min(self.read.len() + WINDOW);
        let start = match random.below(4) {
            0 => heard,
            1 => self.read.len(),
            2 => self.requests.starts[random.below(self.requests.starts.len())],
            _ => self.read.len().saturating_sub(20) + random.below(end - self.read.len() + 20),
        };
        // Without new data, old data is sent again.
        let start =
            if (self.read.len().saturating_sub(20)..end).contains(&start) { start } else { self.read.len() };
        start..(start + 1 + random.below(most)).min(end)
    }
}

#[test]
fn names_are_restored_however_packets_come() {
    alone(|| {
        let bench = Bench::new();
        let seed = seed();
        let (mut names, mut packets) = (0, 0);
        for number in 0..STREAMS {
            println!("SWITCHBACK_FUZZ_SEED={seed}, stream {number}");
            let random = &mut Random(seed.wrapping_add(number as u64));
            let mut requests = Requests::default();
            (0..1 + random.below(6)).for_each(|_| add_request(random, &mut requests));
            let any = random.next() as u32;
            let origin = random.pick(&[any, any, 0u32.wrapping_sub(any % 1000)]);
            let flow = flow(random.one_in(2), 50_000 + number as u16, PORT);
            let mut sender = Sender::new(&bench, flow, origin, &requests);
            sender.last = random.one_in(2);
            let restored = bench.counter(CookieRestored);
            let most = random.pick(&[2, 10, 60, 400, 1400]);
            sender.adopt(sender.first_part(random, most));
            // The cut name may be another one.
            let missed = bench.counter(CookieMissed);
            let deadline = Instant::now() + PATIENCE;
            while sender.read.len() < requests.stream.bytes.len() {
                assert!(
                    Instant::now() < deadline,
                    "{} of {} bytes: {:?}",
                    sender.read.len(),
                    requests.stream.bytes.len(),
                    bench.flow(&flow)
                );
                let part = sender.next_part(random, most);
                sender.forward(part);
                packets += 1;
                sender.read();
            }
            let expected = requests.stream.changed(NAME, usize::MAX);
            assert_eq!(String::from_utf8_lossy(&sender.read), String::from_utf8_lossy(&expected));
            let counted = bench.counter(CookieRestored) - restored;
            assert_eq!((counted, bench.counter(CookieMissed)), (requests.stream.names.len() as u64, missed));
            names += counted;
        }
        let (waited, behind) = (bench.counter(CookieWaited), bench.counter(Unread));
        println!("{packets} packets and {names} names; {waited} waited, {behind} were behind a gap");
        assert!(waited > 50 && behind > 50);
    });
}

const FIRST: u32 = 1000;
const WITH_COOKIE: &str = "GET / HTTP/1.1\r\nHost: a\r\nCookie: SBrewxyzSID=1\r\n\r\n";

/// Description, session information of a flow's requests, and which of them arrive with the server's own name.
type SessionCase = (&'static str, &'static [(Code, Option<Code>)], &'static [bool]);

const XYZ: Option<Code> = Some(*NODE_CODE);
const NONE: (Code, Option<Code>) = ([0; 3], None);
const TOLD: [SessionCase; 9] = [
    ("told", &[(REWRITTEN, XYZ), (REWRITTEN, XYZ)], &[true, true]),
    ("not told", &[(REWRITTEN, None), (REWRITTEN, XYZ), (REWRITTEN, None)], &[false, true, false]),
    ("another node's", &[(REWRITTEN, Some(*b"abc")), (REWRITTEN, XYZ)], &[false, true]),
    ("of a pool that is not known", &[(*b"???", XYZ), (*b"???", XYZ)], &[false, false]),
    ("another pool's", &[(INSERTED, Some(OWN)), (INSERTED, XYZ)], &[false, false]),
    ("first without a session", &[NONE, (REWRITTEN, XYZ)], &[false, true]),
    ("first of a pool that is not known", &[(*b"???", XYZ), NONE, (REWRITTEN, XYZ)], &[false, false, true]),
    ("first another pool's", &[(INSERTED, Some(OWN)), (REWRITTEN, XYZ)], &[false, true]),
    ("in between without a session", &[(REWRITTEN, XYZ), NONE, (REWRITTEN, XYZ)], &[true, false, true]),
];

#[test]
fn the_switch_says_which_names_are_restored() {
    alone(|| {
        let bench = Bench::new();
        for (port, (name, sessions, restored)) in (50_000..).zip(TOLD) {
            let flow = flow(port % 2 == 0, port, PORT);
            let mut known = KnownFlow { flow, seq: FIRST, ack: 5000, socket: None };
            let len = WITH_COOKIE.len() as u32;
            for (number, ((pool, node), restored)) in (1u16..).zip(sessions.iter().zip(restored)) {
                let (op, begins) =
                    if number == 1 { (SB_OP_ADOPT, 0) } else { (SB_OP_FORWARD, SB_HANDOVER_REQUEST) };
                let option = sb_option {
                    flags: begins as u8,
                    ..known.option(op).with(|flow: &mut sb_flow_state| {
                        flow.origin = FIRST.to_be();
                        flow.requests = number.to_be();
                        flow.next = known.seq.wrapping_add(len).to_be();
                        flow.session = sb_session::new(*pool, *node);
                    })
                };
                let packet = known.hand_over(option, WITH_COOKIE.as_bytes());
                if number == 1 {
                    let socket = bench.adopt(&packet, &flow);
                    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket can have one");
                    known.socket = Some(socket);
                } else {
                    bench.send(&packet);
                }
                known.seq += len;
                let mut read = [0; WITH_COOKIE.len()];
                let all = known.socket.as_mut().expect("an adopted flow").read_exact(&mut read);
                assert!(all.is_ok(), "{name}: request {number} does not come");
                let expected = if *restored { "Cookie: LONGNAMESID=1" } else { "Cookie: SBrewxyzSID=1" };
                assert!(String::from_utf8_lossy(&read).contains(expected), "{name}: request {number}");
            }
        }
    });
}

/// The switch may have the pool's session configuration before the node.
#[test]
fn a_pool_may_become_known_later() {
    alone(|| {
        let bench = Bench::new();
        const LEN: usize = WITH_COOKIE.len();
        let starts = [0, LEN, 2 * LEN, 3 * LEN];
        let mut requests = Requests::default();
        starts.iter().for_each(|_| requests.get());
        let mut sender = Sender::new(&bench, flow(false, 50_000, PORT), FIRST, &requests);
        bench.forget_sessions();
        sender.adopt(LEN);
        sender.forward(LEN..LEN + 10);
        bench.keep_sessions();
        sender.forward(LEN + 10..2 * LEN);
        sender.forward(2 * LEN..3 * LEN);
        bench.forget_sessions();
        bench.keep_sessions();
        sender.forward(3 * LEN..4 * LEN);
        sender.read();
        let restored = |at: usize| sender.read[at..at + LEN].windows(8).any(|name| name == b"LONGNAME");
        assert_eq!(starts.map(restored), [false, false, true, true]);
    });
}

/// The client may be unable to send more before the packet has arrived.
#[test]
fn a_cut_name_is_given_up_at_last() {
    alone(|| {
        let bench = Bench::new();
        let mut requests = Requests::default();
        (0..2).for_each(|_| requests.get());
        let mut sender = Sender::new(&bench, flow(false, 50_000, PORT), FIRST, &requests);
        let cut = 2 * WITH_COOKIE.len() - "ID=1\r\n\r\n".len();
        sender.adopt(WITH_COOKIE.len());
        for tries in 1..=u64::from(TRIES) {
            sender.forward(WITH_COOKIE.len()..cut);
            sender.read();
            assert_eq!((sender.read.len(), bench.counter(CookieWaited)), (WITH_COOKIE.len(), tries));
        }
        sender.forward(WITH_COOKIE.len()..cut);
        sender.forward(cut..requests.stream.bytes.len());
        sender.read();
        let expected = [&WITH_COOKIE.replace("SBrewxyz", "LONGNAME"), WITH_COOKIE].concat();
        assert_eq!(String::from_utf8_lossy(&sender.read), expected);
        assert_eq!([CookieMissed, CookieRestored].map(|counter| bench.counter(counter)), [1, 1]);
    });
}
