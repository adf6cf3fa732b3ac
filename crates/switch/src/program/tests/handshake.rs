//! SYN cookies: answers to SYNs, and which first packets complete a handshake.

use std::time::Duration;

use SwitchCounter::*;
use sb_record_kind::*;
use switchback_wire::packet::{TcpView, flags, timestamps};
use switchback_wire::*;

use super::bench::{Bench, Verdict};
use super::frames::*;
use super::{Row, hex, run_all};

pub const ISN: u32 = 0x0a0b_0c0d;
pub const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Options that lead to different answers and cookies.
fn offers() -> Vec<(String, Offer)> {
    let short = Offer { stamp: None, ..Offer::USUAL };
    let nothing = Offer::default();
    let mut offers = vec![
        ("all options".to_string(), Offer::USUAL),
        ("no timestamps".to_string(), short),
        ("no option".to_string(), nothing),
        ("SACK alone".to_string(), Offer { sack: true, ..nothing }),
        ("window scale alone".to_string(), Offer { wscale: Some(3), ..nothing }),
        ("timestamps alone, as in a client's data".to_string(), Offer { stamp: Some(1), ..nothing }),
        ("ECN".to_string(), Offer { ecn: true, ..Offer::USUAL }),
        ("ECN, no timestamps".to_string(), Offer { ecn: true, ..short }),
    ];
    for wscale in 0..=15 {
        for (with, offer) in [("with", Offer::USUAL), ("without", short)] {
            let what = format!("window scale {wscale} {with} timestamps");
            offers.push((what, Offer { wscale: Some(wscale), ..offer }));
        }
    }
    for mss in [0, 88, 535, 536, 1219, 1220, 1379, 1380, 1400, 1459, 1460, 8960, 9000, 65535] {
        for (with, offer) in [("with", Offer::USUAL), ("without", short)] {
            offers.push((format!("MSS {mss} {with} timestamps"), Offer { mss: Some(mss), ..offer }));
        }
    }
    offers
}

/// The expected answer to a SYN. Cookie and TSval, which only the program knows, are taken from `frame` and must encode
/// the offer.
fn answer(bench: &Bench, what: &str, flow: &sb_flow, offer: &Offer, syn: &Tcp, frame: &[u8]) -> Vec<u8> {
    let view = TcpView::parse(&frame[14..]).expect("a SYN-ACK");
    let stamp = timestamps(&frame[14..], &view).map_or(0, |(value, _)| value);
    let (number, accepted) = offer.accepted();
    if offer.stamp.is_some() {
        let settled = offer.settled();
        let wscale = if offer.wscale.is_some() { u32::from(settled.wscale >> 4) } else { 15 };
        let (sack, ecn) = (u32::from(offer.sack), u32::from(offer.ecn));
        let told = u32::from(settled.mss) << 6 | wscale << 2 | sack << 1 | ecn;
        assert_eq!(
            (stamp >> 10, stamp % 1024),
            (told, bench.settings().instance),
            "{what}: what the TSval says"
        );
    } else {
        assert_eq!(view.seq.0 >> 28 & 7, number, "{what}: what the cookie says");
    }
    let our_mss = Bench::our_mss(flow.client().is_ipv6());
    from_us(&accepted.synack(flow, syn, our_mss, view.seq.0, stamp).packet())
}

/// The client's packet that completes the handshake.
pub fn last(flow: &sb_flow, offer: &Offer, (cookie, stamp): (u32, u32), tcp_flags: u8, data: &[u8]) -> Tcp {
    let mut tcp = Tcp::new(flow, ISN.wrapping_add(1), cookie.wrapping_add(1), tcp_flags);
    tcp.data = data.to_vec();
    if offer.stamp.is_some() { tcp.stamped(0xa1b2_c3d5, stamp) } else { tcp }
}

pub fn held(flow: &sb_flow, offer: &Offer, isn: u32) -> sb_flow_entry {
    let origin = isn.wrapping_add(1);
    let settled = offer.settled();
    // Every IPv6 host accepts this size, and the node's kernel adopts no smaller one.
    let mss = if flow.client().is_ipv6() { settled.mss.max(1220) } else { settled.mss };
    sb_flow_entry { origin, next: origin, begins: origin, mode: sb_mode::SB_MODE_HELD as u8, mss, ..settled }
}

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        for (what, offer) in offers() {
            rows.extend(end_rows(bench, flow, &offer, &what));
        }
        let short = Offer { stamp: None, ..Offer::USUAL };
        rows.extend(syn_rows(bench, flow, &short));
        rows.extend(refused_rows(bench, flow));
        rows.extend(closed_port_rows(flow));
    }
    rows
}

