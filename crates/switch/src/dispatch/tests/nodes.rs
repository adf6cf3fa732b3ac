//! What nodes say of themselves, and what becomes of requests by it.

use std::time::Duration;

use switchback_flow::entry::Mode;
use switchback_wire::message::{FromNode, ToAgent};
use switchback_wire::packet::{TcpView, bare, flags};
use switchback_wire::switches::{SwitchSelf, SwitchState};
use switchback_wire::*;

use super::cases::settled;
use super::model::*;
use crate::dispatch::Moment;
use crate::plan::NodeId;
use sb_op::*;
use sb_reason::*;

const FULL: (u16, u16) = (16, 15);

/// The usual world, with these lines for the pool `web` and these limits.
fn world(pool: &str, limits: &str) -> World {
    let policy = if pool.contains("policy") { "" } else { "policy = \"round-robin\"\n" };
    let config = CONFIG.replacen("policy = \"round-robin\"\n", &format!("{policy}{pool}\n"), 1);
    World::of(&config.replacen("[[node]]", &format!("[limits]\n{limits}\n[[node]]"), 1))
}

fn last_status(world: &World) -> Option<String> {
    let packet = world.to_client.last()?;
    let view = TcpView::parse(packet)?;
    let text = String::from_utf8_lossy(&packet[view.data..view.end]).into_owned();
    text.strip_prefix("HTTP/1.1 ").map(|rest| rest[..3].to_owned())
}

#[test]
fn an_adoption_says_how_much_of_the_accept_queue_it_may_fill() {
    for (line, share) in [("", 100), ("queue_limit = \"80%\"", 80), ("queue_limit = \"off\"", 0)] {
        let sent = world(line, "").client_packet(&data(0, 0, &get("/web/a")));
        assert_eq!(
            (sent[0].op, sent[0].option.said::<sb_handover>().queue_share),
            (SB_OP_ADOPT, share),
            "{line}"
        );
    }
}

#[test]
fn a_request_waits_while_every_accept_queue_is_known_to_be_full() {
    for policy in ["accept-queue", "fill"] {
        let mut world = world(&format!("policy = \"{policy}\""), "");
        for last in [1, 2] {
            world.report(node(last), "web", SB_REASON_NONE, FULL);
        }
        assert!(world.client_packet(&data(0, 0, &get("/web/a"))).is_empty(), "{policy}");
        assert_eq!(world.dispatcher.crowded(), 1);
        // What is known to be so now is not tried.
        for _ in 0..5 {
            world.now += Duration::from_millis(1);
            for last in [1, 2] {
                assert!(world.report(node(last), "web", SB_REASON_NONE, FULL).is_empty(), "{policy}");
            }
        }
        let sent = world.report(node(2), "web", SB_REASON_NONE, (15, 15));
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(2)), "{policy}");
        assert_eq!((world.dispatcher.crowded(), world.dispatcher.stats.waited), (0, 1));
    }
}

#[test]
fn a_full_queue_is_tried_with_one_request_after_a_while() {
    let mut world = world("policy = \"accept-queue\"", "");
    for last in [1, 2] {
        world.report(node(last), "web", SB_REASON_NONE, FULL);
    }
    assert!(world.client_packet(&data(0, 0, &get("/web/a"))).is_empty());
    let start = world.now;
    let sent = loop {
        let sent = world.pass();
        if !sent.is_empty() {
            break sent;
        }
    };
    let waited = world.now - start;
    assert!((Duration::from_millis(5)..Duration::from_millis(10)).contains(&waited), "{waited:?}");
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
    let sent = world.refuse(&sent[0], FULL);
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT), "the other one is worth a try as well");
    assert!(world.refuse(&sent[0], FULL).is_empty());
    assert_eq!(world.dispatcher.crowded(), 1);
}

#[test]
fn a_policy_that_knows_no_queue_asks_no_full_node_twice_in_a_row() {
    let mut world = World::new();
    let mut sent = world.client_packet(&data(0, 0, &get("/web/a")));
    for _ in 0..2 {
        assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
        sent = world.refuse(&sent[0].clone(), FULL);
    }
    assert!(sent.is_empty());
    for last in [1, 2] {
        assert!(world.report(node(last), "web", SB_REASON_NONE, FULL).is_empty());
    }
    assert!(world.pass().is_empty());
}

