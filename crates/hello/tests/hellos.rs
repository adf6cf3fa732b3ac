//! Single ClientHellos: one of a real client, and refused ones.

mod common;

use std::sync::Arc;

use common::{extension, message, pre_shared_keys, protocols, record, server_name, session_ticket, vector};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use switchback_hello::{ClientHello, Progress, Reject, read};

const LIMIT: usize = 16_384;

fn complete(stream: &[u8]) -> ClientHello {
    match read(stream, LIMIT) {
        Ok(Progress::Complete(hello)) => hello,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hello_of_a_real_client() {
    let mut config =
        ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut stream = Vec::new();
    let name = ServerName::try_from("Shop.Example.com").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    client.write_tls(&mut stream).unwrap();
    assert!(stream.len() > 1_200, "it has a key share that takes two packets: {}", stream.len());
    let hello = complete(&stream);
    assert_eq!(hello.server_name.as_deref(), Some("shop.example.com"));
    assert_eq!(hello.protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!((hello.tickets, hello.len), (vec![], stream.len()));
}

#[test]
fn a_client_need_not_say_anything() {
    let before_extensions = {
        let whole = message(&[]);
        let body = &whole[4..whole.len() - 2];
        [&[1][..], &vector(3, body)].concat()
    };
    for message in [message(&[]), before_extensions, message(&[session_ticket(b"")])] {
        let stream = record(&message);
        assert_eq!(complete(&stream), ClientHello { len: stream.len(), ..ClientHello::default() });
    }
    // An address is not a name.
    assert_eq!(complete(&record(&message(&[server_name("192.0.2.7")]))).server_name, None);
    // The trailing dot is dropped.
    let named = complete(&record(&message(&[server_name("example.com.")])));
    assert_eq!(named.server_name.as_deref(), Some("example.com"));
}

#[test]
fn ambiguous_hellos_are_refused() {
    use Reject::{Illegal, Malformed, NotTls, TooLong, Unexpected};
    let plain = message(&[server_name("example.com")]);
    let with = |extensions: &[Vec<u8>]| record(&message(extensions));
    let names = |list: &[u8]| with(&[extension(0, list)]);
    let one = [&[0][..], &vector(2, b"a.example")].concat();
    let rows: [(&str, Vec<u8>, Reject); 24] = [
        ("HTTP in the clear", b"GET / HTTP/1.1\r\n".to_vec(), NotTls),
        ("SSL 2", vec![0x80, 0x2e, 1, 0, 2], NotTls),
        ("an alert", vec![21, 3, 1, 0, 2, 2, 0], NotTls),
        ("a record of version 2", vec![22, 2], NotTls),
        ("an empty record", vec![22, 3, 1, 0, 0], Illegal),
        ("a record that is too long", vec![22, 3, 1, 0x40, 1], TooLong),
        ("a ServerHello", record(&[2, 0, 0, 1, 0]), Unexpected),
        ("a message above the limit", record(&[1, 0, 0x40, 0]), TooLong),
        ("more in the message's record", record(&[&plain[..], &[11]].concat()), Unexpected),
        (
            "an alert between the records",
            [record(&plain[..9]), vec![21, 3, 3, 0, 2, 1, 0]].concat(),
            Unexpected,
        ),
        ("a name twice", with(&[server_name("a.example"), server_name("a.example")]), Illegal),
        ("two protocol lists", with(&[protocols(&[b"h2"]), protocols(&[b"h2"])]), Illegal),
        ("an unknown extension twice", with(&[extension(9999, b""), extension(9999, b"")]), Illegal),
        ("two names in a list", names(&vector(2, &[one.clone(), one.clone()].concat())), Malformed),
        ("a name of another kind", names(&vector(2, &[&[1][..], &vector(2, b"x")].concat())), Illegal),
        ("no name in the list", names(&vector(2, b"")), Malformed),
        ("bytes behind the list", names(&[vector(2, &one), vec![0]].concat()), Malformed),
        ("a name with a blank", with(&[server_name("a b")]), Illegal),
        ("a name with an empty label", with(&[server_name("a..b")]), Illegal),
        ("a name that is too long", with(&[server_name(&["a"; 128].join("."))]), Illegal),
        ("no protocol", with(&[extension(16, &vector(2, b""))]), Malformed),
        ("an empty protocol", with(&[protocols(&[b"h2", b""])]), Malformed),
        ("keys before the end", with(&[pre_shared_keys(&[b"ticket"]), server_name("a.example")]), Illegal),
        ("an empty identity", with(&[pre_shared_keys(&[b""])]), Malformed),
    ];
    for (what, stream, reject) in rows {
        assert_eq!(read(&stream, LIMIT), Err(reject), "{what}");
    }
}

#[test]
fn an_alert_is_one_record() {
    for reject in Reject::ALL {
        assert_eq!(reject.alert()[..6], [21, 3, 3, 0, 2, 2], "{reject}");
    }
    assert_eq!(Reject::Unrecognized.alert()[6], 112);
}
