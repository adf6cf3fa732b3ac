//! Responses with which another node could go on, and going on with another node's.

use std::hash::Hasher;
use std::io::{Read, Write};
use std::mem::offset_of;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use nix::libc;
use sb_op::*;
use sb_reason::*;
use siphasher::sip::SipHasher24;
use switchback_http::framing::generated::{
    SB_FRAMING_BODY, SB_FRAMING_LOST, SB_FRAMING_NONE, SB_FRAMING_SKIP,
};
use switchback_resume::{Key, Running};
use switchback_wire::generation::Generation;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;
use crate::insurance::check_of;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 9000\r\n\r\n";
const BODY: usize = 9000;
const AFTER: u64 = 2000;
/// Of the fingerprints of another node.
pub const KEY: Key = Key { k0: 11, k1: 12 };
/// Time in which a packet comes on the loopback interface.
const WITHIN: Duration = Duration::from_secs(5);

fn new(port: u16, v6: bool) -> KnownFlow {
    KnownFlow { flow: flow(v6, port, PORT), seq: 1000, ack: 5000, socket: None }
}

/// The client has so much more of the response.
pub fn acknowledge(bench: &Bench, known: &mut KnownFlow, more: usize) {
    known.ack += more as u32;
    let inner = segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), flags::ACK, None, b"");
    let view = TcpView::parse(&inner).expect("a TCP packet");
    // The connection's first byte, and its mark.
    let option = known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
        flow.origin = 1000u32.to_be();
        flow.next = known.seq.to_be();
    });
    let forwarded = bench.counter(NodeCounter::Forwarded);
    bench.send(&known.hand_over_packet(option, &view, &inner));
    wait_until("the acknowledgment has come", || bench.counter(NodeCounter::Forwarded) > forwarded);
}

fn write(known: &KnownFlow, data: &[u8]) {
    let mut socket = known.socket.as_ref().expect("an adopted flow");
    socket.set_nodelay(true).expect("a socket can be");
    socket.write_all(data).expect("there is room in the buffer");
}

fn followed(bench: &Bench, known: &KnownFlow, to: usize) {
    wait_until("it has been sent", || {
        bench.flow(&known.flow).is_some_and(|owned| owned.followed == 5000 + to as u32)
    });
}

/// A new flow's response, as much of it as is reported.
pub fn long_response(bench: &Bench, known: &mut KnownFlow) {
    known.adopt(bench);
    write(known, HEAD);
    followed(bench, known, HEAD.len());
    acknowledge(bench, known, HEAD.len());
    write(known, &[b'x'; 3000]);
    followed(bench, known, HEAD.len() + 3000);
}

#[test]
fn a_long_response_is_reported_with_both_heads() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.resume(AFTER, 0);
        for port in [40_000, 40_001] {
            let mut known = new(port, false);
            known.adopt(&bench);
            write(&known, &[HEAD, &[b'x'; 1000][..]].concat());
            followed(&bench, &known, HEAD.len() + 1000);
            assert!(bench.insurable().0.is_empty(), "it is not long enough");
            write(&known, &[b'x'; 2000]);
            followed(&bench, &known, HEAD.len() + 3000);
            assert!(bench.insurable().0.is_empty(), "the client has nothing of it");
            acknowledge(&bench, &mut known, HEAD.len() + 700);
            write(&known, &[b'x'; 1000]);
            followed(&bench, &known, HEAD.len() + 4000);
            let (reports, ends) = bench.insurable();
            let [report] = &reports[..] else { panic!("one report, not {}", reports.len()) };
            assert_eq!((report.flow, report.owned.origin, report.owned.next), (known.flow, 1000, known.seq));
            assert_eq!((report.seq, report.sent), (known.ack, (HEAD.len() + 700) as u64));
            let heads = &report.heads;
            assert_eq!(&heads.request[..heads.request_len.into()], REQUEST);
            assert_eq!(&heads.response[..heads.response_len.into()], HEAD);
            assert_eq!(ends.len(), 0);
            acknowledge(&bench, &mut known, 1000);
            write(&known, &vec![b'x'; BODY - 4000]);
            followed(&bench, &known, HEAD.len() + BODY);
            acknowledge(&bench, &mut known, BODY - 1701);
            let (reports, ends) = bench.insurable();
            assert_eq!((reports.len(), ends.len()), (0, 0), "its end may be lost with this node");
            acknowledge(&bench, &mut known, 1);
            let (reports, ends) = bench.insurable();
            assert_eq!((reports.len(), ends.len()), (0, 1), "it is reported once");
            assert_eq!((ends[0].flow, ends[0].origin), (known.flow, 1000));
        }
        assert_eq!(bench.counter(NodeCounter::Insurable), 2);
    });
}

