//! `apply`, `history` and `rollback`: the configuration in etcd.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use switchback_access_log::escape::printable;
use switchback_config::{Checked, Cluster, Document};
use switchback_etcd::{Address, Record, Store, Stored};

use crate::config::store;
use crate::failure::Failure;

/// Where the configuration is.
#[derive(Args)]
struct Place {
    /// The place in etcd, as the daemons have it in --config
    #[arg(long, value_name = "ADDRESS")]
    etcd: Address,
}

/// Write a cluster.toml to etcd, where the daemons get it from
///
/// Checks it first, and prints what changes. Files that it names are looked at by the machines that need them. Nothing is
/// written if somebody else has written another version meanwhile.
#[derive(Args)]
pub struct Apply {
    /// The cluster.toml
    file: PathBuf,
    #[command(flatten)]
    place: Place,
    /// What the history says of this version
    #[arg(long, value_name = "TEXT", default_value = "")]
    message: String,
    /// Print what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Show the versions of the configuration in etcd, the newest first
///
/// The last hundred are kept.
#[derive(Args)]
pub struct History {
    /// Print the text of this version
    #[arg(value_name = "VERSION")]
    version: Option<u64>,
    #[command(flatten)]
    place: Place,
}

/// Write an earlier version of the configuration in etcd as the newest one
#[derive(Args)]
pub struct Rollback {
    /// The version, of those that `history` shows
    #[arg(value_name = "VERSION")]
    version: u64,
    #[command(flatten)]
    place: Place,
    /// Print what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub fn run(self) -> Result<(), Failure> {
        let document = Document::read(&self.file)?;
        let change = Change { document, message: self.message, dry_run: self.dry_run };
        change.write(&store(&self.place.etcd)?)
    }
}

impl History {
    pub fn run(self) -> Result<(), Failure> {
        let store = store(&self.place.etcd)?;
        if let Some(version) = self.version {
            print!("{}", find(&store, version)?.text);
            return Ok(());
        }
        let current = store.current()?.and_then(|stored| stored.document.version);
        let records = store.history()?;
        if let Some(version) = current
            && records.first().is_none_or(|(newest, _)| *newest != version)
        {
            println!("{version}  written without switchback apply");
        }
        for (version, Record { time, author, message, .. }) in records {
            let message = if message.is_empty() { String::new() } else { format!("  {message}") };
            println!("{}", printable(&format!("{version}  {time:.0}  {author}{message}")));
        }
        Ok(())
    }
}

impl Rollback {
    pub fn run(self) -> Result<(), Failure> {
        let store = store(&self.place.etcd)?;
        let Record { text, .. } = find(&store, self.version)?;
        let document = Document::new(text, Path::new(&format!("version {}", self.version)));
        let message = format!("back to version {}", self.version);
        Change { document, message, dry_run: self.dry_run }.write(&store)
    }
}

/// The record of a version.
fn find(store: &Store, version: u64) -> Result<Record, Failure> {
    let records = store.history()?;
    let newest = records.first().map(|(newest, _)| *newest);
    let oldest = records.last().map(|(oldest, _)| *oldest);
    let found = records.into_iter().find(|(of, _)| *of == version);
    found.map(|(_, record)| record).ok_or_else(|| {
        let kept = match (oldest, newest) {
            (Some(oldest), Some(newest)) => format!("it has {oldest} to {newest}"),
            _ => "it has none".to_owned(),
        };
        Failure::system(format!("{} has no record of version {version}, {kept}", store.address()))
    })
}

/// A text that is to become the newest version.
struct Change {
    document: Document,
    message: String,
    dry_run: bool,
}

impl Change {
    fn write(self, store: &Store) -> Result<(), Failure> {
        let Change { document, message, dry_run } = self;
        let Checked { cluster: new, warnings } = document.check_text()?;
        warnings.iter().for_each(|warning| eprintln!("{}", printable(&warning.to_string())));
        let current = store.current()?;
        for line in differences(current.as_ref(), &document, &new) {
            println!("{}", printable(&line));
        }
        let version = current.as_ref().and_then(|stored| stored.document.version);
        if let (Some(stored), Some(version)) = (&current, version)
            && stored.document.text == document.text
        {
            println!("version {version} has this text already");
            return Ok(());
        }
        if dry_run {
            println!("nothing is written");
            return Ok(());
        }
        let record = Record { time: Timestamp::now(), author: author(), message, text: document.text };
        let written = store.write(current.as_ref(), &record)?;
        println!("version {written} is written: {}", new.summary());
        Ok(())
    }
}

/// What is different in a new document, a line for each change.
fn differences(current: Option<&Stored>, document: &Document, new: &Cluster) -> Vec<String> {
    let Some(stored) = current else { return Vec::new() };
    match stored.document.check_text() {
        Ok(old) => match old.cluster.diff(new) {
            lines if lines.is_empty() && stored.document.text != document.text => {
                vec!["nothing changes but the text".to_owned()]
            }
            lines => lines,
        },
        Err(error) => vec![format!("the document in etcd is invalid:\n{error}")],
    }
}

/// The user and the machine.
fn author() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).unwrap_or("root".to_owned());
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{user}@{}", host.unwrap_or_default())
}
