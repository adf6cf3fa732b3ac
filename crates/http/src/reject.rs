//! Reasons to refuse a request.

use std::fmt;

macro_rules! rejects {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $status:literal;)+) => {
        /// Why a request is refused. Each reason has a name for counters and a status code for the client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reject {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Reject {
            /// All reasons, in the order of their [`index`](Reject::index).
            pub const ALL: &'static [Reject] = &[$(Reject::$variant,)+];

            /// A name in snake case that does not change between versions.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reject::$variant => $name,)+
                }
            }

            /// The status code of the answer (RFC 9110 section 15, RFC 6585).
            pub fn status(self) -> u16 {
                match self {
                    $(Reject::$variant => $status,)+
                }
            }
        }
    };
}

rejects! {
    /// More than one empty line before the request line, or an incomplete one.
    LeadingEmptyLine = "leading_empty_line", 400;
    /// The method is empty or not a token.
    InvalidMethod = "invalid_method", 400;
    /// The method is CONNECT, which asks a proxy for a tunnel. The status is 501, because 405 would imply that CONNECT
    /// works for other targets.
    Connect = "connect", 501;
    /// `PRI *` that is not the preface of HTTP/2 (RFC 9113 section 3.4).
    Http2Preface = "http2_preface", 400;
    /// The parts of the request line are not separated by exactly one space, or there is a space around them.
    RequestLineSpace = "request_line_space", 400;
    /// The target has an invalid character, or is neither a path, nor an `http` or `https` URI, nor `*`.
    InvalidTarget = "invalid_target", 400;
    /// The target has a fragment, which clients must not send.
    Fragment = "fragment", 400;
    /// A `%` in the path without two hexadecimal digits after it.
    InvalidPercentEncoding = "invalid_percent_encoding", 400;
    /// `%00` in the path, which ends the string for some servers.
    NulInPath = "nul_in_path", 400;
    /// Dot segments lead above the root in one of the path's [readings](crate::path::readings).
    PathAboveRoot = "path_above_root", 400;
    /// The path's readings lead to different routes.
    AmbiguousPath = "ambiguous_path", 400;
    /// The target `*` with a method other than OPTIONS.
    AsteriskTarget = "asterisk_target", 400;
    /// The request line does not end with `HTTP/` and a version.
    InvalidVersion = "invalid_version", 400;
    /// A major version of HTTP other than 1, or `Transfer-Encoding` with a minor version above 1, which not all servers
    /// support.
    UnsupportedVersion = "unsupported_version", 505;
    /// A carriage return without a line feed.
    BareCr = "bare_cr", 400;
    /// A line feed without a carriage return.
    BareLf = "bare_lf", 400;
    /// A line that begins with a blank: obsolete line folding, or a blank before the first field.
    ObsFold = "obs_fold", 400;
    /// A field name is empty, not a token, or has an underscore for a hyphen in the name of a framing field.
    InvalidFieldName = "invalid_field_name", 400;
    /// A blank between field name and colon.
    SpaceBeforeColon = "space_before_colon", 400;
    /// A control character in a field value.
    InvalidFieldValue = "invalid_field_value", 400;
    /// More header fields than the limit.
    TooManyFields = "too_many_fields", 431;
    /// The head is longer than the limit.
    HeadTooLong = "head_too_long", 431;
    /// HTTP/1.1 without `Host`.
    MissingHost = "missing_host", 400;
    /// `Host` more than once.
    DuplicateHost = "duplicate_host", 400;
    /// `Host`, or the authority in the target, is not a host with an optional port.
    InvalidHost = "invalid_host", 400;
    /// `Host` differs from the authority in the target.
    HostMismatch = "host_mismatch", 400;
    /// `Content-Length` is not a single number below 2^63 of at most 19 digits.
    InvalidContentLength = "invalid_content_length", 400;
    /// `Content-Length` more than once, even with equal values.
    DuplicateContentLength = "duplicate_content_length", 400;
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndEncoding = "length_and_encoding", 400;
    /// `Transfer-Encoding` with a value other than `chunked`, in any case.
    UnsupportedEncoding = "unsupported_encoding", 501;
    /// `Transfer-Encoding` more than once.
    DuplicateEncoding = "duplicate_encoding", 400;
    /// `Transfer-Encoding` in HTTP/1.0, which does not have it.
    EncodingInHttp10 = "encoding_in_http10", 400;
    /// `Expect: 100-continue` in a request without content, which RFC 9110 section 10.1.1 forbids. Waitress takes the
    /// next request's head for a continuation of this one's.
    ExpectWithoutContent = "expect_without_content", 400;
    /// The chunk size is not 1 to 16 hexadecimal digits below 2^63, or not followed by a line end.
    InvalidChunkSize = "invalid_chunk_size", 400;
    /// A chunk extension violates RFC 9112 section 7.1.1, or has blanks outside of quotes.
    ChunkExtension = "chunk_extension", 400;
    /// The chunk extensions of a body together are longer than `SB_FRAMING_EXTENSION_MAX`.
    ExtensionTooLong = "extension_too_long", 400;
    /// A chunk's data is not followed by a line end.
    InvalidChunkEnd = "invalid_chunk_end", 400;
    /// A field in the trailer section that belongs in the head: `Host`, `Content-Length`, `Transfer-Encoding`, or a
    /// name that CGI does not distinguish from these.
    ForbiddenTrailer = "forbidden_trailer", 400;
    /// The trailer section is longer than `SB_FRAMING_TRAILER_MAX`.
    TrailerTooLong = "trailer_too_long", 431;
    /// `Content-Length`, or the sum of the chunk sizes so far, exceeds the limit for bodies.
    BodyTooLong = "body_too_long", 413;
}

impl Reject {
    /// Index in [`Reject::ALL`], for arrays of counters.
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
