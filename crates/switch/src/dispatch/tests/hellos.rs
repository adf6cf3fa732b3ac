//! What TLS clients say first, in pieces.

use switchback_flow::entry::Entry;
use switchback_wire::*;

use super::model::*;
use sb_op::*;

fn world() -> World {
    let tls = "listen = [\"192.0.2.100:80\"]\n[service.tls]\nserver = \"127.0.0.1:80\"\n\
               [[service.tls.certificate]]\nchain = \"a\"\nkey = \"b\"\n[[service.route]]\npool = \"web\"\n";
    World::of(&format!("{}{tls}", CONFIG.split("listen = ").next().unwrap()))
}

fn vector(len: usize, data: &[u8]) -> Vec<u8> {
    [&(data.len() as u64).to_be_bytes()[8 - len..], data].concat()
}

/// A hello as long as one with a share of an ML-KEM key, in records of so many bytes.
fn hello(record: usize, filling: u8) -> Vec<u8> {
    let share = [&51u16.to_be_bytes()[..], &vector(2, &[filling; 1216])].concat();
    let name = [&[0; 2][..], &vector(2, &vector(2, &[&[0][..], &vector(2, b"a.example")].concat()))].concat();
    let extensions = vector(2, &[share, name].concat());
    let body = [&[3, 3][..], &[9; 32], &[0], &vector(2, &[0x13, 1]), &[1, 0], &extensions].concat();
    let message = [&[1][..], &vector(3, &body)].concat();
    message.chunks(record).flat_map(|data| [&[22, 3, 1][..], &vector(2, data)].concat()).collect()
}

fn adopted(sent: &[ToNode], hello: &[u8]) {
    assert!(sent.iter().all(|packet| matches!(packet.op, SB_OP_ADOPT | SB_OP_FORWARD)), "{sent:?}");
    assert_eq!(sent.first().map(|packet| packet.op), Some(SB_OP_ADOPT));
    assert_eq!(sent.iter().flat_map(ToNode::data).copied().collect::<Vec<u8>>(), hello);
}

#[test]
fn a_hello_of_two_packets_is_adopted_wherever_it_is_cut() {
    for filling in [b'x', b'\n'] {
        let hello = hello(1 << 14, filling);
        for cut in 1..hello.len() {
            let mut world = world();
            assert!(world.client_packet(&data(0, 0, &hello[..cut])).is_empty(), "{cut}");
            adopted(&world.client_packet(&data(cut as u32, 0, &hello[cut..])), &hello);
        }
    }
}

#[test]
fn a_hello_is_adopted_with_its_last_byte_in_whatever_records() {
    for record in [1, 7, 300, 1 << 14] {
        let hello = hello(record, b'x');
        let mut world = world();
        let (last, rest) = hello.split_last().unwrap();
        for (at, byte) in rest.iter().enumerate() {
            assert!(world.client_packet(&data(at as u32, 0, &[*byte])).is_empty(), "{at} of {record}");
        }
        adopted(&world.client_packet(&data(rest.len() as u32, 0, &[*last])), &hello);
    }
}

#[test]
fn a_hello_whose_packets_change_places_is_adopted() {
    let hello = hello(1 << 14, b'x');
    let mut world = world();
    world.map.insert(flow(), Entry::new(ORIGIN));
    assert!(world.client_packet(&data(700, 0, &hello[700..])).is_empty());
    adopted(&world.client_packet(&data(0, 0, &hello[..700])), &hello);
}