#[test]
fn too_many_that_wait_are_turned_away() {
    let mut world = world("policy = \"accept-queue\"", "waiting = 0");
    for last in [1, 2] {
        world.report(node(last), "web", SB_REASON_NONE, FULL);
    }
    assert!(world.client_packet(&data(0, 0, &get("/web/a"))).is_empty());
    assert_eq!(last_status(&world).as_deref(), Some("503"));
    assert_eq!(world.dispatcher.stats.turned_away, 1);
}

#[test]
fn flows_leave_a_node_that_cannot_serve() {
    for reason in [SB_REASON_NO_LISTENER, SB_REASON_UNHEALTHY, SB_REASON_DRAINING] {
        let (mut world, adopt, len) = settled("/web/a");
        world.report(adopt.node, "web", reason, (0, 0));
        assert!(world.dispatcher.plan().standing_changed);
        let sent = world.client_packet(&data(len, 100, &get("/web/b")));
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_RELEASE, adopt.node), "{reason:?}");
        let sent = world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE);
        assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
        assert_ne!(sent[0].node, adopt.node, "{reason:?}");
    }
}

#[test]
fn a_report_about_another_pool_or_an_older_one_says_nothing() {
    let (mut world, adopt, len) = settled("/web/a");
    world.report(adopt.node, "web", SB_REASON_NONE, (0, 511));
    world.report(adopt.node, "img", SB_REASON_UNHEALTHY, (0, 511));
    let sent = world.client_packet(&data(len, 100, &get("/web/b")));
    assert_eq!((sent[0].op, sent[0].node), (SB_OP_FORWARD, adopt.node));
}

#[test]
fn a_crashed_server_is_asked_once_and_then_no_more() {
    let mut world = World::new();
    let sent = world.client_packet(&data(0, 0, &get("/web/a")));
    let crashed = sent[0].node;
    let sent = world.answer(&sent[0], SB_OP_REFUSED, SB_REASON_NO_LISTENER);
    assert_eq!(sent[0].op, SB_OP_ADOPT);
    assert_ne!(sent[0].node, crashed);
    let plan = world.dispatcher.plan();
    let crashed = plan.node_at(crashed).unwrap();
    assert!(plan.standing_changed && !plan.keepers(0, Duration::ZERO).contains(&crashed));
    let group = plan.group(0, flow().vip()).unwrap();
    for _ in 0..4 {
        let ask = switchback_policy::Ask { key: None, now: Duration::ZERO };
        assert_ne!(plan.pick((group, None), &ask, (&[], false), &[], &mut || 1), Some(crashed));
    }
}

#[test]
fn a_silent_node_gets_nothing_while_others_speak() {
    let mut world = World::new();
    world.report(node(1), "web", SB_REASON_NONE, (0, 511));
    let plan = world.dispatcher.plan();
    let group = plan.group(0, flow().vip()).unwrap();
    let (first, second) = (plan.node_at(node(1)).unwrap(), plan.node_at(node(2)).unwrap());
    let mut picked = |after_ms: u64, tried: &[NodeId]| {
        let ask = switchback_policy::Ask { key: None, now: world.now + Duration::from_millis(after_ms) };
        plan.pick((group, None), &ask, (tried, false), &[], &mut || 1)
    };
    assert!((0..4).all(|_| picked(150, &[]) == Some(first)));
    assert_eq!(picked(150, &[first]), Some(second), "it may be the agent alone that is not there");
    let both: Vec<_> = (0..4).map(|_| picked(151, &[])).collect();
    assert!(both.contains(&Some(first)) && both.contains(&Some(second)), "{both:?}");
}

#[test]
fn a_node_whose_responses_nobody_acknowledges_is_the_last_choice() {
    let mut world = World::new();
    world.report(node(1), "web", SB_REASON_UNACKNOWLEDGED, (0, 511));
    world.report(node(2), "web", SB_REASON_NONE, (0, 511));
    let plan = world.dispatcher.plan();
    let group = plan.group(0, flow().vip()).unwrap();
    let (first, second) = (plan.node_at(node(1)).unwrap(), plan.node_at(node(2)).unwrap());
    let mut picked = |tried: &[NodeId]| {
        let ask = switchback_policy::Ask { key: None, now: Duration::ZERO };
        plan.pick((group, None), &ask, (tried, false), &[], &mut || 1)
    };
    assert!((0..4).all(|_| picked(&[]) == Some(second)));
    assert_eq!(picked(&[second]), Some(first), "better than none");
    world.report(node(1), "web", SB_REASON_NONE, (0, 511));
    let plan = world.dispatcher.plan();
    let ask = switchback_policy::Ask { key: None, now: Duration::ZERO };
    let both: Vec<_> = (0..4).map(|_| plan.pick((group, None), &ask, (&[], false), &[], &mut || 1)).collect();
    assert!(both.contains(&Some(first)), "{both:?}");
}

