//! Requests. Their chunked bodies are only what every parser reads the same way. A head comes to this when it
//! has been read as strictly, so this looks only for its end, for where the body ends, and for cookies.

use super::builder::{Builder, cell, only, reject, rest_of_line};
use super::{CHUNKED, COUNT, ENDS, GO, HEAD, NAME, NONE, OTHER, TEXT, TRAILER, Table};
use crate::table::{self, TOKEN, VALUE};
use crate::{Reject, fields};

/// The names that matter to framing, and those that CGI makes equal to them.
const KNOWN: &[&[u8]] =
    &[b"host", b"content-length", b"content_length", b"transfer-encoding", b"transfer_encoding"];

pub(super) fn table() -> Table {
    let mut builder = Builder::new();
    head(&mut builder);
    let [size_lf, name, value, value_lf, end_lf] = builder.states();

    builder.chunks(size_lf, |c| {
        reject(match c {
            b';' => Reject::ChunkExtension,
            b'\n' => Reject::BareLf,
            _ => Reject::InvalidChunkSize,
        })
    });

    builder.names(TRAILER, COUNT, KNOWN, name, |name| match fields::framing(name) {
        Ok(None) => cell(COUNT, value),
        Ok(Some(_)) => reject(Reject::ForbiddenTrailer),
        Err(reason) => reject(reason),
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

fn head(builder: &mut Builder) {
    let [line_lf] = builder.states();
    builder.fill(HEAD, |c| match c {
        b'\r' => reject(Reject::LeadingEmptyLine),
        c => rest_of_line(TEXT, line_lf)(c),
    });
    // With any other last coding than `chunked` it would be no request (RFC 9112 section 6.3), so that there
    // is one is enough to know.
    builder.head(line_lf, &[(b"transfer-encoding", cell(CHUNKED, TEXT)), (b"cookie", cell(GO, NAME))]);
    // RFC 6265 section 4.2: pairs with a semicolon and a space between them.
    builder.fill(OTHER, |c| match c {
        b';' => cell(GO, NAME),
        c => rest_of_line(OTHER, line_lf)(c),
    });
}
