//! The ends of messages, found byte by byte (RFC 9112 sections 6.3 and 7.1), and the positions of cookie names.
//!
//! The switch follows the chunked bodies of requests. A node follows the responses of its servers and, where it changes
//! cookie names, the requests as well. Both do so in BPF programs, one packet at a time, and keep of a message only how
//! far it has been followed ([`Framing`]). A parser with a branch for each case of the grammar would be too complex
//! for the verifier, and would exist twice, in C and in Rust. So the grammar is a table, built here by [`requests()`]
//! and [`responses()`], and only the few rules that interpret it are written twice, in [`Table::follow_names`] and in
//! `bpf/framing_walk.h`.
//!
//! A table has a row for each of `SB_FRAMING_STATES` states and a cell in it for each byte. A cell has an
//! action (`sb_framing_action`) in its high byte and the next state in its low byte. The rules:
//!
//! 1. In `SB_FRAMING_NONE` the message is over, in `SB_FRAMING_LOST` its end is unknown: stop.
//! 2. If the state has `SB_FRAMING_SKIP`, pass over `left` bytes, or as many as there are, and subtract them
//!    from `left`. When it is 0, clear the bit; a state of `SB_FRAMING_BODY` then ends the message.
//! 3. In `SB_FRAMING_NAME`, where a cookie name is expected, the table is not used. One name is searched for; its
//!    first `matched` bytes have been seen, and the next byte is `c`. The first rule that applies:
//!    - `matched` is 0 and `c` is a blank (space or tab): pass over it.
//!    - The whole name has matched, is not empty, and `c` is `=`: the name is *found*, and the position of the
//!      `=` is reported. `matched` becomes 0, the state `OTHER`, and `c` is still to be read.
//!    - `c` is the next byte of the name: pass over it and add 1 to `matched`.
//!    - Otherwise it is another name: `matched` becomes 0, the state `OTHER`, and `c` is still to be read.
//! 4. Otherwise take a byte and its cell, go to the cell's state, and do the cell's action:
//!    - `GO`: nothing else.
//!    - `REJECT` rejects. The low byte is not a state but the reason's [`Reject::index`].
//!    - `HEX` rejects if `left` is 2^59 or more; else `left` becomes 16 `left` plus the digit.
//!    - `DECIMAL` rejects if `left` is 2^59 or more; else `left` becomes 10 `left` plus the digit.
//!    - `STATUS`: `status` becomes 10 `status` plus the digit.
//!    - `LENGTH` rejects if `flags` has `HAS_LENGTH`; else sets it, and `left` becomes 0.
//!    - `CHUNKED` rejects if `flags` has `HAS_CHUNKED`; else sets it.
//!    - `CHUNK_BEGINS` goes to `TRAILER` instead if `left` is 0, and rejects if `left` is above `allowed`;
//!      else it subtracts `left` from `allowed` and sets `SKIP` in the state.
//!    - `COUNT` adds 1 to `left` and rejects if that is above `SB_FRAMING_TRAILER_MAX`.
//!    - `HEAD_ENDS`: see below. The cell's state has no meaning.
//!    - `ENDS`: the message ends.
//!    - `CLOSE` sets `HAS_CLOSE`: the server says that the connection ends with the message.
//!    - `EXTEND` adds 1 to `status` and rejects if that is above `SB_FRAMING_EXTENSION_MAX`. Requests have no status.
//!
//! In `TEXT` and `OTHER` every byte from space up leaves the state as it is, but `;` in `OTHER`, so C passes
//! over such bytes without the table.
//!
//! A message that ends leaves `state`, `left`, `status`, `flags` and `matched` at 0. `allowed` is not reset: the caller
//! sets it at the start of a message, to `u64::MAX` for any length. After a rejection the state is `LOST`.
//!
//! `HEAD_ENDS` follows a head; the first of these rules that applies decides (RFC 9112 section 6.3):
//!
//! 0. The status is 0, so it is a request: with both of `HAS_LENGTH` and `HAS_CHUNKED` the state becomes
//!    `LOST`, with `HAS_CHUNKED` `CHUNK`, and with a `left` above 0 `BODY` with `SKIP`; else the message
//!    ends.
//! 1. The status is 101: the state becomes `LOST`. Another protocol follows.
//! 2. The status is below 200, an interim response: `status`, `left` and `flags` become 0, the state `HEAD`.
//! 3. The request was HEAD, or the status is 204 or 304: the message ends.
//! 4. Both of `HAS_LENGTH` and `HAS_CHUNKED` are set, or neither: the state becomes `LOST`. The server
//!    contradicts itself, or it ends the response by closing the connection.
//! 5. It is `HAS_CHUNKED`: the state becomes `CHUNK`.
//! 6. `left` is 0: the message ends. Otherwise the state becomes `BODY` with `SKIP`.

