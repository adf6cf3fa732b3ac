//! Changes of a request's path.

use std::fmt;

use switchback_http::{Reject, path};

/// What takes the place of a request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// This path, which begins with `/`.
    Whole(String),
    /// The request's path, with its beginning replaced.
    Prefix {
        /// All paths of the route begin with this text, in normal form.
        from: String,
        /// Takes its place; begins with `/`.
        to: String,
    },
}

impl PathChange {
    /// The path for a request with this one, as it was sent.
    pub fn of(&self, sent: &str) -> String {
        match self {
            PathChange::Whole(path) => path.clone(),
            PathChange::Prefix { from, to } => {
                let normal = path::normal(sent);
                let tail = tail(from, sent).or_else(|| tail(from, &normal));
                joined(to, tail.unwrap_or_default())
            }
        }
    }

    /// The path for a server of a request with this one. However the server reads it, it is behind the new beginning: dot
    /// segments of the client are removed, if they lead out of it, and what still does is refused.
    pub fn for_server(&self, sent: &str) -> Result<String, Reject> {
        let PathChange::Prefix { to, .. } = self else { return Ok(self.of(sent)) };
        let stays = |path: &String| {
            path::checked(path).is_ok() && path::readings(path).iter().all(|reading| is_behind(to, reading))
        };
        let changed = [self.of(sent), self.of(&path::normal(sent))];
        changed.into_iter().find(stays).ok_or(Reject::AmbiguousPath)
    }
}

/// Whether a path begins with `to`, whose slash at the end it may lack.
fn is_behind(to: &str, path: &str) -> bool {
    path.starts_with(to) || to.strip_suffix('/') == Some(path)
}

/// What a path that begins with `from` has behind it, with the slash at the end of `from`.
fn tail<'a>(from: &str, path: &'a str) -> Option<&'a str> {
    let behind = path.strip_prefix(from)?;
    Some(&path[path.len() - behind.len() - usize::from(from.ends_with('/'))..])
}

/// The tail behind another beginning, with one slash between them: that of the tail, or of `to`.
fn joined(to: &str, tail: &str) -> String {
    let to = to.strip_suffix('/').filter(|_| tail.starts_with('/')).unwrap_or(to);
    format!("{to}{tail}")
}

/// `/new/`, or with braces around what stays as in the request `/new/{tail}`.
impl fmt::Display for PathChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathChange::Whole(path) => f.write_str(path),
            PathChange::Prefix { to, .. } => write!(f, "{to}{{tail}}"),
        }
    }
}
