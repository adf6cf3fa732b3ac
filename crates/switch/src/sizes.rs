//! Lengths of responses by path, for a switch that is also a node and delegates long responses
//! (`delegate = { above = ... }`).
//!
//! The switch sees no responses, so it asks: a request carries a 16-bit number for its path, and the node reports the
//! length of the response under that number. A table with one slot per number holds the last path that was asked for,
//! so memory is bounded; with more paths than slots some are asked for repeatedly. If two paths of one slot are asked
//! for at the same time, the answer for one may be stored for the other, until that is asked for again.

use std::hash::{BuildHasher, RandomState};

use switchback_http::Head;

const SLOTS: usize = 1 << 16;
/// Requests after which a known length is asked for again, in case it has changed.
const ASK_AGAIN: u8 = 64;

/// Request fields that may lead to a 304 or 206 response.
const PARTIAL: [&str; 3] = ["If-None-Match", "If-Modified-Since", "Range"];

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Hash of the path in this slot; 0: empty.
    path: u32,
    bytes: Option<u32>,
    /// Requests until the length is asked for again.
    left: u8,
}

/// Expected length of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Length of the last response, in bytes modulo 2^32; None if unknown.
    pub bytes: Option<u32>,
    /// Number under which the node reports the length; 0: no report wanted.
    pub ask: u16,
}

/// Table of response lengths.
pub struct Sizes {
    slots: Vec<Slot>,
    hasher: RandomState,
}

impl Sizes {
    /// An empty table. Tables with the same hasher give a path the same number.
    pub fn new(hasher: &RandomState) -> Self {
        Sizes { slots: Vec::new(), hasher: hasher.clone() }
    }

    /// Expected length for the path, without its query, of a request for this pool. Requests whose response may be
    /// partial do not ask for a length.
    pub fn of(&mut self, pool: usize, head: &Head<'_>) -> Size {
        if head.method == "HEAD" {
            return Size { bytes: Some(0), ask: 0 };
        }
        let hash = self.hasher.hash_one((pool, head.host, head.path()));
        // 0 is reserved in both.
        let (number, path) = ((hash as u16).max(1), ((hash >> 32) as u32).max(1));
        self.slots.resize(SLOTS, Slot::default());
        let slot = &mut self.slots[usize::from(number)];
        if slot.path != path {
            *slot = Slot { path, bytes: None, left: 0 };
        }
        let asks = slot.left == 0 && !PARTIAL.iter().any(|name| head.header(name).is_some());
        slot.left = slot.left.saturating_sub(1);
        Size { bytes: slot.bytes, ask: if asks { number } else { 0 } }
    }

    /// Stores a length reported by a node.
    pub fn learn(&mut self, number: u16, bytes: u32) {
        if let Some(slot) = self.slots.get_mut(usize::from(number)).filter(|slot| slot.path != 0) {
            slot.bytes = Some(bytes);
            slot.left = ASK_AGAIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use switchback_http::{Limits, Progress, parse_head};

    use super::*;

    fn of(sizes: &mut Sizes, target: &str) -> Size {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else {
            panic!("{text:?} is a head");
        };
        sizes.of(0, &head)
    }

    #[test]
    fn a_length_is_asked_for_until_it_is_known_and_again_later() {
        let mut sizes = Sizes::new(&RandomState::new());
        let Size { bytes: None, ask } = of(&mut sizes, "/a?x=1") else { panic!("it is not known") };
        assert_ne!(ask, 0);
        assert_eq!(of(&mut sizes, "/a?x=2"), Size { bytes: None, ask });
        sizes.learn(ask, 5000);
        for _ in 0..ASK_AGAIN {
            assert_eq!(of(&mut sizes, "/a"), Size { bytes: Some(5000), ask: 0 });
        }
        assert_eq!(of(&mut sizes, "/a"), Size { bytes: Some(5000), ask });
        assert_eq!(of(&mut sizes, "/b").bytes, None);
    }

    #[test]
    fn lengths_of_partial_responses_are_not_asked_for() {
        let mut sizes = Sizes::new(&RandomState::new());
        for (method, field) in
            [("HEAD", "A: b"), ("GET", "Range: bytes=1-2"), ("GET", "if-none-match: \"a\"")]
        {
            let text = format!("{method} /a HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
            let Ok(Progress::Complete(head)) = parse_head(text.as_bytes(), &Limits::default()) else {
                panic!("{text:?} is a head");
            };
            let bytes = (method == "HEAD").then_some(0);
            assert_eq!(sizes.of(0, &head), Size { bytes, ask: 0 }, "{text}");
        }
    }

    #[test]
    fn memory_is_bounded_and_the_latest_path_is_known() {
        let mut sizes = Sizes::new(&RandomState::new());
        for number in 0..200_000 {
            let path = format!("/{number}");
            let size = of(&mut sizes, &path);
            sizes.learn(size.ask, number);
            assert_eq!(of(&mut sizes, &path).bytes, Some(number));
        }
        assert_eq!(sizes.slots.len(), SLOTS);
    }

    #[test]
    fn unrequested_lengths_are_ignored() {
        let mut sizes = Sizes::new(&RandomState::new());
        sizes.learn(7, 1);
        of(&mut sizes, "/a");
        sizes.learn(0, 1);
        assert!(sizes.slots.iter().all(|slot| slot.bytes.is_none()));
    }
}
