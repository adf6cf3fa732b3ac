//! What the node's programs do with packets: each test hands packets over as a switch would.

mod common;

use std::net::{IpAddr, SocketAddr};

use common::{
    Handoff, Result, Sniffer, answer, config, counter, data_from, listen, send_raw, start, status,
    wait_for_counter,
};
use switchback_lab::{Lab, ServerOptions};
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{Seq, sb_op, sb_outcome, sb_reason};

const CLIENT_PORT: u16 = 40_000;
const REQUEST: &[u8] = b"GET /node HTTP/1.1\r\nHost: shop\r\n\r\n";

#[test]
fn agent_process() {
    common::agent_process();
}

fn is(op: u8, wanted: sb_op) -> bool {
    sb_op::from_number(op) == Some(wanted)
}

fn adopts(lab: &Lab, client: IpAddr, vip: IpAddr) -> Result<()> {
    let config = config(lab)?;
    let (node, switch) = (lab.node(0), lab.switch(0));
    node.nginx(&ServerOptions::default())?;
    start(node, &config)?;
    start(lab.node(1), &config)?;
    let ear = listen(switch)?;
    let sniffer = Sniffer::open(lab.client(0))?;
    let mut handoff = Handoff::new(&config, SocketAddr::new(client, CLIENT_PORT), SocketAddr::new(vip, 80))?;
    let request = handoff.packet(flags::ACK | flags::PSH, REQUEST);
    let node_address = IpAddr::V4(node.ipv4());
    let adopt = handoff.encode(sb_op::SB_OP_ADOPT, switch.ipv4().into(), node_address, &request);
    send_raw(switch, node_address, &adopt)?;

    let (option, _) = answer(&ear)?;
    assert!(is(option.op, sb_op::SB_OP_ADOPTED), "{option:?}");
    assert!(option.said::<sb_outcome>().queue.limit > 0, "no limit of the accept queue in {option:?}");
    let seen = sniffer.until(|packet| data_from(packet, vip).is_some_and(|data| data.ends_with(b"node0")));
    let head = seen.iter().find(|packet| data_from(packet, vip).is_some_and(|data| !data.is_empty()));
    let head = head.expect("`until` has seen data");
    let view = TcpView::parse(head).expect("it has data");
    assert!(head[view.data..view.end].starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert_eq!((view.seq, view.ack), (Seq(handoff.ack), Seq(handoff.seq.wrapping_add(REQUEST.len() as u32))));
    if let IpAddr::V4(vip) = vip {
        let announced =
            seen.iter().any(|packet| packet.starts_with(&[0, 1, 8, 0]) && packet[14..18] == vip.octets());
        assert!(!announced, "the node asked for the client under the VIP");
        assert!(counter(node, "arp_announce")? > 0, "it did not have to ask");
    }
    assert_eq!((counter(node, "adopted")?, status(node)?["flows"].as_u64()), (1, Some(1)));

    // Sent again, it is answered and nothing else.
    send_raw(switch, node_address, &adopt)?;
    assert!(is(answer(&ear)?.0.op, sb_op::SB_OP_ADOPTED));
    assert_eq!(counter(node, "adopted")?, 1);

    // The tag is bound to the node.
    let mut replayed = adopt.clone();
    replayed[16..20].copy_from_slice(&lab.node(1).ipv4().octets());
    send_raw(switch, lab.node(1).ipv4().into(), &replayed)?;
    assert_eq!(wait_for_counter(lab.node(1), "drop_tag", 1)?, 1);

    // The client gives up, and the switch hears of it.
    handoff.seq = handoff.seq.wrapping_add(REQUEST.len() as u32);
    let reset = handoff.packet(flags::RST | flags::ACK, &[]);
    let forward = handoff.encode(sb_op::SB_OP_FORWARD, switch.ipv4().into(), node_address, &reset);
    send_raw(switch, node_address, &forward)?;
    let (option, inner) = answer(&ear)?;
    assert!(is(option.op, sb_op::SB_OP_CLOSED), "{option:?}");
    assert_eq!(u32::from_be(option.flow_state().origin), u32::MAX - 10);
    assert!(TcpView::parse(&inner).is_some());
    assert_eq!((counter(node, "forwarded")?, status(node)?["flows"].as_u64()), (1, Some(0)));
    Ok(())
}

#[test]
fn a_flow_is_adopted_from_one_packet() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    adopts(&lab, lab.client(0).ipv4().into(), lab.vip4().into())
}

