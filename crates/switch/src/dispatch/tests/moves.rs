//! A node gives its flow to another one in the middle (MOVE), for connections over TLS.

use switchback_wire::flow_state::FlowState;
use switchback_wire::message::FromNode;
use switchback_wire::packet::{flags, segment};
use switchback_wire::report::pool_id;
use switchback_wire::*;

use super::cases::settled;
use super::model::*;
use crate::plan::NodeId;
use sb_op::*;
use sb_reason::*;

/// What the node that has the flow by this adoption says: it goes on at `to`, behind `came` bytes of the client and `said` of ours.
fn give(world: &mut World, adopted: &ToNode, to: &str, came: u32, said: u32) -> Vec<ToNode> {
    let message = FromNode::Move { target: pool_id(to), state: FlowState::read(&adopted.option) };
    let option = message.option();
    let numbers = (ORIGIN + came, SERVER + said);
    let packet = segment(&flow(), true, numbers, flags::ACK, None, &[]);
    world.handoff(adopted.node, option, &packet)
}

fn only(sent: Vec<ToNode>, node: switchback_wire::NodeAddress) -> ToNode {
    let [adopt] = &sent[..] else { panic!("one ADOPT, not {sent:?}") };
    assert_eq!((adopt.op, adopt.node), (SB_OP_ADOPT, node));
    adopt.clone()
}

#[test]
fn a_flow_that_has_come_back_is_not_moved_by_what_was_said_before() {
    let (mut world, at_first, len) = settled("/web/a");
    let (name, first) = if at_first.node == node(1) { ("n1", node(1)) } else { ("n2", node(2)) };
    let at_third = only(give(&mut world, &at_first, "n3", len, 100), node(3));
    assert!(world.answer(&at_third, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    let back = only(give(&mut world, &at_third, name, len + 50, 200), first);
    assert!(world.answer(&back, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    let before = world.map[&flow()];
    assert!(give(&mut world, &at_first, "n3", len, 100).is_empty(), "a late copy of the first move");
    assert!(give(&mut world, &at_third, name, len + 50, 200).is_empty(), "and of the second");
    assert_eq!((world.map[&flow()], world.dispatcher.pending()), (before, 0));
    only(give(&mut world, &back, "n3", len + 100, 300), node(3));
}

#[test]
fn whoever_gives_a_flow_on_has_had_it() {
    let (mut world, at_first, len) = settled("/web/a");
    let at_third = only(give(&mut world, &at_first, "n3", len, 100), node(3));
    // It says again what it is asked by, until it is heard that the other node has it.
    assert!(give(&mut world, &at_first, "n3", len, 100).is_empty());
    // ADOPTED has been lost.
    let other = only(give(&mut world, &at_third, "n2", len + 50, 200), node(2));
    assert!(world.answer(&at_third, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert_eq!(world.dispatcher.pending(), 1);
    assert!(world.answer(&other, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert_eq!((world.map[&flow()].node, world.dispatcher.pending()), (NodeId(1), 0));
}

/// A node says MOVE until the other one has the flow, also to a switch that has been started since.
#[test]
fn a_move_outlives_the_switch_that_knew_the_flow() {
    let (mut world, at_first, len) = settled("/web/a");
    world.restart(CONFIG, true);
    let at_third = only(give(&mut world, &at_first, "n3", len, 100), node(3));
    assert_eq!(world.map[&flow()].node, NodeId(2));
    assert!(world.answer(&at_third, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert!(give(&mut world, &at_first, "n3", len, 100).is_empty(), "a copy");
    assert_eq!((world.map[&flow()].node, world.dispatcher.pending()), (NodeId(2), 0));
}