/// The packet by which the client acknowledges a response may be its next request, for which another node gets the flow.
#[test]
fn a_released_flow_has_no_insured_response() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.resume(AFTER, 0);
        let mut known = new(40_000, false);
        long_response(&bench, &mut known);
        write(&known, &[b'x'; BODY - 3000]);
        followed(&bench, &known, HEAD.len() + BODY);
        let (reports, ends) = bench.insurable();
        assert_eq!((reports.len(), ends.len()), (1, 0));
        known.socket.as_ref().unwrap().read_exact(&mut [0; REQUEST.len()]).expect("the request");
        known.ack += BODY as u32;
        let option = known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| {
            flow.origin = 1000u32.to_be();
            flow.next = known.seq.to_be();
            flow.requests = 1u16.to_be();
        });
        let (verdict, _) = bench.ingress(&to_us(&known.hand_over(option, b"")), 0);
        assert_eq!(verdict, Verdict::Pass, "the RST for the socket");
        let (reports, ends) = bench.insurable();
        assert_eq!((reports.len(), ends.len()), (0, 1));
    });
}

#[test]
fn a_short_response_is_not_reported() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        for after in [0, BODY as u64 + 1] {
            bench.resume(after, 0);
            let mut known = new(40_000 + after as u16, false);
            long_response(&bench, &mut known);
            write(&known, &[b'x'; BODY - 3000]);
            followed(&bench, &known, HEAD.len() + BODY);
            let (reports, ends) = bench.insurable();
            assert_eq!((reports.len(), ends.len()), (0, 0));
        }
    });
}

/// A request in two packets, and one with more than there is room for.
#[test]
fn a_request_in_several_packets_is_kept() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.resume(AFTER, 0);
        for (port, rest) in [(40_000, 2000), (40_001, 4000)] {
            let mut known = new(port, false);
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", "c".repeat(rest));
            let parts: Vec<&[u8]> = text.as_bytes().chunks(1400).collect();
            let next = known.seq + text.len() as u32;
            let option = |op: sb_op, boundary: usize| {
                known.option(op).with(|said: &mut sb_handover| {
                    said.flow.next = next.to_be();
                    said.boundary = (boundary as u16).to_be();
                })
            };
            let adopt = option(SB_OP_ADOPT, text.len());
            let read = sb_option { flags: SB_HANDOVER_READ as u8, ..option(SB_OP_FORWARD, 0) };
            known.socket = Some(bench.adopt(&known.hand_over(adopt, parts[0]), &known.flow));
            wait_until("it is answered", || bench.counter(NodeCounter::Adopted) > 0);
            for part in &parts[1..] {
                known.seq += 1400;
                bench.send(&known.hand_over(read, part));
            }
            let mut came = vec![0; text.len()];
            known.socket.as_ref().unwrap().read_exact(&mut came).expect("the request");
            known.seq = next;
            write(&known, HEAD);
            followed(&bench, &known, HEAD.len());
            acknowledge(&bench, &mut known, HEAD.len());
            write(&known, &[b'x'; 3000]);
            followed(&bench, &known, HEAD.len() + 3000);
            let (reports, _) = bench.insurable();
            let heads = &reports[0].heads;
            let kept = &heads.request[..heads.request_len.into()];
            assert_eq!(kept, &text.as_bytes()[..text.len().min(2 * 1400)]);
        }
    });
}

