//! Late copies of an ADOPT while the agent moves the flow to another node.

use switchback_wire::*;

use super::bench::*;
use super::frames::*;

/// State of the flow's entry, and whether an ADOPT with the flow's own numbers counts as a late copy.
#[test]
fn a_flow_that_is_about_to_move_is_not_adopted_by_a_late_copy() {
    let (frozen, none) = (sb_reason::SB_REASON_FROZEN, sb_reason::SB_REASON_NONE);
    let rows = [
        ("it is frozen", frozen, 0, 0, true),
        ("it was read further", none, 1, 0, true),
        ("it was spoken on", none, 0, 1, true),
        ("it comes back as it left", none, 0, 0, false),
        ("it comes back, acknowledged", none, 0, u32::MAX, false),
    ];
    alone(|| {
        let bench = Bench::new();
        let mut port = 50_000;
        for (what, reason, read, said, is_old) in rows {
            port += 1;
            let known = KnownFlow { flow: flow(false, port, PORT), seq: 1000, ack: 5000, socket: None };
            let entry = sb_owned {
                state: sb_ownership::SB_OWN_RELEASED as u8,
                reason: reason as u8,
                next: known.seq.wrapping_add(read),
                answered: known.ack.wrapping_add(said),
                ..known.owned()
            };
            bench.put(&known.flow, &entry);
            let dropped = bench.counter(NodeCounter::DropStale);
            let option = known.option(sb_op::SB_OP_ADOPT).with(|said: &mut sb_handover| said.queue_share = 0);
            bench.ingress(&to_us(&known.hand_over(option, b"")), 0);
            assert_eq!(bench.counter(NodeCounter::DropStale) - dropped, u64::from(is_old), "{what}");
            // In a test run the kernel refuses the flow, so an adoption leaves nothing.
            match is_old {
                true => assert_eq!(bench.flow(&known.flow), Some(entry), "{what}"),
                false => wait_until("the end of the adoption", || bench.flow(&known.flow).is_none()),
            }
        }
    });
}
