//! Requests whose session's node cannot serve now, or has no room.

use std::time::Duration;

use switchback_flow::entry::{Entry, Mode};
use switchback_wire::packet::{flags, segment};
use switchback_wire::*;

use super::*;
use crate::dispatch::Moment;

#[test]
fn a_session_whose_node_cannot_serve_is_with_another_one_meanwhile() {
    for pool in ["web", "shop"] {
        let mut substitute = None;
        for how in ["drained", "down"] {
            for round in 0..3 {
                let mut client = new();
                if round == 1 {
                    // Whatever the policy would say.
                    client.ask(&request("plain", ""));
                }
                match how {
                    "drained" => client.drain(1, true),
                    _ => drop(client.world.report(node(1), pool, SB_REASON_UNHEALTHY, (0, 0))),
                }
                let (_, other, told) = client.ask(&with(pool, &cookie(7, pool, 1)));
                assert_ne!(other, node(1));
                assert_eq!((told, client.counts()), (codes(7, pool, 1), [0, 1, 0, 0]));
                assert_eq!(*substitute.get_or_insert(other), other);
                assert_eq!(client.ask(&with(pool, &cookie(7, pool, 1))).0, [SB_OP_FORWARD]);
                match how {
                    "drained" => client.drain(1, false),
                    _ => drop(client.world.report(node(1), pool, SB_REASON_NONE, (0, 511))),
                }
                assert_eq!(client.ask(&with(pool, &cookie(7, pool, 1))).1, node(1), "it is back");
                assert_eq!(client.counts(), [1, 2, 0, 0]);
            }
        }
    }
}

#[test]
fn a_strict_session_goes_nowhere_else() {
    for on_it in [false, true] {
        let mut client = Client::new(&config(STRICT), &[7]);
        let wanted = with("web", &cookie(7, "web", 1));
        if on_it {
            client.ask(&wanted);
        }
        client.drain(1, true);
        let sent = client.begin(&wanted);
        if on_it {
            assert_eq!((sent.len(), sent[0].op), (1, SB_OP_RELEASE));
            assert!(client.world.answer(&sent[0], SB_OP_RELEASED, SB_REASON_NONE).is_empty());
        } else {
            assert!(sent.is_empty());
        }
        assert_eq!(client.status().as_deref(), Some("503"));
        assert_eq!(client.counts(), [u64::from(on_it), 0, 1, 0]);
    }
    let mut client = Client::new(&config(STRICT), &[7]);
    client.drain(1, true);
    let (_, at, _) = client.ask(&request("web", ""));
    assert_ne!(at, node(1), "what has no session is for any node");
}

fn refuse(client: &mut Client, asked: &ToNode, reason: sb_reason) -> Vec<ToNode> {
    match reason {
        SB_REASON_QUEUE_FULL => client.world.refuse(asked, (16, 15)),
        _ => client.world.answer(asked, SB_OP_REFUSED, reason),
    }
}

/// The request of another client, which is not answered.
fn other_client(client: &mut Client, request: &[u8]) -> Vec<ToNode> {
    let mut other = flow();
    other.client_port = 40001u16.to_be();
    let entry = Entry::new(Seq(5));
    let kind = sb_record_kind::SB_RECORD_REQUEST as u32;
    let record = sb_record { kind, flow: other, entry: entry.encode(), ..Default::default() };
    let packet = segment(&other, true, (Seq(5), Seq(6)), flags::ACK, None, request);
    let at = Moment { now: client.world.now, map: &|_| Some(entry), take: &crate::dispatch::unlimited };
    client.world.dispatcher.on_record(at, &record, &packet);
    client.world.flush()
}