/// The server closes in the middle: with the rest of what it has written, or at once.
#[test]
fn a_response_whose_server_has_gone_is_left_to_another_node() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.resume(AFTER, 0);
        for (port, at_once) in [(40_000, false), (40_001, true)] {
            let mut known = new(port, false);
            long_response(&bench, &mut known);
            let (reports, _) = bench.insurable();
            assert_eq!(reports.len(), 1);
            let before = bench.counter(NodeCounter::Bequeathed);
            bench.give_heirs(&known.flow, 1000);
            let socket = known.socket.take().unwrap();
            if at_once {
                let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Linger, &linger).unwrap();
            } else {
                // What it has not read would make its kernel say RST.
                (&socket).read_exact(&mut [0; REQUEST.len()]).unwrap();
                (&socket).write_all(b"more").unwrap();
            }
            drop(socket);
            wait_until("it is left", || bench.counter(NodeCounter::Bequeathed) > before);
            let owned = bench.flow(&known.flow).expect("the flow is not over");
            let state = (owned.state, owned.reason);
            assert_eq!(state, (sb_ownership::SB_OWN_RELEASED as u8, SB_REASON_BEQUEATHED as u8));
            let (_, ends) = bench.insurable();
            assert_eq!((ends.len(), ends[0].bequeathed, ends[0].origin), (1, 1, 1000));
            // It waits for the other node, whatever its client sends.
            let next = |op: sb_op| {
                known.option(op).with(|flow: &mut sb_flow_state| {
                    flow.origin = 1000u32.to_be();
                    flow.next = (known.seq + REQUEST.len() as u32).to_be();
                    flow.requests = 2u16.to_be();
                })
            };
            let request = sb_option { flags: SB_HANDOVER_REQUEST as u8, ..next(SB_OP_FORWARD) };
            assert_eq!(bench.ingress(&to_us(&known.hand_over(request, REQUEST)), 0).0, Verdict::Drop);
            let release =
                known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| flow.origin = 1000u32.to_be());
            let option = answer(&bench, &known.hand_over(release, b""));
            assert_eq!((option.op, option.reason), (SB_OP_BUSY as u8, SB_REASON_BEQUEATHED as u8));
            // Another node has gone on, and the agent has been told so.
            let taken = Generation::first(7).number();
            bench.put(&known.flow, &sb_owned { generation: taken, ..owned });
            let of_before = Generation::first(3).to_be();
            let release = release.with(|flow: &mut sb_flow_state| flow.generation = of_before);
            let said = answer(&bench, &known.hand_over(release, b""));
            assert_eq!((said.op, said.flow_state().generation), (SB_OP_UNOWNED as u8, taken.to_be()));
        }
    });
}

/// Without an heir, or behind the end of the response, the client hears of it.
#[test]
fn a_server_that_is_not_insured_closes() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        for (port, after, origin) in [(40_000, 0, 1000), (40_001, AFTER, 1000), (40_002, AFTER, 999)] {
            bench.resume(after, 0);
            let mut known = new(port, false);
            long_response(&bench, &mut known);
            bench.give_heirs(&known.flow, origin);
            if origin == 1000 && after > 0 {
                acknowledge(&bench, &mut known, 3000);
                write(&known, &[b'x'; BODY - 3000]);
                followed(&bench, &known, HEAD.len() + BODY);
            }
            drop(known.socket.take());
            let is_over =
                || bench.flow(&known.flow).is_none_or(|owned| owned.reason != SB_REASON_BEQUEATHED as u8);
            assert!(is_over());
            assert_eq!(bench.counter(NodeCounter::Bequeathed), 0);
        }
    });
}

#[test]
fn a_response_behind_which_its_client_has_asked_for_more_is_not_insured() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.resume(AFTER, 0);
        let mut known = new(40_000, false);
        long_response(&bench, &mut known);
        assert_eq!(bench.insurable().0.len(), 1);
        let option = known.option(SB_OP_FORWARD).with(|flow: &mut sb_flow_state| {
            flow.origin = 1000u32.to_be();
            flow.requests = 2u16.to_be();
        });
        let request = sb_option { flags: SB_HANDOVER_REQUEST as u8, ..option };
        let forwarded = bench.counter(NodeCounter::Forwarded);
        bench.send(&known.hand_over(request, REQUEST));
        wait_until("it has come", || bench.counter(NodeCounter::Forwarded) > forwarded);
        let (reports, ends) = bench.insurable();
        assert_eq!((reports.len(), ends.len(), ends[0].bequeathed), (0, 1, 0));
    });
}

