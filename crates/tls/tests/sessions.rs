//! Connections with a client of rustls: what is said arrives, whatever is moved, cut or renewed on the way.

mod common;
#[path = "sessions/kernel.rs"]
mod kernel;

use std::io::Write;

use common::{Pair, usable};
use proptest::collection::vec;
use proptest::prelude::*;
use switchback_tls::{Error, Moved, Session, Version};

#[test]
fn each_suite_goes_on_at_another_node() {
    for suite in usable() {
        let mut pair = Pair::open(Some(suite));
        let is_13 = format!("{suite:?}").starts_with("TLS13");
        assert_eq!(pair.session.version(), Some(if is_13 { Version::Tls13 } else { Version::Tls12 }));
        assert_eq!(pair.session.facts().server_name.as_deref(), Some("localhost"));
        assert_eq!(pair.session.facts().protocol.as_deref(), Some(&b"http/1.1"[..]));
        let long: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        for _ in 0..3 {
            assert_eq!(pair.say(b"question"), b"question", "{suite:?}");
            assert_eq!(pair.answer(b"answer"), b"answer", "{suite:?}");
            assert_eq!(pair.answer(&long), long, "{suite:?}");
            pair.hand_over();
        }
        assert_eq!(pair.session.facts().server_name.as_deref(), Some("localhost"));
    }
}

#[test]
fn each_suite_is_written_by_another_node_for_a_while() {
    let long: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
    for suite in usable() {
        let mut pair = Pair::open(Some(suite));
        let is_13 = pair.session.version() == Some(Version::Tls13);
        for round in 0..4 {
            assert_eq!(pair.answer(b"here"), b"here", "{suite:?}");
            assert_eq!(pair.answer_elsewhere(&long, if is_13 { round } else { 0 }), long, "{suite:?}");
            assert_eq!(pair.say(b"question"), b"question", "{suite:?}");
            pair.hand_over();
        }
    }
}

