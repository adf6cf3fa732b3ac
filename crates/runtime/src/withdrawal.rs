//! The mark of a machine whose switch is to get no packets, for `switchback drain --self` and `switchback ready`.
//!
//! A file rather than a state of the process, so that it holds while the process is restarted, as in an upgrade, and
//! after a crash. The next boot removes it, with everything else in `/run`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::control::DIRECTORY;
use crate::error::{Doing, Result};
use crate::netns_cookie;

/// Whether the switch of the calling thread's network namespace is withdrawn.
pub fn is_withdrawn() -> Result<bool> {
    let path = path()?;
    path.try_exists().doing(|| format!("look for {}", path.display()))
}

/// Withdraws the switch of the calling thread's network namespace, or ends that; false if nothing changes.
pub fn set_withdrawn(on: bool) -> Result<bool> {
    let path = path()?;
    let changed = if on { create(&path) } else { fs::remove_file(&path) };
    match changed {
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => Ok(false),
        changed => changed.map(|()| true).doing(|| format!("change {}", path.display())),
    }
}

fn create(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(DIRECTORY)?;
    fs::File::create_new(path).map(drop)
}

fn path() -> Result<PathBuf> {
    Ok(Path::new(DIRECTORY).join(format!("withdrawn-{}", netns_cookie()?)))
}
