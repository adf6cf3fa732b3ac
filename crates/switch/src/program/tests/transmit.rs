//! Ways in which packets leave.

use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{SB_SENDS_REDIRECT, SB_SENDS_TX};

use super::bench::{Bench, LOOPBACK, Verdict};
use super::frames::*;
use crate::program::Ways;

const ETHERNET: usize = 14;
/// Size of `struct going_out`.
const GOING_OUT: usize = 8;

#[test]
fn an_answer_leaves_in_the_best_way_that_works() {
    let bench = Bench::new();
    let ways = [
        (SB_SENDS_TX | SB_SENDS_REDIRECT, Verdict::Tx),
        (SB_SENDS_TX, Verdict::Tx),
        (SB_SENDS_REDIRECT, Verdict::Redirect),
        (0, Verdict::Pass),
    ];
    for flow in &flows() {
        for (ways, wanted) in ways {
            bench.program.set_interface(LOOPBACK, OURS, Ways(ways as u16)).unwrap();
            let (verdict, frame) = bench.run(&Tcp::new(flow, 1, 0, flags::SYN).frame(), 1);
            assert_eq!(verdict, wanted, "{ways}");
            // The test run gives out what is before the packet, too.
            let before = if verdict == Verdict::Pass { GOING_OUT } else { 0 };
            let view = TcpView::parse(&frame[before + ETHERNET..]).expect("a SYN-ACK");
            assert_eq!((view.flags, view.ack.0), (flags::SYN | flags::ACK, 2), "{ways}");
        }
    }
}
