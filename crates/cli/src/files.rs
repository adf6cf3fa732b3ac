//! `check` and `keygen`: the files on every machine of a cluster.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use switchback_access_log::escape::printable;
use switchback_config::{Client, Cluster, Diagnostic, Document};
use switchback_runtime::interface;
use switchback_sim::Scenario;

use crate::config::Config;
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
    file: Config,
}

/// Returns the summary of a valid document, and the warnings about it.
type Checker = fn(&Document) -> Result<(String, Vec<Diagnostic>), Failure>;

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let document = self.file.document()?;
        let text = &document.text;
        let kinds: [(usize, Checker); 3] = [
            (Scenario::resemblance(text), |Document { text, name, .. }| {
                Ok((Scenario::read(text, name)?.summary(), Vec::new()))
            }),
            (Client::resemblance(text), |Document { text, name, .. }| {
                Ok((Client::read(text, name)?.summary(), Vec::new()))
            }),
            (Cluster::resemblance(text), |document| {
                let checked = switchback_tls::check(document, &interface::all_addresses()?)?;
                Ok((checked.cluster.summary(), checked.warnings))
            }),
        ];
        // Of equals the last one.
        let (_, check) = kinds.into_iter().max_by_key(|(resemblance, _)| *resemblance).expect("three kinds");
        let (summary, warnings) = check(&document)?;
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
    config: Config,
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
            let keys = self.config.document()?.cluster()?.keys;
            switchback_config::client_key_file_text(&keys, &self.client)
        };
        match self.file {
            Some(file) => switchback_config::write_private(&file, &text)?,
            None => print!("{text}"),
        }
        Ok(())
    }
}
