//! Errors of the files, in the two kinds that the command line tells apart by exit status: a
//! file that cannot be read or written, and a file whose content is wrong.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why there is no [`Cluster`](crate::Cluster), or no new key file.
#[derive(Debug)]
pub enum Error {
    /// A file cannot be read.
    Read {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system, or the reason why it may not be read.
        source: io::Error,
        /// The command that removes the cause, if known.
        remedy: Option<String>,
    },
    /// A new key cannot be made or written.
    Write {
        /// Path of the file.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
        /// The remedy, if known.
        remedy: Option<String>,
    },
    /// All mistakes in a file, in the order of the file; never empty.
    Invalid(Vec<Diagnostic>),
}

impl Error {
    /// The exit status for this error: 1 for invalid content, 2 for a file that cannot be read or written.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Invalid(_) => 1,
            Error::Read { .. } | Error::Write { .. } => 2,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read { file, source, remedy } => failure(f, "read", file, source, remedy),
            Error::Write { file, source, remedy } => failure(f, "write", file, source, remedy),
            Error::Invalid(diagnostics) => {
                for (i, diagnostic) in diagnostics.iter().enumerate() {
                    if i > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "{diagnostic}")?;
                }
                Ok(())
            }
        }
    }
}

fn failure(
    f: &mut fmt::Formatter<'_>,
    verb: &str,
    file: &Path,
    source: &io::Error,
    remedy: &Option<String>,
) -> fmt::Result {
    write!(f, "cannot {verb} {}: {source}", file.display())?;
    if let Some(remedy) = remedy {
        write!(f, "; {remedy}")?;
    }
    Ok(())
}

/// Has no [`source`](std::error::Error::source): the message includes that of the operating system.
impl std::error::Error for Error {}

/// A mistake or a warning, and its place. Displays as `file:line:column: what is wrong, what is allowed`, or as
/// `file:line:column: warning: what cannot be meant`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file as it was named to [`load`](crate::load).
    pub file: PathBuf,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Whether the file is invalid because of it.
    pub severity: Severity,
    /// What is wrong, what is allowed.
    pub message: String,
}

/// The weight of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is invalid.
    Mistake,
    /// The file is valid, and probably not what was meant.
    Warning,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Mistake => "",
            Severity::Warning => "warning: ",
        };
        write!(f, "{}:{}:{}: {severity}{}", self.file.display(), self.line, self.column, self.message)
    }
}

/// A [`Diagnostic`] without its line: where the mistake is found, only its offset is known.
pub(crate) struct Mistake {
    /// Offset of the offending value in bytes.
    pub at: usize,
    /// What is wrong, what is allowed.
    pub what: String,
}

/// The error for `mistakes` in `text`, in the order of the text.
pub(crate) fn invalid(text: &str, file: &Path, mistakes: Vec<Mistake>) -> Error {
    Error::Invalid(diagnostics(text, file, mistakes, Severity::Mistake))
}

/// What was found in `text`, in the order of the text.
pub(crate) fn diagnostics(
    text: &str,
    file: &Path,
    mut found: Vec<Mistake>,
    severity: Severity,
) -> Vec<Diagnostic> {
    found.sort_by_key(|mistake| mistake.at);
    let diagnostics = found.into_iter().map(|mistake| {
        // Bytes, because the offsets in TOML's own errors need not be at the boundary of a character.
        let before = &text.as_bytes()[..mistake.at.min(text.len())];
        let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        Diagnostic {
            file: file.to_owned(),
            line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
            column: String::from_utf8_lossy(&before[line_start..]).chars().count() + 1,
            severity,
            message: mistake.what,
        }
    });
    diagnostics.collect()
}

/// The text in the file at `path`.
pub fn read_text(path: &Path) -> Result<String, Error> {
    text_of(std::fs::read(path), path)
}

/// The text in `content`, which was read from `file`.
pub(crate) fn text_of(content: io::Result<Vec<u8>>, file: &Path) -> Result<String, Error> {
    let bytes = content.map_err(|source| Error::Read { file: file.to_owned(), source, remedy: None })?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let what = "not UTF-8, only UTF-8 text is allowed".to_owned();
        invalid(&text, file, vec![Mistake { at, what }])
    })
}