#[test]
fn idle_flows_are_taken_from_a_draining_node() {
    let (mut world, adopt, len) = settled("/web/a");
    let entry = world.map[&flow()];
    let name = if adopt.node == node(1) { "n1" } else { "n2" };
    assert!(world.dispatcher.order_drain(name, true));
    world.flush();
    let at = Moment { now: world.now, map: &|_| None, take: &crate::dispatch::unlimited };
    world.dispatcher.take_back(at, &flow(), entry);
    let sent = world.flush();
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_RELEASE, adopt.node));
    assert!(world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE).is_empty());
    assert_eq!(world.map[&flow()].mode, Mode::Held);
    assert_eq!((world.dispatcher.pending(), world.dispatcher.stats.taken_back), (0, 1));
    let sent = world.client_packet(&data(len, 100, &get("/web/b")));
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
    assert_ne!(sent[0].node, adopt.node);
}

#[test]
fn a_request_that_comes_while_its_flow_is_taken_back_is_not_lost() {
    for answer in [SB_OP_RELEASED, SB_OP_BUSY] {
        let (mut world, adopt, len) = settled("/web/a");
        let entry = world.map[&flow()];
        for name in ["n1", "n2"] {
            assert!(world.dispatcher.order_drain(name, (name == "n1") == (adopt.node == node(1))));
        }
        world.flush();
        let at = Moment { now: world.now, map: &|_| Some(entry), take: &crate::dispatch::unlimited };
        world.dispatcher.take_back(at, &flow(), entry);
        let asked = world.flush();
        assert!(world.client_packet(&data(len, 100, &get("/web/b"))).is_empty());
        let mut sent = world.answer(&asked[0], answer, SB_REASON_NONE);
        if answer == SB_OP_BUSY {
            assert_eq!((sent.len(), sent[0].op), (1, SB_OP_RELEASE), "now for the request");
            sent = world.answer(&sent[0].clone(), SB_OP_RELEASED, SB_REASON_NONE);
        }
        assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT), "{answer:?}");
        assert_eq!(sent[0].data(), get("/web/b"));
    }
}

#[test]
fn a_client_that_closes_a_flow_without_a_node_is_answered() {
    let (mut world, _, len) = settled("/web/a");
    let mut entry = world.map[&flow()];
    entry.mode = Mode::Held;
    world.map.insert(flow(), entry);
    world.now += Duration::from_secs(1);
    let fin = bare(&flow(), true, ORIGIN + len, SERVER + 100u32, flags::FIN | flags::ACK);
    assert!(world.record(sb_record_kind::SB_RECORD_REQUEST, entry, &fin).is_empty());
    let said = TcpView::parse(world.to_client.last().expect("an answer")).unwrap();
    assert_eq!((said.flags, said.seq), (flags::FIN | flags::ACK, SERVER + 100u32));
    assert_eq!(said.ack, ORIGIN + len + 1u32);
    assert!(world.map.is_empty());
}

#[test]
fn each_request_is_dispatched_anew_where_the_pool_says_so() {
    let mut world = world("balance = \"request\"", "");
    let request = get("/web/a");
    let sent = world.client_packet(&data(0, 0, &request));
    let first = sent[0].node;
    world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
    assert!(world.dispatcher.plan().keepers(0, Duration::ZERO).is_empty(), "the program must ask");
    let sent = world.client_packet(&data(request.len() as u32, 100, &request));
    assert_eq!((sent[0].op, sent[0].node), (SB_OP_RELEASE, first));
    let sent = world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!(sent[0].op, SB_OP_ADOPT);
    assert_ne!(sent[0].node, first, "it is the other one's turn");
}

