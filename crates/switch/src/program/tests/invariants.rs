//! Invariants of the program for any packet and any flow entry.

use sb_mode::*;
use sb_record_kind::*;
use siphasher::sip::SipHasher24;
use switchback_http::framing::Framing;
use switchback_http::framing::generated::{SB_FRAMING_NONE, SB_FRAMING_SKIP, SB_FRAMING_STATES, sb_framing};
use switchback_http::{Limits, Progress, parse_head};
use switchback_wire::Seq;
use switchback_wire::packet::{TcpView, flags, fold, sum};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use super::fuzz::Case;
use super::{hex, icmp};
use crate::plan::NodeId;

/// Length of an IP header without options; that of IPv6 for an empty packet.
pub fn l3_len(packet: &[u8]) -> usize {
    if packet.first().is_some_and(|byte| byte >> 4 == 4) { 20 } else { 40 }
}

/// Length of an IP packet according to its header.
fn ip_len(packet: &[u8]) -> usize {
    let (at, rest) = if l3_len(packet) == 20 { (2, 0) } else { (4, 40) };
    rest + usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]))
}

/// Whether the packet's checksums are right.
fn is_intact(packet: &[u8]) -> bool {
    let header = l3_len(packet) == 40 || fold(sum(&packet[..20])) == 0;
    header && transport_checksum(&packet[..ip_len(packet)]) == 0
}

/// Protocol of an IP packet with a whole header.
pub fn protocol(packet: &[u8]) -> u8 {
    packet[if l3_len(packet) == 20 { 9 } else { 6 }]
}

/// The flow of a client's TCP packet whose IP header has `header` bytes.
pub fn flow_of(packet: &[u8], header: usize) -> sb_flow {
    let mapped = |bytes: &[u8]| match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => address_bytes(v4.into()),
        Err(_) => bytes.try_into().expect("16 bytes"),
    };
    let (addresses, len) = if header == 20 { (12, 4) } else { (8, 16) };
    let (source, dest) = packet[addresses..].split_at(len);
    let port = |at: usize| u16::from_ne_bytes([packet[header + at], packet[header + at + 1]]);
    sb_flow { client: mapped(source), vip: mapped(&dest[..len]), client_port: port(0), vip_port: port(2) }
}

fn turned(flow: &sb_flow) -> sb_flow {
    let sb_flow { client, vip, client_port, vip_port } = *flow;
    sb_flow { client: vip, vip: client, client_port: vip_port, vip_port: client_port }
}

/// The flow in an ICMP message, if the message is long enough.
pub fn flow_inside(packet: &[u8]) -> Option<sb_flow> {
    let header = l3_len(packet);
    let inside = packet.get(header + 8..).filter(|inside| inside.len() >= header + 4)?;
    matches!(protocol(packet), 1 | 58).then(|| turned(&flow_of(inside, header)))
}

/// The TCP packet in a frame, if the program must accept it as one.
pub fn client_packet(frame: &[u8]) -> Option<TcpView> {
    let packet = &frame[14..];
    let kind = [frame[12], frame[13]];
    let plain = match packet.first()? >> 4 {
        4 => kind == [0x08, 0] && packet[0] == 0x45 && packet.len() > 20 && packet[9] == 6,
        6 => kind == [0x86, 0xdd] && packet.len() > 40 && packet[6] == 6,
        _ => false,
    };
    if plain { TcpView::parse(packet) } else { None }
}

/// The frame without the urgent flag, with its checksum updated by RFC 1624.
fn calm(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let urgent = client_packet(&frame).filter(|view| view.flags & URG != 0 && view.flags & flags::SYN == 0);
    if let Some(view) = urgent {
        let tcp = &mut frame[14 + view.tcp..];
        let [check, pointer] = [16, 18].map(|at| u16::from_be_bytes([tcp[at], tcp[at + 1]]));
        let check = fold(u64::from(!check) + u64::from(!u16::from(URG)) + u64::from(!pointer));
        tcp[13] &= !URG;
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        tcp[18..20].fill(0);
    }
    frame
}

