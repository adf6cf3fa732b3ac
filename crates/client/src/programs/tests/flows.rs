//! Which packets of a flow go to the node and which to the switch.

use ClientCounter::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;

const OFF: u8 = sb_direct_state::SB_DIRECT_OFF as u8;

#[test]
fn without_an_introduction_nothing_changes() {
    alone(|bench| {
        let known = ClientFlow::new(0, 40_000);
        for packet in
            [known.out(0, 0, flags::SYN, b""), known.out(0, 0, flags::ACK, b"GET"), known.acknowledges(9)]
        {
            assert_eq!(bench.egress(&packet), (Verdict::Next, packet.clone()));
        }
        let response = known.response(0, flags::ACK, b"ok");
        assert_eq!(bench.ingress(&response), (Verdict::Next, response.clone()));
    });
}

#[test]
fn packets_go_to_the_node_that_has_introduced_itself() {
    alone(|bench| {
        for v6 in [0, 1] {
            let known = ClientFlow::introduced(bench, v6, 40_000);
            let packets = [
                known.acknowledges(9),
                known.out(50, 9, flags::ACK, &[b'x'; 50]),
                known.out(100, 9, flags::ACK | flags::FIN, b""),
            ];
            // The node is asked twice, in case one question is lost.
            for (packet, more) in packets.iter().zip([SB_DIRECT_ASK, SB_DIRECT_ASK, 0]) {
                assert_eq!(bench.egress(packet), (Verdict::Redirect, known.direct(packet, more)));
            }
            assert_eq!(bench.node(NODE[v6]).unwrap().packets, 3);
        }
        assert_eq!((bench.counter(Direct), bench.counter(Asked)), (6, 4));
        assert_eq!(bench.direct_flows(), 2);
    });
}

#[test]
fn the_tunnel_has_the_packets_traffic_class() {
    alone(|bench| {
        for v6 in [0, 1] {
            let known = ClientFlow::introduced(bench, v6, 40_000);
            let mut packet = known.acknowledges(9);
            packet[..2].copy_from_slice(if v6 == 0 { &[0x45, 0xba] } else { &[0x6b, 0xa0] });
            let (verdict, sent) = bench.egress(&packet);
            assert_eq!((verdict, &sent[..2]), (Verdict::Redirect, &packet[..2]));
        }
    });
}

#[test]
fn the_second_key_is_accepted() {
    alone(|bench| {
        let known = ClientFlow::new(0, 40_000);
        bench.ingress(&known.introduction_under(&key(known.flow.client, 1), NODE[0]));
        assert!(bench.flow(&known.flow).is_some());
    });
}

#[test]
fn forged_introductions_are_refused() {
    alone(|bench| {
        let known = ClientFlow::new(0, 40_000);
        let right = known.introduction(NODE[0]);
        // Sequence and acknowledgment number, and all parts of the option under the tag.
        for at in [24, 28, 44, 59, 60, 64, 78] {
            let mut forged = right.clone();
            forged[at] ^= 1;
            let before = bench.counter(DropTag);
            assert_eq!(bench.ingress(&forged).0, Verdict::Drop, "byte {at}");
            assert_eq!(bench.counter(DropTag), before + 1, "byte {at}");
        }
        let other_vip = ClientFlow { outside: sb_flow { vip: [9; 16], ..known.flow }, ..known };
        let mut forged = other_vip.introduction(NODE[0]);
        forged[12..20].copy_from_slice(&right[12..20]);
        bench.ingress(&forged);
        assert_eq!(bench.flow(&known.flow), None);
        // Foreign packets: another option, other flags.
        for (at, bit) in [(40, 1), (42, 1), (33, flags::PSH)] {
            let mut other = right.clone();
            other[at] ^= bit;
            assert_eq!(bench.ingress(&other), (Verdict::Next, other.clone()), "byte {at}");
        }
    });
}

#[test]
fn the_next_request_and_later_packets_go_to_the_switch() {
    alone(|bench| {
        let known = ClientFlow::introduced(bench, 0, 40_000);
        let next = known.out(100, 9, flags::ACK, b"GET");
        assert_eq!(bench.egress(&next), (Verdict::Next, next.clone()));
        assert_eq!(bench.counter(Beyond), 1);
        assert_eq!(bench.flow(&known.flow).unwrap().state, OFF);
        assert_eq!(bench.egress(&known.acknowledges(20)).0, Verdict::Next);
        // A delayed copy of the introduction changes nothing; that of the next request's node does.
        bench.ingress(&known.introduction(NODE[0]));
        assert_eq!((bench.counter(IntroducedLate), bench.flow(&known.flow).unwrap().state), (1, OFF));
        let later = ClientFlow { seq: 1100, next: 1103, ..known };
        bench.ingress(&later.introduction(OTHER[0]));
        let entry = bench.flow(&known.flow).unwrap();
        assert_eq!((entry.node, entry.sent), (address_bytes(address(OTHER[0])), 1103));
        assert_eq!(bench.egress(&later.acknowledges(20)).0, Verdict::Redirect);
    });
}

