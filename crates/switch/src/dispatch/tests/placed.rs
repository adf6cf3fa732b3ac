//! First requests that the program has given to a node.

use switchback_flow::entry::Mode;
use switchback_wire::flow_state::Stream;
use switchback_wire::*;

use super::model::*;
use crate::dispatch::NodeStats;
use sb_op::*;
use sb_reason::*;

fn placing() -> World {
    let mut world = World::new();
    world.places = true;
    world
}

/// The adoption of a request that a program has sent.
fn placed(world: &mut World) -> ToNode {
    let sent = world.client_packet(&data(0, 0, &get("/web/")));
    assert!(matches!(&sent[..], [ToNode { op: SB_OP_ADOPT, .. }]) && world.placed, "{sent:?}");
    sent.into_iter().next().unwrap()
}

fn mode(world: &World) -> Mode {
    world.map[&flow()].mode
}

#[test]
fn adopted_needs_no_dispatcher() {
    let mut world = placing();
    let adopt = placed(&mut world);
    assert_eq!(mode(&world), Mode::Adopting);
    assert!(world.answer_through_program(&adopt, SB_OP_ADOPTED).is_empty());
    assert_eq!((mode(&world), world.dispatcher.pending()), (Mode::AtNode(Stream::Requests), 0));
    let next = world.client_packet(&data(get("/web/").len() as u32, 9, &get("/web/")));
    assert_eq!(
        next.iter().map(|sent| (sent.op, sent.node)).collect::<Vec<_>>(),
        [(SB_OP_FORWARD, adopt.node)]
    );
}

#[test]
fn a_refused_request_goes_to_another_node_as_a_later_adoption() {
    for reason in [SB_REASON_QUEUE_FULL, SB_REASON_NO_LISTENER, SB_REASON_DRAINING, SB_REASON_FAILED] {
        let mut world = placing();
        let adopt = placed(&mut world);
        let again = world.answer(&adopt, SB_OP_REFUSED, reason);
        let [second] = &again[..] else { panic!("{again:?}") };
        assert_eq!((second.op, second.data()), (SB_OP_ADOPT, adopt.data()), "{reason:?}");
        assert_ne!(second.node, adopt.node, "{reason:?}");
        let generation = |sent: &ToNode| u32::from_be(sent.option.flow_state().generation);
        assert_eq!(generation(second), generation(&adopt) + 1);
        assert!(world.answer(second, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
        assert_eq!((mode(&world), world.dispatcher.pending()), (Mode::AtNode(Stream::Requests), 0));
        assert_eq!(world.dispatcher.stats.nodes.iter().map(|node| node.refused).sum::<u64>(), 1);
    }
}

#[test]
fn a_refusal_of_another_adoption_changes_nothing() {
    let mut world = placing();
    let adopt = placed(&mut world);
    let other = ToNode {
        option: adopt.option.with(|flow: &mut sb_flow_state| flow.generation = 5u32.to_be()),
        ..adopt
    };
    assert!(world.answer(&other, SB_OP_REFUSED, SB_REASON_NO_LISTENER).is_empty());
    assert_eq!((mode(&world), world.dispatcher.pending()), (Mode::Adopting, 0));
}

#[test]
fn a_request_that_comes_again_is_looked_for_before_it_goes_elsewhere() {
    for has_it in [true, false] {
        let mut world = placing();
        let adopt = placed(&mut world);
        let asked = world.client_packet(&data(0, 0, &get("/web/")));
        assert!(asked.iter().all(|sent| sent.op == SB_OP_PROBE) && !asked.is_empty(), "{asked:?}");
        let promised = asked.iter().map(|asked| asked.option.said::<sb_question>().next_generation);
        let generation = u32::from_be(adopt.option.flow_state().generation);
        assert!(promised.into_iter().all(|next| u32::from_be(next) > generation), "none adopts it later");
        let mut sent = Vec::new();
        for asked in &asked {
            if has_it && asked.node == adopt.node {
                let owned = described(&asked.option, SB_OP_OWNED, adopt.option.flow_state());
                sent.extend(world.handoff(asked.node, owned, &asked.packet));
            } else {
                sent.extend(world.answer(asked, SB_OP_UNOWNED, SB_REASON_NONE));
            }
        }
        let [sent] = &sent[..] else { panic!("{sent:?}") };
        let op = if has_it { SB_OP_FORWARD } else { SB_OP_ADOPT };
        assert_eq!((sent.op, sent.data()), (op, adopt.data()));
        if has_it {
            assert_eq!((sent.node, mode(&world)), (adopt.node, Mode::AtNode(Stream::Requests)));
        }
    }
}

#[test]
fn data_behind_a_request_that_was_lost_waits_for_it() {
    let mut world = placing();
    placed(&mut world);
    let (first, second) = (get("/web/"), get("/web/2"));
    let asked = world.client_packet(&data(first.len() as u32, 0, &second));
    for asked in &asked {
        assert!(world.answer(asked, SB_OP_UNOWNED, SB_REASON_NONE).is_empty());
    }
    let adopt = world.client_packet(&data(0, 0, &first));
    assert!(matches!(&adopt[..], [ToNode { op: SB_OP_ADOPT, .. }]), "{adopt:?}");
    assert_eq!(adopt[0].data(), first);
    let rest = world.answer(&adopt[0], SB_OP_ADOPTED, SB_REASON_NONE);
    assert_eq!(
        rest.iter().map(|sent| (sent.op, sent.data())).collect::<Vec<_>>(),
        [(SB_OP_FORWARD, &second[..])]
    );
}

#[test]
fn a_late_adopted_is_noted_by_the_dispatcher() {
    let mut world = placing();
    let adopt = placed(&mut world);
    // The L7 thread has given up what the program has locked.
    world.locked.insert(flow());
    assert!(world.answer_through_program(&adopt, SB_OP_ADOPTED).is_empty());
    assert_eq!(mode(&world), Mode::AtNode(Stream::Requests));
    assert!(!world.locked.contains(&flow()));
    let counts = |of: fn(&NodeStats) -> u64| world.dispatcher.stats.nodes.iter().map(of).sum::<u64>();
    assert_eq!((counts(|node| node.adopted), counts(|node| node.requests)), (1, 1));
    assert_eq!(world.dispatcher.stats.services.iter().sum::<u64>(), 1);
}

#[test]
fn a_flow_of_a_draining_node_is_looked_for() {
    let mut world = placing();
    let adopt = placed(&mut world);
    let asked = world.take_back();
    assert!(asked.iter().all(|sent| sent.op == SB_OP_PROBE) && !asked.is_empty(), "{asked:?}");
    let asked = asked.iter().find(|asked| asked.node == adopt.node).unwrap();
    let owned = described(&asked.option, SB_OP_OWNED, adopt.option.flow_state());
    world.handoff(asked.node, owned, &asked.packet);
    assert_eq!(mode(&world), Mode::AtNode(Stream::Requests));
    let released = world.take_back();
    assert!(matches!(&released[..], [ToNode { op: SB_OP_RELEASE, .. }]), "{released:?}");
}
