//! HTTP/1 request heads and the framing of messages (RFC 9110, RFC 9112), strict and without I/O.
//!
//! The switch reads the head of a request to choose a pool for it, and the framing to know where the next
//! request begins. The node that gets the request reads both again with a parser of its own. If the two came
//! to different results, one could be talked into taking a part of a request for a request, or a request for
//! another pool: request smuggling. So this parser does not ask what a request probably means. It accepts
//! only what every parser reads the same way, and refuses the rest with a reason that has a name
//! ([`Reject`]). Where RFC 9112 lets a recipient choose between leniency and an error, this is always the
//! error, and it goes further where implementations are known to differ:
//!
//! - Of empty lines before the request line only one is passed over.
//! - The only transfer coding is `chunked`, alone. Chunk extensions have no blanks outside of quotes.
//! - `Content-Length` is one field with one number of at most 19 digits and below 2^63.
//! - Field names that CGI's spelling makes equal to `Host`, `Content-Length` or `Transfer-Encoding` (an
//!   underscore for a hyphen) are refused.
//! - `Host` is a name or an address of known shape, not just any text that the grammar would let pass.
//!
//! [`parse_head`] starts anew at each call, so a caller that gets a head in pieces calls it again with what
//! it has so far. The result does not depend on the pieces: what is refused is refused for the same reason
//! from the first byte that shows it, and every beginning of an accepted head is [`Progress::Partial`].
//! [`framing`] is resumable instead, because bodies are not kept. It also follows responses, so that a node
//! knows how many of its requests are answered.
//!
//! Nothing here allocates, but for the tables of [`framing`], once, and for [paths](path) that are not plain.

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

/// How long a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest head, in bytes, with the empty line at its end.
    pub head_len: usize,
    /// The most header fields in a head.
    pub fields: usize,
    /// The longest body, in bytes of data; `u64::MAX`: any.
    pub body_len: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { head_len: 16_384, fields: 100, body_len: u64::MAX }
    }
}
