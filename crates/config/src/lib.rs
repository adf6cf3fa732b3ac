//! `cluster.toml`, read and checked: a text becomes a [`Cluster`] in which every name resolves, or a list of
//! everything that is wrong with it.
//!
//! The file is the same on every machine of a cluster, and a mistake in it stops all of them. So reading it
//! has three steps, each in a file of its own: `raw` is the shape of the file as serde sees it, every value
//! with its place in the text; `validate` turns names into indices and collects all mistakes instead of
//! stopping at the first (what a single value may look like is in `syntax`); `key` handles the cluster key,
//! which is kept in a file of its own because `cluster.toml` is shown around and the key must not be.
//!
//! [`parse`] is all of it without touching the disk, [`load`] reads the files.

mod access_log;
mod admin;
mod client;
mod cluster;
mod diff;
mod error;
mod hash_key;
mod health;
mod key;
mod limits;
mod mistakes;
mod network;
mod node;
mod persistence;
mod pool;
mod raw;
mod redirect;
mod reference;
mod reports;
mod service;
mod shape;
mod switch;
mod syntax;
mod tls;
mod validate;

use std::path::Path;

use sha2::{Digest, Sha256};

pub use access_log::{AccessLog, LogFormat, LogTarget};
pub use admin::Admin;
pub use client::{Client, ClientKey, MAX_CLIENT_ADDRESSES, THIN_ACKS, client_key_file_text};
pub use cluster::Cluster;
pub use error::{Diagnostic, Error};
pub use hash_key::HashKey;
pub use health::{Check, Health};
pub use key::{ClusterKey, generate_key, key_file_text, write_key, write_private};
pub use limits::{Caps, Limits, TlsLimits};
pub use network::{MAX_NETWORKS, Network};
pub use node::{MAX_NODES, Node, WEIGHTS};
pub use persistence::{InsertedCookie, Persistence, PersistenceMode, SameSite};
pub use pool::{Balance, Delegate, Pool};
pub use redirect::{Redirect, Scheme};
pub use reference::{reference, schema};
pub use reports::Reports;
pub use service::{Action, HeaderMatch, HostMatch, MAX_LISTEN, Route, Service};
pub use switch::{MAX_SWITCHES, Rank, Switch};
pub use switchback_policy::PolicyKind;
pub use tls::{Certificate, ClientAddress, HandOver, Model, Protocol, Server, TicketScope, Tls, TlsVersion};

/// Reads and checks the file at `path` and the key file that it names.
///
/// Mistakes in `cluster.toml` are reported before the key file is looked at.
pub fn load(path: &Path) -> Result<Cluster, Error> {
    let text = error::read_text(std::fs::read(path), path)?;
    parse(&text, path, key::read_keys)
}

/// Checks `text` as the content of `file`, without touching the disk.
///
/// `file` stands in the messages, and the directory it is in is where relative paths begin, such as that of the
/// `key_file`. `keys` is asked for the keys in the key file once everything else has been found valid; [`load`]
/// reads them from the disk here.
pub fn parse(
    text: &str,
    file: &Path,
    keys: impl FnOnce(&Path) -> Result<Vec<ClusterKey>, Error>,
) -> Result<Cluster, Error> {
    let raw = raw::read(text).map_err(|mistake| error::invalid(text, file, vec![mistake]))?;
    let (key_file, mut cluster) =
        validate::check(&raw).map_err(|mistakes| error::invalid(text, file, mistakes))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    for service in &mut cluster.services {
        service.tls.iter_mut().for_each(|tls| tls.join(directory));
    }
    cluster.keys = keys(&directory.join(key_file))?;
    let hash: [u8; 32] = Sha256::digest(text).into();
    cluster.hash = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    Ok(cluster)
}