/// Another node's response of `BODY` bytes, of which the client has `HEAD` and 3,000 bytes at sequence number 5000.
pub fn insured(known: &KnownFlow) -> sb_insured {
    sb_insured {
        origin: known.seq - 500,
        next: known.seq,
        seq: known.ack,
        head_bytes: HEAD.len() as u32,
        sent: (HEAD.len() + 3000) as u64,
        bytes: (HEAD.len() + BODY) as u64,
        status: 200,
        keeps: 1,
        ..Default::default()
    }
}

pub fn resume(known: &KnownFlow) -> Vec<u8> {
    resume_in(known, Generation::NONE)
}

fn resume_in(known: &KnownFlow, generation: Generation) -> Vec<u8> {
    resume_of(known, known.seq - 500, generation)
}

fn resume_of(known: &KnownFlow, origin: u32, generation: Generation) -> Vec<u8> {
    let option = known.option(SB_OP_ADOPT).with(|said: &mut sb_handover| {
        said.flow.origin = origin.to_be();
        said.flow.next = known.seq.to_be();
        said.flow.framing = SB_MARK_RESUMED.to_be();
        said.flow.generation = generation.to_be();
        (said.boundary, said.queue_share) = (0, 0);
    });
    known.hand_over(sb_option { flags: SB_HANDOVER_RESUME as u8, ..option }, b"")
}

/// What the node answers to a handoff packet.
fn answer(bench: &Bench, packet: &[u8]) -> sb_option {
    let (verdict, out) = bench.ingress(&to_us(packet), 0);
    assert_eq!(verdict, Verdict::Redirect);
    Handoff::parse(&out).expect("an answer").option
}

fn agent(v6: bool) -> TcpListener {
    TcpListener::bind(if v6 { "[::1]:0" } else { "127.0.0.1:0" }).expect("an address of this machine")
}

/// An agent that can go on with this response on an IPv4 flow.
fn agent_with(bench: &Bench, known: &KnownFlow, response: &sb_insured) -> TcpListener {
    let agent = agent(false);
    bench.resume(AFTER, agent.local_addr().unwrap().port());
    bench.insure(&known.flow, response);
    agent
}

#[test]
fn the_agent_goes_on_with_the_response_of_another_node() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        for (port, v6) in [(40_000, false), (40_001, true)] {
            let agent = agent(v6);
            bench.resume(AFTER, agent.local_addr().unwrap().port());
            let mut known = new(port, v6);
            bench.insure(&known.flow, &insured(&known));
            known.ack += 1000;
            bench.send(&resume(&known));
            let (socket, client) = agent.accept().unwrap();
            assert_eq!((client, socket.local_addr().unwrap()), (known.flow.client(), known.flow.vip()));
            // A copy, when the agent has forgotten the record.
            bench.insure(&known.flow, &sb_insured::default());
            let option = answer(&bench, &resume(&known));
            assert_eq!(option.op, SB_OP_ADOPTED as u8);
            let owned = bench.flow(&known.flow).unwrap();
            assert_eq!(owned.framing.state(), SB_FRAMING_BODY | SB_FRAMING_SKIP);
            assert_eq!((owned.framing.left(), owned.sent), (5000, (HEAD.len() + 4000) as u64));
            assert_eq!((owned.requests, owned.responses, owned.keeps), (1, 0, 1));
            if v6 {
                // Over IPv6 nothing leaves by the loopback interface.
                continue;
            }
            socket.set_nodelay(true).unwrap();
            (&socket).write_all(&[b'y'; 5000]).unwrap();
            wait_until("the response is over", || {
                bench.flow(&known.flow).is_some_and(|owned| owned.responses == 1)
            });
            let owned = bench.flow(&known.flow).unwrap();
            assert_eq!((owned.framing.state(), owned.followed), (SB_FRAMING_NONE, known.ack + 5000));
        }
        assert_eq!(bench.counter(NodeCounter::Resumed), 2);
    });
}

