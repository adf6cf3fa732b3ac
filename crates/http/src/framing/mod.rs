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
//!    - `REJECT` rejects. The low byte is not a state but the reason's [`index`](crate::Reject::index).
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
mod codes;
#[allow(missing_docs, non_camel_case_types, clippy::all)]
#[rustfmt::skip]
pub mod generated;
mod requests;
mod responses;
mod table;

use std::sync::LazyLock;

pub use table::{Followed, Framing, Table};

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

#[cfg(test)]
mod tests {
    use super::codes::{
        BODY, CHUNK, ENDS, EXTEND, GO, HEAD, HEAD_ENDS, LOST, NAME, NONE, OTHER, REJECT, TEXT, TRAILER,
    };
    use super::*;
    use crate::Reject;

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
