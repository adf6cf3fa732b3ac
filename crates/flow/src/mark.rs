//! How the mark of a flow moves through the client's stream: over the heads of requests and through their bodies.
//!
//! The mark says where what has been read ends, and what comes there: a request, or more of a body. The XDP program moves
//! marks by the same rules (`bpf/body.h`).

use std::num::Wrapping;

use switchback_http::Reject;
use switchback_http::framing::{self, Followed, Framing};
use switchback_wire::{SB_STEP_LATE, SB_STEP_MAX, SB_STEP_NEAR, Seq, sb_session};

/// How much of a request one packet can say to have been read.
pub(crate) const READ_MAX: usize = u16::MAX as usize;

/// As a packet says it.
pub fn saturated(read: usize) -> u16 {
    read.min(READ_MAX) as u16
}

/// The end of what the switch has read of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Its sequence number: data before it goes to the node unread.
    pub next: Seq,
    /// What comes there.
    pub framing: Framing,
    /// Sequence number of the last request; if unknown, that of the mark.
    pub begins: Seq,
    /// How often the last request has come back without an answer.
    pub tries: u8,
    /// Requests given to the node since it adopted the flow.
    pub requests: Wrapping<u16>,
    /// The HEAD requests among the last 32, the latest in the lowest bit.
    pub heads: u32,
    /// The session of the last request.
    pub session: sb_session,
    /// How often the mark has gone back; tells old entries.
    pub turn: Wrapping<u8>,
}

impl Mark {
    /// A mark between requests, of which none is known.
    pub fn at(next: Seq) -> Self {
        Mark { next, begins: next, ..Mark::default() }
    }

    /// The mark between requests at another place.
    pub fn moved_to(&self, next: Seq) -> Self {
        Mark { next, begins: next, framing: Framing::default(), ..*self }
    }

    /// Moves the mark into data that need not be read, as long as it still can be told from the past: `settle()` in
    /// `bpf/body.h`.
    pub fn settle(&mut self) {
        let step = self.framing.skip(SB_STEP_MAX.into());
        self.next += step as u32;
    }

    /// Whether the mark is inside a body.
    pub fn is_in_body(&self) -> bool {
        !self.framing.is_between_messages()
    }

    /// Whether the mark is in the middle of data, because a body is longer than the mark may be moved at once.
    pub fn is_passing(&self) -> bool {
        self.framing.is_in_data()
    }

    /// Where the node must have come to before a mark in the middle of data goes on. A client's word is not enough: with
    /// packets that no server takes it could move the mark once around all sequence numbers.
    pub fn due(&self) -> Seq {
        self.next - (SB_STEP_NEAR + SB_STEP_LATE)
    }

    /// Whether it says more of its flow than another one: it is of a later turn, or further on.
    pub fn is_newer(&self, than: &Mark) -> bool {
        match (self.turn - than.turn).0 as i8 {
            0 => self.next.after(than.next),
            turns => turns > 0,
        }
    }

    /// The last request is HEAD.
    pub fn is_behind_head(&self) -> bool {
        self.heads & 1 == 1
    }

    /// Moves the mark behind the head of one more request, which begins at it and has this length.
    pub(crate) fn enter(&mut self, len: usize, is_head: bool) {
        if self.begins != self.next {
            self.tries = 0;
        }
        self.begins = self.next;
        self.next += len;
        self.requests += 1;
        self.heads = self.heads << 1 | u32::from(is_head);
    }

    /// Moves the mark through a body as far as `data` goes, which begins at the mark. After an error the mark is where it
    /// was.
    pub fn follow(&mut self, data: &[u8]) -> Result<(), Reject> {
        let mut framing = self.framing;
        let len = match framing::requests().follow(&mut framing, data, false) {
            Followed::More => data.len(),
            Followed::Ends(len) => len,
            Followed::Rejected(reject, _) => return Err(reject),
            // No entry of this program's making says so; the map may be another version's.
            Followed::Lost => return Err(Reject::InvalidChunkSize),
        };
        self.framing = framing;
        self.next += len;
        self.settle();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Mode};
    use switchback_http::{Limits, Progress, parse_head};
    use switchback_wire::flow_state::Stream;

