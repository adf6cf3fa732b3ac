//! Datagrams of questions and answers: magic (8 bytes), kind (1), three zeros, number (8), tag (8), content. The tag is
//! SipHash-2-4 over the datagram with a tag of zero. Integers are big-endian.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use switchback_wire::sb_key;

const MAGIC: &[u8; 8] = b"SBSURVEY";
const TAG: std::ops::Range<usize> = 20..28;
pub(crate) const HEADER: usize = 28;
/// A question is at least so long, and so no answer to a stranger is longer.
pub(crate) const SHORTEST_QUESTION: usize = 64;
/// Content of a part of a longer answer, in bytes.
pub(crate) const PART: usize = 1000;

/// What is asked, or answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// How the machine is. Answered with parts of JSON, each after its index and their number (1 byte each).
    Describe,
    /// Whether so long a datagram gets through. Answered with the time since 1970 in ms, as long as the question.
    Echo,
    /// To send packets from the VIPs to a port (2 bytes) of the asker. Answered when they have been sent.
    SendFromVips,
    Described,
    Echoed,
    Sent,
    /// The question has a wrong tag; so has this answer.
    WrongKey,
}

const KINDS: [Kind; 7] = [
    Kind::Describe,
    Kind::Echo,
    Kind::SendFromVips,
    Kind::Described,
    Kind::Echoed,
    Kind::Sent,
    Kind::WrongKey,
];

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub kind: Kind,
    /// Chosen by the asker.
    pub number: u64,
    pub content: &'a [u8],
}

impl<'a> Message<'a> {
    /// The datagram, filled up with zeros to `len`.
    pub fn encode(&self, key: &sb_key, len: usize) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(len);
        datagram.extend_from_slice(MAGIC);
        datagram.extend([self.kind as u8, 0, 0, 0]);
        datagram.extend(self.number.to_be_bytes());
        datagram.extend([0; 8]);
        datagram.extend_from_slice(self.content);
        if datagram.len() < len {
            datagram.resize(len, 0);
        }
        let tag = tag(&datagram, key);
        datagram[TAG].copy_from_slice(&tag.to_be_bytes());
        datagram
    }

    /// Reads a datagram, and whether its tag is right under one of the keys; None if it is something else.
    pub fn read(datagram: &'a [u8], keys: &[sb_key]) -> Option<(Message<'a>, bool)> {
        let content = datagram.get(HEADER..)?;
        if !datagram.starts_with(MAGIC) {
            return None;
        }
        let kind = KINDS.into_iter().find(|kind| *kind as u8 == datagram[8])?;
        let number = u64::from_be_bytes(datagram[12..20].try_into().ok()?);
        let mut untagged = datagram.to_vec();
        untagged[TAG].fill(0);
        let is_right = keys.iter().any(|key| tag(&untagged, key).to_be_bytes() == datagram[TAG]);
        Some((Message { kind, number, content }, is_right))
    }
}

fn tag(datagram: &[u8], key: &sb_key) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(key.k0, key.k1);
    hasher.write(datagram);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: sb_key = sb_key { k0: 1, k1: 2 };
    const OTHER: sb_key = sb_key { k0: 1, k1: 3 };

    #[test]
    fn what_is_written_is_read() {
        for kind in KINDS {
            let message = Message { kind, number: 0x0102_0304_0506_0708, content: b"abc" };
            let datagram = message.encode(&KEY, 0);
            assert_eq!(Message::read(&datagram, &[OTHER, KEY]), Some((message, true)));
            assert_eq!(Message::read(&datagram, &[OTHER]), Some((message, false)));
        }
    }

    #[test]
    fn every_byte_is_tagged() {
        let message = Message { kind: Kind::Echo, number: 7, content: b"abc" };
        let datagram = message.encode(&KEY, SHORTEST_QUESTION);
        assert_eq!(datagram.len(), SHORTEST_QUESTION);
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 1;
            assert!(Message::read(&changed, &[KEY]).is_none_or(|(_, is_right)| !is_right), "byte {at}");
        }
    }

    #[test]
    fn anything_else_is_no_message() {
        let datagram = Message { kind: Kind::Echo, number: 7, content: &[] }.encode(&KEY, 0);
        for len in 0..HEADER {
            assert_eq!(Message::read(&datagram[..len], &[KEY]), None);
        }
        let mut unknown = datagram.clone();
        unknown[8] = 200;
        assert_eq!(Message::read(&unknown, &[KEY]), None);
    }
}
