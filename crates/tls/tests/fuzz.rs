//! Anything that another node could send as a connection, or as what writes one, and anything that its client could say then:
//! nothing ends the agent.

#[allow(dead_code)] // Another test uses all of it.
mod common;
#[path = "../../wire/tests/fuzzing/mod.rs"]
mod fuzzing;

use bolero::{TypeGenerator, check};
use common::{Pair, usable};
use fuzzing::Input;
use switchback_tls::{Lent, Moved, Session};

/// A connection of each suite, as it is sent.
fn examples() -> Vec<Vec<u8>> {
    let moved = |suite| {
        let mut pair = Pair::open(Some(suite));
        assert_eq!(pair.say(b"question"), b"question");
        pair.session.give_up().unwrap().to_bytes().to_vec()
    };
    usable().map(moved).collect()
}

#[derive(Clone, Debug, TypeGenerator)]
struct Case {
    moved: Input,
    records: Vec<Vec<u8>>,
    data: Vec<u8>,
}

#[test]
fn connections_of_other_nodes() {
    let examples = examples();
    let pieces: [&[u8]; 4] = [&[0; 8], &[0xff; 4], &[1, 0], &[23, 3, 3, 0, 5]];
    let watchdog = fuzzing::Watchdog::new();
    check!().with_test_time(fuzzing::time()).with_type::<Case>().for_each(|case| {
        let bytes = case.moved.bytes(&examples, &pieces);
        watchdog.watch(|| {
            let Ok(mut session) = Moved::from_bytes(&bytes).and_then(Session::take_over) else { return };
            let _ = session.send(&case.data);
            for record in &case.records {
                let _ = session.receive(record);
            }
            session.outgoing().clear();
            // What is taken over can be given up again, unless it has failed.
            if let Ok(moved) = session.give_up() {
                Session::take_over(Moved::from_bytes(&moved.to_bytes()).unwrap()).unwrap();
            }
        });
    });
}

#[test]
fn loans_of_other_nodes() {
    let lent = |suite| postcard::to_allocvec(&Pair::open(Some(suite)).session.lend().unwrap()).unwrap();
    let examples: Vec<Vec<u8>> = usable().map(lent).collect();
    let pieces: [&[u8]; 4] = [&[0; 8], &[0xff; 9], &[2, 1], &[3, 3]];
    let watchdog = fuzzing::Watchdog::new();
    check!().with_test_time(fuzzing::time()).with_type::<Case>().for_each(|case| {
        let bytes = case.moved.bytes(&examples, &pieces);
        watchdog.watch(|| {
            let Ok(Ok(mut sealer)) = postcard::from_bytes::<Lent>(&bytes).map(|lent| lent.open()) else {
                return;
            };
            let mut records = Vec::new();
            let _ = sealer.data(&case.data, &mut records);
            let _ = sealer.update_keys(false, &mut records);
            // What has been used can be given back.
            Lent::of(&sealer).open().unwrap();
        });
    });
}
