use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use switchback_config::Challenge;
use switchback_tls::IssueError;

/// Why there is no new certificate.
#[derive(Debug)]
pub enum Error {
    /// A file could not be read or written.
    File(PathBuf, io::Error),
    /// A file is not what it should be.
    Content(PathBuf, String),
    /// The machine trusts no roots.
    NoRoots,
    /// The CA cannot be reached, or refuses.
    Ca(instant_acme::Error),
    /// The CA has not found the proof for this domain.
    Unproven(String, String),
    /// The CA does not offer this challenge for the domain.
    NoChallenge(String, Challenge),
    /// The order has come to an end without a certificate.
    Invalid,
    /// The order was not done within this time.
    TooLong(Duration),
    /// What the CA has sent cannot be used.
    Unusable(IssueError),
}

impl Error {
    /// Whether the CA does not know the account (any more).
    pub(crate) fn is_about_account(&self) -> bool {
        const UNKNOWN: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
        matches!(self, Error::Ca(instant_acme::Error::Api(problem)) if problem.r#type.as_deref() == Some(UNKNOWN))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File(path, error) => write!(f, "{}: {error}", path.display()),
            Error::Content(path, what) => write!(f, "{}: {what}", path.display()),
            Error::NoRoots => f.write_str(
                "this machine trusts no certification authorities: install its ca-certificates, or name a file as ca",
            ),
            Error::Ca(error) => {
                write!(f, "{error}")?;
                let mut source = std::error::Error::source(error);
                while let Some(error) = source {
                    write!(f, ": {error}")?;
                    source = error.source();
                }
                Ok(())
            }
            Error::Unproven(domain, why) => write!(f, "the CA has found no proof for {domain}: {why}"),
            Error::NoChallenge(domain, challenge) => {
                write!(f, "the CA offers no {challenge} for {domain}")
            }
            Error::Invalid => f.write_str("the CA has given the order up and does not say why"),
            Error::TooLong(time) => write!(f, "the CA has not issued it within {} s", time.as_secs()),
            Error::Unusable(error) => write!(f, "what the CA has sent is no use: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<instant_acme::Error> for Error {
    fn from(error: instant_acme::Error) -> Self {
        Error::Ca(error)
    }
}
