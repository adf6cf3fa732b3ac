//! Redirects of routes.

use std::fmt;

use crate::PathChange;

/// Default of [`Redirect::status`].
pub(crate) const DEFAULT_STATUS: u16 = 301;

/// Allowed values of [`Redirect::port`].
pub(crate) const PORTS: std::ops::RangeInclusive<u16> = 1..=u16::MAX;

/// The answer to a request that a route redirects: a status, and a URL that is put together from the parts
/// here and, where one is absent, from those of the request. At least one of scheme, host, port and path is
/// there, and none has a control character or a blank in it, so all can go into a `Location` field as they
/// are. The query of the request is kept.
///
/// The URL must be written whole, with scheme and host: a path that a client has sent may begin with `//`,
/// and by itself it would name another host (RFC 3986 section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The scheme of the URL.
    pub scheme: Option<Scheme>,
    /// A name or an address in lower case, an IPv6 address with its brackets.
    pub host: Option<String>,
    /// 1 to 65535. Without one the URL has the default port of `scheme`, or without that the port of the VIP.
    pub port: Option<u16>,
    /// What becomes of the path; only characters of a path in RFC 3986.
    pub path: Option<PathChange>,
    /// One of 301, 302, 303, 307 and 308.
    pub status: u16,
}

/// Shows what stays as in the request in braces: `301 https://{host}{path}`.
impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.map_or("{scheme}", Scheme::name);
        let host = self.host.as_deref().unwrap_or("{host}");
        write!(f, "{} {scheme}://{host}", self.status)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        match &self.path {
            Some(path) => path.fmt(f),
            None => f.write_str("{path}"),
        }
    }
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Scheme; 2] = [Scheme::Http, Scheme::Https];

    /// The name in the file and in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port of a URL that names none.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}
