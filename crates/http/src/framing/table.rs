//! A table and the rules that interpret it, and how far it has followed a message.

use super::codes::{
    BODY, CHUNK, CHUNK_BEGINS, CHUNKED, CLOSE, COUNT, DECIMAL, ENDS, EXTEND, GO, HAS_CHUNKED, HAS_CLOSE,
    HAS_LENGTH, HEAD, HEAD_ENDS, HEX, LENGTH, LOST, NAME, NONE, OTHER, SKIP, STATUS, TRAILER,
};
use super::generated::{SB_FRAMING_EXTENSION_MAX, SB_FRAMING_TRAILER_MAX, sb_framing};
use crate::{Body, Limits, Reject};

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

    /// Whether the next byte begins a line of the trailer section.
    pub fn is_at_trailer(&self) -> bool {
        self.0.state == TRAILER
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
    pub(super) cells: Vec<u16>,
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
    /// State at the start of this body, for [`requests()`](super::requests()).
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
