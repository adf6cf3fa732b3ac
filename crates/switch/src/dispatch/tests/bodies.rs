//! Bodies, ends of connections, and what the switch says itself.

use std::time::Duration;

use switchback_flow::entry::{Entry, Mode};
use switchback_flow::mark::Mark;
use switchback_http::framing::Framing;
use switchback_http::framing::generated::{SB_FRAMING_CHUNK, SB_FRAMING_NONE, SB_FRAMING_SKIP};
use switchback_wire::flow_state::Stream;
use switchback_wire::packet::{TcpView, bare, bring_up_to_date, flags, segment, timestamps};
use switchback_wire::*;

use super::cases::settled;
use super::model::*;
use sb_op::*;
use sb_reason::*;

const CHUNKED: &str = "POST /web/up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A world in which a node has a request with a chunked body, of which so much has been sent.
fn uploading(body: &str) -> (World, ToNode, u32) {
    let mut world = World::new();
    let request = [CHUNKED, body].concat();
    let sent = world.client_packet(&data(0, 0, request.as_bytes()));
    let [adopt] = &sent[..] else { panic!("one ADOPT, not {sent:?}") };
    assert!(world.answer(adopt, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert_eq!(world.dispatcher.pending(), 0);
    (world, adopt.clone(), request.len() as u32)
}

fn text(packet: &[u8]) -> String {
    let view = TcpView::parse(packet).unwrap();
    String::from_utf8_lossy(&packet[view.data..view.end]).into_owned()
}

#[test]
fn the_program_follows_chunks_and_the_next_request_is_routed() {
    let (mut world, adopt, len) = uploading("5\r\nhel");
    assert_eq!(world.map[&flow()].mark.next, ORIGIN + len + 2u32, "the chunk's data is skipped");
    let sent = world.client_packet(&data(len, 0, b"lo\r\n3\r\nabc\r\n"));
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_FORWARD, adopt.node));
    assert_ne!(sent[0].option.flow_state().framing, SB_FRAMING_NONE);
    let sent = world.client_packet(&data(len + 12, 0, b"0\r\n\r\n"));
    assert_eq!(sent[0].option.flow_state().framing, SB_FRAMING_NONE);
    assert_eq!(world.dispatcher.pending(), 0, "without the L7 thread");
    let sent = world.client_packet(&data(len + 17, 10, &get("/img/b")));
    assert_eq!(sent[0].op, SB_OP_RELEASE);
    assert_eq!(u16::from_be(sent[0].option.flow_state().requests), 1);
}

#[test]
fn a_gap_in_a_body_is_held_until_it_closes() {
    let (mut world, adopt, len) = uploading("");
    let parts = ["4\r\nabcd\r\n", "2\r\nef\r\n", "0\r\n\r\n"];
    let second = len + parts[0].len() as u32;
    for (at, part) in [(second, parts[1]), (second + parts[1].len() as u32, parts[2])] {
        // What the client is told of the gap acknowledges what comes before it, so the node is asked.
        let sent = world.client_packet(&data(at, 0, part.as_bytes()));
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_CONFIRM, adopt.node));
        assert!(world.answer(&sent[0], SB_OP_CONFIRMED, SB_REASON_NONE).is_empty());
        let report = world.to_client.pop().expect("a selective acknowledgment");
        let view = TcpView::parse(&report).unwrap();
        assert_eq!((view.ack, view.data - view.tcp), (ORIGIN + len, 20 + 12 + 12));
        assert_eq!(report[view.data - 8..view.data - 4], (ORIGIN + second).0.to_be_bytes());
    }
    let sent = world.client_packet(&data(len, 0, parts[0].as_bytes()));
    let bytes: Vec<u8> = sent.iter().flat_map(|sent| sent.data()).copied().collect();
    assert_eq!(bytes, parts.concat().as_bytes());
    assert!(sent.iter().all(|sent| sent.op == SB_OP_FORWARD && sent.node == adopt.node));
    let entry = world.map[&flow()];
    assert_eq!((world.locked.is_empty(), entry.mark.is_in_body()), (true, false));
    assert_eq!(world.dispatcher.pending(), 0);
}

