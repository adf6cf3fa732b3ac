//! `check` and `keygen`: the files on every machine of a cluster.

use std::net::IpAddr;
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

/// Make a new cluster key, or the keys of a client
///
/// A client that runs the shim has a key of its own for each of its addresses, made from the cluster key.
#[derive(Args)]
pub struct Keygen {
    /// Make the keys of the client with these addresses, as the cluster sees them
    #[arg(long, value_name = "ADDRESS", num_args = 1.., requires = "config")]
    client: Vec<IpAddr>,
    /// The cluster.toml whose cluster key they are made from
    #[arg(long, value_name = "FILE", requires = "client")]
    config: Option<PathBuf>,
    /// Where to write it, readable by its owner only; a file that exists is left alone. Without, the key goes
    /// to the standard output
    file: Option<PathBuf>,
}

impl Keygen {
    pub fn run(self) -> Result<(), Failure> {
        let text = match self.config {
            Some(config) => {
                let keys = switchback_config::load(&config)?.keys;
                switchback_config::client_key_file_text(&keys, &self.client)
            }
            None => {
                let key = switchback_config::generate_key()
                    .map_err(|error| Failure::system(format!("no random bytes for a key: {error}")))?;
                switchback_config::key_file_text(&key)
            }
        };
        match self.file {
            Some(file) => switchback_config::write_private(&file, &text)?,
            None => print!("{text}"),
        }
        Ok(())
    }
}
