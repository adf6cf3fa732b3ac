//! Why a TLS connection ends before its time.

use std::fmt;

/// An error of a TLS connection. It never contains keys or data.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The handshake failed; rustls has told the client.
    Handshake(rustls::Error),
    /// A record that does not open with the keys of the connection.
    BadRecord,
    /// A record that is longer than TLS allows.
    Overflow,
    /// An unexpected message, such as a new handshake.
    Unexpected,
    /// A malformed message.
    Decode,
    /// The client has ended the connection with this alert.
    Alert(u8),
    /// The connection ended without close_notify.
    Truncated,
    /// Too many empty records or key updates.
    Flood,
    /// Keys that do not fit together: an error of this program.
    Internal,
}

impl Error {
    /// The alert that tells the client (RFC 8446 section 6.2); None if it knows already.
    pub fn alert(&self) -> Option<u8> {
        match self {
            Error::Handshake(_) | Error::Alert(_) | Error::Truncated => None,
            Error::BadRecord => Some(20),
            Error::Overflow => Some(22),
            Error::Unexpected | Error::Flood => Some(10),
            Error::Decode => Some(50),
            Error::Internal => Some(80),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Handshake(error) => write!(f, "the handshake failed: {error}"),
            Error::BadRecord => f.write_str("a record that does not open"),
            Error::Overflow => f.write_str("a record that is too long"),
            Error::Unexpected => f.write_str("a message that has no place here"),
            Error::Decode => f.write_str("a message that makes no sense"),
            Error::Alert(number) => write!(f, "the client ended the connection with alert {number}"),
            Error::Truncated => f.write_str("the connection was cut off"),
            Error::Flood => f.write_str("too many messages that say nothing"),
            Error::Internal => f.write_str("keys that do not fit together"),
        }
    }
}

impl std::error::Error for Error {}