#[test]
fn a_path_has_its_node() {
    let mut world = world("policy = \"hash\"\nhash = \"path\"", "");
    let mut owner = None;
    let mut offset = 0;
    for path in ["/web/a", "/web/b", "/web/a", "/web/c", "/web/a"] {
        let request = get(path);
        let mut sent = world.client_packet(&data(offset, 100, &request));
        if sent[0].op == SB_OP_RELEASE {
            sent = world.answer(&sent[0].clone(), SB_OP_RELEASED, SB_REASON_NONE);
        }
        if sent[0].op == SB_OP_ADOPT {
            world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
        }
        if path == "/web/a" {
            assert_eq!(*owner.get_or_insert(sent[0].node), sent[0].node);
        }
        offset += request.len() as u32;
    }
}

#[test]
fn every_node_is_asked_for_reports() {
    let mut world = World::new();
    world.dispatcher.ask_for_reports();
    let sent = world.flush();
    let asked: Vec<_> = sent.iter().map(|sent| (sent.op, sent.node)).collect();
    let both = |last| [(SB_OP_SYNC, node(last)), (SB_OP_HELLO, node(last))];
    assert_eq!(asked, [1, 2, 3].map(both).concat());
}

#[test]
fn nodes_are_told_how_many_flows_were_taken_over() {
    let mut world = World::new();
    let own = SwitchSelf { number: Some(2), state: Some(SwitchState::Learning), ..SwitchSelf::default() };
    world.dispatcher.set_own(own);
    for taken_over in [1, 2] {
        // By any thread.
        world.dispatcher.common.clone().totals.note_taken_over();
        world.dispatcher.ask_for_reports();
        let sent = world.flush();
        let hello = sent.iter().find(|sent| sent.op == SB_OP_HELLO).expect("a HELLO");
        let Some(ToAgent::Hello { own: told, .. }) = ToAgent::read(&hello.option) else { panic!() };
        assert_eq!(told, SwitchSelf { taken_over, ..own });
    }
}

/// The answer of a node whose clock says this to the question that it was sent.
fn synced(asked: &ToNode, told: u64) -> sb_option {
    assert_eq!(asked.op, SB_OP_SYNC);
    let sb_sync { nonce, .. } = asked.option.said();
    FromNode::Synced { nonce: u64::from_be_bytes(nonce), clock: told }.option()
}

#[test]
fn a_node_gets_nothing_before_its_clock_is_known() {
    let mut world = World::new();
    world.dispatcher.plan().nodes.iter_mut().flatten().for_each(|node| node.clock = None);
    let asked = world.client_packet(&data(0, 0, &get("/web/a"))).remove(0);
    assert_eq!(asked.op, SB_OP_SYNC, "instead of the adoption");
    let wrong = synced(&asked, 77).with(|sync: &mut sb_sync| sync.nonce[0] ^= 1);
    assert!(world.handoff(asked.node, wrong, &asked.packet).is_empty(), "the answer to another question");
    let again = world.pass().remove(0);
    assert_eq!(synced(&again, 77), synced(&asked, 77), "a question that is open is the same");
    let hello = world.handoff(asked.node, synced(&asked, 77 << 30), &asked.packet);
    assert_eq!(hello.iter().map(|sent| sent.op).collect::<Vec<_>>(), [SB_OP_HELLO]);
    let plan = world.dispatcher.plan();
    assert_eq!(plan.changed(), [plan.node_at(asked.node).unwrap()]);
    let adopt = world.pass().remove(0);
    assert_eq!((adopt.op, adopt.node), (SB_OP_ADOPT, asked.node));
    assert!(
        world.handoff(asked.node, synced(&asked, 99 << 30), &asked.packet).is_empty(),
        "a recorded answer"
    );
    assert!(world.dispatcher.plan().changed().is_empty());
}

/// Both nodes are heard of.
fn with_second_candidates() -> World {
    let mut world = world("second_candidate = true", "");
    for last in [1, 2] {
        world.report(node(last), "web", SB_REASON_NONE, (0, 511));
    }
    world
}

