//! Why requests are refused.

use std::fmt;

macro_rules! rejects {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $status:literal;)+) => {
        /// Why a request is refused. Each reason has a name for counters and a status code for the client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reject {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Reject {
            /// Every reason; the one at position `i` has `i` as its [`index`](Reject::index).
            pub const ALL: &'static [Reject] = &[$(Reject::$variant,)+];

            /// A name that stays the same from version to version, in snake case.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reject::$variant => $name,)+
                }
            }

            /// The status code to answer with (RFC 9110 section 15, RFC 6585).
            pub fn status(self) -> u16 {
                match self {
                    $(Reject::$variant => $status,)+
                }
            }
        }
    };
}

rejects! {
    /// More than one empty line before the request line, or a piece of one.
    LeadingEmptyLine = "leading_empty_line", 400;
    /// The method is empty or has a character that is none of a token.
    InvalidMethod = "invalid_method", 400;
    /// The method is CONNECT. It asks for a tunnel to anywhere, and a balancer is no proxy: 501, because no
    /// target would make it work, which 405 would say.
    Connect = "connect", 501;
    /// `PRI *` that does not go on as the preface of HTTP/2 (RFC 9113 section 3.4).
    Http2Preface = "http2_preface", 400;
    /// Something other than one space between the parts of the request line, or a space around them.
    RequestLineSpace = "request_line_space", 400;
    /// A character that a target cannot have, or a target that is neither a path, nor an `http` or `https`
    /// URI, nor `*`.
    InvalidTarget = "invalid_target", 400;
    /// The target has a fragment, which clients keep to themselves.
    Fragment = "fragment", 400;
    /// A `%` in the path that no two hexadecimal digits follow.
    InvalidPercentEncoding = "invalid_percent_encoding", 400;
    /// `%00` in the path: what follows is lost where strings end with it.
    NulInPath = "nul_in_path", 400;
    /// Dot segments lead above the root, in one of the [readings](crate::path::readings) of the path.
    PathAboveRoot = "path_above_root", 400;
    /// Servers read the path in different ways, and those lead to different routes.
    AmbiguousPath = "ambiguous_path", 400;
    /// The target `*` with a method other than OPTIONS.
    AsteriskTarget = "asterisk_target", 400;
    /// No `HTTP/` with a version at the end of the request line.
    InvalidVersion = "invalid_version", 400;
    /// A major version of HTTP other than 1, or `Transfer-Encoding` with a minor version above 1, where not all servers know
    /// it.
    UnsupportedVersion = "unsupported_version", 505;
    /// A carriage return that no line feed follows.
    BareCr = "bare_cr", 400;
    /// A line feed that no carriage return precedes.
    BareLf = "bare_lf", 400;
    /// A line that begins with a blank: obsolete line folding, or a blank before the first field.
    ObsFold = "obs_fold", 400;
    /// The name of a field is empty, has a character that is none of a token, or has an underscore where a
    /// field that matters for framing has a hyphen.
    InvalidFieldName = "invalid_field_name", 400;
    /// A blank between the name of a field and its colon.
    SpaceBeforeColon = "space_before_colon", 400;
    /// A control character in the value of a field.
    InvalidFieldValue = "invalid_field_value", 400;
    /// More header fields than allowed.
    TooManyFields = "too_many_fields", 431;
    /// The head is longer than allowed.
    HeadTooLong = "head_too_long", 431;
    /// HTTP/1.1 without `Host`.
    MissingHost = "missing_host", 400;
    /// `Host` more than once.
    DuplicateHost = "duplicate_host", 400;
    /// `Host`, or the authority in the target, is no host with an optional port.
    InvalidHost = "invalid_host", 400;
    /// `Host` differs from the authority in the target.
    HostMismatch = "host_mismatch", 400;
    /// `Content-Length` is not one number below 2^63 of at most 19 digits.
    InvalidContentLength = "invalid_content_length", 400;
    /// `Content-Length` more than once, be it with the same value.
    DuplicateContentLength = "duplicate_content_length", 400;
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndEncoding = "length_and_encoding", 400;
    /// `Transfer-Encoding` with a value other than `chunked`, in upper or lower case.
    UnsupportedEncoding = "unsupported_encoding", 501;
    /// `Transfer-Encoding` more than once.
    DuplicateEncoding = "duplicate_encoding", 400;
    /// `Transfer-Encoding` in HTTP/1.0, which has none.
    EncodingInHttp10 = "encoding_in_http10", 400;
    /// `Expect: 100-continue` in a request without content, which RFC 9110 section 10.1.1 forbids. Waitress takes the head of the
    /// next request for more of this one's.
    ExpectWithoutContent = "expect_without_content", 400;
    /// The size of a chunk is not 1 to 16 hexadecimal digits below 2^63, or not followed by the end of the
    /// line.
    InvalidChunkSize = "invalid_chunk_size", 400;
    /// An extension of a chunk is not what RFC 9112 section 7.1.1 calls one, or has blanks outside of quotes.
    ChunkExtension = "chunk_extension", 400;
    /// The extensions of a body's chunks are longer than `SB_FRAMING_EXTENSION_MAX` together.
    ExtensionTooLong = "extension_too_long", 400;
    /// A chunk's data is not followed by the end of a line.
    InvalidChunkEnd = "invalid_chunk_end", 400;
    /// A trailer has a field that belongs into the head: `Host`, `Content-Length` or `Transfer-Encoding`, or
    /// one that CGI makes equal to it.
    ForbiddenTrailer = "forbidden_trailer", 400;
    /// The trailer section is longer than `SB_FRAMING_TRAILER_MAX`.
    TrailerTooLong = "trailer_too_long", 431;
    /// `Content-Length`, or the sizes of the chunks so far, exceed the length allowed for a body.
    BodyTooLong = "body_too_long", 413;
}

impl Reject {
    /// The position in [`Reject::ALL`], for arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Reject {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_order_of_the_indices_and_names_are_unique() {
        for (i, reject) in Reject::ALL.iter().enumerate() {
            assert_eq!(reject.index(), i);
            assert!(reject.name().bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'));
            assert!(!Reject::ALL[..i].iter().any(|other| other.name() == reject.name()));
        }
    }
}