#[test]
fn a_gap_that_stays_costs_no_connection() {
    let (mut world, _, len) = uploading("");
    assert_eq!(world.client_packet(&data(len + 9, 0, b"2\r\nef\r\n"))[0].op, SB_OP_CONFIRM);
    let probe = world.pass();
    assert_eq!(probe[0].op, SB_OP_PROBE, "is the mark right?");
    while world.dispatcher.pending() > 0 {
        world.pass();
    }
    assert!(world.to_client.is_empty());
    let sent = world.client_packet(&data(len, 0, b"4\r\nabcd\r\n"));
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_FORWARD));
}

#[test]
fn a_body_that_is_none_ends_in_400_once_the_node_has_given_up() {
    let (mut world, adopt, len) = uploading("3\r\nabc\r\n");
    let sent = world.client_packet(&data(len, 0, b"xyz\r\n"));
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_RELEASE, adopt.node));
    assert_ne!(sent[0].option.flags & SB_RELEASE_ABORT as u8, 0);
    assert!(world.to_client.is_empty());
    let again = world.pass();
    assert_ne!(again[0].option.flags & SB_RELEASE_ABORT as u8, 0);
    assert!(world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE).is_empty());
    assert!(text(&world.to_client[0]).starts_with("HTTP/1.1 400 "), "{}", text(&world.to_client[0]));
    assert!(text(&world.to_client[0]).contains("invalid_chunk_size"));
    assert_eq!(world.dispatcher.stats.refused_requests["invalid_chunk_size"], 1);
}

#[test]
fn in_the_middle_of_a_response_there_is_no_other_and_the_client_is_reset() {
    let (mut world, _, len) = uploading("");
    let sent = world.client_packet(&data(len, 50, b"xyz\r\n"));
    let mut option = sent[0].option;
    (option.op, option.reason) = (SB_OP_RELEASED as u8, SB_REASON_RESPONDING as u8);
    let numbers = (sent[0].view().seq, SERVER + 70u32);
    let released = segment(&flow(), true, numbers, flags::ACK, Some((11, 99)), &[]);
    assert!(world.handoff(sent[0].node, option, &released).is_empty());
    let reset = TcpView::parse(&world.to_client[0]).unwrap();
    assert_eq!((reset.seq, reset.flags), (SERVER + 70u32, flags::RST));
    assert!(world.map.is_empty() && world.dispatcher.pending() == 0);
}

#[test]
fn a_bad_body_in_the_first_packet_reaches_no_node() {
    let mut world = World::new();
    assert!(world.client_packet(&data(0, 0, [CHUNKED, "5; x\r\n"].concat().as_bytes())).is_empty());
    assert!(text(&world.to_client[0]).contains("chunk_extension"));
}

#[test]
fn a_flow_that_is_found_again_inside_a_body_goes_on_where_it_was() {
    for begun in ["ff\r\nabc", "f", "3\r\nabc", "3\r\nabc\r\n0\r\nx: y"] {
        let (world, adopt, len) = uploading(begun);
        let mut before = world.map[&flow()];
        before.mark.framing =
            before.mark.framing.with_allowed(World::new().dispatcher.plan().http_limits().body_len);
        let mut world = World::new();
        world.record(sb_record_kind::SB_RECORD_UNKNOWN, Entry::default(), &bare_ack(len));
        world.handoff(adopt.node, before.flow_state().option(SB_OP_OWNED), &bare_ack(len));
        before.mark.begins = before.mark.next;
        assert_eq!((world.map[&flow()], world.locked.len()), (before, 0), "{begun:?}");
    }
}

fn bare_ack(offset: u32) -> Vec<u8> {
    segment(&flow(), true, (ORIGIN + offset, SERVER), flags::ACK, None, &[])
}

#[test]
fn a_flow_of_which_its_node_knows_too_little_is_reset() {
    let (world, adopt, len) = uploading("");
    let framing = Framing::new(SB_FRAMING_CHUNK | SB_FRAMING_SKIP, 1 << 32);
    let known = world.map[&flow()];
    let option = Entry { mark: Mark { framing, ..known.mark }, ..known }.flow_state().option(SB_OP_OWNED);
    let mut world = World::new();
    let more = data(len, 100, b"more");
    world.record(sb_record_kind::SB_RECORD_UNKNOWN, Entry::default(), &more);
    assert!(world.handoff(adopt.node, option, &more).is_empty());
    let reset = TcpView::parse(&world.to_client[0]).unwrap();
    assert_eq!((reset.seq, reset.flags), (SERVER + 100u32, flags::RST));
    assert!(world.map.is_empty());
}

