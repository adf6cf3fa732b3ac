//! What a switch can ask for besides a flow's adoption and release: each test asks in the switch's name.

mod common;

use std::collections::HashSet;
use std::io::Read;

use common::flow::*;
use common::{Handoff, Raw, Result, wait_for_counter};
use switchback_wire::flow_state::FlowState;
use switchback_wire::generation::Generation;
use switchback_wire::message::{Reading, ToNode};
use switchback_wire::packet::{TcpView, bare, flags, fold, sum};
use switchback_wire::{SB_HANDOVER_REQUEST, SB_PROBE_KEPT, Seq, sb_kept, sb_reason};

#[test]
fn agent_process() {
    common::agent_process();
}

#[test]
fn data_is_confirmed_once_it_is_there() -> Result<()> {
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\n";
    let world = World::up(false)?;
    let mut flow = world.flow()?;
    flow.handoff.body = 10;
    flow.request(POST)?;
    // Not there: delivered as any other packet, without an answer.
    flow.say(SB_OP_CONFIRM, 0, b"01234")?;
    let mut body = [0; 5];
    flow.server().read_exact(&mut body)?;
    assert_eq!((&body, world.count("forwarded")?, world.count("confirmed")?), (b"01234", 1, 0));
    // There, and not delivered again.
    assert_eq!(flow.ask(SB_OP_CONFIRM, 0, b"01234")?, (SB_OP_CONFIRMED, 0));
    assert_eq!(flow.ask(SB_OP_CONFIRM, 0, b"0123")?, (SB_OP_CONFIRMED, 0));
    assert_eq!((world.count("forwarded")?, world.count("confirmed")?), (1, 2));
    // A part is not enough.
    flow.say(SB_OP_CONFIRM, 0, b"0123456789")?;
    flow.server().read_exact(&mut body)?;
    assert_eq!((&body, world.count("forwarded")?), (b"56789", 2));
    assert_eq!(flow.ask(SB_OP_CONFIRM, 0, b"0123456789")?, (SB_OP_CONFIRMED, 0));

    let stranger = world.flow()?;
    let refused = stranger.ask(SB_OP_CONFIRM, SB_HANDOVER_REQUEST, POST)?;
    assert_eq!(refused, (SB_OP_REFUSED, sb_reason::SB_REASON_NO_SOCKET as u8));
    stranger.say(SB_OP_CONFIRM, 0, b"01234")?;
    assert_eq!(wait_for_counter(world.node(), "drop_no_socket", 1)?, 1);
    Ok(())
}

/// A switch that has acknowledged the beginning of a request may die: another one gets it from the node.
#[test]
fn the_beginning_of_a_request_is_kept_for_other_switches() -> Result<()> {
    const HEAD: &[u8] = GET;
    for v6 in [false, true] {
        let world = World::up(v6)?;
        let mut flow = world.flow()?;
        let start = Seq(flow.handoff.origin);
        let state = FlowState { generation: Generation::first(3), ..FlowState::at(start, start) };
        let at = |flow: &Flow<'_>, seq: Seq, data: &[u8]| -> Vec<u8> {
            Handoff { seq: seq.0, ..flow.handoff }.packet(flags::ACK, data)
        };
        let question = |flow: &Flow<'_>, seq: Seq| at(flow, seq, &[]);
        let unknown = FlowState::at(Seq(0), Seq(0));
        let probe = ToNode::Probe { next: Generation::NONE };

        // The first packet comes in three versions, and the longest counts.
        let (first, second) = (at(&flow, start, &HEAD[..9]), at(&flow, start + 9u32, &HEAD[9..20]));
        for (packet, len) in
            [(&at(&flow, start, &HEAD[..4]), 4u32), (&first, 9), (&at(&flow, start, b"GE"), 2)]
        {
            flow.tell(ToNode::Keep { end: start + len }, &state, packet)?;
            let (option, inner) = flow.answer()?;
            assert_eq!((option.op, option.said::<sb_kept>().end), (SB_OP_KEPT as u8, (start + len).to_be()));
            assert!(TcpView::parse(&inner).is_some_and(|view| view.is_empty() && view.seq == start));
        }
        flow.tell(ToNode::Keep { end: start + 20u32 }, &state, &second)?;
        assert_eq!(flow.answer()?.0.op, SB_OP_KEPT as u8);

        flow.tell(probe, &unknown, &question(&flow, start + 20u32))?;
        let unowned = flow.answer()?.0;
        assert_eq!((unowned.op, u32::from(unowned.flags)), (SB_OP_UNOWNED as u8, SB_PROBE_KEPT));
        for (about, seq, packet) in [(unknown, Seq(5), &first), (state, start + 9u32, &second)] {
            flow.tell(ToNode::Restore, &about, &question(&flow, seq))?;
            let (option, inner) = flow.answer()?;
            assert_eq!((option.op, &inner), (SB_OP_RESTORED as u8, packet));
            let said: sb_kept = option.said();
            assert_eq!((FlowState::read(&option), said.end), (state, (start + 20u32).to_be()));
        }
        let other = FlowState::at(start + 1u32, start);
        flow.tell(ToNode::Restore, &other, &question(&flow, start))?;
        flow.tell(ToNode::Restore, &state, &question(&flow, start + 3u32))?;
        assert_eq!(wait_for_counter(world.node(), "drop_not_kept", 2)?, 2);

        // The request gets its answer, and the connection ends.
        flow.request(HEAD)?;
        flow.tell(probe, &unknown, &question(&flow, start))?;
        let owned = flow.answer()?.0;
        assert_eq!((owned.op, u32::from(owned.flags)), (SB_OP_OWNED as u8, SB_PROBE_KEPT));
        let raw = flow.handoff.packet(flags::RST | flags::ACK, &[]);
        flow.tell(ToNode::Forward(Reading::None), &state, &raw)?;
        assert_eq!(flow.answer()?.0.op, SB_OP_CLOSED as u8);
        flow.tell(probe, &unknown, &question(&flow, start))?;
        assert_eq!(flow.answer()?.0.flags, 0, "nobody needs it any more");
    }
    Ok(())
}

