//! How long responses are, by path, as far as nodes have said: what a switch that is a node, too, goes by when it gives
//! long ones to others (`delegate = { above = ... }`).
//!
//! The switch sees no response, so it asks: a request names its path to the node by 16 bits, and the node says how long
//! the response was. A table of so many places has one path each, the last that was asked for; so memory is bounded, and
//! with more paths than places some are asked for again and again. Where two paths of one place are asked for at the same
//! time, an answer may be taken for the other's, until that is asked for once more.

use std::hash::{BuildHasher, RandomState};

use switchback_http::Head;

const SLOTS: usize = 1 << 16;
/// A known length is asked for again after so many requests, in case that it has changed.
const ASK_AGAIN: u8 = 64;

/// Requests with these fields may be answered 304 or 206.
const PARTIAL: [&str; 3] = ["If-None-Match", "If-Modified-Since", "Range"];

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Which of the paths that belong here has it; 0: none.
    path: u32,
    bytes: Option<u32>,
    /// Requests until the length is asked for again.
    left: u8,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The bytes of the last response, if there has been one. Those with 4 GiB and more count modulo that.
    pub bytes: Option<u32>,
    /// What names the path to the node; 0: nothing is to be asked.
    pub ask: u16,
}

/// The table.
#[derive(Default)]
pub struct Sizes {
    slots: Vec<Slot>,
    hasher: RandomState,
}

impl Sizes {
    /// What is known of the path of a request for this pool; its query counts for nothing. About a response that may be
    /// shorter than others to the same path nothing is asked.
    pub fn of(&mut self, pool: usize, head: &Head<'_>) -> Size {
        if head.method == "HEAD" {
            return Size { bytes: Some(0), ask: 0 };
        }
        let hash = self.hasher.hash_one((pool, head.host, head.path()));
        // Nothing has the number 0.
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

    /// A node says how long the response was that it was asked about.
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
    fn a_length_is_asked_for_until_it_is_known_and_now_and_then() {
        let mut sizes = Sizes::default();
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
    fn parts_say_nothing_about_the_whole() {
        let mut sizes = Sizes::default();
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
        let mut sizes = Sizes::default();
        for number in 0..200_000 {
            let path = format!("/{number}");
            let size = of(&mut sizes, &path);
            sizes.learn(size.ask, number);
            assert_eq!(of(&mut sizes, &path).bytes, Some(number));
        }
        assert_eq!(sizes.slots.len(), SLOTS);
    }

    #[test]
    fn what_nobody_has_asked_for_is_not_learned() {
        let mut sizes = Sizes::default();
        sizes.learn(7, 1);
        of(&mut sizes, "/a");
        sizes.learn(0, 1);
        assert!(sizes.slots.iter().all(|slot| slot.bytes.is_none()));
    }
}