#[test]
fn http2_with_prior_knowledge_takes_the_first_route_that_asks_for_nothing_it_lacks() {
    let mut world = World::new();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let sent = world.client_packet(&data(0, 0, preface));
    assert_eq!((sent.len(), sent[0].op, sent[0].data()), (1, SB_OP_ADOPT, &preface[..]));
    assert_eq!(world.map[&flow()].mode, Mode::AtNode(Stream::Tunnel));
}

#[test]
fn http2_is_refused_where_no_route_allows_it() {
    let mut world = World::of(&CONFIG.replace("h2c = true", ""));
    assert!(world.client_packet(&data(0, 0, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).is_empty());
    assert!(text(&world.to_client[0]).starts_with("HTTP/1.1 505 "));
}

#[test]
fn a_redirect_names_the_place() {
    let mut world = World::new();
    let request = b"GET /old/a?b=c HTTP/1.1\r\nHost: shop.example.com:80\r\n\r\n";
    assert!(world.client_packet(&data(0, 0, request)).is_empty());
    let answer = text(&world.to_client[0]);
    assert!(answer.starts_with("HTTP/1.1 308 Permanent Redirect\r\n"), "{answer}");
    assert!(answer.contains("\r\nLocation: https://shop.example.com/old/a?b=c\r\n"), "{answer}");
}

#[test]
fn a_client_that_closes_in_a_head_is_told_so() {
    let mut world = World::new();
    world.client_packet(&data(0, 0, b"GET /web/a HTT"));
    world.client_packet(&bare(&flow(), true, ORIGIN + 14u32, SERVER, flags::FIN | flags::ACK));
    assert!(text(&world.to_client[0]).starts_with("HTTP/1.1 400 "));
    let view = TcpView::parse(&world.to_client[0]).unwrap();
    // With its FIN, so nothing more has to come but an acknowledgment.
    assert_eq!(view.ack, ORIGIN + 15u32);
    let end = view.end_seq() + 1u32;
    world.client_packet(&bare(&flow(), true, view.ack, end, flags::ACK));
    assert_eq!(world.to_client.len(), 1);
    assert_eq!((world.map.len(), world.dispatcher.deadline()), (0, None));
}

#[test]
fn an_answer_is_sent_until_the_client_has_it() {
    let mut world = World::new();
    world.client_packet(&data(0, 0, &get("/none")));
    world.pass();
    world.pass();
    assert_eq!(world.to_client.len(), 3);
    assert_eq!(world.to_client[0], world.to_client[2]);
    let end = SERVER + text(&world.to_client[0]).len() as u32 + 1u32;
    let next = ORIGIN + get("/none").len();
    world.client_packet(&bare(&flow(), true, next, end, flags::ACK));
    world.client_packet(&bare(&flow(), true, next, end, flags::FIN | flags::ACK));
    assert_eq!((world.map.len(), world.dispatcher.deadline()), (0, None));
}

#[test]
fn a_refusal_by_another_node_or_of_another_request_is_ignored() {
    let (mut world, adopt, len) = settled("/web/a");
    let sent = world.client_packet(&data(len, 100, &get("/web/b")));
    let late = sent[0].clone();
    world.client_packet(&data(len + get("/web/b").len() as u32, 200, &get("/web/c")));
    assert!(world.answer(&late, SB_OP_REFUSED, SB_REASON_NO_SOCKET).is_empty(), "of another request");
    let entry = world.map[&flow()];
    let mut option = entry.flow_state().option(SB_OP_REFUSED);
    option.reason = SB_REASON_NO_SOCKET as u8;
    assert!(world.handoff(node(3), option, &late.packet).is_empty(), "by another node");
    let sent = world.handoff(adopt.node, option, &late.packet);
    assert_eq!(sent[0].op, SB_OP_ADOPT);
}

#[test]
fn a_head_byte_by_byte_costs_little_memory() {
    let mut world = World::new();
    let head = format!("GET /web/{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(8000));
    let mut sent = Vec::new();
    for (index, byte) in head.bytes().enumerate() {
        assert!(sent.is_empty());
        sent = world.client_packet(&data(index as u32, 0, &[byte]));
        assert!(world.dispatcher.held() < 12_000, "{} bytes held", world.dispatcher.held());
    }
    let bytes: Vec<u8> = sent.iter().flat_map(|sent| sent.data()).copied().collect();
    assert_eq!((sent[0].op, String::from_utf8(bytes).unwrap()), (SB_OP_ADOPT, head));
}

#[test]
fn a_head_beyond_the_limit_is_431() {
    let mut world = World::new();
    world.dispatcher.plan().limits.head = 1024;
    let head = format!("GET /web/{} HTTP/1.1\r\n", "x".repeat(2000));
    world.client_packet(&data(0, 0, &head.as_bytes()[..1000]));
    assert!(world.to_client.is_empty());
    world.client_packet(&data(1000, 0, &head.as_bytes()[1000..1400]));
    assert!(text(&world.to_client[0]).starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_body_beyond_the_limit_is_413_in_one_piece_or_in_chunks() {
    let length = "POST /web/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n".to_string();
    let chunks = format!("{CHUNKED}3e8\r\n{}\r\n1\r\n", "x".repeat(1000));
    for request in [length, chunks] {
        let mut world = World::new();
        world.dispatcher.plan().limits.body = Some(1000);
        assert!(world.client_packet(&data(0, 0, request.as_bytes())).is_empty());
        assert!(text(&world.to_client[0]).starts_with("HTTP/1.1 413 "));
    }
}

#[test]
fn kernels_that_refuse_end_in_502() {
    let mut world = World::new();
    let mut sent = world.client_packet(&data(0, 0, &get("/img/a")));
    let start = world.now;
    while world.to_client.last().is_none_or(|said| text(said).is_empty()) {
        assert!(world.now < start + Duration::from_secs(5));
        sent = match sent.first() {
            Some(adopt) => world.answer(&adopt.clone(), SB_OP_REFUSED, SB_REASON_FAILED),
            None => world.pass(),
        };
    }
    assert!(text(&world.to_client[world.to_client.len() - 1]).starts_with("HTTP/1.1 502 "));
}

#[test]
fn the_slowest_client_gives_way() {
    let mut world = World::new();
    world.dispatcher.plan().limits.held = 4000;
    world.client_packet(&data(0, 0, &[b"GET /web/", &[b'x'; 900][..]].concat()));
    assert_eq!(world.dispatcher.pending(), 1);
    let held = world.dispatcher.held();
    world.record_of_another_client(&[b'x'; 900]);
    assert_eq!((world.dispatcher.pending(), world.dispatcher.stats.evicted), (1, 1));
    assert!(world.dispatcher.held() <= held + 100);
    // Its packets come again, and find room once there is some.
    world.dispatcher.plan().limits.held = 1 << 20;
    world.client_packet(&data(0, 0, &[b"GET /web/", &[b'x'; 900][..]].concat()));
    assert_eq!(world.dispatcher.pending(), 2);
}

#[test]
fn a_slow_head_is_acknowledged_before_it_comes_again() {
    let mut world = World::new();
    let head = get("/web/slow");
    world.client_packet(&data(0, 0, &head[..4]));
    world.client_packet(&data(0, 0, &head[..4]));
    assert!(world.to_client.is_empty(), "at once there is nothing to be said");
    let start = world.now;
    let kept = world.pass();
    assert_eq!(world.now - start, Duration::from_millis(150));
    assert!(world.to_client.is_empty(), "it would be lost with the switch");
    assert_eq!((kept.len(), kept[0].op, kept[0].data()), (1, SB_OP_KEEP, &head[..4]));
    world.kept(&kept[0]);
    let ack = TcpView::parse(&world.to_client[0]).unwrap();
    assert_eq!((ack.seq, ack.ack, ack.flags), (SERVER, ORIGIN + 4u32, flags::ACK));
    assert!(world.map[&flow()].ahead, "nodes are told that they are behind");
    // From now on each packet is acknowledged as soon as a node keeps it, small ones together with those before them.
    let kept = world.client_packet(&data(4, 0, &head[4..9]));
    assert_eq!((kept.len(), kept[0].op, kept[0].data()), (1, SB_OP_KEEP, &head[..9]));
    world.kept(&kept[0]);
    assert_eq!(TcpView::parse(&world.to_client[1]).unwrap().ack, ORIGIN + 9u32);
    let sent = world.client_packet(&data(9, 0, &head[9..]));
    assert_eq!((sent[0].op, sent[0].data()), (SB_OP_ADOPT, &head[..]));
    assert!(world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert_eq!(world.dispatcher.pending(), 0);
    assert!(!world.map[&flow()].ahead, "a node has it all");
}

#[test]
fn what_is_acknowledged_is_sent_until_the_node_has_it() {
    let (mut world, adopt, len) = settled("/web/a");
    let head = format!("GET /web/{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1500)).into_bytes();
    world.client_packet(&data(len, 9, &head[..4]));
    world.now += Duration::from_millis(210);
    // Before it is acknowledged: has the node everything that comes before it?
    let sent = world.client_packet(&data(len, 9, &head[..4]));
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_CONFIRM, adopt.node));
    assert!(sent[0].data().is_empty() && world.to_client.is_empty());
    let kept = world.answer(&sent[0], SB_OP_CONFIRMED, SB_REASON_NONE);
    assert_eq!((kept[0].op, kept[0].node), (SB_OP_KEEP, adopt.node));
    let sent = world.kept(&kept[0]);
    assert_eq!(sent[0].op, SB_OP_CONFIRM, "it may have gone on meanwhile");
    assert!(world.to_client.is_empty());
    assert!(world.answer(&sent[0], SB_OP_CONFIRMED, SB_REASON_NONE).is_empty());
    let ack = TcpView::parse(&world.to_client[0]).unwrap();
    assert_eq!((ack.seq, ack.ack), (SERVER + 9u32, ORIGIN + len + 4u32));
    // Meanwhile the node has sent more, and its clock has gone on: the client takes nothing that seems older.
    let sent = world.client_packet(&data(len + 4, 9, &head[4..1000]));
    let kept = world.answer(&sent[0], SB_OP_CONFIRMED, SB_REASON_NONE);
    let sent = world.kept(&kept[0]);
    let mut said = sent[0].packet.clone();
    let mut view = TcpView::parse(&said).unwrap();
    bring_up_to_date(&mut said, &mut view, SERVER + 700u32, Some(5000));
    let option = answered(&sent[0].option, SB_OP_CONFIRMED, SB_REASON_NONE);
    assert!(world.handoff(sent[0].node, option, &said).is_empty());
    let ack = TcpView::parse(&world.to_client[1]).unwrap();
    assert_eq!((ack.seq, ack.ack), (SERVER + 700u32, ORIGIN + len + 1000u32));
    assert_eq!(timestamps(&world.to_client[1], &ack).map(|(clock, _)| clock), Some(5000));
    // No window of a node's reaches farther from where the node is.
    let said = &world.to_client[1][ack.tcp + 14..ack.tcp + 16];
    let scale = world.map[&flow()].handshake.own_scale();
    let edge = ack.ack + (u32::from(u16::from_be_bytes([said[0], said[1]])) << scale);
    let farthest = ORIGIN + len + (SB_WINDOW >> scale << scale);
    assert!(!edge.after(farthest) && (edge + (1u32 << scale)).after(farthest), "{edge:?} of {farthest:?}");
    let sent = world.client_packet(&data(len + 1000, 9, &head[1000..]));
    let (question, parts) = sent.split_last().unwrap();
    assert!(question.op == SB_OP_CONFIRM && question.data().is_empty());
    assert!(parts.len() > 1 && parts.iter().all(|sent| sent.op == SB_OP_FORWARD));
    let again = world.pass();
    assert_eq!(again[again.len() - 1].op, SB_OP_CONFIRM);
    // The rest, too: the switch could not read it without the beginning.
    assert_eq!(again.iter().flat_map(|sent| sent.data()).copied().collect::<Vec<_>>(), head);
    assert!(world.answer(&again[again.len() - 1], SB_OP_CONFIRMED, SB_REASON_NONE).is_empty());
    assert_eq!(world.dispatcher.pending(), 0);
}

#[test]
fn what_may_have_been_answered_already_is_not_given_to_another_node() {
    // How often the request has been sent when the node says that it has no socket for it.
    for (times, goes_on) in [(1, true), (2, false)] {
        let (mut world, _, len) = settled("/web/a");
        let head = get("/web/slow");
        world.client_packet(&data(len, 9, &head[..4]));
        world.now += Duration::from_millis(210);
        let asked = world.client_packet(&data(len, 9, &head[..4]));
        let kept = world.answer(&asked[0], SB_OP_CONFIRMED, SB_REASON_NONE);
        let asked = world.kept(&kept[0]);
        world.answer(&asked[0], SB_OP_CONFIRMED, SB_REASON_NONE);
        let mut sent = world.client_packet(&data(len + 4, 9, &head[4..]));
        assert_eq!((sent[0].op, world.dispatcher.pending()), (SB_OP_FORWARD, 1));
        if times == 2 {
            sent = world.pass();
        }
        let before = world.to_client.len();
        let again = world.answer(&sent[0], SB_OP_REFUSED, SB_REASON_NO_SOCKET);
        assert_eq!(again.first().map(|sent| sent.op), goes_on.then_some(SB_OP_ADOPT), "sent {times} times");
        let said = world.to_client[before..].iter().map(|packet| TcpView::parse(packet).unwrap().flags);
        assert_eq!(said.collect::<Vec<_>>(), if goes_on { vec![] } else { vec![flags::RST] });
        assert_eq!(world.dispatcher.pending(), usize::from(goes_on));
    }
}

#[test]
fn a_long_body_goes_on_when_the_node_has_come_that_far() {
    const LEN: u64 = 3 << 29;
    let head = format!("PUT /web/up HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n");
    let mut world = World::new();
    let sent = world.client_packet(&data(0, 0, head.as_bytes()));
    let node = sent[0].node;
    world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
    let start = head.len() as u32;
    let mark = |world: &World| world.map[&flow()].mark.next - (ORIGIN + start);
    assert_eq!(mark(&world), 1 << 29);
    // Whoever says that he has come so far: the packet goes to the node, and the node is asked.
    let near = start + (1 << 29) - 100;
    let sent = world.client_packet(&data(near, 0, b"x"));
    let ops: Vec<_> = sent.iter().map(|sent| (sent.op, sent.node)).collect();
    assert_eq!(ops, [(SB_OP_FORWARD, node), (SB_OP_CONFIRM, node)]);
    assert_eq!((mark(&world), world.dispatcher.pending()), (1 << 29, 0));
    let due = ORIGIN + start + (1u32 << 29) - (1 << 28) - (1 << 26);
    assert_eq!((sent[1].view().seq, sent[1].data().len()), (due, 0));
    assert!(world.answer(&sent[1], SB_OP_CONFIRMED, SB_REASON_NONE).is_empty());
    assert_eq!(mark(&world), 2 << 29);
    // The same answer once more says nothing new.
    assert!(world.answer(&sent[1], SB_OP_CONFIRMED, SB_REASON_NONE).is_empty());
    assert_eq!(mark(&world), 2 << 29);
    // Data beyond the mark waits for the node's word.
    let beyond = start + (2 << 29);
    let asked = world.client_packet(&data(beyond, 0, b"yz"));
    assert_eq!((asked.len(), asked[0].op, world.dispatcher.pending()), (1, SB_OP_CONFIRM, 1));
    let sent = world.answer(&asked[0], SB_OP_CONFIRMED, SB_REASON_NONE);
    assert_eq!((sent.len(), sent[0].op, sent[0].data()), (1, SB_OP_FORWARD, &b"yz"[..]));
    let entry = world.map[&flow()];
    assert_eq!((mark(&world), entry.mark.is_in_body()), (3 << 29, false));
}
