//! Errors of a cluster.

use std::fmt;
use std::io;
use std::time::Duration;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a cluster.
#[derive(Debug)]
pub enum Error {
    /// The lab could not do something.
    Lab(switchback_lab::Error),
    /// A file could not be written, or a program not be started.
    Io {
        /// The operation.
        doing: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The API server has refused a request, or was not reached.
    Api {
        /// The request.
        doing: String,
        /// Its error.
        source: Box<kube::Error>,
    },
    /// A certificate could not be made.
    Certificate(rcgen::Error),
    /// A manifest that is no YAML, or no object.
    Manifest(String),
    /// An awaited state did not come in time.
    Timeout {
        /// The state.
        waiting_for: String,
        /// The time limit.
        after: Duration,
        /// What was there instead.
        last: String,
    },
    /// A cluster that the lab cannot have, for example one with too many machines.
    Invalid(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Lab(error) => error.fmt(f),
            Error::Io { doing, source } => write!(f, "{doing}: {source}"),
            Error::Api { doing, source } => write!(f, "{doing}: {source}"),
            Error::Certificate(error) => write!(f, "make a certificate: {error}"),
            Error::Timeout { waiting_for, after, last } => {
                write!(f, "no {waiting_for} within {after:?}; the last state was {last}")
            }
            Error::Manifest(what) | Error::Invalid(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Lab(error) => Some(error),
            Error::Io { source, .. } => Some(source),
            Error::Api { source, .. } => Some(source),
            Error::Certificate(error) => Some(error),
            Error::Manifest(_) | Error::Timeout { .. } | Error::Invalid(_) => None,
        }
    }
}

impl From<switchback_lab::Error> for Error {
    fn from(error: switchback_lab::Error) -> Error {
        Error::Lab(error)
    }
}

impl From<rcgen::Error> for Error {
    fn from(error: rcgen::Error) -> Error {
        Error::Certificate(error)
    }
}

/// Adds the operation to an error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source })
    }
}

impl<T> Doing<T> for kube::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Api { doing: what(), source: Box::new(source) })
    }
}