/// Whether `cookie` is ours for this connection: without timestamps, or with any four bytes of the options as TSecr.
fn is_cookie(settings: &sb_switch_settings, flow: &sb_flow, isn: u32, cookie: u32, options: &[u8]) -> bool {
    let key = &settings.cookie_keys[(cookie >> 31) as usize];
    let mac = |settled: u32, stamped: bool| {
        let number = if stamped { cookie >> 27 & 15 } else { 0 };
        let [settled, stamped, number] = [settled, u32::from(stamped), number].map(u32::to_ne_bytes);
        let numbers = [isn.to_be_bytes(), settled, stamped, number].concat();
        SipHasher24::new_with_keys(key.k0, key.k1).hash(&[bytes_of(flow), &numbers].concat()) as u32
    };
    let stamp = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("a window of four"));
    mac(cookie >> 28 & 7, false) & 0xfff_ffff == cookie & 0xfff_ffff
        || options.windows(4).any(|bytes| mac(stamp(bytes), true) & 0x7ff_ffff == cookie & 0x7ff_ffff)
}

/// Whether the packet shows that the client has answered the SYN-ACK of a newer connection than the entry's.
fn succeeds(bench: &Bench, case: &Case, before: &sb_flow_entry) -> bool {
    let frame = &case.frame;
    client_packet(frame).is_some_and(|view| {
        let options = &frame[14 + view.tcp + 20..14 + view.data];
        let (isn, cookie) = (view.seq - 1, view.ack - 1);
        before.contested != 0
            && Seq(before.origin) != view.seq
            && view.flags & flags::SYN == 0
            && is_cookie(&bench.settings(), &case.flow, isn.0, cookie.0, options)
    })
}

/// Checks all invariants.
pub fn check(bench: &Bench, case: &Case, verdict: Verdict, out: &[u8]) {
    let Case { frame, flow, .. } = case;
    let after = bench.l7().mapped(flow);
    let view = client_packet(frame);
    match verdict {
        Verdict::Pass if out != frame => check_handed(bench, case, verdict, out, after.as_ref()),
        Verdict::Pass => {}
        Verdict::Drop => assert!(out == frame || out == calm(frame), "what is dropped is left alone"),
        Verdict::Tx | Verdict::Redirect if out[12..14] == [0x08, 0x06] => {
            assert_eq!((verdict, out.len()), (Verdict::Tx, frame.len()), "an answer to ARP");
            assert_eq!((out[21], &out[..6], &out[6..12]), (2, &frame[22..28], &OURS[..]), "an answer to ARP");
        }
        Verdict::Tx | Verdict::Redirect => {
            let packet = &out[14..];
            let start = l3_len(packet);
            assert_eq!(out[12..14], if start == 20 { [0x08, 0] } else { [0x86, 0xdd] }, "EtherType");
            if start == 20 {
                assert_eq!((packet[0], fold(sum(&packet[..20]))), (0x45, 0), "IPv4 header");
            }
            match protocol(packet) {
                17 => check_handed(bench, case, verdict, out, after.as_ref()),
                6 => check_answer(bench, case, verdict, out, view.expect("an answer to TCP")),
                1 | 58 => check_echo(frame, verdict, out),
                other => panic!("nothing sends protocol {other}"),
            }
        }
    }
    check_entry(bench, case, view, after.as_ref());
    for record in bench.records() {
        assert_eq!(verdict, Verdict::Drop, "what the L7 thread has goes nowhere else");
        if record.head.kind != SB_RECORD_HANDOFF as u32 {
            assert_eq!(record.packet, calm(frame)[14..][..record.packet.len()], "the packet of the record");
            assert_eq!(record.head.flow, *flow, "the flow of the record");
        }
        if [SB_RECORD_REQUEST as u32, SB_RECORD_UNKNOWN as u32].contains(&record.head.kind) {
            assert!(is_intact(&record.packet), "a damaged packet is read");
        }
    }
}

/// Flags of a packet with a head that the program has read.
fn beginning(data: &[u8]) -> u32 {
    let Ok(Progress::Complete(head)) = parse_head(data, &Limits::default()) else {
        panic!("a request that the parser does not accept: {}", hex(data));
    };
    let last = if head.keep_alive { 0 } else { SB_HANDOVER_LAST };
    SB_HANDOVER_REQUEST | SB_HANDOVER_AGAIN | last
}

