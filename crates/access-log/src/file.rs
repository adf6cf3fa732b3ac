//! The file, or standard output, that the access log is written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::Duration;

use switchback_config::{AccessLog, LogTarget};

use crate::Line;

/// Bytes that are written at once, unless [`Log::flush`] comes first.
const BUFFER: usize = 1 << 16;

/// An open access log.
pub struct Log {
    config: AccessLog,
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// Lines that may still be written in this second of the process.
    allowed: u32,
    second: u64,
    /// Lines left out since the last one.
    missing: u64,
    /// Whether the last error of writing has been reported.
    complained: bool,
    /// Lines written and lost since [`Self::take_counts`].
    lines: u64,
    lost: u64,
}

impl Log {
    /// Opens the log; the error names the file.
    pub fn open(config: AccessLog) -> io::Result<Log> {
        Ok(Log {
            out: open(&config.target)?,
            allowed: config.lines_per_second,
            config,
            buffer: Vec::with_capacity(BUFFER),
            second: 0,
            missing: 0,
            complained: false,
            lines: 0,
            lost: 0,
        })
    }

    /// The configuration it was opened with.
    pub fn config(&self) -> &AccessLog {
        &self.config
    }

    /// Opens the file again, after it has been renamed. If that fails, the old file goes on.
    pub fn reopen(&mut self) {
        self.flush();
        match open(&self.config.target) {
            Ok(out) => self.out = out,
            Err(error) => log::error!("the access log goes on in the old file: {error}"),
        }
        self.complained = false;
    }

    /// Writes a line; `now` is the time since the start of the process.
    pub fn write(&mut self, now: Duration, line: &Line<'_>) {
        if now.as_secs() != self.second {
            (self.second, self.allowed) = (now.as_secs(), self.config.lines_per_second);
        }
        let Some(allowed) = self.allowed.checked_sub(1) else {
            self.lose(1);
            return;
        };
        self.allowed = allowed;
        line.write(&mut self.buffer, self.config.format, self.missing);
        self.missing = 0;
        self.lines += 1;
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Counts lines that are not written.
    pub fn lose(&mut self, lines: u64) {
        self.missing += lines;
        self.lost += lines;
    }

    /// Lines written and lines lost since the last call.
    pub fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.lost))
    }

    /// Writes the buffer. If the disk is full, lines are lost, not requests.
    pub fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        match self.out.write_all(&self.buffer).and_then(|()| self.out.flush()) {
            Ok(()) => self.complained = false,
            Err(error) => {
                let lines = self.buffer.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.lines -= lines.min(self.lines);
                self.lose(lines);
                if !self.complained {
                    log::error!("the access log loses lines: {}: {error}", self.config.target);
                    self.complained = true;
                }
            }
        }
        self.buffer.clear();
    }
}

fn open(target: &LogTarget) -> io::Result<Box<dyn Write + Send>> {
    Ok(match target {
        LogTarget::Stdout => Box::new(io::stdout()),
        LogTarget::File(path) => Box::new(append(path)?),
    })
}

fn append(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display())))
}
