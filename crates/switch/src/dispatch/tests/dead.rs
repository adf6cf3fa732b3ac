//! A node dies: it says nothing any more, whatever it is asked.

use std::time::Duration;

use switchback_wire::packet::{TcpView, flags};
use switchback_wire::*;

use super::cases::settled;
use super::model::*;
use sb_op::*;
use sb_reason::*;

/// Longer than a node may be silent.
const LONG: Duration = Duration::from_secs(4);

/// A flow on a node of which nothing is heard any more, while the other node of its pool reports; the request's length.
fn on_a_dead_node(request: &[u8]) -> (World, ToNode) {
    let mut world = World::new();
    let adopt = world.client_packet(&data(0, 0, request)).remove(0);
    assert!(world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    let other = if adopt.node == node(1) { node(2) } else { node(1) };
    hear_only(&mut world, other);
    assert_eq!(dead(&mut world), [(adopt.node, true)]);
    (world, adopt)
}

/// For a long time only this node of the pool reports.
fn hear_only(world: &mut World, node: switchback_wire::NodeAddress) {
    let end = world.now + LONG;
    while world.now < end {
        world.now += LONG / 80;
        world.report(node, "web", SB_REASON_NONE, (0, 511));
    }
}

/// The nodes of the pool that have died or come back since the last time.
fn dead(world: &mut World) -> Vec<(switchback_wire::NodeAddress, bool)> {
    let now = world.now;
    let plan = world.dispatcher.plan();
    let changes = plan.new_dead(now);
    let changes = changes.into_iter().map(|(id, dead)| (plan.node(id).unwrap().address, dead));
    changes.filter(|(address, _)| [node(1), node(2)].contains(address)).collect()
}

/// What is sent to another node than the flow's, and how long that takes.
fn elsewhere(world: &mut World, asked: &ToNode) -> (ToNode, Duration) {
    let start = world.now;
    let other = if asked.node == node(1) { node(2) } else { node(1) };
    loop {
        let deadline = world.dispatcher.deadline().expect("something is pending");
        while world.now < deadline {
            world.now = deadline.min(world.now + LONG / 80);
            assert!(world.report(other, "web", SB_REASON_NONE, (0, 511)).is_empty());
        }
        for sent in world.pass() {
            if sent.node != asked.node {
                return (sent, world.now - start);
            }
            assert!([SB_OP_RELEASE, SB_OP_CONFIRM].contains(&sent.op), "{sent:?}");
        }
    }
}

/// Requests that come to a switch that is cut off from all nodes. Their clients send them again, and another switch gets that.
#[test]
fn a_switch_that_was_cut_off_says_nothing_of_the_nodes() {
    let mut world = World::of_several(CONFIG, 0);
    for (last, pool) in [(1, "web"), (2, "web"), (3, "img")] {
        world.report(node(last), pool, SB_REASON_NONE, (0, 511));
    }
    world.now += LONG;
    assert!(dead(&mut world).is_empty(), "the switch may be cut off");
    let asked = world.client_packet(&data(0, 0, &get("/web/a")));
    assert_eq!(asked.len(), 1, "there is no harm in trying");
    let end = world.now + LONG;
    while world.now < end {
        world.pass();
    }
    // The first node that is heard again is none that could take the request.
    world.report(node(3), "img", SB_REASON_NONE, (0, 511));
    world.pass();
    assert!(dead(&mut world).is_empty(), "what was not heard says nothing");
    world.now += LONG;
    world.report(node(3), "img", SB_REASON_NONE, (0, 511));
    assert!(dead(&mut world).is_empty(), "cut off once more");
    hear_only(&mut world, node(3));
    assert_eq!(dead(&mut world).len(), 2);
}

#[test]
fn the_next_request_goes_elsewhere() {
    let (mut world, adopt) = on_a_dead_node(&get("/web/a"));
    let len = get("/web/a").len() as u32;
    let asked = world.client_packet(&data(len, 100, &get("/web/b"))).remove(0);
    assert_eq!((asked.op, asked.node), (SB_OP_RELEASE, adopt.node), "it may live after all");
    let (sent, waited) = elsewhere(&mut world, &asked);
    assert_eq!((sent.op, sent.data()), (SB_OP_ADOPT, &get("/web/b")[..]));
    assert!(waited < Duration::from_millis(400), "{waited:?}");
}

#[test]
fn a_request_that_is_sent_again_goes_elsewhere() {
    let request = get("/web/a");
    let (mut world, adopt) = on_a_dead_node(&request);
    let asked = world.client_packet(&data(0, 0, &request)).remove(0);
    assert_eq!((asked.op, asked.node), (SB_OP_RELEASE, adopt.node));
    assert_eq!(asked.view().seq, ORIGIN, "from its beginning on");
    let (sent, _) = elsewhere(&mut world, &asked);
    assert_eq!((sent.op, sent.data()), (SB_OP_ADOPT, &request[..]));
    assert_eq!(
        (sent.option.flow_state().requests, sent.option.flow_state().next),
        (1u16.to_be(), adopt.option.flow_state().next)
    );
    assert!(world.answer(&sent, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    // And the flow goes on there.
    let len = request.len() as u32;
    let next = world.client_packet(&data(len, 100, &get("/web/b"))).remove(0);
    assert_eq!((next.op, next.node), (SB_OP_FORWARD, sent.node));
}

#[test]
fn a_request_that_does_harm_twice_is_not_made_twice() {
    let request = b"POST /web/a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let (mut world, adopt) = on_a_dead_node(request);
    let asked = world.client_packet(&data(0, 0, request)).remove(0);
    assert_eq!((asked.op, asked.node), (SB_OP_RELEASE, adopt.node));
    while world.dispatcher.pending() > 0 {
        assert!(world.pass().iter().all(|sent| sent.op != SB_OP_ADOPT));
    }
    let last = world.to_client.last().expect("the client hears of it");
    assert_ne!(TcpView::parse(last).expect("a packet").flags & flags::RST, 0);
    assert!(!world.map.contains_key(&flow()));
}

/// Only its agent is gone: the node has the request, or has not and gives the flow up.
#[test]
fn a_node_that_lives_says_so() {
    let request = get("/web/a");
    for (answer, reason) in [(SB_OP_BUSY, SB_REASON_DUPLICATE), (SB_OP_RELEASED, SB_REASON_NONE)] {
        let (mut world, adopt) = on_a_dead_node(&request);
        let mut before = world.map[&flow()];
        let asked = world.client_packet(&data(0, 0, &request)).remove(0);
        let sent = world.answer(&asked, answer, reason);
        if answer == SB_OP_BUSY {
            assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_PROBE, adopt.node));
            let owned = before.flow_state().option(SB_OP_OWNED);
            let sent = world.handoff(adopt.node, owned, &sent[0].packet);
            let copy = (SB_OP_FORWARD, adopt.node, request.len());
            let forwarded: Vec<_> = sent.iter().map(|sent| (sent.op, sent.node, sent.data().len())).collect();
            assert_eq!(forwarded, [copy], "the node acknowledges a copy");
            before.mark.begins = before.mark.next;
            assert_eq!((world.map[&flow()], world.locked.len()), (before, 0));
            assert_eq!(world.dispatcher.pending(), 0);
        } else {
            assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
            assert_ne!(sent[0].node, adopt.node);
        }
    }
}

#[test]
fn a_node_that_comes_back_keeps_its_flows() {
    let (mut world, adopt) = on_a_dead_node(&get("/web/a"));
    world.report(adopt.node, "web", SB_REASON_NONE, (0, 511));
    assert_eq!(dead(&mut world), [(adopt.node, false)]);
    let len = get("/web/a").len() as u32;
    let sent = world.client_packet(&data(len, 100, &get("/web/b"))).remove(0);
    assert_eq!((sent.op, sent.node), (SB_OP_FORWARD, adopt.node));
}

#[test]
fn where_no_node_speaks_none_is_dead() {
    let (mut world, adopt, len) = settled("/web/a");
    world.now += LONG;
    assert!(dead(&mut world).is_empty());
    let sent = world.client_packet(&data(len, 100, &get("/web/b"))).remove(0);
    assert_eq!((sent.op, sent.node), (SB_OP_FORWARD, adopt.node));
}

/// The flow's owner is asked to give it up for a request to another pool, and reports to have something to say.
fn asked_while_it_reports() -> (World, ToNode) {
    let (mut world, adopt, len) = settled("/web/a");
    world.report(adopt.node, "web", SB_REASON_NONE, (0, 511));
    let asked = world.client_packet(&data(len, 0, &get("/img/b"))).remove(0);
    assert_eq!((asked.op, asked.node), (SB_OP_RELEASE, adopt.node));
    (world, asked)
}

/// A first request is given to a node of a pool that reports.
fn given_while_all_report() -> (World, ToNode) {
    let mut world = World::new();
    for last in [1, 2] {
        world.report(node(last), "web", SB_REASON_NONE, (0, 511));
    }
    let adopt = world.client_packet(&data(0, 0, &get("/web/a"))).remove(0);
    (world, adopt)
}

fn assert_reset(world: &World) {
    let last = TcpView::parse(world.to_client.last().expect("a RST")).unwrap();
    assert_eq!(last.flags, flags::RST);
}

/// What is sent meanwhile, while the node reports, or only one of another pool does.
fn during(world: &mut World, time: Duration, reports: Option<&ToNode>) -> Vec<ToNode> {
    let until = world.now + time;
    let mut sent = Vec::new();
    while world.now < until && world.dispatcher.pending() > 0 {
        let (node, pool) = reports.map_or((node(3), "img"), |asked| (asked.node, "web"));
        sent.extend(world.report(node, pool, SB_REASON_NONE, (0, 511)));
        sent.extend(world.pass());
    }
    sent
}

/// Its answers are late or lost. It may have spoken on the flow since.
#[test]
fn a_node_that_reports_has_its_flow_until_it_answers() {
    let (mut world, asked) = asked_while_it_reports();
    let sent = during(&mut world, Duration::from_secs(8), Some(&asked));
    assert!(sent.len() > 50 && sent.iter().all(|sent| sent.node == asked.node));
    let sent = world.answer(&asked, SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(3)));
}