/// A switch may have died before it heard that an adoption was refused: the next one hears of it when the client sends its
/// request again.
#[test]
fn an_adoption_that_never_was_is_disowned() -> Result<()> {
    let world = World::up(false)?;
    let flow = world.flow()?;
    let generation = Generation::first(3);
    let start = Seq(flow.handoff.origin);
    let state = FlowState { generation, ..FlowState::at(start, start + GET.len()) };
    flow.tell(ToNode::Forward(Reading::None), &state, &flow.packet(GET))?;
    let (option, inner) = flow.answer()?;
    assert_eq!((option.op, option.reason), (SB_OP_UNOWNED as u8, sb_reason::SB_REASON_NO_SOCKET as u8));
    assert_eq!(FlowState::read(&option).generation, generation);
    assert!(TcpView::parse(&inner).is_some_and(|view| view.is_empty() && view.seq == start));
    // An acknowledgment needs no answer.
    flow.tell(ToNode::Forward(Reading::None), &state, &flow.packet(&[]))?;
    assert_eq!(wait_for_counter(world.node(), "drop_no_socket", 1)?, 1);
    assert_eq!(world.count("lacked")?, 1);
    Ok(())
}

/// A copy that was delayed on its way changes nothing: not for a flow that has gone, and not for one that has come
/// back with a later request.
#[test]
fn an_old_adoption_is_not_repeated() -> Result<()> {
    const NO_CONTENT: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
    let world = World::up(false)?;
    let mut flow = world.flow()?;
    let first = Handoff { requests: 1, ..flow.handoff };
    let copy = |flow: &mut Flow<'_>| -> Result<Handoff> {
        let now = std::mem::replace(&mut flow.handoff, first);
        flow.say(SB_OP_ADOPT, 0, GET)?;
        Ok(now)
    };
    flow.request(GET)?;
    flow.serve(NO_CONTENT)?;
    assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
    flow.handoff = copy(&mut flow)?;
    assert_eq!(wait_for_counter(world.node(), "drop_stale", 1)?, 1);
    assert_eq!((world.count("adopted")?, world.count("cured")?), (1, 0));

    flow.come_back(GET)?;
    flow.handoff = copy(&mut flow)?;
    assert_eq!(flow.answer()?.0.op, SB_OP_ADOPTED as u8, "the flow is here");
    flow.serve(NO_CONTENT)?;
    assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
    assert_eq!((world.count("adopted")?, world.count("cured")?, world.count("drop_stale")?), (2, 0, 1));
    Ok(())
}

/// Likewise when both come together, and the kernel has no socket yet.
#[test]
fn the_later_of_two_adoptions_counts() -> Result<()> {
    const FLOWS: usize = 60;
    let world = World::up(false)?;
    let mut flows = Vec::new();
    let mut packets = Vec::new();
    for _ in 0..FLOWS {
        let mut flow = world.flow()?;
        let older = flow.handed_over(SB_OP_ADOPT, 0, GET);
        flow.handoff.seq = flow.handoff.seq.wrapping_add(GET.len() as u32);
        packets.extend([flow.handed_over(SB_OP_ADOPT, 0, GET), older]);
        flows.push(flow);
    }
    let raw = Raw::open(world.lab.switch(0))?;
    for packet in &packets {
        raw.send(world.node().ipv4().into(), packet)?;
    }
    // A PROBE that overtakes an adoption bars it.
    let mut awaited: HashSet<_> = flows.iter().map(|flow| (flow.port, Seq(flow.handoff.seq))).collect();
    while !awaited.is_empty() {
        let (option, inner) = common::answer(&world.ear)?;
        if option.op == SB_OP_ADOPTED as u8 {
            let seq = TcpView::parse(&inner).ok_or("no header")?.seq;
            awaited.remove(&(client_port(&inner), seq));
        }
    }
    for flow in &flows {
        flow.say(SB_OP_PROBE, 0, &[])?;
        let mut option = flow.answer()?.0;
        while option.op == SB_OP_ADOPTED as u8 {
            option = flow.answer()?.0;
        }
        assert_eq!(option.op, SB_OP_OWNED as u8);
        assert_eq!(
            u32::from_be(option.flow_state().next),
            flow.handoff.seq.wrapping_add(GET.len() as u32),
            "the older adoption stays"
        );
    }
    // The network may change their order, and then the later one replaces the older one's socket, which may have been
    // counted before.
    let cured = world.count("cured")?;
    println!("{} were dropped, {cured} replaced", world.count("drop_stale")?);
    let adopted = world.count("adopted")?;
    assert!((FLOWS as u64..=FLOWS as u64 + cured).contains(&adopted), "{adopted} adopted");
    Ok(())
}

