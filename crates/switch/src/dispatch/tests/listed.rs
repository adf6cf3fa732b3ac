//! Flows from nodes' lists.

use std::time::Duration;

use switchback_flow::entry::Entry;
use switchback_http::framing::Framing;
use switchback_http::framing::generated::{SB_FRAMING_BODY, SB_FRAMING_SKIP};
use switchback_wire::flow_state::{FlowState, Stream};
use switchback_wire::generation::Generation;
use switchback_wire::*;

use super::model::*;
use sb_op::*;

/// A flow in a node's list: its client has sent one request, of this adoption.
fn listed(generation: Generation) -> sb_listed {
    let end = ORIGIN + get("/web/").len();
    let state = FlowState { requests: 1, generation, ..FlowState::at(ORIGIN, end) };
    sb_listed { flow: flow(), state: state.to_wire() }
}

fn second_request() -> Vec<u8> {
    data(get("/web/").len() as u32, 0, &get("/web/"))
}

#[test]
fn a_listed_flow_needs_no_question() {
    let mut world = World::of_several(CONFIG, 1);
    assert!(world.list(node(2), listed(Generation::first(0))).is_empty());
    assert_eq!(world.dispatcher.stats.listed, 1);
    let sent = world.client_packet(&second_request());
    assert_eq!(sent.iter().map(|sent| (sent.op, sent.node)).collect::<Vec<_>>(), [(SB_OP_FORWARD, node(2))]);
}

#[test]
fn a_list_replaces_earlier_entries_only() {
    let first = Generation::first(0);
    let later = first.following();
    for (known, said, node_after) in [(first, later, 2), (later, first, 1), (first, first, 1)] {
        let mut world = World::of_several(CONFIG, 1);
        world.list(node(1), listed(known));
        world.list(node(2), listed(said));
        let entry: Entry = world.map[&flow()];
        assert_eq!(world.dispatcher.plan().node(entry.node).unwrap().address, node(node_after), "{said:?}");
    }
}

#[test]
fn a_list_does_not_touch_another_connection_or_a_pending_flow() {
    let mut world = World::of_several(CONFIG, 0);
    let adopt = world.client_packet(&data(0, 0, &get("/web/")));
    assert_eq!(adopt[0].op, SB_OP_ADOPT);
    let before = world.map[&flow()];
    world.list(node(3), listed(Generation::first(0).following()));
    assert_eq!((world.map[&flow()], world.dispatcher.pending()), (before, 1));

    let mut world = World::of_several(CONFIG, 1);
    world.list(node(1), listed(Generation::first(0)));
    let before = world.map[&flow()];
    let mut other = listed(Generation::first(0).following());
    other.state.origin = (ORIGIN + 1u32).to_be();
    world.list(node(2), other);
    assert_eq!(world.map[&flow()], before);
}

#[test]
fn flows_of_other_services_are_left_alone() {
    let mut world = World::of_several(CONFIG, 1);
    let mut other = listed(Generation::first(0));
    other.flow.vip_port = 81u16.to_be();
    world.list(node(1), other);
    assert!(world.map.is_empty());
}

/// Another switch has forwarded requests of the flow since it was listed.
#[test]
fn a_mark_that_lies_behind_is_asked_about_at_once() {
    let mut world = World::of_several(CONFIG, 1);
    world.list(node(2), listed(Generation::first(0)));
    let at = 2 * get("/web/").len() as u32;
    assert!(world.client_packet(&data(at, 0, &get("/web/"))).is_empty());
    let asked = world.pass();
    assert_eq!(asked.iter().map(|sent| (sent.op, sent.node)).collect::<Vec<_>>(), [(SB_OP_PROBE, node(2))]);
    let state =
        FlowState { requests: 2, generation: Generation::first(0), ..FlowState::at(ORIGIN, ORIGIN + at) };
    let sent = world.handoff(node(2), state.option(SB_OP_OWNED), &asked[0].packet);
    assert_eq!(sent.iter().map(|sent| sent.op).collect::<Vec<_>>(), [SB_OP_FORWARD]);
}

