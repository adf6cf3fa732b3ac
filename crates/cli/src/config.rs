//! `--config`: a file, or a place in etcd or Kubernetes.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use switchback_access_log::escape::printable;
use switchback_config::{Cluster, Document, FileSource, Source};
use switchback_dns::Resolved;
use switchback_etcd::{Address, Composed, Followed, Registration, Store};
use switchback_gateway as kubernetes;
use switchback_runtime::state_directory;

use crate::failure::Failure;

/// Where the cluster.toml of a command is.
#[derive(Clone, Debug)]
pub enum Config {
    File(PathBuf),
    Etcd(Address),
    Kubernetes(kubernetes::Address),
}

impl FromStr for Config {
    type Err = String;

    fn from_str(text: &str) -> Result<Config, String> {
        if Address::resembles(text) {
            return Ok(Config::Etcd(text.parse()?));
        }
        if kubernetes::Address::resembles(text) {
            return Ok(Config::Kubernetes(text.parse()?));
        }
        Ok(Config::File(text.into()))
    }
}

impl std::fmt::Display for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Config::File(file) => file.display().fmt(f),
            Config::Etcd(address) => address.fmt(f),
            Config::Kubernetes(address) => address.fmt(f),
        }
    }
}

impl Config {
    /// The document as daemons have it, for a command that ends.
    pub fn document(&self) -> Result<Document, Failure> {
        match self {
            Config::File(file) => Ok(Document::read(file)?),
            Config::Etcd(address) => {
                let Composed { document, left_out } = store(address)?.followed()?;
                left_out.iter().for_each(|what| eprintln!("warning: {}", printable(what)));
                Ok(document)
            }
            Config::Kubernetes(address) => Ok(address.document(&state_directory())?),
        }
    }

    /// The document with the addresses of its names.
    pub fn resolved(&self) -> Result<Document, Failure> {
        let resolved = switchback_dns::resolve(&self.document()?);
        let (document, failed) =
            resolved.map_err(|error| Failure::system(format!("cannot resolve names: {error}")))?;
        failed.iter().for_each(|what| eprintln!("warning: {}", printable(what)));
        Ok(document)
    }

    /// The cluster, with its keys and the addresses of its names.
    pub fn cluster(&self) -> Result<Cluster, Failure> {
        Ok(self.resolved()?.cluster()?)
    }

    /// The source of a daemon of this role, and of the node that joins, if one does.
    pub fn source(
        &self,
        role: &str,
        joins: Option<(String, Registration)>,
    ) -> Result<Arc<dyn Source>, Failure> {
        let failed = |error| Failure::system(format!("cannot follow {self}: {error}"));
        let directory = state_directory();
        let source: Arc<dyn Source> = match self {
            Config::File(_) | Config::Kubernetes(_) if joins.is_some() => {
                return Err(Failure::system(
                    "--join needs a configuration in etcd: --config etcd://HOST:2379/PREFIX",
                ));
            }
            Config::File(file) => Arc::new(FileSource(file.clone())),
            Config::Etcd(address) => {
                Arc::new(Followed::start(address.clone(), role, &directory, joins).map_err(failed)?)
            }
            Config::Kubernetes(address) => {
                let followed = kubernetes::Followed::start(address.clone(), role, &directory);
                Arc::new(followed.map_err(failed)?)
            }
        };
        Ok(Arc::new(Resolved::new(source, role, &directory)))
    }

    /// The name that the document has for a machine. In Kubernetes, names of machines have dots.
    pub fn node_name(&self, machine: String) -> String {
        match self {
            Config::File(_) | Config::Etcd(_) => machine,
            Config::Kubernetes(_) => kubernetes::machine_name(&machine),
        }
    }
}

/// The store at an address.
pub fn store(address: &Address) -> Result<Store, Failure> {
    Store::new(address.clone()).map_err(|error| Failure::system(format!("cannot ask {address}: {error}")))
}
