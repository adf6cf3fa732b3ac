//! Captures, which are made here packet by packet.

use std::fs;
use std::process::Output;

use switchback_wire::flow_state::FlowState;
use switchback_wire::packet::{TcpView, bare, flags, segment};
use switchback_wire::{SB_HANDOVER_REQUEST, Seq, address_bytes, handoff, sb_flow, sb_key, sb_op};

use super::{CHUNKED, CLUSTER, IMG, WWW, assert_lines, directory, explain, stderr, stdout};

/// Link types, with what stands before an IPv4 packet and before an IPv6 packet.
pub const ETHERNET: (u32, &[u8], &[u8]) = (1, b"dddddDsssssS\x08\0", b"dddddDsssssS\x86\xdd");
const VLAN: (u32, &[u8], &[u8]) = (1, b"dddddDsssssS\x81\0\0\x07\x08\0", b"dddddDsssssS\x81\0\0\x07\x86\xdd");
const RAW: (u32, &[u8], &[u8]) = (101, b"", b"");
const SLL: (u32, &[u8], &[u8]) =
    (113, b"\0\0\0\x01\0\x06ssssss\0\0\x08\0", b"\0\0\0\x01\0\x06ssssss\0\0\x86\xdd");
const SLL2: (u32, &[u8], &[u8]) =
    (276, b"\x08\0\0\0\0\0\0\x02\0\x01\0\x06ssssss\0\0", b"\x86\xdd\0\0\0\0\0\x02\0\x01\0\x06ssssss\0\0");

pub type Link = (u32, &'static [u8], &'static [u8]);

fn framed(link: Link, packet: &[u8]) -> Vec<u8> {
    [if packet[0] >> 4 == 4 { link.1 } else { link.2 }, packet].concat()
}

/// Packets of which so many bytes at most are captured.
pub fn pcap(link: Link, packets: &[Vec<u8>], snaplen: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, snaplen as u32, link.0] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    for packet in packets {
        let frame = framed(link, packet);
        let captured = &frame[..frame.len().min(snaplen)];
        for word in [0, 0, captured.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(captured);
    }
    file
}

fn pcapng(link: Link, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let len = (12 + body.len() + padding.len()) as u32;
        file.extend(
            [&kind.to_le_bytes()[..], &len.to_le_bytes(), body, &padding, &len.to_le_bytes()].concat(),
        );
    };
    block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    block(1, &[&link.0.to_le_bytes()[..], &0u32.to_le_bytes()].concat());
    for packet in packets {
        let frame = framed(link, packet);
        let words = [0, 0, 0, frame.len() as u32, frame.len() as u32];
        block(6, &[words.map(u32::to_le_bytes).concat(), frame].concat());
    }
    file
}

pub fn flow(port: u16, v6: bool) -> sb_flow {
    let (client, vip) = if v6 { ("2001:db8::1", "2001:db8::100") } else { ("198.51.100.7", "192.0.2.100") };
    sb_flow {
        client: address_bytes(client.parse().expect("an address")),
        vip: address_bytes(vip.parse().expect("an address")),
        client_port: port.to_be(),
        vip_port: 80u16.to_be(),
    }
}

const ISN: u32 = u32::MAX - 20;

pub fn syn(flow: &sb_flow) -> Vec<u8> {
    bare(flow, true, Seq(ISN), Seq(0), flags::SYN)
}

/// Data of the client; its first byte is the stream's `at`-th.
fn data(flow: &sb_flow, at: usize, text: &str) -> Vec<u8> {
    bytes(flow, at, text.as_bytes())
}

/// Likewise.
pub fn bytes(flow: &sb_flow, at: usize, bytes: &[u8]) -> Vec<u8> {
    segment(flow, true, (Seq(ISN.wrapping_add(1 + at as u32)), Seq(1)), flags::ACK, Some((1, 2)), bytes)
}

pub fn fin(flow: &sb_flow, at: usize) -> Vec<u8> {
    segment(flow, true, (Seq(ISN.wrapping_add(1 + at as u32)), Seq(1)), flags::ACK | flags::FIN, None, b"")
}

