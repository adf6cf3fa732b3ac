//! One behaviour each.

use std::time::Duration;

use switchback_flow::entry::{Entry, Mode};
use switchback_wire::flow_state::Stream;
use switchback_wire::packet::{TcpView, bare, flags, segment, timestamps};
use switchback_wire::*;

use super::model::*;
use crate::dispatch::Moment;
use sb_op::*;
use sb_reason::*;
use switchback_flow::request::TRIES;

const REQUEST: u8 = SB_HANDOVER_REQUEST as u8;
const READ: u8 = SB_HANDOVER_READ as u8;

/// A world in which the flow has made one request, and the node that has it now.
pub fn settled(path: &str) -> (World, ToNode, u32) {
    let mut world = World::new();
    let request = get(path);
    let sent = world.client_packet(&data(0, 0, &request));
    let [adopt] = &sent[..] else { panic!("one ADOPT, not {sent:?}") };
    assert_eq!(adopt.op, SB_OP_ADOPT);
    assert!(world.answer(adopt, SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    (world, adopt.clone(), request.len() as u32)
}

#[test]
fn a_first_request_is_adopted_and_asked_again_until_it_is() {
    let mut world = World::new();
    let request = get("/img/a");
    let sent = world.client_packet(&data(0, 0, &request));
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].op, sent[0].node, sent[0].data()), (SB_OP_ADOPT, node(3), &request[..]));
    assert_eq!(Seq::from_be(sent[0].option.flow_state().next), ORIGIN + request.len());
    assert_eq!(world.map[&flow()].mode, Mode::AtNode(Stream::Requests));
    let again = world.pass();
    assert_eq!((again.len(), again[0].op, again[0].data()), (1, SB_OP_ADOPT, &request[..]));
    assert!(world.answer(&again[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert_eq!((world.dispatcher.pending(), world.dispatcher.deadline()), (0, None));
    assert_eq!(world.dispatcher.stats.nodes[2].adopted, 1);
}

#[test]
fn the_next_request_for_the_same_pool_is_forwarded_at_once() {
    let (mut world, adopt, len) = settled("/web/a");
    let sent = world.client_packet(&data(len, 100, &get("/web/b")));
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].op, sent[0].node, sent[0].option.flags & REQUEST),
        (SB_OP_FORWARD, adopt.node, REQUEST)
    );
    assert_eq!(world.dispatcher.pending(), 0);
}

#[test]
fn the_next_request_for_another_pool_releases_first() {
    let (mut world, adopt, len) = settled("/web/a");
    let sent = world.client_packet(&data(len, 100, &get("/img/b")));
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_RELEASE, adopt.node));
    assert!(sent[0].data().is_empty(), "the old node has no use for the request");
    assert_eq!(sent[0].view().ack, SERVER + 100u32);
    let sent = world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(3)));
    assert_eq!(sent[0].data(), get("/img/b"));
}

#[test]
fn a_head_in_three_packets_waits_unacknowledged_in_any_order() {
    let request = get("/img/long");
    for order in [[0, 1, 2], [0, 2, 1]] {
        let mut world = World::new();
        let parts = [(0, 5), (5, 20), (20, request.len())];
        let mut sent = Vec::new();
        for part in order {
            let (from, to) = parts[part];
            assert!(sent.is_empty());
            sent = world.client_packet(&data(from as u32, 0, &request[from..to]));
        }
        let ops: Vec<_> = sent.iter().map(|sent| sent.op).collect();
        let joined = if order == [0, 1, 2] { &[SB_OP_ADOPT][..] } else { &[SB_OP_ADOPT, SB_OP_FORWARD] };
        assert_eq!(ops, joined);
        let bytes: Vec<u8> = sent.iter().flat_map(|sent| sent.data()).copied().collect();
        assert_eq!(bytes, request);
    }
}

#[test]
fn a_pipelined_request_for_another_pool_is_cut_off_and_waits() {
    let mut world = World::new();
    let (first, second) = (get("/web/a"), get("/img/b"));
    let sent = world.client_packet(&data(0, 0, &[&first[..], &second].concat()));
    assert_eq!((sent.len(), sent[0].data()), (1, &first[..]));
    let sent = world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_RELEASE));
    assert_eq!(sent[0].view().seq, ORIGIN + first.len());
    let busy = world.answer(&sent[0], SB_OP_BUSY, SB_REASON_NONE);
    assert!(busy.is_empty(), "asks again later, not at once");
    let sent = world.pass();
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_RELEASE));
    let sent = world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!((sent[0].op, sent[0].data()), (SB_OP_ADOPT, &second[..]));
}

