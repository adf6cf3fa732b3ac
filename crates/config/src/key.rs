//! The cluster key: 32 bytes that only the machines of the cluster have. Cookies and handoff packets are authenticated
//! with it, so read access to the key file is enough to impersonate the switch.
//!
//! A key file has one key on each line, as 64 hexadecimal digits; what follows a `#` is a comment. While a
//! key is replaced the file holds two: the first signs, both are accepted.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::{self, Error, Mistake};

/// The most keys that can be valid at a time: the one in use, and the one it replaces or is replaced by.
pub(crate) const MAX_KEYS: usize = 2;

/// A secret that authenticates the machines of a cluster to each other.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        ClusterKey(bytes)
    }

    /// The secret itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Hides the key from logs.
impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

/// Makes a key out of the kernel's random bytes.
pub fn generate_key() -> io::Result<ClusterKey> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(ClusterKey(bytes))
}

/// The text of a key file with `key`.
pub fn key_file_text(key: &ClusterKey) -> String {
    let mut text =
        "# Switchback cluster key. Every machine of the cluster needs this file; keep it secret.\n"
            .to_owned();
    text.push_str(&hex(&key.0));
    text.push('\n');
    text
}

/// The bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates the file at `path`, readable by its owner only, with `key` in it.
///
/// A file that exists is left alone: the key in it cannot be made a second time.
pub fn write_key(path: &Path, key: &ClusterKey) -> Result<(), Error> {
    write_private(path, &key_file_text(key))
}

/// Creates the file at `path`, readable by its owner only, with `text` in it; an error if it exists.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source: io::Error| {
        let remedy = (source.kind() == io::ErrorKind::AlreadyExists)
            .then(|| "a key is never overwritten, move the old file away first".to_owned());
        Error::Write { file: path.to_owned(), source, remedy }
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|source| {
        // A half-written key file would block the next attempt. If its removal fails too, the first error is reported.
        let _ = std::fs::remove_file(path);
        failed(source)
    })
}

/// Replaces the file at `path`, readable by its owner only, and makes its directory if that is missing: whenever the machine
/// stops, the old or the new file is whole.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}

/// Reads the keys in the file at `path`, which only its owner may have access to.
pub(crate) fn read_keys(path: &Path) -> Result<Vec<ClusterKey>, Error> {
    let remedy = format!(
        "copy it from another machine of the cluster, or make it: switchback keygen {}",
        path.display()
    );
    parse_keys(&read_private(path, remedy)?, path)
}

/// The text of a file that only its owner may access; `remedy` is for a missing one.
pub fn read_private(path: &Path, remedy: String) -> Result<String, Error> {
    let failed = |source: io::Error| {
        let remedy = (source.kind() == io::ErrorKind::NotFound).then(|| remedy.clone());
        Error::Read { file: path.to_owned(), source, remedy }
    };
    let mut file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::Read {
            file: path.to_owned(),
            source: io::Error::other(format!("mode {mode:04o} lets others than its owner at the key")),
            remedy: Some(format!("chmod 600 {}", path.display())),
        });
    }
    let mut content = Vec::new();
    let read = file.read_to_end(&mut content).map(|_| content);
    error::text_of(read, path)
}

/// The keys in `text`, which is the content of `file`. No message repeats any of the text: it may be most of
/// a key.
fn parse_keys(text: &str, file: &Path) -> Result<Vec<ClusterKey>, Error> {
    let mut keys = Vec::new();
    let mut mistakes = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let digits = line.split('#').next().unwrap_or_default();
        let at = line_start + (digits.len() - digits.trim_start().len());
        line_start += line.len();
        let digits = digits.trim();
        if digits.is_empty() {
            continue;
        }
        let what = match decode_hex(digits) {
            None => "not a key, a key is 64 hexadecimal digits",
            Some(key) if keys.contains(&key) => "the same key again, two keys must differ",
            Some(_) if keys.len() == MAX_KEYS => {
                "one key too many, allowed are one key, or two while it is replaced"
            }
            Some(key) => {
                keys.push(key);
                continue;
            }
        };
        mistakes.push(Mistake { at, what: what.to_owned() });
    }
    if keys.is_empty() && mistakes.is_empty() {
        mistakes
            .push(Mistake { at: 0, what: "no key, one line of 64 hexadecimal digits is needed".to_owned() });
    }
    if mistakes.is_empty() { Ok(keys) } else { Err(error::invalid(text, file, mistakes)) }
}

fn decode_hex(digits: &str) -> Option<ClusterKey> {
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(ClusterKey(key))
}
