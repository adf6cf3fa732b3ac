//! Every counter counts its event, once.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use NodeCounter::*;
use nix::sys::socket::{Backlog, listen};
use sb_op::*;
use switchback_wire::generation::Generation;
use switchback_wire::handoff::Peers;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::session::Code;
use switchback_wire::*;

use super::bench::*;
use super::clients;
use super::frames::*;
use super::resume;
use super::stalled::close_window;

const PATIENCE: Duration = Duration::from_secs(2);

/// Consecutive flows, none with traces of an earlier one.
struct Flows<'a> {
    bench: &'a Bench,
    port: u16,
}

impl Flows<'_> {
    /// A flow unknown to the node.
    fn next(&mut self) -> KnownFlow {
        self.port += 1;
        KnownFlow {
            flow: flow(self.port.is_multiple_of(2), self.port, PORT),
            seq: 1000,
            ack: 5000,
            socket: None,
        }
    }

    /// A flow whose first request is answered.
    fn answered(&mut self) -> KnownFlow {
        let mut known = self.next();
        known.adopt(self.bench);
        known.answer();
        self.bench.put(&known.flow, &known.owned());
        known
    }

    /// Injects a message of the switch about the flow, with this data.
    fn say(&self, known: &KnownFlow, op: sb_op, more: u32, data: &[u8]) {
        let mut option = known.option(op);
        option.flags |= more as u8;
        self.bench.ingress(&to_us(&known.hand_over(option, data)), 0);
    }

    /// A flow adopted for a pool with sessions, whose first request is answered.
    fn in_session(&mut self, pool: Code) -> KnownFlow {
        let mut known = self.next();
        known.adopt_in_session(self.bench, pool);
        known.answer();
        let owned = self.bench.flow(&known.flow).expect("an adopted flow");
        self.bench.put(&known.flow, &sb_owned { cookies: owned.cookies, ..known.owned() });
        known
    }

    fn say_in_session(&self, known: &KnownFlow, pool: Code, more: u32, data: &[u8]) {
        let mut option = known.option(SB_OP_FORWARD);
        option.flags |= more as u8;
        let option =
            option.with(|flow: &mut sb_flow_state| flow.session = sb_session::new(pool, Some(*b"n01")));
        self.bench.ingress(&to_us(&known.hand_over(option, data)), 0);
    }

    /// Sends the response to a second request.
    fn leave_in_session(&self, known: &KnownFlow, data: &[u8]) {
        let owned = self.bench.flow(&known.flow).expect("an adopted flow");
        let owned = sb_owned { responses: 0, framing: idle(), ..owned };
        self.leave(known, &owned, data);
    }

    /// Injects a question of the local switch about a flow that is not here.
    fn say_here(&mut self) {
        let known = self.next();
        self.bench.be_beside_switch(NODE[0]);
        let packet = known.hand_over_here(known.option(SB_OP_RELEASE), b"");
        self.bench.ingress(&to_us(&packet), 0);
        self.bench.be(NODE[0]);
    }

    /// An IPv4 flow, as the node's address is.
    fn of_ipv4(&mut self) -> KnownFlow {
        let known = self.next();
        KnownFlow { flow: flow(false, self.port, PORT), ..known }
    }

    /// Injects a direct packet of a client, whose network may have a shim.
    fn say_directly(&mut self, may: bool, more: u32, data: &[u8]) {
        let known = clients::open(self.bench, false, self.port + 1);
        self.port += 1;
        self.bench.know_clients(may, false);
        let packet = clients::direct(&known, &clients::key_of(&known), more, flags::ACK, data);
        self.bench.ingress(&to_us(&packet), 0);
    }

    fn say_of_answered(&mut self, op: sb_op, more: u32, data: &[u8]) {
        let known = self.answered();
        self.say(&known, op, more, data);
    }

    fn say_of_next(&mut self, op: sb_op, more: u32, data: &[u8]) {
        let known = self.next();
        self.say(&known, op, more, data);
    }

    /// Sends data of the server in the state `owned`.
    fn leave(&self, known: &KnownFlow, owned: &sb_owned, data: &[u8]) {
        self.bench.put(&known.flow, owned);
        let frame = response(&known.flow, (known.ack, known.seq), flags::ACK, false, data);
        self.bench.egress(&frame);
    }

    /// Sends two responses to a client that has asked ahead, for a switch that wants facts: of the first it is told.
    fn leave_for_switch(&mut self) {
        let known = KnownFlow { seq: 1000, ack: 5000, flow: flow(false, 1, PORT), socket: None };
        let switch_address = address_bytes(address(SWITCHES[0]));
        let owned = sb_owned { requests: 2, responses: 0, switch_address, ..known.owned() };
        self.leave(&known, &owned, &[RESPONSE, RESPONSE].concat());
    }

    /// Sends a failed response of a server that is judged.
    fn fail(&self) {
        let known = KnownFlow { seq: 1000, ack: 5000, flow: flow(false, 1, PORT), socket: None };
        self.bench.judge(known.flow.vip());
        let failed = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
        self.leave(&known, &sb_owned { responses: 0, ..known.owned() }, failed);
    }

    fn count(&mut self, counter: NodeCounter) {
        let bench = self.bench;
        match counter {
            Adopted => self.next().adopt(bench),
            Replayed => {
                let _egress = bench.attach_egress(LOOPBACK);
                bench.replay();
                self.of_ipv4().adopt(bench);
                bench.be(NODE[0]);
            }
            Repeated => {
                let mut known = self.next();
                let again = KnownFlow { socket: None, ..known };
                known.adopt(bench);
                drop(known.socket.take());
                self.say(&again, SB_OP_ADOPT, 0, REQUEST);
            }
            Forwarded => self.say_of_answered(SB_OP_FORWARD, SB_HANDOVER_REQUEST, REQUEST),
            Hidden => {
                bench.hide(true);
                bench.ingress(
                    &to_us(&segment(&self.next().flow, false, (Seq(1), Seq(1)), flags::SYN, None, b"")),
                    0,
                );
                bench.hide(false);
            }
            ToldHere => self.say_here(),
            DropRingFull => {
                while bench.counter(DropRingFull) == 0 {
                    self.say_here();
                }
            }
            Released => self.say_of_answered(SB_OP_RELEASE, 0, b""),
            Busy => {
                let known = self.answered();
                bench.put(&known.flow, &sb_owned { responses: 0, ..known.owned() });
                self.say(&known, SB_OP_RELEASE, 0, b"");
            }
            Remembered => {
                let mut known = self.answered();
                bench.forget(&known.flow);
                self.say(&known, SB_OP_FORWARD, SB_HANDOVER_REQUEST, REQUEST);
                known.socket.take();
            }
            Forgotten => {
                let known = self.answered();
                bench.forget(&known.flow);
                self.say(&known, SB_OP_RELEASE, 0, b"");
            }
            Unread => {
                let mut known = self.answered();
                let option = sb_option { flags: SB_HANDOVER_REQUEST as u8, ..known.option(SB_OP_FORWARD) };
                known.seq += 1;
                bench.ingress(&to_us(&known.hand_over(option, REQUEST)), 0);
            }
            NotTaken => {
                let known = self.answered();
                let owned = bench.flow(&known.flow).expect("an adopted flow");
                let read_us = now_us().wrapping_sub(3_000_000);
                bench.put(&known.flow, &sb_owned { read: known.seq + 1, read_us, ..owned });
                self.say(&known, SB_OP_FORWARD, 0, b"x");
            }
            DropRepeated => {
                let known = self.answered();
                let owned = bench.flow(&known.flow).expect("an adopted flow");
                bench.put(&known.flow, &sb_owned { read: known.seq + 1, read_us: now_us(), ..owned });
                self.say(&known, SB_OP_FORWARD, 0, b"x");
            }
            Aborted => {
                let known = self.answered();
                bench.put(&known.flow, &sb_owned { responses: 0, ..known.owned() });
                self.say(&known, SB_OP_RELEASE, SB_RELEASE_ABORT, b"");
            }
            Owned => self.say_of_answered(SB_OP_PROBE, 0, b""),
            Confirmed => {
                let mut known = self.answered();
                known.seq -= 1;
                let owned = bench.flow(&known.flow).expect("an adopted flow");
                bench.put(&known.flow, &sb_owned { origin: known.seq, ..owned });
                self.say(&known, SB_OP_CONFIRM, 0, b"\n");
            }
            Kept => self.say_of_next(SB_OP_KEEP, 0, REQUEST),
            Restored => {
                let known = self.next();
                self.say(&known, SB_OP_KEEP, 0, REQUEST);
                self.say(&known, SB_OP_RESTORE, 0, b"");
            }
            DropNotKept => self.say_of_next(SB_OP_RESTORE, 0, b""),
            Lacked => {
                let known = self.next();
                let generation = Generation::first(1).to_be();
                let option =
                    known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| flow.generation = generation);
                bench.ingress(&to_us(&known.hand_over(option, REQUEST)), 0);
            }
            Cured => {
                let mut known = self.answered();
                known.seq += 1 << 20;
                self.say(&known, SB_OP_ADOPT, 0, REQUEST);
            }
            RefusedQueueFull => {
                let (first, second) = (self.next(), self.next());
                let flow = flow(first.flow.client().is_ipv6(), self.port, PORT);
                let set = |backlog| {
                    let backlog = Backlog::new(backlog).expect("a small number");
                    listen(bench.listener(&flow), backlog).expect("it listens");
                };
                set(0);
                let adopted = bench.counter(Adopted);
                bench.send(&first.hand_over(first.option(SB_OP_ADOPT), REQUEST));
                self.wait_for(Adopted, adopted);
                self.say(&KnownFlow { flow, ..second }, SB_OP_ADOPT, 0, REQUEST);
                set(100);
            }
            RefusedNoListener => {
                let known = self.next();
                self.say(
                    &KnownFlow { flow: flow(false, self.port, PORT + 1), ..known },
                    SB_OP_ADOPT,
                    0,
                    REQUEST,
                );
            }
            RefusedNoNode => {
                let known = self.next();
                bench.send(&known.hand_over_to(0x1234, known.option(SB_OP_ADOPT), REQUEST));
            }
            RefusedDraining => {
                bench.set(NODE[0], true);
                self.say_of_next(SB_OP_ADOPT, 0, REQUEST);
                bench.set(NODE[0], false);
            }
            PassedOn => {
                let known = self.next();
                let known = KnownFlow { flow: flow(false, self.port, PORT + 1), ..known };
                let packet = known.hand_over_with(known.option(SB_OP_ADOPT), REQUEST, SECOND[0]);
                bench.ingress(&to_us(&packet), 0);
            }
            Hello => self.say_of_next(SB_OP_HELLO, 0, b""),
            Synced => {
                let known = self.next();
                let of = Peers { epoch: 0, ..peers(SWITCHES[0], NODE[0]) };
                bench.ingress(&to_us(&known.hand_over_with_peers(of, known.option(SB_OP_SYNC))), 0);
            }
            DropEpoch => {
                bench.be_later(2);
                self.say_of_next(SB_OP_HELLO, 0, b"");
                bench.be(NODE[0]);
            }
            DropVersion => {
                let known = self.next();
                let option = sb_option { version: SB_VERSION + 1, ..known.option(SB_OP_PROBE) };
                self.bench.ingress(&to_us(&known.hand_over(option, b"")), 0);
            }
            RefusedNoSocket => self.say_of_next(SB_OP_FORWARD, SB_HANDOVER_REQUEST, REQUEST),
            // Below the least MSS, so the kernel refuses it.
            RefusedFailed => {
                let known = self.next();
                let option = known.option(SB_OP_ADOPT).with(|flow: &mut sb_flow_state| flow.mss = 0);
                bench.send(&known.hand_over(option, REQUEST));
            }
            Withheld => {
                let known = self.next();
                let asked = known.seq - REQUEST.len() as u32;
                let owned = sb_owned { responses: 0, again: 1, asked, asked_us: now_us(), ..known.owned() };
                self.leave(&known, &owned, b"");
            }
            TakenOver => {
                let known = self.answered();
                let owned = bench.flow(&known.flow).expect("an adopted flow");
                bench.put(&known.flow, &sb_owned { via: owned.via ^ 1, ..owned });
                self.say(&known, SB_OP_FORWARD, 0, b"");
            }
            Stalled => {
                close_window(bench, &mut self.answered());
                assert_eq!(bench.stalled().len(), 1);
            }
            Outlived => {
                let known = self.next();
                bench.put(&known.flow, &sb_owned { keeps: 1, ..known.owned() });
                bench.egress(&response(&known.flow, (known.ack, known.seq), flags::RST, false, b""));
            }
            Muted => {
                let known = self.next();
                let state = sb_ownership::SB_OWN_RELEASED as u8;
                self.leave(&known, &sb_owned { state, ..known.owned() }, b"x");
            }
            Acknowledged => self.say_of_answered(SB_OP_FORWARD, 0, b""),
            Responses => {
                let known = self.next();
                self.leave(&known, &sb_owned { responses: 0, ..known.owned() }, RESPONSE);
            }
            Fact => {
                bench.want_facts(true);
                self.leave_for_switch();
                bench.want_facts(false);
            }
            FactLost => {
                bench.want_facts(true);
                while bench.counter(FactLost) == 0 {
                    self.leave_for_switch();
                }
                bench.want_facts(false);
            }
            Judgment => self.fail(),
            JudgmentLost => {
                while bench.counter(JudgmentLost) == 0 {
                    self.fail();
                }
            }
            LostTrack => {
                let known = self.next();
                self.leave(&known, &known.owned(), RESPONSE);
            }
            Insurable => {
                let _egress = bench.attach_egress(LOOPBACK);
                bench.resume(2000, 0);
                resume::long_response(bench, &mut self.of_ipv4());
                bench.be(NODE[0]);
            }
            InsurableLost => {
                let _egress = bench.attach_egress(LOOPBACK);
                bench.resume(2000, 0);
                while bench.counter(InsurableLost) == 0 {
                    resume::long_response(bench, &mut self.of_ipv4());
                }
                bench.insurable();
                bench.be(NODE[0]);
            }
            Bequeathed => {
                let _egress = bench.attach_egress(LOOPBACK);
                bench.resume(2000, 0);
                let mut known = self.of_ipv4();
                resume::long_response(bench, &mut known);
                resume::acknowledge(bench, &mut known, 1000);
                bench.give_heirs(&known.flow, 1000);
                drop(known.socket.take());
                bench.be(NODE[0]);
            }
            Fingerprint => {
                let _egress = bench.attach_egress(LOOPBACK);
                bench.repeat(2000);
                let mut known = self.of_ipv4();
                bench.tell(&known.flow, 1000, &[address(NODE[0])]);
                resume::long_response(bench, &mut known);
                bench.be(NODE[0]);
            }
            FingerprintHeard => {
                let known = self.next();
                bench.await_fingerprints(&known.flow, 1000, resume::KEY);
                bench.ingress(&resume::frame_of(&resume::told(&known.flow, 9), address(NODE[0])), 0);
            }
            FingerprintUnknown => {
                let told = resume::told(&self.next().flow, 9);
                bench.ingress(&resume::frame_of(&told, address(NODE[0])), 0);
            }
            Death => self.say_of_next(SB_OP_DEAD, 0, b""),
            Resumed => {
                let agent = TcpListener::bind("[::1]:0").expect("an address of this machine");
                let agent4 = TcpListener::bind("127.0.0.1:0").expect("an address of this machine");
                let known = self.next();
                let listener = if known.flow.vip().is_ipv6() { agent } else { agent4 };
                bench.resume(2000, listener.local_addr().expect("it listens").port());
                bench.insure(&known.flow, &resume::insured(&known));
                bench.send(&resume::resume(&known));
                listener.accept().expect("the flow");
                bench.be(NODE[0]);
            }
            RefusedNotInsured => {
                let known = self.next();
                bench.ingress(&to_us(&resume::resume(&known)), 0);
            }
            Icmp => {
                let known = self.answered();
                let inner = too_long(&known.flow, known.ack, 20);
                let tcp = if known.flow.client().is_ipv6() { 40 } else { 20 };
                let view =
                    TcpView { tcp, data: tcp, end: inner.len(), seq: Seq(known.ack), ack: Seq(0), flags: 0 };
                let packet = known.hand_over_packet(known.option(SB_OP_ICMP), &view, &inner);
                bench.ingress(&to_us(&packet), 0);
            }
            ArpIgnored => drop(bench.ingress(&arp(1, OTHER, VIP4), 0)),
            ArpAnnounce => drop(bench.egress(&arp(1, VIP4, OTHER))),
            DropTag => {
                let known = self.next();
                let mut frame = to_us(&known.hand_over(known.option(SB_OP_ADOPT), REQUEST));
                frame[14 + 20 + size_of::<sb_shim>() - 1] ^= 1;
                bench.ingress(&frame, 0);
            }
            DropMalformed => self.say_of_next(SB_OP_ADOPTED, 0, REQUEST),
            DropPlain => drop(
                bench.ingress(&to_us(&packet::bare(&self.next().flow, true, Seq(1), Seq(1), flags::ACK)), 0),
            ),
            DropAway => {
                let server = "198.51.100.80:8080".parse().expect("an address");
                let known = self.of_ipv4();
                bench.serve_away(&known.flow, server, LOOPBACK);
                let theirs = of_server(&known.flow, server);
                bench.guard(&inside(&segment(&theirs, false, (Seq(1), Seq(2)), flags::ACK, None, b"")));
                bench.serve_at(&known.flow, known.flow.vip());
            }
            DropNoSocket => self.say_of_next(SB_OP_FORWARD, 0, REQUEST),
            DropStale => {
                // A later request of the flow is being adopted.
                let known = self.next();
                let state = sb_ownership::SB_OWN_ADOPTING as u8;
                bench.put(&known.flow, &sb_owned { state, next: known.seq + 1000, ..known.owned() });
                self.say(&known, SB_OP_ADOPT, 0, REQUEST);
                let after = bench.flow(&known.flow).expect("it stays");
                assert_eq!((after.state, after.next), (state, known.seq + 1000), "the later request's entry");
            }
            Outdated => {
                let known = self.next();
                let [earlier, latest] = [1, 2].map(|number| Generation::first(number).number());
                bench.put(&known.flow, &sb_owned { generation: latest, ..known.owned() });
                let option = known
                    .option(SB_OP_ADOPT)
                    .with(|flow: &mut sb_flow_state| flow.generation = earlier.to_be());
                bench.ingress(&to_us(&known.hand_over(option, REQUEST)), 0);
            }
            DropBehindGap => {
                let mut known = self.in_session(REWRITTEN);
                let owned = bench.flow(&known.flow).expect("an adopted flow");
                bench.put(&known.flow, &sb_owned { next: known.seq + 2, ..owned });
                let option = known
                    .option(SB_OP_FORWARD)
                    .with(|flow: &mut sb_flow_state| flow.next = (known.seq + 2).to_be());
                known.seq += 1;
                bench.ingress(&to_us(&known.hand_over(option, b"x")), 0);
            }
            DropOvertaking => {
                let mut known = self.of_ipv4();
                known.adopt(bench);
                known.answer();
                let _egress = bench.attach_egress(LOOPBACK);
                let mut server = known.socket.as_ref().expect("an adopted flow");
                server.set_nodelay(true).expect("a socket can be");
                server.write_all(RESPONSE).expect("there is room");
            }
            CookieRestored => {
                let known = self.in_session(REWRITTEN);
                let request = b"GET / HTTP/1.1\r\nCookie: SBrewn01SID=1\r\n\r\n";
                self.say_in_session(&known, REWRITTEN, SB_HANDOVER_REQUEST, request);
            }
            CookieRewritten => {
                let known = self.in_session(REWRITTEN);
                self.leave_in_session(&known, b"HTTP/1.1 200 OK\r\nSet-Cookie: LONGNAMESID=1\r\n");
            }
            CookieWaited => {
                let known = self.in_session(REWRITTEN);
                self.leave_in_session(&known, b"HTTP/1.1 200 OK\r\nSet-Cookie: LONG");
            }
            CookieMissed => {
                let known = self.in_session(REWRITTEN);
                let changed = sb_changed { at: [known.ack; 4], count: 4, ..Default::default() };
                let mut owned =
                    sb_owned { responses: 0, ..bench.flow(&known.flow).expect("an adopted flow") };
                owned.cookies.rewritten = changed;
                self.leave(&known, &owned, b"HTTP/1.1 200 OK\r\nSet-Cookie: LONGNAMESID=1\r\n");
            }
            Introduced => {
                bench.know_clients(true, false);
                self.of_ipv4().adopt(bench);
            }
            Direct => self.say_directly(true, 0, b""),
            Heard => self.say_directly(true, SB_DIRECT_ASK, b""),
            Gone => {
                let known = self.of_ipv4();
                bench.know_clients(true, false);
                let packet = clients::direct(&known, &clients::key_of(&known), 0, flags::ACK, b"");
                bench.ingress(&to_us(&packet), 0);
            }
            Tunneled => {
                let known = self.of_ipv4();
                bench.know_clients(true, true);
                self.leave(&known, &known.owned(), b"");
            }
            DropClient => self.say_directly(false, 0, b""),
            DropBeyond => self.say_directly(true, 0, b"x"),
            CookieInserted => {
                let mut known = self.next();
                known.adopt_in_session(bench, INSERTED);
                known.answer();
            }
        }
    }

    /// Waits for a counter, because clones are processed a moment later.
    fn wait_for(&self, counter: NodeCounter, before: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.bench.counter(counter) == before && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

#[test]
fn every_counter_counts_once() {
    alone(|| {
        let bench = Bench::new();
        let mut flows = Flows { bench: &bench, port: 50_000 };
        for counter in NodeCounter::ALL {
            let before = bench.counter(counter);
            flows.count(counter);
            flows.wait_for(counter, before);
            assert_eq!(bench.counter(counter), before + 1, "{counter:?}");
        }
    });
}