#[test]
fn a_request_sent_too_early_goes_on_where_the_response_ended() {
    let (mut world, adopt, len) = settled("/web/a");
    let sent = world.client_packet(&data(len, 100, &get("/img/b")));
    let numbers = (sent[0].view().seq, SERVER + 5000u32);
    let released = segment(&flow(), true, numbers, flags::ACK, Some((11, 99)), &[]);
    let known = world.map[&flow()].flow_state();
    let round_trip = 5 << SB_ROUND_TRIP_SHIFT;
    let option = known.option(SB_OP_RELEASED).with(|flow: &mut sb_flow_state| flow.options = round_trip);
    let sent = world.handoff(adopt.node, option, &released);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(3)));
    assert_eq!(sent[0].option.flow_state().options, known.handshake.options | round_trip);
    assert_eq!((sent[0].view().ack, sent[0].data()), (SERVER + 5000u32, &get("/img/b")[..]));
    assert_eq!(timestamps(&sent[0].packet, &sent[0].view()), Some((11, 99)));
}

#[test]
fn a_late_answer_to_an_earlier_question_is_ignored() {
    let (mut world, adopt, len) = settled("/web/a");
    let old = world.client_packet(&data(len, 100, &get("/img/b")));
    world.answer(&old[0], SB_OP_BUSY, SB_REASON_CLOSING);
    let offset = len + get("/img/b").len() as u32;
    world.map.get_mut(&flow()).unwrap().mark.next = ORIGIN + offset;
    let sent = world.client_packet(&data(offset, 200, &get("/img/c")));
    assert_eq!((sent[0].op, sent[0].node), (SB_OP_RELEASE, adopt.node));
    assert!(world.answer(&old[0], SB_OP_RELEASED, SB_REASON_NONE).is_empty());
    assert_eq!(world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE)[0].op, SB_OP_ADOPT);
}

#[test]
fn a_full_node_is_passed_over_and_full_pools_end_in_503() {
    let mut world = World::new();
    let mut sent = world.client_packet(&data(0, 0, &get("/web/a")));
    let first = sent[0].node;
    sent = world.answer(&sent[0], SB_OP_REFUSED, SB_REASON_QUEUE_FULL);
    assert_eq!(sent[0].op, SB_OP_ADOPT);
    assert_ne!(sent[0].node, first);
    let start = world.now;
    // Until the answer, the client gets an acknowledgment at the most.
    let is_answer = |said: &Vec<u8>| !TcpView::parse(said).unwrap().is_empty();
    while !world.to_client.last().is_some_and(is_answer) {
        sent = match sent.first() {
            Some(adopt) => world.answer(&adopt.clone(), SB_OP_REFUSED, SB_REASON_QUEUE_FULL),
            None => world.pass(),
        };
    }
    let waited = world.now - start;
    assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&waited), "{waited:?}");
    let text = String::from_utf8_lossy(&world.to_client[world.to_client.len() - 1]).into_owned();
    assert!(text.contains("HTTP/1.1 503 ") && text.contains("Retry-After: 1\r\n"), "{text}");
}

#[test]
fn a_silent_node_is_given_up_after_some_attempts() {
    let mut world = World::new();
    let first = world.client_packet(&data(0, 0, &get("/web/a")))[0].node;
    let start = world.now;
    let second = loop {
        let sent = world.pass();
        if sent[0].node != first {
            break sent[0].clone();
        }
    };
    assert_eq!(second.op, SB_OP_ADOPT);
    let waited = world.now - start;
    assert!((Duration::from_millis(500)..Duration::from_secs(1)).contains(&waited), "{waited:?}");
}

#[test]
fn a_refused_request_without_socket_is_adopted_anew() {
    let (mut world, _, len) = settled("/web/a");
    let request = get("/web/b");
    let sent = world.client_packet(&data(len, 100, &request));
    let sent = world.answer(&sent[0], SB_OP_REFUSED, SB_REASON_NO_SOCKET);
    assert_eq!((sent.len(), sent[0].op, sent[0].data()), (1, SB_OP_ADOPT, &request[..]));
    assert_eq!(sent[0].option.flow_state().mss, 1460u16.to_be());
}

