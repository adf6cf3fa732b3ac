//! The other files that `cluster.toml` names: certificates, which the caller looks at, and the access log.

use crate::error::{Diagnostic, Mistake};
use crate::raw::{self, Spanned};
use crate::{Certificate, Cluster, LogTarget, Service};

/// A valid `cluster.toml`.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The cluster, with its keys.
    pub cluster: Cluster,
    /// What is valid and yet cannot be meant, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

/// A finding in one of the files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: CertificateFile,
    /// Whether the configuration is invalid because of it; otherwise it is a warning.
    pub is_mistake: bool,
    /// What was found.
    pub what: String,
}

/// The files of a [`Certificate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateFile {
    /// Its [`chain`](Certificate::chain).
    Chain,
    /// Its [`key`](Certificate::key).
    Key,
    /// Its [`staple`](Certificate::staple).
    Staple,
}

/// What was found in other files, at the place where the file is named.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<Mistake>,
}

/// Looks at the files of `cluster`, which was made from `raw`.
pub(crate) fn look(
    raw: &raw::File,
    cluster: &Cluster,
    certificate: &mut impl FnMut(&Cluster, &Service, &Certificate) -> Vec<Finding>,
) -> Found {
    let mut found = Found::default();
    for (raw, service) in raw.service.iter().zip(&cluster.services) {
        let (Some(raw), Some(tls)) = (&raw.tls, &service.tls) else { continue };
        for (raw, files) in raw.certificate.iter().zip(&tls.certificates) {
            for Finding { file, is_mistake, what } in certificate(cluster, service, files) {
                let to = if is_mistake { &mut found.mistakes } else { &mut found.warnings };
                to.push(Mistake { at: place(raw, file), what });
            }
        }
    }
    if let (Some(raw), Some(log)) = (&raw.access_log, &cluster.access_log) {
        found.warnings.extend(log_directory(&raw.path, &log.target));
    }
    found
}

fn place(certificate: &raw::Certificate, file: CertificateFile) -> usize {
    let path = match file {
        CertificateFile::Chain => &certificate.chain,
        CertificateFile::Key => &certificate.key,
        CertificateFile::Staple => certificate.staple.as_ref().unwrap_or(&certificate.chain),
    };
    path.span().start
}

fn log_directory(path: &Spanned<String>, target: &LogTarget) -> Option<Mistake> {
    let LogTarget::File(file) = target else { return None };
    let directory = file.parent().filter(|directory| !directory.is_dir())?;
    let what = format!("the directory {} is missing on this machine", directory.display());
    Some(Mistake { at: path.span().start, what })
}
