//! Documents of the lab's servers: a tree of files with the same names and contents, times and inodes on
//! every node, and two files, `node` and `index.html`, that differ.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::{Doing, Result};

/// SHA-256 of the document `/1m`, in hexadecimal.
pub const ONE_MIB_SHA256: &str = "862ddb39376a5a23495cee49d2c6417b5bb92c0b9b153b36ad7195a05f070139";
/// Size of the document `/1m` in bytes.
pub const ONE_MIB: usize = 1 << 20;
/// Size of the document `/small` in bytes.
pub const SMALL: usize = 100;

const SHARED: &str = "documents";
const ROOTS: &str = "roots";
const SEED: u64 = 0x5377_6974_6368_6261;

/// Makes the shared documents of a lab in its directory.
pub(crate) fn create(lab: &Path) -> Result<()> {
    for part in [SHARED, ROOTS] {
        make_directory(&lab.join(part))?;
    }
    add(lab, "small", &[b'.'; SMALL])?;
    add(lab, "1m", &pseudo_random(ONE_MIB))
}

/// Adds a document to the shared ones and to the trees that exist.
pub(crate) fn add(lab: &Path, name: &str, content: &[u8]) -> Result<()> {
    let path = lab.join(SHARED).join(name);
    if let Some(parent) = path.parent() {
        make_directory(parent)?;
    }
    // A new inode, so that trees with an older document of this name get the new one too.
    let new = lab.join(format!("{SHARED}.new"));
    fs::write(&new, content)
        .and_then(|()| age(&new))
        .and_then(|()| fs::rename(&new, &path))
        .doing(|| format!("write {}", path.display()))?;
    entries(&lab.join(ROOTS))?.iter().try_for_each(|root| link_tree(&lab.join(SHARED), root))
}

/// Apache calls the entity tag of a file weak that has changed within a second.
fn age(path: &Path) -> io::Result<()> {
    let file = fs::File::options().write(true).open(path)?;
    file.set_modified(SystemTime::now() - Duration::from_secs(3600))
}

/// Adds a sparse document.
pub(crate) fn add_zeros(lab: &Path, name: &str, bytes: u64) -> Result<()> {
    add(lab, name, &[])?;
    let path = lab.join(SHARED).join(name);
    let file = fs::File::options().write(true).open(&path);
    file.and_then(|file| file.set_len(bytes)).doing(|| format!("lengthen {}", path.display()))
}

/// The document tree of a node, created if absent.
pub(crate) fn root_of(lab: &Path, node: &str) -> Result<PathBuf> {
    let root = lab.join(ROOTS).join(node);
    link_tree(&lab.join(SHARED), &root)?;
    for (name, text) in [("node", node.to_owned()), ("index.html", page_of(node))] {
        let own = root.join(name);
        fs::write(&own, text).doing(|| format!("write {}", own.display()))?;
    }
    Ok(root)
}

/// The page at `/`, for browsers.
fn page_of(node: &str) -> String {
    format!("<!DOCTYPE html>\n<title>{node}</title>\n<h1>{node}</h1>\n<p>A server of a Switchback lab.</p>\n")
}

/// Makes `to` a tree of hard links to the files of `from`, because servers make entity tags from inode, time and size.
fn link_tree(from: &Path, to: &Path) -> Result<()> {
    make_directory(to)?;
    for entry in entries(from)? {
        let copy = to.join(entry.file_name().expect("a directory entry has a name"));
        if entry.is_dir() {
            link_tree(&entry, &copy)?;
        } else {
            link(&entry, &copy)?;
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).doing(|| format!("create {}", path.display()))
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let list =
        || fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    list().doing(|| format!("read {}", directory.display()))
}

fn link(from: &Path, to: &Path) -> Result<()> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::hard_link(from, to),
    }
    .doing(|| format!("link {} to {}", from.display(), to.display()))
}

/// Pseudorandom bytes, the same on every machine (xorshift64).
pub fn pseudo_random(len: usize) -> Vec<u8> {
    let mut state = SEED;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(len).collect()
}