#[test]
fn a_server_that_closes_says_so_itself_and_gets_no_request_for_another_pool() {
    let (mut world, adopt, len) = settled("/web/a");
    let before = world.map[&flow()];
    for request in [&get("/img/b")[..], b"GET / HTTP/9.9\r\n"] {
        let sent = world.client_packet(&data(len, 100, request));
        assert_eq!((sent[0].op, sent[0].node), (SB_OP_RELEASE, adopt.node));
        assert!(world.answer(&sent[0], SB_OP_BUSY, SB_REASON_CLOSING).is_empty());
        assert_eq!((world.dispatcher.pending(), world.to_client.len()), (0, 0));
        assert_eq!(world.map[&flow()], before, "it is asked again when the client sends again");
    }
}

#[test]
fn a_record_older_than_the_flow_map_is_understood() {
    let (mut world, adopt, len) = settled("/web/a");
    let stale = world.map[&flow()];
    let (b, c) = (get("/web/b"), get("/web/c"));
    world.record(sb_record_kind::SB_RECORD_REQUEST, stale, &data(len, 100, &b));
    let offset = len + b.len() as u32;
    let sent = world.record(sb_record_kind::SB_RECORD_REQUEST, stale, &data(offset, 100, &c));
    assert_eq!(
        (sent.len(), sent[0].op, sent[0].node, sent[0].data()),
        (1, SB_OP_FORWARD, adopt.node, &c[..])
    );
    assert_eq!(world.dispatcher.pending(), 0);
}

#[test]
fn a_retransmission_across_the_mark_is_split() {
    let (mut world, adopt, len) = settled("/web/a");
    let both = [get("/web/a"), get("/web/b")].concat();
    let sent = world.client_packet(&data(10, 100, &both[10..]));
    let parts: Vec<_> =
        sent.iter().map(|sent| (sent.node, sent.data().to_vec(), sent.option.flags & REQUEST)).collect();
    let (old, new) = both[10..].split_at(len as usize - 10);
    assert_eq!(parts, [(adopt.node, old.to_vec(), 0), (adopt.node, new.to_vec(), REQUEST)]);
}

#[test]
fn a_body_moves_the_mark_without_being_seen() {
    let mut world = World::new();
    let head = b"POST /web/up HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let sent = world.client_packet(&data(0, 0, head));
    world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
    assert_eq!(world.map[&flow()].mark.next, ORIGIN + head.len() as u32 + 100_000u32);
    let sent = world.client_packet(&data(head.len() as u32 + 50_000, 0, &[b'x'; 1000]));
    assert_eq!((sent.len(), sent[0].op, sent[0].option.flags & REQUEST), (1, SB_OP_FORWARD, 0));
}

#[test]
fn a_bad_head_is_answered_as_often_as_it_comes() {
    let mut world = World::new();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n";
    assert!(world.client_packet(&data(0, 0, request)).is_empty());
    assert!(world.client_packet(&data(0, 0, request)).is_empty());
    let [first, second] = &world.to_client[..] else { panic!("two answers, not {}", world.to_client.len()) };
    assert_eq!(first, second);
    let view = TcpView::parse(first).unwrap();
    assert_eq!((view.seq, view.ack), (SERVER, ORIGIN + request.len()));
    assert_eq!(view.flags, flags::FIN | flags::PSH | flags::ACK);
    assert_eq!(timestamps(first, &view), Some((22, 11)));
    assert!(String::from_utf8_lossy(&first[view.data..]).starts_with("HTTP/1.1 400 Bad Request\r\n"));
    let fin = bare(&flow(), true, view.ack, view.seq + view.len() as u32 + 1u32, flags::FIN | flags::ACK);
    world.client_packet(&fin);
    let last = TcpView::parse(&world.to_client[2]).unwrap();
    assert_eq!((last.ack, last.flags), (view.ack + 1u32, flags::ACK));
    assert!(world.map.is_empty() && world.dispatcher.deadline().is_none());
}

#[test]
fn no_route_is_404_once_the_node_has_released_the_flow() {
    let (mut world, _, len) = settled("/web/a");
    let sent = world.client_packet(&data(len, 100, &get("/none")));
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_RELEASE));
    assert!(world.to_client.is_empty());
    world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE);
    assert!(String::from_utf8_lossy(&world.to_client[0]).contains("HTTP/1.1 404 "));
    assert_eq!(TcpView::parse(&world.to_client[0]).unwrap().seq, SERVER + 100u32);
}