/// Where the response ends, only the agent knows; that its process ends, no client hears.
#[test]
fn the_agent_goes_on_over_tls() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        let mut known = new(40_000, false);
        let response =
            sb_insured { head_bytes: 0, sent: 0, bytes: SB_INSURED_UNKNOWN, over_tls: 1, ..insured(&known) };
        let agent = agent_with(&bench, &known, &response);
        known.ack += 70_000;
        bench.send(&resume(&known));
        let (socket, _) = agent.accept().unwrap();
        let owned = bench.flow(&known.flow).unwrap();
        assert_eq!((owned.framing.state(), owned.followed), (SB_FRAMING_LOST, known.ack));
        socket.set_nodelay(true).unwrap();
        (&socket).write_all(&[b'y'; 5000]).unwrap();
        wait_until("it has been sent", || {
            bench.flow(&known.flow).is_some_and(|owned| owned.followed == known.ack + 5000)
        });
        bench.give_heirs_over_tls(&known.flow, known.seq - 500);
        let (reports, ends) = bench.insurable();
        assert_eq!((reports.len(), ends.len()), (0, 0));
        drop(socket);
        wait_until("it is left", || bench.counter(NodeCounter::Bequeathed) == 1);
    });
}

/// A client whose way changes answers two switches. The later adoption counts, and no other socket is made.
#[test]
fn two_switches_have_a_response_resumed() {
    alone(|| {
        let bench = Bench::new();
        let known = new(40_000, false);
        let agent = agent_with(&bench, &known, &insured(&known));
        let [older, first, newer] = [1, 2, 3].map(Generation::first);
        bench.send(&resume_in(&known, first));
        let _socket = agent.accept().unwrap();
        // The agent has taken its record.
        bench.insure(&known.flow, &sb_insured::default());
        for (generation, op, then) in [(older, SB_OP_OWNED, first), (newer, SB_OP_ADOPTED, newer)] {
            let option = answer(&bench, &resume_in(&known, generation));
            assert_eq!(option.op, op as u8);
            assert_eq!(bench.flow(&known.flow).unwrap().generation, then.number());
        }
        assert_eq!(bench.counter(NodeCounter::Resumed), 1);
    });
}

/// A node that was dead has a response that it has gone on with, and others have had the connection since.
#[test]
fn a_later_response_takes_the_place_of_an_earlier_one() {
    alone(|| {
        let bench = Bench::new();
        let known = new(40_000, false);
        let agent = agent_with(&bench, &known, &insured(&known));
        let [first, second, third] = [1, 2, 3].map(Generation::first);
        bench.send(&resume_in(&known, first));
        let _earlier = agent.accept().unwrap();
        let origin = known.seq - 500;
        let later = KnownFlow { seq: known.seq + 300, ack: known.ack + 9000, ..new(40_000, false) };
        let response = sb_insured { origin, generation: second.number(), ..insured(&later) };
        bench.insure(&later.flow, &response);
        let option = answer(&bench, &resume_of(&later, origin, second));
        assert_eq!((option.op, option.reason), (SB_OP_REFUSED as u8, SB_REASON_OUTDATED as u8));
        assert_eq!(bench.flow(&later.flow).unwrap().next, known.seq);
        bench.send(&resume_of(&later, origin, third));
        let _later = agent.accept().unwrap();
        let owned = bench.flow(&later.flow).unwrap();
        assert_eq!((owned.next, owned.generation), (later.seq, third.number()));
        assert_eq!((bench.counter(NodeCounter::Cured), bench.counter(NodeCounter::Resumed)), (1, 2));
    });
}

/// What the earlier node sent behind a gap was not sent by this node's socket. The kernel hears that all it has sent is there.
#[test]
fn a_client_may_have_data_of_the_earlier_node_behind_a_gap() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        let mut known = KnownFlow { seq: 1500, ..new(40_000, false) };
        let agent = agent_with(&bench, &known, &insured(&known));
        bench.send(&resume(&known));
        let (socket, _) = agent.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        let unacked = || tcp_info(&socket, offset_of!(libc::tcp_info, tcpi_unacked));
        for (write, has) in [(1000, 4000), (1500, 0), (3000, 1500), (500, 500)] {
            (&socket).write_all(&vec![b'y'; write]).unwrap();
            wait_until("it is sent", || unacked() > 0);
            acknowledge(&bench, &mut known, has);
            wait_until("all of it is acknowledged", || unacked() == 0);
        }
        let owned = bench.flow(&known.flow).unwrap();
        assert_eq!((owned.responses, owned.followed), (1, known.ack));
    });
}

