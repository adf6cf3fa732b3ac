//! Errors while a lab is built, used or taken down.

use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a lab.
#[derive(Debug)]
pub enum Error {
    /// A system call or file operation failed.
    Io {
        /// The operation, such as "open /run/netns/x".
        doing: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A command exited with another status than 0.
    Command {
        /// The program and its arguments, in shell syntax.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its stderr, or its stdout if stderr is empty.
        output: String,
    },
    /// An awaited event did not happen in time.
    Timeout {
        /// The event.
        waiting_for: String,
        /// The time limit.
        after: Duration,
        /// The last lines of the log of the process concerned.
        log: String,
    },
    /// A process ended while an event of it was awaited.
    Exited {
        /// The name it was spawned with.
        process: String,
        /// Its exit status.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// A lab, host or thread that does not exist, or a name that fits more than one.
    NotFound(String),
    /// The requested lab is impossible, for example with 200 switches.
    Invalid(String),
    /// The lab has been taken down already.
    TornDown,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, source } => write!(f, "{doing}: {source}"),
            Error::Command { command, status, output } => {
                write!(f, "`{command}`: {status}: {}", output.trim_end())
            }
            Error::Timeout { waiting_for, after, log } => {
                write!(f, "no {waiting_for} within {after:?}")?;
                if log.is_empty() { Ok(()) } else { write!(f, "; its log ends:\n{log}") }
            }
            Error::Exited { process, status, log } => {
                write!(f, "{process} ended ({status}); its log ends:\n{log}")
            }
            Error::NotFound(what) | Error::Invalid(what) => f.write_str(what),
            Error::TornDown => f.write_str("the lab has been taken down"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Adds the operation to an I/O error.
pub trait Doing<T> {
    /// `what` is the operation, such as "open /run/netns/x".
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io { doing: what(), source: source.into() })
    }
}
