//! What is said to clients while the kernel encrypts it, with something in its place that does what `net/tls/tls_sw.c`
//! does: it counts on from the numbers that it is given, and cuts records as it likes.

use std::collections::HashSet;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use switchback_tls::{Error, Version};

use crate::common::{Pair, usable};

const HEADER: usize = 5;
const DATA: u8 = 23;
const KEYS: u8 = 0;
/// Shorter than what a session puts into a record.
const CUT: usize = 5000;

/// A socket of which the kernel has keys.
struct Kernel {
    version: u16,
    has_salt: bool,
    key: LessSafeKey,
    /// Salt and IV.
    iv: [u8; 12],
    sequence: u64,
}

impl Kernel {
    /// From one of the `struct tls12_crypto_info_*` of linux/tls.h.
    fn new(info: &[u8]) -> Kernel {
        let (head, rest) = info.split_at(4);
        let (algorithm, has_salt) = match u16::from_ne_bytes([head[2], head[3]]) {
            51 => (&AES_128_GCM, true),
            52 => (&AES_256_GCM, true),
            54 => (&CHACHA20_POLY1305, false),
            other => panic!("no cipher {other}"),
        };
        let (iv, rest) = rest.split_at(if has_salt { 8 } else { 12 });
        let (key, rest) = rest.split_at(algorithm.key_len());
        let (salt, sequence) = rest.split_at(12 - iv.len());
        Kernel {
            version: u16::from_ne_bytes([head[0], head[1]]),
            has_salt,
            key: LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap()),
            iv: [salt, iv].concat().try_into().unwrap(),
            sequence: u64::from_be_bytes(sequence.try_into().unwrap()),
        }
    }

    /// What goes to the client for these plain records.
    fn encrypt(&mut self, mut records: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while !records.is_empty() {
            let len = usize::from(u16::from_be_bytes([records[3], records[4]]));
            let (record, rest) = records.split_at(HEADER + len);
            let content = &record[HEADER..];
            match record[0] {
                KEYS => *self = Kernel::new(content),
                DATA => content.chunks(CUT).for_each(|piece| self.record(DATA, piece, &mut out)),
                kind => self.record(kind, content, &mut out),
            }
            records = rest;
        }
        out
    }

    fn record(&mut self, kind: u8, content: &[u8], out: &mut Vec<u8>) {
        let mut text = content.to_vec();
        let number = self.sequence.to_be_bytes();
        let over = || {
            let mut nonce = self.iv;
            nonce[4..].iter_mut().zip(number).for_each(|(byte, number)| *byte ^= number);
            nonce
        };
        let (nonce, aad, header) = if self.version == 0x0304 {
            text.push(kind);
            let len = (text.len() as u16 + 16).to_be_bytes();
            let header = vec![DATA, 3, 3, len[0], len[1]];
            (over(), header.clone(), header)
        } else {
            let len = (content.len() as u16).to_be_bytes();
            let aad = [&number[..], &[kind, 3, 3], &len].concat();
            let explicit: &[u8] = if self.has_salt { &self.iv[4..] } else { &[] };
            let len = (explicit.len() as u16 + content.len() as u16 + 16).to_be_bytes();
            let header = [&[kind, 3, 3], &len[..], explicit].concat();
            (if self.has_salt { self.iv } else { over() }, aad, header)
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut text).unwrap();
        out.extend(header);
        out.extend(text);
        self.sequence += 1;
        if self.version == 0x0303 && self.has_salt {
            let next = u64::from_be_bytes(self.iv[4..].try_into().unwrap()).wrapping_add(1);
            self.iv[4..].copy_from_slice(&next.to_be_bytes());
        }
    }
}

/// Gives the kernel a connection.
fn seal_by_kernel(pair: &mut Pair) {
    let mut info = Vec::new();
    let set = |keys: &[u8]| {
        info = keys.to_vec();
        Ok(())
    };
    assert!(pair.session.seal_by_kernel(set).unwrap());
    let mut kernel = Kernel::new(&info);
    pair.encrypt = Some(Box::new(move |plain| {
        let sealed = kernel.encrypt(plain);
        (sealed, kernel.sequence)
    }));
}

