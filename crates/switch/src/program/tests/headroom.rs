//! Room that drivers leave in front of a packet. A veth leaves the most, XDP_PACKET_HEADROOM.

use SwitchCounter::*;
use switchback_wire::handoff::{OVERHEAD_V4, OVERHEAD_V6};
use switchback_wire::packet::flags;
use switchback_wire::*;

use super::bench::*;
use super::forward::{ACK, MARK, entry};
use super::frames::*;
use crate::plan::NodeId;

/// What Intel's drivers leave: ixgbe_build_skb(). With their private flag `legacy-rx`, and with gve, it is next to nothing.
const COMMON: u32 = 192;
/// The kernel keeps this much of it for itself: `struct xdp_frame`.
const XDP_FRAME: u32 = 40;

/// An ACK to be forwarded, and what that takes besides.
fn forwarded(bench: &Bench, flow: &sb_flow, node: NodeId) -> Vec<u8> {
    bench.forget(flow);
    bench.put(flow, &entry(node));
    Tcp::new(flow, MARK, ACK, flags::ACK).frame()
}

#[test]
fn the_headroom_of_common_drivers_is_enough() {
    let bench = Bench::new();
    for flow in &flows() {
        for (node, overhead) in [(V4, OVERHEAD_V4), (V6, OVERHEAD_V6)] {
            let frame = forwarded(&bench, flow, node);
            let (_, sent) = bench.run(&frame, 1);
            for headroom in [COMMON, XDP_FRAME + overhead as u32] {
                let outcome = bench.send_with_headroom(headroom, &frame);
                assert_eq!((outcome.verdict, outcome.moved), (Verdict::Tx, vec![(Forwarded, 1)]));
                assert_eq!(outcome.frame, sent, "{headroom} bytes");
            }
        }
        // The options of a SYN-ACK may be longer than those of the SYN.
        let syn = Tcp::new(flow, 1, 0, flags::SYN).frame();
        assert_eq!(bench.send_with_headroom(COMMON, &syn).verdict, Verdict::Tx);
    }
}

pub fn have_too_little(bench: &Bench) {
    for flow in &flows() {
        for (node, overhead) in [(V4, OVERHEAD_V4), (V6, OVERHEAD_V6)] {
            let frame = forwarded(bench, flow, node);
            let outcome = bench.send_with_headroom(XDP_FRAME + overhead as u32 - 4, &frame);
            assert_eq!((outcome.verdict, outcome.moved), (Verdict::Drop, vec![(DropHeadroom, 1)]));
        }
    }
}

#[test]
fn a_packet_without_headroom_is_counted() {
    have_too_little(&Bench::new());
}
