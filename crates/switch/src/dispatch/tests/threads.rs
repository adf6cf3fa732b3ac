//! The dispatchers of several threads.

use switchback_wire::NodeAddress;
use switchback_wire::sb_op::*;
use switchback_wire::sb_reason::*;

use super::model::*;
use crate::dispatch::flows::PendingFlows;
use crate::dispatch::{Common, Heard, Moment};

/// The worlds of the first and of the second thread.
fn two() -> (World, World) {
    let common = Common::new(2);
    let (mut first, mut second) = (World::new(), World::new());
    for world in [&mut first, &mut second] {
        world.dispatcher.common = common.clone();
        world.dispatcher.pending = PendingFlows::counted_in(&common.totals);
    }
    second.dispatcher.is_first = false;
    (first, second)
}

/// What the first dispatcher tells the others.
fn told(first: &mut World) -> Vec<Heard> {
    first.dispatcher.changed_nodes();
    std::mem::take(&mut first.dispatcher.output.heard)
}

fn tell(first: &mut World, second: &mut World) {
    let heard = told(first);
    first.flush();
    assert!(!heard.is_empty());
    let at = Moment { now: first.now, map: &|_| None, take: &crate::dispatch::unlimited };
    heard.iter().for_each(|heard| second.dispatcher.hear(at, heard));
}

fn nodes(world: &World) -> Vec<NodeAddress> {
    world.dispatcher.seen().nodes.iter().flatten().map(|node| node.address).collect()
}

#[test]
fn what_one_hears_of_nodes_the_other_knows() {
    let (mut first, mut second) = two();
    let [one, other] = [nodes(&first)[0], nodes(&first)[1]];
    first.read_report(one, "web", SB_REASON_NO_LISTENER, (0, 0));
    first.read_report(other, "web", SB_REASON_NONE, (0, 511));
    tell(&mut first, &mut second);
    let adopt = second.client_packet(&data(0, 0, &get("/web/a"))).remove(0);
    assert_eq!((adopt.op, adopt.node), (SB_OP_ADOPT, other), "the only one with a listener");
    assert_eq!(second.dispatcher.stats.reports, 0, "the first thread has counted it");
}

#[test]
fn an_order_holds_in_all_threads_until_the_node_has_carried_it_out() {
    let (mut first, mut second) = two();
    let (name, id) = (first.dispatcher.seen().nodes[0].as_ref().unwrap().name.clone(), 0);
    let is_drained = |world: &World| world.dispatcher.seen().nodes[id].as_ref().unwrap().is_drained();
    assert!(first.dispatcher.order_drain(&name, true));
    tell(&mut first, &mut second);
    assert!(is_drained(&second));
    for _ in 0..3 {
        first.dispatcher.ask_for_reports();
    }
    let node = nodes(&first)[id];
    first.read_report(node, "web", SB_REASON_DRAINING, (0, 511));
    tell(&mut first, &mut second);
    assert!(!is_drained(&first) && !is_drained(&second), "it drains by itself now");
}

#[test]
fn only_the_first_talks_with_agents() {
    let (mut first, mut second) = two();
    for (world, talks) in [(&mut first, true), (&mut second, false)] {
        world.dispatcher.list_flows(world.now);
        world.dispatcher.ask_for_reports();
        world.dispatcher.acknowledge();
        assert_eq!(!world.flush().is_empty(), talks);
    }
}

#[test]
fn limits_hold_for_all_threads_together() {
    let (mut first, mut second) = two();
    let part = &get("/web/a")[..10];
    first.client_packet(&data(0, 0, part));
    let held = first.dispatcher.held();
    assert!(held > 0 && second.dispatcher.held() == held && second.dispatcher.pending() == 1);
    second.dispatcher.plan().limits.held = held + 1;
    second.client_packet(&data(0, 0, part));
    assert_eq!((second.dispatcher.stats.dropped_switch_full, second.dispatcher.held()), (1, held));
}