#[test]
fn what_is_not_known_is_not_resumed() {
    alone(|| {
        let bench = Bench::new();
        let agent = agent(false);
        bench.resume(AFTER, agent.local_addr().unwrap().port());
        let known = new(40_000, false);
        let good = insured(&known);
        let over = good.bytes as u32 - good.sent as u32;
        let rows: [(&str, Option<sb_insured>, sb_reason); 6] = [
            ("no response", None, SB_REASON_NO_SOCKET),
            ("another connection", Some(sb_insured { origin: 1, ..good }), SB_REASON_NO_SOCKET),
            ("a later request", Some(sb_insured { next: good.next + 1, ..good }), SB_REASON_NO_SOCKET),
            ("a client in the head", Some(sb_insured { sent: 10, ..good }), SB_REASON_NO_SOCKET),
            ("a client far behind", Some(sb_insured { seq: good.seq + 9000, ..good }), SB_REASON_NO_SOCKET),
            (
                "a client with all of it",
                Some(sb_insured { seq: good.seq.wrapping_sub(over), ..good }),
                SB_REASON_SERVED,
            ),
        ];
        for (index, (what, response, reason)) in rows.into_iter().enumerate() {
            if let Some(response) = response {
                bench.insure(&known.flow, &response);
            }
            let (verdict, frame) = bench.ingress(&to_us(&resume(&known)), 0);
            assert_eq!(verdict, Verdict::Redirect, "{what}");
            let option = read_from::<sb_shim>(&frame[34..]).expect("a handoff packet").option;
            assert_eq!((option.op, option.reason), (SB_OP_REFUSED as u8, reason as u8), "{what}");
            assert_eq!(bench.counter(NodeCounter::RefusedNotInsured), index as u64 + 1);
            assert!(bench.flow(&known.flow).is_none(), "{what}");
            let is_served = reason == SB_REASON_SERVED;
            assert_eq!(
                bench.insured(&known.flow).is_some_and(|known| known.served != 0),
                is_served,
                "{what}"
            );
        }
    });
}

/// The server of this node is not needed, and a stale socket of the flow gives way.
#[test]
fn a_flow_is_resumed_without_a_server_and_over_an_old_socket() {
    alone(|| {
        let bench = Bench::new();
        let agent = agent(false);
        bench.resume(AFTER, agent.local_addr().unwrap().port());
        let known = KnownFlow { flow: flow(false, 40_000, PORT + 1), ..new(40_000, false) };
        bench.insure(&known.flow, &insured(&known));
        bench.send(&resume(&known));
        drop(agent.accept().unwrap());

        let mut old = new(40_001, false);
        old.adopt(&bench);
        let known = KnownFlow { seq: 90_000, ..new(40_001, false) };
        bench.insure(&known.flow, &insured(&known));
        bench.send(&resume(&known));
        let (socket, _): (TcpStream, _) = agent.accept().unwrap();
        assert_eq!(socket.peer_addr().unwrap(), known.flow.client());
        assert_eq!(bench.flow(&known.flow).unwrap().origin, known.seq - 500);
    });
}

const CHUNKED_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Bodies in pieces of all lengths, one of them chunked: the head goes with the first piece.
fn pieces(head: &[u8]) -> Vec<Vec<u8>> {
    let lens = [0, 1, 7, 8, 1024, 1025, 3000, 1, 2, 1416];
    let mut pieces: Vec<Vec<u8>> =
        lens.iter().map(|len| (0..*len).map(|at| (at * 31 % 253) as u8).collect()).collect();
    match head == CHUNKED_HEAD {
        true => {
            for piece in &mut pieces[1..] {
                *piece = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            }
        }
        false => pieces.push(vec![b'z'; BODY - lens.iter().sum::<usize>()]),
    }
    pieces[0] = head.to_vec();
    pieces
}

