//! A finished connection is not begun again.

use NodeCounter::*;
use sb_op::*;
use switchback_wire::flow_state::FlowState;
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

#[test]
fn a_late_copy_of_an_adoption_begins_nothing() {
    alone(|| {
        let bench = Bench::new();
        for v6 in [false, true] {
            let mut known = KnownFlow { flow: flow(v6, 53_000, PORT), seq: 1000, ack: 5000, socket: None };
            let option = known.option(SB_OP_ADOPT);
            let packet = known.hand_over(option, REQUEST);
            known.adopt(&bench);
            known.socket.take();
            assert_eq!(bench.flow(&known.flow), None, "the server has closed");

            let before = (bench.counter(Adopted), bench.counter(Repeated));
            let (verdict, out) = bench.ingress(&to_us(&packet), 0);
            assert_eq!(verdict, Verdict::Redirect);
            let answer = Handoff::parse(&out).expect("an answer").option;
            let outcome: sb_outcome = answer.said();
            assert_eq!(
                (answer.op, outcome.flow.origin, outcome.queue),
                (SB_OP_ADOPTED as u8, option.flow_state().origin, sb_accept_queue::default())
            );
            assert_eq!((bench.counter(Adopted), bench.counter(Repeated)), (before.0, before.1 + 1));

            // The client's next request and its next connection are unaffected.
            let next = (known.seq + REQUEST.len() as u32).to_be();
            let later = bench.adopt(
                &known.hand_over(option.with(|flow: &mut sb_flow_state| flow.next = next), REQUEST),
                &known.flow,
            );
            drop(later);
            let mut successor = KnownFlow { flow: known.flow, seq: 500, ack: 9000, socket: None };
            successor.adopt(&bench);
            assert_eq!(bench.counter(Repeated), before.1 + 1);
        }
    });
}

/// The switch's question before a first request begins that may have begun before.
#[test]
fn a_probe_hears_whether_its_request_was_answered() {
    alone(|| {
        let bench = Bench::new();
        for v6 in [false, true] {
            let known = KnownFlow { flow: flow(v6, 53_001, PORT), seq: 1000, ack: 5000, socket: None };
            let first = known.seq;
            let said = |origin: u32, seq: u32| {
                let asks = KnownFlow { flow: known.flow, seq, ack: 5000, socket: None };
                let probe = asks.hand_over(FlowState::at(Seq(origin), Seq(0)).option(SB_OP_PROBE), b"");
                let (_, out) = bench.ingress(&to_us(&probe), 0);
                let said = Handoff::parse(&out).expect("an answer").option;
                (said.op, said.reason)
            };
            let unowned = |reason: sb_reason| (SB_OP_UNOWNED as u8, reason as u8);
            assert_eq!(said(first, first), unowned(sb_reason::SB_REASON_NONE), "it has not begun");
            let socket = bench.adopt(&known.hand_over(known.option(SB_OP_ADOPT), REQUEST), &known.flow);
            assert_eq!(said(first, first).0, SB_OP_OWNED as u8);
            drop(socket);
            assert_eq!(bench.flow(&known.flow), None, "the server has closed");
            assert_eq!(said(first, first), unowned(sb_reason::SB_REASON_SERVED));
            assert_eq!(said(0, first), unowned(sb_reason::SB_REASON_NONE), "which connection is not known");
            assert_eq!(said(first + 1, first + 1), unowned(sb_reason::SB_REASON_NONE), "the next connection");
            let next = first + REQUEST.len() as u32;
            assert_eq!(said(first, next), unowned(sb_reason::SB_REASON_NONE), "the next request");
        }
    });
}
