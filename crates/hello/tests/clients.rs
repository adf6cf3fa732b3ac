//! ClientHellos of real clients for the name shop.example.com, as a listener received them:
//! `clients/NAME-VERSION-WHAT.hello`.

use std::fs;
use std::path::Path;

use switchback_hello::{Progress, read};

const LIMIT: usize = 16_384;

fn captured() -> impl Iterator<Item = (String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
}

#[test]
fn hellos_are_read_when_they_are_complete() {
    for (client, stream) in captured() {
        let Ok(Progress::Complete(hello)) = read(&stream, LIMIT) else { panic!("{client}") };
        assert_eq!(hello.server_name.as_deref(), Some("shop.example.com"), "{client}");
        assert_eq!(hello.len, stream.len(), "{client}");
        for end in 0..stream.len() {
            let read = read(&stream[..end], LIMIT);
            let Ok(Progress::Partial(until)) = read else { panic!("{client}, {end} bytes: {read:?}") };
            assert!(end < until && until <= stream.len(), "{client}, {end} bytes: {until}");
        }
    }
}

/// The default ClientHellos of Go, OpenSSL and Chromium have a key share that takes two packets.
#[test]
fn hellos_with_large_key_shares_take_two_packets() {
    let long: Vec<_> =
        captured().filter(|(_, stream)| stream.len() > 1_460).map(|(client, _)| client).collect();
    for client in ["go-1.26-default", "openssl-4.0-default", "chromium-156-default"] {
        assert!(long.iter().any(|name| name == client), "{client} is not in {long:?}");
    }
}
