//! How the mark of a flow moves through the client's stream: over the heads of requests and through their bodies.
//!
//! The mark says where what has been read ends. A flow entry has it as `next`, with what comes there in `framing`: a
//! request (state NONE), or more of a body. The XDP program moves marks by the same rules (`bpf/body.h`).

use switchback_http::framing::{self, Followed, Framing};
use switchback_http::{Body, Head, Limits, Reject, Version};
use switchback_wire::*;

use crate::held::before;

/// How much of a request one packet can say to have been read.
const READ_MAX: usize = u16::MAX as usize;

/// As a packet says it.
pub fn saturated(read: usize) -> u16 {
    read.min(READ_MAX) as u16
}

/// Moves the mark into data that need not be read, as long as it still can be told from the past: `settle()` in
/// `bpf/body.h`.
pub fn settle(entry: &mut sb_flow_entry) {
    let step = entry.framing.skip(SB_STEP_MAX.into());
    entry.next = entry.next.wrapping_add(step as u32);
}

/// Whether the mark is inside a body.
pub fn in_body(entry: &sb_flow_entry) -> bool {
    !entry.framing.is_between_messages()
}

/// Whether the mark is in the middle of data, because a body is longer than the mark may be moved at once.
pub fn is_passing(entry: &sb_flow_entry) -> bool {
    entry.framing.is_in_data()
}

/// Where the node must have come to before a mark in the middle of data goes on. A client's word is not enough: with
/// packets that no server takes it could move the mark once around all sequence numbers.
pub fn due(entry: &sb_flow_entry) -> u32 {
    entry.next.wrapping_sub(SB_STEP_NEAR + SB_STEP_LATE)
}

/// Moves the mark behind a request's head, and through its body as far as `data` goes, which begins at the mark; how much of it
/// has been read. What the client says of the connection's end changes nothing: servers read that in many ways, and what
/// follows is read here.
pub fn enter(
    entry: &mut sb_flow_entry,
    head: &Head<'_>,
    data: &[u8],
    limits: &Limits,
) -> Result<usize, Reject> {
    if head.version == Version::Http2 {
        enter_tunnel(entry, head.len);
        return Ok(head.len);
    }
    begin(entry, head.len, head.method == "HEAD");
    if head.tunnel {
        entry.mode = sb_mode::SB_MODE_UPGRADING as u8;
    }
    entry.framing = head.body.framing(limits);
    settle(entry);
    if head.body != Body::Chunked {
        return Ok(head.len);
    }
    let data = &data[..data.len().min(READ_MAX.max(head.len))];
    follow(entry, &data[head.len..])?;
    Ok(data.len().min(entry.next.wrapping_sub(entry.begins) as usize))
}

/// Moves the mark behind something that begins a stream of which no more is read.
pub fn enter_tunnel(entry: &mut sb_flow_entry, len: usize) {
    begin(entry, len, false);
    entry.mode = sb_mode::SB_MODE_TUNNEL as u8;
}

/// One more request, whose head is so long, begins at the mark.
fn begin(entry: &mut sb_flow_entry, len: usize, is_head: bool) {
    if entry.begins != entry.next {
        entry.tries = 0;
    }
    entry.begins = entry.next;
    entry.next = entry.next.wrapping_add(len as u32);
    entry.requests = entry.requests.wrapping_add(1);
    entry.heads = entry.heads << 1 | u32::from(is_head);
    entry.mode = sb_mode::SB_MODE_REQUESTS as u8;
}

/// Whether the entry says more of its flow than another one: its mark is of a later turn, or further on.
pub fn is_newer(entry: &sb_flow_entry, than: &sb_flow_entry) -> bool {
    match entry.turn.wrapping_sub(than.turn) as i8 {
        0 => before(than.next, entry.next),
        turns => turns > 0,
    }
}

/// Whether the entries are of one connection at one node.
pub fn is_of_same(entry: &sb_flow_entry, other: &sb_flow_entry) -> bool {
    (entry.node, entry.origin) == (other.node, other.origin)
}

/// The entry with the mark that its node says, whatever has been read since.
pub fn at(entry: &sb_flow_entry, mark: &sb_flow_entry) -> sb_flow_entry {
    sb_flow_entry {
        next: mark.next,
        begins: mark.next,
        tries: 0,
        requests: mark.requests,
        heads: mark.heads,
        framing: mark.framing,
        session: mark.session,
        mode: mark.mode,
        locked: 0,
        turn: entry.turn.wrapping_add(1),
        ..*entry
    }
}

