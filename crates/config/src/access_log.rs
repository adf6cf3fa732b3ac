//! The access log: one line for each request.

use std::fmt;
use std::path::PathBuf;

/// Allowed values of [`AccessLog::lines_per_second`].
pub(crate) const LINES_PER_SECOND: std::ops::RangeInclusive<u32> = 1..=10_000_000;
/// Default of [`AccessLog::lines_per_second`].
pub(crate) const DEFAULT_LINES_PER_SECOND: u32 = 100_000;
/// The name of standard output, in place of a path.
const STDOUT: &str = "-";

/// `[access_log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Destination of the lines.
    pub target: LogTarget,
    /// Format of the lines.
    pub format: LogFormat,
    /// Limit of lines per second; those above it are left out and counted.
    pub lines_per_second: u32,
}

/// Destination of an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output, `-` in the file.
    Stdout,
    /// A file, which is appended to.
    File(PathBuf),
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogTarget::Stdout => f.write_str(STDOUT),
            LogTarget::File(path) => path.display().fmt(f),
        }
    }
}

/// Format of the lines of an access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON object.
    #[default]
    Json,
    /// The combined format of Apache and nginx.
    Combined,
}

impl LogFormat {
    /// Both formats, in the order in which messages list them.
    pub(crate) const ALL: [LogFormat; 2] = [LogFormat::Json, LogFormat::Combined];

    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Json => "json",
            LogFormat::Combined => "combined",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<LogFormat, String> {
        LogFormat::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = LogFormat::ALL.map(|format| format!("{:?}", format.name()));
            format!("unknown format {text:?}, allowed: {}", names.join(", "))
        })
    }
}

impl LogTarget {
    pub(crate) fn parse(text: &str) -> Result<LogTarget, String> {
        match text {
            STDOUT => Ok(LogTarget::Stdout),
            text if text.starts_with('/') && !text.ends_with('/') => Ok(LogTarget::File(text.into())),
            _ => Err(format!(
                "path {text:?}, allowed is an absolute path of a file such as \"/var/log/switchback/access.log\", or \
                 \"-\" for standard output"
            )),
        }
    }
}

impl AccessLog {
    /// Each key of `[access_log]` with its value in the form of the file. No path has the parentheses of a missing one.
    pub(crate) fn in_words(log: Option<&AccessLog>) -> [(&'static str, String); 3] {
        let word = |of: fn(&AccessLog) -> String| log.map_or("(none)".to_owned(), of);
        [
            ("path", word(|log| log.target.to_string())),
            ("format", word(|log| log.format.name().to_owned())),
            ("lines_per_second", word(|log| log.lines_per_second.to_string())),
        ]
    }
}
