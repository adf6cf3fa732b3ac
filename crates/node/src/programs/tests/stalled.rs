//! Window probes.

use std::io::Write;

use switchback_wire::packet::{TcpView, flags, segment, set_window, timestamps};
use switchback_wire::*;

use super::bench::*;
use super::frames::*;
use crate::stalled::window_probe;

fn is_stalled(bench: &Bench, known: &KnownFlow) -> Option<sb_stalled> {
    bench.stalled().into_iter().find(|stalled| stalled.flow == known.flow)
}

/// The client acknowledges what it has got, and has room for `window` more bytes.
fn acknowledge(bench: &Bench, known: &KnownFlow, window: u16) {
    let mut inner = segment(&known.flow, true, (Seq(known.seq), Seq(known.ack)), flags::ACK, None, b"");
    set_window(&mut inner, window);
    let view = TcpView::parse(&inner).expect("a TCP packet");
    bench.send(&known.hand_over_packet(known.option(sb_op::SB_OP_FORWARD), &view, &inner));
}

/// Lets the server write while the client's window is closed.
pub fn close_window(bench: &Bench, known: &mut KnownFlow) {
    let forwarded = bench.counter(NodeCounter::Forwarded);
    acknowledge(bench, known, 0);
    wait_until("the acknowledgment has come", || bench.counter(NodeCounter::Forwarded) > forwarded);
    assert_eq!(is_stalled(bench, known), None, "nothing waits");
    known.socket.as_mut().expect("an adopted flow").write_all(RESPONSE).expect("there is room in the buffer");
}

fn answered(bench: &Bench, v6: bool, port: u16) -> KnownFlow {
    let mut known = KnownFlow { flow: flow(v6, port, PORT), seq: 1000, ack: 5000, socket: None };
    known.adopt(bench);
    known.answer();
    known
}

#[test]
fn a_closed_window_stalls_what_is_written() {
    alone(|| {
        let bench = Bench::new();
        for (v6, port) in [(false, 40_000), (true, 40_001)] {
            let mut known = answered(&bench, v6, port);
            assert_eq!(is_stalled(&bench, &known), None, "the acknowledgment may be on its way");
            close_window(&bench, &mut known);
            let found = is_stalled(&bench, &known).expect("data waits for room");
            assert_eq!((found.seq, found.ack), (known.ack - 1, known.seq));
            let (to, packet) = window_probe(&found);
            assert_eq!(to, known.flow.client().ip());
            let view = TcpView::parse(&packet).expect("a TCP packet");
            assert_eq!((view.seq, view.ack), (Seq(known.ack - 1), Seq(known.seq)));
            assert_eq!((view.flags, view.end - view.data), (flags::ACK, 1));
            assert_eq!(packet[view.tcp + 14..view.tcp + 16], found.window.to_be_bytes());
            assert!(found.window > 1000, "{}", found.window);
            assert!(is_tcp_sealed(&packet));
            let (state, owned) = (sb_ownership::SB_OWN_RELEASED as u8, bench.flow(&known.flow).unwrap());
            bench.put(&known.flow, &sb_owned { state, ..owned });
            assert_eq!(is_stalled(&bench, &known), None, "another node has the flow");
        }
        assert_eq!(bench.counter(NodeCounter::Stalled), 2);
    });
}

#[test]
fn a_flow_is_stalled_when_no_acknowledgment_has_come_in_time() {
    alone(|| {
        let bench = Bench::new();
        let mut known = answered(&bench, false, 40_000);
        acknowledge(&bench, &known, u16::MAX);
        wait_until("the round trip is known", || bench.counter(NodeCounter::Forwarded) == 1);
        known.socket.as_mut().unwrap().write_all(RESPONSE).unwrap();
        known.ack += RESPONSE.len() as u32;
        wait_until("its timer has run out", || is_stalled(&bench, &known).is_some());
        let found = is_stalled(&bench, &known).unwrap();
        assert_eq!(found.seq, known.ack - RESPONSE.len() as u32 - 1);
        acknowledge(&bench, &known, u16::MAX);
        wait_until("all is acknowledged", || is_stalled(&bench, &known).is_none());
    });
}

#[test]
fn a_window_probe_has_the_timestamps_of_its_connection() {
    let packet = |has_timestamps| {
        let stalled =
            sb_stalled { flow: flow(false, 40_000, PORT), tsval: 7, tsecr: 8, ..Default::default() };
        window_probe(&sb_stalled { has_timestamps, ..stalled }).1
    };
    let times = |packet: Vec<u8>| timestamps(&packet, &TcpView::parse(&packet).unwrap());
    assert_eq!((times(packet(0)), times(packet(1))), (None, Some((7, 8))));
}
