//! Answers to a switch that asks for the owner of a flow.

use sb_op::*;
use switchback_http::framing::Framing;
use switchback_http::framing::generated::{
    SB_FRAMING_CHUNK, SB_FRAMING_HEAD, SB_FRAMING_LOST, SB_FRAMING_NONE, SB_FRAMING_SKIP, sb_framing,
};
use switchback_wire::flow_state::FlowState;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

const TUNNEL: u16 = SB_MARK_TUNNEL;
const UPGRADING: u16 = SB_MARK_UPGRADING;
const CHUNK: u16 = SB_FRAMING_CHUNK | SB_FRAMING_SKIP;

fn asked(bench: &Bench, known: &KnownFlow) -> sb_option {
    let probe = known.hand_over(FlowState::at(Seq(0), Seq(0)).option(SB_OP_PROBE), b"");
    let (verdict, out) = bench.ingress(&to_us(&probe), 0);
    assert_eq!(verdict, Verdict::Redirect);
    Handoff::parse(&out).expect("an answer").option
}

#[test]
fn the_mark_moves_with_the_data_read() {
    alone(|| {
        let bench = Bench::new();
        let mut known = KnownFlow { flow: flow(false, 52_000, PORT), seq: 1000, ack: 5000, socket: None };
        let adopt = known.option(SB_OP_ADOPT);
        let (framing, left) = ((CHUNK | UPGRADING).to_be(), 77u32.to_be());
        let packet = known.hand_over(
            adopt.with(|flow: &mut sb_flow_state| {
                flow.framing = framing;
                flow.left = left;
            }),
            REQUEST,
        );
        known.socket = Some(bench.adopt(&packet, &known.flow));
        let said = asked(&bench, &known).flow_state();
        assert_eq!((said.framing, said.left, said.next), (framing, left, adopt.flow_state().next));

        let first = known.seq + REQUEST.len() as u32;
        let mark = |bench: &Bench, known: &KnownFlow| {
            let said = asked(bench, known).flow_state();
            let framing = u16::from_be(said.framing);
            (u32::from_be(said.next), framing, u32::from_be(said.left), u16::from_be(said.requests))
        };
        // Flags, data and next mark of the packet, and the expected mark.
        let later = first + 100;
        for (what, flags, at, says, expected) in [
            ("read", SB_HANDOVER_READ, first, (later, CHUNK, 5), (later, CHUNK, 5)),
            ("of an earlier mark", 0, first + 4, (first, SB_FRAMING_NONE, 0), (later, CHUNK, 5)),
            ("not read, beyond the chunk", 0, first + 8, (later + 6, CHUNK, 9), (later, CHUNK, 5)),
            (
                "not read, to the chunk's end",
                0,
                first + 12,
                (later + 5, SB_FRAMING_CHUNK, 0),
                (later + 5, SB_FRAMING_CHUNK, 0),
            ),
            (
                "not read, where that has to be",
                0,
                first + 16,
                (later + 9, CHUNK, 9),
                (later + 5, SB_FRAMING_CHUNK, 0),
            ),
        ] {
            known.seq = at;
            let (next, framing, left) = (says.0.to_be(), says.1.to_be(), u32::to_be(says.2));
            let said = sb_option {
                flags: flags as u8,
                ..adopt.with(|said: &mut sb_handover| {
                    said.flow.next = next;
                    said.flow.framing = framing;
                    said.flow.left = left;
                    said.boundary = 0;
                })
            };
            let option = sb_option { op: SB_OP_FORWARD as u8, reason: 0, ..said };
            assert_eq!(
                bench.ingress(&to_us(&known.hand_over(option, b"data")), 0).0,
                Verdict::Pass,
                "{what}"
            );
            assert_eq!(mark(&bench, &known), (expected.0, expected.1, expected.2, 1), "{what}");
        }

        // A request's packet was lost: the node's answer to the next packet names the mark before it.
        let here = mark(&bench, &known);
        let requests = (u16::from_be(adopt.flow_state().requests) + 1).to_be();
        let answered = |next: u32, requests| {
            let release = sb_option {
                op: SB_OP_RELEASE as u8,
                reason: 0,
                ..adopt.with(|flow: &mut sb_flow_state| {
                    flow.next = next.to_be();
                    flow.requests = requests;
                })
            };
            let there = KnownFlow { seq: next, socket: None, ..known };
            let (verdict, out) = bench.ingress(&to_us(&there.hand_over(release, b"")), 0);
            assert_eq!(verdict, Verdict::Redirect);
            Handoff::parse(&out).expect("an answer").option
        };
        let said = answered(here.0 + 50, requests);
        let unread = (SB_OP_UNREAD as u8, here.0.to_be(), adopt.flow_state().requests);
        assert_eq!((said.op, said.flow_state().next, said.flow_state().requests), unread);
        let said = answered(here.0 - 1, adopt.flow_state().requests);
        assert_eq!((said.op, said.reason), (SB_OP_BUSY as u8, sb_reason::SB_REASON_DUPLICATE as u8));
        assert_eq!(mark(&bench, &known), here, "no release moves it");
    });
}

#[test]
fn the_server_decides_whether_a_flow_goes_on_in_another_protocol() {
    alone(|| {
        let bench = Bench::new();
        let known = KnownFlow { flow: flow(false, 52_001, PORT), seq: 1000, ack: 5000, socket: None };
        let lost = |status| sb_framing { state: SB_FRAMING_LOST, status, ..idle().into() }.into();
        // Mode named by the switch, state of the responses, number of responses; expected mode at the mark.
        for (said, framing, responses, expected) in [
            (UPGRADING, idle(), 1, UPGRADING),
            (UPGRADING, Framing::new(SB_FRAMING_HEAD, 0), 1, UPGRADING),
            (UPGRADING, lost(101), 1, TUNNEL),
            (UPGRADING, lost(200), 1, SB_FRAMING_NONE),
            (UPGRADING, lost(0), 1, SB_FRAMING_NONE),
            (UPGRADING, idle(), 2, SB_FRAMING_NONE),
            (UPGRADING | CHUNK, idle(), 2, CHUNK),
            (SB_FRAMING_NONE, lost(101), 1, SB_FRAMING_NONE),
            (TUNNEL, idle(), 1, TUNNEL),
        ] {
            let mark_framing = said.to_be();
            bench.put(
                &known.flow,
                &sb_owned { mark_framing, framing, responses, requests: 2, ..known.owned() },
            );
            let told = asked(&bench, &known);
            assert_eq!(
                u16::from_be(told.flow_state().framing),
                expected,
                "{said:#x} {framing:?} {responses}"
            );
        }
    });
}

#[test]
fn a_response_with_101_is_remembered() {
    alone(|| {
        let bench = Bench::new();
        for (port, answer, expected) in [
            (
                52_002,
                &b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx"[..],
                TUNNEL,
            ),
            (52_003, b"HTTP/1.1 100 Continue\r\n\r\n", UPGRADING),
            (52_004, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", SB_FRAMING_NONE),
            (52_005, b"HTTP/1.1 200 OK\r\n\r\n", SB_FRAMING_NONE),
        ] {
            let known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
            let mark_framing = UPGRADING.to_be();
            bench
                .put(&known.flow, &sb_owned { mark_framing, framing: idle(), responses: 0, ..known.owned() });
            let frame = response(&known.flow, (known.ack, known.seq), flags::ACK, false, answer);
            assert_eq!(bench.egress(&frame).0, Verdict::Next);
            assert_eq!(u16::from_be(asked(&bench, &known).flow_state().framing), expected, "{port}");
        }
    });
}
