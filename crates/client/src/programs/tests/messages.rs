//! Packets from nodes: answers, and tunneled packets.

use std::net::SocketAddr;

use ClientCounter::*;
use switchback_wire::handoff::OVERHEAD_V4 as INNER;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;

#[test]
fn a_tunneled_packet_comes_out_as_it_went_in() {
    alone(|bench| {
        for v6 in [0, 1] {
            let known = ClientFlow::new(v6, 40_000);
            let inner = known.response(0, flags::ACK, b"HTTP/1.1 200 OK");
            let packet = known.message(sb_op::SB_OP_TUNNELED, NODE[v6], &key(known.flow.client, 0), &inner);
            assert_eq!(bench.ingress(&packet), (Verdict::Next, inner));
            assert!(bench.tunneled().contains(&known.flow));
            // Closed connections are not listed.
            bench.egress(&known.out(0, 0, flags::SYN, b""));
            assert_eq!(bench.tunneled(), []);
        }
        assert_eq!(bench.counter(Tunneled), 2);
    });
}

/// A congestion mark of a router on the outer header is copied to the inner one if that allows it (RFC 6040).
#[test]
fn a_congestion_mark_is_carried_inside() {
    alone(|bench| {
        for (v6, inner_ect) in [(0, true), (0, false), (1, true)] {
            let known = ClientFlow::new(v6, 40_000);
            let mut inner = known.response(0, flags::ACK, b"x");
            let ect = |packet: &mut [u8], ecn: u8| packet[1] |= if v6 == 0 { ecn } else { ecn << 4 };
            if inner_ect {
                ect(&mut inner, 2);
            }
            let mut packet =
                known.message(sb_op::SB_OP_TUNNELED, NODE[v6], &key(known.flow.client, 0), &inner);
            ect(&mut packet, 3);
            let (_, out) = bench.ingress(&packet);
            let ecn = if v6 == 0 { out[1] & 3 } else { out[1] >> 4 & 3 };
            assert_eq!(ecn, if inner_ect { 3 } else { 0 });
        }
    });
}

#[test]
fn an_introduction_may_come_through_the_tunnel() {
    alone(|bench| {
        for v6 in [0, 1] {
            let known = ClientFlow::new(v6, 40_000);
            let inner = known.introduction(NODE[v6]);
            let packet = known.message(sb_op::SB_OP_TUNNELED, NODE[v6], &key(known.flow.client, 0), &inner);
            assert_eq!(bench.ingress(&packet).0, Verdict::Drop);
            assert_eq!(bench.egress(&known.acknowledges(1)).0, Verdict::Redirect);
        }
    });
}

#[test]
fn a_tunnel_is_no_way_around_a_firewall() {
    alone(|bench| {
        let known = ClientFlow::new(0, 40_000);
        let right = known.message(
            sb_op::SB_OP_TUNNELED,
            NODE[0],
            &key(known.flow.client, 0),
            &known.response(0, flags::ACK, b"x"),
        );
        let dropped = |packet: &[u8], counter: ClientCounter| {
            let before = bench.counter(counter);
            assert_eq!(bench.ingress(packet).0, Verdict::Drop, "{counter:?}");
            assert_eq!(bench.counter(counter), before + 1, "{counter:?}");
        };
        // Sender, flags, reserved bytes, tag, flow.
        for at in [
            15,
            20 + 16 + 6,
            20 + 16 + 40,
            20 + 16 + 48,
            INNER - 1,
            INNER + 15,
            INNER + 19,
            INNER + 21,
            INNER + 23,
        ] {
            let mut forged = right.clone();
            forged[at] ^= 1;
            dropped(&forged, DropTag);
        }
        let own = key(known.flow.client, 0);
        let tunneled = client::option(sb_op::SB_OP_TUNNELED, false, None);
        let later = sb_option { version: SB_VERSION + 1, ..tunneled };
        let inner = known.response(0, flags::ACK, b"x");
        dropped(&known.message_with(later, NODE[0], &own, &inner), DropVersion);
        dropped(&known.message_with(later, NODE[0], &sb_key { k0: 1, k1: 2 }, &inner), DropTag);
        let elsewhere = sb_flow { vip_port: 22u16.to_be(), ..known.flow };
        let foreign = ClientFlow { flow: elsewhere, outside: elsewhere, ..known };
        let inner = foreign.response(0, flags::ACK, b"x");
        dropped(
            &foreign.message(sb_op::SB_OP_TUNNELED, NODE[0], &key(known.flow.client, 0), &inner),
            DropForeign,
        );
        let mut short = right.clone();
        short[INNER + 3] += 1;
        dropped(&short, DropMalformed);
        dropped(&[&short[..], &[0xa5; 6]].concat(), DropMalformed);
        assert_eq!((bench.counter(Tunneled), bench.tunneled()), (0, vec![]));
    });
}

#[test]
fn what_a_later_node_adds_within_a_version_is_ignored() {
    alone(|bench| {
        let known = ClientFlow::introduced(bench, 0, 40_000);
        let own = key(known.flow.client, 0);
        let option = |op| {
            let own = known.flow.client();
            let SocketAddr::V4(own) = own else { panic!("{own} is no IPv4 address") };
            let option = sb_option { flags: 0xff, ..client::option(op, false, Some(own)) };
            // Bytes behind the structure, and those of it that are reserved.
            option
                .with(|flow: &mut sb_flow_state| flow.generation = u32::MAX)
                .with(|direct: &mut sb_direct| direct.reserved = [0xff; 2])
        };
        let response = known.response(0, flags::ACK, b"x");
        let (verdict, out) =
            bench.ingress(&known.message_with(option(sb_op::SB_OP_TUNNELED), NODE[0], &own, &response));
        assert_eq!((verdict, out), (Verdict::Next, response));
        let question = known.acknowledges(1);
        bench.ingress(&known.message_with(option(sb_op::SB_OP_GONE), NODE[0], &own, &question));
        assert_eq!(bench.counter(Gone), 1);
        assert_eq!(
            bench.flow(&known.flow).map(|flow| flow.state),
            Some(sb_direct_state::SB_DIRECT_OFF as u8)
        );
    });
}

/// Other tunnels on the same port, and handoff packets for a switch or node on this machine, are not touched.
#[test]
fn foreign_packets_are_left_alone() {
    alone(|bench| {
        let known = ClientFlow::introduced(bench, 0, 40_000);
        let own = key(known.flow.client, 0);
        let inner = known.acknowledges(1);
        let of_switch = known.message(sb_op::SB_OP_FORWARD, NODE[0], &own, &inner);
        let mut class = known.message(sb_op::SB_OP_HEARD, NODE[0], &own, &inner);
        class[20 + 16] ^= 1;
        let mut port = known.message(sb_op::SB_OP_HEARD, NODE[0], &own, &inner);
        port[23] ^= 1;
        let mut fragment = known.message(sb_op::SB_OP_HEARD, NODE[0], &own, &inner);
        fragment[6] |= 0x20;
        for packet in [of_switch, class, port, fragment] {
            assert_eq!(bench.ingress(&packet), (Verdict::Next, packet.clone()));
        }
    });
}
