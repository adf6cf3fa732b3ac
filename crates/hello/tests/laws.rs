//! Properties of any ClientHello, however it is split.

mod common;

use common::{extension, message, pre_shared_keys, protocols, record, server_name, session_ticket};
use proptest::collection::vec;
use proptest::prelude::*;
use switchback_hello::{ClientHello, Progress, read};

const LIMIT: usize = 16_384;

/// The message in records of these sizes, repeated.
fn records(message: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut rest = message;
    let mut out = Vec::new();
    for size in sizes.iter().cycle() {
        let (data, more) = rest.split_at((*size).min(rest.len()));
        out.extend(record(data));
        rest = more;
        if rest.is_empty() {
            break;
        }
    }
    out
}

proptest! {
    #[test]
    fn hellos_are_read_in_any_pieces(
        name in "([a-z0-9_-]{1,20}\\.){0,3}[a-z]{1,9}",
        alpn in vec(vec(any::<u8>(), 1..20), 1..4),
        old in vec(any::<u8>(), 1..200),
        keys in vec(vec(any::<u8>(), 1..200), 1..3),
        other in vec(any::<u8>(), 0..600),
        sizes in vec(1usize..400, 1..5),
        after in vec(any::<u8>(), 0..20),
    ) {
        let alpn_parts: Vec<&[u8]> = alpn.iter().map(Vec::as_slice).collect();
        let key_parts: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let stream = records(&message(&[
            extension(51, &other),
            server_name(&name.to_ascii_uppercase()),
            protocols(&alpn_parts),
            session_ticket(&old),
            pre_shared_keys(&key_parts),
        ]), &sizes);
        let expected = ClientHello {
            server_name: Some(name),
            protocols: alpn,
            tickets: std::iter::once(old).chain(keys).collect(),
            len: stream.len(),
        };
        for end in 0..stream.len() {
            let read = read(&stream[..end], LIMIT);
            let Ok(Progress::Partial(until)) = read else { panic!("{end} bytes: {read:?}") };
            prop_assert!(end < until && until <= stream.len(), "{} bytes, but {}", end, until);
        }
        let more = [&stream[..], &after].concat();
        prop_assert_eq!(read(&more, LIMIT), Ok(Progress::Complete(expected)));
    }
}
