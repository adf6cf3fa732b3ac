//! Suppression of acknowledgments.

use ClientCounter::*;
use switchback_wire::packet::{acknowledgment, flags};
use switchback_wire::*;

use super::bench::*;

const SEGMENT: u32 = 1000;

/// A flow with `thin_acks = 2` and `count` received segments of its response.
fn with_segments(bench: &Bench, count: u32) -> ClientFlow {
    bench.configure("thin_acks = 2");
    let known = ClientFlow::introduced(bench, 0, 40_000);
    let_in(bench, &known, 0..count);
    known
}

fn let_in(bench: &Bench, known: &ClientFlow, segments: std::ops::Range<u32>) {
    for segment in segments {
        let packet = known.response(segment * SEGMENT, flags::ACK, &[b'x'; SEGMENT as usize]);
        assert_eq!(bench.ingress(&packet), (Verdict::Next, packet.clone()));
    }
}

/// Whether an acknowledgment of `segments` segments is suppressed; otherwise it must go to the node.
fn is_left_out(bench: &Bench, known: &ClientFlow, segments: u32) -> bool {
    let before = bench.counter(Thinned);
    let packet = known.acknowledges(segments * SEGMENT);
    let (verdict, sent) = bench.egress(&packet);
    assert_eq!(verdict, Verdict::Redirect, "in both cases");
    let left_out = bench.counter(Thinned) > before;
    assert_eq!(left_out, sent == packet);
    bench.ingress(&known.answer(sb_op::SB_OP_HEARD, NODE[0]));
    left_out
}

#[test]
fn as_many_in_a_row_as_configured_and_never_the_last() {
    alone(|bench| {
        let known = with_segments(bench, 8);
        let left_out: Vec<bool> = (1..=8).map(|segments| is_left_out(bench, &known, segments)).collect();
        assert_eq!(left_out, [true, true, false, true, true, false, true, false]);
    });
}

#[test]
fn only_if_configured() {
    alone(|bench| {
        let known = with_segments(bench, 8);
        bench.configure("");
        assert!((1..=8).all(|segments| !is_left_out(bench, &known, segments)));
    });
}

#[test]
fn a_repeated_acknowledgment_is_sent() {
    alone(|bench| {
        let known = with_segments(bench, 8);
        assert!(is_left_out(bench, &known, 1));
        assert!(!is_left_out(bench, &known, 1), "what was let in did not reach the kernel");
        assert!(!is_left_out(bench, &known, 1), "the server counts them");
        assert!(is_left_out(bench, &known, 2));
    });
}

#[test]
fn none_while_a_segment_is_missing() {
    alone(|bench| {
        let known = with_segments(bench, 4);
        let_in(bench, &known, 5..8);
        assert!((1..=4).all(|segments| !is_left_out(bench, &known, segments)));
        let_in(bench, &known, 4..5);
        assert!(!is_left_out(bench, &known, 5), "not known to be filled");
        assert!(!is_left_out(bench, &known, 8), "but now it is");
        let_in(bench, &known, 8..12);
        assert!(is_left_out(bench, &known, 9));
    });
}

#[test]
fn none_at_the_end_of_the_connection() {
    alone(|bench| {
        let known = with_segments(bench, 4);
        bench.ingress(&known.response(4 * SEGMENT, flags::ACK | flags::FIN, b""));
        assert!((1..=4).all(|segments| !is_left_out(bench, &known, segments)));
    });
}

#[test]
fn none_with_more_than_an_acknowledgment() {
    alone(|bench| {
        let known = with_segments(bench, 8);
        let ack = Seq(known.ack);
        let numbers = (Seq(known.next), ack + SEGMENT);
        let blocks = [(ack + 5000u32, ack + 6000u32)];
        // The segment comes from the VIP, so the flow is reversed.
        let turned = sb_flow {
            client: known.flow.vip,
            vip: known.flow.client,
            client_port: known.flow.vip_port,
            vip_port: known.flow.client_port,
        };
        let sack = acknowledgment(&turned, numbers, None, 500, &blocks);
        let sack_and_time = acknowledgment(&turned, numbers, Some((1, 2)), 500, &blocks);
        let data = known.out(50, SEGMENT, flags::ACK, b"x");
        let pushed = known.out(100, SEGMENT, flags::ACK | flags::PSH, b"");
        for (index, packet) in [sack, sack_and_time, data, pushed].iter().enumerate() {
            bench.put(&known.flow, &sb_direct_flow { asks: 0, ..fresh(bench, &known) });
            assert_eq!(bench.egress(packet).0, Verdict::Redirect);
            assert_eq!(bench.counter(Thinned), 0, "packet {index}");
        }
        bench.put(&known.flow, &fresh(bench, &known));
        bench.egress(&acknowledgment(&turned, numbers, Some((1, 2)), 500, &[]));
        assert_eq!(bench.counter(Thinned), 1, "timestamps say nothing more");
    });
}

/// The flow's state before the first acknowledgment.
fn fresh(bench: &Bench, known: &ClientFlow) -> sb_direct_flow {
    sb_direct_flow { acked: known.ack, left_out: known.ack, thinned: 0, ..bench.flow(&known.flow).unwrap() }
}
