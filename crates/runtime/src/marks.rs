//! What commands have changed on this machine: its switch is withdrawn, or nodes are drained.
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

/// Name of the file that is there while the switch is withdrawn.
const WITHDRAWN: &str = "withdrawn";

/// Whether the switch is to get no packets (`switchback drain --self`).
pub fn is_withdrawn() -> Result<bool> {
    let path = path(WITHDRAWN)?;
    path.try_exists().doing(|| format!("look for {}", path.display()))
}

/// Writes whether the switch is to get no packets; false if nothing changes.
pub fn set_withdrawn(on: bool) -> Result<bool> {
    let path = path(WITHDRAWN)?;
    let changed = if on { create(&path) } else { fs::remove_file(&path) };
    match changed {
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => Ok(false),
        changed => changed.map(|()| true).doing(|| format!("change {}", path.display())),
    }
}

/// Name of the file with the names of drained nodes, one in each line.
const DRAINED: &str = "drained";

/// Whether a node of this machine is to get no flows (`switchback drain`).
pub fn is_drained(node: &str) -> Result<bool> {
    let path = path(DRAINED)?;
    match fs::read_to_string(&path) {
        // Of a version by which a machine was one node.
        Ok(names) if names.is_empty() => Ok(true),
        Ok(names) => Ok(names.lines().any(|name| name == node)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).doing(|| format!("read {}", path.display())),
    }
}

/// Writes which nodes of this machine are to get no flows.
pub fn set_drained<'a>(nodes: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let path = path(DRAINED)?;
    let lines: String = nodes.into_iter().map(|name| format!("{name}\n")).collect();
    let written = match lines.is_empty() {
        true => fs::remove_file(&path),
        false => make_directory().and_then(|()| fs::write(&path, lines)),
    };
    match written {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        written => written.doing(|| format!("change {}", path.display())),
    }
}

fn create(path: &Path) -> std::io::Result<()> {
    make_directory()?;
    fs::File::create_new(path).map(drop)
}

/// Creates the directory of [`path`], for root alone.
pub fn make_directory() -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(DIRECTORY)
}

/// The file of this name of the calling thread's network namespace.
pub fn path(name: &str) -> Result<PathBuf> {
    Ok(Path::new(DIRECTORY).join(format!("{name}-{}", netns_cookie()?)))
}
