//! Answers in place of the kernel, which has none of the VIPs: ARP, neighbour discovery, ping; and packets left to the
//! kernel.

use std::net::IpAddr;

use SwitchCounter::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::{Bench, Verdict};
use super::frames::*;
use super::{Row, run_all};

const BROADCAST: [u8; 6] = [0xff; 6];

/// An ARP packet.
#[derive(Clone, Copy)]
struct Arp {
    op: u8,
    sender: ([u8; 6], [u8; 4]),
    target: ([u8; 6], [u8; 4]),
}

impl Arp {
    fn frame(&self, dest: [u8; 6]) -> Vec<u8> {
        let fixed = [8, 6, 0, 1, 8, 0, 6, 4, 0, self.op];
        let (sender, target) = (self.sender, self.target);
        [&dest[..], &sender.0, &fixed, &sender.0, &sender.1, &target.0, &target.1].concat()
    }
}

fn arp_rows(flow: &sb_flow) -> Vec<Row> {
    const VIP: [u8; 4] = [192, 0, 2, 100];
    const THEIRS: [u8; 4] = [192, 0, 2, 1];
    let request = Arp { op: 1, sender: (ROUTER, THEIRS), target: ([0; 6], VIP) };
    let probe = Arp { sender: (ROUTER, [0; 4]), ..request };
    let answer = |to: &Arp| Arp { op: 2, sender: (OURS, VIP), target: (ROUTER, to.sender.1) }.frame(ROUTER);
    let answered =
        |what: &str, frame, sent| Row::new(what, flow, frame, Verdict::Tx, [ArpAnswered]).sends(sent);
    let pass = |what: &str, frame: Vec<u8>| Row::new(what, flow, frame, Verdict::Pass, []);
    let changed = |what: &str, at: usize, to: u8| {
        let mut frame = request.frame(BROADCAST);
        frame[at] = to;
        pass(&format!("ARP with {what}"), frame)
    };
    let mut padded = request.frame(BROADCAST);
    padded.extend_from_slice(&[0; 18]);
    let padded_answer = [answer(&request), vec![0; 18]].concat();
    let elsewhere = Arp { target: ([0; 6], [192, 0, 2, 101]), ..request };
    vec![
        answered("ARP request for a VIP", request.frame(BROADCAST), answer(&request)),
        answered("ARP request to us alone", request.frame(OURS), answer(&request)),
        answered("ARP probe for a VIP", probe.frame(BROADCAST), answer(&probe)),
        answered("ARP request with padding", padded, padded_answer),
        pass("ARP request for another address", elsewhere.frame(BROADCAST)),
        pass("ARP reply", Arp { op: 2, ..request }.frame(OURS)),
        pass("ARP request, cut", request.frame(BROADCAST)[..41].to_vec()),
        changed("another protocol", 16, 9),
        changed("other hardware addresses", 18, 8),
        changed("other protocol addresses", 19, 16),
    ]
}

/// A neighbour solicitation (RFC 4861 section 4.3).
fn solicitation(target: IpAddr, options: &[u8]) -> Vec<u8> {
    [&[135, 0, 0, 0, 0, 0, 0, 0][..], &address_bytes(target), options].concat()
}

fn neighbour_rows(flow: &sb_flow) -> Vec<Row> {
    let vip = flow.vip().ip();
    let (router, multicast) = (address("fe80::1"), address("ff02::1:ff00:100"));
    let theirs = [&[1, 1][..], &ROUTER].concat();
    let ip = Ip { ttl: 255, ..Ip::new(router, multicast) };
    let ask = |ip: Ip, target, options: &[u8]| ip.carry(58, &solicitation(target, options), Some(2));
    let answer = {
        let flags = [0x60, 0, 0, 0];
        let said = [&[136, 0, 0, 0][..], &flags, &address_bytes(vip), &[2, 1], &OURS].concat();
        from_us(&Ip { source: vip, dest: router, ..ip }.carry(58, &said, Some(2)))
    };
    let unanswered = |what: &str, packet: Vec<u8>| Row::new(what, flow, to_us(&packet), Verdict::Pass, []);
    let answered = |what: &str, packet: Vec<u8>| {
        Row::new(what, flow, to_us(&packet), Verdict::Tx, [ArpAnswered]).sends(answer.clone())
    };
    let unspecified = Ip { source: address("::"), ..ip };
    vec![
        answered("solicitation for a VIP", ask(ip, vip, &theirs)),
        // Neighbour unreachability detection (RFC 4861 section 7.3.3).
        answered("solicitation to the VIP alone", ask(Ip { dest: vip, ..ip }, vip, &theirs)),
        unanswered("solicitation for another address", ask(ip, address("2001:db8::101"), &theirs)),
        unanswered("solicitation from beyond a router", ask(Ip { ttl: 254, ..ip }, vip, &theirs)),
        unanswered("detection of duplicates", ask(unspecified, vip, &[])),
        unanswered("advertisement", {
            let said = [&[136, 0, 0, 0, 0x60, 0, 0, 0][..], &address_bytes(vip), &[2, 1], &ROUTER];
            ip.carry(58, &said.concat(), Some(2))
        }),
    ]
}