    /// The entry behind the head, with the mark counted from there.
    fn entered(request: &str) -> Entry {
        let mut entry = Entry::new(Seq(1000));
        let Ok(Progress::Complete(head)) = parse_head(request.as_bytes(), &Limits::default()) else {
            panic!("{request:?} is a head");
        };
        entry.enter(&head, request.as_bytes(), &Limits::default()).unwrap();
        entry.mark.next = entry.mark.next - (1000 + head.len as u32);
        entry
    }

    #[test]
    fn a_body_of_known_length_is_behind_the_mark_at_once() {
        let mark = entered("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 12345\r\n\r\n").mark;
        assert_eq!((mark.next, mark.is_in_body(), mark.requests.0, mark.heads), (Seq(12345), false, 1, 0));
        assert_eq!(entered("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").mark.heads, 1);
    }

    #[test]
    fn what_follows_a_request_is_read_unless_the_server_may_agree_to_something_else() {
        let mode = |request: &str| entered(request).mode;
        let (requests, upgrading) = (Mode::AtNode(Stream::Requests), Mode::AtNode(Stream::Upgrading));
        let http11 = "PUT / HTTP/1.1\r\nHost: a\r\n";
        let upgrade = format!("{http11}Connection: upgrade\r\nUpgrade: websocket\r\n");
        assert_eq!(mode(&format!("{http11}Connection: close\r\n\r\n")), requests);
        assert_eq!(mode("GET / HTTP/1.0\r\n\r\n"), requests);
        assert_eq!(mode(&format!("{upgrade}\r\n")), upgrading);
        assert_eq!(mode(&format!("{upgrade}Content-Length: 5\r\n\r\n")), upgrading);
        let chunked = entered(&format!("{upgrade}Transfer-Encoding: chunked\r\n\r\n1\r\n"));
        assert_eq!((chunked.mode, chunked.mark.is_in_body()), (upgrading, true));
        assert_eq!(mode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Mode::AtNode(Stream::Tunnel));
    }

    #[test]
    fn a_long_body_moves_the_mark_in_steps() {
        let mut mark = entered("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000000\r\n\r\n").mark;
        let mut steps = 1;
        while mark.is_in_body() {
            assert!(mark.is_passing());
            mark.settle();
            steps += 1;
        }
        assert_eq!((mark.next, steps), (Seq(10_000_000_000u64 as u32), 10_000_000_000u64.div_ceil(1 << 29)));
    }

    #[test]
    fn a_chunk_is_skipped_and_the_next_size_read() {
        let mut mark = entered("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").mark;
        assert_eq!(mark.next, Seq(0));
        mark.follow(b"1000\r\nabc").unwrap();
        assert_eq!(mark.next, Seq(6 + 0x1000));
        assert!(mark.is_in_body());
        mark.follow(b"\r\n0\r\n").unwrap();
        mark.follow(b"\r\nGET").unwrap();
        assert_eq!((mark.next, mark.is_in_body()), (Seq(6 + 0x1000 + 7), false));
    }

    #[test]
    fn a_head_takes_what_follows_of_its_chunks_along() {
        let head = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mark = entered(&format!("{head}3\r\nabc\r\n0\r\n\r\nGET /")).mark;
        assert_eq!((mark.next, mark.is_in_body()), (Seq(13), false));
    }

    #[test]
    fn an_error_leaves_the_mark() {
        let mut mark = entered("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").mark;
        let before = mark;
        assert_eq!(mark.follow(b"1\r\naxx"), Err(Reject::InvalidChunkEnd));
        assert_eq!(mark, before);
    }
}
