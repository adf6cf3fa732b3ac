//! Builds tables: state numbers, cells, and the parts of the grammar that requests and responses share.

use std::collections::BTreeMap;

use super::codes::{CHUNK, CHUNK_BEGINS, DECIMAL, GO, HEAD_ENDS, HEX, LENGTH, NONE, OTHER, REJECT, TEXT};
use super::generated::SB_FRAMING_STATES;
use super::table::Table;
use crate::table::{self, TOKEN};
use crate::{Reject, fields};

/// A partly filled table; the other cells reject.
pub(super) struct Builder {
    cells: Vec<u16>,
    /// The next unused state.
    next: u16,
}

/// A cell with `action` and the next state.
pub(super) fn cell(action: u16, next: u16) -> u16 {
    action << 8 | next
}

/// A cell that rejects.
pub(super) fn reject(reason: Reject) -> u16 {
    cell(REJECT, reason.index() as u16)
}

/// A row that accepts only `byte`.
pub(super) fn only(byte: u8, cell: u16, otherwise: Reject) -> impl Fn(u8) -> u16 {
    move |c| if c == byte { cell } else { reject(otherwise) }
}

/// The row of a state in any text up to the end of its line: `more` for text, `before_lf` after the carriage return.
pub(super) fn rest_of_line(more: u16, before_lf: u16) -> impl Fn(u8) -> u16 {
    move |c| match c {
        b'\r' => cell(GO, before_lf),
        b'\n' => reject(Reject::BareLf),
        0 => reject(Reject::InvalidFieldValue),
        _ => cell(GO, more),
    }
}

/// The row of a state that allows only blanks, with the state `blanks`, up to the end of the line.
pub(super) fn value_ends(blanks: u16, before_lf: u16) -> impl Fn(u8) -> u16 {
    move |c| match c {
        b' ' | b'\t' => cell(GO, blanks),
        b'\r' => cell(GO, before_lf),
        _ => reject(Reject::InvalidFieldValue),
    }
}

impl Builder {
    pub(super) fn new() -> Self {
        let cells = vec![reject(Reject::InvalidFieldName); usize::from(SB_FRAMING_STATES) * 256];
        Builder { cells, next: OTHER + 1 }
    }

    /// Allocates states.
    pub(super) fn states<const N: usize>(&mut self) -> [u16; N] {
        std::array::from_fn(|_| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Fills the row of `state`.
    pub(super) fn fill(&mut self, state: u16, cell: impl Fn(u8) -> u16) {
        for byte in 0..=255 {
            self.set(state, byte, cell(byte));
        }
    }

    pub(super) fn set(&mut self, state: u16, byte: u8, cell: u16) {
        self.cells[usize::from(state) << 8 | usize::from(byte)] = cell;
    }

    pub(super) fn table(self) -> Table {
        Table { cells: self.cells }
    }

    /// Adds one state per set, each of which accepts a byte of its set with `action`. Returns the state after them.
    pub(super) fn sequence(&mut self, start: u16, action: u16, sets: &[&[u8]], otherwise: Reject) -> u16 {
        let mut state = start;
        for set in sets {
            let [next] = self.states();
            self.fill(state, |c| if set.contains(&c) { cell(action, next) } else { reject(otherwise) });
            state = next;
        }
        state
    }

    /// Chunks: a size of 1 to 16 digits, a line end, data, a line end. `size_lf` becomes the state before the first
    /// line feed; `other` gives the cells after a digit for bytes that are neither digit nor carriage return, and for
    /// digits after the 16th.
    pub(super) fn chunks(&mut self, size_lf: u16, other: impl Fn(u8) -> u16) {
        let after_digits: [u16; 16] = self.states();
        let [data_cr, data_lf] = self.states();
        self.fill(CHUNK, |c| match c {
            _ if c.is_ascii_hexdigit() => cell(HEX, after_digits[0]),
            _ => reject(Reject::InvalidChunkSize),
        });
        for (i, &state) in after_digits.iter().enumerate() {
            self.fill(state, |c| match (c, after_digits.get(i + 1)) {
                (b'\r', _) => cell(GO, size_lf),
                (_, Some(&next)) if c.is_ascii_hexdigit() => cell(HEX, next),
                _ => other(c),
            });
        }
        self.fill(size_lf, only(b'\n', cell(CHUNK_BEGINS, data_cr), Reject::BareCr));
        self.fill(data_cr, only(b'\r', cell(GO, data_lf), Reject::InvalidChunkEnd));
        self.fill(data_lf, only(b'\n', cell(GO, CHUNK), Reject::InvalidChunkEnd));
    }

    /// The fields of a head up to its end. `line_lf` becomes the state before the line feed of any line, including the
    /// first line, which is built elsewhere and ends there or in `TEXT`. `known` has names besides Content-Length with
    /// the cells of their colons. Other lines continue in `TEXT` from the first character that differs, so errors in
    /// the rest of their names go unnoticed.
    pub(super) fn head(&mut self, line_lf: u16, known: &[(&'static [u8], u16)]) {
        let [fields, head_lf, length, digits, blanks] = self.states();
        let content_length = [(&b"content-length"[..], cell(LENGTH, length))];
        let known: BTreeMap<_, _> = known.iter().copied().chain(content_length).collect();
        let names: Vec<_> = known.keys().copied().collect();
        let any = cell(GO, TEXT);
        self.names(
            fields,
            GO,
            &names,
            |c| c.to_ascii_lowercase(),
            TEXT,
            |name| known.get(name).copied().unwrap_or(any),
        );
        self.set(fields, b'\r', cell(GO, head_lf));
        self.fill(head_lf, only(b'\n', cell(HEAD_ENDS, NONE), Reject::BareCr));
        self.fill(TEXT, rest_of_line(TEXT, line_lf));
        self.fill(line_lf, only(b'\n', cell(GO, fields), Reject::BareCr));

        self.fill(length, |c| match c {
            b' ' | b'\t' => cell(GO, length),
            b'0'..=b'9' => cell(DECIMAL, digits),
            _ => reject(Reject::InvalidContentLength),
        });
        let ends = value_ends(blanks, line_lf);
        self.fill(digits, |c| if c.is_ascii_digit() { cell(DECIMAL, digits) } else { ends(c) });
        self.fill(blanks, ends);
    }

    /// Field names, each a token and a colon, from the state `start`. Their characters have `action` and are compared
    /// after `fold`. `known` gives the cell of the colon after a name; an empty name stands for all others. A character
    /// that differs from all known names leads to `unknown`, whose row is not filled.
    pub(super) fn names(
        &mut self,
        start: u16,
        action: u16,
        known: &[&'static [u8]],
        fold: fn(u8) -> u8,
        unknown: u16,
        colon: impl Fn(&[u8]) -> u16,
    ) {
        let mut beginnings: BTreeMap<&[u8], u16> = BTreeMap::new();
        for name in known {
            for len in 1..=name.len() {
                beginnings.entry(&name[..len]).or_insert_with(|| {
                    let [state] = self.states();
                    state
                });
            }
        }
        let row = |beginning: &[u8], c: u8| {
            if !table::is(TOKEN, c) {
                return reject(fields::not_a_name(c, beginning.is_empty()));
            }
            let longer = [beginning, &[fold(c)]].concat();
            cell(action, beginnings.get(&longer[..]).copied().unwrap_or(unknown))
        };
        self.fill(start, |c| row(b"", c));
        for (beginning, &state) in &beginnings {
            self.fill(state, |c| row(beginning, c));
            self.set(state, b':', colon(if known.contains(beginning) { beginning } else { b"" }));
        }
    }
}
