//! Generations of adoptions: what a node accepts, promises, grants and answers, by the rules of
//! docs/decisions/0038-generations.md.

use sb_op::*;
use sb_ownership::*;
use sb_reason::*;
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::{Order, ToAgent};
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

/// The adoptions of two switches, from the flow's beginning on.
const FIRST: Generation = Generation::first(0);

fn flow_at(port: u16) -> KnownFlow {
    KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None }
}

fn of(known: &KnownFlow, op: sb_op, generation: Generation) -> sb_option {
    known.option(op).with(|flow: &mut sb_flow_state| flow.generation = generation.to_be())
}

/// A question that announces an adoption.
fn question(known: &KnownFlow, op: sb_op, generation: Generation, next: Generation) -> sb_option {
    of(known, op, generation).with(|question: &mut sb_question| question.next_generation = next.to_be())
}

/// The node's answer: operation, reason, generation.
fn answer(bench: &Bench, known: &KnownFlow, option: sb_option, data: &[u8]) -> (sb_op, u8, Generation) {
    let (verdict, out) = bench.ingress(&to_us(&known.hand_over(option, data)), 0);
    assert_eq!(verdict, Verdict::Redirect, "an answer");
    let option = Handoff::parse(&out).expect("a handoff packet").option;
    let op = sb_op::from_number(option.op).expect("an operation");
    (op, option.reason, FlowState::read(&option).generation)
}

fn probe(bench: &Bench, known: &KnownFlow, next: Generation) -> (sb_op, Generation) {
    let (op, _, generation) = answer(bench, known, question(known, SB_OP_PROBE, Generation::NONE, next), b"");
    (op, generation)
}

/// The entry of the flow once it has been released for this adoption.
fn released(known: &KnownFlow, next: Generation, reason: sb_reason) -> sb_owned {
    sb_owned {
        state: SB_OWN_RELEASED as u8,
        reason: reason as u8,
        generation: next.number(),
        ..known.owned()
    }
}

/// Whether the adoption gets to the kernel.
fn is_accepted(bench: &Bench, known: &KnownFlow, generation: Generation) -> bool {
    let adopt = known.hand_over(of(known, SB_OP_ADOPT, generation), REQUEST);
    let (verdict, out) = bench.ingress(&to_us(&adopt), 0);
    let said = Handoff::parse(&out).map(|answer| (answer.option.op, answer.option.reason));
    let is_barred =
        verdict == Verdict::Redirect && said == Some((SB_OP_REFUSED as u8, SB_REASON_OUTDATED as u8));
    bench.forget(&known.flow);
    !is_barred
}

#[test]
fn a_promise_bars_earlier_adoptions() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_000);
        let promised = FIRST.successor(3);
        assert_eq!(probe(&bench, &known, Generation::NONE), (SB_OP_UNOWNED, Generation::NONE));
        assert!(is_accepted(&bench, &known, FIRST.next_attempt()), "nothing was promised");
        assert_eq!(probe(&bench, &known, promised), (SB_OP_UNOWNED, promised));
        assert_eq!(probe(&bench, &known, promised), (SB_OP_UNOWNED, promised), "asked again");
        let earlier = FIRST.successor(2);
        assert_eq!(probe(&bench, &known, earlier), (SB_OP_UNOWNED, promised), "an earlier one");
        // The owner that has come of the promise may give the flow on, to this node too.
        let following = promised.next_attempt().following();
        for (generation, accepted) in
            [(FIRST.next_attempt(), false), (promised.next_attempt(), true), (following, true)]
        {
            assert_eq!(is_accepted(&bench, &known, generation), accepted, "{generation:?}");
        }
        // Another connection of the same ports is another flow.
        let next = KnownFlow { seq: 900_000, ..flow_at(53_000) };
        assert!(is_accepted(&bench, &next, FIRST.next_attempt()));
    });
}

