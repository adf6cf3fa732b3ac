//! Clients that begin and go no further.

use std::time::Duration;

use switchback_flow::entry::Entry;
use switchback_wire::packet::{bare, flags};
use switchback_wire::*;

use super::model::*;
use sb_op::*;

const LIMITS: &str = "[limits]\nheld_per_source = \"128KiB\"\nhead_timeout = \"5s\"\n";
const STRANGERS: u16 = 3000;

fn with_limits() -> World {
    World::of(&CONFIG.replacen("[[node]]", &format!("{LIMITS}[[node]]"), 1))
}

#[test]
fn first_bytes_leave_no_entry_beyond_the_budget_nor_after_their_time() {
    let mut world = with_limits();
    for port in 0..STRANGERS {
        world.record_of_client(port, b"G");
        assert_eq!(world.waiting.len(), world.dispatcher.pending(), "each entry is in the budget");
    }
    assert!((1..200).contains(&world.waiting.len()), "{} entries", world.waiting.len());
    let begun = world.now;
    while world.dispatcher.deadline().is_some() {
        world.pass();
    }
    assert!(world.map.is_empty() && world.waiting.is_empty(), "{} entries", world.map.len());
    assert!(world.now < begun + Duration::from_secs(11), "head_timeout, and the answers' time");
}

#[test]
fn a_head_whose_beginning_is_missing_leaves_no_entry() {
    let mut world = with_limits();
    let head = get("/web/");
    world.client_packet(&data(0, 0, &head[..1]));
    // Its beginning is lost to the switch, which another process was then.
    let map = std::mem::take(&mut world.map);
    let mut world = with_limits();
    (world.map, world.waiting) = (map, [flow()].into());
    world.client_packet(&data(1, 0, &head[1..]));
    assert_eq!((world.dispatcher.pending(), world.waiting.len()), (1, 1));
    while world.dispatcher.pending() > 0 {
        world.pass();
    }
    assert!(world.waiting.is_empty());
}

#[test]
fn an_entry_leaves_the_waiting_ones_with_its_first_node() {
    let mut world = with_limits();
    assert_eq!(world.client_packet(&data(0, 0, &get("/web/"))).len(), 1);
    assert!(world.waiting.is_empty() && world.map.contains_key(&flow()));
}

fn unknown(world: &mut World, packet: &[u8]) -> Vec<ToNode> {
    world.record(sb_record_kind::SB_RECORD_UNKNOWN, Entry::default(), packet)
}

#[test]
fn one_question_is_asked_about_a_flow_at_a_time() {
    let mut world = World::new();
    let packet = data(100, 0, b"anything");
    let asked = unknown(&mut world, &packet);
    assert_eq!(
        asked.iter().map(|asked| (asked.op, asked.data().len())).collect::<Vec<_>>(),
        [(SB_OP_PROBE, 0); 3]
    );
    assert!(unknown(&mut world, &packet).is_empty());
    asked
        .iter()
        .for_each(|asked| assert!(world.answer(asked, SB_OP_UNOWNED, sb_reason::SB_REASON_NONE).is_empty()));
    assert_eq!(world.dispatcher.pending(), 0, "nobody has it");
    world.now += Duration::from_millis(50);
    assert!(unknown(&mut world, &packet).is_empty(), "its client does not wait");
    world.now += Duration::from_millis(200);
    assert_eq!(unknown(&mut world, &packet).len(), 3);
}

/// It answers for all its nodes.
#[test]
fn one_node_of_each_machine_is_asked() {
    let shared = "address = \"192.0.2.22\"\nserver = \"10.0.0.3:80\"";
    let mut world = World::of(&CONFIG.replace("address = \"192.0.2.23\"", shared));
    let packet = data(100, 0, b"anything");
    let asked = unknown(&mut world, &packet);
    assert_eq!(asked.iter().map(|asked| asked.node).collect::<Vec<_>>(), [node(1), node(2)]);
    asked.iter().for_each(|asked| drop(world.answer(asked, SB_OP_UNOWNED, sb_reason::SB_REASON_NONE)));
    assert_eq!(world.dispatcher.pending(), 0, "nobody has it");
    // Another one is asked if that one does not live.
    world.now += Duration::from_secs(1);
    let id = world.dispatcher.plan().node_at(node(2)).unwrap();
    world.dispatcher.plan().nodes[id.index()].as_mut().unwrap().clock = None;
    let asked = unknown(&mut world, &packet);
    assert_eq!(
        asked.iter().map(|asked| asked.node.machine).collect::<Vec<_>>(),
        [1, 2].map(|last| node(last).machine)
    );
    assert_ne!(asked[1].node, node(2));
}

