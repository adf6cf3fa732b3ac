//! A node dies in the middle of a response, and another one can go on with it (RESUME).

use std::time::Duration;

use switchback_http::framing::Framing;
use switchback_wire::flow_state::{FlowState, Stream};
use switchback_wire::message::FromNode;
use switchback_wire::packet::{TcpView, bare, flags, segment, set_window};
use switchback_wire::report::pool_id;
use switchback_wire::*;

use super::model::*;
use crate::plan::NodeId;
use sb_op::*;
use sb_reason::*;
use switchback_flow::entry::Mode;

/// Longer than a node may be silent.
const LONG: Duration = Duration::from_secs(4);
/// Interval of an heir's offers.
const AGAIN: Duration = Duration::from_millis(100);
/// Bytes of the response that the heir knows the client to have, and those that it has.
const KNOWN: u32 = 300_000;
const HAS: u32 = 400_000;

/// A flow of `n1`, with the length of its request.
struct Download {
    world: World,
    len: u32,
    at_first: ToNode,
}

impl Download {
    fn new() -> Self {
        let mut world = World::new();
        world.report(node(1), "web", SB_REASON_NONE, (0, 511));
        world.report(node(3), "img", SB_REASON_NONE, (0, 511));
        let request = get("/web/a");
        let at_first = world.client_packet(&data(0, 0, &request)).remove(0);
        assert!(world.answer(&at_first, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
        assert_eq!(at_first.node, node(1));
        Download { world, len: request.len() as u32, at_first }
    }

    /// For a long time only these nodes report.
    fn hear_only(&mut self, nodes: &[(u8, &str)]) {
        let end = self.world.now + LONG;
        while self.world.now < end {
            self.world.now += LONG / 80;
            for (last, pool) in nodes {
                self.world.report(node(*last), pool, SB_REASON_NONE, (0, 511));
            }
        }
    }

    fn of_a_dead_node() -> Self {
        let mut download = Download::new();
        download.hear_only(&[(2, "web"), (3, "img")]);
        download
    }

    /// What the node says that can go on with the response, whose request is the last one.
    fn offer(&mut self, heir: NodeAddress, of: &str, gone: bool) -> Vec<ToNode> {
        let state = FlowState::read(&self.at_first.option);
        self.offer_in(heir, of, gone, state)
    }

    fn offer_in(&mut self, heir: NodeAddress, of: &str, gone: bool, state: FlowState) -> Vec<ToNode> {
        let message = FromNode::Resume { of: pool_id(of), gone, state, has: Seq(0) };
        let packet = bare(&flow(), true, state.next, SERVER + KNOWN, flags::ACK);
        self.world.handoff(heir, message.option(), &packet)
    }

    /// The client acknowledges so much of the response, behind so much that it has sent itself.
    fn acknowledge(&mut self, sent: u32, acked: u32) -> Vec<ToNode> {
        let numbers = (ORIGIN + sent, SERVER + acked);
        let mut packet = segment(&flow(), true, numbers, flags::ACK, Some((11, 22)), &[]);
        set_window(&mut packet, 77);
        self.world.client_packet(&packet)
    }

    /// The one packet that the client has been sent.
    fn asked(&mut self) -> TcpView {
        let [packet] = &self.world.to_client[..] else {
            panic!("one packet, not {:?}", self.world.to_client)
        };
        let view = TcpView::parse(packet).unwrap();
        self.world.to_client.clear();
        view
    }

    fn resumed_at(&mut self, heir: NodeAddress) -> ToNode {
        assert!(self.offer(heir, "n1", false).is_empty());
        self.asked();
        let len = self.len;
        let [adopt] = &self.acknowledge(len, HAS)[..] else { panic!("one ADOPT") };
        assert_eq!((adopt.op, adopt.node), (SB_OP_ADOPT, heir));
        adopt.clone()
    }
}

#[test]
fn a_response_goes_on_behind_what_its_client_has() {
    let mut download = Download::of_a_dead_node();
    assert!(download.offer(node(2), "n1", false).is_empty());
    let asked = download.asked();
    assert_eq!((asked.seq, asked.len()), (SERVER + KNOWN - 1u32, 0), "before what the client has");
    assert_eq!(asked.ack, ORIGIN + download.len);
    assert!(download.offer(node(2), "n1", false).is_empty());
    assert!(download.world.to_client.is_empty(), "it is being asked");
    let len = download.len;
    assert!(download.acknowledge(len, KNOWN - 1).is_empty(), "an old packet");
    assert!(download.acknowledge(len - 1, HAS).is_empty(), "a packet from before its request was whole");
    assert!(download.acknowledge(len + SB_WINDOW + 1, HAS).is_empty(), "a packet of somebody who guesses");
    let adopt = download.acknowledge(len, HAS).remove(0);
    assert_eq!((adopt.op, adopt.node), (SB_OP_ADOPT, node(2)));
    assert_eq!(u32::from(adopt.option.flags), SB_HANDOVER_RESUME);
    assert_eq!((adopt.view().seq, adopt.view().ack), (ORIGIN + download.len, SERVER + HAS));
    let at = adopt.view().tcp + 14;
    assert_eq!(
        (&adopt.packet[at..at + 2], adopt.data().len()),
        (&[0, 77][..], 0),
        "the window is the client's"
    );
    let state = FlowState::read(&adopt.option);
    let first = FlowState::read(&download.at_first.option);
    assert!(state.generation.is_newer(first.generation));
    assert_eq!((state.next, state.requests), (first.next, 1));
    // What the client says meanwhile is the heir's, too.
    assert!(download.acknowledge(len, HAS + 1).is_empty());
    let sent = download.world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE);
    let [ack] = &sent[..] else { panic!("one packet, not {sent:?}") };
    assert_eq!((ack.op, ack.node, ack.view().ack), (SB_OP_FORWARD, node(2), SERVER + HAS + 1u32));
    let entry = download.world.map[&flow()];
    assert!(entry.is_resumed() && entry.node == NodeId(1), "{entry:?}");
    assert_eq!((download.world.dispatcher.pending(), download.world.dispatcher.stats.resumed), (0, 1));
    // What the client acknowledges goes there, and the next request is asked of it first.
    let [ack] = &download.acknowledge(len, HAS + 1)[..] else { panic!("one packet") };
    assert_eq!((ack.op, ack.node), (SB_OP_FORWARD, node(2)));
    download.world.express = true;
    let request = get("/web/b");
    let [release] = &download.world.client_packet(&data(len, HAS + 9, &request))[..] else {
        panic!("one RELEASE")
    };
    assert_eq!((release.op, release.node), (SB_OP_RELEASE, node(2)));
    let sent = download.world.answer(&release.clone(), SB_OP_RELEASED, SB_REASON_NONE);
    let [adopt] = &sent[..] else { panic!("one ADOPT, not {sent:?}") };
    assert_eq!((adopt.op, adopt.option.flags & SB_HANDOVER_RESUME as u8), (SB_OP_ADOPT, 0));
    assert!(download.world.answer(&adopt.clone(), SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert!(!download.world.map[&flow()].is_resumed());
}

/// The node knows how far the client has got; what follows is read nowhere.
#[test]
fn a_response_over_tls_goes_on_in_its_tunnel() {
    let mut download = Download::of_a_dead_node();
    download.world.map.get_mut(&flow()).unwrap().mode = Mode::AtNode(Stream::Tunnel);
    let read = download.len + 777;
    let at_mark = Some((Stream::Tunnel, Framing::default()));
    let known = FlowState::read(&download.at_first.option);
    let state = FlowState { next: ORIGIN + read, at_mark, ..known };
    let requests = FlowState { next: ORIGIN + read, ..known };
    assert!(download.offer_in(node(2), "n1", false, requests).is_empty());
    assert!(download.world.to_client.is_empty(), "its stream has no requests");
    for _ in 0..2 {
        assert!(download.offer_in(node(2), "n1", false, state).is_empty());
    }
    assert_eq!(download.asked().ack, ORIGIN + read);
    let [adopt] = &download.acknowledge(read, HAS)[..] else { panic!("one ADOPT") };
    assert_eq!((adopt.op, adopt.node), (SB_OP_ADOPT, node(2)));
    assert_eq!((adopt.view().seq, adopt.view().ack), (ORIGIN + read, SERVER + HAS));
    assert_eq!(FlowState::read(&adopt.option).at_mark, at_mark);
    assert!(download.world.answer(&adopt.clone(), SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    let entry = download.world.map[&flow()];
    assert!(entry.is_tunnel() && entry.node == NodeId(1), "{entry:?}");
    assert_eq!(download.world.dispatcher.pending(), 0);
    let [more] = &download.world.client_packet(&data(read, HAS, b"no request"))[..] else {
        panic!("one packet")
    };
    assert_eq!((more.op, more.node, more.data()), (SB_OP_FORWARD, node(2), &b"no request"[..]));
}

#[test]
fn only_the_response_of_a_node_that_is_gone_goes_on() {
    let mut download = Download::new();
    download.world.report(node(2), "web", SB_REASON_NONE, (0, 511));
    assert!(download.offer(node(2), "n1", false).is_empty());
    assert_eq!((download.world.to_client.len(), download.world.dispatcher.pending()), (0, 0));
    let state = FlowState::read(&download.at_first.option);
    for other in
        [FlowState { origin: state.origin + 1u32, ..state }, FlowState { next: state.next + 1u32, ..state }]
    {
        assert!(download.offer_in(node(2), "n1", true, other).is_empty());
        assert_eq!((download.world.to_client.len(), download.world.dispatcher.pending()), (0, 0));
    }
    assert!(download.offer(node(2), "n1", true).is_empty());
    download.asked();
}

#[test]
fn a_client_that_does_not_answer_is_asked_again_and_then_forgotten() {
    let mut download = Download::of_a_dead_node();
    let start = download.world.now;
    let mut asked = Vec::new();
    assert!(download.offer(node(2), "n1", false).is_empty());
    while download.world.dispatcher.pending() > 0 {
        asked.extend(download.world.to_client.drain(..).map(|packet| TcpView::parse(&packet).unwrap().len()));
        let due = download.world.dispatcher.deadline().unwrap();
        while download.world.now + AGAIN < due {
            download.world.now += AGAIN;
            download.world.report(node(2), "web", SB_REASON_NONE, (0, 511));
            assert!(download.offer(node(2), "n1", false).is_empty());
        }
        assert!(download.world.pass().is_empty());
    }
    let took = download.world.now - start;
    assert!((Duration::from_secs(10)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert!((10..20).contains(&asked.len()), "{asked:?}");
    assert_eq!(asked[..4], [0, 1, 0, 1], "some clients answer only a packet with data");
    assert!(!download.world.map.contains_key(&flow()));
    assert_eq!(download.world.dispatcher.stats.not_resumed, 1);
}

/// The client has answered another switch, which its packets come by.
#[test]
fn an_offer_that_has_been_taken_elsewhere_is_forgotten() {
    let mut download = Download::of_a_dead_node();
    assert!(download.offer(node(2), "n1", false).is_empty());
    download.asked();
    assert!(download.world.pass().is_empty());
    assert_eq!((download.world.dispatcher.pending(), download.world.to_client.len()), (0, 0));
    assert!(!download.world.map.contains_key(&flow()));
    assert_eq!(download.world.dispatcher.stats.not_resumed, 0);
}

/// The client has answered two switches, because its way has changed, and the other one was first.
#[test]
fn a_response_that_another_switch_has_had_resumed_goes_on() {
    let mut download = Download::of_a_dead_node();
    let adopt = download.resumed_at(node(2));
    let later = FlowState {
        generation: FlowState::read(&adopt.option).generation.following(),
        ..FlowState::read(&adopt.option)
    };
    let message = FromNode::Owned { state: later, keeps: false };
    let packet = bare(&flow(), true, later.next, SERVER + HAS, flags::ACK);
    assert!(download.world.handoff(node(2), message.option(), &packet).is_empty());
    assert_eq!((download.world.dispatcher.pending(), download.world.to_client.len()), (0, 0));
    let entry = download.world.map[&flow()];
    assert_eq!((entry.node, entry.generation), (NodeId(1), later.generation));
}

#[test]
fn a_connection_is_reset_if_nobody_can_go_on() {
    let mut download = Download::of_a_dead_node();
    let adopt = download.resumed_at(node(2));
    assert!(download.world.answer(&adopt, SB_OP_REFUSED, SB_REASON_FAILED).is_empty());
    let [again] = &download.world.pass()[..] else { panic!("one ADOPT") };
    assert_eq!(
        (again.op, again.node, &again.packet),
        (SB_OP_ADOPT, node(2), &adopt.packet),
        "there may be room soon"
    );
    assert!(download.world.answer(&adopt, SB_OP_REFUSED, SB_REASON_NO_SOCKET).is_empty());
    assert_eq!(download.asked().flags & flags::RST, flags::RST);
    assert!(!download.world.map.contains_key(&flow()));
    assert_eq!(download.world.dispatcher.stats.not_resumed, 1);
}

#[test]
fn a_response_that_its_client_has_whole_is_over() {
    let mut download = Download::of_a_dead_node();
    let before = download.world.map[&flow()];
    let adopt = download.resumed_at(node(2));
    assert!(download.world.answer(&adopt, SB_OP_REFUSED, SB_REASON_SERVED).is_empty());
    assert_eq!((download.world.map[&flow()], download.world.dispatcher.pending()), (before, 0));
    assert!(download.world.to_client.is_empty());
}

/// An offer that was under way when the heir heard that the client has all of the response does no harm to the next request.
#[test]
fn a_request_behind_a_response_that_is_over_goes_on() {
    let mut download = Download::of_a_dead_node();
    let len = download.len;
    let request = get("/img/b");
    let released = download.world.client_packet(&data(len, HAS, &request));
    assert!(released.iter().all(|sent| (sent.op, sent.node) == (SB_OP_RELEASE, node(1))), "{released:?}");
    for _ in 0..2 {
        assert!(download.offer(node(2), "n1", false).is_empty());
        download.world.to_client.clear();
        let adopt = download.acknowledge(len, HAS).remove(0);
        let sent = download.world.answer(&adopt, SB_OP_REFUSED, SB_REASON_SERVED);
        assert!(sent.iter().all(|sent| (sent.op, sent.node) == (SB_OP_RELEASE, node(1))), "{sent:?}");
    }
    let adopt = loop {
        let now = download.world.dispatcher.deadline().expect("the request waits").max(download.world.now);
        download.world.now = now;
        download.world.report(node(3), "img", SB_REASON_NONE, (0, 511));
        if let Some(adopt) = download.world.pass().into_iter().find(|sent| sent.op == SB_OP_ADOPT) {
            break adopt;
        }
    };
    assert_eq!((adopt.node, adopt.data()), (node(3), &request[..]));
    let last = FlowState::read(&download.at_first.option).generation;
    assert!(FlowState::read(&adopt.option).generation.is_newer(last));
}

/// Of three nodes that have the response, two die one after the other.
#[test]
fn another_heir_goes_on_when_the_first_one_dies() {
    let mut download = Download::of_a_dead_node();
    let adopt = download.resumed_at(node(2));
    download.hear_only(&[(3, "img")]);
    assert!(download.offer(node(3), "n1", false).is_empty());
    download.asked();
    let len = download.len;
    let again = download.acknowledge(len, HAS + 5).remove(0);
    assert_eq!((again.op, again.node), (SB_OP_ADOPT, node(3)));
    let generation = |adopt: &ToNode| FlowState::read(&adopt.option).generation;
    assert!(generation(&again).is_newer(generation(&adopt)));
    assert!(download.world.answer(&again, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert_eq!(download.world.map[&flow()].node, NodeId(2));
    // The same when the first heir has gone on for a while.
    let mut download = Download::of_a_dead_node();
    let adopt = download.resumed_at(node(2));
    assert!(download.world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert!(download.offer(node(3), "n1", false).is_empty());
    assert!(download.world.to_client.is_empty(), "the response has a node");
    download.hear_only(&[(3, "img")]);
    assert!(download.offer(node(3), "n1", false).is_empty());
    download.asked();
    assert_eq!(download.acknowledge(len, HAS + 5).remove(0).node, node(3));
}

#[test]
fn a_request_that_has_come_meanwhile_follows_the_response() {
    let mut download = Download::of_a_dead_node();
    let request = get("/img/b");
    let (len, more) = (download.len, request.len() as u32);
    let asked = download.world.client_packet(&data(len, KNOWN, &request));
    assert!(asked.iter().all(|sent| (sent.op, sent.node) == (SB_OP_RELEASE, node(1))), "{asked:?}");
    assert!(download.offer(node(2), "n1", false).is_empty());
    download.world.to_client.clear();
    let adopt = download.acknowledge(len + more, HAS).remove(0);
    assert_eq!((adopt.op, adopt.node, adopt.view().seq), (SB_OP_ADOPT, node(2), ORIGIN + len));
    let sent = download.world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE);
    let [release] = &sent[..] else { panic!("one RELEASE, not {sent:?}") };
    assert_eq!((release.op, release.node), (SB_OP_RELEASE, node(2)));
    let sent = download.world.answer(&release.clone(), SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!((sent[0].op, sent[0].node, sent[0].data()), (SB_OP_ADOPT, node(3), &request[..]));
}

/// The switch that knew the flow is gone, too.
#[test]
fn a_response_goes_on_by_another_switch() {
    let mut download = Download::new();
    download.world.restart(CONFIG, true);
    download.hear_only(&[(2, "web"), (3, "img")]);
    let adopt = download.resumed_at(node(2));
    assert!(download.world.answer(&adopt, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert!(download.world.map[&flow()].is_resumed());
}