#[test]
fn a_second_candidate_may_answer_instead_of_the_first() {
    let mut world = with_second_candidates();
    let adopt = world.client_packet(&data(0, 0, &get("/web/a"))).remove(0);
    let second = adopt.second.expect("a second candidate");
    assert!([node(1), node(2)].contains(&second) && second != adopt.node);
    let again = world.pass().remove(0);
    assert_eq!((again.node, again.second), (adopt.node, Some(second)), "a copy is the same");
    let passed = ToNode { node: second, ..adopt };
    assert!(world.answer(&passed, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    let plan = world.dispatcher.plan();
    let id = plan.node_at(second).unwrap();
    assert_eq!((world.map[&flow()].node, world.dispatcher.pending()), (id, 0));
    assert_eq!(world.dispatcher.stats.passed_on, 1);
}

#[test]
fn when_both_candidates_refuse_there_is_none_left_and_none_is_passed_to_later() {
    let mut world = with_second_candidates();
    let adopt = world.client_packet(&data(0, 0, &get("/web/a"))).remove(0);
    let passed = ToNode { node: adopt.second.unwrap(), ..adopt };
    assert!(world.refuse(&passed, FULL).is_empty());
    assert_eq!(world.dispatcher.crowded(), 1);
    let later = world.pass().remove(0);
    assert_eq!((later.op, later.second), (SB_OP_ADOPT, None));
}

#[test]
fn there_is_no_second_candidate_unless_asked_for_nor_for_long_packets() {
    assert_eq!(World::new().client_packet(&data(0, 0, &get("/web/a")))[0].second, None);
    let long = get(&format!("/web/{}", "a".repeat(1000)));
    assert_eq!(with_second_candidates().client_packet(&data(0, 0, &long))[0].second, None);
}

#[test]
fn an_adoption_whose_client_goes_away_takes_no_room_for_ever() {
    let mut world = world("policy = \"accept-queue\"", "");
    world.report(node(1), "web", SB_REASON_NONE, (15, 15));
    world.report(node(2), "web", SB_REASON_DRAINING, (0, 15));
    let group = world.dispatcher.plan().group(0, flow().vip()).unwrap();
    for _ in 0..3 {
        let sent = world.client_packet(&data(0, 0, &get("/web/a")));
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(1)));
        assert_eq!(world.dispatcher.pending.adopting(group).iter().sum::<u32>(), 1);
        // A new connection with the same ports: what has been begun is forgotten.
        world.dispatcher.pending.take(&flow());
        world.map.remove(&flow());
        world.now += Duration::from_secs(1);
        assert_eq!(world.dispatcher.pending.adopting(group).iter().sum::<u32>(), 0);
        world.report(node(1), "web", SB_REASON_NONE, (15, 15));
    }
}

/// A node gets an order in each HELLO until it has reported the result.
#[test]
fn an_order_is_repeated_until_it_is_carried_out() {
    for drain in [true, false] {
        let mut world = World::new();
        let (draining, ready) = (SB_REASON_DRAINING, SB_REASON_NONE);
        let (before, after) = if drain { (ready, draining) } else { (draining, ready) };
        world.report(node(1), "web", before, (0, 511));
        let mut orders = Vec::new();
        assert!(world.dispatcher.order_drain("n1", drain));
        for _ in 0..4 {
            let sent = world.flush();
            let hello = sent.iter().find(|sent| sent.op == SB_OP_HELLO && sent.node == node(1)).unwrap();
            let Some(ToAgent::Hello { order: Some(order), .. }) = ToAgent::read(&hello.option) else {
                panic!()
            };
            orders.push((order.number, order.drain));
            world.report(node(1), "web", before, (0, 511));
            assert!(world.dispatcher.plan().is_draining(NodeId(0)));
            world.dispatcher.ask_for_reports();
        }
        assert_eq!(orders, [(orders[0].0, drain); 4]);
        world.flush();
        world.report(node(1), "web", after, (0, 511));
        world.dispatcher.ask_for_reports();
        let sent = world.flush();
        let hello = sent.iter().find(|sent| sent.op == SB_OP_HELLO && sent.node == node(1)).unwrap();
        assert!(matches!(ToAgent::read(&hello.option), Some(ToAgent::Hello { order: None, .. })));
        assert_eq!(world.dispatcher.plan().is_draining(NodeId(0)), drain);
    }
}

#[test]
fn a_node_that_drained_by_our_order_returns_by_anyones() {
    let mut world = World::new();
    assert!(world.dispatcher.order_drain("n1", true));
    (0..3).for_each(|_| world.dispatcher.ask_for_reports());
    world.report(node(1), "web", SB_REASON_DRAINING, (0, 511));
    assert!(world.dispatcher.plan().is_draining(NodeId(0)));
    world.report(node(1), "web", SB_REASON_NONE, (0, 511));
    assert!(!world.dispatcher.plan().is_draining(NodeId(0)), "undrained at the node, or at another switch");
}
