//! Errors of the API server.

use std::fmt;
use std::io;

/// Why the controller ends, or a document cannot be had.
#[derive(Debug)]
pub enum Error {
    /// It is not known where the API server is, or who this is.
    Config(String),
    /// The API server cannot be reached, or refuses.
    Api(kube::Error),
    /// There is no such Secret, or it has no document.
    Secret(String),
    /// A file cannot be written, or a thread not be started.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(what) => write!(f, "no way to the API server of Kubernetes: {what}"),
            Error::Api(error) => write!(f, "the API server of Kubernetes: {}", innermost(error)),
            Error::Secret(what) => f.write_str(what),
            Error::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// The message of an error with that of its cause, which is what tells the reason.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let (outer, inner) = (error.to_string(), cause.to_string());
    if outer.contains(&inner) { outer } else { format!("{outer}: {inner}") }
}
