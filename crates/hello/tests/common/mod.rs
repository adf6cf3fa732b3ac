//! Builds ClientHellos.

/// A vector with a length prefix of `len` bytes.
pub fn vector(len: usize, data: &[u8]) -> Vec<u8> {
    [&(data.len() as u64).to_be_bytes()[8 - len..], data].concat()
}

/// An extension.
pub fn extension(number: u16, data: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &vector(2, data)].concat()
}

pub fn server_name(name: &str) -> Vec<u8> {
    extension(0, &vector(2, &[&[0][..], &vector(2, name.as_bytes())].concat()))
}

pub fn protocols(names: &[&[u8]]) -> Vec<u8> {
    let names: Vec<u8> = names.iter().flat_map(|name| vector(1, name)).collect();
    extension(16, &vector(2, &names))
}

pub fn session_ticket(ticket: &[u8]) -> Vec<u8> {
    extension(35, ticket)
}

pub fn pre_shared_keys(identities: &[&[u8]]) -> Vec<u8> {
    let each = |identity: &&[u8]| [&vector(2, identity)[..], &[0; 4]].concat();
    let all: Vec<u8> = identities.iter().flat_map(each).collect();
    let binders: Vec<u8> = identities.iter().flat_map(|_| vector(1, &[7; 32])).collect();
    extension(41, &[vector(2, &all), vector(2, &binders)].concat())
}

/// The handshake message with these extensions.
pub fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[9; 32],
        &vector(1, &[5; 32]),
        &vector(2, &[0x13, 0x01, 0xc0, 0x2f]),
        &vector(1, &[0]),
        &vector(2, &extensions.concat()),
    ];
    [&[1][..], &vector(3, &body.concat())].concat()
}

pub fn record(data: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &vector(2, data)].concat()
}
