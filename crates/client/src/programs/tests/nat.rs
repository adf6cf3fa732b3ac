//! A client behind a NAT or a firewall.

use ClientCounter::*;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::*;

use super::bench::*;

/// Window of the client's packets, scaled by 7 as in the introduction.
const WINDOW: u16 = 500;

fn behind_nat(bench: &Bench) -> ClientFlow {
    let flow = ClientFlow::new(0, 40_000).flow;
    let client = address_bytes(address(OUTSIDE));
    let known = ClientFlow {
        outside: sb_flow { client, client_port: 50_000u16.to_be(), ..flow },
        ..ClientFlow::new(0, 40_000)
    };
    assert_eq!(bench.ingress(&known.introduction(NODE[0])).0, Verdict::Drop);
    assert_eq!(bench.counter(Introduced), 1);
    known
}

/// An acknowledgment with a window and a right checksum.
fn acknowledgment(known: &ClientFlow, acked: u32) -> Vec<u8> {
    let mut packet = known.acknowledges(acked);
    let before = u16::from_be_bytes(packet[34..36].try_into().unwrap());
    let check = u16::from_be_bytes(packet[36..38].try_into().unwrap());
    packet[34..36].copy_from_slice(&WINDOW.to_be_bytes());
    // RFC 1624: incremental update of the checksum.
    let sum = u64::from(!check) + u64::from(!before) + u64::from(WINDOW);
    packet[36..38].copy_from_slice(&packet::fold(sum).to_be_bytes());
    assert!(is_tcp_sealed(&packet));
    packet
}

#[test]
fn direct_packets_have_the_address_that_the_node_knows() {
    alone(|bench| {
        let known = behind_nat(bench);
        assert_eq!(bench.egress(&acknowledgment(&known, 0)).0, Verdict::Next, "the NAT has to see it");
        let packet = acknowledgment(&known, 1000);
        let (verdict, sent) = bench.egress(&packet);
        assert_eq!(verdict, Verdict::Redirect);
        assert_eq!(sent[12..16], packet[12..16], "outside its own, for the NAT");
        let inner = &sent[handoff::OVERHEAD_V4..];
        assert_eq!(inner[12..16], known.outside.client[12..]);
        assert_eq!(inner[20..22], known.outside.client_port.to_ne_bytes());
        assert!(is_tcp_sealed(inner) && packet::fold(packet::sum(&inner[..20])) == 0);
        // The tag covers the flow as the cluster sees it, and the answer finds its way back.
        let shim: sb_shim = read_from(&sent[20..]).unwrap();
        let view = TcpView { seq: Seq(0), ack: Seq(0), ..TcpView::parse(inner).unwrap() };
        let peers = handoff::Peers::of_client(address(NODE[0]));
        let key = key(known.outside.client, 0);
        assert_eq!(handoff::tag(&key, &peers, &known.outside, &view, &shim.option), shim.option.tag);
        bench.ingress(&known.answer(sb_op::SB_OP_HEARD, NODE[0]));
        assert_eq!(bench.flow(&known.flow).unwrap().asks, 0);
    });
}

/// The server never sends more than the window that the NAT has seen.
#[test]
fn a_nat_sees_data_the_end_and_every_half_window() {
    alone(|bench| {
        let known = behind_nat(bench);
        let window = u32::from(WINDOW) << 7;
        let mut edge = 0;
        for acked in (0..10 * window).step_by(1024) {
            let (verdict, sent) = bench.egress(&acknowledgment(&known, acked));
            if verdict == Verdict::Next {
                edge = acked + window;
                continue;
            }
            let inner = &sent[handoff::OVERHEAD_V4..];
            let left = u32::from(u16::from_be_bytes(inner[34..36].try_into().unwrap())) << 7;
            assert!(acked + left <= edge && left + 128 > edge - acked, "{acked}: {left}, edge {edge}");
            assert!(is_tcp_sealed(inner));
            bench.ingress(&known.answer(sb_op::SB_OP_HEARD, NODE[0]));
        }
        let shown = bench.counter(Shown);
        assert!((19..22).contains(&shown), "{shown}");
        for (tcp_flags, data) in [(flags::ACK, &b"x"[..]), (flags::ACK | flags::FIN, b""), (flags::RST, b"")]
        {
            assert_eq!(bench.egress(&known.out(50, 0, tcp_flags, data)).0, Verdict::Next);
        }
        assert_eq!(bench.counter(Shown), shown + 3);
    });
}

#[test]
fn a_firewall_sees_data_the_end_and_every_half_window() {
    alone(|bench| {
        bench.configure("firewall = true");
        let known = ClientFlow::introduced(bench, 1, 40_000);
        assert_eq!(bench.egress(&known.acknowledges(0)).0, Verdict::Next);
        assert_eq!(bench.egress(&known.acknowledges(1)).0, Verdict::Redirect);
        assert_eq!(bench.egress(&known.out(100, 1, flags::ACK | flags::FIN, b"")).0, Verdict::Next);
    });
}