/// On a busy machine a record can wait for longer than the dispatcher remembers what it has done.
#[test]
fn a_copy_that_has_waited_long_begins_nothing() {
    let held = Entry::new(ORIGIN);
    let request = data(0, 0, &get("/web/"));
    let kind = sb_record_kind::SB_RECORD_REQUEST;
    let mut world = World::new();
    let adopt = world.client_packet(&request);
    world.answer(&adopt[0], SB_OP_ADOPTED, SB_REASON_NONE);
    world.now += Duration::from_secs(1);
    let sent = world.record(kind, held, &request);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_FORWARD, adopt[0].node));
    // The connection is over, or another one has begun.
    world.closed();
    world.now += Duration::from_secs(1);
    assert!(world.record(kind, held, &request).is_empty());
    world.map.insert(flow(), Entry::new(ORIGIN + 5000u32));
    assert!(world.record(kind, held, &request).is_empty());
}

#[test]
fn a_slow_head_is_408() {
    let mut world = World::new();
    world.client_packet(&data(0, 0, b"GET / HT"));
    let start = world.now;
    let kept = world.pass();
    world.kept(&kept[0]);
    world.pass();
    assert_eq!(world.now - start, Duration::from_secs(10));
    assert!(String::from_utf8_lossy(&world.to_client[1]).contains("HTTP/1.1 408 "));
}

/// Some clients end a body with one that its length does not count (RFC 9112 section 2.2).
#[test]
fn an_empty_line_behind_a_request_is_no_slow_head() {
    let (mut world, adopt, len) = settled("/web/a");
    assert!(world.client_packet(&data(len, 100, b"\r\n")).is_empty());
    while world.dispatcher.pending() > 0 {
        let sent = world.pass();
        let questions = [SB_OP_PROBE, SB_OP_CONFIRM];
        assert!(sent.iter().all(|sent| questions.contains(&sent.op)), "{sent:?}");
    }
    assert!(world.to_client.iter().all(|packet| TcpView::parse(packet).unwrap().is_empty()));
    let request = [b"\r\n", &get("/web/b")[..]].concat();
    let sent = world.client_packet(&data(len, 100, &request));
    assert_eq!(
        (sent.len(), sent[0].op, sent[0].node, sent[0].data()),
        (1, SB_OP_FORWARD, adopt.node, &request[..])
    );
}

#[test]
fn a_refused_head_has_no_content_behind_an_empty_line_either() {
    let mut world = World::new();
    world.client_packet(&data(0, 0, b"\r\nHEAD /web/a HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n"));
    let text = String::from_utf8_lossy(&world.to_client[0]).into_owned();
    assert!(text.contains("HTTP/1.1 400 ") && text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn a_flow_in_a_mode_of_another_version_is_unknown() {
    let entry = sb_flow_entry { mode: u8::MAX, ..Default::default() };
    for kind in [sb_record_kind::SB_RECORD_REQUEST, sb_record_kind::SB_RECORD_FORWARD] {
        let mut world = World::new();
        let record = sb_record { kind: kind as u32, flow: flow(), entry, ..Default::default() };
        let at = Moment { now: world.now, map: &|_| None, take: &crate::dispatch::unlimited };
        world.dispatcher.on_record(at, &record, &data(0, 0, &get("/web/a")));
        assert_eq!(world.flush().iter().map(|sent| sent.op).collect::<Vec<_>>(), [SB_OP_PROBE; 3]);
    }
}

#[test]
fn an_unknown_flow_is_asked_for_and_taken_up_again() {
    let (mut world, adopt, len) = settled("/web/a");
    let mut entry = world.map[&flow()];
    world = World::new();
    let request = data(len, 100, &get("/web/b"));
    let sent = world.record(sb_record_kind::SB_RECORD_UNKNOWN, Entry::default(), &request);
    assert_eq!(sent.iter().map(|sent| sent.op).collect::<Vec<_>>(), [SB_OP_PROBE; 3]);
    assert!(sent.iter().all(|sent| sent.data().is_empty()), "a question goes without data");
    assert!(world.record(sb_record_kind::SB_RECORD_UNKNOWN, Entry::default(), &request).is_empty());
    let option = entry.flow_state().option(SB_OP_OWNED);
    let sent = world.handoff(adopt.node, option, &sent[0].packet);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_FORWARD, adopt.node));
    entry.mark.begins = entry.mark.next;
    entry.mark.next += get("/web/b").len();
    entry.mark.requests += 1;
    assert_eq!(world.map[&flow()], entry);
}

