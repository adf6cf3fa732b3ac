//! The copy on disk of the addresses that names had last: a line for each name, the addresses behind it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use switchback_config::{Addresses, replace_private};

/// The place of the copy.
#[derive(Debug)]
pub(crate) struct Kept {
    file: PathBuf,
}

impl Kept {
    /// The copy that daemons of this role keep in a directory.
    pub(crate) fn new(directory: &Path, role: &str) -> Kept {
        Kept { file: directory.join(format!("addresses-{role}")) }
    }

    /// Path of the file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Replaces the copy: whenever the machine stops, there is a whole one.
    pub(crate) fn write(&self, addresses: &Addresses) -> io::Result<()> {
        let line = |(name, addresses): (&String, &BTreeSet<IpAddr>)| {
            let words = addresses.iter().map(|address| format!(" {address}"));
            format!("{name}{}\n", words.collect::<String>())
        };
        replace_private(&self.file, addresses.iter().map(line).collect::<String>().as_bytes())
    }

    /// The copy; empty if there is none. What is no address is passed over.
    pub(crate) fn read(&self) -> io::Result<Addresses> {
        let content = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Addresses::new()),
            content => content?,
        };
        let line = |line: &str| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.filter_map(|word| word.parse().ok()).collect()))
        };
        Ok(content.lines().filter_map(line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let directory = std::env::temp_dir().join(format!("switchback-addresses-{}", std::process::id()));
        let kept = Kept::new(&directory, "switch");
        assert_eq!(kept.read().unwrap(), Addresses::new());
        let set = |addresses: &[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect();
        let addresses = Addresses::from([
            ("a.example.com".to_owned(), set(&["192.0.2.1", "192.0.2.2"])),
            ("b".to_owned(), set(&["2001:db8::1"])),
        ]);
        kept.write(&addresses).unwrap();
        assert_eq!(kept.read().unwrap(), addresses);
        fs::remove_dir_all(&directory).unwrap();
    }
}
