//! Path MTU messages about flows of other switches.

use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::model::*;
use crate::dispatch::Moment;
use sb_op::*;
use sb_reason::*;

/// A router's message about a packet of the server with this sequence number.
fn message(seq: Seq) -> Vec<u8> {
    let quoted = segment(&flow(), false, (seq, ORIGIN), flags::ACK, None, &[b'x'; 100]);
    let mut message = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 203, 0, 113, 9, 192, 0, 2, 100];
    message.extend([3, 4, 0, 0, 0, 0, 5, 0]);
    message.extend_from_slice(&quoted[..28]);
    message
}

fn tell(world: &mut World, message: &[u8]) -> Vec<ToNode> {
    let kind = sb_record_kind::SB_RECORD_ICMP as u32;
    let record = sb_record { kind, flow: flow(), ..Default::default() };
    let at = Moment {
        now: world.now,
        map: &|flow| world.map.get(flow).copied(),
        take: &crate::dispatch::unlimited,
    };
    world.dispatcher.on_record(at, &record, message);
    world.flush()
}

#[test]
fn a_message_about_an_unknown_flow_finds_its_node() {
    let mut world = World::of_several(CONFIG, 1);
    let message = message(SERVER + 1400u32);
    let asked = tell(&mut world, &message);
    assert_eq!(asked.iter().map(|asked| asked.op).collect::<Vec<_>>(), [SB_OP_PROBE; 3]);
    assert!(tell(&mut world, &message).is_empty(), "the nodes are asked once");
    let state =
        sb_flow_state { origin: ORIGIN.to_be(), next: (ORIGIN + 40u32).to_be(), ..Default::default() };
    world.answer(&asked[0], SB_OP_UNOWNED, SB_REASON_NONE);
    let option = answered(&asked[1].option, SB_OP_OWNED, SB_REASON_NONE).saying(&state);
    let sent = world.handoff(asked[1].node, option, &asked[1].packet);
    // Nothing that the client has not sent goes to the node.
    let [sent] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((sent.op, sent.node, &sent.packet), (SB_OP_ICMP, asked[1].node, &message));
    assert_eq!(sent.option.flow_state(), state);
    assert_eq!(world.map[&flow()].mark.next, ORIGIN + 40u32, "the next one needs no question");
    assert!(world.to_client.is_empty());
}

#[test]
fn without_an_owner_nothing_happens() {
    let mut world = World::of_several(CONFIG, 1);
    for asked in tell(&mut world, &message(SERVER)) {
        assert!(TcpView::parse(&asked.packet).is_some_and(|view| view.flags == 0 && view.is_empty()));
        assert!(world.answer(&asked, SB_OP_UNOWNED, SB_REASON_NONE).is_empty());
    }
    assert!(world.to_client.is_empty() && world.map.is_empty() && world.dispatcher.pending() == 0);
    for cut in 0..47 {
        assert!(tell(&mut world, &message(SERVER)[..cut]).is_empty(), "{cut} bytes");
    }
}