fn document(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

/// The connection goes on here.
fn seal_here(pair: &mut Pair) {
    pair.encrypt = None;
    let sequence = pair.sequence;
    pair.session.seal_here(sequence);
}

#[test]
fn a_client_notices_nothing() {
    let document = document(100_000);
    for suite in usable() {
        let mut pair = Pair::open(Some(suite));
        assert_eq!(pair.answer(b"before"), b"before");
        seal_by_kernel(&mut pair);
        assert_eq!(pair.answer(&document), document, "{suite:?}");
        assert_eq!(pair.say(b"and now"), b"and now", "{suite:?}");
        seal_here(&mut pair);
        assert_eq!(pair.answer(&document), document, "{suite:?}");
        pair.hand_over();
        assert_eq!(pair.answer(b"elsewhere"), b"elsewhere", "{suite:?}");
        seal_by_kernel(&mut pair);
        assert_eq!(pair.answer(&document), document, "{suite:?}");
        pair.session.close().unwrap();
        pair.exchange().unwrap();
        assert!(pair.has_ended(), "{suite:?}");
    }
}

#[test]
fn keys_are_replaced_between_records() {
    for suite in usable() {
        let mut pair = Pair::open(Some(suite));
        if pair.session.version() != Some(Version::Tls13) {
            continue;
        }
        seal_by_kernel(&mut pair);
        for round in 0..3 {
            // Two before anything can be sent, and data around them.
            pair.session.send(b"a").unwrap();
            pair.client.refresh_traffic_keys().unwrap();
            assert_eq!(pair.say(b"with new keys"), b"with new keys", "{suite:?} {round}");
            pair.session.update_keys(false).unwrap();
            pair.session.update_keys(false).unwrap();
            assert_eq!(pair.answer(b"b"), b"ab", "{suite:?} {round}");
        }
        seal_here(&mut pair);
        assert_eq!(pair.answer(b"here"), b"here", "{suite:?}");
    }
}

/// In TLS 1.2 with GCM the nonce is in the record: none is there twice, whoever encrypts.
#[test]
fn no_nonce_is_used_twice() {
    for suite in usable().filter(|suite| format!("{suite:?}").contains("ECDHE_ECDSA_WITH_AES")) {
        let mut pair = Pair::open(Some(suite));
        let mut nonces = HashSet::new();
        let mut count = 0;
        for _ in 0..5 {
            for by_kernel in [false, true] {
                if by_kernel {
                    seal_by_kernel(&mut pair);
                }
                for _ in 0..9 {
                    assert_eq!(pair.answer(b"x"), b"x");
                    nonces.insert(pair.sent[HEADER..HEADER + 8].to_vec());
                    count += 1;
                }
            }
            seal_here(&mut pair);
        }
        assert_eq!(nonces.len(), count, "{suite:?}");
    }
}

#[test]
fn what_the_kernel_cannot_have() {
    let refuse = |_: &[u8]| -> std::io::Result<()> { Err(std::io::ErrorKind::NotFound.into()) };
    let never = |_: &[u8]| -> std::io::Result<()> { panic!("the keys are given out") };
    let mut pair = Pair::new(None);
    assert!(!pair.session.seal_by_kernel(never).unwrap(), "the handshake is still to be done");
    pair.exchange().unwrap();
    assert!(pair.session.seal_by_kernel(refuse).is_err());
    assert_eq!(pair.answer(b"as before"), b"as before");
    pair.session.send(b"something").unwrap();
    assert!(!pair.session.seal_by_kernel(never).unwrap(), "something has not been sent");
    pair.exchange().unwrap();
    seal_by_kernel(&mut pair);
    assert!(!pair.session.seal_by_kernel(never).unwrap(), "it has it");
    assert!(matches!(pair.session.lend(), Err(Error::Internal)), "what it encrypts nobody else can");
    seal_here(&mut pair);
    pair.session.close().unwrap();
    pair.exchange().unwrap();
    assert!(!pair.session.seal_by_kernel(never).unwrap(), "nothing more is to be sent");
}

/// The client is told why a connection ends.
#[test]
fn alerts_go_through_the_kernel() {
    let mut pair = Pair::open(None);
    seal_by_kernel(&mut pair);
    let forged = [&[DATA, 3, 3, 0, 20][..], &[0; 20]].concat();
    assert!(matches!(pair.session.receive(&forged), Err(Error::BadRecord)));
    let plain = std::mem::take(pair.session.outgoing());
    // Fatal, bad_record_mac.
    assert_eq!(plain, [21, 3, 3, 0, 2, 2, 20]);
}
