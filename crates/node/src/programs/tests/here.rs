//! A machine that is also a switch: messages from node to switch, and packets from switch to node.

use sb_op::*;
use switchback_wire::packet::{TcpView, flags, timestamps};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;

const FIRST: u32 = 1000;

fn asked(port: u16) -> KnownFlow {
    KnownFlow { flow: flow(port.is_multiple_of(2), port, PORT), seq: FIRST, ack: 5000, socket: None }
}

/// The last message: record and packet.
fn last_message(bench: &Bench) -> (sb_record, Vec<u8>) {
    let mut told = bench.messages_here();
    assert_eq!(told.len(), 1);
    told.remove(0)
}

#[test]
fn answers_go_into_the_ring() {
    alone(|| {
        let bench = Bench::new();
        for port in [50_000, 50_001] {
            bench.be_beside_switch(NODE[0]);
            let mut known = asked(port);
            let adopt = known.hand_over_here(known.option(SB_OP_ADOPT), REQUEST);
            known.socket = Some(bench.adopt(&adopt, &known.flow));
            let (record, packet) = last_message(&bench);
            assert_eq!(record.kind, sb_record_kind::SB_RECORD_HANDOFF as u32);
            assert_eq!((record.option.op, record.flow), (SB_OP_ADOPTED as u8, known.flow));
            assert_eq!(record.node, NodeAddress::from(address(NODE[0])).to_wire());
            let view = TcpView::parse(&packet).expect("a header, with the length that it has");
            assert_eq!(
                (view.seq, view.ack, view.len(), view.end),
                (Seq(known.seq), Seq(known.ack), 0, packet.len())
            );

            // The whole packet, where the switch needs it again.
            known.seq += REQUEST.len() as u32;
            let elsewhere = KnownFlow { flow: flow(port.is_multiple_of(2), port, PORT + 1), ..asked(port) };
            let refused = elsewhere.hand_over_here(elsewhere.option(SB_OP_ADOPT), REQUEST);
            assert_eq!(bench.ingress(&to_us(&refused), 0).0, Verdict::Drop);
            let (record, packet) = last_message(&bench);
            assert_eq!(record.option.op, SB_OP_REFUSED as u8);
            assert!(packet.ends_with(REQUEST));

            // The state from which another node continues.
            known.answer();
            let owned = sb_owned { origin: FIRST, ..known.owned() };
            bench.put(&known.flow, &owned);
            let option =
                known.option(SB_OP_RELEASE).with(|flow: &mut sb_flow_state| flow.origin = FIRST.to_be());
            let release = to_us(&known.hand_over_here(option, b""));
            bench.ingress(&release, 0);
            assert_eq!(bench.ingress(&release, 0).0, Verdict::Drop, "what has been released already");
            let (record, packet) = bench.messages_here().pop().expect("an answer");
            assert_eq!(record.option.op, SB_OP_RELEASED as u8);
            let view = TcpView::parse(&packet).unwrap();
            let released = bench.flow(&known.flow).expect("a released flow");
            assert_eq!((view.ack, known.ack), (Seq(released.answered), released.answered));
            assert_eq!(timestamps(&packet, &view).map(|(_, echo)| echo), Some(released.tsval));
            bench.be(NODE[0]);
        }
    });
}

#[test]
fn messages_of_the_agent_are_passed_on() {
    alone(|| {
        let bench = Bench::new();
        let known = asked(50_000);
        let closed = to_us(&known.hand_over_here(known.option(SB_OP_CLOSED), b""));
        let malformed = bench.counter(NodeCounter::DropMalformed);
        assert_eq!(bench.ingress(&closed, 0).0, Verdict::Drop);
        assert_eq!(
            (bench.counter(NodeCounter::DropMalformed), bench.messages_here().len()),
            (malformed + 1, 0)
        );
        bench.be_beside_switch(NODE[0]);
        assert_eq!(bench.ingress(&closed, 0).0, Verdict::Drop);
        assert_eq!(last_message(&bench).0.option.op, SB_OP_CLOSED as u8);
        // A message for another machine's node is not for this one.
        let other = to_us(&known.hand_over(known.option(SB_OP_CLOSED), b""));
        assert_eq!(bench.ingress(&other, 0).0, Verdict::Drop);
        assert_eq!(
            (bench.counter(NodeCounter::DropMalformed), bench.messages_here().len()),
            (malformed + 2, 0)
        );
    });
}

