//! Nodes whose servers fail requests, in a pool that can do without one of three.

use std::collections::BTreeSet;
use std::time::Duration;

use switchback_policy::Ask;
use switchback_wire::report::Condition;
use switchback_wire::*;

use super::model::*;
use crate::group::MemberView;
use sb_op::*;
use sb_reason::*;

const QUEUE: (u16, u16) = (0, 511);
/// Time in which a node reports, so that none is suspect.
const TURN: Duration = Duration::from_millis(50);

fn config(pool: &str) -> String {
    let pool = format!("nodes = [\"n1\", \"n2\", \"n3\"]\n{pool}\n");
    CONFIG.replacen("nodes = [\"n1\", \"n2\"]\n", &pool, 1)
}

/// The nodes report, those in `failing` that they fail requests of the pool.
fn report(world: &mut World, failing: &[u8]) {
    world.now += TURN;
    for number in 1..=3 {
        let reason = if failing.contains(&number) { SB_REASON_FAILING } else { SB_REASON_NONE };
        world.report(node(number), "web", reason, QUEUE);
    }
}

/// Numbers of the nodes that the policy chooses.
fn chosen(world: &mut World) -> BTreeSet<u8> {
    let now = world.now;
    let plan = world.dispatcher.plan();
    let group = plan.group(0, flow().vip()).unwrap();
    let ask = Ask { key: None, now };
    let picked = (0..12).filter_map(|_| plan.pick((group, None), &ask, (&[], false), &[], &mut || 1));
    let picked: Vec<_> = picked.collect();
    (1..=3).filter(|number| picked.contains(&plan.node_at(node(*number)).unwrap())).collect()
}

/// What is seen of the nodes: whether each is up, and how often it has been ejected.
fn seen(world: &mut World) -> Vec<(Condition, u64)> {
    let now = world.now;
    let plan = world.dispatcher.plan();
    let group = plan.group(0, flow().vip()).unwrap();
    let views = plan.group_state(group).unwrap().views(now);
    views.map(|(_, MemberView { condition, ejections, .. })| (condition, ejections)).collect()
}

#[test]
fn the_first_outlier_is_ejected_and_the_next_one_stays() {
    let (up, ejected) = (Condition::Up, Condition::Down(Reason::Failing));
    let mut world = World::of(&config("outliers = { max_share = \"34%\" }"));
    report(&mut world, &[]);
    assert_eq!(chosen(&mut world), [1, 2, 3].into());
    world.dispatcher.plan().standing_changed = false;
    report(&mut world, &[2]);
    assert!(world.dispatcher.plan().standing_changed, "choices made ahead are withdrawn");
    assert_eq!(chosen(&mut world), [1, 3].into());
    report(&mut world, &[1, 2, 3]);
    assert_eq!(chosen(&mut world), [1, 3].into());
    assert_eq!(seen(&mut world), [(up, 0), (ejected, 1), (up, 0)]);
    report(&mut world, &[1, 3]);
    assert_eq!(chosen(&mut world), [1, 2, 3].into(), "its time is over, and theirs has not begun");
    report(&mut world, &[]);
    report(&mut world, &[2]);
    assert_eq!(chosen(&mut world), [1, 3].into());
    assert_eq!(seen(&mut world), [(up, 0), (ejected, 2), (up, 0)]);
}

#[test]
fn a_pool_without_outliers_ejects_none() {
    let mut world = World::of(&config(""));
    report(&mut world, &[2]);
    assert_eq!(chosen(&mut world), [1, 2, 3].into());
}

#[test]
fn an_ejected_node_is_better_than_none() {
    let mut world = World::of(&config("outliers = {}"));
    report(&mut world, &[3]);
    for number in [1, 2] {
        world.report(node(number), "web", SB_REASON_UNHEALTHY, QUEUE);
    }
    assert_eq!(chosen(&mut world), [3].into());
    let sent = world.client_packet(&data(0, 0, &get("/web/a")));
    assert_eq!((sent[0].op, sent[0].node), (SB_OP_ADOPT, node(3)));
    world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
    let sent = world.client_packet(&data(get("/web/a").len() as u32, 100, &get("/web/b")));
    assert_eq!((sent[0].op, sent[0].node), (SB_OP_FORWARD, node(3)), "its connections stay");
}

#[test]
fn connections_leave_an_ejected_node_and_no_other() {
    for fails_first in [false, true] {
        let mut world = World::of(&config("outliers = {}"));
        report(&mut world, &[]);
        let request = get("/web/a");
        let adopt = world.client_packet(&data(0, 0, &request))[0].clone();
        world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE);
        let own = (1..=3).find(|number| node(*number) == adopt.node).unwrap();
        if !fails_first {
            report(&mut world, &[own % 3 + 1]);
        }
        report(&mut world, &[1, 2, 3].map(|number| if number == own || !fails_first { number } else { own }));
        let now = world.now;
        let plan = world.dispatcher.plan();
        let id = plan.node_at(adopt.node).unwrap();
        assert_eq!(plan.keepers(0, now).contains(&id), !fails_first);
        let sent = world.client_packet(&data(request.len() as u32, 100, &get("/web/b")));
        let expected = if fails_first { SB_OP_RELEASE } else { SB_OP_FORWARD };
        assert_eq!((sent[0].op, sent[0].node), (expected, adopt.node));
    }
}

#[test]
fn a_session_leaves_an_ejected_node() {
    let persistence = "outliers = {}\npersistence = { mode = \"hash\", hash = \"client\" }";
    let mut world = World::of(&config(persistence));
    report(&mut world, &[]);
    let usual = world.client_packet(&data(0, 0, &get("/web/a")))[0].node;
    let mut world = World::of(&config(persistence));
    let number = (1..=3).find(|number| node(*number) == usual).unwrap();
    report(&mut world, &[number]);
    let sent = world.client_packet(&data(0, 0, &get("/web/a")));
    assert_eq!(sent[0].op, SB_OP_ADOPT);
    assert_ne!(sent[0].node, usual);
}

#[test]
fn a_reload_ejects_no_more_than_it_allows() {
    let mut world = World::of(&config("outliers = { max_share = \"67%\" }"));
    report(&mut world, &[1, 2]);
    assert_eq!(chosen(&mut world), [3].into());
    world.reload(&config("outliers = {}"), &[7]);
    assert_eq!(chosen(&mut world), [2, 3].into());
}