#[test]
fn an_ipv6_flow_is_adopted_through_ipv4() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    adopts(&lab, lab.client(0).ipv6().into(), lab.vip6().into())
}

#[test]
fn without_a_listener_the_request_comes_back() -> Result<()> {
    let lab = Lab::builder().up()?;
    let config = config(&lab)?;
    let (node, switch) = (lab.node(0), lab.switch(0));
    start(node, &config)?;
    let ear = listen(switch)?;
    let client = SocketAddr::new(lab.client(0).ipv4().into(), CLIENT_PORT);
    let handoff = Handoff::new(&config, client, SocketAddr::new(lab.vip4().into(), 80))?;
    let request = handoff.packet(flags::ACK | flags::PSH, REQUEST);
    let to = IpAddr::V4(node.ipv4());
    send_raw(switch, to, &handoff.encode(sb_op::SB_OP_ADOPT, switch.ipv4().into(), to, &request))?;
    let (option, inner) = answer(&ear)?;
    assert!(is(option.op, sb_op::SB_OP_REFUSED), "{option:?}");
    assert_eq!(option.reason, sb_reason::SB_REASON_NO_LISTENER as u8);
    assert_eq!(inner, request, "the request itself comes back");
    assert_eq!(counter(node, "refused_no_listener")?, 1);
    Ok(())
}

#[test]
fn what_no_switch_has_sent_is_dropped_and_counted() -> Result<()> {
    let lab = Lab::builder().up()?;
    let config = config(&lab)?;
    let (node, switch) = (lab.node(0), lab.switch(0));
    node.nginx(&ServerOptions::default())?;
    start(node, &config)?;
    let client = SocketAddr::new(lab.client(0).ipv4().into(), CLIENT_PORT);
    let mut handoff = Handoff::new(&config, client, SocketAddr::new(lab.vip4().into(), 80))?;
    let to = IpAddr::V4(node.ipv4());
    let request = handoff.packet(flags::ACK | flags::PSH, REQUEST);

    handoff.key.k0 ^= 1;
    send_raw(switch, to, &handoff.encode(sb_op::SB_OP_ADOPT, switch.ipv4().into(), to, &request))?;
    assert_eq!(wait_for_counter(node, "drop_tag", 1)?, 1);

    // Straight from the client's kernel, because its route to the VIP leads to the node.
    let route = [&*lab.vip4().to_string(), "via", &*node.ipv4().to_string()].map(str::to_owned);
    let words = ["ip", "route", "add"].map(str::to_owned).into_iter().chain(route);
    lab.client(0).run(words)?.success()?;
    let connected = lab.client(0).tcp_connect((lab.vip4(), 80).into(), std::time::Duration::from_millis(300));
    assert!(connected.is_err());
    assert!(wait_for_counter(node, "drop_plain", 1)? >= 1);
    assert_eq!((counter(node, "adopted")?, status(node)?["flows"].as_u64()), (0, Some(0)));
    Ok(())
}

