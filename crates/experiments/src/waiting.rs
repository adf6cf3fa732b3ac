//! Waiting for a lab, which may be taken down meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use switchback_lab::{Error, Lab, Result};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long a lab may take to become as it should be.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits, but not longer than the lab is up.
pub(super) fn wait(lab: &Lab, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        is_up(lab)?;
        thread::sleep(POLL.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Waits until something is true.
pub(super) fn wait_until(lab: &Lab, what: &str, mut is_true: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_true()? {
        is_up(lab)?;
        if start.elapsed() > PATIENCE {
            let waiting_for = what.to_owned();
            return Err(Error::Timeout { waiting_for, after: PATIENCE, log: String::new() });
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn is_up(lab: &Lab) -> Result<()> {
    if lab.directory().exists() { Ok(()) } else { Err(Error::TornDown) }
}