#[test]
fn a_declined_adoption_is_not_accepted_late() {
    alone(|| {
        let bench = Bench::new();
        bench.set(NODE[0], true);
        let known = flow_at(53_001);
        let declined = FIRST.next_attempt();
        let said = answer(&bench, &known, of(&known, SB_OP_ADOPT, declined), REQUEST);
        assert_eq!((said.0, said.1), (SB_OP_REFUSED, SB_REASON_DRAINING as u8));
        bench.set(NODE[0], false);
        assert!(!is_accepted(&bench, &known, declined));
        assert!(is_accepted(&bench, &known, declined.next_attempt()), "the next attempt");
    });
}

#[test]
fn the_owner_releases_a_flow_for_one_adoption() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_002);
        let owned = FIRST.next_attempt();
        let next = owned.successor(1);
        let released = |reason| released(&known, next, reason);
        let release =
            |generation, next| answer(&bench, &known, question(&known, SB_OP_RELEASE, generation, next), b"");
        // No owner, no socket: anybody could be.
        assert_eq!(release(owned, next), (SB_OP_RELEASED, SB_REASON_NONE as u8, Generation::NONE));
        bench.put(&known.flow, &released(SB_REASON_NONE));
        assert_eq!(release(owned, next).2, next, "repeated");
        let other = owned.successor(2);
        assert_eq!(release(owned, other).2, Generation::NONE, "of another switch");
        assert_eq!(probe(&bench, &known, Generation::NONE), (SB_OP_UNOWNED, next));
        // An owner without a server has not released the flow yet.
        let orphan = sb_owned { generation: owned.number(), ..released(SB_REASON_NO_SOCKET) };
        bench.put(&known.flow, &orphan);
        assert_eq!(release(owned, other), (SB_OP_RELEASED, SB_REASON_NO_SOCKET as u8, other));
        assert_eq!(release(owned, next).2, Generation::NONE, "it is granted to one switch only");
    });
}

#[test]
fn a_switch_that_is_late_hears_where_the_flow_was_released() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_007);
        let owned = FIRST.next_attempt();
        let further = Seq(known.seq) + 52u32;
        for (reason, by, told) in [
            (SB_REASON_NONE, 1, Seq(known.seq)),
            (SB_REASON_NONE, 2, further),
            (SB_REASON_NO_SOCKET, 2, further),
            // Nobody can go on.
            (SB_REASON_RESPONDING, 2, Seq(known.seq)),
        ] {
            let released = released(&known, owned.successor(1), reason);
            bench.put(&known.flow, &sb_owned { next: further.0, ..released });
            let release = question(&known, SB_OP_RELEASE, owned, owned.successor(by));
            let (_, out) = bench.ingress(&to_us(&known.hand_over(release, b"")), 0);
            let said = Handoff::parse(&out).expect("an answer").option;
            let state = FlowState::read(&said);
            assert_eq!((said.op, said.reason), (SB_OP_RELEASED as u8, reason as u8));
            assert_eq!((state.origin, state.next), (Seq(known.seq), told), "{reason:?}, switch {by}");
        }
    });
}

#[test]
fn the_next_owner_hears_of_the_round_trip() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_019);
        let owned = FIRST.next_attempt();
        let next = owned.successor(1);
        let options = SB_SYN_ALL as u8 | 5 << SB_ROUND_TRIP_SHIFT;
        bench.put(&known.flow, &sb_owned { options, ..released(&known, next, SB_REASON_NONE) });
        let release = question(&known, SB_OP_RELEASE, owned, next);
        let (_, out) = bench.ingress(&to_us(&known.hand_over(release, b"")), 0);
        let said = Handoff::parse(&out).expect("an answer").option;
        assert_eq!((said.op, said.flow_state().options), (SB_OP_RELEASED as u8, options));
    });
}

