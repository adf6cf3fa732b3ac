//! First requests that another process of the switch may have given to a node.

use std::time::Duration;

use switchback_wire::flow_state::FlowState;
use switchback_wire::packet::{bare, flags};
use switchback_wire::*;

use super::model::*;
use sb_op::*;
use sb_reason::*;

/// A process that finds the first request of a connection whose handshake was another one's, and has waited for its nodes'
/// first reports in vain.
fn restarted() -> World {
    let mut world = World::new();
    world.restart(CONFIG, true);
    world.now += Duration::from_secs(3);
    world
}

fn ops(sent: &[ToNode]) -> Vec<sb_op> {
    sent.iter().map(|sent| sent.op).collect()
}

/// All nodes of the VIP are asked, and what the world does about their answers.
fn asked(world: &mut World, answer: impl Fn(&mut World, &ToNode) -> Vec<ToNode>) -> Vec<ToNode> {
    let asked = world.client_packet(&data(0, 0, &get("/web/")));
    assert_eq!(ops(&asked), [SB_OP_PROBE; 3]);
    assert!(
        asked
            .iter()
            .all(|asked| asked.option.flow_state().origin == ORIGIN.to_be() && asked.data().is_empty())
    );
    asked.iter().flat_map(|asked| answer(world, asked)).collect()
}

/// What the node says of a connection with this origin.
fn owned(world: &mut World, asked: &ToNode, origin: Seq) -> Vec<ToNode> {
    let end = ORIGIN + get("/web/").len();
    let state = FlowState { requests: 1, ..FlowState::at(origin, end) };
    world.handoff(asked.node, state.option(SB_OP_OWNED), &asked.packet)
}

fn unowned(world: &mut World, asked: &ToNode) -> Vec<ToNode> {
    world.answer(asked, SB_OP_UNOWNED, SB_REASON_NONE)
}

#[test]
fn it_goes_to_the_node_that_has_it() {
    for last in 1..=3 {
        let mut world = restarted();
        let sent = asked(&mut world, |world, asked| match asked.node == node(last) {
            true => owned(world, asked, ORIGIN),
            false => unowned(world, asked),
        });
        assert_eq!((ops(&sent), sent[0].node), (vec![SB_OP_FORWARD], node(last)));
        assert!(world.waiting.is_empty());
        assert_eq!((world.dispatcher.pending(), world.dispatcher.stats.recovered), (0, 1));
    }
}

#[test]
fn it_begins_where_no_node_has_it() {
    let mut world = restarted();
    let sent = asked(&mut world, unowned);
    assert_eq!(ops(&sent), [SB_OP_ADOPT]);
    // An older connection of the same ports is none of its.
    let mut world = restarted();
    let sent = asked(&mut world, |world, asked| owned(world, asked, ORIGIN - 9));
    assert_eq!(ops(&sent), [SB_OP_ADOPT]);
}

#[test]
fn it_begins_although_nodes_are_silent() {
    let mut world = restarted();
    let begun = world.now;
    asked(&mut world, |world, asked| match asked.node == node(2) {
        true => Vec::new(),
        false => unowned(world, asked),
    });
    let mut rounds = 0;
    loop {
        // The client sends again, and the nodes are asked no more often for that.
        assert!(world.client_packet(&data(0, 0, &get("/web/"))).is_empty());
        let sent = world.pass();
        if ops(&sent) == [SB_OP_ADOPT] {
            break;
        }
        assert_eq!((ops(&sent), sent[0].node), (vec![SB_OP_PROBE], node(2)), "only the silent one");
        rounds += 1;
    }
    assert_eq!((rounds, world.now - begun), (5, Duration::from_millis(630)));
}

#[test]
fn it_does_not_begin_while_a_node_that_reports_may_have_it() {
    let mut world = restarted();
    asked(&mut world, |world, asked| match asked.node == node(2) {
        true => Vec::new(),
        false => unowned(world, asked),
    });
    let begun = world.now;
    let mut last = None;
    while world.now < begun + Duration::from_secs(5) {
        world.now = world.now.max(world.dispatcher.deadline().expect("it waits"));
        assert!(world.report(node(2), "web", SB_REASON_NONE, (0, 511)).is_empty());
        for sent in world.pass() {
            assert_eq!((sent.op, sent.node), (SB_OP_PROBE, node(2)));
            last = Some(sent);
        }
    }
    let sent = unowned(&mut world, &last.expect("it was asked"));
    assert_eq!(ops(&sent), [SB_OP_ADOPT]);
}

#[test]
fn it_is_over_where_it_was_answered() {
    let mut world = restarted();
    let sent = asked(&mut world, |world, asked| match asked.node == node(2) {
        true => world.answer(asked, SB_OP_UNOWNED, SB_REASON_SERVED),
        false => unowned(world, asked),
    });
    assert!(sent.is_empty() && world.map.is_empty() && world.dispatcher.pending() == 0);
    // Whoever sends it again is told that the connection is over.
    for _ in 0..8 {
        for asked in world.client_packet(&data(0, 0, &get("/web/"))) {
            assert_eq!(asked.op, SB_OP_PROBE);
            assert!(unowned(&mut world, &asked).is_empty());
        }
        world.now += Duration::from_millis(150);
    }
    assert!(world.dispatcher.stats.reset_unowned > 0 && world.dispatcher.pending() == 0);
}

#[test]
fn a_late_answer_about_something_else_counts_for_nothing() {
    let mut world = restarted();
    asked(&mut world, |world, asked| {
        let mut other = asked.clone();
        other.option = other.option.with(|flow: &mut sb_flow_state| flow.origin = 0);
        world.answer(&other, SB_OP_UNOWNED, SB_REASON_NONE)
    });
    assert_eq!(world.dispatcher.pending(), 1);
}

#[test]
fn it_waits_with_its_client_when_too_much_has_been_asked() {
    let mut world = restarted();
    let packet = data(0, 0, &get("/web/"));
    for port in 0..20_000u16 {
        let mut other = flow();
        other.client_port = port.to_be();
        let record =
            sb_record { kind: sb_record_kind::SB_RECORD_UNKNOWN as u32, flow: other, ..Default::default() };
        let at =
            crate::dispatch::Moment { now: world.now, map: &|_| None, take: &crate::dispatch::unlimited };
        world.dispatcher.on_record(at, &record, &bare(&other, true, Seq(5), Seq(6), flags::ACK));
        world.flush();
    }
    assert!(world.client_packet(&packet).is_empty() && world.map.is_empty() && world.waiting.is_empty());
    world.now += Duration::from_millis(200);
    assert_eq!(ops(&asked(&mut world, unowned)), [SB_OP_ADOPT]);
}