/// A packet to a node contains the client's packet unchanged, has a valid tag, and contains no unparsed data.
fn check_handed(bench: &Bench, case: &Case, verdict: Verdict, out: &[u8], after: Option<&sb_flow_entry>) {
    let (before, after) = (case.before.expect("a flow with a node"), after.expect("and it stays"));
    let expected = match NodeId(before.node) {
        ON_ANOTHER_INTERFACE => Verdict::Redirect,
        node if HERE.contains(&node) => Verdict::Pass,
        _ => Verdict::Tx,
    };
    assert_eq!(verdict, expected);
    let frame = calm(&case.frame);
    let packet = &frame[14..];
    let (sent, end) = match client_packet(&frame) {
        Some(view) => {
            let ahead = if before.ahead == 0 { 0 } else { SB_HANDOVER_AHEAD };
            let begins = after.requests != before.requests;
            let flags = if begins { beginning(&packet[view.data..view.end]) } else { ahead };
            let behind = view.end_seq().offset_from(Seq(after.next));
            assert_ne!(view.flags & (flags::ACK | flags::RST), 0, "a packet that no kernel takes");
            let empty = view.is_empty() || view.flags & flags::RST != 0;
            let read = empty || behind <= 0 || before.mode == SB_MODE_TUNNEL as u8;
            assert!(read, "{behind} bytes that nobody has read go to a node");
            let sent = if begins || after.next == before.next {
                bench.forwarded(after, &case.flow, packet, flags)
            } else {
                bench.forwarded_read(&before, after, &case.flow, packet, flags)
            };
            (sent, view.end)
        }
        None => {
            let end = ip_len(packet);
            let inside = l3_len(packet) + 8 + l3_len(packet) + 4;
            let seq = u32::from_be_bytes(packet[inside..inside + 4].try_into().expect("four bytes"));
            (icmp::handed(bench, after, &case.flow, &packet[..end], seq), end)
        }
    };
    // Frames for the local node keep their addresses.
    let addresses = if HERE.contains(&NodeId(before.node)) { &frame[..12] } else { &sent[..12] };
    let expected = [addresses, &sent[12..], &packet[end..]].concat();
    assert_eq!(hex(out), hex(&expected), "a handoff packet");
    let with_node = [SB_MODE_REQUESTS, SB_MODE_UPGRADING, SB_MODE_TUNNEL].map(|mode| mode as u8);
    assert!(with_node.contains(&before.mode), "a flow that has no node");
}

/// An answer to a client acknowledges no data.
fn check_answer(bench: &Bench, case: &Case, verdict: Verdict, out: &[u8], asked: TcpView) {
    let (frame, packet) = (&case.frame, &out[14..]);
    let view = TcpView::parse(packet).expect("a whole answer");
    assert_eq!((verdict, view.end, view.len()), (Verdict::Tx, packet.len(), 0), "an answer's length");
    assert_eq!((&out[..6], &out[6..12]), (&frame[6..12], &frame[..6]), "it goes back");
    assert_eq!(transport_checksum(packet), 0, "an answer's checksum");
    assert_eq!(turned(&flow_of(packet, l3_len(packet))), case.flow, "it comes from the VIP, for the client");
    let options = &frame[14 + asked.tcp + 20..14 + asked.data];
    let is_ours = |isn: u32| {
        let cookie = asked.ack - 1;
        case.before.is_none_or(|before| succeeds(bench, case, &before))
            && is_cookie(&bench.settings(), &case.flow, isn, cookie.0, options)
    };
    match view.flags & !ECE {
        flags if flags == flags::SYN | flags::ACK => {
            let refused = flags::ACK | flags::RST | flags::FIN;
            assert_eq!(asked.flags & (flags::SYN | refused), flags::SYN, "only SYN is answered so");
            assert_eq!(view.ack, asked.seq + 1u32, "only SYN is acknowledged");
        }
        flags if flags & flags::RST != 0 && !bench.serves(case.flow.vip()) => {
            let has_ack = asked.flags & flags::ACK != 0;
            let counts = |flag| u32::from(asked.flags & flag != 0);
            let end = asked.end_seq() + (counts(flags::SYN) + counts(flags::FIN));
            let numbers = if has_ack {
                (flags::RST, asked.ack, Seq(0))
            } else {
                (flags::RST | flags::ACK, Seq(0), end)
            };
            assert_eq!((flags, view.seq, view.ack), numbers, "a closed port's numbers");
        }
        flags::RST => {
            assert_eq!((view.seq, view.ack), (asked.ack, Seq(0)), "a reset's numbers");
            assert!(is_ours((asked.seq - 1).0) && asked.is_empty(), "resets end what never was");
        }
        flags::ACK => {
            assert_eq!((view.seq, view.ack), (asked.ack, asked.seq + 1u32), "a probe's numbers");
            assert!(is_ours(asked.seq.0) && asked.len() <= 1, "only probes are answered so");
        }
        other => panic!("nothing is answered with flags {other:#x}"),
    }
}