#[test]
fn a_flow_that_nobody_owns_is_reset_after_a_while() {
    let mut world = World::new();
    let ack = bare(&flow(), true, Seq(5), Seq(6), flags::ACK);
    let unknown = sb_record_kind::SB_RECORD_UNKNOWN;
    for _ in 0..2 {
        assert!(world.to_client.is_empty());
        let asked = world.record(unknown, Entry::default(), &ack);
        assert_eq!(asked.len(), 3);
        for asked in &asked {
            assert!(world.answer(asked, SB_OP_UNOWNED, SB_REASON_NONE).is_empty());
        }
        world.now += Duration::from_millis(600);
    }
    let view = TcpView::parse(&world.to_client[0]).unwrap();
    assert_eq!((view.seq, view.flags), (Seq(6), flags::RST));
}

#[test]
fn held_bytes_are_bounded() {
    let mut world = World::new();
    world.client_packet(&data(0, 0, b"GET /web/a HTTP/1.1\r\n"));
    for i in 0..1000u32 {
        world.client_packet(&data(100 + i * 200, 0, &[b'x'; 100]));
    }
    assert!(world.dispatcher.stats.dropped_flow_full > 0);
    assert!(world.dispatcher.held() <= 66 << 10, "{}", world.dispatcher.held());
    // What is missing is let in, and what lies farthest beyond it goes.
    world.client_packet(&data(21, 0, &[b'x'; 79]));
    assert!(world.dispatcher.held() <= 66 << 10, "{}", world.dispatcher.held());
    let asked = world.client_packet(&data(200, 0, &[b'x'; 100]));
    assert!(asked.is_empty());
    let acknowledged = TcpView::parse(world.to_client.last().expect("a report of the gap")).unwrap();
    assert_eq!(acknowledged.ack, ORIGIN, "nothing is acknowledged so early");
}

#[test]
fn an_end_that_is_known_before_the_adoption_leaves_no_entry() {
    let mut world = World::new();
    let last = b"GET /web/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let sent = world.client_packet(&data(0, 0, last));
    // CLOSED, which the program deals with, while ADOPTED waits in a ring.
    world.map.clear();
    assert!(world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert!(world.map.is_empty() && world.dispatcher.pending() == 0, "{:?}", world.map);
}

#[test]
fn a_new_connection_is_not_given_the_entry_of_an_old_one() {
    let (mut world, _, len) = settled("/web/a");
    world.lagging = true;
    world.client_packet(&data(len, 100, &get("/web/b")));
    world.client_packet(&data(len + 30, 100, &get("/web/c")));
    // A SYN, and the first packet of another connection.
    let new = Entry::new(Seq(5));
    world.map.insert(flow(), new);
    world.drain();
    assert_eq!(world.map[&flow()], new);
    // Nor is it ended by the old one's end.
    while world.dispatcher.pending() > 0 {
        world.pass();
    }
    assert_eq!(world.map[&flow()], new);
}

#[test]
fn a_late_record_of_an_old_connection_does_not_disturb_the_new_one() {
    let (mut world, _, len) = settled("/web/a");
    let old = world.map[&flow()];
    let new = Entry::new(Seq(5));
    world.map.insert(flow(), new);
    let request = sb_record_kind::SB_RECORD_REQUEST;
    let first = segment(&flow(), true, (Seq(5), SERVER), flags::ACK, None, b"GET /img/a HTTP/1.1\r\nHost");
    assert!(world.record(request, new, &first).is_empty());
    assert!(world.record(request, old, &data(len, 100, &get("/web/b"))).is_empty());
    let rest = segment(&flow(), true, (Seq(5 + 25), SERVER), flags::ACK, None, b": a\r\n\r\n");
    let sent = world.record(request, new, &rest);
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(3)));
}

