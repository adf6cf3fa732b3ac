//! The log of a daemon: events with time and level on standard error, and the last ones in memory, for `status` and the
//! page.
//!
//! The daemons log through the crate `log`. An event is about a machine, a pool, a file or an order, never about a single
//! request, except at the level debug. A line of code that logs more often than 10 times in 5 seconds at one level
//! is cut short, as the kernel does (`___ratelimit()`), and its next event says how many were left out.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::{Deserialize, Serialize};

use crate::Result;

/// Events of one line of code within [`WINDOW`].
const BURST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(5);
/// Events that are kept in memory.
const KEPT: usize = 100;
/// Only crates with this prefix log: messages of libraries have not been reviewed.
const OURS: &str = "switchback";

/// What the log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Time, level and message.
    Text,
    /// Level and message as sd-daemon(3) defines them; the journal adds the time.
    Journal,
    /// An object in each line.
    Json,
}

impl Format {
    /// The journal's format if standard error is connected to it, text otherwise (systemd.exec(5), `$JOURNAL_STREAM`).
    pub fn of_stderr() -> Format {
        let stderr = nix::sys::stat::fstat(std::io::stderr());
        let stream = stderr.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
        let journal = std::env::var("JOURNAL_STREAM");
        if matches!((stream, journal), (Ok(stream), Ok(journal)) if stream == journal) {
            Format::Journal
        } else {
            Format::Text
        }
    }

    fn line(self, event: &Event) -> String {
        let Event { time, level, message } = event;
        match self {
            Format::Text => format!("{time} {level:5} {message}\n", level = level.to_uppercase()),
            Format::Journal => {
                let priority = match level.as_str() {
                    "error" => 3,
                    "warn" => 4,
                    "info" => 6,
                    _ => 7,
                };
                message.lines().map(|line| format!("<{priority}>{line}\n")).collect()
            }
            Format::Json => serde_json::to_string(event).unwrap_or_default() + "\n",
        }
    }
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// UTC, RFC 3339, in milliseconds.
    pub time: String,
    /// `error`, `warn`, `info` or `debug`.
    pub level: String,
    /// What has happened.
    pub message: String,
}

/// Begins the log of this process: events of `level` and above are written. Those of info and above are kept in memory
/// in any case.
pub fn begin(level: LevelFilter, format: Format) {
    let logger = Logger { level, format, state: Mutex::default() };
    // Only the first call in a process has an effect.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level.max(LevelFilter::Info));
    }
}

/// The last events of this process, the oldest first.
pub fn recent() -> Vec<Event> {
    KEPT_EVENTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter().cloned().collect()
}

/// Writes messages with their levels to the log.
pub fn log_all(messages: &[(Level, String)]) {
    messages.iter().for_each(|(level, message)| log::log!(*level, "{message}"));
}

/// What a wrong tag means, and what to do.
pub const WRONG_TAG: &str = "a machine has another cluster key, or somebody forges; compare the keys";