#[test]
fn a_session_waits_for_room_at_its_node() {
    for known in [false, true] {
        let mut client = new();
        let full = (16, 15);
        if known {
            client.world.report(node(1), "web", SB_REASON_NONE, full);
        }
        let sent = client.begin(&with("web", &cookie(7, "web", 1)));
        if known {
            assert!(sent.is_empty(), "{sent:?}");
        } else {
            assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(1)));
            assert!(refuse(&mut client, &sent[0], SB_REASON_QUEUE_FULL).is_empty());
        }
        assert_eq!((client.world.dispatcher.crowded(), client.world.dispatcher.stats.waited), (1, 1));
        // It is in nobody's way.
        let others = other_client(&mut client, &request("web", ""));
        assert_eq!((others.len(), others[0].op), (1, SB_OP_ADOPT));
        // Room elsewhere is no room.
        assert!(client.world.report(node(2), "web", SB_REASON_NONE, (0, 15)).is_empty());
        assert!(client.world.report(node(1), "web", SB_REASON_NONE, full).is_empty());
        let sent = client.world.report(node(1), "web", SB_REASON_NONE, (0, 15));
        assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(1)));
        assert_eq!(client.world.dispatcher.crowded(), 0);
    }
}

#[test]
fn sessions_with_a_full_node_wait_in_order() {
    let mut client = new();
    client.world.report(node(1), "web", SB_REASON_NONE, (16, 15));
    assert!(other_client(&mut client, &with("web", &cookie(7, "web", 1))).is_empty());
    // There may be room by now, but for the one that has waited.
    client.world.now += Duration::from_millis(6);
    assert!(client.begin(&with("web", &cookie(7, "web", 1))).is_empty());
    assert_eq!(client.world.dispatcher.crowded(), 2);
    let sent = client.world.report(node(1), "web", SB_REASON_NONE, (15, 15));
    assert_eq!((sent.len(), sent[0].op, sent[0].node), (1, SB_OP_ADOPT, node(1)));
    assert_eq!(client.world.map[&flow()].mode, Mode::Held, "the other one was first");
    assert_eq!(client.world.report(node(1), "web", SB_REASON_NONE, (0, 15)).len(), 1);
}

#[test]
fn a_session_that_waits_for_a_node_that_goes_down_goes_elsewhere() {
    for strict in [false, true] {
        let mut client = Client::new(&config(if strict { STRICT } else { "" }), &[7]);
        client.world.report(node(1), "web", SB_REASON_NONE, (16, 15));
        assert!(client.begin(&with("web", &cookie(7, "web", 1))).is_empty());
        let sent = client.world.report(node(1), "web", SB_REASON_NO_LISTENER, (0, 0));
        if strict {
            assert_eq!((sent.len(), client.status().as_deref()), (0, Some("503")));
        } else {
            assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
            assert_ne!(sent[0].node, node(1));
        }
    }
}