mod builder;
#[allow(missing_docs, non_camel_case_types, clippy::all)]
#[rustfmt::skip]
pub mod generated;
mod requests;
mod responses;

use std::sync::LazyLock;

use generated::sb_framing_action::*;
use generated::{
    SB_FRAMING_BODY as BODY, SB_FRAMING_CHUNK as CHUNK, SB_FRAMING_EXTENSION_MAX,
    SB_FRAMING_HAS_CHUNKED as HAS_CHUNKED, SB_FRAMING_HAS_CLOSE as HAS_CLOSE,
    SB_FRAMING_HAS_LENGTH as HAS_LENGTH, SB_FRAMING_HEAD as HEAD, SB_FRAMING_LOST as LOST,
    SB_FRAMING_NAME as NAME, SB_FRAMING_NONE as NONE, SB_FRAMING_OTHER as OTHER, SB_FRAMING_SKIP as SKIP,
    SB_FRAMING_TEXT as TEXT, SB_FRAMING_TRAILER as TRAILER, SB_FRAMING_TRAILER_MAX, sb_framing,
};

use crate::{Body, Limits, Reject};

const GO: u16 = SB_FRAMING_GO as u16;
const REJECT: u16 = SB_FRAMING_REJECT as u16;
const HEX: u16 = SB_FRAMING_HEX as u16;
const DECIMAL: u16 = SB_FRAMING_DECIMAL as u16;
const STATUS: u16 = SB_FRAMING_STATUS as u16;
const LENGTH: u16 = SB_FRAMING_LENGTH as u16;
const CHUNKED: u16 = SB_FRAMING_CHUNKED as u16;
const CHUNK_BEGINS: u16 = SB_FRAMING_CHUNK_BEGINS as u16;
const COUNT: u16 = SB_FRAMING_COUNT as u16;
const HEAD_ENDS: u16 = SB_FRAMING_HEAD_ENDS as u16;
const ENDS: u16 = SB_FRAMING_ENDS as u16;
const CLOSE: u16 = SB_FRAMING_CLOSE as u16;
const EXTEND: u16 = SB_FRAMING_EXTEND as u16;

/// The automaton for requests. A whole request begins in `SB_FRAMING_HEAD`, a chunked body in `SB_FRAMING_CHUNK`.
///
/// Chunked bodies are read as strictly as [`parse_head`](crate::parse_head) reads heads. The trailer section can have
/// `SB_FRAMING_TRAILER_MAX` bytes before its last line feed, the extensions of all chunks together
/// `SB_FRAMING_EXTENSION_MAX`. The switch has checked the head before, so the automaton reads only its end, the length
/// of the body, and the cookie names in `Cookie`.
pub fn requests() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(requests::table);
    &TABLE
}

/// The automaton for responses with their bodies; each begins in `SB_FRAMING_HEAD`. Cookie names are those in
/// `Set-Cookie`.
///
/// A client may accept a response that this automaton rejects; a rejection only means that the end of the response is
/// unknown.
pub fn responses() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(responses::table);
    &TABLE
}

/// How far a message has been followed: `struct sb_framing` in the maps of the BPF programs. By default, between
/// messages.
///
/// The numbers of states have a meaning only for [`Table`] and its counterpart in C. Tests of the programs convert from
/// and to [`sb_framing`], to make and to see any state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Framing(sb_framing);

impl From<sb_framing> for Framing {
    fn from(framing: sb_framing) -> Self {
        Framing(framing)
    }
}

impl From<Framing> for sb_framing {
    fn from(framing: Framing) -> Self {
        framing.0
    }
}

impl Framing {
    /// The framing with this [`state`](Self::state) and [`left`](Self::left), as handoff packets have them.
    pub fn new(state: u16, left: u64) -> Self {
        Framing(sb_framing { state, left, ..Default::default() })
    }

    /// The number of the state, with `SB_FRAMING_SKIP` before data.
    pub fn state(&self) -> u16 {
        self.0.state
    }

    /// Bytes of data to skip, or the number that is being read.
    pub fn left(&self) -> u64 {
        self.0.left
    }

    /// The status of the response, as far as it has been read; 0 before.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// The same, with a limit for the rest of a request's body, in bytes of data.
    pub fn with_allowed(self, allowed: u64) -> Self {
        Framing(sb_framing { allowed, ..self.0 })
    }

    /// Whether the next byte begins a message.
    pub fn is_between_messages(&self) -> bool {
        self.0.state == NONE
    }