/// Somebody on the node speaks for a flow that has gone.
#[test]
fn a_released_flow_is_mute() -> Result<()> {
    let world = World::up(false)?;
    let mut flow = world.flow()?;
    flow.request(GET)?;
    flow.serve(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    let speak = |flags| {
        let packet = bare(&flow.handoff.flow, false, Seq(flow.handoff.ack), Seq(flow.handoff.seq), flags);
        common::send_raw(world.node(), world.client, &packet)
    };
    speak(flags::ACK)?;
    assert_eq!(world.count("muted")?, 0);
    assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
    speak(flags::ACK)?;
    speak(flags::RST)?;
    assert_eq!(world.count("muted")?, 2);
    Ok(())
}

/// A router's message to the VIP that the server's packet with this sequence number is longer than `mtu`.
fn too_long(flow: &Flow<'_>, seq: u32, mtu: u16) -> (TcpView, Vec<u8>) {
    let about = bare(&flow.handoff.flow, false, Seq(seq), Seq(0), flags::ACK);
    let mut packet = bare(&flow.handoff.flow, true, Seq(0), Seq(0), 0);
    let tcp = packet.len() - 20;
    packet.truncate(tcp);
    let [high, low] = mtu.to_be_bytes();
    let kind = if tcp == 20 { [3, 4] } else { [2, 0] };
    packet.extend_from_slice(&[kind[0], kind[1], 0, 0, 0, 0, high, low]);
    packet.extend_from_slice(&about);
    let len = packet.len();
    // ICMP for IPv4 has no pseudo-header (RFC 792); the one of IPv6 is in RFC 4443 section 2.3.
    let pseudo = if tcp == 20 {
        packet[9] = 1;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        packet[10..12].fill(0);
        let check = fold(sum(&packet[..20]));
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        0
    } else {
        packet[6] = 58;
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        sum(&packet[8..40]) + 58 + (len - 40) as u64
    };
    let check = fold(pseudo + sum(&packet[tcp..]));
    packet[tcp + 2..tcp + 4].copy_from_slice(&check.to_be_bytes());
    (TcpView { tcp, data: tcp, end: len, seq: Seq(seq), ack: Seq(0), flags: 0 }, packet)
}

fn path_mtu_is_learned(v6: bool) -> Result<()> {
    let world = World::up(v6)?;
    let mut flow = world.flow()?;
    flow.request(GET)?;
    flow.serve(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    let (view, message) = too_long(&flow, flow.handoff.ack, 1300);
    let sockets = || world.node().run(["ss", "-Htin", "state", "established"])?.success();
    assert!(sockets()?.contains("pmtu:1500"), "{}", sockets()?);

    // Not what they say they are.
    flow.send_at(SB_OP_FORWARD, &view, &message)?;
    flow.say(SB_OP_ICMP, 0, &[])?;
    assert_eq!(wait_for_counter(world.node(), "drop_malformed", 2)?, 2);
    assert!(sockets()?.contains("pmtu:1500"), "{}", sockets()?);

    flow.send_at(SB_OP_ICMP, &view, &message)?;
    assert_eq!(wait_for_counter(world.node(), "icmp", 1)?, 1);
    // Shown with the next packet.
    flow.request(GET)?;
    flow.serve(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    assert!(sockets()?.contains("pmtu:1300"), "{}", sockets()?);
    let route = world.node().run(["ip", "route", "get", &world.client.to_string()])?.success()?;
    assert!(route.contains("mtu 1300"), "{route}");
    assert_eq!(flow.release()?, (SB_OP_RELEASED, 0));
    Ok(())
}

#[test]
fn a_path_mtu_is_learned() -> Result<()> {
    path_mtu_is_learned(false)
}

#[test]
fn a_path_mtu_is_learned_by_ipv6() -> Result<()> {
    path_mtu_is_learned(true)
}
