//! Sources of `cluster.toml`: a file, or a store that tells of changes.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use crate::{Addresses, Error, error};

/// A text of `cluster.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The text.
    pub text: String,
    /// Its name in messages: the path of the file, or a place in a store.
    pub name: PathBuf,
    /// Directory in which relative paths begin.
    pub directory: PathBuf,
    /// Addresses of the names in it, as far as they are known; of no other names.
    pub addresses: Addresses,
    /// Number of the version, for a source that counts them.
    pub version: Option<u64>,
}

impl Document {
    /// The document with this text as the content of `file`.
    pub fn new(text: impl Into<String>, file: &Path) -> Document {
        let directory = file.parent().unwrap_or(Path::new("")).to_owned();
        Document {
            text: text.into(),
            name: file.to_owned(),
            directory,
            addresses: Addresses::new(),
            version: None,
        }
    }

    /// Reads a file.
    pub fn read(file: &Path) -> Result<Document, Error> {
        Ok(Document::new(error::read_text(file)?, file))
    }

    /// The same document with these addresses.
    pub fn with_addresses(&self, addresses: Addresses) -> Document {
        Document { addresses, ..self.clone() }
    }
}

/// Where a daemon gets `cluster.toml` from.
pub trait Source: Debug + Send + Sync {
    /// The newest document. Waits for it at the first call only, and no longer than some seconds.
    fn newest(&self) -> Result<Document, Error>;

    /// The newest document, as far as the source learns of it without being asked; None if it does not.
    fn followed(&self) -> Option<Result<Document, Error>>;

    /// The document that was [accepted](Source::accept) last, also by an earlier process. None if the source keeps none:
    /// then a daemon starts with the newest document only.
    fn last_good(&self) -> Option<Document>;

    /// Keeps a document that has come into force.
    fn accept(&self, document: &Document);

    /// Has `changed` called, from any thread, when [the document](Source::followed) is another one than before, and at once if it is not
    /// `since`.
    fn follow(&self, since: &Document, changed: Box<dyn Fn() + Send + Sync>);
}

/// A file, which is read when the daemon is told to.
#[derive(Clone, Debug)]
pub struct FileSource(
    /// The path.
    pub PathBuf,
);

impl Source for FileSource {
    fn newest(&self) -> Result<Document, Error> {
        Document::read(&self.0)
    }

    fn followed(&self) -> Option<Result<Document, Error>> {
        None
    }

    fn last_good(&self) -> Option<Document> {
        None
    }

    fn accept(&self, _: &Document) {}

    fn follow(&self, _: &Document, _: Box<dyn Fn() + Send + Sync>) {}
}
