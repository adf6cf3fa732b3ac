//! Copies on disk of the last document that has come into force, for a start while its store is away.
//!
//! The file is the document behind a line with its place and version, so that it can be read, and used, as `cluster.toml`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

use switchback_config::{Document, replace_private};

use crate::privileges;

/// The copy of a daemon, and the thread that writes it, so that no daemon waits for a disk.
#[derive(Debug)]
pub struct Copies {
    copy: Copy,
    accepted: Sender<Document>,
}

/// The file.
#[derive(Clone, Debug)]
struct Copy {
    file: PathBuf,
    /// Where the document comes from.
    place: String,
}

impl Copies {
    /// The copy that a daemon of this role keeps in a directory, of documents from this place.
    pub fn start(directory: &Path, role: &str, place: String) -> io::Result<Copies> {
        let copy = Copy { file: directory.join(format!("last-good-{role}.toml")), place };
        let (accepted, documents) = channel();
        let writer = copy.clone();
        privileges::spawn("copies", move || writer.keep(&documents))?;
        Ok(Copies { copy, accepted })
    }

    /// Replaces the copy, some time later.
    pub fn keep(&self, document: &Document) {
        // The thread ends with the process only.
        let _ = self.accepted.send(document.clone());
    }

    /// Text and version of the copy; None if there is none, or one from another place.
    pub fn last(&self) -> Option<(String, u64)> {
        self.copy.read().unwrap_or_else(|error| {
            log::warn!("cannot read {}: {error}", self.copy.file.display());
            None
        })
    }
}

impl Copy {
    /// Writes documents; of those that come while it writes, the last one.
    fn keep(&self, documents: &Receiver<Document>) {
        while let Ok(document) = documents.recv() {
            let document = documents.try_iter().last().unwrap_or(document);
            if let Err(error) = self.write(&document) {
                log::warn!(
                    "cannot write {}: {error}; without it, this daemon does not start while {} is away",
                    self.file.display(),
                    self.place
                );
            }
        }
    }

    /// Replaces the copy: whenever the machine stops, there is a whole one.
    fn write(&self, document: &Document) -> io::Result<()> {
        let head = self.head(document.version.unwrap_or_default());
        replace_private(&self.file, format!("{head}\n{}", document.text).as_bytes())
    }

    fn read(&self) -> io::Result<Option<(String, u64)>> {
        let content = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            content => content?,
        };
        let Some((line, text)) = content.split_once('\n') else { return Ok(None) };
        let version = line.rsplit(' ').next().and_then(|digits| digits.parse().ok());
        let version = version.filter(|version| line == self.head(*version));
        Ok(version.map(|version| (text.to_owned(), version)))
    }

    /// The first line.
    fn head(&self, version: u64) -> String {
        format!("# {}, version {version}", self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_that_of_its_place() {
        let directory = std::env::temp_dir().join(format!("switchback-copies-{}", std::process::id()));
        let of =
            |place: &str| Copy { file: directory.join("last-good-switch.toml"), place: place.to_owned() };
        let copy = of("/a/cluster.toml in etcd");
        assert_eq!(copy.read().unwrap(), None);
        for version in [7, 8] {
            let text = format!("# {version}\n\n[cluster]\n");
            let document = Document::new(text.as_str(), Path::new("a"));
            copy.write(&Document { version: Some(version), ..document }).unwrap();
            assert_eq!(copy.read().unwrap(), Some((text, version)));
        }
        assert_eq!(of("/b/cluster.toml in etcd").read().unwrap(), None);
        fs::write(&copy.file, "[cluster]\n").unwrap();
        assert_eq!(copy.read().unwrap(), None, "not of a daemon");
        fs::remove_dir_all(&directory).unwrap();
    }
}