#[test]
fn a_session_does_not_wait_for_ever() {
    let mut client = new();
    let sent = client.begin(&with("web", &cookie(7, "web", 1)));
    refuse(&mut client, &sent[0], SB_REASON_QUEUE_FULL);
    let start = client.world.now;
    while client.status().is_none() {
        for sent in client.world.pass() {
            if sent.op == SB_OP_ADOPT {
                assert_eq!(sent.node, node(1));
                assert!(refuse(&mut client, &sent, SB_REASON_QUEUE_FULL).is_empty());
            }
        }
    }
    let waited = client.world.now - start;
    assert_eq!(client.status().as_deref(), Some("503"));
    assert!((Duration::from_secs(1)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
}

#[test]
fn a_session_whose_node_does_not_adopt_goes_elsewhere() {
    for reason in [None, Some(SB_REASON_NO_LISTENER), Some(SB_REASON_FAILED)] {
        for strict in [false, true] {
            let mut client = Client::new(&config(if strict { STRICT } else { "" }), &[7]);
            let sent = client.begin(&with("web", &cookie(7, "web", 1)));
            assert_eq!((sent[0].op, sent[0].node), (SB_OP_ADOPT, node(1)));
            let sent = match reason {
                Some(reason) => refuse(&mut client, &sent[0], reason),
                None => (0..6).fold(Vec::new(), |_, _| client.world.pass()),
            };
            if strict {
                assert_eq!((sent.len(), client.status().as_deref()), (0, Some("503")), "{reason:?}");
                assert_eq!(client.counts(), [0, 0, 1, 0]);
            } else {
                assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT), "{reason:?}");
                assert_ne!(sent[0].node, node(1));
                assert!(client.world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
                assert_eq!(client.counts(), [0, 1, 0, 0]);
            }
        }
    }
}

#[test]
fn a_session_of_a_node_that_has_left_is_with_another_one() {
    for strict in [false, true] {
        let config = config(if strict { STRICT } else { "" });
        let config = config.replace("nodes = [\"n1\", \"n2\", \"n3\"]", "nodes = [\"n2\", \"n3\"]");
        let mut client = Client::new(&config, &[7]);
        let sent = client.begin(&with("shop", &cookie(7, "shop", 1)));
        if strict {
            assert_eq!((sent.len(), client.status().as_deref()), (0, Some("503")));
        } else {
            assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
            client.world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE);
        }
        assert_eq!(client.counts(), [0, u64::from(!strict), u64::from(strict), 0]);
    }
}

#[test]
fn a_full_node_of_a_key_is_left_alone_unless_it_must_be_that_one() {
    for strict in [false, true] {
        let mut client = Client::new(&config(if strict { STRICT } else { "" }), &[7]);
        let sent = client.begin(&request("user", "X-User: 1\r\n"));
        let owner = sent[0].node;
        let sent = refuse(&mut client, &sent[0], SB_REASON_QUEUE_FULL);
        if strict {
            assert_eq!((sent.len(), client.world.dispatcher.crowded()), (0, 1));
        } else {
            assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
            assert_ne!(sent[0].node, owner);
        }
    }
}

#[test]
fn a_node_of_weight_0_keeps_its_sessions_and_gets_no_other() {
    let config = config("").replacen("[[node]]\nname = \"n1\"", "[[node]]\nweight = 0\nname = \"n1\"", 1);
    for _ in 0..3 {
        let mut client = Client::new(&config, &[7]);
        assert_ne!(client.ask(&request("web", "")).1, node(1));
        assert_eq!(client.ask(&with("web", &cookie(7, "web", 1))).1, node(1));
    }
}

#[test]
fn a_session_goes_to_a_silent_node_only_if_no_other_speaks() {
    let mut client = new();
    assert_eq!(client.ask(&with("web", &cookie(7, "web", 1))).1, node(1), "nobody has said a word yet");
    client.world.report(node(1), "web", SB_REASON_NONE, (0, 511));
    client.world.now += Duration::from_millis(200);
    client.world.report(node(2), "web", SB_REASON_NONE, (0, 511));
    assert_eq!(client.ask(&with("web", &cookie(7, "web", 1))).0, [SB_OP_FORWARD], "it is asked itself");
    assert_eq!(client.ask(&with("web", &cookie(7, "web", 3))).1, node(2));
    assert_eq!(client.counts(), [2, 1, 0, 0]);
}

#[test]
fn a_reload_that_ends_sessions_does_not_lose_one_that_waits() {
    let mut client = new();
    client.world.report(node(1), "web", SB_REASON_NONE, (16, 15));
    assert!(client.begin(&with("web", &cookie(7, "web", 1))).is_empty());
    let without = config("").replace("[pool.persistence]\nmode = \"rewrite\"\ncookie = \"PHPSESSID\"", "");
    client.world.reload(&without, &[7]);
    let sent = loop {
        let sent = client.world.pass();
        if !sent.is_empty() {
            break sent;
        }
    };
    assert_eq!((sent.len(), sent[0].op), (1, SB_OP_ADOPT));
    assert!(client.status().is_none());
}