#[test]
fn retransmissions_go_to_the_switch() {
    alone(|bench| {
        let known = ClientFlow::introduced(bench, 0, 40_000);
        let request = known.out(0, 0, flags::ACK, &[b'x'; 50]);
        assert_eq!(bench.egress(&request).0, Verdict::Next, "it came before the introduction");
        let rest = known.out(50, 0, flags::ACK, &[b'x'; 50]);
        assert_eq!(bench.egress(&rest).0, Verdict::Redirect);
        assert_eq!(bench.egress(&rest).0, Verdict::Next);
        assert_eq!(bench.counter(Again), 2);
        assert_eq!(bench.egress(&known.acknowledges(9)).0, Verdict::Redirect);
    });
}

#[test]
fn a_connection_of_the_same_ports_begins_anew() {
    alone(|bench| {
        for end in [flags::SYN, flags::RST] {
            let known = ClientFlow::introduced(bench, 0, 40_000);
            bench.egress(&known.out(0, 0, end, b""));
            assert_eq!(bench.flow(&known.flow), None);
            assert_eq!(bench.egress(&known.acknowledges(9)).0, Verdict::Next);
        }
    });
}

#[test]
fn a_node_that_answers_is_asked_again_after_a_while() {
    alone(|bench| {
        let known = ClientFlow::introduced(bench, 0, 40_000);
        bench.egress(&known.acknowledges(1));
        bench.egress(&known.acknowledges(2));
        bench.ingress(&known.answer(sb_op::SB_OP_HEARD, OTHER[0]));
        assert_eq!(bench.flow(&known.flow).unwrap().asks, 2, "another node's answer");
        assert_eq!(bench.ingress(&known.answer(sb_op::SB_OP_HEARD, NODE[0])).0, Verdict::Drop);
        assert_eq!((bench.flow(&known.flow).unwrap().asks, bench.counter(Heard)), (0, 2));
        bench.egress(&known.acknowledges(3));
        assert_eq!(bench.counter(Asked), 2);
        let entry = bench.flow(&known.flow).unwrap();
        bench.put(&known.flow, &sb_direct_flow { last_ns: entry.last_ns - 250_000_000, ..entry });
        bench.egress(&known.acknowledges(4));
        assert_eq!(bench.counter(Asked), 3);
    });
}

#[test]
fn a_node_that_does_not_answer_is_left_alone_for_a_while() {
    alone(|bench| {
        let known = ClientFlow::introduced(bench, 0, 40_000);
        let other = ClientFlow::introduced(bench, 0, 40_001);
        for asked in 1..=2 {
            assert_eq!(bench.egress(&known.acknowledges(asked)).0, Verdict::Redirect);
            let entry = bench.flow(&known.flow).unwrap();
            let (asked_ns, last_ns) = (entry.asked_ns - 300_000_000, entry.last_ns - 300_000_000);
            bench.put(&known.flow, &sb_direct_flow { asked_ns, last_ns, ..entry });
        }
        // One lost packet is tolerated, two are not.
        let packet = known.acknowledges(3);
        assert_eq!(bench.egress(&packet), (Verdict::Next, packet.clone()));
        assert_eq!((bench.counter(Fallback), bench.node(NODE[0]).unwrap().fallbacks), (1, 1));
        assert_eq!(bench.egress(&other.acknowledges(1)).0, Verdict::Next, "other flows of the node");
        assert_eq!(bench.counter(Fallback), 2);
        bench.ingress(&ClientFlow { next: 1200, ..known }.introduction(NODE[0]));
        assert_eq!((bench.counter(Avoided), bench.flow(&known.flow).unwrap().state), (1, OFF));
        bench.ingress(&ClientFlow { next: 1200, ..known }.introduction(OTHER[0]));
        assert_eq!(bench.egress(&known.acknowledges(4)).0, Verdict::Redirect, "another node");
    });
}

#[test]
fn a_flow_that_its_node_does_not_have_goes_by_the_switch() {
    alone(|bench| {
        for v6 in [0, 1] {
            let known = ClientFlow::introduced(bench, v6, 40_000);
            bench.ingress(&known.answer(sb_op::SB_OP_GONE, OTHER[v6]));
            assert_eq!(bench.egress(&known.acknowledges(1)).0, Verdict::Redirect, "another node's answer");
            bench.ingress(&known.answer(sb_op::SB_OP_GONE, NODE[v6]));
            assert_eq!(bench.egress(&known.acknowledges(2)).0, Verdict::Next);
        }
        assert_eq!(bench.direct_flows(), 0);
    });
}

#[test]
fn a_removed_service_gets_no_introductions() {
    alone(|bench| {
        let known = ClientFlow {
            flow: sb_flow { vip_port: 81u16.to_be(), ..ClientFlow::new(0, 40_000).flow },
            ..ClientFlow::new(0, 1)
        };
        let known = ClientFlow { outside: known.flow, ..known };
        let packet = known.introduction(NODE[0]);
        assert_eq!(bench.ingress(&packet), (Verdict::Next, packet.clone()));
    });
}
