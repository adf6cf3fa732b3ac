//! Errors of the daemons: one line for the person who started them, with the operation and its object.

use std::fmt;

/// An operation that failed. Displays as `cannot <doing>: <cause>; <remedy>`, or as a whole message.
#[derive(Debug)]
pub struct Error {
    message: String,
    remedy: Option<String>,
    exit_status: u8,
}

/// The result of an operation on the machine.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error in the caller's own words.
    pub fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), remedy: None, exit_status: 2 }
    }

    /// `doing` names the interface, program, file or capability in question: `attach XDP to eth0`.
    pub fn cannot(doing: impl fmt::Display, cause: impl fmt::Display) -> Error {
        Error::new(format!("cannot {doing}: {cause}"))
    }

    /// Adds the command or change that removes the cause.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = Some(remedy.into());
        self
    }

    /// Sets the exit status, which is 2 otherwise; 1 stands for an invalid configuration.
    pub fn with_exit_status(mut self, status: u8) -> Error {
        self.exit_status = status;
        self
    }

    /// Exit status of the process.
    pub fn exit_status(&self) -> u8 {
        self.exit_status
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Without a source: the message includes that of the cause.
impl std::error::Error for Error {}

/// Mistakes in a file are in the form `file:line:column: what is wrong`.
impl From<switchback_config::Error> for Error {
    fn from(error: switchback_config::Error) -> Error {
        Error::new(error.to_string()).with_exit_status(error.exit_status())
    }
}

/// Adds the operation to an error.
pub trait Doing<T> {
    /// `what` completes the sentence "cannot ...".
    fn doing<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing<D: fmt::Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        // The alternate form of libbpf's errors includes what caused them.
        self.map_err(|cause| Error::cannot(what(), format_args!("{cause:#}")))
    }
}
