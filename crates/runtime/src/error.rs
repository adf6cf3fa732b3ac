//! The daemons' errors: one line for the person who started them, so it says what was being done and to what.

use std::fmt;

/// What a daemon could not do. Displays as `cannot <doing>: <cause>; <remedy>`, or as a whole message.
#[derive(Debug)]
pub struct Error {
    message: String,
    remedy: Option<String>,
    exit_status: u8,
}

/// The result of whatever touches the machine.
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

    /// Adds the command or change that mends it.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = Some(remedy.into());
        self
    }

    /// With another exit status than 2: 1 stands for an invalid configuration.
    pub fn with_exit_status(mut self, status: u8) -> Error {
        self.exit_status = status;
        self
    }

    /// What the process should exit with.
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

/// Has no source: the message says what the cause said already.
impl std::error::Error for Error {}

/// Says what was being done when something failed.
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