/// Moves the mark back to where the last request begins, as if it had not been read.
pub fn back(entry: &sb_flow_entry) -> sb_flow_entry {
    sb_flow_entry {
        next: entry.begins,
        requests: entry.requests.wrapping_sub(1),
        heads: entry.heads >> 1,
        framing: Framing::default(),
        mode: sb_mode::SB_MODE_REQUESTS as u8,
        locked: 0,
        ..*entry
    }
}

/// Moves the mark through a body as far as `data` goes, which begins at the mark. After an error the mark is where it
/// was.
pub fn follow(entry: &mut sb_flow_entry, data: &[u8]) -> Result<(), Reject> {
    let mut framing = entry.framing;
    let len = match framing::requests().follow(&mut framing, data, false) {
        Followed::More => data.len(),
        Followed::Ends(len) => len,
        Followed::Rejected(reject, _) => return Err(reject),
        // No entry of this program's making says so; the map may be another version's.
        Followed::Lost => return Err(Reject::InvalidChunkSize),
    };
    entry.framing = framing;
    entry.next = entry.next.wrapping_add(len as u32);
    settle(entry);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_http::{Progress, parse_head};

    fn entered(request: &str) -> sb_flow_entry {
        let mut entry = sb_flow_entry { next: 1000, ..Default::default() };
        let Ok(Progress::Complete(head)) = parse_head(request.as_bytes(), &Limits::default()) else {
            panic!("{request:?} is a head");
        };
        enter(&mut entry, &head, request.as_bytes(), &Limits::default()).unwrap();
        entry.next = entry.next.wrapping_sub(1000 + head.len as u32);
        entry
    }

    #[test]
    fn a_body_of_known_length_is_behind_the_mark_at_once() {
        let entry = entered("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 12345\r\n\r\n");
        assert_eq!((entry.next, in_body(&entry), entry.requests, entry.heads), (12345, false, 1, 0));
        assert_eq!(entered("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").heads, 1);
    }

    #[test]
    fn what_follows_a_request_is_read_unless_the_server_may_agree_to_something_else() {
        let mode = |request: &str| entered(request).mode;
        let (requests, upgrading) = (sb_mode::SB_MODE_REQUESTS as u8, sb_mode::SB_MODE_UPGRADING as u8);
        let http11 = "PUT / HTTP/1.1\r\nHost: a\r\n";
        let upgrade = format!("{http11}Connection: upgrade\r\nUpgrade: websocket\r\n");
        assert_eq!(mode(&format!("{http11}Connection: close\r\n\r\n")), requests);
        assert_eq!(mode("GET / HTTP/1.0\r\n\r\n"), requests);
        assert_eq!(mode(&format!("{upgrade}\r\n")), upgrading);
        assert_eq!(mode(&format!("{upgrade}Content-Length: 5\r\n\r\n")), upgrading);
        let chunked = entered(&format!("{upgrade}Transfer-Encoding: chunked\r\n\r\n1\r\n"));
        assert_eq!((chunked.mode, in_body(&chunked)), (upgrading, true));
        assert_eq!(mode("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), sb_mode::SB_MODE_TUNNEL as u8);
    }

    #[test]
    fn a_long_body_moves_the_mark_in_steps() {
        let mut entry = entered("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000000\r\n\r\n");
        let mut steps = 1;
        while in_body(&entry) {
            assert!(is_passing(&entry));
            settle(&mut entry);
            steps += 1;
        }
        assert_eq!((entry.next, steps), (10_000_000_000u64 as u32, 10_000_000_000u64.div_ceil(1 << 29)));
    }

    #[test]
    fn a_chunk_is_skipped_and_the_next_size_read() {
        let mut entry = entered("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(entry.next, 0);
        follow(&mut entry, b"1000\r\nabc").unwrap();
        assert_eq!(entry.next, 6 + 0x1000);
        assert!(in_body(&entry));
        follow(&mut entry, b"\r\n0\r\n").unwrap();
        follow(&mut entry, b"\r\nGET").unwrap();
        assert_eq!((entry.next, in_body(&entry)), (6 + 0x1000 + 7, false));
    }

    #[test]
    fn a_head_takes_what_follows_of_its_chunks_along() {
        let head = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let entry = entered(&format!("{head}3\r\nabc\r\n0\r\n\r\nGET /"));
        assert_eq!((entry.next, in_body(&entry)), (13, false));
    }

    #[test]
    fn an_error_leaves_the_mark() {
        let mut entry = entered("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let before = entry;
        assert_eq!(follow(&mut entry, b"1\r\naxx"), Err(Reject::InvalidChunkEnd));
        assert_eq!(entry, before);
    }
}
