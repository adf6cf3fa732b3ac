//! Fuzzing of the parser against that of rustls, which nodes use: where both accept, both must read the same.

mod common;
#[path = "../../wire/tests/fuzzing/mod.rs"]
mod fuzzing;

use std::sync::Arc;

use bolero::{TypeGenerator, check};
use common::{extension, message, pre_shared_keys, protocols, record, server_name, session_ticket};
use fuzzing::Input;
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use switchback_hello::{ClientHello, Progress, read};

const LIMIT: usize = 16_384;

const PIECES: &[&[u8]] = &[
    &[22, 3, 1, 0, 1],
    &[22, 3, 3, 0, 0],
    &[1, 0, 0, 4],
    &[0, 0],
    &[0, 16, 0, 5, 0, 3, 2, b'h', b'2'],
    &[0, 35, 0, 1, 7],
    &[0, 41],
    &[0xff, 0xff],
    b"a.example",
    b".",
    b"\0",
];

/// ClientHellos of rustls, and some made by hand.
fn examples() -> Vec<Vec<u8>> {
    let mut config =
        ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("shop.example.com").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut real = Vec::new();
    client.write_tls(&mut real).unwrap();
    let made = message(&[
        extension(13, &[0, 2, 4, 3]),
        extension(10, &[0, 2, 0, 23]),
        server_name("a.example"),
        protocols(&[b"h2", b"http/1.1"]),
        session_ticket(b"ticket"),
        pre_shared_keys(&[b"ticket"]),
    ]);
    let halves = made.chunks(made.len() / 2 + 1).flat_map(record).collect();
    vec![real, record(&made), halves, record(&message(&[]))]
}

#[derive(Clone, Debug, TypeGenerator)]
struct Case {
    text: Input,
    cut: u16,
}

#[test]
fn client_hellos() {
    let examples = examples();
    let watchdog = fuzzing::Watchdog::new();
    check!().with_test_time(fuzzing::time()).with_type::<Case>().for_each(|case| {
        let bytes = case.text.bytes(&examples, PIECES);
        watchdog.watch(|| check_hello(&bytes, usize::from(case.cut)));
    });
}

fn check_hello(bytes: &[u8], cut: usize) {
    let whole = read(bytes, LIMIT);
    let cut = cut % (bytes.len() + 1);
    match (read(&bytes[..cut], LIMIT), &whole) {
        (Ok(Progress::Partial(until)), Ok(Progress::Complete(hello))) => {
            assert!(cut < until && until <= hello.len, "{cut} < {until} <= {}", hello.len);
        }
        (Ok(Progress::Partial(until)), _) => assert!(cut < until),
        (earlier, later) => assert_eq!(&earlier, later, "with {cut} bytes"),
    }
    if let Ok(Progress::Complete(hello)) = whole {
        check_meaning(&bytes[..hello.len], &hello);
    }
}

fn check_meaning(bytes: &[u8], hello: &ClientHello) {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return;
        }
    }
    let Ok(Some(accepted)) = acceptor.accept() else { return };
    let other = accepted.client_hello();
    let name = other.server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
    assert_eq!(hello.server_name, name);
    let protocols: Vec<_> = other.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect();
    assert_eq!(hello.protocols, protocols);
}