fn ping_rows(flow: &sb_flow) -> Vec<Row> {
    let (client, vip) = (flow.client().ip(), flow.vip().ip());
    let (protocol, request, reply) = if vip.is_ipv4() { (1, 8, 0) } else { (58, 128, 129) };
    let echo = |kind: u8, code: u8, data: &[u8]| [&[kind, code, 0, 0, 0x12, 0x34, 0, 1], data].concat();
    let mut rows = Vec::new();
    for len in [0, 1, 56, 1400] {
        let data: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
        for (ttl, class) in [(57, 0), (1, 0x20)] {
            let ask = Ip { ttl, class, ..Ip::new(client, vip) };
            let answer = Ip { source: vip, dest: client, ttl: SB_TTL as u8, ..ask };
            let frame = to_us(&ask.carry(protocol, &echo(request, 0, &data), Some(2)));
            let sent = from_us(&answer.carry(protocol, &echo(reply, 0, &data), Some(2)));
            let what = format!("ping of {len} bytes, {ttl} hops left");
            rows.push(Row::new(&what, flow, frame, Verdict::Tx, [PingAnswered]).sends(sent));
        }
    }
    let elsewhere = address(if vip.is_ipv4() { "192.0.2.101" } else { "2001:db8::101" });
    let packet = Ip::new(client, elsewhere).carry(protocol, &echo(request, 0, b"data"), Some(2));
    rows.push(Row::new("ping to another address", flow, to_us(&packet), Verdict::Pass, []));
    for (what, kind, code) in [("echo reply to a VIP", reply, 0), ("echo request with a code", request, 1)] {
        let packet = Ip::new(client, vip).carry(protocol, &echo(kind, code, b"data"), Some(2));
        rows.push(Row::new(what, flow, to_us(&packet), Verdict::Drop, [DropIcmp]));
    }
    let cut = Ip::new(client, vip).carry(protocol, &echo(request, 0, b"")[..6], None);
    rows.push(Row::new("half an echo request", flow, to_us(&cut), Verdict::Drop, [DropIcmp]));
    // The rest of the frame is padding and not part of the packet.
    for len in [0, 1, 7] {
        let short = Ip::new(client, vip).carry(protocol, &echo(request, 0, b"")[..len], None);
        let frame = [to_us(&short), echo(request, 0, b"data")[len..].to_vec()].concat();
        let what = format!("an echo request of {len} bytes, with padding");
        rows.push(Row::new(&what, flow, frame, Verdict::Drop, [DropIcmp]));
    }
    rows
}

fn pass_rows(flow: &sb_flow) -> Vec<Row> {
    let (client, vip) = (flow.client().ip(), flow.vip().ip());
    let elsewhere = address(if vip.is_ipv4() { "192.0.2.101" } else { "2001:db8::101" });
    let pass = |what: &str, frame: Vec<u8>| Row::new(what, flow, frame, Verdict::Pass, []);
    let udp = [0x30, 0x39, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
    let mut to_elsewhere = Tcp::new(flow, 1, 0, flags::SYN);
    to_elsewhere.ip.dest = elsewhere;
    let mut other_kind = Tcp::new(flow, 1, 0, flags::SYN).frame();
    other_kind[12..14].copy_from_slice(&[0x88, 0xcc]);
    let mut tagged = Tcp::new(flow, 1, 0, flags::SYN).frame();
    tagged[12..14].copy_from_slice(&[0x81, 0x00]);
    vec![
        pass("TCP to another address", to_elsewhere.frame()),
        pass("UDP to a VIP", to_us(&Ip::new(client, vip).carry(17, &udp, Some(6)))),
        pass("UDP to another address", to_us(&Ip::new(client, elsewhere).carry(17, &udp, Some(6)))),
        pass("SCTP to a VIP", to_us(&Ip::new(client, vip).carry(132, &udp, None))),
        pass("SCTP to another address", to_us(&Ip::new(client, elsewhere).carry(132, &udp, None))),
        pass("another EtherType", other_kind),
        pass("a VLAN's", tagged),
    ]
}

pub fn rows() -> Vec<Row> {
    let [v4, v6] = flows();
    [arp_rows(&v4), neighbour_rows(&v6), ping_rows(&v4), ping_rows(&v6), pass_rows(&v4), pass_rows(&v6)]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn neighbours_are_answered_for_vips_only() {
    let bench = Bench::new();
    run_all(&bench, rows());
}
