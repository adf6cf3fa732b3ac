//! Failures of commands: the message on stderr, and the exit status.

use std::path::Path;
use std::process::ExitCode;

use switchback_access_log::escape::printable;
use switchback_sim::ScenarioError;

use crate::files::{CLIENT_FILE, CLUSTER_FILE};

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    /// The configuration is invalid.
    pub const INVALID: u8 = 1;
    /// The switch is not ready.
    pub const NOT_READY: u8 = 1;
    /// A file cannot be read, or the system refuses.
    pub const SYSTEM: u8 = 2;

    /// A failure unrelated to the content of a file.
    pub fn system(message: impl Into<String>) -> Self {
        let message = message.into();
        let is_of = |file| message.strip_prefix("cannot read ").is_some_and(|rest| rest.starts_with(file));
        let hint = if is_of(CLUSTER_FILE) || is_of(CLIENT_FILE) {
            "; this is the default, name another file with --config FILE, or `check FILE`"
        } else {
            ""
        };
        Failure { status: Self::SYSTEM, message: format!("switchback: {message}{hint}") }
    }

    /// A file that cannot be read, for this reason.
    pub fn cannot_read(file: &Path, why: impl std::fmt::Display) -> Self {
        Failure::system(format!("cannot read {}: {why}", file.display()))
    }

    /// A configuration that a process rejects, with its message.
    pub fn invalid(message: String) -> Self {
        Failure { status: Self::INVALID, message }
    }

    /// What keeps a switch from being ready.
    pub fn not_ready(what: impl std::fmt::Display) -> Self {
        Failure { status: Self::NOT_READY, message: format!("not ready: {what}") }
    }

    /// A failure whose reason has already been printed.
    pub fn silent(status: u8) -> Self {
        Failure { status, message: String::new() }
    }

    /// Prints the message and returns the exit status.
    pub fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            eprintln!("{}", printable(&self.message));
        }
        ExitCode::from(self.status)
    }
}

/// The printed message.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Mistakes in a file are printed as `file:line:column: what is wrong`, without a prefix, so that editors find the
/// place.
impl From<switchback_config::Error> for Failure {
    fn from(error: switchback_config::Error) -> Self {
        match error {
            switchback_config::Error::Invalid(_) => Failure::invalid(error.to_string()),
            other => Failure { status: other.exit_status(), ..Failure::system(other.to_string()) },
        }
    }
}

/// The daemons pass on the configuration's messages, which are printed in the same form.
impl From<switchback_runtime::Error> for Failure {
    fn from(error: switchback_runtime::Error) -> Self {
        match error.exit_status() {
            Self::INVALID => Failure::invalid(error.to_string()),
            status => Failure { status, ..Failure::system(error.to_string()) },
        }
    }
}

impl From<switchback_etcd::Error> for Failure {
    fn from(error: switchback_etcd::Error) -> Self {
        Failure::system(error.to_string())
    }
}

impl From<switchback_gateway::Error> for Failure {
    fn from(error: switchback_gateway::Error) -> Self {
        Failure::system(error.to_string())
    }
}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Self {
        match error {
            ScenarioError::File(error) => error.into(),
            ScenarioError::Unread(..) => Failure::system(error.to_string()),
            ScenarioError::Invalid(_) => Failure::invalid(error.to_string()),
        }
    }
}

impl From<switchback_lab::Error> for Failure {
    fn from(error: switchback_lab::Error) -> Self {
        Failure::system(error.to_string())
    }
}