/// Echo replies have a right checksum if the request had one; advertisements always do.
fn check_echo(frame: &[u8], verdict: Verdict, out: &[u8]) {
    assert_eq!((verdict, out.len()), (Verdict::Tx, frame.len()), "an answer to ICMP");
    assert_eq!(&out[6..12], &OURS, "an answer to ICMP");
    let whole = |frame: &[u8]| transport_checksum(&frame[14..14 + ip_len(&frame[14..])]) == 0;
    let advertises = out[20] == 58 && out[54] == 136;
    assert_eq!(whole(out), advertises || whole(frame), "an answer's checksum");
}

/// Allowed changes of an entry: the handshake's fields stay, the mark moves forward, the framing state is valid.
fn check_entry(bench: &Bench, case: &Case, view: Option<TcpView>, after: Option<&sb_flow_entry>) {
    let frame = &case.frame;
    match (&case.before, after) {
        (None, None) => {}
        (None, Some(after)) => {
            let view = view.expect("entries are made for TCP");
            let options = &frame[14 + view.tcp + 20..14 + view.data];
            let (isn, cookie) = (view.seq - 1, view.ack - 1);
            assert!(
                is_cookie(&bench.settings(), &case.flow, isn.0, cookie.0, options),
                "an entry without a cookie"
            );
            assert!(!view.is_empty(), "an entry without data");
            let numbers = (after.mode, after.origin, after.next, after.framing, after.requests, after.heads);
            let held = if after.mode == SB_MODE_SOUGHT as u8 { SB_MODE_SOUGHT } else { SB_MODE_HELD };
            let new = (held as u8, view.seq.0, view.seq.0, Framing::default(), 0, 0);
            assert_eq!((numbers, after.locked, after.node), (new, 0, 0), "a new entry");
        }
        (Some(before), None) => match view {
            Some(_) => assert!(succeeds(bench, case, before), "only a new connection and CLOSED end a flow"),
            None => assert!(protocol(&frame[14..]) == 17, "only a new connection and CLOSED end a flow"),
        },
        (Some(before), Some(after)) if before.origin != after.origin => {
            assert!(succeeds(bench, case, before), "only a new connection takes a flow's place");
        }
        (Some(before), Some(after)) => {
            let moved = sb_flow_entry {
                next: after.next,
                locked: after.locked,
                requests: after.requests,
                heads: after.heads,
                framing: after.framing,
                begins: after.begins,
                tries: after.tries,
                mode: after.mode,
                contested: after.contested,
                ..*before
            };
            assert_eq!(*after, moved, "what the handshake settled");
            if before.contested != after.contested {
                let view = view.expect("a SYN");
                assert_ne!(view.flags & flags::SYN, 0, "only a SYN contests a flow");
                assert_ne!(Seq(before.origin), view.seq + 1u32, "its own SYN");
                assert_eq!(*after, sb_flow_entry { contested: 1, ..*before }, "and does no more");
                return;
            }
            let reads = [SB_MODE_REQUESTS as u8, SB_MODE_UPGRADING as u8].contains(&before.mode);
            if !reads || before.locked != 0 {
                assert_eq!(after, before, "the L7 thread has the mark");
                return;
            }
            // Two steps at most: one because the mark is near, one because a chunk begins.
            let ahead = after.next.wrapping_sub(before.next);
            assert!(ahead <= 2 * SB_STEP_MAX + SB_RECORD_LARGE, "the mark moves by {ahead}");
            let state = |entry: &sb_flow_entry| entry.framing.state() & !SB_FRAMING_SKIP;
            assert!(state(after) < SB_FRAMING_STATES || state(before) >= SB_FRAMING_STATES, "state");
            let allowed = |entry: &sb_flow_entry| sb_framing::from(entry.framing).allowed;
            assert!(allowed(after) <= allowed(before), "more is allowed than was");
            let skips = before.framing.is_in_data();
            assert!(skips || ahead == 0 || is_intact(&calm(frame)[14..]), "a damaged packet is read");
            let counted = after.requests.wrapping_sub(before.requests);
            assert!(
                counted == 0 || before.mode == SB_MODE_REQUESTS as u8,
                "a request is read behind an upgrade"
            );
            let begins = if counted == 0 { before.begins } else { before.next };
            assert_eq!(after.begins, begins, "where the last request begins");
            assert_eq!(after.mode, before.mode, "only the L7 thread decides what is read");
            let heads = before.heads << counted;
            assert!(counted <= 1 && after.heads & !u32::from(counted) == heads, "one request a packet");
            let in_body = state(before) != SB_FRAMING_NONE && before.framing.state() == after.framing.state();
            assert!(counted == 0 || !in_body, "a request inside a body");
        }
    }
}