/// As right after the start.
#[test]
fn nodes_without_a_clock_are_asked_when_it_is_known() {
    let mut world = World::new();
    let id = world.dispatcher.plan().node_at(node(3)).unwrap();
    let clock = world.dispatcher.plan().nodes[id.index()].as_mut().unwrap().clock.take();
    let asked = unknown(&mut world, &data(100, 0, b"anything"));
    let probed = |sent: &[ToNode]| -> Vec<NodeAddress> {
        sent.iter().filter(|sent| sent.op == SB_OP_PROBE).map(|sent| sent.node).collect()
    };
    assert_eq!(probed(&asked), [node(1), node(2)]);
    for asked in asked.iter().filter(|asked| asked.op == SB_OP_PROBE) {
        world.answer(asked, SB_OP_UNOWNED, sb_reason::SB_REASON_NONE);
    }
    let begun = world.now;
    assert!(probed(&world.pass()).is_empty(), "still unknown");
    world.dispatcher.plan().nodes[id.index()].as_mut().unwrap().clock = clock;
    assert_eq!(probed(&world.pass()), [node(3)]);
    assert_eq!(world.now - begun, Duration::from_millis(100));
    // Nobody is asked again who may have answered.
    assert!(probed(&world.pass()).is_empty());
    assert_eq!(world.dispatcher.pending(), 0);
}

#[test]
fn silence_of_nodes_resets_no_flow() {
    let mut world = World::new();
    let packet = data(100, 0, b"anything");
    let disown = |world: &mut World, asked: &ToNode| {
        world.answer(asked, SB_OP_UNOWNED, sb_reason::SB_REASON_NONE);
        world.dispatcher.stats.reset_unowned
    };
    let ask = |world: &mut World| {
        world.now += Duration::from_millis(600);
        while world.dispatcher.pending() > 0 {
            world.pass();
        }
        let asked = unknown(world, &packet);
        assert_eq!(asked.iter().map(|asked| asked.op).collect::<Vec<_>>(), [SB_OP_PROBE; 3]);
        asked
    };
    // All questions are lost, then the owner's, and another node's answer comes twice.
    ask(&mut world);
    let asked = ask(&mut world);
    let resets = [&asked[0], &asked[0], &asked[1]].map(|asked| disown(&mut world, asked));
    assert_eq!(resets, [0; 3]);
    let asked = ask(&mut world);
    let resets: Vec<u64> = asked.iter().map(|asked| disown(&mut world, asked)).collect();
    assert_eq!(resets, [0, 0, 1], "now all have said so");
}

#[test]
fn nodes_of_other_services_are_not_asked() {
    let only_img = CONFIG.replace("[[service.route]]\npath = \"/web/\"\npool = \"web\"\n", "");
    let only_img = only_img.replace("[[service.route]]\nmethod = \"PRI\"\nh2c = true\npool = \"web\"\n", "");
    let mut world = World::of(&only_img);
    let asked = unknown(&mut world, &bare(&flow(), true, Seq(5), Seq(6), flags::ACK));
    assert_eq!(asked.iter().map(|asked| asked.node).collect::<Vec<_>>(), [node(3)]);
}

#[test]
fn a_flood_is_asked_about_within_the_budget() {
    let mut world = World::new();
    let mut sent = 0;
    for number in 0..100_000u32 {
        let mut flow = flow();
        flow.client[12..].copy_from_slice(&(0x0b00_0000 | number).to_be_bytes());
        let kind = sb_record_kind::SB_RECORD_UNKNOWN as u32;
        let record = sb_record { kind, flow, ..Default::default() };
        let at =
            crate::dispatch::Moment { now: world.now, map: &|_| None, take: &crate::dispatch::unlimited };
        world.dispatcher.on_record(at, &record, &bare(&flow, true, Seq(5), Seq(6), flags::ACK));
        sent += world.flush().len();
        world.now += Duration::from_micros(10);
    }
    assert!(sent <= 110_000, "{sent} packets in a second");
    assert_eq!(world.dispatcher.pending(), 0);
    assert!(world.dispatcher.stats.unasked > 60_000);
}
