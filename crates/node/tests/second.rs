//! A node without room passes an adoption on to another node, which answers the switch itself.

mod common;

use std::net::{IpAddr, SocketAddr};

use common::{Handoff, Result, config, counter, listen, peers, send_raw, start, wait_for_counter};
use nix::sys::socket::sockopt;
use nix::sys::time::TimeVal;
use switchback_lab::Lab;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::{handoff, read_from, sb_op, sb_option, sb_reason};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n";

#[test]
fn agent_process() {
    common::agent_process();
}

/// An ADOPT for the first node, with the second one behind its option.
fn adopt(lab: &Lab, handoff: &Handoff) -> Vec<u8> {
    let nodes = [lab.node(0), lab.node(1)].map(|node| IpAddr::V4(node.ipv4()));
    let switch = lab.switch(0).ipv4().into();
    let inner = handoff.packet(flags::ACK | flags::PSH, REQUEST);
    let mut packet = handoff.encode(sb_op::SB_OP_ADOPT, switch, nodes[0], &inner);
    let view = TcpView::parse(&inner).expect("made by `packet`");
    handoff::add_second(&mut packet, 0, &handoff.key, &peers(switch, nodes[1]), (&handoff.flow, &view));
    packet
}

#[test]
fn an_adoption_goes_to_the_second_node() -> Result<()> {
    let lab = Lab::builder().nodes(2).up()?;
    let config = config(&lab)?;
    let nodes = [lab.node(0), lab.node(1)];
    start(nodes[0], &config)?;
    start(nodes[1], &config)?;
    let ear = listen(lab.switch(0))?;
    let sent = |handoff: &Handoff| send_raw(lab.switch(0), nodes[0].ipv4().into(), &adopt(&lab, handoff));
    let answered = || -> Result<_> {
        let mut buffer = [0; 2048];
        let (len, from) = ear.recv_from(&mut buffer)?;
        let option: sb_option = read_from(&buffer[8..]).ok_or("no option")?;
        assert_eq!(usize::from(buffer[0]) * 4, size_of::<sb_option>(), "the second option is taken out");
        Ok((from.ip(), sb_op::from_number(option.op).ok_or("an operation")?, option.reason, len))
    };
    let flow = |port| {
        let client = SocketAddr::new(lab.client(0).ipv4().into(), port);
        Handoff::new(&config, client, SocketAddr::new(lab.vip4().into(), 80))
    };
    let second = IpAddr::V4(nodes[1].ipv4());

    // Nobody listens at either.
    sent(&flow(40_000)?)?;
    let refused = answered()?;
    assert_eq!((refused.0, refused.1), (second, sb_op::SB_OP_REFUSED));
    assert_eq!(refused.2, sb_reason::SB_REASON_NO_LISTENER as u8);
    assert_eq!((counter(nodes[0], "passed_on")?, counter(nodes[1], "refused_no_listener")?), (1, 1));
    assert_eq!((counter(nodes[0], "refused_no_listener")?, counter(nodes[1], "passed_on")?), (0, 0));

    let server = nodes[1].tcp_listen("[::]:80".parse()?)?;
    nix::sys::socket::setsockopt(&server, sockopt::ReceiveTimeout, &TimeVal::new(5, 0))?;
    sent(&flow(40_001)?)?;
    let adopted = answered()?;
    assert_eq!((adopted.0, adopted.1, adopted.2), (second, sb_op::SB_OP_ADOPTED, 0));
    let (_stream, client) = server.accept()?;
    assert_eq!((client.ip().to_canonical(), client.port()), (lab.client(0).ipv4().into(), 40_001));
    assert_eq!(wait_for_counter(nodes[0], "passed_on", 2)?, 2);
    // Who sends it again hears of it from the same node, even if the first one could take it now.
    let _late = nodes[0].tcp_listen("[::]:80".parse()?)?;
    sent(&flow(40_001)?)?;
    assert_eq!(answered()?.0, second);
    assert_eq!((counter(nodes[0], "adopted")?, counter(nodes[1], "adopted")?), (0, 1));
    Ok(())
}
