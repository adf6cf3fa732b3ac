//! The copy on disk of the last document that has come into force.
//!
//! The file is the document behind a line with its version, so that it can be read, and used, as `cluster.toml`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use switchback_config::{Document, replace_private};

use crate::address::Address;

/// The place of the copy.
#[derive(Debug)]
pub(crate) struct Kept {
    file: PathBuf,
}

impl Kept {
    /// The copy that daemons of this role keep in a directory.
    pub(crate) fn new(directory: &Path, role: &str) -> Kept {
        Kept { file: directory.join(format!("last-good-{role}.toml")) }
    }

    /// Path of the file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Replaces the copy: whenever the machine stops, there is a whole one.
    pub(crate) fn write(&self, address: &Address, document: &Document) -> io::Result<()> {
        let head = head(address, document.version.unwrap_or_default());
        replace_private(&self.file, format!("{head}\n{}", document.text).as_bytes())
    }

    /// The copy; None if there is none, or one of another place in etcd.
    pub(crate) fn read(&self, address: &Address) -> io::Result<Option<Document>> {
        let content = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            content => content?,
        };
        let Some((line, text)) = content.split_once('\n') else { return Ok(None) };
        let version = line.rsplit(' ').next().and_then(|digits| digits.parse().ok());
        let Some(version) = version.filter(|version| line == head(address, *version)) else {
            return Ok(None);
        };
        Ok(Some(address.document(text.to_owned(), version)))
    }
}

/// The first line. Hosts are not in it: an etcd cluster whose members have moved is the same.
fn head(address: &Address, version: u64) -> String {
    format!("# {} in etcd, version {version}", address.document_key())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_that_of_its_place_in_etcd() {
        let directory = std::env::temp_dir().join(format!("switchback-kept-{}", std::process::id()));
        let kept = Kept::new(&directory, "switch");
        let address: Address = "etcd://192.0.2.1/a".parse().unwrap();
        assert_eq!(kept.read(&address).unwrap(), None);
        for version in [7, 8] {
            let document = address.document(format!("# {version}\n\n[cluster]\n"), version);
            kept.write(&address, &document).unwrap();
            assert_eq!(kept.read(&address).unwrap(), Some(document));
        }
        let moved: Address = "etcd://192.0.2.2/a".parse().unwrap();
        assert!(kept.read(&moved).unwrap().is_some());
        let other: Address = "etcd://192.0.2.1/b".parse().unwrap();
        assert_eq!(kept.read(&other).unwrap(), None);
        fs::write(kept.file(), "[cluster]\n").unwrap();
        assert_eq!(kept.read(&address).unwrap(), None, "not of a daemon");
        fs::remove_dir_all(&directory).unwrap();
    }
}