/// An upload that another switch has forwarded is far beyond what this one knows of the connection.
#[test]
fn a_mark_that_lies_far_behind_is_asked_about() {
    let first = Generation::first(0);
    let mut world = World::of_several(CONFIG, 1);
    world.list(node(2), listed(first));
    let upload = b"POST /web/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
    let begun = get("/web/").len() as u32 + upload.len() as u32;
    let at = begun + 100_000;
    let asked = world.client_packet(&data(at, 0, &[b'x'; 1000]));
    assert_eq!(
        asked.iter().map(|sent| sent.op).collect::<Vec<_>>(),
        [SB_OP_PROBE; 3],
        "it may be another connection"
    );
    assert!(asked[0].data().is_empty());

    // The mark of a long body is ahead of its data.
    let mark = at + 200_000;
    let framing = Framing::new(SB_FRAMING_BODY | SB_FRAMING_SKIP, 700_000);
    let state = FlowState {
        requests: 2,
        generation: first,
        at_mark: Some((Stream::Requests, framing)),
        ..FlowState::at(ORIGIN, ORIGIN + mark)
    };
    let sent = world.handoff(node(2), state.option(SB_OP_OWNED), &asked[0].packet);
    assert_eq!((sent[0].op, sent[0].node, sent[0].data().len()), (SB_OP_FORWARD, node(2), 1000));
    assert_eq!((world.map[&flow()].mark.next, world.dispatcher.pending()), (ORIGIN + mark, 0));

    let earlier = FlowState { requests: 1, generation: first, ..FlowState::at(ORIGIN, ORIGIN + 50u32) };
    let before = world.map[&flow()];
    world.handoff(node(2), earlier.option(SB_OP_OWNED), &asked[0].packet);
    assert_eq!(world.map[&flow()], before, "a late answer");
}

/// An upload that another switch has read is not so far beyond what this one knows of the connection that its data is not
/// held.
#[test]
fn held_data_before_the_mark_that_its_node_says_is_forwarded() {
    let first = Generation::first(0);
    let mut world = World::of_several(CONFIG, 1);
    world.list(node(2), listed(first));
    let at = 30_000;
    assert!(world.client_packet(&data(at, 0, &[b'x'; 1000])).is_empty());
    let asked = world.pass();
    let probe = asked.iter().find(|sent| sent.op == SB_OP_PROBE).expect("a question about the mark");
    let state =
        FlowState { requests: 2, generation: first, ..FlowState::at(ORIGIN, ORIGIN + (at + 500_000)) };
    let sent = world.handoff(node(2), state.option(SB_OP_OWNED), &probe.packet);
    let forwarded: Vec<_> = sent.iter().map(|sent| (sent.op, sent.node, sent.data().len())).collect();
    assert_eq!(forwarded, [(SB_OP_FORWARD, node(2), 1000)]);
    assert_eq!(world.dispatcher.pending(), 0);
}

/// Switch and nodes are busy when the flows of a dead switch come all at once.
#[test]
fn data_of_an_unknown_flow_waits_for_a_late_answer() {
    let mut world = World::of_several(CONFIG, 1);
    let asked = world.client_packet(&second_request());
    assert_eq!(asked.iter().map(|sent| sent.op).collect::<Vec<_>>(), [SB_OP_PROBE; 3]);
    world.now += Duration::from_millis(120);
    while world.dispatcher.deadline().is_some_and(|due| due <= world.now) {
        world.pass();
    }
    let state = FlowState::from_wire(&listed(Generation::first(0)).state);
    let sent = world.handoff(node(2), state.option(SB_OP_OWNED), &asked[0].packet);
    let data = (SB_OP_FORWARD, node(2), get("/web/").len());
    assert_eq!(sent.iter().map(|sent| (sent.op, sent.node, sent.data().len())).collect::<Vec<_>>(), [data]);
}

/// The client may not repeat it: an update of the window, for example.
#[test]
fn an_acknowledgment_whose_flow_is_listed_while_nodes_are_asked_is_forwarded() {
    let mut world = World::of_several(CONFIG, 1);
    let asked = world.client_packet(&data(get("/web/").len() as u32, 0, b""));
    assert_eq!(asked.iter().map(|sent| sent.op).collect::<Vec<_>>(), [SB_OP_PROBE; 3]);
    let said = listed(Generation::first(0));
    world.list(node(2), said);
    let state = FlowState::from_wire(&said.state);
    let sent = world.handoff(node(2), state.option(SB_OP_OWNED), &asked[0].packet);
    assert_eq!(sent.iter().map(|sent| (sent.op, sent.node)).collect::<Vec<_>>(), [(SB_OP_FORWARD, node(2))]);
    let sent = world.handoff(node(2), state.option(SB_OP_OWNED), &asked[0].packet);
    assert!(sent.is_empty(), "a repeated answer");
}