#[test]
fn all_switches_hear_of_the_end_of_a_released_flow() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_018);
        let owned = FIRST.next_attempt();
        let at_mark = known.seq;
        for (seq, tcp_flags, data, reason, ends) in [
            (at_mark, flags::FIN | flags::ACK, &b""[..], SB_REASON_NONE, true),
            (at_mark, flags::RST, b"", SB_REASON_NONE, true),
            (at_mark, flags::ACK, b"", SB_REASON_NONE, false),
            (at_mark, flags::FIN | flags::ACK, b"data", SB_REASON_NONE, false),
            // More has come to another switch.
            (at_mark + 1, flags::FIN | flags::ACK, b"", SB_REASON_NONE, false),
            // The switch answers the client itself.
            (at_mark, flags::FIN | flags::ACK, b"", SB_REASON_RESPONDING, false),
        ] {
            let released = released(&known, owned.successor(1), reason);
            bench.put(&known.flow, &sb_owned { next: at_mark, ..released });
            let option = of(&known, SB_OP_FORWARD, owned);
            let inner = segment(&known.flow, true, (Seq(seq), Seq(known.ack)), tcp_flags, None, data);
            let view = TcpView::parse(&inner).expect("a TCP packet");
            bench.ingress(&to_us(&known.hand_over_packet(option, &view, &inner)), 0);
            let what = format!("{tcp_flags:#x} at {seq}, {reason:?}");
            assert_eq!(bench.flow(&known.flow).is_none(), ends, "{what}");
            assert_eq!(bench.closed().len(), usize::from(ends), "{what}");
        }
    });
}

#[test]
fn a_request_without_a_server_goes_back_to_one_switch() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_003);
        let owned = FIRST.next_attempt();
        let orphan = released(&known, owned, SB_REASON_NO_SOCKET);
        let request = |generation| {
            let option = of(&known, SB_OP_FORWARD, generation);
            let option = sb_option { flags: SB_HANDOVER_REQUEST as u8, ..option };
            let said = answer(&bench, &known, option, REQUEST);
            assert_eq!((said.0, said.1), (SB_OP_REFUSED, SB_REASON_NO_SOCKET as u8));
            said.2
        };
        assert_eq!(request(owned), Generation::NONE, "nobody knows the flow here");
        bench.put(&known.flow, &orphan);
        assert_eq!(request(Generation::NONE), Generation::NONE, "a switch that knows no generations");
        assert_eq!(request(owned), owned.following());
        assert_eq!(request(owned), Generation::NONE, "another switch that knows the same adoption");
    });
}

#[test]
fn a_switch_hears_that_a_flow_has_left() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_005);
        let owned = FIRST.next_attempt();
        let released = released(&known, owned.successor(1), SB_REASON_NONE);
        bench.put(&known.flow, &released);
        for data in [b"".as_slice(), b"body"] {
            let said = answer(&bench, &known, of(&known, SB_OP_FORWARD, owned), data);
            assert_eq!((said.0, said.2), (SB_OP_UNOWNED, owned.successor(1)));
        }
        let latest = of(&known, SB_OP_FORWARD, owned.successor(1).next_attempt());
        assert_eq!(bench.ingress(&to_us(&known.hand_over(latest, b"")), 0).0, Verdict::Drop);
    });
}

#[test]
fn a_switch_that_does_not_know_the_latest_adoption_is_told() {
    alone(|| {
        let bench = Bench::new();
        let mut known = flow_at(53_004);
        let latest = FIRST.successor(1).next_attempt();
        let adopt = of(&known, SB_OP_ADOPT, latest);
        known.socket = Some(bench.adopt(&known.hand_over(adopt, REQUEST), &known.flow));
        let origin = known.seq;
        known.seq += REQUEST.len() as u32;
        let asks = |op, generation, data: &[u8]| {
            let option =
                of(&known, op, generation).with(|flow: &mut sb_flow_state| flow.origin = origin.to_be());
            let said = answer(&bench, &known, sb_option { flags: SB_HANDOVER_REQUEST as u8, ..option }, data);
            (said.0, said.2)
        };
        let outdated = bench.counter(NodeCounter::Outdated);
        let owned = (SB_OP_OWNED, latest);
        assert_eq!(asks(SB_OP_FORWARD, FIRST.next_attempt(), REQUEST), owned);
        assert_eq!(asks(SB_OP_CONFIRM, FIRST.next_attempt(), b""), owned);
        assert_eq!(asks(SB_OP_RELEASE, FIRST.next_attempt(), b""), owned);
        assert_eq!(asks(SB_OP_ADOPT, FIRST.next_attempt(), REQUEST), owned);
        assert_eq!(bench.counter(NodeCounter::Outdated) - outdated, 4);
        assert_eq!(asks(SB_OP_CONFIRM, latest, b"").0, SB_OP_CONFIRMED);
        assert_eq!(asks(SB_OP_CONFIRM, Generation::NONE, b"").0, SB_OP_CONFIRMED);
    });
}