#[test]
fn handoffs_to_the_local_node_pass_the_loopback_interface() {
    alone(|| {
        let bench = Bench::new();
        bench.be_beside_switch(NODE[0]);
        let known = asked(50_000);
        let own = ethernet([0; 6], [0; 6], &known.hand_over_here(known.option(SB_OP_ADOPT), REQUEST));
        assert_eq!(bench.loopback(&own).0, Verdict::Redirect);
        let other = ethernet([0; 6], [0; 6], &known.hand_over(known.option(SB_OP_ADOPT), REQUEST));
        assert_eq!(bench.loopback(&other).0, Verdict::Next, "from another address");
        let mut elsewhere = own.clone();
        elsewhere[14 + 20 + 2] ^= 1;
        assert_eq!(bench.loopback(&elsewhere).0, Verdict::Next, "to another port");
        assert_eq!(bench.loopback(&own[..60]).0, Verdict::Next, "too short");
    });
}

#[test]
fn the_switchs_own_packets_pass_the_node() {
    alone(|| {
        let bench = Bench::new();
        let known = asked(50_000);
        let released = sb_owned { state: sb_ownership::SB_OWN_RELEASED as u8, ..known.owned() };
        bench.put(&known.flow, &released);
        let frame = response(&known.flow, (5000, FIRST), flags::ACK, false, RESPONSE);
        assert_eq!(bench.egress(&frame).0, Verdict::Drop, "of a released flow");
        assert_eq!(bench.egress_marked(&frame, SB_SKB_MARK_SWITCH).0, Verdict::Next);
    });
}

#[test]
fn a_switch_may_announce_its_vips() {
    alone(|| {
        let bench = Bench::new();
        let announcement = arp(1, VIP4, VIP4);
        assert_eq!(bench.egress(&announcement).0, Verdict::Drop);
        bench.set_vip(VIPS[0], SB_VIP_SWITCHED);
        assert_eq!(bench.egress(&announcement), (Verdict::Next, announcement.clone()));
        // The kernel's own ARP request, which would attract the VIP's traffic, leaves with another sender address.
        let (verdict, out) = bench.egress(&arp(1, VIP4, OTHER));
        assert_eq!(verdict, Verdict::Next);
        assert_ne!(out[28..32], VIP4);
    });
}

#[test]
fn lengths_of_responses_are_reported_on_request() {
    alone(|| {
        let bench = Bench::new();
        for (port, path) in [(50_000, 7u16), (50_001, 0)] {
            let mut known = asked(port);
            let session = sb_session { path: path.to_be(), ..Default::default() };
            let option = known.option(SB_OP_ADOPT).with(|flow: &mut sb_flow_state| flow.session = session);
            known.socket = Some(bench.adopt(&known.hand_over(option, REQUEST), &known.flow));
            known.seq += REQUEST.len() as u32;
            let body = [b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n", &[b'x'; 1000][..]].concat();
            for part in [&body[..], &[b'x'; 2000]] {
                bench.egress(&response(&known.flow, (known.ack, known.seq), flags::ACK, false, part));
                known.ack += part.len() as u32;
            }
            let told: Vec<_> = bench.sized().iter().map(|sized| (sized.path, sized.bytes)).collect();
            let expected = (path != 0).then_some((path.to_be(), body.len() as u32 + 2000));
            assert_eq!(told, Vec::from_iter(expected));
        }
    });
}
