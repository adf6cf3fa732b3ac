//! A hidden node: what its interface lets in, and what is not answered.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use sb_op::*;
use switchback_wire::packet::{flags, segment};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;

/// A packet's addresses and ports, from another machine to this one.
fn between(from: SocketAddr, to: SocketAddr) -> sb_flow {
    sb_flow {
        client: address_bytes(from.ip()),
        vip: address_bytes(to.ip()),
        client_port: from.port().to_be(),
        vip_port: to.port().to_be(),
    }
}

/// A packet with another protocol number, and this first byte after the IP header.
fn packet(flow: &sb_flow, protocol: u8, first: u8) -> Vec<u8> {
    let mut packet = segment(flow, true, (Seq(1), Seq(1)), flags::ACK, None, b"");
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    packet[if header == 20 { 9 } else { 6 }] = protocol;
    if protocol != 17 {
        packet[header] = first;
    }
    repair(&mut packet);
    to_us(&packet)
}

#[test]
fn nothing_shows_to_a_scan() {
    alone(|| {
        let bench = Bench::new();
        let stranger = |ip: IpAddr| {
            SocketAddr::new(
                if ip.is_ipv4() { address("198.51.100.9") } else { address("2001:db8:9::9") },
                999,
            )
        };
        for ip in ["127.0.0.1", "::1"].map(address) {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let (open, udp) = (listener.local_addr().unwrap(), UdpSocket::bind((ip, 0)).unwrap());
            let closed = SocketAddr::new(ip, 1);
            let scans = [
                (
                    "SYN to an open port",
                    segment(&between(stranger(ip), open), true, (Seq(1), Seq(0)), flags::SYN, None, b""),
                ),
                (
                    "SYN to a closed port",
                    segment(&between(stranger(ip), closed), true, (Seq(1), Seq(0)), flags::SYN, None, b""),
                ),
                (
                    "ACK",
                    segment(&between(stranger(ip), open), true, (Seq(1), Seq(1)), flags::ACK, None, b"x"),
                ),
            ];
            let mut frames: Vec<(&str, Vec<u8>)> =
                scans.iter().map(|(what, packet)| (*what, to_us(packet))).collect();
            let udp_flow = between(stranger(ip), udp.local_addr().unwrap());
            frames.push(("UDP to an open port", packet(&udp_flow, 17, 0)));
            frames.push(("UDP to a closed port", packet(&between(stranger(ip), closed), 17, 0)));
            let (icmp, echo) = if ip.is_ipv4() { (1, 8) } else { (58, 128) };
            frames.push(("ping", packet(&udp_flow, icmp, echo)));
            frames.push(("SCTP", packet(&udp_flow, 132, 0)));
            for (what, frame) in &frames {
                assert_eq!(
                    bench.ingress(frame, 0).0,
                    Verdict::Next,
                    "{what} to {ip} of a node that is not hidden"
                );
                bench.hide(true);
                assert_eq!(bench.ingress(frame, 0).0, Verdict::Drop, "{what} to {ip}");
                bench.hide(false);
            }
        }
    });
}

#[test]
fn connections_of_the_machine_itself_work() {
    alone(|| {
        let bench = Bench::new();
        let let_in = |what: &str, frame: &[u8]| {
            bench.hide(true);
            assert_eq!(bench.ingress(frame, 0).0, Verdict::Next, "{what}");
            bench.hide(false);
        };
        for ip in ["127.0.0.1", "::1"].map(address) {
            let listener = TcpListener::bind((ip, 0)).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let back = between(stream.peer_addr().unwrap(), stream.local_addr().unwrap());
            let tcp = to_us(&segment(&back, true, (Seq(1), Seq(1)), flags::ACK, None, b"x"));
            let_in("of a connection", &tcp);
            let (asks, answers) = (UdpSocket::bind((ip, 0)).unwrap(), UdpSocket::bind((ip, 0)).unwrap());
            asks.connect(answers.local_addr().unwrap()).unwrap();
            let back = between(answers.local_addr().unwrap(), asks.local_addr().unwrap());
            let_in("an answer by UDP", &packet(&back, 17, 0));
            let (icmp, types) = if ip.is_ipv4() { (1, [0, 3]) } else { (58, [1, 135]) };
            for kind in types {
                let_in(&format!("ICMP {kind}"), &packet(&back, icmp, kind));
            }
        }
        let_in("ARP for the node", &arp(1, OTHER, [192, 0, 2, 21]));
        bench.hide(true);
        let known = KnownFlow { flow: flow(false, 50_000, PORT), seq: 1000, ack: 5000, socket: None };
        let refused = bench.counter(NodeCounter::RefusedNoSocket);
        let asked = sb_option { flags: SB_HANDOVER_REQUEST as u8, ..known.option(SB_OP_FORWARD) };
        bench.ingress(&to_us(&known.hand_over(asked, REQUEST)), 0);
        assert_eq!(bench.counter(NodeCounter::RefusedNoSocket), refused + 1, "a switch is answered");
    });
}