#[test]
fn a_fingerprint_leaves_before_what_it_is_of() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        bench.repeat(AFTER);
        let heirs = [("127.0.0.2", 40_000, HEAD), ("127.0.0.1", 40_001, CHUNKED_HEAD)];
        let sockets = heirs.map(|(heir, ..)| {
            let socket = UdpSocket::bind((heir, SB_FINGERPRINT_PORT as u16));
            let socket = socket.expect("an address of this machine");
            socket.set_read_timeout(Some(WITHIN)).expect("a time");
            socket
        });
        for (_, port, head) in heirs {
            let mut known = new(port, false);
            known.adopt(&bench);
            let addresses = heirs.map(|(heir, ..)| heir.parse().unwrap());
            bench.tell(&known.flow, 1000, &addresses);
            let mut at = 0;
            let mut running: Option<Running> = None;
            for piece in pieces(head) {
                write(&known, &piece);
                at += piece.len();
                followed(&bench, &known, at);
                acknowledge(&bench, &mut known, piece.len());
                let of = bench.fingerprint(&known.flow).expect("a fingerprint");
                let key = Key { k0: of.key.k0, k1: of.key.k1 };
                let running = match &mut running {
                    Some(running) => {
                        running.add(&piece);
                        running
                    }
                    None => running.insert(Running::new(key)),
                };
                let now = running.fingerprint();
                assert_eq!(Running::of_parts(of.v, of.tail, of.len), *running, "behind {at} bytes");
                assert_eq!((of.origin, of.end), (1000, 5000 + at as u32));
                assert_eq!(of.check, check_of(of.v, of.tail, of.len));
                if piece == head {
                    continue;
                }
                for socket in &sockets {
                    let mut packet = [0; 2 * size_of::<sb_told_fingerprint>()];
                    let (len, from) =
                        socket.recv_from(&mut packet).unwrap_or_else(|error| panic!("{at} {port}: {error}"));
                    assert_eq!(
                        (len, from.ip()),
                        (size_of::<sb_told_fingerprint>(), NODE[0].parse().unwrap())
                    );
                    let told: sb_told_fingerprint = read_from(&packet).unwrap();
                    assert_eq!((told.flow, u32::from_be(told.origin)), (known.flow, 1000));
                    assert_eq!((u64::from_be(told.len), u64::from_be(told.value)), (now.len, now.value));
                    assert_eq!(told.tag, tag_of(&told, key));
                }
            }
        }
        assert_eq!(bench.counter(NodeCounter::Fingerprint), 19);
    });
}

/// The tag that a fingerprint must have, on its way between nodes.
fn tag_of(told: &sb_told_fingerprint, key: Key) -> [u8; 8] {
    let part = |half: u64| half.wrapping_add(SB_FINGERPRINT_TAG);
    let mut hasher = SipHasher24::new_with_keys(part(key.k0), part(key.k1));
    let bare = sb_told_fingerprint { offload: 0, ..*told };
    let whole = bytes_of(&bare);
    hasher.write(&whole[..whole.len() - told.tag.len()]);
    hasher.finish().to_le_bytes()
}

/// A fingerprint of a response that another node sends on the flow.
pub fn told(flow: &sb_flow, len: u64) -> sb_told_fingerprint {
    let (origin, magic) = (1000u32.to_be(), SB_FINGERPRINT_MAGIC.to_be());
    let (len, value) = (len.to_be(), (len + 1).to_be());
    let bare = sb_told_fingerprint { magic, origin, flow: *flow, len, value, ..Default::default() };
    sb_told_fingerprint { tag: tag_of(&bare, KEY), ..bare }
}

/// The frame in which a fingerprint comes to an address.
pub fn frame_of(told: &sb_told_fingerprint, to: IpAddr) -> Vec<u8> {
    let other = if to.is_ipv4() { "192.0.2.29" } else { "2001:db8::29" };
    let between =
        sb_flow { client: address_bytes(address(other)), vip: address_bytes(to), ..flow(false, 1, 1) };
    let mut packet = segment(&between, true, (Seq(0), Seq(0)), 0, None, &[]);
    packet.truncate(packet.len() - 20);
    packet[if to.is_ipv4() { 9 } else { 6 }] = libc::IPPROTO_UDP as u8;
    let len = (8 + size_of_val(told)) as u16;
    for word in [SB_FINGERPRINT_PORT as u16, SB_FINGERPRINT_PORT as u16, len, 0] {
        packet.extend_from_slice(&word.to_be_bytes());
    }
    packet.extend_from_slice(bytes_of(told));
    repair(&mut packet);
    to_us(&packet)
}

