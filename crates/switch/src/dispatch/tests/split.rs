//! A machine that is one of the nodes: what it leaves to the others.

use std::time::Duration;

use switchback_policy::Ask;
use switchback_wire::message::FromNode;
use switchback_wire::*;

use super::model::*;
use crate::plan::{LocalMachine, NodeId, Plan};
use sb_reason::*;
use switchback_flow::destination::Side;

/// The usual nodes, of which this machine is the first one; `pool` has more lines of the pool `web`.
fn world(pool: &str) -> World {
    let config =
        CONFIG.replacen("policy = \"round-robin\"\n", &format!("policy = \"round-robin\"\n{pool}\n"), 1);
    World::at(&(config + "\n[[switch]]\nname = \"n1\"\n"), LocalMachine { zone: None, node: Some("n1") })
}

/// What the policy says eight times.
fn picked(plan: &mut Plan, side: Option<Side>, tried: &[NodeId]) -> Vec<NodeId> {
    let group = plan.group(0, flow().vip()).unwrap();
    let ask = Ask { key: None, now: Duration::ZERO };
    (0..8).filter_map(|_| plan.pick((group, side), &ask, (tried, false), &[], &mut || 1)).collect()
}

#[test]
fn the_wanted_side_answers_as_long_as_it_can() {
    let mut world = world("delegate = \"all\"");
    let plan = world.dispatcher.plan();
    let (own, other) = (plan.node_at(node(1)).unwrap(), plan.node_at(node(2)).unwrap());
    assert_eq!(picked(plan, Some(Side::Others), &[]), [other; 8]);
    assert_eq!(picked(plan, Some(Side::Here), &[]), [own; 8]);
    assert_eq!(picked(plan, Some(Side::Others), &[other]), [own; 8], "it has been tried");
    assert!(picked(plan, None, &[]).contains(&own));
    world.report(node(2), "web", SB_REASON_NONE, (512, 511));
    assert_eq!(picked(world.dispatcher.plan(), Some(Side::Others), &[]).first(), Some(&own), "it is full");
    world.report(node(2), "web", SB_REASON_UNHEALTHY, (0, 511));
    assert_eq!(picked(world.dispatcher.plan(), Some(Side::Others), &[]), [own; 8], "it is ill");
}

#[test]
fn the_program_keeps_flows_only_where_they_belong() {
    for (pool, expected) in [
        ("", [true, true]),
        ("delegate = \"all\"", [false, true]),
        ("delegate = \"none\"", [true, false]),
        ("delegate = \"30%\"", [true, true]),
        ("delegate = { above = \"1KiB\" }", [false, false]),
    ] {
        let mut world = world(pool);
        let plan = world.dispatcher.plan();
        let keepers = plan.keepers(0, Duration::ZERO);
        let kept = [1, 2].map(|number| keepers.contains(&plan.node_at(node(number)).unwrap()));
        assert_eq!(kept, expected, "{pool}");
    }
}

#[test]
fn long_responses_go_elsewhere_once_they_are_known() {
    let mut world = world("delegate = { above = \"1KiB\" }");
    for number in [1, 2] {
        world.report(node(number), "web", SB_REASON_NONE, (0, 511));
    }
    let first = world.client_packet(&data(0, 0, &get("/web/a?x")));
    assert_eq!((first[0].op, first[0].node), (sb_op::SB_OP_ADOPT, node(2)), "it may be long");
    let path = first[0].option.flow_state().session.path;
    assert_ne!(path, 0);
    world.answer(&first[0], sb_op::SB_OP_ADOPTED, SB_REASON_NONE);
    let said = FromNode::Sized { path: u16::from_be(path), bytes: 900 }.option();
    assert!(world.handoff(node(2), said, &first[0].packet).is_empty());
    let len = get("/web/a?x").len() as u32;
    let next = world.client_packet(&data(len, 100, &get("/web/a?y")));
    assert_eq!((next[0].op, next[0].node), (sb_op::SB_OP_RELEASE, node(2)));
    let adopt = world.answer(&next[0], sb_op::SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!(
        (adopt[0].op, adopt[0].node, adopt[0].option.flow_state().session.path),
        (sb_op::SB_OP_ADOPT, node(1), 0)
    );
}