/// What the server sends back.
fn response(flow: &sb_flow) -> Vec<u8> {
    segment(flow, false, (Seq(1), Seq(1)), flags::ACK, None, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

pub fn handed_over(op: sb_op, extra: u8, flow: &sb_flow, packet: &[u8]) -> Vec<u8> {
    let (switch, node) =
        ("192.0.2.2".parse().expect("an address"), "192.0.2.21".parse().expect("an address"));
    let view = TcpView::parse(packet).expect("a packet");
    let mut option = FlowState::at(Seq(0), Seq(0)).option(op);
    option.flags |= extra;
    let mut out = Vec::new();
    let way = handoff::Way::to_node(handoff::Peers { node: std::net::IpAddr::into(node), switch, epoch: 7 });
    handoff::encode(&mut out, &sb_key::default(), &way, flow, option, &view, packet);
    out
}

fn explain_capture(test: &str, file: &[u8]) -> Output {
    let directory = directory(test, CLUSTER);
    fs::write(directory.join("file"), file).expect("a new file");
    explain(&directory, &["--pcap", "file"])
}

/// Two connections: one of several requests in disorder, one over IPv6.
fn two_connections() -> Vec<Vec<u8>> {
    let (one, two) = (flow(40000, false), flow(40001, true));
    let stream = [WWW, WWW, IMG, CHUNKED, WWW].concat();
    let part = |from: usize, to: usize| data(&one, from, &stream[from..to]);
    let (second, third, fourth) = (WWW.len(), 2 * WWW.len(), 2 * WWW.len() + IMG.len());
    vec![
        syn(&one),
        syn(&one),
        syn(&two),
        bare(&one, true, Seq(ISN.wrapping_add(1)), Seq(1), flags::ACK),
        // The second half of the first head comes before the first.
        part(20, second),
        part(0, 20),
        part(0, 20),
        response(&one),
        // A whole head in a packet, and once more.
        part(second, third),
        part(second, third),
        data(&two, 0, WWW),
        // Pipelined; the body's middle is the last to come.
        part(third, fourth + 30),
        part(fourth + 78, stream.len()),
        fin(&one, stream.len()),
        part(fourth + 10, fourth + 78),
        // After the connection: its port is used again.
        bare(&one, true, Seq(99), Seq(0), flags::SYN),
        segment(&one, true, (Seq(100), Seq(1)), flags::ACK, None, b"GET / HTTP/1.1\nHost: a\n\n"),
    ]
}

#[test]
fn connections_in_a_capture() {
    let parts = [
        "connection 1: 198.51.100.7:40000 to 192.0.2.100:80",
        "request 1 of connection 1: GET / HTTP/1.1",
        "node      n2, if nothing",
        "request 2 of connection 1: GET / HTTP/1.1",
        "node      n2, because it has the connection",
        "decided   in XDP",
        "request 3 of connection 1: GET /img/x HTTP/1.1",
        "node      n1, to which the connection moves from n2",
        "request 4 of connection 1: POST / HTTP/1.1",
        "node      n1, because it has the connection",
        "body      in chunks, which are followed to the last one; the next request begins at byte 213",
        "request 5 of connection 1: GET / HTTP/1.1",
        "decided   by the L7 thread; in XDP if its head is one packet",
        "connection 2: [2001:db8::1]:40001 to [2001:db8::100]:80",
        "request 1 of connection 2: GET / HTTP/1.1",
        "service   shop ([2001:db8::100]:80)",
        "node      n2, if nothing",
        "connection 3: 198.51.100.7:40000 to 192.0.2.100:80",
        "request 1 of connection 3: GET / HTTP/1.1",
        "refused   bare_lf: the client gets 400",
    ];
    let packets = two_connections();
    let links = [("ethernet", ETHERNET), ("vlan", VLAN), ("raw", RAW), ("sll", SLL), ("sll2", SLL2)];
    for (name, link) in links {
        for (format, file) in [("pcap", pcap(link, &packets, 65_535)), ("pcapng", pcapng(link, &packets))] {
            let output = explain_capture(&format!("{name}-{format}"), &file);
            assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{name} {format}");
            assert_lines(&stdout(&output), &parts, &format!("{name} {format}"));
            let requests = stdout(&output).lines().filter(|line| line.starts_with("request ")).count();
            assert_eq!(requests, 7, "{name} {format}");
        }
    }
}

#[test]
fn handoff_packets_at_a_node() {
    let flow = flow(40000, false);
    let (second, third) = (WWW.len(), 5000);
    let packets = [
        handed_over(sb_op::SB_OP_FORWARD, 0, &flow, &data(&flow, 0, "the rest of what another node had")),
        handed_over(sb_op::SB_OP_ADOPT, 0, &flow, &data(&flow, 0, &CHUNKED[..80])),
        handed_over(sb_op::SB_OP_FORWARD, 0, &flow, &data(&flow, 80, &CHUNKED[80..])),
        handed_over(sb_op::SB_OP_FORWARD, SB_HANDOVER_REQUEST as u8, &flow, &data(&flow, CHUNKED.len(), WWW)),
        handed_over(sb_op::SB_OP_RELEASE, 0, &flow, &data(&flow, CHUNKED.len() + second, "")),
        // Another node has had it since.
        handed_over(sb_op::SB_OP_ADOPT, 0, &flow, &data(&flow, third, IMG)),
        handed_over(sb_op::SB_OP_REFUSED, 0, &flow, &data(&flow, third + IMG.len(), WWW)),
    ];
    let output = explain_capture("handoff", &pcap(SLL2, &packets, 65_535));
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let parts = [
        "connection 1: 198.51.100.7:40000 to 192.0.2.100:80, from a request on that a node was given",
        "request 1 of connection 1: POST / HTTP/1.1",
        "request 2 of connection 1: GET / HTTP/1.1",
        "decided   in XDP",
        "request 3 of connection 1: GET /img/x HTTP/1.1",
    ];
    assert_lines(&stdout(&output), &parts, "handoff");
    assert!(!stdout(&output).contains("request 4") && !stdout(&output).contains("was not captured"));
}

#[test]
fn what_a_capture_lacks() {
    let flow = flow(40000, false);
    let long = WWW.replace("\r\n\r\n", &format!("\r\nCookie: {}\r\n\r\n", "x".repeat(200)));
    let whole = [
        syn(&flow),
        data(&flow, 0, WWW),
        data(&flow, WWW.len(), &long),
        data(&flow, WWW.len() + long.len(), WWW),
    ];
    let cut = explain_capture("snaplen", &pcap(ETHERNET, &whole, 150));
    assert_eq!(cut.status.code(), Some(2));
    let parts = [
        "request 1 of connection 1: GET / HTTP/1.1",
        "from byte 41 on, something that the client sent was not captured",
    ];
    assert_lines(&stdout(&cut), &parts, "snaplen");
    assert!(
        stderr(&cut)
            .contains("file: not captured whole: 1 of the packets to a VIP; capture again with tcpdump -s 0"),
        "{}",
        stderr(&cut)
    );

    let file = pcap(ETHERNET, &whole, 65_535);
    for (name, file) in [("end", &file[..file.len() - 3]), ("end-ng", &pcapng(ETHERNET, &whole)[..700])] {
        let ended = explain_capture(name, file);
        assert_eq!(ended.status.code(), Some(2));
        assert_lines(&stdout(&ended), &["request 2 of connection 1"], name);
        assert!(stderr(&ended).contains("it ends in the middle of packet 4"), "{}", stderr(&ended));
    }

    let middle = explain_capture("middle", &pcap(ETHERNET, &whole[2..], 65_535));
    assert_eq!(middle.status.code(), Some(0));
    let parts =
        ["connection 1: 198.51.100.7:40000 to 192.0.2.100:80, whose beginning was not captured", "request 2"];
    assert_lines(&stdout(&middle), &parts, "middle");

    let closed = [syn(&flow), data(&flow, 0, "GET / HT"), fin(&flow, 8)];
    let closed = explain_capture("closed", &pcap(ETHERNET, &closed, 65_535));
    assert_lines(
        &stdout(&closed),
        &["head      8 bytes, then the client closes: the switch answers 400"],
        "closed",
    );

    let idle = explain_capture("idle", &pcap(ETHERNET, &[syn(&flow)], 65_535));
    assert_lines(
        &stdout(&idle),
        &["connection 1: 198.51.100.7:40000 to 192.0.2.100:80, without a request"],
        "idle",
    );

    let mut options = data(&flow, 0, WWW);
    options[0] = 0x46;
    options.splice(20..20, [1, 1, 1, 1]);
    let rows: &[(&str, Vec<u8>, &str)] = &[
        (
            "elsewhere",
            pcap(ETHERNET, &[response(&flow)], 65_535),
            "file: none of its packets (1) has a request to a VIP (192.0.2.100:80, [2001:db8::100]:80): capture",
        ),
        ("options", pcap(ETHERNET, &[options], 65_535), "have IP options or are fragments"),
        ("link", pcap((105, b"", b""), &[response(&flow)], 65_535), "packet 1 has link type 105"),
    ];
    for (name, file, why) in rows {
        let output = explain_capture(name, file);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{name}");
        assert!(stderr(&output).contains(why), "{name}: {}", stderr(&output));
    }
}
