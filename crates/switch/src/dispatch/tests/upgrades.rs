//! What follows a request that looks like the last one of HTTP/1 on its connection.

use switchback_flow::entry::{Entry, Mode};
use switchback_wire::flow_state::Stream;
use switchback_wire::packet::{TcpView, flags};
use switchback_wire::*;

use super::model::*;
use sb_op::*;
use sb_reason::*;

fn with_fields(fields: &str) -> Vec<u8> {
    format!("GET /web/a HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

fn websocket() -> Vec<u8> {
    with_fields("Connection: Upgrade\r\nUpgrade: websocket\r\n")
}

/// The request is with its node.
fn asked_for(request: &[u8]) -> (World, ToNode, u32) {
    let mut world = World::new();
    let adopt = world.client_packet(&data(0, 0, request)).remove(0);
    assert!(world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    (world, adopt, request.len() as u32)
}

/// The node says what comes at the mark.
fn owned(world: &mut World, asked: &ToNode, stream: Stream) -> Vec<ToNode> {
    let entry = Entry { mode: Mode::AtNode(stream), ..world.map[&flow()] };
    world.handoff(asked.node, entry.flow_state().option(SB_OP_OWNED), &asked.packet)
}

#[test]
fn a_request_behind_one_that_looks_like_the_last_is_routed() {
    for request in [
        with_fields("Connection: close\r\n"),
        with_fields("Connection: keep-alive\r\nConnection: close\r\n"),
        b"GET /web/a HTTP/1.0\r\nHost: a\r\n\r\n".to_vec(),
        with_fields("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"),
        with_fields("Connection: Upgrade\r\nUpgrade: websocket, H2C\r\n"),
        with_fields("Connection: Upgrade\r\nUpgrade: foo\r\nUpgrade: HTTP/2.0\r\n"),
    ] {
        let (mut world, adopt, len) = asked_for(&request);
        let sent = world.client_packet(&data(len, 100, &get("/img/b")));
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_RELEASE, adopt.node));
        // In one flight with it, too.
        let mut world = World::new();
        let adopt = world.client_packet(&data(0, 0, &[&request[..], &get("/img/b")].concat())).remove(0);
        let sent = world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE);
        assert_eq!((sent.len(), sent[0].op, adopt.data()), (1, SB_OP_RELEASE, &request[..]));
    }
}

#[test]
fn behind_an_upgrade_the_node_is_asked_until_it_knows() {
    let (mut world, adopt, len) = asked_for(&websocket());
    let asked = world.client_packet(&data(len, 100, &get("/img/b"))).remove(0);
    assert_eq!((asked.op, asked.node, asked.data().len()), (SB_OP_PROBE, adopt.node, 0));
    let mut waits = Vec::new();
    for _ in 0..3 {
        let before = world.now;
        assert!(owned(&mut world, &asked, Stream::Upgrading).is_empty());
        let again = world.pass();
        assert_eq!((again.len(), again[0].op), (1, SB_OP_PROBE));
        waits.push(world.now - before);
    }
    assert!(waits.is_sorted());
    let sent = owned(&mut world, &asked, Stream::Requests);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_RELEASE, adopt.node));
}

#[test]
fn what_a_server_has_agreed_to_is_not_read() {
    let (mut world, adopt, len) = asked_for(&websocket());
    let asked = world.client_packet(&data(len, 100, b"\x81\x85frame")).remove(0);
    let sent = owned(&mut world, &asked, Stream::Tunnel);
    assert_eq!((sent.len(), sent[0].op, sent[0].data()), (1, SB_OP_FORWARD, &b"\x81\x85frame"[..]));
    let sent = world.client_packet(&data(len + 7, 100, &get("/img/b")));
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_FORWARD, adopt.node));
    assert_eq!(world.dispatcher.pending(), 0);
}

/// Another switch has got frames in between.
#[test]
fn a_server_may_have_agreed_behind_this_switchs_back() {
    let mut world = World::of_several(CONFIG, 0);
    let request = websocket();
    let adopt = world.client_packet(&data(0, 0, &request)).remove(0);
    assert!(world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    let further = data(request.len() as u32 + 500, 200, b"frame");
    let mut asked = world.client_packet(&further);
    asked.extend(world.pass());
    let probe = asked.iter().find(|asked| asked.op == SB_OP_PROBE).expect("the node is asked");
    let sent = owned(&mut world, probe, Stream::Tunnel);
    assert_eq!((sent.len(), sent[0].op, sent[0].data()), (1, SB_OP_FORWARD, &b"frame"[..]));
    assert_eq!((world.dispatcher.pending(), world.map[&flow()].is_tunnel()), (0, true));
}

#[test]
fn a_node_that_has_not_got_the_request_knows_nothing_of_the_answer() {
    let first = get("/web/a");
    let (mut world, adopt, len) = asked_for(&first);
    let before = world.map[&flow()];
    world.client_packet(&data(len, 100, &websocket()));
    let len = len + websocket().len() as u32;
    let asked = world.client_packet(&data(len, 100, b"frame")).remove(0);
    let late = before.flow_state().option(SB_OP_OWNED);
    assert!(world.handoff(adopt.node, late, &asked.packet).is_empty());
    assert_eq!(world.map[&flow()].mode, Mode::AtNode(Stream::Upgrading));
    assert_eq!(world.pass()[0].op, SB_OP_PROBE);
}

#[test]
fn a_node_that_does_not_say_costs_the_connection() {
    let (mut world, _, len) = asked_for(&websocket());
    world.client_packet(&data(len, 100, b"frame"));
    while world.dispatcher.pending() > 0 {
        assert!(world.pass().iter().all(|sent| sent.op == SB_OP_PROBE));
    }
    assert_eq!(TcpView::parse(world.to_client.last().unwrap()).unwrap().flags, flags::RST);
}

#[test]
fn an_upgrade_with_a_body_is_decided_behind_it() {
    let request = with_fields("Connection: Upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n");
    let (mut world, adopt, len) = asked_for(&request);
    let sent = world.client_packet(&data(len, 0, b"3\r\nabc\r\n0\r\n\r\n"));
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_FORWARD, adopt.node));
    assert_eq!(u16::from_be(sent[0].option.flow_state().framing), SB_MARK_UPGRADING);
    let sent = world.client_packet(&data(len + 13, 0, &get("/img/b")));
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_PROBE));
}

#[test]
fn a_flow_that_is_found_again_is_what_its_node_says() {
    for stream in [Stream::Requests, Stream::Upgrading, Stream::Tunnel] {
        let (mut world, adopt, len) = asked_for(&websocket());
        let entry = Entry { mode: Mode::AtNode(stream), ..world.map[&flow()] };
        world.restart(CONFIG, true);
        let packet = data(len, 100, &get("/img/b"));
        assert_eq!(world.client_packet(&packet).len(), 3, "all nodes are asked");
        let sent = world.handoff(adopt.node, entry.flow_state().option(SB_OP_OWNED), &packet);
        let expected = match stream {
            Stream::Requests => SB_OP_RELEASE,
            Stream::Upgrading => SB_OP_PROBE,
            _ => SB_OP_FORWARD,
        };
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, expected, adopt.node), "{stream:?}");
        assert_eq!(world.map[&flow()].mode, Mode::AtNode(stream));
    }
}
