//! `check` and `keygen`: the files that every machine of a cluster has.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;

/// Check a cluster.toml and the key file that it names
///
/// Prints one line if both are right. Mistakes are printed as `file:line:column: what is wrong, what is
/// allowed`, all of them at once.
#[derive(Args)]
pub struct Check {
    /// The cluster.toml
    file: PathBuf,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        println!("{}", switchback_config::load(&self.file)?.check_line());
        Ok(())
    }
}

/// Make a new cluster key
#[derive(Args)]
pub struct Keygen {
    /// Where to write it, readable by its owner only; a file that exists is left alone. Without, the key goes
    /// to the standard output
    file: Option<PathBuf>,
}

impl Keygen {
    pub fn run(self) -> Result<(), Failure> {
        let key = switchback_config::generate_key()
            .map_err(|error| Failure::system(format!("no random bytes for a key: {error}")))?;
        match self.file {
            Some(file) => switchback_config::write_key(&file, &key)?,
            None => print!("{}", switchback_config::key_file_text(&key)),
        }
        Ok(())
    }
}
