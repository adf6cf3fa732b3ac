//! Fingerprints of what a client has been sent.

use serde::{Deserialize, Serialize};

/// The secret of a response's fingerprints. Nobody else can make other bytes with the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// First half.
    pub k0: u64,
    /// Second half.
    pub k1: u64,
}

/// The fingerprint of the first bytes of a body, as sent: chunk sizes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of the bytes.
    pub len: u64,
    /// Their SipHash-1-3.
    pub value: u64,
}

/// SipHash-1-3 (Aumasson and Bernstein, 2012) of bytes that come one after the other. The node's program computes the same,
/// and can go on from [`parts`](Self::parts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    v: [u64; 4],
    /// The last bytes of an incomplete word, the first one lowest.
    tail: u64,
    len: u64,
}

impl Running {
    /// Of no bytes.
    pub fn new(key: Key) -> Self {
        let v = [
            key.k0 ^ 0x736f_6d65_7073_6575,
            key.k1 ^ 0x646f_7261_6e64_6f6d,
            key.k0 ^ 0x6c79_6765_6e65_7261,
            key.k1 ^ 0x7465_6462_7974_6573,
        ];
        Running { v, tail: 0, len: 0 }
    }

    /// Of what these [`parts`](Self::parts) are of.
    pub fn of_parts(v: [u64; 4], tail: u64, len: u64) -> Self {
        Running { v, tail, len }
    }

    /// The state, the bytes of an incomplete word, and the number of all bytes.
    pub fn parts(&self) -> ([u64; 4], u64, u64) {
        (self.v, self.tail, self.len)
    }

    /// Number of bytes so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the bytes that follow.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !self.len.is_multiple_of(8)
            && let Some((byte, rest)) = bytes.split_first()
        {
            self.tail |= u64::from(*byte) << (8 * (self.len % 8));
            self.len += 1;
            bytes = rest;
            if self.len.is_multiple_of(8) {
                let word = std::mem::take(&mut self.tail);
                self.word(word);
            }
        }
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        self.len += 8 * words.len() as u64;
        for byte in rest {
            self.tail |= u64::from(*byte) << (8 * (self.len % 8));
            self.len += 1;
        }
    }

    fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        self.round();
        self.v[0] ^= word;
    }

    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.v;
        v0 = v0.wrapping_add(v1);
        v2 = v2.wrapping_add(v3);
        v1 = v1.rotate_left(13) ^ v0;
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v1);
        v0 = v0.wrapping_add(v3);
        v1 = v1.rotate_left(17) ^ v2;
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.rotate_left(32);
        self.v = [v0, v1, v2, v3];
    }

    /// Of all bytes so far.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut end = *self;
        end.word(self.len << 56 | self.tail);
        end.v[2] ^= 0xff;
        (0..3).for_each(|_| end.round());
        Fingerprint { len: self.len, value: end.v.into_iter().fold(0, |sum, part| sum ^ part) }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use siphasher::sip::SipHasher13;

    use super::*;

    const KEY: Key = Key { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };

    #[test]
    fn it_is_that_of_other_implementations_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..1000).map(|at| (at * 7 % 251) as u8).collect();
        for pieces in [1, 3, 8, 13, 64, 1000] {
            let mut running = Running::new(KEY);
            let mut other = SipHasher13::new_with_keys(KEY.k0, KEY.k1);
            assert!(running.is_empty());
            for piece in bytes.chunks(pieces) {
                running.add(piece);
                other.write(piece);
                let (v, tail, len) = running.parts();
                running = Running::of_parts(v, tail, len);
                assert_eq!(
                    running.fingerprint(),
                    Fingerprint { len, value: other.finish() },
                    "{pieces} {len}"
                );
            }
            assert_eq!(running.len(), 1000);
        }
    }
}