/// TCP to a port of a VIP that has no service.
fn closed_port_rows(flow: &sb_flow) -> Vec<Row> {
    let flow = &sb_flow { vip_port: 81u16.to_be(), ..*flow };
    let (ack, fin, rst) = (flags::ACK, flags::FIN, flags::RST);
    let packet = |flags, data: &[u8]| Tcp { data: data.to_vec(), ..Tcp::new(flow, ISN, 77, flags) };
    let refused = |what: &str, tcp: Tcp, seq, acknowledged, flags| {
        let reset = Tcp { window: 0, ..Tcp::answer(flow, seq, acknowledged, flags) };
        Row::new(what, flow, tcp.frame(), Verdict::Tx, [NoService]).sends(from_us(&reset.packet()))
    };
    let mut wraps = packet(flags::SYN, b"early");
    wraps.seq = u32::MAX;
    vec![
        refused("SYN to a closed port", Offer::USUAL.syn(flow, ISN), 0, ISN + 1, rst | ack),
        refused("SYN with data to a closed port", wraps, 0, 5, rst | ack),
        refused("FIN and data without ACK to a closed port", packet(fin, b"abc"), 0, ISN + 4, rst | ack),
        refused("no flags to a closed port", packet(0, b""), 0, ISN, rst | ack),
        refused("ACK to a closed port", packet(ack, b""), 77, 0, rst),
        refused("data to a closed port", packet(ack, REQUEST), 77, 0, rst),
        refused("SYN-ACK to a closed port", packet(flags::SYN | ack, b""), 77, 0, rst),
        Row::new("RST to a closed port", flow, packet(rst, b"").frame(), Verdict::Drop, [DropFlags]),
    ]
}

/// SYNs with more than their options to check.
fn syn_rows(bench: &Bench, flow: &sb_flow, offer: &Offer) -> Vec<Row> {
    let plain = offer.syn(flow, ISN);
    let sent = |syn: &Tcp| answer(bench, "SYN", flow, offer, syn, &bench.run(&syn.frame(), 1).1);
    let row = |what: &str, syn: &Tcp| {
        Row::new(what, flow, syn.frame(), Verdict::Tx, [SynAnswered]).sends(sent(syn))
    };
    let marked = {
        let mut syn = plain.clone().class(0xbb);
        (syn.ip.label, syn.ip.ttl) = (if flow.client().is_ipv6() { 0xabcde } else { 0 }, 1);
        syn
    };
    let wrapping = offer.syn(flow, u32::MAX);
    let with_data = Tcp { data: b"early".to_vec(), ..plain.clone() };
    // Malformed option lists: length zero, length one, beyond the end; the options before count.
    let [zero, one, beyond] = [0, 1, 40].map(|len| {
        let mut syn = plain.clone();
        syn.options = [&[2, 4, 5, 180, 4, 2, 3, 3, 7, 1, 1, 1][..], &[99, len, 3, 3, 9, 1, 1, 1]].concat();
        syn
    });
    let odd = {
        let mut syn = plain.clone();
        syn.options = vec![253, 6, 1, 2, 3, 4, 3, 3, 7, 4, 2, 2, 4, 5, 180, 0, 8, 10, 0, 0];
        syn
    };
    let one_ece = Tcp { flags: flags::SYN | ECE, ..plain.clone() };
    let mut padded = offer.syn(flow, ISN).frame();
    padded.extend_from_slice(&[0xee; 30]);
    let entry = held(flow, offer, ISN);
    let mut other = plain.clone();
    other.seq = ISN.wrapping_add(7);
    vec![
        row("a SYN whose hops, traffic class and flow label are its own", &marked),
        row("a SYN whose sequence number wraps", &wrapping),
        row("a SYN with data", &with_data),
        row("a SYN with an option of no length", &zero),
        row("a SYN with an option of length one", &one),
        row("a SYN with an option beyond the end", &beyond),
        row("a SYN with options in an odd order, and an end", &odd),
        row("ECE without CWR is no ECN", &one_ece),
        Row::new("a SYN with padding", flow, padded, Verdict::Tx, [SynAnswered]).sends(sent(&plain)),
        row("a repeated SYN keeps the entry", &plain).with(&entry),
        row("another SYN contests it", &other)
            .with(&entry)
            .leaves(Some(sb_flow_entry { contested: 1, ..entry })),
    ]
}

