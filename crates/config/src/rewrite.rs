//! Changes that routes make to requests.

use std::fmt;

use crate::PathChange;

/// Fields about the client's address, in lower case, which nodes set in services with
/// [`ClientAddress::XForwarded`](crate::ClientAddress::XForwarded) or [`ClientAddress::Forwarded`](crate::ClientAddress::Forwarded).
pub const CLIENT_FIELDS: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Fields about the client's certificate, in lower case, which nodes set in services with
/// [`ClientCertificates`](crate::ClientCertificates). The second is never set, but servers that follow RFC 9440 believe it.
pub const CERTIFICATE_FIELDS: [&str; 4] =
    ["client-cert", "client-cert-chain", "x-client-cert-subject", "x-client-cert-fingerprint"];

/// Fields about one connection (RFC 9110 section 7.6.1) or about where a message ends, in lower case.
pub(crate) const FRAMING_FIELDS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Changes of a request's head between client and server. No field is named twice, but in `add`, and none of
/// [`CLIENT_FIELDS`] that nodes set, [`CERTIFICATE_FIELDS`] and those that say where the request goes or ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The value of `Host`: a name or an address in lower case, an IPv6 address with its brackets.
    pub host: Option<String>,
    /// The server gets this path.
    pub path: Option<PathChange>,
    /// Fields that take the place of all with the same name.
    pub set: Vec<NewField>,
    /// Fields that stand behind all others.
    pub add: Vec<NewField>,
    /// Names of fields that are left out, in lower case.
    pub remove: Vec<String>,
}

/// A header field that a route writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewField {
    /// A token, as in the file.
    pub name: String,
    /// Visible ASCII, blanks and tabs, without blanks around it.
    pub value: String,
}

impl Rewrite {
    /// Whether the server gets the head as the client has sent it.
    pub fn is_empty(&self) -> bool {
        *self == Rewrite::default()
    }
}

/// Whether a server that reads fields as CGI does (RFC 3875 section 4.1.18), or WSGI, takes one name for the other: there
/// a hyphen is an underscore, so `X_Forwarded_For` and `X-Forwarded-For` are one variable.
pub fn is_same_variable(name: &str, other: &str) -> bool {
    let spelled = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == other.len() && name.bytes().zip(other.bytes()).all(|(a, b)| spelled(a) == spelled(b))
}

/// In words, such as `host a.example, path /new/{tail}, set X-A: "1", remove x-b`.
impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rewrite { host, path, set, add, remove } = self;
        let mut words = Vec::new();
        words.extend(host.as_ref().map(|host| format!("host {host}")));
        words.extend(path.as_ref().map(|path| format!("path {path}")));
        words.extend(set.iter().map(|field| format!("set {field}")));
        words.extend(add.iter().map(|field| format!("add {field}")));
        words.extend(remove.iter().map(|name| format!("remove {name}")));
        f.write_str(&words.join(", "))
    }
}

/// With the value in quotes, such as `X-A: "1"`.
impl fmt::Display for NewField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name, self.value)
    }
}
