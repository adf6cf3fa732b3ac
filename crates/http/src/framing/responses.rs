//! The automaton for responses. Servers are not attackers, so it accepts more than for requests: any reason phrase,
//! values, chunk extensions and trailers. It is as strict about everything that determines the end of a response.

use super::builder::{Builder, cell, only, reject, rest_of_line, value_ends};
use super::codes::{CHUNKED, CLOSE, ENDS, GO, HEAD, NAME, NONE, OTHER, STATUS, TEXT, TRAILER};
use super::table::Table;
use crate::Reject;

const VERSION: &[&[u8]] = &[b"H", b"T", b"T", b"P", b"/", b"1", b"."];
const CLOSES: &[u8] = b"close";
const CODE: &[&[u8]] = &[b"12345", b"0123456789", b"0123456789"];
const ENCODING: &[&[u8]] = &[b"cC", b"hH", b"uU", b"nN", b"kK", b"eE", b"dD"];

pub(super) fn table() -> Table {
    let mut builder = Builder::new();
    let [line_lf, encoding, option] = builder.states();

    status_line(&mut builder, line_lf);
    let known: &[(&'static [u8], u16)] = &[
        (b"transfer-encoding", cell(CHUNKED, encoding)),
        (b"connection", cell(GO, option)),
        (b"set-cookie", cell(GO, NAME)),
    ];
    builder.head(line_lf, known);
    // One cookie per field; what follows may look like more cookies, but is none (RFC 6265 section 4.1).
    builder.fill(OTHER, rest_of_line(OTHER, line_lf));

    let encoding_end = builder.sequence(encoding, GO, ENCODING, Reject::UnsupportedEncoding);
    builder.set(encoding, b' ', cell(GO, encoding));
    builder.set(encoding, b'\t', cell(GO, encoding));
    builder.fill(encoding_end, value_ends(encoding_end, line_lf));
    connection(&mut builder, option, line_lf);
    chunks_and_trailer(&mut builder);
    builder.table()
}

/// The status line.
fn status_line(builder: &mut Builder, line_lf: u16) {
    let minor = builder.sequence(HEAD, GO, VERSION, Reject::InvalidVersion);
    let [version_end] = builder.states();
    // An HTTP/1.0 response closes the connection by default (RFC 9112 section 9.3), and may close it even with
    // keep-alive.
    builder.fill(minor, |c| match c {
        b'0' => cell(CLOSE, version_end),
        b'1' => cell(GO, version_end),
        _ => reject(Reject::InvalidVersion),
    });
    let code = builder.sequence(version_end, GO, &[b" "], Reject::InvalidVersion);
    let status_end = builder.sequence(code, STATUS, CODE, Reject::InvalidVersion);
    builder.fill(status_end, |c| match c {
        b' ' => cell(GO, TEXT),
        b'\r' => cell(GO, line_lf),
        _ => reject(Reject::InvalidVersion),
    });
}

/// The value of `Connection`, from the state `option` on: a list with `close` at any position (RFC 9110 section 7.6.1).
fn connection(builder: &mut Builder, option: u16, line_lf: u16) {
    let [other_option, closes_end] = builder.states();
    let goes_on = |c| match c {
        b',' => cell(GO, option),
        c => rest_of_line(other_option, line_lf)(c),
    };
    builder.fill(other_option, goes_on);
    let mut state = option;
    for (index, wanted) in CLOSES.iter().enumerate() {
        let next = if index + 1 == CLOSES.len() { closes_end } else { builder.states::<1>()[0] };
        builder.fill(state, |c| match c {
            b' ' | b'\t' if state == option => cell(GO, option),
            c if c.eq_ignore_ascii_case(wanted) => cell(GO, next),
            c => goes_on(c),
        });
        state = next;
    }
    builder.fill(closes_end, |c| match c {
        b' ' | b'\t' => cell(GO, closes_end),
        b',' => cell(CLOSE, option),
        b'\r' => cell(CLOSE, line_lf),
        c => goes_on(c),
    });
}

/// Chunks, with any extensions, and any trailer.
fn chunks_and_trailer(builder: &mut Builder) {
    let [size_lf, before_extension, extension] = builder.states();
    let extension_begins = |c| match c {
        b' ' | b'\t' => cell(GO, before_extension),
        b';' => cell(GO, extension),
        _ => reject(Reject::InvalidChunkSize),
    };
    builder.chunks(size_lf, extension_begins);
    builder.fill(before_extension, extension_begins);
    builder.fill(extension, rest_of_line(extension, size_lf));

    let [trailer, trailer_lf, end_lf] = builder.states();
    builder.fill(TRAILER, rest_of_line(trailer, end_lf));
    builder.fill(trailer, rest_of_line(trailer, trailer_lf));
    builder.fill(trailer_lf, only(b'\n', cell(GO, TRAILER), Reject::BareCr));
    builder.fill(end_lf, only(b'\n', cell(ENDS, NONE), Reject::BareCr));
}