#[test]
fn a_fingerprint_of_another_node_is_kept() {
    alone(|| {
        let bench = Bench::new();
        let (known, unknown) = (flow(false, 40_000, PORT), flow(true, 40_000, PORT));
        bench.await_fingerprints(&known, 1000, KEY);
        let hear = |told: &sb_told_fingerprint, at: &str, counter, kept| {
            bench.be(at);
            let before = bench.counter(counter);
            let (verdict, _) = bench.ingress(&frame_of(told, address(at)), 0);
            assert_eq!((verdict, bench.counter(counter) - before), (Verdict::Drop, 1));
            let heard = bench.heard(&known);
            assert_eq!((heard.len, heard.value), kept);
        };
        let heard = NodeCounter::FingerprintHeard;
        hear(&told(&known, 100), NODE[0], heard, (100, 101));
        let offloaded = sb_told_fingerprint { offload: 7, ..told(&known, 300) };
        hear(&offloaded, NODE[1], heard, (300, 301));
        hear(&told(&known, 200), NODE[0], heard, (300, 301));
        let another = sb_told_fingerprint { origin: 7, ..told(&known, 400) };
        for of in [told(&unknown, 400), another] {
            hear(&of, NODE[0], NodeCounter::FingerprintUnknown, (300, 301));
        }
        let forged = sb_told_fingerprint { value: 7, ..told(&known, 400) };
        hear(&forged, NODE[0], NodeCounter::DropTag, (300, 301));
        let strange = sb_told_fingerprint { magic: 7, ..told(&known, 400) };
        hear(&strange, NODE[0], NodeCounter::DropMalformed, (300, 301));
        bench.be(NODE[0]);
        let mut cut = frame_of(&told(&known, 400), address(NODE[0]));
        for len in (34..cut.len()).rev() {
            cut.truncate(len);
            bench.ingress(&cut, 0);
        }
        let elsewhere = frame_of(&told(&known, 400), address("192.0.2.28"));
        assert_eq!(bench.ingress(&elsewhere, 0).0, Verdict::Next);
        assert_eq!(bench.heard(&known).len, 300);
        bench.hide(true);
        bench.ingress(&frame_of(&told(&known, 500), address(NODE[0])), 0);
        assert_eq!(bench.heard(&known).len, 500);
    });
}

/// The agent makes a chunked response once more, and finds its end when it has sent a part of the rest.
#[test]
fn the_program_learns_the_end_of_a_repeated_response() {
    alone(|| {
        let bench = Bench::new();
        let _egress = bench.attach_egress(LOOPBACK);
        let mut known = new(40_000, false);
        let endless = sb_insured { bytes: SB_INSURED_UNKNOWN, fingerprinted: 1, ..insured(&known) };
        let agent = agent_with(&bench, &known, &endless);
        known.ack += 1000;
        bench.send(&resume(&known));
        let (mut socket, _) = agent.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        let (key, origin) = (Key { k0: 3, k1: 4 }, endless.origin);
        let mut running = Running::new(key);
        running.add(&[b'y'; 4000]);
        let (v, tail, len) = running.parts();
        let key = sb_key { k0: key.k0, k1: key.k1 };
        bench.put_fingerprint(
            &known.flow,
            &sb_fingerprint { v, tail, len, check: check_of(v, tail, len), key, origin, end: known.ack },
        );
        let sent = |count: u32| {
            let owned = || bench.flow(&known.flow).filter(|owned| owned.followed == known.ack + count);
            wait_until("it has been sent", || owned().is_some());
            owned().unwrap()
        };
        socket.write_all(&[b'y'; 3001]).unwrap();
        let owned = sent(3001);
        assert_eq!((owned.responses, owned.sent), (0, (HEAD.len() + 7001) as u64));
        bench.insure(&known.flow, &sb_insured { bytes: (HEAD.len() + BODY) as u64, ..endless });
        socket.write_all(&[b'y'; 1999]).unwrap();
        let owned = sent(5000);
        assert_eq!((owned.responses, owned.framing.state()), (1, SB_FRAMING_NONE));
        running.add(&[b'y'; 5000]);
        let of = bench.fingerprint(&known.flow).unwrap();
        assert_eq!(Running::of_parts(of.v, of.tail, of.len), running);
    });
}