#[test]
fn a_flow_is_released_between_requests_and_can_come_back() -> Result<()> {
    let lab = Lab::builder().up()?;
    let config = config(&lab)?;
    let (node, switch) = (lab.node(0), lab.switch(0));
    node.nginx(&ServerOptions::default())?;
    start(node, &config)?;
    let ear = listen(switch)?;
    let sniffer = Sniffer::open(lab.client(0))?;
    let vip = IpAddr::V4(lab.vip4());
    let client = SocketAddr::new(lab.client(0).ipv4().into(), CLIENT_PORT);
    let mut handoff = Handoff::new(&config, client, SocketAddr::new(vip, 80))?;
    let (from, to) = (IpAddr::V4(switch.ipv4()), IpAddr::V4(node.ipv4()));
    let request = |handoff: &Handoff| handoff.packet(flags::ACK | flags::PSH, REQUEST);
    let send =
        |handoff: &Handoff, op, inner: &[u8]| send_raw(switch, to, &handoff.encode(op, from, to, inner));
    // Where the client is when it has the whole response.
    let after_response = |handoff: &mut Handoff| {
        let seen =
            sniffer.until(|packet| data_from(packet, vip).is_some_and(|data| data.ends_with(b"node0")));
        let last = seen.last().and_then(|packet| TcpView::parse(packet)).expect("it has data");
        handoff.seq = handoff.seq.wrapping_add(REQUEST.len() as u32);
        handoff.ack = (last.seq + last.len()).0;
    };

    send(&handoff, sb_op::SB_OP_ADOPT, &request(&handoff))?;
    assert!(is(answer(&ear)?.0.op, sb_op::SB_OP_ADOPTED));
    after_response(&mut handoff);
    let ack = |handoff: &Handoff| handoff.packet(flags::ACK, &[]);

    // Somebody who has lost the entry asks.
    send(&handoff, sb_op::SB_OP_PROBE, &ack(&handoff))?;
    let (option, _) = answer(&ear)?;
    assert!(is(option.op, sb_op::SB_OP_OWNED), "{option:?}");
    let said = option.flow_state();
    assert_eq!((u32::from_be(said.origin), u32::from_be(said.next)), (u32::MAX - 10, handoff.seq));

    // The client has acknowledged all of the response but its last byte.
    let nearly = Handoff { ack: handoff.ack.wrapping_sub(1), ..handoff };
    send(&nearly, sb_op::SB_OP_RELEASE, &ack(&nearly))?;
    let (option, _) = answer(&ear)?;
    assert!(is(option.op, sb_op::SB_OP_BUSY), "{option:?}");
    send(&handoff, sb_op::SB_OP_RELEASE, &ack(&handoff))?;
    let (option, _) = answer(&ear)?;
    assert!(is(option.op, sb_op::SB_OP_RELEASED), "{option:?}");
    assert_eq!((counter(node, "released")?, counter(node, "busy")?, counter(node, "owned")?), (1, 1, 1));
    assert_eq!(status(node)?["flows"].as_u64(), Some(0));

    // What comes for it now is kept from the kernel, which would answer with RST.
    send(&handoff, sb_op::SB_OP_FORWARD, &ack(&handoff))?;
    assert_eq!(wait_for_counter(node, "drop_no_socket", 1)?, 1);

    send(&handoff, sb_op::SB_OP_ADOPT, &request(&handoff))?;
    assert!(is(answer(&ear)?.0.op, sb_op::SB_OP_ADOPTED));
    after_response(&mut handoff);
    assert_eq!(counter(node, "adopted")?, 2);

    // A new connection from the same port finds the old one's socket in its way.
    handoff.seq = handoff.seq.wrapping_add(1 << 30);
    handoff.ack = handoff.ack.wrapping_add(1 << 30);
    send(&handoff, sb_op::SB_OP_ADOPT, &request(&handoff))?;
    assert!(is(answer(&ear)?.0.op, sb_op::SB_OP_ADOPTED));
    after_response(&mut handoff);
    assert_eq!((counter(node, "adopted")?, counter(node, "cured")?), (3, 1));
    Ok(())
}

/// A switch that waits for an answer sends again, and a busy node finds both in one go.
#[test]
fn copies_that_arrive_together_are_adopted_once() -> Result<()> {
    const FLOWS: u16 = 300;
    const TOGETHER: usize = 60;
    let lab = Lab::builder().up()?;
    let config = config(&lab)?;
    let (node, switch) = (lab.node(0), lab.switch(0));
    node.nginx(&ServerOptions::default())?;
    start(node, &config)?;
    let (from, to) = (IpAddr::V4(switch.ipv4()), IpAddr::V4(node.ipv4()));
    let mut packets = Vec::new();
    for port in CLIENT_PORT..CLIENT_PORT + FLOWS {
        // Nobody's address, so that no kernel has a word in it.
        let client = SocketAddr::new("192.0.2.250".parse()?, port);
        let handoff = Handoff::new(&config, client, SocketAddr::new(lab.vip4().into(), 80))?;
        let request = handoff.packet(flags::ACK | flags::PSH, REQUEST);
        packets.push(handoff.encode(sb_op::SB_OP_ADOPT, from, to, &request));
    }
    // No more at a time than the queue of an interface holds.
    for (index, batch) in packets.chunks(TOGETHER).enumerate() {
        for packet in batch {
            for _ in 0..3 {
                send_raw(switch, to, packet)?;
            }
        }
        let so_far = (index * TOGETHER + batch.len()) as u64;
        assert_eq!(wait_for_counter(node, "adopted", so_far)?, so_far);
    }
    // Once more, now that all is quiet: whatever the others have left behind them has been dealt with.
    let ear = listen(switch)?;
    for packet in &packets {
        send_raw(switch, to, packet)?;
        assert!(is(answer(&ear)?.0.op, sb_op::SB_OP_ADOPTED));
    }
    assert_eq!((counter(node, "cured")?, counter(node, "refused_failed")?), (0, 0));
    assert_eq!(counter(node, "adopted")?, u64::from(FLOWS));
    assert_eq!(status(node)?["flows"].as_u64(), Some(u64::from(FLOWS)));
    Ok(())
}