/// Counters of which it matters that they move for the first time since the process began.
#[derive(Debug, Default)]
pub struct FirstMoves(HashMap<&'static str, Option<u64>>);

impl FirstMoves {
    /// Whether the counter, which is `now`, has moved since the first call, and had not at the last one.
    pub fn moves(&mut self, name: &'static str, now: u64) -> bool {
        let before = self.0.entry(name).or_insert(Some(now));
        before.take_if(|before| now > *before).is_some()
    }
}

/// Logs the warnings about a configuration that takes effect.
pub fn log_warnings(warnings: &[impl Display]) {
    warnings.iter().for_each(|warning| log::warn!("{warning}"));
}

/// A configuration that has come into force.
#[derive(Clone, Debug, Default)]
pub struct Reloaded<W> {
    /// Version of the document, if its source counts them.
    pub version: Option<u64>,
    /// One line for each change.
    pub changes: Vec<String>,
    /// Warnings about it, which have been logged.
    pub warnings: Vec<W>,
}

/// Logs the result of a reload: its changes, or why there is none. Returns what to answer to `switchback reload`: the
/// changes and the warnings.
pub fn log_reload(result: Result<Reloaded<impl Display>>) -> Result<Vec<String>> {
    match result {
        Ok(Reloaded { version, changes: mut lines, warnings }) => {
            let version = version.map_or(String::new(), |version| format!(" version {version}"));
            log::info!("reloaded{version}: {}", lines.join("; "));
            lines.extend(warnings.iter().map(ToString::to_string));
            Ok(lines)
        }
        Err(error) => {
            log::error!("reload refused, the old configuration goes on: {error}");
            Err(error)
        }
    }
}

static KEPT_EVENTS: Mutex<VecDeque<Event>> = Mutex::new(VecDeque::new());

struct Logger {
    level: LevelFilter,
    format: Format,
    state: Mutex<Pace>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(OURS)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut pace = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let place = Place(
            record.file().unwrap_or_default().to_owned(),
            record.line().unwrap_or_default(),
            record.level(),
        );
        let is_limited = record.level() < Level::Debug;
        let admitted = if is_limited { pace.admit(place, Instant::now()) } else { Some(0) };
        let Some(left_out) = admitted else { return };
        let mut message = record.args().to_string();
        if left_out > 0 {
            message += &format!(" ({left_out} more like it were left out before)");
        }
        let time = format!("{:.3}", Timestamp::now());
        let level = record.level().as_str().to_ascii_lowercase();
        let event = Event { time, level, message };
        if record.level() <= self.level {
            // Nobody may be reading any more.
            let _ = std::io::stderr().write_all(self.format.line(&event).as_bytes());
        }
        if record.level() <= Level::Info {
            let mut kept = KEPT_EVENTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(event);
        }
    }

    fn flush(&self) {}
}

/// A line of code, by file and number, and a level.
#[derive(PartialEq, Eq, Hash)]
struct Place(String, u32, Level);

/// How often each line of code has logged.
#[derive(Default)]
struct Pace(HashMap<Place, Window>);

struct Window {
    since: Instant,
    logged: u32,
    left_out: u32,
}

impl Pace {
    /// Number of events of this line of code that were left out before this one; None if this one is left out.
    fn admit(&mut self, place: Place, now: Instant) -> Option<u32> {
        let window = self.0.entry(place).or_insert(Window { since: now, logged: 0, left_out: 0 });
        if now >= window.since + WINDOW {
            (window.since, window.logged) = (now, 0);
        }
        if window.logged == BURST {
            window.left_out += 1;
            return None;
        }
        window.logged += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            time: "2026-11-25T23:10:00.123Z".to_owned(),
            level: "warn".to_owned(),
            message: "node n1 is silent\nsince then".to_owned(),
        }
    }

    #[test]
    fn each_format_has_level_and_message() {
        assert_eq!(
            Format::Text.line(&event()),
            "2026-11-25T23:10:00.123Z WARN  node n1 is silent\nsince then\n"
        );
        assert_eq!(Format::Journal.line(&event()), "<4>node n1 is silent\n<4>since then\n");
        assert_eq!(
            Format::Json.line(&event()),
            "{\"time\":\"2026-11-25T23:10:00.123Z\",\"level\":\"warn\",\"message\":\"node n1 is silent\\nsince then\"}\n"
        );
    }

    #[test]
    fn what_comes_too_often_is_counted_instead() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let place = |line| Place("driver.rs".to_owned(), line, Level::Warn);
        let admitted: Vec<_> = (0..BURST + 3).map(|_| pace.admit(place(7), start)).collect();
        let within = |count: &Option<u32>| *count == Some(0);
        assert_eq!(admitted.iter().filter(|count| within(count)).count() as u32, BURST);
        assert_eq!(admitted[BURST as usize..], [None; 3]);
        assert_eq!(pace.admit(place(8), start), Some(0), "another line of code");
        assert_eq!(pace.admit(place(7), start + WINDOW), Some(3));
        assert_eq!(pace.admit(place(7), start + WINDOW), Some(0));
    }

    #[test]
    fn the_last_events_are_kept_whatever_the_level_of_the_log() {
        begin(LevelFilter::Error, Format::Text);
        log::info!(target: "switchback_test", "kept");
        log::debug!(target: "switchback_test", "too fine");
        log::error!(target: "library", "of somebody else");
        let messages: Vec<String> = recent().into_iter().map(|event| event.message).collect();
        assert_eq!(messages, ["kept"]);
        for number in 0..2 * KEPT {
            log::info!(target: "switchback_test", "one of many {number}");
        }
        assert_eq!(recent().len(), 1 + BURST as usize, "the line of code is cut short");
    }
}
