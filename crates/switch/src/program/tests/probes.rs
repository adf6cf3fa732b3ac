//! Keep-alive probes on connections without a request (RFC 9293 section 3.8.4), which have no entry: the acknowledged
//! cookie shows that the connection exists.

use SwitchCounter::*;
use sb_record_kind::*;
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::{Bench, Verdict};
use super::frames::*;
use super::handshake::ISN;
use super::{Row, run_all};

/// The client's clock at the time of the probe.
const NOW: u32 = 0x0102_0304;

pub fn rows(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for flow in &flows() {
        for isn in [ISN, u32::MAX] {
            let short = Offer { stamp: None, ..Offer::USUAL };
            for (with, offer) in [("with", Offer::USUAL), ("without", short)] {
                let cookie = bench.cookie(&offer.syn(flow, isn));
                rows.extend(answered_rows(flow, with, &offer, isn, cookie));
                rows.extend(unknown_rows(flow, with, &offer, isn, cookie));
            }
        }
    }
    rows
}

/// Acknowledges the last number of the SYN-ACK; its own number is one below the expected one.
fn probe(flow: &sb_flow, offer: &Offer, isn: u32, (cookie, stamp): (u32, u32), data: &[u8]) -> Tcp {
    let tcp = Tcp { data: data.to_vec(), ..Tcp::new(flow, isn, cookie.wrapping_add(1), flags::ACK) };
    if offer.stamp.is_some() { tcp.stamped(NOW, stamp) } else { tcp }
}

fn answered_rows(flow: &sb_flow, with: &str, offer: &Offer, isn: u32, cookie: (u32, u32)) -> Vec<Row> {
    let answer = {
        let mut tcp = Tcp::answer(flow, cookie.0.wrapping_add(1), isn.wrapping_add(1), flags::ACK);
        tcp.window = 64240;
        from_us(&if offer.stamp.is_some() { tcp.stamped(cookie.1, NOW) } else { tcp }.packet())
    };
    let bare = probe(flow, offer, isn, cookie, b"");
    let mut odd = bare.clone();
    odd.options.splice(..0, [1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1]);
    let mut padded = bare.frame();
    padded.resize(100, 0xee);
    let frames = [
        ("a probe", bare.frame()),
        ("a probe with a byte", probe(flow, offer, isn, cookie, b"\0").frame()),
        ("a probe with options in an odd order", odd.frame()),
        ("a probe with padding", padded),
        ("a probe with a traffic class", bare.class(0xb8).frame()),
    ];
    let rows = frames.map(|(what, frame)| {
        let what = format!("{what}, {with} timestamps");
        Row::new(&what, flow, frame, Verdict::Tx, [ProbeAnswered]).sends(answer.clone())
    });
    rows.into()
}

type Change = fn(&mut Tcp);

fn unknown_rows(flow: &sb_flow, with: &str, offer: &Offer, isn: u32, cookie: (u32, u32)) -> Vec<Row> {
    let changes: [(&str, Change); 10] = [
        ("a wrong cookie", |tcp| tcp.ack ^= 1 << 20),
        ("a cookie of the other slot", |tcp| tcp.ack ^= 1 << 31),
        ("the number before", |tcp| tcp.seq = tcp.seq.wrapping_sub(1)),
        ("two bytes", |tcp| tcp.data = b"ab".to_vec()),
        ("PSH", |tcp| tcp.flags |= flags::PSH),
        ("FIN", |tcp| tcp.flags |= flags::FIN),
        ("ECE", |tcp| tcp.flags |= ECE),
        ("another port", |tcp| tcp.ports.0 += 1),
        ("a byte and a wrong cookie", |tcp| (tcp.ack, tcp.data) = (tcp.ack ^ 1, b"\0".to_vec())),
        ("timestamps come or go", |tcp| {
            if tcp.options.is_empty() { *tcp = tcp.clone().stamped(1, 2) } else { tcp.options.clear() }
        }),
    ];
    let rows = changes.map(|(what, change)| {
        let mut tcp = probe(flow, offer, isn, cookie, b"");
        change(&mut tcp);
        let flow = sb_flow { client_port: tcp.ports.0.to_be(), ..*flow };
        let what = format!("no probe: {what}, {with} timestamps");
        Row::new(&what, &flow, tcp.frame(), Verdict::Drop, [DropCookie]).records(SB_RECORD_UNKNOWN)
    });
    rows.into()
}

#[test]
fn probes_are_answered_without_an_entry() {
    let bench = Bench::new();
    run_all(&bench, rows(&bench));
}