#[test]
fn a_late_copy_of_the_first_request_is_asked_about() {
    let mut world = World::new();
    let last = data(0, 0, b"GET /web/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let sent = world.client_packet(&last);
    world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
    world.map.clear();
    let ops: Vec<_> = world.client_packet(&last).iter().map(|sent| sent.op).collect();
    assert_eq!(ops, [SB_OP_PROBE; 3]);
    while world.dispatcher.pending() > 0 {
        world.pass();
    }
    assert!(world.map.is_empty());
}

/// Its node has answered the request, and closed; all that this thread would hear of it waits in a ring.
#[test]
fn a_connection_that_is_over_is_adopted_no_more() {
    for (late, others) in [(None, None), (Some(SB_OP_REFUSED), None), (None, Some(Seq(5)))] {
        let mut world = World::new();
        let adopt = world.client_packet(&data(0, 0, &get("/web/a"))).remove(0);
        world.map.clear();
        if let Some(origin) = others {
            world.map.insert(flow(), Entry { origin, ..Entry::default() });
        }
        let sent = match late {
            Some(op) => world.answer(&adopt, op, SB_REASON_QUEUE_FULL),
            None => world.pass(),
        };
        assert!(sent.is_empty(), "{sent:?}");
        assert_eq!((world.dispatcher.pending(), world.to_client.len()), (0, 0));
    }
}

#[test]
fn data_outside_every_window_is_not_waited_for() {
    for distance in [1 << 17, 1 << 26, 1 << 30] {
        let (mut world, adopt, len) = settled("/web/a");
        assert!(world.client_packet(&data(len + distance, 100, &get("/web/x"))).is_empty());
        assert_eq!(world.dispatcher.pending(), 0, "{distance} away");
        world.client_packet(&data(len, 100, b"GET /web/b"));
        let held = world.dispatcher.held();
        world.client_packet(&data(len + distance, 100, &get("/web/x")));
        assert_eq!(world.dispatcher.held(), held, "{distance} away");
        let sent = world.client_packet(&data(len + 10, 100, b" HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_FORWARD, adopt.node));
        assert_eq!((world.dispatcher.pending(), world.to_client.len()), (0, 0));
    }
}

#[test]
fn a_reset_behind_a_request_that_is_being_adopted_goes_to_its_node() {
    let mut world = World::new();
    world.lagging = true;
    let request = get("/web/a");
    world.client_packet(&data(0, 0, &request));
    let end = ORIGIN + request.len();
    world.client_packet(&bare(&flow(), true, end, SERVER, flags::RST | flags::ACK));
    let sent = world.drain();
    let ops: Vec<_> = sent.iter().map(|sent| (sent.op, sent.node, sent.view().flags & flags::RST)).collect();
    assert_eq!(ops, [(SB_OP_ADOPT, sent[0].node, 0), (SB_OP_FORWARD, sent[0].node, flags::RST)]);
}

#[test]
fn what_the_node_lacks_gets_through_a_full_flow() {
    let (mut world, adopt, len) = settled("/web/a");
    // A request that waits for another pool's node, and all that fits behind it.
    world.client_packet(&data(len, 100, &get("/img/b")));
    let mut at = len + get("/img/b").len() as u32;
    while world.dispatcher.stats.dropped_flow_full == 0 {
        world.client_packet(&data(at, 100, &[b'x'; 1400]));
        at += 1400;
    }
    // The client sends its first packet again and again, which has the end of the last request, too.
    let again = [&get("/web/a")[10..], &get("/img/b")].concat();
    let sent = world.client_packet(&data(10, 100, &again));
    assert_eq!((sent[0].op, sent[0].node, sent[0].data()), (SB_OP_FORWARD, adopt.node, &get("/web/a")[10..]));
}

const LAST: u8 = SB_HANDOVER_LAST as u8;
const AGAIN: u8 = SB_HANDOVER_AGAIN as u8;

/// The flags that are about the request.
fn of_request(sent: &ToNode) -> u8 {
    sent.option.flags & (REQUEST | READ | LAST | AGAIN)
}

#[test]
fn a_node_is_told_what_to_do_if_its_server_goes_away() {
    let rows = [
        ("GET", "", AGAIN),
        ("HEAD", "", AGAIN),
        ("OPTIONS", "", AGAIN),
        ("DELETE", "", AGAIN),
        ("GET", "Connection: close\r\n", AGAIN | LAST),
        ("POST", "", 0),
        ("POST", "Content-Length: 0\r\n", 0),
        ("PATCH", "Connection: close\r\n", LAST),
        ("GET", "Content-Length: 1\r\n", 0),
        ("GET", "Transfer-Encoding: chunked\r\n", 0),
        ("GET", "Connection: upgrade\r\nUpgrade: websocket\r\n", LAST),
    ];
    for (method, fields, flags) in rows {
        let request = format!("{method} /web/a HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let sent = World::new().client_packet(&data(0, 0, request.as_bytes()));
        assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT), "{request:?}");
        assert_eq!(of_request(&sent[0]), flags, "ADOPT of {request:?}");
        let (mut world, _, len) = settled("/web/a");
        let sent = world.client_packet(&data(len, 100, request.as_bytes()));
        assert_eq!((sent.len(), sent[0].op), (1, SB_OP_FORWARD), "{request:?}");
        assert_eq!(of_request(&sent[0]), REQUEST | flags, "FORWARD of {request:?}");
    }
}

#[test]
fn a_request_in_two_packets_is_not_asked_for_again() {
    let request = get("/web/b");
    for settle in [false, true] {
        let (mut world, at) = if settle {
            let (world, _, len) = settled("/web/a");
            (world, len)
        } else {
            (World::new(), 0)
        };
        // The middle comes last, so that they are not joined.
        world.client_packet(&data(at, 0, &request[..5]));
        world.client_packet(&data(at + 20, 0, &request[20..]));
        let sent = world.client_packet(&data(at + 5, 0, &request[5..20]));
        let ops: Vec<_> = sent.iter().map(|sent| (sent.op, of_request(sent))).take(2).collect();
        let first = if settle { (SB_OP_FORWARD, REQUEST) } else { (SB_OP_ADOPT, 0) };
        assert_eq!(ops, [first, (SB_OP_FORWARD, READ)]);
    }
    // The first of two requests in one packet is one packet at the node.
    let mut world = World::new();
    let sent = world.client_packet(&data(0, 0, &[get("/web/a"), get("/web/b")].concat()));
    assert_eq!((sent[0].data(), of_request(&sent[0])), (&get("/web/a")[..], AGAIN));
}

/// A client that has been told of a request's arrival does not send it again.
#[test]
fn an_acknowledged_request_is_not_asked_for_again() {
    let (mut world, _, len) = settled("/web/a");
    let asked = world.client_packet(&data(len, 100, &get("/img/b")));
    let acknowledged = |world: &World| world.dispatcher.stats.acknowledged > 0;
    while !acknowledged(&world) {
        for sent in world.pass() {
            match sent.op {
                SB_OP_RELEASE => drop(world.answer(&sent, SB_OP_BUSY, SB_REASON_NONE)),
                SB_OP_CONFIRM => {
                    let option =
                        sent.option.with(|flow: &mut sb_flow_state| flow.next = sent.view().seq.to_be());
                    let confirmed = ToNode { option, ..sent };
                    world.answer(&confirmed, SB_OP_CONFIRMED, SB_REASON_NONE);
                }
                op => panic!("{op:?}"),
            }
        }
    }
    let sent = world.answer(&asked[0], SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!((sent[0].op, of_request(&sent[0])), (SB_OP_ADOPT, 0));
}

/// A server goes away before it has answered, and the client sends the request once more; then the next server.
#[test]
fn what_a_server_has_not_answered_is_asked_of_others_but_not_for_ever() {
    for path in ["/web/a", "/web/b"] {
        let mut world = World::new();
        let first = get("/web/a");
        let mut sent = world.client_packet(&data(0, 0, &first));
        assert!(world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
        let (mut at, mut request) = (0, first);
        if path == "/web/b" {
            (at, request) = (request.len() as u32, get(path));
            sent = world.client_packet(&data(at, 100, &request));
        }
        assert_eq!(of_request(&sent[0]) & AGAIN, AGAIN);
        for tries in 1..=TRIES {
            let again = world.client_packet(&data(at, 100, &request));
            assert_eq!((again.len(), again[0].op, of_request(&again[0])), (1, SB_OP_FORWARD, 0), "unread");
            let sent = world.answer(&again[0], SB_OP_REFUSED, SB_REASON_NO_SOCKET);
            assert_eq!((sent.len(), sent[0].op, sent[0].data()), (1, SB_OP_ADOPT, &request[..]));
            let expected = if tries < TRIES { AGAIN } else { 0 };
            assert_eq!(of_request(&sent[0]), expected, "try {tries}");
            let sent = world.answer(&sent[0], SB_OP_REFUSED, SB_REASON_NO_LISTENER);
            assert_eq!((sent[0].op, of_request(&sent[0])), (SB_OP_ADOPT, expected), "where one cannot");
            assert!(world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
            // Otherwise there would be no node left to refuse next time.
            for last in [1, 2] {
                world.report(node(last), "web", SB_REASON_NONE, (0, 511));
            }
        }
        let sent = world.client_packet(&data(at + request.len() as u32, 200, &get("/web/c")));
        assert_eq!(of_request(&sent[0]), REQUEST | AGAIN, "the next request is another one");
    }
}

#[test]
fn the_end_of_a_flow_without_a_server_is_answered() {
    let end = flags::FIN | flags::ACK;
    let (mut world, _, len) = settled("/web/a");
    let numbers = (ORIGIN + len, SERVER + 100u32);
    let sent = world.client_packet(&bare(&flow(), true, numbers.0, numbers.1, end));
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_FORWARD));
    // A late copy of a packet of an earlier request says nothing.
    let late = ToNode {
        option: sent[0].option.with(|flow: &mut sb_flow_state| flow.requests = 0),
        ..sent[0].clone()
    };
    assert!(world.answer(&late, SB_OP_REFUSED, SB_REASON_NO_SOCKET).is_empty());
    assert!(world.to_client.is_empty() && world.map.contains_key(&flow()));
    assert!(world.answer(&sent[0], SB_OP_REFUSED, SB_REASON_NO_SOCKET).is_empty());
    let [said] = &world.to_client[..] else { panic!("one packet, not {:?}", world.to_client) };
    let view = TcpView::parse(said).unwrap();
    assert_eq!((view.seq, view.ack, view.flags), (numbers.1, numbers.0 + 1u32, end));
    assert!(world.map.is_empty() && world.dispatcher.pending() == 0, "{:?}", world.map);
}

/// The flow map still has the flow when the second answer of a batch is read: its removal is written behind the batch.
#[test]
fn a_request_of_a_connection_that_has_ended_does_not_begin_in_the_same_batch() {
    let (mut world, _, len) = settled("/web/a");
    let request = get("/web/b");
    let asked = world.client_packet(&data(len, 100, &request)).remove(0);
    let numbers = (ORIGIN + len + request.len(), SERVER + 100u32);
    let end = bare(&flow(), true, numbers.0, numbers.1, flags::FIN | flags::ACK);
    let end = world.client_packet(&end).remove(0);
    assert!(world.answer_all(&[end, asked], SB_OP_REFUSED, SB_REASON_NO_SOCKET).is_empty());
    assert!(world.map.is_empty() && world.dispatcher.pending() == 0, "{:?}", world.map);
}

#[test]
fn the_last_request_is_called_so_whatever_its_body() {
    let body =
        "POST /web/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let sent = World::new().client_packet(&data(0, 0, body.as_bytes()));
    let flags = u32::from(sent[0].option.flags) & (SB_HANDOVER_LAST | SB_HANDOVER_AGAIN);
    assert_eq!((sent[0].op, flags), (SB_OP_ADOPT, SB_HANDOVER_LAST));
}

/// RFC 9112 section 2.2: some clients send one behind a body.
#[test]
fn an_empty_line_at_the_end_is_no_request() {
    let end = |offset: u32, acked: u32, line: &[u8]| {
        let numbers = (ORIGIN + offset, SERVER + acked);
        segment(&flow(), true, numbers, flags::FIN | flags::ACK, Some((11, 22)), line)
    };
    for line in [&b"\r\n"[..], b"\r"] {
        let mut world = World::new();
        assert!(world.client_packet(&end(0, 0, line)).is_empty());
        let [said] = &world.to_client[..] else { panic!("one packet, not {:?}", world.to_client) };
        let view = TcpView::parse(said).unwrap();
        let behind = ORIGIN + line.len() as u32 + 1u32;
        assert_eq!((view.seq, view.ack, view.flags), (SERVER, behind, flags::FIN | flags::ACK));
        assert!(world.map.is_empty());
        // Behind a request it is for that one's server.
        let (mut world, adopt, len) = settled("/web/a");
        let sent = world.client_packet(&end(len, 100, line));
        let [sent] = &sent[..] else { panic!("one packet, not {sent:?}") };
        assert_eq!((sent.op, sent.node, sent.data()), (SB_OP_FORWARD, adopt.node, line));
        assert_eq!((world.to_client.len(), world.dispatcher.pending()), (0, 0));
        // What somebody has sent behind the end goes nowhere, and the mark stays before it.
        let (mut world, _, len) = settled("/web/a");
        let asked = world.client_packet(&data(len + 10, 100, &get("/img/b")));
        assert!(asked.iter().all(|sent| sent.data().is_empty()));
        let sent = world.client_packet(&end(len, 100, line));
        let sent: Vec<&[u8]> = sent.iter().map(ToNode::data).filter(|data| !data.is_empty()).collect();
        assert_eq!(sent, [line]);
        let behind = ORIGIN + len + line.len();
        assert_eq!((world.map[&flow()].mark.next, world.dispatcher.pending()), (behind, 0));
    }
}
