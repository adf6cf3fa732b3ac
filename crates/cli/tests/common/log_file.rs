//! Access logs of ours.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::Result;

/// Where a log is written to, in no directory of the lab: there is none before the lab is up. It is removed at the end, whatever
/// comes of the test.
pub struct LogFile(pub PathBuf);

impl LogFile {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("switchback-{name}-{}.log", std::process::id()));
        let _ = fs::remove_file(&path);
        LogFile(path)
    }

    pub fn text(&self) -> String {
        self.0.display().to_string()
    }

    pub fn lines(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(&self.0)?;
        Ok(text.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?)
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The number that a request has in its target.
pub fn number(target: &str) -> Option<u64> {
    target.split_once("?n=")?.1.split(' ').next()?.parse().ok()
}
