//! An adoption without room is passed on to its second candidate, once.

use sb_op::*;
use switchback_wire::handoff::Way;
use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::invariants::Handoff;

/// An ADOPT for a port without a listener. `second` has neither class nor length.
fn adopt(outer_v6: bool, inner_v6: bool, second: sb_second) -> Vec<u8> {
    let flow = flow(inner_v6, 50_000, PORT + 1);
    let known = KnownFlow { flow, seq: 1000, ack: 5000, socket: None };
    let inner = segment(&flow, true, (Seq(1000), Seq(5000)), flags::ACK, Some((1, 2)), REQUEST);
    let view = TcpView::parse(&inner).expect("a TCP packet");
    let version = usize::from(outer_v6);
    let way = Way::to_node(peers(SWITCHES[version], NODE[version]));
    let mut packet = Vec::new();
    handoff::encode(&mut packet, &SIGN, &way, &flow, known.option(SB_OP_ADOPT), &view, &inner);
    let node = sb_second { opt_class: second_option().opt_class, length: second_option().length, ..second };
    add_second(&mut packet, &node);
    to_us(&packet)
}

fn candidate(outer_v6: bool) -> sb_second {
    let node = address_bytes(address(SECOND[usize::from(outer_v6)]));
    sb_second { type_: SB_SECOND_TYPE as u8, node, tag: *b"12345678", ..Default::default() }
}

const VERSIONS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn an_adoption_is_passed_on_to_the_second_node() {
    alone(|| {
        let bench = Bench::new();
        for (outer_v6, inner_v6) in VERSIONS {
            bench.be(NODE[usize::from(outer_v6)]);
            let frame = adopt(outer_v6, inner_v6, candidate(outer_v6));
            let (verdict, out) = bench.ingress(&frame, 0);
            assert_eq!(verdict, Verdict::Redirect);
            // Patched by hand: destination, checksum, tag, type.
            let (dest, shim) = if outer_v6 { (14 + 24, 14 + 40) } else { (14 + 16, 14 + 20) };
            let second = shim + size_of::<sb_shim>();
            let node = address_bytes(address(SECOND[usize::from(outer_v6)]));
            let mut expected = frame.clone();
            let len = shim - dest;
            expected[dest..shim].copy_from_slice(&node[16 - len..]);
            expected[second - 8..second].copy_from_slice(b"12345678");
            expected[second + 2] = SB_SECOND_USED as u8;
            assert_eq!(expected[shim + 12..shim + 15], [0, EPOCH as u8, EPOCH as u8], "VNI");
            expected[shim + 13] = 0;
            repair(&mut expected[14..]);
            assert_eq!(out, expected, "{outer_v6} {inner_v6}");
            assert_eq!(out[second..second + 4], [0xff, 0x5b, 3, 6]);
        }
        assert_eq!(bench.counter(NodeCounter::PassedOn), VERSIONS.len() as u64);
    });
}

#[test]
fn the_second_node_answers_the_switch() {
    alone(|| {
        let bench = Bench::new();
        for (outer_v6, inner_v6) in VERSIONS {
            let version = usize::from(outer_v6);
            let mut frame = adopt(outer_v6, inner_v6, candidate(outer_v6));
            // As the first node sends it.
            bench.be(NODE[version]);
            let asked = Handoff::read(&frame).expect("a handoff packet");
            let tag = asked.shim + size_of::<sb_shim>() + 20;
            let valid = asked.tag(&SIGN, SECOND[version]);
            frame[tag..tag + 8].copy_from_slice(&valid);
            let (_, frame) = bench.ingress(&frame, 0);

            bench.be(SECOND[version]);
            let (verdict, out) = bench.ingress(&frame, 0);
            assert_eq!(verdict, Verdict::Redirect);
            let answer = Handoff::parse(&out).expect("a handoff packet");
            assert_eq!(answer.option.op, SB_OP_REFUSED as u8, "it is not passed on again");
            assert_eq!(
                (answer.second.is_none(), answer.option.tag),
                (true, answer.tag(&SIGN, SECOND[version]))
            );
            let refused = &out[answer.inner..];
            assert_eq!(refused, &frame[Handoff::read(&frame).expect("the same").inner..], "as it came");
            let addresses = if outer_v6 { 14 + 8..14 + 40 } else { 14 + 12..14 + 20 };
            let expected = [SECOND[version], SWITCHES[version]].map(|text| address_bytes(address(text)));
            let skipped = if outer_v6 { 0 } else { 12 };
            assert_eq!(out[addresses], [&expected[0][skipped..], &expected[1][skipped..]].concat());
        }
        assert_eq!(bench.counter(NodeCounter::PassedOn), VERSIONS.len() as u64);
    });
}

#[test]
fn packets_that_cannot_be_passed_on_are_refused() {
    alone(|| {
        let bench = Bench::new();
        let refused = |frame: &[u8], what: &str| {
            let (verdict, out) = bench.ingress(frame, 0);
            let answer = Handoff::parse(&out).expect("a handoff packet");
            assert_eq!((verdict, answer.option.op), (Verdict::Redirect, SB_OP_REFUSED as u8), "{what}");
            assert!(answer.second.is_none(), "{what}");
            assert_eq!([&out[..6], &out[6..12]], [&frame[6..12], &frame[..6]], "back to the router");
        };
        refused(&adopt(false, false, candidate(true)), "a node of the other IP version");
        let mut frame = adopt(false, false, candidate(false));
        let second = 14 + 20 + size_of::<sb_shim>();
        for (at, what) in [(2, "type"), (0, "class"), (3, "length")] {
            let mut other = frame.clone();
            other[second + at] ^= 0x40;
            assert_eq!(bench.ingress(&other, 0), (Verdict::Next, other), "another {what} is none of ours");
        }
        // Only an adoption has a second candidate.
        let option = Handoff::read(&frame).expect("a handoff packet");
        let forward = sb_option { op: SB_OP_FORWARD as u8, ..option.option };
        let tag = handoff::tag(&SIGN, &peers(SWITCHES[0], NODE[0]), &option.flow, &option.view, &forward);
        let forward = sb_option { tag, ..forward };
        frame[second - size_of::<sb_option>()..second].copy_from_slice(bytes_of(&forward));
        let malformed = bench.counter(NodeCounter::DropMalformed);
        assert_eq!(bench.ingress(&frame, 0).0, Verdict::Drop);
        assert_eq!(bench.counter(NodeCounter::DropMalformed), malformed + 1);
    });
}

/// The answer to an adoption that the first node takes has no second option.
#[test]
fn an_adopting_node_ignores_the_second() {
    alone(|| {
        let bench = Bench::new();
        let mut known = KnownFlow { flow: flow(false, 50_000, PORT), seq: 1000, ack: 5000, socket: None };
        let packet = known.hand_over_with(known.option(SB_OP_ADOPT), REQUEST, SECOND[0]);
        known.socket = Some(bench.adopt(&packet, &known.flow));
        let (verdict, out) = bench.ingress(&to_us(&packet), 0);
        let answer = Handoff::parse(&out).expect("a handoff packet");
        assert_eq!((verdict, answer.option.op), (Verdict::Redirect, SB_OP_ADOPTED as u8));
        assert_eq!((answer.option.reason, answer.second.is_none()), (0, true));
        assert_eq!(out.len(), 14 + 20 + size_of::<sb_shim>() + 40);
        assert_eq!(bench.counter(NodeCounter::PassedOn), 0);
    });
}