    /// Whether the end of the message is unknown.
    pub fn is_lost(&self) -> bool {
        self.0.state == LOST
    }

    /// Whether the next byte is data, which need not be read.
    pub fn is_in_data(&self) -> bool {
        self.0.state & SKIP != 0
    }

    /// Passes over data, up to `available` bytes, and returns how many; 0 outside of data.
    pub fn skip(&mut self, available: u64) -> u64 {
        if !self.is_in_data() {
            return 0;
        }
        let taken = self.0.left.min(available);
        self.0.left -= taken;
        if self.0.left == 0 {
            self.0.state &= !SKIP;
            if self.0.state == BODY {
                begin(&mut self.0, NONE);
            }
        }
        taken
    }
}

/// An automaton that follows messages.
#[derive(Debug)]
pub struct Table {
    cells: Vec<u16>,
}

/// Result of following a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// All bytes belong to the message, which continues.
    More,
    /// The message ends after this number of bytes.
    Ends(usize),
    /// The message is invalid; the byte at the index is the first to show it.
    Rejected(Reject, usize),
    /// The end of the response is unknown, or `framing` has no valid state.
    Lost,
}

impl Table {
    /// The cells, `SB_FRAMING_STATES` rows of 256: the cell of a byte in a state is at `state << 8 | byte`.
    pub fn cells(&self) -> &[u16] {
        &self.cells
    }

    /// Follows the message through `bytes`, which come after those already followed. `head` says that the message is a
    /// response to HEAD.
    pub fn follow(&self, framing: &mut Framing, bytes: &[u8], head: bool) -> Followed {
        self.follow_names(framing, bytes, head, b"", &mut |_| {})
    }

    /// Like [`follow`](Table::follow), and reports cookies named `wanted` to `found`: the index in `bytes` of the `=`
    /// after the name, which may begin in earlier bytes. `wanted` must not change within a message, and has at most 255
    /// bytes; an empty name is never found.
    pub fn follow_names(
        &self,
        framing: &mut Framing,
        bytes: &[u8],
        head: bool,
        wanted: &[u8],
        found: &mut dyn FnMut(usize),
    ) -> Followed {
        let mut at = 0;
        loop {
            match framing.state() {
                NONE => return Followed::Ends(at),
                LOST => return Followed::Lost,
                _ => {}
            }
            let Some(&byte) = bytes.get(at) else { return Followed::More };
            if framing.is_in_data() {
                at += framing.skip((bytes.len() - at) as u64) as usize;
                continue;
            }
            let framing = &mut framing.0;
            if framing.state == NAME {
                match compare(framing, byte, wanted) {
                    Compared::Same => at += 1,
                    Compared::Found => found(at),
                    Compared::Other => {}
                }
                continue;
            }
            // A map written by another version may contain any state.
            let Some(&cell) = self.cells.get(usize::from(framing.state) << 8 | usize::from(byte)) else {
                framing.state = LOST;
                return Followed::Lost;
            };
            if let Err(reason) = act(framing, cell, byte, head) {
                framing.state = LOST;
                return Followed::Rejected(reason, at);
            }
            at += 1;
        }
    }
}

impl Body {
    /// State at the start of this body, for [`requests()`].
    pub fn framing(self, limits: &Limits) -> Framing {
        let (state, left) = match self {
            Body::None | Body::Length(0) => (NONE, 0),
            Body::Length(len) => (BODY | SKIP, len),
            Body::Chunked => (CHUNK, 0),
        };
        Framing::new(state, left).with_allowed(limits.body_len)
    }
}

/// Result of comparing a byte with the wanted cookie name.
enum Compared {
    /// The name may be the wanted one; take the next byte.
    Same,
    /// The wanted name is complete, and the byte is the `=` after it.
    Found,
    /// The name is another one.
    Other,
}

/// Rule 3.
fn compare(framing: &mut sb_framing, byte: u8, wanted: &[u8]) -> Compared {
    let matched = usize::from(framing.matched);
    if matched == 0 && matches!(byte, b' ' | b'\t') {
        return Compared::Same;
    }
    let is_found = matched == wanted.len() && matched > 0 && byte == b'=';
    if !is_found && wanted.get(matched) == Some(&byte) {
        framing.matched += 1;
        return Compared::Same;
    }
    framing.matched = 0;
    framing.state = OTHER;
    if is_found { Compared::Found } else { Compared::Other }
}

