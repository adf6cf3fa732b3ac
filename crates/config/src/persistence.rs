//! Session persistence: configuration of the way in which a session's requests find the same node.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::HashKey;

/// Length of the prefix of a rewritten cookie's name that names the node of the session, in characters.
pub(crate) const CARRIED: usize = 8;
/// The mark of a name that a node has rewritten.
pub(crate) const MARK: &str = "SB";
/// Allowed lengths of the name in [`PersistenceMode::Rewrite`].
pub(crate) const REWRITTEN_NAME: RangeInclusive<usize> = CARRIED..=32;
/// Allowed lengths of [`InsertedCookie::name`].
pub(crate) const INSERTED_NAME: RangeInclusive<usize> = 1..=32;
/// Allowed lengths of [`InsertedCookie::path`].
pub(crate) const MAX_PATH: usize = 64;
/// Default of [`InsertedCookie::path`].
pub(crate) const DEFAULT_PATH: &str = "/";
/// Allowed values of [`InsertedCookie::max_age`]: browsers keep no cookie longer (RFC 6265bis section 5.5).
pub(crate) const MAX_AGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(400 * 24 * 3600);
/// Length of the value of an inserted cookie.
pub(crate) const VALUE_LEN: usize = 14;
/// Greatest length of the whole `Set-Cookie` line of an inserted cookie, with the line's end.
pub(crate) const MAX_LINE: usize = 255;
/// Names of [`Persistence::strict`] in the file, in the order in which messages list it.
pub(crate) const STICKY: [(&str, bool); 2] = [("prefer", false), ("strict", true)];

/// The names in [`STICKY`].
pub(crate) fn sticky_names() -> [&'static str; 2] {
    STICKY.map(|(name, _)| name)
}

/// The way in which a session's requests find the same node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// The mode.
    pub mode: PersistenceMode,
    /// Whether a request whose node is down or draining is answered 503; otherwise it goes to another node.
    pub strict: bool,
}

/// `rewrite PHPSESSID, sticky prefer`.
impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [prefer, strict] = sticky_names();
        write!(f, "{}, sticky {}", self.mode, if self.strict { strict } else { prefer })
    }
}

/// The mode of session persistence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PersistenceMode {
    /// Nodes rewrite the first eight characters of the name of this cookie, which their servers set.
    Rewrite {
        /// 8 to 32 characters of a token; upper and lower case differ. It begins with none of `SB`,
        /// `__Host-` and `__Secure-`.
        cookie: String,
    },
    /// Nodes add a cookie of their own.
    Insert(InsertedCookie),
    /// The same key goes to the same node; no cookie is touched. A request without the key goes by the pool's
    /// policy.
    Hash(HashKey),
}

impl PersistenceMode {
    /// Whether sessions go by a cookie, which nodes write and switches read.
    pub fn is_by_cookie(&self) -> bool {
        !matches!(self, PersistenceMode::Hash(_))
    }
}

/// `rewrite PHPSESSID`, `insert SB-web; Path=/; HttpOnly`, `hash header x-user`.
impl fmt::Display for PersistenceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, how): (Mode, &dyn fmt::Display) = match self {
            PersistenceMode::Rewrite { cookie } => (Mode::Rewrite, cookie),
            PersistenceMode::Insert(cookie) => (Mode::Insert, cookie),
            PersistenceMode::Hash(key) => (Mode::Hash, key),
        };
        write!(f, "{} {how}", mode.name())
    }
}

/// The kind of a [`PersistenceMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Rewrite,
    Insert,
    Hash,
}

impl Mode {
    /// All kinds, in the order in which messages list them.
    pub(crate) const ALL: [Mode; 3] = [Mode::Rewrite, Mode::Insert, Mode::Hash];

    /// The name in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Rewrite => "rewrite",
            Mode::Insert => "insert",
            Mode::Hash => "hash",
        }
    }
}

/// A cookie that nodes add to responses. Its complete `Set-Cookie` line, with a value of 14 characters and
/// the line's end, has at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsertedCookie {
    /// 1 to 32 characters of a token; upper and lower case differ.
    pub name: String,
    /// Begins with `/`; at most 64 printable ASCII characters, none of them `;`.
    pub path: String,
    /// A host name in lower case, no address; without one, browsers send the cookie only
    /// to the host that it comes from.
    pub domain: Option<String>,
    /// Whether browsers send the cookie over TLS only.
    pub secure: bool,
    /// Whether scripts cannot read the cookie.
    pub http_only: bool,
    /// Whether requests that other sites cause have it; without one, the browser decides.
    pub same_site: Option<SameSite>,
    /// How long browsers keep it, in whole seconds from 1 s to 400 days; without one, for their session.
    pub max_age: Option<Duration>,
}

impl InsertedCookie {
    /// The attributes behind the value in `Set-Cookie` (RFC 6265 section 4.1.1): `; Path=/; HttpOnly;
    /// SameSite=Lax`.
    pub fn attributes(&self) -> String {
        let mut text = format!("; Path={}", self.path);
        if let Some(domain) = &self.domain {
            text += &format!("; Domain={domain}");
        }
        if let Some(age) = self.max_age {
            text += &format!("; Max-Age={}", age.as_secs());
        }
        if self.secure {
            text += "; Secure";
        }
        if self.http_only {
            text += "; HttpOnly";
        }
        if let Some(same_site) = self.same_site {
            text += &format!("; SameSite={}", same_site.attribute());
        }
        text
    }

    /// Length of the `Set-Cookie` line, in bytes.
    pub(crate) fn line_len(&self) -> usize {
        "Set-Cookie: ".len()
            + self.name.len()
            + "=".len()
            + VALUE_LEN
            + self.attributes().len()
            + "\r\n".len()
    }
}

/// As in `Set-Cookie`, without the value: `SB-web; Path=/; HttpOnly`.
impl fmt::Display for InsertedCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.attributes())
    }
}

/// Requests caused by other sites that have the cookie (RFC 6265bis section 4.1.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// No requests.
    Strict,
    /// Requests that open a page.
    Lax,
    /// All requests.
    None,
}

impl SameSite {
    /// All kinds, in the order in which messages list them.
    pub const ALL: [SameSite; 3] = [SameSite::Strict, SameSite::Lax, SameSite::None];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            SameSite::Strict => "strict",
            SameSite::Lax => "lax",
            SameSite::None => "none",
        }
    }

    /// The name in `Set-Cookie`.
    fn attribute(self) -> &'static str {
        match self {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        }
    }
}
