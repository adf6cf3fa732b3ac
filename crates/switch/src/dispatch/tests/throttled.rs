//! Requests that are early for a rate limit.

use std::time::Duration;

use switchback_wire::packet::{TcpView, flags, segment};
use switchback_wire::*;

use super::model::*;
use sb_op::*;
use sb_reason::*;

/// As of [`with_rate_limit`].
const INTERVAL: Duration = Duration::from_millis(5);

/// A world with this limit, and a flow that has made one request; its length.
fn settled(limit: &str) -> (World, usize) {
    let config = CONFIG.replacen("[[service.route]]", &format!("{limit}\n[[service.route]]"), 1);
    let mut world = World::of(&config);
    let first = get("/web/a");
    let sent = world.client_packet(&data(0, 0, &first));
    assert!(world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    (world, first.len())
}

#[test]
fn a_request_that_is_early_waits_for_its_turn_with_all_behind_it() {
    for (path, op) in [("/web/b", SB_OP_FORWARD), ("/img/b", SB_OP_RELEASE)] {
        let (mut world, len) = settled("limit.client.requests = { rate = 200, burst = 1, over = \"wait\" }");
        let (second, third) = (get(path), get("/web/c"));
        let began = world.now;
        assert!(world.client_packet(&data(len as u32, 100, &second)).is_empty());
        assert!(world.locked.contains(&flow()), "the program leaves what follows to the thread");
        let behind = (len + second.len()) as u32;
        assert!(world.client_packet(&data(behind, 100, &third)).is_empty());
        let sent = world.pass();
        assert_eq!(world.now - began, INTERVAL);
        assert_eq!((sent.len(), sent[0].op), (1, op), "{path}");
        if op == SB_OP_FORWARD {
            assert_eq!(sent[0].data(), second);
            let sent = world.pass();
            assert_eq!((world.now - began, sent[0].data()), (2 * INTERVAL, &third[..]));
            assert!(!world.locked.contains(&flow()));
            assert_eq!(world.dispatcher.pending(), 0);
        }
    }
}

#[test]
fn a_first_request_waits_without_a_node() {
    let mut world = World::of(&with_rate_limit(CONFIG));
    // Another connection of the client has the token.
    world.record_of_client(40001, &get("/web/a"));
    let request = get("/web/b");
    assert!(world.client_packet(&data(0, 0, &request)).is_empty());
    let sent = loop {
        let sent = world.pass();
        if !sent.is_empty() {
            break sent;
        }
    };
    assert_eq!((sent[0].op, sent[0].data()), (SB_OP_ADOPT, &request[..]));
}

#[test]
fn a_client_that_leaves_while_its_request_waits_is_forgotten() {
    let (mut world, len) =
        settled("limit.client.requests = { rate = 1, period = \"2s\", burst = 1, over = \"wait\" }");
    let second = get("/web/b");
    assert!(world.client_packet(&data(len as u32, 100, &second)).is_empty());
    let reset = (ORIGIN + len, SERVER + 100u32);
    world.client_packet(&segment(&flow(), true, reset, flags::RST | flags::ACK, None, &[]));
    while world.dispatcher.pending() > 0 {
        let sent = world.pass();
        assert!(sent.iter().all(|sent| sent.op != SB_OP_ADOPT), "{sent:?}");
        assert!(world.now < Duration::from_secs(200), "it goes on for ever");
    }
}

#[test]
fn a_request_over_the_limit_is_answered_when_its_node_has_released_the_flow() {
    let (mut world, len) = settled("limit.client.requests = { rate = 1, period = \"10s\" }");
    let sent = world.client_packet(&data(len as u32, 100, &get("/web/b")));
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_RELEASE));
    world.to_client.clear();
    world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE);
    let answer = &world.to_client[0];
    let view = TcpView::parse(answer).unwrap();
    let text = String::from_utf8_lossy(&answer[view.data..view.end]);
    assert!(text.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{text}");
    assert!(text.contains("\r\nRetry-After: 10\r\n"), "{text}");
}