/// Performs a cell's action.
fn act(framing: &mut sb_framing, cell: u16, byte: u8, head: bool) -> Result<(), Reject> {
    framing.state = cell & 0xff;
    match cell >> 8 {
        GO => {}
        HEX => {
            let digit = if byte.is_ascii_digit() { byte & 15 } else { (byte & 15) + 9 };
            framing.left = with_digit(framing.left, 16, digit).ok_or(Reject::InvalidChunkSize)?;
        }
        DECIMAL => {
            let number = with_digit(framing.left, 10, byte & 15);
            framing.left = number.ok_or(Reject::InvalidContentLength)?;
        }
        STATUS => framing.status = framing.status * 10 + u16::from(byte & 15),
        LENGTH => {
            set_once(framing, HAS_LENGTH, Reject::DuplicateContentLength)?;
            framing.left = 0;
        }
        CHUNKED => set_once(framing, HAS_CHUNKED, Reject::DuplicateEncoding)?,
        CHUNK_BEGINS if framing.left == 0 => framing.state = TRAILER,
        CHUNK_BEGINS => {
            framing.allowed = framing.allowed.checked_sub(framing.left).ok_or(Reject::BodyTooLong)?;
            framing.state |= SKIP;
        }
        COUNT => {
            framing.left += 1;
            if framing.left > u64::from(SB_FRAMING_TRAILER_MAX) {
                return Err(Reject::TrailerTooLong);
            }
        }
        HEAD_ENDS => head_ends(framing, head),
        ENDS => begin(framing, NONE),
        CLOSE => framing.flags |= HAS_CLOSE,
        EXTEND => {
            framing.status += 1;
            if framing.status > SB_FRAMING_EXTENSION_MAX {
                return Err(Reject::ExtensionTooLong);
            }
        }
        _ => return Err(Reject::ALL[usize::from(cell & 0xff)]),
    }
    Ok(())
}

/// `number` with one more digit; `None` if the result might be 2^63 or more.
fn with_digit(number: u64, base: u64, digit: u8) -> Option<u64> {
    (number >> 59 == 0).then(|| number * base + u64::from(digit))
}

fn set_once(framing: &mut sb_framing, flag: u8, otherwise: Reject) -> Result<(), Reject> {
    if framing.flags & flag != 0 {
        return Err(otherwise);
    }
    framing.flags |= flag;
    Ok(())
}

/// Determines the end of the message (RFC 9112 section 6.3).
fn head_ends(framing: &mut sb_framing, head: bool) {
    match (framing.status, framing.flags & !HAS_CLOSE) {
        (0, 0) => begin(framing, NONE),
        (0, _) => body_begins(framing),
        (101, _) => framing.state = LOST,
        (..200, _) => begin(framing, HEAD),
        (204 | 304, _) => begin(framing, NONE),
        _ if head => begin(framing, NONE),
        _ => body_begins(framing),
    }
}

/// Starts the body, if there is one.
fn body_begins(framing: &mut sb_framing) {
    match framing.flags & !HAS_CLOSE {
        HAS_CHUNKED => framing.state = CHUNK,
        HAS_LENGTH if framing.left == 0 => begin(framing, NONE),
        HAS_LENGTH => framing.state = BODY | SKIP,
        _ => framing.state = LOST,
    }
}

fn begin(framing: &mut sb_framing, state: u16) {
    *framing = sb_framing { state, allowed: framing.allowed, ..Default::default() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_lead_to_filled_states_or_reject_with_a_reason() {
        for table in [requests(), responses()] {
            let rows: Vec<_> = table.cells().chunks_exact(256).collect();
            let has_row = |state: usize| rows[state].iter().any(|cell| cell >> 8 != REJECT);
            assert_eq!(rows.len(), usize::from(generated::SB_FRAMING_STATES));
            for &cell in table.cells() {
                let low = usize::from(cell & 0xff);
                match cell >> 8 {
                    REJECT => assert!(low < Reject::ALL.len()),
                    HEAD_ENDS | ENDS => {}
                    GO..=EXTEND => assert!(low == usize::from(NAME) || has_row(low), "{cell:#x}"),
                    _ => panic!("{cell:#x} has no action"),
                }
            }
            for state in [HEAD, CHUNK, TRAILER, TEXT, OTHER] {
                assert!(has_row(state.into()), "{state}");
            }
            for state in [NONE, BODY, LOST, NAME] {
                assert!(!has_row(state.into()), "{state}");
            }
        }
    }

    #[test]
    fn bytes_that_framing_h_skips_keep_the_state() {
        for table in [requests(), responses()] {
            for byte in b' '..=0xff {
                let of = |state: u16| table.cells()[usize::from(state) << 8 | usize::from(byte)];
                assert_eq!(of(TEXT), TEXT, "{byte:#x}");
                assert!(byte == b';' || of(OTHER) == OTHER, "{byte:#x}");
            }
        }
    }
}
