//! Errors of reading and writing.

use std::fmt;

/// The reason why the configuration cannot be read from etcd, or written to it.
#[derive(Debug)]
pub enum Error {
    /// No member answers; the message of the last one that was tried.
    Etcd {
        /// The member.
        host: String,
        /// Its answer, or what happened instead.
        what: String,
    },
    /// A member refuses what others would refuse, too: the user, the password, or what the user may not do.
    Refused {
        /// The member.
        host: String,
        /// Its answer.
        what: String,
    },
    /// A file that the address names cannot be read.
    File(switchback_config::Error),
    /// There is no document.
    Absent {
        /// Its key.
        key: String,
    },
    /// The document has been changed since it was read.
    Changed,
    /// A record cannot be read.
    Record {
        /// Its key.
        key: String,
        /// The reason.
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Etcd { host, what } | Error::Refused { host, what } => write!(f, "etcd at {host}: {what}"),
            Error::File(error) => error.fmt(f),
            Error::Absent { key } => {
                write!(f, "etcd has no {key}; write it with: switchback apply cluster.toml --etcd ADDRESS")
            }
            Error::Changed => {
                f.write_str("somebody has written another version meanwhile; nothing is changed, try again")
            }
            Error::Record { key, what } => write!(f, "the record {key} in etcd: {what}"),
        }
    }
}

impl std::error::Error for Error {}
