//! Flows that switches take from a node that drains, each as far as it knows of them.

use std::time::Duration;

use switchback_flow::entry::{Entry, Mode};
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::packet::{TcpView, bare, flags, segment};
use switchback_wire::*;

use super::model::*;
use crate::dispatch::Moment;
use sb_op::*;
use sb_reason::*;

/// A switch beside others whose flow has made one request; the node that has it, and the end of the request.
fn settled() -> (World, NodeAddress, u32) {
    let mut world = World::of_several(CONFIG, 0);
    let request = get("/web/a");
    let sent = world.client_packet(&data(0, 0, &request));
    assert!(world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    (world, sent[0].node, request.len() as u32)
}

fn ops(sent: &[ToNode]) -> Vec<sb_op> {
    sent.iter().map(|sent| sent.op).collect()
}

/// The world after its flow was to be taken from a node that had released it to another switch.
fn taken_by_another() -> (World, u32) {
    taken_by_another_after(0)
}

/// The same, where the other switch has read so much more of the flow.
fn taken_by_another_after(more: usize) -> (World, u32) {
    let (mut world, owner, len) = settled();
    let entry = world.map[&flow()];
    assert!(world.dispatcher.order_drain(if owner == node(1) { "n1" } else { "n2" }, true));
    world.flush();
    world.dispatcher.take_back(
        Moment { now: world.now, map: &|_| Some(entry), take: &crate::dispatch::unlimited },
        &flow(),
        entry,
    );
    let asked = world.flush();
    assert_eq!(ops(&asked), [SB_OP_RELEASE]);
    let generation = Generation::first(0).successor(1);
    let said = FlowState { generation, requests: 1, ..FlowState::at(ORIGIN, ORIGIN + len + more) };
    assert!(world.handoff(owner, said.option(SB_OP_RELEASED), &asked[0].packet).is_empty());
    (world, len)
}

/// What a node answers that has not had the flow, or has released it at `next` and gives a reason.
fn unowned(asked: &ToNode, released: Option<(sb_reason, Seq)>) -> sb_option {
    let generation = Generation::from_be(asked.option.said::<sb_question>().next_generation);
    let origin = Seq::from_be(asked.option.flow_state().origin);
    let (reason, said) = match released {
        Some((reason, next)) => (reason, FlowState { requests: 1, ..FlowState::at(ORIGIN, next) }),
        None => (SB_REASON_NONE, FlowState::at(origin, origin)),
    };
    sb_option { reason: reason as u8, ..FlowState { generation, ..said }.option(SB_OP_UNOWNED) }
}

#[test]
fn a_flow_that_another_switch_has_taken_is_no_longer_its_nodes() {
    let (mut world, len) = taken_by_another();
    assert_eq!((world.map[&flow()].mode, world.dispatcher.pending()), (Mode::Sought, 0));
    // The sweep goes on, and finds nothing.
    let entry = world.map[&flow()];
    world.dispatcher.take_back(
        Moment { now: world.now, map: &|_| Some(entry), take: &crate::dispatch::unlimited },
        &flow(),
        entry,
    );
    assert!(world.flush().is_empty());
    let asked = world.client_packet(&data(len, 100, &get("/web/b")));
    assert_eq!(ops(&asked), [SB_OP_PROBE; 3], "another node may have it");
}

#[test]
fn it_goes_on_where_the_node_has_released_it() {
    let second = get("/web/b");
    let (mut world, len) = taken_by_another_after(second.len());
    assert_eq!(world.map[&flow()].mark.next, ORIGIN + len + second.len());
    world.now += Duration::from_secs(1);
    let third = data(len + second.len() as u32, 200, &get("/web/c"));
    let asked = world.client_packet(&third);
    assert_eq!(ops(&asked), [SB_OP_PROBE; 3]);
    let sent = asked.iter().flat_map(|asked| world.handoff(asked.node, unowned(asked, None), &asked.packet));
    assert_eq!(ops(&sent.collect::<Vec<_>>()), [SB_OP_ADOPT], "the node that released it is gone");
}

#[test]
fn the_node_that_has_released_it_hears_of_its_end() {
    for (tcp_flags, answers) in [(flags::FIN | flags::ACK, 1), (flags::RST, 0)] {
        let (mut world, len) = taken_by_another();
        let owner = world.dispatcher.plan().node(world.map[&flow()].node).unwrap().address;
        world.now += Duration::from_secs(1);
        let sent = world.client_packet(&bare(&flow(), true, ORIGIN + len, SERVER + 100u32, tcp_flags));
        assert_eq!((ops(&sent), sent[0].node), (vec![SB_OP_FORWARD], owner));
        assert!(world.map.is_empty());
        assert_eq!(world.to_client.len(), answers, "{tcp_flags:#x}");
    }
}

/// Its nodes have answered more than this switch knows of.
#[test]
fn what_follows_an_answered_request_begins() {
    for distance in [0, 1, SB_WINDOW as usize + 1] {
        let (mut world, len) = taken_by_another();
        let owner = world.map[&flow()].node;
        let owner = world.dispatcher.plan().node(owner).unwrap().address;
        let next = ORIGIN + len + distance;
        world.now += Duration::from_secs(1);
        let mut asked = world.client_packet(&data(len + distance as u32, 200, &get("/web/c")));
        let mut rounds = 0;
        while ops(&asked) != [SB_OP_ADOPT] {
            assert_eq!(ops(&asked), [SB_OP_PROBE; 3], "{distance}");
            rounds += 1;
            let sent = asked.iter().flat_map(|asked| {
                let answered = asked.view().seq.before(next);
                let reason = if answered { SB_REASON_SERVED } else { SB_REASON_RELEASED };
                let released = (asked.node == owner).then_some((reason, next));
                world.handoff(asked.node, unowned(asked, released), &asked.packet)
            });
            asked = sent.collect();
        }
        assert_eq!((asked[0].view().seq, rounds), (next, 1 + usize::from(distance > 0)), "{distance}");
    }
}

/// Another switch has got what this one lacks, of a flow that has no node here.
#[test]
fn the_beginning_of_a_request_may_have_come_to_another_switch() {
    let mut world = World::of_several(CONFIG, 0);
    let request = get("/web/a");
    let len = request.len() as u32;
    assert!(world.client_packet(&data(0, 0, &request[..9])).is_empty());
    world.now += Duration::from_secs(1);
    assert!(world.client_packet(&data(len, 100, &get("/web/b"))).is_empty());
    let begun = world.now;
    let asked = world.pass();
    assert_eq!((ops(&asked), world.now - begun), (vec![SB_OP_PROBE; 3], Duration::ZERO));
    let said =
        FlowState { generation: Generation::first(1), requests: 1, ..FlowState::at(ORIGIN, ORIGIN + len) };
    let sent = world.handoff(node(2), said.option(SB_OP_OWNED), &asked[1].packet);
    assert!(sent.iter().all(|sent| (sent.op, sent.node) == (SB_OP_FORWARD, node(2))), "{sent:?}");
    assert_eq!(sent.last().unwrap().data(), get("/web/b"));
}

/// The beginning of a request has been acknowledged here, and another switch has read it all, and perhaps given its node
/// another head.
#[test]
fn what_another_switch_has_read_is_not_said_to_be_read() {
    let mut world = World::of_several(CONFIG, 0);
    let request = get("/web/a");
    assert!(world.client_packet(&data(0, 0, &request[..9])).is_empty());
    world.now += Duration::from_millis(210);
    let kept = world.client_packet(&data(0, 0, &request[..9]));
    assert_eq!(ops(&kept), [SB_OP_KEEP]);
    world.kept(&kept[0]);
    assert_eq!(TcpView::parse(&world.to_client[0]).unwrap().ack, ORIGIN + 9u32);
    let len = request.len();
    let said =
        FlowState { generation: Generation::first(1), requests: 1, ..FlowState::at(ORIGIN, ORIGIN + len) };
    let question = bare(&flow(), true, ORIGIN, SERVER, flags::ACK);
    let asked = world.handoff(node(2), said.option(SB_OP_OWNED), &question);
    assert_eq!((ops(&asked), asked[0].data()), (vec![SB_OP_CONFIRM], &b""[..]));
    let sent = world.pass();
    let last = sent.last().unwrap();
    assert_eq!((last.op, last.node, last.data()), (SB_OP_CONFIRM, node(2), &request[..9]));
    assert!(sent.iter().all(|sent| sent.option.flags == 0), "{sent:?}");
}

#[test]
fn what_the_client_sends_beyond_it_goes_to_the_node_that_has_it() {
    let (mut world, len) = taken_by_another();
    let entry = world.map[&flow()];
    let kind = sb_record_kind::SB_RECORD_REQUEST;
    for tcp_flags in [flags::ACK, flags::ACK | flags::FIN] {
        let at_mark = bare(&flow(), true, ORIGIN + len, SERVER + 100u32, flags::ACK);
        assert!(world.record(kind, entry, &at_mark).is_empty());
        world.now += Duration::from_secs(1);
        let beyond = bare(&flow(), true, ORIGIN + len + 50u32, SERVER + 200u32, tcp_flags);
        assert_eq!(ops(&world.record(kind, entry, &beyond)), [SB_OP_PROBE; 3]);
    }
    assert!(world.to_client.is_empty(), "no reset");
    let asked = bare(&flow(), true, ORIGIN + len + 50u32, SERVER + 200u32, flags::ACK);
    let generation = Generation::first(0).successor(1).successor(2);
    let said = FlowState { generation, requests: 2, ..FlowState::at(ORIGIN, ORIGIN + len + 50u32) };
    let sent = world.handoff(node(2), said.option(SB_OP_OWNED), &asked);
    assert_eq!((ops(&sent), sent[0].node), (vec![SB_OP_FORWARD], node(2)));
    assert!(world.map[&flow()].has_node());
}

/// The connection has ended at another switch, and its client has begun another one there.
#[test]
fn another_connection_of_the_4_tuple_is_found() {
    const OTHER: Seq = Seq(0x3a69_5640);
    let kind = sb_record_kind::SB_RECORD_REQUEST;
    let request = segment(&flow(), true, (OTHER + 52u32, SERVER), flags::ACK, None, &get("/web/b"));
    let said =
        FlowState { generation: Generation::first(1), requests: 1, ..FlowState::at(OTHER, OTHER + 52u32) };
    for distance in [1u32 << 30, 3 << 30] {
        // Its old connection has no node here.
        let (mut world, len) = taken_by_another();
        let old = OTHER + 52u32 + distance;
        let mark = world.map[&flow()].mark.moved_to(old);
        let stale = Entry { origin: old - len, mark, ..world.map[&flow()] };
        world.map.insert(flow(), stale);
        world.now += Duration::from_secs(1);
        let asked = world.record(kind, stale, &request);
        assert_eq!(ops(&asked), [SB_OP_PROBE; 3]);
        assert!(asked.iter().all(|asked| asked.option.flow_state().origin == 0), "any connection");
        let sent = world.handoff(node(2), said.option(SB_OP_OWNED), &asked[1].packet);
        assert!(sent.iter().all(|sent| sent.node == node(2)), "{sent:?}");
        assert_eq!(world.map[&flow()].origin, OTHER);
        let sent = world.client_packet(&request);
        assert_eq!((ops(&sent), sent[0].node), (vec![SB_OP_FORWARD], node(2)));
    }
}

/// A node owns an older connection, which its client has given up.
#[test]
fn an_older_connection_takes_no_place() {
    let (mut world, _, len) = settled();
    let known = world.map[&flow()];
    let older = FlowState::at(ORIGIN - 5000, ORIGIN - 4000);
    let asked = bare(&flow(), true, ORIGIN + len, SERVER + 100u32, flags::ACK);
    world.now += Duration::from_secs(1);
    world.handoff(node(2), older.option(SB_OP_OWNED), &asked);
    assert_eq!(world.map[&flow()], known);
}

/// Of several requests that its former node returns each seems to be the latest one.
#[test]
fn requests_begin_where_the_flow_was_released() {
    let (mut world, owner, len) = settled();
    let next = get("/web/b");
    let known = world.map[&flow()];
    let mark = known.mark.moved_to(ORIGIN + len + next.len());
    world.now += Duration::from_secs(1);
    world.map.insert(flow(), Entry { mode: Mode::Sought, mark, ..known });
    let second = data(len + next.len() as u32, 100, &next);
    let asked = world.client_packet(&second);
    assert_eq!(ops(&asked), [SB_OP_PROBE; 3]);
    for asked in &asked {
        let generation = Generation::from_be(asked.option.said::<sb_question>().next_generation);
        let said = FlowState { generation, requests: 1, ..FlowState::at(ORIGIN, ORIGIN + len) };
        let (reason, said) = match asked.node == owner {
            true => (SB_REASON_RELEASED, said),
            false => (SB_REASON_NONE, FlowState { generation, ..FlowState::at(ORIGIN, ORIGIN) }),
        };
        let option = sb_option { reason: reason as u8, ..said.option(SB_OP_UNOWNED) };
        assert!(world.handoff(asked.node, option, &asked.packet).is_empty(), "the first one is missing");
    }
    let sent = world.client_packet(&data(len, 100, &next));
    assert_eq!((sent[0].op, sent[0].data()), (SB_OP_ADOPT, &next[..]));
    assert_eq!(Seq::from_be(sent[0].option.flow_state().next), ORIGIN + len + next.len());
}

/// Nodes remember connections that have ended elsewhere.
#[test]
fn of_two_connections_the_nearer_one_goes_on() {
    let request = get("/web/b");
    for (older, newer) in [(1, 2), (2, 1)] {
        for distance in [1u32 << 30, 3 << 30] {
            let mut world = World::of_several(CONFIG, 0);
            let asked = world.client_packet(&data(50, 100, &request));
            assert_eq!(ops(&asked), [SB_OP_PROBE; 3]);
            let mut again = Vec::new();
            for asked in &asked {
                let origin = if asked.node == node(older) { ORIGIN + distance } else { ORIGIN };
                let released = [older, newer].map(node).contains(&asked.node);
                let said = FlowState {
                    generation: Generation::first(1),
                    requests: 1,
                    ..FlowState::at(origin, origin + 50u32)
                };
                let option = match released {
                    true => sb_option { reason: SB_REASON_RELEASED as u8, ..said.option(SB_OP_UNOWNED) },
                    false => unowned(asked, None),
                };
                again.extend(world.handoff(asked.node, option, &asked.packet));
            }
            assert_eq!(ops(&again), [SB_OP_PROBE; 3]);
            assert_eq!(Seq::from_be(again[0].option.flow_state().origin), ORIGIN);
            let sent: Vec<_> = again
                .iter()
                .flat_map(|asked| world.handoff(asked.node, unowned(asked, None), &asked.packet))
                .collect();
            assert_eq!((ops(&sent), sent[0].data()), (vec![SB_OP_ADOPT], &request[..]));
        }
    }
}

/// A connection that ended long ago says nothing about this one.
#[test]
fn a_connection_far_away_does_not_go_on() {
    let mut world = World::of_several(CONFIG, 0);
    let asked = world.client_packet(&data(50, 100, &get("/web/b")));
    for asked in &asked {
        let option = unowned(asked, Some((SB_REASON_RELEASED, ORIGIN + (1u32 << 30))));
        assert!(world.handoff(asked.node, option, &asked.packet).is_empty());
    }
    assert!(world.map.is_empty() && world.dispatcher.pending() == 0);
}

#[test]
fn a_connection_that_no_node_knows_ends_with_the_last_answer() {
    let mut world = World::of_several(CONFIG, 0);
    let mut asked = Vec::new();
    // As Linux sends a request again.
    for wait in [0, 200, 400, 800, 1700] {
        assert!(world.to_client.is_empty());
        world.now += Duration::from_millis(wait);
        asked = world.client_packet(&data(50, 100, &get("/web/b")));
        assert_eq!(ops(&asked), [SB_OP_PROBE; 3], "after {wait} ms");
        for asked in &asked[1..] {
            world.handoff(asked.node, unowned(asked, None), &asked.packet);
        }
        if wait < 1700 {
            world.handoff(asked[0].node, unowned(&asked[0], None), &asked[0].packet);
        }
    }
    assert!(world.to_client.is_empty(), "a node may have it");
    world.handoff(asked[0].node, unowned(&asked[0], None), &asked[0].packet);
    let reset = TcpView::parse(&world.to_client[0]).unwrap();
    assert_eq!((reset.flags, reset.seq), (flags::RST, SERVER + 100u32));
    assert_eq!(world.dispatcher.pending(), 0);
}
