//! HTTP/1 request heads and message framing (RFC 9110, RFC 9112), strict and without I/O.
//!
//! The switch reads a request's head to choose a pool, and its framing to find the next request. The node's server
//! reads both again with a parser of its own. If the two disagreed, a part of a request could pass for a request, or a
//! request could reach a pool it was not routed to: request smuggling. So this parser does not guess what a request
//! means. It accepts only what every parser reads the same way, and refuses the rest with a named reason ([`Reject`]).
//! Where RFC 9112 allows a recipient to be lenient or to fail, it fails, and it is stricter where implementations are
//! known to differ:
//!
//! - At most one empty line may precede the request line.
//! - The only transfer coding is `chunked`, alone. Chunk extensions have no blanks outside of quotes.
//! - `Content-Length` is one field with one number of at most 19 digits and below 2^63.
//! - Field names that CGI does not distinguish from `Host`, `Content-Length` or `Transfer-Encoding` (an underscore for
//!   a hyphen) are refused.
//! - `Host` is a name or an address, not any text that the grammar allows.
//!
//! [`parse_head`] is stateless: a caller that gets a head in pieces calls it again with all data so far. The result
//! does not depend on the pieces: an error is found at the first byte that shows it, and every proper prefix of an
//! accepted head is [`Progress::Partial`]. [`framing`] is resumable instead, because bodies are not kept. It also
//! follows responses, so that a node knows how many of its requests are answered.
//!
//! Only the tables of [`framing`], once, and [paths](path) that are not plain are allocated.

mod fields;
pub mod framing;
mod head;
mod host;
pub mod path;
mod reject;
mod table;
mod target;

pub use fields::Fields;
pub use head::{Body, Head, Progress, Version, parse_head};
pub use reject::Reject;
pub use target::{Form, Target};

/// The directory of the headers of [`framing`] that the BPF programs include, for build scripts.
pub const BPF_INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");

/// Limits on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximal length of a head in bytes, including the empty line at its end.
    pub head_len: usize,
    /// Maximal number of header fields.
    pub fields: usize,
    /// Maximal length of a body, in bytes of data; `u64::MAX`: unlimited.
    pub body_len: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { head_len: 16_384, fields: 100, body_len: u64::MAX }
    }
}
