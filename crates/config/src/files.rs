//! The other files that `cluster.toml` names: certificates, which the caller looks at, and the access log.

use crate::error::{Diagnostic, Mistake};
use crate::raw::{self, Spanned};
use crate::{
    Acme, CertificateFiles, CertificateSource, ClientCertificates, Cluster, LogTarget, Node, Service,
};

/// A valid `cluster.toml`.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The cluster, with its keys.
    pub cluster: Cluster,
    /// What is valid and yet cannot be meant, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

/// Files of a service with TLS that belong together.
#[derive(Clone, Copy, Debug)]
pub enum TlsFiles<'a> {
    /// A certificate of the service.
    Certificate(&'a CertificateFiles),
    /// What its clients' certificates are checked with.
    ClientCertificates(&'a ClientCertificates),
}

/// A finding in one of these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: TlsFile,
    /// Whether the configuration is invalid because of it; otherwise it is a warning.
    pub is_mistake: bool,
    /// What was found.
    pub what: String,
}

/// One of [`TlsFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// [`CertificateFiles::chain`]
    Chain,
    /// [`CertificateFiles::key`]
    Key,
    /// [`CertificateFiles::staple`]
    Staple,
    /// [`ClientCertificates::ca`]
    Ca,
    /// [`ClientCertificates::crl`]
    Crl,
}

/// What was found in other files, at the place where the file is named.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<Mistake>,
}

impl Found {
    /// Adds findings, each at the place of its file's path.
    fn add<'a>(&mut self, findings: Vec<Finding>, path: impl Fn(TlsFile) -> &'a Spanned<String>) {
        for Finding { file, is_mistake, what } in findings {
            let to = if is_mistake { &mut self.mistakes } else { &mut self.warnings };
            to.push(Mistake { at: path(file).span().start, what });
        }
    }
}

/// Looks at the files of `cluster`, which was made from `raw`.
pub(crate) fn look(
    raw: &raw::File,
    cluster: &Cluster,
    findings: &mut impl FnMut(&Cluster, &Service, TlsFiles<'_>) -> Vec<Finding>,
) -> Found {
    let mut found = Found::default();
    for (raw, service) in raw.service.iter().zip(&cluster.services) {
        let (Some(raw), Some(tls)) = (&raw.tls, service.tls.terminated()) else { continue };
        for (raw, files) in raw.certificate.iter().map(Spanned::get_ref).zip(&tls.certificates) {
            let (CertificateSource::Files(files), Some(chain)) = (files, &raw.chain) else { continue };
            let findings = findings(cluster, service, TlsFiles::Certificate(files));
            found.add(findings, |file| match file {
                TlsFile::Key => raw.key.as_ref().unwrap_or(chain),
                TlsFile::Staple => raw.staple.as_ref().unwrap_or(chain),
                _ => chain,
            });
        }
        if let (Some(raw), Some(files)) = (&raw.client_certificates, &tls.client_certificates) {
            let findings = findings(cluster, service, TlsFiles::ClientCertificates(files));
            found.add(findings, |file| match file {
                TlsFile::Crl => raw.crl.as_ref().unwrap_or(&raw.ca),
                _ => &raw.ca,
            });
        }
    }
    if let (Some(raw), Some(acme)) = (&raw.acme, &cluster.acme) {
        found.warnings.extend(authorities(raw, acme, &cluster.nodes[acme.node]));
    }
    if let (Some(raw), Some(log)) = (&raw.access_log, &cluster.access_log) {
        found.warnings.extend(log_directory(&raw.path, &log.target));
    }
    found
}

fn authorities(raw: &raw::Acme, acme: &Acme, node: &Node) -> Option<Mistake> {
    let (place, path) = (raw.ca.as_ref()?, acme.ca.as_ref()?);
    let what = format!("{}: not on this machine, node {:?} needs it", path.display(), node.name);
    (!path.is_file()).then(|| Mistake { at: place.span().start, what })
}

fn log_directory(path: &Spanned<String>, target: &LogTarget) -> Option<Mistake> {
    let LogTarget::File(file) = target else { return None };
    let directory = file.parent().filter(|directory| !directory.is_dir())?;
    let what = format!("the directory {} is missing on this machine", directory.display());
    Some(Mistake { at: path.span().start, what })
}
