//! What is wrong with what a client has said.

use std::fmt;

/// Why a connection is refused before any node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// It is not TLS: perhaps HTTP in the clear, or SSL 2.
    NotTls,
    /// A length that leads out of its place, a part that is missing or occurs twice.
    Malformed,
    /// What is there means something that TLS does not allow.
    Illegal,
    /// Another message than a ClientHello comes first.
    Unexpected,
    /// Longer than the caller allows, or a record that is longer than TLS allows.
    TooLong,
    /// No route takes the server's name, or the protocols.
    Unrecognized,
    /// No node can take the connection, or the client has not said all of it in time.
    Unavailable,
}

impl Reject {
    /// All of them.
    pub const ALL: [Reject; 7] = [
        Reject::NotTls,
        Reject::Malformed,
        Reject::Illegal,
        Reject::Unexpected,
        Reject::TooLong,
        Reject::Unrecognized,
        Reject::Unavailable,
    ];

    /// In metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reject::NotTls => "tls-not-tls",
            Reject::Malformed => "tls-malformed",
            Reject::Illegal => "tls-illegal",
            Reject::Unexpected => "tls-unexpected",
            Reject::TooLong => "tls-too-long",
            Reject::Unrecognized => "tls-unrecognized-name",
            Reject::Unavailable => "tls-unavailable",
        }
    }

    /// What TLS calls it (RFC 8446 section 6.2).
    pub fn description(self) -> u8 {
        match self {
            Reject::NotTls | Reject::Malformed => 50, // decode_error
            Reject::Illegal => 47,                    // illegal_parameter
            Reject::Unexpected => 10,                 // unexpected_message
            Reject::TooLong => 22,                    // record_overflow
            Reject::Unrecognized => 112,              // unrecognized_name
            Reject::Unavailable => 80,                // internal_error
        }
    }

    /// What it would be in HTTP.
    pub fn status(self) -> u16 {
        match self {
            Reject::Unrecognized => 404,
            Reject::Unavailable => 503,
            _ => 400,
        }
    }

    /// The record that tells the client: a fatal alert, which ends the connection.
    pub fn alert(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, self.description()]
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