/// The client's packets after a SYN-ACK.
fn end_rows(bench: &Bench, flow: &sb_flow, offer: &Offer, what: &str) -> Vec<Row> {
    let cookie = bench.cookie(&offer.syn(flow, ISN));
    let packet = |tcp_flags, data| last(flow, offer, cookie, flags::ACK | tcp_flags, data);
    let entry = held(flow, offer, ISN);
    let request = packet(flags::PSH, REQUEST);
    let fin = packet(flags::FIN, b"");
    let both = packet(flags::FIN, REQUEST);
    let reset = from_us(&Tcp { window: 0, ..Tcp::answer(flow, fin.ack, 0, flags::RST) }.packet());
    let row = |tell: &str, tcp: &Tcp, verdict, moves: SwitchCounter| {
        Row::new(&format!("{tell} after {what}"), flow, tcp.frame(), verdict, [moves])
    };
    vec![
        row("a request", &request, Verdict::Drop, Request).leaves(Some(entry)).records(SB_RECORD_REQUEST),
        row("a request with FIN", &both, Verdict::Drop, Request)
            .leaves(Some(entry))
            .records(SB_RECORD_REQUEST),
        row("an ACK", &packet(0, b""), Verdict::Drop, HandshakeAck),
        row("FIN without a request", &fin, Verdict::Tx, ResetSent).sends(reset),
        row("RST", &packet(flags::RST, b""), Verdict::Drop, DropFlags),
    ]
}

type Change = fn(&mut Tcp);

/// Packets that complete no handshake.
fn refused_rows(bench: &Bench, flow: &sb_flow) -> Vec<Row> {
    let mut rows = Vec::new();
    for (with, stamp) in [("with", Offer::USUAL.stamp), ("without", None)] {
        let offer = Offer { stamp, ..Offer::USUAL };
        let good = last(flow, &offer, bench.cookie(&offer.syn(flow, ISN)), flags::ACK, REQUEST);
        let changes: [(&str, Change); 7] = [
            ("ack one more", |tcp| tcp.ack = tcp.ack.wrapping_add(1)),
            ("ack one less", |tcp| tcp.ack = tcp.ack.wrapping_sub(1)),
            ("ack of the other slot", |tcp| tcp.ack = (tcp.ack.wrapping_sub(1) ^ (1 << 31)).wrapping_add(1)),
            ("seq one more", |tcp| tcp.seq += 1),
            ("seq one less", |tcp| tcp.seq -= 1),
            ("seq behind the request", |tcp| tcp.seq += REQUEST.len() as u32),
            ("no data and a wrong ack", |tcp| (tcp.ack, tcp.data) = (1, Vec::new())),
        ];
        for (what, change) in changes {
            let mut tcp = good.clone();
            change(&mut tcp);
            let what = format!("{what}, {with} timestamps");
            rows.push(
                Row::new(&what, flow, tcp.frame(), Verdict::Drop, [DropCookie]).records(SB_RECORD_UNKNOWN),
            );
        }
        let other = sb_flow { client_port: 40001u16.to_be(), ..*flow };
        let mut tcp = good.clone();
        tcp.ports.0 = 40001;
        let what = format!("another port, {with} timestamps");
        rows.push(
            Row::new(&what, &other, tcp.frame(), Verdict::Drop, [DropCookie]).records(SB_RECORD_UNKNOWN),
        );
    }
    for tcp_flags in [0, flags::PSH, flags::RST, flags::RST | flags::ACK, flags::FIN] {
        let tcp = Tcp::new(flow, ISN, 1, tcp_flags);
        let what = format!("flags {tcp_flags:#x} without an entry");
        rows.push(Row::new(&what, flow, tcp.frame(), Verdict::Drop, [DropFlags]));
    }
    for more in [flags::ACK, flags::RST, flags::FIN, 0x3f & !flags::SYN] {
        let tcp = Tcp::new(flow, ISN, 1, flags::SYN | more);
        let what = format!("SYN with flags {more:#x}");
        rows.push(Row::new(&what, flow, tcp.frame(), Verdict::Drop, [DropFlags]));
    }
    rows
}

