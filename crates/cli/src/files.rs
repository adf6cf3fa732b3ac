//! `check` and `keygen`: the files on every machine of a cluster.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use switchback_access_log::escape::printable;
use switchback_config::{Client, Cluster, Diagnostic};
use switchback_runtime::interface;
use switchback_sim::Scenario;

use crate::failure::Failure;

/// Where a cluster.toml is unless another one is named.
pub const CLUSTER_FILE: &str = "/etc/switchback/cluster.toml";
/// Where a client.toml is unless another one is named.
pub const CLIENT_FILE: &str = "/etc/switchback/client.toml";

/// Check a cluster.toml, a client.toml or a scenario of `sim run`, and the files that it names
///
/// Prints one line if all are right. Mistakes are printed as `file:line:column: what is wrong, what is allowed`, all of
/// them at once; what is valid and yet can hardly be meant as `file:line:column: warning: ...`. Daemons refuse what this
/// command refuses. Certificates have to be on the machines that are nodes; elsewhere a missing one is a warning.
#[derive(Args)]
pub struct Check {
    /// The file; which of the three it is, is told by its keys
    #[arg(default_value = CLUSTER_FILE)]
    file: PathBuf,
}

/// Returns the summary of a valid text of this file, and the warnings about it.
type Checker = fn(&str, &Path) -> Result<(String, Vec<Diagnostic>), Failure>;

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let text = switchback_config::read_text(&self.file)?;
        let kinds: [(usize, Checker); 3] = [
            (Scenario::resemblance(&text), |text, file| {
                Ok((Scenario::read(text, file)?.summary(), Vec::new()))
            }),
            (Client::resemblance(&text), |text, file| Ok((Client::read(text, file)?.summary(), Vec::new()))),
            (Cluster::resemblance(&text), |text, file| {
                let checked = switchback_tls::check_text(text, file, &interface::all_addresses()?)?;
                Ok((checked.cluster.summary(), checked.warnings))
            }),
        ];
        // Of equals the last one.
        let (_, check) = kinds.into_iter().max_by_key(|(resemblance, _)| *resemblance).expect("three kinds");
        let (summary, warnings) = check(&text, &self.file)?;
        warnings.iter().for_each(|warning| eprintln!("{}", printable(&warning.to_string())));
        println!("ok: {summary}");
        Ok(())
    }
}

/// Make a new cluster key, or the keys of a client
///
/// A client that runs the shim has a key of its own for each of its addresses, made from the cluster key.
#[derive(Args)]
pub struct Keygen {
    /// Make the keys of the client with these addresses, as the cluster sees them
    #[arg(long, value_name = "ADDRESS", num_args = 1..)]
    client: Vec<IpAddr>,
    /// The cluster.toml whose cluster key they are made from
    #[arg(long, value_name = "FILE", requires = "client", default_value = CLUSTER_FILE)]
    config: PathBuf,
    /// Where to write it, readable by its owner only; a file that exists is left alone. Without, the key goes
    /// to the standard output
    file: Option<PathBuf>,
}

impl Keygen {
    pub fn run(self) -> Result<(), Failure> {
        let text = if self.client.is_empty() {
            let key = switchback_config::generate_key()
                .map_err(|error| Failure::system(format!("no random bytes for a key: {error}")))?;
            switchback_config::key_file_text(&key)
        } else {
            let keys = switchback_config::load(&self.config)?.keys;
            switchback_config::client_key_file_text(&keys, &self.client)
        };
        match self.file {
            Some(file) => switchback_config::write_private(&file, &text)?,
            None => print!("{text}"),
        }
        Ok(())
    }
}