#[test]
fn a_node_that_reports_may_have_what_it_was_given() {
    let (mut world, adopt) = given_while_all_report();
    let sent = during(&mut world, Duration::from_secs(8), Some(&adopt));
    assert!(sent.len() > 50 && sent.iter().all(|sent| sent.node == adopt.node));
}

#[test]
fn a_flow_that_its_node_never_answers_for_is_reset() {
    let (mut world, asked) = asked_while_it_reports();
    let sent = during(&mut world, Duration::from_secs(20), Some(&asked));
    assert!(sent.iter().all(|sent| sent.node == asked.node));
    assert_reset(&world);
    assert_eq!((world.dispatcher.pending(), world.map.len()), (0, 0));
}

/// The next node goes on where the client is, not where it was when it sent the request.
#[test]
fn the_client_says_what_it_has_heard_before_another_node_goes_on() {
    let (mut world, asked) = asked_while_it_reports();
    let sent = during(&mut world, Duration::from_secs(2), None);
    assert!(sent.iter().all(|sent| sent.node == asked.node), "the client has not spoken since");
    let len = get("/web/a").len() as u32;
    assert!(world.client_packet(&data(len, 100, &get("/img/b"))).iter().all(|sent| sent.node == asked.node));
    let (sent, _) = elsewhere(&mut world, &asked);
    assert_eq!((sent.op, sent.node, sent.view().ack), (SB_OP_ADOPT, node(3), SERVER + 100u32));
}

#[test]
fn behind_a_response_that_was_not_complete_nobody_goes_on() {
    let (mut world, asked) = asked_while_it_reports();
    assert!(world.answer(&asked, SB_OP_BUSY, SB_REASON_NONE).is_empty());
    during(&mut world, Duration::from_secs(2), None);
    let len = get("/web/a").len() as u32;
    let mut sent = world.client_packet(&data(len, 100, &get("/img/b")));
    sent.extend(during(&mut world, Duration::from_secs(20), None));
    assert!(sent.iter().all(|sent| sent.node == asked.node));
    assert_reset(&world);
}

#[test]
fn a_response_that_has_begun_is_not_begun_elsewhere() {
    let (mut world, adopt) = given_while_all_report();
    during(&mut world, Duration::from_secs(2), None);
    let mut sent = world.client_packet(&data(0, 10, &get("/web/a")));
    sent.extend(during(&mut world, Duration::from_secs(20), None));
    assert!(sent.iter().all(|sent| sent.node == adopt.node));
    assert_reset(&world);
}
