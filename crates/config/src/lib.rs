//! `cluster.toml`, read and checked: a text becomes a [`Cluster`] in which every name resolves, or a list of
//! everything that is wrong with it.
//!
//! The file is the same on every machine of a cluster, and a mistake in it stops all of them. So reading it
//! has several steps, each in a file of its own: `raw` is the shape of the file as serde sees it, every value
//! with its place in the text; `structure` compares a text with that shape; `validate` turns names into indices and
//! collects all mistakes instead of stopping at the first (what a single value may look like is in `syntax`); `files`
//! looks at the other files that it names; `resolved` makes nodes of the addresses of names; `key` handles the cluster key, which is kept in a file of its own because
//! `cluster.toml` is shown around and the key must not be.
//!
//! A [`Document`] is a text and its place; it comes from a [`Source`]. [`Document::parse`] is all of it of which only lists
//! of networks are on the disk, [`Document::cluster`] reads the key, too, and [`Document::check`] looks at every file.

mod access_log;
mod acme;
mod admin;
mod client;
mod cluster;
mod diff;
mod dns;
mod document;
mod error;
mod files;
mod fitting;
mod hash_key;
mod health;
mod key;
mod limits;
mod mirror;
mod mistakes;
mod network;
mod node;
mod outliers;
mod path_change;
mod pattern;
mod persistence;
mod pool;
mod rate;
mod raw;
mod redirect;
mod reference;
mod reports;
mod resolved;
mod rewrite;
mod route;
mod service;
mod shape;
mod source;
mod structure;
mod switch;
mod syntax;
mod tls;
mod validate;

use std::path::Path;

use sha2::{Digest, Sha256};

use resolved::Validated;

pub use access_log::{AccessLog, LogFormat, LogTarget};
pub use acme::{Acme, Challenge, ExternalAccount};
pub use admin::Admin;
pub use client::{Client, ClientKey, MAX_CLIENT_ADDRESSES, THIN_ACKS, client_key_file_text};
pub use cluster::Cluster;
pub use dns::{Dns, NodesFrom};
pub use document::{read, resemblance};
pub use error::{Diagnostic, Error, Severity, read_text};
pub use files::{Checked, Finding, TlsFile, TlsFiles};
pub use fitting::{Fitting, all_or_fitting, take_fitting};
pub use hash_key::HashKey;
pub use health::{Check, Health};
pub use key::{
    ClusterKey, generate_key, key_file_text, read_private, replace_private, write_key, write_private,
};
pub use limits::{Caps, Limits, TlsLimits};
pub use mirror::Mirror;
pub use network::{Admitted, ClientMatch, MAX_NETWORKS, Network, Networks};
pub use node::{Adoption, MAX_NODES, Node, WEIGHTS};
pub use outliers::Outliers;
pub use path_change::PathChange;
pub use pattern::Pattern;
pub use persistence::{InsertedCookie, Persistence, PersistenceMode, SameSite};
pub use pool::{Balance, Delegate, Pool, Resume, ServerProtocol};
pub use rate::{Limit, Over, Rate, RequestRate, ServiceLimits};
pub use redirect::{Redirect, Scheme};
pub use reference::{FileReference, KeyReference, NOTATION, TableReference, files, reference, schema};
pub use reports::Reports;
pub use resolved::Addresses;
pub use rewrite::{CERTIFICATE_FIELDS, CLIENT_FIELDS, NewField, Rewrite, is_same_variable};
pub use route::{Action, Conditions, FieldMatch, HostMatch, PathMatch, Route, SHARES, Split, ValueMatch};
pub use service::{MAX_LISTEN, Service};
pub use source::{Document, FileSource, Source};
pub use switch::{MAX_SWITCHES, Rank, Switch};
pub use switchback_policy::{PolicyKind, Terms};
pub use syntax::MAX_NAME;
pub use tls::{
    CertificateFiles, CertificateSource, ClientAddress, ClientAuth, ClientCertificates, HandOver, Model,
    Protocol, Server, TicketScope, Tls, TlsMode, TlsVersion,
};

/// Reads and checks the file at `path` and the key file that it names.
///
/// Mistakes in `cluster.toml` are reported before the key file is looked at.
pub fn load(path: &Path) -> Result<Cluster, Error> {
    Document::read(path)?.cluster()
}

/// Checks `text` as the content of `file`; reads no other file but the lists of networks that it names.
///
/// `file` stands in the messages, and the directory it is in is where relative paths begin, such as that of the
/// `key_file`. `keys` is asked for the keys in the key file once everything else has been found valid; [`load`]
/// reads them from the disk here.
pub fn parse(
    text: &str,
    file: &Path,
    keys: impl FnOnce(&Path) -> Result<Vec<ClusterKey>, Error>,
) -> Result<Cluster, Error> {
    Document::new(text, file).parse(keys)
}

impl Document {
    /// The cluster and its keys. Of other files, only lists of networks and the key file are read.
    pub fn cluster(&self) -> Result<Cluster, Error> {
        self.parse(key::read_keys)
    }

    /// As [`Document::cluster`]; `keys` is asked for the keys in the key file once everything else has been found valid.
    pub fn parse(
        &self,
        keys: impl FnOnce(&Path) -> Result<Vec<ClusterKey>, Error>,
    ) -> Result<Cluster, Error> {
        Ok(self.read_with(|_, _| files::Found::default(), keys)?.cluster)
    }

    /// The cluster without its keys, with warnings about what the text alone shows: for machines that are not of the cluster.
    pub fn check_text(&self) -> Result<Checked, Error> {
        self.read_with(|_, _| files::Found::default(), |_| Ok(Vec::new()))
    }

    /// As [`Document::cluster`], and looks at the other files as well, with warnings of what is valid and yet cannot be
    /// meant.
    ///
    /// `findings` says what is to be found in files of a service with TLS, whose paths are ready to be opened; a mistake makes
    /// the whole invalid.
    pub fn check(
        &self,
        mut findings: impl FnMut(&Cluster, &Service, TlsFiles<'_>) -> Vec<Finding>,
    ) -> Result<Checked, Error> {
        let look = |raw: &raw::File, cluster: &Cluster| files::look(raw, cluster, &mut findings);
        self.read_with(look, key::read_keys)
    }

    fn read_with(
        &self,
        look: impl FnOnce(&raw::File, &Cluster) -> files::Found,
        keys: impl FnOnce(&Path) -> Result<Vec<ClusterKey>, Error>,
    ) -> Result<Checked, Error> {
        let Document { text, name, directory, addresses, version } = self;
        let invalid = |mistakes| error::invalid(text, name, mistakes);
        let Validated { file: raw, mut cluster, mut warnings } = self.validated().map_err(invalid)?;
        for service in &mut cluster.services {
            if let TlsMode::Terminate(tls) = &mut service.tls {
                tls.join(directory);
            }
        }
        if let Some(acme) = &mut cluster.acme {
            acme.join(directory);
        }
        let found = look(&raw, &cluster);
        if !found.mistakes.is_empty() {
            return Err(invalid(found.mistakes));
        }
        warnings.extend(found.warnings);
        cluster.keys = keys(&directory.join(raw.cluster.key_file.get_ref()))?;
        let mut hash = Sha256::new_with_prefix(text);
        addresses.iter().for_each(|found| hash.update(format!("{found:?}")));
        let hash: [u8; 32] = hash.finalize().into();
        cluster.hash = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        cluster.version = *version;
        Ok(Checked { cluster, warnings: error::diagnostics(text, name, warnings, Severity::Warning) })
    }
}