#[test]
fn whoever_has_lent_its_keys_writes_nothing() {
    let mut pair = Pair::open(None);
    let lent = pair.session.lend().unwrap();
    assert_eq!(pair.session.send(b"more"), Err(Error::Internal));
    assert_eq!(pair.session.lend().unwrap_err(), Error::Internal);
    assert_eq!(format!("{lent:?}"), "Lent");
    // Nor does it answer a client that wants new keys, before it has its own back.
    pair.client.refresh_traffic_keys().unwrap();
    pair.exchange().unwrap();
    assert!(pair.session.outgoing().is_empty());
    pair.session.take_back(&lent, false).unwrap();
    assert!(!pair.session.outgoing().is_empty());
    assert_eq!(pair.answer(b"with new keys"), b"with new keys");
    assert!(pair.session.take_back(&lent, false).is_err(), "it has them already");
    // Nor does it say what is wrong: its numbers are the other node's.
    let _lent = pair.session.lend().unwrap();
    assert_eq!(
        pair.session.receive(&[23, 3, 3, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Err(Error::BadRecord)
    );
    assert!(pair.session.outgoing().is_empty());
}

#[test]
fn what_has_not_been_read_moves_too() {
    let mut pair = Pair::open(None);
    pair.client.writer().write_all(b"read ").unwrap();
    pair.exchange().unwrap();
    pair.client.writer().write_all(b"cut").unwrap();
    let mut sent = Vec::new();
    pair.client.write_tls(&mut sent).unwrap();
    let (first, rest) = sent.split_at(9);
    pair.session.receive(first).unwrap();
    pair.hand_over();
    assert_eq!(pair.session.data(), b"read ");
    pair.session.receive(rest).unwrap();
    assert_eq!(pair.session.data(), b"read cut");
}

#[test]
fn keys_are_renewed_before_and_after_a_move() {
    let mut pair = Pair::open(None);
    for round in 0..6 {
        // The client's own, which wants ours to be renewed as well.
        pair.client.refresh_traffic_keys().unwrap();
        assert_eq!(pair.say(b"one"), b"one");
        assert_eq!(pair.answer(b"two"), b"two");
        pair.session.update_keys(round % 2 == 0).unwrap();
        assert_eq!(pair.answer(b"three"), b"three");
        assert_eq!(pair.say(b"four"), b"four");
        pair.hand_over();
    }
    // TLS 1.2 has nothing of it.
    let old = usable().find(|suite| !format!("{suite:?}").starts_with("TLS13"));
    let mut pair = Pair::open(old);
    assert_eq!(pair.session.update_keys(false).unwrap_err(), Error::Internal);
}

#[test]
fn a_flood_of_new_keys_ends_the_connection() {
    let mut pair = Pair::open(None);
    let mut flood = (0..1000).map(|_| {
        pair.client.refresh_traffic_keys().unwrap();
        pair.exchange()
    });
    assert_eq!(flood.find(Result::is_err), Some(Err(Error::Flood)));
}

#[test]
fn each_side_says_when_it_ends() {
    for suite in usable() {
        let mut pair = Pair::open(Some(suite));
        assert_eq!(pair.session.receive_end(), Err(Error::Truncated), "{suite:?}");
        pair.client.send_close_notify();
        pair.exchange().unwrap();
        assert!(pair.session.is_read_closed());
        assert_eq!(pair.session.receive_end(), Ok(()));
        // The other direction stays open (RFC 8446 section 6.1), at another node too.
        pair.hand_over();
        assert!(pair.session.is_read_closed());
        assert_eq!(pair.answer(b"still"), b"still");
        pair.session.close().unwrap();
        pair.exchange().unwrap();
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn what_does_not_open_ends_the_connection() {
    for suite in usable() {
        let mut pair = Pair::open(Some(suite));
        pair.client.writer().write_all(b"data").unwrap();
        let mut sent = Vec::new();
        pair.client.write_tls(&mut sent).unwrap();
        let last = sent.len() - 1;
        sent[last] ^= 1;
        assert_eq!(pair.session.receive(&sent), Err(Error::BadRecord), "{suite:?}");
        assert!(pair.session.data().is_empty());
        let alert = std::mem::take(pair.session.outgoing());
        pair.client.read_tls(&mut &alert[..]).unwrap();
        let error = pair.client.process_new_packets().unwrap_err();
        assert_eq!(error, rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac));
        // Nothing more comes out of it.
        assert_eq!(pair.session.send(b"more"), Err(Error::Internal));
    }
}

#[test]
fn a_record_cannot_come_twice_or_be_left_out() {
    for suite in usable() {
        let mut records = Vec::new();
        let mut pair = Pair::open(Some(suite));
        for text in [&b"one"[..], b"two"] {
            let mut sent = Vec::new();
            pair.client.writer().write_all(text).unwrap();
            pair.client.write_tls(&mut sent).unwrap();
            records.push(sent);
        }
        let moved = pair.session.give_up().unwrap().to_bytes();
        let session = || Session::take_over(Moved::from_bytes(&moved).unwrap()).unwrap();
        assert_eq!(session().receive(&records[1]), Err(Error::BadRecord), "{suite:?}");
        let mut twice = session();
        twice.receive(&records[0]).unwrap();
        assert_eq!(twice.receive(&records[0]), Err(Error::BadRecord), "{suite:?}");
    }
}

#[test]
fn a_handshake_that_fails_says_why() {
    let mut pair = Pair::new(None);
    assert!(matches!(pair.session.receive(b"GET / HTTP/1.1\r\n\r\n"), Err(Error::Handshake(_))));
    let alert = std::mem::take(pair.session.outgoing());
    assert_eq!(alert[..2], [21, 3], "an alert");
    // No protocol in common (RFC 7301 section 3.2).
    let mut pair = Pair::new(None);
    let mut config = common::server_config();
    config.alpn_protocols = vec![b"h2".to_vec()];
    pair.session = Session::new(&config).unwrap();
    assert!(matches!(pair.exchange(), Err(Error::Handshake(_))));
    let error = pair.client.process_new_packets().unwrap_err();
    assert_eq!(error, rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol));
}

#[test]
fn nobody_sees_keys_or_data() {
    let mut pair = Pair::open(None);
    pair.client.writer().write_all(b"password").unwrap();
    pair.exchange().unwrap();
    let shown = format!("{:?}", pair.session);
    assert!(!shown.contains("password") && shown.contains("localhost"), "{shown}");
    assert_eq!(format!("{:?}", pair.session.give_up().unwrap()), "Moved");
}

#[derive(Clone, Debug)]
enum Step {
    Say(Vec<u8>),
    Answer(Vec<u8>),
    Renew,
    Move,
    AnswerElsewhere(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let data = || vec(any::<u8>(), 1..40_000);
    let step = prop_oneof![
        data().prop_map(Step::Say),
        data().prop_map(Step::Answer),
        data().prop_map(Step::AnswerElsewhere),
        Just(Step::Renew),
        Just(Step::Move)
    ];
    vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_in_its_order(suite in 0usize..6, steps in steps(), piece in 1usize..3_000) {
        let suite = usable().nth(suite).unwrap();
        let mut pair = Pair::open(Some(suite));
        pair.piece = piece;
        for step in steps {
            match step {
                Step::Say(data) => prop_assert_eq!(pair.say(&data), data),
                Step::Answer(data) => prop_assert_eq!(pair.answer(&data), data),
                Step::AnswerElsewhere(data) => prop_assert_eq!(pair.answer_elsewhere(&data, 0), data),
                Step::Renew => {
                    // Refused by TLS 1.2.
                    let _ = pair.client.refresh_traffic_keys();
                }
                Step::Move => pair.hand_over(),
            }
        }
    }
}
