//! The key of the policy `hash` and of persistence by hash.

use std::fmt;

/// The key by which requests go to the same node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// The request's path.
    Path,
    /// The value of this header field; its name in lower case.
    Header(String),
    /// The value of this cookie; upper and lower case of its name differ.
    Cookie(String),
}

/// As in the file: `header x-user`.
impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashKey::Client => f.write_str("client"),
            HashKey::Path => f.write_str("path"),
            HashKey::Header(name) => write!(f, "header {name}"),
            HashKey::Cookie(name) => write!(f, "cookie {name}"),
        }
    }
}
