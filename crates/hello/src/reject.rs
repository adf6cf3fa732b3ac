//! Reasons to refuse a connection.

use std::fmt;

/// Why a connection is refused before a node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// The data is not TLS, but perhaps plain HTTP or SSL 2.
    NotTls,
    /// A length is wrong, or a part is missing or repeated.
    Malformed,
    /// A value is not allowed by TLS.
    Illegal,
    /// The first message is not a ClientHello.
    Unexpected,
    /// The message exceeds the caller's limit, or a record exceeds that of TLS.
    TooLong,
    /// No route matches the server name or the protocols.
    Unrecognized,
    /// The service does not let the client in.
    Denied,
    /// No node can take the connection, or the ClientHello was not complete in time.
    Unavailable,
}

impl Reject {
    /// All reasons.
    pub const ALL: [Reject; 8] = [
        Reject::NotTls,
        Reject::Malformed,
        Reject::Illegal,
        Reject::Unexpected,
        Reject::TooLong,
        Reject::Unrecognized,
        Reject::Denied,
        Reject::Unavailable,
    ];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reject::NotTls => "tls-not-tls",
            Reject::Malformed => "tls-malformed",
            Reject::Illegal => "tls-illegal",
            Reject::Unexpected => "tls-unexpected",
            Reject::TooLong => "tls-too-long",
            Reject::Unrecognized => "tls-unrecognized-name",
            Reject::Denied => "tls-access-denied",
            Reject::Unavailable => "tls-unavailable",
        }
    }

    /// Code of the TLS alert (RFC 8446 section 6.2).
    pub fn description(self) -> u8 {
        match self {
            Reject::NotTls | Reject::Malformed => 50, // decode_error
            Reject::Illegal => 47,                    // illegal_parameter
            Reject::Unexpected => 10,                 // unexpected_message
            Reject::TooLong => 22,                    // record_overflow
            Reject::Unrecognized => 112,              // unrecognized_name
            Reject::Denied => 49,                     // access_denied
            Reject::Unavailable => 80,                // internal_error
        }
    }

    /// The corresponding HTTP status code.
    pub fn status(self) -> u16 {
        match self {
            Reject::Unrecognized => 404,
            Reject::Denied => 403,
            Reject::Unavailable => 503,
            _ => 400,
        }
    }

    /// Record with the fatal alert, which ends the connection.
    pub fn alert(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, self.description()]
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