#[test]
fn a_released_flow_is_described_to_whoever_asks() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_006);
        let next = FIRST.successor(1);
        for (reason, origin, described) in [
            (SB_REASON_NONE, Seq(0), true),
            (SB_REASON_NONE, Seq(known.seq), true),
            (SB_REASON_NONE, Seq(known.seq + 1), false),
            (SB_REASON_NO_SOCKET, Seq(0), true),
            // Half a response; another node has the flow's keys; its second candidate has the request.
            (SB_REASON_RESPONDING, Seq(0), false),
            (SB_REASON_FROZEN, Seq(0), false),
            (SB_REASON_PASSED_ON, Seq(0), false),
        ] {
            let released = released(&known, next, reason);
            bench.put(&known.flow, &sb_owned { mss: 1400, ..released });
            let probe = FlowState::at(origin, Seq(0)).option(SB_OP_PROBE);
            let (_, out) = bench.ingress(&to_us(&known.hand_over(probe, b"")), 0);
            let said = Handoff::parse(&out).expect("an answer").option;
            let state = FlowState::read(&said);
            let what = format!("{reason:?}, {origin:?}");
            assert_eq!(said.op, SB_OP_UNOWNED as u8, "{what}");
            assert_eq!(said.reason == SB_REASON_RELEASED as u8, described, "{what}");
            if described {
                let told = (state.origin, state.next, state.handshake.mss, state.generation);
                assert_eq!(told, (Seq(known.seq), Seq(known.seq), 1400, next), "{what}");
            }
        }
    });
}

#[test]
fn a_list_says_of_a_flow_what_owned_says() {
    alone(|| {
        let bench = Bench::new();
        let mut known = flow_at(53_008);
        let adopt = of(&known, SB_OP_ADOPT, FIRST);
        let other = flow(false, 53_009, PORT);
        assert!(bench.describe(&[known.flow, other]).is_empty(), "the node has none of them");
        known.socket = Some(bench.adopt(&known.hand_over(adopt, REQUEST), &known.flow));
        let listed = bench.describe(&[other, known.flow]);
        let question = question(&known, SB_OP_PROBE, Generation::NONE, Generation::NONE);
        let (_, out) = bench.ingress(&to_us(&known.hand_over(question, b"")), 0);
        let said = Handoff::parse(&out).expect("an answer").option;
        assert_eq!((listed.len(), said.op), (1, SB_OP_OWNED as u8));
        assert_eq!((listed[0].flow, listed[0].state), (known.flow, said.flow_state()));
    });
}

#[test]
fn a_hello_says_which_list_and_order_its_switch_has() {
    alone(|| {
        let bench = Bench::new();
        let known = flow_at(53_010);
        let hello = ToAgent::Hello {
            facts: false,
            heard: (0, 0),
            newest: 1,
            own: Default::default(),
            listed: (7, 3),
            order: Some(Order { number: 9, drain: true }),
        };
        assert_eq!(ToAgent::read(&hello.option()), Some(hello));
        assert_eq!(bench.ingress(&to_us(&known.hand_over(hello.option(), b"")), 0).0, Verdict::Drop);
        let heard = bench.listening();
        let said: Vec<_> =
            heard.iter().map(|heard| (heard.list, heard.listed, heard.order, heard.drain)).collect();
        assert_eq!(said, [(7, 3, 9, 1)]);
    });
}
