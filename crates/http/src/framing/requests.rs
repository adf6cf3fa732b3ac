//! The automaton for requests. It accepts only chunked bodies that every parser reads the same way. Heads have been
//! checked before, so it reads only their ends, the length of the body, and cookies.

use super::builder::{Builder, cell, only, reject, rest_of_line};
use super::codes::{CHUNKED, COUNT, ENDS, EXTEND, GO, HEAD, NAME, NONE, OTHER, TEXT, TRAILER};
use super::table::Table;
use crate::table::{self, TOKEN, VALUE};
use crate::{Reject, fields};

/// Field names that matter to framing.
const KNOWN: &[&[u8]] = &[b"host", b"content-length", b"transfer-encoding"];

pub(super) fn table() -> Table {
    let mut builder = Builder::new();
    head(&mut builder);
    let [size_lf, name, value, value_lf, end_lf] = builder.states();

    let [extension] = builder.states();
    builder.chunks(size_lf, |c| match c {
        b';' => cell(EXTEND, extension),
        b'\n' => reject(Reject::BareLf),
        _ => reject(Reject::InvalidChunkSize),
    });
    extensions(&mut builder, extension, size_lf);

    builder.names(TRAILER, COUNT, KNOWN, fields::cgi, name, |name| match name {
        b"" => cell(COUNT, value),
        _ => reject(Reject::ForbiddenTrailer),
    });
    builder.fill(name, |c| match c {
        b':' => cell(COUNT, value),
        _ if table::is(TOKEN, c) => cell(COUNT, name),
        _ => reject(fields::not_a_name(c, false)),
    });
    builder.fill(value, |c| match c {
        b'\r' => cell(COUNT, value_lf),
        b'\n' => reject(Reject::BareLf),
        _ if table::is(VALUE, c) => cell(COUNT, value),
        _ => reject(Reject::InvalidFieldValue),
    });
    builder.fill(value_lf, only(b'\n', cell(COUNT, TRAILER), Reject::BareCr));
    builder.set(TRAILER, b'\r', cell(COUNT, end_lf));
    builder.fill(end_lf, only(b'\n', cell(ENDS, NONE), Reject::BareCr));
    builder.table()
}

/// Chunk extensions, from the first semicolon on: names with optional values, which are tokens or quoted strings (RFC
/// 9112 section 7.1.1). Blanks around them are refused, because not all parsers accept them as the RFC asks.
fn extensions(builder: &mut Builder, start: u16, size_lf: u16) {
    let [name, equals, value, quoted, escaped, unquoted] = builder.states();
    let ends = |c: u8| match c {
        b';' => cell(EXTEND, start),
        b'\r' => cell(GO, size_lf),
        b'\n' => reject(Reject::BareLf),
        _ => reject(Reject::ChunkExtension),
    };
    let token_to = |next: u16, otherwise: u16| {
        move |c: u8| if table::is(TOKEN, c) { cell(EXTEND, next) } else { otherwise }
    };
    builder.fill(start, token_to(name, reject(Reject::ChunkExtension)));
    builder.fill(name, |c| if c == b'=' { cell(EXTEND, equals) } else { token_to(name, ends(c))(c) });
    builder.fill(equals, token_to(value, reject(Reject::ChunkExtension)));
    builder.set(equals, b'"', cell(EXTEND, quoted));
    builder.fill(value, |c| token_to(value, ends(c))(c));
    let text = |c: u8| {
        if table::is(VALUE, c) { cell(EXTEND, quoted) } else { reject(Reject::ChunkExtension) }
    };
    builder.fill(quoted, text);
    builder.set(quoted, b'\\', cell(EXTEND, escaped));
    builder.set(quoted, b'"', cell(EXTEND, unquoted));
    builder.fill(escaped, text);
    builder.fill(unquoted, ends);
}

fn head(builder: &mut Builder) {
    let [line_lf, empty_lf] = builder.states();
    builder.fill(HEAD, |c| match c {
        b'\r' => cell(GO, empty_lf),
        c => rest_of_line(TEXT, line_lf)(c),
    });
    builder.fill(empty_lf, only(b'\n', cell(GO, HEAD), Reject::LeadingEmptyLine));
    // With any last coding other than `chunked` the request is invalid (RFC 9112 section 6.3), so the presence of the
    // field is enough.
    builder.head(line_lf, &[(b"transfer-encoding", cell(CHUNKED, TEXT)), (b"cookie", cell(GO, NAME))]);
    // RFC 6265 section 4.2: pairs separated by a semicolon and a space.
    builder.fill(OTHER, |c| match c {
        b';' => cell(GO, NAME),
        c => rest_of_line(OTHER, line_lf)(c),
    });
}