#[test]
fn handshakes() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}

#[test]
fn every_syn_is_answered_with_what_it_offers() {
    let bench = Bench::new();
    for flow in &flows() {
        for (what, offer) in offers() {
            let syn = offer.syn(flow, ISN);
            let outcome = bench.send(&syn.frame());
            assert_eq!((outcome.verdict, outcome.moved), (Verdict::Tx, vec![(SynAnswered, 1)]), "{what}");
            let wanted = answer(&bench, &what, flow, &offer, &syn, &outcome.frame);
            assert_eq!(hex(&outcome.frame), hex(&wanted), "{what}");
        }
    }
}

#[test]
fn every_combination_of_options_comes_back_from_the_cookie() {
    let bench = Bench::new();
    for flow in &flows() {
        for number in 0..2 * 2 * 2 * 5 * 6 {
            let offer = Offer {
                stamp: (number % 2 == 1).then_some(77),
                sack: number / 2 % 2 == 1,
                ecn: number / 4 % 2 == 1,
                wscale: [None, Some(0), Some(7), Some(8), Some(14)][number / 8 % 5],
                mss: Some([536, 1219, 1220, 1380, 1460, 9000][number / 40]),
            };
            run_all(&bench, end_rows(&bench, flow, &offer, &format!("{offer:?}")));
        }
    }
}

/// The round trip is the time until the first acknowledgment, however late the request comes.
#[test]
fn the_first_request_says_how_long_the_handshake_took() {
    let bench = Bench::new();
    let (took, later) = (Duration::from_millis(1100), Duration::from_secs(100));
    // At most 2.048 s.
    let code = 12;
    for flow in &flows() {
        let syn = Offer::USUAL.syn(flow, ISN);
        let round_trip = |cookie: (u32, u32)| {
            bench.send(&last(flow, &Offer::USUAL, cookie, flags::ACK, REQUEST).frame());
            let entry = bench.l7().mapped(flow).expect("the entry of a first request");
            bench.forget(flow);
            entry.options >> SB_ROUND_TRIP_SHIFT
        };
        let cookie = bench.cookie(&syn);
        bench.age_handshake(cookie.0, took);
        assert_eq!(round_trip(cookie), code, "without an acknowledgment before it");
        bench.age_handshake(cookie.0, later);
        assert_eq!(round_trip(cookie), code, "again");

        let cookie = bench.cookie(&syn);
        bench.age_handshake(cookie.0, took);
        let outcome = bench.send(&last(flow, &Offer::USUAL, cookie, flags::ACK, b"").frame());
        assert_eq!(outcome.moved, [(HandshakeAck, 1)]);
        bench.age_handshake(cookie.0, later);
        assert_eq!(round_trip(cookie), code, "behind an acknowledgment");

        bench.forget_handshake(cookie.0);
        assert_eq!(round_trip(cookie), 0, "of another switch's handshake");

        let cookie = bench.cookie(&syn);
        bench.age_handshake(cookie.0, later);
        assert_eq!(round_trip(cookie), 0, "the acknowledgment was lost");
    }
}

#[test]
fn a_cookie_is_valid_in_its_epoch_and_the_next() {
    let bench = Bench::new();
    for stamp in [None, Some(1)] {
        let offer = Offer { stamp, ..Offer::USUAL };
        for flow in &flows() {
            let request =
                last(flow, &offer, bench.cookie(&offer.syn(flow, ISN)), flags::ACK, REQUEST).frame();
            let entry = held(flow, &offer, ISN);
            for _ in 0..2 {
                Row::new("this epoch or the next", flow, request.clone(), Verdict::Drop, [Request])
                    .leaves(Some(entry))
                    .records(SB_RECORD_REQUEST)
                    .run(&bench);
                bench.turn();
            }
            Row::new("the epoch after that", flow, request, Verdict::Drop, [DropCookie])
                .records(SB_RECORD_UNKNOWN)
                .run(&bench);
        }
    }
}
