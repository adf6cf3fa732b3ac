//! Chunked bodies of requests: only what every parser reads the same way.

use super::builder::{Builder, cell, only, reject};
use super::{COUNT, ENDS, NONE, TRAILER, Table};
use crate::table::{self, VALUE};
use crate::{Reject, fields};

/// The names that matter to framing, and those that CGI makes equal to them.
const KNOWN: &[&[u8]] =
    &[b"host", b"content-length", b"content_length", b"transfer-encoding", b"transfer_encoding"];

pub(super) fn table() -> Table {
    let mut builder = Builder::new();
    let [size_lf, value, value_lf, end_lf] = builder.states();

    builder.chunks(size_lf, |c| {
        reject(match c {
            b';' => Reject::ChunkExtension,
            b'\n' => Reject::BareLf,
            _ => Reject::InvalidChunkSize,
        })
    });

    builder.names(TRAILER, COUNT, KNOWN, |name| match fields::framing(name) {
        Ok(None) => cell(COUNT, value),
        Ok(Some(_)) => reject(Reject::ForbiddenTrailer),
        Err(reason) => reject(reason),
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
